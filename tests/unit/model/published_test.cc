/* Checkpoints as they are published: settings and names of tensors that hubs have and the goldens
 * do not. */
#include "tests/unit/model/published_gguf.h"

namespace published {
namespace {

/* ---- Gemma 2 --------------------------------------------------------------------------------- */
const std::string gemma2_config =
    std::string(R"("model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh",
       "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 8, "sliding_window": 4,
       "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "rms_norm_eps": 1e-6,
       "attention_bias": false, "rope_theta": 10000.0, )") +
    sizes;

Arrays gemma2_tensors()
{
    Arrays out = llama_tensors(0.3f);
    for (int i = 0; i < LAYERS; i++) {
        const std::string layer = "model.layers." + std::to_string(i) + ".";
        out[layer + "pre_feedforward_layernorm.weight"] = noise({ D }, 0.3f, 90 + i);
        out[layer + "post_feedforward_layernorm.weight"] = noise({ D }, 0.3f, 95 + i);
    }
    return out;
}

TEST(Published, Gemma2HasTwoSettingsOfItsActivation)
{
    const Folder folder;
    write_checkpoint(folder, gemma2_config, gemma2_tensors());
    const std::vector<float> logits = logits_of(folder.path(), "gemma2");
    const std::string both = "\"hidden_act\": \"gelu_pytorch_tanh\"";
    write_checkpoint(
        folder, with(gemma2_config, both, "\"hidden_act\": \"gelu\""), gemma2_tensors()
    );
    EXPECT_EQ(logits_of(folder.path(), "gemma2"), logits);
    write_checkpoint(
        folder, with(gemma2_config, both, "\"hidden_act\": \"relu\""), gemma2_tensors()
    );
    EXPECT_SAYS(why(folder.path()), "'hidden_act' is \"relu\"");
    write_checkpoint(
        folder,
        with(
            gemma2_config, "\"hidden_activation\": \"gelu_pytorch_tanh\"",
            "\"hidden_activation\": \"silu\""
        ),
        gemma2_tensors()
    );
    EXPECT_SAYS(why(folder.path()), "'hidden_activation' is \"silu\"");
}

/* ---- LFM2 ------------------------------------------------------------------------------------ */
TEST(Published, Lfm2ListsItsLayersWithAttention)
{
    const Folder folder;
    copy_checkpoint(folder, "../families/lfm2");
    const std::vector<float> want = logits_of(folder.path(), "lfm2");
    const std::string config = read_file(folder / "config.json");
    const auto change = [&](const std::string &to) {
        write_file(
            folder / "config.json",
            std::regex_replace(config, std::regex("\"layer_types\": \\[[^\\]]*\\]"), to)
        );
    };
    change("\"full_attn_idxs\": [2, 4]");
    EXPECT_EQ(logits_of(folder.path(), "lfm2"), want);
    change("\"full_attn_idxs\": [2, 5]");
    EXPECT_SAYS(why(folder.path()), "full_attn_idxs: entry 1 is no number of a layer, 0 to 4");
    change("\"full_attn_idxs\": [2, -1]");
    EXPECT_SAYS(why(folder.path()), "full_attn_idxs: entry 1 is no number of a layer, 0 to 4");
    change("\"full_attn_idxs\": [2, 2]");
    EXPECT_SAYS(why(folder.path()), "layer 2 has been listed before");
    change("\"full_attn_idxs\": 2");
    EXPECT_SAYS(why(folder.path()), "full_attn_idxs is not a list");
}

/* ---- Granite 4 ------------------------------------------------------------------------------- */
const std::string granite_settings =
    std::string(R"("embedding_multiplier": 6.0, "residual_multiplier": 0.4, "rms_norm_eps": 1e-5,
       "attention_multiplier": 0.1, "logits_scaling": 2.0, "hidden_act": "silu",
       "rope_theta": 10000.0, "attention_bias": false, )") +
    sizes;
const std::string granite4_config =
    R"("model_type": "granitemoehybrid", "position_embedding_type": "rope",
       "num_local_experts": 0, "shared_intermediate_size": 24,
       "layer_types": ["attention", "attention"], )" +
    granite_settings;

TEST(Published, DenseGranite4IsGraniteWithOtherNames)
{
    const Folder folder, known(std::string("Published.Granite"));
    Arrays tensors = llama_tensors();
    write_checkpoint(known, "\"model_type\": \"granite\", " + granite_settings, tensors);
    for (int i = 0; i < LAYERS; i++) {
        const std::string layer = "model.layers." + std::to_string(i) + ".";
        fuse(
            &tensors, layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight",
            layer + "shared_mlp.input_linear.weight"
        );
        rename(&tensors, layer + "mlp.down_proj.weight", layer + "shared_mlp.output_linear.weight");
    }
    const std::vector<float> want = logits_of(known.path(), "granite");
    write_checkpoint(folder, granite4_config, tensors);
    EXPECT_EQ(logits_of(folder.path(), "granite4"), want);
    const std::string types = R"("layer_types": ["attention", "attention"])";
    write_checkpoint(
        folder,
        with(granite4_config, types, R"("layer_types": ["full_attention", "full_attention"])"),
        tensors
    );
    EXPECT_EQ(logits_of(folder.path(), "granite4"), want);
    write_checkpoint(
        folder, with(granite4_config, types, R"("layer_types": ["attention", "mamba"])"), tensors
    );
    EXPECT_SAYS(why(folder.path()), "layer_types gives layer 1 the type 'mamba'");
    write_checkpoint(
        folder, with(granite4_config, "\"num_local_experts\": 0", "\"num_local_experts\": 4"),
        tensors
    );
    EXPECT_SAYS(why(folder.path()), "'num_local_experts' is 4");
}

TEST(Published, GraniteHybridsAlsoNameTheirLayersByAttention)
{
    const Folder folder;
    copy_checkpoint(folder, "../families/granite-hybrid");
    const std::vector<float> want = logits_of(folder.path(), "granitehybridmoe");
    std::string config = read_file(folder / "config.json");
    config = std::regex_replace(config, std::regex("\"mamba\""), "\"linear_attention\"");
    config = std::regex_replace(config, std::regex("\"attention\""), "\"full_attention\"");
    write_file(folder / "config.json", config);
    EXPECT_EQ(logits_of(folder.path(), "granitehybridmoe"), want);
}

/* ---- Mistral Small 3 ------------------------------------------------------------------------- */
void write_mistral3(const Folder &folder, const std::string &model_type)
{
    copy_checkpoint(folder, "mistral");
    write_file(
        folder / "config.json",
        R"({"model_type": "mistral3", "vision_config": {"hidden_size": 1024}, "text_config": )" +
            with(read_file(golden("mistral/config.json")), "\"mistral\"", model_type) + "}"
    );
    change_names(folder, "\"(model|lm_head)\\.", "\"language_model.$1.", "vision_tower.patch");
}

TEST(Published, MistralSmall3IsBesideAVisionTower)
{
    const Folder folder;
    const std::vector<float> want = logits_of(golden("mistral"), "mistral");
    write_mistral3(folder, "\"mistral\"");
    EXPECT_EQ(logits_of(folder.path(), "mistral"), want);
    change_names(folder, "language_model\\.model\\.", "model.language_model.", "");
    change_names(folder, "language_model\\.lm_head", "lm_head", "model.multi_modal_projector.norm");
    EXPECT_EQ(logits_of(folder.path(), "mistral"), want);
    write_mistral3(folder, "\"ministral3\"");
    EXPECT_EQ(logits_of(folder.path(), "mistral3"), want);
}

std::string plan_of(const std::string &path)
{
    Engine engine;
    weir_buffer text = { nullptr, 0, 0 };
    EXPECT_EQ(engine.plan(path), WEIR_OK) << engine.text();
    EXPECT_EQ(weir_plan_print(&engine.planned(), &text), WEIR_OK);
    const std::string out(text.data, text.size);
    weir_buffer_free(&text);
    return out;
}

TEST(Published, AVisionTowerThatIsSkippedIsSaid)
{
    const Folder folder;
    const std::string line = "only text is computed; the vision tower is not read";
    write_mistral3(folder, "\"mistral\"");
    EXPECT_SAYS(plan_of(folder.path()), line);
    ::testing::internal::CaptureStderr();
    (void)logits_of(folder.path(), "mistral");
    EXPECT_SAYS(::testing::internal::GetCapturedStderr(), line);
    EXPECT_EQ(plan_of(golden("mistral")).find(line), std::string::npos);
}

TEST(Published, TensorsThatAreNotUsedAreSaid)
{
    const Folder folder;
    copy_checkpoint(folder, "mistral");
    EXPECT_EQ(plan_of(folder.path()).find("not used"), std::string::npos);
    change_names(folder, "nothing", "", "model.layers.0.extra.weight");
    EXPECT_SAYS(
        plan_of(folder.path()), "that are not used: 1, the first is model.layers.0.extra.weight"
    );
}

TEST(Published, MistralSmall3HasANameOfItsOwnInGguf)
{
    const Folder folder;
    const Arrays tensors = gguf_names(llama_tensors());
    write_gguf(folder / "llama.gguf", keys_of("llama"), tensors);
    Keys keys = keys_of("mistral3");
    write_gguf(folder / "mistral3.gguf", keys, tensors);
    EXPECT_EQ(
        logits_of(folder / "mistral3.gguf", "mistral3"), logits_of(folder / "llama.gguf", "llama")
    );
    keys.add_real("mistral3.attention.temperature_scale", 0.1f);
    write_gguf(folder / "ministral3.gguf", keys, tensors);
    EXPECT_SAYS(
        why(folder / "ministral3.gguf"),
        "attention_temperature_scale needs an attention_temperature_length"
    );
    keys.add_integer("mistral3.rope.scaling.original_context_length", 8);
    write_gguf(folder / "ministral3.gguf", keys, tensors);
    EXPECT_NE(
        logits_of(folder / "ministral3.gguf", "mistral3"),
        logits_of(folder / "mistral3.gguf", "mistral3")
    );
}

/* ---- Settings of checkpoints ----------------------------------------------------------------- */
std::string mistral_config(const std::string &more)
{
    return "\"model_type\": \"mistral\", \"rms_norm_eps\": 1e-5, " + more + sizes;
}

TEST(Published, AWindowOfTheWholeContextIsNone)
{
    const Folder folder;
    Engine engine;
    const auto window_layers = [&](int window, const support::Settings &settings) {
        const std::string text = "\"sliding_window\": " + std::to_string(window) + ", ";
        write_checkpoint(folder, mistral_config(text), llama_tensors());
        EXPECT_EQ(engine.plan(folder.path(), settings), WEIR_OK) << engine.text();
        return engine.planned().facts.n_window_layers;
    };
    EXPECT_EQ(window_layers(511, {}), LAYERS);
    EXPECT_EQ(window_layers(512, {}), 0);
    EXPECT_EQ(window_layers(4096, {}), 0);
    EXPECT_EQ(window_layers(512, { "model.context=1024" }), LAYERS);
}

TEST(Published, AHeadBesideATiedEmbeddingIsNotUsed)
{
    const Folder folder;
    Arrays tensors = llama_tensors();
    write_checkpoint(folder, mistral_config(""), tensors);
    const std::vector<float> want = logits_of(folder.path(), "mistral");
    tensors["lm_head.weight"] = noise({ VOCAB, D }, 0.5f, 7);
    write_checkpoint(folder, mistral_config(R"("tie_word_embeddings": true, )"), tensors);
    EXPECT_EQ(logits_of(folder.path(), "mistral"), want);
    write_checkpoint(folder, mistral_config(R"("tie_word_embeddings": false, )"), tensors);
    EXPECT_NE(logits_of(folder.path(), "mistral"), want);
}

TEST(Published, WhatOtherProgramsQuantisedIsRefused)
{
    const Folder folder;
    const auto said = [&](const std::string &method) {
        const std::string text = R"("quantization_config": {"quant_method": ")" + method + "\"}, ";
        write_checkpoint(folder, mistral_config(text), llama_tensors());
        return why(folder.path());
    };
    EXPECT_EQ(said("fp8"), "");
    EXPECT_SAYS(said("awq"), "'quantization_config.quant_method' is \"awq\"");
    EXPECT_SAYS(said("compressed-tensors"), "use a GGUF file");
}

