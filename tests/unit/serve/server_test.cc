// The whole server in this process, over the fake service: what the wire suite cannot see or cannot wait for.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/serve/server.h"
#include "offload/ledger.h"
#include "tests/wire/fake_service.h"

namespace {

weir_server_options default_options()
{
    weir_server_options o = {};
    o.log_fd = -1;
    o.sampling.temperature = 1;
    o.sampling.top_p = 1;
    o.sampling.repetition_penalty = 1;
    return o;
}

class Server : public testing::Test {
  protected:
    void open(const weir_fake_options &fake, weir_server_options options = default_options())
    {
        weir_error  error = {};
        weir_buffer text = {};
        ASSERT_EQ(WEIR_OK, weir_tokenizer_open_json(&tokenizer_, "tests/golden/text/tok/qwen35.tokenizer.json", &error)) << error.text;
        ASSERT_EQ(WEIR_OK, weir_fake_service_open(&service_, tokenizer_, &fake));
        ASSERT_EQ(WEIR_OK, weir_file_read(&text, "tests/golden/text/templates/Qwen3.5-4B.jinja", 1 << 20, &error)) << error.text;
        ASSERT_EQ(WEIR_OK, weir_chat_template_open(&chat_, text.data, text.size, &error)) << error.text;
        weir_buffer_free(&text);
        options.service = service_;
        options.tokenizer = tokenizer_;
        options.chat = options.chat_problem == nullptr ? chat_ : nullptr;
        options_ = options;
        ASSERT_EQ(WEIR_OK, weir_server_open(&server_, &options, &error)) << error.text;
        ASSERT_EQ(WEIR_OK, weir_server_start(server_, &error)) << error.text;
    }

    void TearDown() override
    {
        weir_server_close(server_);
        weir_fake_service_close(service_);
        weir_fake_sessions_close(sessions_);
        weir_chat_template_close(chat_);
        weir_tokenizer_close(tokenizer_);
        if (ledger_ != nullptr) EXPECT_EQ(0u, http_bytes()) << "whatever a request took was given back";
        weir_ledger_close(ledger_);
    }

    /* With a cap for all that requests take. */
    void open_within(size_t cap, weir_server_options options = default_options())
    {
        const size_t caps[WEIR_TIER_COUNT] = { cap };
        ASSERT_EQ(WEIR_OK, weir_ledger_open(&ledger_, caps));
        options.ledger = ledger_;
        open({ 2, 4096, 0, 0 }, options);
    }

    size_t http_bytes() const { return weir_ledger_used(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_HTTP); }

    int connect_to() const
    {
        const int          fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
        struct sockaddr_in to = {};
        to.sin_family = AF_INET;
        to.sin_port = htons(static_cast<uint16_t>(weir_server_port(server_)));
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        EXPECT_EQ(0, connect(fd, reinterpret_cast<struct sockaddr *>(&to), sizeof to));
        return fd;
    }

    int post(const std::string &path, const std::string &body) const
    {
        const int         fd = connect_to();
        const std::string text = "POST " + path +
                                 " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
                                 "\r\n\r\n" + body;
        EXPECT_EQ(static_cast<ssize_t>(text.size()), send(fd, text.data(), text.size(), MSG_NOSIGNAL));
        return fd;
    }

    /* Reads until `until` was seen, or the end. */
    static std::string read_text(int fd, const std::string &until = "")
    {
        std::string text;
        char        bytes[4096];
        while (until.empty() || text.find(until) == std::string::npos) {
            struct pollfd ready = { fd, POLLIN, 0 };
            if (poll(&ready, 1, 20000) != 1) break;
            const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
            if (n <= 0) break;
            text.append(bytes, static_cast<size_t>(n));
        }
        return text;
    }

    std::string ask(const std::string &path, const std::string &body) const
    {
        const int         fd = post(path, body);
        const std::string text = read_text(fd);
        close(fd);
        return text;
    }

    std::string get(const std::string &path) const { return request("GET", path); }

