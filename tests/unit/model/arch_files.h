/* Arch files and checkpoints with one change. */
#pragma once
#include "tests/unit/model/support.h"

namespace arch_files {

using support::Engine;
using support::Folder;
using support::golden;
using support::read_file;
using support::Settings;
using support::with;
using support::write_file;

/* A checkpoint folder that is a copy of a golden one. */
inline void copy_checkpoint(const Folder &folder, const char *model)
{
    std::filesystem::copy(
        golden(model), folder.path(),
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing
    );
    for (const auto &entry : std::filesystem::recursive_directory_iterator(folder.path()))
        std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all);
}

inline void change_config(const Folder &folder, const std::string &from, const std::string &to)
{
    write_file(folder / "config.json", with(read_file(folder / "config.json"), from, to));
}

/* Changes the JSON header of model.safetensors; as long as before, or padded to it. */
inline void change_header(const Folder &folder, const std::string &from, const std::string &to)
{
    const std::string bytes = read_file(folder / "model.safetensors");
    uint64_t length;
    memcpy(&length, bytes.data(), sizeof length);
    const std::string header = with(bytes.substr(8, length), from, to);
    const uint64_t now = header.size();
    write_file(
        folder / "model.safetensors",
        std::string(reinterpret_cast<const char *>(&now), sizeof now) + header +
            bytes.substr(8 + length)
    );
}

/* qwen3.toml under another name, with one change. */
inline void write_arch(
    const Folder &folder, const std::string &from = "", const std::string &to = ""
)
{
    std::string text = read_file("configs/arch/qwen3.toml");
    text = with(text, "name     = \"qwen3\"", "name     = \"acme\"");
    text = with(text, "hf = [\"qwen3\"]", "hf = [\"acme\"]");
    text = with(text, "gguf = [\"qwen3\"]", "gguf = [\"acme\"]");
    if (!from.empty()) text = with(text, from, to);
    std::filesystem::create_directories(folder / "archs");
    write_file(folder / "archs/acme.toml", text);
}

inline std::vector<float> last_logits(Engine *engine)
{
    support::Sequence sequence(*engine);
    const std::vector<int32_t> tokens = support::some_tokens(20, 1, engine->n_vocab());
    weir_evaluation evaluation = {};
    evaluation.tokens = tokens.data();
    evaluation.n_tokens = static_cast<int32_t>(tokens.size());
    evaluation.decode_from = INT32_MAX;
    EXPECT_EQ(
        weir_evaluate(engine->runner(), sequence.get(), &evaluation, engine->error()), WEIR_OK
    ) << engine->text();
    return evaluation.last != nullptr
               ? std::vector<float>(evaluation.last, evaluation.last + engine->n_vocab())
               : std::vector<float>();
}

} // namespace arch_files
