// Texts that memory has no room for go to files and come back from them: what is asked again
// continues with the same bits, whatever the folder does.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/session/session_store.h"
#include "tests/unit/schedule/support.h"

namespace {

using support::Call;

enum { CONTEXT = 1024, LONG = 700 };

int times(const std::string &text, const std::string &what)
{
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + what.size()))
        n++;
    return n;
}

class Pressure : public support::Folder {
  protected:
    Pressure() : Folder("pressure", CONTEXT) {}
    // As a server does: looks for a file first.
    std::vector<int32_t> run(
        const std::vector<int32_t> &ids, const char *salt = nullptr, bool recall = true
    )
    {
        if (recall)
            weir_sessions_recall(sessions_, ids.data(), static_cast<int32_t>(ids.size()), salt);
        Call call(ids, 12);
        call.request.cache_prompt = recall;
        call.request.cache_salt = salt;
        return answer(call);
    }
    // All that the tree wants to save is saved.
    void settle()
    {
        for (int64_t before = -1; before != handled();) {
            before = handled();
            weir_sessions_settle(sessions_);
        }
    }
    // Other texts take all the room.
    void fill(int first_seed, int n = 4)
    {
        for (int i = 0; i < n; i++) {
            (void)run(prompt(first_seed + i, LONG));
            settle();
        }
    }
    int64_t handled() const
    {
        const weir_service_stats s = stats();
        return s.saved_texts + s.save_failures + s.saves_given_up;
    }
    void expect_nothing_leaks()
    {
        settle();
        EXPECT_EQ(pages_used_when_idle(), 0);
        size_t n_parts = 0;
        for (const auto &entry : std::filesystem::directory_iterator(folder_))
            n_parts += entry.path().string().find(".tmp.") != std::string::npos;
        EXPECT_EQ(n_parts, 0u);
        weir_ledger_state memory;
        weir_ledger_read(weir_engine_ledger(engine_), &memory);
        EXPECT_LE(memory.peak[WEIR_TIER_HOST], memory.cap[WEIR_TIER_HOST]);
    }
};

TEST_F(Pressure, ATextThatWasDroppedComesBackFromItsFile)
{
    for (const char *const model : { "tq", "qwen3", "mistral" }) {
        start(model);
        const auto text = prompt(1, LONG);
        const auto answer = run(text);
        (void)run(prompt(2, LONG));
        settle();
        EXPECT_EQ(stats().saved_texts, 1) << model;
        EXPECT_EQ(stats().saved_tokens, LONG + 11);
        fill(3);
        ASSERT_GT(stats().dropped_tokens, 0);
        EXPECT_EQ(run(text), answer) << model;
        EXPECT_EQ(usage_.n_cached, LONG - 1) << model << ": " << usage_.reuse;
        EXPECT_EQ(stats().found_texts, 1);
        EXPECT_EQ(run(text, nullptr, false), answer) << "computed from nothing";
        EXPECT_EQ(usage_.n_cached, 0);
        EXPECT_EQ(stats().save_failures, 0);
        expect_nothing_leaks();
        stop();
        std::filesystem::remove_all(folder_);
    }
}

// The prompt goes on where the file ends, or leaves it in the middle; another salt does not meet
// it.
TEST_F(Pressure, WhatAPromptHasInCommonIsFound)
{
    start("qwen3");
    const auto text = prompt(1, LONG);
    auto longer = text;
    const auto answer = run(text, "mine");
    longer.insert(longer.end(), answer.begin(), answer.end());
    longer.resize(LONG + 60, 5);
    auto other = text;
    for (size_t i = 600; i < other.size(); i++) other[i] = 7;
    const auto of_longer = run(longer, nullptr, false), of_other = run(other, nullptr, false);
    const auto drop = [&](int seed) {
        fill(seed);
        const int32_t before = static_cast<int32_t>(stats().found_texts);
        return before;
    };
    (void)drop(10);
    EXPECT_EQ(run(longer), of_longer);
    EXPECT_EQ(usage_.n_cached, 0) << "under another salt";
    (void)drop(20);
    EXPECT_EQ(run(longer, "mine"), of_longer);
    EXPECT_EQ(usage_.n_cached, LONG + 11);
    (void)drop(30);
    EXPECT_EQ(run(other, "mine"), of_other);
    EXPECT_EQ(usage_.n_cached, 600);
    EXPECT_EQ(stats().found_texts, 2);
    expect_nothing_leaks();
}

