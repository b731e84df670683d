/* A prompt's embedding is the mean of its hidden states, or one of them: alone or in any batch,
 * preempted or not, with the same bits. */
#include <cmath>
#include <cstring>

#include "engine/schedule/evaluate.h"
#include "engine/schedule/runner.h"
#include "tests/unit/schedule/support.h"

namespace {

using support::Call;

/* A job that keeps its embedding. */
struct Embedded : Call {
    std::vector<float> embedding;
    int32_t d_model;
    Embedded(std::vector<int32_t> ids, int32_t width, int max_tokens)
        : Call(std::move(ids), max_tokens), d_model(width)
    {
        request.want_embedding = true;
        request.callback = [](void *user, const weir_event *event) {
            Embedded *const call = static_cast<Embedded *>(static_cast<Call *>(user));
            if (event->embedding != nullptr)
                call->embedding.assign(event->embedding, event->embedding + call->d_model);
            return Call::on_event(user, event);
        };
    }
};

/* Hidden states of a sequence that is computed without a service. */
struct Rows {
    std::vector<float> values; /* [tokens, width] */
    int64_t layer, width;
    int32_t n_now; /* rows of the step */
};

class Embedding : public support::Service {
  protected:
    int32_t width() const { return weir_service_facts_of(service_)->d_model; }
    std::unique_ptr<Embedded> make(
        const std::vector<int32_t> &ids, int max_tokens = 0, bool cache = false
    )
    {
        auto call = std::make_unique<Embedded>(ids, width(), max_tokens);
        call->request.cache_prompt = cache;
        return call;
    }
    std::unique_ptr<Embedded> begin(
        const std::vector<int32_t> &ids, int max_tokens = 0, bool cache = false
    )
    {
        auto call = make(ids, max_tokens, cache);
        EXPECT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
        return call;
    }
    std::vector<float> run(const std::vector<int32_t> &ids, int max_tokens = 0, bool cache = false)
    {
        const auto call = begin(ids, max_tokens, cache);
        call->wait();
        EXPECT_EQ(call->status, WEIR_OK) << call->message;
        usage_ = call->usage;
        return call->embedding;
    }
    void close()
    {
        weir_engine_close(engine_);
        engine_ = nullptr;
    }
    /* With the configuration of the engine that was open before: the rows [tokens, width] after the
     * last layer, or after its norm. */
    std::vector<float> rows(const std::vector<int32_t> &ids, bool after_norm = false)
    {
        const weir_engine_options options = { &config_, false, false, nullptr, nullptr, nullptr };
        EXPECT_EQ(weir_engine_open_with(&engine_, &options, &error_), WEIR_OK) << error_.text;
        const weir_shape *const shape = weir_model_shape(weir_engine_model(engine_));
        Rows r = { {}, after_norm ? shape->n_layers : shape->n_layers - 1, shape->d_model, 0 };
        weir_kv_sequence sequence = {};
        EXPECT_EQ(
            weir_kv_sequence_open(
                &sequence, weir_engine_store(engine_), weir_engine_ledger(engine_),
                weir_model_recurrent_bytes(weir_engine_model(engine_)), &error_
            ),
            WEIR_OK
        );
        weir_evaluation e = {};
        e.tokens = ids.data(), e.n_tokens = (int32_t)ids.size();
        e.chunk = 64, e.decode_from = INT32_MAX;
        e.before = [](void *user, int32_t, int32_t n_rows) {
            static_cast<Rows *>(user)->n_now = n_rows;
        };
        e.user = &r;
        weir_runner_observe(
            weir_engine_runner(engine_),
            [](void *user, int64_t layer, const float *hidden) {
                Rows *const all = static_cast<Rows *>(user);
                if (layer == all->layer)
                    all->values.insert(all->values.end(), hidden, hidden + all->n_now * all->width);
            },
            &r
        );
        EXPECT_EQ(weir_evaluate(weir_engine_runner(engine_), &sequence, &e, &error_), WEIR_OK)
            << error_.text;
        weir_kv_sequence_close(&sequence);
        close();
        return r.values;
    }
    static std::vector<float> mean_of(const std::vector<float> &rows, size_t n)
    {
        const size_t width = rows.size() / n;
        std::vector<double> sums(width);
        std::vector<float> mean;
        for (size_t i = 0; i < rows.size(); i++) sums[i % width] += (double)rows[i];
        for (double sum : sums) mean.push_back((float)(sum / (double)n));
        return mean;
    }
    static void expect_near(const std::vector<float> &got, const std::vector<float> &wanted)
    {
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t i = 0; i < got.size(); i++)
            EXPECT_NEAR(got[i], wanted[i], 1e-5 * (1 + std::abs(wanted[i]))) << i;
    }
    weir_usage usage_ = {};
};

