// A device whose memory the host cannot touch gives the host's answers, bit for bit: cold, warm, in
// a batch, evicted, saved and restored.
#include <map>

#include "tests/unit/schedule/support.h"

namespace {

using support::Call;

class OnDevice : public support::SessionService {
  protected:
    OnDevice() : SessionService("device", 512) {}
    void begin(const char *model, const char *device, std::vector<const char *> more = {})
    {
        more.push_back(device);
        open(model, 2, nullptr, context_, 0, more);
        sessions_ = weir_engine_sessions(engine_);
    }
    std::vector<int32_t> run(
        const std::vector<int32_t> &ids, const weir_policy_options *policy = nullptr
    )
    {
        Call call(ids, 16);
        call.request.cache_prompt = true;
        call.request.policy = policy;
        call.request.kv_budget = policy != nullptr ? 96 : 0;
        const auto out = answer(call);
        ledger_is_right();
        return out;
    }
    /* Nothing is on the device that memory.device does not know of: kernels' scratch and what
     * policies pass to kernels included. */
    void ledger_is_right() const
    {
        const weir_ledger *const ledger = weir_engine_ledger(engine_);
        if (const weir_device *const device = weir_ledger_device(ledger))
            EXPECT_EQ(weir_device_held(device), weir_ledger_total(ledger, WEIR_TIER_DEVICE));
    }
    /* In the smallest vocabulary. */
    std::vector<int32_t> tokens(int seed, int n) const
    {
        auto ids = prompt(seed, n);
        for (int32_t &id : ids) id %= 250;
        return ids;
    }
    /* A sequence, its next turn, and two at the same time that share its beginning. */
    std::vector<std::vector<int32_t>> talk()
    {
        std::vector<std::vector<int32_t>> out;
        auto turn = tokens(1, 200);
        out.push_back(run(turn));
        turn.insert(turn.end(), out[0].begin(), out[0].end());
        const auto more = tokens(3, 30);
        turn.insert(turn.end(), more.begin(), more.end());
        out.push_back(run(turn));
        EXPECT_GT(usage_.n_cached, 0) << usage_.reuse;
        auto other = tokens(1, 150);
        other.push_back(9);
        Call a(turn, 16), b(other, 16);
        EXPECT_EQ(a.submit(service_, &error_), WEIR_OK) << error_.text;
        EXPECT_EQ(b.submit(service_, &error_), WEIR_OK) << error_.text;
        for (Call *const call : { &a, &b }) {
            call->wait();
            EXPECT_EQ(call->status, WEIR_OK) << call->message;
            out.push_back(call->tokens[0]);
        }
        return out;
    }
};

TEST_F(OnDevice, AnswersAreTheHosts)
{
    for (const char *const model : { "tq", "tq/tq-q8_0.gguf", "qwen3", "mistral" })
        for (const char *const format :
             { "kv.format=f16", "kv.format=int8", "kv.format=turbo4", "kv.format=kivi2/int8" }) {
            begin(model, "kernels.device=cpu", { format });
            const auto want = talk();
            stop();
            begin(model, "kernels.device=checked", { format });
            EXPECT_STREQ(weir_engine_plan_of(engine_)->device, "checked");
            EXPECT_EQ(talk(), want) << model << " " << format;
            stop(); /* asserts that no memory of the device is left */
        }
}

/* Short convolutions without a state after them, Mamba-2, windows, norms around blocks, scales. */
TEST_F(OnDevice, EveryFamilyAnswersAsOnTheHost)
{
    for (const char *const model : { "lfm2", "nemotron-h", "gemma3", "granite", "olmo2", "olmo3",
                                     "phi3", "phi4-mini", "smollm3" }) {
        const std::string path = std::string("../families/") + model;
        begin(path.c_str(), "kernels.device=cpu");
        const auto want = talk();
        stop();
        begin(path.c_str(), "kernels.device=checked");
        EXPECT_STREQ(weir_engine_plan_of(engine_)->device, "checked") << model;
        EXPECT_EQ(talk(), want) << model;
        stop();
    }
}

TEST_F(OnDevice, PoliciesKeepTheSameRows)
{
    const struct {
        const char *name, *options;
    } methods[] = {
        { "sinks", "sinks=4,every=1" },    { "h2o", "sinks=2,recent=16,every=4" },
        { "snapkv", "window=8,every=16" }, { "rkv", "window=8,every=16,recent=8" },
        { "keydiff", "every=8" },          { "sinks", "sinks=70,every=1,positions=cache" }
    };
    for (const auto &method : methods)
        for (const char *const format : { "kv.format=f16", "kv.format=int8" }) {
            weir_policy_options options;
            std::map<std::string, std::vector<int32_t>> answers;
            ASSERT_EQ(weir_policy_options_default(&options, method.name, &error_), WEIR_OK)
                << error_.text;
            ASSERT_EQ(weir_policy_options_set(&options, method.options, &error_), WEIR_OK)
                << error_.text;
            for (const char *const device : { "kernels.device=cpu", "kernels.device=checked" }) {
                begin("qwen3", device, { format });
                answers[device] = run(prompt(2, 220), &options);
                EXPECT_GT(usage_.n_evicted, 0) << method.name;
                stop();
            }
            EXPECT_EQ(answers["kernels.device=checked"], answers["kernels.device=cpu"])
                << method.name << " " << format;
        }
}

TEST_F(OnDevice, SessionsGoFromOneToTheOther)
{
    const char *const devices[] = { "kernels.device=checked", "kernels.device=cpu" };
    for (const char *const model : { "tq", "qwen3" })
        for (int first = 0; first < 2; first++) {
            std::filesystem::remove_all(folder_);
            auto turn = prompt(1, 200);
            begin(model, devices[first], { setting_.c_str() });
            const auto before = run(turn);
            turn.insert(turn.end(), before.begin(), before.end());
            ASSERT_EQ(save("talk", turn), WEIR_OK) << error_.text;
            turn.resize(250, 5);
            const auto want = run(turn);
            stop();
            begin(model, devices[1 - first], { setting_.c_str() });
            ASSERT_EQ(restore("talk"), WEIR_OK) << error_.text;
            EXPECT_EQ(run(turn), want) << model << " from " << devices[first];
            EXPECT_GT(usage_.n_cached, 190) << usage_.reuse;
            stop();
        }
}

TEST_F(OnDevice, RequestsLeaveNothingThere)
{
    begin("tq", "kernels.device=checked", { "kv.reuse=off" });
    const weir_ledger *const ledger = weir_engine_ledger(engine_);
    (void)run(prompt(1, 100));
    EXPECT_EQ(pages_used_when_idle(), 0);
    const size_t before = weir_ledger_total(ledger, WEIR_TIER_DEVICE);
    EXPECT_GT(before, 0u);
    for (int i = 0; i < 60; i++) (void)run(prompt(i, 20 + i));
    EXPECT_EQ(pages_used_when_idle(), 0);
    EXPECT_EQ(weir_ledger_total(ledger, WEIR_TIER_DEVICE), before);
    EXPECT_LE(before, weir_plan_device_total(weir_engine_plan_of(engine_)));
}

TEST_F(OnDevice, TooLittleMemoryIsRefusedWithTheArithmetic)
{
    weir_config config;
    weir_config_default(&config);
    snprintf(config.model.path, sizeof config.model.path, "tests/golden/models/tq");
    ASSERT_EQ(weir_config_assign(&config, "kernels.device=checked", &error_), WEIR_OK);
    ASSERT_EQ(weir_config_assign(&config, "memory.device=1MiB", &error_), WEIR_OK);
    weir_engine *engine = nullptr;
    const weir_engine_options options = { &config, true, false, nullptr, nullptr, nullptr };
    EXPECT_EQ(weir_engine_open_with(&engine, &options, &error_), WEIR_EFULL);
    EXPECT_NE(std::string(error_.text).find("memory.device"), std::string::npos) << error_.text;
}

} // namespace
