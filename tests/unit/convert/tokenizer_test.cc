// Tokenizers in GGUF: the written file gives the ids of tokenizer.json, or it is not written.
#include <jansson.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "engine/formats/json.h"
#include "engine/text/tokenizer.h"
#include "tests/unit/convert/convert_to.h"
#include "tests/unit/convert/pieces.h"
#include "tests/unit/text/charsmap.h"

namespace {

using converted::convert;
using converted::Directory;
using converted::open;
using converted::Outcome;
using converted::pieces;
using converted::Unigram;
using converted::unigram;
using std::string;

string read_file(const string &path)
{
    std::ifstream in(path, std::ios::binary);
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
}

/* The texts of the golden. */
std::vector<string> strings()
{
    std::vector<string> out;
    std::istringstream lines(read_file("tests/golden/text/strings.jsonl"));
    for (string line; std::getline(lines, line);) {
        json_t *const entry = json_loadb(line.data(), line.size(), JSON_ALLOW_NUL, nullptr);
        const json_t *const text = json_object_get(entry, "s");
        if (json_is_string(text))
            out.emplace_back(json_string_value(text), json_string_length(text));
        json_decref(entry);
    }
    return out;
}

class Tokenizer : public converted::Folder {
  protected:
    /* A model of the smallest kind with this tokenizer. */
    string model(const string &tokenizer_json, int64_t n_vocab)
    {
        const string folder = path("model");
        std::filesystem::create_directories(folder);
        const struct {
            const char *name;
            std::vector<int64_t> shape;
        } tensors[] = {
            { "embed_tokens", { n_vocab, 32 } },
            { "norm", { 32 } },
            { "layers.0.input_layernorm", { 32 } },
            { "layers.0.post_attention_layernorm", { 32 } },
            { "layers.0.self_attn.q_proj", { 32, 32 } },
            { "layers.0.self_attn.k_proj", { 32, 32 } },
            { "layers.0.self_attn.v_proj", { 32, 32 } },
            { "layers.0.self_attn.o_proj", { 32, 32 } },
            { "layers.0.mlp.gate_proj", { 32, 32 } },
            { "layers.0.mlp.up_proj", { 32, 32 } },
            { "layers.0.mlp.down_proj", { 32, 32 } },
        };
        string header = "{";
        size_t at = 0;
        for (const auto &t : tensors) {
            size_t n = 2;
            string shape;
            for (const int64_t d : t.shape) {
                n *= static_cast<size_t>(d);
                shape += (shape.empty() ? "" : ",") + std::to_string(d);
            }
            header += (header.size() > 1 ? ",\"model." : "\"model.") + string(t.name) +
                      ".weight\":{\"dtype\":\"BF16\",\"shape\":[" + shape + "],\"data_offsets\":[" +
                      std::to_string(at) + "," + std::to_string(at + n) + "]}";
            at += n;
        }
        header += "}";
        std::ofstream file(folder + "/model.safetensors", std::ios::binary);
        for (size_t i = 0; i < 8; i++) file.put(static_cast<char>(header.size() >> (8 * i)));
        file << header << string(at, '\x3f');
        std::ofstream(folder + "/config.json")
            << "{\"model_type\":\"llama\",\"hidden_size\":32,\"num_hidden_layers\":1,"
               "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"intermediate_size\":32,"
               "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"vocab_size\":"
            << n_vocab << "}";
        std::ofstream(folder + "/tokenizer.json") << tokenizer_json;
        return folder;
    }

