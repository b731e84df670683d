/* A warm step allocates nothing: this program's malloc family and mmap count, in place of libc's
 * and in all threads, while armed. One exemption, by owner, printed and bounded: libdnnl's argument
 * map (tests/README.md). */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <map>

#include "engine/engine_parts.h"
#include "engine/kv/tiers/residency.h"
#include "tests/unit/model/coda.h"

namespace guard {

constexpr int max_events = 1 << 16, max_frames = 24;
struct Event {
    const char *call;
    size_t bytes;
    void *frames[max_frames];
    int n_frames;
};
std::atomic<bool> is_armed;
std::atomic<int> n_events, n_frees;
Event events[max_events];
thread_local bool is_inside; /* backtrace may allocate */

void note(const char *call, size_t bytes)
{
    if (!is_armed || is_inside) return;
    is_inside = true;
    const int at = n_events++;
    if (at < max_events) events[at] = { call, bytes, {}, 0 };
    if (at < max_events) events[at].n_frames = backtrace(events[at].frames, max_frames);
    is_inside = false;
}

void arm()
{
    void *frames[4];
    (void)backtrace(frames, 4); /* loads the unwinder */
    n_events = 0;
    n_frees = 0;
    is_armed = true;
}

void disarm() { is_armed = false; }

bool begins(const std::string &text, const char *with) { return text.rfind(with, 0) == 0; }

/* The library that asked: the innermost frame past note and its caller, and past the C and C++
 * libraries. */
std::string owner(const Event &event)
{
    for (int i = 2; i < event.n_frames; i++) {
        Dl_info info;
        if (dladdr(event.frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
        const std::string name = std::filesystem::path(info.dli_fname).filename().string();
        if (begins(name, "libc.so") || begins(name, "ld-linux") || begins(name, "libstdc++"))
            continue;
        return name;
    }
    return "unknown";
}

bool is_exempt(const std::string &name) { return begins(name, "libdnnl."); }

/* Of our own code, as text: call, size and stack. Prints how many others had. */
std::string of_ours()
{
    std::map<std::string, int> others;
    std::string text;
    const int n = std::min<int>(n_events, max_events);
    for (int e = 0; e < n; e++) {
        const std::string name = owner(events[e]);
        if (is_exempt(name)) {
            others[name]++;
            continue;
        }
        text += std::string(events[e].call) + " of " + std::to_string(events[e].bytes) +
                " bytes by " + name + "\n";
        char **const symbols = backtrace_symbols(events[e].frames, events[e].n_frames);
        for (int i = 2; symbols != nullptr && i < events[e].n_frames; i++)
            text += std::string("    ") + symbols[i] + "\n";
        free(symbols);
    }
    for (const auto &[name, count] : others)
        printf("of %d allocations, %d were made by %s\n", n_events.load(), count, name.c_str());
    return text;
}

} // namespace guard

#ifndef HAS_OWN_ALLOCATOR
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

void *malloc(size_t n)
{
    guard::note("malloc", n);
    return __libc_malloc(n);
}
void *calloc(size_t count, size_t n)
{
    guard::note("calloc", count * n);
    return __libc_calloc(count, n);
}
void *realloc(void *old, size_t n)
{
    guard::note("realloc", n);
    return __libc_realloc(old, n);
}
void *memalign(size_t alignment, size_t n)
{
    guard::note("memalign", n);
    return __libc_memalign(alignment, n);
}
void *aligned_alloc(size_t alignment, size_t n)
{
    guard::note("aligned_alloc", n);
    return __libc_memalign(alignment, n);
}
int posix_memalign(void **out, size_t alignment, size_t n)
{
    guard::note("posix_memalign", n);
    *out = __libc_memalign(alignment, n);
    return *out != nullptr ? 0 : ENOMEM;
}
void free(void *memory)
{
    if (guard::is_armed && !guard::is_inside && memory != nullptr) guard::n_frees++;
    __libc_free(memory);
}
void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    guard::note("mmap", n);
    return reinterpret_cast<void *>(syscall(SYS_mmap, at, n, protection, flags, fd, offset));
}
}
#endif

