// The whole server over the demo model: what its log says of reuse, and that fields of a request
// reach the sampler.
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>

#include "engine/schedule/service.h"
#include "tests/unit/serve/engine_fixture.h"

namespace {

using engine_fixture::EngineServer;

const std::string question = R"({"messages":[{"role":"user","content":"Tell me of the harbour."}],)"
                             R"("temperature":0,"ignore_eos":true,"max_tokens":)";

class OneServer : public EngineServer {
  protected:
    void SetUp() override { ASSERT_EQ(0, pipe(log_)); }
    void TearDown() override
    {
        stop();
        for (const int fd : log_) close(fd);
    }
    void start(
        const char *context = "model.context=512", const char *slots = "batch.max_sequences=2"
    )
    {
        log_fd_ = log_[1];
        open({ context, slots });
    }
    std::string content(const std::string &body) const
    {
        json_t *const root = ask_json("POST", "/v1/chat/completions", body);
        json_t *const choice = json_array_get(json_object_get(root, "choices"), 0);
        const char *const text =
            json_string_value(json_object_get(json_object_get(choice, "message"), "content"));
        const std::string out = text != nullptr ? text : "";
        json_decref(root);
        return out;
    }
    /* Fields of the next line of the log. */
    json_t *line() const { return json_loads(http::read_pipe(log_[0]).c_str(), 0, nullptr); }
    int log_[2] = { -1, -1 };
};

TEST_F(OneServer, LogAndUsageSayWhyNoMoreWasReused)
{
    start();
    const struct {
        std::string more, reason; /* of the request; of the log, "": all but the last token is */
    } cases[] = {
        { "", "nothing" },
        { "", "" },
        { R"(,"cache_salt":"other")", "nothing is cached under this salt" },
        { R"(,"cache_prompt":false)", "not asked for" },
    };
    for (const auto &c : cases) {
        const std::string reply =
            request("POST", "/v1/chat/completions", question + "4" + c.more + "}");
        json_t *const root = json_loads(reply.c_str() + reply.find("\r\n\r\n"), 0, nullptr),
                      *const usage = json_object_get(root, "usage"),
                      *const details = json_object_get(usage, "prompt_tokens_details");
        json_t *const fields = line();
        const char *const reason = json_string_value(json_object_get(fields, "reuse"));
        const json_int_t cached = json_integer_value(json_object_get(fields, "tokens_cached")),
                         n_prompt = json_integer_value(json_object_get(fields, "tokens_in"));
        ASSERT_NE(reason, nullptr) << c.more;
        EXPECT_STREQ(json_string_value(json_object_get(fields, "path")), "/v1/chat/completions");
        EXPECT_GT(n_prompt, 5);
        if (c.reason.empty())
            EXPECT_EQ(cached, n_prompt - 1) << reason;
        else
            EXPECT_EQ(cached, 0) << reason;
        EXPECT_NE(std::string(reason).find(c.reason), std::string::npos) << reason;
        EXPECT_STREQ(json_string_value(json_object_get(details, "reuse")), reason) << reply;
        EXPECT_EQ(
            json_integer_value(json_object_get(details, "matched_tokens")),
            json_integer_value(json_object_get(fields, "tokens_matched"))
        );
        json_decref(fields);
        json_decref(root);
    }
}

TEST_F(OneServer, PenaltiesChangeTheAnswer)
{
    start();
    const std::string plain = content(question + "64}");
    EXPECT_EQ(content(question + R"(64,"presence_penalty":0,"frequency_penalty":0})"), plain);
    for (const char *const field : { "presence_penalty", "frequency_penalty" })
        EXPECT_NE(content(question + "64,\"" + field + "\":2}"), plain) << field;
}

/* 408 with what was computed, for a client that must not send it again. */
TEST_F(OneServer, ATimeoutRepliesWithWhatWasComputed)
{
    start();
    const std::string reply =
        request("POST", "/v1/chat/completions", question + R"(400,"n":2,"timeout":0.004})");
    ASSERT_EQ(0u, reply.find("HTTP/1.1 408 Request Timeout\r\n")) << reply;
    EXPECT_NE(std::string::npos, reply.find("x-should-retry: false\r\n"));
    json_t *const root = json_loads(reply.c_str() + reply.find("\r\n\r\n"), 0, nullptr);
    const json_t *const choices = json_object_get(root, "choices");
    ASSERT_EQ(2u, json_array_size(choices)) << reply;
    EXPECT_STREQ(
        "timeout", json_string_value(json_object_get(json_array_get(choices, 0), "finish_reason"))
    );
    EXPECT_STREQ(
        "timeout", json_string_value(json_object_get(json_object_get(root, "error"), "code"))
    );
    EXPECT_NE(nullptr, json_object_get(root, "usage"));
    json_decref(root);
}

/* One limit for the list: the second prompt gets no time of its own. */
TEST_F(OneServer, ATimeoutIsForAllPromptsOfAList)
{
    start("model.context=1280", "batch.max_sequences=1");
    const std::string reply = request(
        "POST", "/v1/completions",
        R"({"prompt":["One","Two","Three"],"max_tokens":1000,"ignore_eos":true,"timeout":0.05})"
    );
    ASSERT_EQ(0u, reply.find("HTTP/1.1 408 Request Timeout\r\n")) << reply;
    json_t *const root = json_loads(reply.c_str() + reply.find("\r\n\r\n"), 0, nullptr);
    const json_t *const choices = json_object_get(root, "choices");
    ASSERT_EQ(3u, json_array_size(choices)) << reply;
    for (size_t i = 0; i < 3; i++) {
        const json_t *const choice = json_array_get(choices, i);
        EXPECT_STREQ("timeout", json_string_value(json_object_get(choice, "finish_reason")));
        if (i > 0) EXPECT_STREQ("", json_string_value(json_object_get(choice, "text"))) << reply;
    }
    json_decref(root);
}

/* Keeps the engine thread in a token, as a long step would, once another sequence has some. */
struct Long {
    std::mutex lock;
    std::condition_variable changed;
    int n_together = 0; /* own tokens since another sequence runs */
    bool is_done = false, may_go_on = false;
    weir_service *service = nullptr;
    weir_job *job = nullptr;

