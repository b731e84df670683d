// The whole server in this process, over the fake service: clients that leave or do not read,
// streams that fail, and draining.
#include <functional>

#include "tests/unit/serve/server_fixture.h"

namespace {

class Streams : public Server {};

TEST_F(Streams, ClientsThatLeaveGiveTheirPlacesBack)
{
    open({ 1, 4096, 2000, 0 });
    const int running = post("/v1/chat/completions", long_plain);
    ASSERT_TRUE(wait_for(1, 0));
    const int queued = post("/v1/chat/completions", long_stream),
              queued_too = post("/v1/chat/completions", long_plain);
    ASSERT_TRUE(wait_for(1, 2));
    close(queued);
    ASSERT_TRUE(wait_for(1, 1)) << "a queued stream";
    close(queued_too);
    ASSERT_TRUE(wait_for(1, 0)) << "a queued request without stream";
    close(running);
    EXPECT_TRUE(wait_for(0, 0)) << "a running request without stream";
}

TEST_F(Streams, AReaderThatDoesNotReadIsLeft)
{
    weir_server_options o = default_options();
    o.write_timeout_ms = 500;
    open({ 1, 30000, 50, 0 }, o);
    const int fd = post(
        "/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"a"}],"max_tokens":29000,"ignore_eos":true,)"
        R"("stream":true,"logprobs":true,"top_logprobs":20})"
    );
    ASSERT_TRUE(wait_for(1, 0));
    EXPECT_TRUE(wait_for(0, 0));
    const std::string text = read_text(fd);
    EXPECT_EQ(std::string::npos, text.find("[DONE]")) << "it was cancelled, not finished";
    close(fd);
}

TEST_F(Streams, PingsWhileAStreamWaits)
{
    weir_server_options o = default_options();
    o.ping_ms = 100;
    open({ 1, 4096, 2000, 0 }, o);
    const int running = post("/v1/chat/completions", long_plain);
    ASSERT_TRUE(wait_for(1, 0));
    const int waiting = post("/v1/chat/completions", long_stream);
    const std::string text = read_text(waiting, ": ping\n\n");
    EXPECT_EQ(0u, text.find("HTTP/1.1 200")) << text;
    EXPECT_NE(std::string::npos, text.find(": ping\n\n")) << text;
    EXPECT_EQ(std::string::npos, text.find("data:")) << "nothing was made yet";
    close(waiting);
    close(running);
    EXPECT_TRUE(wait_for(0, 0));
}

std::string with_pings(const char *seconds)
{
    return R"({"messages":[{"role":"user","content":"a"}],"stream":true,"sse_ping_interval":)" +
           std::string(seconds) + "}";
}

TEST_F(Streams, ARequestAsksForPings)
{
    weir_server_options o = default_options();
    o.ping_ms = 3600000;
    open({ 1, 4096, 2000, 0 }, o);
    const int running = post("/v1/chat/completions", long_plain);
    ASSERT_TRUE(wait_for(1, 0));
    const int waiting = post("/v1/chat/completions", with_pings("0.1"));
    const std::string text = read_text(waiting, ": ping\n\n");
    EXPECT_NE(std::string::npos, text.find(": ping\n\n")) << text;
    close(waiting);
    close(running);
    EXPECT_TRUE(wait_for(0, 0));
}

TEST_F(Streams, ARequestWantsNoPings)
{
    weir_server_options o = default_options();
    o.ping_ms = 100;
    open({ 1, 4096, 2000, 0 }, o);
    const int running = post("/v1/chat/completions", long_plain);
    ASSERT_TRUE(wait_for(1, 0));
    const int silent = post("/v1/chat/completions", with_pings("-1"));
    ASSERT_TRUE(wait_for(1, 1));
    const int pinged = post("/v1/chat/completions", long_stream);
    EXPECT_NE(std::string::npos, read_text(pinged, ": ping\n\n").find(": ping\n\n"));
    pollfd silence = { silent, POLLIN, 0 };
    EXPECT_EQ(0, poll(&silence, 1, 0)) << "not even the head was sent";
    for (const int fd : { pinged, silent, running }) close(fd);
    EXPECT_TRUE(wait_for(0, 0));
}

TEST_F(Streams, AFailureInAStreamIsSaid)
{
    open({ 1, 4096, 100, 5 });
    const std::string stream = ask("/v1/chat/completions", long_stream);
    EXPECT_EQ(0u, stream.find("HTTP/1.1 200")) << stream;
    EXPECT_NE(std::string::npos, stream.find("data: {\"error\":{\"message\":\"device failed\""))
        << stream;
    EXPECT_EQ(std::string::npos, stream.find("[DONE]"))
        << "an incomplete answer does not end like a complete one";
    const std::string plain = ask("/v1/chat/completions", long_plain);
    EXPECT_EQ(0u, plain.find("HTTP/1.1 500")) << plain;
    EXPECT_NE(std::string::npos, plain.find("x-should-retry: false")) << plain;
}

TEST_F(Streams, ManyPromptsInOneRequest)
{
    open({ 2, 4096, 100, 0 });
    std::string prompts = "\"p0\"";
    for (int i = 1; i < 256; i++) prompts += ",\"p" + std::to_string(i) + "\"";
    const std::string plain =
        ask("/v1/completions",
            "{\"prompt\":[" + prompts + "],\"max_tokens\":1,\"ignore_eos\":true}");
    EXPECT_EQ(0u, plain.find("HTTP/1.1 200")) << plain.substr(0, 300);
    EXPECT_EQ(256, count(plain, "\"finish_reason\":\"length\""));
    EXPECT_NE(std::string::npos, plain.find("\"completion_tokens\":256,"));
    const std::string stream =
        ask("/v1/completions",
            "{\"prompt\":[" + prompts + "],\"max_tokens\":1,\"ignore_eos\":true,\"stream\":true}");
    EXPECT_EQ(256, count(stream, "\"finish_reason\":\"length\""));
    EXPECT_EQ(1, count(stream, "data: [DONE]"));
}

TEST_F(Streams, APromptThatIsTooLongLosesItsMiddleWhereThatIsAskedFor)
{
    open({ 2, 128, 100, 0 });
    std::string ids = "1";
    for (int i = 0; i < 299; i++) ids += ",2";
    const std::string body = "{\"prompt\":[" + ids + "],\"max_tokens\":28,\"ignore_eos\":true",
                      cut = ",\"on_overflow\":\"truncate_middle\"";
    EXPECT_EQ(0u, ask("/v1/completions", body + "}").find("HTTP/1.1 400"));
    EXPECT_EQ(
        0u, ask("/v1/completions", body + ",\"on_overflow\":\"error\"}").find("HTTP/1.1 400")
    );
    EXPECT_EQ(
        0u, ask("/v1/completions", body + ",\"on_overflow\":\"shorten\"}").find("HTTP/1.1 400")
    );
    const std::string plain = ask("/v1/completions", body + cut + "}");
    EXPECT_EQ(0u, plain.find("HTTP/1.1 200")) << plain;
    EXPECT_NE(std::string::npos, plain.find("\"truncated_tokens\":200")) << plain;
    EXPECT_NE(std::string::npos, plain.find("\"prompt_tokens\":100")) << plain;
    const std::string stream = ask("/v1/completions", body + cut + ",\"stream\":true}");
    EXPECT_NE(std::string::npos, stream.find("\"truncated_tokens\":200")) << stream.substr(0, 400);
    const std::string fits =
        ask("/v1/completions",
            "{\"prompt\":[1,2],\"max_tokens\":1,\"ignore_eos\":true" + cut + "}");
    EXPECT_EQ(std::string::npos, fits.find("truncated_tokens"))
        << "nothing was lost, nothing is said";
}

TEST_F(Streams, ATemplateThatCannotBeUsedStopsOnlyChats)
{
    weir_server_options options = default_options();
    options.chat_problem = "unknown statement 'frobnicate'";
    open({ 1, 4096, 1000, 0 }, options);
    const std::string chat = ask("/v1/chat/completions", short_plain);
    EXPECT_EQ(0u, chat.find("HTTP/1.1 400")) << chat;
    EXPECT_NE(std::string::npos, chat.find("chat_unsupported")) << chat;
    EXPECT_NE(std::string::npos, chat.find("unknown statement 'frobnicate'")) << chat;
    EXPECT_NE(std::string::npos, chat.find("/v1/completions")) << chat;
    const std::string plain = ask("/v1/completions", R"({"prompt":"a","max_tokens":2})");
    EXPECT_EQ(0u, plain.find("HTTP/1.1 200")) << plain;
}

TEST_F(Streams, DrainFinishesWhatRuns)
{
    open({ 2, 4096, 1000, 0 });
    const int fd = post(
        "/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"a"}],"max_tokens":300,"ignore_eos":true,)"
        R"("stream":true})"
    );
    std::string text = read_text(fd, "data: ");
    std::thread drain([this] { weir_server_drain(server_, weir_clock_ns() + 20000000000); });
    std::string models;
    for (int i = 0; i < 100 && models.find(" 503 ") == std::string::npos; i++)
        models = get("/v1/models");
    EXPECT_NE(std::string::npos, models.find("Retry-After: ")) << models;
    EXPECT_EQ(0u, ask("/v1/chat/completions", short_plain).find("HTTP/1.1 503"));
    EXPECT_EQ(0u, get("/health").find("HTTP/1.1 200"));
    text += read_text(fd);
    drain.join();
    EXPECT_NE(std::string::npos, text.find("data: [DONE]")) << "the running stream came to its end";
    close(fd);
}

TEST_F(Streams, DrainEndsAtItsDeadline)
{
    open({ 1, 4096, 2000, 0 });
    const int fd = post("/v1/chat/completions", long_stream),
              queued = post("/v1/chat/completions", long_plain);
    ASSERT_TRUE(wait_for(1, 1));
    weir_server_drain(server_, weir_clock_ns() + 50000000);
    EXPECT_TRUE(wait_for(0, 0));
    const std::string stream = read_text(fd), plain = read_text(queued);
    EXPECT_NE(
        std::string::npos, stream.find("this server shut down before the answer was complete")
    ) << stream;
    EXPECT_EQ(std::string::npos, stream.find("[DONE]")) << stream;
    EXPECT_EQ(0u, plain.find("HTTP/1.1 503")) << plain;
    EXPECT_NE(std::string::npos, plain.find("this server shut down before the answer was complete"))
        << plain;
    close(fd);
    close(queued);
}

TEST_F(Streams, ClosesWhileClientsAreEverywhere)
{
    open({ 1, 4096, 2000, 0 });
    const int idle = connect_to(), running = post("/v1/chat/completions", long_stream),
              queued = post("/v1/chat/completions", long_plain);
    const int half = connect_to(), body = connect_to();
    const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                             "application/json\r\nContent-Length: 100\r\n";
    EXPECT_GT(send(half, head.data(), head.size(), MSG_NOSIGNAL), 0);
    EXPECT_GT(send(body, (head + "\r\n{").data(), head.size() + 3, MSG_NOSIGNAL), 0);
    ASSERT_TRUE(wait_for(1, 1));
    weir_server_close(server_);
    server_ = nullptr;
    EXPECT_TRUE(wait_for(0, 0));
    for (const int fd : { idle, running, queued, half, body }) close(fd);
}

} // namespace
