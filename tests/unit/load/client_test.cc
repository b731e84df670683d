// The client against servers that answer well, late, half or not at all. How long anything takes
// decides nothing.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/formats/json.h"
#include "tests/unit/load/fake_server.h"
#include "tools/load/server_memory.h"
#include "tools/load/summary.h"

namespace {

class Load : public testing::Test {
  protected:
    void SetUp() override
    {
        form_.is_chat = form_.ignore_eos = true;
        form_.model = "m";
        form_.seed = 3;
        form_.tokens_per_word = 1;
        plan_.n_requests = 20;
        plan_.n_groups = plan_.n_turns = 1;
        plan_.prompt = { WEIR_LENGTH_FIXED, 30, 0 };
        plan_.answer = { WEIR_LENGTH_FIXED, 5, 0 };
        options_.n_streams = 4;
        options_.timeout_ms = 20000;
    }
    void TearDown() override
    {
        weir_load_result_free(&result_);
        weir_workload_free(&workload_);
    }
    void aim(const std::string &url, const char *key = nullptr)
    {
        ASSERT_EQ(weir_load_target_parse(&target_, url.c_str(), key, &error_), WEIR_OK);
        ASSERT_EQ(weir_load_target_find(&target_, &error_), WEIR_OK) << error_.text;
    }
    void run(const std::string &url, const char *key = nullptr)
    {
        ASSERT_NO_FATAL_FAILURE(aim(url, key));
        run_there();
    }
    void run_there()
    {
        weir_workload_free(&workload_);
        weir_load_result_free(&result_);
        ASSERT_EQ(weir_workload_make(&workload_, &plan_, &error_), WEIR_OK) << error_.text;
        options_.target = &target_;
        options_.form = &form_;
        options_.workload = &workload_;
        options_.is_open = plan_.rate > 0;
        options_.prefix = plan_.prefix;
        options_.seconds = plan_.seconds;
        ASSERT_EQ(weir_load_run(&result_, &options_, &error_), WEIR_OK) << error_.text;
        const weir_goodput none = {};
        ASSERT_EQ(weir_load_summarise(&summary_, &result_, &none), WEIR_OK);
    }
    int count(weir_load_outcome outcome) const
    {
        int n = 0;
        for (int32_t i = 0; i < result_.n; i++) n += result_.records[i].outcome == outcome;
        return n;
    }
    weir_error error_ = {};
    weir_load_target target_ = {};
    weir_load_form form_ = {};
    weir_workload_options plan_ = {};
    weir_workload workload_ = {};
    weir_load_options options_ = {};
    weir_load_result result_ = {};
    weir_load_summary summary_ = {};
};

/* What a server was asked, in the order of arrival. */
class Asked {
  public:
    void add(const std::string &head, const std::string &body)
    {
        const std::lock_guard<std::mutex> hold(lock_);
        heads.push_back(head);
        json_t *root = nullptr;
        ASSERT_EQ(
            weir_json_build(&root, nullptr, body.data(), body.size(), &weir_json_request),
            WEIR_JSON_FINE
        ) << body;
        bodies.push_back(root);
    }
    Asked() = default;
    Asked(const Asked &) = delete;
    Asked &operator=(const Asked &) = delete;
    ~Asked()
    {
        for (json_t *const body : bodies) json_decref(body);
    }
    std::string content(size_t request, size_t message) const
    {
        return json_string_value(json_object_get(
            json_array_get(json_object_get(bodies[request], "messages"), message), "content"
        ));
    }
    std::vector<std::string> heads;
    std::vector<json_t *> bodies;

