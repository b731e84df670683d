/* Families that consist of known blocks and have no reference values here: checkpoints with their
 * names open, compute what the family they differ from computes, and the same from GGUF. */
#include "tests/unit/model/published_gguf.h"

namespace published {
namespace {

std::string layer_name(int i, const std::string &end)
{
    return "model.layers." + std::to_string(i) + "." + end;
}

std::string config_of(const std::string &type, const std::string &more = "")
{
    return "\"model_type\": \"" + type + "\", " + more +
           R"("hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, )" + sizes;
}

/* Rows of heads whose rotated dimensions are pairs, in the order of halves. */
Array as_halves(const Array &rows)
{
    Array out = rows;
    const int64_t n_heads = rows.shape[0] / HEAD_DIM, width = rows.shape[1];
    for (int64_t h = 0; h < n_heads; h++)
        for (int64_t i = 0; i < HEAD_DIM; i++) {
            const int64_t to = i / 2 + (i % 2) * HEAD_DIM / 2;
            std::copy_n(
                rows.values.begin() + (h * HEAD_DIM + i) * width, width,
                out.values.begin() + (h * HEAD_DIM + to) * width
            );
        }
    return out;
}

/* ---- Qwen3-VL -------------------------------------------------------------------------------- */
TEST(Families, TextOfQwen3VlIsQwen3)
{
    const Folder folder;
    const std::vector<float> want = logits_of(golden("qwen3"), "qwen3");
    for (const char *const type : { "\"qwen3_vl_text\"", "\"qwen3_vl\"" }) {
        copy_checkpoint(folder, "qwen3");
        write_file(
            folder / "config.json",
            R"({"model_type": "qwen3_vl", "vision_config": {"depth": 24}, "text_config": )" +
                with(
                    with(read_file(golden("qwen3/config.json")), "\"qwen3\"", type),
                    "\"hidden_act\"",
                    R"("rope_scaling": {"mrope_interleaved": true, "mrope_section": [6, 5, 5],
                        "rope_type": "default"}, "hidden_act")"
                ) +
                "}"
        );
        change_names(folder, "\"model\\.", "\"model.language_model.", "model.visual.merger.norm");
        EXPECT_EQ(logits_of(folder.path(), "qwen3vl"), want) << type;
    }
}

/* Experts of Qwen3-VL from GGUF, with the names that Qwen3 with experts has. */
TEST(Families, Qwen3VlWithExpertsIsQwen3WithExperts)
{
    const Folder folder;
    Arrays tensors = llama_tensors();
    for (int i = 0; i < LAYERS; i++) {
        for (const char *const part : { "gate", "up", "down" })
            tensors.erase(layer_name(i, "mlp." + std::string(part) + "_proj.weight"));
        tensors[layer_name(i, "self_attn.q_norm.weight")] = noise({ HEAD_DIM }, 1, 70 + i);
        tensors[layer_name(i, "self_attn.k_norm.weight")] = noise({ HEAD_DIM }, 1, 80 + i);
        tensors[layer_name(i, "ffn_gate_inp.weight")] = noise({ 4, D }, 0.5f, 90 + i);
        tensors[layer_name(i, "ffn_gate_exps.weight")] = noise({ 4, FFN, D }, 0.5f, 60 + i);
        tensors[layer_name(i, "ffn_up_exps.weight")] = noise({ 4, FFN, D }, 0.5f, 50 + i);
        tensors[layer_name(i, "ffn_down_exps.weight")] = noise({ 4, D, FFN }, 0.5f, 40 + i);
    }
    std::vector<float> logits[2];
    const std::string archs[] = { "qwen3moe", "qwen3vlmoe" };
    for (int k = 0; k < 2; k++) {
        Keys keys = keys_of(archs[k]);
        keys.add_integer(archs[k] + ".expert_count", 4);
        keys.add_integer(archs[k] + ".expert_used_count", 2);
        keys.add_integer(archs[k] + ".expert_feed_forward_length", FFN);
        write_gguf(folder / (archs[k] + ".gguf"), keys, gguf_names(tensors));
        logits[k] = logits_of(folder / (archs[k] + ".gguf"), archs[k]);
    }
    EXPECT_EQ(logits[0], logits[1]);
}

