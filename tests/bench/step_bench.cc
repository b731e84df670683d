// What a step costs besides its kernels, in microseconds: decoding sequences only, and with a
// prompt in pieces next to them, with and without a lower tier. Usage: tests/bench/README.md.
#include <getopt.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/steps.h"

namespace {

std::string processor()
{
    FILE *const file = fopen("/proc/cpuinfo", "re");
    char line[256], name[200] = "unknown";
    while (file != nullptr && fgets(line, sizeof line, file) != nullptr)
        if (sscanf(line, "model name : %199[^\n]", name) == 1) break;
    if (file != nullptr) (void)fclose(file);
    return name;
}

std::vector<int32_t> numbers(const char *list)
{
    std::vector<int32_t> out;
    std::stringstream in(list);
    for (std::string one; std::getline(in, one, ',');) out.push_back(atoi(one.c_str()));
    return out;
}

bool measure(const steps::Options &options)
{
    steps::Figures f;
    const std::string why = steps::run(options, &f);
    if (!why.empty()) {
        (void)fprintf(stderr, "step_bench: %s\n", why.c_str());
        return false;
    }
    (void)printf(
        "%7d %7s %7d %6d %7d %6s %7s %5s %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f", options.context,
        options.prefill ? "128" : "-", options.vocabulary, options.answer, options.choices,
        options.shared ? "half" : "-", options.sampled ? "sampled" : "-",
        options.disk.empty() ? "-"
        : options.cold       ? "cold"
                             : "yes",
        f.cpu_median_us, f.cpu_p99_us, f.cpu_most_us, f.median_us, f.p99_us, f.most_us
    );
    for (const double us : f.part_us) (void)printf(" %8.1f", us);
    (void)printf(" %8.1f %6lld\n", f.norms_us, static_cast<long long>(f.batch_rows / f.steps));
    (void)fflush(stdout);
    return true;
}

} // namespace

int main(int argc, char **argv)
{
    steps::Options options;
    std::vector<int32_t> contexts = { 1024, 32768 };
    std::string disk;
    bool cold = false;
    options.folder = "/var/tmp/weir-steps-" + std::to_string(getpid());
    const option names[] = { { "sequences", 1, nullptr, 's' },
                             { "layers", 1, nullptr, 'l' },
                             { "kv-heads", 1, nullptr, 'h' },
                             { "pool", 1, nullptr, 'p' },
                             { "context", 1, nullptr, 'c' },
                             { "steps", 1, nullptr, 'n' },
                             { "queued", 1, nullptr, 'q' },
                             { "disk", 1, nullptr, 'd' },
                             { "folder", 1, nullptr, 'f' },
                             { "cold", 0, nullptr, 'o' },
                             { "vocabulary", 1, nullptr, 'v' },
                             { "answer", 1, nullptr, 'a' },
                             { "shared", 0, nullptr, 'r' },
                             { "sampled", 0, nullptr, 't' },
                             { "together", 0, nullptr, 'g' },
                             { "choices", 1, nullptr, 'm' },
                             { "preempted", 0, nullptr, 'e' },
                             { "pace", 1, nullptr, 'w' },
                             {} };
    for (int c; (c = getopt_long(argc, argv, "", names, nullptr)) != -1;) {
        switch (c) {
        case 's': options.sequences = atoi(optarg); break;
        case 'l': options.layers = atoi(optarg); break;
        case 'h': options.kv_heads = atoi(optarg); break;
        case 'p': options.pool_tokens = atoll(optarg); break;
        case 'c': contexts = numbers(optarg); break;
        case 'n': options.steps = atoi(optarg); break;
        case 'q': options.queued = atoi(optarg); break;
        case 'd': disk = optarg; break;
        case 'o': cold = true; break;
        case 'v': options.vocabulary = atoi(optarg); break;
        case 'a': options.answer = atoi(optarg); break;
        case 'r': options.shared = true; break;
        case 't': options.sampled = true; break;
        case 'g': options.together = true; break;
        case 'm': options.choices = atoi(optarg); break;
        case 'e': options.preempted = true; break;
        case 'w': options.pace = atoll(optarg); break;
        case 'f': options.folder = optarg; break;
        default: return 2;
        }
    }
    std::filesystem::create_directories(options.folder);
    (void)printf(
        "%s, %u processors; %d sequences, %d KV heads, a pool of %lld tokens, %d jobs queued; "
        "microseconds\n%7s %7s %7s %6s %7s %6s %7s %5s %9s %9s %9s %9s %9s %9s",
        processor().c_str(), std::thread::hardware_concurrency(), options.sequences,
        options.layers * options.kv_heads, static_cast<long long>(options.pool_tokens),
        options.queued, "context", "prompt", "vocab", "answer", "choices", "shared", "tokens",
        "disk", "cpu", "cpu p99", "cpu max", "median", "p99", "max"
    );
    for (int i = 0; i < WEIR_STEP_PARTS; i++)
        (void)printf(" %8s", steps::part_name(static_cast<weir_step_part>(i)));
    (void)printf(" %8s %6s\n", "(norms)", "rows");
    bool ok = true;
    for (const std::string &tier : { std::string(), disk }) {
        options.disk = tier;
        for (const bool is_cold : { false, true }) {
            options.cold = is_cold;
            if (is_cold && (!cold || disk.empty() || tier.empty())) continue;
            for (const int32_t context : contexts)
                for (const bool prefill : { false, true }) {
                    options.context = context;
                    options.prefill = prefill;
                    ok = ok && measure(options);
                }
        }
        if (disk.empty()) break;
    }
    std::filesystem::remove_all(options.folder);
    return ok ? 0 : 1;
}
