/* Requests run together as they run alone; refusals, cancellation, and what the plan and the usage
 * say. */
#include "tests/unit/schedule/support.h"

namespace {

using support::Call;
using support::Service;

TEST_F(Service, SixteenStreamsEqualSolo)
{
    open("tq", 16);
    std::vector<std::vector<int32_t>> solo;
    for (int i = 0; i < 16; i++) solo.push_back(alone(prompt(i, 5 + 17 * i)));
    const int64_t steps_alone = stats().steps;
    Call first(prompt(0, 1), 1);
    std::unique_lock<std::mutex> hold(first.lock); /* its callback waits for the others */
    std::vector<std::unique_ptr<Call>> calls;
    ASSERT_EQ(first.submit(service_, &error_), WEIR_OK) << error_.text;
    for (int i = 0; i < 16; i++) {
        calls.push_back(std::make_unique<Call>(prompt(i, 5 + 17 * i)));
        ASSERT_EQ(calls.back()->submit(service_, &error_), WEIR_OK) << error_.text;
    }
    hold.unlock();
    for (int i = 0; i < 16; i++) {
        calls[static_cast<size_t>(i)]->wait();
        EXPECT_EQ(calls[static_cast<size_t>(i)]->tokens[0], solo[static_cast<size_t>(i)])
            << "stream " << i;
        EXPECT_EQ(calls[static_cast<size_t>(i)]->finish[0], WEIR_FINISH_LENGTH);
    }
    /* 16 answers of 24 tokens share their steps; pieces of prompts take most of these. */
    EXPECT_LT(stats().steps - steps_alone, steps_alone / 4) << "they ran together";
}

TEST_F(Service, PreemptedAnswersAreTheSame)
{
    open("tq", 6);
    std::vector<std::vector<int32_t>> solo;
    for (int i = 0; i < 6; i++) solo.push_back(alone(prompt(i, 60), 120));
    weir_service_stats stats;
    weir_service_stats_of(service_, &stats);
    const int64_t steps_alone = stats.steps;
    weir_engine_close(engine_);
    engine_ = nullptr;
    open("tq", 6, nullptr, 192, 0, { "memory.snapshots=256KiB", "kv.policy.kept=0" });
    /* Room for two whole windows only: six answers of 180 tokens must take turns. */
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    const size_t fixed = weir_plan_total(plan) - plan->kv, window = plan->kv / 6;
    const std::string memory = std::to_string(fixed + 2 * window + window / 2) + "B";
    weir_engine_close(engine_);
    engine_ = nullptr;
    open("tq", 6, memory.c_str(), 192, 0, { "memory.snapshots=256KiB", "kv.policy.kept=0" });
    ASSERT_LT(weir_engine_plan_of(engine_)->kv_rows, 6 * 180);
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < 6; i++) calls.push_back(std::make_unique<Call>(prompt(i, 60), 120));
    submit_together(service_, calls, &error_);
    for (int i = 0; i < 6; i++) {
        calls[static_cast<size_t>(i)]->wait();
        EXPECT_EQ(calls[static_cast<size_t>(i)]->status, WEIR_OK);
        EXPECT_EQ(calls[static_cast<size_t>(i)]->tokens[0], solo[static_cast<size_t>(i)])
            << "stream " << i;
    }
    weir_service_stats_of(service_, &stats);
    EXPECT_LT(stats.steps, steps_alone) << "some ran together";
    EXPECT_GT(stats.preemptions, 0) << "none was preempted: nothing was tested";
    EXPECT_EQ(pages_used_when_idle(), 0);
}

TEST_F(Service, WhatIsFreeIsKnownBeforeTheFirstStep)
{
    open("tq", 4);
    weir_service_stats stats;
    weir_service_stats_of(service_, &stats);
    EXPECT_EQ(stats.steps, 0);
    EXPECT_EQ(stats.kv_tokens_free, weir_engine_plan_of(engine_)->kv_rows);
    EXPECT_EQ(stats.kv_pages_used, 0);
    EXPECT_EQ(stats.kv_bytes_used, 0);
}

/* More sequences than the sinks of cached sequences leave room for, and choices that fork inside
 * their sinks. */
