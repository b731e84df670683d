#include "engine/base/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace {

std::string hex(const weir_sha256 &sum)
{
    char text[WEIR_SHA256_HEX + 1];
    weir_sha256_text(text, &sum);
    return text;
}

std::string of(const std::string &text) { return hex(weir_sha256_of(text.data(), text.size())); }

std::string filled(size_t n)
{
    std::string text(n, ' ');
    for (size_t i = 0; i < n; i++) text[i] = static_cast<char>(i * 131 + i / 7);
    return text;
}

} // namespace

/* NIST's examples for FIPS 180-4. */
TEST(Sha256, IsThatOfTheStandard)
{
    EXPECT_EQ(of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(
        of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
    );
    EXPECT_EQ(
        of(std::string(1000000, 'a')),
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
    );
}

TEST(Sha256, OfPiecesIsThatOfTheWhole)
{
    const std::string text = filled(1000);
    for (size_t piece = 1; piece < 200; piece++) {
        weir_sha256_stream stream;
        weir_sha256_begin(&stream);
        for (size_t at = 0; at < text.size(); at += piece)
            weir_sha256_add(&stream, text.data() + at, std::min(piece, text.size() - at));
        EXPECT_EQ(hex(weir_sha256_end(&stream)), of(text)) << piece;
    }
}

/* The instructions where this processor has them; the plain code everywhere. */
TEST(Sha256, EachImplementationHasTheSumOfABlock)
{
    std::vector<weir_sha256_blocks *> ways = { weir_sha256_blocks_plain };
    if (weir_sha256_has_shani()) ways.push_back(weir_sha256_blocks_shani);
    std::string block(128, '\0');
    for (size_t i = 0; i < 64; i++) block[i] = 'a';
    block[64] = static_cast<char>(0x80);
    block[126] = 2; /* 512 bits */
    for (size_t i = 0; i < ways.size(); i++) {
        uint32_t state[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                              0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
        const uint32_t want[8] = { 0xffe054fe, 0x7ae0cb6d, 0xc65c3af9, 0xb61d5209,
                                   0xf439851d, 0xb43d0ba5, 0x997337df, 0x154668eb };
        ways[i](state, reinterpret_cast<const uint8_t *>(block.data()), 2);
        for (int w = 0; w < 8; w++) EXPECT_EQ(state[w], want[w]) << "way " << i << ", word " << w;
    }
}

TEST(Sha256, ParsesItsText)
{
    const weir_sha256 sum = weir_sha256_of("x", 1);
    std::string text = hex(sum);
    weir_sha256 read = {};
    ASSERT_TRUE(weir_sha256_parse(&read, text.c_str()));
    EXPECT_EQ(hex(read), text);
    text[0] = 'A';
    EXPECT_TRUE(weir_sha256_parse(&read, text.c_str()));
    EXPECT_EQ(hex(read)[0], 'a');
    EXPECT_FALSE(weir_sha256_parse(&read, text.substr(0, 63).c_str()));
    text[63] = 'g';
    EXPECT_FALSE(weir_sha256_parse(&read, text.c_str()));
}
