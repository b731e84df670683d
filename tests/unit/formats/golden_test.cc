/* Opens every container under tests/golden/models and compares what it finds with the indexes that
 * the generator wrote with them. */
#include <gtest/gtest.h>
#include <jansson.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/formats/json.h"
#include "engine/formats/tensor_directory.h"

namespace {

const std::string models = "tests/golden/models/";

struct Closer {
    void operator()(weir_tensor_directory *directory) const
    {
        weir_tensor_directory_close(directory);
    }
};
using Directory = std::unique_ptr<weir_tensor_directory, Closer>;

Directory open(const std::string &path)
{
    weir_tensor_directory *directory = nullptr;
    weir_error error = {};
    EXPECT_EQ(weir_tensor_directory_open(&directory, path.c_str(), &error), WEIR_OK) << error.text;
    return Directory(directory);
}

int64_t integer(const Directory &directory, const char *key)
{
    weir_meta meta;
    if (!weir_tensor_directory_meta(directory.get(), key, &meta)) return -1;
    EXPECT_EQ(meta.type, WEIR_META_INT) << key;
    return meta.integer;
}

std::vector<int64_t> shape(const weir_tensor *tensor)
{
    return { tensor->shape, tensor->shape + tensor->n_dims };
}

/* Every tensor can be found again and its bytes can be read. */
uint64_t walk(const Directory &directory)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < weir_tensor_directory_count(directory.get()); i++) {
        const weir_tensor *tensor = weir_tensor_directory_at(directory.get(), i);
        EXPECT_EQ(weir_tensor_directory_find(directory.get(), tensor->name), tensor);
        int64_t elements = 1;
        for (int d = 0; d < tensor->n_dims; d++) elements *= tensor->shape[d];
        EXPECT_EQ(tensor->bytes, weir_row_bytes(tensor->dtype, elements));
        for (size_t b = 0; b < tensor->bytes; b++) sum += tensor->data[b];
    }
    return sum;
}

TEST(Golden, EveryContainerOpens)
{
    int n_files = 0, n_folders = 0;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(models)) {
        const std::string extension = entry.path().extension();
        if (entry.is_directory()) {
            if (entry.path().filename() == "tq-k")
                continue; /* Holds two GGUF files and nothing else. */
            n_folders++;
        } else if (extension == ".gguf" || extension == ".safetensors") {
            n_files++;
        } else {
            continue;
        }
        Directory directory = open(entry.path());
        ASSERT_NE(directory, nullptr);
        EXPECT_GT(weir_tensor_directory_count(directory.get()), 0u);
        EXPECT_GT(walk(directory), 0u) << entry.path();
        EXPECT_EQ(weir_tensor_directory_path(directory.get()), entry.path().string());
    }
    EXPECT_EQ(n_folders, 10);
    EXPECT_GE(n_files, 30);
}

/* The "tensors" object of an index: name to shape and dtype. */
void expect_tensors(const Directory &directory, const json_t *tensors)
{
    const std::map<std::string, weir_dtype> dtypes = {
        { "float32", WEIR_F32 }, { "int32", WEIR_I32 }, { "int16", WEIR_I16 },
        { "uint8", WEIR_U8 },    { "int64", WEIR_I64 }, { "bfloat16", WEIR_BF16 },
        { "float64", WEIR_F64 }, { "bool", WEIR_BOOL }, { "float16", WEIR_F16 },
    };
    EXPECT_EQ(weir_tensor_directory_count(directory.get()), json_object_size(tensors));
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)tensors, name, entry)
    {
        const weir_tensor *tensor = weir_tensor_directory_find(directory.get(), name);
        ASSERT_NE(tensor, nullptr) << name;
        std::vector<int64_t> wanted;
        for (size_t i = 0; i < json_array_size(json_object_get(entry, "shape")); i++)
            wanted.push_back(json_integer_value(json_array_get(json_object_get(entry, "shape"), i))
            );
        EXPECT_EQ(shape(tensor), wanted) << name;
        EXPECT_EQ(tensor->dtype, dtypes.at(json_string_value(json_object_get(entry, "dtype"))))
            << name;
    }
}

