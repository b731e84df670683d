/* Jobs that remember what they reported. */
#pragma once
#include <chrono>
#include <condition_variable>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/schedule/service.h"

namespace support {

/* A job and what it reported. */
struct Call {
    weir_request request = {};
    std::vector<int32_t> prompt;
    std::vector<std::vector<int32_t>> tokens;
    std::vector<weir_finish> finish;
    std::vector<std::vector<float>> logprobs; /* of the tokens, if they were asked for */
    std::vector<float> prompt_logprobs;
    std::mutex lock;
    std::condition_variable changed;
    bool done = false;
    weir_status status = WEIR_OK;
    std::string message; /* of a job that failed */
    weir_usage usage = {};
    weir_job *job = nullptr;
    int stop_after = 0; /* the callback ends the choice after this many tokens */
    int events_after_done = 0;

    explicit Call(std::vector<int32_t> ids, int max_tokens = 24) : prompt(std::move(ids))
    {
        request.prompt = prompt.data();
        request.n_prompt = static_cast<int32_t>(prompt.size());
        request.max_tokens = max_tokens;
        request.n_choices = 1;
        request.sampling = weir_sampling_default();
        request.callback = on_event;
        request.user = this;
    }
    static bool on_event(void *user, const weir_event *event)
    {
        Call *const call = static_cast<Call *>(user);
        const std::lock_guard<std::mutex> hold(call->lock);
        call->events_after_done += call->done;
        switch (event->type) {
        case WEIR_EVENT_TOKEN: {
            auto &list = call->tokens[static_cast<size_t>(event->choice)];
            list.push_back(event->token);
            if (call->request.want_logprobs)
                call->logprobs[static_cast<size_t>(event->choice)].push_back(event->logprob.logprob
                );
            return call->stop_after == 0 || static_cast<int>(list.size()) < call->stop_after;
        }
        case WEIR_EVENT_CHOICE:
            call->finish[static_cast<size_t>(event->choice)] = event->finish;
            break;
        case WEIR_EVENT_LOGITS: break;
        case WEIR_EVENT_PROMPT: call->prompt_logprobs.push_back(event->logprob.logprob); break;
        case WEIR_EVENT_DONE:
            call->done = true;
            call->status = event->status;
            call->message = event->message != nullptr ? event->message : "";
            call->usage = event->usage;
            call->changed.notify_all();
            break;
        case WEIR_EVENT_ADMITTED: break;
        }
        return true;
    }
    weir_status submit(weir_service *service, weir_error *error)
    {
        tokens.resize(static_cast<size_t>(request.n_choices));
        logprobs.resize(static_cast<size_t>(request.n_choices));
        finish.resize(static_cast<size_t>(request.n_choices), WEIR_FINISH_NONE);
        status = WEIR_OK;
        done = false;
        const weir_status refused = weir_service_submit(service, &job, &request, error);
        if (refused != WEIR_OK) status = refused, done = true; /* nothing will come */
        return refused;
    }
    /* What an earlier request holds goes back a moment after its end. */
    weir_status submit_when_it_fits(weir_service *service, weir_error *error)
    {
        weir_status refused = submit(service, error);
        for (int i = 0; refused == WEIR_ENOMEM && i < 500; i++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            refused = submit(service, error);
        }
        return refused;
    }
    void wait()
    {
        std::unique_lock<std::mutex> hold(lock);
        changed.wait(hold, [this] { return done; });
    }
    void release() /* before its service closes */
    {
        weir_job_release(job);
        job = nullptr;
    }
    ~Call() { release(); }
};

/* What a request answered. */
struct Answer {
    std::vector<std::vector<int32_t>> tokens;
    std::vector<std::vector<float>> logprobs;
    std::vector<weir_finish> finish;
    weir_usage usage = {};
};

/* Waits for all of them. */
inline std::vector<Answer> answers_of(const std::vector<std::unique_ptr<Call>> &calls)
{
    std::vector<Answer> out;
    for (const auto &call : calls) {
        call->wait();
        EXPECT_EQ(call->status, WEIR_OK) << call->message;
        out.push_back({ call->tokens, call->logprobs, call->finish, call->usage });
    }
    return out;
}

inline void expect_equal(const std::vector<Answer> &a, const std::vector<Answer> &b)
{
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); i++) {
        SCOPED_TRACE("request " + std::to_string(i));
        EXPECT_EQ(a[i].tokens, b[i].tokens);
        EXPECT_EQ(a[i].logprobs, b[i].logprobs);
        EXPECT_EQ(a[i].finish, b[i].finish);
    }
}

/* Submits all before the first of them gets a token: the engine waits in its first event. */
template <typename C>
void submit_together(
    weir_service *service, const std::vector<std::unique_ptr<C>> &calls, weir_error *error
)
{
    const std::lock_guard<std::mutex> hold(calls[0]->lock);
    for (const auto &call : calls) EXPECT_EQ(call->submit(service, error), WEIR_OK) << error->text;
}

} // namespace support
