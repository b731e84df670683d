/* Memory for a fraction of the KV pages, the rest on disk: the same bits as with memory for all of
 * them, however sequences are cut and mixed. */
#include <algorithm>

#include "engine/engine_parts.h"
#include "engine/kv/tiers/residency.h"
#include "tests/unit/model/coda.h"

namespace {

using support::Engine;
using support::Folder;
using support::Sequence;
using support::Settings;

struct Case {
    const char *model, *format;
    int n_tokens, n_sequences, n_sinks = 0;
};
std::ostream &operator<<(std::ostream &out, const Case &c)
{
    return out << c.model << ' ' << c.format << ' ' << c.n_sinks;
}

/* Three sequences of unequal length, computed in pieces of unequal length side by side; the logits
 * of the last rows of each. */
class Sequences {
  public:
    Sequences(Engine &engine, const Case &c) : engine_(engine)
    {
        for (int i = 0; i < c.n_sequences; i++) {
            sequences_.push_back(std::make_unique<Sequence>(engine));
            const int n = i == 0 ? c.n_tokens : c.n_tokens / (i + 1) + 13 * i;
            sequences_.back()->add(support::some_tokens((size_t)n, 3 + i, engine.n_vocab()));
        }
        logits_.resize(sequences_.size());
        weir_kv_holders holders = {};
        holders.running = running;
        holders.user = this;
        weir_runner_share(engine.runner(), &holders);
    }
    ~Sequences()
    {
        const weir_kv_holders none = {};
        weir_runner_share(engine_.runner(), &none);
    }
    static weir_kv_sequence *running(void *user, int32_t i)
    {
        const auto &all = static_cast<Sequences *>(user)->sequences_;
        return (size_t)i < all.size() ? all[(size_t)i]->get() : nullptr;
    }
    void compute(int chunk, int n_single)
    {
        for (int step = 0;; step++) {
            std::vector<weir_batch_item> items;
            std::vector<size_t> which;
            int rows = 0;
            for (size_t i = 0; i < sequences_.size(); i++) {
                const weir_kv_sequence *const s = sequences_[i]->get();
                const int left = s->n_tokens - s->n_computed;
                if (left == 0 || (step + (int)i) % 3 == 2) continue;
                const int piece =
                    left <= n_single
                        ? 1
                        : std::min({ left - n_single, chunk - rows, i == 0 ? chunk : 29 });
                if (piece < 1) continue;
                items.push_back(support::item_of(
                    sequences_[i].get(), piece,
                    left <= n_single + 1 ? WEIR_LOGITS_ALL : WEIR_LOGITS_LAST
                ));
                if (piece > 64) items.back().wanted = WEIR_LOGITS_LAST;
                which.push_back(i);
                rows += piece;
            }
            if (items.empty()) {
                bool all = true;
                for (const auto &s : sequences_)
                    all = all && s->get()->n_tokens == s->get()->n_computed;
                if (all) return;
                continue;
            }
            const float *logits = nullptr;
            ASSERT_EQ(
                weir_runner_step(
                    engine_.runner(), items.data(), (int32_t)items.size(), &logits, engine_.error()
                ),
                WEIR_OK
            ) << engine_.text();
            for (size_t w = 0; w < items.size(); w++) {
                const float *const first =
                    logits + (size_t)items[w].first_logit * engine_.n_vocab();
                const size_t n = items[w].wanted == WEIR_LOGITS_ALL ? (size_t)items[w].n_rows : 1;
                logits_[which[w]].insert(
                    logits_[which[w]].end(), first, first + n * engine_.n_vocab()
                );
            }
            weir_runner_move(engine_.runner(), items.data(), (int32_t)items.size(), 0);
            weir_kv_store *const store = weir_engine_store(engine_.get());
            ASSERT_TRUE(weir_kv_store_is_sound(store, engine_.error())) << engine_.text();
            for (const auto &s : sequences_)
                ASSERT_TRUE(weir_kv_table_is_sound(store, &s->get()->table, engine_.error()))
                    << engine_.text();
        }
    }
    const std::vector<std::vector<float>> &logits() const { return logits_; }
    weir_kv_sequence *sequence(size_t i) { return sequences_[i]->get(); }

