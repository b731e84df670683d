// The reader of request heads: what it takes, what it refuses, and that pieces make no difference.
#include "engine/serve/http_head.h"

#include <gtest/gtest.h>

#include <string>

namespace {

struct Result {
    weir_http_progress progress = WEIR_HTTP_MORE;
    weir_http_head head = {};
    weir_http_problem problem = {};
    std::string bytes;

    std::string at(size_t offset) const { return bytes.c_str() + offset; }
    std::string value(weir_http_field field) const
    {
        const char *const text = weir_http_value(&head, bytes.data(), field);
        return text != nullptr ? text : "(absent)";
    }
};

/* `step` bytes at a time. */
Result read(const std::string &text, size_t step = 1 << 20, size_t limit = 4096)
{
    Result r;
    r.bytes = text;
    r.head.limit = limit;
    for (size_t n = 0; n < text.size() && r.progress == WEIR_HTTP_MORE;) {
        n = n + step < text.size() ? n + step : text.size();
        r.progress = weir_http_head_read(&r.head, r.bytes.data(), n, &r.problem);
    }
    return r;
}

TEST(HttpHead, TakesARequestInAnyPieces)
{
    const std::string text =
        "POST /v1/x?a=b HTTP/1.1\r\nHost: localhost:80\r\ncontent-TYPE:application/json \t\r\n"
        "Content-Length: 17\r\nX-Other: \xc3\xa4\r\nConnection: foo, Close\r\n\r\nbody";
    for (const size_t step : { size_t{ 1 }, size_t{ 2 }, size_t{ 3 }, size_t{ 7 }, text.size() }) {
        const Result r = read(text, step);
        ASSERT_EQ(WEIR_HTTP_DONE, r.progress) << step << r.problem.text;
        EXPECT_EQ(text.size() - 4, r.head.scanned);
        EXPECT_EQ("POST", r.at(r.head.method));
        EXPECT_EQ("/v1/x?a=b", r.at(r.head.target));
        EXPECT_EQ("localhost:80", r.value(WEIR_HTTP_HOST));
        EXPECT_EQ("application/json", r.value(WEIR_HTTP_CONTENT_TYPE));
        EXPECT_EQ("(absent)", r.value(WEIR_HTTP_ORIGIN));
        EXPECT_EQ(17, r.head.length);
        EXPECT_FALSE(r.head.keep_alive);
        EXPECT_FALSE(r.head.chunked);
        EXPECT_EQ("body", r.bytes.substr(r.head.scanned));
    }
}

TEST(HttpHead, KnowsVersionsAndLengths)
{
    EXPECT_TRUE(read("GET / HTTP/1.1\r\nHost: a\r\n\r\n").head.keep_alive);
    const Result old = read("GET / HTTP/1.0\r\n\r\n");
    EXPECT_EQ(WEIR_HTTP_DONE, old.progress) << "no Host is needed";
    EXPECT_FALSE(old.head.keep_alive);
    EXPECT_EQ(-1, old.head.length);
    EXPECT_TRUE(
        read("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n").head.chunked
    );
    EXPECT_EQ(WEIR_HTTP_DONE, read("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").progress)
        << "one empty line before it";
    EXPECT_EQ(
        999999999999999999,
        read("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999999999\r\n\r\n").head.length
    );
}

TEST(HttpHead, RefusesWhatIsNoRequest)
{
    const std::string host = "GET / HTTP/1.1\r\nHost: a\r\n";
    const struct {
        std::string text;
        int status;
    } cases[] = {
        { "hello\r\n", 400 },
        { "\r\n\r\nGET / HTTP/1.1\r\n", 400 },
        { "GET /\r\n", 400 },
        { "GET  / HTTP/1.1\r\n", 400 },
        { "GET / HTTP/1.1 \r\n", 400 },
        { "GET\t/ HTTP/1.1\r\n", 400 },
        { " GET / HTTP/1.1\r\n", 400 },
        { "G(T / HTTP/1.1\r\n", 400 },
        { "GET health HTTP/1.1\r\n", 400 },
        { "GET http://a/ HTTP/1.1\r\n", 400 },
        { "OPTIONS * HTTP/1.1\r\n", 400 },
        { "CONNECT a:80 HTTP/1.1\r\n", 400 },
        { "GET /\xc3\xa4 HTTP/1.1\r\n", 400 },
        { "GET / HTTP/1.2\r\n", 505 },
        { "PRI * HTTP/2.0\r\n", 505 },
        { "GET / HTTP/1.10\r\n", 400 },
        { "GET / http/1.1\r\n", 400 },
        { std::string("\x16\x03\x01", 3), 400 },
        { std::string("GET /\0x HTTP/1.1\r\n", 18), 400 },
        { "GET / HTTP/1.1\n", 400 },
        { "GET / HTTP/1.1\rHost: a\r\n", 400 },
        { host + "X: a\n\r\n", 400 },
        { host + " folded\r\n", 400 },
        { host + "X: a\r\n\tfolded\r\n", 400 },
        { host + ": value\r\n", 400 },
        { host + "X : value\r\n", 400 },
        { host + "JustText\r\n", 400 },
        { host + "X\xc3\xa4: a\r\n", 400 },
        { host + std::string("X: a\0b\r\n", 8), 400 },
        { host + "X: a\x01\r\n", 400 },
        { host + "Host: b\r\n", 400 },
        { host + "Origin: a\r\nOrigin: a\r\n", 400 },
        { host + "Content-Length: 4\r\nContent-Length: 4\r\n", 400 },
        { host + "Content-Length: 4, 4\r\n", 400 },
        { host + "Content-Length: +4\r\n", 400 },
        { host + "Content-Length: -0\r\n", 400 },
        { host + "Content-Length: \r\n", 400 },
        { host + "Content-Length: 1 2\r\n", 400 },
        { host + "Content-Length: 9999999999999999999\r\n", 413 },
        { host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
        { host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400 },
        { host + "Transfer-Encoding: gzip, chunked\r\n\r\n", 400 },
        { host + "Transfer-Encoding: identity\r\n\r\n", 400 },
        { "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
        { "GET / HTTP/1.1\r\n\r\n", 400 },
        { "GET / HTTP/1.1\r\nHost: \r\n\r\n", 400 },
    };
    for (const auto &c : cases) {
        for (const size_t step : { size_t{ 1 }, c.text.size() }) {
            const Result r = read(c.text, step);
            EXPECT_EQ(WEIR_HTTP_BAD, r.progress) << c.text;
            EXPECT_EQ(c.status, r.problem.status) << c.text;
        }
    }
}

TEST(HttpHead, HasLimitsAndKeepsThemBeforeALineEnds)
{
    EXPECT_EQ(414, read("GET /" + std::string(9000, 'a')).problem.status);
    EXPECT_EQ(414, read("GET /" + std::string(8192, 'a') + " HTTP/1.1\r\n").problem.status);
    EXPECT_EQ(WEIR_HTTP_MORE, read("GET /" + std::string(8191, 'a') + " HTTP/1.1\r\n").progress);
    EXPECT_EQ(431, read("GET / HTTP/1.1\r\nX: " + std::string(4100, 'a')).problem.status);
    EXPECT_EQ(WEIR_HTTP_MORE, read("GET / HTTP/1.1\r\nX: " + std::string(4000, 'a')).progress);
    std::string many = "GET / HTTP/1.1\r\n";
    for (int i = 0; i < 100; i++) many += "X: a\r\n";
    EXPECT_EQ(WEIR_HTTP_MORE, read(many).progress);
    EXPECT_EQ(431, read(many + "X: a\r\n").problem.status);
}

} // namespace
