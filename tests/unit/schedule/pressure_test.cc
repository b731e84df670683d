// Sequences that memory has no room for go to files and come back from them: what is asked again
// continues with the same bits, whatever the folder does.
#include <filesystem>
#include <fstream>

#include "tests/unit/schedule/pressure.h"

namespace pressure {
namespace {

TEST_F(Pressure, ASequenceThatWasDroppedComesBackFromItsFile)
{
    for (const char *const model : { "tq", "qwen3", "mistral" }) {
        start(model);
        const auto tokens = prompt(1, LONG);
        const auto answer = run(tokens);
        (void)run(prompt(2, LONG));
        settle();
        EXPECT_EQ(stats().saved_sequences, 1) << model;
        EXPECT_EQ(stats().saved_tokens, LONG + 11);
        fill(3);
        ASSERT_GT(stats().dropped_tokens, 0);
        EXPECT_EQ(run(tokens), answer) << model;
        EXPECT_EQ(usage_.n_cached, LONG - 1) << model << ": " << usage_.reuse;
        EXPECT_EQ(stats().found_sequences, 1);
        EXPECT_EQ(run(tokens, nullptr, false), answer) << "computed from nothing";
        EXPECT_EQ(usage_.n_cached, 0);
        EXPECT_EQ(stats().save_failures, 0);
        expect_nothing_leaks();
        stop();
        std::filesystem::remove_all(folder_);
    }
}

// The file of a sequence has the rows that its window reads, of two blocks here; it is continued
// where it ends.
TEST_F(Pressure, ASequenceWithAWindowComesBackFromItsFile)
{
    settings_.clear();
    start("../families/gemma3");
    auto tokens = prompt(1, LONG - 5); /* and 11 of the answer: 11 x 64 + 2 */
    const auto answer = run(tokens);
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    const auto want = run(tokens, nullptr, false);
    fill(2);
    ASSERT_GT(stats().dropped_tokens, 0);
    EXPECT_EQ(run(tokens), want);
    EXPECT_EQ(usage_.n_cached, LONG + 6) << usage_.reuse;
    EXPECT_EQ(stats().found_sequences, 1);
    EXPECT_EQ(stats().save_failures, 0);
    expect_nothing_leaks();
}

// The prompt goes on where the file ends, or leaves it in the middle; another salt does not meet
// it.
TEST_F(Pressure, WhatAPromptHasInCommonIsFound)
{
    start("qwen3");
    const auto tokens = prompt(1, LONG);
    auto longer = tokens;
    const auto answer = run(tokens, "mine");
    longer.insert(longer.end(), answer.begin(), answer.end());
    longer.resize(LONG + 60, 5);
    auto other = tokens;
    for (size_t i = 600; i < other.size(); i++) other[i] = 7;
    const auto of_longer = run(longer, nullptr, false), of_other = run(other, nullptr, false);
    const auto drop = [&](int seed) {
        fill(seed);
        const int32_t before = static_cast<int32_t>(stats().found_sequences);
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
    EXPECT_EQ(stats().found_sequences, 2);
    expect_nothing_leaks();
}

TEST_F(Pressure, FilesOfAnEarlierProcessAreFound)
{
    start("tq", { "sessions.limit=8" });
    const auto tokens = prompt(1, LONG);
    const auto answer = run(tokens);
    fill(2);
    stop();
    start("tq", { "sessions.limit=8" });
    EXPECT_EQ(run(tokens), answer);
    EXPECT_EQ(usage_.n_cached, LONG - 1) << usage_.reuse;
}

// What memory has of a prompt is no use past its last token but one: a state after all of it does
// not stand in for the file.
TEST_F(Pressure, AStateAfterTheWholePromptIsNotEnough)
{
    start("tq", { "kv.policy.kept=0" });
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    const std::string states =
        "memory.snapshots=" + std::to_string(plan->snapshots / (size_t)plan->n_snapshots * 8) + "B";
    stop();
    start("tq", { states.c_str() });
    const auto tokens = prompt(1, LONG);
    auto longer = tokens;
    longer.push_back(5);
    const auto answer = run(tokens);
    fill(2);
    ASSERT_GT(stats().dropped_tokens, 0);
    Call call(longer, 1);
    call.request.cache_prompt = true;
    ASSERT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
    call.wait();
    ASSERT_EQ(call.usage.n_cached, 0) << "no file was looked for";
    for (int i = 0; i < 3; i++) (void)run(prompt(60 + i, 40)); /* no spare states are left */
    EXPECT_EQ(run(tokens), answer);
    EXPECT_EQ(usage_.n_cached, LONG - 1) << usage_.reuse;
    EXPECT_EQ(stats().found_sequences, 1);
}

// Without a state nothing can continue the sequence of a recurrent model: it is saved before it
// loses them, though there are pages for all. One state of a file comes back of 6 that are kept,
// after the answer: for the prompt alone the file is no use.
TEST_F(Pressure, ASequenceIsSavedBeforeItsStatesGo)
{
    for (const int n_states : { 8, 6 }) {
        start("tq", { "kv.policy.kept=0" });
        const weir_plan *const plan = weir_engine_plan_of(engine_);
        const size_t each = plan->snapshots / (size_t)plan->n_snapshots;
        const std::string states =
            "memory.snapshots=" + std::to_string(each * (size_t)n_states) + "B";
        stop();
        start("tq", { states.c_str() });
        const auto tokens = prompt(1, LONG);
        const auto answer = run(tokens);
        settle();
        EXPECT_EQ(stats().saved_sequences, 0);
        for (int i = 0; i < 12; i++) {
            (void)run(prompt(2 + i, 40));
            settle();
        }
        ASSERT_EQ(stats().dropped_tokens, 0);
        EXPECT_EQ(stats().saved_sequences, 1);
        EXPECT_EQ(stats().kept_states, n_states);
        EXPECT_EQ(run(tokens), answer);
        EXPECT_EQ(usage_.n_cached, n_states == 8 ? LONG - 1 : 0) << usage_.reuse;
        EXPECT_EQ(stats().found_sequences, n_states == 8 ? 1 : 0);
        stop();
        std::filesystem::remove_all(folder_);
    }
}

// A sequence that came back with fewer states than its file has leaves the file as it is.
TEST_F(Pressure, AFileKeepsItsStates)
{
    start("tq", { "kv.policy.kept=0" });
    const auto tokens = prompt(1, LONG);
    const auto answer = run(tokens);
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
    EXPECT_EQ(run(tokens), answer);
    EXPECT_EQ(usage_.n_cached, LONG - 1) << usage_.reuse;
}

// The index has room for as many files as the folder: those that are gone, replaced or deleted, do
// not push out one that is there.
TEST_F(Pressure, FilesThatAreGoneLeaveTheIndex)
{
    for (const bool by_hand : { false, true }) {
        start("qwen3", { "sessions.limit=3" });
        const auto tokens = prompt(1, LONG);
        const auto answer = run(tokens);
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
        EXPECT_EQ(run(tokens), answer);
        EXPECT_EQ(usage_.n_cached, LONG - 1) << usage_.reuse;
        stop();
        std::filesystem::remove_all(folder_);
    }
}

TEST_F(Pressure, ShortSequencesAreNotWorthAFile)
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
    const auto tokens = prompt(1, LONG);
    for (int i = 0; i < 4; i++) (void)run(prompt(1 + i, LONG));
    (void)run(tokens);
    EXPECT_EQ(usage_.n_cached, 0);
    EXPECT_EQ(handled(), 0);
    EXPECT_TRUE(list().empty());
}

TEST_F(Pressure, TheOldestFileGivesWay)
{
    start("tq", { "sessions.limit=2" });
    const auto tokens = prompt(1, LONG);
    const auto answer = run(tokens);
    fill(2, 6);
    EXPECT_EQ(list().size(), 2u);
    EXPECT_EQ(run(tokens), answer);
    EXPECT_EQ(usage_.n_cached, 0) << "its file gave way";
    settle();
    EXPECT_GT(stats().saved_sequences, 2);
    EXPECT_EQ(stats().replaced_sequences, stats().saved_sequences - 2);
    expect_nothing_leaks();
}

// With pages for all, a sequence loses its states; when its file is gone, too, it is saved again
// after it was used.
TEST_F(Pressure, ASequenceWhoseFileGaveWayIsSavedAgain)
{
    start("tq", { "kv.policy.kept=0" });
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    const std::string states =
        "memory.snapshots=" + std::to_string(plan->snapshots / (size_t)plan->n_snapshots * 8) + "B";
    stop();
    start("tq", { "batch.max_sequences=48", states.c_str(), "sessions.limit=2" });
    const auto tokens = prompt(1, LONG);
    const auto answer = run(tokens);
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
    EXPECT_EQ(run(tokens), answer);
    EXPECT_EQ(usage_.n_cached, 0) << usage_.reuse;
    while (seed < 30 && !has_file()) fill(seed++, 1);
    EXPECT_TRUE(has_file());
    EXPECT_EQ(stats().dropped_tokens, 0);
    auto longer = tokens;
    longer.insert(longer.end(), answer.begin(), answer.end());
    longer.push_back(5);
    (void)run(longer);
    EXPECT_EQ(usage_.n_cached, LONG + 11) << "its end is there: " << usage_.reuse;
    expect_nothing_leaks();
}

// A deleted conversation is not written when the server ends, also if it has grown since its file
// was written, or was in none. What others share with it is, and so is what is used again.
TEST_F(Pressure, WhatIsDeletedIsNotSaved)
{
    for (const char *const model : { "tq", "qwen3" }) {
        start(model, { "kv.policy.kept=0" });
        const auto say = [this](const std::vector<int32_t> &ids, const char *name) {
            Call call(ids, 12);
            call.request.cache_prompt = true;
            call.request.session = name;
            return answer(call);
        };
        auto talk = prompt(1, 200);
        const auto first = say(talk, "talk");
        ASSERT_EQ(save("talk"), WEIR_OK) << error_.text;
        talk.insert(talk.end(), first.begin(), first.end());
        (void)say(talk, "talk");
        (void)say(prompt(2, 100), "brief");
        for (const char *const name : { "talk", "brief" }) {
            EXPECT_EQ(weir_sessions_delete(sessions_, name, &error_), WEIR_OK) << error_.text;
            EXPECT_EQ(weir_sessions_delete(sessions_, name, &error_), WEIR_ENOTFOUND);
            EXPECT_EQ(save(name), WEIR_ENOTFOUND);
        }
        EXPECT_EQ(weir_engine_save_sessions(engine_), 0);
        EXPECT_TRUE(list().empty());
        std::vector<int32_t> other(talk.begin(), talk.begin() + 150);
        other.resize(180, 7);
        (void)run(other);
        EXPECT_EQ(weir_engine_save_sessions(engine_), 1);
        ASSERT_EQ(list().size(), 1u);
        EXPECT_EQ(list()[0].n_tokens, 191);
        (void)run(talk);
        EXPECT_EQ(weir_engine_save_sessions(engine_), 2);
        const auto files = list();
        for (const auto &file : files)
            EXPECT_EQ(weir_sessions_delete(sessions_, file.name, &error_), WEIR_OK);
        EXPECT_EQ(weir_engine_save_sessions(engine_), 0) << "of files without a name of a client";
        stop();
        std::filesystem::remove_all(folder_);
    }
}

TEST_F(Pressure, AFullFolderTakesNoMore)
{
    start("tq", { "sessions.limit=1" });
    const auto tokens = prompt(1, 100), dropped = prompt(2, LONG);
    (void)run(tokens);
    const weir_session_request request = { "mine", nullptr, tokens.data(),
                                           static_cast<int32_t>(tokens.size()) };
    weir_session_result result;
    ASSERT_EQ(weir_sessions_save(sessions_, &request, &result, &error_), WEIR_OK) << error_.text;
    const auto answer = run(dropped);
    fill(3);
    EXPECT_EQ(stats().saved_sequences, 0);
    EXPECT_GT(stats().save_failures, 0);
    ASSERT_EQ(list().size(), 1u);
    EXPECT_STREQ(list()[0].name, "mine");
    EXPECT_EQ(run(dropped), answer);
    EXPECT_EQ(usage_.n_cached, 0);
    expect_nothing_leaks();
}

} // namespace
} // namespace pressure
