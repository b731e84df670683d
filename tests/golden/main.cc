/* tests/golden/main.cc - every case of the known formats below a folder: bazel run //tests:golden
 * (tests/golden/README.md). --device: models run there, as with kernels.device. --fetched: real
 * vocabularies and templates, which realvocab/fetch.py gets. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/golden/chat_golden.h"
#include "tests/golden/golden.h"
#include "tests/golden/text_golden.h"

namespace {

int usage(const char *problem)
{
    fprintf(
        stderr,
        "%s\nusage: bazel run //tests:golden -- --dir DIR [--filter TEXT] [--fetched DIR] "
        "[--device NAME]\n",
        problem
    );
    return 2;
}

/* Under `bazel run` relative paths mean the caller's folder. */
std::string resolve(const std::string &path)
{
    const char *const caller = getenv("BUILD_WORKING_DIRECTORY");
    return path[0] == '/' || caller == nullptr ? path : std::string(caller) + "/" + path;
}

bool ends_with(const std::string &text, const std::string &end)
{
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/* Files that the text parts read, or that only say how the others were made. */
bool is_text_file(const std::filesystem::path &place, const std::filesystem::path &file)
{
    const std::string name = file.filename().string();
    if (file.parent_path() == place / "templates") return ends_with(name, ".jinja");
    if (file.parent_path() == place / "tok") {
        for (const char *kind :
             { ".ids.jsonl", ".pre.jsonl", ".stream.jsonl", ".noparse.jsonl", ".tokenizer.json" })
            if (ends_with(name, kind))
                return std::filesystem::exists(
                    file.parent_path() /
                    (name.substr(0, name.size() - std::string(kind).size()) + ".tokenizer.json")
                );
        return false;
    }
    if (file.parent_path() != place) return false;
    for (const char *known :
         { "strings.jsonl", "chat_messages.jsonl", "chat_tools.json", "chat_rendered.jsonl",
           "qwen_real_ids.jsonl", "conversations.json", "rendered.jsonl", "manifest.json",
           "material.json", "peer_differs.jsonl" })
        if (name == known) return true;
    return ends_with(name, ".ids.jsonl") && std::filesystem::exists(place / "conversations.json");
}

/* The tokenizer and template cases of every folder that holds strings.jsonl: small vocabularies in
 * tok/, or conversations for real ones. */
void run_texts(const std::string &folder, const char *fetched, golden::Counts *counts)
{
    weir_golden_counts text;
    const char *const filter = counts->filter.c_str();
    const std::vector<std::string> files = golden::all_files(folder);
    for (const std::string &path : golden::find_files(folder, "strings.jsonl")) {
        const std::filesystem::path place = std::filesystem::path(path).parent_path();
        if (std::filesystem::exists(place / "tok")) {
            weir_golden_text(place.c_str(), filter, &text);
            if (std::filesystem::exists(place / "chat_messages.jsonl") ||
                std::filesystem::exists(place / "chat_rendered.jsonl"))
                weir_golden_chat(place.c_str(), fetched, filter, &text);
        } else if (std::filesystem::exists(place / "conversations.json")) {
            weir_golden_realvocab(place.c_str(), fetched, filter, &text);
            weir_golden_realvocab_chat(place.c_str(), fetched, filter, &text);
        } else {
            continue;
        }
        for (const std::string &file : files)
            if (is_text_file(place, file)) counts->known.insert(file);
    }
    for (const std::string &path : files) {
        const std::filesystem::path place = path;
        if (place.parent_path().filename() == "tokenizers" && place.extension() == ".json" &&
            weir_golden_pieces(path.c_str(), filter, &text))
            counts->known.insert(path);
    }
    counts->passed += static_cast<int>(text.passed);
    counts->failed += static_cast<int>(text.failed);
    counts->skipped += static_cast<int>(text.skipped);
}

/* Files of a kind that holds reference values and that no part has answered for. */
void skip_unknown(const std::string &folder, golden::Counts *counts)
{
    for (const std::string &path : golden::all_files(folder)) {
        const std::string name =
            "files/" + std::filesystem::path(path).lexically_relative(folder).string();
        bool holds_values = false;
        for (const char *end : { ".json", ".jsonl", ".safetensors", ".gguf", ".jinja" })
            holds_values = holds_values || ends_with(path, end);
        if (holds_values && counts->known.count(path) == 0 && counts->wants(name))
            counts->skip(name, "belongs to no case of a known format");
    }
}

} // namespace

int main(int argc, char **argv)
{
    golden::Counts counts;
    std::string folder, fetched;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--dir") == 0 && i + 1 < argc)
            folder = resolve(argv[++i]);
        else if (strcmp(argv[i], "--fetched") == 0 && i + 1 < argc)
            fetched = resolve(argv[++i]);
        else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc)
            counts.device = argv[++i];
        else if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc)
            counts.filter = argv[++i];
        else
            return usage((std::string("unknown or incomplete argument ") + argv[i]).c_str());
    }
    if (folder.empty()) return usage("--dir is missing");
    if (!std::filesystem::is_directory(folder)) return usage((folder + ": not a folder").c_str());
    setvbuf(stdout, nullptr, _IOLBF, 0);
    golden::run_models(folder, &counts);
    golden::run_modules(folder, &counts);
    golden::run_quant_blocks(folder, &counts);
    golden::run_samplers(folder, &counts);
    golden::run_kv(folder, &counts);
    run_texts(folder, fetched.empty() ? nullptr : fetched.c_str(), &counts);
    if (counts.passed + counts.failed + counts.skipped == 0)
        return usage((folder + ": no cases of a known format").c_str());
    skip_unknown(folder, &counts);
    printf("%d passed, %d failed, %d skipped\n", counts.passed, counts.failed, counts.skipped);
    return counts.failed == 0 ? 0 : 1;
}