    std::string request(const std::string &method, const std::string &path, const std::string &more = "",
                        const std::string &body = "") const
    {
        const int         fd = connect_to();
        const std::string text = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + more + "\r\n" + body;
        EXPECT_EQ(static_cast<ssize_t>(text.size()), send(fd, text.data(), text.size(), MSG_NOSIGNAL));
        const std::string reply = read_text(fd);
        close(fd);
        return reply;
    }

    bool wait_for(int32_t running, int32_t waiting) const
    {
        for (int i = 0; i < 1000; i++) {
            weir_service_stats stats = {};
            weir_service_stats_of(service_, &stats);
            if (stats.running == running && stats.waiting == waiting) return true;
            (void)poll(nullptr, 0, 10);
        }
        return false;
    }

    weir_server_options options_ = {};
    weir_server        *server_ = nullptr;
    weir_service       *service_ = nullptr;
    weir_tokenizer     *tokenizer_ = nullptr;
    weir_chat_template *chat_ = nullptr;
    weir_ledger        *ledger_ = nullptr;
    weir_sessions      *sessions_ = nullptr;
};

const char *const long_stream = R"({"messages":[{"role":"user","content":"a"}],"max_tokens":3000,"ignore_eos":true,"stream":true})";
const char *const long_plain = R"({"messages":[{"role":"user","content":"a"}],"max_tokens":3000,"ignore_eos":true})";
const char *const short_plain = R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,"ignore_eos":true})";

int count(const std::string &text, const std::string &what)
{
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) n++;
    return n;
}

TEST_F(Server, AnswersOnAFreePort)
{
    open({ 2, 4096, 100, 0 });
    EXPECT_GT(weir_server_port(server_), 0);
    EXPECT_NE(std::string::npos, get("/health").find("{\"status\":\"ok\"}"));
    EXPECT_NE(std::string::npos, get("/").find("<title>Weir</title>"));
    const std::string reply = ask("/v1/chat/completions", short_plain);
    EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << reply;
    EXPECT_NE(std::string::npos, reply.find("\"completion_tokens\":2,")) << reply;
}

TEST_F(Server, Sessions)
{
    weir_server_options options = default_options();
    options.sessions = sessions_ = weir_fake_sessions_open();
    open({ 2, 4096, 100, 0 }, options);
    const auto  has = [](const std::string &reply, const std::string &what) { return reply.find(what) != std::string::npos; };
    std::string reply = ask("/v1/sessions", R"({"name":"talk","tokens":[1,2,3]})");
    EXPECT_TRUE(has(reply, "HTTP/1.1 200")) << reply;
    EXPECT_TRUE(has(reply, R"({"object":"session","id":"talk","tokens":3,"bytes":1000,"timings":{"save_ms":1)")) << reply;
    EXPECT_TRUE(has(ask("/v1/sessions", R"({"name":"text","prompt":"a b c"})"), "HTTP/1.1 200"));
    EXPECT_TRUE(has(ask("/v1/sessions", R"({"name":"chat","messages":[{"role":"user","content":"a"}]})"), "HTTP/1.1 200"));
    EXPECT_TRUE(has(ask("/v1/sessions/restore", R"({"name":"talk"})"), "\"restore_ms\":2"));
    reply = get("/v1/sessions");
    EXPECT_TRUE(has(reply, R"("id":"talk","created":0,"tokens":3,"bytes":1000,"automatic":false,"problem":null)")) << reply;
    EXPECT_TRUE(has(request("DELETE", "/v1/sessions/talk"), R"("id":"talk","deleted":true)"));
    EXPECT_FALSE(has(get("/v1/sessions"), "talk"));
    const struct {
        const char *path, *body, *status, *said;
    } refused[] = {
        { "/v1/sessions", "{}", "400", "name is missing" },
        { "/v1/sessions", R"({"name":7})", "400", "name" },
        { "/v1/sessions", R"({"name":"../x"})", "400", "letters, digits" },
        { "/v1/sessions", R"({"name":".x","tokens":[1]})", "400", "letters, digits" },
        { "/v1/sessions", R"({"name":"a","tokens":[]})", "400", "tokens" },
        { "/v1/sessions", R"({"name":"a","tokens":"x"})", "400", "tokens" },
        { "/v1/sessions", R"({"name":"a","tokens":[-1]})", "400", "tokens" },
        { "/v1/sessions", R"({"name":"a"})", "404", "no request has named" },
        { "/v1/sessions", R"({"name":"busy","tokens":[1]})", "429", "sessions_busy" },
        { "/v1/sessions", R"({"name":"full","tokens":[1]})", "503", "sessions_full" },
        { "/v1/sessions", R"({"name":"disk","tokens":[1]})", "500", "cannot write" },
        { "/v1/sessions/restore", R"({"name":"none"})", "404", "session_not_found" },
        { "/v1/sessions/restore", R"({"name":"damaged"})", "409", "session_unusable" },
        { "/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,"session":"a/b"})", "400", "session" },
    };
    for (const auto &test : refused) {
        reply = ask(test.path, test.body);
        EXPECT_TRUE(has(reply, std::string("HTTP/1.1 ") + test.status)) << test.body << reply;
        EXPECT_TRUE(has(reply, test.said)) << test.body << reply;
    }
    for (const char *const name : { "talk", "damaged" }) { // what cannot be restored is computed
        const std::string body = std::string(R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,"session":")") + name + "\"}";
        EXPECT_TRUE(has(ask("/v1/chat/completions", body), "HTTP/1.1 200")) << name;
    }
    EXPECT_TRUE(has(request("DELETE", "/v1/sessions/..%2fx"), "HTTP/1.1 404"));
    EXPECT_TRUE(has(request("DELETE", "/v1/sessions/none"), "HTTP/1.1 404"));
    EXPECT_TRUE(has(request("PUT", "/v1/sessions"), "Allow: GET, HEAD, POST, OPTIONS"));
}