TEST_F(Embedding, IsTheMeanOfHiddenStates)
{
    for (const char *const model : { "tq", "qwen3", "mistral" }) {
        for (int n : { 1, 63, 64, 200 }) {
            open(model, 2);
            const auto mean = run(prompt(3, n)), again = run(prompt(3, n), 5);
            close();
            EXPECT_EQ(mean, again);
            SCOPED_TRACE(model + std::to_string(n));
            expect_near(mean, mean_of(rows(prompt(3, n)), (size_t)n));
        }
    }
}

TEST_F(Embedding, APoolingPicksRowsAfterTheNorm)
{
    const weir_pooling poolings[] = { WEIR_POOLING_MEAN, WEIR_POOLING_LAST, WEIR_POOLING_CLS };
    for (const char *const model : { "tq", "qwen3" }) {
        enum { N = 150 };
        const auto tokens = prompt(3, N);
        std::vector<std::vector<float>> got;
        open(model, 2);
        for (const weir_pooling pooling : poolings) {
            const auto call = make(tokens);
            call->request.pooling = pooling;
            ASSERT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
            call->wait();
            got.push_back(call->embedding);
        }
        const auto width = static_cast<int64_t>(this->width());
        close();
        const auto all = rows(tokens, true);
        ASSERT_EQ((int64_t)all.size(), N * width);
        SCOPED_TRACE(model);
        expect_near(got[0], mean_of(all, N));
        expect_near(got[1], std::vector<float>(all.end() - width, all.end()));
        expect_near(got[2], std::vector<float>(all.begin(), all.begin() + width));
        EXPECT_NE(got[1], got[2]);
    }
}

TEST_F(Embedding, TheBatchChangesNoBit)
{
    open("tq", 4);
    const auto tokens = prompt(1, 230), other = prompt(2, 150);
    const auto mean = run(tokens), mean_of_other = run(other);
    EXPECT_NE(mean, mean_of_other);
    Call long_answer(prompt(5, 40), 120);
    ASSERT_EQ(long_answer.submit(service_, &error_), WEIR_OK);
    const auto first = begin(tokens, 3), second = begin(other), third = begin(tokens);
    for (const auto *const call : { &first, &second, &third }) (*call)->wait();
    EXPECT_EQ(first->embedding, mean);
    EXPECT_EQ(second->embedding, mean_of_other);
    EXPECT_EQ(third->embedding, mean);
    long_answer.wait();
}

TEST_F(Embedding, NothingIsReusedAndTheSequenceIsKept)
{
    open("tq", 2);
    const auto tokens = prompt(1, 200);
    const auto mean = run(tokens, 0, true);
    EXPECT_EQ(run(tokens, 0, true), mean);
    EXPECT_EQ(usage_.n_cached, 0);
    EXPECT_NE(strstr(usage_.reuse, "embedding"), nullptr) << usage_.reuse;
    Call plain(tokens, 4);
    plain.request.cache_prompt = true;
    ASSERT_EQ(plain.submit(service_, &error_), WEIR_OK);
    plain.wait();
    EXPECT_GT(plain.usage.n_cached, 190);
}

TEST_F(Embedding, WhoDoesNotAskGetsNone)
{
    open("tq", 2);
    Embedded call(prompt(1, 50), width(), 2);
    call.request.want_embedding = false;
    ASSERT_EQ(call.submit(service_, &error_), WEIR_OK);
    call.wait();
    EXPECT_TRUE(call.embedding.empty());
}

// A pool that holds too little for all: rows that a preempted prompt computes again are not counted
// again.
TEST_F(Embedding, PreemptionChangesNoBit)
{
    enum { PROMPTS = 24 };
    const auto tokens = [&](int i) { return prompt(20 + i, 100 + 7 * i); };
    open("qwen3", 6, nullptr, 512, 0, { "kv.reuse=off" });
    std::vector<std::vector<float>> alone;
    for (int i = 0; i < PROMPTS; i++) alone.push_back(run(tokens(i)));
    const weir_plan plan = *weir_engine_plan_of(engine_);
    const std::string memory =
        std::to_string((weir_plan_total(&plan) - plan.kv / 4 * 3) >> 10) + "KiB";
    close();
    open("qwen3", 6, memory.c_str(), 512, PROMPTS, { "kv.reuse=off" });
    std::vector<std::unique_ptr<Embedded>> calls;
    /* Some begin while others begin again */
    for (int i = 0; i < PROMPTS; i++) calls.push_back(make(tokens(i), 40 + 50 * (i % 3)));
    submit_together(service_, calls, &error_);
    for (size_t i = 0; i < PROMPTS; i++) {
        calls[i]->wait();
        EXPECT_EQ(calls[i]->status, WEIR_OK) << calls[i]->message;
        EXPECT_EQ(calls[i]->embedding, alone[i]) << i;
        calls[i]->release();
    }
    weir_service_stats stats;
    weir_service_stats_of(service_, &stats);
    EXPECT_GT(stats.preemptions, 0);
    EXPECT_EQ(stats.reclaimed[WEIR_RECLAIM_PREEMPT].n, stats.preemptions);
}

} // namespace
