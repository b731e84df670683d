// The whole server in this process, over the fake service: what the wire suite cannot see or cannot
// wait for.
#include <functional>

#include "tests/unit/serve/server_fixture.h"

namespace {

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
    const auto has = [](const std::string &reply, const std::string &what) {
        return reply.find(what) != std::string::npos;
    };
    std::string reply = ask("/v1/sessions", R"({"name":"talk","tokens":[1,2,3]})");
    EXPECT_TRUE(has(reply, "HTTP/1.1 200")) << reply;
    EXPECT_TRUE(has(
        reply, R"({"object":"session","id":"talk","tokens":3,"bytes":1000,"timings":{"save_ms":1)"
    )) << reply;
    EXPECT_TRUE(has(ask("/v1/sessions", R"({"name":"text","prompt":"a b c"})"), "HTTP/1.1 200"));
    EXPECT_TRUE(
        has(ask("/v1/sessions", R"({"name":"chat","messages":[{"role":"user","content":"a"}]})"),
            "HTTP/1.1 200")
    );
    EXPECT_TRUE(has(ask("/v1/sessions/restore", R"({"name":"talk"})"), "\"restore_ms\":2"));
    reply = get("/v1/sessions");
    EXPECT_TRUE(has(
        reply, R"("id":"talk","created":0,"tokens":3,"bytes":1000,"automatic":false,"problem":null)"
    )) << reply;
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
        { "/v1/sessions", R"({"name":"a"})", "404", "no request has used" },
        { "/v1/sessions", R"({"name":"busy","tokens":[1]})", "429", "sessions_busy" },
        { "/v1/sessions", R"({"name":"full","tokens":[1]})", "503", "sessions_full" },
        { "/v1/sessions", R"({"name":"disk","tokens":[1]})", "500", "cannot write" },
        { "/v1/sessions/restore", R"({"name":"none"})", "404", "session_not_found" },
        { "/v1/sessions/restore", R"({"name":"damaged"})", "409", "session_unusable" },
        { "/v1/chat/completions",
          R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,"session":"a/b"})", "400",
          "session" },
    };
    for (const auto &test : refused) {
        reply = ask(test.path, test.body);
        EXPECT_TRUE(has(reply, std::string("HTTP/1.1 ") + test.status)) << test.body << reply;
        EXPECT_TRUE(has(reply, test.said)) << test.body << reply;
    }
    for (const char *const name : { "talk", "damaged" }) { // what cannot be restored is computed
        const std::string body =
            std::string(R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,"session":")"
            ) +
            name + "\"}";
        EXPECT_TRUE(has(ask("/v1/chat/completions", body), "HTTP/1.1 200")) << name;
    }
    EXPECT_TRUE(has(request("DELETE", "/v1/sessions/..%2fx"), "HTTP/1.1 404"));
    EXPECT_TRUE(has(request("DELETE", "/v1/sessions/none"), "HTTP/1.1 404"));
    EXPECT_TRUE(has(request("PUT", "/v1/sessions"), "Allow: GET, HEAD, POST, OPTIONS"));
}

TEST_F(Server, SessionsOfOneKeyAreNotSeenByAnother)
{
    weir_server_options options = default_options();
    const char *const keys[] = { "one", "two" };
    options.sessions = sessions_ = weir_fake_sessions_open();
    options.keys = keys;
    options.n_keys = 2;
    open({ 2, 4096, 100, 0 }, options);
    const std::string one = "Authorization: Bearer one\r\n", two = "Authorization: Bearer two\r\n";
    const std::string body = R"({"name":"talk","tokens":[1,2,3]})";
    const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\n";
    EXPECT_NE(
        request("POST", "/v1/sessions", one + length, body).find("\"id\":\"talk\""),
        std::string::npos
    );
    EXPECT_NE(request("GET", "/v1/sessions", one).find("\"id\":\"talk\""), std::string::npos);
    EXPECT_EQ(request("GET", "/v1/sessions", two).find("talk"), std::string::npos);
    EXPECT_NE(
        request("POST", "/v1/sessions/restore", two + length, body).find("HTTP/1.1 404"),
        std::string::npos
    );
    EXPECT_NE(request("DELETE", "/v1/sessions/talk", two).find("HTTP/1.1 404"), std::string::npos);
    EXPECT_NE(request("DELETE", "/v1/sessions/talk", one).find("HTTP/1.1 200"), std::string::npos);
}

