/* Precompiled normalisation: what is replaced, and maps that lie. */
#include "engine/text/charsmap.h"
#include "tests/unit/text/charsmap.h"
#include "tests/unit/text/vocabularies.h"

namespace {

const std::string space = "\xE2\x96\x81";

CharsmapWriter usual()
{
    CharsmapWriter map;
    map.add("\xEF\xBC\xA1", "A"); /* fullwidth A */
    map.add("\t", " ");
    map.add("x", "");
    map.add("ab", "1");
    map.add("abc", "23");
    return map;
}

TEST(Charsmap, TheLongestKeyIsReplaced)
{
    Pieces pieces = base_pieces(true);
    for (const char *text : { "A", "1", "2", "3", "a", "b", "c", "d" })
        pieces.push_back({ text, -1, NORMAL });
    pieces.push_back({ space, -1, NORMAL });
    Options options;
    options.charsmap = usual().finish();
    for (const char *model : { "llama", "t5" }) {
        options.model = model;
        const auto t = open_pieces(pieces, options);
        EXPECT_EQ(names_of(pieces, encode(t.get(), "\xEF\xBC\xA1")), "A");
        EXPECT_EQ(names_of(pieces, encode(t.get(), "abcabdab")), "2|3|1|d|1");
        EXPECT_EQ(names_of(pieces, encode(t.get(), "a\tb")), "a|" + space + "|b");
        EXPECT_EQ(names_of(pieces, encode(t.get(), "axbx")), "a|b");
        EXPECT_EQ(names_of(pieces, encode(t.get(), "x")), "");
    }
}

TEST(Charsmap, UserDefinedPiecesAreNotReplaced)
{
    Pieces pieces = base_pieces(true);
    pieces.push_back({ "1", -1, NORMAL });
    pieces.push_back({ "xab", 0, USER });
    Options options;
    options.charsmap = usual().finish();
    const auto t = open_pieces(pieces, options);
    EXPECT_EQ(names_of(pieces, encode(t.get(), "abxabab")), "1|xab|1");
}

TEST(Charsmap, MapsThatAreCutOffAreRefused)
{
    const std::string whole = usual().finish();
    const Pieces pieces = base_pieces(true);
    Options options;
    std::string large(4, '\0');
    large[0] = 8;
    for (const std::string &bytes :
         { whole.substr(0, 3), whole.substr(0, 4), whole.substr(0, whole.size() / 2),
           whole.substr(0, whole.size() - 1), whole + std::string(2000, 'a') + '\0',
           std::string(8, '\0'), std::string("\x06\0\0\0abcdef\0", 11) }) {
        options.charsmap = bytes;
        TokenizerPtr t(nullptr, weir_tokenizer_close);
        weir_error error = {};
        EXPECT_EQ(open_gguf(&t, test_folder(), pieces_file(pieces, options), &error), WEIR_EFORMAT)
            << bytes.size();
        EXPECT_NE(std::string(error.text).find("precompiled_charsmap"), std::string::npos)
            << error.text;
    }
}

/* Every unit points somewhere, most of them outside. */
TEST(Charsmap, AnyArrayIsReadInBounds)
{
    Random random(7);
    for (int round = 0; round < 200; round++) {
        std::string bytes;
        const uint32_t n = 4 * static_cast<uint32_t>(1 + random.below(64));
        for (int i = 0; i < 4; i++) bytes += static_cast<char>(n >> 8 * i);
        for (uint32_t i = 0; i < n; i++)
            bytes += static_cast<char>(random.below(4) == 0 ? random.below(256) : 0);
        bytes += std::string("\xC3\0ab\0", 5);
        weir_charsmap map = {};
        weir_error error = {};
        ASSERT_EQ(weir_charsmap_open(&map, bytes.data(), bytes.size(), &error), WEIR_OK);
        for (int i = 0; i < 50; i++) {
            std::string text;
            for (size_t k = 1 + random.below(6); k > 0; k--)
                text += static_cast<char>(random.below(8));
            const char *to = nullptr;
            size_t n_to = 0;
            const size_t found = weir_charsmap_match(
                &map, WEIR_CHARSMAP_LONGEST, text.data(), text.size(), &to, &n_to
            );
            ASSERT_LE(found, text.size());
            if (found > 0) {
                ASSERT_LT(n_to, 3u);
                ASSERT_NE(std::string(to, n_to), "\xC3"); /* ill-formed */
            }
        }
        weir_charsmap_free(&map);
    }
}

/* A node that is its own child for every byte. */
TEST(Charsmap, ACycleEndsAfterTheLongestKey)
{
    CharsmapWriter writer;
    writer.add("a", "b");
    std::string bytes = writer.finish();
    const size_t at = (256 ^ 'a');
    const uint32_t unit = static_cast<uint32_t>((at ^ 256) << 10) | 1U << 8 | 'a';
    for (int i = 0; i < 4; i++)
        bytes[4 + 4 * at + static_cast<size_t>(i)] = static_cast<char>(unit >> 8 * i);
    weir_charsmap map = {};
    weir_error error = {};
    ASSERT_EQ(weir_charsmap_open(&map, bytes.data(), bytes.size(), &error), WEIR_OK);
    const std::string text(100000, 'a');
    const char *to;
    size_t n_to;
    EXPECT_LE(
        weir_charsmap_match(&map, WEIR_CHARSMAP_LONGEST, text.data(), text.size(), &to, &n_to),
        static_cast<size_t>(WEIR_CHARSMAP_KEY_BYTES)
    );
    weir_charsmap_free(&map);
}

} // namespace
