/* Folders that take nothing, files that are damaged, and memory that others hold: only time is
 * lost. */
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/schedule/pressure.h"

namespace pressure {
namespace {

// The folder is replaced by a file: every write fails, and the engine goes on.
TEST_F(Pressure, WritesThatFailLoseOnlyTheSequence)
{
    start("qwen3");
    const auto tokens = prompt(1, LONG);
    std::filesystem::rename(folder_, folder_ + ".away");
    std::ofstream(folder_) << "x";
    const auto answer = run(tokens);
    testing::internal::CaptureStderr();
    fill(2);
    EXPECT_EQ(stats().saved_sequences, 0);
    EXPECT_GT(stats().save_failures, 1);
    EXPECT_EQ(weir_engine_save_sessions(engine_), 0) << "as when the server ends";
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(times(said, "is dropped unsaved"), 1) << "once for this reason: " << said;
    EXPECT_EQ(times(said, "tokens is not saved: "), 1) << said;
    EXPECT_EQ(times(said, "conversations are not saved; free space there"), 1) << said;
    EXPECT_EQ(run(tokens), answer);
    EXPECT_EQ(usage_.n_cached, 0);
    std::filesystem::remove(folder_);
    std::filesystem::rename(folder_ + ".away", folder_);
    const int64_t before = handled();
    fill(20);
    EXPECT_GT(handled(), before);
    EXPECT_GT(stats().saved_sequences, 0) << "the folder is there again";
    expect_nothing_leaks();
}

/* Pauses after each token, at most 20 ms, until it is let go: others can ask while it runs. */
struct PausedCall {
    Call call;
    std::mutex lock;
    std::condition_variable changed;
    bool is_free = false;