  private:
    std::mutex lock_;
};

TEST_F(Load, EveryRequestIsSentOnceAndCounted)
{
    Asked asked;
    FakeServer server([&](int fd, const std::string &head, const std::string &body) {
        asked.add(head, body);
        return FakeServer::send_text(fd, FakeServer::answer_of(5));
    });
    run(server.url(), "sk-1");
    EXPECT_EQ(summary_.n_sent, 20);
    EXPECT_EQ(summary_.n_good, 20);
    EXPECT_EQ(summary_.answer_tokens, 100);
    EXPECT_EQ(summary_.cached_tokens, 320);
    EXPECT_EQ(summary_.itl.n, 80u);
    EXPECT_EQ(result_.n_unsent, 0);
    EXPECT_LE(result_.peak, 4);
    EXPECT_LE(server.connections(), 5) << "connections are used again, and one looked for the "
                                          "address";
    ASSERT_EQ(asked.bodies.size(), 20u);
    std::set<std::string> prompts;
    for (size_t i = 0; i < 20; i++) {
        EXPECT_EQ(asked.heads[i].rfind("POST /v1/chat/completions HTTP/1.1\r\n", 0), 0u);
        EXPECT_NE(asked.heads[i].find("\r\nAuthorization: Bearer sk-1\r\n"), std::string::npos);
        const json_t *const body = asked.bodies[i];
        EXPECT_STREQ(json_string_value(json_object_get(body, "model")), "m");
        EXPECT_EQ(json_integer_value(json_object_get(body, "max_tokens")), 5);
        EXPECT_TRUE(json_is_true(json_object_get(body, "stream")));
        EXPECT_TRUE(json_is_true(json_object_get(body, "ignore_eos")));
        EXPECT_TRUE(
            json_is_true(json_object_get(json_object_get(body, "stream_options"), "include_usage"))
        );
        prompts.insert(asked.content(i, 0));
    }
    EXPECT_EQ(prompts.size(), 20u);
    for (int32_t i = 0; i < result_.n; i++) {
        const weir_load_record &r = result_.records[i];
        EXPECT_LE(r.due_ns, r.sent_ns);
        EXPECT_LE(r.sent_ns, r.first_ns);
        EXPECT_LE(r.first_ns, r.last_ns);
        EXPECT_LE(r.last_ns, r.end_ns);
        EXPECT_LE(r.end_ns, result_.end_ns);
    }
}

TEST_F(Load, TurnsGrowAndShareTheirGroupsPrefix)
{
    Asked asked;
    FakeServer server([&](int fd, const std::string &head, const std::string &body) {
        asked.add(head, body);
        return FakeServer::send_text(fd, FakeServer::answer_of(3));
    });
    plan_.n_requests = 12;
    plan_.n_turns = 3;
    plan_.prefix = 50;
    plan_.n_groups = 2;
    options_.n_streams = 1;
    run(server.url());
    ASSERT_EQ(asked.bodies.size(), 12u);
    EXPECT_EQ(summary_.n_good, 12);
    std::map<int, std::set<std::string>> prefixes;
    for (size_t i = 0; i < 12; i++) {
        const size_t turn = i % 3;
        const json_t *const messages = json_object_get(asked.bodies[i], "messages");
        ASSERT_EQ(json_array_size(messages), 2 + 2 * turn);
        prefixes[result_.records[i].group].insert(asked.content(i, 0));
        if (turn == 0) continue;
        EXPECT_EQ(asked.content(i, 1), asked.content(i - 1, 1)) << "what was said stays";
        EXPECT_EQ(asked.content(i, 2 * turn), "ttt") << "the answer before";
    }
    EXPECT_EQ(prefixes.size(), 2u);
    for (const auto &[group, texts] : prefixes) EXPECT_EQ(texts.size(), 1u) << group;
    EXPECT_NE(*prefixes[0].begin(), *prefixes[1].begin());
}

TEST_F(Load, CompletionsTakeTheirTextInOnePrompt)
{
    Asked asked;
    FakeServer server([&](int fd, const std::string &head, const std::string &body) {
        asked.add(head, body);
        return FakeServer::send_text(fd, FakeServer::answer_of(2));
    });
    form_.is_chat = false;
    plan_.n_requests = plan_.n_turns = 2;
    run(server.url() + "/base/v1/");
    ASSERT_EQ(asked.bodies.size(), 2u);
    EXPECT_EQ(asked.heads[0].rfind("POST /base/v1/completions ", 0), 0u) << asked.heads[0];
    const std::string first = json_string_value(json_object_get(asked.bodies[0], "prompt")),
                      second = json_string_value(json_object_get(asked.bodies[1], "prompt"));
    EXPECT_EQ(second.rfind(first + "\n\ntt\n\n", 0), 0u) << second;
}

TEST_F(Load, FailuresAreCountedByTheirKind)
{
    std::atomic<int> n{ 0 };
    FakeServer server([&](int fd, const std::string &, const std::string &) {
        const std::string begun = reply::head + reply::chunk(reply::text_event("a"));
        switch (n++ % 6) {
        case 0: return FakeServer::send_text(fd, FakeServer::answer_of(5));
        case 1:
            return FakeServer::send_text(
                fd, reply::sized(429, R"({"error":{"message":"the queue is full"}})")
            );
        case 2: (void)FakeServer::send_text(fd, begun + "20\r\ndata: {"); return false;
        case 3: (void)FakeServer::send_text(fd, begun + "zz\r\n"); return true;
        case 4: (void)FakeServer::send_text(fd, "\1\2\3\r\n"); return true;
        }
        return false; /* closes without a word */
    });
    options_.n_streams = 1;
    plan_.n_requests = 60;
    run(server.url());
    EXPECT_EQ(summary_.n_sent, 60);
    EXPECT_EQ(count(WEIR_LOAD_OK), 10);
    EXPECT_EQ(count(WEIR_LOAD_STATUS), 10);
    EXPECT_EQ(count(WEIR_LOAD_CLOSED), 20);
    EXPECT_EQ(count(WEIR_LOAD_MALFORMED), 20);
    EXPECT_NE(
        std::string(result_.problems[WEIR_LOAD_STATUS]).find("the queue is full"), std::string::npos
    );
    EXPECT_EQ(summary_.ttft.n, 10u);
    EXPECT_EQ(summary_.itl.n, 40u) << "no gap of a failed request";
}

TEST_F(Load, AFailedTurnEndsItsConversation)
{
    std::atomic<int> n{ 0 };
    FakeServer server([&](int fd, const std::string &, const std::string &) {
        return FakeServer::send_text(
            fd, n++ == 1 ? reply::sized(500, "{}") : FakeServer::answer_of(1)
        );
    });
    plan_.n_requests = 8;
    plan_.n_turns = 4;
    options_.n_streams = 1;
    run(server.url());
    EXPECT_EQ(summary_.n_sent, 6);
    EXPECT_EQ(summary_.n_failed, 1);
    EXPECT_EQ(result_.n_unsent, 2);
}

/* An idle connection that the server has closed costs no request. */
TEST_F(Load, AConnectionThatWasClosedMeanwhileIsReplaced)
{
    FakeServer server([&](int fd, const std::string &, const std::string &) {
        (void)FakeServer::send_text(fd, FakeServer::answer_of(1));
        return false;
    });
    options_.n_streams = 1;
    run(server.url());
    EXPECT_EQ(summary_.n_good, 20);
    EXPECT_EQ(server.connections(), 21);
}

TEST_F(Load, AServerThatSaysNothingTimesOut)
{
    FakeServer server([&](int fd, const std::string &, const std::string &) {
        char byte;
        struct pollfd ready = { fd, POLLIN, 0 };
        while (!server.stops() && poll(&ready, 1, 20) != 1) {
        }
        return recv(fd, &byte, 1, MSG_DONTWAIT) > 0;
    });
    plan_.n_requests = 4;
    options_.timeout_ms = 100;
    run(server.url());
    EXPECT_EQ(count(WEIR_LOAD_TIMEOUT), 4);
    for (int32_t i = 0; i < result_.n; i++)
        EXPECT_GE(result_.records[i].end_ns - result_.records[i].sent_ns, 100000000);
}

/* The coordinated omission: with one stream at a time the requests after a slow one wait, and
 * their latency says so. */
TEST_F(Load, LatencyCountsFromWhenARequestWasDue)
{
    std::atomic<int> n{ 0 };
    std::atomic<int64_t> released_ns{ 0 };
    plan_.rate = 1000;
    plan_.n_requests = 10;
    options_.n_streams = 1;
    weir_workload known = {};
    ASSERT_EQ(weir_workload_make(&known, &plan_, &error_), WEIR_OK);
    const int64_t last_ns = known.conversations[9].arrival_ns;
    weir_workload_free(&known);
    FakeServer server([&](int fd, const std::string &, const std::string &) {
        if (n++ == 0) { /* until 200 ms after the last one is due */
            const int64_t until_ns = weir_clock_ns() + last_ns + 200000000;
            while (!server.stops() && weir_clock_ns() < until_ns) (void)poll(nullptr, 0, 5);
            released_ns = weir_clock_ns();
        }
        return FakeServer::send_text(fd, FakeServer::answer_of(1));
    });
    run(server.url());
    ASSERT_EQ(summary_.n_good, 10);
    for (int32_t i = 0; i < result_.n; i++) {
        const weir_load_record &r = result_.records[i];
        EXPECT_EQ(r.due_ns, result_.start_ns + workload_.conversations[r.conversation].arrival_ns);
        EXPECT_GT(r.first_ns, released_ns.load());
        EXPECT_GE(weir_load_ttft(&r), 200) << "from its arrival, not from when it was sent";
        EXPECT_EQ(r.sent_ns > released_ns.load(), i > 0);
    }
    EXPECT_EQ(result_.peak, 1);
}

TEST_F(Load, EndsWithTheDuration)
{
    FakeServer server([&](int fd, const std::string &, const std::string &) {
        return FakeServer::send_text(fd, FakeServer::answer_of(1));
    });
    plan_.n_requests = 0;
    plan_.seconds = 0.05;
    options_.n_streams = 2;
    run(server.url());
    EXPECT_GT(summary_.n_sent, 0);
    EXPECT_EQ(summary_.n_good, summary_.n_sent);
    for (int32_t i = 0; i < result_.n; i++)
        EXPECT_LE(result_.records[i].due_ns, result_.start_ns + 50000000);
}

TEST_F(Load, IsStoppedInTheMiddle)
{
    static volatile int stopped;
    stopped = 0;
    std::atomic<int> n{ 0 };
    FakeServer server([&](int fd, const std::string &, const std::string &) {
        if (n++ == 3) stopped = 1;
        return n <= 3 && FakeServer::send_text(fd, FakeServer::answer_of(1));
    });
    options_.n_streams = 1;
    options_.stopped = &stopped;
    run(server.url());
    EXPECT_TRUE(result_.is_stopped);
    EXPECT_EQ(summary_.n_good, 3);
    EXPECT_LT(summary_.n_sent, 20);
}

/* ---- before the load ------------------------------------------------------------------------- */

TEST_F(Load, TheFirstModelAndTheLengthOfWordsAreAsked)
{
    FakeServer server([&](int fd, const std::string &head, const std::string &body) {
        if (head.rfind("GET /v1/models ", 0) == 0)
            return FakeServer::send_text(fd, reply::sized(200, R"({"data":[{"id":"one"}]})"));
        /* 9 tokens of a template, and 3 for 2 words. */
        const int n_words = (int)std::count(body.begin(), body.end(), ' ') + 1;
        return FakeServer::send_text(
            fd,
            reply::sized(
                200, R"({"usage":{"prompt_tokens":)" + std::to_string(9 + n_words * 3 / 2) + "}}"
            )
        );
    });
    ASSERT_NO_FATAL_FAILURE(aim(server.url()));
    weir_buffer name = {};
    ASSERT_EQ(weir_load_first_model(&name, &target_, 5000, &error_), WEIR_OK) << error_.text;
    EXPECT_STREQ(name.data, "one");
    weir_buffer_free(&name);
    ASSERT_EQ(weir_load_form_probe(&form_, &target_, 5000, &error_), WEIR_OK) << error_.text;
    EXPECT_TRUE(form_.is_measured);
    EXPECT_DOUBLE_EQ(form_.tokens_per_word, 1.5);
    EXPECT_EQ(form_.extra_tokens, 9);
    weir_buffer history = {};
    ASSERT_EQ(weir_load_prompt(&history, &form_, 1, 309, true), WEIR_OK);
    const std::string text = history.data;
    EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 199) << "200 words of 300 tokens";
    weir_buffer_free(&history);
}