TEST_F(Pressure, FilesOfAnEarlierProcessAreFound)
{
    start("tq", { "sessions.limit=8" });
    const auto text = prompt(1, LONG);
    const auto answer = run(text);
    fill(2);
    stop();
    start("tq", { "sessions.limit=8" });
    EXPECT_EQ(run(text), answer);
    EXPECT_EQ(usage_.n_cached, LONG - 1) << usage_.reuse;
}

// What memory has of a prompt is no use past its last token but one: a state after all of it does
// not stand in for the file.
TEST_F(Pressure, AStateAfterTheWholePromptIsNotEnough)
{
    start("tq");
    const auto text = prompt(1, LONG);
    auto longer = text;
    longer.push_back(5);
    const auto answer = run(text);
    fill(2);
    ASSERT_GT(stats().dropped_tokens, 0);
    Call call(longer, 1);
    call.request.cache_prompt = true;
    ASSERT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
    call.wait();
    ASSERT_EQ(call.usage.n_cached, 0) << "nobody looked for a file";
    EXPECT_EQ(run(text), answer);
    EXPECT_EQ(usage_.n_cached, LONG - 1) << usage_.reuse;
    EXPECT_EQ(stats().found_texts, 1);
}

// Without a state nothing can continue the text of a recurrent model: it is saved before it loses
// them, though there are pages for all. One state of a file comes back of 6 that are kept, after
// the answer: for the prompt alone the file is no use.
TEST_F(Pressure, ATextIsSavedBeforeItsStatesGo)
{
    for (const int n_states : { 8, 6 }) {
        start("tq", { "kv.policy.kept=0" });
        const weir_plan *const plan = weir_engine_plan_of(engine_);
        const size_t each = plan->snapshots / (size_t)plan->n_snapshots;
        const std::string states =
            "memory.snapshots=" + std::to_string(each * (size_t)n_states) + "B";
        stop();
        start("tq", { states.c_str() });
        const auto text = prompt(1, LONG);
        const auto answer = run(text);
        settle();
        EXPECT_EQ(stats().saved_texts, 0);
        for (int i = 0; i < 4; i++) {
            (void)run(prompt(2 + i, 40));
            settle();
        }
        ASSERT_EQ(stats().dropped_tokens, 0);
        EXPECT_EQ(stats().saved_texts, 1);
        EXPECT_EQ(stats().kept_states, n_states);
        EXPECT_EQ(run(text), answer);
        EXPECT_EQ(usage_.n_cached, n_states == 8 ? LONG - 1 : 0) << usage_.reuse;
        EXPECT_EQ(stats().found_texts, n_states == 8 ? 1 : 0);
        stop();
        std::filesystem::remove_all(folder_);
    }
}

// A text that came back with fewer states than its file has leaves the file as it is.
TEST_F(Pressure, AFileKeepsItsStates)
{
    start("tq", { "kv.policy.kept=0" });
    const auto text = prompt(1, LONG);
    const auto answer = run(text);
    EXPECT_EQ(weir_engine_save_sessions(engine_), 1);
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    const std::string one =
        "memory.snapshots=" + std::to_string(plan->snapshots / (size_t)plan->n_snapshots) + "B";
    stop();
    start("tq", { one.c_str() });
    ASSERT_EQ(weir_engine_restore_sessions(engine_), 1);
    settle(); /* which publishes the counts */
    ASSERT_EQ(stats().kept_states, 1);
    EXPECT_EQ(weir_engine_save_sessions(engine_), 1);
    stop();
    start("tq");
    EXPECT_EQ(run(text), answer);
    EXPECT_EQ(usage_.n_cached, LONG - 1) << usage_.reuse;
}

// The index has room for as many files as the folder: those that are gone, replaced or deleted, do
// not push out one that is there.
TEST_F(Pressure, FilesThatAreGoneLeaveTheIndex)
{
    for (const bool by_hand : { false, true }) {
        start("qwen3", { "sessions.limit=3" });
        const auto text = prompt(1, LONG);
        const auto answer = run(text);
        EXPECT_EQ(weir_engine_save_sessions(engine_), 1);
        stop();
        start("qwen3", { "sessions.limit=3" });
        const std::string own = list().at(0).name;
        auto grown = prompt(2, LONG);
        for (int i = 0; i < 5; i++) { // each file takes the place of the one before
            const auto next = run(grown);
            grown.insert(grown.end(), next.begin(), next.end());
            EXPECT_EQ(weir_engine_save_sessions(engine_), 1);
            ASSERT_EQ(list().size(), 2u);
            for (const auto &info : list())
                if (by_hand && info.name != own)
                    EXPECT_EQ(weir_sessions_delete(sessions_, info.name, &error_), WEIR_OK)
                        << error_.text;
        }
        EXPECT_EQ(run(text), answer);
        EXPECT_EQ(usage_.n_cached, LONG - 1) << usage_.reuse;
        stop();
        std::filesystem::remove_all(folder_);
    }
}

