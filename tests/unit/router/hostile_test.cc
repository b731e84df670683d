// What clients may do to a router: keys, origins, broken and large requests.
#include "tests/unit/router/router_fixture.h"

namespace {

std::string raw(int port, const std::string &text)
{
    const int fd = http::connect_to(port);
    EXPECT_EQ((ssize_t)text.size(), send(fd, text.data(), text.size(), MSG_NOSIGNAL));
    const std::string reply = http::read_text(fd);
    close(fd);
    return reply;
}

TEST_F(Router, RefusesWhatIsNoRequest)
{
    add("a", mib);
    start(mib);
    const std::string host = "Host: localhost\r\n";
    const struct {
        std::string text;
        int status;
    } cases[] = {
        { "nonsense\r\n\r\n", 400 },
        { "GET http://other/ HTTP/1.1\r\n" + host + "\r\n", 400 },
        { "GET / HTTP/1.1\r\n\r\n", 400 },
        { "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403 },
        { "GET / HTTP/1.1\r\n" + host + "X: " + std::string(9000, 'x') + "\r\n\r\n", 431 },
        { "POST /x HTTP/1.1\r\n" + host + "\r\n", 411 },
        { "POST /x HTTP/1.1\r\n" + host + "Content-Length: 65537\r\n\r\n", 413 },
        { "POST /x HTTP/1.1\r\n" + host +
              "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
          400 },
        { "POST /x HTTP/1.1\r\n" + host + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400 },
        { "POST /x HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400 },
        { "POST /x HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nfffff\r\n{", 413 },
        { "GET / HTTP/1.1\r\n" + host + "Origin: http://evil.example\r\n\r\n", 403 },
    };
    for (const auto &one : cases) {
        const std::string reply = raw(port_, one.text);
        EXPECT_EQ(one.status, status_of(reply)) << one.text.substr(0, 80);
        EXPECT_EQ(std::string::npos, reply.find(" Unknown\r\n")) << reply;
    }
    /* Ends inside: nothing was started for them. */
    for (const std::string part : { "POST /x HT", "POST /x HTTP/1.1\r\nHost: localhost\r\n",
                                    "POST /x HTTP/1.1\r\nHost: localhost\r\n"
                                    "Content-Length: 40\r\n\r\n{\"model\":" }) {
        const int fd = http::connect_to(port_);
        EXPECT_EQ((ssize_t)part.size(), send(fd, part.data(), part.size(), MSG_NOSIGNAL));
        (void)shutdown(fd, SHUT_WR);
        EXPECT_EQ(400, status_of(http::read_text(fd))) << part;
        close(fd);
    }
    EXPECT_EQ("{\"value\":\"unloaded\"}", state("a"));
    EXPECT_EQ("a", asked("a"));
}

/* A body whose model comes last is kept up to the limit, one whose model comes first passes. */
TEST_F(Router, LargeBodiesArePassedOn)
{
    add("a", mib);
    add("b", mib);
    start(2 * mib);
    const std::string text(60000, 'x');
    const std::string last = "{\"prompt\":\"" + text + "\",\"model\":\"b\"}",
                      first = "{\"model\":\"b\",\"prompt\":\"" + text + "\"}";
    for (const std::string &body : { last, first }) {
        const std::string reply = body_of(post("/x", body));
        EXPECT_EQ(0u, reply.find("b\n"));
        EXPECT_NE(std::string::npos, reply.find(body));
    }
    EXPECT_EQ(413, status_of(post("/x", "{\"prompt\":\"" + text + text + "\",\"model\":\"b\"}")));
}

/* Bodies whose model is not known yet are kept: each as it is, all within a budget, and while they
 * have all of it the router's own answers need none. */
TEST_F(Router, BodiesThatAreKept)
{
    options_.body_limit = mib;
    add("a", mib);
    start(mib);
    const int64_t budget = 4 * mib + 24 * (64 << 10); /* engine/router/router.c */
    const auto kept = [this] {
        const std::string text = body_of(get("/metrics")), line = "\nweir:router_body_bytes ";
        return std::atoll(text.c_str() + text.find(line) + line.size());
    };
    const std::string head = "POST /x HTTP/1.1\r\nHost: localhost\r\n";
    std::vector<int> held;
    const auto hold = [&](int64_t n) {
        const int64_t before = kept();
        const std::string begin = head + "Content-Length: 1048576\r\n\r\n{\"",
                          text = begin + std::string(size_t(n) - begin.size(), 'x');
        /* First a piece from which doubling leads far beyond the body. */
        const size_t first = 9000, rest = text.size() - first;
        held.push_back(http::connect_to(port_));
        EXPECT_EQ((ssize_t)first, send(held.back(), text.data(), first, MSG_NOSIGNAL));
        for (int i = 0; i < 6000 && kept() < before + (int64_t)first; i++) (void)usleep(10000);
        EXPECT_EQ((ssize_t)rest, send(held.back(), text.data() + first, rest, MSG_NOSIGNAL));
        /* The router's head has "Connection: close", too. */
        for (int i = 0; i < 6000 && kept() < before + n + 19; i++) (void)usleep(10000);
        return kept() - before;
    };
    for (int i = 0; i < 5; i++) EXPECT_LE(hold(mib), mib + (17 << 10)) << "a body and a head";
    hold(budget - kept() - 100);
    EXPECT_EQ(503, status_of(post("/x", "{}"))) << "all is taken";
    EXPECT_EQ(200, status_of(get("/health")));
    EXPECT_EQ(200, status_of(get("/v1/models")));
    for (const int fd : held) close(fd);
    for (int i = 0; i < 6000 && kept() > 0; i++) (void)usleep(10000);
    EXPECT_EQ(0, kept());
    std::string chunks = head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{\"";
    for (int i = 0; i < 200000; i++) chunks += "\r\n1\r\nx";
    EXPECT_EQ(413, status_of(raw(port_, chunks))) << "200,000 bytes in 1,200,000";
}

TEST_F(Router, AModelMayHaveItsOwnKeys)
{
    const char *const all = "all";
    options_.keys = &all;
    options_.n_keys = 1;
    add("a", mib);
    add("b", mib, "serve", { "team", "second" });
    start(2 * mib);
    const auto status = [&](const std::string &path, const std::string &key) {
        return status_of(get(path, key.empty() ? "" : "Authorization: Bearer " + key + "\r\n"));
    };
    EXPECT_EQ(401, status("/x", ""));
    EXPECT_EQ(401, status("/x", "wrong"));
    EXPECT_EQ(401, status("/v1/models", ""));
    EXPECT_EQ(401, status("/", "")) << "a page is shown by a model that is loaded";
    EXPECT_EQ(200, status("/health", ""));
    for (const std::string more : { "Content-Length: 2\r\n", "Transfer-Encoding: chunked\r\n" })
        EXPECT_EQ(401, status_of(get("/", more))) << "a body takes memory of others";
    EXPECT_EQ(200, status("/x?model=a", "all"));
    EXPECT_EQ(404, status("/x?model=b", "all"));
    EXPECT_EQ(404, status("/x?model=a", "team"));
    EXPECT_EQ(200, status("/x?model=b", "second"));
    EXPECT_EQ(200, status("/x", "team")) << "without a model: the first that it may use";
    EXPECT_EQ(200, status("/", ""));
    const std::string list = get("/v1/models", "x-api-key: team\r\n");
    EXPECT_EQ(std::string::npos, list.find("\"id\":\"a\""));
    EXPECT_NE(std::string::npos, list.find("\"id\":\"b\""));
    EXPECT_EQ(404, status("/v1/models/a", "team"));
    const auto watches = [&](const std::string &key, const std::string &model) {
        const std::string text = body_of(get("/metrics", "x-api-key: " + key + "\r\n"));
        const bool is_loaded = text.find("loaded{model=\"" + model) != std::string::npos;
        EXPECT_EQ(is_loaded, text.find("requests_total{model=\"" + model) != std::string::npos);
        return is_loaded;
    };
    EXPECT_TRUE(watches("team", "b"));
    EXPECT_FALSE(watches("team", "a"));
    EXPECT_TRUE(watches("all", "a") && watches("all", "b")) << "a key of the server watches all";
}

TEST_F(Router, WhereAllModelsHaveKeysNoBodyIsTakenWithoutOne)
{
    add("a", mib, "serve", { "team" });
    start(mib);
    EXPECT_EQ(401, status_of(post("/x", "{}")));
    EXPECT_EQ(200, status_of(get("/health")));
    EXPECT_EQ(404, status_of(get("/x?model=a")));
}

/* Without keys of the server none shows the metrics of all. */
TEST_F(Router, AModelWithItsOwnKeysIsHidden)
{
    add("a", mib);
    add("b", mib, "serve", { "team" });
    start(2 * mib);
    EXPECT_EQ("0", metric("loaded", "a"));
    EXPECT_EQ("none", metric("loaded", "b"));
    EXPECT_EQ("none", metric("requests_total", "b"));
}

/* Pages are shown without a key, which loads no model and keeps none in memory. */
TEST_F(Router, WithoutAKeyNoModelIsUsed)
{
    const char *const all = "all";
    options_.keys = &all;
    options_.n_keys = 1;
    key_ = "x-api-key: all\r\n";
    for (const char *const name : { "a", "b", "c" }) add(name, mib);
    start(2 * mib);
    EXPECT_EQ(200, status_of(get("/x?model=a", key_)));
    EXPECT_EQ(200, status_of(get("/x?model=b", key_)));
    EXPECT_EQ(0u, body_of(get("/")).find("a\n"));
    EXPECT_EQ(200, status_of(get("/x?model=c", key_)));
    EXPECT_EQ("{\"value\":\"unloaded\"}", state("a"));
    EXPECT_EQ("{\"value\":\"loaded\"}", state("b"));
    /* b is to make room, and the page does not wait for it. */
    const int held[] = { hold("b"), hold("c"), line_up("a") };
    EXPECT_EQ(0u, body_of(get("/")).find("c\n"));
    for (const int fd : held) close(fd);
}

/* Nor does one that is read slowly keep a model in memory. */
TEST_F(Router, APageWithoutAKeyHoldsNoModel)
{
    const char *const all = "all";
    options_.keys = &all;
    options_.n_keys = 1;
    key_ = "x-api-key: all\r\n";
    for (const char *const name : { "a", "b" }) add(name, mib);
    start(mib);
    EXPECT_EQ(200, status_of(get("/x?model=a", key_)));
    const std::string page = "GET /page/hold HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const int held = http::connect_to(port_);
    EXPECT_EQ((ssize_t)page.size(), send(held, page.data(), page.size(), MSG_NOSIGNAL));
    EXPECT_EQ(200, status_of(get("/x?model=b", key_)));
    EXPECT_EQ("{\"value\":\"unloaded\"}", state("a"));
    close(held);
}

TEST_F(Router, ListedPagesMayReadAnswers)
{
    options_.allowed_origins = "http://page.example";
    add("a", mib);
    start(mib);
    const std::string origin = "Origin: http://page.example\r\n";
    const std::string allows = "Access-Control-Allow-Origin: http://page.example\r\n";
    const std::string preflight = http::request(port_, "OPTIONS", "/x", origin, "");
    EXPECT_EQ(204, status_of(preflight));
    EXPECT_NE(std::string::npos, preflight.find(allows));
    EXPECT_EQ(0u, get("/x", origin).find("HTTP/1.1 200 OK\r\n" + allows));
    EXPECT_NE(std::string::npos, get("/v1/models", origin).find(allows));
    EXPECT_EQ(std::string::npos, get("/x").find("Access-Control"));
    EXPECT_EQ(403, status_of(get("/x", "Sec-Fetch-Site: cross-site\r\n")));
}

/* All places are taken by requests that run: /health is still answered, others are told. */
TEST_F(Router, MoreConnectionsThanItMayHave)
{
    add("a", mib);
    options_.max_connections = 2;
    start(mib);
    const int one = http::post(port_, "/hold", "{}"), two = http::post(port_, "/hold", "{}");
    std::string other;
    for (int i = 0; i < 6000 && status_of(other) != 503; i++) {
        other = get("/v1/models/a");
        if (status_of(other) != 503) (void)usleep(10000);
    }
    EXPECT_EQ(503, status_of(other));
    EXPECT_NE(std::string::npos, other.find("server.max_connections"));
    EXPECT_EQ(200, status_of(get("/health")));
    close(one);
    close(two);
    wait_until("requests_running", "a", "0");
}

} // namespace