namespace {

using support::Engine;
using support::Sequence;
using support::Settings;

class Allocation : public ::testing::Test {
  protected:
    void SetUp() override
    {
#ifdef HAS_OWN_ALLOCATOR
        GTEST_SKIP() << "the sanitizer's allocator is in the way";
#endif
    }
    void step(Engine *engine, Sequence *sequence, int rows, weir_logits_wanted wanted)
    {
        weir_batch_item item = { sequence->get(), rows, 0, wanted, 0, 0, 0, 0, {}, false, false };
        const float *logits = nullptr;
        ASSERT_EQ(weir_runner_step(engine->runner(), &item, 1, &logits, engine->error()), WEIR_OK)
            << engine->text();
    }
    void demote(Engine *engine, Sequence *sequence)
    {
        weir_kv_store *const store = weir_engine_store(engine->get());
        const weir_kv_table *const table = &sequence->get()->table;
        for (int64_t block = 0; block + 1 < table->n_pages; block++)
            if (!weir_kv_is_cold(store, table->pages[block]))
                ASSERT_EQ(
                    weir_kv_demote(
                        store, (void *const *)table->pages + block, table->capacity, block,
                        engine->error()
                    ),
                    WEIR_OK
                ) << engine->text();
    }
    void expect_none(const std::string &model, const Settings &settings, bool demotes = false)
    {
        expect_none_of(support::golden(model), settings, demotes);
    }
    /* Prompt pieces of 64 rows, single rows over a page's end, and both again while counting. */
    void expect_none_of(const std::string &path, const Settings &settings, bool demotes)
    {
        Engine engine;
        ASSERT_EQ(engine.open(path, settings), WEIR_OK) << engine.text();
        Sequence sequence(engine), other(engine);
        sequence.add(support::some_tokens(500, 5, engine.n_vocab()));
        other.add(support::some_tokens(500, 6, engine.n_vocab()));
        const auto run = [&] {
            step(&engine, &sequence, 64, WEIR_LOGITS_LAST);
            if (demotes) demote(&engine, &sequence);
            for (int i = 0; i < 70; i++) step(&engine, &sequence, 1, WEIR_LOGITS_LAST);
            weir_batch_item both[] = {
                { sequence.get(), 1, 0, WEIR_LOGITS_LAST, 0, 0, 0, 0, {}, false, false },
                { other.get(), 64, 0, WEIR_LOGITS_LAST, 0, 0, 0, 0, {}, false, false }
            };
            const float *logits = nullptr;
            ASSERT_EQ(weir_runner_step(engine.runner(), both, 2, &logits, engine.error()), WEIR_OK)
                << engine.text();
        };
        run();
        const size_t scratch = weir_stream_scratch_bytes(weir_engine_stream(engine.get()));
        guard::arm();
        run();
        guard::disarm();
        EXPECT_EQ(guard::of_ours(), "");
        EXPECT_LE(guard::n_events, guard::n_frees)
            << "what a library takes in a step it must give back";
        EXPECT_EQ(weir_stream_scratch_bytes(weir_engine_stream(engine.get())), scratch);
    }
};

TEST_F(Allocation, TheGuardSees)
{
    guard::arm();
    void *volatile memory = malloc(100);
    guard::disarm();
    free(memory);
    EXPECT_EQ(guard::n_events, 1);
    EXPECT_NE(guard::of_ours(), "");
}

TEST_F(Allocation, NoneWithQuantisedWeights)
{
    expect_none("tq/tq-q8_0.gguf", { "kernels.activations=fast" });
}
TEST_F(Allocation, NoneWithKQuants)
{
    expect_none("tq-k/tq-k-q4_k.gguf", { "kernels.activations=fast" });
}
TEST_F(Allocation, NoneWithF32)
{
    expect_none("tq/tq-f32.gguf", { "kernels.activations=f32", "kv.format=f32" });
}
TEST_F(Allocation, NoneWithUnsealedPages)
{
    expect_none("tq/tq-q8_0.gguf", { "kernels.activations=fast", "kv.format=int8/kivi4" });
}
TEST_F(Allocation, NoneWithADisk)
{
    expect_none(
        "tq/tq-q8_0.gguf",
        { "kernels.activations=fast", "memory.disk=16MiB",
          "memory.disk_dir=" + ::testing::TempDir() },
        true
    );
}
/* Blocks, steps and copies of memory of fixed size, its banks in use; with what replies and
 * /metrics tell of it. */
TEST_F(Allocation, NoneWithCoda)
{
    const support::Folder folder;
    Settings settings = { "kernels.activations=fast", "kv.format=f16" };
    const std::string sizes =
        "window = 24\nlandmarks_exact = 6\nlandmarks_summary = 5\nblock_rows = 32\n";
    support::write_coda(folder, "\"coda\"", support::coda_block(sizes), &settings);
    expect_none_of(folder.path(), settings, false);
    Engine engine;
    ASSERT_EQ(engine.open(folder.path(), settings), WEIR_OK) << engine.text();
    Sequence sequence(engine);
    sequence.add(support::some_tokens(64, 5, engine.n_vocab()));
    step(&engine, &sequence, 64, WEIR_LOGITS_LAST);
    guard::arm();
    const weir_bank_stats banks = weir_runner_bank_stats(engine.runner(), sequence.get());
    guard::disarm();
    EXPECT_EQ(guard::of_ours(), "");
    EXPECT_EQ(banks.counts[WEIR_BANK_STATS_EVICTIONS], 2 * 40);
}
TEST_F(Allocation, NoneWithPerLayerEmbeddings)
{
    expect_none("../families/gemma4", { "kernels.activations=fast" });
}
TEST_F(Allocation, NoneWithDecaysOfChannels)
{
    expect_none("../families/kimi-linear", { "kernels.activations=fast" });
}
TEST_F(Allocation, NoneWithBf16) { expect_none("tq", { "kernels.activations=fast" }); }

/* The service's step: planning, sampling with everything on, and events. */
TEST_F(Allocation, NoneInTheService)
{
    Engine engine;
    ASSERT_EQ(
        engine.open(support::golden("tq/tq-q8_0.gguf"), { "kernels.activations=fast" }, true),
        WEIR_OK
    ) << engine.text();
    const std::vector<int32_t> prompt = support::some_tokens(40, 1, 200);
    struct Seen {
        int n_tokens = 0;
        std::atomic<bool> is_done{ false };
    } seen;
    weir_request request = {};
    request.prompt = prompt.data();
    request.n_prompt = static_cast<int32_t>(prompt.size());
    request.max_tokens = 120;
    request.n_choices = 1;
    request.ignore_eos = true;
    request.want_logprobs = true;
    request.n_top_logprobs = 5;
    request.sampling = weir_sampling_default();
    request.sampling.temperature = 0.8f;
    request.sampling.top_k = 40;
    request.sampling.top_p = 0.9f;
    request.sampling.repetition_penalty = 1.1f;
    request.user = &seen;
    request.callback = [](void *user, const weir_event *event) {
        Seen *const s = static_cast<Seen *>(user);
        if (event->type == WEIR_EVENT_TOKEN && ++s->n_tokens == 10) guard::arm();
        if (event->type == WEIR_EVENT_TOKEN && s->n_tokens == 110) guard::disarm();
        if (event->type == WEIR_EVENT_DONE) s->is_done = true;
        return true;
    };
    weir_job *job = nullptr;
    ASSERT_EQ(
        weir_service_submit(weir_engine_service(engine.get()), &job, &request, engine.error()),
        WEIR_OK
    ) << engine.text();
    while (!seen.is_done) usleep(1000);
    weir_job_release(job);
    EXPECT_EQ(seen.n_tokens, 120);
    EXPECT_EQ(guard::of_ours(), "");
}

} // namespace
