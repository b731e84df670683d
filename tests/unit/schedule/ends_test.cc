/* Sequences that begin, go on, fork and end at the same time, which takes several steps. */
#include <unistd.h>

#include <algorithm>

#include "engine/engine_parts.h"
#include "engine/schedule/job.h"
#include "tests/unit/schedule/moved.h"
#include "tests/unit/schedule/support.h"

namespace {

using support::Call;

class Ends : public support::Service {
  protected:
    static std::unique_ptr<Call> cached(const std::vector<int32_t> &ids, int max_tokens = 24)
    {
        auto call = std::make_unique<Call>(ids, max_tokens);
        call->request.cache_prompt = true;
        return call;
    }
    std::vector<int32_t> alone(const std::vector<int32_t> &ids)
    {
        Call call(ids);
        call.request.ignore_eos = true;
        return answer(call);
    }
    /* What begins and what ends may move in an iteration, however long the passes are. */
    void set_pace(int64_t bytes)
    {
        weir_service_call(
            service_,
            [](weir_service *service, void *user) {
                const int64_t least = *static_cast<int64_t *>(user);
                service_pace *const pace = &service->pace;
                pace->least = pace->begins = pace->resumes = least;
                pace->forks = pace->follows = pace->preempts = pace->ends = least;
                pace->pass_ns = INT64_MAX;
            },
            &bytes
        );
    }
    /* In each iteration they moved at most this, and one more. */
    static void expect_within(const support::Moved &moved, int64_t most, size_t n_iterations, int n)
    {
        int n_all = 0;
        for (const auto &one : moved.all) {
            EXPECT_LT(one.bytes - one.most, most);
            n_all += one.n;
        }
        EXPECT_EQ(n_all, n);
        EXPECT_EQ(moved.all.size(), n_iterations);
    }
};

/* Remembers how many steps there were when it was admitted, and when it got its first token. */
struct Noted : Call {
    Noted(const std::vector<int32_t> &ids, weir_service *to) : Call(ids), service(to)
    {
        request.cache_prompt = request.ignore_eos = true;
        request.callback = on_event;
        request.user = static_cast<Call *>(this);
    }
    static bool on_event(void *user, const weir_event *event)
    {
        Noted *const self = static_cast<Noted *>(static_cast<Call *>(user));
        weir_service_stats stats;
        weir_service_stats_of(self->service, &stats);
        if (event->type == WEIR_EVENT_ADMITTED) self->admitted = stats.steps;
        if (event->type == WEIR_EVENT_TOKEN && self->first < 0) self->first = stats.steps;
        return Call::on_event(user, event);
    }
    weir_service *service;
    int64_t admitted = -1, first = -1;
};

/* A step that many cached prompts precede would wait for all of them: some begin after it. */
TEST_F(Ends, CachedPromptsBeginOverSomeSteps)
{
    open("qwen3", 6);
    const std::vector<int32_t> ids = prompt(3, 400);
    const std::vector<int32_t> expected = answer(*cached(ids));
    for (const int64_t most : { int64_t{ 1 }, int64_t{ 1 } << 30 }) {
        set_pace(most);
        std::vector<std::unique_ptr<Noted>> calls;
        for (int i = 0; i < 4; i++) calls.push_back(std::make_unique<Noted>(ids, service_));
        support::submit_together(service_, calls, &error_);
        std::vector<int64_t> steps;
        for (auto &call : calls) {
            call->wait();
            EXPECT_EQ(call->tokens[0], expected);
            EXPECT_GE(call->usage.n_cached, 384);
            steps.push_back(call->admitted);
        }
        std::sort(steps.begin(), steps.end());
        for (size_t i = 1; i < steps.size(); i++)
            EXPECT_EQ(steps[i] - steps[i - 1], most == 1 ? 1 : 0);
    }
}

/* The same of prompts that one of them computes for all. */
TEST_F(Ends, FollowersGoOnOverSomeSteps)
{
    open("qwen3", 6);
    const std::vector<int32_t> expected = alone(prompt(3, 386));
    for (const int64_t most : { int64_t{ 1 }, int64_t{ 1 } << 30 }) {
        std::vector<std::unique_ptr<Noted>> calls;
        set_pace(most);
        for (int i = 0; i < 4; i++) {
            calls.push_back(std::make_unique<Noted>(prompt(3, 386), service_));
            calls.back()->request.cache_salt = most == 1 ? "one" : "many";
        }
        support::submit_together(service_, calls, &error_);
        std::vector<int64_t> steps;
        for (auto &call : calls) {
            call->wait();
            EXPECT_EQ(call->tokens[0], expected);
            steps.push_back(call->first);
        }
        std::sort(steps.begin(), steps.end());
        for (size_t i = 2; i < steps.size(); i++)
            EXPECT_EQ(steps[i] - steps[i - 1], most == 1 ? 1 : 0);
    }
}

/* Lets one sequence end in an iteration from its first token on, and notes how many have ended and
 * have slots when it is done. */
struct Ended : Call {
    Ended(const std::vector<int32_t> &ids, weir_service *to) : Call(ids), service(to)
    {
        request.cache_prompt = request.ignore_eos = true;
        request.callback = on_event;
        request.user = static_cast<Call *>(this);
    }
    static bool on_event(void *user, const weir_event *event)
    {
        Ended *const self = static_cast<Ended *>(static_cast<Call *>(user));
        if (event->type == WEIR_EVENT_TOKEN) self->service->pace.least = 1;
        if (event->type == WEIR_EVENT_DONE) self->n_ended = self->service->n_ended;
        if (event->type == WEIR_EVENT_DONE && self->post != nullptr)
            weir_service_post_call(self->service, self->post);
        if (event->type == WEIR_EVENT_DONE && self->next != nullptr)
            self->refused = self->next->submit(self->service, &self->error);
        return Call::on_event(user, event);
    }
    weir_service *service;
    int32_t n_ended = -1;
    Call *next = nullptr; /* is submitted then */
    service_call *post = nullptr; /* then, too */
    weir_status refused = WEIR_OK;
    weir_error error = {};
};

/* Answers that end in one step leave their slots one after the other. A prompt that goes on with
 * one of them finds all of its rows at once. */
TEST_F(Ends, AnswersThatEndTogetherLeaveOneAfterTheOther)
{
    for (const char *const model : { "qwen3", "../../../models/weir-demo" }) {
        SCOPED_TRACE(model);
        open(model, 4);
        std::vector<std::vector<int32_t>> ids;
        for (int i = 0; i < 4; i++) {
            ids.push_back(prompt(3 + i, 300));
            answer(*cached(ids.back(), 1));
        }
        std::vector<int32_t> turn = ids[2];
        const std::vector<int32_t> tokens = alone(ids[2]);
        turn.insert(turn.end(), tokens.begin(), tokens.end());
        const int32_t n_computed = static_cast<int32_t>(turn.size()) - 1;
        for (int i = 0; i < 6; i++) turn.push_back((41 + i * 7) % 300);
        const std::vector<int32_t> expected = alone(turn);
        set_pace(int64_t{ 1 } << 30);
        std::vector<std::unique_ptr<Ended>> calls;
        for (const auto &one : ids) calls.push_back(std::make_unique<Ended>(one, service_));
        Call next(turn);
        next.request.cache_prompt = next.request.ignore_eos = true;
        calls.back()->next = &next;
        support::submit_together(service_, calls, &error_);
        for (auto &call : calls) {
            call->wait();
            EXPECT_EQ(call->status, WEIR_OK) << call->message;
            EXPECT_EQ(call->n_ended, 3) << "all but one that has ended";
        }
        ASSERT_EQ(calls.back()->refused, WEIR_OK) << calls.back()->error.text;
        next.wait();
        EXPECT_EQ(next.tokens[0], expected);
        EXPECT_EQ(next.usage.n_cached, n_computed);
        next.release();
        calls.clear();
        stop();
    }
}

/* Choices of one request have their first token at once, and the rows of its prompt one after the
 * other; then each goes on. */
TEST_F(Ends, ChoicesForkOverSomeSteps)
{
    enum { CHOICES = 6 };
    for (const char *const model : { "qwen3", "../../../models/weir-demo" }) {
        SCOPED_TRACE(model);
        open(model, CHOICES);
        std::vector<std::vector<int32_t>> expected;
        const int64_t all = int64_t{ 1 } << 40;
        int64_t one = 0;
        for (const int64_t most : { all, int64_t{ 1 }, int64_t{ 0 }, all }) {
            Call call(prompt(3, 300), 20);
            support::Moved moved;
            call.request.n_choices = CHOICES;
            call.request.ignore_eos = true;
            call.request.sampling.temperature = 1;
            call.request.sampling.seed = 7;
            set_pace(most > 0 ? most : 2 * one);
            weir_service_call(
                service_,
                [](weir_service *service, void *user) {
                    static_cast<support::Moved *>(user)->start(service);
                },
                &moved
            );
            (void)answer(call);
            moved.stop();
            if (expected.empty()) expected = call.tokens;
            EXPECT_EQ(call.tokens, expected);
            one = moved.all[0].most;
            EXPECT_GT(one, 300 / 64 * 8);
            const size_t n = most == all ? 1 : most == 1 ? CHOICES - 1 : (CHOICES - 1 + 1) / 2;
            expect_within(moved, most > 0 ? most : 2 * one, n, CHOICES - 1);
        }
        stop();
    }
}

/* With a policy all wait for the last one: each forks the prompt before rows of it are dropped. */
TEST_F(Ends, ChoicesWithAPolicyForkOverSomeSteps)
{
    enum { CHOICES = 4 };
    open("qwen3", CHOICES);
    weir_policy_options policy;
    ASSERT_EQ(weir_policy_options_default(&policy, "snapkv", &error_), WEIR_OK);
    ASSERT_EQ(weir_policy_options_set(&policy, "window=8,every=16", &error_), WEIR_OK);
    std::vector<std::vector<float>> expected;
    const int64_t all = int64_t{ 1 } << 40;
    int64_t one = 0; /* of a fork, without the policy's state, which counts, too */
    for (const int64_t most : { all, int64_t{ 1 }, int64_t{ 0 } }) {
        Call call(prompt(3, 300), 20);
        support::Moved moved;
        call.request.n_choices = CHOICES;
        call.request.ignore_eos = true;
        call.request.sampling.temperature = 1;
        call.request.sampling.seed = 7;
        call.request.want_logprobs = true;
        call.request.policy = &policy;
        call.request.kv_budget = 48;
        set_pace(most > 0 ? most : one + 1);
        weir_service_call(
            service_,
            [](weir_service *service, void *user) {
                static_cast<support::Moved *>(user)->start(service);
            },
            &moved
        );
        (void)answer(call);
        moved.stop();
        if (expected.empty()) expected = call.logprobs;
        EXPECT_EQ(call.logprobs, expected);
        EXPECT_EQ(expected[CHOICES - 1].size(), 20u);
        EXPECT_GT(call.usage.n_evicted, CHOICES * 200);
        ASSERT_FALSE(moved.all.empty());
        one = moved.all[0].most;
        expect_within(moved, most > 0 ? most : one + 1, most == all ? 1 : CHOICES - 1, CHOICES - 1);
    }
}

/* The first token of choice 0 is its last: what it has goes to the cache when all have forked it.
 * Of two requests in a step the second forks nothing in it, so its choice 0 has ended before. */
TEST_F(Ends, ChoicesForkWhatHasEnded)
{
    enum { CALLS = 2, CHOICES = 4, ROWS = 30 };
    struct First {
        static bool on_event(void *user, const weir_event *event)
        {
            const bool stops = event->type == WEIR_EVENT_TOKEN && event->choice == 0;
            return Call::on_event(user, event) && !stops;
        }
    };
    open("qwen3", CALLS * CHOICES);
    std::vector<std::vector<std::vector<int32_t>>> expected;
    for (const int64_t most : { int64_t{ 1 } << 40, int64_t{ 1 } }) {
        const char *const salt = most == 1 ? "one" : "many";
        std::vector<std::unique_ptr<Call>> calls;
        for (int i = 0; i < CALLS; i++) {
            calls.push_back(cached(prompt(3 + i, ROWS), 12));
            weir_request &request = calls.back()->request;
            request.n_choices = CHOICES;
            request.ignore_eos = true;
            request.cache_salt = salt;
            request.sampling.temperature = 1;
            request.sampling.seed = 7;
            request.callback = First::on_event;
        }
        set_pace(most);
        support::submit_together(service_, calls, &error_);
        for (size_t i = 0; i < CALLS; i++) {
            calls[i]->wait();
            EXPECT_EQ(calls[i]->status, WEIR_OK) << calls[i]->message;
            EXPECT_EQ(calls[i]->tokens[0].size(), 1u);
            EXPECT_EQ(calls[i]->tokens[1].size(), 12u);
            if (expected.size() == i) expected.push_back(calls[i]->tokens);
            EXPECT_EQ(calls[i]->tokens, expected[i]);
            Call again(prompt(3 + (int)i, ROWS), 1);
            again.request.cache_prompt = true;
            again.request.cache_salt = salt;
            (void)answer(again);
            EXPECT_EQ(usage_.n_cached, ROWS - 1);
        }
    }
}

/* Those that are preempted together go on one after the other. */
TEST_F(Ends, PreemptedSequencesGoOnOverSomeSteps)
{
    enum { CALLS = 4 };
    for (const char *const model : { "qwen3", "../../../models/weir-demo" }) {
        SCOPED_TRACE(model);
        open(model, CALLS);
        std::vector<std::vector<int32_t>> expected;
        for (int i = 0; i < CALLS; i++) {
            Call call(prompt(3 + i, 200), 200);
            call.request.ignore_eos = true;
            expected.push_back(answer(call));
        }
        for (const int64_t most : { int64_t{ 1 }, int64_t{ 1 } << 40 }) {
            support::Moved moved;
            std::vector<std::unique_ptr<Call>> calls;
            for (int i = 0; i < CALLS; i++) {
                calls.push_back(cached(prompt(3 + i, 200), 200));
                calls.back()->request.ignore_eos = true;
            }
            set_pace(int64_t{ 1 } << 40);
            support::submit_together(service_, calls, &error_);
            for (auto &call : calls) {
                std::unique_lock<std::mutex> hold(call->lock);
                while (call->tokens[0].size() < 5) {
                    hold.unlock();
                    usleep(1000);
                    hold.lock();
                }
            }
            set_pace(most);
            weir_service_call(
                service_,
                [](weir_service *service, void *user) {
                    for (int32_t i = 0; i < service->facts->n_slots; i++)
                        if (service->slots[i].owner != nullptr)
                            weir_choice_preempt(service->slots[i].owner);
                    static_cast<support::Moved *>(user)->start(service);
                },
                &moved
            );
            for (int i = 0; i < CALLS; i++) {
                calls[(size_t)i]->wait();
                EXPECT_EQ(calls[(size_t)i]->tokens[0], expected[(size_t)i]);
            }
            moved.stop();
            expect_within(moved, most, most == 1 ? CALLS : 1, CALLS);
        }
        stop();
    }
}

/* A call releases all of them; no step follows in which their jobs could end. */
TEST_F(Ends, JobsThatACallReleasesEnd)
{
    open("qwen3", 4);
    service_call nothing = {};
    nothing.run = [](weir_service *, void *) {};
    std::vector<std::unique_ptr<Ended>> calls;
    for (int i = 0; i < 4; i++) {
        answer(*cached(prompt(3 + i, 300), 1));
        calls.push_back(std::make_unique<Ended>(prompt(3 + i, 300), service_));
    }
    set_pace(int64_t{ 1 } << 30);
    calls.back()->post = &nothing;
    support::submit_together(service_, calls, &error_);
    for (auto &call : calls) call->wait(); /* not released: the service must not need that */
    weir_service_stats stats = {};
    for (int i = 0; i < 2000; i++) {
        weir_service_stats_of(service_, &stats);
        if (stats.running == 0) break;
        usleep(1000);
    }
    EXPECT_EQ(stats.running, 0);
    calls.clear();
    stop();
}

} // namespace
