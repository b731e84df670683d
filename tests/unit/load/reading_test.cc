// Replies are read in any pieces, and whatever is in them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/load/reply.h"
#include "tools/load/event.h"
#include "tools/load/http_reply.h"
#include "tools/load/sse.h"

namespace {

using reply::chunk;
using reply::head;
using reply::sized;

/* ---- HTTP ------------------------------------------------------------------------------------ */

struct Read {
    weir_http_progress progress = WEIR_HTTP_MORE;
    weir_http_reply reply = {};
    std::string body, rest, why;
};

/* `step` bytes at a time; the connection is closed after them if `closes`. */
Read read(const std::string &text, size_t step = 1 << 20, bool closes = false)
{
    Read r;
    size_t at = 0;
    for (size_t end = 0; end < text.size() && r.progress == WEIR_HTTP_MORE;) {
        end = std::min(end + step, text.size());
        while (at < end && r.progress == WEIR_HTTP_MORE) {
            size_t used = 0, n_data = 0;
            const char *why = "";
            r.progress =
                weir_http_reply_read(&r.reply, text.data() + at, end - at, &used, &n_data, &why);
            r.why = why;
            if (r.progress == WEIR_HTTP_BAD) return r;
            r.body += text.substr(at + used - n_data, n_data);
            at += used;
        }
    }
    if (closes && r.progress == WEIR_HTTP_MORE && weir_http_reply_end(&r.reply))
        r.progress = WEIR_HTTP_DONE;
    r.rest = text.substr(at);
    return r;
}

TEST(HttpReply, BodiesOfAllKindsInAnyPieces)
{
    const std::string chunked = head + chunk("hello ") + chunk("world") + "0\r\nX: y\r\n\r\nrest",
                      counted = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 404 Not Found\r\n"
                                "content-length:5 \r\n\r\nhellorest",
                      closed = "HTTP/1.1 200\r\nConnection: close\r\n\r\nhello";
    for (size_t step = 1; step <= chunked.size(); step++) {
        const Read a = read(chunked, step), b = read(counted, step), c = read(closed, step, true);
        ASSERT_EQ(a.progress, WEIR_HTTP_DONE) << step << a.why;
        EXPECT_EQ(a.body, "hello world");
        EXPECT_EQ(a.rest, "rest");
        EXPECT_EQ(a.reply.status, 200);
        EXPECT_TRUE(a.reply.is_event_stream);
        EXPECT_TRUE(a.reply.keep_alive);
        ASSERT_EQ(b.progress, WEIR_HTTP_DONE) << step << b.why;
        EXPECT_EQ(b.body, "hello");
        EXPECT_EQ(b.rest, "rest");
        EXPECT_EQ(b.reply.status, 404);
        EXPECT_FALSE(b.reply.is_event_stream);
        EXPECT_FALSE(b.reply.keep_alive) << "HTTP/1.0";
        ASSERT_EQ(c.progress, WEIR_HTTP_DONE) << step << c.why;
        EXPECT_EQ(c.body, "hello");
        EXPECT_FALSE(c.reply.keep_alive);
    }
    EXPECT_EQ(read(closed, 7).progress, WEIR_HTTP_MORE) << "it ends with the connection";
    EXPECT_EQ(read(sized(200, "")).progress, WEIR_HTTP_DONE);
    EXPECT_EQ(read("HTTP/1.1 204 No Content\r\n\r\n").progress, WEIR_HTTP_DONE);
}

TEST(HttpReply, AnIncompleteBodyIsNotCompleteAtTheEnd)
{
    EXPECT_EQ(read(head + chunk("hello"), 1, true).progress, WEIR_HTTP_MORE);
    EXPECT_EQ(
        read("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", 1, true).progress, WEIR_HTTP_MORE
    );
    EXPECT_EQ(read("HTTP/1.1 200 OK\r\n", 1, true).progress, WEIR_HTTP_MORE);
}

TEST(HttpReply, WhatIsNoReplyIsRefused)
{
    const std::string ok = "HTTP/1.1 200 OK\r\n";
    for (const std::string &text :
         { std::string("\r\n"), std::string("hello\r\n"), std::string("HTTP/2 200 OK\r\n"),
           std::string("HTTP/1.1 2x0 OK\r\n"), std::string("HTTP/1.1 20\r\n"),
           std::string("HTTP/1.1 099 X\r\n"), std::string("HTTP/1.1 2000 X\r\n"),
           ok + "no colon\r\n", ok + ": x\r\n", ok + std::string("a: \0b\r\n", 7),
           ok + "Content-Length: -1\r\n", ok + "Content-Length: 1e9\r\n",
           ok + "Content-Length: 9999999999999999999\r\n",
           ok + "Content-Length: 1\r\nContent-Length: 2\r\n", ok + "Transfer-Encoding: gzip\r\n",
           ok + "Content-Encoding: gzip\r\n", ok + "X: " + std::string(9000, 'x'),
           ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
           ok + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" }) {
        for (const size_t step : { size_t(1), size_t(1 << 20) }) {
            const Read r = read(text, step);
            EXPECT_EQ(r.progress, WEIR_HTTP_BAD) << text.substr(0, 60);
            EXPECT_NE(r.why, "") << text.substr(0, 60);
        }
    }
    std::string many = ok;
    while (many.size() < WEIR_REPLY_HEAD_BYTES) many += "X: " + std::string(1000, 'x') + "\r\n";
    EXPECT_EQ(read(many + "\r\n").progress, WEIR_HTTP_BAD);
}

/* ---- server-sent events ---------------------------------------------------------------------- */

weir_status keep(void *user, const char *data, size_t n)
{
    static_cast<std::vector<std::string> *>(user)->push_back(std::string(data, n));
    return WEIR_OK;
}

std::vector<std::string> events_of(const std::string &text, size_t step, weir_status *status)
{
    std::vector<std::string> events;
    weir_sse_reader reader = {};
    *status = WEIR_OK;
    for (size_t at = 0; at < text.size() && *status == WEIR_OK; at += step)
        *status = weir_sse_read(
            &reader, text.data() + at, std::min(step, text.size() - at), keep, &events
        );
    weir_sse_reader_free(&reader);
    return events;
}

TEST(Events, AreCutAtEmptyLinesInAnyPieces)
{
    const std::string text = ": ping\n\ndata: one\n\nevent: x\r\ndata:two\r\ndata:  three\r\n\r\n"
                             "id: 7\n\ndata\n\ndatum: no\n\rdata: \xc3\xa9\r\rdata: unfinished\n";
    const std::vector<std::string> expected = { "one", "two\n three", "", "\xc3\xa9" };
    for (size_t step = 1; step <= text.size(); step++) {
        weir_status status;
        EXPECT_EQ(events_of(text, step, &status), expected) << step;
        EXPECT_EQ(status, WEIR_OK);
    }
}

TEST(Events, AreBounded)
{
    weir_status status;
    EXPECT_TRUE(events_of("data: " + std::string(5 << 20, 'x'), 1 << 16, &status).empty());
    EXPECT_EQ(status, WEIR_EFORMAT);
    std::string lines;
    for (int i = 0; i < 5000; i++) lines += "data: " + std::string(1000, 'x') + "\n";
    EXPECT_TRUE(events_of(lines, 1 << 16, &status).empty());
    EXPECT_EQ(status, WEIR_EFORMAT);
}

/* ---- what events say ------------------------------------------------------------------------- */

struct Event {
    weir_load_event event = {};
    weir_buffer answer = {}, problem = {};
    weir_status status; /* after what it fills */
    explicit Event(const std::string &text)
        : status(weir_load_event_read(&event, text.data(), text.size(), &answer, &problem))
    {
    }
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
    ~Event()
    {
        weir_buffer_free(&answer);
        weir_buffer_free(&problem);
    }
    std::string said() const { return answer.size > 0 ? answer.data : ""; }
    std::string message() const { return problem.size > 0 ? problem.data : ""; }
};

TEST(Event, TextOfEveryKind)
{
    const struct {
        const char *json, *text;
    } rows[] = {
        { R"({"choices":[{"delta":{"content":"a"}}]})", "a" },
        { R"({"choices":[{"text":"b"}]})", "b" },
        { R"({"choices":[{"delta":{"reasoning_content":"c"}}]})", "" },
        { R"({"choices":[{"delta":{"reasoning":"c","content":null}}]})", "" },
        { R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})", "" },
    };
    for (const auto &row : rows) {
        const Event e(row.json);
        ASSERT_EQ(e.status, WEIR_OK) << row.json;
        EXPECT_TRUE(e.event.has_text) << row.json;
        EXPECT_EQ(e.said(), row.text) << row.json;
        EXPECT_EQ(e.event.prompt_tokens, -1);
    }
    for (const char *const json :
         { R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", R"({"choices":[]})",
           R"({"choices":[{"delta":{},"finish_reason":"stop"}]})", R"({"choices":3})",
           R"({"choices":[7,{"delta":[]},{"text":5}]})", "{}" }) {
        const Event e(json);
        ASSERT_EQ(e.status, WEIR_OK) << json;
        EXPECT_FALSE(e.event.has_text) << json;
    }
    EXPECT_TRUE(Event(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})").event.has_finish);
    EXPECT_FALSE(Event(R"({"choices":[{"text":"a","finish_reason":null}]})").event.has_finish);
}

TEST(Event, UsageErrorsAndTheEnd)
{
    const Event usage(R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,)"
                      R"("prompt_tokens_details":{"cached_tokens":8}}})");
    EXPECT_EQ(usage.event.prompt_tokens, 9);
    EXPECT_EQ(usage.event.answer_tokens, 4);
    EXPECT_EQ(usage.event.cached_tokens, 8);
    const Event wild(R"({"usage":{"prompt_tokens":-5,"completion_tokens":9e9,)"
                     R"("prompt_tokens_details":7}})");
    EXPECT_EQ(wild.event.prompt_tokens, -1);
    EXPECT_EQ(wild.event.answer_tokens, -1);
    EXPECT_EQ(wild.event.cached_tokens, -1);
    EXPECT_TRUE(Event("[DONE]").event.is_done);
    const Event error(R"({"error":{"message":"no room"}})"), text(R"({"error":"no"})");
    EXPECT_TRUE(error.event.is_error);
    EXPECT_EQ(error.message(), "no room");
    EXPECT_EQ(text.message(), "no");
    EXPECT_FALSE(Event(R"({"error":null,"choices":[]})").event.is_error);
    for (const char *const bad : { "", "[DONE", "{", "[]", "7", "{\"a\":1}x" })
        EXPECT_EQ(Event(bad).status, WEIR_EFORMAT) << bad;
    EXPECT_EQ(Event(std::string(200000, '[')).status, WEIR_EFORMAT);
}

} // namespace
