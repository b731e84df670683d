/* Kimi Linear: which layers are of Kimi Delta Attention, its convolutions' taps, and what is said
 * of files that do not fit. */
#include "engine/model/model.h"
#include "tests/unit/model/arch_files.h"
#include "tests/unit/model/files.h"

namespace {

using namespace arch_files;

const Settings exact = { "kernels.activations=f32" };
const char *const checkpoint = "../families/kimi-linear";

/* Layers are counted from 1 in config.json, and GGUF has a number for each. */
TEST(Kda, BothContainersSayWhichLayers)
{
    for (const char *const file : { "", "/kimi-linear-f16.gguf" }) {
        Engine engine;
        ASSERT_EQ(engine.open(golden(std::string(checkpoint) + file), exact), WEIR_OK)
            << engine.text();
        const weir_model *const model = weir_engine_model(engine.get());
        EXPECT_STREQ(weir_model_arch(model), "kimi-linear");
        for (int i = 0; i < 5; i++) {
            EXPECT_STREQ(weir_model_layer_mixer(model, i)->name, i == 3 ? "mla" : "kda") << i;
            EXPECT_EQ(weir_model_layer_memory(model, i).has_state, i != 3);
            EXPECT_EQ(weir_model_layer_memory(model, i).has_history, i != 3);
            EXPECT_EQ(weir_model_layer_memory(model, i).kv_index, i == 3 ? 0 : -1);
        }
        EXPECT_TRUE(weir_model_layer_kv(model, 3)->no_rope);
    }
}

enum { D = 24, HEADS = 3, DIM = 6, WIDTH = HEADS * DIM, VOCABULARY = 320, INNER = 40 };

void add_layer(support::Arrays *all, int64_t n_taps)
{
    const std::string layer = "model.layers.0.", mixer = layer + "self_attn.", ffn = layer + "mlp.";
    const auto add = [&](const std::string &name, std::vector<int64_t> shape, float scale) {
        (*all)[name] = support::noise(std::move(shape), scale, static_cast<int>(all->size()));
    };
    add(layer + "input_layernorm.weight", { D }, 1);
    add(layer + "post_attention_layernorm.weight", { D }, 1);
    for (const char *const part : { "q", "k", "v" }) {
        add(mixer + part + "_proj.weight", { WIDTH, D }, 0.4f);
        const support::Array taps = support::noise({ WIDTH, 1, 3 }, 1, *part);
        support::Array padded = { { WIDTH, 1, n_taps }, {} };
        for (size_t c = 0; c < WIDTH; c++) {
            padded.values.insert(padded.values.end(), static_cast<size_t>(n_taps - 3), 0);
            for (size_t j = 0; j < 3; j++) padded.values.push_back(taps.values[3 * c + j]);
        }
        (*all)[mixer + part + "_conv1d.weight"] = padded;
    }
    for (const char *const part : { "f", "g" }) {
        add(mixer + part + "_a_proj.weight", { DIM, D }, 0.4f);
        add(mixer + part + "_b_proj.weight", { WIDTH, DIM }, 0.4f);
    }
    add(mixer + "b_proj.weight", { HEADS, D }, 0.4f);
    add(mixer + "A_log", { 1, 1, HEADS, 1 }, 1);
    add(mixer + "dt_bias", { WIDTH }, 1);
    add(mixer + "o_norm.weight", { DIM }, 1);
    add(mixer + "o_proj.weight", { D, WIDTH }, 0.4f);
    add(ffn + "gate_proj.weight", { INNER, D }, 0.4f);
    add(ffn + "up_proj.weight", { INNER, D }, 0.4f);
    add(ffn + "down_proj.weight", { D, INNER }, 0.4f);
}

/* One layer, whose convolutions have n_taps taps: zeros before the last three. */
void write_layer(const Folder &folder, int64_t n_taps)
{
    support::Arrays all;
    all["model.embed_tokens.weight"] = support::noise({ VOCABULARY, D }, 0.4f, 1);
    all["lm_head.weight"] = support::noise({ VOCABULARY, D }, 0.4f, 2);
    all["model.norm.weight"] = support::noise({ D }, 1, 3);
    add_layer(&all, n_taps);
    copy_checkpoint(folder, checkpoint);
    change_config(folder, "\"hidden_size\": 32", "\"hidden_size\": 24");
    change_config(folder, "\"num_hidden_layers\": 5", "\"num_hidden_layers\": 1");
    change_config(folder, "\"intermediate_size\": 48", "\"intermediate_size\": 40");
    change_config(folder, "\n   4\n", "\n");
    change_config(folder, "   1,\n   2,\n   3,\n   5\n", "   1\n");
    change_config(folder, "\"head_dim\": 16", "\"head_dim\": 6");
    change_config(folder, "\"num_heads\": 4", "\"num_heads\": 3");
    change_config(
        folder, "\"short_conv_kernel_size\": 4",
        "\"short_conv_kernel_size\": " + std::to_string(n_taps)
    );
    support::write_safetensors(folder / "model.safetensors", all);
}

/* The taps of q, k and v are one array without gaps, also where a tensor is no whole number of
 * cache lines: 54 elements and, padded with taps of zero, 144. */
TEST(Kda, TapsOfThreeTensorsAreOneArray)
{
    std::vector<float> logits[2];
    for (const int64_t n_taps : { 3, 8 }) {
        const Folder folder;
        Engine engine;
        write_layer(folder, n_taps);
        ASSERT_EQ(engine.open(folder.path(), exact), WEIR_OK) << engine.text();
        logits[n_taps == 8] = last_logits(&engine);
        ASSERT_EQ(logits[n_taps == 8].size(), static_cast<size_t>(VOCABULARY));
    }
    for (size_t i = 0; i < VOCABULARY; i++) ASSERT_NEAR(logits[0][i], logits[1][i], 1e-5f) << i;
    EXPECT_GT(std::fabs(logits[0][0] - logits[0][1]), 1e-3f) << "nothing was tested";
}

TEST(Kda, KeysThatHeadsShareAreRefused)
{
    const Folder folder;
    Engine engine;
    std::filesystem::create_directories(folder / "archs");
    write_file(
        folder / "archs/kimi-linear.toml",
        with(
            read_file("configs/arch/kimi-linear.toml"),
            "gdn_k_heads          = { gguf = \"attention.head_count\", hf = "
            "\"linear_attn_config.num_heads\" }",
            "gdn_k_heads = { default = 2 }"
        )
    );
    EXPECT_EQ(
        engine.plan(golden(checkpoint), { "model.arch_dir=" + (folder / "archs") }), WEIR_ECONFIG
    ) << engine.text();
    EXPECT_SAYS(engine.text(), "a head has a key and a value of its own");
}

} // namespace
