/* SentencePiece vocabularies in files: decoders and normalizers of tokenizer.json, and files that
 * lie. */
#include <cmath>
#include <functional>

#include "tests/unit/text/vocabularies.h"

namespace {

const std::string space = "\xE2\x96\x81";

/* ---- GGUF ------------------------------------------------------------------------------------ */

struct Case {
    const char *name;
    std::function<void(Pieces *, Options *)> spoil;
    const char *text; /* a part of the error */
};

Pieces good()
{
    Pieces pieces = base_pieces(true);
    pieces.push_back({ "a", -1, NORMAL });
    pieces.push_back({ "aa", -2, NORMAL });
    return pieces;
}

const Case cases[] = {
    { "empty", [](Pieces *p, Options *) { p->clear(); }, "tokens" },
    { "type_zero", [](Pieces *p, Options *) { p->back().type = 0; }, "type 0" },
    { "type_seven", [](Pieces *p, Options *) { p->back().type = 7; }, "type 7" },
    { "type_negative", [](Pieces *p, Options *) { p->back().type = -1; }, "type -1" },
    { "byte_missing", [](Pieces *p, Options *) { p->erase(p->begin() + 3 + 0x41); }, "<0x41>" },
    { "byte_twice", [](Pieces *p, Options *) { p->push_back({ "<0x41>", 0, BYTE }); }, "<0x41>" },
    { "byte_name", [](Pieces *p, Options *) { (*p)[5].text = "<0xZZ>"; }, "<0xZZ>" },
    { "piece_twice", [](Pieces *p, Options *) { p->push_back({ "aa", 0, NORMAL }); }, "same" },
    { "control_twice", [](Pieces *p, Options *) { p->push_back({ "</s>", 0, CONTROL }); }, "same" },
    { "unknown_twice", [](Pieces *p, Options *) { p->push_back({ "?", 0, UNKNOWN }); },
      "second unknown" },
    { "ill_formed", [](Pieces *p, Options *) { p->back().text = "a\xC3"; }, "UTF-8" },
    { "piece_empty", [](Pieces *p, Options *) { p->back().text = ""; }, "empty" },
    { "piece_long", [](Pieces *p, Options *) { p->back().text = std::string(513, 'a'); }, "513" },
    { "score_nan", [](Pieces *p, Options *) { p->back().score = NAN; }, "scores[260]" },
    { "score_infinite", [](Pieces *p, Options *) { p->back().score = -INFINITY; }, "scores[260]" },
    { "no_unknown_no_bytes",
      [](Pieces *p, Options *) { *p = { { "<s>", 0, CONTROL }, { "a", 0, NORMAL } }; },
      "neither an unknown piece" },
    { "nothing_makes_text",
      [](Pieces *p, Options *) { *p = { { "<unk>", 0, UNKNOWN }, { "<s>", 0, CONTROL } }; },
      "no pieces" },
    { "model", [](Pieces *, Options *o) { o->model = "rwkv"; }, "rwkv" },
};

class Lies : public testing::TestWithParam<Case> {};

TEST_P(Lies, AreRefusedByName)
{
    for (const char *model : { "llama", "t5" }) {
        Pieces pieces = good();
        Options options;
        options.model = model;
        GetParam().spoil(&pieces, &options);
        TokenizerPtr t(nullptr, weir_tokenizer_close);
        weir_error error = {};
        EXPECT_NE(open_gguf(&t, test_folder(), pieces_file(pieces, options), &error), WEIR_OK);
        EXPECT_EQ(t, nullptr);
        EXPECT_NE(std::string(error.text).find(GetParam().text), std::string::npos) << error.text;
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, Lies, testing::ValuesIn(cases),
    [](const testing::TestParamInfo<Case> &info) { return std::string(info.param.name); }
);

void expect_refused(const GgufWriter &file, const char *text)
{
    TokenizerPtr t(nullptr, weir_tokenizer_close);
    weir_error error = {};
    EXPECT_EQ(open_gguf(&t, test_folder(), file, &error), WEIR_EFORMAT);
    EXPECT_NE(std::string(error.text).find(text), std::string::npos) << error.text;
}

TEST(PieceFiles, ScoresOfAnotherLengthAreRefused)
{
    for (const std::vector<float> &scores : { std::vector<float>{}, { 0, 0 }, { 0, 0, 0, 0 } }) {
        GgufWriter file;
        file.text("tokenizer.ggml.model", "llama");
        file.texts("tokenizer.ggml.tokens", { "<unk>", "a", "b" });
        file.integers("tokenizer.ggml.token_type", { UNKNOWN, NORMAL, NORMAL });
        file.numbers("tokenizer.ggml.scores", scores);
        expect_refused(file, "scores has");
    }
}

TEST(PieceFiles, MissingKeysAreRefused)
{
    GgufWriter types;
    types.text("tokenizer.ggml.model", "llama");
    types.texts("tokenizer.ggml.tokens", { "<unk>", "a" });
    types.numbers("tokenizer.ggml.scores", { 0, 0 });
    expect_refused(types, "token_type is missing");
    GgufWriter scores;
    scores.text("tokenizer.ggml.model", "llama");
    scores.texts("tokenizer.ggml.tokens", { "<unk>", "a" });
    scores.integers("tokenizer.ggml.token_type", { UNKNOWN, NORMAL });
    expect_refused(scores, "scores is missing");
    GgufWriter merges;
    merges.text("tokenizer.ggml.model", "gemma4");
    merges.texts("tokenizer.ggml.tokens", { "<unk>", "a" });
    merges.integers("tokenizer.ggml.token_type", { UNKNOWN, NORMAL });
    expect_refused(merges, "merges is missing");
}

TEST(PieceFiles, UnknownCharactersAreOneIdWithoutBytes)
{
    Pieces pieces = base_pieces(false);
    pieces.push_back({ "a", -1, NORMAL });
    for (const char *model : { "llama", "t5" }) {
        Options options;
        options.model = model;
        const auto t = open_pieces(pieces, options);
        EXPECT_EQ(names_of(pieces, encode(t.get(), "xyzaxa")), "<unk>|a|<unk>|a") << model;
    }
}

Ids stops_of(const Pieces &pieces)
{
    const auto t = open_pieces(pieces);
    size_t n = 0;
    const int32_t *const ids = weir_tokenizer_stop_ids(t.get(), &n);
    return Ids(ids, ids + n);
}

TEST(PieceFiles, EndOfMessageStopsOnlyWhereNoOtherTokenEndsTheAnswer)
{
    Pieces pieces = { { "<unk>", 0, UNKNOWN }, { "a", 0, NORMAL }, { "<|end|>", 0, CONTROL } };
    EXPECT_EQ(stops_of(pieces), (Ids{ 2 })); /* Phi */
    pieces.push_back({ "<|return|>", 0, CONTROL });
    EXPECT_EQ(stops_of(pieces), (Ids{ 3 })); /* gpt-oss */
    pieces = { { "<unk>", 0, UNKNOWN }, { "a", 0, NORMAL }, { "<end_of_turn>", 0, CONTROL } };
    EXPECT_EQ(stops_of(pieces), (Ids{ 2 })); /* Gemma */
    pieces.back().type = USER;
    EXPECT_EQ(stops_of(pieces), Ids{});
}

/* ---- decoding -------------------------------------------------------------------------------- */

TEST(PieceFiles, OnlyASpaceOfTheFirstPieceIsDropped)
{
    Pieces pieces = base_pieces(true);
    pieces.push_back({ space, -1, NORMAL });
    pieces.push_back({ space + "a", -1, NORMAL });
    Options options;
    options.prefix = true;
    const auto t = open_pieces(pieces, options);
    const int32_t a = 260, blank = 259, byte_space = 3 + 0x20;
    EXPECT_EQ(decode(t.get(), { a, a }), "a a");
    EXPECT_EQ(decode(t.get(), { blank, a }), " a");
    EXPECT_EQ(decode(t.get(), { byte_space, a }), "  a");
    EXPECT_EQ(decode(t.get(), { 1, a }, true), "a");
    EXPECT_EQ(decode(t.get(), { 1, a }), "<s> a");
    const auto plain = open_pieces(pieces);
    EXPECT_EQ(decode(plain.get(), { a, a }), " a a");
    options.remove_spaces = true;
    const auto removes = open_pieces(pieces, options);
    EXPECT_EQ(decode(removes.get(), { blank, blank, a }), "a");
}

std::string streamed(const weir_tokenizer *t, const Ids &ids, bool at_start)
{
    weir_detokenizer stream = {};
    stream.at_start = at_start;
    weir_buffer out = {};
    for (const int32_t id : ids)
        EXPECT_EQ(weir_detokenizer_token(&stream, t, &out, id, true), WEIR_OK);
    EXPECT_EQ(weir_detokenizer_finish(&stream, &out), WEIR_OK);
    const std::string text(out.data == nullptr ? "" : out.data, out.size);
    weir_buffer_free(&out);
    return text;
}

TEST(PieceFiles, AStreamThatContinuesAPromptKeepsItsFirstSpace)
{
    Pieces pieces = base_pieces(true);
    pieces.push_back({ space + "a", -1, NORMAL });
    Options options;
    options.prefix = true;
    const auto t = open_pieces(pieces, options);
    EXPECT_EQ(streamed(t.get(), { 259, 259 }, false), " a a");
    EXPECT_EQ(streamed(t.get(), { 259, 259 }, true), "a a");
}

TEST(PieceFiles, BytesJoinToCharactersAndEachIllFormedOneIsReplaced)
{
    const std::string r = "\xEF\xBF\xBD";
    Pieces pieces = good();
    const auto t = open_pieces(pieces);
    const auto byte = [](int b) { return 3 + b; };
    const std::pair<Ids, std::string> runs[] = {
        { { byte(0xE6), byte(0x97), byte(0xA5) }, "\xE6\x97\xA5" },
        { { byte(0xE6), byte(0x97), 259 }, r + r + "a" },
        { { byte(0xE6), 1, byte(0x97), byte(0xA5) }, r + r + r },
        { { byte(0xFF), byte(0x41) }, r + "A" },
        { { byte(0xED), byte(0xA0), byte(0x80) }, r + r + r },
        { { byte(0xF0), byte(0x9F), byte(0x99) }, r + r + r },
        { { byte(0xC3), byte(0xC3), byte(0xA9) }, r + "\xC3\xA9" },
    };
    for (const auto &[ids, want] : runs) {
        EXPECT_EQ(decode(t.get(), ids, true), want);
        EXPECT_EQ(streamed(t.get(), ids, true), want);
    }
}

/* ---- tokenizer.json -------------------------------------------------------------------------- */

/* A vocabulary of BPE with byte fallback, with the steps given as JSON. */
std::string bpe_json(
    const std::string &normalizer, const std::string &pre, const std::string &decoder
)
{
    std::string vocab = R"("<unk>":0,"<s>":1,"▁":2,"a":3,"b":4,"▁a":5)";
    for (unsigned byte = 0; byte < 256; byte++) {
        char entry[24];
        std::snprintf(entry, sizeof entry, ",\"<0x%02X>\":%u", byte, 6 + byte);
        vocab += entry;
    }
    return R"({"added_tokens":[{"id":1,"content":"<s>","special":true,"normalized":false}],)"
           R"("normalizer":)" +
           normalizer + R"(,"pre_tokenizer":)" + pre + R"(,"decoder":)" + decoder +
           R"(,"model":{"type":"BPE","byte_fallback":true,"fuse_unk":true,"unk_token":"<unk>",)"
           R"("vocab":{)" +
           vocab + R"(},"merges":["▁ a"]}})";
}

const char *const prepend = R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
                            R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]})";
