// Conversations under a KV policy whose client leaves out the thoughts of earlier answers: a turn
// computes what changed and at most a chunk more, with the bits of its prompt computed from
// nothing.
#include "tests/unit/schedule/turns.h"

namespace {

using support::Call;
using turns::Answer;
using turns::Method;
using turns::methods;
using turns::Turns;

enum { OPENING = 1, ROLE = 2, CLOSING = 3, SYSTEM = 150, THOUGHTS = 8, ANSWER = 16, CHUNK = 64 };

/* What the client sends, without what opens the answer. */
struct Talk {
    std::vector<int32_t> tokens;
    int question = 0; /* where the last message begins */
    int size() const { return (int)tokens.size(); }
};

class Thoughts : public Turns {
  protected:
    void say(Talk *talk, int seed, int n = 40) const
    {
        talk->question = talk->size();
        add(&talk->tokens, { OPENING, ROLE });
        add(&talk->tokens, prompt(seed, n));
        add(&talk->tokens, { CLOSING });
    }
    Talk talk(int seed, int system = 1, int n = 40) const
    {
        Talk out;
        add(&out.tokens, prompt(system, SYSTEM));
        say(&out, seed, n);
        return out;
    }
    static void answered(Talk *talk, const std::vector<int32_t> &answer, int skipped = THOUGHTS)
    {
        add(&talk->tokens, { OPENING, ROLE });
        add(&talk->tokens, { answer.begin() + skipped, answer.end() });
        add(&talk->tokens, { CLOSING });
    }
    std::unique_ptr<Call> question(const Talk &talk, bool is_cached = true, int n_choices = 1)
    {
        auto ids = talk.tokens;
        add(&ids, { OPENING, ROLE });
        auto call = std::make_unique<Call>(ids, max_tokens_);
        call->request.cache_prompt = is_cached;
        call->request.ignore_eos = call->request.want_logprobs = true;
        call->request.n_choices = n_choices;
        call->request.sampling.temperature = 0;
        call->request.session = session_;
        call->request.turn_starts[0] = talk.size();
        call->request.turn_starts[1] = talk.question;
        return call;
    }
    std::unique_ptr<Call> ask(const Talk &talk, bool is_cached = true, int n_choices = 1)
    {
        auto call = question(talk, is_cached, n_choices);
        EXPECT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
        return call;
    }
    Answer reply(const Talk &talk) { return end(ask(talk)); }
    /* Of the prompt computed from nothing, in the same process. */
    Answer cold(const Talk &talk) { return end(ask(talk, false)); }
    int n_computed() const { return usage_.n_prompt - usage_.n_cached; }
    /* Tokens to compute if the sequence is known up to `at`, in whole chunks. */
    static int most(const Talk &talk, int at) { return talk.size() + 2 - at / CHUNK * CHUNK; }
    /* A turn without the thoughts of the answer before, compared with one that is computed from
     * nothing. */
    void next(Talk *talk, const Answer &answer, int seed, const std::string &what, Answer *out)
    {
        const int begun = talk->size();
        answered(talk, answer.tokens);
        say(talk, seed);
        *out = reply(*talk);
        EXPECT_LE(n_computed(), most(*talk, begun)) << what << ": " << usage_.reuse;
        EXPECT_EQ(*out, cold(*talk)) << what;
    }
    int max_tokens_ = THOUGHTS + ANSWER;

