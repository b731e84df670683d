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
    EXPECT_EQ(type("q4_k_m", "blk.5.attn_q.weight", 48), "f16") << "no blocks of 32 either";
    EXPECT_EQ(type("q8_0", "blk.5.attn_q.weight", 48), "f16");
}

} // namespace
