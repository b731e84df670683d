// Thousands of random schedules, each from a seed. WEIR_SIMULATIONS: how many of each model (8 by
// default, 2 with a sanitizer in .ci/run, 10000 in a long run); WEIR_SIMULATION_SEED: the first of
// them.
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "engine/kv/pool/store.h"
#include "tests/every_nth.h"
#include "tests/unit/model/windowed.h"
#include "tests/unit/schedule/simulation.h"

namespace {

using support::Schedule;
using support::SimulatedTurn;

enum { SLOTS = 6, WINDOW = 512, N_JOBS = 40 };

int64_t from_environment(const char *name, int64_t otherwise)
{
    const char *const text = getenv(name);
    return text != nullptr ? atoll(text) : otherwise;
}

int64_t simulations() { return from_environment("WEIR_SIMULATIONS", 8 / weir_test::every_nth(4)); }
int64_t simulations_of_demo() { return std::max<int64_t>(simulations() / 8, 1); }

class Simulation : public support::Service {
  protected:
    void SetUp() override
    {
        ASSERT_EQ(weir_policy_options_default(&policy_, "h2o", &error_), WEIR_OK);
        folder_ = ::testing::TempDir() + "/simulation." + std::to_string(getpid());
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_ + "/tier");
    }
    void TearDown() override
    {
        stop();
        std::filesystem::remove_all(folder_);
    }
    static bool has_head(const char *model) { return strstr(model, "mtp/") != nullptr; }
    void start(const char *model, const char *memory, bool with_files, bool drafts)
    {
        settings_ = { "batch.chunk=512", "memory.snapshots=256KiB", "kv.policy.kept=0",
                      has_head(model) ? "speculation.match=64" : "speculation.match=1" };
        if (drafts) settings_.push_back("speculation.method=ngram");
        if (drafts && has_head(model)) settings_.push_back("speculation.mtp=on");
        if (strstr(model, "gemma") != nullptr || strchr(model, ':') != nullptr)
            settings_.push_back("batch.chunk=64");
        if (with_files) {
            settings_.push_back("sessions.dir=" + folder_ + "/sessions");
            settings_.push_back("memory.disk_dir=" + folder_ + "/tier");
            settings_.push_back("memory.disk=64MiB");
            settings_.push_back("memory.snapshots=4MiB"); /* some of each model's states */
        }
        with_server_ = with_files; /* which has threads for them */
        if (const char *const colon = strchr(model, ':')) {
            model_ = std::make_unique<support::Folder>("simulated-model");
            std::vector<std::string> pattern;
            for (const char *at = model; at < colon; at++)
                pattern.push_back(*at == 'w' ? "window" : "whole");
            support::write_windowed(*model_, pattern, std::stoi(colon + 1), &settings_);
            settings_.push_back("model.path=" + model_->path());
            model = "mistral";
        }
        open(model, SLOTS, memory, WINDOW, 24);
    }
    void end()
    {
        stop();
        service_ = nullptr;
    }
    /* Prompts of many lengths, some with a common beginning; with policies every fourth is cut. */
    void make_turns(bool with_policies)
    {
        turns_.clear();
        for (int i = 0; i < 20; i++) {
            SimulatedTurn turn;
            turn.prompt = prompt(i % 5, 3 + 23 * i);
            const auto own = prompt(30 + i, i % 4 * 7);
            turn.prompt.insert(turn.prompt.end(), own.begin(), own.end());
            if (with_policies && i % 4 == 3) turn.policy = &policy_, turn.budget = 96;
            turn.is_narrow = i % 3 == 1;
            turns_.push_back(turn);
        }
    }
    /* What each turn gives alone, in a service with memory for all. */
    void read_alone(const char *model, bool together = false)
    {
        start(model, nullptr, together, false);
        weir_plan plan; /* with drafts */
        ASSERT_EQ(weir_config_set(&config_, "speculation.method", "ngram", &error_), WEIR_OK);
        const char *const mtp = has_head(model) ? "on" : "off";
        ASSERT_EQ(weir_config_set(&config_, "speculation.mtp", mtp, &error_), WEIR_OK);
        const weir_engine_options options = { &config_, true,    with_server_,
                                              nullptr,  nullptr, nullptr };
        ASSERT_EQ(weir_engine_plan(&plan, &options, &error_), WEIR_OK) << error_.text;
        has_windows_ = least_windows() > 0;
        fixed_ = weir_plan_total(&plan) - plan.kv - plan.kv_windows + least_windows();
        window_ = plan.kv / SLOTS;
        if (model_ != nullptr) least_ = least_memory();
        make_turns(together);
        for (SimulatedTurn &turn : turns_) {
            struct Told {
                support::Call call;
                SimulatedTurn *turn;
                size_t n_vocab;
            } told = { support::Call(turn.prompt, support::SIMULATED_TOKENS), &turn,
                       (size_t)weir_service_facts_of(service_)->n_vocab };
            told.call.request.want_logprobs = told.call.request.ignore_eos = true;
            told.call.request.want_logits = true;
            told.call.request.n_top_logprobs = WEIR_TOP_LOGPROBS;
            told.call.request.policy = turn.policy;
            told.call.request.kv_budget = turn.budget;
            support::narrow(&told.call.request, turn);
            told.call.request.user = &told;
            told.call.request.callback = [](void *user, const weir_event *event) {
                Told *const t = (Told *)user;
                if (event->type == WEIR_EVENT_TOKEN)
                    t->turn->answer.push_back(support::bytes_of(event));
                if (event->type == WEIR_EVENT_LOGITS)
                    t->turn->logits = support::hash_of(event->logits, t->n_vocab);
                return support::Call::on_event(&t->call, event);
            };
            (void)answer(told.call);
            ASSERT_EQ(turn.answer.size(), (size_t)support::SIMULATED_TOKENS);
            ASSERT_NE(turn.logits, 0u);
        }
        end();
    }
    /* Window blocks that the engine has in any case, in bytes. */
    size_t least_windows() const
    {
        const weir_kv_windows *const windows = weir_kv_store_windows(weir_engine_store(engine_));
        if (windows == nullptr) return 0;
        const weir_kv_windows_spec *const spec = weir_kv_windows_spec_of(windows);
        return (size_t)weir_kv_windows_needed(spec, SLOTS, 0, 1) *
               weir_kv_windows_block_bytes(spec);
    }
    /* With which a plan with windows fits. */
    size_t least_memory()
    {
        size_t least = 0, most = 64 << 20;
        const weir_engine_options options = { &config_, true,    with_server_,
                                              nullptr,  nullptr, nullptr };
        while (most - least > 4096) {
            weir_plan plan = {};
            const std::string half = std::to_string((least + most) / 2) + "B";
            EXPECT_EQ(weir_config_set(&config_, "memory.host", half.c_str(), &error_), WEIR_OK);
            const bool fits = weir_engine_plan(&plan, &options, &error_) == WEIR_OK &&
                              plan.facts.n_window_blocks > 0;
            (fits ? most : least) = (least + most) / 2;
        }
        return most;
    }
    void play(const char *model, unsigned seed, bool together = false)
    {
        SCOPED_TRACE(std::string(model) + ", WEIR_SIMULATION_SEED=" + std::to_string(seed));
        /* Memory for all windows, or for between 1 and 3 of them. */
        const size_t few = has_windows_ ? 6 : 5 + seed % 7, /* else no window is dropped */
            part = seed % 4 == 0 ? 4 * SLOTS : few;
        const size_t bytes =
            model_ != nullptr ? least_ + seed % 4 * (64 << 10) : fixed_ + window_ * part / 4;
        const std::string memory = std::to_string(bytes) + "B";
        start(model, memory.c_str(), together, seed % 4 < 3);
        ASSERT_NE(engine_, nullptr);
        EXPECT_EQ(least_windows() > 0, has_windows_);
        Schedule schedule(
            service_, turns_, seed, N_JOBS, together ? weir_engine_sessions(engine_) : nullptr
        );
        schedule.run();
        check_end();
        n_tokens_ += schedule.n_tokens();
        n_cancelled_ += schedule.n_cancelled();
        n_gaps_ += schedule.n_gaps();
        n_together_ += schedule.n_together();
        n_backfilled_ += schedule.n_backfilled();
        n_saved_ += schedule.n_saved();
        n_restored_ += schedule.n_restored();
        trace_ = schedule.trace();
        n_preempted_ += schedule.n_victims();
        n_cached_ += stats().cached_tokens;
        n_evicted_ += stats().evicted_tokens;
        n_accepted_ += stats().accepted_tokens;
        n_bytes_out_ += stats().kv_bytes_out;
        n_windows_out_ += stats().window_blocks_out;
        end();
    }
    void check_end()
    {
        for (int i = 0; i < 2000 && stats().running + stats().waiting > 0; i++)
            std::this_thread::sleep_for(std::chrono::milliseconds(1)); /* after the last event */
        EXPECT_EQ(pages_used_when_idle(), 0) << "pages leaked";
        EXPECT_EQ(stats().running + stats().waiting, 0);
        const weir_plan *const plan = weir_engine_plan_of(engine_);
        if (plan->kv_disk == 0) EXPECT_EQ(stats().kv_tokens_free, plan->kv_rows);
        weir_ledger_state state;
        weir_ledger_read(weir_engine_ledger(engine_), &state);
        for (const weir_tier tier : { WEIR_TIER_HOST, WEIR_TIER_DISK })
            EXPECT_LE(state.peak[tier], state.cap[tier]) << weir_tier_name(tier);
    }
    void play_all(const char *model, int64_t n)
    {
        read_alone(model);
        const int64_t first = from_environment("WEIR_SIMULATION_SEED", 1);
        for (int64_t i = 0; i < n && !HasFailure(); i++) play(model, (unsigned)(first + i));
        if (n < 8 || HasFailure()) return; /* a replay, or fewer than n */
        EXPECT_GT(n_preempted_, has_windows_ ? 0 : n / 2);
        EXPECT_GT(n_cancelled_, n);
        EXPECT_GT(n_cached_, 50 * n);
        EXPECT_GT(n_gaps_, 100 * n);
        EXPECT_GT(n_together_, 10 * n);
        EXPECT_GT(n_backfilled_, n / 4);
    }
    /* With a disk below memory, sessions that are saved, restored and deleted meanwhile, and
     * policies of some requests. */
    void play_together(const char *model, int64_t n)
    {
        read_alone(model, true);
        const int64_t first = from_environment("WEIR_SIMULATION_SEED", 1);
        for (int64_t i = 0; i < n && !HasFailure(); i++) play(model, (unsigned)(first + i), true);
        if (n < 8 || HasFailure()) return;
        EXPECT_GT(n_cancelled_, n);
        EXPECT_GT(n_cached_, 50 * n);
        EXPECT_GT(n_saved_, n / 2);
        EXPECT_GT(n_restored_, n / 4);
        EXPECT_GT(n_evicted_, 100 * n);
        EXPECT_GT(n_bytes_out_, 0);
        if (model_ == nullptr) return;
        EXPECT_GT(n_windows_out_, 0);
    }
    std::unique_ptr<support::Folder> model_; /* of "LAYERS:WINDOW", as in window_rows.h */
    std::vector<SimulatedTurn> turns_;
    weir_policy_options policy_;
    std::string trace_, folder_; /* trace_: of the last one */
    size_t fixed_ = 0, window_ = 0, least_ = 0;
    bool has_windows_ = false;
    int64_t n_tokens_ = 0, n_cancelled_ = 0, n_gaps_ = 0, n_together_ = 0, n_preempted_ = 0,
            n_cached_ = 0, n_backfilled_ = 0, n_saved_ = 0, n_restored_ = 0, n_evicted_ = 0,
            n_bytes_out_ = 0, n_accepted_ = 0, n_windows_out_ = 0;
};

