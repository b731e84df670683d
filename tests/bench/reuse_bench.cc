// What reuse leaves to compute, in tokens, for each shape of a conversation (shapes.h), model and
// policy. Usage: tests/bench/README.md.
#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/bench/shapes.h"

namespace {

double percent(int64_t part, int64_t all)
{
    return all > 0 ? 100.0 * (double)part / (double)all : 0;
}

bool check(const std::string &why)
{
    if (!why.empty()) (void)fprintf(stderr, "reuse_bench: %s\n", why.c_str());
    return why.empty();
}

bool print_shapes(const shapes::Options &options)
{
    (void
    )printf("| shape | requests | prompt tokens | changed | computed | of the prompt | beyond |\n");
    (void)printf("|---|---|---|---|---|---|---|\n");
    for (const std::string &name : shapes::names()) {
        shapes::Row row;
        if (!check(shapes::run(options, name, &row))) return false;
        (void)printf(
            "| %s | %lld | %lld | %lld | %lld | %.1f %% | %lld |\n", name.c_str(),
            (long long)row.requests, (long long)row.prompt, (long long)row.changed,
            (long long)row.computed, percent(row.computed, row.prompt), (long long)row.beyond
        );
        (void)fflush(stdout);
    }
    return true;
}

bool print_policy(shapes::Options options, const std::string &policy)
{
    (void)printf("\n%s, policy %s\n\n", options.model.c_str(), policy.c_str());
    options.settings.push_back("kv.policy.name=" + policy);
    options.settings.emplace_back("kv.policy.budget=256");
    options.chunk = 128; // batch.mixed_chunk
    return print_shapes(options);
}

bool print_idle(shapes::Options options, int n, const std::vector<std::string> &more)
{
    shapes::Row row;
    for (const std::string &one : more) options.settings.push_back(one);
    if (!check(shapes::run_idle(options, n, &row))) return false;
    std::string settings;
    for (const std::string &one : more) settings += one + " ";
    (void)printf(
        "%d conversations, states in memory %lld, %s: reused %.1f %% of %lld tokens of earlier "
        "turns\n",
        n, (long long)row.n_states, settings.empty() ? "defaults" : settings.c_str(),
        percent(row.prompt - row.computed, row.repeated), (long long)row.repeated
    );
    (void)fflush(stdout);
    return true;
}

} // namespace

int main(int argc, char **argv)
{
    shapes::Options options;
    std::vector<std::string> models, policies;
    int n = 256;
    const option names[] = { { "model", 1, nullptr, 'm' },         { "set", 1, nullptr, 's' },
                             { "policy", 1, nullptr, 'p' },        { "turns", 1, nullptr, 't' },
                             { "conversations", 1, nullptr, 'n' }, {} };
    options.settings = { "model.context=4096", "batch.max_sequences=4" };
    for (int c; (c = getopt_long(argc, argv, "", names, nullptr)) != -1;) {
        switch (c) {
        case 'm': models.emplace_back(optarg); break;
        case 's': options.settings.emplace_back(optarg); break;
        case 'p': policies.emplace_back(optarg); break;
        case 't': options.turns = atoi(optarg); break;
        case 'n': n = atoi(optarg); break;
        default: return 2;
        }
    }
    if (options.turns < 2 || n < 1) {
        (void)fprintf(stderr, "reuse_bench: at least two turns and one conversation\n");
        return 2;
    }
    if (policies.empty()) policies = { "h2o", "snapkv" };
    if (models.empty()) models = { "models/weir-demo", "tests/golden/models/qwen3" };
    for (const std::string &model : models) {
        options.model = model;
        (void)printf("\n%s\n\n", model.c_str());
        if (!print_shapes(options)) return 1;
        (void)printf("\n");
        if (!print_idle(options, n, { "memory.disk=256MiB" })) return 1;
        if (!print_idle(options, n, {})) return 1;
        for (const std::string &policy : policies)
            if (!print_policy(options, policy)) return 1;
    }
    return 0;
}