TEST_F(Server, SessionsOfOneKeyAreNotSeenByAnother)
{
    weir_server_options options = default_options();
    const char *const   keys[] = { "one", "two" };
    options.sessions = sessions_ = weir_fake_sessions_open();
    options.keys = keys;
    options.n_keys = 2;
    open({ 2, 4096, 100, 0 }, options);
    const std::string one = "Authorization: Bearer one\r\n", two = "Authorization: Bearer two\r\n";
    const std::string body = R"({"name":"talk","tokens":[1,2,3]})";
    const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\n";
    EXPECT_NE(request("POST", "/v1/sessions", one + length, body).find("\"id\":\"talk\""), std::string::npos);
    EXPECT_NE(request("GET", "/v1/sessions", one).find("\"id\":\"talk\""), std::string::npos);
    EXPECT_EQ(request("GET", "/v1/sessions", two).find("talk"), std::string::npos);
    EXPECT_NE(request("POST", "/v1/sessions/restore", two + length, body).find("HTTP/1.1 404"), std::string::npos);
    EXPECT_NE(request("DELETE", "/v1/sessions/talk", two).find("HTTP/1.1 404"), std::string::npos);
    EXPECT_NE(request("DELETE", "/v1/sessions/talk", one).find("HTTP/1.1 200"), std::string::npos);
}

TEST_F(Server, WithoutAFolderSessionsAreNotSupported)
{
    open({ 2, 4096, 100, 0 });
    for (const std::string &reply : { get("/v1/sessions"), request("DELETE", "/v1/sessions/a"), ask("/v1/sessions", R"({"name":"a"})"),
                                      ask("/v1/sessions/restore", R"({"name":"a"})") }) {
        EXPECT_NE(reply.find("HTTP/1.1 501"), std::string::npos) << reply;
        EXPECT_NE(reply.find("sessions.dir"), std::string::npos) << reply;
    }
    EXPECT_EQ(
        0u,
        ask("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,"session":"a"})").find("HTTP/1.1 200"));
}

TEST_F(Server, PortInUse)
{
    open({ 2, 4096, 100, 0 });
    weir_server_options again = options_;
    weir_server        *other = nullptr;
    weir_error          error = {};
    again.port = weir_server_port(server_);
    EXPECT_EQ(WEIR_EIO, weir_server_open(&other, &again, &error));
    EXPECT_NE(nullptr, strstr(error.text, "in use")) << error.text;
    EXPECT_NE(nullptr, strstr(error.text, "server.port")) << error.text;
}

