/* Policies that observe attention, and prompts of which most is on disk while they are computed in
 * pieces: the bits and the rows of a store that is all in memory. */
#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "engine/kv/prune/evict.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/kv/tiers/prefetch.h"
#include "engine/kv/tiers/residency.h"
#include "tests/every_nth.h"
#include "tests/unit/model/support.h"
#include "tests/unit/model/windowed.h"

namespace {

using support::Engine;
using support::Folder;
using support::Sequence;
using support::Settings;

std::atomic<int> reads_until_failure{ -1 }; /* that one fails, the others do not */
ssize_t faulty_read(int fd, void *bytes, size_t n, off_t at)
{
    if (reads_until_failure < 0 || reads_until_failure-- > 0) return pread(fd, bytes, n, at);
    errno = EIO;
    return -1;
}

struct Case {
    const char *model, *format, *policy, *options;
    int n_sinks = 0, n_blocks = 16; /* in memory */
};

const Case cases[] = {
    { "qwen3", "f32", "h2o", "sinks=2,recent=16,every=16" },
    { "qwen3", "q8_0", "h2o", "sinks=2,recent=16,every=16" },
    { "qwen3", "int8/kivi4", "scissorhands", "recent=16,every=16,history=64" },
    { "qwen3", "turbo4", "observed", "every=16,split=adaptive", 64 },
    { "tq", "f32", "scissorhands", "recent=16,every=16,history=64" },
    { "tq", "q8_0", "h2o", "sinks=2,recent=16,every=16" },
    { "tq", "f16", "tova", "every=1" },
    { "deepseek3", "f32", "h2o", "sinks=2,recent=16,every=16" },
    { "deepseek3", "int8", "scissorhands", "recent=16,every=16,history=64" },
    { "windowed", "f32", "h2o", "sinks=2,recent=16,every=16", 0,
      32 }, /* its first layer keeps every row */
    { "../families/gemma4", "f32", "h2o", "sinks=2,recent=16,every=16", 0, 44 },
    { "../families/kimi-linear", "q8_0", "h2o", "sinks=2,recent=16,every=16" },
};

constexpr int n_sequences = 3, n_prompt = 1120, n_answer = 24, piece = 42, chunk = 128,
              window = 600;
/* More ranges than the reader has buffers: what was read for one is overwritten after it */
constexpr int n_long = 12000, n_ranges = 5;

/* What a sequence gave: the logits after each step and what its policy remembered of it then, and
 * in the end the rows of each head. */
struct Given {
    std::vector<float> logits, rows;
    std::vector<char> states;
    int n_rows = 0;
    bool failed = false;
};

/* Two watched sequences, and one that is not between them, side by side. */
class PolicyTiers : public ::testing::Test {
  protected:
    void configure(const Case &c)
    {
        settings_ = { "kernels.activations=f32",
                      "model.context=" + std::to_string(rows_),
                      "batch.chunk=" + std::to_string(chunk),
                      "batch.max_sequences=3",
                      "kv.reuse=off",
                      "kv.tiers.hot=1",
                      "kv.full_windows=true",
                      std::string("kv.format=") + c.format,
                      "kv.wide_sinks=" + std::to_string(c.n_sinks),
                      std::string("kv.policy.name=") + c.policy,
                      "kv.policy.budget=120",
                      std::string("kv.policy.options=") + c.options };
        model_ = support::golden(c.model);
        if (c.model != std::string("windowed")) return;
        support::write_windowed(folder_, { "window", "whole" }, window, &settings_);
        model_ = folder_.path();
    }
    /* n_blocks of all sequences in memory, the others on disk; 0: all are in memory. */
    void open(int64_t n_blocks)
    {
        Settings all = settings_;
        const int64_t full = n_sequences_ * (rows_ / 64);
        all.insert(
            all.end(),
            { "memory.host=256MiB", "memory.disk=0B", "memory.disk_dir=" + folder_ / "pages" }
        );
        ASSERT_EQ(engine_.open(model_, all), WEIR_OK) << engine_.text();
        const auto at = all.size() - 3;
        if (n_blocks > 0) {
            const int64_t block = 64 * weir_engine_plan_of(engine_.get())->facts.kv_bytes_per_token;
            all[at + 1] = "memory.disk=" + std::to_string(2 * full * block) + "B";
            ASSERT_EQ(engine_.open(model_, all), WEIR_OK) << engine_.text();
            const weir_plan *const plan = weir_engine_plan_of(engine_.get());
            const size_t room = static_cast<size_t>(n_blocks * 64 * plan->facts.kv_bytes_per_token);
            const size_t sinks =
                (n_sequences + 1 + static_cast<size_t>(n_blocks) / 32) *
                static_cast<size_t>(plan->facts.sink_tokens * plan->facts.kv_bytes_per_sink);
            all[at] = "memory.host=" +
                      std::to_string(
                          weir_plan_total(plan) - plan->kv + plan->kv_unsealed + room + sinks
                      ) +
                      "B";
            ASSERT_EQ(engine_.open(model_, all), WEIR_OK) << engine_.text();
            const weir_lower_tier_io io = { pwritev, faulty_read, nullptr, nullptr };
            weir_lower_tier_set_io(weir_kv_store_lower_tier(store()), &io);
        }
        /* What this test reads rows with is nothing that the engine has room for */
        const size_t no_caps[WEIR_TIER_COUNT] = {};
        ASSERT_EQ(weir_ledger_open(&ledger_, no_caps), WEIR_OK);
        ASSERT_EQ(
            weir_kv_evictor_open(
                &evictor_, store(), weir_engine_stream(engine_.get()), ledger_, engine_.error()
            ),
            WEIR_OK
        );
        ASSERT_EQ(
            weir_engine_policy_run_open(
                engine_.get(), &policy_run_, nullptr, 2, rows_, n_prompt_, chunk, engine_.error()
            ),
            WEIR_OK
        ) << engine_.text();
        weir_kv_holders holders = {};
        holders.running = running;
        holders.user = this;
        weir_runner_share(engine_.runner(), &holders);
    }
    void close()
    {
        sequences_.clear();
        weir_policy_run_close(policy_run_);
        weir_kv_evictor_close(evictor_);
        weir_ledger_close(ledger_);
        policy_run_ = nullptr;
        evictor_ = nullptr;
        ledger_ = nullptr;
        engine_.close();
    }
    void TearDown() override { close(); }
    static weir_kv_sequence *running(void *user, int32_t i)
    {
        const auto &all = static_cast<PolicyTiers *>(user)->sequences_;
        return static_cast<size_t>(i) < all.size() ? all[static_cast<size_t>(i)]->get() : nullptr;
    }
    weir_kv_store *store() { return weir_engine_store(engine_.get()); }

