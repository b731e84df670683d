// A whole engine on the kernels of a GPU, emulated, over memory that the host cannot touch. Its
// probabilities are the CPU's but for rounding; its own answers are the same bits cold, warm, in a
// batch, saved and restored, from tiers below.
#include <cmath>

#include "offload/device_table.h"
#include "tests/unit/schedule/small_memory.h"

namespace {

using support::Call;

struct Answer {
    std::vector<float> prompt, logprobs;
    std::vector<int32_t> tokens;
    bool operator==(const Answer &other) const
    {
        return tokens == other.tokens && logprobs == other.logprobs;
    }
};

/* Devices that are called "checked" are GPUs while it lives. */
class Gpu {
  public:
    Gpu()
    {
        size_t n;
        const weir_kernel *const *const rows = weir_device_rows(&n);
        weir_device_check_with(rows, n, 80);
    }
    Gpu(const Gpu &) = delete;
    Gpu &operator=(const Gpu &) = delete;
    ~Gpu() { weir_device_check_with(nullptr, 0, 0); }
};

/* A fixture of services with one more way to ask. */
template <class Base> class Asking : public Base {
  protected:
    using Base::Base;
    Answer run(
        const std::vector<int32_t> &ids, int max_tokens, bool with_prompt = false,
        const weir_policy_options *policy = nullptr
    )
    {
        Call call(ids, max_tokens);
        call.request.cache_prompt = !with_prompt;
        call.request.want_logprobs = true;
        call.request.want_prompt_logprobs = with_prompt;
        call.request.policy = policy;
        call.request.kv_budget = policy != nullptr ? 96 : 0;
        Answer out;
        out.tokens = this->answer(call);
        out.logprobs = call.logprobs[0];
        out.prompt = call.prompt_logprobs;
        return out;
    }
    std::vector<int32_t> text(int seed, int n) const
    {
        auto ids = this->prompt(seed, n);
        for (int32_t &id : ids) id %= 250; /* in the smallest vocabulary */
        return ids;
    }
    Gpu gpu_;
};

class EmulatedGpu : public Asking<support::SessionService> {
  protected:
    EmulatedGpu() : Asking("emulated-gpu", 512) {}
    void begin(
        const char *model, const char *device, const char *format,
        std::vector<const char *> more = {}
    )
    {
        /* This program's table has the reference for the CPU: weights in a layout that it reads,
         * whatever this machine prefers. */
        more.insert(more.end(), { device, format, "kernels.isa=v2" });
        start(model, more);
    }
    void in_a_batch(const std::vector<int32_t> &ids, const Answer &want, const std::string &what)
    {
        Call a(ids, 6), b(text(3, 40), 6);
        a.request.want_logprobs = b.request.want_logprobs = true;
        for (Call *const call : { &a, &b })
            ASSERT_EQ(call->submit(service_, &error_), WEIR_OK) << error_.text;
        for (Call *const call : { &a, &b }) call->wait();
        EXPECT_EQ(a.tokens[0], want.tokens) << what << ": in a batch";
        EXPECT_EQ(a.logprobs[0], want.logprobs) << what << ": in a batch";
    }
};

float furthest(const std::vector<float> &a, const std::vector<float> &b)
{
    EXPECT_EQ(a.size(), b.size());
    float most = 0;
    for (size_t i = 0; i < a.size() && i < b.size(); i++)
        most = std::fmax(most, std::fabs(a[i] - b[i]));
    return std::isfinite(most) ? most : INFINITY;
}

double mean_off(const std::vector<float> &a, const std::vector<float> &b)
{
    double sum = 0;
    EXPECT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size() && i < b.size(); i++)
        sum += std::fabs((double)a[i] - (double)b[i]);
    return sum / (double)a.size();
}

/* Every type of weight, every KV format that a GPU has, every kind of layer. Fast activations are
 * rounded: of quantised weights to int8 as on the CPU, of bf16 weights to bf16, which CPUs leave in
 * f32 (docs/decisions/0028). Models of random weights show that at some tokens. */
TEST_F(EmulatedGpu, ProbabilitiesAreTheCpus)
{
    const struct {
        const char *model, *format;
    } cases[] = { { "tq", "kv.format=f16" },
                  { "tq", "kv.format=q8_0" },
                  { "tq", "kv.format=turbo4" },
                  { "tq/tq-q8_0.gguf", "kv.format=bf16" },
                  { "tq/tq-q4_0.gguf", "kv.format=f16" },
                  { "tq-k/tq-k-q4_k.gguf", "kv.format=q8_0" },
                  { "tq-k/tq-k-q6_k.gguf", "kv.format=f16" },
                  { "tq-r1", "kv.format=f16" },
                  { "tq-tied", "kv.format=q8_0" },
                  { "qwen3", "kv.format=f16" },
                  { "qwen3-untied", "kv.format=turbo4" },
                  { "qwen2", "kv.format=bf16" },
                  { "mistral", "kv.format=f16" },
                  { "llama3", "kv.format=f16" } };
    for (const auto &c : cases) {
        const std::string what = std::string(c.model) + " " + c.format;
        const auto ids = text(1, 100);
        Answer answers[2][2]; /* [f32, fast activations][CPU, GPU] */
        for (int fast = 0; fast < 2; fast++)
            for (int gpu = 0; gpu < 2; gpu++) {
                begin(
                    c.model, gpu ? "kernels.device=checked" : "kernels.device=cpu", c.format,
                    { fast ? "kernels.activations=fast" : "kernels.activations=f32" }
                );
                EXPECT_EQ(std::string(weir_engine_plan_of(engine_)->device) == "checked", gpu == 1)
                    << what;
                answers[fast][gpu] = run(ids, 8, true);
                stop(); /* asserts that no memory of the device is left */
            }
        EXPECT_LT(furthest(answers[0][1].prompt, answers[0][0].prompt), 2e-4f) << what;
        EXPECT_EQ(answers[0][1].tokens, answers[0][0].tokens) << what;
        EXPECT_LT(furthest(answers[0][1].logprobs, answers[0][0].logprobs), 2e-4f) << what;
        const double cpu = mean_off(answers[1][0].prompt, answers[0][0].prompt),
                     gpu = mean_off(answers[1][1].prompt, answers[0][0].prompt);
        if (what.find(".gguf") != std::string::npos)
            EXPECT_LT(gpu, 1.2 * cpu)
                << what; /* int8 activations here and there, the same bits in products */
        else
            EXPECT_LT(gpu, 0.1) << what;
    }
}

