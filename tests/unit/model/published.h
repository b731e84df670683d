/* tests/unit/model/published.h - tiny checkpoints with the names of published ones. */
#pragma once
#include <regex>

#include "tests/unit/model/arch_files.h"

namespace published {

using arch_files::change_config;
using arch_files::copy_checkpoint;
using arch_files::last_logits;
using support::Array;
using support::Arrays;
using support::Engine;
using support::Folder;
using support::golden;
using support::noise;
using support::read_file;
using support::with;
using support::write_file;

/* Sizes of the tiny models. */
enum { D = 32, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 8, FFN = 24, VOCAB = 64, LAYERS = 2 };

inline const char *const sizes =
    R"("vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
       "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24,
       "max_position_embeddings": 512)";

/* Embedding, last norm and layers of attention and SwiGLU, with Llama's names. */
inline Arrays llama_tensors(float scale = 0.5f)
{
    int seed = 1;
    Arrays out;
    const auto add = [&](const std::string &name, std::vector<int64_t> shape) {
        out[name] = noise(std::move(shape), scale, seed++);
    };
    add("model.embed_tokens.weight", { VOCAB, D });
    add("model.norm.weight", { D });
    for (int i = 0; i < LAYERS; i++) {
        const std::string layer = "model.layers." + std::to_string(i) + ".";
        add(layer + "input_layernorm.weight", { D });
        add(layer + "post_attention_layernorm.weight", { D });
        add(layer + "self_attn.q_proj.weight", { HEADS * HEAD_DIM, D });
        add(layer + "self_attn.k_proj.weight", { KV_HEADS * HEAD_DIM, D });
        add(layer + "self_attn.v_proj.weight", { KV_HEADS * HEAD_DIM, D });
        add(layer + "self_attn.o_proj.weight", { D, HEADS * HEAD_DIM });
        add(layer + "mlp.gate_proj.weight", { FFN, D });
        add(layer + "mlp.up_proj.weight", { FFN, D });
        add(layer + "mlp.down_proj.weight", { D, FFN });
    }
    return out;
}

/* One tensor in place of two, with the rows of both. */
inline void fuse(Arrays *arrays, const std::string &a, const std::string &b, const std::string &to)
{
    Array whole = arrays->at(a);
    const Array &second = arrays->at(b);
    whole.shape[0] += second.shape[0];
    whole.values.insert(whole.values.end(), second.values.begin(), second.values.end());
    arrays->erase(a);
    arrays->erase(b);
    (*arrays)[to] = whole;
}

inline void rename(Arrays *arrays, const std::string &from, const std::string &to)
{
    auto node = arrays->extract(from);
    ASSERT_FALSE(node.empty()) << from;
    node.key() = to;
    arrays->insert(std::move(node));
}

inline void write_checkpoint(const Folder &folder, const std::string &config, const Arrays &arrays)
{
    std::filesystem::create_directories(folder.path());
    write_file(folder / "config.json", "{" + config + "}");
    support::write_safetensors(folder / "model.safetensors", arrays);
}

/* Replaces in the header of model.safetensors, and adds a tensor of one number if it has a name. */
inline void change_names(
    const Folder &folder, const std::string &pattern, const std::string &to,
    const std::string &more = ""
)
{
    const std::string bytes = read_file(folder / "model.safetensors");
    uint64_t length;
    memcpy(&length, bytes.data(), sizeof length);
    std::string header = std::regex_replace(bytes.substr(8, length), std::regex(pattern), to),
                data = bytes.substr(8 + length);
    if (!more.empty()) {
        header = header.substr(0, header.rfind('}')) + ",\"" + more +
                 R"(":{"dtype":"F32","shape":[1],"data_offsets":[)" + std::to_string(data.size()) +
                 "," + std::to_string(data.size() + 4) + "]}}";
        data += std::string(4, '\0');
    }
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t now = header.size();
    write_file(
        folder / "model.safetensors",
        std::string(reinterpret_cast<const char *>(&now), sizeof now) + header + data
    );
}

/* Opens a checkpoint, of which no tensor must be left over; the logits after some tokens. */
inline std::vector<float> logits_of(const std::string &path, const std::string &arch)
{
    Engine engine;
    const char *unused = "";
    EXPECT_EQ(engine.open(path), WEIR_OK) << engine.text();
    if (engine.get() == nullptr) return {};
    const weir_model *const model = weir_engine_model(engine.get());
    EXPECT_STREQ(weir_model_arch(model), arch.c_str());
    EXPECT_EQ(weir_model_unused(model, &unused, 1), 0U) << unused;
    const std::vector<float> logits = last_logits(&engine);
    for (const float x : logits) EXPECT_TRUE(std::isfinite(x));
    EXPECT_FALSE(logits.empty());
    return logits;
}

/* What planning for the checkpoint says; "": nothing is wrong. */
inline std::string why(const std::string &path)
{
    Engine engine;
    return engine.plan(path) == WEIR_OK ? "" : engine.text();
}

inline void expect_near(const std::vector<float> &a, const std::vector<float> &b, float most)
{
    ASSERT_EQ(a.size(), b.size());
    float largest = 0;
    for (size_t i = 0; i < a.size(); i++) {
        EXPECT_NEAR(a[i], b[i], most) << i;
        largest = std::max(largest, std::fabs(a[i]));
    }
    EXPECT_GT(largest, 100 * most) << "nothing is compared";
}

} // namespace published
