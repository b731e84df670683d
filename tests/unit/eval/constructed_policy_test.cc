/* Policies on the constructed model: an answer is right exactly when every KV head still has the
 * row of the answer, whatever dropped the others, in whatever format and tier the rows are. Which
 * rows are there is read from the pages, not asked of the policy. */
#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "engine/kv/prune/evict.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/kv/tiers/residency.h"
#include "tests/unit/model/support.h"
#include "tools/eval/constructed.h"

namespace {

using support::Engine;
using support::Folder;
using support::Sequence;
using Ids = std::vector<int32_t>;

constexpr int32_t n_vocab = 4096, first_key = 64, first_value = 2048;
constexpr int length = 600, n_heads = 4, n_kv_heads = 2, n_layers = 2, second_layer = 1;

struct Pair {
    int32_t key, value;
    int place; /* of the value */
};

/* Keys and values among filling tokens, the last asked key once more at the end. */
struct Text {
    Ids tokens;
    std::vector<Pair> pairs;
};

Text text_of(unsigned seed, int n_pairs)
{
    std::mt19937 random(seed);
    Text text;
    for (int i = 0; i < length; i++)
        text.tokens.push_back(1 + static_cast<int32_t>(random() % (first_key - 1)));
    for (int i = 0; i < n_pairs; i++) {
        const Pair pair = { first_key + static_cast<int32_t>(random() % 30) + 60 * i,
                            first_value + static_cast<int32_t>(random() % 30) + 60 * i,
                            10 + i * ((length - 40) / n_pairs) };
        text.tokens[static_cast<size_t>(pair.place) - 1] = pair.key;
        text.tokens[static_cast<size_t>(pair.place)] = pair.value;
        text.pairs.push_back(pair);
    }
    return text;
}

using Row = std::vector<float>;

double cosine(const Row &a, const Row &b)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < a.size(); i++) {
        ab += static_cast<double>(a[i]) * static_cast<double>(b[i]);
        aa += static_cast<double>(a[i]) * static_cast<double>(a[i]);
        bb += static_cast<double>(b[i]) * static_cast<double>(b[i]);
    }
    return ab / std::sqrt(aa * bb + 1e-30);
}

