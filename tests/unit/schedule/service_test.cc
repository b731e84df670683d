#include "tests/unit/schedule/support.h"

#include <cstring>
#include <map>

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
    for (int i = 0; i < 6; i++) {
        calls.push_back(std::make_unique<Call>(prompt(i, 60), 120));
        ASSERT_EQ(calls.back()->submit(service_, &error_), WEIR_OK) << error_.text;
    }
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

/* More sequences than the sinks of kept texts leave room for, and choices that fork inside their
 * sinks. */
TEST_F(Service, SinksAreThereForAllWhoRun)
{
    const std::vector<const char *> settings = { "kv.format=turbo4", "kv.wide_sinks=128" };
    open("qwen3", 4, nullptr, 256, 0, settings);
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    EXPECT_GE(plan->facts.kv_sink_pages * 64, 5 * 128);
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
    EXPECT_EQ(stats.kv_sink_pages_free, plan->facts.kv_sink_pages);
    EXPECT_EQ(stats.kv_tokens_free, plan->kv_rows);
    calls.clear();
}

/* More sinks than the window has tokens: all pages of every text are, and there is room for no
 * others. */
TEST_F(Service, SinksMayBeAllOfAText)
{
    for (const char *const format : { "kv.format=turbo4", "kv.format=kivi4" }) {
        open("qwen3", 3, nullptr, 256, 0, { format, "kv.wide_sinks=65536" });
        const weir_plan *const plan = weir_engine_plan_of(engine_);
        EXPECT_EQ(plan->facts.window, 256);
        EXPECT_EQ(plan->kv_rows, 4 * 256) << "for those that run and a session";
        EXPECT_EQ(plan->facts.kv_pages, plan->facts.kv_sink_pages);
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

// One client fills the queue; the one request of another is second, not last.
TEST_F(Service, ClientsTakeTurns)
{
    open("qwen3", 1, nullptr, 512, 16);
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < 8; i++) {
        calls.push_back(std::make_unique<Call>(prompt(i, 10), i == 0 ? 200 : 20));
        calls.back()->request.client = i == 7 ? 2 : 1;
        ASSERT_EQ(calls.back()->submit(service_, &error_), WEIR_OK) << error_.text;
    }
    for (auto &call : calls) call->wait();
    EXPECT_LT(calls[7]->usage.queue_ns, calls[2]->usage.queue_ns);
    for (int i = 2; i < 7; i++)
        EXPECT_LT(calls[(size_t)i - 1]->usage.queue_ns, calls[(size_t)i]->usage.queue_ns)
            << "in order within a client";
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
    const std::string memory =
        std::to_string(weir_plan_total(plan) - plan->kv + plan->kv / 4 + 4096) + "B";
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

/* What the plan says is what the books hold, to the byte, and no mixture of prompts and answers
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

/* What others see while a request runs, and after it. */
TEST_F(Service, SequencesAndKeptTextsAreCountedInBytes)
{
    struct Look {
        weir_service *service;
        Call *call;
        weir_service_sequence seen[2];
        int32_t n;
    };
    open("qwen3", 2, nullptr, 512);
    const weir_engine_facts *const facts = weir_service_facts_of(service_);
    Call call(prompt(1, 100), 50);
    Look look = { service_, &call, {}, 0 };
    call.request.client = 5;
    call.request.cache_prompt = true;
    call.request.user = &look;
    call.request.callback = [](void *user, const weir_event *event) {
        Look *const look = static_cast<Look *>(user);
        if (event->type == WEIR_EVENT_TOKEN && look->call->tokens[0].size() == 40)
            look->n = weir_service_sequences_of(look->service, look->seen);
        return Call::on_event(look->call, event);
    };
    ASSERT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
    call.wait();
    ASSERT_EQ(look.n, 1);
    EXPECT_EQ(look.seen[0].client, 5);
    EXPECT_EQ(look.seen[0].tokens, 139) << "after the step that drew the 40th token";
    EXPECT_EQ(look.seen[0].kv_bytes, weir_service_kv_bytes(facts, 139));
    EXPECT_EQ(look.seen[0].kv_claim, weir_service_kv_bytes(facts, 149));
    EXPECT_GT(look.seen[0].bytes, look.seen[0].kv_bytes);
    EXPECT_EQ(pages_used_when_idle(), 0);
    weir_service_stats stats;
    weir_service_stats_of(service_, &stats);
    EXPECT_EQ(stats.kept_tokens, 149);
    EXPECT_EQ(stats.kept_bytes, weir_service_kv_bytes(facts, 149));
    EXPECT_EQ(stats.kv_bytes_used, 0);
    call.release();
}

/* Jobs of a client that run at the same time, as their events tell. */
struct Crowd {
    std::mutex lock;
    std::map<int32_t, int> running, most;
    std::vector<std::pair<int32_t, int>>
        order; /* client, and its how manieth, as they were admitted */
    std::map<int32_t, int> admitted;
    void join(Call *call)
    {
        call->request.user = new Member{ this, call, false };
        call->request.callback = [](void *user, const weir_event *event) {
            Member *const member = static_cast<Member *>(user);
            Call *const call = member->call;
            if (event->type == WEIR_EVENT_ADMITTED)
                member->crowd->count(call->request.client, member->is_admitted = true);
            if (event->type == WEIR_EVENT_DONE && member->is_admitted)
                member->crowd->count(call->request.client, false);
            const bool go_on = Call::on_event(call, event);
            if (event->type == WEIR_EVENT_DONE) delete member;
            return go_on;
        };
    }

  private:
    struct Member {
        Crowd *crowd;
        Call *call;
        bool is_admitted;
    };
    void count(int32_t client, bool begins)
    {
        const std::lock_guard<std::mutex> hold(lock);
        running[client] += begins ? 1 : -1;
        if (begins) order.emplace_back(client, ++admitted[client]);
        if (running[client] > most[client]) most[client] = running[client];
    }
};

TEST_F(Service, ABudgetHoldsBackItsOwnClientAndNobodyElse)
{
    with_server_ = true;
    open("qwen3", 6, nullptr, 256, 32);
    const int64_t page = 64 * weir_service_facts_of(service_)->kv_bytes_per_token;
    std::vector<std::vector<int32_t>> solo;
    for (int i = 0; i < 10; i++) solo.push_back(alone(prompt(i, 30), 60));
    weir_engine_close(engine_);
    engine_ = nullptr;
    /* 89 rows are two pages: two of a client fit into five pages, a third does not. */
    open(
        "qwen3", 6, nullptr, 256, 32,
        { ("server.kv_per_key=" + std::to_string(5 * page) + "B").c_str() }
    );
    EXPECT_EQ(weir_service_kv_bytes(weir_service_facts_of(service_), 89), 2 * page);
    for (int round = 0; round < 3; round++) {
        Crowd crowd;
        /* Holds the engine thread in its callback until all are queued. */
        Call first(prompt(9, 3), 1);
        std::unique_lock<std::mutex> hold(first.lock);
        first.request.client = 7;
        ASSERT_EQ(first.submit(service_, &error_), WEIR_OK);
        std::vector<std::unique_ptr<Call>> calls;
        for (int i = 0; i < 10; i++) {
            calls.push_back(std::make_unique<Call>(prompt(i, 30), 60));
            calls.back()->request.client = i < 7 ? 1 : 2;
            crowd.join(calls.back().get());
            ASSERT_EQ(calls.back()->submit(service_, &error_), WEIR_OK) << error_.text;
        }
        if (round == 2)
            weir_job_cancel(calls[4]->job); /* in the queue, behind others of its client */
        hold.unlock();
        for (size_t i = 0; i < 10; i++) {
            calls[i]->wait();
            if (round == 2 && i == 4) continue;
            EXPECT_EQ(calls[i]->status, WEIR_OK);
            EXPECT_EQ(calls[i]->tokens[0], solo[i]) << "stream " << i;
        }
        first.wait();
        EXPECT_EQ(crowd.most[1], 2);
        EXPECT_EQ(crowd.most[2], 2);
        size_t second_of_two = 0, third_of_one = 0;
        for (size_t i = 0; i < crowd.order.size(); i++) {
            if (crowd.order[i] == std::make_pair(2, 2)) second_of_two = i;
            if (crowd.order[i] == std::make_pair(1, 3)) third_of_one = i;
        }
        EXPECT_LT(second_of_two, third_of_one) << "client 2 does not wait for client 1's budget";
    }
}

TEST_F(Service, ARequestEndsAtItsBudget)
{
    with_server_ = true;
    open("qwen3", 4, nullptr, 512);
    const int64_t page = 64 * weir_service_facts_of(service_)->kv_bytes_per_token;
    const std::vector<int32_t> whole = alone(prompt(1, 100), 200);
    for (const char *const key : { "server.kv_per_request", "server.kv_per_key" }) {
        weir_engine_close(engine_);
        engine_ = nullptr;
        open(
            "qwen3", 4, nullptr, 512, 0,
            { (std::string(key) + "=" + std::to_string(2 * page + 1) + "B").c_str() }
        );
        Call call(prompt(1, 100), 200), longer(prompt(2, 129), 1), wide(prompt(3, 65), 1),
            full(prompt(4, 128), 9);
        ASSERT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
        call.wait();
        EXPECT_EQ(call.finish[0], WEIR_FINISH_LENGTH);
        EXPECT_EQ(call.tokens[0], std::vector<int32_t>(whole.begin(), whole.begin() + 29))
            << "the last token needs no row";
        EXPECT_EQ(call.usage.n_rows, 128);
        EXPECT_LE(call.usage.kv_bytes, 2 * page + 1);
        ASSERT_EQ(full.submit(service_, &error_), WEIR_OK);
        full.wait();
        EXPECT_EQ(full.tokens[0].size(), 1u);
        EXPECT_EQ(longer.submit(service_, &error_), WEIR_EINVAL);
        const std::string text = error_.text;
        for (const std::string &part :
             { std::string("kv_budget_exceeded: "),
               std::string("prompt of 129 tokens exceeds the available context size of 128 tokens"),
               std::to_string(3 * page) + " bytes",
               std::string(key) + " allows " + std::to_string(2 * page + 1),
               std::string("raise ") + key })
            EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
        wide.request.n_choices = 2;
        EXPECT_EQ(wide.submit(service_, &error_), WEIR_EINVAL);
        EXPECT_NE(
            std::string(error_.text).find("the KV of 2 choices takes " + std::to_string(4 * page)),
            std::string::npos
        ) << error_.text;
        wide.request.n_prompt = 64;
        ASSERT_EQ(wide.submit(service_, &error_), WEIR_OK) << error_.text;
        wide.wait();
        for (Call *const c : { &call, &full, &wide }) c->release();
    }
}

/* Open rows count too, and nothing overflows. */
TEST_F(Service, BudgetArithmetic)
{
    weir_engine_facts facts = {};
    facts.window = 1000;
    EXPECT_EQ(weir_service_row_limit(&facts, 3), 1000) << "no budget";
    facts.kv_per_request = 1;
    EXPECT_EQ(weir_service_row_limit(&facts, 3), 1000) << "a model without KV";
    facts.kv_bytes_per_token = 10;
    facts.kv_open_bytes = 100;
    EXPECT_EQ(weir_service_row_limit(&facts, 1), 0);
    for (const int64_t bytes : { 739, 740, 1379, 1380, 100000000 }) {
        facts.kv_per_request = 0, facts.kv_per_key = bytes;
        const int32_t rows = weir_service_row_limit(&facts, 1);
        EXPECT_EQ(rows, bytes < 740 ? 0 : bytes < 1380 ? 64 : bytes < 100000000 ? 128 : 1000);
        if (rows > 0) EXPECT_LE(weir_service_kv_bytes(&facts, rows), bytes);
        facts.kv_per_request = 2 * bytes, facts.kv_per_key = 0;
        EXPECT_EQ(weir_service_row_limit(&facts, 2), rows);
        facts.kv_per_key = 3 * bytes;
        EXPECT_EQ(weir_service_row_limit(&facts, 2), rows) << "the tighter one";
    }
    facts.sink_tokens = 128,
    facts.kv_bytes_per_sink = 20; /* 1280 bytes for each of two pages, 640 after them */
    for (const int64_t bytes : { 1379, 1380, 2659, 2660, 3299, 3300 }) {
        facts.kv_per_request = bytes, facts.kv_per_key = 0;
        const int32_t rows = weir_service_row_limit(&facts, 1);
        EXPECT_EQ(rows, bytes < 1380 ? 0 : bytes < 2660 ? 64 : bytes < 3300 ? 128 : 192);
        if (rows > 0) EXPECT_LE(weir_service_kv_bytes(&facts, rows), bytes);
        EXPECT_GT(weir_service_kv_bytes(&facts, rows + 1), bytes);
    }
    facts.sink_tokens = 0;
    facts.window = 16777216, facts.kv_bytes_per_token = 1 << 20, facts.kv_per_request = INT64_MAX,
    facts.kv_per_key = 0;
    EXPECT_EQ(weir_service_row_limit(&facts, 1), 16777216);
}

TEST_F(Service, ABudgetBelowOnePageIsRefusedAtOnce)
{
    with_server_ = true;
    open("qwen3", 1, nullptr, 256);
    const int64_t page = 64 * weir_service_facts_of(service_)->kv_bytes_per_token;
    for (const char *const key : { "server.kv_per_request", "server.kv_per_key" }) {
        weir_plan plan;
        const weir_engine_options options = { &config_, true, true, nullptr, nullptr, nullptr };
        ASSERT_EQ(
            weir_config_set(&config_, key, (std::to_string(page - 1) + "B").c_str(), &error_),
            WEIR_OK
        );
        EXPECT_EQ(weir_engine_plan(&plan, &options, &error_), WEIR_ECONFIG);
        EXPECT_NE(
            std::string(error_.text)
                .find(std::string(key) + " = " + std::to_string(page - 1) + "B"),
            std::string::npos
        ) << error_.text;
        ASSERT_EQ(
            weir_config_set(&config_, key, (std::to_string(page) + "B").c_str(), &error_), WEIR_OK
        );
        EXPECT_EQ(weir_engine_plan(&plan, &options, &error_), WEIR_OK) << error_.text;
        weir_buffer text = {};
        ASSERT_EQ(weir_plan_print(&plan, &text), WEIR_OK);
        EXPECT_NE(
            std::string(text.data).find(
                strcmp(key, "server.kv_per_key") == 0 ? "kv of one key" : "kv of one request"
            ),
            std::string::npos
        );
        weir_buffer_free(&text);
    }
}

TEST_F(Service, AWindowThatIsFullEndsWithLength)
{
    open("qwen3", 1, nullptr, 64);
    Call call(prompt(1, 60), 100);
    ASSERT_EQ(call.submit(service_, &error_), WEIR_OK);
    call.wait();
    EXPECT_EQ(call.finish[0], WEIR_FINISH_LENGTH);
    EXPECT_EQ(call.tokens[0].size(), 5u); /* the last one needs no place: it is never computed */
}

} // namespace