TEST_F(Pressure, ShortTextsAreNotWorthAFile)
{
    start("tq");
    for (int i = 0; i < 8; i++) (void)run(prompt(i, 400));
    settle();
    ASSERT_GT(stats().dropped_tokens, 0);
    EXPECT_EQ(handled(), 0);
    EXPECT_TRUE(list().empty());
    EXPECT_EQ(stats().unsaved_tokens, stats().dropped_tokens);
}

TEST_F(Pressure, NothingIsSavedUnasked)
{
    start("tq", { "sessions.autosave=false" });
    const auto text = prompt(1, LONG);
    for (int i = 0; i < 4; i++) (void)run(prompt(1 + i, LONG));
    (void)run(text);
    EXPECT_EQ(usage_.n_cached, 0);
    EXPECT_EQ(handled(), 0);
    EXPECT_TRUE(list().empty());
}

TEST_F(Pressure, TheOldestFileGivesWay)
{
    start("tq", { "sessions.limit=2" });
    const auto text = prompt(1, LONG);
    const auto answer = run(text);
    fill(2, 6);
    EXPECT_EQ(list().size(), 2u);
    EXPECT_EQ(run(text), answer);
    EXPECT_EQ(usage_.n_cached, 0) << "its file gave way";
    settle();
    EXPECT_GT(stats().saved_texts, 2);
    EXPECT_EQ(stats().replaced_texts, stats().saved_texts - 2);
    expect_nothing_leaks();
}

// On the disk every text keeps its pages, but it loses its states; when its file is gone, too, it
// is saved again after it was used.
TEST_F(Pressure, ATextWhoseFileGaveWayIsSavedAgain)
{
    start("tq", { "kv.policy.kept=0" });
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    const std::string disk = "memory.disk=" + std::to_string(plan->kv * 40) + "B",
                      states = "memory.snapshots=" +
                               std::to_string(plan->snapshots / (size_t)plan->n_snapshots * 8) +
                               "B";
    stop();
    start("tq", { disk.c_str(), states.c_str(), "kv.tiers.hot=1", "sessions.limit=2" });
    const auto text = prompt(1, LONG);
    const auto answer = run(text);
    int seed = 2;
    while (seed < 20 && list().empty()) fill(seed++, 1);
    ASSERT_EQ(list().size(), 1u);
    const std::string own = list()[0].name;
    const auto has_file = [&] {
        bool has = false;
        for (const auto &info : list()) has = has || own == info.name;
        return has;
    };
    while (seed < 20 && has_file()) fill(seed++, 1);
    ASSERT_FALSE(has_file());
    EXPECT_EQ(run(text), answer);
    EXPECT_EQ(usage_.n_cached, 0) << usage_.reuse;
    while (seed < 30 && !has_file()) fill(seed++, 1);
    EXPECT_TRUE(has_file());
    EXPECT_EQ(stats().dropped_tokens, 0);
    EXPECT_EQ(run(text), answer);
    EXPECT_EQ(usage_.n_cached, LONG - 1) << usage_.reuse;
    expect_nothing_leaks();
}

TEST_F(Pressure, AFullFolderTakesNoMore)
{
    start("tq", { "sessions.limit=1" });
    const auto text = prompt(1, 100), dropped = prompt(2, LONG);
    (void)run(text);
    const weir_session_wish wish = { "mine", nullptr, text.data(),
                                     static_cast<int32_t>(text.size()) };
    weir_session_result result;
    ASSERT_EQ(weir_sessions_save(sessions_, &wish, &result, &error_), WEIR_OK) << error_.text;
    const auto answer = run(dropped);
    fill(3);
    EXPECT_EQ(stats().saved_texts, 0);
    EXPECT_GT(stats().save_failures, 0);
    ASSERT_EQ(list().size(), 1u);
    EXPECT_STREQ(list()[0].name, "mine");
    EXPECT_EQ(run(dropped), answer);
    EXPECT_EQ(usage_.n_cached, 0);
    expect_nothing_leaks();
}