/* ---- llama.cpp's --fuse-qkv ------------------------------------------------------------------ */
void fuse_qkv(Arrays *names, const std::string &end)
{
    for (int i = 0; i < LAYERS; i++) {
        const std::string block = "blk." + std::to_string(i) + ".attn_";
        fuse(names, block + "q" + end, block + "k" + end, block + "qk" + end);
        fuse(names, block + "qk" + end, block + "v" + end, block + "qkv" + end);
    }
}

TEST(Published, GgufMayHaveQueriesKeysAndValuesInOneTensor)
{
    const Folder folder;
    for (const std::string arch : { "llama", "qwen2", "qwen3" }) {
        Arrays names = gguf_names(llama_tensors());
        const bool has_biases = arch == "qwen2", has_norms = arch == "qwen3";
        for (int i = 0; i < LAYERS; i++) {
            const std::string block = "blk." + std::to_string(i) + ".attn_";
            for (const char *const part : { "q", "k", "v" })
                if (has_biases)
                    names[block + part + ".bias"] =
                        noise({ (*part == 'q' ? HEADS : KV_HEADS) * HEAD_DIM }, 1, 70 + i + *part);
            for (const char *const part : { "q", "k" })
                if (has_norms)
                    names[block + part + "_norm.weight"] = noise({ HEAD_DIM }, 1, 60 + i);
        }
        write_gguf(folder / "split.gguf", keys_of(arch), names);
        const std::vector<float> want = logits_of(folder / "split.gguf", arch);
        fuse_qkv(&names, ".weight");
        if (has_biases) fuse_qkv(&names, ".bias");
        write_gguf(folder / "fused.gguf", keys_of(arch), names);
        EXPECT_EQ(logits_of(folder / "fused.gguf", arch), want) << arch;
    }
}

} // namespace
} // namespace published