json_t *read_json(const std::string &path)
{
    json_t *root = nullptr;
    weir_error error = {};
    EXPECT_EQ(weir_json_read_file(&root, path.c_str(), 1 << 24, &error), WEIR_OK) << error.text;
    return root;
}

TEST(Golden, ShapesAreThoseOfTheIndexes)
{
    for (const char *name : { "modules", "quant_blocks", "samplers" }) {
        json_t *root = read_json(models + name + ".json");
        if (json_object_get(root, "tensors"))
            expect_tensors(open(models + name + ".safetensors"), json_object_get(root, "tensors"));
        json_decref(root);
    }
    int n = 0;
    for (const auto &entry : std::filesystem::directory_iterator(models)) {
        if (!entry.is_directory()) continue;
        json_t *root = read_json(entry.path() / "golden.json");
        const char *file;
        json_t *value;
        json_object_foreach(json_object_get(root, "files"), file, value)
        {
            expect_tensors(open(entry.path() / file), json_object_get(value, "tensors"));
            n++;
        }
        json_decref(root);
    }
    EXPECT_GE(n, 10);
}

/* A folder's safetensors and its unquantised GGUF hold the same values: same bytes after widening,
 * and the same hyperparameters. */
TEST(Golden, ContainersAgree)
{
    Directory hf = open(models + "tq"), gguf = open(models + "tq/tq-f32.gguf");
    ASSERT_EQ(weir_tensor_directory_container(hf.get()), WEIR_CONTAINER_SAFETENSORS);
    ASSERT_EQ(weir_tensor_directory_container(gguf.get()), WEIR_CONTAINER_GGUF);
    EXPECT_EQ(weir_tensor_directory_folder(gguf.get()), models + "tq");
    EXPECT_EQ(integer(hf, "hidden_size"), integer(gguf, "qwen35.embedding_length"));
    EXPECT_EQ(integer(hf, "num_hidden_layers"), integer(gguf, "qwen35.block_count"));
    EXPECT_EQ(integer(hf, "head_dim"), integer(gguf, "qwen35.attention.key_length"));
    EXPECT_EQ(integer(hf, "hidden_size"), 64);
    for (const auto &[a, b] : std::map<std::string, std::string>{
             { "model.embed_tokens.weight", "token_embd.weight" },
             { "lm_head.weight", "output.weight" },
             { "model.layers.3.self_attn.q_proj.weight", "blk.3.attn_q.weight" },
             { "model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight" } }) {
        const weir_tensor *x = weir_tensor_directory_find(hf.get(), a.c_str()),
                          *y = weir_tensor_directory_find(gguf.get(), b.c_str());
        ASSERT_TRUE(x != nullptr && y != nullptr) << a;
        EXPECT_EQ(shape(x), shape(y)) << a;
        ASSERT_EQ(x->dtype, WEIR_BF16);
        ASSERT_EQ(y->dtype, WEIR_F32);
        for (size_t i = 0; i < x->bytes / 2; i++) {
            uint16_t low;
            uint32_t high;
            memcpy(&low, x->data + 2 * i, 2);
            memcpy(&high, y->data + 4 * i, 4);
            ASSERT_EQ((uint32_t)low << 16, high) << a << " " << i;
        }
    }
}