TEST_F(Service, SinksAreThereForAllWhoRun)
{
    const std::vector<const char *> settings = { "kv.format=turbo4", "kv.wide_sinks=128" };
    open("qwen3", 4, nullptr, 256, 0, settings);
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    EXPECT_GE(plan->facts.kv_pages.n_sinks * 64, 5 * 128);
    std::vector<std::vector<int32_t>> solo;
    for (int i = 0; i < 12; i++)
        solo.push_back(alone(prompt(i, 70 + 3 * i), 20)); /* kept, each with sinks of its own */
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < 12; i++) {
        calls.push_back(std::make_unique<Call>(prompt(i, 70 + 3 * i), 20));
        calls.back()->request.cache_prompt = i % 2 == 0;
        calls.back()->request.n_choices = 1 + i % 3;
        ASSERT_EQ(calls.back()->submit(service_, &error_), WEIR_OK) << error_.text;
    }
    for (int i = 0; i < 12; i++) {
        calls[(size_t)i]->wait();
        EXPECT_EQ(calls[(size_t)i]->status, WEIR_OK) << calls[(size_t)i]->message;
        for (const auto &tokens : calls[(size_t)i]->tokens)
            EXPECT_EQ(tokens, solo[(size_t)i]) << "stream " << i;
    }
    weir_service_stats stats;
    EXPECT_EQ(pages_used_when_idle(), 0);
    weir_service_stats_of(service_, &stats);
    EXPECT_EQ(stats.kv_bytes_used, 0);
    EXPECT_EQ(stats.kv_sink_pages_free, plan->facts.kv_pages.n_sinks);
    EXPECT_EQ(stats.kv_tokens_free, plan->kv_rows);
    calls.clear();
}

/* More sinks than the window has tokens: all pages of every sequence are, and there is room for no
 * others. */
TEST_F(Service, SinksMayBeAllOfASequence)
{
    for (const char *const format : { "kv.format=turbo4", "kv.format=kivi4" }) {
        open("qwen3", 3, nullptr, 256, 0, { format, "kv.wide_sinks=65536" });
        const weir_plan *const plan = weir_engine_plan_of(engine_);
        EXPECT_EQ(plan->facts.window, 256);
        EXPECT_EQ(plan->kv_rows, 4 * 256) << "for those that run and a session";
        EXPECT_EQ(plan->facts.kv_pages.n, plan->facts.kv_pages.n_sinks);
        std::vector<std::vector<int32_t>> solo;
        for (int i = 0; i < 6; i++) solo.push_back(alone(prompt(i, 60 + 30 * i), 20));
        std::vector<std::unique_ptr<Call>> calls;
        for (int i = 0; i < 12; i++) {
            calls.push_back(std::make_unique<Call>(prompt(i % 6, 60 + 30 * (i % 6)), 20));
            calls.back()->request.cache_prompt = true;
            ASSERT_EQ(calls.back()->submit(service_, &error_), WEIR_OK) << error_.text;
        }
        for (int i = 0; i < 12; i++) {
            calls[(size_t)i]->wait();
            EXPECT_EQ(calls[(size_t)i]->status, WEIR_OK) << calls[(size_t)i]->message;
            EXPECT_EQ(calls[(size_t)i]->tokens[0], solo[(size_t)i % 6]) << "stream " << i;
        }
        calls.clear();
        EXPECT_EQ(pages_used_when_idle(), 0);
        weir_engine_close(engine_);
        engine_ = nullptr;
    }
}

TEST_F(Service, ChoicesShareThePromptAndDifferOnlyByTheirDraws)
{
    open("tq-r1", 4);
    Call call(prompt(3, 70), 20), again(prompt(3, 70), 20);
    for (Call *c : { &call, &again }) {
        c->request.n_choices = 3;
        c->request.sampling.temperature = 1.5f;
        c->request.sampling.seed = 7;
        ASSERT_EQ(c->submit(service_, &error_), WEIR_OK) << error_.text;
    }
    call.wait();
    again.wait();
    EXPECT_EQ(call.tokens, again.tokens) << "the seed repeats all choices";
    EXPECT_NE(call.tokens[0], call.tokens[1]);
    EXPECT_NE(call.tokens[1], call.tokens[2]);
    EXPECT_EQ(call.usage.n_answer, 60);
    EXPECT_EQ(call.usage.n_prompt, 70);
}

