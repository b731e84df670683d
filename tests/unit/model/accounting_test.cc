/* What the process takes is in the ledger: this program's malloc family and anonymous mmap count
 * live bytes in place of libc's. Opening an engine, or computing with it, may take no more than a
 * small constant that no account knows (tests/README.md). */
#include <errno.h>
#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "engine/base/heap.h"
#include "engine/formats/json.h"
#include "offload/ledger.h"
#include "tests/unit/model/support.h"

namespace live {
std::atomic<int64_t> bytes, most;
void add(int64_t n)
{
    const int64_t now = bytes += n;
    if (now > most) most = now;
}
} // namespace live

#ifndef HAS_OWN_ALLOCATOR
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static void *count(void *memory)
{
    if (memory != nullptr) live::add(static_cast<int64_t>(malloc_usable_size(memory)) + 8);
    return memory;
}
static void uncount(void *memory)
{
    if (memory != nullptr) live::bytes -= static_cast<int64_t>(malloc_usable_size(memory)) + 8;
}

void *malloc(size_t n) { return count(__libc_malloc(n)); }
void *calloc(size_t n, size_t size) { return count(__libc_calloc(n, size)); }
void *memalign(size_t alignment, size_t n) { return count(__libc_memalign(alignment, n)); }
void *aligned_alloc(size_t alignment, size_t n) { return count(__libc_memalign(alignment, n)); }
int posix_memalign(void **out, size_t alignment, size_t n)
{
    *out = count(__libc_memalign(alignment, n));
    return *out != nullptr ? 0 : ENOMEM;
}
void *realloc(void *old, size_t n)
{
    uncount(old);
    void *const grown = __libc_realloc(old, n);
    if (grown == nullptr && n > 0) (void)count(old);
    return count(grown);
}
void free(void *memory)
{
    uncount(memory);
    __libc_free(memory);
}
/* Files that are mapped are page cache, which the kernel takes back: they are remembered, and not
 * counted. */
static std::atomic<void *> files[64];

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    void *const memory =
        reinterpret_cast<void *>(syscall(SYS_mmap, at, n, protection, flags, fd, offset));
    if (memory == MAP_FAILED) return memory;
    if ((flags & MAP_ANONYMOUS) != 0) {
        live::add(static_cast<int64_t>(n));
        return memory;
    }
    for (auto &file : files) {
        void *none = nullptr;
        if (file.compare_exchange_strong(none, memory)) break;
    }
    return memory;
}
void *mremap(void *memory, size_t before, size_t n, int flags, ...)
{
    void *const moved =
        reinterpret_cast<void *>(syscall(SYS_mremap, memory, before, n, flags, nullptr));
    if (moved != MAP_FAILED) live::add(static_cast<int64_t>(n) - static_cast<int64_t>(before));
    return moved;
}
int munmap(void *memory, size_t n)
{
    bool is_file = false;
    for (auto &file : files) {
        void *one = memory;
        is_file = is_file || file.compare_exchange_strong(one, nullptr);
    }
    if (!is_file) live::bytes -= static_cast<int64_t>(n);
    return static_cast<int>(syscall(SYS_munmap, memory, n));
}
}
#endif

namespace {

using support::Engine;
using support::Sequence;
using support::Settings;

constexpr int64_t unaccounted = 1 << 20;

class Accounting : public ::testing::Test {
  protected:
    void SetUp() override
    {
#ifdef HAS_OWN_ALLOCATOR
        GTEST_SKIP() << "the sanitizer's allocator is in the way";
#endif
        before_ = live::bytes;
    }
    void open(const std::string &model, const Settings &settings, bool with_service = true)
    {
        ASSERT_EQ(engine_.open(model, settings, with_service), WEIR_OK) << engine_.text();
    }
    size_t total() const
    {
        return weir_ledger_total(weir_engine_ledger(engine_.get()), WEIR_TIER_HOST);
    }
    size_t used(weir_account account) const
    {
        return weir_ledger_used(weir_engine_ledger(engine_.get()), WEIR_TIER_HOST, account);
    }
    /* Bytes taken since the test began that no account knows. */
    int64_t missing() const { return live::bytes - before_ - static_cast<int64_t>(total()); }
    void expect_accounted(const char *what) const
    {
        EXPECT_LE(missing(), unaccounted) << what << ": the ledger says " << total();
    }

