/* tests/golden/main.cc - bazel run //tests:golden -- --dir DIR [--filter TEXT] [--fetched DIR]: every case of the known formats found
 * below DIR. Real vocabularies and templates are not stored: realvocab/fetch.py gets them and prints the folder for --fetched. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tests/golden/chat_golden.h"
#include "tests/golden/golden.h"
#include "tests/golden/text_golden.h"

namespace {

int usage(const char *problem)
{
    fprintf(stderr, "%s\nusage: bazel run //tests:golden -- --dir DIR [--filter TEXT] [--fetched DIR]\n", problem);
    return 2;
}

/* Under `bazel run` relative paths mean the caller's folder. */
std::string resolve(const std::string &path)
{
    const char *const caller = getenv("BUILD_WORKING_DIRECTORY");
    return path[0] == '/' || caller == nullptr ? path : std::string(caller) + "/" + path;
}

/* The tokenizer and template cases of every folder that holds strings.jsonl: small vocabularies in tok/, or conversations for real ones. */
void run_texts(const std::string &folder, const char *fetched, golden::Counts *counts)
{
    weir_golden_counts text;
    const char *const  filter = counts->filter.c_str();
    for (const std::string &path : golden::find_files(folder, "strings.jsonl")) {
        const std::filesystem::path place = std::filesystem::path(path).parent_path();
        if (std::filesystem::exists(place / "tok")) {
            weir_golden_text(place.c_str(), filter, &text);
            weir_golden_chat(place.c_str(), fetched, filter, &text);
        } else if (std::filesystem::exists(place / "conversations.json")) {
            weir_golden_realvocab(place.c_str(), fetched, filter, &text);
            weir_golden_realvocab_chat(place.c_str(), fetched, filter, &text);
        }
    }
    counts->passed += static_cast<int>(text.passed);
    counts->failed += static_cast<int>(text.failed);
    counts->skipped += static_cast<int>(text.skipped);
}

} // namespace

int main(int argc, char **argv)
{
    golden::Counts counts;
    std::string    folder, fetched;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--dir") == 0 && i + 1 < argc)
            folder = resolve(argv[++i]);
        else if (strcmp(argv[i], "--fetched") == 0 && i + 1 < argc)
            fetched = resolve(argv[++i]);
        else if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc)
            counts.filter = argv[++i];
        else
            return usage((std::string("unknown or incomplete argument ") + argv[i]).c_str());
    }
    if (folder.empty()) return usage("--dir is missing");
    if (!std::filesystem::is_directory(folder)) return usage((folder + ": not a folder").c_str());
    setvbuf(stdout, nullptr, _IOLBF, 0);
    golden::run_models(folder, &counts);
    golden::run_quant_blocks(folder, &counts);
    golden::run_samplers(folder, &counts);
    run_texts(folder, fetched.empty() ? nullptr : fetched.c_str(), &counts);
    if (counts.passed + counts.failed + counts.skipped == 0) return usage((folder + ": no cases of a known format").c_str());
    printf("%d passed, %d failed, %d skipped\n", counts.passed, counts.failed, counts.skipped);
    return counts.failed == 0 ? 0 : 1;
}