TEST_F(Load, ServersThatRefuseOrSpeakNonsenseAreNamed)
{
    std::string said;
    FakeServer server([&](int fd, const std::string &, const std::string &) {
        const std::string text = said; /* the next one may be set while this one is sent */
        (void)FakeServer::send_text(fd, text);
        return false;
    });
    ASSERT_NO_FATAL_FAILURE(aim(server.url()));
    weir_buffer name = {};
    const auto says = [&](const std::string &text, const char *part) {
        said = text;
        EXPECT_NE(weir_load_first_model(&name, &target_, 5000, &error_), WEIR_OK) << text;
        EXPECT_NE(std::string(error_.text).find(part), std::string::npos) << error_.text;
    };
    says(reply::sized(401, R"({"error":{"message":"needs a key"}})"), "needs a key");
    says(reply::sized(200, R"({"data":[]})"), "--model");
    says(reply::sized(200, "<html>"), "--model");
    says("", "closed the connection");
    says("SSH-2.0-OpenSSH\r\n", "HTTP/1.1");
    says(reply::sized(200, std::string(5 << 20, 'x')), "4 MiB");
    weir_buffer_free(&name);
    said = reply::sized(400, "no such model");
    EXPECT_EQ(weir_load_form_probe(&form_, &target_, 5000, &error_), WEIR_EIO);
    EXPECT_NE(std::string(error_.text).find("400: no such model"), std::string::npos);
    said = reply::sized(200, "{}");
    EXPECT_EQ(weir_load_form_probe(&form_, &target_, 5000, &error_), WEIR_OK) << error_.text;
    EXPECT_FALSE(form_.is_measured);
    EXPECT_EQ(form_.tokens_per_word, 1);
}