    int64_t before_ = 0;
    Engine engine_;
};

TEST_F(Accounting, TheCheckSeesWhatIsNotAccountedFor)
{
    open(support::golden("qwen3"), { "memory.host=64MiB" });
    const int64_t missing_before = missing();
    void *volatile memory = malloc(2 << 20);
    EXPECT_GE(missing() - missing_before, 2 << 20);
    EXPECT_GT(missing(), unaccounted);
    free(memory);
    EXPECT_LT(missing(), missing_before + 4096);
}

/* Ten times the slots, rows and window: everything that grows is on an account. */
TEST_F(Accounting, AnEngineOfAnySize)
{
    const Settings settings[] = {
        { "memory.host=64MiB", "batch.max_sequences=1", "batch.chunk=64", "model.context=256" },
        { "memory.host=512MiB", "batch.max_sequences=256", "batch.chunk=64", "model.context=4096" },
        { "memory.host=512MiB", "batch.max_sequences=4", "batch.chunk=4096", "model.context=4096" },
    };
    for (const char *model :
         { "tq/tq-q8_0.gguf", "tq", "qwen3", "../families/gemma4", "../families/kimi-linear" }) {
        for (const Settings &one : settings) {
            open(support::golden(model), one);
            expect_accounted(model);
            engine_.close();
        }
    }
}

TEST_F(Accounting, TheDemoModelWithItsTokenizer)
{
    open("models/weir-demo", { "memory.host=256MiB" });
    EXPECT_GT(used(WEIR_ACCOUNT_TOKENIZER), 0u);
    expect_accounted("demo");
}

TEST_F(Accounting, ComputingTakesNothingMore)
{
    open(
        support::golden("tq/tq-q8_0.gguf"),
        { "memory.host=64MiB", "batch.chunk=64", "kernels.activations=fast" }, false
    );
    Sequence sequence(engine_);
    sequence.add(support::some_tokens(500, 5, engine_.n_vocab()));
    const float *logits = nullptr;
    for (int i = 0; i < 7; i++) {
        weir_batch_item item = { sequence.get(), 64,   0, WEIR_LOGITS_LAST, 0, 0, 0, 0, {},
                                 false,          false };
        ASSERT_EQ(weir_runner_step(engine_.runner(), &item, 1, &logits, engine_.error()), WEIR_OK)
            << engine_.text();
    }
    expect_accounted("seven steps");
}

/* 24 jobs, of which one runs; each has counts of all tokens for its penalties. */
TEST_F(Accounting, JobsInTheQueue)
{
    open(
        support::golden("tq/tq-q8_0.gguf"), { "memory.host=64MiB", "batch.max_sequences=1",
                                              "batch.queue=64", "kernels.activations=fast" }
    );
    const size_t total_before = total();
    const std::vector<int32_t> prompt = support::some_tokens(200, 1, 100);
    weir_request request = {};
    request.prompt = prompt.data();
    request.n_prompt = 200;
    request.max_tokens = 2000;
    request.n_choices = 1;
    request.ignore_eos = true;
    request.sampling = weir_sampling_default();
    request.sampling.repetition_penalty = 1.1f;
    request.callback = [](void *, const weir_event *) { return true; };
    std::vector<weir_job *> jobs(24);
    for (weir_job *&job : jobs)
        ASSERT_EQ(
            weir_service_submit(
                weir_engine_service(engine_.get()), &job, &request, engine_.error()
            ),
            WEIR_OK
        ) << engine_.text();
    EXPECT_GE(
        total() - total_before, jobs.size() * (200 * sizeof(int32_t) + 4 * engine_.n_vocab())
    );
    expect_accounted("jobs");
    for (weir_job *job : jobs) weir_job_release(job);
    for (int i = 0; i < 1000 && total() > total_before; i++) usleep(10000);
    EXPECT_EQ(total(), total_before) << "all of it came back";
}

TEST_F(Accounting, AJobThatDoesNotFitIsRefusedWithTheArithmetic)
{
    open(support::golden("qwen3"), { "memory.host=64MiB", "batch.max_sequences=1" });
    weir_ledger *const ledger = weir_engine_ledger(engine_.get());
    const size_t rest = (size_t{ 64 } << 20) - total();
    ASSERT_EQ(
        weir_ledger_reserve(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_HTTP, rest, engine_.error()),
        WEIR_OK
    );
    const int32_t prompt[] = { 1, 2, 3 };
    weir_request request = {};
    request.prompt = prompt;
    request.n_prompt = 3;
    request.n_choices = 1;
    request.max_tokens = 1;
    request.sampling = weir_sampling_default();
    request.callback = [](void *, const weir_event *) { return true; };
    weir_job *job = nullptr;
    EXPECT_EQ(
        weir_service_submit(weir_engine_service(engine_.get()), &job, &request, engine_.error()),
        WEIR_ENOMEM
    );
    EXPECT_NE(
        strstr(engine_.text(), "0 of 67108864 bytes left; try again, or raise memory.host"), nullptr
    ) << engine_.text();
    weir_ledger_return(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_HTTP, rest);
}

/* Each line of the plan is what the account holds; what is set aside for requests is the only
 * difference. */
TEST_F(Accounting, ThePlanIsWhatTheLedgerHolds)
{
    const Settings settings[] = {
        { "memory.host=24MiB", "batch.max_sequences=3" },
        { "memory.host=13MiB", "batch.max_sequences=2", "batch.chunk=64" },
        { "memory.host=200MiB", "batch.max_sequences=64", "kv.format=f32" },
        { "memory.host=24MiB", "batch.max_sequences=5", "kv.format=int8/kivi4", "batch.chunk=128" },
        { "memory.host=24MiB", "batch.max_sequences=3", "kv.format=q8_0/turbo3" },
        { "memory.host=24MiB", "batch.max_sequences=3", "kv.format=q8_0/turbo3",
          "kv.wide_sinks=100" },
        { "memory.host=24MiB", "batch.max_sequences=3", "kv.format=kivi2", "kv.wide_sinks=600",
          "kv.wide_format=kivi8" },
        { "memory.host=24MiB", "batch.max_sequences=2", "kv.format=turbo4", "kv.wide_sinks=64",
          "memory.disk=4MiB" },
        { "memory.host=24MiB", "batch.max_sequences=2", "kv.format=turbo4", "kv.wide_sinks=65536",
          "model.context=512" },
        { "memory.host=24MiB", "batch.max_sequences=2", "kv.format=turbo4", "kv.wide_sinks=65536",
          "model.context=512", "memory.disk=4MiB" },
    };
    for (const Settings &one : settings) {
        open(support::golden("tq"), one);
        const weir_plan &plan = *weir_engine_plan_of(engine_.get());
        EXPECT_LE(weir_plan_total(&plan), plan.cap);
        EXPECT_EQ(plan.weights, used(WEIR_ACCOUNT_WEIGHTS));
        EXPECT_EQ(plan.activations, used(WEIR_ACCOUNT_ACTIVATIONS));
        EXPECT_EQ(plan.recurrent, used(WEIR_ACCOUNT_RECURRENT));
        EXPECT_EQ(plan.kv, used(WEIR_ACCOUNT_KV));
        EXPECT_EQ(plan.page_tables, used(WEIR_ACCOUNT_PAGE_TABLES));
        EXPECT_EQ(plan.tokens, used(WEIR_ACCOUNT_TOKENS));
        EXPECT_EQ(plan.sampler, used(WEIR_ACCOUNT_SAMPLER));
        EXPECT_EQ(plan.tokenizer, used(WEIR_ACCOUNT_TOKENIZER));
        EXPECT_EQ(plan.other, used(WEIR_ACCOUNT_OTHER));
        EXPECT_EQ(weir_plan_total(&plan) - plan.http, total());
        engine_.close();
    }
}

TEST_F(Accounting, ThePlanAsJsonAddsUp)
{
    open(support::golden("tq"), { "memory.host=24MiB" });
    weir_plan plan = *weir_engine_plan_of(engine_.get());
    (void)snprintf(plan.facts.model, sizeof plan.facts.model, "a \"quoted\"\n\\ name");
    weir_buffer text = {};
    ASSERT_EQ(weir_plan_print_json(&plan, &text), WEIR_OK);
    json_t *const root = json_loadb(text.data, text.size, 0, nullptr);
    ASSERT_NE(root, nullptr) << text.data;
    EXPECT_STREQ(json_string_value(json_object_get(root, "model")), plan.facts.model);
    const char *name = nullptr;
    json_t *value = nullptr;
    json_int_t sum = 0;
    json_object_foreach(json_object_get(root, "accounts"), name, value) sum +=
        json_integer_value(value);
    EXPECT_EQ(sum, json_integer_value(json_object_get(root, "total")));
    EXPECT_EQ(json_integer_value(json_object_get(root, "cap")), 24 << 20);
    EXPECT_EQ(
        json_integer_value(json_object_get(json_object_get(root, "kv"), "bytes_per_token")),
        plan.facts.kv_bytes_per_token
    );
    json_decref(root);
    weir_buffer_free(&text);
}

/* Sinks that memory does not hold for all sequences are the whole window, as long as that is
 * one. */
TEST_F(Accounting, SinksAreNoMoreThanTheWindow)
{
    const Settings sinks = { "batch.max_sequences=2", "kv.format=turbo4", "kv.wide_sinks=2048" };
    const auto with = [&](size_t memory, const Settings &more = {}) {
        Settings all = sinks;
        all.push_back("memory.host=" + std::to_string(memory) + "B");
        all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    size_t enough = 24 << 20, little = 1 << 20;
    while (enough - little > 1024) {
        const size_t half = (enough + little) / 2;
        (engine_.plan(support::golden("tq"), with(half)) == WEIR_OK ? enough : little) = half;
    }
    EXPECT_EQ(engine_.plan(support::golden("tq"), with(little)), WEIR_EFULL);
    EXPECT_NE(strstr(engine_.text(), "kv.wide_sinks"), nullptr) << engine_.text();
    open(support::golden("tq"), with(enough), false);
    const weir_plan plan = *weir_engine_plan_of(engine_.get());
    EXPECT_EQ(plan.facts.window, 256);
    EXPECT_EQ(plan.kv_rows, 3 * plan.facts.window) << "all of them sinks";
    EXPECT_EQ(plan.kv, used(WEIR_ACCOUNT_KV));
    engine_.close();
    EXPECT_EQ(engine_.plan(support::golden("tq"), with(enough, { "memory.disk=4MiB" })), WEIR_EFULL)
        << "nothing would ever go there";
    EXPECT_NE(strstr(engine_.text(), "kv.wide_sinks"), nullptr) << engine_.text();
    EXPECT_EQ(
        engine_.plan(support::golden("tq"), with(enough, { "model.context=320" })), WEIR_EFULL
    );
}

/* Small files whose JSON is large in memory: neither is more taken than memory.host lets, nor does
 * anything stay. */
TEST_F(Accounting, AFileOfManyValuesIsRefusedByItsName)
{
    weir_json_use_memory();
    std::string many = "[{}";
    while (many.size() < 2000000) many += ",{}";
    many += "]";
    const auto add_member = [&](std::string text) {
        text.erase(text.find_last_of('}'));
        return text + (text.find(':') != std::string::npos ? "," : "") + "\"zz\":" + many + "}";
    };
    const auto in_header = [&](const std::string &file) {
        uint64_t n = 0;
        memcpy(&n, file.data(), sizeof n);
        const std::string header = add_member(file.substr(8, n));
        n = header.size();
        return std::string(reinterpret_cast<const char *>(&n), sizeof n) + header + file.substr(8);
    };
    const std::string demo = "models/weir-demo", folder = testing::TempDir() + "/many";
    for (const char *const name : { "config.json", "tokenizer.json", "tokenizer_config.json",
                                    "generation_config.json", "model.safetensors" }) {
        std::filesystem::remove_all(folder);
        std::filesystem::create_directories(folder);
        for (const char *const file : { "config.json", "tokenizer.json", "tokenizer_config.json",
                                        "generation_config.json", "model.safetensors" })
            std::filesystem::create_symlink(
                std::filesystem::absolute(demo + "/" + file), folder + "/" + file
            );
        const std::string text = support::read_file(folder + "/" + name);
        std::filesystem::remove(folder + "/" + name);
        const bool is_header = strcmp(name, "model.safetensors") == 0;
        support::write_file(folder + "/" + name, is_header ? in_header(text) : add_member(text));
        const int64_t before = live::bytes;
        live::most = before;
        EXPECT_EQ(engine_.plan(folder, { "memory.host=64MiB" }), WEIR_EFULL) << name;
        EXPECT_NE(strstr(engine_.text(), name), nullptr) << name << ": " << engine_.text();
        EXPECT_NE(strstr(engine_.text(), "raise memory.host"), nullptr) << engine_.text();
        EXPECT_LT(live::most - before, (64 << 20) + unaccounted) << name;
        EXPECT_LT(live::bytes - before, unaccounted) << name;
        EXPECT_EQ(weir_heap_mapped(nullptr), 0u) << name;
    }
    std::filesystem::remove_all(folder);
}

TEST_F(Accounting, APlanThatDoesNotFitSaysTheArithmetic)
{
    for (const char *memory : { "memory.host=40KiB", "memory.host=200KiB", "memory.host=1MiB" }) {
        EXPECT_EQ(engine_.plan(support::golden("tq"), { memory }), WEIR_EFULL) << memory;
        EXPECT_NE(strstr(engine_.text(), "the plan does not fit"), nullptr) << engine_.text();
    }
    for (const char *part : { "weights", "page tables", "model tables", "1.0 MiB (memory.host)" })
        EXPECT_NE(strstr(engine_.text(), part), nullptr) << part << " in " << engine_.text();
}

} // namespace