/* What the policies of requests look at, and what they leave, is the CPU's; masses in f16 alone. */
TEST_F(EmulatedGpu, PoliciesKeepWhatTheyKeepOnTheCpu)
{
    const struct {
        const char *name, *options, *format;
    } methods[] = { { "sinks", "sinks=4,every=1", "kv.format=q8_0" },
                    { "h2o", "sinks=2,recent=16,every=4", "kv.format=f16" },
                    { "snapkv", "window=8,every=16", "kv.format=q8_0" },
                    { "rkv", "window=8,every=16,recent=8", "kv.format=f16" },
                    { "keydiff", "every=8", "kv.format=turbo4" } };
    for (const auto &method : methods) {
        weir_policy_options options;
        ASSERT_EQ(weir_policy_options_default(&options, method.name, &error_), WEIR_OK)
            << error_.text;
        ASSERT_EQ(weir_policy_options_set(&options, method.options, &error_), WEIR_OK)
            << error_.text;
        begin("qwen3", "kernels.device=cpu", method.format);
        const Answer want = run(text(2, 220), 8, false, &options);
        const auto evicted = usage_.n_evicted;
        EXPECT_GT(evicted, 0) << method.name;
        stop();
        begin("qwen3", "kernels.device=checked", method.format);
        const Answer got = run(text(2, 220), 8, false, &options);
        EXPECT_EQ(got.tokens, want.tokens) << method.name;
        EXPECT_LT(furthest(got.logprobs, want.logprobs), 2e-4f) << method.name;
        EXPECT_EQ(usage_.n_evicted, evicted) << method.name;
        stop();
    }
}

TEST_F(EmulatedGpu, OneDeviceGivesOneAnswer)
{
    for (const char *const model : { "tq", "qwen3" })
        for (const char *const format : { "kv.format=f16", "kv.format=q8_0" }) {
            const std::string what = std::string(model) + " " + format;
            auto turn = text(1, 150);
            begin(model, "kernels.device=checked", format);
            const Answer cold = run(turn, 6);
            EXPECT_EQ(run(turn, 6), cold) << what << ": warm";
            EXPECT_GT(usage_.n_cached, 0) << what;
            in_a_batch(turn, cold, what);
            turn.insert(turn.end(), cold.tokens.begin(), cold.tokens.end());
            ASSERT_EQ(save("talk", turn), WEIR_OK) << error_.text;
            turn.push_back(7);
            const Answer next = run(turn, 6);
            stop();
            begin(model, "kernels.device=checked", format);
            EXPECT_EQ(run(turn, 6), next) << what << ": computed at once";
            stop();
            begin(model, "kernels.device=checked", format);
            ASSERT_EQ(restore("talk"), WEIR_OK) << error_.text;
            EXPECT_EQ(run(turn, 6), next) << what << ": restored";
            EXPECT_GT(usage_.n_cached, 140) << what;
            stop();
            begin(model, "kernels.device=cpu", format);
            EXPECT_EQ(restore("talk"), WEIR_EMISMATCH) << what;
            EXPECT_NE(strstr(error_.text, "device checked sm_"), nullptr) << error_.text;
            EXPECT_NE(strstr(error_.text, "(here cpu)"), nullptr) << error_.text;
            stop();
            std::filesystem::remove_all(folder_);
        }
}

class EmulatedGpuTiers : public Asking<support::SmallMemory> {
  protected:
    EmulatedGpuTiers() : Asking("emulated-gpu-tiers") {}
    /* Blocks of 64 tokens on the device, on the host and on disk; 0: the device holds all. */
    void start(
        const std::string &model, const std::string &format, int64_t near, int64_t on_host,
        int64_t on_disk
    )
    {
        std::vector<std::string> settings = settings_of(model);
        settings.insert(
            settings.end(),
            { format, "kernels.device=checked", "memory.host=256MiB", "memory.disk=16MiB" }
        );
        measure_block(settings);
        settings.push_back("memory.disk=" + std::to_string(on_disk * block_) + "B");
        settings.push_back("kv.tiers.host=" + std::to_string(on_host * block_) + "B");
        if (near > 0)
            configure_least(settings, "memory.device", near);
        else
            configure(settings);
        open_configured();
    }
};

TEST_F(EmulatedGpuTiers, GiveTheBitsOfMemoryForAll)
{
    for (const auto &[model, format] :
         { std::pair{ "tq", "kv.format=f16" }, { "qwen3", "kv.format=q8_0" } }) {
        const auto ids = text(1, 900);
        start(model, format, 0, 0, 0);
        const Answer want = run(ids, 6);
        stop();
        for (const auto &[on_host, on_disk] : { std::pair{ 40, 0 }, { 5, 35 } }) {
            start(model, format, 8, on_host, on_disk);
            EXPECT_EQ(run(ids, 6), want)
                << model << " " << format << ", " << on_host << " blocks on the host";
            EXPECT_GE(stats().kv_bytes_out, 4 * block_);
            expect_within();
            stop();
        }
    }
}

} // namespace
