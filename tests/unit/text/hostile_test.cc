/* Files that lie: every one is refused with an error that names the key, or read within bounds. */
#include <cstring>
#include <functional>

#include "tests/unit/text/files.h"
#include "tests/unit/text/pieces.h"

namespace {

struct Case {
    const char *name;
    std::function<void(json_t *root)> spoil;
    weir_status status;
    const char *text; /* a part of the error */
};

json_t *model(json_t *root) { return json_object_get(root, "model"); }
json_t *vocab(json_t *root) { return json_object_get(model(root), "vocab"); }
json_t *merges(json_t *root) { return json_object_get(model(root), "merges"); }
json_t *added(json_t *root) { return json_object_get(root, "added_tokens"); }
void set(json_t *object, const char *key, const char *json)
{
    json_object_set_new(object, key, json_loads(json, JSON_DECODE_ANY, nullptr));
}
void append(json_t *array, const char *json)
{
    json_array_append_new(array, json_loads(json, JSON_DECODE_ANY, nullptr));
}

void split(json_t *root, const char *pattern)
{
    json_object_set_new(
        root, "pre_tokenizer",
        json_pack(
            "{s: s, s: [{s: s, s: {s: s}, s: s, s: b}, {s: s, s: b, s: b}]}", "type", "Sequence",
            "pretokenizers", "type", "Split", "pattern", "Regex", pattern, "behavior", "Isolated",
            "invert", 0, "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 0
        )
    );
}

const Case cases[] = {
    { "model_missing", [](json_t *r) { json_object_del(r, "model"); }, WEIR_EFORMAT, "model" },
    { "model_wordpiece", [](json_t *r) { set(model(r), "type", "\"WordPiece\""); },
      WEIR_EUNSUPPORTED, "WordPiece" },
    { "model_unigram", [](json_t *r) { set(model(r), "type", "\"Unigram\""); }, WEIR_EFORMAT,
      "model.vocab is not an array" },
    { "byte_fallback", [](json_t *r) { set(model(r), "byte_fallback", "true"); }, WEIR_EUNSUPPORTED,
      "ByteLevel" },
    { "suffix", [](json_t *r) { set(model(r), "end_of_word_suffix", "\"</w>\""); },
      WEIR_EUNSUPPORTED, "end_of_word_suffix" },
    { "vocab_list", [](json_t *r) { set(model(r), "vocab", "[]"); }, WEIR_EFORMAT, "model.vocab" },
    { "vocab_empty",
      [](json_t *r) {
          set(model(r), "vocab", "{}");
          set(model(r), "merges", "[]");
      },
      WEIR_EFORMAT, "byte 0x00" },
    { "byte_missing", [](json_t *r) { json_object_del(vocab(r), "A"); }, WEIR_EFORMAT,
      "byte 0x41" },
    { "id_string", [](json_t *r) { set(vocab(r), "q1", "\"7\""); }, WEIR_EFORMAT,
      "model.vocab: 'q1'" },
    { "id_real", [](json_t *r) { set(vocab(r), "q1", "700.0"); }, WEIR_EFORMAT,
      "model.vocab: 'q1'" },
    { "id_negative", [](json_t *r) { set(vocab(r), "q1", "-1"); }, WEIR_EFORMAT,
      "model.vocab: 'q1'" },
    { "id_huge", [](json_t *r) { set(vocab(r), "q1", "2097152"); }, WEIR_EFORMAT, "2097152" },
    { "id_past_int", [](json_t *r) { set(vocab(r), "q1", "4294967361"); }, WEIR_EFORMAT,
      "4294967361" },
    { "id_twice", [](json_t *r) { set(vocab(r), "q1", "65"); }, WEIR_EFORMAT, "id 65 is taken" },
    { "name_empty", [](json_t *r) { set(vocab(r), "", "700"); }, WEIR_EFORMAT, "empty" },
    { "merges_missing", [](json_t *r) { json_object_del(model(r), "merges"); }, WEIR_EFORMAT,
      "model.merges" },
    { "merge_unknown_left", [](json_t *r) { append(merges(r), "[\"qq\", \"a\"]"); }, WEIR_EFORMAT,
      "model.merges[1]: the merge 'qq' + 'a': the left" },
    { "merge_unknown_right", [](json_t *r) { append(merges(r), "[\"a\", \"qq\"]"); }, WEIR_EFORMAT,
      "the right part" },
    { "merge_unknown_join", [](json_t *r) { append(merges(r), "\"a q\""); }, WEIR_EFORMAT,
      "their join" },
    { "merge_no_space", [](json_t *r) { append(merges(r), "\"aq\""); }, WEIR_EFORMAT,
      "model.merges[1]" },
    { "merge_space_last", [](json_t *r) { append(merges(r), "\"aq \""); }, WEIR_EFORMAT,
      "model.merges[1]" },
    { "merge_empty", [](json_t *r) { append(merges(r), "\"\""); }, WEIR_EFORMAT,
      "model.merges[1]" },
    { "merge_empty_part", [](json_t *r) { append(merges(r), "[\"\", \"a\"]"); }, WEIR_EFORMAT,
      "model.merges[1]" },
    { "merge_triple", [](json_t *r) { append(merges(r), "[\"a\", \"b\", \"c\"]"); }, WEIR_EFORMAT,
      "model.merges[1]" },
    { "merge_number", [](json_t *r) { append(merges(r), "5"); }, WEIR_EFORMAT, "model.merges[1]" },
    { "merge_not_alphabet", [](json_t *r) { append(merges(r), "[\"\\u4e00\", \"a\"]"); },
      WEIR_EFORMAT, "the left part" },
    { "added_object", [](json_t *r) { set(r, "added_tokens", "{}"); }, WEIR_EFORMAT,
      "added_tokens" },
    { "added_no_id", [](json_t *r) { append(added(r), "{\"content\": \"<a>\"}"); }, WEIR_EFORMAT,
      "added_tokens[0]" },
    { "added_no_content", [](json_t *r) { append(added(r), "{\"id\": 900}"); }, WEIR_EFORMAT,
      "content" },
    { "added_empty", [](json_t *r) { append(added(r), "{\"id\": 900, \"content\": \"\"}"); },
      WEIR_EFORMAT, "empty" },
    { "added_scalar", [](json_t *r) { append(added(r), "7"); }, WEIR_EFORMAT, "added_tokens[0]" },
    { "added_huge_id",
      [](json_t *r) { append(added(r), "{\"id\": 9223372036854775807, \"content\": \"<a>\"}"); },
      WEIR_EFORMAT, "9223372036854775807" },
    { "added_long",
      [](json_t *r) {
          append(
              added(r), ("{\"id\": 900, \"content\": \"" + std::string(600, 'x') + "\"}").c_str()
          );
      },
      WEIR_EFORMAT, "600 bytes" },
    { "added_over_base", [](json_t *r) { append(added(r), "{\"id\": 65, \"content\": \"<a>\"}"); },
      WEIR_EFORMAT, "id 65" },
    { "added_other_id", [](json_t *r) { append(added(r), "{\"id\": 900, \"content\": \"A\"}"); },
      WEIR_EFORMAT, "model.vocab: 'A'" },
    { "added_twice",
      [](json_t *r) {
          append(added(r), "{\"id\": 900, \"content\": \"<a>\"}");
          append(added(r), "{\"id\": 901, \"content\": \"<a>\"}");
      },
      WEIR_EFORMAT, "added_tokens[1]" },
    { "normalizer", [](json_t *r) { set(r, "normalizer", "{\"type\": \"BertNormalizer\"}"); },
      WEIR_EUNSUPPORTED, "normalizer: the component 'BertNormalizer'" },
    { "normalizer_inner",
      [](json_t *r) {
          set(r, "normalizer",
              "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFD\"}, {\"type\": "
              "\"ByteLevel\"}]}");
      },
      WEIR_EUNSUPPORTED, "normalizer: the component 'ByteLevel'" },
    { "normalizer_scalar", [](json_t *r) { set(r, "normalizer", "3"); }, WEIR_EUNSUPPORTED,
      "normalizer" },
    { "pre_missing", [](json_t *r) { json_object_del(r, "pre_tokenizer"); }, WEIR_EFORMAT,
      "pre_tokenizer" },
    { "pre_metaspace", [](json_t *r) { set(r, "pre_tokenizer", "{\"type\": \"Metaspace\"}"); },
      WEIR_EUNSUPPORTED, "Metaspace" },
    { "pre_no_byte_level", [](json_t *r) { set(r, "pre_tokenizer", "{\"type\": \"Digits\"}"); },
      WEIR_EUNSUPPORTED, "ByteLevel" },
    { "pre_byte_level_first",
      [](json_t *r) {
          set(r, "pre_tokenizer",
              "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": "
              "\"Digits\"}]}");
      },
      WEIR_EUNSUPPORTED, "ByteLevel" },
    { "pre_prefix_space",
      [](json_t *r) {
          set(r, "pre_tokenizer", "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}");
      },
      WEIR_EUNSUPPORTED, "add_prefix_space" },
    { "pre_behavior",
      [](json_t *r) {
          split(r, "a");
          json_object_set_new(
              json_array_get(
                  json_object_get(json_object_get(r, "pre_tokenizer"), "pretokenizers"), 0
              ),
              "behavior", json_string("MergedWithNext")
          );
      },
      WEIR_EUNSUPPORTED, "MergedWithNext" },
    { "regex_open", [](json_t *r) { split(r, "(a"); }, WEIR_EFORMAT, "does not compile" },
    { "regex_empty", [](json_t *r) { split(r, ""); }, WEIR_EFORMAT, "pattern has 0 bytes" },
    { "regex_intersection", [](json_t *r) { split(r, "[\\p{L}&&[^a]]+"); }, WEIR_EUNSUPPORTED,
      "set operation" },
    { "regex_escape", [](json_t *r) { split(r, "\\h+"); }, WEIR_EUNSUPPORTED, "\\h" },
    { "regex_group", [](json_t *r) { split(r, "(?R)"); }, WEIR_EUNSUPPORTED, "the group" },
    { "regex_property", [](json_t *r) { split(r, "\\p{L"); }, WEIR_EUNSUPPORTED, "the property" },
    { "regex_end", [](json_t *r) { split(r, "a\\"); }, WEIR_EUNSUPPORTED, "the escape" },
    { "regex_interval", [](json_t *r) { split(r, "\\p{N}{1,3}+"); }, WEIR_EUNSUPPORTED,
      "interval" },
    { "decoder", [](json_t *r) { set(r, "decoder", "{\"type\": \"WordPiece\"}"); },
      WEIR_EUNSUPPORTED, "WordPiece" },
    { "post", [](json_t *r) { set(r, "post_processor", "{\"type\": \"BertProcessing\"}"); },
      WEIR_EUNSUPPORTED, "BertProcessing" },
    { "post_id",
      [](json_t *r) {
          set(r, "post_processor",
              "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
              "\"<s>\"}}], \"special_tokens\": {\"<s>\": "
              "{\"ids\": [5000]}}}");
      },
      WEIR_EFORMAT, "post_processor" },
    { "post_two",
      [](json_t *r) {
          set(r, "post_processor",
              "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
              "\"a\"}}, {\"SpecialToken\": {\"id\": \"b\"}}]}");
      },
      WEIR_EUNSUPPORTED, "post_processor" },
};

class HostileJson : public testing::TestWithParam<Case> {};

TEST_P(HostileJson, IsRefusedByName)
{
    const auto root = make_json({ { "a", "b" } });
    GetParam().spoil(root.get());
    TokenizerPtr t(nullptr, weir_tokenizer_close);
    weir_error error = {};
    EXPECT_EQ(open_text(&t, test_folder(), dump(root.get()), &error), GetParam().status)
        << error.text;
    EXPECT_NE(strstr(error.text, GetParam().text), nullptr) << error.text;
    EXPECT_NE(strstr(error.text, "tokenizer.json"), nullptr) << error.text;
    EXPECT_EQ(t, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Cases, HostileJson, testing::ValuesIn(cases), [](const auto &info) {
    return std::string(info.param.name);
});

TEST(HostileFiles, NextToTokenizerJson)
{
    const std::pair<std::pair<const char *, const char *>, const char *> files[] = {
        { { "tokenizer_config.json", "[]" }, "not an object" },
        { { "tokenizer_config.json", "{\"eos_token\": \"<none>\"}" }, "eos_token '<none>'" },
        { { "tokenizer_config.json", "{\"bos_token\": 3}" }, "bos_token" },
        { { "tokenizer_config.json", "{\"add_bos_token\": true}" }, "add_bos_token" },
        { { "tokenizer_config.json", "{\"chat_template\": \"a\\u0000b\"}" }, "chat_template" },
        { { "tokenizer_config.json",
            "{\"added_tokens_decoder\": {\"x\": {\"content\": \"<a>\"}}}" },
          "added_tokens_decoder.x" },
        { { "tokenizer_config.json",
            "{\"added_tokens_decoder\": {\"65\": {\"content\": \"<a>\"}}}" },
          "model.vocab: 'A'" },
        { { "generation_config.json", "{\"eos_token_id\": \"2\"}" },
          "generation_config.json: eos_token_id" },
        { { "generation_config.json", "{\"eos_token_id\": [2, null]}" }, "eos_token_id[1]" },
        { { "config.json", "{\"text_config\": {\"eos_token_id\": {}}}" },
          "text_config.eos_token_id" },
        { { "config.json", "{" }, "config.json:1" },
    };
    for (const auto &[file, text] : files) {
        const std::string folder = test_folder();
        write_file(folder + "/" + file.first, file.second);
        TokenizerPtr t(nullptr, weir_tokenizer_close);
        weir_error error = {};
        EXPECT_EQ(open_text(&t, folder, dump(make_json({}).get()), &error), WEIR_EFORMAT)
            << file.second;
        EXPECT_NE(strstr(error.text, text), nullptr) << error.text;
    }
}

TEST(HostileFiles, APatternThatBacktracksWithoutEndIsStopped)
{
    const auto root = make_json({});
    split(root.get(), "(a|a|a)*(a|a)*b|x");
    const auto t = open_json(test_folder(), root.get());
    weir_ids ids = {};
    weir_error error = {};
    weir_encode_options options = {};
    const std::string text(64, 'a');
    EXPECT_EQ(
        weir_tokenizer_encode(t.get(), &ids, text.data(), text.size(), &options, &error), WEIR_EFULL
    );
    EXPECT_NE(strstr(error.text, "limits on this text: steps"), nullptr) << error.text;
    EXPECT_EQ(ids.count, 0u);
    weir_ids_free(&ids);
}

TEST(HostileFiles, APatternOfGroupsMayRepeatThemTwentyThousandTimes)
{
    const auto root = make_json({});
    split(root.get(), "(?:(a)|(b))+");
    const auto t = open_json(test_folder(), root.get());
    const std::string text = std::string(20000, 'a') + "x" + std::string(20000, 'b');
    Ids lengths;
    weir_error error = {};
    ASSERT_EQ(piece_lengths(t.get(), &lengths, text, &error), WEIR_OK) << error.text;
    EXPECT_EQ(lengths, (Ids{ 20000, 1, 20000 }));
}

TEST(HostileFiles, APatternOfGroupsThatFillsTheHeapIsStopped)
{
    const auto root = make_json({});
    split(root.get(), "(?:(a)|(b))+");
    const auto t = open_json(test_folder(), root.get());
    const std::string text(1 << 20, 'a');
    Ids lengths;
    weir_error error = {};
    EXPECT_EQ(piece_lengths(t.get(), &lengths, text, &error), WEIR_EFULL);
    EXPECT_NE(strstr(error.text, "limits on this text: memory"), nullptr) << error.text;
}

/* Tried at every place, the published pattern is quadratic in a run of spaces: 5e11 steps here,
 * past the limit on steps. */
TEST(HostileFiles, ALongRunOfSpacesBeforeAWordIsLinear)
{
    const auto root = make_json({});
    split(root.get(), "\\s+$");
    const auto t = open_json(test_folder(), root.get());
    const std::string text = std::string(1 << 20, ' ') + "x  \n  y \n\n";
    Ids lengths;
    weir_error error = {};
    ASSERT_EQ(piece_lengths(t.get(), &lengths, text, &error), WEIR_OK) << error.text;
    EXPECT_EQ(lengths, (Ids{ (1 << 20) + 1, 2, 4, 3 }));
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

struct Parts {
    std::string model = "gpt2", pre = "gpt-2";
    std::vector<std::string> tokens, merges = { "a b" };
    std::vector<int32_t> types;
    Parts()
    {
        for (unsigned b = 0; b < 256; b++) tokens.push_back(byte_name(b));
        tokens.insert(tokens.end(), { "ab", "<s>", "[PAD258]" });
        types.assign(tokens.size(), 1);
        types[257] = 3;
        types[258] = 4;
    }
};

GgufWriter write(const Parts &parts)
{
    GgufWriter file;
    file.text("tokenizer.ggml.model", parts.model);
    if (!parts.pre.empty()) file.text("tokenizer.ggml.pre", parts.pre);
    file.texts("tokenizer.ggml.tokens", parts.tokens);
    if (!parts.types.empty()) file.integers("tokenizer.ggml.token_type", parts.types);
    file.texts("tokenizer.ggml.merges", parts.merges);
    return file;
}

void expect_refused(const GgufWriter &file, weir_status status, const char *text)
{
    TokenizerPtr t(nullptr, weir_tokenizer_close);
    weir_error error = {};
    EXPECT_EQ(open_gguf(&t, test_folder(), file, &error), status) << error.text;
    EXPECT_NE(strstr(error.text, text), nullptr) << error.text;
}

void refuse(const std::function<void(Parts &)> &spoil, weir_status status, const char *text)
{
    Parts parts;
    spoil(parts);
    expect_refused(write(parts), status, text);
}

TEST(HostileGguf, TablesThatDoNotFitAreRefusedByName)
{
    refuse([](Parts &p) { p.model = "rwkv"; }, WEIR_EUNSUPPORTED, "tokenizer.ggml.model is 'rwkv'");
    refuse(
        [](Parts &p) { p.pre = "mystery"; }, WEIR_EUNSUPPORTED, "tokenizer.ggml.pre is 'mystery'"
    );
    refuse([](Parts &p) { p.pre = ""; }, WEIR_EFORMAT, "tokenizer.ggml.pre is missing");
    refuse([](Parts &p) { p.types.pop_back(); }, WEIR_EFORMAT, "tokenizer.ggml.token_type has 258");
    refuse([](Parts &p) { p.types[7] = 6; }, WEIR_EUNSUPPORTED, "tokenizer.ggml.tokens[7]");
    refuse([](Parts &p) { p.types[7] = -3; }, WEIR_EUNSUPPORTED, "token type -3");
    refuse([](Parts &p) { p.types[65] = 5; }, WEIR_EFORMAT, "byte 0x41");
    refuse([](Parts &p) { p.tokens[256] = "A"; }, WEIR_EFORMAT, "tokenizer.ggml.tokens[256]");
    refuse([](Parts &p) { p.tokens[256] = ""; }, WEIR_EFORMAT, "tokenizer.ggml.tokens[256]");
    refuse(
        [](Parts &p) {
            p.tokens.resize(200);
            p.types.resize(200);
        },
        WEIR_EFORMAT, "byte 0x"
    );
    refuse([](Parts &p) { p.merges.push_back(" "); }, WEIR_EFORMAT, "tokenizer.ggml.merges[1]");
}

TEST(HostileGguf, SpecialIdsMustBeTokens)
{
    for (const char *key : { "bos", "eos", "eot", "eom" }) {
        const std::string full = "tokenizer.ggml." + std::string(key) + "_token_id";
        GgufWriter file = write(Parts());
        file.integer(full, 259);
        expect_refused(file, WEIR_EFORMAT, (full + " is 259").c_str());
        file = write(Parts());
        file.text(full, "2");
        expect_refused(file, WEIR_EFORMAT, full.c_str());
    }
    GgufWriter file = write(Parts());
    file.boolean("tokenizer.ggml.add_bos_token", true);
    expect_refused(file, WEIR_EFORMAT, "bos_token_id is missing");
    file = write(Parts());
    file.integer("tokenizer.chat_template", 3);
    expect_refused(file, WEIR_EFORMAT, "tokenizer.chat_template");
}

TEST(HostileGguf, WithoutATokenizerThereIsNone)
{
    GgufWriter file;
    file.text("general.architecture", "qwen3");
    expect_refused(file, WEIR_ENOTFOUND, "tokenizer.ggml.model");
}

TEST(HostileGguf, PaddingIsNeitherMatchedNorCounted)
{
    TokenizerPtr t(nullptr, weir_tokenizer_close);
    weir_error error = {};
    GgufWriter file = write(Parts());
    file.integer("tokenizer.ggml.bos_token_id", 257);
    file.integer("tokenizer.ggml.eot_token_id", 256);
    ASSERT_EQ(open_gguf(&t, test_folder(), file, &error), WEIR_OK) << error.text;
    EXPECT_EQ(weir_tokenizer_size(t.get()), 258u);
    EXPECT_EQ(encode(t.get(), "<s>[PAD258]"), (Ids{ 257, '[', 'P', 'A', 'D', '2', '5', '8', ']' }));
    EXPECT_EQ(encode(t.get(), "", true, {}, true), (Ids{})) << "nothing says that it is prepended";
    size_t n;
    EXPECT_EQ(weir_tokenizer_stop_ids(t.get(), &n)[0], 256);
    EXPECT_EQ(n, 1u);
}

} // namespace