TEST_F(Load, MemoryIsThatOfWeirServers)
{
    std::string said = reply::sized(
        200, R"({"tiers":{"host":{"peak":900},"device":{"peak":0}},)"
             R"("kv":{"bytes":300,"bytes_per_token":7}})"
    );
    FakeServer server([&](int fd, const std::string &head, const std::string &) {
        EXPECT_EQ(head.rfind("GET /v1/memory ", 0), 0u) << head;
        return FakeServer::send_text(fd, said);
    });
    ASSERT_NO_FATAL_FAILURE(aim(server.url()));
    weir_server_memory memory = {};
    weir_server_memory_read(&memory, &target_, 5000);
    EXPECT_TRUE(memory.is_known);
    EXPECT_EQ(memory.peak, 900);
    EXPECT_EQ(memory.kv_pool, 300);
    EXPECT_EQ(memory.kv_bytes_per_token, 7);
    for (const std::string &other : { reply::sized(404, "{}"), reply::sized(200, "[]"),
                                      reply::sized(200, R"({"tiers":7,"kv":[]})"),
                                      reply::sized(200, "<"), std::string("x\r\n") }) {
        said = other;
        weir_server_memory_read(&memory, &target_, 5000);
        EXPECT_FALSE(memory.is_known) << other;
    }
}

