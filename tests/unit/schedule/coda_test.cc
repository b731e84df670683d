/* Service over models with coda layers: warm answers are cold answers, also with others in the
 * steps, what was preempted, saved and restored. */
#include "engine/session/sessions.h"
#include "tests/unit/model/coda.h"
#include "tests/unit/schedule/call.h"

namespace {

using support::Call;

constexpr char OPTIONS[] = "window = 24\nlandmarks_exact = 6\nlandmarks_summary = 5\nblock_rows = "
                           "32\nexact_gate = 0.0\nsummary_gate = 0.0\n"
                           "lambda_bias = 0\n";

class CodaService : public ::testing::TestWithParam<const char *> {
  protected:
    void open(int slots, const support::Settings &more = {})
    {
        weir_config *const config = &config_;
        weir_config_default(config);
        if (settings_.empty() && std::string(GetParam()) == "plain")
            support::write_plain_coda(
                folder_, std::string(OPTIONS) + "gate = \"value_norm\"\n", &settings_
            );
        else if (settings_.empty())
            support::write_coda(folder_, GetParam(), support::coda_block(OPTIONS), &settings_);
        snprintf(config->model.path, sizeof config->model.path, "%s", folder_.path().c_str());
        support::Settings settings = settings_;
        settings.insert(
            settings.end(), { "kernels.activations=f32", "batch.chunk=256", "model.context=512",
                              "batch.max_sequences=" + std::to_string(slots) }
        );
        settings.insert(settings.end(), more.begin(), more.end());
        for (const std::string &setting : settings)
            ASSERT_EQ(weir_config_assign(config, setting.c_str(), &error_), WEIR_OK) << error_.text;
        const weir_engine_options options = { config, true, false, nullptr, nullptr, nullptr };
        ASSERT_EQ(weir_engine_open_with(&engine_, &options, &error_), WEIR_OK) << error_.text;
        service_ = weir_engine_service(engine_);
    }
    void TearDown() override { close(); }
    void close()
    {
        weir_engine_close(engine_);
        engine_ = nullptr;
    }
    std::vector<int32_t> run(
        const std::vector<int32_t> &ids, bool cache = true, int max_tokens = 12
    )
    {
        Call call(ids, max_tokens);
        call.request.cache_prompt = cache;
        call.request.sampling.temperature = 0;
        EXPECT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
        call.wait();
        EXPECT_EQ(call.status, WEIR_OK) << call.message;
        usage_ = call.usage;
        return call.tokens[0];
    }
    static std::vector<int32_t> prompt(int seed, int n)
    {
        return support::some_tokens(static_cast<size_t>(n), seed, 300);
    }
    support::Folder folder_;
    support::Settings settings_;
    weir_config config_;
    weir_engine *engine_ = nullptr;
    weir_service *service_ = nullptr;
    weir_error error_ = {};
    weir_usage usage_ = {};
    weir_bank_stats banks_ = {};
};

/* Their metadata is the host's: a device leaves such a model to the CPU, and says so. */
TEST_P(CodaService, IsComputedByTheCpu)
{
    open(1, { "kernels.device=cpu" });
    const auto want = run(prompt(1, 100));
    close();
    open(1, { "kernels.device=checked" });
    const weir_plan *const plan = weir_engine_plan_of(engine_);
    EXPECT_STREQ(plan->device, "cpu");
    EXPECT_NE(std::string(plan->device_why).find("CoDA"), std::string::npos) << plan->device_why;
    EXPECT_EQ(run(prompt(1, 100)), want);
}

TEST_P(CodaService, SequencesAreContinuedAtTheEndsOfBlocks)
{
    open(2);
    const auto tokens = prompt(1, 200),
               cold = run(tokens, false, 25); /* what is computed of it ends with a block */
    EXPECT_EQ(run(tokens, true, 25), cold);
    EXPECT_EQ(run(tokens, true, 25), cold);
    EXPECT_EQ(usage_.n_cached, 192) << usage_.reuse;
    auto turn = tokens;
    turn.insert(turn.end(), cold.begin(), cold.end());
    const auto more = prompt(2, 47);
    turn.insert(turn.end(), more.begin(), more.end());
    const auto cold_turn = run(turn, false);
    EXPECT_EQ(run(turn), cold_turn) << "an answer that is read is a prompt";
    EXPECT_EQ(usage_.n_cached, 192);
    EXPECT_EQ(run(turn), cold_turn);
    EXPECT_EQ(usage_.n_cached, 256);
    const auto brief = prompt(3, 20), answer = run(brief, false);
    EXPECT_EQ(run(brief), answer);
    EXPECT_EQ(run(brief), answer);
    EXPECT_EQ(usage_.n_cached, 0) << "shorter than a block";
}

/* While others decode, prompts come in smaller pieces; one row of a prompt is not a step. */
TEST_P(CodaService, AnyBatchGivesTheSameAnswers)
{
    open(4);
    std::vector<std::vector<int32_t>> prompts, alone;
    for (int i = 0; i < 8; i++)
        prompts.push_back(prompt(10 + i, i == 3 ? 129 : i == 5 ? 257 : 1 + 37 * i));
    for (const auto &ids : prompts) alone.push_back(run(ids, false, 16));
    for (const bool caches : { false, true, true }) {
        std::vector<std::unique_ptr<Call>> calls;
        for (const auto &ids : prompts) {
            calls.push_back(std::make_unique<Call>(ids, 16));
            calls.back()->request.sampling.temperature = 0;
            calls.back()->request.cache_prompt = caches;
            ASSERT_EQ(calls.back()->submit(service_, &error_), WEIR_OK) << error_.text;
        }
        for (size_t i = 0; i < calls.size(); i++) {
            calls[i]->wait();
            EXPECT_EQ(calls[i]->tokens[0], alone[i]) << "prompt " << i;
        }
    }
}

TEST_P(CodaService, ScoredPromptsAndSeveralChoicesAreTheSame)
{
    open(3);
    const auto tokens = prompt(4, 150), alone = run(tokens, false, 10);
    Call scored(tokens, 10);
    scored.request.sampling.temperature = 0;
    scored.request.want_prompt_logprobs = true;
    ASSERT_EQ(scored.submit(service_, &error_), WEIR_OK) << error_.text;
    scored.wait();
    EXPECT_EQ(scored.tokens[0], alone);
    EXPECT_EQ(scored.prompt_logprobs.size(), tokens.size() - 1);
    Call choices(tokens, 10);
    choices.request.sampling.temperature = 0;
    choices.request.n_choices = 3;
    ASSERT_EQ(choices.submit(service_, &error_), WEIR_OK) << error_.text;
    choices.wait();
    for (const auto &answer : choices.tokens) EXPECT_EQ(answer, alone);
}

TEST_P(CodaService, SessionsGoOnAfterARestart)
{
    const support::Settings dir = { "sessions.dir=" + (folder_ / "sessions") };
    std::filesystem::create_directories(folder_ / "sessions");
    open(2, dir);
    const auto tokens = prompt(6, 150), cold = run(tokens, false);
    weir_session_result result = {};
    EXPECT_EQ(run(tokens), cold);
    const weir_session_request request = { "talk", nullptr, tokens.data(), 150 };
    ASSERT_EQ(
        weir_sessions_save(weir_engine_sessions(engine_), &request, &result, &error_), WEIR_OK
    ) << error_.text;
    EXPECT_GE(result.n_tokens, 128);
    close();
    open(2, dir);
    ASSERT_EQ(
        weir_sessions_restore(weir_engine_sessions(engine_), "talk", &result, &error_), WEIR_OK
    ) << error_.text;
    EXPECT_EQ(run(tokens), cold);
    EXPECT_EQ(usage_.n_cached, 128) << usage_.reuse;
    close();
    /* Other options leave other states of the same size. */
    std::string arch = support::read_file(folder_ / "archs/coda.toml");
    support::write_file(
        folder_ / "archs/coda.toml",
        support::with(arch, "lambda_bias = 0", "lambda_bias = 0\nnovelty = 0.6")
    );
    open(2, dir);
    EXPECT_EQ(
        weir_sessions_restore(weir_engine_sessions(engine_), "talk", &result, &error_),
        WEIR_EMISMATCH
    ) << error_.text;
}

/* Log-probabilities tell more than tokens: of the answer, and of what was computed again. */
TEST_P(CodaService, ASessionGoesOnWithTheSameBits)
{
    const support::Settings dir = { "sessions.dir=" + (folder_ / "sessions") };
    std::filesystem::create_directories(folder_ / "sessions");
    open(2, dir);
    const auto tokens = prompt(7, 300);
    const auto scores = [&](bool cache, int want_cached) {
        Call call(tokens, 40);
        call.request.sampling.temperature = 0;
        call.request.want_logprobs = true;
        call.request.n_top_logprobs = 5;
        call.request.cache_prompt = cache;
        EXPECT_EQ(call.submit(service_, &error_), WEIR_OK) << error_.text;
        call.wait();
        EXPECT_EQ(call.usage.n_cached, want_cached) << call.usage.reuse;
        banks_ = call.usage.banks;
        return call.logprobs[0];
    };
    const auto cold = scores(false, 0);
    const weir_bank_stats banks = banks_;
    EXPECT_EQ(scores(true, 0), cold);
    weir_session_result result = {};
    const weir_session_request request = { "bits", nullptr, tokens.data(), 300 };
    ASSERT_EQ(
        weir_sessions_save(weir_engine_sessions(engine_), &request, &result, &error_), WEIR_OK
    ) << error_.text;
    close();
    open(2, dir);
    ASSERT_EQ(
        weir_sessions_restore(weir_engine_sessions(engine_), "bits", &result, &error_), WEIR_OK
    ) << error_.text;
    EXPECT_EQ(scores(true, 288), cold);
    EXPECT_EQ(memcmp(&banks_, &banks, sizeof banks), 0) << "what the banks counted goes along";
}

/* ---- what is told ---------------------------------------------------------------------------- */
TEST_P(CodaService, RepliesTellWhatLeftAndWhatStayed)
{
    open(3);
    const int64_t n_layers = std::string(GetParam()) == "\"coda\"" ? 2 : 1, n = 200 + 25 - 1;
    const auto stats = [&] {
        weir_service_stats now;
        weir_service_stats_of(service_, &now);
        return now;
    };
    (void)run(prompt(8, 200), true, 25);
    const weir_usage first = usage_;
    EXPECT_EQ(first.banks.n_layers, n_layers);
    EXPECT_EQ(first.banks.n_rows, n_layers * n);
    EXPECT_EQ(first.banks.ring.used, n_layers * 24);
    EXPECT_EQ(first.banks.ring.slots, n_layers * 24);
    EXPECT_EQ(first.banks.exact.slots, n_layers * 6);
    EXPECT_EQ(first.banks.summary.slots, n_layers * 5);
    EXPECT_GT(first.banks.exact.used, 0);
    EXPECT_EQ(first.banks.counts[WEIR_BANK_STATS_EVICTIONS], n_layers * (n - 24));
    EXPECT_EQ(first.n_rows + first.n_evicted, n);
    EXPECT_LE(first.n_rows, 24 + 6);
    EXPECT_EQ(first.n_evicted, weir_bank_stats_evicted(&first.banks));
    EXPECT_EQ(stats().banks.counts[WEIR_BANK_STATS_EVICTIONS], n_layers * (n - 24));
    EXPECT_EQ(stats().evicted_tokens, 0) << "no policy did it";
    /* A sequence that goes on from a kept one has what was counted for that one, and the service
     * counts it once. */
    (void)run(prompt(8, 200), true, 25);
    ASSERT_EQ(usage_.n_cached, 192);
    EXPECT_EQ(memcmp(&usage_.banks, &first.banks, sizeof first.banks), 0);
    EXPECT_EQ(stats().banks.counts[WEIR_BANK_STATS_EVICTIONS], n_layers * (n - 24 + n - 192));
    Call two(prompt(9, 100), 10);
    two.request.n_choices = 2;
    two.request.sampling.temperature = 0;
    ASSERT_EQ(two.submit(service_, &error_), WEIR_OK) << error_.text;
    two.wait();
    EXPECT_EQ(two.usage.banks.n_layers, n_layers);
    EXPECT_EQ(two.usage.banks.n_rows, 2 * n_layers * 109);
    EXPECT_EQ(two.usage.n_rows + two.usage.n_evicted, 2 * 109);
    weir_service_sequence seen[3];
    EXPECT_EQ(weir_service_facts_of(service_)->banks.n_layers, n_layers);
    EXPECT_EQ(weir_service_facts_of(service_)->banks.exact.slots, n_layers * 6);
    EXPECT_EQ(weir_service_facts_of(service_)->banks.exact.used, 0);
    EXPECT_LE(weir_service_sequences_of(service_, seen), 2);
    const auto brief = prompt(3, 12);
    (void)run(brief, false, 1);
    EXPECT_EQ(usage_.n_evicted, 0) << "all of it is in the ring";
    EXPECT_EQ(usage_.n_rows, 12);
}

/* What an answer wrote row by row is written so again when memory ran short. */
TEST_P(CodaService, APreemptedAnswerIsComputedAgainAsItWas)
{
    if (std::string(GetParam()).find("attn") == std::string::npos)
        GTEST_SKIP() << "nothing runs short: its memory does not grow";
    const support::Settings more = { "kv.reuse=off", "memory.host=1GiB" };
    open(6, more);
    std::vector<std::vector<int32_t>> alone;
    for (int i = 0; i < 6; i++) alone.push_back(run(prompt(20 + i, 60 + 11 * i), false, 150));
    const weir_plan plan = *weir_engine_plan_of(engine_);
    close();
    open(
        6, { "kv.reuse=off",
             "memory.host=" + std::to_string((weir_plan_total(&plan) - plan.kv / 4 * 3) >> 10) +
                 "KiB" }
    );
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < 6; i++) {
        calls.push_back(std::make_unique<Call>(prompt(20 + i, 60 + 11 * i), 150));
        calls.back()->request.sampling.temperature = 0;
    }
    submit_together(service_, calls, &error_);
    for (size_t i = 0; i < calls.size(); i++) {
        calls[i]->wait();
        EXPECT_EQ(calls[i]->tokens[0], alone[i]) << i;
    }
    weir_service_stats stats;
    weir_service_stats_of(service_, &stats);
    EXPECT_GT(stats.preemptions, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Models, CodaService, ::testing::Values("\"coda\"", "\"coda\", \"attn\"", "plain"),
    [](const auto &facts) {
        return std::string(facts.index == 0 ? "Coda" : facts.index == 1 ? "Hybrid" : "Plain");
    }
);

} // namespace
