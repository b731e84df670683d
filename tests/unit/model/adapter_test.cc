/* model.adapter: tensors of another file take the place of the checkpoint's, and model.arch names
 * an architecture that no checkpoint asks for. */
#include "engine/engine_parts.h"
#include "engine/session/session_store.h"
#include "tests/golden/golden.h"
#include "tests/unit/model/coda.h"

namespace {

using support::Array;
using support::Arrays;
using support::Engine;
using support::Folder;
using support::noise;
using support::Sequence;
using support::Settings;

class Adapter : public ::testing::Test {
  protected:
    Adapter()
    {
        std::string why;
        EXPECT_TRUE(tensors_.open(support::golden("llama3/model.safetensors"), &why)) << why;
        for (const std::string &name : tensors_.names())
            base_[name] = { tensors_.shape(name), tensors_.floats(name) };
    }
    /* A checkpoint of these tensors. */
    std::string checkpoint(const std::string &name, const Arrays &arrays)
    {
        std::filesystem::create_directories(folder_ / name);
        support::write_safetensors(folder_ / (name + "/model.safetensors"), arrays);
        support::write_file(
            folder_ / (name + "/config.json"),
            support::read_file(support::golden("llama3/config.json"))
        );
        return folder_ / name;
    }
    std::string adapter(const Arrays &arrays)
    {
        support::write_safetensors(folder_ / "adapter.safetensors", arrays);
        return "model.adapter=" + (folder_ / "adapter.safetensors");
    }
    /* What a trained adapter holds for a layer. */
    static Arrays trained(int layer)
    {
        return { { "theta", noise({ 4, 8 }, 0.5f, layer) },
                 { "lambda_proj.weight", noise({ 4, 64 }, 0.2f, layer + 1) },
                 { "lambda_proj.bias", noise({ 4 }, 1.0f, layer + 2) },
                 { "write_proj.weight", noise({ 1, 64 }, 0.3f, layer + 3) },
                 { "write_proj.bias", noise({ 1 }, 1.0f, layer + 4) },
                 { "summary_eta_logit", noise({ 2 }, 1.0f, layer + 5) },
                 { "q_proj.weight", noise({ 64, 64 }, 0.1f, layer + 6) } };
    }
    std::vector<float> logits(const std::string &path, Settings settings)
    {
        Engine engine;
        settings.insert(
            settings.end(), { "kernels.activations=f32", "kv.format=f32", "batch.max_sequences=2",
                              "batch.chunk=256" }
        );
        EXPECT_EQ(engine.open(path, settings), WEIR_OK) << engine.text();
        if (engine.get() == nullptr) return {};
        Sequence sequence(engine);
        sequence.add(support::some_tokens(400, 5, engine.n_vocab()));
        std::vector<float> out;
        for (const int n : { 256, 144 }) {
            weir_batch_item item = support::item_of(&sequence, n, WEIR_LOGITS_LAST);
            const float *row;
            EXPECT_EQ(weir_runner_step(engine.runner(), &item, 1, &row, engine.error()), WEIR_OK)
                << engine.text();
            out.insert(out.end(), row, row + engine.n_vocab());
        }
        const char *names[4];
        n_unused_ = weir_model_unused(weir_engine_model(engine.get()), names, 4);
        return out;
    }
    std::string why(const std::string &path, const Settings &settings)
    {
        Engine engine;
        EXPECT_NE(engine.open(path, settings), WEIR_OK);
        return engine.text();
    }
    Folder folder_;
    golden::Tensors tensors_;
    Arrays base_;
    size_t n_unused_ = 0;
};

TEST_F(Adapter, ReplacesAndAddsTensorsAsIfTheyWereInTheCheckpoint)
{
    Arrays merged = base_, adapter_tensors;
    for (int layer = 0; layer < 2; layer++)
        for (const auto &[name, array] : trained(layer)) {
            merged["model.layers." + std::to_string(layer) + ".self_attn." + name] = array;
            adapter_tensors["layer_" + std::to_string(layer) + ".coda." + name] = array;
        }
    const std::string plain = checkpoint("plain", base_), whole = checkpoint("whole", merged),
                      coda = "model.arch=llama-coda";
    const auto want = logits(whole, { coda });
    EXPECT_EQ(n_unused_, 0u);
    EXPECT_EQ(logits(plain, { coda, adapter(adapter_tensors) }), want);
    EXPECT_EQ(n_unused_, 0u) << "what is replaced is not reported";
    EXPECT_NE(logits(plain, { coda }), want);
    /* Names of the checkpoint serve, too, and any architecture takes an adapter. */
    const std::string q = "model.layers.1.self_attn.q_proj.weight";
    Arrays other = base_;
    other[q] = merged[q];
    EXPECT_EQ(
        logits(plain, { adapter({ { q, merged[q] } }) }), logits(checkpoint("other", other), {})
    );
    adapter_tensors["layer_0.coda.surprise"] = noise({ 3 }, 1, 1);
    EXPECT_EQ(logits(plain, { coda, adapter(adapter_tensors) }), want);
    EXPECT_EQ(n_unused_, 1u);
}

TEST_F(Adapter, WithoutOneTheMixersBeginAsTheBaseModel)
{
    const std::string plain = checkpoint("plain", base_);
    /* The ring holds 256 tokens; lambda is 0 in single precision, so nothing is subtracted. */
    Settings settings = { "model.arch=quiet", "model.arch_dir=" + (folder_ / "archs") };
    std::filesystem::create_directories(folder_ / "archs");
    std::string arch = support::with(
        support::read_file("configs/arch/llama-coda.toml"), "name = \"llama-coda\"",
        "name = \"quiet\""
    );
    support::write_file(
        folder_ / "archs/quiet.toml",
        support::with(arch, "theta             = 0.0", "lambda_bias = -200")
    );
    const auto base = logits(plain, {}), got = logits(plain, settings);
    ASSERT_EQ(got.size(), base.size());
    double worst = 0;
    for (size_t i = 0; i < base.size() / 2; i++)
        worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - base[i]));
    EXPECT_LT(worst, 2e-4) << "while the ring holds all of the sequence";
    EXPECT_EQ(n_unused_, 0u);
}