TEST_F(Server, WithoutAFolderSessionsAreNotSupported)
{
    open({ 2, 4096, 100, 0 });
    for (const std::string &reply : { get("/v1/sessions"), request("DELETE", "/v1/sessions/a"),
                                      ask("/v1/sessions", R"({"name":"a"})"),
                                      ask("/v1/sessions/restore", R"({"name":"a"})") }) {
        EXPECT_NE(reply.find("HTTP/1.1 501"), std::string::npos) << reply;
        EXPECT_NE(reply.find("sessions.dir"), std::string::npos) << reply;
    }
    const std::string body =
        R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,"session":"a"})";
    const std::string reply = ask("/v1/chat/completions", body);
    EXPECT_EQ(0u, reply.find("HTTP/1.1 400")) << reply;
    EXPECT_NE(reply.find("\"param\":\"session\""), std::string::npos) << reply;
    EXPECT_NE(reply.find("sessions.dir"), std::string::npos) << reply;
}

TEST_F(Server, TimeBetweenTokensIsLoggedWhereThereAreTwo)
{
    int log[2] = { -1, -1 };
    weir_server_options options = default_options();
    ASSERT_EQ(0, pipe(log));
    options.log_fd = log[1];
    open({ 2, 4096, 100, 0 }, options);
    for (const int n : { 1, 2 }) {
        const std::string reply =
            ask("/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"a"}],"max_tokens":)" + std::to_string(n) +
                    R"(,"ignore_eos":true})");
        EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << reply;
        const std::string line = http::read_pipe(log[0]);
        EXPECT_NE(std::string::npos, line.find(R"("tokens_out":)" + std::to_string(n))) << line;
        EXPECT_NE(std::string::npos, line.find(R"("finish":"length")")) << line;
        EXPECT_EQ(n > 1, line.find("itl_ms") != std::string::npos) << line;
    }
    weir_server_close(server_);
    server_ = nullptr;
    close(log[0]);
    close(log[1]);
}

TEST_F(Server, UnknownFieldsAreSaidInAHeaderAndInTheLog)
{
    int log[2] = { -1, -1 };
    weir_server_options options = default_options();
    ASSERT_EQ(0, pipe(log));
    options.log_fd = log[1];
    open({ 2, 4096, 100, 0 }, options);
    const std::string begin =
        R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,"ignore_eos":true)";
    const std::string header =
        "x-weir-warning: unknown fields are ignored: tempreature (temperature?), \"x\"";
    for (const char *const more : { "}", ",\"stream\":true}" }) {
        const std::string reply =
            ask("/v1/chat/completions", begin + R"(,"tempreature":0,"\"x\"":1)" + more);
        EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << reply;
        EXPECT_NE(std::string::npos, reply.find(header)) << reply;
        EXPECT_NE(
            std::string::npos,
            http::read_pipe(log[0]).find(R"("unknown_fields":["tempreature","\"x\""])")
        );
    }
    const std::string plain = ask("/v1/chat/completions", begin + R"(,"user":"u"})");
    EXPECT_EQ(std::string::npos, plain.find("x-weir-warning")) << plain;
    EXPECT_EQ(std::string::npos, http::read_pipe(log[0]).find("unknown_fields"));
    const std::string ids = ask("/tokenize", R"({"content":"a","add_specials":true})");
    EXPECT_NE(
        std::string::npos,
        ids.find("x-weir-warning: unknown fields are ignored: add_specials (add_special?)")
    ) << ids;
    EXPECT_EQ(
        0u, ask("/v1/chat/completions", begin + R"(,"kv_polcy":"h2o"})").find("HTTP/1.1 400")
    );
    weir_server_close(server_);
    server_ = nullptr;
    close(log[0]);
    close(log[1]);
}