    static bool is_watched(int index) { return index != 1; }
    void begin()
    {
        for (int i = 0; i < n_sequences_; i++) {
            sequences_.push_back(std::make_unique<Sequence>(engine_));
            sequences_.back()->add(support::some_tokens(
                static_cast<size_t>(n_prompt_ + n_answer), 5 + i, engine_.n_vocab()
            ));
            if (is_watched(i))
                sequences_.back()->get()->policy_run =
                    weir_policy_run_begin(policy_run_, i / 2, n_prompt_, 0);
        }
    }
    bool is_on_disk(int index)
    {
        const weir_kv_table &table = sequences_[static_cast<size_t>(index)]->get()->table;
        return !table.is_pruned &&
               std::any_of(table.pages, table.pages + table.n_pages, [&](void *page) {
                   return weir_kv_is_cold(store(), page);
               });
    }
    std::vector<float> rows_of(const weir_kv_table &table)
    {
        const weir_kv_spec &spec = *weir_kv_store_spec(store());
        const weir_kv_geometry widest = weir_kv_widest(&spec);
        std::vector<float> all, k(static_cast<size_t>(WEIR_POLICY_TILE * widest.key_dim)),
            v(static_cast<size_t>(WEIR_POLICY_TILE * widest.value_dim));
        for (int64_t h = 0; h < table.n_heads; h++) {
            const int64_t layer = weir_kv_layer_of(&spec, h);
            const weir_kv_geometry &g = spec.geometry[layer];
            for (int64_t first = 0, n; first < weir_kv_rows_at(&table, h); first += n) {
                n = std::min<int64_t>(weir_kv_rows_at(&table, h) - first, WEIR_POLICY_TILE);
                const weir_policy_tile tile = { layer, h - g.first_head, first,
                                                n,     k.data(),         v.data() };
                EXPECT_EQ(weir_kv_read_rows(evictor_, &table, &tile, engine_.error()), WEIR_OK)
                    << engine_.text();
                all.insert(all.end(), k.begin(), k.begin() + n * g.key_dim);
                all.insert(all.end(), v.begin(), v.begin() + n * g.value_dim);
            }
        }
        return all;
    }
    /* What attention gave to each slot so far, to the bit: of rows that go, too. */
    static void remember(const weir_policy_sequence *sequence, std::vector<char> *states)
    {
        const size_t before = states->size();
        states->resize(before + weir_policy_run_saved_bytes(sequence));
        weir_policy_run_save(sequence, states->data() + before);
    }
    /* So that which blocks a step finds on disk does not depend on threads. */
    void end_moves()
    {
        weir_status status = WEIR_OK;
        while (weir_kv_moves_begun(store()) > 0)
            (void)weir_kv_moves_end(store(), true, &status, nullptr);
    }
    /* In the step at token `fails_at` the read number `fails_after` fails. */
    std::vector<Given> run(int fails_at = -1, int fails_after = 0)
    {
        std::vector<Given> given(static_cast<size_t>(n_sequences_));
        begin();
        for (int at = 0; at < n_prompt_ + n_answer;) {
            const int n =
                at < n_prompt_ ? std::min(n_sequences_ == 1 ? chunk : piece, n_prompt_ - at) : 1;
            std::vector<weir_batch_item> items;
            std::vector<int> whose;
            const float *logits = nullptr;
            for (int i = 0; i < n_sequences_; i++) {
                if (given[static_cast<size_t>(i)].failed) continue;
                items.push_back(
                    support::item_of(sequences_[static_cast<size_t>(i)].get(), n, WEIR_LOGITS_LAST)
                );
                whose.push_back(i);
                n_on_disk_[i] += at < n_prompt_ && is_on_disk(i);
            }
            if (at == fails_at) reads_until_failure = fails_after;
            EXPECT_EQ(
                weir_runner_step(
                    engine_.runner(), items.data(), static_cast<int32_t>(items.size()), &logits,
                    engine_.error()
                ),
                WEIR_OK
            ) << engine_.text();
            for (size_t w = 0; w < items.size(); w++)
                if (items[w].sequence->policy_run != nullptr && !items[w].failed)
                    remember(
                        items[w].sequence->policy_run, &given[static_cast<size_t>(whose[w])].states
                    );
            if (at == fails_at) reads_left_ = reads_until_failure;
            reads_until_failure = -1;
            for (size_t w = 0; w < items.size(); w++) {
                Given &one = given[static_cast<size_t>(whose[w])];
                one.failed = items[w].failed;
                const float *const first =
                    logits + static_cast<size_t>(items[w].first_logit) * engine_.n_vocab();
                if (!one.failed)
                    one.logits.insert(one.logits.end(), first, first + engine_.n_vocab());
                if (one.failed)
                    weir_kv_sequence_reset(sequences_[static_cast<size_t>(whose[w])]->get());
            }
            for (size_t w = 0; w < items.size(); w++)
                if (!items[w].failed)
                    EXPECT_EQ(
                        weir_runner_evict(engine_.runner(), items[w].sequence, engine_.error()),
                        WEIR_OK
                    ) << engine_.text();
            weir_runner_move(engine_.runner(), items.data(), static_cast<int32_t>(items.size()), 0);
            end_moves();
            EXPECT_TRUE(weir_kv_store_is_sound(store(), engine_.error())) << engine_.text();
            if (HasFailure()) return given;
            at += n;
        }
        for (size_t i = 0; i < given.size(); i++) {
            given[i].rows = rows_of(sequences_[i]->get()->table);
            given[i].n_rows = static_cast<int>(sequences_[i]->get()->table.n_rows);
        }
        return given;
    }
    template <typename T>
    static void expect_bits(
        const std::vector<T> &got, const std::vector<T> &want, const std::string &what
    )
    {
        ASSERT_EQ(got.size(), want.size()) << what;
        if (!want.empty())
            EXPECT_EQ(memcmp(got.data(), want.data(), want.size() * sizeof(T)), 0) << what;
    }
    static void expect_same(const Given &got, const Given &want, const std::string &what)
    {
        expect_bits(got.logits, want.logits, what + ": logits");
        expect_bits(got.states, want.states, what + ": what the policy remembers");
        expect_bits(got.rows, want.rows, what + ": rows");
    }