  private:
    static void add(std::vector<int32_t> *to, const std::vector<int32_t> &more)
    {
        to->insert(to->end(), more.begin(), more.end());
    }
};

TEST_F(Thoughts, ComputeWhatChangedWithTheBitsOfTheWholePrompt)
{
    for (const char *const model : { "tq", "qwen3" }) {
        for (const Method &method : methods) {
            const std::string what = std::string(model) + " " + method.name + " " + method.options;
            start(model, method);
            Talk t = talk(10);
            Answer answer = reply(t);
            for (int i = 0; i < 3; i++) {
                next(&t, answer, 20 + i, what, &answer);
                if (method.options.find("pin_prompt") == std::string::npos)
                    EXPECT_GT(usage_.n_evicted, 100) << what;
            }
            EXPECT_EQ(pages_used_when_idle(), 0) << what;
            stop();
        }
    }
}

TEST_F(Thoughts, InAnyFormatAndWithADisk)
{
    for (const auto &more : turns::stores) {
        for (const int method : { 1, 2, 4 }) {
            const std::string what = more[0] + " " + methods[method].options;
            start("qwen3", methods[method], more);
            Talk t = talk(10);
            Answer answer = reply(t);
            for (int i = 0; i < 3; i++) next(&t, answer, 20 + i, what, &answer);
            EXPECT_EQ(pages_used_when_idle(), 0) << what;
            stop();
        }
    }
}

TEST_F(Thoughts, BothAnswersOfEachTurn)
{
    for (const int method : { 1, 2, 4 }) {
        start("tq", methods[method], {}, 3);
        Talk t = talk(10);
        for (int i = 0, begun = 0; i < 3; i++) {
            const auto call = ask(t, true, 2);
            call->wait();
            ASSERT_EQ(call->status, WEIR_OK) << call->message;
            const Answer alone = cold(t);
            for (size_t k = 0; k < 2; k++)
                EXPECT_EQ((Answer{ call->tokens[k], call->logprobs[k] }), alone) << i;
            EXPECT_LE(call->usage.n_prompt - call->usage.n_cached, most(t, begun)) << i;
            begun = t.size();
            answered(&t, alone.tokens);
            say(&t, 20 + i);
        }
        EXPECT_EQ(pages_used_when_idle(), 0);
        stop();
    }
}

TEST_F(Thoughts, AfterAnAnswerThatWasCancelled)
{
    for (const char *const model : { "tq", "qwen3" }) {
        start(model, methods[1]);
        Talk t = talk(10);
        const Answer answer = cold(t);
        max_tokens_ = 300;
        const auto call = ask(t);
        for (bool has_begun = false; !has_begun;) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            const std::lock_guard<std::mutex> hold(call->lock);
            has_begun = call->tokens[0].size() > 2 || call->done;
        }
        weir_job_cancel(call->job);
        call->wait();
        EXPECT_EQ(call->status, WEIR_ECANCELED);
        call->release();
        max_tokens_ = THOUGHTS + ANSWER;
        Answer second;
        next(&t, answer, 20, model, &second);
        EXPECT_EQ(pages_used_when_idle(), 0);
        stop();
    }
}

// The last chunk before the first message ends at a checkpoint that all of them continue, and that
// none of them drops.
TEST_F(Thoughts, ConversationsShareTheSystemPrompt)
{
    for (const int method : { 1, 2 }) {
        start("tq", methods[method], {}, 8);
        std::vector<Talk> talks;
        std::vector<Answer> answers;
        for (int i = 0; i < 3; i++) {
            talks.push_back(talk(10 + i));
            answers.push_back(reply(talks.back()));
            if (i > 0) EXPECT_LE(n_computed(), most(talks.back(), SYSTEM)) << usage_.reuse;
            EXPECT_EQ(answers.back(), cold(talks.back()));
            for (int k = 0; k <= i; k++)
                next(&talks[k], answers[k], 20 + 7 * i + k, "shared", &answers[k]);
        }
        const Talk other = talk(50, 2);
        (void)reply(other);
        EXPECT_EQ(usage_.n_cached, 0) << "another system prompt";
        EXPECT_EQ(pages_used_when_idle(), 0);
        stop();
    }
}

// Tool calls are answered with the thoughts of the turn in the prompt; the next question comes
// without them.
TEST_F(Thoughts, AfterAnswersToToolsThatHadThem)
{
    for (const int method : { 1, 2 }) {
        start("tq", methods[method]);
        Talk t = talk(10);
        Answer answer = reply(t);
        next(&t, answer, 20, "before", &answer);
        const int begun = t.size();
        Talk with = t, without = t;
        for (int i = 0; i < 4; i++) {
            answered(&with, answer.tokens, 0);
            answered(&without, answer.tokens);
            say(&with, 30 + i, 20);
            say(&without, 30 + i, 20);
            answer = reply(with);
            EXPECT_LE(n_computed(), 20 + 7) << usage_.reuse;
        }
        answered(&without, answer.tokens);
        say(&without, 40);
        answer = reply(without);
        EXPECT_LE(n_computed(), most(without, begun)) << usage_.reuse;
        EXPECT_EQ(answer, cold(without));
        stop();
    }
}

// Of the answers of such a client only the first pushes out what others may continue.
TEST_F(Thoughts, RewrittenAnswersTakeNoPlaceOfOthers)
{
    enum { OTHERS = 7 };
    start("qwen3", methods[1], { "kv.policy.kept=8" }, 8);
    std::vector<Talk> others;
    for (int i = 0; i < OTHERS; i++) {
        others.push_back(talk(50 + i, 2 + i));
        answered(&others.back(), reply(others.back()).tokens, 0);
    }
    Talk t = talk(10);
    Answer answer = reply(t);
    for (int i = 0; i < 3; i++) next(&t, answer, 20 + i, "strips", &answer);
    const int n = others[0].size() - 2; /* the last token of an answer is not computed */
    say(&others[0], 60);
    (void)reply(others[0]);
    EXPECT_EQ(usage_.n_cached, n) << "the least recently used one: " << usage_.reuse;
    EXPECT_EQ(pages_used_when_idle(), 0);
}

