// A checkpoint and an architecture of blocks that compute nothing, for tests and measurements of
// the rest of the engine.
#pragma once
#include <cstdint>
#include <string>

namespace idle {

struct Model {
    std::string name; // of the architecture
    std::string pattern, blocks; // of its [layers]; its tables [block.NAME]
    std::string ffn; // the kind of its feed-forward block
    int32_t layers, kv_heads, vocab;
    int64_t context;
};

// Writes FOLDER/NAME.toml, and FOLDER/model with config.json and model.safetensors: rows of 32
// elements, all of which are 1.
void write(const std::string &folder, const Model &model);

} // namespace idle
