#include "tests/unit/model/idle_model.h"

#include <filesystem>
#include <fstream>
#include <vector>

namespace idle {
namespace {

constexpr int32_t kWidth = 32;

std::string architecture(const Model &m)
{
    return "[arch]\nname = \"" + m.name + "\"\nmatch = { hf = [\"" + m.name + R"("] }
prefixes = ["model."]
[shape]
d_model    = { hf = "hidden_size" }
n_layers   = { hf = "num_hidden_layers" }
n_kv_heads = { hf = "num_key_value_heads" }
context    = { hf = "max_position_embeddings" }
norm_eps   = { hf = "rms_norm_eps", default = 1e-6 }
[layers]
pattern = [)" +
           m.pattern + "]\n" + m.blocks + "[ffn]\nkind = \"" + m.ffn + R"("
[tensor]
"embed"            = { hf = "embed_tokens.weight" }
"norm"             = { hf = "norm.weight" }
"output"           = { hf = "lm_head.weight", or = "embed" }
"layer.mixer_norm" = { hf = "layers.{i}.norm.weight" }
"layer.ffn_norm"   = { hf = "layers.{i}.ffn_norm.weight" }
)";
}

std::string configuration(const Model &m)
{
    return R"({"architectures":["Idle"],"model_type":")" + m.name + R"(","vocab_size":)" +
           std::to_string(m.vocab) + R"(,"hidden_size":)" + std::to_string(kWidth) +
           R"(,"num_hidden_layers":)" + std::to_string(m.layers) + R"(,"num_key_value_heads":)" +
           std::to_string(m.kv_heads) + R"(,"max_position_embeddings":)" +
           std::to_string(m.context) + R"(,"tie_word_embeddings":true})";
}

std::string tensors(const Model &m)
{
    std::string header = "{", data;
    const auto add = [&](const std::string &name, const std::string &shape, int32_t n) {
        const std::vector<float> ones(static_cast<size_t>(n), 1.0f);
        const size_t begin = data.size();
        data.append(reinterpret_cast<const char *>(ones.data()), ones.size() * sizeof(float));
        header += (begin > 0 ? ",\"" : "\"") + name + R"(":{"dtype":"F32","shape":)" + shape +
                  R"(,"data_offsets":[)" + std::to_string(begin) + "," +
                  std::to_string(data.size()) + "]}";
    };
    const std::string width = std::to_string(kWidth), row = "[" + width + "]";
    add("model.embed_tokens.weight", "[" + std::to_string(m.vocab) + "," + width + "]",
        m.vocab * kWidth);
    add("model.norm.weight", row, kWidth);
    for (int32_t i = 0; i < m.layers; i++)
        for (const char *const name : { "norm", "ffn_norm" })
            add("model.layers." + std::to_string(i) + "." + name + ".weight", row, kWidth);
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char *>(&length), sizeof length) + header + data;
}

void write_file(const std::string &path, const std::string &bytes)
{
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

} // namespace

void write(const std::string &folder, const Model &model)
{
    std::filesystem::create_directories(folder + "/model");
    write_file(folder + "/" + model.name + ".toml", architecture(model));
    write_file(folder + "/model/config.json", configuration(model));
    write_file(folder + "/model/model.safetensors", tensors(model));
}

} // namespace idle