/* In safetensors files the experts of Qwen3-VL are in two tensors, [experts, inputs, outputs]:
 * Qwen3's own put so compute the same bits, also where experts are read from the file. */
TEST(Families, Qwen3VlHasExpertsInputsFirst)
{
    enum { EXPERTS = 4, INNER = 16 };
    const Folder folder, known(std::string("Families.Qwen3Moe"));
    const std::string experts = R"("num_experts": 4, "num_experts_per_tok": 2,
                                   "moe_intermediate_size": 16, "norm_topk_prob": true, )";
    Arrays split = llama_tensors(), stacked;
    for (int i = 0; i < LAYERS; i++) {
        for (const char *const part : { "gate", "up", "down" })
            split.erase(layer_name(i, "mlp." + std::string(part) + "_proj.weight"));
        split[layer_name(i, "self_attn.q_norm.weight")] = noise({ HEAD_DIM }, 1, 70 + i);
        split[layer_name(i, "self_attn.k_norm.weight")] = noise({ HEAD_DIM }, 1, 80 + i);
        split[layer_name(i, "mlp.gate.weight")] = noise({ EXPERTS, D }, 0.5f, 90 + i);
    }
    stacked = split;
    for (int i = 0; i < LAYERS; i++) {
        Array both = { { EXPERTS, D, 2 * INNER }, std::vector<float>(EXPERTS * D * 2 * INNER) },
              down = { { EXPERTS, INNER, D }, std::vector<float>(EXPERTS * INNER * D) };
        for (int e = 0; e < EXPERTS; e++)
            for (int part = 0; part < 3; part++) {
                const char *const names[] = { "gate", "up", "down" };
                const int n_out = part < 2 ? INNER : D, n_in = part < 2 ? D : INNER;
                const Array own = noise({ n_out, n_in }, 0.5f, 100 + 10 * i + 3 * e + part);
                split
                    [layer_name(i, "mlp.experts." + std::to_string(e) + "." + names[part]) +
                     "_proj.weight"] = own;
                Array &to = part < 2 ? both : down;
                const int width = part < 2 ? 2 * INNER : D, first = part == 1 ? INNER : 0;
                for (int out = 0; out < n_out; out++)
                    for (int in = 0; in < n_in; in++)
                        to.values[static_cast<size_t>((e * n_in + in) * width + first + out)] =
                            own.values[static_cast<size_t>(out * n_in + in)];
            }
        stacked[layer_name(i, "mlp.experts.gate_up_proj")] = both;
        stacked[layer_name(i, "mlp.experts.down_proj")] = down;
    }
    write_checkpoint(known, config_of("qwen3_moe", experts), split);
    write_checkpoint(folder, config_of("qwen3_vl_moe_text", experts), stacked);
    const std::vector<float> want = logits_of(known.path(), "qwen3moe");
    EXPECT_EQ(logits_of(folder.path(), "qwen3vlmoe"), want);
    Engine engine;
    ASSERT_EQ(engine.open(folder.path(), { "memory.experts=48KiB" }), WEIR_OK) << engine.text();
    EXPECT_EQ(last_logits(&engine), want);

    stacked[layer_name(1, "mlp.experts.down_proj")].shape = { EXPERTS, D, INNER };
    write_checkpoint(folder, config_of("qwen3_vl_moe_text", experts), stacked);
    EXPECT_SAYS(why(folder.path()), "want [4, 16, 32] with the inputs first");
}

/* ---- Seed-OSS -------------------------------------------------------------------------------- */
Arrays with_biases(Arrays tensors)
{
    for (int i = 0; i < LAYERS; i++) {
        tensors[layer_name(i, "self_attn.q_proj.bias")] = noise({ HEADS * HEAD_DIM }, 1, 70 + i);
        tensors[layer_name(i, "self_attn.k_proj.bias")] = noise({ KV_HEADS * HEAD_DIM }, 1, 80 + i);
        tensors[layer_name(i, "self_attn.v_proj.bias")] = noise({ KV_HEADS * HEAD_DIM }, 1, 90 + i);
    }
    return tensors;
}