    Folder folder_;
    Settings settings_;
    std::string model_;
    Engine engine_;
    weir_ledger *ledger_ = nullptr;
    weir_kv_evictor *evictor_ = nullptr;
    weir_policy_run *policy_run_ = nullptr;
    std::vector<std::unique_ptr<Sequence>> sequences_;
    /* steps of its prompt that a sequence began with rows on disk */
    int n_on_disk_[n_sequences] = {};
    int reads_left_ = -1; /* -1: one failed */
    int n_sequences_ = n_sequences, n_prompt_ = n_prompt, rows_ = 1408;
};

TEST_F(PolicyTiers, OnDiskAsInMemory)
{
    for (size_t at = 0; at < std::size(cases); at += (size_t)weir_test::every_nth(3)) {
        const Case &c = cases[at];
        const std::string what = std::string(c.model) + " " + c.format + " " + c.policy;
        configure(c);
        open(0);
        ASSERT_FALSE(HasFatalFailure());
        const std::vector<Given> want = run();
        close();
        std::fill_n(n_on_disk_, n_sequences, 0);
        open(c.n_blocks);
        ASSERT_FALSE(HasFatalFailure());
        const std::vector<Given> got = run();
        EXPECT_GT(n_on_disk_[0], 3) << what << ": it was in memory";
        if (c.n_blocks == cases[0].n_blocks)
            EXPECT_GT(n_on_disk_[2], 1) << what << ": it was in memory";
        for (size_t i = 0; i < n_sequences; i++) {
            EXPECT_FALSE(got[i].failed) << what << ": " << weir_runner_problem(engine_.runner());
            expect_same(got[i], want[i], what + ", sequence " + std::to_string(i));
            EXPECT_EQ(sequences_[i]->get()->table.is_pruned, is_watched(static_cast<int>(i)))
                << what;
        }
        close();
        ASSERT_FALSE(HasFailure()) << what;
    }
}

/* Mass is found in parts. */
TEST_F(PolicyTiers, InManyRanges)
{
    n_sequences_ = 1;
    n_prompt_ = n_long;
    rows_ = n_long + 96;
    configure(cases[0]);
    open(0);
    ASSERT_FALSE(HasFatalFailure());
    const std::vector<Given> want = run();
    close();
    open(cases[0].n_blocks);
    ASSERT_FALSE(HasFatalFailure());
    const weir_kv_spec &spec = *weir_kv_store_spec(store());
    const size_t layer = weir_kv_layer_stride(&spec, 0);
    EXPECT_GT(
        (n_long / 64 - static_cast<size_t>(cases[0].n_blocks)) * layer,
        (n_ranges - 1) * weir_kv_prefetch_read_bytes(&spec)
    ) << "fewer ranges are enough";
    const std::vector<Given> got = run();
    expect_same(got[0], want[0], "in ranges");
    EXPECT_GT(n_on_disk_[0], 10);
}

/* Any one read, those for mass among them: one sequence fails, the others have their bits. */
TEST_F(PolicyTiers, AReadErrorFailsOneSequence)
{
    int n_failed[n_sequences] = {};
    configure(cases[0]);
    open(0);
    ASSERT_FALSE(HasFatalFailure());
    const std::vector<Given> want = run();
    close();
    constexpr int many = 1 << 20, n_places = 5, fails_at = n_prompt / piece * piece;
    int n_reads =
        0; /* of one step: of each of the sequences, and of two of them again, in both layers */
    for (int place = -1; place < n_places; place++) {
        open(cases[0].n_blocks);
        ASSERT_FALSE(HasFatalFailure());
        int failing =
            place < 0 ? many : (n_reads - 1) * place / (n_places - 1); /* the first to the last */
        std::vector<Given> got = run(fails_at, failing);
        if (place < 0) n_reads = many - reads_left_;
        /* A step that frees memory ends as many moves as the disk has done, so it may find a block
         * less there. */
        for (int tries = 0; place >= 0 && reads_left_ >= 0 && tries < 4; tries++) {
            failing -= reads_left_ + 1;
            close();
            open(cases[0].n_blocks);
            ASSERT_FALSE(HasFatalFailure());
            got = run(fails_at, failing);
        }
        int n = 0;
        for (size_t i = 0; i < n_sequences; i++) {
            n += got[i].failed;
            n_failed[i] += got[i].failed;
            if (got[i].failed) continue;
            expect_same(
                got[i], want[i],
                "read " + std::to_string(failing) + ", sequence " + std::to_string(i)
            );
        }
        EXPECT_EQ(n, place < 0 ? 0 : 1) << "read " << failing << " of " << n_reads;
        close();
        ASSERT_FALSE(HasFailure()) << "read " << failing;
    }
    EXPECT_GT(n_failed[0], 0);
    EXPECT_GT(n_failed[2], 0) << "the last read is its second one";
}

} // namespace
