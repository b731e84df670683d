// Connections of the whole server in this process: places, times, framing, and pages of other
// sites.
#include "tests/unit/serve/server_fixture.h"

namespace {

const std::string json_head =
    "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

class Connections : public Server {
  protected:
    std::string say(const std::string &text, const std::string &until = "") const
    {
        const int fd = connect_to();
        EXPECT_EQ(
            static_cast<ssize_t>(text.size()), send(fd, text.data(), text.size(), MSG_NOSIGNAL)
        );
        const std::string reply = read_text(fd, until);
        close(fd);
        return reply;
    }
    void open_small(int64_t max_connections)
    {
        weir_server_options o = default_options();
        o.max_connections = max_connections;
        o.header_timeout_ms = 300;
        o.read_timeout_ms = 700;
        open({ 1, 4096, 2000, 0 }, o);
    }
};

TEST_F(Connections, IdleOnesGiveTheirPlaces)
{
    open_small(4);
    std::vector<int> idle;
    for (int i = 0; i < 40; i++) idle.push_back(connect_to());
    EXPECT_EQ(0u, get("/v1/models").find("HTTP/1.1 200"));
    EXPECT_EQ(0u, ask("/v1/chat/completions", short_plain).find("HTTP/1.1 200"));
    for (const int fd : idle) close(fd);
}

TEST_F(Connections, WhenAllAreBusyHealthIsAnsweredAndTheRestIs503)
{
    open_small(3);
    std::vector<int> busy;
    for (int i = 0; i < 3; i++) {
        busy.push_back(post("/v1/chat/completions", long_stream));
        if (i == 0) ASSERT_TRUE(wait_for(1, 0));
    }
    ASSERT_TRUE(wait_for(1, 2));
    std::vector<int> idle; /* they cannot keep the spare places either */
    for (int i = 0; i < 40; i++) idle.push_back(connect_to());
    EXPECT_EQ(0u, get("/health").find("HTTP/1.1 200"));
    const std::string refused = ask("/v1/chat/completions", short_plain);
    EXPECT_EQ(0u, refused.find("HTTP/1.1 503")) << refused;
    EXPECT_NE(std::string::npos, refused.find("Retry-After: ")) << refused;
    EXPECT_NE(std::string::npos, refused.find("server.max_connections")) << refused;
    EXPECT_EQ(0u, get("/v1/models").find("HTTP/1.1 503"));
    for (const int fd : idle) close(fd);
    for (const int fd : busy) close(fd);
    ASSERT_TRUE(wait_for(0, 0));
    EXPECT_NE(std::string::npos, get("/metrics").find("weir:connections_refused_total"));
}

TEST_F(Connections, TimesAreKept)
{
    open_small(10);
    EXPECT_EQ("", say("")) << "an idle connection is closed without a word";
    EXPECT_EQ(0u, say("GET /health HTTP/1.1\r\nHost: local").find("HTTP/1.1 408"));
    EXPECT_EQ(0u, say(json_head + "Content-Length: 100\r\n\r\n{").find("HTTP/1.1 408"));
    EXPECT_EQ(0u, say(json_head + "Transfer-Encoding: chunked\r\n\r\n").find("HTTP/1.1 408"));
    EXPECT_EQ(
        0u, say(json_head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n").find("HTTP/1.1 408")
    );
}

/* Fields and queries with hundreds of parts are not taken apart. */
TEST_F(Connections, ManyCookiesAndArgumentsAreNothingSpecial)
{
    open_within(16 << 20);
    std::string cookies, query;
    for (int i = 0; i < 650; i++) cookies += "a=;", query += "a&";
    for (int i = 0; i < 50; i++) {
        EXPECT_EQ(
            0u, say("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: " +
                    cookies + "\r\n\r\n")
                    .find("HTTP/1.1 200")
        );
        EXPECT_EQ(
            0u, say("GET /health?" + query +
                    " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    .find("HTTP/1.1 200")
        );
    }
    for (int i = 0; i < 1000 && http_bytes() > 0; i++) (void)poll(nullptr, 0, 10);
    EXPECT_EQ(0u, http_bytes());
}

TEST_F(Connections, PipelinedRequestsAreAnsweredInOrder)
{
    open({ 2, 4096, 0, 0 });
    std::string text;
    for (int i = 0; i < 500; i++) text += "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    text += "GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\nGET /health "
            "HTTP/1.1\r\n";
    const std::string reply = say(text);
    EXPECT_EQ(500, count(reply, "HTTP/1.1 200 OK\r\n"));
    EXPECT_EQ(501, count(reply, "HTTP/1.1 "));
    EXPECT_LT(reply.rfind("HTTP/1.1 200"), reply.find("HTTP/1.1 404"));
}

TEST_F(Connections, BrokenFramingHasOneAnswerInJsonAndEnds)
{
    open({ 2, 4096, 0, 0 });
    const std::string get_head = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n",
                      after = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (const std::string &text :
         { get_head + "X: a\n\r\n", get_head + " folded\r\n\r\n", get_head + ": x\r\n\r\n",
           get_head + std::string("X: a\0b\r\n\r\n", 10), get_head + "Host: localhost\r\n\r\n",
           get_head + "Content-Length: 1x\r\n\r\n",
           json_head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
           json_head + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}" }) {
        const std::string reply = say(text + after);
        EXPECT_EQ(0u, reply.find("HTTP/1.1 400 Bad Request\r\n")) << text << reply;
        EXPECT_EQ(1, count(reply, "HTTP/1.1 ")) << reply;
        EXPECT_NE(std::string::npos, reply.find("Connection: close\r\n")) << reply;
        EXPECT_NE(std::string::npos, reply.find("Content-Type: application/json\r\n")) << reply;
        EXPECT_NE(std::string::npos, reply.find("{\"error\":{\"message\":\"")) << reply;
    }
    EXPECT_EQ(0u, say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").find("HTTP/1.1 505"));
}

TEST_F(Connections, PagesOfOtherSitesMayNotUseIt)
{
    weir_server_options o = default_options();
    o.allowed_origins = "http://localhost:3000";
    open({ 2, 4096, 0, 0 }, o);
    const std::string length = "Content-Length: " + std::to_string(strlen(short_plain)) + "\r\n";
    const auto from = [&](const std::string &more) {
        return request("POST", "/v1/chat/completions", length + more, short_plain);
    };
    for (const char *const more :
         { "Origin: http://evil.example\r\n", "Origin: null\r\n",
           "Origin: http://localhost:3001\r\n", "Sec-Fetch-Site: cross-site\r\n" })
        EXPECT_EQ(0u, from(more).find("HTTP/1.1 403")) << more;
    EXPECT_EQ(
        0u, from("Origin: http://localhost\r\nSec-Fetch-Site: same-origin\r\n").find("HTTP/1.1 200")
    );
    const std::string listed =
        from("Origin: http://localhost:3000\r\nSec-Fetch-Site: cross-site\r\n");
    EXPECT_EQ(0u, listed.find("HTTP/1.1 200")) << listed;
    EXPECT_NE(
        std::string::npos, listed.find("Access-Control-Allow-Origin: http://localhost:3000\r\n")
    ) << listed;
    EXPECT_EQ(
        0u,
        request("GET", "/v1/models", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n")
            .find("HTTP/1.1 403")
    );
    EXPECT_EQ(
        0u, request("GET", "/", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n")
                .find("HTTP/1.1 200")
    ) << "a link";
    EXPECT_EQ(
        0u,
        say("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", "\r\n\r\n").find("HTTP/1.1 403")
    );
    const std::string ask_first = "Access-Control-Request-Method: POST\r\n";
    EXPECT_NE(
        std::string::npos,
        request("OPTIONS", "/v1/chat/completions", ask_first + "Origin: http://localhost:3000\r\n")
            .find("Allow-Methods")
    );
    EXPECT_EQ(
        0u,
        request("OPTIONS", "/v1/chat/completions", ask_first + "Origin: http://evil.example\r\n")
            .find("HTTP/1.1 403")
    );
}

TEST_F(Connections, ABodyIsJson)
{
    open({ 2, 4096, 0, 0 });
    const std::string length = "Content-Length: " + std::to_string(strlen(short_plain)) + "\r\n";
    for (const char *const type :
         { "", "Content-Type: text/plain\r\n", "Content-Type: application/jsonx\r\n",
           "Content-Type: multipart/form-data\r\n" }) {
        const std::string reply =
            say("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                length + type + "\r\n" + short_plain);
        EXPECT_EQ(0u, reply.find("HTTP/1.1 415")) << type << reply;
    }
    const std::string reply =
        say("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
            length + "Content-Type: Application/JSON; charset=utf-8\r\n\r\n" + short_plain);
    EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << reply;
}

TEST_F(Connections, ExpectationsAreMetBeforeTheBody)
{
    open({ 2, 4096, 0, 0 });
    const std::string length = "Content-Length: " + std::to_string(strlen(short_plain)) + "\r\n";
    const int fd = connect_to();
    const std::string head =
        json_head + length + "Expect: 100-continue\r\nConnection: close\r\n\r\n";
    ASSERT_GT(send(fd, head.data(), head.size(), MSG_NOSIGNAL), 0);
    EXPECT_EQ("HTTP/1.1 100 Continue\r\n\r\n", read_text(fd, "\r\n\r\n"));
    ASSERT_GT(send(fd, short_plain, strlen(short_plain), MSG_NOSIGNAL), 0);
    EXPECT_EQ(0u, read_text(fd).find("HTTP/1.1 200"));
    close(fd);
    EXPECT_EQ(0u, say(json_head + length + "Expect: miracles\r\n\r\n").find("HTTP/1.1 417"));
    EXPECT_EQ(
        0u, say(json_head + "Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n")
                .find("HTTP/1.1 413")
    );
}

TEST_F(Connections, OldClientsGetTheirStreamToTheEnd)
{
    open({ 2, 4096, 0, 0 });
    const std::string body =
        R"({"messages":[{"role":"user","content":"a"}],"max_tokens":3,"ignore_eos":true,)"
        R"("stream":true})";
    const std::string reply = say(
        "POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body
    );
    EXPECT_EQ(std::string::npos, reply.find("chunked")) << reply;
    EXPECT_EQ(reply.size() - 14, reply.rfind("data: [DONE]\n\n")) << reply;
}

} // namespace