const char *const fallback =
    R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
    R"({"type":"ByteFallback"},{"type":"Fuse"},)"
    R"({"type":"Strip","content":" ","start":1,"stop":0}]})";

TokenizerPtr open_steps(
    const std::string &normalizer, const std::string &pre, const std::string &decoder
)
{
    TokenizerPtr t(nullptr, weir_tokenizer_close);
    weir_error error = {};
    EXPECT_EQ(open_text(&t, test_folder(), bpe_json(normalizer, pre, decoder), &error), WEIR_OK)
        << error.text;
    return t;
}

std::string metaspace(const char *options)
{
    return std::string(R"({"type":"Metaspace","replacement":"▁",)") + options + "}";
}

TEST(PieceFiles, TheStepsOfLlamaTwoAreRead)
{
    const auto t = open_steps(prepend, "null", fallback);
    EXPECT_EQ(encode(t.get(), "a a"), (Ids{ 5, 5 }));
    EXPECT_EQ(encode(t.get(), "a<s>a"), (Ids{ 5, 1, 5 })); /* each text gets its space */
    EXPECT_EQ(encode(t.get(), "\xC3"), encode(t.get(), "\xEF\xBF\xBD"));
    EXPECT_EQ(encode(t.get(), "z"), (Ids{ 2, 6 + 'z' }));
    EXPECT_EQ(decode(t.get(), { 5, 5 }), "a a");
    EXPECT_EQ(decode(t.get(), { 6 + ' ', 5 }), " a");
    EXPECT_EQ(decode(t.get(), { 1, 5 }), "<s> a");
    EXPECT_EQ(decode(t.get(), { 1, 5 }, true), "a");
    /* tokenizers replaces every byte of a run with one that is ill-formed */
    EXPECT_EQ(decode(t.get(), { 6 + 'z', 6 + 0xC3 }), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(PieceFiles, AddedTokensTakeTheWhiteSpaceBesideThem)
{
    std::string text = bpe_json(prepend, "null", fallback);
    const std::string one = R"("special":true,"normalized":false})";
    const std::string more = R"(,{"id":300,"content":"<l>","special":true,"lstrip":true},)"
                             R"({"id":301,"content":"<r>","special":true,"rstrip":true})";
    text.insert(text.find(one) + one.size(), more);
    TokenizerPtr t(nullptr, weir_tokenizer_close);
    weir_error error = {};
    ASSERT_EQ(open_text(&t, test_folder(), text, &error), WEIR_OK) << error.text;
    EXPECT_EQ(encode(t.get(), "a \n\xE3\x80\x80<l>a"), (Ids{ 5, 300, 5 }));
    EXPECT_EQ(
        encode(
            t.get(), "a<r> \n\xC2\xA0"
                     "a"
        ),
        (Ids{ 5, 301, 5 })
    );
    EXPECT_EQ(encode(t.get(), "<r>  <l>"), (Ids{ 301, 300 }));
    EXPECT_EQ(encode(t.get(), " <l>"), (Ids{ 300 }));
    EXPECT_EQ(encode(t.get(), "<r> "), (Ids{ 301 }));
    EXPECT_EQ(encode(t.get(), "<l> a"), (Ids{ 300, 2, 5 }));
}

TEST(PieceFiles, MetaspacePutsASpaceWhereItsSchemeSays)
{
    const auto always = open_steps("null", metaspace(R"("prepend_scheme":"always")"), fallback);
    EXPECT_EQ(encode(always.get(), "a<s>a"), (Ids{ 5, 1, 5 }));
    EXPECT_EQ(encode(always.get(), " a"), (Ids{ 5 }));
    const auto first = open_steps("null", metaspace(R"("prepend_scheme":"first")"), fallback);
    EXPECT_EQ(encode(first.get(), "a<s>a"), (Ids{ 5, 1, 3 }));
    EXPECT_EQ(encode(first.get(), "<s>a"), (Ids{ 1, 3 }));
    const auto never = open_steps("null", metaspace(R"("prepend_scheme":"never")"), fallback);
    EXPECT_EQ(encode(never.get(), "a a"), (Ids{ 3, 5 }));
    const auto legacy = open_steps("null", metaspace(R"("add_prefix_space":false)"), fallback);
    EXPECT_EQ(encode(legacy.get(), "a"), (Ids{ 3 }));
    const auto decoder =
        open_steps("null", metaspace(R"("split":false)"), metaspace(R"("prepend_scheme":"first")"));
    EXPECT_EQ(decode(decoder.get(), { 5, 5 }), "a a");
    EXPECT_EQ(decode(decoder.get(), { 1, 5 }), "<s> a");
}

TEST(PieceFiles, UnigramVocabulariesAreRead)
{
    const std::string json =
        R"({"normalizer":{"type":"Sequence","normalizers":[{"type":"Strip","strip_left":false,)"
        R"("strip_right":true},{"type":"Replace","pattern":{"Regex":" {2,}"},"content":"▁"}]},)"
        R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},)"
        R"({"type":"Metaspace","replacement":"▁","add_prefix_space":true}]},)"
        R"("decoder":{"type":"Metaspace","replacement":"▁","add_prefix_space":true},)"
        R"("model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["▁",-3.0],["a",-4.0],)"
        R"(["b",-4.5],["ab",-5],["▁ab",-9.5]]}})";
    TokenizerPtr t(nullptr, weir_tokenizer_close);
    weir_error error = {};
    ASSERT_EQ(open_text(&t, test_folder(), json, &error), WEIR_OK) << error.text;
    EXPECT_EQ(encode(t.get(), "ab  ab "), (Ids{ 1, 4, 1, 4 }));
    EXPECT_EQ(encode(t.get(), "xyb"), (Ids{ 1, 0, 3 }));
    EXPECT_EQ(decode(t.get(), { 5, 1, 4 }), "ab ab");
}