    /* Converts, and compares the ids of all texts. */
    void expect_same_ids(const string &folder, const std::vector<string> &texts)
    {
        const Outcome o = convert({ folder, path("out.gguf") });
        ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
        EXPECT_TRUE(o.result.has_tokenizer);
        const Directory file = open(path("out.gguf")), checkpoint = open(folder);
        ASSERT_TRUE(file && checkpoint);
        weir_tokenizer *a = nullptr, *b = nullptr;
        weir_error error = {};
        ASSERT_EQ(weir_tokenizer_open(&a, checkpoint.get(), &error), WEIR_OK) << error.text;
        ASSERT_EQ(weir_tokenizer_open(&b, file.get(), &error), WEIR_OK) << error.text;
        size_t n = 0;
        for (const string &text : texts)
            for (const bool parses : { false, true }) n += compare(a, b, text, parses);
        EXPECT_EQ(n, 2 * texts.size());
        for (const string &text : texts) EXPECT_EQ(ids_with_end(a, text), ids_with_end(b, text));
        size_t n_a, n_b;
        const int32_t *const stops_a = weir_tokenizer_stop_ids(a, &n_a),
                             *const stops_b = weir_tokenizer_stop_ids(b, &n_b);
        ASSERT_EQ(n_a, n_b);
        for (size_t i = 0; i < n_a; i++) EXPECT_EQ(stops_a[i], stops_b[i]);
        weir_tokenizer_close(a);
        weir_tokenizer_close(b);
    }

    /* As of a text that gets an embedding. */
    static std::vector<int32_t> ids_with_end(const weir_tokenizer *tokenizer, const string &text)
    {
        weir_ids ids = {};
        weir_error error = {};
        weir_encode_options options = {};
        options.add_special = options.add_end = true;
        EXPECT_EQ(
            weir_tokenizer_encode(tokenizer, &ids, text.data(), text.size(), &options, &error),
            WEIR_OK
        ) << error.text;
        std::vector<int32_t> all(ids.data, ids.data + ids.count);
        weir_ids_free(&ids);
        return all;
    }

    static bool compare(
        const weir_tokenizer *a, const weir_tokenizer *b, const string &text, bool parses
    )
    {
        weir_encode_options options = {};
        options.add_special = true;
        options.parse_special = parses;
        weir_ids x = {}, y = {};
        weir_error error = {};
        EXPECT_EQ(
            weir_tokenizer_encode(a, &x, text.data(), text.size(), &options, &error), WEIR_OK
        );
        EXPECT_EQ(
            weir_tokenizer_encode(b, &y, text.data(), text.size(), &options, &error), WEIR_OK
        );
        const std::vector<int32_t> ids(x.data, x.data + x.count), other(y.data, y.data + y.count);
        EXPECT_EQ(ids, other) << text;
        weir_ids_free(&x);
        weir_ids_free(&y);
        return ids == other;
    }
};

class Bytes : public Tokenizer, public ::testing::WithParamInterface<const char *> {};

TEST_P(Bytes, GiveTheIdsOfTokenizerJson)
{
    const string name = string("tests/golden/text/tok/") + GetParam() + ".tokenizer.json";
    const std::vector<string> texts = strings();
    ASSERT_GT(texts.size(), 1000u);
    expect_same_ids(model(read_file(name), 1100), texts);
}

INSTANTIATE_TEST_SUITE_P(
    Golden, Bytes, ::testing::Values("deepseek3", "gpt2", "llama3", "qwen2", "qwen35", "smollm"),
    [](const ::testing::TestParamInfo<const char *> &info) { return string(info.param); }
);

const std::vector<string> texts = {
    "", "abc", " abc a", "aabbcc", "a  b\nc <s>x</s>", "cabcab", "<unk> abc", "caf\xC3\xA9"
};

TEST_F(Tokenizer, PiecesByScores)
{
    for (const bool has_prefix : { false, true }) {
        expect_same_ids(model(pieces(has_prefix, true), 280), texts);
        const Directory file = open(path("out.gguf"));
        weir_meta meta;
        ASSERT_TRUE(weir_tensor_directory_meta(file.get(), "tokenizer.ggml.model", &meta));
        EXPECT_STREQ(meta.string, "llama");
    }
}

/* tokenizers puts a space in front of what follows any added token, Weir's reader of GGUF only
 * behind control tokens. */
TEST_F(Tokenizer, TokensThatAreNotSpecialInVocabulariesWithAPrefix)
{
    for (const bool has_prefix : { false, true }) {
        string text = pieces(has_prefix, true);
        text.insert(
            text.find("],\"normalizer\""),
            ",{\"id\":270,\"content\":\"<u>\",\"normalized\":false,\"special\":false}"
        );
        const Outcome o = convert({ model(text, 280), path("out.gguf") });
        ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
        EXPECT_STREQ(o.result.differing, has_prefix ? "<u>" : "");
    }
}

TEST_F(Tokenizer, PiecesWhoseMergesAreNotAllListed)
{
    expect_same_ids(model(pieces(false, false), 280), texts);
    const Directory file = open(path("out.gguf"));
    weir_meta meta;
    ASSERT_TRUE(weir_tensor_directory_meta(file.get(), "tokenizer.ggml.model", &meta));
    EXPECT_STREQ(meta.string, "gemma4") << "scores would merge ab and c";
}

/* ---- unigram --------------------------------------------------------------------------------- */

string base64(const string &bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    string out;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        unsigned group = 0;
        for (size_t k = 0; k < 3; k++)
            group =
                group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
        for (size_t k = 0; k < 4; k++)
            out += i + k > bytes.size() ? '=' : digits[group >> (18 - 6 * k) & 63];
    }
    return out;
}

