// Drafts by the model's head: answers have the same bits, whatever becomes of the drafts.
#include <algorithm>
#include <map>

#include "engine/schedule/job.h"
#include "tests/every_nth.h"
#include "tests/unit/schedule/support.h"

namespace {

using support::Answer;

const char *const chain = "../mtp/chain", *const noise = "../mtp/tq-mtp";

/* Tokens that follow each other in the chain. */
std::vector<int32_t> text(int first, int n)
{
    std::vector<int32_t> ids;
    for (int i = 0; i < n; i++) ids.push_back((first + i) % 64);
    return ids;
}

class Mtp : public support::Service {
  protected:
    void start(const char *model, bool drafts, const std::vector<const char *> &more = {})
    {
        stop();
        /* A match of 64 tokens: the head drafts, not n-gram lookup. */
        settings_ = { "speculation.method=ngram", "speculation.match=64", "memory.snapshots=1MiB",
                      drafts ? "speculation.mtp=on" : "speculation.mtp=off" };
        open(model, 4, nullptr, 512, 0, more);
    }
    /* Six requests that differ in what draws, ends and counts tokens. */
    static void vary(support::Call *call, int i)
    {
        weir_request *const r = &call->request;
        static const weir_logit_bias some[] = { { 9, 4 }, { 21, -9 } };
        r->want_logprobs = r->cache_prompt = true;
        r->n_top_logprobs = 3;
        r->ignore_eos = true;
        r->sampling.seed = static_cast<uint64_t>(i);
        if (i == 1) r->sampling.temperature = 0.9f;
        if (i == 2) r->sampling.temperature = 1.3f, r->sampling.top_k = 5, r->n_choices = 3;
        if (i == 3) r->sampling.frequency_penalty = 0.3f, r->sampling.repetition_penalty = 1.1f;
        if (i == 4) call->stop_after = 29;
        if (i == 5) r->sampling.bias = some, r->sampling.n_bias = 2;
    }
    enum { N_VARIED = 6 };
    std::vector<Answer> answers(bool together = false)
    {
        std::vector<std::unique_ptr<support::Call>> calls;
        for (int i = 0; i < N_VARIED; i++) {
            calls.push_back(std::make_unique<support::Call>(text(5 * i, 20 + 37 * i), 80));
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
    void check(const char *model, const std::vector<const char *> &more = {})
    {
        SCOPED_TRACE(model);
        drafted_ = accepted_ = 0;
        start(model, false, more);
        const auto plain = answers();
        EXPECT_EQ(drafted_, 0);
        start(model, true, more);
        expect_equal(answers(), plain);
        EXPECT_GT(drafted_, 0);
        expect_equal(answers(), plain); /* continues what the first ones left in the cache */
        expect_equal(answers(true), plain);
        EXPECT_EQ(pages_used_when_idle(), 0);
    }
    int64_t drafted_ = 0, accepted_ = 0;
};

TEST_F(Mtp, SameBitsWithRightDrafts)
{
    check(chain);
    EXPECT_GT(accepted_, 400);
    EXPECT_LT(accepted_, drafted_) << "no draft was wrong";
}

TEST_F(Mtp, SameBitsWithRightDraftsAndOtherSettings)
{
    check(chain, { "kv.reuse=off" });
    check(chain, { "kv.format=kivi2" });
    check(chain, { "batch.tokens=68" });
}

TEST_F(Mtp, SameBitsWithWrongDrafts)
{
    check(noise);
    check("../mtp/deepseek3");
    check("../mtp/glm4-moe");
}

/* In the chain the head is right as long as its rows are those of the sequence. */
TEST_F(Mtp, RightDraftsSaveSteps)
{
    start(chain, true);
    for (int n : { 1, 2, 63, 64, 65, 200 }) {
        SCOPED_TRACE(n);
        const int64_t before = stats().steps;
        support::Call call(text(3, n), 60);
        call.request.ignore_eos = true;
        EXPECT_EQ(answer(call), text(3 + n, 60));
        EXPECT_EQ(pages_used_when_idle(), 0);
        EXPECT_EQ(usage_.n_accepted, usage_.n_drafted) << "in the chain no draft is wrong";
        EXPECT_GT(usage_.n_accepted, 35); /* of 59; none may end a page */
        EXPECT_LT(stats().steps - before, 26 + n / 64);
    }
}

/* By the number of tokens that they follow. */
using Drafts = std::map<int32_t, std::vector<int32_t>>;

/* Of so few tokens some drafts are right, whatever the weights. */
const weir_logit_bias few[] = { { 3, 60 }, { 11, 60 }, { 19, 60 } };

/* Drafts are still there when the token that the first one guesses is reported. Those after a pause
 * are not of interest: rows are missing. */
struct Watch {
    support::Call call;
    weir_service *service;
    Drafts seen;
    Watch(weir_service *s, const std::vector<int32_t> &ids, int n) : call(ids, n), service(s)
    {
        call.request.ignore_eos = true;
        call.request.sampling.bias = few;
        call.request.sampling.n_bias = 3;
        call.request.user = this;
        call.request.callback = [](void *user, const weir_event *event) {
            Watch *const w = static_cast<Watch *>(user);
            const choice *const c = w->service->slots[0].owner;
            if (event->type == WEIR_EVENT_TOKEN && c->mtp.n > 0 && c->mtp.from == 0 &&
                c->mtp.at == c->sequence->n_tokens)
                w->seen[c->mtp.at].assign(c->mtp.drafts, c->mtp.drafts + c->mtp.n);
            return support::Call::on_event(&w->call, event);
        };
    }
};

/* What the head drafts after `tokens`, from all their rows. */
std::vector<int32_t> drafts_after(
    weir_engine *engine, const std::vector<int32_t> &tokens, size_t n_drafts
)
{
    weir_error error = {};
    weir_runner *const runner = weir_engine_runner(engine);
    const weir_model *const model = weir_engine_model(engine);
    const size_t d = (size_t)weir_model_shape(model)->d_model, n = tokens.size() - 1;
    weir_kv_sequence sequence = {};
    EXPECT_EQ(
        weir_kv_sequence_open(
            &sequence, weir_engine_store(engine), weir_engine_ledger(engine),
            weir_model_recurrent_bytes(model), &error
        ),
        WEIR_OK
    );
    std::copy(tokens.begin(), tokens.end(), sequence.tokens);
    sequence.n_tokens = (int32_t)tokens.size();
    std::vector<float> states;
    for (size_t at = 0; at < n;) {
        weir_batch_item item = {};
        item.sequence = &sequence;
        item.n_rows = (int32_t)std::min<size_t>(64, n - at);
        const float *logits;
        EXPECT_EQ(weir_runner_step(runner, &item, 1, &logits, &error), WEIR_OK) << error.text;
        const float *const first = weir_runner_hidden(runner, &item, (int32_t)at);
        states.insert(states.end(), first, first + (size_t)item.n_rows * d);
        at += (size_t)item.n_rows;
    }
    weir_kv_sequence_close(&sequence);
    const weir_kv_geometry *const g = weir_model_mtp_geometry(model);
    const size_t page = (size_t)(64 * 2 * (g->key_dim + g->value_dim)), n_pages = (n + 3) / 64 + 1;
    std::vector<char> memory(page * n_pages * (size_t)g->n_heads);
    std::vector<void *> pages;
    for (size_t p = 0; p < n_pages * (size_t)g->n_heads; p++)
        pages.push_back(memory.data() + p * page);
    std::vector<int32_t> drafts, all = tokens;
    for (size_t at = 0; drafts.size() < n_drafts;) {
        const size_t left = at < n ? n - at : 1;
        const int32_t rows = (int32_t)std::min<size_t>(64, left), last = rows - 1;
        weir_batch_segment segment = {};
        segment.n_rows = rows;
        segment.n_past = (int32_t)at;
        segment.pages = pages.data();
        segment.page_stride = (int64_t)n_pages;
        std::vector<int32_t> positions;
        std::vector<const float *> hidden;
        for (size_t r = at; r < at + (size_t)rows; r++)
            positions.push_back((int32_t)r), hidden.push_back(states.data() + r * d);
        const weir_mtp_batch batch = {
            all.data() + at + 1, positions.data(), hidden.data(), &segment, &last, rows, 1, 1
        };
        const float *logits, *next;
        EXPECT_EQ(weir_runner_draft(runner, &batch, &logits, &next, &error), WEIR_OK);
        at += (size_t)rows;
        if (at < n) continue;
        int32_t best = few[0].id;
        for (const auto &one : few)
            if (logits[one.id] > logits[best]) best = one.id;
        drafts.push_back(best);
        all.push_back(best);
        states.insert(states.end(), next, next + d);
    }
    return drafts;
}

/* On the engine thread. */
struct Question {
    weir_engine *engine;
    std::vector<int32_t> tokens;
    size_t n_drafts;
    std::vector<int32_t> drafts;
    static void answer(weir_service *, void *user)
    {
        Question *const q = static_cast<Question *>(user);
        q->drafts = drafts_after(q->engine, q->tokens, q->n_drafts);
    }
};

/* Prompts in one chunk and in several: the head has all rows, each in its place. */
TEST_F(Mtp, DraftsWhatTheHeadComputesFromAllRows)
{
    int n_long = 0;
    for (const char *const model : { noise, "../mtp/deepseek3" }) {
        SCOPED_TRACE(model);
        const bool has_window = model != noise; /* of 128 tokens */
        start(model, true, { "kv.reuse=off", has_window ? "model.context=128" : "batch.queue=1" });
        int n_drafts = 0, n_accepted = 0;
        for (int i = 0; i < 140 / weir_test::every_nth(4); i++) {
            static const int lengths[] = { 2, 3, 5, 63, 64, 65, 250 };
            const int n = lengths[i % 7];
            if (has_window && n > 100) continue;
            const auto ids = prompt(n + i, n);
            Watch watch(service_, ids, 28);
            auto tokens = ids;
            const auto rest = answer(watch.call);
            tokens.insert(tokens.end(), rest.begin(), rest.end());
            for (const auto &[at, drafts] : watch.seen) {
                SCOPED_TRACE(at);
                Question of = {
                    engine_, { tokens.begin(), tokens.begin() + at }, drafts.size(), {}
                };
                weir_service_call(service_, Question::answer, &of);
                EXPECT_EQ(drafts, of.drafts);
                n_drafts++;
                n_long += drafts.size() == 3;
            }
            n_accepted += usage_.n_accepted;
        }
        EXPECT_GT(n_drafts, 50 / weir_test::every_nth(4));
        EXPECT_GT(n_accepted, 20 / weir_test::every_nth(4));
    }
    EXPECT_GE(n_long, 12 / weir_test::every_nth(4));
}

/* More rows than the head keeps. */
TEST_F(Mtp, GoesOnInALongAnswer)
{
    stop();
    settings_ = { "speculation.method=ngram", "speculation.match=64", "speculation.mtp=on" };
    open(chain, 1, nullptr, 2048);
    support::Call call(text(3, 40), 1500);
    std::vector<weir_logit_bias> others;
    for (int32_t id = 64; id < 320; id++) others.push_back({ id, -100 });
    call.request.sampling.temperature = 1.1f; /* does not repeat itself */
    call.request.sampling.bias = others.data();
    call.request.sampling.n_bias = others.size();
    call.request.ignore_eos = true;
    const auto drafted = answer(call);
    EXPECT_GT(usage_.n_accepted, 400);
    call.release();
    settings_[2] = "speculation.mtp=off";
    stop();
    open(chain, 1, nullptr, 2048);
    support::Call plain(text(3, 40), 1500);
    plain.request.sampling = call.request.sampling;
    plain.request.ignore_eos = true;
    EXPECT_EQ(answer(plain), drafted);
}

/* All sequences of a step wait for the drafts of one, so each of many drafts no longer than one. */
TEST_F(Mtp, WrongDraftsEnd)
{
    start(noise, true);
    int64_t most = 0;
    for (const size_t n : { 1, 4 }) {
        std::vector<std::unique_ptr<support::Call>> calls;
        for (size_t i = 0; i < n; i++) {
            calls.push_back(std::make_unique<support::Call>(prompt(2 + (int)i, 60), 400));
            calls.back()->request.ignore_eos = true;
            calls.back()->request.sampling.temperature = 2.0f;
            calls.back()->request.sampling.seed = i;
        }
        submit_together(service_, calls, &error_);
        for (const auto &call : calls) {
            call->wait();
            const int64_t n_wrong = call->usage.n_drafted - call->usage.n_accepted;
            EXPECT_GT(n_wrong, 0);
            if (n == 1) most = n_wrong;
            EXPECT_LE(n_wrong, std::min<int64_t>(most, 9));
        }
    }
}

/* Two sequences use the memory for states of drafts all the time, as lookup finds theirs: a third
 * one stops drafting what it cannot use. */
TEST_F(Mtp, UnusedDraftsEnd)
{
    static weir_service *service;
    static int32_t at, n_computed;
    start(noise, true);
    stop();
    settings_[1] = "speculation.match=3";
    open(noise, 4, nullptr, 512);
    service = service_;
    at = n_computed = 0;
    std::vector<std::unique_ptr<support::Call>> calls;
    for (int i = 0; i < 3; i++) {
        calls.push_back(std::make_unique<support::Call>(prompt(2 + i, 60), i < 2 ? 400 : 100));
        calls.back()->request.ignore_eos = true;
        calls.back()->request.sampling.bias = few;
        calls.back()->request.sampling.n_bias = i < 2 ? 3 : 0;
    }
    support::Call *const last = calls[2].get();
    last->request.sampling.temperature = 2.0f; /* does not repeat itself */
    last->request.callback = [](void *user, const weir_event *event) {
        for (int i = 0; i < 4; i++) {
            const choice *const c = service->slots[i].owner;
            if (c == nullptr || c->job->request.user != user || c->mtp.at == at) continue;
            at = c->mtp.at;
            n_computed += c->mtp.n;
        }
        return support::Call::on_event(user, event);
    };
    submit_together(service_, calls, &error_);
    for (const auto &call : calls) call->wait();
    EXPECT_GT(n_computed, 0);
    EXPECT_LE(n_computed - last->usage.n_drafted, 6);
}

TEST_F(Mtp, PreemptedSequencesAnswerAlike)
{
    start(chain, false);
    const auto plain = answers();
    stop();
    settings_[3] = "speculation.mtp=on";
    open_with_rows(chain, 4, 320, 512);
    for (int i = 0; i < 4; i++) expect_equal(answers(true), plain);
    EXPECT_GT(stats().preemptions, 0);
    EXPECT_GT(accepted_, 20);
}

TEST_F(Mtp, NothingIsDraftedWithAPolicy)
{
    weir_policy_options policy;
    ASSERT_EQ(weir_policy_options_default(&policy, "h2o", &error_), WEIR_OK);
    start(chain, true);
    support::Call call(text(1, 40), 60);
    call.request.policy = &policy;
    call.request.kv_budget = 96;
    (void)answer(call);
    EXPECT_EQ(usage_.n_drafted, 0);
}

TEST_F(Mtp, LookupGoesFirst)
{
    start(chain, true, {});
    stop();
    settings_[1] = "speculation.match=2";
    open(chain, 4);
    support::Call call(text(0, 150), 60); /* repeats itself: lookup drafts more than 3 at once */
    call.request.ignore_eos = true;
    const int64_t before = stats().steps;
    EXPECT_EQ(answer(call), text(150, 60));
    EXPECT_EQ(pages_used_when_idle(), 0);
    EXPECT_LT(stats().steps - before, 17);
}

class MtpSession : public support::SessionService {
  protected:
    MtpSession() : SessionService("mtp", 512) {}
    void start(bool drafts)
    {
        stop();
        settings_ = { "speculation.method=ngram", "speculation.match=64", "memory.snapshots=1MiB",
                      drafts ? "speculation.mtp=on" : "speculation.mtp=off" };
        SessionService::start(chain);
    }
    Answer run(const std::vector<int32_t> &ids)
    {
        support::Call call(ids, 40);
        call.request.want_logprobs = call.request.ignore_eos = call.request.cache_prompt = true;
        (void)answer(call);
        return { call.tokens, call.logprobs, call.finish };
    }
};

/* Files have nothing of the head: one that was saved with it is continued without, and the other
 * way round. */
TEST_F(MtpSession, GoesOnWithTheSameBits)
{
    for (const bool saves_with : { true, false }) {
        SCOPED_TRACE(saves_with);
        start(saves_with);
        auto turn = text(7, 100);
        const auto before = run(turn);
        turn.insert(turn.end(), before.tokens[0].begin(), before.tokens[0].end());
        ASSERT_EQ(save("talk", turn), WEIR_OK) << error_.text;
        const auto more = text(30, 20);
        turn.insert(turn.end(), more.begin(), more.end());
        const auto uninterrupted = run(turn);
        for (const bool continues_with : { true, false }) {
            start(continues_with);
            ASSERT_EQ(restore("talk"), WEIR_OK) << error_.text;
            const auto after = run(turn);
            EXPECT_GT(usage_.n_cached, 100);
            EXPECT_EQ(usage_.n_accepted > 10, continues_with) << usage_.n_accepted;
            EXPECT_EQ(after.tokens, uninterrupted.tokens);
            EXPECT_EQ(after.logprobs, uninterrupted.logprobs);
        }
        stop();
    }
}

/* The head's weights and rows are planned: without them the same memory has room for more. */
TEST_F(Mtp, IsPlanned)
{
    start(chain, false, { "memory.host=24MiB", "model.context=0" });
    const weir_plan without = *weir_engine_plan_of(engine_);
    start(chain, true, { "memory.host=24MiB", "model.context=0" });
    const weir_plan with = *weir_engine_plan_of(engine_);
    EXPECT_GT(with.facts.mtp_bytes, 0);
    EXPECT_GT(with.facts.mtp_row_bytes, 4 * 1024 * 2 * 2 * 32); /* rows, K and V, f16, width */
    EXPECT_GE(with.weights - without.weights, static_cast<size_t>(with.facts.mtp_bytes));
    EXPECT_GT(
        with.activations, without.activations + static_cast<size_t>(with.facts.mtp_row_bytes)
    );
    EXPECT_LE(weir_plan_total(&with), with.cap);
    weir_buffer printed = {}, json = {};
    ASSERT_EQ(weir_plan_print(&with, &printed), WEIR_OK);
    ASSERT_EQ(weir_plan_print_json(&with, &json), WEIR_OK);
    EXPECT_NE(strstr(printed.data, " of it for the draft head\n"), nullptr) << printed.data;
    EXPECT_NE(strstr(printed.data, " of it for rows of the draft head"), nullptr);
    EXPECT_NE(strstr(json.data, "\"draft_head\": {\"weights\": "), nullptr) << json.data;
    weir_buffer_free(&printed);
    weir_buffer_free(&json);
}

} // namespace
