// The reader of chunked bodies.
#include "engine/serve/http_chunks.h"

#include <gtest/gtest.h>

#include <string>

namespace {

struct Result {
    weir_http_progress progress = WEIR_HTTP_MORE;
    weir_http_problem problem = {};
    std::string data, rest;
};

/* `step` bytes are there at a time. */
Result read(const std::string &text, size_t step = 1 << 20)
{
    Result r;
    weir_http_chunks chunks = {};
    size_t at = 0;
    for (size_t end = 0; end < text.size() && r.progress == WEIR_HTTP_MORE;) {
        end = end + step < text.size() ? end + step : text.size();
        while (at < end && r.progress == WEIR_HTTP_MORE) {
            size_t used = 0, n_data = 0;
            r.progress = weir_http_chunks_read(
                &chunks, text.data() + at, end - at, &used, &n_data, &r.problem
            );
            if (r.progress == WEIR_HTTP_BAD) return r;
            r.data += text.substr(at + used - n_data, n_data);
            at += used;
        }
    }
    r.rest = text.substr(at);
    return r;
}

TEST(HttpChunks, GivesTheDataInAnyPieces)
{
    const std::string text = "5\r\nhello\r\n1;a=b;c=\"d\"\r\n \r\n005 "
                             "\r\nworld\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\nY: z\r\n\r\nGET /";
    for (size_t step = 1; step <= text.size(); step++) {
        const Result r = read(text, step);
        ASSERT_EQ(WEIR_HTTP_DONE, r.progress) << step;
        EXPECT_EQ("hello world0123456789", r.data);
        EXPECT_EQ("GET /", r.rest);
    }
    EXPECT_EQ(WEIR_HTTP_DONE, read("0\r\n\r\n").progress);
    EXPECT_EQ(WEIR_HTTP_MORE, read("5\r\nhello\r\n").progress) << "the last chunk is missing";
}

TEST(HttpChunks, RefusesWhatIsNoChunk)
{
    for (const std::string &text :
         { std::string("zz\r\n"), std::string("\r\n"), std::string("-1\r\n"),
           std::string(" 5\r\nhello\r\n"), std::string("0x5\r\n"),
           std::string("ffffffffffffffff\r\n"), std::string("5\nhello\r\n"),
           std::string("5\rhello"), std::string("2\r\nabcd\r\n"), std::string("2\r\nab\nX"),
           std::string("2\r\nab\r\r"), std::string("5;\x01\r\n"), std::string("5;a\0b\r\n", 7),
           "5;" + std::string(300, 'a'), std::string("0\r\nX: \x01\r\n"),
           std::string("0\r\nX: a\n\r\n"), "0\r\nX: " + std::string(5000, 'a') }) {
        for (const size_t step : { size_t{ 1 }, text.size() }) {
            const Result r = read(text, step);
            EXPECT_EQ(WEIR_HTTP_BAD, r.progress) << text.substr(0, 40);
            EXPECT_EQ(400, r.problem.status) << text.substr(0, 40);
        }
    }
}

TEST(HttpChunks, ASizeMayBeAnyNumberButIsNoMemory)
{
    weir_http_chunks chunks = {};
    weir_http_problem problem = {};
    size_t used = 0, n_data = 0;
    EXPECT_EQ(
        WEIR_HTTP_MORE,
        weir_http_chunks_read(&chunks, "fffffffffffffff\r\nab", 19, &used, &n_data, &problem)
    );
    EXPECT_EQ(19u, used);
    EXPECT_EQ(2u, n_data);
    EXPECT_EQ(0xfffffffffffffffull - 2, chunks.left);
}

} // namespace