/* The text of the prompt that this chat becomes. */
std::string prompt_of(
    const std::function<std::string(const std::string &, const std::string &)> &ask,
    const std::string &fields
)
{
    const std::string ids = ask("/tokenize", "{" + fields + "}");
    const size_t from = ids.find("\"tokens\":["), to = ids.find(']', from);
    EXPECT_NE(std::string::npos, from) << ids;
    return from == std::string::npos ? ""
                                     : ask("/detokenize", "{" + ids.substr(from, to - from) + "]}");
}

const char *const one_tool = R"("tools":[{"type":"function","function":{"name":"get_weather"}}])";

TEST_F(Server, ToolsThatTheTemplateDropsAreInTheSystemMessage)
{
    template_ = "tests/golden/text/templates/deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja";
    open({ 2, 4096, 100, 0 });
    const auto ask_it = [this](const std::string &path, const std::string &body) {
        return ask(path, body);
    };
    const std::string user = R"({"role":"user","content":"How is it?"})";
    const std::string plain = prompt_of(ask_it, R"("messages":[)" + user + "]");
    EXPECT_EQ(std::string::npos, plain.find("tool")) << plain;
    const std::string text = prompt_of(ask_it, R"("messages":[)" + user + "]," + one_tool);
    EXPECT_NE(std::string::npos, text.find("get_weather")) << text;
    EXPECT_NE(std::string::npos, text.find("<tool_call>")) << text;
    EXPECT_LT(text.find("get_weather"), text.find("How is it?")) << text;
    const std::string system =
        R"("messages":[{"role":"system","content":"Be brief."},)" + user + "],";
    const std::string both = prompt_of(ask_it, system + one_tool);
    EXPECT_LT(both.find("Be brief."), both.find("get_weather")) << both;
    /* This one writes calls, but drops what may be called. */
    const std::string call =
        R"({"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function",)"
        R"("function":{"name":"get_weather","arguments":"{}"}}]},)" +
        user;
    const std::string told =
        prompt_of(ask_it, R"("messages":[)" + user + "," + call + "]," + one_tool);
    EXPECT_NE(std::string::npos, told.find("<tools>")) << told;
}

TEST_F(Server, ToolsThatTheTemplateTakesAreThere)
{
    open({ 2, 4096, 100, 0 });
    const auto ask_it = [this](const std::string &path, const std::string &body) {
        return ask(path, body);
    };
    const std::string text = prompt_of(
        ask_it, R"("messages":[{"role":"user","content":"How is it?"}],)" + std::string(one_tool)
    );
    const size_t first = text.find("get_weather");
    EXPECT_NE(std::string::npos, first) << text;
    EXPECT_EQ(std::string::npos, text.find("get_weather", first + 1)) << text;
}

TEST_F(Server, EffortThatTheTemplateDoesNotReadIsSaid)
{
    const std::string body =
        R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,"reasoning_effort":"high"})";
    open({ 2, 4096, 100, 0 });
    EXPECT_EQ(std::string::npos, ask("/v1/chat/completions", body).find("x-weir-warning"));
    TearDown();
    server_ = nullptr, service_ = nullptr, chat_ = nullptr, tokenizer_ = nullptr;
    template_ = "tests/golden/text/templates/Qwen-Qwen2.5-7B-Instruct.jinja";
    open({ 2, 4096, 100, 0 });
    const std::string reply = ask("/v1/chat/completions", body);
    EXPECT_NE(std::string::npos, reply.find("x-weir-warning: reasoning_effort has no effect"))
        << reply;
}