/* Line ends and tabs to spaces, capitals to small letters, two characters to one. */
string charsmap()
{
    CharsmapWriter map;
    for (const char *const c : { "\n", "\t", "\r", "\xC2\xA0", "\xE3\x80\x80", "\xE2\x96\x81" })
        map.add(c, " ");
    for (char c = 'A'; c <= 'Z'; c++) map.add(string(1, c), string(1, static_cast<char>(c | 32)));
    map.add("e\xCC\x81", "\xC3\xA9");
    map.add("\xEF\xAC\x81", "fi");
    map.add("\xEF\xBC\x8C", ",");
    return map.finish();
}

const std::vector<string> prose = { "",
                                    "the thing",
                                    "  the   weather  there ",
                                    "a<s>the</s> the",
                                    "singing\xE4\xBD\xA0\xE5\xA5\xBD",
                                    "caf\xC3\xA9 <unk> the",
                                    "the</s>" };

const string t5_steps = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\","
                        "\"precompiled_charsmap\":\"%\"},{\"type\":\"Strip\",\"strip_left\":false,"
                        "\"strip_right\":true},{\"type\":\"Replace\",\"pattern\":{\"Regex\":"
                        "\" {2,}\"},\"content\":\"\xE2\x96\x81\"}]}";

Unigram with_charsmap()
{
    Unigram u;
    u.normalizer = t5_steps;
    u.normalizer.replace(u.normalizer.find('%'), 1, base64(charsmap()));
    return u;
}

TEST_F(Tokenizer, UnigramsWithACharsmap)
{
    expect_same_ids(model(unigram(with_charsmap()), 80), prose);
    const Directory file = open(path("out.gguf"));
    weir_meta value, byte;
    const auto meta = [&](const char *key) {
        EXPECT_TRUE(weir_tensor_directory_meta(file.get(), key, &value)) << key;
        return value;
    };
    EXPECT_STREQ(meta("tokenizer.ggml.model").string, "t5");
    EXPECT_TRUE(meta("tokenizer.ggml.add_space_prefix").boolean);
    EXPECT_TRUE(meta("tokenizer.ggml.remove_extra_whitespaces").boolean);
    EXPECT_FALSE(meta("tokenizer.ggml.add_eos_token").boolean);
    EXPECT_EQ(meta("tokenizer.ggml.unknown_token_id").integer, 0);
    const string map = charsmap();
    ASSERT_EQ(meta("tokenizer.ggml.precompiled_charsmap").length, map.size());
    string read;
    for (size_t i = 0; i < map.size() && weir_meta_at(&value, i, &byte); i++)
        read += static_cast<char>(byte.integer);
    EXPECT_EQ(read == map, true);
    ASSERT_EQ(meta("tokenizer.ggml.scores").length, 80u);
    ASSERT_TRUE(weir_meta_at(&value, 30, &byte));
    EXPECT_EQ(byte.number, -5.25);
    ASSERT_EQ(meta("tokenizer.ggml.token_type").length, 80u);
    for (const auto &[id, type] :
         { std::pair<size_t, int>{ 0, 3 }, { 1, 3 }, { 30, 1 }, { 79, 5 } }) {
        ASSERT_TRUE(weir_meta_at(&value, id, &byte));
        EXPECT_EQ(byte.integer, type) << id;
    }
}

