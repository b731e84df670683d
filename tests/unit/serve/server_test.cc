// The whole server in this process, over the fake service: sessions, logs, tools, keys, the page.
#include <functional>
#include <regex>
#include <set>

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
    std::string text = prompt_of(
        ask_it, R"("messages":[{"role":"user","content":"How is it?"}],)" + std::string(one_tool)
    );
    text.resize(text.find("\",\"prompt\":")); /* which is the same text again */
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
    const std::string page = get("/"), script = get("/page/chat.js"), style = get("/page/page.css");
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
    /* What the page and its scripts name is there. */
    std::set<std::string> files;
    const std::regex named("(?:\"page/|from \"\\./)([a-z_]+\\.(?:js|css))\"");
    const std::string all = page + script + get("/page/turns.js") + get("/page/markdown_view.js");
    for (auto at = std::sregex_iterator(all.begin(), all.end(), named);
         at != std::sregex_iterator(); ++at)
        files.insert((*at)[1]);
    EXPECT_EQ(14u, files.size());
    for (const std::string &file : files)
        EXPECT_EQ(0u, get("/page/" + file).find("HTTP/1.1 200")) << file;
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