// A session is the end of a turn, of which such a client continues nothing: its next turn is
// computed from nothing, those after it are not.
TEST_F(Thoughts, AfterARestart)
{
    for (const int method : { 1, 2 }) {
        start_with_sessions("tq", methods[method]);
        Talk t = talk(10);
        Answer answer = reply(t);
        answered(&t, answer.tokens);
        say(&t, 20);
        session_ = "talk";
        answer = reply(t);
        session_ = nullptr;
        const int n = t.size() + 2 + THOUGHTS + ANSWER - 1;
        ASSERT_EQ(save("talk"), WEIR_OK) << error_.text;
        EXPECT_EQ(result_.n_tokens, n);
        stop();
        start_with_sessions("tq", methods[method]);
        ASSERT_EQ(restore("talk"), WEIR_OK) << error_.text;
        Talk with = t;
        answered(&with, answer.tokens, 0);
        say(&with, 30);
        (void)reply(with);
        EXPECT_EQ(usage_.n_cached, n) << usage_.reuse;
        answered(&t, answer.tokens);
        say(&t, 31);
        answer = reply(t);
        EXPECT_EQ(usage_.n_cached, 0) << usage_.reuse;
        EXPECT_EQ(answer, cold(t));
        next(&t, answer, 32, "after", &answer);
        EXPECT_EQ(pages_used_when_idle(), 0);
        stop();
    }
}

// Other prompts need all pages: the turn after them is computed from nothing, those after it are
// not.
TEST_F(Thoughts, PointsGoWhenMemoryIsShort)
{
    for (const int method : { 1, 2, 4 }) {
        start("qwen3", methods[method]);
        Talk t = talk(10);
        Answer answer = reply(t);
        next(&t, answer, 20, "before", &answer);
        for (int i = 0; i < 2; i++) {
            const auto a = begin(prompt(60 + i, 480)), b = begin(prompt(70 + i, 480));
            for (const auto *const call : { &a, &b }) {
                (*call)->wait();
                EXPECT_EQ((*call)->status, WEIR_OK) << (*call)->message;
                (*call)->release();
            }
        }
        answered(&t, answer.tokens);
        say(&t, 30);
        answer = reply(t);
        EXPECT_EQ(usage_.n_cached, 0);
        EXPECT_EQ(answer, cold(t));
        next(&t, answer, 31, "after", &answer);
        EXPECT_EQ(pages_used_when_idle(), 0);
        stop();
    }
}

// A pool that holds too little for all: preempted turns come to the same answers, whether the
// checkpoint that they continued is still there or not.
TEST_F(Thoughts, PreemptedTurnsAnswerAlike)
{
    enum { TALKS = 3 };
    int64_t preemptions = 0;
    int n_continued = 0;
    for (const Method &method : { Method{ "h2o", "sinks=2,recent=16,every=100", 150 },
                                  Method{ "keydiff", "every=100,in_prompt=true", 150 } }) {
        std::vector<Talk> first, second;
        std::vector<Answer> answers, expected;
        start("qwen3", method, {}, TALKS);
        for (int i = 0; i < TALKS; i++) {
            first.push_back(talk(20 + i, 2 + i, 60 + 10 * i));
            answers.push_back(cold(first.back()));
            second.push_back(first.back());
            answered(&second.back(), answers.back().tokens);
            say(&second.back(), 40 + i);
            max_tokens_ = 120;
            expected.push_back(cold(second.back()));
            max_tokens_ = THOUGHTS + ANSWER;
        }
        const weir_plan plan = *weir_engine_plan_of(engine_);
        const std::string memory = /* 11 blocks of the 24 */
            std::to_string((weir_plan_total(&plan) - plan.kv / 24 * 13) >> 10) + "KiB";
        stop();
        start("qwen3", method, {}, TALKS, memory.c_str());
        for (size_t i = 0; i < TALKS; i++) EXPECT_EQ(reply(first[i]), answers[i]) << method.name;
        std::vector<std::unique_ptr<Call>> calls;
        max_tokens_ = 120;
        for (const Talk &t : second) calls.push_back(question(t));
        submit_together(service_, calls, &error_);
        for (size_t i = 0; i < TALKS; i++) {
            EXPECT_EQ(end(std::move(calls[i])), expected[i]) << method.name << " " << i;
            n_continued += usage_.n_cached > 0;
        }
        max_tokens_ = THOUGHTS + ANSWER;
        preemptions += stats().preemptions;
        EXPECT_EQ(pages_used_when_idle(), 0);
        stop();
    }
    EXPECT_GT(preemptions, 0);
    EXPECT_GT(n_continued, 1);
}

} // namespace