    weir_status submit(weir_service *to, weir_error *error)
    {
        static const int32_t prompt[] = { 1, 2, 3 };
        service = to;
        weir_request request = {};
        request.prompt = prompt;
        request.n_prompt = 3;
        request.max_tokens = 500;
        request.n_choices = 1;
        request.ignore_eos = true;
        request.sampling = weir_sampling_default();
        request.callback = on_event;
        request.user = this;
        return weir_service_submit(service, &job, &request, error);
    }
    static bool on_event(void *user, const weir_event *event)
    {
        Long *const self = static_cast<Long *>(user);
        weir_service_stats now = {};
        weir_service_stats_of(self->service, &now);
        std::unique_lock<std::mutex> hold(self->lock);
        self->n_together += now.running == 2 && event->type == WEIR_EVENT_TOKEN;
        self->is_done = event->type == WEIR_EVENT_DONE;
        self->changed.notify_all();
        if (self->n_together >= 5) self->changed.wait(hold, [self] { return self->may_go_on; });
        return !self->may_go_on;
    }
    /* Whether the engine thread stands still; false: the other sequence never ran. */
    bool wait()
    {
        std::unique_lock<std::mutex> hold(lock);
        changed.wait(hold, [this] { return n_together >= 5 || is_done; });
        return !is_done;
    }
    void go_on()
    {
        const std::lock_guard<std::mutex> hold(lock);
        may_go_on = true;
        changed.notify_all();
    }
};

/* While the engine is in a long step: what runs, with its tokens so far, and what is queued. */
TEST_F(OneServer, ATimeoutDoesNotWaitForALongStep)
{
    start();
    weir_error error = {};
    const auto ask = [this](const char *rest) {
        return std::async(std::launch::async, [this, rest] {
            return request("POST", "/v1/chat/completions", question + rest);
        });
    };
    Long step;
    ASSERT_EQ(step.submit(weir_engine_service(engine_), &error), WEIR_OK) << error.text;
    std::future<std::string> first = ask(R"(400,"timeout":2})");
    ASSERT_TRUE(step.wait());
    std::future<std::string> second = ask(R"(400,"timeout":0.2,"n":2})");
    for (const auto *const one : { &first, &second })
        EXPECT_EQ(one->wait_for(std::chrono::seconds(20)), std::future_status::ready)
            << "it waits for the engine";
    step.go_on();
    const std::string reply = first.get(), other = second.get();
    for (const bool runs : { true, false }) {
        const std::string &one = runs ? reply : other;
        ASSERT_EQ(0u, one.find("HTTP/1.1 408 Request Timeout\r\n")) << one;
        json_t *const root = json_loads(one.c_str() + one.find("\r\n\r\n"), 0, nullptr);
        const json_t *const choices = json_object_get(root, "choices"),
                            *const last = json_array_get(choices, json_array_size(choices) - 1),
                            *const usage = json_object_get(root, "usage");
        EXPECT_STREQ("timeout", json_string_value(json_object_get(last, "finish_reason")));
        EXPECT_EQ(json_integer_value(json_object_get(usage, "completion_tokens")) > 0, runs) << one;
        json_decref(root);
    }
    weir_job_release(step.job);
    EXPECT_EQ(content(question + "24}").empty(), false) << "the engine goes on";
}

TEST_F(OneServer, AStreamEndsAtItsTimeout)
{
    start();
    const std::string reply =
        request("POST", "/v1/chat/completions", question + R"(400,"stream":true,"timeout":0.05})");
    const bool has_begun = reply.find("HTTP/1.1 200") == 0;
    ASSERT_TRUE(has_begun || reply.find("HTTP/1.1 408") == 0) << reply;
    EXPECT_NE(std::string::npos, reply.find(R"("finish_reason":"timeout")")) << reply;
    if (has_begun) EXPECT_NE(std::string::npos, reply.find("data: [DONE]"));
}

} // namespace