TEST(PieceFiles, UnknownStepsOfTokenizerJsonAreNamed)
{
    const struct {
        std::string normalizer, pre, decoder;
        const char *text;
    } lies[] = {
        { R"({"type":"BertNormalizer"})", "null", fallback, "BertNormalizer" },
        { "3", "null", fallback, "normalizer" },
        { R"({"type":"Replace","pattern":{"Regex":"x+"},"content":"y"})", "null", fallback,
          "Replace" },
        { R"({"type":"Replace","pattern":{"String":""},"content":"y"})", "null", fallback,
          "Replace" },
        { R"({"type":"Precompiled","precompiled_charsmap":"AAA*"})", "null", fallback, "base64" },
        { R"({"type":"Precompiled","precompiled_charsmap":"CAAAAAAA"})", "null", fallback,
          "cut off" },
        { R"({"type":"Sequence","normalizers":3})", "null", fallback, "normalizers" },
        { prepend, R"({"type":"BertPreTokenizer"})", fallback, "BertPreTokenizer" },
        { "null", R"({"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious"})",
          fallback, "MergedWithPrevious" },
        { prepend, metaspace(R"("prepend_scheme":"last")"), fallback, "Metaspace" },
        { prepend, "null", "null", "decoder is missing" },
        { prepend, "null", R"({"type":"WordPiece"})", "WordPiece" },
        { prepend, "null", R"({"type":"Strip","content":" ","start":1,"stop":1})", "Strip" },
    };
    for (const auto &lie : lies) {
        TokenizerPtr t(nullptr, weir_tokenizer_close);
        weir_error error = {};
        EXPECT_NE(
            open_text(&t, test_folder(), bpe_json(lie.normalizer, lie.pre, lie.decoder), &error),
            WEIR_OK
        ) << lie.text;
        EXPECT_NE(std::string(error.text).find(lie.text), std::string::npos) << error.text;
    }
}

TEST(PieceFiles, UnigramFilesThatLieAreRefused)
{
    for (const char *model :
         { R"({"type":"Unigram","unk_id":0,"vocab":[]})", R"({"type":"Unigram","unk_id":0})",
           R"({"type":"Unigram","unk_id":1,"vocab":[["a",0]]})",
           R"({"type":"Unigram","vocab":[["a",0]]})",
           R"({"type":"Unigram","unk_id":0,"vocab":[["a"]]})",
           R"({"type":"Unigram","unk_id":0,"vocab":[["a","b"]]})",
           R"({"type":"Unigram","unk_id":0,"vocab":[["a",0],["a",1]]})",
           R"({"type":"Unigram","unk_id":0,"vocab":[["",0]]})" }) {
        TokenizerPtr t(nullptr, weir_tokenizer_close);
        weir_error error = {};
        const std::string text =
            std::string(R"({"decoder":{"type":"Fuse"},"model":)") + model + "}";
        EXPECT_EQ(open_text(&t, test_folder(), text, &error), WEIR_EFORMAT) << model;
        EXPECT_NE(std::string(error.text).find("model."), std::string::npos) << error.text;
    }
}

} // namespace