TEST_F(Server, ThePageNeedsNoKeyAndRunsNothingInline)
{
    const char *key = "k";
    weir_server_options options = default_options();
    options.keys = &key;
    options.n_keys = 1;
    open({ 2, 4096, 100, 0 }, options);
    EXPECT_EQ(0u, get("/v1/models").find("HTTP/1.1 401"));
    const std::string page = get("/"), script = get("/page.js"), style = get("/page.css");
    for (const std::string &reply : { page, script, style }) {
        EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << reply.substr(0, 400);
        EXPECT_NE(std::string::npos, reply.find("X-Content-Type-Options: nosniff"));
    }
    EXPECT_NE(std::string::npos, script.find("Content-Type: text/javascript"));
    EXPECT_NE(std::string::npos, style.find("Content-Type: text/css"));
    EXPECT_NE(
        std::string::npos,
        page.find(
            "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
            "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n"
        )
    );
    EXPECT_EQ(std::string::npos, page.find("<style"));
    EXPECT_EQ(std::string::npos, page.find("<script>"));
}

TEST_F(Server, PortInUse)
{
    open({ 2, 4096, 100, 0 });
    weir_server_options again = options_;
    weir_server *other = nullptr;
    weir_error error = {};
    again.port = weir_server_port(server_);
    EXPECT_EQ(WEIR_EIO, weir_server_open(&other, &again, &error));
    EXPECT_NE(nullptr, strstr(error.text, "in use")) << error.text;
    EXPECT_NE(nullptr, strstr(error.text, "server.port")) << error.text;
}

TEST_F(Server, OtherAddressesNeedAKey)
{
    open({ 2, 4096, 100, 0 });
    weir_server_options o = options_;
    weir_server *other = nullptr;
    weir_error error = {};
    const char *const key = "k";
    o.host = "0.0.0.0";
    EXPECT_EQ(WEIR_ECONFIG, weir_server_open(&other, &o, &error));
    EXPECT_NE(nullptr, strstr(error.text, "server.api_key_file or WEIR_API_KEY")) << error.text;
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

TEST_F(Server, AReaderThatDoesNotReadIsLeft)
{
    weir_server_options o = default_options();
    o.write_timeout_ms = 500;
    open({ 1, 30000, 50, 0 }, o);
    const int fd = post(
        "/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"a"}],"max_tokens":29000,"ignore_eos":true,"stream":true,"logprobs":true,"top_logprobs":20})"
    );
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
    const int waiting = post("/v1/chat/completions", long_stream);
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
    EXPECT_NE(std::string::npos, stream.find("data: {\"error\":{\"message\":\"device failed\""))
        << stream;
    EXPECT_EQ(std::string::npos, stream.find("[DONE]"))
        << "an incomplete answer does not end like a complete one";
    const std::string plain = ask("/v1/chat/completions", long_plain);
    EXPECT_EQ(0u, plain.find("HTTP/1.1 500")) << plain;
    EXPECT_NE(std::string::npos, plain.find("x-should-retry: false")) << plain;
}

TEST_F(Server, ManyPromptsInOneRequest)
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

TEST_F(Server, APromptThatIsTooLongLosesItsMiddleWhereThatIsAskedFor)
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

TEST_F(Server, ATemplateThatCannotBeUsedStopsOnlyChats)
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

TEST_F(Server, DrainFinishesWhatRuns)
{
    open({ 2, 4096, 1000, 0 });
    const int fd = post(
        "/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"a"}],"max_tokens":300,"ignore_eos":true,"stream":true})"
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

TEST_F(Server, DrainEndsAtItsDeadline)
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

TEST_F(Server, ClosesWhileClientsAreEverywhere)
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

TEST_F(Server, KeysAreAskedFor)
{
    weir_server_options o = default_options();
    const char *const keys[] = { "one", "two" };
    o.keys = keys;
    o.n_keys = 2;
    open({ 1, 4096, 100, 0 }, o);
    EXPECT_EQ(0u, get("/health").find("HTTP/1.1 200"));
    EXPECT_EQ(0u, get("/v1/models").find("HTTP/1.1 401"));
    EXPECT_EQ(0u, get("/v1/models").find("HTTP/1.1 401"));
    const int fd = connect_to();
    const std::string text = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                             "two\r\nConnection: close\r\n\r\n";
    EXPECT_GT(send(fd, text.data(), text.size(), MSG_NOSIGNAL), 0);
    EXPECT_EQ(0u, read_text(fd).find("HTTP/1.1 200"));
    close(fd);
}

} // namespace