/* An adapter and the rounding of activations change the rows of a sequence, but the model is the
 * same: they are among the numerics. */
TEST_F(Adapter, TheNumericsHoldTheAdapterAndTheRoundingOfActivations)
{
    const std::string plain = checkpoint("plain", base_), f32 = "kernels.activations=f32",
                      sessions = "sessions.dir=" + (folder_ / "sessions");
    std::pair<uint64_t, uint64_t> model;
    const auto numerics = [&](Settings settings) -> std::pair<std::string, std::string> {
        Engine engine;
        settings.push_back(sessions);
        EXPECT_EQ(engine.open(plain, settings, true), WEIR_OK) << engine.text();
        if (engine.get() == nullptr) return {};
        const weir_session_identity *const own =
            weir_sessions_identity_of(weir_engine_sessions(engine.get()));
        EXPECT_TRUE(weir_numerics_are_sound(&own->numerics));
        model = { own->model[0], own->model[1] };
        return { own->numerics.adapter, own->numerics.activations };
    };
    const std::string q = "model.layers.1.self_attn.q_proj.weight";
    Arrays changed = base_;
    const auto base = numerics({ f32 });
    const auto own_model = model;
    EXPECT_EQ(base, std::make_pair(std::string("none"), std::string("f32")));
    EXPECT_EQ(numerics({ "kernels.activations=fast" }).second, "fast");
    EXPECT_EQ(model, own_model);
    changed[q].values[0] += 1;
    const auto one = numerics({ f32, adapter({ { q, changed[q] } }) });
    EXPECT_EQ(one.first.size(), 32u) << "a digest";
    EXPECT_EQ(numerics({ f32, adapter({ { q, changed[q] } }) }), one);
    EXPECT_EQ(model, own_model);
    changed[q].values[0] += 1;
    EXPECT_NE(numerics({ f32, adapter({ { q, changed[q] } }) }).first, one.first);
}

TEST_F(Adapter, WhatDoesNotFitIsRefused)
{
    const std::string plain = checkpoint("plain", base_), coda = "model.arch=llama-coda";
    const auto expect = [&](const Settings &settings, const std::string &text,
                            const std::string &path) {
        const std::string got = why(path, settings);
        EXPECT_NE(got.find(text), std::string::npos) << got;
    };
    expect(
        { coda, adapter({ { "layer_0.coda.theta", noise({ 4, 7 }, 1, 1) } }) },
        "tensor layer_0.coda.theta is [4, 7], want [4, 8]", plain
    );
    expect(
        { coda, adapter({ { "layer_9.coda.theta", noise({ 4, 8 }, 1, 1) } }) },
        "the architecture uses none of its 1 tensors, the first is layer_9.coda.theta", plain
    );
    expect(
        { adapter({ { "layer_0.coda.theta", noise({ 4, 8 }, 1, 1) } }) },
        "the architecture uses none of its 1 tensors", plain
    );
    Array broken = noise({ 4, 8 }, 1, 1);
    broken.values[3] = NAN;
    expect(
        { coda, adapter({ { "layer_0.coda.theta", broken } }) },
        "adapter.safetensors: tensor layer_0.coda.theta holds a number that is not finite", plain
    );
    expect(
        { coda, adapter({ { "layer_0.coda.theta", noise({ 4, 8 }, 1, 1) } }) },
        "goes with a safetensors checkpoint", support::golden("llama3/llama3-f32.gguf")
    );
    expect(
        { coda, "model.adapter=" + support::golden("llama3/llama3-f32.gguf") },
        "adapters are safetensors files", plain
    );
    expect({ coda, "model.adapter=" + (folder_ / "nothing") }, "nothing: no such file", plain);
    expect({ "model.arch=lama" }, "model.arch = \"lama\": not known; known are ", plain);
    expect({ "model.arch=qwen3" }, "does not fit architecture qwen3", plain);
}

} // namespace
