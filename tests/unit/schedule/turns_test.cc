// Conversations under a KV policy: a turn goes on from what the one before left, with the bits of
// one uninterrupted sequence.
#include <functional>

#include "tests/unit/schedule/turns.h"

namespace turns {
namespace {

TEST_F(Turns, GoOnWithTheBitsOfOneSequence)
{
    for (const char *const model : { "tq", "qwen3" }) {
        for (const Method &method : methods) {
            const std::string what = std::string(model) + " " + method.name + " " + method.options;
            Uninterrupted alone(model, settings_of(method, {}));
            start(model, method);
            auto tokens = prompt(1, 150);
            auto answer = run(tokens);
            ASSERT_EQ(answer, alone.turn(tokens, 24)) << what;
            EXPECT_EQ(usage_.n_cached, 0);
            for (int i = 0; i < 3; i++) {
                const int n_kept = (int)tokens.size() + 23;
                tokens = next(tokens, answer, 10 + i, i == 1 ? 3 : 40);
                const auto holders = begin(prompt(30 + i, 100));
                answer = run(tokens);
                EXPECT_EQ(answer, alone.turn(tokens, 24)) << what << ", turn " << i;
                EXPECT_EQ(usage_.n_cached, n_kept) << what << ": " << usage_.reuse;
                EXPECT_EQ(usage_.n_rows + usage_.n_evicted, (int)tokens.size() + 23) << what;
                holders->wait();
                holders->release();
            }
            EXPECT_EQ(pages_used_when_idle(), 0) << what;
            stop();
        }
    }
}

// Formats with unsealed rows, wide sinks, and a disk below: rows of a cached sequence stay in
// memory, the answer is the same.
TEST_F(Turns, GoOnInAnyFormatAndWithADisk)
{
    for (const auto &more : stores) {
        for (const int method : { 0, 1, 7 }) {
            const std::string what = more[0] + " " + methods[method].name;
            Uninterrupted alone("qwen3", settings_of(methods[method], { more[0], more.back() }));
            start("qwen3", methods[method], more);
            auto tokens = prompt(1, 150);
            auto answer = run(tokens);
            ASSERT_EQ(answer, alone.turn(tokens, 24)) << what;
            for (int i = 0; i < 2; i++) {
                tokens = next(tokens, answer, 10 + i, 50);
                answer = run(tokens);
                EXPECT_EQ(answer, alone.turn(tokens, 24)) << what;
                EXPECT_GT(usage_.n_cached, 150) << what << ": " << usage_.reuse;
            }
            EXPECT_EQ(pages_used_when_idle(), 0) << what;
            stop();
        }
    }
}

TEST_F(Turns, WhatDiffersIsNotContinuedAndTheReasonIsSaid)
{
    const Method &h2o = methods[1];
    start("qwen3", h2o);
    const auto tokens = prompt(1, 150);
    const auto answer = run(tokens);
    const auto turn = next(tokens, answer, 2, 40);
    const auto ask = [&](const std::function<void(weir_request *)> &change) {
        auto call = std::make_unique<Call>(turn, 4);
        call->request.cache_prompt = true;
        call->request.sampling.temperature = 0;
        change(&call->request);
        EXPECT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
        call->wait();
        EXPECT_EQ(call->status, WEIR_OK) << call->message;
        usage_ = call->usage;
    };
    weir_policy_options other;
    ASSERT_EQ(weir_policy_options_default(&other, "h2o", &error_), WEIR_OK);
    ASSERT_EQ(weir_policy_options_set(&other, "sinks=2,recent=16,every=5", &error_), WEIR_OK);
    ask([](weir_request *r) { r->kv_budget = 50; });
    EXPECT_EQ(usage_.n_cached, 0);
    EXPECT_NE(strstr(usage_.reuse, "another budget"), nullptr) << usage_.reuse;
    ask([](weir_request *r) { r->n_pinned = 3; });
    EXPECT_EQ(usage_.n_cached, 0);
    EXPECT_NE(strstr(usage_.reuse, "other protected rows"), nullptr) << usage_.reuse;
    ask([&](weir_request *r) { r->policy = &other; });
    EXPECT_EQ(usage_.n_cached, 0);
    EXPECT_NE(strstr(usage_.reuse, "under another KV policy"), nullptr) << usage_.reuse;
    ask([](weir_request *r) { r->cache_salt = "mine"; });
    EXPECT_EQ(usage_.n_cached, 0);
    EXPECT_NE(strstr(usage_.reuse, "under this salt"), nullptr) << usage_.reuse;
    ask([](weir_request *r) { r->cache_prompt = false; });
    EXPECT_EQ(usage_.n_cached, 0);
    auto changed = turn;
    changed[160]++;
    (void)run(changed, 4);
    EXPECT_EQ(usage_.n_cached, 128) << "the last chunk before the answer";
    EXPECT_EQ(usage_.n_matched, 160);
    EXPECT_NE(strstr(usage_.reuse, "after one of its chunks"), nullptr) << usage_.reuse;
    (void)run(turn, 4);
    EXPECT_EQ(usage_.n_cached, 173) << "all the same: " << usage_.reuse;
    changed[100]++;
    (void)run(changed, 4);
    EXPECT_EQ(usage_.n_cached, 0);
    EXPECT_EQ(usage_.n_matched, 100);
    EXPECT_NE(strstr(usage_.reuse, "where a turn of it ended"), nullptr) << usage_.reuse;
    stop();
    start("qwen3", h2o, { "kv.policy.kept=0" });
    (void)run(tokens);
    (void)run(turn, 4);
    EXPECT_EQ(usage_.n_cached, 0);
}

// The last turn is asked for again, as it was and otherwise; two answers of one prompt both go on.
TEST_F(Turns, ATurnIsAskedForAgain)
{
    const Method &snapkv = methods[4];
    Uninterrupted alone("tq", settings_of(snapkv, {})), otherwise("tq", settings_of(snapkv, {}));
    start("tq", snapkv);
    const auto tokens = prompt(1, 150);
    auto call = begin(tokens);
    const auto answer = end(std::move(call));
    ASSERT_EQ(answer, alone.turn(tokens, 24));
    ASSERT_EQ(answer, otherwise.turn(tokens, 24));
    const auto turn = next(tokens, answer, 2, 40), other = next(tokens, answer, 3, 50);
    const auto first = alone.turn(turn, 24), second = otherwise.turn(other, 24);
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(run(turn), first);
        EXPECT_EQ(usage_.n_cached, 173) << usage_.reuse;
        EXPECT_EQ(run(other), second);
        EXPECT_EQ(usage_.n_cached, 173) << usage_.reuse;
    }
    auto third = next(other, second, 4, 30);
    EXPECT_EQ(run(third), otherwise.turn(third, 24));
    EXPECT_EQ(usage_.n_cached, (int)other.size() + 23) << usage_.reuse;
    (void)run(next(tokens, answer, 5, 9), 4);
    EXPECT_EQ(usage_.n_cached, 149) << "two turns back: from the state before the prompt's end";
    EXPECT_EQ(pages_used_when_idle(), 0);
}

TEST_F(Turns, BothAnswersOfAPromptGoOn)
{
    start("tq", methods[1]);
    const auto tokens = prompt(1, 150);
    auto call = std::make_unique<Call>(tokens, 24);
    call->request.cache_prompt = true;
    call->request.ignore_eos = true;
    call->request.n_choices = 2;
    call->request.sampling.temperature = 2;
    call->request.sampling.seed = 5;
    ASSERT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
    call->wait();
    ASSERT_EQ(call->status, WEIR_OK) << call->message;
    ASSERT_NE(call->tokens[0], call->tokens[1]);
    for (const auto &answer : call->tokens) {
        (void)run(next(tokens, { answer, {} }, 2, 20), 4);
        EXPECT_EQ(usage_.n_cached, 173) << usage_.reuse;
    }
    call->release();
    EXPECT_EQ(pages_used_when_idle(), 0);
}

// More conversations than there is room for: the least recently used one is computed again, by the
// list's length, by its memory, and for want of pages.
TEST_F(Turns, TheLeastRecentlyUsedSequenceGoesFirst)
{
    const std::vector<std::string> few = { "kv.policy.kept=3" };
    start("tq", methods[0], few);
    std::vector<std::vector<int32_t>> prompts;
    std::vector<Answer> answers;
    const auto goes_on = [&](size_t i) {
        prompts[i] = next(prompts[i], answers[i], 50, 5);
        answers[i] = run(prompts[i], 4);
        return usage_.n_cached > 100; /* more than its first prompt */
    };
    for (int i = 0; i < 4; i++) {
        prompts.push_back(prompt(20 + i, 100));
        answers.push_back(run(prompts.back(), 4));
    }
    EXPECT_EQ(pages_used_when_idle(), 0);
    EXPECT_EQ(stats().kept_pruned_sequences, 3);
    EXPECT_FALSE(goes_on(0));
    EXPECT_TRUE(goes_on(0));
    EXPECT_TRUE(goes_on(3));
    stop();
    start("tq", methods[0]);
    prompts.clear(), answers.clear();
    for (int i = 0; i < 3; i++) {
        prompts.push_back(prompt(20 + i, 100));
        answers.push_back(run(prompts.back(), 4));
    }
    EXPECT_EQ(pages_used_when_idle(), 0);
    EXPECT_EQ(stats().kept_pruned_sequences, 3);
    EXPECT_TRUE(goes_on(0));
    for (int i = 0; i < 2; i++) { // all pages of the pool: two windows of 512
        const auto a = begin(prompt(60 + i, 480)), b = begin(prompt(70 + i, 480));
        for (const auto *const call : { &a, &b }) {
            (*call)->wait();
            EXPECT_EQ((*call)->status, WEIR_OK) << (*call)->message;
            (*call)->release();
        }
    }
    EXPECT_FALSE(goes_on(1));
    EXPECT_EQ(pages_used_when_idle(), 0);
}

// A pool that holds too little for all: whose turn is preempted is computed again turn by turn, and
// comes to the same answer.
TEST_F(Turns, PreemptedTurnsAnswerAlike)
{
    int64_t preemptions = 0, n_cached = 0;
    enum { PROMPTS = 3 };
    const Method far_apart[] = { { "sinks", "sinks=4,every=100", 150 },
                                 { "h2o", "sinks=2,recent=16,every=100", 150 },
                                 { "snapkv", "window=8,every=100", 150 },
                                 { "keydiff", "every=100", 150 } };
    for (const Method &big : far_apart) {
        std::vector<std::vector<int32_t>> first, second;
        std::vector<Answer> answers, expected;
        for (int i = 0; i < PROMPTS; i++) {
            Uninterrupted alone("qwen3", settings_of(big, {}));
            first.push_back(prompt(20 + i, 200 + 10 * i));
            answers.push_back(alone.turn(first.back(), 24));
            second.push_back(next(first.back(), answers.back(), 40 + i, 20));
            expected.push_back(alone.turn(second.back(), 120));
        }
        start("qwen3", big, {}, PROMPTS);
        const weir_plan plan = *weir_engine_plan_of(engine_);
        const std::string memory = /* 10 blocks of the 24 */
            std::to_string((weir_plan_total(&plan) - plan.kv / 24 * 14) >> 10) + "KiB";
        stop();
        start("qwen3", big, {}, PROMPTS, memory.c_str());
        for (size_t i = 0; i < PROMPTS; i++) EXPECT_EQ(run(first[i]), answers[i]) << big.name;
        (void)pages_used_when_idle(); /* the memory of those requests went back, too */
        std::vector<std::unique_ptr<Call>> calls;
        for (size_t i = 0; i < PROMPTS; i++) calls.push_back(make(second[i], 120));
        submit_together(service_, calls, &error_);
        for (size_t i = 0; i < PROMPTS; i++) {
            calls[i]->wait();
            ASSERT_EQ(calls[i]->status, WEIR_OK) << calls[i]->message;
            if (calls[i]->usage.n_cached > 0) {
                EXPECT_EQ((Answer{ calls[i]->tokens[0], calls[i]->logprobs[0] }), expected[i])
                    << big.name << " " << i;
            }
            n_cached += calls[i]->usage.n_cached > 0;
            calls[i]->release();
        }
        preemptions += stats().preemptions;
        EXPECT_EQ(pages_used_when_idle(), 0);
        stop();
    }
    EXPECT_GT(preemptions, 0);
    EXPECT_GT(n_cached, 4);
}

} // namespace
} // namespace turns
