// One request with a clock that the test sets: every time in the record is exact.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/load/reply.h"
#include "tools/load/exchange.h"

namespace {

using reply::chunk;

const int64_t ms = 1000000;

class Exchange : public testing::Test {
  protected:
    void SetUp() override { begin(); }
    void TearDown() override
    {
        weir_load_exchange_free(&x_);
        weir_samples_free(&gaps_);
    }
    void begin(int asked = 8)
    {
        record_ = {};
        record_.asked = asked;
        record_.due_ns = 1000 * ms;
        record_.sent_ns = 1003 * ms;
        gaps_.n = 0;
        weir_load_exchange_begin(&x_, &record_, &gaps_, true);
    }
    /* At this many ms. */
    void read(const std::string &bytes, int64_t at)
    {
        ASSERT_EQ(weir_load_exchange_read(&x_, bytes.data(), bytes.size(), at * ms), WEIR_OK);
    }
    void all(const std::string &bytes)
    {
        begin();
        read(bytes, 1010);
    }
    std::string answer() const { return x_.answer.size > 0 ? x_.answer.data : ""; }
    weir_load_record record_ = {};
    weir_samples gaps_ = {};
    weir_load_exchange x_ = {};
};

TEST_F(Exchange, TimesAreThoseOfEventsWithText)
{
    read(reply::head + chunk(reply::role), 1040);
    EXPECT_EQ(record_.first_ns, 0) << "a role is no text";
    read(chunk(reply::text_event("a")), 1050);
    read(chunk(": ping\n\n"), 1055);
    read(chunk(reply::text_event("b")), 1057);
    const std::string two = chunk(reply::text_event("c") + reply::text_event("d"));
    read(two.substr(0, two.size() - 4), 1060); /* d is not complete */
    read(two.substr(two.size() - 4), 1070);
    read(chunk(reply::finish + reply::usage(30, 5, 16) + reply::done), 1080);
    EXPECT_FALSE(x_.is_over);
    read(reply::last, 1081);
    ASSERT_TRUE(x_.is_over);
    EXPECT_EQ(record_.outcome, WEIR_LOAD_OK);
    EXPECT_EQ(record_.status, 200);
    EXPECT_EQ(record_.first_ns, 1050 * ms);
    EXPECT_EQ(record_.last_ns, 1070 * ms);
    EXPECT_EQ(record_.end_ns, 1081 * ms);
    EXPECT_EQ(record_.n_events, 4);
    EXPECT_EQ(record_.prompt_tokens, 30);
    EXPECT_EQ(record_.answer_tokens, 5);
    EXPECT_EQ(record_.cached_tokens, 16);
    EXPECT_EQ(answer(), "abcd");
    EXPECT_EQ(
        std::vector<double>(gaps_.values, gaps_.values + gaps_.n), (std::vector<double>{ 7, 3, 10 })
    );
    EXPECT_TRUE(x_.reply.keep_alive);
}

TEST_F(Exchange, AnAnswerWithoutTextHasTheTimeOfItsEnd)
{
    read(reply::head + chunk(reply::role), 1010);
    read(chunk(reply::finish), 1020);
    read(chunk(reply::done) + reply::last, 1030);
    EXPECT_EQ(record_.outcome, WEIR_LOAD_OK);
    EXPECT_EQ(record_.first_ns, 1020 * ms);
    EXPECT_EQ(record_.n_events, 1);
    EXPECT_EQ(gaps_.n, 0u);
}

TEST_F(Exchange, FailuresHaveTheirNames)
{
    const std::string begun = reply::head + chunk(reply::role) + chunk(reply::text_event("a"));
    all(reply::sized(429, R"({"error":{"message":"the queue is full"}})"));
    EXPECT_EQ(record_.outcome, WEIR_LOAD_STATUS);
    EXPECT_EQ(record_.status, 429);
    EXPECT_NE(std::string(weir_load_exchange_problem(&x_)).find("queue"), std::string::npos);
    all(reply::sized(200, R"({"choices":[{"text":"a"}]})"));
    EXPECT_EQ(record_.outcome, WEIR_LOAD_NO_STREAM);
    all(begun + chunk(reply::event(R"({"error":{"message":"device failed"}})")));
    EXPECT_EQ(record_.outcome, WEIR_LOAD_ERROR);
    EXPECT_STREQ(weir_load_exchange_problem(&x_), "device failed");
    all(begun + chunk(reply::event("{\"choices\":[")));
    EXPECT_EQ(record_.outcome, WEIR_LOAD_MALFORMED);
    all(begun + "zz\r\n");
    EXPECT_EQ(record_.outcome, WEIR_LOAD_MALFORMED);
    EXPECT_STRNE(weir_load_exchange_problem(&x_), "");
    all("hello\r\n");
    EXPECT_EQ(record_.outcome, WEIR_LOAD_MALFORMED);
    all(reply::head + chunk(reply::usage(1, 0, 0)) + reply::last);
    EXPECT_EQ(record_.outcome, WEIR_LOAD_EMPTY);
    all(begun + reply::last);
    EXPECT_EQ(record_.outcome, WEIR_LOAD_CLOSED) << "neither a finish_reason nor [DONE]";
    for (const auto outcome : { WEIR_LOAD_STATUS, WEIR_LOAD_TIMEOUT })
        EXPECT_STRNE(weir_load_outcome_text(outcome), "unknown");
}

TEST_F(Exchange, AConnectionThatClosesEarlyIsAFailure)
{
    const std::string begun = reply::head + chunk(reply::text_event("a"));
    for (const std::string &text : { std::string(), std::string("HTTP/1.1 200 OK\r\nCont"), begun,
                                     begun + "20\r\ndata: {\"choi" }) {
        all(text);
        weir_load_exchange_closed(&x_, 1020 * ms);
        EXPECT_TRUE(x_.is_over);
        EXPECT_EQ(record_.outcome, WEIR_LOAD_CLOSED) << text;
        EXPECT_EQ(record_.end_ns, 1020 * ms);
    }
    all(begun + chunk(reply::finish + reply::done));
    weir_load_exchange_closed(&x_, 1020 * ms);
    EXPECT_EQ(record_.outcome, WEIR_LOAD_OK) << "all of the answer has come";
    EXPECT_FALSE(x_.reply.keep_alive);
    all("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + reply::text_event("a") +
        reply::finish);
    weir_load_exchange_closed(&x_, 1020 * ms);
    EXPECT_EQ(record_.outcome, WEIR_LOAD_OK);
}

TEST_F(Exchange, EndlessRepliesAreBounded)
{
    begin(1);
    read(reply::head, 1010);
    const std::string ping = chunk(": " + std::string(60000, 'p') + "\n\n");
    size_t n = 0;
    for (; !x_.is_over && n < 1000; n++) read(ping, 1020);
    EXPECT_EQ(record_.outcome, WEIR_LOAD_TOO_LONG);
    EXPECT_LT(n, 400u);
    begin();
    read("HTTP/1.1 500 X\r\nContent-Length: 1000000\r\n\r\n", 1010);
    for (int i = 0; i < 100; i++) read(std::string(10000, 'e'), 1020);
    EXPECT_EQ(record_.outcome, WEIR_LOAD_STATUS);
    EXPECT_LE(x_.body.size, 16384u);
}

TEST_F(Exchange, BytesAfterAReplyEndItsConnection)
{
    all(reply::head + chunk(reply::text_event("a") + reply::finish + reply::done) + reply::last +
        "HTTP/1.1 200 OK\r\n");
    EXPECT_EQ(record_.outcome, WEIR_LOAD_OK);
    EXPECT_FALSE(x_.reply.keep_alive);
}

} // namespace
