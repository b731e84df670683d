/* Latent rows (DeepSeek, Kimi Linear) in every KV format and with every policy: prefix cache, disk,
 * preemption and sessions give the answers of the same request alone and cold, or the engine says
 * at its start why not. */
#include <cmath>
#include <map>

#include "kernels/abi/kv_format.h"
#include "tests/every_nth.h"
#include "tests/unit/schedule/reuse.h"

namespace {

using support::Call;
using weir_test::every_nth;

const char *const dense = "deepseek3", /* rows of 32 + 8 */
    *const hybrid = "../families/kimi-linear"; /* of 24 + 8, and layers with states */

/* Blocks of codes have 32 dims, so the dense model's rows do not fit; says: the refusal. */
struct Format {
    weir_kv_format format;
    const char *model, *says;
    double near; /* mean difference of log-probabilities from those of f16; random weights */
};
const Format formats[] = {
    { WEIR_KV_F32, dense, "", 0.002 },
    { WEIR_KV_F16, dense, "", 0 },
    { WEIR_KV_BF16, dense, "", 0.03 },
    { WEIR_KV_Q8_0, dense, "q8_0 for keys takes head widths that are multiples of 32", 0 },
    { WEIR_KV_Q8_0, hybrid, "", 0.02 },
    { WEIR_KV_Q4_0, dense, "q4_0 for keys takes head widths that are multiples of 32", 0 },
    { WEIR_KV_Q4_0, hybrid, "", 0.2 },
    { WEIR_KV_INT8, dense, "", 0.04 },
    { WEIR_KV_FP8_E4M3, dense, "", 0.25 },
    { WEIR_KV_FP8_E5M2, dense, "", 0.45 },
    { WEIR_KV_KIVI2, dense, "", 1 },
    { WEIR_KV_KIVI4, dense, "", 0.4 },
    { WEIR_KV_KIVI8, dense, "", 0.04 },
    { WEIR_KV_TURBO2, hybrid, "codes are of rotated keys: their dims are no values", 0 },
    { WEIR_KV_TURBO3, hybrid, "codes are of rotated keys: their dims are no values", 0 },
    { WEIR_KV_TURBO4, hybrid, "codes are of rotated keys: their dims are no values", 0 },
};

std::vector<Format> all_computed_formats()
{
    std::vector<Format> out;
    for (const Format &f : formats)
        if (f.says[0] == '\0') out.push_back(f);
    return out;
}

/* With a sanitizer a part of them, of both models. */
std::vector<Format> computed_formats() { return every_nth(all_computed_formats(), 4); }

std::string set_format(const Format &f)
{
    return std::string("kv.format=") + weir_kv_format_name(f.format);
}

/* Every policy, with windows that fit prompts of a few hundred tokens. */
struct Method {
    const char *options, *says; /* says: the refusal */
};
const char *const turns = "rotates the first dims of keys, and this model's rotated dims are the "
                          "last of a latent row";
const std::map<std::string, Method> methods = {
    { "sinks", { "sinks=4,every=1", "" } },
    { "h2o", { "sinks=2,recent=16,every=4", "" } },
    { "observed", { "every=4", "" } },
    { "scissorhands", { "recent=16,every=4,history=64", "" } },
    { "snapkv", { "window=8,every=16", "" } },
    { "snapkv_original", { "window=8,every=16", "" } },
    { "snapkv_decode", { "window=8,every=16", "" } },
    { "rkv", { "window=8,every=16,recent=8", "" } },
    { "tova", { "every=1", "" } },
    { "keydiff", { "every=8", "" } },
    { "knorm", { "every=8", "" } },
    { "expected", { "every=8", turns } },
    { "lagkv", { "lag=16,every=16", "" } },
    { "landmarks", { "every=8", "" } },
    { "triattention", { "every=8", turns } },
    { "duo", { "sinks=4,recent=28,every=1,heads=0:0", "" } },
    { "random", { "every=8", "" } },
};

class Latents : public support::Reuse {
  protected:
    /* What the engine says about these settings; "": it can be opened. */
    std::string says(const char *model, const std::vector<std::string> &settings)
    {
        weir_plan plan = {};
        weir_config_default(&config_);
        snprintf(config_.model.path, sizeof config_.model.path, "tests/golden/models/%s", model);
        for (const std::string &setting : settings)
            EXPECT_EQ(weir_config_assign(&config_, setting.c_str(), &error_), WEIR_OK)
                << error_.text;
        const weir_engine_options options = { &config_, true, false, nullptr, nullptr, nullptr };
        return weir_engine_plan(&plan, &options, &error_) == WEIR_OK ? "" : error_.text;
    }
    std::vector<float> log_probabilities(const char *model, const std::string &format)
    {
        open(model, 2, nullptr, 512, 0, { format.c_str() });
        Call call(prompt(9, 400), 1);
        call.request.want_prompt_logprobs = true;
        (void)answer(call);
        call.release();
        stop();
        return call.prompt_logprobs;
    }
    std::unique_ptr<Call> with_policy(
        const std::vector<int32_t> &ids, const weir_policy_options *policy, int n_choices = 1,
        bool cache = false
    )
    {
        auto call = std::make_unique<Call>(ids, 24);
        call->request.policy = policy;
        call->request.kv_budget = policy != nullptr ? 64 : 0;
        call->request.n_choices = n_choices;
        call->request.cache_prompt = cache;
        EXPECT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
        return call;
    }
};

/* ---- formats --------------------------------------------------------------------------------- */
TEST_F(Latents, EveryFormatIsComputedOrRefused)
{
    for (int f = 0; f < WEIR_KV_FORMAT_COUNT; f++)
        EXPECT_TRUE(std::any_of(std::begin(formats), std::end(formats), [&](const Format &each) {
            return each.format == f;
        })) << weir_kv_format_name((weir_kv_format)f);
    for (const Format &f : formats) {
        const std::string said = says(f.model, { set_format(f) });
        if (f.says[0] == '\0')
            EXPECT_EQ(said, "") << set_format(f);
        else
            EXPECT_NE(said.find(f.says), std::string::npos) << set_format(f) << ": " << said;
    }
}

TEST_F(Latents, CodedRowsAreNearF16)
{
    std::map<std::string, std::vector<float>> wide;
    for (const char *const model : { dense, hybrid })
        wide[model] = log_probabilities(model, "kv.format=f16");
    for (const Format &f : formats) {
        if (f.says[0] != '\0') continue;
        const std::vector<float> got = log_probabilities(f.model, set_format(f)),
                                 &want = wide[f.model];
        ASSERT_EQ(got.size(), want.size());
        ASSERT_GT(got.size(), 300u);
        double sum = 0;
        for (size_t i = 0; i < got.size(); i++) sum += std::fabs(got[i] - want[i]);
        EXPECT_LE(sum / (double)got.size(), f.near) << set_format(f);
        if (f.format != WEIR_KV_F16) EXPECT_GT(sum, 0) << set_format(f);
    }
}

TEST_F(Latents, RandomSchedulesGiveColdAnswersInEveryFormat)
{
    unsigned seed = 1;
    for (const Format &f : computed_formats())
        if (!HasFailure()) random_schedule(f.model, seed++, set_format(f));
    /* Of few formats none may preempt on a slow machine: the others, until one does. */
    for (const Format &f : all_computed_formats())
        if (!HasFailure() && preemptions_ == 0) random_schedule(f.model, seed++, set_format(f));
    EXPECT_GT(preemptions_, 0);
}

TEST_F(Latents, RandomSchedulesWithADiskGiveColdAnswersInEveryFormat)
{
    unsigned seed = 31;
    for (const Format &f : computed_formats())
        if (!HasFailure()) random_schedule(f.model, seed++, set_format(f), true);
    EXPECT_GT(blocks_out_, 100 / every_nth(4));
    EXPECT_GT(blocks_read_, 250 / every_nth(4));
}

/* ---- policies -------------------------------------------------------------------------------- */
TEST_F(Latents, EveryPolicyIsComputedOrRefused)
{
    const char *name, *summary;
    for (size_t i = 0; (name = weir_policy_at(i, &summary)) != nullptr; i++) {
        if (name == std::string("full")) continue;
        const auto method = methods.find(name);
        ASSERT_NE(method, methods.end()) << name << " is in no test of latents";
        const std::string policy = std::string("kv.policy.name=") + name,
                          options = std::string("kv.policy.options=") + method->second.options,
                          said = says(dense, { policy, options, "kv.policy.budget=64" });
        if (method->second.says[0] == '\0')
            EXPECT_EQ(said, "") << name;
        else
            EXPECT_NE(said.find(method->second.says), std::string::npos) << name << ": " << said;
    }
}

/* Alone, next to others, for two choices, after the prompt was cached; in formats whose pages have
 * rows of their own and are sealed. */
TEST_F(Latents, EveryPolicyAnswersAlikeInAnyCompany)
{
    for (const char *const format : { "kv.format=f16", "kv.format=int8", "kv.format=fp8_e4m3" }) {
        open(dense, 4, nullptr, 512, 0, { format });
        const auto tokens = prompt(1, 230);
        for (const auto &[name, method] : methods) {
            if (method.says[0] != '\0') continue;
            const std::string what = name + " " + format;
            weir_policy_options policy;
            ASSERT_EQ(weir_policy_options_default(&policy, name.c_str(), &error_), WEIR_OK);
            ASSERT_EQ(weir_policy_options_set(&policy, method.options, &error_), WEIR_OK)
                << error_.text;
            const auto alone = with_policy(tokens, &policy);
            alone->wait();
            EXPECT_EQ(alone->status, WEIR_OK) << what << ": " << alone->message;
            EXPECT_GT(alone->usage.n_evicted, 0) << what;
            EXPECT_EQ(alone->usage.n_rows + alone->usage.n_evicted, 230 + 23) << what;
            const auto other = with_policy(prompt(2, 300), nullptr),
                       two = with_policy(tokens, &policy, 2),
                       keeps = with_policy(tokens, nullptr, 1, true);
            for (const auto *const call : { &other, &two, &keeps }) (*call)->wait();
            const auto warm = with_policy(tokens, &policy, 1, true);
            warm->wait();
            EXPECT_EQ(two->tokens[0], alone->tokens[0]) << what;
            EXPECT_EQ(two->tokens[1], alone->tokens[0]) << what;
            EXPECT_EQ(warm->tokens[0], alone->tokens[0])
                << what << ", " << warm->usage.n_cached << " cached";
            for (const auto *const call : { &alone, &other, &two, &keeps, &warm })
                (*call)->release();
        }
        stop();
    }
}

/* ---- sessions -------------------------------------------------------------------------------- */
class LatentSessions : public support::SessionService {
  protected:
    LatentSessions() : SessionService("latent-sessions", 512) {}
    std::vector<int32_t> run(const std::vector<int32_t> &ids)
    {
        Call call(ids, 12);
        call.request.cache_prompt = true;
        call.request.session = "talk";
        return answer(call);
    }
    /* A turn, saved; a restart later the next turn has the bits of an engine that went on. */
    void expect_to_go_on(const char *model, const std::vector<const char *> &settings)
    {
        std::string what = model;
        for (const char *const setting : settings) what += std::string(" ") + setting;
        start(model, settings);
        auto turn = prompt(1, 200);
        const auto before = run(turn);
        turn.insert(turn.end(), before.begin(), before.end());
        ASSERT_EQ(save("talk"), WEIR_OK) << what << ": " << error_.text;
        turn.resize(240, 5);
        const auto uninterrupted = run(turn);
        const int cached = usage_.n_cached;
        EXPECT_GT(cached, 0) << what << ": " << usage_.reuse;
        stop();
        start(model, settings);
        ASSERT_EQ(restore("talk"), WEIR_OK) << what << ": " << error_.text;
        EXPECT_EQ(run(turn), uninterrupted) << what;
        EXPECT_EQ(usage_.n_cached, cached) << what << ": " << usage_.reuse;
        EXPECT_EQ(weir_sessions_delete(sessions_, "talk", &error_), WEIR_OK);
        stop();
    }
};

TEST_F(LatentSessions, EveryFormatGoesOnAfterARestart)
{
    for (const Format &f : formats)
        if (f.says[0] == '\0') expect_to_go_on(f.model, { set_format(f).c_str() });
}

TEST_F(LatentSessions, EveryPolicyGoesOnAfterARestart)
{
    for (const auto &[name, method] : methods) {
        if (method.says[0] != '\0') continue;
        const std::string policy = "kv.policy.name=" + name,
                          options = std::string("kv.policy.options=") + method.options;
        expect_to_go_on(
            dense, { "kv.format=f16", policy.c_str(), "kv.policy.budget=64", options.c_str() }
        );
    }
}

} // namespace