TEST_F(Server, OtherAddressesNeedAKey)
{
    open({ 2, 4096, 100, 0 });
    weir_server_options o = options_;
    weir_server        *other = nullptr;
    weir_error          error = {};
    const char *const   key = "k";
    o.host = "0.0.0.0";
    EXPECT_EQ(WEIR_ECONFIG, weir_server_open(&other, &o, &error));
    EXPECT_NE(nullptr, strstr(error.text, "server.api_key")) << error.text;
    o.insecure = true;
    EXPECT_EQ(WEIR_OK, weir_server_open(&other, &o, &error)) << error.text;
    weir_server_close(other);
    o.insecure = false;
    o.keys = &key;
    o.n_keys = 1;
    EXPECT_EQ(WEIR_OK, weir_server_open(&other, &o, &error)) << error.text;
    weir_server_close(other);
    o.host = "no such host";
    EXPECT_EQ(WEIR_ECONFIG, weir_server_open(&other, &o, &error));
}

TEST_F(Server, ClientsThatLeaveGiveTheirPlacesBack)
{
    open({ 1, 4096, 2000, 0 });
    const int running = post("/v1/chat/completions", long_plain);
    ASSERT_TRUE(wait_for(1, 0));
    const int queued = post("/v1/chat/completions", long_stream), queued_too = post("/v1/chat/completions", long_plain);
    ASSERT_TRUE(wait_for(1, 2));
    close(queued);
    ASSERT_TRUE(wait_for(1, 1)) << "a queued stream";
    close(queued_too);
    ASSERT_TRUE(wait_for(1, 0)) << "a queued request without stream";
    close(running);
    EXPECT_TRUE(wait_for(0, 0)) << "a running request without stream";
}

TEST_F(Server, AReaderThatDoesNotReadIsLeft)
{
    weir_server_options o = default_options();
    o.write_timeout_ms = 500;
    open({ 1, 30000, 50, 0 }, o);
    const int fd = post(
        "/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"a"}],"max_tokens":29000,"ignore_eos":true,"stream":true,"logprobs":true,"top_logprobs":20})");
    ASSERT_TRUE(wait_for(1, 0));
    EXPECT_TRUE(wait_for(0, 0));
    const std::string text = read_text(fd);
    EXPECT_EQ(std::string::npos, text.find("[DONE]")) << "it was cancelled, not finished";
    close(fd);
}

TEST_F(Server, PingsWhileAStreamWaits)
{
    weir_server_options o = default_options();
    o.ping_ms = 100;
    open({ 1, 4096, 2000, 0 }, o);
    const int running = post("/v1/chat/completions", long_plain);
    ASSERT_TRUE(wait_for(1, 0));
    const int         waiting = post("/v1/chat/completions", long_stream);
    const std::string text = read_text(waiting, ": ping\n\n");
    EXPECT_EQ(0u, text.find("HTTP/1.1 200")) << text;
    EXPECT_NE(std::string::npos, text.find(": ping\n\n")) << text;
    EXPECT_EQ(std::string::npos, text.find("data:")) << "nothing was made yet";
    close(waiting);
    close(running);
    EXPECT_TRUE(wait_for(0, 0));
}

TEST_F(Server, AFailureInAStreamIsSaid)
{
    open({ 1, 4096, 100, 5 });
    const std::string stream = ask("/v1/chat/completions", long_stream);
    EXPECT_EQ(0u, stream.find("HTTP/1.1 200")) << stream;
    EXPECT_NE(std::string::npos, stream.find("data: {\"error\":{\"message\":\"device failed\"")) << stream;
    EXPECT_EQ(std::string::npos, stream.find("[DONE]")) << "an incomplete answer does not end like a complete one";
    const std::string plain = ask("/v1/chat/completions", long_plain);
    EXPECT_EQ(0u, plain.find("HTTP/1.1 500")) << plain;
    EXPECT_NE(std::string::npos, plain.find("x-should-retry: false")) << plain;
}

