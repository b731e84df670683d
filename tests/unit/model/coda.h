/* Checkpoints for the mixers of CoDA-GQA-L: the golden Llama's weights under an architecture of its
 * own, and single layers whose input is given. */
#pragma once
#include <cmath>
#include <map>

#include "tests/unit/model/windowed.h"

namespace support {

/* The tensors of the mixers, as the published adapters call them. */
inline std::string coda_tensors()
{
    std::string text;
    const char *const names[][2] = { { "lambda", "lambda_proj.weight" },
                                     { "lambda_bias", "lambda_proj.bias" },
                                     { "theta", "theta" },
                                     { "head_norm", "head_norm.weight" },
                                     { "write", "write_proj.weight" },
                                     { "write_bias", "write_proj.bias" },
                                     { "rate", "summary_eta_logit" } };
    for (const auto &name : names)
        text += "\"coda." + std::string(name[0]) + "\" = { hf = \"layers.{i}.self_attn." + name[1] +
                "\", optional = true }\n";
    return text;
}

/* Llama's architecture as `name`, with these layers, blocks and tensors more. */
inline std::string coda_arch(
    const std::string &name, const std::string &pattern, const std::string &blocks
)
{
    std::string arch = read_file("configs/arch/llama.toml");
    arch = with(arch, "name     = \"llama\"", "name     = \"" + name + "\"");
    arch = with(arch, "gguf = [\"llama\"], hf = [\"llama\"]", "hf = [\"" + name + "\"]");
    arch = with(arch, "pattern = [\"attn\"]", "pattern = [" + pattern + "]");
    return with(arch, "[ffn]", blocks + "\n[ffn]") + coda_tensors();
}

/* A folder with the golden Llama as such a model, two layers. The setting that finds its
 * architecture is added. */
inline void write_coda(
    const Folder &folder, const std::string &pattern, const std::string &blocks, Settings *settings
)
{
    std::filesystem::create_directories(folder / "archs");
    write_file(folder / "archs/coda.toml", coda_arch("acme", pattern, blocks));
    write_file(folder / "model.safetensors", read_file(golden("llama3/model.safetensors")));
    write_file(
        folder / "config.json", with(
                                    read_file(golden("llama3/config.json")),
                                    "\"model_type\": \"llama\"", "\"model_type\": \"acme\""
                                )
    );
    settings->push_back("model.arch_dir=" + (folder / "archs"));
}

/* A folder with the golden Qwen3.5, whose layer of attention has memory of fixed size and plain
 * attention: an output gate, norms of q and k, and RoPE on a quarter of each head. */
inline void write_plain_coda(const Folder &folder, const std::string &options, Settings *settings)
{
    std::filesystem::create_directories(folder / "archs");
    write_file(
        folder / "archs/coda.toml",
        "[arch]\nname = \"acme\"\nbase = \"qwen35\"\n[block.attn]\nmixer = \"coda\"\nrope = "
        "\"half_split\"\nq_gate = true\n"
        "qk_norm = true\ndifferential = false\n" +
            options + "\n"
    );
    for (const char *const name : { "model.safetensors", "config.json" })
        write_file(folder / name, read_file(golden(std::string("tq/") + name)));
    settings->insert(
        settings->end(), { "model.arch_dir=" + (folder / "archs"), "model.arch=acme" }
    );
}

inline std::string coda_block(
    const std::string &options, const std::string &name = "coda",
    const std::string &rope = "half_split"
)
{
    return "[block." + name + "]\nmixer = \"coda\"\nrope = \"" + rope + "\"\n" + options + "\n";
}

} // namespace support