/* Rows of a step are sampled in parallel: no draw depends on how many threads there are. */
TEST_F(Service, DrawsDoNotDependOnTheNumberOfThreads)
{
    std::vector<std::vector<std::vector<int32_t>>> tokens;
    std::vector<std::vector<std::vector<float>>> logprobs;
    for (const char *const threads : { "1", "3" }) {
        open("qwen3", 5, nullptr, 512, 0, { (std::string("kernels.threads=") + threads).c_str() });
        std::vector<std::unique_ptr<Call>> calls;
        for (int i = 0; i < 5; i++) {
            calls.push_back(std::make_unique<Call>(prompt(i, 20 + i)));
            weir_request *const request = &calls.back()->request;
            request->sampling.temperature = 1.0f + 0.2f * (float)i;
            request->sampling.top_k = 10 * i;
            request->sampling.top_p = 1.0f - 0.1f * (float)i;
            request->sampling.seed = (uint64_t)(100 + i);
            request->want_logprobs = true;
        }
        for (auto &call : calls) ASSERT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
        tokens.emplace_back();
        logprobs.emplace_back();
        for (auto &call : calls) {
            call->wait();
            EXPECT_EQ(call->status, WEIR_OK) << call->message;
            tokens.back().push_back(call->tokens[0]);
            logprobs.back().push_back(call->logprobs[0]);
        }
        calls.clear();
        stop();
    }
    EXPECT_EQ(tokens[0], tokens[1]);
    EXPECT_EQ(logprobs[0], logprobs[1]);
    EXPECT_EQ(tokens[0][4].size(), 24u);
}

TEST_F(Service, PromptScoresEqualTheAnswersScores)
{
    open("qwen3", 2);
    const std::vector<int32_t> ids = prompt(1, 40);
    Call drawn(ids, 30);
    drawn.request.want_logprobs = true;
    const std::vector<int32_t> tokens = answer(drawn);
    std::vector<int32_t> whole = ids;
    whole.insert(whole.end(), tokens.begin(), tokens.end());
    Call score(whole, 0);
    score.request.want_prompt_logprobs = true;
    ASSERT_EQ(score.submit(service_, &error_), WEIR_OK);
    score.wait();
    EXPECT_EQ(score.finish[0], WEIR_FINISH_LENGTH);
    ASSERT_EQ(score.prompt_logprobs.size(), whole.size() - 1);
    ASSERT_EQ(drawn.logprobs[0].size(), 30u);
    for (size_t i = 0; i < 30; i++)
        EXPECT_EQ(score.prompt_logprobs[ids.size() - 1 + i], drawn.logprobs[0][i]) << i;
}

TEST_F(Service, CallbackEndsAChoice)
{
    open("qwen3", 2);
    Call call(prompt(1, 10), 100);
    call.stop_after = 5;
    ASSERT_EQ(call.submit(service_, &error_), WEIR_OK);
    call.wait();
    EXPECT_EQ(call.tokens[0].size(), 5u);
    EXPECT_EQ(call.finish[0], WEIR_FINISH_STOP);
}

TEST_F(Service, CancelGivesTheSlotBackAndReleaseSilencesTheJob)
{
    open("qwen3", 1, nullptr, 4096);
    auto running = std::make_unique<Call>(prompt(1, 10), 4000);
    Call queued(prompt(2, 10), 4000), last(prompt(3, 10), 5);
    ASSERT_EQ(running->submit(service_, &error_), WEIR_OK);
    ASSERT_EQ(queued.submit(service_, &error_), WEIR_OK);
    ASSERT_EQ(last.submit(service_, &error_), WEIR_OK);
    weir_job_cancel(queued.job);
    queued.wait();
    EXPECT_EQ(queued.status, WEIR_ECANCELED);
    running.reset(); /* released while it runs */
    last.wait();
    EXPECT_EQ(last.status, WEIR_OK);
    EXPECT_EQ(last.events_after_done, 0);
}