    PausedCall(std::vector<int32_t> ids, int max_tokens) : call(std::move(ids), max_tokens)
    {
        call.request.user = this;
        call.request.callback = [](void *user, const weir_event *event) {
            PausedCall *const p = static_cast<PausedCall *>(user);
            std::unique_lock<std::mutex> hold(p->lock);
            if (event->type == WEIR_EVENT_TOKEN)
                p->changed.wait_for(hold, std::chrono::milliseconds(20), [p] {
                    return p->is_free;
                });
            hold.unlock();
            return Call::on_event(&p->call, event);
        };
    }
    void let_go()
    {
        const std::lock_guard<std::mutex> hold(lock);
        is_free = true;
        changed.notify_all();
    }
};

// A window of pages, and one request that may need all of them: no file is restored while it runs,
// which is said once.
TEST_F(Pressure, WhatCannotComeBackIsSaidOnce)
{
    start("qwen3", { "kv.policy.kept=0" });
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    const std::string memory = std::to_string(weir_plan_total(plan) - plan->kv / 2) + "B";
    const auto tokens = prompt(1, LONG);
    const auto answer = run(tokens);
    EXPECT_EQ(weir_engine_save_sessions(engine_), 1);
    stop();
    start("qwen3", { "kv.policy.kept=0" }, memory.c_str());
    PausedCall busy(prompt(2, 300), 700);
    ASSERT_EQ(busy.call.submit(service_, &error_), WEIR_OK) << error_.text;
    while (stats().running == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    testing::internal::CaptureStderr();
    for (int i = 0; i < 3; i++) weir_sessions_recall(sessions_, tokens.data(), LONG, nullptr);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(stats().running, 1) << "it ended before the questions did";
    EXPECT_EQ(times(said, "is computed although session"), 1) << said;
    busy.let_go();
    busy.call.wait();
    EXPECT_EQ(run(tokens), answer);
    EXPECT_EQ(usage_.n_cached, LONG - 1) << usage_.reuse;
}

// A damaged file is computed instead, and is not asked again.
TEST_F(Pressure, ADamagedFileIsComputed)
{
    start("tq");
    const auto tokens = prompt(1, LONG);
    const auto answer = run(tokens);
    fill(2);
    for (const auto &info : list()) {
        std::fstream file(
            folder_ + "/" + info.name + ".session", std::ios::binary | std::ios::in | std::ios::out
        );
        file.seekp(info.n_bytes - 4096);
        file.put('\x55');
    }
    EXPECT_EQ(run(tokens), answer);
    EXPECT_EQ(usage_.n_cached, 0);
    EXPECT_EQ(stats().found_sequences, 0);
    expect_nothing_leaks();
}

// Requests that follow each other without a pause: whatever the writer gets done, nothing waits for
// it and nothing is lost.
TEST_F(Pressure, RunningSequencesComeFirst)
{
    start("tq");
    std::vector<std::vector<int32_t>> answers;
    for (int i = 0; i < 6; i++) answers.push_back(run(prompt(i, 900), nullptr, false));
    for (int round = 0; round < 3; round++) {
        std::vector<std::unique_ptr<Call>> calls;
        for (int i = 0; i < 6; i++) {
            calls.push_back(std::make_unique<Call>(prompt(i, 900), 12));
            calls.back()->request.cache_prompt = true;
            ASSERT_EQ(calls.back()->submit(service_, &error_), WEIR_OK) << error_.text;
        }
        for (int i = 0; i < 6; i++) {
            calls[(size_t)i]->wait();
            EXPECT_EQ(calls[(size_t)i]->status, WEIR_OK) << calls[(size_t)i]->message;
            EXPECT_EQ(calls[(size_t)i]->tokens[0], answers[(size_t)i]) << i;
        }
    }
    weir_engine_save_sessions(engine_);
    expect_nothing_leaks();
}

// One window of pages, of which a sequence that is being saved holds most: the next prompt takes
// them away.
TEST_F(Pressure, WhatIsBeingSavedGivesWay)
{
    start("qwen3");
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    const std::string memory = std::to_string(weir_plan_total(plan) - plan->kv / 2) + "B";
    stop();
    start("qwen3", {}, memory.c_str());
    std::vector<std::vector<int32_t>> answers;
    for (int i = 0; i < 4; i++) answers.push_back(run(prompt(i, 1000), nullptr, false));
    for (int round = 0; round < 6; round++)
        for (int i = 0; i < 4; i++)
            EXPECT_EQ(run(prompt(i, 1000)), answers[(size_t)i]) << round << ", " << i;
    expect_nothing_leaks();
}

// The cached sequence fills the window and the pool. The same prompt again shares its last page,
// and there is none to copy it to.
TEST_F(Pressure, AWholeWindowIsAskedAgain)
{
    for (const char *const model : { "qwen3", "mistral" }) {
        start(model, { "sessions.autosave=false" });
        const weir_engine_options options = { &config_, true, false, nullptr, nullptr, nullptr };
        weir_plan plan = *weir_engine_plan_of(engine_);
        size_t most = weir_plan_total(&plan), least = most - plan.kv;
        stop();
        while (most - least > 1024) { // what one window takes, and no more
            const size_t half = (least + most) / 2;
            config_.memory.host = (int64_t)half;
            (weir_engine_plan(&plan, &options, &error_) == WEIR_OK ? most : least) = half;
        }
        const std::string memory = std::to_string(most) + "B";
        start(model, { "sessions.autosave=false" }, memory.c_str());
        ASSERT_EQ(weir_engine_plan_of(engine_)->kv_rows, CONTEXT);
        const auto answer = run(prompt(1, 1000));
        for (int i = 0; i < 3; i++) {
            EXPECT_EQ(run(prompt(1, 1000)), answer) << model;
            EXPECT_EQ(usage_.n_cached, 999) << model << ": " << usage_.reuse;
        }
        expect_nothing_leaks();
        stop();
    }
}

// With pages on disk the sequences that are dropped are those that the disk has no room for.
TEST_F(Pressure, AFullDiskTierSavesToo)
{
    start("tq");
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    const std::string disk = "memory.disk=" + std::to_string(plan->kv * 4) + "B";
    stop();
    start("tq", { disk.c_str(), "kv.tiers.hot=1" });
    const auto tokens = prompt(1, LONG);
    const auto answer = run(tokens);
    for (int seed = 2; seed < 40 && stats().dropped_tokens == 0; seed++) fill(seed, 1);
    ASSERT_GT(stats().dropped_tokens, 0);
    EXPECT_GT(stats().saved_sequences, 0);
    EXPECT_EQ(run(tokens), answer);
    EXPECT_GT(usage_.n_cached, 0);
    expect_nothing_leaks();
}

} // namespace
} // namespace pressure
