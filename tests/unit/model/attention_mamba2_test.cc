/* Falcon-H1: attention and Mamba-2 in one layer, and settings that multiply tensors. Nemotron-H:
 * how newer configurations say which block a layer has. */
#include "tests/unit/model/arch_files.h"

namespace {

using arch_files::change_config;
using arch_files::copy_checkpoint;
using arch_files::last_logits;
using support::Engine;
using support::Folder;
using support::Settings;

const char *const falcon = "../families/falcon-h1";
const Settings exact = { "kernels.activations=f32", "kv.format=f32" };

std::vector<float> logits_of(const std::string &path)
{
    Engine engine;
    EXPECT_EQ(engine.open(path, exact), WEIR_OK) << engine.text();
    return engine.get() != nullptr ? last_logits(&engine) : std::vector<float>();
}

std::string why(const Folder &folder)
{
    Engine engine;
    return engine.plan(folder.path(), exact) == WEIR_OK ? "" : engine.text();
}

TEST(FalconH1, LayersHaveRowsAndAState)
{
    Engine engine;
    ASSERT_EQ(engine.open(support::golden(falcon), exact), WEIR_OK) << engine.text();
    const weir_model *const model = weir_engine_model(engine.get());
    EXPECT_STREQ(weir_model_arch(model), "falcon-h1");
    EXPECT_EQ(weir_model_kv_layers(model), 3);
    /* 3 layers of 6 heads of 8 (padded to 16) x 16, and 3 rows of 48 + 2 * 2 * 16 channels */
    EXPECT_EQ(weir_model_recurrent_bytes(model), 4U * 3 * (6 * 16 * 16 + 3 * 112));
}

/* A missing factor is 1, so each of them counts. */
TEST(FalconH1, EveryFactorCounts)
{
    const std::vector<float> want = logits_of(support::golden(falcon));
    for (const char *const key :
         { "embedding_multiplier", "lm_head_multiplier", "key_multiplier",
           "attention_in_multiplier", "attention_out_multiplier", "ssm_in_multiplier",
           "ssm_out_multiplier", "mlp_multipliers", "ssm_multipliers" }) {
        const Folder folder;
        copy_checkpoint(folder, falcon);
        change_config(folder, key, "not_a_setting");
        EXPECT_NE(logits_of(folder.path()), want) << key;
    }
}

TEST(FalconH1, FactorsThatNothingCanBeMultipliedByAreRefused)
{
    const Folder folder;
    copy_checkpoint(folder, falcon);
    change_config(folder, "\"key_multiplier\": 0.5", "\"key_multiplier\": 0.0");
    EXPECT_SAYS(why(folder), "the settings that multiply \"attn.k\" are no numbers");
    change_config(folder, "\"key_multiplier\": 0.0", "\"key_multiplier\": \"much\"");
    EXPECT_SAYS(why(folder), "the settings that multiply \"attn.k\" are no numbers");
    change_config(folder, "\"key_multiplier\": \"much\"", "\"key_multiplier\": 1e9");
    EXPECT_SAYS(why(folder), "or their product 2e+09 is out of range");
}

/* Integers are no weights, also where a setting multiplies them. */
TEST(FalconH1, MultipliedIntegersAreRefused)
{
    const Folder folder;
    copy_checkpoint(folder, falcon);
    arch_files::change_header(
        folder, R"("model.layers.0.self_attn.k_proj.weight":{"dtype":"BF16")",
        R"("model.layers.0.self_attn.k_proj.weight":{"dtype":"U16" )"
    );
    EXPECT_SAYS(why(folder), "weight of u16: no kernel");
}

TEST(Ministral3, TheTemperatureNeedsWholeHeads)
{
    const Folder folder;
    copy_checkpoint(folder, "../families/ministral3");
    change_config(folder, "\"rope_type\"", "\"partial_rotary_factor\": 0.5, \"rope_type\"");
    EXPECT_SAYS(why(folder), "attention_temperature_scale needs RoPE of all dimensions of a head");
}

/* transformers 5 writes a list instead of a text, and not the number of layers. */
TEST(NemotronH, LayersMayBeListed)
{
    const Folder folder;
    const std::vector<float> want = logits_of(support::golden("../families/nemotron-h-moe"));
    copy_checkpoint(folder, "../families/nemotron-h-moe");
    change_config(
        folder, "\"hybrid_override_pattern\": \"MEM*E\"",
        "\"layers_block_type\": [\"linear_attention\", \"moe\", \"mamba\", "
        "\"full_attention\", \"moe\"]"
    );
    change_config(folder, "\"num_hidden_layers\": 5,", "");
    EXPECT_EQ(logits_of(folder.path()), want);
}

} // namespace