TEST_F(Service, ARunningJobThatIsCancelledEnds)
{
    open("qwen3", 1, nullptr, 4096);
    Call call(prompt(1, 10), 4000);
    std::unique_lock<std::mutex> hold(call.lock
    ); /* its callback waits: it cannot come to its end */
    ASSERT_EQ(call.submit(service_, &error_), WEIR_OK);
    for (int i = 0; i < 60000 && stats().running == 0; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(stats().running, 1);
    weir_job_cancel(call.job);
    hold.unlock();
    call.wait();
    EXPECT_EQ(call.status, WEIR_ECANCELED);
    EXPECT_LT(call.tokens[0].size(), 4000u);
}

// One client fills the queue; the one request of another is second, not last.
TEST_F(Service, ClientsTakeTurns)
{
    open("qwen3", 1, nullptr, 512, 16);
    static std::vector<const void *> admitted;
    admitted.clear();
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < 8; i++) {
        calls.push_back(std::make_unique<Call>(prompt(i, 10), 20));
        calls.back()->request.client = i == 7 ? 2 : 1;
        calls.back()->request.callback = [](void *user, const weir_event *event) {
            if (event->type == WEIR_EVENT_ADMITTED) admitted.push_back(user);
            return Call::on_event(user, event);
        };
    }
    submit_together(service_, calls, &error_);
    for (auto &call : calls) call->wait();
    std::vector<const void *> want;
    for (const size_t i : { 0, 7, 1, 2, 3, 4, 5, 6 }) want.push_back(calls[i].get());
    EXPECT_EQ(admitted, want) << "in order within a client";
}

TEST_F(Service, QueueLimitWindowAndBadNumbersAreRefused)
{
    open("qwen3", 1, nullptr, 256, 1);
    Call first(prompt(1, 10), 240), second(prompt(2, 10), 4), third(prompt(3, 10), 4),
        longer(prompt(4, 257), 1);
    Call bad({ 5, 100000 }, 4), many(prompt(5, 4), 4);
    many.request.n_choices = 2;
    EXPECT_EQ(longer.submit(service_, &error_), WEIR_EINVAL);
    EXPECT_NE(std::string(error_.text).find("context_length_exceeded"), std::string::npos);
    EXPECT_NE(
        std::string(error_.text).find("exceeds the available context size"), std::string::npos
    );
    EXPECT_EQ(bad.submit(service_, &error_), WEIR_EINVAL);
    EXPECT_EQ(many.submit(service_, &error_), WEIR_EINVAL);
    ASSERT_EQ(first.submit(service_, &error_), WEIR_OK);
    weir_status status = WEIR_OK;
    std::vector<std::unique_ptr<Call>> more; /* until the queue of one is full */
    for (int i = 0; i < 200 && status == WEIR_OK; i++) {
        more.push_back(std::make_unique<Call>(prompt(i, 10), 4));
        status = more.back()->submit(service_, &error_);
    }
    EXPECT_EQ(status, WEIR_EFULL);
    first.wait();
    for (size_t i = 0; i + 1 < more.size(); i++) more[i]->wait();
    EXPECT_EQ(first.tokens[0].size(), 240u);
    weir_service_drain(service_, weir_clock_ns() + 1000000000);
    EXPECT_EQ(third.submit(service_, &error_), WEIR_EUNSUPPORTED);
    (void)second;
}

/* The pool is one window: nothing may wait for a row past it. */
TEST_F(Service, APromptAsLongAsTheWindowAndThePoolRuns)
{
    open("qwen3", 1, nullptr, 128);
    ASSERT_EQ(weir_engine_plan_of(engine_)->kv_rows, 128);
    Call call(prompt(1, 128), 10);
    ASSERT_EQ(call.submit(service_, &error_), WEIR_OK);
    const int64_t deadline = weir_clock_ns() + 20000000000;
    std::unique_lock<std::mutex> hold(call.lock);
    while (!call.done && weir_clock_ns() < deadline)
        call.changed.wait_for(hold, std::chrono::milliseconds(50));
    EXPECT_TRUE(call.done) << "it was never admitted";
    hold.unlock();
    EXPECT_EQ(call.tokens[0].size(), call.done ? 1u : 0u);
}

/* Prompts that fit one at a time but not together, let in at the same moment: they take turns and
 * none fails. */