TEST_F(Server, ManyPromptsInOneRequest)
{
    open({ 2, 4096, 100, 0 });
    std::string prompts = "\"p0\"";
    for (int i = 1; i < 256; i++) prompts += ",\"p" + std::to_string(i) + "\"";
    const std::string plain = ask("/v1/completions", "{\"prompt\":[" + prompts + "],\"max_tokens\":1,\"ignore_eos\":true}");
    EXPECT_EQ(0u, plain.find("HTTP/1.1 200")) << plain.substr(0, 300);
    EXPECT_EQ(256, count(plain, "\"finish_reason\":\"length\""));
    EXPECT_NE(std::string::npos, plain.find("\"completion_tokens\":256,"));
    const std::string stream =
        ask("/v1/completions", "{\"prompt\":[" + prompts + "],\"max_tokens\":1,\"ignore_eos\":true,\"stream\":true}");
    EXPECT_EQ(256, count(stream, "\"finish_reason\":\"length\""));
    EXPECT_EQ(1, count(stream, "data: [DONE]"));
}

TEST_F(Server, APromptThatIsTooLongLosesItsMiddleWhereThatIsAskedFor)
{
    open({ 2, 128, 100, 0 });
    std::string ids = "1";
    for (int i = 0; i < 299; i++) ids += ",2";
    const std::string body = "{\"prompt\":[" + ids + "],\"max_tokens\":28,\"ignore_eos\":true",
                      cut = ",\"on_overflow\":\"truncate_middle\"";
    EXPECT_EQ(0u, ask("/v1/completions", body + "}").find("HTTP/1.1 400"));
    EXPECT_EQ(0u, ask("/v1/completions", body + ",\"on_overflow\":\"error\"}").find("HTTP/1.1 400"));
    EXPECT_EQ(0u, ask("/v1/completions", body + ",\"on_overflow\":\"shorten\"}").find("HTTP/1.1 400"));
    const std::string plain = ask("/v1/completions", body + cut + "}");
    EXPECT_EQ(0u, plain.find("HTTP/1.1 200")) << plain;
    EXPECT_NE(std::string::npos, plain.find("\"truncated_tokens\":200")) << plain;
    EXPECT_NE(std::string::npos, plain.find("\"prompt_tokens\":100")) << plain;
    const std::string stream = ask("/v1/completions", body + cut + ",\"stream\":true}");
    EXPECT_NE(std::string::npos, stream.find("\"truncated_tokens\":200")) << stream.substr(0, 400);
    const std::string fits = ask("/v1/completions", "{\"prompt\":[1,2],\"max_tokens\":1,\"ignore_eos\":true" + cut + "}");
    EXPECT_EQ(std::string::npos, fits.find("truncated_tokens")) << "nothing was lost, nothing is said";
}

TEST_F(Server, ATemplateThatCannotBeUsedStopsOnlyChats)
{
    weir_server_options options = default_options();
    options.chat_problem = "unknown statement 'frobnicate'";
    open({ 1, 4096, 1000, 0 }, options);
    const std::string chat = ask("/v1/chat/completions", short_plain);
    EXPECT_EQ(0u, chat.find("HTTP/1.1 501")) << chat;
    EXPECT_NE(std::string::npos, chat.find("not_supported")) << chat;
    EXPECT_NE(std::string::npos, chat.find("unknown statement 'frobnicate'")) << chat;
    EXPECT_NE(std::string::npos, chat.find("/v1/completions")) << chat;
    const std::string plain = ask("/v1/completions", R"({"prompt":"a","max_tokens":2})");
    EXPECT_EQ(0u, plain.find("HTTP/1.1 200")) << plain;
}

TEST_F(Server, DrainFinishesWhatRuns)
{
    open({ 2, 4096, 1000, 0 });
    const int fd =
        post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],"max_tokens":300,"ignore_eos":true,"stream":true})");
    std::string text = read_text(fd, "data: ");
    std::thread drain([this] { weir_server_drain(server_, weir_clock_ns() + 20000000000); });
    std::string models;
    for (int i = 0; i < 100 && models.find(" 503 ") == std::string::npos; i++) models = get("/v1/models");
    EXPECT_NE(std::string::npos, models.find("Retry-After: ")) << models;
    EXPECT_EQ(0u, ask("/v1/chat/completions", short_plain).find("HTTP/1.1 503"));
    EXPECT_EQ(0u, get("/health").find("HTTP/1.1 200"));
    text += read_text(fd);
    drain.join();
    EXPECT_NE(std::string::npos, text.find("data: [DONE]")) << "the running stream came to its end";
    close(fd);
}

