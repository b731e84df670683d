/* Requests, cached sequences and sessions that are larger than memory. */
#include "tests/unit/schedule/tiers_fixture.h"

namespace {

using namespace tiers;

TEST_F(Tiers, ASequenceLargerThanMemoryIsAnswered)
{
    for (const char *const model : { "tq", "qwen3" }) {
        const auto tokens = prompt(1, 1900);
        start(model, 0);
        const auto want = run(tokens, 40);
        start(model, 12, 60);
        EXPECT_EQ(run(tokens, 40), want) << model;
        const weir_service_stats all = stats();
        EXPECT_GT(all.kv_bytes_out, 15 * block_);
        EXPECT_GT(all.kv_bytes_read, all.kv_bytes_out);
        EXPECT_EQ(all.preemptions, 0);
        EXPECT_EQ(run(tokens, 40), want) << model;
        EXPECT_EQ(usage_.n_cached, 1899)
            << "a cached sequence on disk is continued there: " << usage_.reuse;
        expect_within();
    }
}

/* What is kept goes to the disk before it is dropped, the least recently used first. */
TEST_F(Tiers, CachedSequencesAreNotDroppedWhileTheDiskHasRoom)
{
    start("qwen3", 12, 100);
    std::vector<std::vector<int32_t>> answers;
    for (int i = 0; i < 12; i++) answers.push_back(run(prompt(20 + i, 500)));
    EXPECT_EQ(stats().dropped_tokens, 0);
    EXPECT_GT(stats().kv_disk_pages_used, 0);
    for (int i = 0; i < 12; i++) {
        EXPECT_EQ(run(prompt(20 + i, 500)), answers[(size_t)i]);
        EXPECT_EQ(usage_.n_cached, 499);
    }
    EXPECT_EQ(stats().dropped_tokens, 0);
    for (int i = 0; i < 12; i++) (void)run(prompt(60 + i, 700)); /* more than both hold */
    EXPECT_GT(stats().dropped_tokens, 0);
    expect_within();
    EXPECT_EQ(pages_used_when_idle(), 0);
}

/* A full disk: what fits in memory goes on, what does not is told why; cached sequences make room
 * as they do without a disk. */
TEST_F(Tiers, AFullDiskIsNoMemory)
{
    start("tq", 0);
    const auto large = prompt(1, 1900), small = prompt(2, 300);
    const auto want_large = run(large), want_small = run(small);
    start("tq", 14, 60);
    writes_fail = true;
    for (int i = 0; i < 4; i++) (void)run(prompt(30 + i, 300));
    EXPECT_GT(stats().dropped_tokens, 0);
    Call refused(large, 12);
    ASSERT_EQ(refused.submit(service_, &error_), WEIR_OK) << error_.text;
    refused.wait();
    EXPECT_EQ(refused.status, WEIR_EFULL);
    EXPECT_NE(refused.message.find("No space left"), std::string::npos) << refused.message;
    refused.release();
    EXPECT_EQ(run(small), want_small);
    EXPECT_GT(stats().kv_write_errors, 0);
    writes_fail = false;
    EXPECT_EQ(run(large), want_large);
    EXPECT_EQ(run(small), want_small);
    expect_within();
}

/* A sequence whose pages cannot be read, or come back with a bit changed, fails; another one does
 * not notice, and the same sequence is computed again afterwards. */
TEST_F(Tiers, AReadErrorFailsOneSequence)
{
    const std::pair<const char *, std::atomic<bool> *> cases[] = { { "tq", &reads_fail },
                                                                   { "qwen3", &reads_fail },
                                                                   { "tq", &reads_garble } };
    for (const auto &[model, fault] : cases) {
        start(model, 0);
        const auto large = prompt(1, 1900), small = prompt(2, 300);
        const auto want_large = run(large, 30), want_small = run(small, 100);
        start(model, 12, 60);
        *fault = true;
        Call first(large, 30), second(small, 100);
        first.request.cache_prompt = second.request.cache_prompt = true;
        ASSERT_EQ(first.submit(service_, &error_), WEIR_OK) << error_.text;
        ASSERT_EQ(second.submit(service_, &error_), WEIR_OK) << error_.text;
        first.wait();
        second.wait();
        EXPECT_EQ(first.status, WEIR_EIO);
        EXPECT_NE(first.message.find("cannot read KV pages back"), std::string::npos)
            << first.message;
        EXPECT_EQ(second.status, WEIR_OK) << second.message;
        EXPECT_EQ(second.tokens[0], want_small);
        first.release();
        second.release();
        *fault = false;
        EXPECT_EQ(run(large, 30), want_large);
        EXPECT_LT(usage_.n_cached, 1000) << "what was lost is not used";
        EXPECT_EQ(run(large, 30), want_large);
        EXPECT_EQ(usage_.n_cached, 1899) << usage_.reuse;
        EXPECT_EQ(run(small, 100), want_small);
        EXPECT_EQ(pages_used_when_idle(), 0);
    }
}

/* A conversation larger than memory goes to a file and comes back, to an engine with a disk or
 * without one. */
TEST_F(Tiers, SessionsLargerThanMemory)
{
    const std::string sessions =
                          ::testing::TempDir() + "/tier-sessions." + std::to_string(getpid()),
                      dir = "sessions.dir=" + sessions;
    for (const char *const model : { "tq", "qwen3" }) {
        std::filesystem::remove_all(sessions);
        auto tokens = prompt(1, 1800);
        start(model, 0);
        auto more = tokens;
        const auto answer = run(tokens, 20);
        more.insert(more.end(), answer.begin(), answer.end());
        more.insert(more.end(), { 5, 6, 7, 8 });
        const auto want = run(more, 20);
        start(model, 14, 75, dir);
        EXPECT_EQ(run(tokens, 20), answer);
        weir_session_result result;
        const weir_session_request request = { "large", nullptr, tokens.data(),
                                               (int32_t)tokens.size() };
        ASSERT_EQ(
            weir_sessions_save(weir_engine_sessions(engine_), &request, &result, &error_), WEIR_OK
        ) << error_.text;
        EXPECT_GT(stats().kv_disk_pages_used, 0);
        EXPECT_EQ(run(more, 20), want);
        stop();
        start(model, 14, 75, dir);
        for (int i = 0; i < 2; i++) (void)run(prompt(40 + i, 700)); /* memory is taken */
        ASSERT_EQ(
            weir_sessions_restore(weir_engine_sessions(engine_), "large", &result, &error_), WEIR_OK
        ) << model
          << ": " << error_.text;
        EXPECT_GE(result.n_tokens, 1790);
        EXPECT_EQ(run(more, 20), want);
        EXPECT_GE(usage_.n_cached, 1790) << usage_.reuse;
        reads_fail = true;
        EXPECT_EQ(
            weir_sessions_save(weir_engine_sessions(engine_), &request, &result, &error_), WEIR_EIO
        );
        EXPECT_NE(strstr(error_.text, "cannot read KV pages back"), nullptr) << error_.text;
        reads_fail = false;
        EXPECT_EQ(pages_used_when_idle(), 0);
        expect_within();
        start(model, 0, 0, dir);
        ASSERT_EQ(
            weir_sessions_restore(weir_engine_sessions(engine_), "large", &result, &error_), WEIR_OK
        ) << error_.text;
        EXPECT_EQ(run(more, 20), want) << "the file is the same with a disk and without";
    }
    std::filesystem::remove_all(sessions);
}

/* What runs takes memory back from what is only kept, and a read that fails there is not the end of
 * anything. */
TEST_F(Tiers, BlocksComeBack)
{
    start("qwen3", 0);
    const auto tokens = prompt(1, 1000), other = prompt(2, 1900);
    const auto want = run(tokens, 60);
    start("qwen3", 26, 60);
    (void)run(tokens, 1);
    (void)run(other); /* pushes it out */
    const int64_t before = stats().kv_bytes_back;
    EXPECT_EQ(run(tokens, 60), want);
    EXPECT_EQ(usage_.n_cached, 999);
    EXPECT_GT(stats().kv_bytes_back - before, 5 * block_);
    EXPECT_EQ(stats().dropped_tokens, 0);
    expect_within();
}

/* A sequence is written to a file while others push its blocks to the disk and take them up
 * again. */
TEST_F(Tiers, SessionsAreSavedWhileBlocksMove)
{
    const std::string sessions =
                          ::testing::TempDir() + "/moving-sessions." + std::to_string(getpid()),
                      dir = "sessions.dir=" + sessions;
    std::filesystem::remove_all(sessions);
    start("qwen3", 14, 75, dir);
    const auto kept = prompt(1, 600), one = prompt(2, 1200), two = prompt(3, 1500);
    const auto want = run(kept, 20);
    const auto want_one = run(one, 20);
    std::atomic<bool> is_over{ false };
    std::thread saver([&] {
        weir_error error = {};
        weir_session_result result;
        const weir_session_request request = { "moving", nullptr, kept.data(),
                                               (int32_t)kept.size() };
        do
            EXPECT_EQ(
                weir_sessions_save(weir_engine_sessions(engine_), &request, &result, &error),
                WEIR_OK
            ) << error.text;
        while (!is_over);
    });
    const auto want_two = run(two, 20);
    for (int i = 0; i < 6; i++) {
        EXPECT_EQ(run(i % 2 ? one : two, 20), i % 2 ? want_one : want_two);
        EXPECT_EQ(run(kept, 20), want);
        (void)run(prompt(50 + i, 500));
    }
    is_over = true;
    saver.join();
    start("qwen3", 0, 0, dir);
    weir_session_result result;
    ASSERT_EQ(
        weir_sessions_restore(weir_engine_sessions(engine_), "moving", &result, &error_), WEIR_OK
    ) << error_.text;
    EXPECT_EQ(run(kept, 20), want);
    EXPECT_EQ(usage_.n_cached, 599) << usage_.reuse;
    stop();
    std::filesystem::remove_all(sessions);
}

/* The disk hangs under a session that is saved, not under the requests: all of them are answered
 * meanwhile, and what they drop, move and demote does not change what is saved. */
TEST_F(Tiers, AReadThatHangsStopsNoStep)
{
    const std::string sessions =
                          ::testing::TempDir() + "/slow-sessions." + std::to_string(getpid()),
                      dir = "sessions.dir=" + sessions;
    std::filesystem::remove_all(sessions);
    start("qwen3", 14, 75, dir);
    const auto kept = prompt(1, 600), large = prompt(3, 1500);
    const auto want = run(kept, 20), want_large = run(large, 20);
    ASSERT_GT(stats().kv_disk_pages_used, 0);
    support::Gate slow;
    std::thread saver([&] {
        weir_error error = {};
        weir_session_result result;
        const weir_session_request request = { "slow", nullptr, kept.data(), (int32_t)kept.size() };
        support::gate = &slow;
        EXPECT_EQ(
            weir_sessions_save(weir_engine_sessions(engine_), &request, &result, &error), WEIR_OK
        ) << error.text;
    });
    EXPECT_TRUE(slow.wait_until_reached());
    EXPECT_EQ(run(large, 20), want_large);
    for (int i = 0; i < 6; i++) (void)run(prompt(50 + i, 900));
    EXPECT_GT(stats().dropped_tokens, 0);
    EXPECT_EQ(run(kept, 20), want);
    slow.open();
    saver.join();
    EXPECT_FALSE(slow.was_late) << "a request waited for the read";
    start("qwen3", 0, 0, dir);
    weir_session_result result;
    ASSERT_EQ(
        weir_sessions_restore(weir_engine_sessions(engine_), "slow", &result, &error_), WEIR_OK
    ) << error_.text;
    EXPECT_EQ(run(kept, 20), want);
    EXPECT_EQ(usage_.n_cached, 599) << usage_.reuse;
    stop();
    std::filesystem::remove_all(sessions);
}

/* A policy that observes attention sees the rows of a prompt on disk too. */
TEST_F(Tiers, PoliciesSeePromptsLargerThanMemory)
{
    const std::pair<const char *, std::vector<std::string>> cases[] = {
        { "qwen3", { "kv.policy.name=h2o", "kv.policy.budget=200", "kv.policy.options=every=16" } },
        { "tq",
          { "kv.policy.name=scissorhands", "kv.policy.budget=200",
            "kv.policy.options=recent=16,every=16,history=64" } },
    };
    for (const auto &[model, policy] : cases) {
        const auto tokens = prompt(1, 1900);
        start(model, 0, 0, "kv.tiers.hot=1", policy);
        const auto want = run(tokens, 40);
        const weir_usage usage = usage_;
        const auto logprobs = logprobs_;
        EXPECT_GT(usage.n_evicted, 1600);
        start(model, 14, 60, "kv.tiers.hot=1", policy);
        EXPECT_EQ(run(tokens, 40), want) << model;
        EXPECT_EQ(logprobs_, logprobs) << model;
        EXPECT_EQ(usage_.n_rows, usage.n_rows);
        EXPECT_EQ(usage_.n_evicted, usage.n_evicted);
        EXPECT_GT(stats().kv_bytes_read, 2 * stats().kv_bytes_out);
        EXPECT_EQ(stats().preemptions, 0);
        reads_fail = true;
        /* The other one has one block, which stays in memory (kv.tiers.hot). */
        Call large(prompt(2, 1900), 40), small(prompt(3, 20), 40);
        for (Call *const call : { &large, &small })
            ASSERT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
        for (Call *const call : { &large, &small }) call->wait();
        EXPECT_EQ(large.status, WEIR_EIO);
        EXPECT_NE(large.message.find("cannot read KV pages back"), std::string::npos)
            << large.message;
        EXPECT_EQ(small.status, WEIR_OK) << small.message;
        large.release();
        small.release();
        reads_fail = false;
        EXPECT_EQ(run(tokens, 40), want) << model;
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
    }
}

/* What a policy keeps has to be in memory at once. Where it never fits the request fails, also when
 * others run, and is not computed again and again. */
TEST_F(Tiers, ABudgetThatMemoryDoesNotHoldFails)
{
    weir_policy_options full;
    ASSERT_EQ(weir_policy_options_default(&full, "full", &error_), WEIR_OK);
    for (const char *const policy : { "kv.policy.name=snapkv", "kv.policy.name=h2o" }) {
        start("qwen3", 14, 60, "kv.tiers.hot=1", { policy, "kv.policy.budget=1500" });
        const auto fits = prompt(3, 700);
        const auto want = run(fits, 20);
        (void)run(prompt(1, 1900), 40, WEIR_EFULL);
        EXPECT_NE(message_.find("rows that the KV policy keeps"), std::string::npos) << message_;
        EXPECT_EQ(stats().preemptions, 0) << "no other ran";
        Call large(prompt(1, 1900), 40), small(prompt(2, 300), 60);
        small.request.policy = &full;
        for (Call *const call : { &large, &small })
            ASSERT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
        for (Call *const call : { &large, &small }) call->wait();
        EXPECT_EQ(large.status, WEIR_EFULL);
        EXPECT_EQ(small.status, WEIR_OK) << small.message;
        large.release();
        small.release();
        EXPECT_EQ(run(fits, 20), want);
        expect_within();
        EXPECT_EQ(pages_used_when_idle(), 0);
    }
}

/* A sequence whose rows may find no room next to those of a younger one, which is not computed as
 * long as the older one has a prompt to compute, and goes on while a thread reads its rows. */
TEST_F(Tiers, TheOldestGetsOn)
{
    weir_policy_options in_prompt, at_end;
    ASSERT_EQ(weir_policy_options_default(&in_prompt, "sinks", &error_), WEIR_OK);
    ASSERT_EQ(weir_policy_options_set(&in_prompt, "in_prompt=true,every=16", &error_), WEIR_OK);
    ASSERT_EQ(weir_policy_options_default(&at_end, "snapkv", &error_), WEIR_OK);
    const auto ask = [](Call *call, const weir_policy_options *policy, int budget, int client) {
        call->request.policy = policy;
        call->request.kv_budget = budget;
        call->request.client = client;
    };
    start("qwen3", 0, 0, "kv.tiers.hot=1", { "kv.policy.name=snapkv", "kv.policy.budget=560" });
    const auto alone = run(prompt(2, 1500), 20);
    start("qwen3", 15, 60, "kv.tiers.hot=1", { "kv.policy.name=snapkv", "kv.policy.budget=560" });
    struct Three {
        Call first, older, younger;
        weir_service *service;
        bool is_begun;
        static bool on_event(void *user, const weir_event *event)
        {
            Three *const three = static_cast<Three *>(user);
            weir_error error = {};
            if (event->type == WEIR_EVENT_TOKEN && !three->is_begun) {
                three->is_begun = true;
                for (Call *const call : { &three->older, &three->younger })
                    EXPECT_EQ(call->submit(three->service, &error), WEIR_OK) << error.text;
            }
            return Call::on_event(&three->first, event);
        }
    } three = { Call(prompt(1, 100), 12), Call(prompt(2, 1500), 20), Call(prompt(3, 1900), 140),
                service_, false };
    ask(&three.first, nullptr, 0, 1);
    ask(&three.older, &at_end, 560, 1);
    ask(&three.younger, &in_prompt, 400, 2); /* its client has nothing that runs: it is first */
    three.first.request.callback = Three::on_event;
    three.first.request.user = &three;
    ASSERT_EQ(three.first.submit(service_, &error_), WEIR_OK) << error_.text;
    three.first.wait();
    three.older.wait();
    three.younger.wait();
    EXPECT_EQ(three.older.status, WEIR_OK) << three.older.message;
    EXPECT_EQ(three.older.tokens[0], alone);
    EXPECT_EQ(three.younger.status, WEIR_OK) << three.younger.message;
    for (Call *const call : { &three.first, &three.older, &three.younger }) call->release();
    expect_within();
}

/* A disk that does not answer: blocks leave ahead of need, so steps go on as long as there is
 * memory; here until the end of the answer. */
TEST_F(Tiers, StepsGoOnWhileABlockIsWritten)
{
    start("qwen3", 0);
    const auto tokens = prompt(1, 800);
    const auto want = run(tokens, 80);
    start("qwen3", 14, 60);
    support::Gate slow;
    support::write_gate = &slow;
    EXPECT_EQ(run(tokens, 80), want);
    EXPECT_TRUE(slow.is_reached) << "nothing was written";
    EXPECT_FALSE(slow.was_late) << "a step waited for the disk";
    support::write_gate = nullptr;
    slow.open();
    EXPECT_EQ(run(tokens, 80), want);
    EXPECT_EQ(usage_.n_cached, 799);
    expect_within();
    EXPECT_EQ(pages_used_when_idle(), 0);
}

/* Two long sequences at once, in memory for a sixth of them. */
TEST_F(Tiers, TwoLongSequencesShareMemory)
{
    start("qwen3", 0);
    const auto one = prompt(1, 1900), two = prompt(2, 1700);
    const auto want_one = run(one, 60), want_two = run(two, 60);
    start("qwen3", 11, 80);
    Call a(one, 60), b(two, 60);
    ASSERT_EQ(a.submit(service_, &error_), WEIR_OK);
    ASSERT_EQ(b.submit(service_, &error_), WEIR_OK);
    a.wait();
    b.wait();
    EXPECT_EQ(a.tokens[0], want_one);
    EXPECT_EQ(b.tokens[0], want_two);
    EXPECT_EQ(stats().preemptions, 0);
    EXPECT_GT(stats().reclaimed[WEIR_RECLAIM_DEMOTE_RUNNING].pages, 0);
    a.release();
    b.release();
    expect_within();
    EXPECT_EQ(pages_used_when_idle(), 0);
}

} // namespace