TEST_F(Service, PromptsThatFitOnlyOneByOneTakeTurns)
{
    open("qwen3", 4, nullptr, 128, 0, { "kv.policy.kept=0" });
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    const std::string memory = /* fewer pages have less metadata, which leaves some more */
        std::to_string(weir_plan_total(plan) - plan->kv + plan->kv / 4) + "B";
    std::vector<std::vector<int32_t>> solo;
    for (int i = 0; i < 4; i++) solo.push_back(alone(prompt(i, 10 + 2 * i), 80));
    weir_engine_close(engine_);
    engine_ = nullptr;
    open("qwen3", 4, memory.c_str(), 128, 0, { "kv.policy.kept=0" });
    ASSERT_EQ(weir_engine_plan_of(engine_)->kv_rows, 128);
    for (int round = 0; round < 10; round++) {
        /* Holds the engine thread in its callback until all are queued. */
        Call first(prompt(9, 3), 1);
        std::unique_lock<std::mutex> hold(first.lock);
        ASSERT_EQ(first.submit(service_, &error_), WEIR_OK);
        std::vector<std::unique_ptr<Call>> calls;
        for (int i = 0; i < 4; i++) {
            calls.push_back(std::make_unique<Call>(prompt(i, 10 + 2 * i), 80));
            ASSERT_EQ(calls.back()->submit(service_, &error_), WEIR_OK) << error_.text;
        }
        hold.unlock();
        for (size_t i = 0; i < 4; i++) {
            calls[i]->wait();
            EXPECT_EQ(calls[i]->status, WEIR_OK) << "stream " << i;
            EXPECT_EQ(calls[i]->tokens[0], solo[i]) << "stream " << i;
        }
    }
}

/* What the plan says is what the ledger holds, to the byte, and no mixture of prompts and answers
 * needs more. */
TEST_F(Service, ThePlanIsWhatTheLedgerHoldsAndStepsTakeNoMore)
{
    for (const char *const model : { "tq", "qwen3" }) {
        open(model, 3, nullptr, 3000);
        const weir_plan *const plan = weir_engine_plan_of(engine_);
        const weir_ledger *const ledger = weir_engine_ledger(engine_);
        EXPECT_EQ(weir_ledger_used(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_WEIGHTS), plan->weights);
        EXPECT_EQ(
            weir_ledger_used(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_ACTIVATIONS), plan->activations
        );
        EXPECT_EQ(
            weir_ledger_used(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_RECURRENT), plan->recurrent
        );
        EXPECT_EQ(weir_ledger_used(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_KV), plan->kv);
        const size_t scratch = weir_stream_scratch_bytes(weir_engine_stream(engine_));
        EXPECT_GT(plan->activations, scratch);
        std::vector<std::unique_ptr<Call>> calls;
        for (int i = 0; i < 5; i++) { /* tails of many lengths past the first split of attention */
            calls.push_back(std::make_unique<Call>(prompt(i, 1200 + 71 * i), 12));
            ASSERT_EQ(calls.back()->submit(service_, &error_), WEIR_OK) << error_.text;
        }
        for (auto &call : calls) call->wait();
        EXPECT_EQ(weir_stream_scratch_bytes(weir_engine_stream(engine_)), scratch);
        calls.clear();
        weir_engine_close(engine_);
        engine_ = nullptr;
    }
}

/* What usage says of rows is what the format's own sizes give. */
TEST_F(Service, UsageCountsRowsAndTheirBytes)
{
    for (const bool is_lossy : { false, true }) {
        open(
            "qwen3", 2, nullptr, 512, 0,
            { is_lossy ? "kv.format=bf16/fp8_e4m3" : "kv.format=f32/bf16" }
        );
        const weir_engine_facts *const facts = weir_service_facts_of(service_);
        EXPECT_EQ(facts->kv_is_lossy, is_lossy);
        Call call(prompt(1, 100), 40);
        call.request.n_choices = 2;
        ASSERT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
        call.wait();
        ASSERT_EQ(call.tokens[0].size() + call.tokens[1].size(), 80u);
        EXPECT_EQ(call.usage.n_rows, 2 * 139) << "the last token of a choice is not computed";
        EXPECT_EQ(call.usage.kv_bytes, 2 * 3 * 64 * facts->kv_bytes_per_token)
            << "three pages' worth of tokens each";
        call.release();
        weir_engine_close(engine_);
        engine_ = nullptr;
    }
}

} // namespace