TEST_F(Server, DrainEndsAtItsDeadline)
{
    open({ 1, 4096, 2000, 0 });
    const int fd = post("/v1/chat/completions", long_stream), queued = post("/v1/chat/completions", long_plain);
    ASSERT_TRUE(wait_for(1, 1));
    weir_server_drain(server_, weir_clock_ns() + 50000000);
    EXPECT_TRUE(wait_for(0, 0));
    close(fd);
    close(queued);
}

TEST_F(Server, ClosesWhileClientsAreEverywhere)
{
    open({ 1, 4096, 2000, 0 });
    const int idle = connect_to(), running = post("/v1/chat/completions", long_stream), queued = post("/v1/chat/completions", long_plain);
    const int half = connect_to(), body = connect_to();
    const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n";
    EXPECT_GT(send(half, head.data(), head.size(), MSG_NOSIGNAL), 0);
    EXPECT_GT(send(body, (head + "\r\n{").data(), head.size() + 3, MSG_NOSIGNAL), 0);
    ASSERT_TRUE(wait_for(1, 1));
    weir_server_close(server_);
    server_ = nullptr;
    EXPECT_TRUE(wait_for(0, 0));
    for (const int fd : { idle, running, queued, half, body }) close(fd);
}

TEST_F(Server, KeysAreAskedFor)
{
    weir_server_options o = default_options();
    const char *const   keys[] = { "one", "two" };
    o.keys = keys;
    o.n_keys = 2;
    open({ 1, 4096, 100, 0 }, o);
    EXPECT_EQ(0u, get("/health").find("HTTP/1.1 200"));
    EXPECT_EQ(0u, get("/v1/models").find("HTTP/1.1 401"));
    EXPECT_EQ(0u, get("/").find("HTTP/1.1 401"));
    const int         fd = connect_to();
    const std::string text = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer two\r\nConnection: close\r\n\r\n";
    EXPECT_GT(send(fd, text.data(), text.size(), MSG_NOSIGNAL), 0);
    EXPECT_EQ(0u, read_text(fd).find("HTTP/1.1 200"));
    close(fd);
}

TEST_F(Server, ABodyThatDoesNotFitIsRefusedBeforeItIsRead)
{
    open_within(1 << 20);
    const int         fd = connect_to();
    const std::string head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n";
    ASSERT_EQ(static_cast<ssize_t>(head.size()), send(fd, head.data(), head.size(), MSG_NOSIGNAL));
    const std::string reply = read_text(fd); /* no byte of the body was sent */
    EXPECT_EQ(0u, reply.find("HTTP/1.1 503")) << reply;
    EXPECT_NE(std::string::npos, reply.find("Retry-After: 5"));
    EXPECT_NE(std::string::npos, reply.find("4000000 bytes"));
    close(fd);
    EXPECT_EQ(0u, ask("/v1/chat/completions", short_plain).find("HTTP/1.1 200")) << "others are served";
}

TEST_F(Server, ABodyInMemoryIsOnTheLedger)
{
    open_within(64 << 20);
    const int         fd = connect_to();
    const std::string head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n";
    ASSERT_EQ(static_cast<ssize_t>(head.size()), send(fd, head.data(), head.size(), MSG_NOSIGNAL));
    for (int i = 0; i < 1000 && http_bytes() < 4000000; i++) (void)poll(nullptr, 0, 10);
    EXPECT_GE(http_bytes(), 4000000u);
    close(fd);
    for (int i = 0; i < 1000 && http_bytes() > 0; i++) (void)poll(nullptr, 0, 10);
    EXPECT_EQ(0u, http_bytes());
}

/* 1 MB of "[],[],..." would be over 100 MB of values. */
TEST_F(Server, JsonThatGrowsPastTheBudgetIsRefusedBeforeItIsParsed)
{
    open_within(16 << 20);
    std::string lists = "[]";
    while (lists.size() < 250000) lists += ",[]";
    const std::string reply = ask("/v1/chat/completions", "{\"messages\":[" + lists + "]}");
    EXPECT_EQ(0u, reply.find("HTTP/1.1 503")) << reply.substr(0, 300);
    EXPECT_NE(std::string::npos, reply.find("memory.host"));
    EXPECT_LT(weir_ledger_peak(ledger_, WEIR_TIER_HOST), 16u << 20);
    EXPECT_EQ(0u, ask("/v1/chat/completions", short_plain).find("HTTP/1.1 200")) << "others are served";
}