TEST_F(Tokenizer, UnigramsWithBytesAndAllKindsOfSteps)
{
    Unigram u;
    u.has_bytes = true;
    u.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
                   "\"\xE2\x96\x81\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                   "\"content\":\"\xE2\x96\x81\"}]}";
    u.pre = "null";
    u.decoder =
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
        "\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
        "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}";
    u.pieces = ",[\"a\xE2\x96\x81the\",-6]"; /* spans words, which nothing cuts here */
    u.added = ",{\"id\":500,\"content\":\"<c>\",\"normalized\":false,\"special\":true}";
    u.processor =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"
        "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"</s>\"}}],"
        "\"special_tokens\":{\"<s>\":{\"ids\":[1]},\"</s>\":{\"ids\":[2]}}}";
    std::vector<string> all = strings();
    all.insert(all.end(), prose.begin(), prose.end());
    all.push_back("a the a the<c>the");
    expect_same_ids(model(unigram(u), 600), all);
    const Directory file = open(path("out.gguf"));
    weir_meta value;
    ASSERT_TRUE(weir_tensor_directory_meta(file.get(), "tokenizer.ggml.add_eos_token", &value));
    EXPECT_TRUE(value.boolean);
    weir_tokenizer *tokenizer = nullptr;
    weir_error error = {};
    ASSERT_EQ(weir_tokenizer_open(&tokenizer, file.get(), &error), WEIR_OK) << error.text;
    EXPECT_EQ(ids_with_end(tokenizer, ""), (std::vector<int32_t>{ 1, 2 }));
    weir_tokenizer_close(tokenizer);
    ASSERT_TRUE(weir_tensor_directory_meta(file.get(), "tokenizer.ggml.add_bos_token", &value));
    EXPECT_TRUE(value.boolean);
    EXPECT_FALSE(
        weir_tensor_directory_meta(file.get(), "tokenizer.ggml.precompiled_charsmap", &value)
    );
}

TEST_F(Tokenizer, UnigramsThatGgufCannotSayAreNamed)
{
    const string metaspace = "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",";
    const auto change = [](auto &&spoil) {
        Unigram u = with_charsmap();
        spoil(u);
        return unigram(u);
    };
    const std::pair<string, const char *> lies[] = {
        { change([](Unigram &u) {
              u.normalizer.insert(u.normalizer.find('[') + 1, "{\"type\":\"NFKC\"},");
          }),
          "normalizer NFKC" },
        { change([](Unigram &u) {
              u.normalizer.insert(
                  u.normalizer.find('[') + 1,
                  "{\"type\":\"Replace\",\"pattern\":{\"String\":\"``\"},"
                  "\"content\":\"'\"},"
              );
          }),
          "normalizer Replace" },
        { change([&](Unigram &u) { u.pre = metaspace + "\"prepend_scheme\":\"first\"}"; }),
          "prepend_scheme first" },
        { change([&](Unigram &u) {
              u.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
                      "\"individual_digits\":true}," +
                      u.pre + "]}";
          }),
          "pre-tokenizer Digits" },
        { change([](Unigram &u) { u.pieces = ",[\"a\xE2\x96\x81the\",-6]"; }), "spans words" },
        { change([](Unigram &u) { u.pieces = ",[\"xx\",-1e300]"; }), "no number in f32" },
        { change([](Unigram &u) {
              u.added = ",{\"id\":70,\"content\":\"<u>\",\"normalized\":false,\"special\":false}";
          }),
          "a<u>b" },
        { change([](Unigram &u) {
              u.added = ",{\"id\":70,\"content\":\"<u>\",\"normalized\":false,\"special\":true,"
                        "\"single_word\":true}";
          }),
          "single_word" },
        { change([](Unigram &u) { /* GGUF strips spaces only: no charsmap makes them of line ends */
                                  u.normalizer = Unigram().normalizer;
          }),
          "other ids" },
    };
    for (const auto &[text, why] : lies) {
        const Outcome o = convert({ model(text, 80), path("out.gguf") });
        EXPECT_EQ(o.status, WEIR_EUNSUPPORTED) << why;
        EXPECT_NE(string(o.error.text).find(why), string::npos) << o.error.text;
        EXPECT_EQ(files(), 0u);
    }
}

