// Speculation: answers have the same bits with drafts, whatever becomes of them, and nothing of a
// wrong draft stays.
#include "engine/schedule/ngram.h"
#include "tests/every_nth.h"
#include "tests/unit/schedule/support.h"

namespace {

/* ---- n-gram lookup --------------------------------------------------------------------------- */
std::vector<int32_t> draft(const std::vector<int32_t> &tokens, int least, int most)
{
    std::vector<int32_t> out(static_cast<size_t>(most), -1);
    out.resize(static_cast<size_t>(weir_ngram_draft(
        tokens.data(), static_cast<int32_t>(tokens.size()), least, out.data(), most
    )));
    return out;
}

using Ids = std::vector<int32_t>;

TEST(Ngram, GivesWhatFollowedTheLastTokens)
{
    EXPECT_EQ(draft({ 1, 2, 3, 4, 5, 6, 1, 2, 3 }, 3, 2), Ids({ 4, 5 }));
    EXPECT_EQ(draft({ 1, 2, 3, 4, 9, 2, 3 }, 2, 2), Ids({ 4, 9 }));
}

TEST(Ngram, NeedsALongEnoughMatch)
{
    EXPECT_EQ(draft({ 1, 2, 3, 4, 9, 2, 3 }, 3, 2), Ids());
    EXPECT_EQ(draft({ 1, 2, 3 }, 3, 2), Ids());
    EXPECT_EQ(draft({ 1 }, 1, 4), Ids());
    EXPECT_EQ(draft({}, 1, 4), Ids());
}

TEST(Ngram, TakesTheLongestMatchAndOfEqualOnesTheLast)
{
    EXPECT_EQ(draft({ 5, 1, 2, 7, 6, 1, 2, 8, 5, 1, 2 }, 2, 1), Ids({ 7 }));
    EXPECT_EQ(draft({ 5, 1, 2, 7, 6, 1, 2, 8, 9, 1, 2 }, 2, 1), Ids({ 8 }));
}

TEST(Ngram, GoesOnWithItsDraftWhereTheTokensEnd)
{
    EXPECT_EQ(draft({ 7, 8, 7, 8, 7, 8 }, 2, 5), Ids({ 7, 8, 7, 8, 7 }));
    EXPECT_EQ(draft({ 3, 3, 3 }, 1, 4), Ids({ 3, 3, 3, 3 }));
}

/* ---- answers -------------------------------------------------------------------------------- */
using support::Answer;

class Speculation : public support::Service {
  protected:
    void start(const char *model, bool drafts, const std::vector<const char *> &more = {})
    {
        stop();
        settings_ = { drafts ? "speculation.method=ngram" : "speculation.method=off",
                      "speculation.match=1", "memory.snapshots=1MiB" };
        open(model, 4, nullptr, 512, 0, more);
    }
    /* A text that repeats itself with changes. */
    std::vector<int32_t> text(int seed, int n) const
    {
        std::vector<int32_t> ids;
        for (int i = 0; i < n; i++) ids.push_back((seed + i % 11 * 7 + (i % 37 == 0) * i) % 200);
        return ids;
    }
    /* The answer has few different tokens, so some drafts are right and some are wrong. */
    static void narrow(support::Call *call)
    {
        static const weir_logit_bias few[] = { { 3, 60 }, { 11, 60 }, { 19, 60 } };
        call->request.sampling.bias = few;
        call->request.sampling.n_bias = 3;
        call->request.ignore_eos = true;
    }
    /* Seven requests that differ in what draws, ends and counts tokens. */
    static void vary(support::Call *call, int i)
    {
        weir_request *const r = &call->request;
        narrow(call);
        r->want_logprobs = true;
        r->n_top_logprobs = 3;
        r->sampling.seed = static_cast<uint64_t>(i);
        if (i == 1) r->sampling.temperature = 0.7f, r->sampling.top_k = 3;
        if (i == 2) r->sampling.temperature = 1.0f, r->sampling.top_k = 2, r->n_choices = 3;
        if (i == 3) r->sampling.frequency_penalty = 0.3f, r->sampling.repetition_penalty = 1.1f;
        if (i == 4) call->stop_after = 29;
        if (i == 5) r->ignore_eos = false, r->min_tokens = 9;
        if (i == 6) r->max_tokens = 1;
    }
    int64_t steps_when_idle() const
    {
        EXPECT_EQ(pages_used_when_idle(), 0);
        return stats().steps;
    }
    enum { N_VARIED = 7 };
    std::vector<Answer> answers(bool together = false)
    {
        std::vector<std::unique_ptr<support::Call>> calls;
        for (int i = 0; i < N_VARIED; i++) {
            calls.push_back(std::make_unique<support::Call>(text(i % 3, 20 + 19 * i), 90));
            vary(calls.back().get(), i);
            if (!together) (void)answer(*calls.back());
        }
        if (together) submit_together(service_, calls, &error_);
        std::vector<Answer> out = answers_of(calls);
        for (const Answer &each : out) {
            drafted_ += each.usage.n_drafted;
            accepted_ += each.usage.n_accepted;
        }
        return out;
    }
    static void expect_equal(const std::vector<Answer> &a, const std::vector<Answer> &b)
    {
        support::expect_equal(a, b);
        for (size_t i = 0; i < a.size(); i++) {
            SCOPED_TRACE("request " + std::to_string(i));
            EXPECT_EQ(a[i].usage.n_answer, b[i].usage.n_answer);
            /* One that ends among right drafts goes back to the state before them. */
            EXPECT_LE(a[i].usage.n_rows, b[i].usage.n_rows);
            EXPECT_GE(a[i].usage.n_rows, b[i].usage.n_rows - 8 * (int64_t)b[i].tokens.size());
        }
    }
    void check(const char *model, const std::vector<const char *> &more = {})
    {
        SCOPED_TRACE(model);
        start(model, false, more);
        const auto plain = answers();
        EXPECT_EQ(drafted_, 0);
        start(model, true, more);
        expect_equal(answers(), plain);
        EXPECT_GT(accepted_, 20);
        EXPECT_GT(drafted_, accepted_) << "no draft was wrong";
        EXPECT_EQ(stats().drafted_tokens, drafted_);
        EXPECT_EQ(stats().accepted_tokens, accepted_);
        expect_equal(answers(), plain); /* continues what the first ones left in the cache */
        expect_equal(answers(true), plain);
        EXPECT_EQ(pages_used_when_idle(), 0);
        drafted_ = accepted_ = 0;
    }
    int64_t drafted_ = 0, accepted_ = 0;
};

TEST_F(Speculation, SameBitsOfAttentionModels)
{
    for (const char *const model :
         weir_test::every_nth({ "qwen3", "mistral", "deepseek3", "../families/gemma4" }, 2))
        check(model);
}

TEST_F(Speculation, SameBitsOfHybridModels)
{
    check("tq", { "kv.reuse=off" });
    for (const char *const model :
         weir_test::every_nth({ "tq", "../families/lfm2", "tq-moe", "../families/kimi-linear" }, 3))
        check(model);
}

TEST_F(Speculation, SameBitsWithFormatsThatSealPages)
{
    check("qwen3", { "kv.format=int8" });
    check("qwen3", { "kv.format=q8_0/turbo4" });
    check("tq", { "kv.format=kivi2" });
}

TEST_F(Speculation, NothingIsDraftedWithAPolicy)
{
    weir_policy_options policy;
    ASSERT_EQ(weir_policy_options_default(&policy, "h2o", &error_), WEIR_OK);
    start("qwen3", true);
    support::Call call(text(1, 40), 60);
    call.request.policy = &policy;
    call.request.kv_budget = 96;
    narrow(&call);
    (void)answer(call);
    EXPECT_EQ(usage_.n_drafted, 0);
    support::Call plain(text(1, 40), 60);
    narrow(&plain);
    (void)answer(plain);
    EXPECT_GT(usage_.n_drafted, 0) << "the policy made no difference";
}

TEST_F(Speculation, PreemptedSequencesAnswerAlike)
{
    for (const char *const model : { "qwen3", "tq" }) {
        SCOPED_TRACE(model);
        start(model, false);
        const auto plain = answers();
        stop();
        settings_[0] = "speculation.method=ngram";
        open_with_rows(model, 4, 320, 512);
        for (int i = 0; i < 4; i++) expect_equal(answers(true), plain);
        EXPECT_GT(stats().preemptions, 0);
        EXPECT_GT(accepted_, 20);
    }
}

/* A draft that is wrong costs a step some rows, so drafts become rare if they are wrong. */
TEST_F(Speculation, WrongDraftsMakePauses)
{
    start("qwen3", true);
    support::Call call(text(2, 60), 200);
    call.request.ignore_eos = true;
    call.request.sampling.temperature = 2.0f;
    (void)answer(call);
    EXPECT_GT(usage_.n_drafted, 0);
    EXPECT_LE(usage_.n_drafted - usage_.n_accepted, 40);
}

TEST_F(Speculation, RightDraftsSaveSteps)
{
    start("qwen3", false);
    support::Call plain(text(0, 40), 100);
    narrow(&plain);
    (void)answer(plain);
    const int64_t steps = steps_when_idle();
    plain.release();
    start("qwen3", true);
    support::Call drafted(text(0, 40), 100);
    narrow(&drafted);
    (void)answer(drafted);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(steps_when_idle() + usage_.n_accepted, steps);
    EXPECT_GT(usage_.n_accepted, steps / 4);
}

} // namespace
