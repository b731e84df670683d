// Checkpoints as GGUF: the tensors of each family are those that llama.cpp's converter writes, to
// the bit, and the keys that both have are equal.
#include <cmath>
#include <cstring>
#include <fstream>
#include <vector>

#include "engine/cli/progress.h"
#include "engine/open/ranking.h"
#include "kernels/ref/dequantise.h"
#include "tests/unit/convert/convert_to.h"

namespace {

using converted::convert;
using converted::Directory;
using converted::open;
using converted::Outcome;

struct Family {
    const char *folder, *gguf, *type;
    size_t n_compared; /* keys that both files have, at least */
};
const Family families[] = {
    { "families/deepseek2-lite", "deepseek2-lite-f16.gguf", "f16", 20 },
    { "families/deepseek3", "deepseek3-f16.gguf", "f16", 25 },
    { "families/ernie4_5-moe", "ernie4_5-moe-f16.gguf", "f16", 14 },
    { "families/falcon-h1", "falcon-h1-f16.gguf", "f16", 15 },
    { "families/gemma3", "gemma3-f16.gguf", "f16", 12 },
    { "families/gemma4", "gemma4-f16.gguf", "f16", 20 },
    { "families/gemma4-moe", "gemma4-moe-f16.gguf", "f16", 20 },
    { "families/glm4-moe", "glm4-moe-f16.gguf", "f16", 18 },
    { "families/glm4-moe-lite", "glm4-moe-lite-f16.gguf", "f16", 18 },
    { "families/gpt-oss", "gpt-oss-f16.gguf", "f16", 14 },
    { "families/granite", "granite-f16.gguf", "f16", 13 },
    { "families/granite-hybrid", "granite-hybrid-f16.gguf", "f16", 20 },
    { "families/kimi-linear", "kimi-linear-f16.gguf", "f16", 24 },
    { "families/lfm2", "lfm2-f16.gguf", "f16", 9 },
    { "families/lfm2-moe", "lfm2-moe-f16.gguf", "f16", 13 },
    { "families/minimax-m2", "minimax-m2-f16.gguf", "f16", 14 },
    { "families/ministral3", "ministral3-f16.gguf", "f16", 14 },
    { "families/mixtral", "mixtral-f16.gguf", "f16", 11 },
    { "families/nemotron-h", "nemotron-h-f16.gguf", "f16", 16 },
    { "families/nemotron-h-moe", "nemotron-h-moe-f16.gguf", "f16", 22 },
    { "families/olmo2", "olmo2-f16.gguf", "f16", 8 },
    { "families/olmo3", "olmo3-f16.gguf", "f16", 14 },
    { "families/phi3", "phi3-f16.gguf", "f16", 10 },
    { "families/phi4-mini", "phi4-mini-f16.gguf", "f16", 11 },
    { "families/qwen3-moe", "qwen3-moe-f16.gguf", "f16", 12 },
    { "families/qwen3-next", "qwen3-next-f16.gguf", "f16", 18 },
    { "families/smollm3", "smollm3-f16.gguf", "f16", 9 },
    { "models/llama3", "llama3-f32.gguf", "f32", 8 },
    { "models/qwen3", "qwen3-bf16.gguf", "bf16", 9 },
    { "models/tq", "tq-f32.gguf", "f32", 14 },
    { "models/tq-moe", "tq-moe-f16.gguf", "f16", 16 },
};

/* Dimensions without those of 1, which mean nothing. */
std::vector<int64_t> dims(const weir_tensor *tensor)
{
    std::vector<int64_t> out;
    for (int32_t i = 0; i < tensor->n_dims; i++)
        if (tensor->shape[i] != 1) out.push_back(tensor->shape[i]);
    return out;
}

void expect_same_data(const weir_tensor *a, const weir_tensor *b)
{
    ASSERT_EQ(a->bytes, b->bytes) << a->name;
    if (memcmp(a->data, b->data, a->bytes) == 0) return;
    ASSERT_EQ(a->dtype, WEIR_F32) << a->name << " differs";
    for (size_t i = 0; i < a->bytes / sizeof(float); i++) {
        float x, y;
        memcpy(&x, a->data + i * sizeof x, sizeof x);
        memcpy(&y, b->data + i * sizeof y, sizeof y);
        ASSERT_NEAR(x, y, 1e-6f * std::fabs(x)) << a->name << " element " << i;
    }
}

class Checkpoint : public converted::Folder, public ::testing::WithParamInterface<Family> {
  protected:
    std::string folder() const { return std::string("tests/golden/") + GetParam().folder; }
};

TEST_P(Checkpoint, IsWhatLlamaCppConverts)
{
    const Outcome o = convert({ folder(), path("out.gguf"), GetParam().type });
    ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
    EXPECT_EQ(o.result.n_left_out, 0u) << o.result.left_out;
    EXPECT_EQ(files(), 1u) << "nothing but the file";
    const Directory own = open(path("out.gguf")), golden = open(folder() + "/" + GetParam().gguf);
    ASSERT_TRUE(own && golden);
    const size_t n = weir_tensor_directory_count(golden.get());
    EXPECT_EQ(weir_tensor_directory_count(own.get()), n);
    EXPECT_EQ(o.result.n_tensors, n);
    for (size_t i = 0; i < n; i++) {
        const weir_tensor *const a = weir_tensor_directory_at(golden.get(), i),
                                 *const b = weir_tensor_directory_find(own.get(), a->name);
        ASSERT_NE(b, nullptr) << a->name;
        EXPECT_EQ(dims(a), dims(b)) << a->name;
        ASSERT_EQ(a->dtype, b->dtype) << a->name;
        expect_same_data(a, b);
    }
}

/* Keys that are not the model's, or that only describe the file; and numbers that the golden's
 * converter takes from defaults instead of the configuration. */
bool is_own(const std::string &key)
{
    return key.rfind("general.", 0) == 0 || key.rfind("tokenizer.", 0) == 0 ||
           key.find(".vocab_size") != std::string::npos ||
           (key.find("granitehybrid.context_length") == 0) ||
           (key.find("nemotron_h") == 0 && (key.find(".context_length") != std::string::npos ||
                                            key.find("rope.dimension_count") != std::string::npos));
}

bool is_equal(const weir_meta &a, const weir_meta &b)
{
    if (a.type != b.type || a.packed_type != b.packed_type || a.length != b.length) return false;
    switch (a.type) {
    case WEIR_META_INT: return a.integer == b.integer;
    case WEIR_META_FLOAT: return std::fabs(a.number - b.number) <= 1e-7 * std::fabs(a.number);
    case WEIR_META_BOOL: return a.boolean == b.boolean;
    case WEIR_META_STRING: return strcmp(a.string, b.string) == 0;
    case WEIR_META_ARRAY: break;
    }
    for (size_t i = 0; i < a.length; i++) {
        weir_meta x, y;
        if (!weir_meta_at(&a, i, &x) || !weir_meta_at(&b, i, &y) || !is_equal(x, y)) return false;
    }
    return true;
}

TEST_P(Checkpoint, HasTheKeysOfLlamaCpp)
{
    const Outcome o = convert({ folder(), path("out.gguf"), GetParam().type });
    ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
    const Directory own = open(path("out.gguf")), golden = open(folder() + "/" + GetParam().gguf);
    ASSERT_TRUE(own && golden);
    const char *key;
    weir_meta a, b;
    size_t n = 0;
    for (size_t i = 0; weir_tensor_directory_meta_at(golden.get(), i, &key, &a); i++) {
        if (is_own(key) || !weir_tensor_directory_meta(own.get(), key, &b)) continue;
        EXPECT_TRUE(is_equal(a, b)) << key;
        n++;
    }
    EXPECT_GE(n, GetParam().n_compared);
    for (const char *const name : { "general.architecture", "general.quantization_version" }) {
        ASSERT_TRUE(weir_tensor_directory_meta(golden.get(), name, &a)) << name;
        ASSERT_TRUE(weir_tensor_directory_meta(own.get(), name, &b)) << name;
        EXPECT_TRUE(is_equal(a, b)) << name;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Families, Checkpoint, ::testing::ValuesIn(families),
    [](const ::testing::TestParamInfo<Family> &info) {
        std::string name = info.param.folder;
        for (char &c : name)
            if (c == '/' || c == '-') c = '_';
        return name;
    }
);

class Convert : public converted::Folder {};

TEST_F(Convert, Shards)
{
    const Outcome o = convert({ "tests/golden/models/qwen3-untied", path("out.gguf"), "bf16" });
    ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
    const Directory own = open(path("out.gguf"));
    ASSERT_TRUE(own);
    EXPECT_NE(weir_tensor_directory_find(own.get(), "output.weight"), nullptr);
}

TEST_F(Convert, MistralIsWrittenAsLlama)
{
    const Outcome o = convert({ "tests/golden/models/mistral", path("out.gguf") });
    ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
    const Directory own = open(path("out.gguf"));
    weir_meta meta;
    ASSERT_TRUE(weir_tensor_directory_meta(own.get(), "general.architecture", &meta));
    EXPECT_STREQ(meta.string, "llama");
    ASSERT_TRUE(weir_tensor_directory_meta(own.get(), "llama.attention.sliding_window", &meta));
    EXPECT_EQ(meta.integer, 4);
}

TEST_F(Convert, ThePoolingOfEmbeddingsIsKept)
{
    namespace fs = std::filesystem;
    const std::pair<const char *, int64_t> poolings[] = {
        { R"({"pooling_mode_lasttoken":true})", 3 },
        { R"({"pooling_mode_cls_token":true})", 2 },
        { R"({"pooling_mode_mean_tokens":true})", 1 },
    };
    const std::string folder = path("pooled");
    fs::create_directories(folder + "/1_Pooling");
    for (const auto &file : fs::directory_iterator("tests/golden/models/llama3"))
        fs::create_symlink(fs::absolute(file.path()), fs::path(folder) / file.path().filename());
    weir_meta meta;
    for (const auto &[config, number] : poolings) {
        std::ofstream(folder + "/1_Pooling/config.json") << config;
        const Outcome o = convert({ folder, path("out.gguf") });
        ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
        const Directory own = open(path("out.gguf"));
        ASSERT_TRUE(weir_tensor_directory_meta(own.get(), "llama.pooling_type", &meta));
        EXPECT_EQ(meta.integer, number) << config;
    }
    fs::remove_all(folder + "/1_Pooling");
    const Outcome o = convert({ folder, path("out.gguf") });
    ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
    const Directory own = open(path("out.gguf"));
    EXPECT_FALSE(weir_tensor_directory_meta(own.get(), "llama.pooling_type", &meta));
}

TEST_F(Convert, TheTokensOfAModelThatRanksAreKept)
{
    namespace fs = std::filesystem;
    const std::string folder = path("ranker");
    fs::create_directories(folder + "/1_LogitScore");
    for (const auto &file : fs::directory_iterator("tests/golden/models/llama3"))
        fs::create_symlink(fs::absolute(file.path()), fs::path(folder) / file.path().filename());
    std::ofstream(folder + "/config_sentence_transformers.json")
        << R"({"default_prompt_name":"p","prompts":{"p":"Judge it"}})";
    for (const bool has_no : { true, false }) {
        std::ofstream(folder + "/1_LogitScore/config.json")
            << (has_no ? R"({"true_token_id":7,"false_token_id":9})" : R"({"true_token_id":7})");
        const Outcome o = convert({ folder, path("out.gguf") });
        ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
        const Directory own = open(path("out.gguf"));
        weir_ranking ranking = {};
        weir_error error = {};
        ASSERT_EQ(weir_ranking_of(&ranking, own.get(), 50, &error), WEIR_OK) << error.text;
        EXPECT_TRUE(ranking.is_used);
        EXPECT_EQ(ranking.yes, 7);
        EXPECT_EQ(ranking.no, has_no ? 9 : -1);
        EXPECT_STREQ(ranking.prompt, "Judge it");
        EXPECT_NE(weir_ranking_of(&ranking, own.get(), 7, &error), WEIR_OK) << "ids are checked";
    }
    std::ofstream(folder + "/1_LogitScore/config.json") << R"({"true_token_id":"yes"})";
    EXPECT_EQ(convert({ folder, path("out.gguf") }).status, WEIR_EFORMAT);
}

TEST_F(Convert, QuantisedTypesFallBackByRow)
{
    const Outcome o = convert({ "tests/golden/models/tq", path("out.gguf"), "q4_k_m" });
    ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
    const Directory own = open(path("out.gguf")),
                    plain = open("tests/golden/models/tq/tq-f32.gguf");
    const weir_tensor *const q = weir_tensor_directory_find(own.get(), "blk.3.attn_q.weight"),
                             *const exact =
                                 weir_tensor_directory_find(plain.get(), "blk.3.attn_q.weight");
    ASSERT_NE(q, nullptr);
    ASSERT_EQ(q->dtype, WEIR_Q5_0) << "rows of 64 elements";
    const size_t n = exact->bytes / sizeof(float);
    std::vector<float> x(n), y(n);
    memcpy(x.data(), exact->data, exact->bytes);
    ASSERT_EQ(weir_k_ref_dequantise(y.data(), q->data, q->dtype, static_cast<int64_t>(n)), WEIR_OK);
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        error += (x[i] - y[i]) * (x[i] - y[i]);
        size += x[i] * x[i];
    }
    EXPECT_LT(std::sqrt(error / size), 0.06);
}

TEST_F(Convert, ThreadsChangeNoBit)
{
    for (const int threads : { 1, 3 }) {
        const Outcome o = convert({ "models/weir-demo", path(std::to_string(threads)), "q4_k_m",
                                    false, false, threads });
        ASSERT_EQ(o.status, WEIR_OK) << o.error.text;
        EXPECT_TRUE(o.result.has_tokenizer);
    }
    const Directory one = open(path("1")), three = open(path("3"));
    ASSERT_TRUE(one && three);
    for (size_t i = 0; i < weir_tensor_directory_count(one.get()); i++) {
        const weir_tensor *const a = weir_tensor_directory_at(one.get(), i),
                                 *const b = weir_tensor_directory_at(three.get(), i);
        ASSERT_EQ(a->bytes, b->bytes);
        EXPECT_EQ(memcmp(a->data, b->data, a->bytes), 0) << a->name;
    }
}

TEST_F(Convert, WhatGgufCannotSayIsRefused)
{
    // A head width of 12 and a scale of 1 / sqrt(16): Gemma 3's files have no key for it.
    std::filesystem::copy("tests/golden/families/gemma3", path("model"));
    std::filesystem::permissions(path("model"), std::filesystem::perms::owner_all);
    const std::string config = path("model") + "/config.json";
    FILE *file = fopen(config.c_str(), "r");
    ASSERT_NE(file, nullptr);
    std::string text(1 << 16, '\0');
    text.resize(fread(&text[0], 1, text.size(), file));
    fclose(file);
    const size_t at = text.find("\"query_pre_attn_scalar\"");
    ASSERT_NE(at, std::string::npos);
    text.replace(at, text.find_first_of(",}\n", at) - at, "\"query_pre_attn_scalar\": 77");
    std::filesystem::remove(config);
    file = fopen(config.c_str(), "w");
    ASSERT_NE(file, nullptr);
    fputs(text.c_str(), file);
    fclose(file);
    const Outcome o = convert({ path("model"), path("out.gguf") });
    EXPECT_EQ(o.status, WEIR_EUNSUPPORTED);
    EXPECT_NE(std::string(o.error.text).find("attention_scale is"), std::string::npos)
        << o.error.text;
    EXPECT_EQ(files(), 0u) << "no file, no temporary one";
}

TEST_F(Convert, CtrlCLeavesWhatWasThere)
{
    FILE *const old = fopen(path("out.gguf").c_str(), "w");
    ASSERT_NE(old, nullptr);
    fputs("old", old);
    fclose(old);
    weir_interrupted = 1;
    const Outcome o = convert({ "tests/golden/models/tq", path("out.gguf"), "q8_0" });
    weir_interrupted = 0;
    EXPECT_EQ(o.status, WEIR_ECANCELED);
    EXPECT_EQ(files(), 1u) << "a temporary file is left";
    EXPECT_EQ(std::filesystem::file_size(path("out.gguf")), 3u);
}

TEST_F(Convert, TheModelItselfIsNoPlaceToWrite)
{
    std::filesystem::copy("tests/golden/models/tq/tq-f32.gguf", path("model.gguf"));
    const Outcome o = convert({ path("model.gguf"), folder_ + "/./model.gguf" });
    EXPECT_EQ(o.status, WEIR_EINVAL);
    EXPECT_NE(std::string(o.error.text).find("is the model itself"), std::string::npos);
    EXPECT_EQ(convert({ path("model.gguf"), "/dev/null" }).status, WEIR_EINVAL);
}

} // namespace
