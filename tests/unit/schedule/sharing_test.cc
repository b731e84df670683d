/* Requests at the same time: what begins alike is computed once, rows of a step, and timeouts. */
#include <algorithm>

#include "engine/engine_parts.h"
#include "engine/kv/pool/store.h"
#include "engine/schedule/job.h"
#include "tests/unit/schedule/support.h"
#include "tests/unit/schedule/timed.h"

namespace {

using support::Call;
using support::Service;
using support::Timed;

class Sharing : public Service {
  protected:
    using Calls = std::vector<std::unique_ptr<Call>>;
    /* Submits all while the engine waits in the callback of another request. */
    void submit_together(Calls &calls)
    {
        Call first(prompt(99, 1), 1);
        std::unique_lock<std::mutex> hold(first.lock);
        ASSERT_EQ(first.submit(service_, &error_), WEIR_OK) << error_.text;
        for (auto &call : calls) ASSERT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
        hold.unlock();
        for (auto &call : calls) {
            call->wait();
            EXPECT_EQ(call->status, WEIR_OK) << call->message;
        }
    }
    static std::unique_ptr<Call> cached(const std::vector<int32_t> &ids, int max_tokens = 24)
    {
        auto call = std::make_unique<Call>(ids, max_tokens);
        call->request.cache_prompt = true;
        return call;
    }
    /* The answer without the cache. */
    std::vector<int32_t> cold(const std::vector<int32_t> &ids, int max_tokens = 24)
    {
        Call call(ids, max_tokens);
        return answer(call);
    }
    static void add_question(std::vector<int32_t> *document, int number)
    {
        for (int i = 0; i < 6; i++) document->push_back((number * 41 + i * 7) % 300);
    }
};

TEST_F(Sharing, EqualPromptsAreComputedOnce)
{
    for (const char *const model : { "qwen3", "tq" }) {
        SCOPED_TRACE(model);
        open(model, 4);
        const std::vector<int32_t> ids = prompt(3, 400);
        const std::vector<int32_t> expected = cold(ids);
        const int64_t before = stats().batch_rows;
        Calls calls;
        for (int i = 0; i < 4; i++) calls.push_back(cached(ids));
        submit_together(calls);
        std::vector<int> cached;
        for (auto &call : calls) {
            EXPECT_EQ(call->tokens[0], expected);
            cached.push_back(call->usage.n_cached);
        }
        std::sort(cached.begin(), cached.end());
        EXPECT_EQ(cached[0], 0) << "one computes the prompt";
        EXPECT_GE(cached[1], 384) << "the others take its rows";
        EXPECT_LE(stats().batch_rows - before, 1 + 400 + 3 * 16 + 4 * 24);
        calls.clear();
        stop();
    }
}

TEST_F(Sharing, CommonBeginningsAreComputedOnce)
{
    for (const char *const model : { "qwen3", "tq" }) {
        SCOPED_TRACE(model);
        open(model, 4);
        Calls calls;
        std::vector<std::vector<int32_t>> expected;
        for (int i = 0; i < 4; i++) {
            std::vector<int32_t> ids = prompt(3, 320 + 16);
            add_question(&ids, i);
            expected.push_back(cold(ids));
            calls.push_back(cached(ids));
        }
        submit_together(calls);
        int n_cold = 0;
        for (size_t i = 0; i < 4; i++) {
            EXPECT_EQ(calls[i]->tokens[0], expected[i]);
            n_cold += calls[i]->usage.n_cached == 0;
            if (calls[i]->usage.n_cached > 0) EXPECT_EQ(calls[i]->usage.n_cached, 320);
        }
        EXPECT_EQ(n_cold, 1);
        calls.clear();
        stop();
    }
}

/* Sequences under other salts, or that may not be cached, are not shared. */
TEST_F(Sharing, OnlyWhatMayBeShared)
{
    open("qwen3", 4);
    const std::vector<int32_t> ids = prompt(3, 300);
    Calls calls;
    for (int i = 0; i < 3; i++) calls.push_back(cached(ids));
    calls[1]->request.cache_salt = "other";
    calls[2]->request.cache_prompt = false;
    submit_together(calls);
    for (auto &call : calls) {
        EXPECT_EQ(call->usage.n_cached, 0);
        EXPECT_EQ(call->tokens[0], calls[0]->tokens[0]);
    }
}

/* The request that computes for others is cancelled: they go on. */
TEST_F(Sharing, FollowersSurviveTheirLeader)
{
    for (const char *const model : { "qwen3", "tq" }) {
        SCOPED_TRACE(model);
        open(model, 3, nullptr, 1024);
        const std::vector<int32_t> ids = prompt(3, 900);
        const std::vector<int32_t> expected = cold(ids);
        Calls calls;
        for (int i = 0; i < 3; i++) calls.push_back(cached(ids));
        Call first(prompt(99, 1), 1);
        std::unique_lock<std::mutex> hold(first.lock);
        ASSERT_EQ(first.submit(service_, &error_), WEIR_OK) << error_.text;
        for (auto &call : calls) ASSERT_EQ(call->submit(service_, &error_), WEIR_OK);
        const int64_t before = stats().steps;
        hold.unlock();
        while (stats().steps < before + 4) std::this_thread::yield();
        weir_job_cancel(calls[0]->job);
        for (auto &call : calls) call->wait();
        EXPECT_EQ(calls[1]->tokens[0], expected);
        EXPECT_EQ(calls[2]->tokens[0], expected);
        calls.clear();
        first.release();
        stop();
    }
}

/* A document larger than half of the memory, and questions about it: each needs a page or two. */
TEST_F(Sharing, AskersOfOneDocumentRunTogether)
{
    for (const char *const model : { "qwen3", "tq" }) {
        SCOPED_TRACE(model);
        const std::vector<const char *> more = { "memory.snapshots=256KiB", "kv.policy.kept=0" };
        open(model, 4, nullptr, 1024, 8, more);
        const weir_plan *const plan = weir_engine_plan_of(engine_);
        const size_t fixed = weir_plan_total(plan) - plan->kv, window = plan->kv / 5;
        const std::string memory = std::to_string(fixed + window + window / 2) + "B";
        std::vector<std::vector<int32_t>> prompts, expected;
        for (int i = 0; i < 4; i++) {
            prompts.push_back(prompt(3, 832));
            add_question(&prompts.back(), i);
            expected.push_back(cold(prompts.back(), 60));
        }
        stop();
        open(model, 4, memory.c_str(), 1024, 8, more);
        ASSERT_LT(weir_engine_plan_of(engine_)->kv_rows, 2 * 900);
        Calls calls;
        for (int i = 0; i < 4; i++) calls.push_back(cached(prompts[(size_t)i], 60));
        const int64_t before = stats().steps;
        submit_together(calls);
        for (size_t i = 0; i < 4; i++) EXPECT_EQ(calls[i]->tokens[0], expected[i]);
        EXPECT_LT(stats().steps - before, 15 + 60 + 40) << "one after the other";
        calls.clear();
        stop();
    }
}

TEST_F(Sharing, SixteenEqualPromptsCostOne)
{
    enum { N = 16, ROWS = 3000, ANSWER = 4 };
    for (const char *const model : { "qwen3", "tq" }) {
        SCOPED_TRACE(model);
        open(model, N, nullptr, 4096);
        const std::vector<int32_t> ids = prompt(3, ROWS);
        const std::vector<int32_t> expected = cold(ids, ANSWER);
        const int64_t before = stats().batch_rows;
        Calls calls;
        for (int i = 0; i < N; i++) calls.push_back(cached(ids, ANSWER));
        submit_together(calls);
        for (auto &call : calls) EXPECT_EQ(call->tokens[0], expected);
        EXPECT_LE(stats().batch_rows - before, 1 + ROWS + (N - 1) * 64 + N * ANSWER);
        calls.clear();
        stop();
    }
}

/* Policies that need no more than rows or the last queries take rows of the tree, others a
 * checkpoint. */
TEST_F(Sharing, EqualPromptsUnderAPolicyAreComputedOnce)
{
    enum { N = 4, ROWS = 700, ANSWER = 4, WINDOW = 8 };
    const struct {
        const char *name, *options;
    } methods[] = { { "sinks", "sinks=4,every=1" },
                    { "keydiff", "every=8" },
                    { "snapkv", "window=8,every=16" },
                    { "h2o", "sinks=2,recent=16,every=4" },
                    { "h2o", "sinks=2,recent=16,every=4,in_prompt=true" },
                    { "expected", "every=8" } };
    for (const char *const model : { "qwen3", "tq" }) {
        for (const auto &method : methods) {
            SCOPED_TRACE(std::string(model) + " " + method.name + " " + method.options);
            const std::string name = std::string("kv.policy.name=") + method.name,
                              options = std::string("kv.policy.options=") + method.options;
            open(
                model, N + 1, nullptr, 1024, 0,
                { name.c_str(), options.c_str(), "kv.policy.budget=100" }
            );
            const std::vector<int32_t> ids = prompt(3, ROWS);
            const std::vector<int32_t> expected = cold(ids, ANSWER);
            const int64_t before = stats().batch_rows;
            Calls calls;
            for (int i = 0; i < N; i++) calls.push_back(cached(ids, ANSWER));
            submit_together(calls);
            for (auto &call : calls) EXPECT_EQ(call->tokens[0], expected);
            for (size_t i = 1; i < N; i++)
                EXPECT_GE(calls[i]->usage.n_cached, (ROWS - WINDOW - 1) / 64 * 64 - 64);
            EXPECT_LE(stats().batch_rows - before, 1 + ROWS + (N - 1) * (2 * 64) + N * ANSWER);
            calls.clear();
            EXPECT_EQ(pages_used_when_idle(), 0);
            stop();
        }
    }
}

/* A pool that holds little more than a document, and sixteen questions about it: all are answered
 * at once, each with a page of its own. */
TEST_F(Sharing, SixteenAskersOfOneDocumentRunAtOnce)
{
    enum { N = 16, ROWS = 2048, ANSWER = 40, WINDOW = 2304 };
    for (const char *const model : { "qwen3", "tq" }) {
        SCOPED_TRACE(model);
        open_with_rows(model, N, ROWS + (N + 1) * 64, WINDOW);
        std::vector<std::vector<int32_t>> prompts, expected;
        for (int i = 0; i < N; i++) {
            prompts.push_back(prompt(3, ROWS));
            add_question(&prompts.back(), i);
            Call call(prompts.back(), ANSWER);
            call.request.ignore_eos = true;
            expected.push_back(i % 5 == 0 ? answer(call) : std::vector<int32_t>());
        }
        std::vector<std::unique_ptr<Timed>> timed;
        const int64_t before = stats().batch_rows;
        for (size_t i = 0; i < N; i++) {
            timed.push_back(std::make_unique<Timed>(service_, prompts[i], ANSWER));
            timed.back()->call.request.cache_prompt = true;
            timed.back()->call.request.ignore_eos = true;
            ASSERT_EQ(timed.back()->call.submit(service_, &error_), WEIR_OK) << error_.text;
        }
        int64_t last_first = 0, first_end = INT64_MAX;
        for (auto &one : timed) {
            one->call.wait();
            EXPECT_EQ(one->call.status, WEIR_OK) << one->call.message;
            last_first = std::max(last_first, one->first);
            first_end = std::min(first_end, one->end);
        }
        EXPECT_LT(last_first, first_end) << "they run at once";
        for (size_t i = 0; i < N; i += 5) EXPECT_EQ(timed[i]->call.tokens[0], expected[i]);
        EXPECT_EQ(stats().preemptions, 0);
        EXPECT_LE(stats().batch_rows - before, ROWS + N * (64 + ANSWER)) << "one prefill";
        timed.clear();
        stop();
    }
}

/* Another question after a document in the same message: where the two part was not known when the
 * first was computed. */
TEST_F(Sharing, AnotherQuestionReusesTheDocument)
{
    open("../../../models/weir-demo", 2, nullptr, 4096);
    for (int i = 0; i < 3; i++) {
        std::vector<int32_t> ids = prompt(3, 3850);
        for (int k = 0; k < 5; k++) add_question(&ids, i + k);
        const std::vector<int32_t> expected = cold(ids, 8);
        auto call = cached(ids, 8);
        EXPECT_EQ(answer(*call), expected);
        if (i > 0) EXPECT_GE(usage_.n_cached, 95 * (int)ids.size() / 100) << usage_.reuse;
    }
}

/* Two requests whose answers outgrow the memory: the second is preempted, and computes again only
 * what the first one needed. */
TEST_F(Sharing, PreemptedRowsStayUntilTheyAreNeeded)
{
    for (const char *const model : { "qwen3", "tq" }) {
        SCOPED_TRACE(model);
        const std::vector<const char *> more = { "memory.snapshots=256KiB", "kv.policy.kept=0" };
        open(model, 2, nullptr, 1024, 8, more);
        const weir_plan *const plan = weir_engine_plan_of(engine_);
        const size_t fixed = weir_plan_total(plan) - plan->kv, window = plan->kv / 3;
        const std::string memory = std::to_string(fixed + window + window / 2) + "B";
        stop();
        open(model, 2, memory.c_str(), 1024, 8, more);
        /* Each has room for half of its answer next to the other. */
        const int n = (int)weir_engine_plan_of(engine_)->kv_rows / 2 - 64, n_answer = 128;
        ASSERT_LT(n + n_answer, 1024);
        const auto first = cold(prompt(1, n), n_answer), second = cold(prompt(2, n), n_answer);
        const int64_t before = stats().batch_rows;
        Calls calls;
        calls.push_back(cached(prompt(1, n), n_answer));
        calls.push_back(cached(prompt(2, n), n_answer));
        submit_together(calls);
        EXPECT_EQ(calls[0]->tokens[0], first);
        EXPECT_EQ(calls[1]->tokens[0], second);
        EXPECT_EQ(stats().preemptions, 1);
        EXPECT_LE(stats().batch_rows - before, 1 + 2 * (n + n_answer - 1) + 192);
        calls.clear();
        stop();
    }
}

/* Rows of a step are those of the decoding sequences, then of prompts, up to batch.tokens. */
TEST_F(Sharing, StepsHaveTheirLimit)
{
    settings_ = { "batch.chunk=512", "batch.mixed_chunk=512", "batch.tokens=100" };
    open("qwen3", 4, nullptr, 1024);
    weir_service_call(
        service_, [](weir_service *service, void *) { service->even_depth = 0; }, nullptr
    );
    const int64_t before = stats().steps;
    Call call(prompt(1, 900), 1);
    (void)answer(call);
    EXPECT_GE(stats().steps - before, 9);
    EXPECT_LE(stats().steps - before, 10);
}

/* The deeper a prompt is, the more its attention costs, next to sequences that decode above all. */
TEST_F(Sharing, RowsAfterManyPastOnesCountMore)
{
    settings_ = { "batch.chunk=512", "batch.mixed_chunk=512" };
    open("qwen3", 2, nullptr, 2048);
    Call decoding(prompt(9, 8), 1800);
    decoding.request.ignore_eos = true;
    /* No step ends while its call is held: those counted are from submission to first token. */
    const auto steps_for = [&](int n) {
        Timed timed(service_, prompt(n, n), 1);
        std::unique_lock<std::mutex> hold(decoding.lock);
        const int64_t before = stats().steps;
        EXPECT_EQ(timed.call.submit(service_, &error_), WEIR_OK) << error_.text;
        hold.unlock();
        timed.call.wait();
        return timed.first - before;
    };
    const auto is_decoding = [&] {
        std::lock_guard<std::mutex> hold(decoding.lock);
        return !decoding.tokens[0].empty() && !decoding.done;
    };
    const int64_t alone = steps_for(1500);
    ASSERT_EQ(decoding.submit(service_, &error_), WEIR_OK);
    while (!is_decoding()) std::this_thread::yield();
    const int64_t half = steps_for(700), whole = steps_for(1501);
    EXPECT_TRUE(is_decoding());
    decoding.wait();
    EXPECT_LT(2 * alone, whole) << "twice the budget, and rows at the beginning cost no less";
    EXPECT_GT(whole, 3 * half);
    EXPECT_LE(whole, 1501 / 32 + 3) << "some rows in any case";
}

TEST_F(Sharing, TimeoutsEndRequestsWithWhatTheyHave)
{
    open("qwen3", 1, nullptr, 512, 8);
    Call running(prompt(1, 20), 400), queued(prompt(2, 20), 4);
    running.request.ignore_eos = queued.request.ignore_eos = true;
    running.request.deadline_ns = weir_clock_ns() + 50'000'000;
    queued.request.deadline_ns = 1;
    std::unique_lock<std::mutex> hold(running.lock);
    ASSERT_EQ(running.submit(service_, &error_), WEIR_OK);
    ASSERT_EQ(queued.submit(service_, &error_), WEIR_OK);
    hold.unlock();
    {
        /* Until the first token, then past the timeout. */
        std::unique_lock<std::mutex> again(running.lock);
        while (running.tokens[0].empty() && !running.done) {
            again.unlock();
            std::this_thread::yield();
            again.lock();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(60));
    }
    running.wait();
    queued.wait();
    EXPECT_EQ(running.status, WEIR_OK) << running.message;
    EXPECT_EQ(running.finish[0], WEIR_FINISH_TIMEOUT);
    EXPECT_GE(running.tokens[0].size(), 1u);
    EXPECT_LT(running.tokens[0].size(), 400u);
    EXPECT_EQ(queued.status, WEIR_OK) << queued.message;
    EXPECT_EQ(queued.finish[0], WEIR_FINISH_TIMEOUT);
    EXPECT_TRUE(queued.tokens[0].empty());
    EXPECT_EQ(pages_used_when_idle(), 0);
}

/* Memory for one page table is left: the answers of a request, which share its prompt, are given
 * one after the other, with the tokens that they have together. */
TEST_F(Sharing, AnswersWaitForMemoryForTheirTables)
{
    open("qwen3", 4);
    weir_kv_store *const store = weir_engine_store(engine_);
    const std::vector<int32_t> ids = prompt(3, 200);
    Call together(ids, 24), in_turn(ids, 24);
    together.request.n_choices = in_turn.request.n_choices = 3;
    (void)answer(together);
    EXPECT_EQ(stats().preemptions, 0);
    std::vector<weir_kv_table> others; /* taken while the engine sleeps */
    while (weir_kv_store_free(store).tables > 1) {
        weir_kv_table table = {};
        ASSERT_EQ(weir_kv_table_open(&table, store, &error_), WEIR_OK) << error_.text;
        ASSERT_EQ(weir_kv_reserve(&table, store, 1), WEIR_OK);
        ASSERT_EQ(table.n_units, 1);
        others.push_back(table);
    }
    EXPECT_EQ(others.size(), 3u);
    (void)answer(in_turn);
    EXPECT_EQ(in_turn.tokens, together.tokens);
    together.release();
    in_turn.release();
    EXPECT_EQ(weir_kv_store_free(store).tables, 1);
    for (weir_kv_table &table : others) weir_kv_table_close(&table, store);
}

} // namespace
