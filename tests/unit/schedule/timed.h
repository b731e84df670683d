/* Jobs that know in which step they got their tokens, and jobs that keep coming. */
#pragma once
#include <atomic>
#include <functional>

#include "tests/unit/schedule/support.h"

namespace support {

/* A call, and the steps in which it was admitted, got its first token and ended. */
struct Timed {
    Call call;
    weir_service *service;
    int64_t admitted = -1, first = -1, end = -1;
    std::function<void()> on_admitted, on_token; /* on the engine thread */
    Timed(weir_service *s, std::vector<int32_t> ids, int max_tokens)
        : call(std::move(ids), max_tokens), service(s)
    {
        call.request.user = this;
        call.request.callback = [](void *user, const weir_event *event) {
            Timed *const t = static_cast<Timed *>(user);
            weir_service_stats now;
            weir_service_stats_of(t->service, &now);
            if (event->type == WEIR_EVENT_ADMITTED) t->admitted = now.steps;
            if (event->type == WEIR_EVENT_ADMITTED && t->on_admitted) t->on_admitted();
            if (event->type == WEIR_EVENT_TOKEN && t->first < 0) t->first = now.steps;
            if (event->type == WEIR_EVENT_TOKEN && t->on_token) t->on_token();
            if (event->type == WEIR_EVENT_DONE) t->end = now.steps;
            return Call::on_event(&t->call, event);
        };
    }
};

/* A request that is sent again as soon as it ends, from the engine's own thread, until it is over
 * or was sent 300 times. */
struct Repeated {
    weir_service *service;
    std::vector<int32_t> ids;
    const std::atomic<bool> *is_over;
    weir_request request = {};
    std::vector<weir_job *> jobs;
    int n_admitted = 0;
    Repeated(weir_service *s, std::vector<int32_t> prompt, const std::atomic<bool> *over)
        : service(s), ids(std::move(prompt)), is_over(over)
    {
        request.prompt = ids.data();
        request.n_prompt = (int32_t)ids.size();
        request.max_tokens = request.n_choices = 1;
        request.sampling = weir_sampling_default();
        request.callback = [](void *user, const weir_event *event) {
            Repeated *const r = static_cast<Repeated *>(user);
            r->n_admitted += event->type == WEIR_EVENT_ADMITTED;
            if (event->type == WEIR_EVENT_DONE && !*r->is_over && r->jobs.size() < 300) r->submit();
            return true;
        };
    }
    ~Repeated()
    {
        for (weir_job *const job : jobs) weir_job_release(job);
    }
    void submit()
    {
        weir_job *job = nullptr;
        weir_error error = {};
        request.user = this;
        EXPECT_EQ(weir_service_submit(service, &job, &request, &error), WEIR_OK) << error.text;
        jobs.push_back(job);
    }
};

} // namespace support
