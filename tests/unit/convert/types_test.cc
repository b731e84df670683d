// Which tensor gets which type.
#include "tools/convert/types.h"

#include <gtest/gtest.h>

#include <string>

namespace {

weir_mix mix(const char *name, bool is_pure = false)
{
    weir_mix out = {};
    weir_error error = {};
    EXPECT_EQ(weir_mix_find(&out, name, is_pure, &error), WEIR_OK) << error.text;
    return out;
}

/* The type of a matrix of a model of 32 layers with 4 query heads for each KV head. */
std::string type(
    const char *name, const char *tensor, int64_t n_in = 4096, int64_t n_experts = 0,
    bool is_pure = false, bool is_tied = false
)
{
    const weir_mix m = mix(name, is_pure);
    weir_typed t = {};
    t.name = tensor;
    t.n_dims = 2;
    t.n_in = n_in;
    t.n_layers = 32;
    t.n_experts = n_experts;
    t.n_grouped = 4;
    t.is_tied = is_tied;
    return weir_dtype_of(weir_mix_type(&m, &t)).name;
}

/* The same with an importance matrix, and without other query heads of a KV head. */
std::string ungrouped(
    const char *name, const char *tensor, bool has_importance, int64_t n_experts = 0
)
{
    weir_mix m = mix(name);
    weir_typed t = {};
    m.has_importance = has_importance;
    t.name = tensor;
    t.n_dims = 2;
    t.n_in = 4096;
    t.n_layers = 32;
    t.n_experts = n_experts;
    t.n_grouped = 1;
    return weir_dtype_of(weir_mix_type(&m, &t)).name;
}

TEST(Types, UnknownNamesListTheKnown)
{
    weir_mix out;
    weir_error error = {};
    EXPECT_EQ(weir_mix_find(&out, "q9_k", false, &error), WEIR_ECONFIG);
    EXPECT_NE(std::string(error.text).find("q4_k_m"), std::string::npos) << error.text;
}

TEST(Types, PlainTypes)
{
    EXPECT_EQ(type("f16", "blk.0.attn_v.weight"), "f16");
    EXPECT_EQ(type("bf16", "output.weight"), "bf16");
    EXPECT_EQ(type("f32", "token_embd.weight"), "f32");
}

TEST(Types, TheProjectionOfPerLayerEmbeddingsIsNotQuantised)
{
    EXPECT_EQ(type("q4_k_m", "per_layer_model_proj.weight"), "f16");
    EXPECT_EQ(type("q8_0", "per_layer_model_proj.weight", 4096, 0, true), "f16");
    EXPECT_EQ(type("bf16", "per_layer_model_proj.weight"), "bf16");
    EXPECT_EQ(type("q4_k_m", "per_layer_token_embd.weight"), "q4_k");
}

TEST(Types, WhatStaysPlain)
{
    for (const char *const name :
         { "blk.0.attn_norm.weight", "blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_inp_shexp.weight",
           "blk.0.ssm_conv1d.weight", "blk.0.shortconv.conv.weight", "blk.0.ffn_gate_exps.bias",
           "blk.0.ssm_a" }) {
        EXPECT_EQ(type("q4_k_m", name), "f32") << name;
        EXPECT_EQ(type("f16", name), "f32") << name;
    }
    weir_typed vector = {};
    vector.name = "blk.0.attn_sinks.weight";
    vector.n_dims = 1;
    vector.n_in = 4096;
    EXPECT_TRUE(weir_stays_plain(&vector));
}

TEST(Types, MixesOfLlamaQuantize)
{
    EXPECT_EQ(type("q4_k_m", "blk.0.attn_q.weight"), "q4_k");
    EXPECT_EQ(type("q4_k_m", "blk.0.attn_v.weight"), "q6_k") << "the first eighth";
    EXPECT_EQ(type("q4_k_m", "blk.4.attn_v.weight"), "q4_k");
    EXPECT_EQ(type("q4_k_m", "blk.6.ffn_down.weight"), "q6_k") << "every third";
    EXPECT_EQ(type("q4_k_m", "blk.31.ffn_down.weight"), "q6_k") << "the last eighth";
    EXPECT_EQ(type("q4_k", "blk.0.attn_v.weight"), "q6_k") << "q4_k is q4_k_m";
    EXPECT_EQ(type("q4_k_s", "blk.3.attn_v.weight"), "q5_k");
    EXPECT_EQ(type("q4_k_s", "blk.4.attn_v.weight"), "q4_k");
    EXPECT_EQ(type("q4_k_s", "blk.4.ffn_down.weight"), "q4_k");
    EXPECT_EQ(type("q5_k_m", "blk.0.ffn_down.weight"), "q6_k");
    EXPECT_EQ(type("q5_k_s", "blk.0.ffn_down.weight"), "q5_k");
    EXPECT_EQ(type("q3_k_m", "blk.0.attn_v.weight"), "q5_k");
    EXPECT_EQ(type("q3_k_m", "blk.9.attn_v.weight"), "q4_k");
    EXPECT_EQ(type("q3_k_m", "blk.9.attn_output.weight"), "q4_k");
    EXPECT_EQ(type("q3_k_l", "blk.9.ffn_down.weight"), "q5_k");
    EXPECT_EQ(type("q3_k_s", "blk.9.ffn_down.weight"), "q3_k");
    EXPECT_EQ(type("q2_k", "blk.9.attn_v.weight"), "q4_k");
    EXPECT_EQ(type("q2_k", "blk.9.ffn_down.weight"), "q3_k");
    EXPECT_EQ(type("iq4_xs", "blk.9.attn_v.weight"), "q5_k");
    EXPECT_EQ(type("q6_k", "blk.9.attn_v.weight"), "q6_k");
}

TEST(Types, MixesOfThreeBits)
{
    EXPECT_EQ(type("iq3_s", "blk.9.attn_q.weight"), "iq3_s");
    EXPECT_EQ(type("iq3_s", "blk.9.attn_v.weight"), "q4_k") << "4 query heads of a KV head";
    EXPECT_EQ(ungrouped("iq3_s", "blk.9.attn_v.weight", true), "iq3_s");
    EXPECT_EQ(type("iq3_m", "blk.9.attn_output.weight"), "q4_k");
    EXPECT_EQ(type("iq3_m", "blk.3.ffn_down.weight"), "q4_k");
    EXPECT_EQ(type("iq3_m", "blk.6.ffn_down.weight"), "iq3_s");
    EXPECT_EQ(type("iq3_m", "blk.6.ffn_down_exps.weight", 4096, 8), "q4_k") << "every third";
    EXPECT_EQ(type("iq3_xs", "blk.9.attn_q.weight"), "iq3_xxs");
    EXPECT_EQ(type("iq3_xs", "blk.3.ffn_gate.weight"), "iq3_s");
    EXPECT_EQ(type("iq3_xs", "blk.4.ffn_gate.weight"), "iq3_xxs");
    EXPECT_EQ(type("iq3_xs", "blk.27.ffn_up.weight"), "iq3_xxs");
    EXPECT_EQ(type("iq3_xs", "blk.28.ffn_up.weight"), "iq3_s");
    EXPECT_EQ(type("iq3_xxs", "blk.9.ffn_up.weight"), "iq3_xxs");
    EXPECT_EQ(type("iq3_xxs", "blk.9.attn_k.weight"), "iq2_s");
    EXPECT_EQ(type("iq3_xxs", "blk.9.attn_output.weight"), "iq3_s");
    EXPECT_EQ(type("iq3_xxs", "token_embd.weight"), "iq3_s");
    EXPECT_EQ(type("iq3_xxs", "output.weight"), "q5_k");
    EXPECT_EQ(type("iq3_xs", "output.weight"), "q6_k");
    EXPECT_EQ(type("iq3_xxs", "blk.9.attn_output.weight", 4096, 8), "q5_k");
    EXPECT_EQ(type("iq3_xxs", "blk.9.attn_k.weight", 4096, 8), "q8_0");
}

TEST(Types, MixesOfOneAndTwoBits)
{
    EXPECT_EQ(type("iq2_xxs", "blk.9.attn_q.weight"), "iq2_xxs");
    EXPECT_EQ(type("iq2_xxs", "blk.9.attn_v.weight"), "q4_k");
    EXPECT_EQ(ungrouped("iq2_xxs", "blk.9.attn_v.weight", true), "q2_k");
    EXPECT_EQ(ungrouped("iq2_xxs", "blk.9.attn_v.weight", true, 64), "q4_k");
    EXPECT_EQ(ungrouped("iq2_s", "blk.9.attn_v.weight", true), "iq3_s");
    EXPECT_EQ(type("iq2_xs", "blk.3.ffn_down.weight"), "q2_k");
    EXPECT_EQ(type("iq2_xs", "blk.4.ffn_down.weight"), "iq2_xs");
    EXPECT_EQ(type("iq2_s", "blk.9.ffn_up.weight"), "iq2_xs") << "the mix, not the type";
    EXPECT_EQ(type("iq2_s", "blk.9.ffn_up.weight", 4096, 0, true), "iq2_s");
    EXPECT_EQ(type("iq2_m", "blk.9.ffn_up.weight"), "iq2_s");
    EXPECT_EQ(type("iq2_m", "blk.9.attn_output.weight"), "iq3_s");
    EXPECT_EQ(type("iq2_m", "token_embd.weight"), "iq3_s");
    EXPECT_EQ(type("iq2_m", "output.weight"), "q5_k");
    EXPECT_EQ(type("iq1_s", "blk.9.ffn_up.weight"), "iq1_s");
    EXPECT_EQ(type("iq1_m", "blk.9.attn_output.weight"), "iq2_xxs");
    EXPECT_EQ(type("iq1_m", "blk.9.attn_output.weight", 4096, 8), "q5_k");
    EXPECT_EQ(type("iq1_m", "blk.9.attn_k.weight", 4096, 8), "q4_k");
    EXPECT_EQ(type("iq1_s", "token_embd.weight"), "q2_k");
    EXPECT_EQ(type("tq2_0", "token_embd.weight"), "q4_k");
    EXPECT_EQ(type("q2_0", "token_embd.weight"), "q4_k");
    EXPECT_EQ(type("q1_0", "token_embd.weight"), "q1_0");
    EXPECT_EQ(type("tq1_0", "output.weight"), "q6_k");
    EXPECT_EQ(type("tq1_0", "blk.3.attn_v.weight"), "tq1_0");
    EXPECT_EQ(type("nvfp4", "blk.3.attn_v.weight"), "nvfp4");
}

TEST(Types, AnImportanceMatrixChangesMixes)
{
    EXPECT_EQ(ungrouped("iq3_xxs", "blk.9.attn_v.weight", false), "iq3_s");
    EXPECT_EQ(ungrouped("iq3_xxs", "blk.9.attn_v.weight", true), "iq3_xxs");
    EXPECT_EQ(ungrouped("iq3_xxs", "blk.3.ffn_down.weight", false), "q4_k");
    EXPECT_EQ(ungrouped("iq3_xxs", "blk.4.ffn_down.weight", false), "q3_k");
    EXPECT_EQ(ungrouped("iq3_xxs", "blk.3.ffn_down.weight", true), "iq3_xxs");
    EXPECT_EQ(ungrouped("iq4_xs", "blk.3.ffn_down.weight", false), "q5_k");
    EXPECT_EQ(ungrouped("iq4_xs", "blk.3.ffn_down.weight", true), "iq4_xs");
    EXPECT_EQ(ungrouped("q4_0", "blk.3.ffn_down.weight", false), "q4_0");
    EXPECT_EQ(ungrouped("q4_0", "blk.3.ffn_down.weight", true), "q4_1");
    EXPECT_EQ(ungrouped("q5_0", "blk.3.ffn_down.weight", true), "q5_1");
}

TEST(Types, FewBitsNeedAnImportanceMatrix)
{
    for (const weir_dtype type :
         { WEIR_IQ1_S, WEIR_IQ1_M, WEIR_IQ2_XXS, WEIR_IQ2_XS, WEIR_IQ2_S, WEIR_IQ3_XXS }) {
        EXPECT_TRUE(weir_needs_importance(type, "blk.0.attn_q.weight"));
        EXPECT_FALSE(weir_needs_importance(type, "token_embd.weight"));
        EXPECT_FALSE(weir_needs_importance(type, "output.weight"));
    }
    for (const weir_dtype type : { WEIR_IQ3_S, WEIR_Q2_K, WEIR_TQ1_0, WEIR_NVFP4, WEIR_F16 })
        EXPECT_FALSE(weir_needs_importance(type, "blk.0.attn_q.weight"));
}

TEST(Types, OutputsHaveMoreBits)
{
    EXPECT_EQ(type("q4_0", "output.weight"), "q6_k");
    EXPECT_EQ(type("q4_k_m", "output.weight"), "q6_k");
    EXPECT_EQ(type("q8_0", "output.weight"), "q8_0");
    EXPECT_EQ(type("q4_0", "token_embd.weight"), "q4_0");
    EXPECT_EQ(type("q4_0", "token_embd.weight", 4096, 0, false, true), "q6_k") << "it is tied";
    EXPECT_EQ(type("q4_k_m", "output.weight", 96), "q8_0");
}

TEST(Types, PureIsOneType)
{
    EXPECT_EQ(type("q4_k_m", "output.weight", 4096, 0, true), "q4_k");
    EXPECT_EQ(type("q4_k_m", "blk.0.attn_v.weight", 4096, 0, true), "q4_k");
    EXPECT_EQ(type("mxfp4", "blk.0.attn_v.weight", 4096, 0, true), "mxfp4");
}

TEST(Types, Experts)
{
    EXPECT_EQ(type("mxfp4", "blk.0.ffn_up_exps.weight"), "mxfp4");
    EXPECT_EQ(type("mxfp4", "blk.0.attn_v.weight"), "q8_0");
    EXPECT_EQ(type("q4_k_m", "blk.5.attn_v.weight", 4096, 8), "q8_0");
    EXPECT_EQ(type("q4_k_m", "blk.5.attn_k.weight", 4096, 8), "q8_0");
    EXPECT_EQ(type("q4_k_m", "blk.5.attn_output.weight", 4096, 8), "q5_k");
    EXPECT_EQ(type("q4_k_m", "blk.5.attn_k.weight", 4096, 128), "q4_k");
}

TEST(Types, RowsThatAreNotWholeBlocks)
{
    EXPECT_EQ(type("q4_k_m", "blk.5.attn_q.weight", 96), "q5_0");
    EXPECT_EQ(type("q5_k_s", "blk.5.attn_q.weight", 96), "q5_1");
    EXPECT_EQ(type("q6_k", "blk.5.attn_q.weight", 96), "q8_0");
    EXPECT_EQ(type("q2_k_s", "blk.5.attn_q.weight", 96), "q4_0");
    EXPECT_EQ(type("iq4_xs", "blk.5.attn_q.weight", 96), "iq4_nl");
    EXPECT_EQ(type("iq3_s", "blk.5.attn_q.weight", 96), "iq4_nl");
    EXPECT_EQ(type("iq1_s", "blk.5.attn_q.weight", 96), "iq4_nl");
    EXPECT_EQ(type("tq2_0", "blk.5.attn_q.weight", 96), "q4_0");
    EXPECT_EQ(type("nvfp4", "blk.5.attn_q.weight", 96), "iq4_nl");
    EXPECT_EQ(type("nvfp4", "blk.5.attn_q.weight", 192), "nvfp4");
    EXPECT_EQ(type("q1_0", "blk.5.attn_q.weight", 192), "q4_0");
    EXPECT_EQ(type("q2_0", "blk.5.attn_q.weight", 192), "q2_0");
    EXPECT_EQ(type("q4_k_m", "blk.5.attn_q.weight", 48), "f16") << "no blocks of 32 either";
    EXPECT_EQ(type("q8_0", "blk.5.attn_q.weight", 48), "f16");
}

} // namespace
