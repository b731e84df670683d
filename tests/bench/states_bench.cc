// A state database of many states: how long opening, listing and routing take, alone and while
// another thread adds states. bazel run -c opt //tests/bench:states_bench -- FOLDER [STATES
// [DIMENSIONS]]     (the folder must not be there; it is not removed)
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/session/file/session_file.h"
#include "engine/states/states.h"

namespace {

weir_error error;

void must(weir_status status)
{
    if (status == WEIR_OK) return;
    (void)fprintf(stderr, "%s\n", error.text);
    exit(1);
}

/* The smallest session file: what is in it plays no part here. */
void write_session(const char *path, const uint64_t model[2])
{
    static const weir_kv_pair format = { WEIR_KV_F16, WEIR_KV_F16 };
    static const weir_kv_geometry geometry = { 1, 8, 8, 0, 0, false };
    static const weir_kv_spec spec = { 1,  &geometry, &format, {}, 4096, nullptr,
                                       {}, false,     false,   0,  {} };
    weir_session_identity identity = {};
    memcpy(identity.model, model, sizeof identity.model);
    strcpy(identity.format, "f16");
    strcpy(identity.policy, "full:0");
    identity.numerics = { "v3", "cpu", "fast", "none", "none", false };
    identity.n_layers = identity.n_heads = 1, identity.geometry = &geometry;
    identity.block_bytes = (int64_t)weir_kv_block_bytes(&spec);
    const int32_t token = 1;
    std::vector<char> page((size_t)identity.block_bytes);
    void *const pages[] = { page.data() };
    weir_session_content content = {};
    content.tokens = &token, content.n_tokens = 1;
    content.salt = WEIR_PREFIX_NO_SALT;
    content.pages = pages, content.page_stride = 1;
    content.spec = &spec;
    size_t bytes = 0;
    must(weir_session_write(path, &identity, &content, &bytes, &error));
}

weir_status link_source(void *user, const char *path, int64_t, weir_error *why)
{
    if (link(static_cast<const char *>(user), path) == 0) return WEIR_OK;
    return weir_error_set(why, WEIR_EIO, "%s: cannot link", path);
}

void measure(const char *what, int repeats, const std::function<void()> &run)
{
    std::vector<double> ms;
    for (int i = 0; i < repeats; i++) {
        const int64_t start = weir_clock_ns();
        run();
        ms.push_back((double)(weir_clock_ns() - start) * 1e-6);
    }
    std::sort(ms.begin(), ms.end());
    (void)printf("%-34s %8.2f ms, at most %8.2f ms\n", what, ms[ms.size() / 2], ms.back());
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    const std::string folder = argv[1], source = folder + "/source";
    const size_t n = argc > 2 ? strtoul(argv[2], nullptr, 10) : 10000;
    const size_t dim = argc > 3 ? strtoul(argv[3], nullptr, 10) : 1024;
    const weir_states_kind kind = { { 1, 2 }, (int32_t)dim, "noise", 0 };
    must(weir_states_create(folder.c_str(), &kind, &error));
    write_session(source.c_str(), kind.model);
    weir_states *states = nullptr;
    const weir_states_options options = { folder.c_str(), kind.model, true, nullptr, 0 };
    must(weir_states_open(&states, &options, &error));

    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> vector(dim);
    weir_new_state state = {};
    state.label = "document", state.vector = vector.data(), state.write = link_source,
    state.user = (void *)source.c_str();
    const auto add = [&] {
        for (float &x : vector) x = normal(random);
        must(weir_states_add(states, &state, nullptr, &error));
    };
    const int64_t start = weir_clock_ns();
    for (size_t i = 0; i < n; i++) add();
    (void)printf(
        "%zu states of %zu dimensions, added in %.2f ms each\n", n, dim,
        (double)(weir_clock_ns() - start) * 1e-6 / (double)n
    );

    const auto open = [&] {
        weir_states_close(states);
        states = nullptr;
        must(weir_states_open(&states, &options, &error));
    };
    std::vector<float> asked(dim, 1.0f);
    weir_state_hit hits[10];
    const weir_states_question question = { asked.data(), 10, nullptr, nullptr };
    const auto list = [&](size_t most) {
        weir_state_info *infos = nullptr;
        size_t found = 0, total = 0;
        weir_error why = {};
        const weir_states_page page = { 0, most, nullptr, nullptr };
        if (weir_states_list(states, &page, &infos, &found, &total, &why) != WEIR_OK) abort();
        weir_memory_give(infos);
    };
    const auto route = [&] {
        size_t found = 0;
        weir_error why = {};
        if (weir_states_route(states, &question, hits, &found, &why) != WEIR_OK) abort();
    };
    measure("open", 5, open);
    measure("list all", 50, [&] { list(SIZE_MAX); });
    measure("list 100", 50, [&] { list(100); });
    measure("route, 10 hits", 50, route);
    std::atomic<bool> is_done{ false };
    std::thread writer([&] {
        while (!is_done) add();
    });
    measure("list all, while states are added", 50, [&] { list(SIZE_MAX); });
    measure("route, while states are added", 50, route);
    is_done = true;
    writer.join();
    weir_states_close(states);
    return 0;
}