/* The words of the failure itself need memory. */
TEST_F(Server, AStreamThatFailsWithoutMemoryStillSaysSo)
{
    const size_t        caps[WEIR_TIER_COUNT] = { 8 << 20 };
    weir_server_options o = default_options();
    ASSERT_EQ(WEIR_OK, weir_ledger_open(&ledger_, caps));
    o.ledger = ledger_;
    o.ping_ms = 100;
    open({ 1, 4096, 900000, 1 }, o);
    std::string ids = "7"; /* two steps of the service: the second makes a token 0.9 s later, and the job fails */
    for (int i = 0; i < 800; i++) ids += ",7";
    const int         fd = post("/v1/completions", "{\"prompt\":[" + ids + "],\"stream\":true}");
    const std::string begun = read_text(fd, ": ping\n\n");
    ASSERT_EQ(0u, begun.find("HTTP/1.1 200")) << begun;
    ASSERT_EQ(std::string::npos, begun.find("data:")) << begun;
    const size_t rest = caps[WEIR_TIER_HOST] - weir_ledger_total(ledger_, WEIR_TIER_HOST);
    ASSERT_EQ(WEIR_OK, weir_ledger_reserve(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_OTHER, rest, nullptr));
    const std::string last = read_text(fd);
    EXPECT_NE(std::string::npos, last.find("\"code\":\"out_of_memory\"")) << last;
    weir_ledger_return(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_OTHER, rest);
    close(fd);
}

TEST_F(Server, AConnectionThatDoesNotFitIsToldSo)
{
    open_within(150 << 10);
    std::vector<int> idle;
    for (int i = 0; i < 4; i++) idle.push_back(connect_to());
    std::string reply;
    for (const int fd : idle) {
        struct pollfd ready = { fd, POLLIN, 0 };
        if (poll(&ready, 1, 500) == 1) reply = read_text(fd);
        if (!reply.empty()) break;
    }
    EXPECT_EQ(0u, reply.find("HTTP/1.1 503")) << reply;
    EXPECT_NE(std::string::npos, reply.find("Retry-After"));
    for (const int fd : idle) close(fd);
}

/* Clients that are strict about an exact format see nothing new. */
TEST_F(Server, ALossyFormatIsSaidInUsageAndHeader)
{
    open({ 2, 4096, 0, 0 });
    const char *const stream = R"({"prompt":"a","max_tokens":2,"ignore_eos":true,"stream":true})";
    const char *const stream_usage =
        R"({"prompt":"a","max_tokens":2,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}})";
    for (const char *const body : { R"({"prompt":"a","max_tokens":2,"ignore_eos":true})", stream, stream_usage }) {
        const std::string reply = ask("/v1/completions", body);
        EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << reply;
        EXPECT_EQ(std::string::npos, reply.find("\"kv\"")) << reply;
        EXPECT_EQ(std::string::npos, reply.find("kv-format")) << reply;
    }
    weir_service_info *const info = weir_fake_service_info(service_);
    info->kv_is_lossy = true;
    info->kv_format = "q8_0/turbo4";
    info->kv_bytes_per_token = 10;
    const std::string header = "x-weir-kv-format: q8_0/turbo4\r\n", kv = R"("kv":{"format":"q8_0/turbo4","bytes":30,"rows":3})";
    const std::string plain = ask("/v1/completions", R"({"prompt":"a","max_tokens":2,"ignore_eos":true})");
    EXPECT_NE(std::string::npos, plain.find(header)) << plain;
    EXPECT_NE(std::string::npos, plain.find(kv)) << plain;
    const std::string silent = ask("/v1/completions", stream);
    EXPECT_NE(std::string::npos, silent.find(header)) << silent;
    EXPECT_EQ(std::string::npos, silent.find("\"kv\"")) << "no usage was asked for";
    const std::string asked = ask("/v1/completions", stream_usage);
    EXPECT_NE(std::string::npos, asked.find(header)) << asked;
    EXPECT_EQ(1, count(asked, kv)) << asked;
    const std::string refused = ask("/v1/completions", R"({"prompt":7})");
    EXPECT_EQ(0u, refused.find("HTTP/1.1 400"));
    EXPECT_EQ(std::string::npos, refused.find("kv-format")) << "nothing was answered";
    EXPECT_EQ(std::string::npos, get("/v1/models").find("kv-format"));
    EXPECT_NE(std::string::npos, get("/props").find("\"lossy\":true"));
}

