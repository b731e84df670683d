/* Memory of fixed size on checkpoints that were not trained with it: as long as the ring holds the
 * sequence, the model is the one that it was. */
#include <algorithm>
#include <cmath>

#include "engine/engine_parts.h"
#include "engine/model/blocks/coda_gates.h"
#include "tests/unit/model/coda.h"

namespace {

using support::Engine;
using support::Folder;
using support::golden;
using support::Sequence;
using support::Settings;
using Floats = std::vector<float>;

constexpr int N = 150;

/* Logits of a sequence as a prompt, or from `decode_from` on token by token. */
Floats logits_of(Engine *engine, int32_t decode_from = INT32_MAX)
{
    Sequence sequence(*engine);
    const std::vector<int32_t> tokens = support::some_tokens(N, 5, engine->n_vocab());
    struct Sink {
        size_t n_vocab;
        Floats all;
    } sink = { engine->n_vocab(), {} };
    weir_evaluation evaluation = {};
    evaluation.tokens = tokens.data();
    evaluation.n_tokens = N;
    evaluation.decode_from = decode_from;
    evaluation.user = &sink;
    evaluation.visit = [](void *user, int32_t, int32_t n_rows, const float *logits) {
        Sink *const to = static_cast<Sink *>(user);
        to->all.insert(to->all.end(), logits, logits + static_cast<size_t>(n_rows) * to->n_vocab);
    };
    EXPECT_EQ(
        weir_evaluate(engine->runner(), sequence.get(), &evaluation, engine->error()), WEIR_OK
    ) << engine->text();
    return sink.all;
}

/* Greatest difference, of the greatest logit. */
double difference(const Floats &a, const Floats &b)
{
    double worst = 0, greatest = 0;
    EXPECT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size() && i < b.size(); i++) {
        worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - b[i]));
        greatest = std::max(greatest, std::fabs(static_cast<double>(b[i])));
        if (!std::isfinite(a[i])) return INFINITY;
    }
    return worst / greatest;
}

Settings wide(std::vector<std::string> more = {})
{
    more.insert(
        more.end(), { "kernels.activations=f32", "kv.format=f32", "batch.max_sequences=2",
                      "batch.chunk=256", "model.context=512" }
    );
    return more;
}

/* With grouped queries and biases (Qwen2), norms of q and k (Qwen3), an output gate and RoPE on a
 * part of each head (Qwen3.5). */
TEST(CodaPlain, ShippedArchitecturesAreTheirBasesWhileTheRingHoldsTheSequence)
{
    for (const auto &[model, arch] :
         { std::pair("tq", "qwen35-coda"), std::pair("tq/tq-f32.gguf", "qwen35-coda"),
           std::pair("qwen3", "qwen3-coda"), std::pair("qwen3-untied", "qwen3-coda"),
           std::pair("qwen2", "qwen2-coda") }) {
        Engine bounded, whole;
        ASSERT_EQ(whole.open(golden(model), wide()), WEIR_OK) << whole.text();
        ASSERT_EQ(bounded.open(golden(model), wide({ std::string("model.arch=") + arch })), WEIR_OK)
            << bounded.text();
        EXPECT_STREQ(weir_model_arch(weir_engine_model(bounded.get())), arch);
        EXPECT_EQ(weir_model_kv_layers(weir_engine_model(bounded.get())), 0);
        const Floats want = logits_of(&whole);
        EXPECT_LE(difference(logits_of(&bounded), want), 1e-6) << model << ", blocks";
        EXPECT_LE(difference(logits_of(&bounded, 0), want), 1e-6) << model << ", steps";
        EXPECT_LE(difference(logits_of(&bounded, 70), want), 1e-6)
            << model << ", blocks, then steps";
    }
}