TEST_F(Tokenizer, PatternsWithoutAName)
{
    string text = read_file("tests/golden/text/tok/qwen2.tokenizer.json");
    const size_t at = text.find("\\\\p{N}|");
    ASSERT_NE(at, string::npos);
    text.replace(at, 6, "\\\\p{N}{1,2}");
    const string folder = model(text, 1100);
    const Outcome o = convert({ folder, path("out.gguf") });
    EXPECT_EQ(o.status, WEIR_EUNSUPPORTED);
    EXPECT_NE(string(o.error.text).find("no name for"), string::npos) << o.error.text;
    EXPECT_EQ(files(), 0u);
    const Outcome without = convert({ folder, path("out.gguf"), "f16", false, true });
    ASSERT_EQ(without.status, WEIR_OK) << without.error.text;
    EXPECT_FALSE(without.result.has_tokenizer);
    const Directory file = open(path("out.gguf"));
    weir_tokenizer *tokenizer = nullptr;
    weir_error error = {};
    EXPECT_EQ(weir_tokenizer_open(&tokenizer, file.get(), &error), WEIR_ENOTFOUND);
}

TEST_F(Tokenizer, TokensThatGgufCannotSayAreNamed)
{
    for (const char *const flag : { "lstrip", "rstrip", "single_word" }) {
        string text = read_file("tests/golden/text/tok/qwen2.tokenizer.json");
        const string off = string("\"") + flag + "\":false";
        const size_t at = text.find(off);
        ASSERT_NE(at, string::npos);
        text.replace(at, off.size(), string("\"") + flag + "\":true");
        const Outcome o = convert({ model(text, 1100), path("out.gguf") });
        EXPECT_EQ(o.status, WEIR_EUNSUPPORTED);
        EXPECT_NE(string(o.error.text).find(flag), string::npos) << o.error.text;
    }
}

TEST_F(Tokenizer, NormalizersThatGgufCannotSayAreNamed)
{
    for (const char *const name : { "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "StripAccents" }) {
        const string one = string("{\"type\":\"") + name + "\"}";
        string bytes = read_file("tests/golden/text/tok/qwen2.tokenizer.json");
        const size_t at = bytes.find("{\"type\":\"NFC\"}");
        ASSERT_NE(at, string::npos);
        bytes.replace(
            at, 14, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}," + one + "]}"
        );
        string fallback = pieces(false, true);
        fallback.insert(fallback.find("{\"type\":\"Replace\""), one + ",");
        for (const string &text : { bytes, fallback }) {
            const Outcome o = convert({ model(text, 1100), path("out.gguf") });
            EXPECT_EQ(o.status, WEIR_EUNSUPPORTED) << name;
            EXPECT_NE(string(o.error.text).find(string("normalizer ") + name), string::npos)
                << o.error.text;
        }
    }
}

TEST_F(Tokenizer, MoreTokensThanRows)
{
    const Outcome o = convert({ model(read_file("tests/golden/text/tok/qwen2.tokenizer.json"), 500),
                                path("out.gguf") });
    EXPECT_EQ(o.status, WEIR_EMISMATCH);
    EXPECT_NE(string(o.error.text).find("rows of the embedding"), string::npos) << o.error.text;
}

} // namespace