// The folder is replaced by a file: every write fails, and the engine goes on.
TEST_F(Pressure, WritesThatFailLoseOnlyTheText)
{
    start("qwen3");
    const auto text = prompt(1, LONG);
    std::filesystem::rename(folder_, folder_ + ".away");
    std::ofstream(folder_) << "x";
    const auto answer = run(text);
    testing::internal::CaptureStderr();
    fill(2);
    EXPECT_EQ(stats().saved_texts, 0);
    EXPECT_GT(stats().save_failures, 1);
    EXPECT_EQ(weir_engine_save_sessions(engine_), 0) << "as when the server ends";
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(times(said, "is dropped unsaved"), 1) << "once for this reason: " << said;
    EXPECT_EQ(times(said, "tokens is not saved: "), 1) << said;
    EXPECT_EQ(times(said, "conversations are not saved; free space there"), 1) << said;
    EXPECT_EQ(run(text), answer);
    EXPECT_EQ(usage_.n_cached, 0);
    std::filesystem::remove(folder_);
    std::filesystem::rename(folder_ + ".away", folder_);
    const int64_t before = handled();
    fill(20);
    EXPECT_GT(handled(), before);
    EXPECT_GT(stats().saved_texts, 0) << "the folder is there again";
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

// A window of pages, and one request that has a claim to all of them: files cannot come back beside
// it, which is said once.
TEST_F(Pressure, WhatCannotComeBackIsSaidOnce)
{
    start("qwen3", { "kv.policy.kept=0" });
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    const std::string memory = std::to_string(weir_plan_total(plan) - plan->kv / 2) + "B";
    const auto text = prompt(1, LONG);
    const auto answer = run(text);
    EXPECT_EQ(weir_engine_save_sessions(engine_), 1);
    stop();
    start("qwen3", { "kv.policy.kept=0" }, memory.c_str());
    PausedCall busy(prompt(2, 300), 700);
    ASSERT_EQ(busy.call.submit(service_, &error_), WEIR_OK) << error_.text;
    while (stats().running == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    testing::internal::CaptureStderr();
    for (int i = 0; i < 3; i++) weir_sessions_recall(sessions_, text.data(), LONG, nullptr);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(stats().running, 1) << "it ended before the questions did";
    EXPECT_EQ(times(said, "is computed although session"), 1) << said;
    busy.let_go();
    busy.call.wait();
    EXPECT_EQ(run(text), answer);
    EXPECT_EQ(usage_.n_cached, LONG - 1) << usage_.reuse;
}

// A damaged file is computed instead, and is not asked again.
TEST_F(Pressure, ADamagedFileIsComputed)
{
    start("tq");
    const auto text = prompt(1, LONG);
    const auto answer = run(text);
    fill(2);
    for (const auto &info : list()) {
        std::fstream file(
            folder_ + "/" + info.name + ".session", std::ios::binary | std::ios::in | std::ios::out
        );
        file.seekp(info.n_bytes - 4096);
        file.put('\x55');
    }
    EXPECT_EQ(run(text), answer);
    EXPECT_EQ(usage_.n_cached, 0);
    EXPECT_EQ(stats().found_texts, 0);
    expect_nothing_leaks();
}

// Requests that follow each other without a pause: whatever the writer gets done, nothing waits for
// it and nothing is lost.
TEST_F(Pressure, RunningTextsComeFirst)
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

// One window of pages, of which a text that is being saved holds most: the next prompt takes them
// away.
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

// The kept text fills the window and the pool. The same prompt again shares its last page, and
// there is none to copy it to.
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

// With pages on disk the texts that are dropped are those that the disk has no room for.
TEST_F(Pressure, AFullDiskTierSavesToo)
{
    start("tq");
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    const std::string disk = "memory.disk=" + std::to_string(plan->kv * 4) + "B";
    stop();
    start("tq", { disk.c_str(), "kv.tiers.hot=1" });
    const auto text = prompt(1, LONG);
    const auto answer = run(text);
    for (int seed = 2; seed < 40 && stats().dropped_tokens == 0; seed++) fill(seed, 1);
    ASSERT_GT(stats().dropped_tokens, 0);
    EXPECT_GT(stats().saved_texts, 0);
    EXPECT_EQ(run(text), answer);
    EXPECT_GT(usage_.n_cached, 0);
    expect_nothing_leaks();
}

} // namespace