TEST(Golden, GgufMetadata)
{
    Directory gguf = open(models + "tq/tq-q4_0.gguf");
    weir_meta meta, item;
    ASSERT_TRUE(weir_tensor_directory_meta(gguf.get(), "general.architecture", &meta));
    ASSERT_EQ(meta.type, WEIR_META_STRING);
    EXPECT_STREQ(meta.string, "qwen35");
    EXPECT_EQ(meta.length, 6u);
    ASSERT_TRUE(
        weir_tensor_directory_meta(gguf.get(), "qwen35.attention.layer_norm_rms_epsilon", &meta)
    );
    ASSERT_EQ(meta.type, WEIR_META_FLOAT);
    EXPECT_FLOAT_EQ((float)meta.number, 1e-6f);
    ASSERT_TRUE(weir_tensor_directory_meta(gguf.get(), "qwen35.rope.dimension_sections", &meta));
    ASSERT_EQ(meta.type, WEIR_META_ARRAY);
    ASSERT_EQ(meta.element_type, WEIR_META_INT);
    std::vector<int64_t> sections;
    for (size_t i = 0; i < meta.length; i++) {
        ASSERT_TRUE(weir_meta_at(&meta, i, &item));
        sections.push_back(item.integer);
    }
    EXPECT_EQ(sections, (std::vector<int64_t>{ 2, 1, 1, 0 }));
    EXPECT_FALSE(weir_meta_at(&meta, meta.length, &item));
    EXPECT_FALSE(weir_tensor_directory_meta(gguf.get(), "qwen35", &meta));
    EXPECT_EQ(integer(gguf, "qwen35.nextn_predict_layers"), 1);
}

TEST(Golden, ConfigMetadataPrefersTextConfig)
{
    Directory nested = open(models + "tq-r1");
    EXPECT_EQ(integer(nested, "hidden_size"), 32);
    weir_meta meta;
    ASSERT_TRUE(weir_tensor_directory_meta(nested.get(), "model_type", &meta));
    EXPECT_STREQ(meta.string, "qwen3_5_text");
    ASSERT_TRUE(weir_tensor_directory_meta(nested.get(), "architectures", &meta));
    weir_meta item;
    ASSERT_TRUE(weir_meta_at(&meta, 0, &item));
    EXPECT_STREQ(item.string, "Qwen3_5ForConditionalGeneration");
    ASSERT_TRUE(weir_tensor_directory_meta(nested.get(), "rope_parameters.rope_theta", &meta));
    EXPECT_EQ(meta.type == WEIR_META_INT ? (double)meta.integer : meta.number, 1e4);
    EXPECT_FALSE(weir_tensor_directory_meta(nested.get(), "rope_parameters", &meta));
    const weir_tensor *image =
        weir_tensor_directory_find(nested.get(), "model.visual.patch_embed.proj.weight");
    ASSERT_NE(image, nullptr);
    EXPECT_EQ(shape(image), (std::vector<int64_t>{ 8, 3, 2, 2, 2 }));
}

TEST(Golden, ShardsMakeOneDirectory)
{
    Directory shards = open(models + "qwen3-untied");
    Directory first = open(models + "qwen3-untied/model-00001-of-00002.safetensors");
    Directory second = open(models + "qwen3-untied/model-00002-of-00002.safetensors");
    const size_t n = weir_tensor_directory_count(shards.get());
    EXPECT_EQ(
        n, weir_tensor_directory_count(first.get()) + weir_tensor_directory_count(second.get())
    );
    for (size_t i = 0; i < n; i++) {
        const weir_tensor *tensor = weir_tensor_directory_at(shards.get(), i);
        const weir_tensor *same =
            weir_tensor_directory_find((tensor->file == 0 ? first : second).get(), tensor->name);
        ASSERT_NE(same, nullptr) << tensor->name;
        EXPECT_EQ(memcmp(tensor->data, same->data, tensor->bytes), 0);
    }
}

TEST(Golden, FolderOfTwoGgufFilesIsAmbiguous)
{
    weir_tensor_directory *directory = nullptr;
    weir_error error = {};
    EXPECT_EQ(
        weir_tensor_directory_open(&directory, (models + "tq-k").c_str(), &error), WEIR_EFORMAT
    );
    EXPECT_NE(std::string(error.text).find("more than one .gguf"), std::string::npos) << error.text;
}

TEST(Golden, ReleasedPagesComeBack)
{
    Directory gguf = open(models + "tq/tq-f32.gguf");
    const weir_tensor *tensor = weir_tensor_directory_find(gguf.get(), "token_embd.weight");
    const std::string before((const char *)tensor->data, tensor->bytes);
    weir_tensor_release(gguf.get(), tensor);
    EXPECT_EQ(before, std::string((const char *)tensor->data, tensor->bytes));
}

} // namespace