  private:
    Engine &engine_;
    std::vector<std::unique_ptr<Sequence>> sequences_;
    std::vector<std::vector<float>> logits_;
};

/* A golden model, or Llama with differential attention, which asks twice as many queries. */
std::string path_of(const Case &c)
{
    return strcmp(c.model, "differential") == 0 ? ::testing::TempDir() + "/differential"
                                                : support::golden(c.model);
}

Settings base(const Case &c)
{
    return { "model.arch_dir=" +
                 (strcmp(c.model, "differential") == 0 ? path_of(c) + "/archs" : ""),
             "kernels.activations=f32",
             "kv.full_windows=true", /* all blocks can move */
             "batch.chunk=128",
             "kv.tiers.hot=1",
             std::string("kv.format=") + c.format,
             "kv.wide_sinks=" + std::to_string(c.n_sinks),
             "batch.max_sequences=" + std::to_string(c.n_sequences),
             "model.context=" + std::to_string((c.n_tokens + 63) / 64 * 64) };
}

/* Opens it with memory for about `share` of the blocks that all sequences at full length take. */
void open_small(
    Engine &engine, const Case &c, const std::string &folder, double share, int64_t least_blocks
)
{
    Settings settings = base(c);
    settings.insert(
        settings.end(), { "memory.disk=64MiB", "memory.disk_dir=" + folder, "memory.host=1GiB" }
    );
    ASSERT_EQ(engine.open(path_of(c), settings), WEIR_OK) << engine.text();
    const int64_t block = 64 * weir_engine_plan_of(engine.get())->facts.kv_bytes_per_token,
                  full = (c.n_tokens + 63) / 64 * c.n_sequences;
    settings[settings.size() - 3] = "memory.disk=" + std::to_string(full * block) +
                                    "B"; /* not more, for its metadata takes memory */
    ASSERT_EQ(engine.open(path_of(c), settings), WEIR_OK) << engine.text();
    const weir_plan *const plan = weir_engine_plan_of(engine.get());
    const int64_t blocks = std::max((int64_t)((double)full * share), least_blocks);
    const size_t sinks = (size_t)(c.n_sequences + 1 + blocks / 32) *
                         (size_t)(plan->facts.sink_tokens * plan->facts.kv_bytes_per_sink);
    const size_t host =
        weir_plan_total(plan) - plan->kv + plan->kv_unsealed + (size_t)(blocks * block) + sinks;
    settings.back() = "memory.host=" + std::to_string(host) + "B";
    ASSERT_EQ(engine.open(path_of(c), settings), WEIR_OK) << engine.text();
    const weir_plan *const small = weir_engine_plan_of(engine.get());
    EXPECT_LE(weir_ledger_peak(weir_engine_ledger(engine.get()), WEIR_TIER_HOST), host);
    EXPECT_LT(small->kv - small->kv_unsealed - sinks, (size_t)(full * block) * 2 / 3)
        << "nothing will be tested";
}

class Tiers : public ::testing::TestWithParam<Case> {};

TEST_P(Tiers, GiveTheBitsOfMemory)
{
    const Case c = GetParam();
    const Folder folder, model("differential");
    Engine engine;
    Settings ignored;
    support::write_coda(
        model, "\"coda\"",
        "[block.coda]\nmixer = \"differential_attention\"\nrope = "
        "\"half_split\"\nlambda_bias = -1\n",
        &ignored
    );
    ASSERT_EQ(engine.open(path_of(c), base(c)), WEIR_OK) << engine.text();
    std::vector<std::vector<float>> want;
    {
        Sequences texts(engine, c);
        texts.compute(128, 40);
        want = texts.logits();
    }
    open_small(engine, c, folder.path(), 0.25, 5 * c.n_sequences + 4);
    {
        Sequences texts(engine, c);
        texts.compute(128, 40);
        for (size_t i = 0; i < want.size(); i++) {
            ASSERT_EQ(texts.logits()[i].size(), want[i].size());
            EXPECT_EQ(
                memcmp(texts.logits()[i].data(), want[i].data(), want[i].size() * sizeof(float)), 0
            ) << "text "
              << i;
        }
        const weir_kv_residency moved = weir_kv_residency_of(weir_engine_store(engine.get()));
        EXPECT_GT(moved.pages_cold, 0);
        if (strcmp(c.model, "mistral") == 0)
            EXPECT_EQ(moved.bytes_read, 0) << "its window ends before them";
        else
            EXPECT_GT(moved.bytes_read, moved.bytes_out) << "attention did not read from the disk";
        const weir_engine_facts &facts = weir_engine_plan_of(engine.get())->facts;
        EXPECT_LE(moved.pages_in_memory, facts.kv_pages.n - facts.kv_pages.n_disk);
        EXPECT_EQ(facts.kv_page_alignment, 4096);
        EXPECT_EQ(facts.kv_page_bytes % facts.kv_page_alignment, 0);
    }
    engine.close();
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Tiers,
    ::testing::Values(
        Case{ "qwen3", "f16", 1500, 3 }, Case{ "qwen3", "f32", 4000, 1 },
        Case{ "tq", "f16", 1500, 3 }, Case{ "mistral", "f16", 1500, 2 },
        Case{ "qwen3", "bf16", 1100, 2 }, Case{ "qwen3", "q8_0", 1100, 2 },
        Case{ "qwen3", "q4_0", 1100, 2 }, Case{ "qwen3", "int8", 1100, 2 },
        Case{ "qwen3", "fp8_e4m3", 1100, 2 }, Case{ "qwen3", "fp8_e5m2", 1100, 2 },
        Case{ "qwen3", "kivi2", 1100, 2 }, Case{ "qwen3", "kivi4/turbo3", 1100, 2 },
        Case{ "tq", "q8_0/kivi8", 1100, 2 }, Case{ "tq", "turbo2", 1100, 2 },
        Case{ "tq", "turbo4", 1100, 2 }, Case{ "qwen3", "turbo4", 1500, 3, 128 },
        Case{ "tq", "q8_0", 1100, 2, 64 }, Case{ "qwen3", "kivi4", 1100, 2, 100 },
        Case{ "deepseek3", "f16", 1500, 3 }, Case{ "deepseek3", "int8", 1100, 2 },
        Case{ "deepseek3", "f16", 1100, 2, 64 }, Case{ "differential", "f16", 1500, 3 },
        Case{ "differential", "kivi4/turbo3", 1100, 2 },
        Case{ "../families/gemma4", "f16", 1500, 3 },
        Case{ "../families/gemma4", "fp8_e4m3", 1100, 2, 64 },
        Case{ "../families/gemma4-moe", "int8", 1100, 2 },
        Case{ "../families/kimi-linear", "q8_0", 1100, 2 }
    )
);

/* A plan that could not keep running sequences going is refused with the arithmetic. */
TEST(TierPlan, MemoryHoldsWhatMustBeHot)
{
    const Folder folder;
    const Case c = { "qwen3", "f16", 4096, 4 };
    Engine engine;
    Settings settings = base(c);
    settings.insert(
        settings.end(), { "kv.policy.kept=0", "memory.disk=2MiB",
                          "memory.disk_dir=" + folder.path(), "memory.host=1GiB" }
    );
    ASSERT_EQ(engine.open(path_of(c), settings, true), WEIR_OK) << engine.text();
    const weir_plan *const plan = weir_engine_plan_of(engine.get());
    EXPECT_EQ(
        plan->kv_disk,
        (size_t)(plan->facts.kv_pages.n_disk / 4 * 64 * plan->facts.kv_bytes_per_token)
    );
    EXPECT_LE(plan->kv_disk, (size_t)2 << 20);
    const auto used = [&](weir_account account) {
        return weir_ledger_used(weir_engine_ledger(engine.get()), WEIR_TIER_HOST, account);
    };
    EXPECT_EQ(used(WEIR_ACCOUNT_KV), plan->kv);
    EXPECT_EQ(used(WEIR_ACCOUNT_ACTIVATIONS), plan->activations);
    EXPECT_EQ(used(WEIR_ACCOUNT_PAGE_TABLES), plan->page_tables);
    EXPECT_EQ(used(WEIR_ACCOUNT_TOKENS), plan->tokens);
    EXPECT_FALSE(plan->disk_is_limited);
    weir_buffer printed = {};
    ASSERT_EQ(weir_plan_print(plan, &printed), WEIR_OK);
    EXPECT_EQ(strstr(printed.data, "metadata of more pages"), nullptr) << printed.data;
    weir_buffer_free(&printed);
    const size_t host =
        weir_plan_total(plan) - plan->kv + (size_t)(12 * 64 * plan->facts.kv_bytes_per_token);
    settings.back() = "memory.host=" + std::to_string(host) + "B";
    EXPECT_EQ(engine.open(path_of(c), settings, true), WEIR_EFULL);
    EXPECT_NE(strstr(engine.text(), "kv.tiers.hot"), nullptr) << engine.text();
    settings.back() = "memory.host=1GiB";
    std::vector<std::string> little(settings.begin(), settings.end() - 1);
    little.insert(
        little.end(),
        { "memory.host=" + std::to_string(host + (8 << 20)) + "B", "memory.disk=64GiB" }
    );
    ASSERT_EQ(engine.open(path_of(c), little, true), WEIR_OK) << engine.text();
    EXPECT_TRUE(weir_engine_plan_of(engine.get())->disk_is_limited);
    ASSERT_EQ(weir_plan_print(weir_engine_plan_of(engine.get()), &printed), WEIR_OK);
    EXPECT_NE(strstr(printed.data, "metadata of more pages"), nullptr) << printed.data;
    weir_buffer_free(&printed);
    settings.push_back("memory.disk=1000B");
    EXPECT_EQ(engine.plan(path_of(c), settings), WEIR_EFULL);
    EXPECT_NE(strstr(engine.text(), "memory.disk = 1000B holds no KV pages"), nullptr)
        << engine.text();
}

} // namespace
