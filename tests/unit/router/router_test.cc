// The router with servers that are programs of this test: routing, streams, cancels, memory,
// failures.
#include "tests/unit/router/router_fixture.h"

#include <signal.h>

namespace {

TEST_F(Router, ChoosesByTheModelOfTheBody)
{
    add("a/1", mib);
    add("b", mib);
    start(2 * mib);
    EXPECT_EQ("b", asked("b"));
    EXPECT_EQ("a/1", asked("a\\/1"));
    const std::string last =
        "{\"messages\":[{\"model\":\"a/1\",\"x\":\"}\\\"\"}],\"n\":1,\"model\":\"b\"}";
    EXPECT_EQ(0u, body_of(post("/x", last)).find("b\n"));
    EXPECT_NE(std::string::npos, post("/x", last).find(last)) << "the body arrives as it is";
    EXPECT_EQ(0u, body_of(post("/x", "{\"n\":1}")).find("a/1\n")) << "the first, without a model";
    EXPECT_EQ(0u, body_of(post("/x", "no JSON")).find("a/1\n")) << "its server refuses it";
    EXPECT_EQ(0u, body_of(get("/x?model=b")).find("b\n"));
    EXPECT_EQ(0u, body_of(get("/x?y=1&model=a%2F1")).find("a/1\n"));
    const std::string chunked = http::request(
        port_, "POST", "/x", "Transfer-Encoding: chunked\r\n",
        "4\r\n{\"mo\r\n8\r\ndel\":\"b\"\r\n1\r\n}\r\n0\r\n\r\n"
    );
    EXPECT_EQ(0u, body_of(chunked).find("b\n"));
    EXPECT_NE(std::string::npos, chunked.find("8\r\ndel\":\"b\"\r\n1\r\n}\r\n0\r\n\r\n"));
    const std::string unknown = post("/x", "{\"model\":\"c\"}");
    EXPECT_EQ(404, status_of(unknown));
    EXPECT_NE(std::string::npos, unknown.find("\"code\":\"model_not_found\""));
    EXPECT_NE(std::string::npos, unknown.find("there are: a/1, b"));
    EXPECT_NE(
        std::string::npos, post("/v1/messages", "{\"model\":\"c\"}").find("\"type\":\"error\"")
    ) << "in the form of its API";
}

/* Fields of the client's connection end at the router, and so do those that no server reads. */
TEST_F(Router, PassesTheFieldsThatServersRead)
{
    add("a", mib);
    start(mib);
    const std::string seen = body_of(http::request(
        port_, "POST", "/x?k=1&model=a&l=2",
        "Content-Length: 2\r\nAuthorization: Bearer k\r\nX-Request-Id: r1\r\nUpgrade: h2c\r\n"
        "Keep-Alive: timeout=5\r\nTE: trailers\r\nX-Other: y\r\nExpect: 100-continue\r\n",
        "{}"
    ));
    const std::string wanted =
        "a\nPOST /x?k=1&l=2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Content-Length: 2\r\nContent-Type: application/json\r\nAuthorization: Bearer k\r\n"
        "X-Request-Id: r1\r\n\r\n{}";
    EXPECT_EQ(wanted, seen.substr(seen.find("a\n"))) << seen;
    EXPECT_NE(
        std::string::npos, body_of(http::request(port_, "DELETE", "/v1/sessions/s", "", ""))
                               .find("DELETE /v1/sessions/s HTTP/1.1")
    );
}

TEST_F(Router, StreamsAsItComes)
{
    add("a", mib);
    start(mib);
    const int stream = http::post(port_, "/stream", "{}");
    EXPECT_NE(std::string::npos, http::read_text(stream, "first;").find("first;"));
    EXPECT_EQ(200, status_of(post("/go", "{}")));
    EXPECT_EQ("second;", http::read_text(stream));
    close(stream);
    EXPECT_EQ(size_t(4 << 20), body_of(post("/big", "{}")).size());
}

TEST_F(Router, ACancelReachesTheServer)
{
    add("a", mib);
    start(mib);
    const int held = hold("a");
    close(held);
    EXPECT_EQ(200, status_of(get("/gone"))) << "the server has seen it";
    wait_until("requests_running", "a", "0");
}

/* The end of the connection arrives with the last bytes of the body. */
TEST_F(Router, AClientThatGoesWithItsBodyIsSeen)
{
    add("a", mib);
    start(mib);
    const std::string begin = "POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n"
                              "{\"model\":\"a\"",
                      end = "       }";
    const int fd = http::connect_to(port_);
    EXPECT_EQ((ssize_t)begin.size(), send(fd, begin.data(), begin.size(), MSG_NOSIGNAL));
    wait_until("requests_running", "a", "1");
    EXPECT_EQ((ssize_t)end.size(), send(fd, end.data(), end.size(), MSG_NOSIGNAL | MSG_MORE));
    EXPECT_EQ(0, shutdown(fd, SHUT_WR));
    wait_until("requests_running", "a", "0");
    EXPECT_EQ(200, status_of(get("/gone"))) << "the server has seen it";
    close(fd);
}

TEST_F(Router, UnloadsWhatWasUsedLeastRecently)
{
    add("a", 2 * mib);
    add("b", 2 * mib);
    add("c", 2 * mib);
    start(4 * mib);
    EXPECT_EQ("{\"value\":\"unloaded\"}", state("a"));
    EXPECT_EQ("a", asked("a"));
    EXPECT_EQ("b", asked("b"));
    EXPECT_EQ("a", asked("a"));
    EXPECT_EQ("c", asked("c"));
    EXPECT_EQ("{\"value\":\"loaded\"}", state("a"));
    EXPECT_EQ("{\"value\":\"unloaded\"}", state("b"));
    EXPECT_EQ("{\"value\":\"loaded\"}", state("c"));
    EXPECT_EQ("b", asked("b"));
    EXPECT_EQ("1", metric("unloads_total", "b"));
    EXPECT_EQ("2", metric("loads_total", "b"));
}

TEST_F(Router, AModelThatAnswersStays)
{
    add("a", mib);
    add("b", mib);
    start(mib);
    const int held = hold("a");
    const int waits = line_up("b");
    const int later = line_up("a"); /* behind it, or b would wait for ever */
    EXPECT_EQ("1", metric("requests_running", "a"));
    close(held);
    EXPECT_EQ(0u, body_of(http::read_text(waits)).find("b\n"));
    EXPECT_EQ(0u, body_of(http::read_text(later)).find("a\n"));
    EXPECT_EQ("2", metric("loads_total", "a"));
    close(waits);
    close(later);
}

/* One that waits and goes lets the others go on. */
TEST_F(Router, AClientThatGoesNoLongerWaits)
{
    add("a", mib);
    add("b", mib);
    start(mib);
    const int held = hold("a");
    const int waits = line_up("b");
    close(waits);
    wait_until("requests_waiting", "b", "0");
    EXPECT_EQ("a", asked("a"));
    EXPECT_EQ("0", metric("loads_total", "b"));
    close(held);
}

TEST_F(Router, AServerThatDiesTakesNoOtherDown)
{
    add("a", mib);
    add("b", mib);
    start(2 * mib);
    const int cut = http::post(port_, "/cut", "{}");
    std::string begun = http::read_text(cut, "\r\n\r\n");
    const int stream = http::post(port_, "/stream", "{\"model\":\"b\"}");
    (void)http::read_text(stream, "first;");
    const std::string lost = post("/die", "{}");
    EXPECT_EQ(502, status_of(lost)) << lost;
    EXPECT_NE(std::string::npos, lost.find("\"code\":\"model_failed\""));
    begun += http::read_text(cut);
    EXPECT_NE(std::string::npos, begun.find("Content-Length: 99"));
    EXPECT_GT(99u, body_of(begun).size()) << "the client sees that the answer is not whole";
    EXPECT_EQ(200, status_of(post("/go", "{\"model\":\"b\"}")));
    EXPECT_EQ("second;", http::read_text(stream));
    wait_until("failures_total", "a", "1");
    EXPECT_EQ("{\"value\":\"unloaded\",\"failed\":true,\"exit_code\":3}", state("a"));
    (void)usleep(2000); /* backoff_ms, on any machine */
    EXPECT_EQ("a", asked("a"));
    EXPECT_EQ("{\"value\":\"loaded\"}", state("a"));
    close(cut);
    close(stream);
}

TEST_F(Router, AServerThatCannotStartIsNotTriedAtOnce)
{
    add("a", mib);
    add("bad", mib, "fail");
    options_.backoff_ms = 600000;
    start(2 * mib);
    const std::string first = post("/x", "{\"model\":\"bad\"}");
    EXPECT_EQ(503, status_of(first));
    EXPECT_NE(std::string::npos, first.find("exit code 7"));
    const std::string second = post("/x", "{\"model\":\"bad\"}");
    EXPECT_EQ(503, status_of(second));
    EXPECT_NE(std::string::npos, second.find("Retry-After: "));
    EXPECT_EQ("1", metric("failures_total", "bad"));
    EXPECT_EQ("{\"value\":\"unloaded\",\"failed\":true,\"exit_code\":7}", state("bad"));
    EXPECT_EQ("a", asked("a"));
}

TEST_F(Router, WaitsAreBounded)
{
    add("a", mib, "wait");
    options_.wait_ms = 600000;
    options_.queue = 1;
    start(mib);
    const int waits = line_up("a");
    const std::string full = post("/x", "{}");
    EXPECT_EQ(503, status_of(full));
    EXPECT_NE(std::string::npos, full.find("router.queue"));
    EXPECT_NE(std::string::npos, full.find("Retry-After: "));
    for (int i = 0; i < 6000 && state("a") != "{\"value\":\"loading\"}"; i++) (void)usleep(10000);
    EXPECT_EQ("{\"value\":\"loading\"}", state("a")) << "from the end of the turn on";
    close(waits);
}

TEST_F(Router, AWaitEnds)
{
    add("a", mib, "wait");
    options_.wait_ms = 1;
    start(mib);
    const std::string late = post("/x", "{}");
    EXPECT_EQ(503, status_of(late));
    EXPECT_NE(std::string::npos, late.find("router.wait"));
    EXPECT_NE(std::string::npos, late.find("Retry-After: "));
}

TEST_F(Router, AModelThatNeverFitsIsRefused)
{
    weir_error error = {};
    add("a", mib);
    add("large", 4 * mib);
    EXPECT_EQ(WEIR_EFULL, open(2 * mib, &error));
    EXPECT_NE(std::string::npos, std::string(error.text).find("model large has memory = 4.0 MiB"));
    EXPECT_NE(std::string::npos, std::string(error.text).find("2.0 MiB are left")) << error.text;
}

TEST_F(Router, HasAtMost16Models)
{
    weir_error error = {};
    EXPECT_EQ(WEIR_ECONFIG, open(mib, &error)) << "none";
    for (int i = 0; i < 200; i++) add("m" + std::to_string(i), 1);
    EXPECT_EQ(WEIR_ECONFIG, open(mib, &error));
    EXPECT_NE(std::string::npos, std::string(error.text).find("1 to 16 models")) << error.text;
}

/* What was running ends when it was told to, and no process stays. */
TEST_F(Router, EndsWithItsServers)
{
    add("a", mib);
    start(mib);
    const int held = http::post(port_, "/cut", "{}");
    std::string text = http::read_text(held, "\r\n\r\n");
    if (body_of(text).empty()) text += http::read_text(held, "\n");
    const int pid = std::atoi(body_of(text).c_str());
    ASSERT_LT(0, pid);
    EXPECT_EQ(0, kill(pid, 0));
    stop();
    EXPECT_NE(0, kill(pid, 0));
    close(held);
}

} // namespace