TEST(Families, SeedOssIsQwen2)
{
    const Folder folder, known(std::string("Families.Qwen2"));
    const Arrays tensors = with_biases(llama_tensors());
    const std::string flags = R"("attention_bias": true, "attention_out_bias": false,
                                 "mlp_bias": false, )";
    write_checkpoint(known, config_of("qwen2"), tensors);
    write_checkpoint(folder, config_of("seed_oss", flags), tensors);
    const std::vector<float> want = logits_of(known.path(), "qwen2");
    EXPECT_EQ(logits_of(folder.path(), "seed_oss"), want);
    Arrays names = gguf_names(tensors);
    for (int i = 0; i < LAYERS; i++) {
        const std::string block = "blk." + std::to_string(i) + ".";
        rename(&names, block + "ffn_norm.weight", block + "post_attention_norm.weight");
    }
    write_gguf(folder / "seed.gguf", keys_of("seed_oss"), names);
    EXPECT_EQ(logits_of(folder / "seed.gguf", "seed_oss"), want);
    write_checkpoint(
        folder, config_of("seed_oss", with(flags, "out_bias\": false", "out_bias\": true")), tensors
    );
    EXPECT_SAYS(why(folder.path()), "'attention_out_bias' is true");
}

/* ---- ERNIE 4.5 ------------------------------------------------------------------------------- */
TEST(Families, Ernie45IsLlamaWithPairs)
{
    const Folder folder, known(std::string("Families.Llama"));
    const Arrays tensors = llama_tensors();
    Arrays halves = tensors;
    for (int i = 0; i < LAYERS; i++)
        for (const char *const part : { "q", "k" }) {
            const std::string name =
                layer_name(i, "self_attn." + std::string(part) + "_proj.weight");
            halves[name] = as_halves(tensors.at(name));
        }
    write_checkpoint(known, config_of("llama"), halves);
    write_checkpoint(folder, config_of("ernie4_5", "\"use_bias\": false, "), tensors);
    const std::vector<float> logits = logits_of(folder.path(), "ernie4_5");
    expect_near(logits, logits_of(known.path(), "llama"), 1e-4f);
    write_gguf(folder / "ernie.gguf", keys_of("ernie4_5"), gguf_names(tensors));
    EXPECT_EQ(logits_of(folder / "ernie.gguf", "ernie4_5"), logits);
    write_checkpoint(folder, config_of("ernie4_5", "\"use_bias\": true, "), tensors);
    EXPECT_SAYS(why(folder.path()), "'use_bias' is true");
}

/* ---- GLM-4-0414 ------------------------------------------------------------------------------ */
TEST(Families, Glm4HasNormsOnBothSides)
{
    const Folder folder;
    Arrays tensors = llama_tensors();
    for (int i = 0; i < LAYERS; i++) {
        fuse(
            &tensors, layer_name(i, "mlp.gate_proj.weight"), layer_name(i, "mlp.up_proj.weight"),
            layer_name(i, "mlp.gate_up_proj.weight")
        );
        tensors[layer_name(i, "post_self_attn_layernorm.weight")] = noise({ D }, 1, 70 + i);
        tensors[layer_name(i, "post_mlp_layernorm.weight")] = noise({ D }, 1, 80 + i);
    }
    const std::string half = "\"attention_bias\": false, \"partial_rotary_factor\": 0.5, ";
    write_checkpoint(folder, config_of("glm4", half), tensors);
    const std::vector<float> logits = logits_of(folder.path(), "glm4");
    Keys keys = keys_of("glm4");
    keys.add_integer("glm4.rope.dimension_count", HEAD_DIM / 2);
    write_gguf(folder / "glm4.gguf", keys, gguf_names(tensors));
    EXPECT_EQ(logits_of(folder / "glm4.gguf", "glm4"), logits);
    keys.add_integer("glm4.rope.dimension_sections", 8);
    write_gguf(folder / "glm4v.gguf", keys, gguf_names(tensors));
    EXPECT_SAYS(why(folder / "glm4v.gguf"), "this is a model of images");
    Arrays other = tensors;
    other[layer_name(1, "post_mlp_layernorm.weight")] = noise({ D }, 1, 7);
    write_checkpoint(folder, config_of("glm4", half), other);
    EXPECT_NE(logits_of(folder.path(), "glm4"), logits);
}

} // namespace
} // namespace published