TEST_F(Server, APromptThatNoBudgetHoldsIsRefused)
{
    open({ 2, 4096, 0, 0 });
    weir_service_info *const info = weir_fake_service_info(service_);
    info->kv_bytes_per_token = 10;
    info->kv_per_request = 1280;
    std::string ids = "1";
    for (int i = 0; i < 128; i++) ids += ",2";
    const std::string body = "{\"prompt\":[" + ids + "],\"ignore_eos\":true";
    const std::string refused = ask("/v1/completions", body + "}");
    EXPECT_EQ(0u, refused.find("HTTP/1.1 400")) << refused;
    for (const char *const part :
         { "\"type\":\"invalid_request_error\"", "\"param\":\"prompt\"", "\"code\":\"kv_budget_exceeded\"", "\"n_prompt_tokens\":129",
           "\"n_ctx\":128", "takes 1920 bytes", "server.kv_per_request allows 1280", "exceeds the available context size of 128 tokens" })
        EXPECT_NE(std::string::npos, refused.find(part)) << part << " in " << refused;
    const std::string cut = ask("/v1/completions", body + ",\"max_tokens\":28,\"on_overflow\":\"truncate_middle\"}");
    EXPECT_EQ(0u, cut.find("HTTP/1.1 200")) << cut;
    EXPECT_NE(std::string::npos, cut.find("\"prompt_tokens\":100,\"completion_tokens\":28,")) << cut;
    const std::string fits = ask("/v1/completions", R"({"prompt":[1,2,3],"ignore_eos":true,"max_tokens":3000})");
    EXPECT_NE(std::string::npos, fits.find("\"completion_tokens\":125,")) << "as many as the budget holds";
    EXPECT_NE(std::string::npos, fits.find("\"finish_reason\":\"length\""));
    const std::string two = ask("/v1/completions", R"({"prompt":[1,2,3],"ignore_eos":true,"max_tokens":3000,"n":2})");
    EXPECT_NE(std::string::npos, two.find("\"completion_tokens\":122,")) << "each has the half";
    EXPECT_NE(std::string::npos, get("/props").find("\"kv_per_request\":1280,\"kv_per_key\":0"));
}

TEST_F(Server, MemoryAsJson)
{
    open_within(32 << 20);
    const std::string reply = get("/v1/memory");
    EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << reply;
    for (const char *const part :
         { "\"object\":\"memory\"", "\"tiers\":{\"host\":{\"cap\":33554432,\"used\":", "\"peak\":", "\"head_room\":",
           "\"accounts\":{\"weights\":0", "\"page_tables\":0", "\"device\":{\"cap\":0", "\"disk\":{",
           "\"kv\":{\"page_bytes\":64,\"pages\":1000,\"free_pages\":", "\"bytes_per_token\":", "\"used_bytes\":", "\"free_tokens\":",
           "\"kept\":{\"tokens\":0,\"bytes\":0,", "\"budgets\":{\"kv_per_request\":0,\"kv_per_key\":0,\"kv_claimed\":0}",
           "\"format\":", "\"recurrent_bytes_per_sequence\":", "\"sequences\":[]", "\"evicted_tokens\":0" })
        EXPECT_NE(std::string::npos, reply.find(part)) << part << " in " << reply;
    const int         fd = post("/v1/chat/completions", long_stream);
    const std::string begin = read_text(fd, "data:");
    EXPECT_NE(std::string::npos, get("/v1/memory").find("\"sequences\":[{\"id\":"));
    close(fd);
}

} // namespace
