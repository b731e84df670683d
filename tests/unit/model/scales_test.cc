/* Scales of rows, blocks and logits (docs/decisions/0056), and RoPE tables of layers. */
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/model/arch_files.h"

namespace {

using arch_files::change_config;
using arch_files::copy_checkpoint;
using arch_files::last_logits;
using support::Engine;
using support::Folder;
using support::golden;

struct Scales {
    const char *embedding, *residual, *logits, *eps;
};

std::vector<float> logits_with(const Scales &scales)
{
    const Folder folder;
    Engine engine;
    copy_checkpoint(folder, "../families/granite");
    change_config(
        folder, "\"embedding_multiplier\": 6.0",
        std::string("\"embedding_multiplier\": ") + scales.embedding
    );
    change_config(
        folder, "\"residual_multiplier\": 0.4",
        std::string("\"residual_multiplier\": ") + scales.residual
    );
    change_config(
        folder, "\"logits_scaling\": 2.0", std::string("\"logits_scaling\": ") + scales.logits
    );
    change_config(
        folder, "\"rms_norm_eps\": 1e-05", std::string("\"rms_norm_eps\": ") + scales.eps
    );
    EXPECT_EQ(engine.open(folder.path(), { "kernels.activations=f32" }), WEIR_OK) << engine.text();
    return last_logits(&engine);
}

void expect_near(
    const std::vector<float> &got, const std::vector<float> &want, float factor,
    float allowed = 1e-5f
)
{
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); i++)
        ASSERT_NEAR(got[i], factor * want[i], allowed * (1 + std::fabs(want[i]))) << i;
}

/* x + r f(N(x)) divided by r is x / r + f(N(x / r)) if the norm's eps is divided by r^2. */
TEST(Scales, ResidualScaleIsOneOfRowsAndEps)
{
    const std::vector<float> scaled = logits_with({ "6.0", "0.4", "2.0", "0.16" });
    expect_near(scaled, logits_with({ "15.0", "1.0", "2.0", "1.0" }), 1);
    const std::vector<float> other = logits_with({ "15.0", "1.0", "2.0", "0.4" });
    float most = 0;
    for (size_t i = 0; i < other.size(); i++)
        most = std::fmax(most, std::fabs(other[i] - scaled[i]));
    EXPECT_GT(most, 1e-3f) << "eps has no effect that this test could see";
}

TEST(Scales, LogitsAreDivided)
{
    expect_near(
        logits_with({ "6.0", "0.4", "8.0", "1e-5" }), logits_with({ "6.0", "0.4", "2.0", "1e-5" }),
        0.25f
    );
}

TEST(Scales, DivisorOfNothingIsRefused)
{
    const Folder folder;
    Engine engine;
    copy_checkpoint(folder, "../families/granite");
    change_config(folder, "\"logits_scaling\": 2.0", "\"logits_scaling\": 0");
    EXPECT_EQ(engine.plan(folder.path(), {}), WEIR_EFORMAT);
    EXPECT_SAYS(engine.text(), "logit_scale is inf, allowed is 0 to 1e+06");
}

enum class Granite { Dense, Experts, Shared };

/* Writes a Granite of one layer, so that all kinds compute the same: the dense block, experts that
 * are all equal to it, or experts of zeros and a shared one that is equal to it. */
void write_granite(const Folder &folder, Granite kind)
{
    const int64_t vocabulary = 320, width = 48, inner = 64, n_experts = 5;
    const std::string layer = "model.layers.0.", moe = layer + "block_sparse_moe.";
    support::Arrays all;
    all["model.embed_tokens.weight"] = support::noise({ vocabulary, width }, 0.4f, 1);
    all["model.norm.weight"] = support::noise({ width }, 1, 2);
    all[layer + "input_layernorm.weight"] = support::noise({ width }, 1, 3);
    all[layer + "post_attention_layernorm.weight"] = support::noise({ width }, 1, 4);
    all[layer + "self_attn.q_proj.weight"] = support::noise({ width, width }, 0.3f, 5);
    all[layer + "self_attn.k_proj.weight"] = support::noise({ width / 2, width }, 0.3f, 6);
    all[layer + "self_attn.v_proj.weight"] = support::noise({ width / 2, width }, 0.3f, 7);
    all[layer + "self_attn.o_proj.weight"] = support::noise({ width, width }, 0.3f, 8);
    const support::Array gate = support::noise({ inner, width }, 0.3f, 9),
                         up = support::noise({ inner, width }, 0.3f, 10),
                         down = support::noise({ width, inner }, 0.3f, 11);
    support::Array both = { { 2 * inner, width }, gate.values };
    both.values.insert(both.values.end(), up.values.begin(), up.values.end());
    std::string type = "granite";
    if (kind == Granite::Dense) {
        all[layer + "mlp.gate_proj.weight"] = gate;
        all[layer + "mlp.up_proj.weight"] = up;
        all[layer + "mlp.down_proj.weight"] = down;
    } else {
        support::Array in = { { n_experts, 2 * inner, width }, {} },
                       out = { { n_experts, width, inner }, {} };
        for (int64_t e = 0; e < n_experts; e++) {
            in.values.insert(in.values.end(), both.values.begin(), both.values.end());
            for (const float x : down.values)
                out.values.push_back(kind == Granite::Experts ? x : 0);
        }
        all[moe + "router.layer.weight"] = support::noise({ n_experts, width }, 0.5f, 12);
        all[moe + "input_linear.weight"] = in;
        all[moe + "output_linear.weight"] = out;
        type = "granitemoe\", \"num_experts_per_tok\": 2, \"num_local_experts\": 5, \"x\": \"";
    }
    if (kind == Granite::Shared) {
        all[layer + "shared_mlp.input_linear.weight"] = both;
        all[layer + "shared_mlp.output_linear.weight"] = down;
        type = "granitemoeshared\", \"shared_intermediate_size\": 64" + type.substr(11);
    }
    copy_checkpoint(folder, "../families/granite");
    change_config(folder, "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 1");
    change_config(folder, "\"model_type\": \"granite\"", "\"model_type\": \"" + type + "\"");
    support::write_safetensors(folder / "model.safetensors", all);
}