TEST_F(Simulation, ASeedRepeatsItsSchedule)
{
    read_alone("qwen3");
    for (const unsigned seed : { 2u, 7u }) {
        play("qwen3", seed);
        const std::string first = trace_;
        play("qwen3", seed);
        EXPECT_EQ(first, trace_);
    }
    play("qwen3", 3);
    const std::string other = trace_;
    play("qwen3", 2);
    EXPECT_NE(other, trace_);
}

TEST_F(Simulation, OfAHybridModel) { play_all("tq", simulations()); }

TEST_F(Simulation, OfAnAttentionModel) { play_all("qwen3", simulations()); }

TEST_F(Simulation, OfTheDemoModel) { play_all("../../../models/weir-demo", simulations_of_demo()); }

TEST_F(Simulation, TogetherOfAHybridModel) { play_together("tq", simulations()); }

TEST_F(Simulation, TogetherOfAHybridModelWithConvolutions)
{
    play_together("../families/lfm2", simulations());
}

TEST_F(Simulation, OfAHybridModelWithDecaysOfChannels)
{
    play_all("../families/kimi-linear", simulations());
}

TEST_F(Simulation, OfAModelWithWindows) { play_all("../families/gemma3", simulations()); }

TEST_F(Simulation, TogetherOfAModelWithWindows)
{
    play_together("../families/gemma3", simulations());
}

TEST_F(Simulation, OfAModelWithADraftHead)
{
    play_all("../mtp/chain", simulations());
    EXPECT_GT(n_accepted_, 100 / weir_test::every_nth(4));
}

TEST_F(Simulation, TogetherOfAModelWithADraftHead)
{
    play_together("../mtp/chain", simulations());
    EXPECT_GT(n_accepted_, 100 / weir_test::every_nth(4));
}

/* Windows of 200 rows, which go to disk. */
TEST_F(Simulation, TogetherOfAModelWithLongWindows) { play_together("wo:200", simulations()); }

TEST_F(Simulation, TogetherOfAnAttentionModel) { play_together("qwen3", simulations()); }

TEST_F(Simulation, TogetherOfTheDemoModel)
{
    play_together("../../../models/weir-demo", simulations_of_demo());
}

} // namespace
