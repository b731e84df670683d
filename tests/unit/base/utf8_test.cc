#include "engine/base/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

/* Table 3-7 of The Unicode Standard, by arithmetic: the length of a code point that text begins
 * with, 0 if it is ill-formed. */
static size_t expected(const std::string &text, uint32_t *code)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    const auto lead = static_cast<unsigned char>(text[0]);
    const size_t n = lead < 0x80 ? 1 : lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (n == 0 || n > text.size() || lead >= 0xF8) return 0;
    *code = n == 1 ? lead : lead & (0x7F >> n);
    for (size_t i = 1; i < n; i++) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte < 0x80 || byte > 0xBF) return 0;
        *code = *code << 6 | (byte & 0x3F);
    }
    const bool is_surrogate = *code >= 0xD800 && *code <= 0xDFFF;
    return *code < least[n] || *code > 0x10FFFF || is_surrogate ? 0 : n;
}

static void check(const std::string &text)
{
    uint32_t code = 0, found = 12345;
    const size_t n = expected(text, &code);
    ASSERT_EQ(weir_utf8_sequence(text.data(), text.size()), n) << testing::PrintToString(text);
    ASSERT_EQ(weir_utf8_next(&found, text.data(), text.size()), n);
    ASSERT_EQ(found, n > 0 ? code : 12345);
    ASSERT_EQ(weir_utf8_valid(text.data(), text.size()), n > 0 && n == text.size());
}

static std::string encode(uint32_t code)
{
    char bytes[4];
    return std::string(bytes, weir_utf8_encode(bytes, code));
}

TEST(Utf8, EveryCodePointIsWrittenAndReadBack)
{
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        const std::string text = encode(code);
        uint32_t found = 0;
        const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
        ASSERT_EQ(weir_utf8_next(&found, text.data(), text.size()), is_surrogate ? 0 : text.size());
        if (is_surrogate) continue;
        ASSERT_EQ(found, code);
        size_t length = 0;
        ASSERT_EQ(weir_utf8_decode(text.data(), &length), static_cast<int32_t>(code));
        ASSERT_EQ(length, text.size());
        const std::string longer = "\u00E9" + text;
        ASSERT_EQ(weir_utf8_last(longer.data(), longer.size()), 2U);
        ASSERT_EQ(weir_utf8_last(text.data(), text.size()), 0U);
    }
}

/* All texts of two bytes, and of three and four those with the ends of each byte's ranges. */
TEST(Utf8, IllFormedIsFound)
{
    static const unsigned char ends[] = { 0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0,
                                          0xC1, 0xC2, 0xDF, 0xE0, 0xEC, 0xED, 0xEE, 0xEF, 0xF0,
                                          0xF1, 0xF3, 0xF4, 0xF5, 0xF7, 0xF8, 0xFF };
    for (unsigned a = 0; a < 256; a++) {
        check({ static_cast<char>(a) });
        for (unsigned b = 0; b < 256; b++) {
            const std::string two = { static_cast<char>(a), static_cast<char>(b) };
            if (weir_utf8_sequence(two.data(), 1) == 0) check(two);
            if (b % 16 != 0 && b % 16 != 15) continue;
            for (const unsigned char c : ends) {
                const std::string three = two + static_cast<char>(c);
                if (weir_utf8_sequence(three.data(), 2) > 0) continue;
                check(three);
                for (const unsigned char d : ends)
                    if (weir_utf8_sequence(three.data(), 3) == 0)
                        check(three + static_cast<char>(d));
            }
        }
    }
}

/* The maximal parts of The Unicode Standard, table 3-8: each becomes one U+FFFD. */
TEST(Utf8, MaximalPartsOfIllFormedText)
{
    const std::string text = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64";
    const std::vector<size_t> wanted = { 1, 3, 2, 1, 1, 1, 1, 1, 1, 1 };
    std::vector<size_t> lengths;
    for (size_t i = 0; i < text.size(); i += lengths.back()) {
        bool valid;
        lengths.push_back(weir_utf8_step(text.data() + i, text.size() - i, &valid));
        EXPECT_EQ(valid, static_cast<unsigned char>(text[i]) < 0x80) << i;
    }
    EXPECT_EQ(lengths, wanted);
}

/* Words of eight bytes of ASCII are skipped at once: the wrong byte stands at each place. */
TEST(Utf8, AnIllFormedByteIsFoundAtEachPlaceOfALongText)
{
    for (size_t at = 0; at < 40; at++) {
        std::string text(40, 'a');
        EXPECT_TRUE(weir_utf8_valid(text.data(), text.size()));
        text[at] = '\xBF';
        EXPECT_FALSE(weir_utf8_valid(text.data(), text.size())) << at;
        text.replace(at, 1, "\u20AC");
        EXPECT_TRUE(weir_utf8_valid(text.data(), text.size())) << at;
        EXPECT_FALSE(weir_utf8_valid(text.data(), at + 2)) << at;
    }
    EXPECT_TRUE(weir_utf8_valid("", 0));
}
