// Percentiles and counts of records with times that the test sets.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/load/output.h"

namespace {

const int64_t ms = 1000000, start = 5000 * ms;

/* Requests that were due every 10 ms, sent 1 ms late. Request i has its first text i ms after it
 * was due, and then a token every 4 ms. */
class Summary : public testing::Test {
  protected:
    void TearDown() override
    {
        weir_samples_free(&result_.gaps);
        free(result_.records);
    }
    void add(int first_ms, int n_tokens, weir_load_outcome outcome = WEIR_LOAD_OK, int status = 200)
    {
        weir_load_record r = {};
        r.due_ns = start + 10 * ms * (int64_t)records_.size();
        r.sent_ns = r.due_ns + ms;
        r.outcome = outcome;
        r.status = status;
        r.first_ns = r.due_ns + first_ms * ms;
        r.last_ns = r.first_ns + 4 * ms * (n_tokens - 1);
        r.end_ns = r.last_ns + ms;
        r.n_events = n_tokens;
        r.prompt_tokens = 100;
        r.answer_tokens = n_tokens;
        r.cached_tokens = 64;
        records_.push_back(r);
        for (int i = 1; outcome == WEIR_LOAD_OK && i < n_tokens; i++)
            ASSERT_EQ(weir_samples_add(&result_.gaps, 4), WEIR_OK);
    }
    weir_load_summary summarise(const weir_goodput &goodput = {})
    {
        weir_load_summary s = {};
        result_.records = (weir_load_record *)malloc(records_.size() * sizeof records_[0]);
        std::copy(records_.begin(), records_.end(), result_.records);
        result_.n = (int32_t)records_.size();
        result_.start_ns = start;
        EXPECT_EQ(weir_load_summarise(&s, &result_, &goodput), WEIR_OK);
        return s;
    }
    std::vector<weir_load_record> records_;
    weir_load_result result_ = {};
};

TEST_F(Summary, PercentilesAreLinearBetweenNeighbours)
{
    for (int i = 1; i <= 101; i++) add(i, 6);
    const weir_load_summary s = summarise();
    EXPECT_EQ(s.n_sent, 101);
    EXPECT_EQ(s.n_good, 101);
    EXPECT_EQ(s.ttft.n, 101u);
    EXPECT_DOUBLE_EQ(s.ttft.p50, 51);
    EXPECT_DOUBLE_EQ(s.ttft.p90, 91);
    EXPECT_DOUBLE_EQ(s.ttft.p95, 96);
    EXPECT_DOUBLE_EQ(s.ttft.p99, 100);
    EXPECT_DOUBLE_EQ(s.ttft.most, 101);
    EXPECT_NEAR(s.ttft.mean, 51, 1e-9);
    EXPECT_DOUBLE_EQ(s.tpot.p50, 4);
    EXPECT_DOUBLE_EQ(s.tpot.p99, 4);
    EXPECT_EQ(s.itl.n, 505u);
    EXPECT_DOUBLE_EQ(s.itl.p99, 4);
    EXPECT_DOUBLE_EQ(s.e2e.p50, 51 + 20 + 1);
    EXPECT_DOUBLE_EQ(s.late.most, 1);
    /* The last ends 1000 + 101 + 20 + 1 ms after the start. */
    EXPECT_NEAR(s.seconds, 1.122, 1e-9);
    EXPECT_NEAR(s.requests_per_second, 101 / 1.122, 1e-6);
    EXPECT_EQ(s.prompt_tokens, 10100);
    EXPECT_EQ(s.cached_tokens, 6464);
    EXPECT_EQ(s.answer_tokens, 606);
    EXPECT_NEAR(s.answer_per_second, 606 / 1.122, 1e-6);
    EXPECT_TRUE(s.is_counted);
}

TEST(Samples, TwoValuesAreInterpolated)
{
    weir_samples samples = {};
    EXPECT_EQ(weir_samples_at(&samples, 0.5), 0);
    EXPECT_EQ(weir_samples_percentiles(&samples).n, 0u);
    ASSERT_EQ(weir_samples_add(&samples, 30), WEIR_OK);
    EXPECT_EQ(weir_samples_at(&samples, 0.99), 30);
    ASSERT_EQ(weir_samples_add(&samples, 10), WEIR_OK);
    EXPECT_DOUBLE_EQ(weir_samples_at(&samples, 0.25), 15);
    EXPECT_DOUBLE_EQ(weir_samples_percentiles(&samples).p90, 28);
    weir_samples_free(&samples);
}

TEST_F(Summary, FailuresAreCountedAndAreNoLatencies)
{
    add(10, 1);
    add(9000, 5, WEIR_LOAD_STATUS, 429);
    add(9000, 5, WEIR_LOAD_STATUS, 429);
    add(9000, 5, WEIR_LOAD_STATUS, 503);
    add(9000, 5, WEIR_LOAD_CLOSED);
    add(0, 1, WEIR_LOAD_OPEN);
    const weir_load_summary s = summarise();
    EXPECT_EQ(s.n_sent, 6);
    EXPECT_EQ(s.n_good, 1);
    EXPECT_EQ(s.n_failed, 4);
    EXPECT_EQ(s.n_open, 1);
    ASSERT_EQ(s.n_failures, 3);
    EXPECT_EQ(s.failures[0].outcome, WEIR_LOAD_STATUS);
    EXPECT_EQ(s.failures[0].status, 429);
    EXPECT_EQ(s.failures[0].n, 2);
    EXPECT_EQ(s.failures[1].n + s.failures[2].n, 2);
    EXPECT_DOUBLE_EQ(s.ttft.most, 10);
    EXPECT_EQ(s.tpot.n, 0u) << "one token has none after the first";
    EXPECT_EQ(s.answer_tokens, 1);
}

TEST_F(Summary, ManyKindsOfFailuresLoseNone)
{
    for (int status = 400; status < 430; status++) add(1, 1, WEIR_LOAD_STATUS, status);
    const weir_load_summary s = summarise();
    int32_t sum = 0;
    EXPECT_EQ(s.n_failures, WEIR_LOAD_FAILURES);
    for (int32_t i = 0; i < s.n_failures; i++) sum += s.failures[i].n;
    EXPECT_EQ(sum, 30);
}

TEST_F(Summary, GoodputCountsWhatIsWithinAllLimits)
{
    add(100, 11); /* TTFT 100, TPOT 4, end to end 141 */
    add(201, 11);
    add(200, 11);
    add(10, 1);
    add(10, 11, WEIR_LOAD_ERROR);
    weir_goodput goodput = {};
    weir_error error = {};
    ASSERT_EQ(weir_goodput_parse(&goodput, "ttft:200,tpot:4", &error), WEIR_OK) << error.text;
    const weir_load_summary s = summarise(goodput);
    EXPECT_EQ(s.n_within, 3);
    EXPECT_NEAR(s.goodput_per_second, 3 / s.seconds, 1e-9);
    free(result_.records);
    ASSERT_EQ(weir_goodput_parse(&goodput, "e2e:141.5,tpot:50", &error), WEIR_OK) << error.text;
    EXPECT_EQ(summarise(goodput).n_within, 2);
    free(result_.records);
    ASSERT_EQ(weir_goodput_parse(&goodput, "tpot:3.9", &error), WEIR_OK) << error.text;
    EXPECT_EQ(summarise(goodput).n_within, 1) << "one token takes no time per token";
    for (const char *const bad : { "", "ttft", "ttft:", "ttft:0", "ttft:-1", "ttft:nan", "ttft:1,",
                                   "ttft:1,ttft:2", "itl:5", "ttft:1;tpot:2", "ttft:1x" })
        EXPECT_EQ(weir_goodput_parse(&goodput, bad, &error), WEIR_EINVAL) << bad;
}

TEST_F(Summary, WithoutUsageEventsCount)
{
    add(10, 3);
    records_[0].answer_tokens = records_[0].prompt_tokens = records_[0].cached_tokens = -1;
    const weir_load_summary s = summarise();
    EXPECT_FALSE(s.is_counted);
    EXPECT_EQ(s.answer_tokens, 3);
    EXPECT_EQ(s.prompt_tokens, 0);
    EXPECT_DOUBLE_EQ(s.tpot.p50, 4);
}

/* ---- output ---------------------------------------------------------------------------------- */

TEST_F(Summary, IsPrintedWrittenAndDrawn)
{
    for (int i = 1; i <= 20; i++) add(i, 3);
    add(1, 1, WEIR_LOAD_STATUS, 429);
    snprintf(result_.problems[WEIR_LOAD_STATUS], WEIR_LOAD_PROBLEM, "the queue is full");
    const weir_goodput goodput = { 10, 0, 0 };
    weir_load_summary s = summarise(goodput);
    weir_load_form form = {};
    form.model = "m";
    weir_workload_options workload = {};
    weir_load_options options = {};
    const weir_server_memory memory = { true, 5000000, 0, 1000000, 1024 };
    const weir_load_report report = { "http://x", &form, &workload, &options,
                                      &goodput,   &s,    &memory,   &result_ };
    weir_buffer text = {};
    ASSERT_EQ(weir_load_print(&text, &report), WEIR_OK);
    for (const char *const part :
         { "21 requests sent, 20 answered, 1 failed", "http_status 429", "the queue is full",
           "TTFT", "TPOT", "ITL", "end to end", "goodput", "10 of 21 within",
           "peak memory 5.0 MB, KV pool 1.0 MB, 1024 KV bytes" })
        EXPECT_NE(std::string(text.data).find(part), std::string::npos) << part << text.data;
    json_t *const json = weir_load_json(&report, true);
    ASSERT_NE(json, nullptr);
    EXPECT_EQ(json_integer_value(json_object_get(json, "requests_ok")), 20);
    EXPECT_EQ(json_array_size(json_object_get(json, "requests")), 21u);
    EXPECT_EQ(json_array_size(json_object_get(json, "failures")), 1u);
    EXPECT_NEAR(
        json_real_value(json_object_get(json_object_get(json, "ttft_ms"), "p50")), 10.5, 1e-9
    );
    for (const char *const key : { "tpot_ms", "itl_ms", "e2e_ms", "sent_late_ms", "goodput" })
        EXPECT_TRUE(json_is_object(json_object_get(json, key))) << key;
    json_decref(json);
    for (const auto plot : { WEIR_LOAD_PLOT_CDF, WEIR_LOAD_PLOT_TIME }) {
        weir_error error = {};
        weir_buffer_clear(&text);
        ASSERT_EQ(weir_load_draw(&text, &report, plot, &error), WEIR_OK) << error.text;
        EXPECT_NE(std::string(text.data).find("<polyline"), std::string::npos);
        EXPECT_EQ(std::string(text.data).find("nan"), std::string::npos);
    }
    weir_buffer_free(&text);
}

} // namespace
