/* Layers of several kinds in a model: heads of two sizes, last layers that read the rows of earlier
 * ones, values that are keys, per-layer embeddings (docs/decisions/0071). */
#include "engine/base/buffer.h"
#include "tests/unit/model/arch_files.h"

namespace arch_files {
namespace {

const char *const family = "../families/gemma4", *const with_experts = "../families/gemma4-moe";

/* What opening the checkpoint with one change of its configuration says. */
std::string why(const char *model, const std::string &from, const std::string &to)
{
    const Folder folder;
    Engine engine;
    copy_checkpoint(folder, model);
    change_config(folder, from, to);
    EXPECT_NE(engine.plan(folder.path(), {}), WEIR_OK) << to;
    return engine.text();
}

/* The same of a change in the header of its tensors. */
std::string why_tensor(const char *model, const std::string &from, const std::string &to)
{
    const Folder folder;
    Engine engine;
    copy_checkpoint(folder, model);
    change_header(folder, from, to);
    EXPECT_NE(engine.plan(folder.path(), {}), WEIR_OK) << to;
    return engine.text();
}

TEST(LayerKinds, HaveHeadsOfTheirOwn)
{
    Engine engine;
    ASSERT_EQ(engine.open(golden(with_experts), { "kv.full_windows=true" }), WEIR_OK)
        << engine.text();
    const weir_model *const model = weir_engine_model(engine.get());
    EXPECT_STREQ(weir_model_arch(model), "gemma4moe");
    ASSERT_EQ(weir_model_kv_layers(model), 3);
    const weir_kv_geometry *const g = weir_model_kv_geometry(model);
    for (const int local : { 0, 1 }) {
        EXPECT_EQ(g[local].n_heads, 2) << local;
        EXPECT_EQ(g[local].key_dim, 16) << local;
        EXPECT_EQ(g[local].window, 5) << local;
    }
    EXPECT_EQ(g[2].n_heads, 1);
    EXPECT_EQ(g[2].key_dim, 32);
    EXPECT_EQ(g[2].window, 0);
}

/* Layers 3 to 5 of six have no rows: they read those of the last layer of their kind. */
TEST(LayerKinds, TheLastOnesReadRowsOfTheirKind)
{
    for (const std::string file : { "", "/gemma4-f16.gguf" }) {
        Engine engine;
        ASSERT_EQ(engine.open(golden(family) + file, { "kv.full_windows=true" }), WEIR_OK)
            << engine.text();
        const weir_model *const model = weir_engine_model(engine.get());
        EXPECT_STREQ(weir_model_arch(model), "gemma4");
        EXPECT_EQ(weir_model_kv_layers(model), 3);
        const int64_t want[] = { 0, 1, 2, 1, 1, 2 };
        for (int64_t i = 0; i < 6; i++)
            EXPECT_EQ(weir_model_layer_memory(model, i).kv_index, want[i]) << i;
    }
}

TEST(LayerKinds, ANumberOfLastLayersIsChecked)
{
    const std::string now = "\"num_kv_shared_layers\": 3", key = "\"num_kv_shared_layers\": ";
    for (const char *const bad : { "7", "-1", "3.5", "\"3\"", "[3]", "true" })
        EXPECT_SAYS(
            why(family, now, key + bad), "num_kv_shared_layers is not a number of the 6 layers"
        );
    EXPECT_SAYS(why(family, now, key + "6"), "layer 0 reads the KV rows of an earlier layer");
    EXPECT_SAYS(why(family, now, key + "4"), "layer 2 reads the KV rows of an earlier layer");
    EXPECT_SAYS(
        why(family, now, key + "2"),
        "tensor layers.3.self_attn.k_proj.weight is missing (parameter \"attn.k\""
    );
    EXPECT_SAYS(
        why(with_experts, "\"num_kv_shared_layers\": 0", key + "1"),
        "'num_kv_shared_layers' is 1, but architecture gemma4moe computes only 0"
    );
}

TEST(LayerKinds, WidthsAreThoseOfTheirBlocks)
{
    EXPECT_SAYS(
        why(family, "\"use_double_wide_mlp\": true", "\"use_double_wide_mlp\": false"),
        "tensor model.layers.3.mlp.gate_proj.weight is [80, 32], want [40, 32]"
    );
    EXPECT_SAYS(
        why(family, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"),
        "4 query heads do not divide into 3 KV heads"
    );
    EXPECT_SAYS(
        why(family, "\"num_global_key_value_heads\": null", "\"num_global_key_value_heads\": 1"),
        "tensor model.layers.2.self_attn.k_proj.weight is [64, 32], want [32, 32]"
    );
    EXPECT_SAYS(
        why(family, "\"head_dim\": 16", "\"head_dim\": 8"),
        "tensor model.layers.0.self_attn.q_proj.weight is [64, 32], want [32, 32]"
    );
}

/* Without layers that share rows there are none of twice the width: both containers say so. */
TEST(LayerKinds, ASizeOfLayersThatAreNotThereIsItsDefault)
{
    const Folder folder;
    Engine engine;
    copy_checkpoint(folder, with_experts);
    change_config(folder, "\"use_double_wide_mlp\": false", "\"use_double_wide_mlp\": true");
    ASSERT_EQ(engine.open(folder.path()), WEIR_OK) << engine.text();
    EXPECT_EQ(weir_model_shape(weir_engine_model(engine.get()))->d_ffn_wide, 40);
}

/* Lists of GGUF: [40, 40, 40, 80, 80, 80] widths, [2, 2, 1] KV heads, as bytes of the file. */
class Lists : public ::testing::Test {
  protected:
    std::string why(
        const std::string &file, const std::string &key, size_t at, const std::string &to
    )
    {
        std::string bytes = read_file("tests/golden/families/" + file);
        const size_t begin = bytes.find(key);
        EXPECT_NE(begin, std::string::npos) << key;
        bytes.replace(begin + key.size() + at, to.size(), to);
        write_file(folder_ / "changed.gguf", bytes);
        EXPECT_NE(engine_.plan(folder_ / "changed.gguf", {}), WEIR_OK);
        return engine_.text();
    }
    static std::string number(uint32_t value)
    {
        return std::string(reinterpret_cast<const char *>(&value), sizeof value);
    }
    /* After the key: the type "list", the type of elements, their number. */
    enum { TYPE = 4, LENGTH = 8, ELEMENTS = 16, INT64 = 11 };
    const std::string dense = "gemma4/gemma4-f16.gguf", experts = "gemma4-moe/gemma4-moe-f16.gguf";
    Folder folder_;
    Engine engine_;
};

TEST_F(Lists, LayersOfABlockHaveTheSameValue)
{
    EXPECT_SAYS(
        why(dense, "gemma4.feed_forward_length", ELEMENTS + 4, number(48)),
        "d_ffn differs in layers that have the same block (feed_forward_length)"
    );
    EXPECT_SAYS(
        why(dense, "gemma4.feed_forward_length", ELEMENTS + 20, number(40)),
        "d_ffn_wide differs in layers that have the same block (feed_forward_length)"
    );
    EXPECT_SAYS(
        why(experts, "gemma4.attention.head_count_kv", ELEMENTS + 4, number(1)),
        "n_kv_heads_local differs in layers that have the same block (attention.head_count_kv)"
    );
    EXPECT_SAYS(
        why(experts, "gemma4.attention.head_count_kv", ELEMENTS + 8, number(0)),
        "n_kv_heads is 0, allowed is 1 to 4096"
    );
}

TEST_F(Lists, HaveAnEntryForEachLayer)
{
    EXPECT_SAYS(
        why(dense, "gemma4.feed_forward_length", TYPE, number(INT64) + number(3)),
        "d_ffn has fewer entries than the model has layers (feed_forward_length)"
    );
    EXPECT_SAYS(
        why(dense, "gemma4.attention.shared_kv_layers", 4, number(7)),
        "gemma4.attention.shared_kv_layers is not a number of the 6 layers"
    );
    EXPECT_SAYS(
        why(dense, "gemma4.block_count", 4, number(7)),
        "gemma4.attention.sliding_window_pattern has 6 entries for 7 layers"
    );
    EXPECT_SAYS(
        why(experts, "gemma4.attention.shared_kv_layers", 4, number(1)),
        "'gemma4.attention.shared_kv_layers' is 1, but architecture gemma4moe computes only 0"
    );
}

TEST_F(Lists, RotatedDimensionsAreThoseOfAHead)
{
    EXPECT_SAYS(
        why(dense, "gemma4.rope.dimension_count_swa", 4, number(32)),
        "RoPE rotates more dimensions than a head has"
    );
    EXPECT_SAYS(
        why(dense, "gemma4.rope.dimension_count_swa", 4, number(15)),
        "RoPE's 15 dimensions are not even"
    );
}

TEST_F(Lists, FrequenciesAreNotLost)
{
    EXPECT_SAYS(
        why(dense, "rope_freqs.weigh", 0, "u"),
        "tensor rope_freqs.weight is missing (parameter \"rope.factors\""
    );
}

TEST(LayerKinds, SettingsThatNothingComputesAreRefused)
{
    EXPECT_SAYS(
        why(family, "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 1.5"),
        "RoPE rotates 1.5 of the dimensions, which is not a share"
    );
    EXPECT_SAYS(
        why(family, "\"use_bidirectional_attention\": null",
            "\"use_bidirectional_attention\": true"),
        "'use_bidirectional_attention' is true"
    );
    EXPECT_SAYS(
        why(family, "\"rope_type\": \"default\"", "\"rope_type\": \"linear\""),
        "'rope_parameters.sliding_attention.rope_type' is \"linear\""
    );
    EXPECT_SAYS(
        why(with_experts, "\"enable_moe_block\": true", "\"enable_moe_block\": false"),
        "'enable_moe_block' is false"
    );
}

/* Of the layers that see all rows. */
TEST_F(Lists, ScalingOfRopeIsRead)
{
    const std::string path = golden(std::string(family) + "/gemma4-f16.gguf");
    const auto text = [](const std::string &s) {
        const uint64_t n = s.size();
        return std::string(reinterpret_cast<const char *>(&n), sizeof n) + s;
    };
    enum { N_KEYS = 16, KEYS = 24, FLOAT32 = 6, UINT8 = 0 };
    const float factor = 2;
    uint32_t bits;
    memcpy(&bits, &factor, sizeof bits);
    std::string bytes = read_file(path);
    /* Tensors are aligned to 32 bytes: two keys of 64 bytes in all. */
    const std::string keys = text("gemma4.rope.scaling.factor") + number(FLOAT32) + number(bits) +
                             text("gemma4.x1") + number(UINT8) + std::string(1, 1);
    ASSERT_EQ(keys.size(), 64u);
    bytes[N_KEYS] = static_cast<char>(bytes[N_KEYS] + 2);
    bytes.insert(KEYS, keys);
    write_file(folder_ / "scaled.gguf", bytes);
    Engine plain;
    ASSERT_EQ(plain.open(path), WEIR_OK) << plain.text();
    ASSERT_EQ(engine_.open(folder_ / "scaled.gguf"), WEIR_OK) << engine_.text();
    const auto *const own = weir_model_rope(weir_engine_model(engine_.get()))->frequencies,
                      *const all = weir_model_rope(weir_engine_model(plain.get()))->frequencies;
    EXPECT_EQ(own[1] * 2.0f, all[1]);
}

/* ---- per-layer embeddings -------------------------------------------------------------------- */
TEST(LayerInputs, TheTableHasARowForEachToken)
{
    EXPECT_SAYS(
        why(family, "\"hidden_size_per_layer_input\": 8", "\"hidden_size_per_layer_input\": 7"),
        "tensor model.embed_tokens_per_layer.weight is [320, 48], want [320, 42]"
    );
    EXPECT_SAYS(
        why_tensor(family, "[320,48]", "[160,96]"),
        "tensor model.embed_tokens_per_layer.weight is [160, 96], want [320, 48]"
    );
    EXPECT_SAYS(
        why_tensor(
            family, "\"model.embed_tokens_per_layer.weight\":{\"dtype\":\"BF16\"",
            "\"model.embed_tokens_per_layer.weight\":{\"dtype\":\"I16\""
        ),
        "tensor model.embed_tokens_per_layer.weight of i16: its rows cannot be read as weights"
    );
    EXPECT_SAYS(
        why_tensor(family, "embed_tokens_per_layer.weight", "embed_tokens_per_layer.height"),
        "tensor embed_tokens_per_layer.weight is missing (parameter \"embed.layers\""
    );
}

/* Rows are read from the file: the table counts as parameters, and is no memory of the plan. */
TEST(LayerInputs, TheTableIsNotInMemory)
{
    Engine engine;
    ASSERT_EQ(engine.plan(golden(family), {}), WEIR_OK) << engine.text();
    const weir_engine_facts facts = engine.planned().facts;
    int64_t n = 0;
    weir_tensor_directory *directory = nullptr;
    ASSERT_EQ(weir_tensor_directory_open(&directory, golden(family).c_str(), engine.error()), 0);
    for (size_t i = 0; i < weir_tensor_directory_count(directory); i++) {
        const weir_tensor *const tensor = weir_tensor_directory_at(directory, i);
        int64_t elements = 1;
        for (int32_t d = 0; d < tensor->n_dims; d++) elements *= tensor->shape[d];
        n += elements;
    }
    weir_tensor_directory_close(directory);
    EXPECT_EQ(facts.n_parameters, n);
    EXPECT_EQ(facts.layer_embedding_bytes, 320 * 48 * 2);
    weir_buffer text = {};
    ASSERT_EQ(weir_plan_print(&engine.planned(), &text), WEIR_OK);
    EXPECT_SAYS(text.data, "30.0 KiB of per-layer embeddings are read from the file");
    weir_buffer_free(&text);
}

/* Without per-layer embeddings layers run on devices; with them the host's memory has the rows. */
TEST(LayerKinds, RunOnADevice)
{
    const Folder folder;
    Engine engine;
    copy_checkpoint(folder, family);
    const Settings device = { "kernels.device=checked" };
    ASSERT_EQ(engine.open(folder.path(), device), WEIR_OK) << engine.text();
    EXPECT_SAYS(
        weir_engine_plan_of(engine.get())->device_why,
        "rows of per-layer embeddings are read on the host only"
    );
    change_config(
        folder, "\"hidden_size_per_layer_input\": 8", "\"hidden_size_per_layer_input\": 0"
    );
    ASSERT_EQ(engine.open(folder.path()), WEIR_OK) << engine.text();
    const std::vector<float> want = last_logits(&engine);
    ASSERT_EQ(engine.open(folder.path(), device), WEIR_OK) << engine.text();
    EXPECT_STREQ(weir_engine_plan_of(engine.get())->device, "checked");
    EXPECT_EQ(last_logits(&engine), want);
}

/* Without values of its own a layer that sees all rows takes its keys; if only some layers have
 * them, the file is damaged. */
TEST(LayerKinds, ValuesAreAbsentInAllLayersOrNone)
{
    const Folder folder;
    Engine engine;
    copy_checkpoint(folder, "qwen3");
    change_config(folder, "\"model_type\": \"qwen3\"", "\"model_type\": \"acme\"");
    write_arch(folder, "qk_norm = true", "qk_norm = true\nv_norm = true\nv_optional = true");
    const std::string path = folder / "archs/acme.toml",
                      name = "hf = \"layers.{i}.self_attn.v_proj.weight\"";
    write_file(path, with(read_file(path), name, name + ", optional = true"));
    const Settings settings = { "model.arch_dir=" + (folder / "archs") };
    ASSERT_EQ(engine.open(folder.path(), settings), WEIR_OK) << engine.text();
    const std::vector<float> own = last_logits(&engine);
    change_header(folder, "layers.1.self_attn.v_proj", "layers.1.self_attn.w_proj");
    EXPECT_EQ(engine.open(folder.path(), settings), WEIR_EMISMATCH);
    EXPECT_SAYS(engine.text(), "tensor layers.1.self_attn.v_proj.weight is missing");
    change_header(folder, "layers.0.self_attn.v_proj", "layers.0.self_attn.w_proj");
    ASSERT_EQ(engine.open(folder.path(), settings), WEIR_OK) << engine.text();
    EXPECT_NE(last_logits(&engine), own);
}

} // namespace
} // namespace arch_files