class ConstructedPolicy : public ::testing::Test {
  protected:
    support::Settings settings_of(const support::Settings &more, const std::string &memory) const
    {
        support::Settings all = {
            "memory.host=" + memory, "model.context=1024", "batch.chunk=64",
            "batch.max_sequences=2", "kv.reuse=off",       "kernels.threads=1"
        }; /* threads would mostly wait */
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    void SetUp() override
    {
        const weir_constructed model = { n_vocab, n_heads, n_kv_heads, 65536, 0 };
        weir_error error = {};
        ASSERT_EQ(weir_constructed_write(folder_.path().c_str(), &model, &error), WEIR_OK)
            << error.text;
    }
    void open(const support::Settings &more, const std::string &memory = "256MiB")
    {
        ASSERT_EQ(engine_.open(folder_.path(), settings_of(more, memory)), WEIR_OK)
            << engine_.text();
        /* What this test reads rows with is nothing that the engine has room for */
        const size_t no_caps[WEIR_TIER_COUNT] = {};
        ASSERT_EQ(weir_ledger_open(&ledger_, no_caps), WEIR_OK);
        ASSERT_EQ(
            weir_kv_evictor_open(
                &evictor_, weir_engine_store(engine_.get()), weir_engine_stream(engine_.get()),
                ledger_, engine_.error()
            ),
            WEIR_OK
        );
    }
    /* Memory for half of the blocks of the two texts of a check, a disk for the others. */
    void open_with_disk(support::Settings more)
    {
        const int64_t n_blocks = 20, n_in_memory = 10;
        more.insert(
            more.end(),
            { "memory.disk_dir=" + folder_.path(), "kv.tiers.hot=1", "memory.disk=64MiB" }
        );
        ASSERT_EQ(engine_.plan(folder_.path(), settings_of(more, "256MiB")), WEIR_OK)
            << engine_.text();
        const int64_t block = 64 * engine_.planned().facts.kv_bytes_per_token;
        more.back() = "memory.disk=" + std::to_string(2 * n_blocks * block) +
                      "B"; /* not more, for its metadata takes memory */
        ASSERT_EQ(engine_.plan(folder_.path(), settings_of(more, "256MiB")), WEIR_OK)
            << engine_.text();
        const weir_plan &plan = engine_.planned();
        const size_t host = weir_plan_total(&plan) - plan.kv + plan.kv_unsealed +
                            static_cast<size_t>(n_in_memory * block);
        open(more, std::to_string(host) + "B");
        weir_kv_holders holders = {};
        holders.running = running;
        holders.user = this;
        weir_runner_share(engine_.runner(), &holders);
        n_kept_in_memory_ = n_in_memory * n_layers * n_kv_heads;
    }
    /* The texts of a check, of which the engine moves blocks. */
    static weir_kv_sequence *running(void *user, int32_t i)
    {
        const ConstructedPolicy *const self = static_cast<const ConstructedPolicy *>(user);
        return static_cast<size_t>(i) < self->running_.size()
                   ? self->running_[static_cast<size_t>(i)]
                   : nullptr;
    }
    void close()
    {
        running_.clear();
        weir_kv_evictor_close(evictor_);
        evictor_ = nullptr;
        weir_ledger_close(ledger_);
        ledger_ = nullptr;
        engine_.close();
    }
    void TearDown() override { close(); }

    /* Values of the second layer's rows of one head. */
    std::vector<Row> rows_of(const weir_kv_sequence *sequence, int64_t head)
    {
        const int64_t n = weir_kv_rows_at(&sequence->table, second_layer * n_kv_heads + head);
        std::vector<Row> rows;
        Row values(WEIR_POLICY_TILE * WEIR_CONSTRUCTED_HEAD);
        for (int64_t first = 0; first < n; first += WEIR_POLICY_TILE) {
            const int64_t n_here = std::min<int64_t>(n - first, WEIR_POLICY_TILE);
            const weir_policy_tile tile = { second_layer, head,    first,
                                            n_here,       nullptr, values.data() };
            EXPECT_EQ(
                weir_kv_read_rows(evictor_, &sequence->table, &tile, engine_.error()), WEIR_OK
            ) << engine_.text();
            for (auto at = values.begin(); rows.size() < static_cast<size_t>(first + n_here);
                 at += WEIR_CONSTRUCTED_HEAD)
                rows.emplace_back(at, at + WEIR_CONSTRUCTED_HEAD);
        }
        return rows;
    }
    /* The likeliest token after these, which go on after the sequence. */
    int32_t follow(weir_kv_sequence *sequence, const Ids &tokens)
    {
        weir_evaluation evaluation = {};
        evaluation.tokens = tokens.data();
        evaluation.n_tokens = static_cast<int32_t>(tokens.size());
        evaluation.chunk = 64;
        evaluation.decode_from = INT32_MAX;
        EXPECT_EQ(weir_evaluate(engine_.runner(), sequence, &evaluation, engine_.error()), WEIR_OK)
            << engine_.text();
        return evaluation.last != nullptr
                   ? static_cast<int32_t>(support::best(evaluation.last, engine_.n_vocab()))
                   : -1;
    }
    /* Asks for every pair after a sequence that lost rows; returns how many rows of values were
     * still there. */
    int check(const std::string &what, const Text &text, bool is_asked_before)
    {
        std::optional<Sequence> full(std::in_place, engine_);
        Sequence cut(engine_);
        Ids prompt = text.tokens;
        running_ = { full->get(), cut.get() };
        if (is_asked_before) prompt.push_back(text.pairs[1].key);
        (void)follow(full->get(), prompt);
        weir_policy_run *policy_run = nullptr;
        EXPECT_EQ(
            weir_engine_policy_run_open(
                engine_.get(), &policy_run, nullptr, 1, 1024, static_cast<int32_t>(prompt.size()),
                64, engine_.error()
            ),
            WEIR_OK
        ) << what
          << ": " << engine_.text();
        if (policy_run == nullptr) return 0;
        cut.get()->policy_run =
            weir_policy_run_begin(policy_run, 0, static_cast<int32_t>(prompt.size()), 0);
        (void)follow(cut.get(), prompt);
        const weir_kv_residency moved = weir_kv_residency_of(weir_engine_store(engine_.get()));
        std::vector<int> kept(text.pairs.size(), 0);
        for (int64_t head = 0; head < n_kv_heads; head++) {
            const std::vector<Row> all = rows_of(full->get(), head),
                                   left = rows_of(cut.get(), head);
            for (size_t i = 0; i < text.pairs.size(); i++) {
                const Row &wanted = all[static_cast<size_t>(text.pairs[i].place)];
                kept[i] += std::any_of(left.begin(), left.end(), [&](const Row &row) {
                    return cosine(row, wanted) > 0.9;
                });
            }
        }
        EXPECT_TRUE(cut.get()->table.is_pruned) << what;
        if (n_kept_in_memory_ > 0) {
            EXPECT_GT(moved.pages_cold, 0) << what;
            EXPECT_GT(moved.bytes_read, 0) << what << ": attention did not read from the disk";
            EXPECT_LE(moved.pages_in_memory, n_kept_in_memory_) << what;
        }
        running_.clear();
        full.reset();
        int n_kept = 0;
        for (size_t i = 0; i < text.pairs.size();
             i++) { /* each on its own fork: what is asked must not push out what comes later */
            n_kept += kept[i] == n_kv_heads;
            if (is_asked_before && i == 1)
                continue; /* a key that was asked for is twice in the text */
            Sequence asks(engine_);
            EXPECT_EQ(weir_kv_sequence_fork(asks.get(), cut.get()), WEIR_OK);
            const int32_t best = follow(asks.get(), { text.pairs[i].key });
            EXPECT_EQ(best == text.pairs[i].value, kept[i] == n_kv_heads)
                << what << ": pair " << i << ", in " << kept[i] << " heads, answer " << best
                << " for " << text.pairs[i].value;
        }
        if (is_asked_before)
            EXPECT_EQ(kept[1], n_kv_heads)
                << what << ": all attention of the last token was on this row";
        weir_kv_sequence_clear(cut.get());
        weir_policy_run_close(policy_run);
        return n_kept;
    }
    Folder folder_;
    Engine engine_;
    weir_kv_evictor *evictor_ = nullptr;
    weir_ledger *ledger_ = nullptr;
    std::vector<weir_kv_sequence *> running_;
    int64_t n_kept_in_memory_ = 0; /* pages; 0: there is no disk */
};

const char *const all_formats[] = { "f32",   "f16",   "bf16",     "q8_0",
                                    "q4_0",  "int8",  "fp8_e4m3", "fp8_e5m2",
                                    "kivi8", "kivi4", "turbo4",   "q8_0/turbo4" };

/* The model's first layer reads the row before each token: the latest rows stay. */
struct Method {
    const char *name, *options;
    bool sees_attention; /* keeps the row that the last token of the prompt asked for */
};
const Method methods[] = {
    { "sinks", "sinks=20", false },
    { "h2o", "recent=8,every=1", false },
    { "scissorhands", "recent=8,history=64,every=1", false },
    { "snapkv", "window=8,kernel=1", true },
    { "rkv", "window=8,recent=8,lambda=1,every=1", true },
    { "tova", "recent=4", true },
    { "keydiff", "recent=4,every=1", false },
    { "knorm", "recent=4,every=1", false },
    { "expected", "recent=4,every=1", false },
    { "lagkv", "lag=16", false },
    { "landmarks", "recent=4,every=1", false },
    { "random", "recent=4,every=1", false },
    { "duo", "sinks=4,recent=80,heads=1:0", false },
};

TEST_F(ConstructedPolicy, AnswersAreRightExactlyWhereTheRowIsThere)
{
    int n_kept = 0, n_asked = 0;
    for (const Method &method : methods) {
        open({ std::string("kv.policy.name=") + method.name, "kv.policy.budget=96",
               std::string("kv.policy.options=") + method.options });
        for (unsigned seed = 1; seed <= 2; seed++) {
            const Text text = text_of(seed, 16);
            n_kept += check(method.name, text, method.sees_attention);
            n_asked += 16;
        }
        close();
    }
    EXPECT_GT(n_kept, n_asked / 50) << "some rows stay";
    EXPECT_LT(n_kept, n_asked * 3 / 4) << "some go";
}

TEST_F(ConstructedPolicy, InEveryFormat)
{
    for (const char *const format : all_formats)
        for (const Method &method : { methods[0], methods[3], methods[11] }) {
            open({ std::string("kv.policy.name=") + method.name, "kv.policy.budget=96",
                   std::string("kv.policy.options=") + method.options,
                   std::string("kv.format=") + format });
            (void
            )check(std::string(format) + " " + method.name, text_of(7, 12), method.sees_attention);
            close();
        }
}

TEST_F(ConstructedPolicy, OfPromptsThatAreEvictedFromAsTheyCome)
{
    for (const Method &method : methods) {
        if (method.name == std::string("duo")) continue;
        open({ std::string("kv.policy.name=") + method.name, "kv.policy.budget=96",
               std::string("kv.policy.options=") + method.options +
                   (method.options[0] != '\0' ? "," : "") + "in_prompt=true" });
        (void)check(std::string(method.name) + " in_prompt", text_of(3, 16), false);
        close();
    }
}

/* Most of a prompt on disk when it is evicted from: the same rows stay as with memory for all. */
TEST_F(ConstructedPolicy, OnDiskAsInMemory)
{
    for (const Method &method : methods) {
        const support::Settings settings = { std::string("kv.policy.name=") + method.name,
                                             "kv.policy.budget=96",
                                             std::string("kv.policy.options=") + method.options };
        int n_kept[2];
        for (const bool has_disk : { false, true }) {
            n_kept_in_memory_ = 0;
            if (has_disk)
                open_with_disk(settings);
            else
                open(settings);
            n_kept[has_disk] = check(
                std::string(method.name) + (has_disk ? " on disk" : ""), text_of(5, 16),
                method.sees_attention
            );
            close();
        }
        EXPECT_EQ(n_kept[0], n_kept[1]) << method.name;
    }
}

TEST_F(ConstructedPolicy, OnDiskInEveryFormat)
{
    for (const char *const format : all_formats)
        for (const Method &method : { methods[0], methods[1], methods[3] }) {
            open_with_disk({ std::string("kv.policy.name=") + method.name, "kv.policy.budget=96",
                             std::string("kv.policy.options=") + method.options,
                             std::string("kv.format=") + format });
            (void)check(
                std::string(format) + " on disk " + method.name, text_of(7, 12),
                method.sees_attention
            );
            close();
        }
}

} // namespace