TEST(Granite, ExpertsThatAreEqualAreTheDenseModel)
{
    const struct {
        Granite kind;
        const char *arch;
    } kinds[] = { { Granite::Dense, "granite" },
                  { Granite::Experts, "granitemoe" },
                  { Granite::Shared, "granitemoeshared" } };
    std::vector<float> dense;
    for (const auto &each : kinds) {
        const Folder folder;
        Engine engine;
        write_granite(folder, each.kind);
        ASSERT_EQ(engine.open(folder.path(), { "kernels.activations=f32" }), WEIR_OK)
            << engine.text();
        EXPECT_STREQ(weir_model_arch(weir_engine_model(engine.get())), each.arch);
        const std::vector<float> logits = last_logits(&engine);
        if (each.kind == Granite::Dense) dense = logits;
        expect_near(logits, dense, 1);
    }
}

std::vector<float> gemma_with(const std::string &setting, const std::string &value)
{
    const Folder folder;
    Engine engine;
    copy_checkpoint(folder, "../families/gemma3");
    change_config(folder, "\"" + setting + "\": null", "\"" + setting + "\": " + value);
    EXPECT_EQ(engine.open(folder.path(), { "kernels.activations=f32" }), WEIR_OK) << engine.text();
    return last_logits(&engine);
}

TEST(SoftCaps, LogitsStayWithinTheirs)
{
    std::vector<float> want = gemma_with("final_logit_softcapping", "null");
    for (float &x : want) x = 0.25f * std::tanh(x / 0.25f);
    expect_near(gemma_with("final_logit_softcapping", "0.25"), want, 1);
}

TEST(SoftCaps, ScoresHaveOne)
{
    const std::vector<float> none = gemma_with("attn_logit_softcapping", "null"),
                             narrow = gemma_with("attn_logit_softcapping", "0.01");
    expect_near(gemma_with("attn_logit_softcapping", "1e5"), none, 1, 2e-4f);
    float most = 0;
    for (size_t i = 0; i < none.size(); i++) most = std::fmax(most, std::fabs(none[i] - narrow[i]));
    EXPECT_GT(most, 1e-3f);
}

/* Policies score with the scale of the layers they observe. */
TEST(Scales, PoliciesHaveTheScaleOfTheModel)
{
    Engine engine;
    const support::Settings settings = { "kv.policy.name=h2o", "kv.policy.budget=80" };
    ASSERT_EQ(engine.open(golden("../families/granite"), settings), WEIR_OK) << engine.text();
    const weir_block_kv *const kv = weir_model_layer_kv(weir_engine_model(engine.get()), 0);
    ASSERT_NE(kv, nullptr);
    EXPECT_FLOAT_EQ(kv->scale, 0.1f);
}

/* Of Gemma's layers those without a window are observed; all of them have one rotation. */
TEST(Scales, PoliciesAcceptLocalLayersWithAnotherRotation)
{
    Engine engine;
    const support::Settings settings = { "kv.policy.name=h2o", "kv.policy.budget=80" };
    ASSERT_EQ(engine.open(golden("../families/gemma3"), settings), WEIR_OK) << engine.text();
    const weir_model *const model = weir_engine_model(engine.get());
    EXPECT_TRUE(weir_model_layer_kv(model, 0)->rope_local);
    EXPECT_FALSE(weir_model_layer_kv(model, 0)->watched);
    EXPECT_FALSE(weir_model_layer_kv(model, 5)->rope_local);
    EXPECT_TRUE(weir_model_layer_kv(model, 5)->watched);
}

/* Without a window the layers with a RoPE base of their own would be observed. */
TEST(Scales, PoliciesRefuseObservedLayersWithAnotherRotation)
{
    const Folder folder;
    Engine engine;
    std::string arch = support::read_file("configs/arch/gemma3.toml");
    arch = support::with(arch, "name     = \"gemma3\"", "name     = \"wide\"");
    arch = support::with(arch, "hf = [\"gemma3_text\", \"gemma3\"]", "hf = [\"wide\"]");
    arch = support::with(arch, "gguf = [\"gemma3\"]", "gguf = [\"wide\"]");
    arch = support::with(arch, "rope_local = true\nwindow     = true", "rope_local = true");
    copy_checkpoint(folder, "../families/gemma3");
    change_config(folder, "\"model_type\": \"gemma3_text\"", "\"model_type\": \"wide\"");
    std::filesystem::create_directories(folder / "archs");
    support::write_file(folder / "archs/wide.toml", arch);
    EXPECT_EQ(
        engine.open(
            folder.path(),
            { "model.arch_dir=" + (folder / "archs"), "kv.policy.name=h2o", "kv.policy.budget=64" }
        ),
        WEIR_ECONFIG
    );
    EXPECT_SAYS(engine.text(), "different widths, heads or rotation");
}

} // namespace
