/* Added tokens of single words, in all combinations with the other flags; what normalizers leave as
 * it is: decoding, streams, plain text. tests/golden/normalizers has ids of tokenizers. */
#include <algorithm>

#include "tests/unit/text/files.h"

namespace {

/* An added token with flags: w single_word, l lstrip, r rstrip, n normalized, s special. */
struct Added {
    const char *text, *flags;
};

bool has(const Added &token, char flag)
{
    return std::string(token.flags).find(flag) != std::string::npos;
}

/* Ids from 256 on. `normalizer`: JSON or nullptr. */
TokenizerPtr open_added(const std::vector<Added> &tokens, const char *normalizer = nullptr)
{
    const auto root = make_json({}, {});
    json_t *const list = json_object_get(root.get(), "added_tokens");
    json_int_t id = 256;
    for (const Added &t : tokens)
        json_array_append_new(
            list, json_pack(
                      "{s: I, s: s, s: b, s: b, s: b, s: b, s: b}", "id", id++, "content", t.text,
                      "single_word", has(t, 'w'), "lstrip", has(t, 'l'), "rstrip", has(t, 'r'),
                      "normalized", has(t, 'n'), "special", has(t, 's')
                  )
        );
    if (normalizer != nullptr)
        json_object_set_new(
            root.get(), "normalizer", json_loads(normalizer, JSON_DECODE_ANY, nullptr)
        );
    return open_json(test_folder(), root.get());
}

const char *const lower = R"({"type":"Sequence","normalizers":[{"type":"NFKC"},)"
                          R"({"type":"Lowercase"}]})";

size_t found(const Ids &ids) /* added tokens among the ids */
{
    return static_cast<size_t>(std::count_if(ids.begin(), ids.end(), [](int32_t id) {
        return id >= 256;
    }));
}

TEST(SingleWord, CountsOnlyBetweenCharactersThatAreNotOfWords)
{
    const auto t = open_added({ { "<w>", "w" } });
    for (const char *text :
         { "<w>", " <w> ", "<w><w>", "-<w>.", "\n<w>\t", "(<w>)", "\u00b2<w>\u00bd",
           "\u3000<w>\u3000", "\U0001f600<w>\U0001f600", "\u20ac<w>\u2581", "\u200b<w>\u2028",
           "\u2460<w>\u2777", "\xFF<w>\xFF" })
        EXPECT_EQ(found(encode(t.get(), text)), std::string(text) == "<w><w>" ? 2u : 1u) << text;
    for (const char *c : { "a",          "Z",          "7",      "_",      "\u00e9", "\u4f60",
                           "\u0301",     "\u0660",     "\u216b", "\u203f", "\u200d", "\u200c",
                           "\u24b6",     "\U0001f130", "\u0e33", "\u093e", "\u20dd", "\U0001d400",
                           "\U00010400", "\u02b0",     "\u01c5", "\uff3f" }) {
        EXPECT_EQ(found(encode(t.get(), std::string(c) + "<w>")), 0u) << c;
        EXPECT_EQ(found(encode(t.get(), std::string("<w>") + c)), 0u) << c;
        EXPECT_EQ(found(encode(t.get(), std::string(c) + " <w> " + c)), 1u) << c;
        EXPECT_EQ(found(encode(t.get(), std::string("<w>") + c + "<w>")), 0u) << c;
    }
}

TEST(SingleWord, ATokenThatDoesNotCountIsPassedOverAsAWhole)
{
    const auto t = open_added({ { "ab>", "w" }, { "b>", "" }, { "bb", "w" } });
    EXPECT_EQ(encode(t.get(), "ab>"), (Ids{ 256 }));
    EXPECT_EQ(encode(t.get(), "xab>"), (Ids{ 'x', 'a', 'b', '>' }));
    EXPECT_EQ(encode(t.get(), "xb>"), (Ids{ 'x', 257 }));
    EXPECT_EQ(encode(t.get(), "xbb.bb"), (Ids{ 'x', 'b', 'b', '.', 258 }));
    EXPECT_EQ(encode(t.get(), "ab>bb"), (Ids{ 'a', 'b', '>', 258 }));
}

TEST(SingleWord, LooksAtNeighboursBeforeItTakesSpaces)
{
    const auto t = open_added({ { "<x>", "wlr" }, { "<r>", "r" }, { " <q>", "" } });
    EXPECT_EQ(encode(t.get(), "a  <x>  b"), (Ids{ 'a', 256, 'b' }));
    EXPECT_EQ(encode(t.get(), "a<x>  b"), (Ids{ 'a', '<', 'x', '>', ' ', ' ', 'b' }));
    EXPECT_EQ(encode(t.get(), "<r>  <x>"), (Ids{ 257, 256 }));
    EXPECT_EQ(encode(t.get(), "<r> <x> <q>b"), (Ids{ 257, 256, 258, 'b' }));
    EXPECT_EQ(encode(t.get(), "<r>   <q> b"), (Ids{ 257, 258, ' ', 'b' }));
}

TEST(SingleWord, CharactersOfPlainTextAreNeighbours)
{
    const auto t = open_added({ { "<w>", "w" } });
    EXPECT_EQ(found(encode(t.get(), "a<w>", true, { { 0, 1 } })), 0u);
    EXPECT_EQ(found(encode(t.get(), "-<w>", true, { { 0, 1 } })), 1u);
    EXPECT_EQ(found(encode(t.get(), "<w>a", true, { { 3, 4 } })), 0u);
    EXPECT_EQ(found(encode(t.get(), "<w>", true, { { 0, 3 } })), 0u);
    EXPECT_EQ(found(encode(t.get(), "<w>", false)), 0u);
}

/* The text that is searched for them begins and ends at the other tokens. */
TEST(SingleWord, NormalizedOnesAreFoundBetweenTheOthers)
{
    const auto t = open_added({ { "MaSK", "wn" }, { "<C>", "s" } }, lower);
    EXPECT_EQ(encode(t.get(), "MASK"), (Ids{ 256 }));
    EXPECT_EQ(encode(t.get(), "<C>mask<C>"), (Ids{ 257, 256, 257 }));
    EXPECT_EQ(encode(t.get(), "\uff2d\uff21SK"), (Ids{ 256 }));
    EXPECT_EQ(found(encode(t.get(), "XMASK")), 0u);
    EXPECT_EQ(found(encode(t.get(), "\u00e9 mask\u0301")), 0u);
    EXPECT_EQ(encode(t.get(), "<c>"), (Ids{ '<', 'c', '>' }));
    EXPECT_EQ(weir_tokenizer_find(t.get(), "MaSK", 4), 256);
    EXPECT_EQ(weir_tokenizer_find(t.get(), "mask", 4), -1);
    EXPECT_EQ(decode(t.get(), { 257, 256 }), "<C>mask"); /* as tokenizers */
}

/* In a prompt with a user's text the template's own tokens are found as they are written. */
TEST(Normalizer, TokensOfATemplateAreFoundBesidePlainText)
{
    const auto t = open_added({ { "<S>", "ns" }, { "<T>", "n" } }, lower);
    EXPECT_EQ(encode(t.get(), "<S>Ab<S>", true, { { 3, 5 } }), (Ids{ 256, 'a', 'b', 256 }));
    EXPECT_EQ(encode(t.get(), "<T><S><T>", true, { { 3, 6 } }), (Ids{ 257, '<', 's', '>', 257 }));
    EXPECT_EQ(encode(t.get(), "<s>Ab<S>"), (Ids{ 256, 'a', 'b', 256 }));
    EXPECT_EQ(decode(t.get(), { 256, 257 }), "<S><t>");
}

std::string streamed(const weir_tokenizer *t, const Ids &ids)
{
    weir_detokenizer stream = {};
    stream.at_start = true;
    weir_buffer out = {};
    for (const int32_t id : ids)
        EXPECT_EQ(weir_detokenizer_token(&stream, t, &out, id, false), WEIR_OK);
    EXPECT_EQ(weir_detokenizer_finish(&stream, &out), WEIR_OK);
    const std::string text(out.data == nullptr ? "" : out.data, out.size);
    weir_buffer_free(&out);
    return text;
}

/* What decodes is the ids: the same with and without a normalizer, at once and in a stream. */
TEST(Normalizer, DecodingAndStreamsAreAsWithoutOne)
{
    const std::vector<Added> tokens = { { "<W>", "w" }, { "<L>", "lr" }, { "<C>", "s" } };
    const auto without = open_added(tokens), with = open_added(tokens, lower);
    Ids ids = { 256, 257, 258, 'A', 0xC3, 0x89, 0xE2, 0x84, 'x', 0xF0, 0x9F, 0x98, 0x80, 0xEF };
    for (int round = 0; round < 14; round++) {
        std::rotate(ids.begin(), ids.begin() + 1, ids.end());
        EXPECT_EQ(decode(with.get(), ids), decode(without.get(), ids));
        EXPECT_EQ(decode(with.get(), ids, true), decode(without.get(), ids, true));
        EXPECT_EQ(streamed(with.get(), ids), decode(without.get(), ids));
    }
    EXPECT_EQ(
        decode(with.get(), encode(with.get(), "\u212b<W>")), "\u00e5<w>"
    ); /* a letter before it */
    EXPECT_EQ(decode(with.get(), encode(with.get(), "\ufb01 <L> X")), "fi<L>x");
}

/* ---- long texts ------------------------------------------------------------------------------ */

std::string repeat(const std::string &unit, size_t bytes)
{
    std::string out;
    while (out.size() < bytes) out += unit;
    return out;
}

/* Were one of these quadratic, it would take 10^11 steps. */
TEST(Normalizer, LongTextsOfAnythingAreLinear)
{
    const std::vector<Added> tokens = {
        { "<w>", "wlr" }, { " ", "r" }, { "x<w>", "w" }, { "\u0451", "wn" }
    };
    const char *const steps = R"({"type":"Sequence","normalizers":[{"type":"Nmt"},{"type":"NFD"},)"
                              R"({"type":"StripAccents"},{"type":"NFKC"},{"type":"Lowercase"}]})";
    const auto plain = open_added(tokens), with = open_added(tokens, steps);
    const size_t n = 1 << 18;
    const std::pair<const char *, size_t> cases[] = {
        { "a", 0 },
        { "\u0301\u0323", 0 },
        { "<w>a", 0 },
        { "x<w>", 1 }, /* the last one */
        { "<w> ", n / 2 },
        { " ", n },
        { "\u0451 ", n / 3 * 2 + 2 },
        { "\ufdfa", 0 },
    };
    for (const auto &[unit, count] : cases) {
        const std::string text = repeat(unit, n);
        EXPECT_EQ(found(encode(plain.get(), text)), count) << unit;
        EXPECT_GT(encode(with.get(), text + ".").size(), 0u) << unit;
    }
}

} // namespace
