/* What the report says is what the engine holds, to the page; and the command line of `weir plan
 * --report`. */
#include <gtest/gtest.h>
#include <jansson.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "engine/cli/options.h"
#include "tests/unit/cli/program.h"
#include "tests/unit/model/support.h"
#include "tools/report/report.h"

namespace {

const std::string demo = "models/weir-demo";

weir_plan plan_of(const std::string &format, const std::string &path = demo)
{
    weir_plan plan = {};
    weir_config config;
    weir_error error = {};
    weir_config_default(&config);
    snprintf(config.model.path, sizeof config.model.path, "%s", path.c_str());
    config.kv.full_windows = true;
    EXPECT_EQ(weir_config_assign(&config, ("kv.format=" + format).c_str(), &error), WEIR_OK)
        << error.text;
    const weir_engine_options options = { &config, false, false, nullptr, nullptr, nullptr };
    int64_t row = 0;
    EXPECT_EQ(weir_engine_describe(&plan, &row, &options, &error), WEIR_OK) << error.text;
    EXPECT_GT(row, 0);
    EXPECT_GE(plan.activations, size_t((256 + 4) * row)) << "a chunk and a row of each sequence";
    return plan;
}

weir_report_shape shape_of(const weir_engine_facts &facts)
{
    weir_report_shape s = {};
    s.parameters = facts.n_parameters;
    s.context = facts.trained_context;
    s.n_layers = facts.n_layers;
    s.n_kv_layers = facts.n_kv_layers;
    s.n_heads = facts.n_heads;
    s.n_kv_heads = facts.n_kv_heads;
    s.key_dim = facts.key_dim;
    s.value_dim = facts.value_dim;
    s.n_local_layers = facts.n_local_layers;
    s.n_local_kv_heads = facts.n_local_kv_heads;
    s.local_key_dim = facts.local_key_dim;
    s.local_value_dim = facts.local_value_dim;
    s.layer_embedding = facts.n_layer_embedding;
    s.d_model = facts.d_model;
    s.d_ffn = facts.d_ffn;
    s.n_vocab = facts.n_vocab;
    s.recurrent_bytes = facts.recurrent_bytes;
    s.weight_bytes = facts.weight_bytes;
    return s;
}

using program::Outcome;

Outcome run(std::vector<std::string> words)
{
    words.insert(words.begin(), "plan");
    return program::run(words);
}

bool holds(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

} // namespace

class Measured : public ::testing::TestWithParam<const char *> {};

TEST_P(Measured, StoreHoldsWhatTheReportSaysAtEveryPageEdge)
{
    const std::string format = GetParam();
    const weir_report_shape shape = shape_of(plan_of(format).facts);
    const weir_kv_format kind = weir_kv_format_named(format.c_str());
    support::Engine engine;
    ASSERT_EQ(
        engine.open(
            demo, { "kv.format=" + format, "model.context=320", "batch.max_sequences=2",
                    "memory.host=256MiB" }
        ),
        WEIR_OK
    ) << engine.text();
    weir_kv_store *const store = weir_engine_store(engine.get());
    weir_kv_spec spec = *weir_kv_store_spec(store);
    const int64_t page = int64_t(weir_kv_page_bytes(&spec, 0)),
                  all = weir_kv_store_free_pages(store);
    support::Sequence sequence(engine);
    const auto tokens = support::some_tokens(320, 1, engine.n_vocab());
    int64_t done = 0;
    for (int64_t n : { 1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 256, 257, 319, 320 }) {
        weir_evaluation evaluation = {};
        evaluation.tokens = tokens.data() + done;
        evaluation.n_tokens = int32_t(n - done);
        evaluation.decode_from = INT32_MAX;
        ASSERT_EQ(
            weir_evaluate(engine.runner(), sequence.get(), &evaluation, engine.error()), WEIR_OK
        ) << engine.text();
        done = n;
        const int64_t open = n % 64 != 0 ? int64_t(weir_kv_unsealed_rows_bytes(&spec))
                                         : 0; /* a whole page has no unsealed rows */
        EXPECT_EQ(
            weir_report_kv(&weir_report_engine, &shape, kind, n),
            (all - weir_kv_store_free_pages(store)) * page + open
        ) << n
          << " tokens";
    }
    /* The other sequence, and what the ledger and the plan hold for both. */
    const weir_plan *const plan = weir_engine_plan_of(engine.get());
    EXPECT_EQ(
        size_t(2 * weir_report_kv(&weir_report_engine, &shape, kind, 320)),
        plan->kv - plan->kv_unsealed
    );
    EXPECT_EQ(
        weir_ledger_used(weir_engine_ledger(engine.get()), WEIR_TIER_HOST, WEIR_ACCOUNT_KV),
        plan->kv - weir_kv_unsealed_rows_bytes(&spec)
    ) << "the pool, and the unsealed rows of the one sequence of two that is open here";
    EXPECT_EQ(
        weir_report_kv_per_token(&weir_report_engine, &shape, kind),
        double(plan->facts.kv_bytes_per_token)
    );
    EXPECT_EQ(weir_report_weights(&weir_report_engine, &shape), int64_t(plan->weights));
    EXPECT_EQ(2 * shape.recurrent_bytes, int64_t(plan->recurrent));
    EXPECT_EQ(size_t(shape.recurrent_bytes), sequence.get()->recurrent_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Measured,
    ::testing::Values(
        "f16", "f32", "bf16", "q8_0", "q4_0", "int8", "fp8_e4m3", "fp8_e5m2", "kivi2", "kivi4",
        "kivi8", "turbo2", "turbo3", "turbo4"
    ),
    [](const auto &info) { return std::string(info.param); }
);

/* Gemma 4: two layers with heads of 16, one with heads of 32. */
TEST(Facts, LayersWithRowsOfAnotherSizeAreCounted)
{
    for (const char *const model : { "gemma4", "gemma4-moe" }) {
        const weir_plan plan = plan_of("f16", std::string("tests/golden/families/") + model);
        weir_report_shape shape = shape_of(plan.facts);
        EXPECT_DOUBLE_EQ(
            weir_report_kv_per_token(&weir_report_engine, &shape, WEIR_KV_F16),
            double(plan.facts.kv_bytes_per_token)
        ) << model;
        EXPECT_NE(weir_report_reject(&weir_report_engine, &shape, WEIR_KV_Q8_0), nullptr);
        EXPECT_EQ(weir_report_reject(&weir_report_engine, &shape, WEIR_KV_TURBO4), nullptr);
    }
}

/* Rows of per-layer embeddings are neither weights in memory nor multiplied. */
TEST(Facts, PerLayerEmbeddingsAreNoWeights)
{
    weir_report_shape shape = shape_of(plan_of("f16", "tests/golden/families/gemma4").facts);
    EXPECT_EQ(shape.layer_embedding, 320 * 6 * 8);
    shape.weight_bytes = 0;
    const int64_t with = weir_report_weights(&weir_report_engine, &shape);
    const double flops = weir_report_step_of(&weir_report_engine, &shape, WEIR_KV_F16, 1, 64).flops;
    shape.layer_embedding = 0;
    EXPECT_EQ(weir_report_weights(&weir_report_engine, &shape), with + 2 * 320 * 6 * 8);
    EXPECT_DOUBLE_EQ(
        weir_report_step_of(&weir_report_engine, &shape, WEIR_KV_F16, 1, 64).flops,
        flops + 2.0 * 320 * 6 * 8
    );
}

TEST(Facts, OfTheDemo)
{
    /* config.json: 8 layers, two of them attention with 4 heads, 2 of K and V, of width 64 */
    const weir_engine_facts facts = plan_of("f16").facts;
    EXPECT_EQ(facts.n_layers, 8);
    EXPECT_EQ(facts.n_kv_layers, 2);
    EXPECT_EQ(facts.n_heads, 4);
    EXPECT_EQ(facts.n_kv_heads, 2);
    EXPECT_EQ(facts.key_dim, 64);
    EXPECT_EQ(facts.d_model, 192);
    EXPECT_EQ(facts.n_vocab, 2048);
    EXPECT_TRUE(facts.is_tied);
    EXPECT_STREQ(facts.arch, "qwen35");
}

/* Of `weir plan`, of the text, of its JSON and of the prefill table: one figure. */
TEST(Command, ActivationsAreThoseOfThePlan)
{
    const auto json = [](const Outcome &o) {
        EXPECT_EQ(o.code, 0) << o.err;
        return json_loads(o.out.c_str(), 0, nullptr);
    };
    int64_t before = 0;
    for (const char *chunk : { "64", "256", "1024" }) {
        json_t *const plan = json(run({ "--json", "--memory", "512MiB", "--chunk", chunk }));
        json_t *const report = json(run({ "--report", "--json", "--memory", "512MiB", "--chunk",
                                          chunk, "--context", "4096" }));
        json_t *const shape = json_array_get(json_object_get(report, "shapes"), 0);
        json_t *const row = json_array_get(json_object_get(shape, "prefill"), 0);
        const int64_t planned =
            json_integer_value(json_object_get(json_object_get(plan, "accounts"), "activations"));
        /* Residual stream, mixer and FFN of each row are at least that wide: 192. */
        EXPECT_GE(planned, (atoi(chunk) + 4) * 3 * 192 * 4) << chunk;
        EXPECT_GT(planned, before) << chunk;
        EXPECT_EQ(json_integer_value(json_object_get(shape, "activations")), planned) << chunk;
        EXPECT_EQ(json_number_value(json_object_get(row, "activations_chunked")), planned) << chunk;
        EXPECT_GT(json_number_value(json_object_get(row, "activations_whole")), planned) << chunk;
        char text[64];
        (void)snprintf(text, sizeof text, "activations %.2f MiB,", double(planned) / (1 << 20));
        const Outcome table = run({ "--report", "--memory", "512MiB", "--chunk", chunk });
        EXPECT_TRUE(holds(table.out, text)) << text << "\n" << table.out.substr(0, 1000);
        before = planned;
        json_decref(plan);
        json_decref(report);
    }
}

TEST(Command, ReportsOnTheModelWithoutRoomForIt)
{
    const Outcome o = run({ "--report", "--json", "--context", "65", "--batch", "2", "--format",
                            "f32", "--bandwidth", "100" });
    ASSERT_EQ(o.code, 0) << o.err;
    json_t *const root = json_loads(o.out.c_str(), 0, nullptr);
    ASSERT_NE(root, nullptr) << o.out;
    json_t *const shape = json_array_get(json_object_get(root, "shapes"), 0);
    json_t *const row = json_array_get(json_object_get(shape, "growth"), 0);
    /* Sequences, layers, heads, pages */
    EXPECT_EQ(json_integer_value(json_object_get(row, "kv")), 2 * 2 * 2 * 2 * 64 * 128 * 4);
    EXPECT_GE(json_array_size(json_object_get(root, "models")), 7u);
    json_decref(root);
    const std::string small = "2MiB"; /* holds no plan of this model */
    EXPECT_EQ(run({ "--memory", small.c_str() }).code, 3);
    EXPECT_EQ(run({ "--memory", small.c_str(), "--report" }).code, 0);
}

/* Formats that differ by layer and place: the bytes are those of the plan. */
TEST(Command, ReportsOnTheConfiguredFormats)
{
    /* Two KV heads and two layers; turbo4 of 64 values takes 34 bytes, f16 128; K and V. */
    const int64_t turbo = 2 * 2 * 2 * 34, f16 = 2 * 2 * 2 * 128;
    const struct {
        std::vector<std::string> set;
        int64_t per_token, per_sink, sinks;
        const char *text;
    } cases[] = {
        { {}, f16, 0, 0, "as configured: KV in f16, 1.00 KiB per token\n" },
        { { "--set", "kv.format=turbo4" },
          turbo,
          0,
          0,
          "as configured: KV in turbo4, 272 B per token\n" },
        { { "--set", "kv.format=turbo4", "--set", "kv.wide_sinks=65" },
          turbo,
          f16,
          128,
          "as configured: KV in turbo4, f16 in the first 128 tokens, 272 B per token, 1.00 KiB for "
          "each of the first 128\n" },
        { { "--set", "kv.format=turbo4/f16", "--set", "kv.wide_layers=1" },
          f16,
          0,
          0,
          "as configured: KV in turbo4/f16, f16 in the first and the last layer, 1.00 KiB per "
          "token\n" },
    };
    for (const auto &c : cases) {
        std::vector<std::string> words = { "--report", "--context", "64" };
        words.insert(words.end(), c.set.begin(), c.set.end());
        const Outcome text = run(words);
        EXPECT_NE(text.out.find(c.text), std::string::npos) << text.out.substr(0, 2000) << text.err;
        words.push_back("--json");
        json_t *const root = json_loads(run(words).out.c_str(), 0, nullptr);
        json_t *const row =
            json_object_get(json_array_get(json_object_get(root, "shapes"), 0), "configured");
        ASSERT_NE(row, nullptr);
        EXPECT_EQ(json_integer_value(json_object_get(row, "per_token")), c.per_token);
        EXPECT_EQ(json_integer_value(json_object_get(row, "per_sink")), c.per_sink);
        EXPECT_EQ(json_integer_value(json_object_get(row, "sink_tokens")), c.sinks);
        json_decref(root);
    }
    EXPECT_EQ(
        run({ "--report", "--shape", "llama-2-7b" }).out.find("as configured"), std::string::npos
    );
}

TEST(Command, ShapesAssumptionsAndPlot)
{
    support::Folder folder;
    const std::string plot = folder / "kv.svg";
    Outcome o = run({ "--report", "--shape", "llama-2-7b,deepseek-v3", "--svg", plot.c_str() });
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(holds(o.out, "== Llama 2 7B") && holds(o.out, "== DeepSeek-V3"));
    EXPECT_TRUE(holds(support::read_file(plot), "</svg>"));
    size_t files = 0;
    for (const auto &entry : std::filesystem::directory_iterator(folder.path()))
        files += !entry.path().empty();
    EXPECT_EQ(files, 1u) << "no temporary file stays";
    o = run({ "--report", "--assumptions", "seed" });
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(holds(o.out, "80 GB        80.0 GiB                                 121378"));
    o = run({ "--report", "--shape", "llama-70b", "--weights", "q4_k", "--format", "f16" });
    EXPECT_TRUE(holds(o.out, "weights 36.13 GiB")) << "68976648192 / 256 * 144\n" << o.out;
    EXPECT_TRUE(holds(
        run({ "--report", "--shape", "llama-3-8b", "--chunk", "1024" }).out,
        "Prefill at once and in chunks of 1024."
    ));
    EXPECT_TRUE(holds(run({ "--report", "--shape", "all", "--format", "f16" }).out, "== Kimi K2"));
}

TEST(Command, MistakesAreNamed)
{
    const struct {
        std::vector<std::string> words;
        const char *part;
    } cases[] = {
        { { "--shape", "llama-2-7b" }, "--shape belongs to --report" },
        { { "--svg", "x" }, "--svg belongs to --report" },
        { { "--context", "1,2" }, "--context: a plan has one window" },
        { { "--report", "--shape", "gpt" }, "--shape: no shape is called \"gpt\"; there are " },
        { { "--report", "--shape", "llama-2-7b," }, "--shape: must be names" },
        { { "--report", "--format", "f17" },
          "--format: no KV format is called \"f17\"; there are f32, f16" },
        { { "--report", "--format",
            "f16,f16,f16,f16,f16,f16,f16,f16,f16,f16,f16,f16,f16,f16,f16,f16,f16" },
          "--format: at most 16" },
        { { "--report", "--assumptions", "x" }, "--assumptions x: must be engine or seed" },
        { { "--report", "--weights", "x" }, "--weights x: no such type" },
        { { "--report", "--context", "0" }, "--context: a report needs numbers of at least 1" },
        { { "--report", "--batch", "0" }, "must be 1 to 16 integers between 1 and 65536" },
        { { "--report", "--shape", "llama-2-7b", "--context", "1073741824", "--batch", "65536" },
          "too large to compute" },
    };
    for (const auto &test : cases) {
        const Outcome o = run(test.words);
        EXPECT_EQ(o.code, 2) << test.part;
        EXPECT_TRUE(holds(o.err, test.part)) << test.part << " <- " << o.err;
        EXPECT_TRUE(o.out.empty()) << o.out;
    }
    const Outcome o = run({ "--report", "--shape", "llama-2-7b", "--svg", "/nowhere/x.svg" });
    EXPECT_EQ(o.code, 1);
    EXPECT_TRUE(holds(o.err, "/nowhere/x.svg")) << o.err;
}

TEST(Command, ContextOfAPlanIsItsWindow)
{
    const Outcome o = run({ "--context", "512", "--memory", "256MiB", "--json" });
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(holds(o.out, "\"window\": 512,")) << o.out;
}