TEST(Target, Addresses)
{
    const struct {
        const char *url, *host, *port, *path;
    } good[] = {
        { "http://127.0.0.1:8080", "127.0.0.1", "8080", "" },
        { "127.0.0.1:8080/v1/", "127.0.0.1", "8080", "" },
        { "http://[::1]:80/v1", "::1", "80", "" },
        { "http://[::1]", "::1", "80", "" },
        { "localhost", "localhost", "80", "" },
        { "http://h/a/b/v1", "h", "80", "/a/b" },
    };
    weir_load_target t;
    weir_error error = {};
    for (const auto &row : good) {
        ASSERT_EQ(weir_load_target_parse(&t, row.url, nullptr, &error), WEIR_OK) << error.text;
        EXPECT_STREQ(t.host, row.host) << row.url;
        EXPECT_STREQ(t.port, row.port) << row.url;
        EXPECT_STREQ(t.path, row.path) << row.url;
    }
    const std::string s300(300, 'h');
    for (const std::string &url :
         { std::string(""), std::string("http://"), std::string("http://:80"),
           std::string("http://h:"), std::string("http://h:x"), std::string("http://h:808080"),
           std::string("http://[::1"), std::string("http://[::1]x:80"), std::string("http://a b"),
           std::string("http://h/?q"), std::string("http://u@h"), std::string("http://h\r\nX: y"),
           s300, "h/" + s300 + s300 })
        EXPECT_EQ(weir_load_target_parse(&t, url.c_str(), nullptr, &error), WEIR_EINVAL) << url;
    EXPECT_EQ(weir_load_target_parse(&t, "https://h", nullptr, &error), WEIR_EINVAL);
    EXPECT_NE(std::string(error.text).find("TLS"), std::string::npos);
    for (const char *const key : { "", "a b", "a\r\nX: y" })
        EXPECT_EQ(weir_load_target_parse(&t, "http://h", key, &error), WEIR_EINVAL) << key;
}

TEST(Target, AServerThatIsNotThereIsNamed)
{
    int port;
    {
        FakeServer gone([](int, const std::string &, const std::string &) { return false; });
        port = std::stoi(gone.url().substr(17));
    }
    weir_load_target t;
    weir_error error = {};
    const std::string url = "http://127.0.0.1:" + std::to_string(port);
    ASSERT_EQ(weir_load_target_parse(&t, url.c_str(), nullptr, &error), WEIR_OK);
    EXPECT_EQ(weir_load_target_find(&t, &error), WEIR_EIO);
    EXPECT_NE(std::string(error.text).find("is the server running?"), std::string::npos);
}

} // namespace
