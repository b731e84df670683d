// Tokenizers in GGUF: the written file gives the ids of tokenizer.json, or it is not written.
#include <jansson.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "engine/formats/json.h"
#include "engine/text/tokenizer.h"
#include "tests/unit/convert/convert_to.h"
#include "tests/unit/convert/pieces.h"

namespace {

using converted::convert;
using converted::Directory;
using converted::open;
using converted::Outcome;
using converted::pieces;
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
        size_t n_a, n_b;
        const int32_t *const stops_a = weir_tokenizer_stop_ids(a, &n_a),
                             *const stops_b = weir_tokenizer_stop_ids(b, &n_b);
        ASSERT_EQ(n_a, n_b);
        for (size_t i = 0; i < n_a; i++) EXPECT_EQ(stops_a[i], stops_b[i]);
        weir_tokenizer_close(a);
        weir_tokenizer_close(b);
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

TEST_F(Tokenizer, PiecesWhoseMergesAreNotAllListed)
{
    expect_same_ids(model(pieces(false, false), 280), texts);
    const Directory file = open(path("out.gguf"));
    weir_meta meta;
    ASSERT_TRUE(weir_tensor_directory_meta(file.get(), "tokenizer.ggml.model", &meta));
    EXPECT_STREQ(meta.string, "gemma4") << "scores would merge ab and c";
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
