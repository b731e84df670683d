/* A checkpoint whose layers have a sliding window or see the whole sequence, as some published
 * models alternate them: the golden Mistral's weights under an architecture of its own. */
#pragma once
#include "tests/unit/model/support.h"

namespace support {

/* `pattern`: a word for each layer, "window" or "whole". The settings that open it are in
 * `settings`. */
inline void write_windowed(
    const Folder &folder, const std::vector<std::string> &pattern, int window, Settings *settings
)
{
    std::string list, arch = read_file("configs/arch/mistral.toml");
    for (const std::string &word : pattern) list += (list.empty() ? "\"" : ", \"") + word + "\"";
    arch = with(arch, "name     = \"mistral\"", "name     = \"windowed\"");
    arch = with(arch, "hf = [\"mistral\"]", "hf = [\"windowed\"]");
    arch = with(arch, "pattern = [\"attn\"]", "pattern = [" + list + "]");
    arch = with(
        arch, "[block.attn]",
        "[block.whole]\nmixer = \"attention\"\nrope = \"half_split\"\n\n[block.window]"
    );
    std::filesystem::create_directories(folder / "archs");
    write_file(folder / "archs/windowed.toml", arch);
    write_file(folder / "model.safetensors", read_file(golden("mistral/model.safetensors")));
    const std::string config = with(
        read_file(golden("mistral/config.json")), "\"model_type\": \"mistral\"",
        "\"model_type\": \"windowed\""
    );
    write_file(
        folder / "config.json",
        with(config, "\"sliding_window\": 4", "\"sliding_window\": " + std::to_string(window))
    );
    settings->push_back("model.arch_dir=" + (folder / "archs"));
}

} // namespace support