/* Llama's shapes, and Mistral's, which has a sliding window. */
TEST(CodaPlain, AnyArchitectureIsTheBaseOfOne)
{
    const Folder folder;
    std::filesystem::create_directories(folder / "archs");
    const std::string block =
        "\"\n[block.attn]\nmixer = \"coda\"\nrope = { gguf = \"pairs\", hf = \"half_split\" "
        "}\ndifferential = false\n"
        "gate = \"constant\"\nwindow = 160\nlandmarks_exact = 8\nlandmarks_summary = 8\n";
    support::write_file(
        folder / "archs/bounded.toml", "[arch]\nname = \"bounded\"\nbase = \"llama" + block
    );
    for (const char *const model : { "llama3", "llama3/llama3-f32.gguf" }) {
        Engine bounded, whole;
        ASSERT_EQ(whole.open(golden(model), wide()), WEIR_OK) << whole.text();
        ASSERT_EQ(
            bounded.open(
                golden(model),
                wide({ "model.arch_dir=" + (folder / "archs"), "model.arch=bounded" })
            ),
            WEIR_OK
        ) << bounded.text();
        EXPECT_LE(difference(logits_of(&bounded), logits_of(&whole)), 1e-6) << model;
    }
    Engine mistral;
    ASSERT_EQ(mistral.open(golden("mistral"), wide({ "model.arch=mistral-coda" })), WEIR_OK)
        << mistral.text();
    EXPECT_EQ(weir_model_kv_layers(weir_engine_model(mistral.get())), 0);
    EXPECT_LE(difference(logits_of(&mistral, 0), logits_of(&mistral)), 1e-6);
}

/* Past the ring it is another model, whose banks and gates matter. */
TEST(CodaPlain, WhatLeavesTheRingGoesToTheBanks)
{
    std::vector<Floats> seen;
    for (const char *const options :
         { "window = 256\nlandmarks_exact = 0\nlandmarks_summary = 0\ngate = \"constant\"",
           "window = 40\nlandmarks_exact = 0\nlandmarks_summary = 0\ngate = \"constant\"",
           "window = 40\nlandmarks_exact = 16\nlandmarks_summary = 0\ngate = \"constant\"",
           "window = 40\nlandmarks_exact = 0\nlandmarks_summary = 16\ngate = \"constant\"",
           "window = 40\nlandmarks_exact = 16\nlandmarks_summary = 0\ngate = "
           "\"value_norm\"\nexact_gate = 0.5" }) {
        const Folder folder;
        Settings settings = wide();
        support::write_plain_coda(
            folder, std::string(options) + "\nblock_rows = 32\nexact_candidates = 32\n", &settings
        );
        Engine engine;
        ASSERT_EQ(engine.open(folder.path(), settings), WEIR_OK) << engine.text();
        const Floats now = logits_of(&engine), steps = logits_of(&engine, 0);
        EXPECT_LT(difference(steps, now), INFINITY);
        for (const Floats &other : seen) EXPECT_GT(difference(now, other), 1e-4) << options;
        seen.push_back(now);
    }
}

TEST(CodaGates, AreLengthsAgainstTheMeanOfThoseBefore)
{
    const Floats values = { 3, 4, 0, 0, 0, 10, 6, 8 }; /* lengths 5, 0, 10, 10 */
    Floats gates(4);
    float mean = -7; /* that of nothing */
    weir_gates_of_values(gates.data(), &mean, values.data(), 4, 2, 0, 3);
    EXPECT_FLOAT_EQ(gates[0], 0);
    EXPECT_EQ(gates[1], -INFINITY);
    EXPECT_FLOAT_EQ(gates[2], std::log(10 / 2.5f));
    EXPECT_FLOAT_EQ(gates[3], std::log(10 / 5.0f));
    EXPECT_FLOAT_EQ(mean, 5 + 5 / 3.0f);
    Floats parts(4);
    float other = 0;
    for (int64_t i = 0; i < 4; i++)
        weir_gates_of_values(parts.data() + i, &other, values.data() + 2 * i, 1, 2, i, 3);
    EXPECT_EQ(parts, gates);
    EXPECT_EQ(other, mean);
    const Floats zeros(8);
    mean = 0;
    weir_gates_of_values(gates.data(), &mean, zeros.data(), 4, 2, 0, 3);
    EXPECT_EQ(gates, Floats(4));
    weir_gates_of_values(gates.data(), &mean, values.data(), 1, 2, 9, 3);
    EXPECT_EQ(gates[0], 0) << "after nothing but zeros, or in a state without a mean";
    EXPECT_FLOAT_EQ(mean, 5);
    EXPECT_TRUE(weir_gates_is_mean(0));
    EXPECT_FALSE(weir_gates_is_mean(NAN));
}

} // namespace
