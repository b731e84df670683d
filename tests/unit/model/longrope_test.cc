/* Contexts longer than a model was first trained for. Longrope: which of its two lists applies
 * follows from model.context alone, and sessions know. Warnings where nothing extends the context.
 */
#include <cmath>

#include "engine/base/log.h"
#include "engine/session/session_store.h"
#include "tests/unit/model/support.h"

namespace {

using support::Engine;
using support::Folder;
using support::read_file;
using support::with;
using support::write_file;

const std::string phi4 = "tests/golden/families/phi4-mini"; /* first trained for 16 tokens */

std::vector<float> frequencies(const std::string &path, const char *context, float *magnitude)
{
    Engine engine;
    EXPECT_EQ(
        engine.open(path, { std::string("model.context=") + context, "kernels.activations=f32" }),
        WEIR_OK
    ) << engine.text();
    const weir_rope_table *const rope = weir_model_rope(weir_engine_model(engine.get()));
    *magnitude = rope->magnitude;
    return { rope->frequencies, rope->frequencies + engine.shape().rotary_dim / 2 };
}

/* The checkpoint and the GGUF file agree, in both contexts. */
TEST(Longrope, TheContextChoosesTheList)
{
    const double last[] = { 1.5, 9.0 }; /* of the short and of the long list */
    const char *const contexts[] = { "16", "17" };
    for (const std::string &path : { phi4, phi4 + "/phi4-mini-f16.gguf" })
        for (int i = 0; i < 2; i++) {
            float magnitude = 0;
            const std::vector<float> f = frequencies(path, contexts[i], &magnitude);
            ASSERT_EQ(f.size(), 6u);
            EXPECT_NEAR(f[0], 1.0, 1e-7) << path;
            EXPECT_NEAR(f[5], std::pow(10000.0, -10.0 / 12) / last[i], 1e-9) << path;
            EXPECT_NEAR(magnitude, std::sqrt(1 + std::log(8.0) / std::log(16.0)), 1e-6) << path;
        }
}

/* Without a context in the configuration it is that of the model. */
TEST(Longrope, TheModelsOwnContext)
{
    float magnitude = 0;
    EXPECT_EQ(frequencies(phi4, "0", &magnitude), frequencies(phi4, "128", &magnitude));
    EXPECT_NE(frequencies(phi4, "0", &magnitude), frequencies(phi4, "16", &magnitude));
}

TEST(Longrope, IsWhatRowsWereComputedWith)
{
    const Folder folder;
    const auto digest = [&](const char *context) {
        Engine engine;
        const support::Settings settings = { std::string("model.context=") + context,
                                             "sessions.dir=" + folder.path() };
        EXPECT_EQ(engine.open(phi4, settings, true), WEIR_OK) << engine.text();
        const weir_session_identity *const id =
            weir_sessions_identity_of(weir_engine_sessions(engine.get()));
        return std::make_pair(id->model[0], id->model[1]);
    };
    EXPECT_EQ(digest("64"), digest("128")) << "the long list in both";
    EXPECT_NE(digest("16"), digest("128"));
}

struct Wrong {
    const char *from, *to, *says;
};

TEST(Longrope, WrongListsAreRefused)
{
    const Wrong cases[] = {
        { "\"long_factor\"", "\"other\"",
          "longrope needs a list of 6 numbers rope_scaling.long_factor" },
        { "   9.0\n", "   9.0,\n   1.0\n", "longrope needs a list of 6 numbers" },
        { "   9.0\n", "   0.0\n", "number 5 of rope_scaling.long_factor is out of range" },
        { "   9.0\n", "   -1\n", "number 5 of" },
        { "   9.0\n", "   1e300\n", "number 5 of" },
        { "   9.0\n", "   \"x\"\n", "number 5 of" },
        { "   1.5\n", "   0\n", "number 5 of rope_scaling.short_factor is out of range" },
        { "\"original_max_position_embeddings\": 16", "\"original_max_position_embeddings\": 1",
          "longrope needs an original context above 1" },
        { "\"original_max_position_embeddings\": 16", "\"original_max_position_embeddings\": -5",
          "original context -5 is out of range" },
        { "\"type\": \"longrope\"", "\"type\": \"longrope\", \"attention_factor\": -2",
          "longrope's factor on cos and sin is -2" },
    };
    for (const Wrong &c : cases) {
        const Folder folder;
        write_file(folder / "model.safetensors", read_file(phi4 + "/model.safetensors"));
        write_file(folder / "config.json", with(read_file(phi4 + "/config.json"), c.from, c.to));
        Engine engine;
        EXPECT_EQ(engine.open(folder.path()), WEIR_EFORMAT) << c.to;
        EXPECT_SAYS(engine.text(), c.says);
    }
}

/* A checkpoint that says by how much the context was extended, but not from what. */
TEST(Longrope, TheFactorCountsWithoutAnOriginalContext)
{
    const Folder folder;
    write_file(folder / "model.safetensors", read_file(phi4 + "/model.safetensors"));
    const std::string config =
        with(read_file(phi4 + "/config.json"), "\"original_max_position_embeddings\": 16,", "");
    write_file(
        folder / "config.json",
        with(config, "\"type\": \"longrope\"", "\"type\": \"longrope\", \"factor\": 8")
    );
    float magnitude = 0;
    EXPECT_NEAR(
        frequencies(folder.path(), "128", &magnitude)[5] * 1.5, std::pow(10000.0, -10.0 / 12), 1e-9
    );
    EXPECT_NEAR(magnitude, std::sqrt(1 + std::log(8.0) / std::log(128.0)), 1e-6);
}

TEST(Longrope, ThePlanSaysWhichList)
{
    for (const char *const context : { "16", "17" }) {
        Engine engine;
        ASSERT_EQ(engine.plan(phi4, { std::string("model.context=") + context }), WEIR_OK);
        EXPECT_EQ(engine.planned().facts.has_long_rope, context == std::string("17"));
    }
}

/* The list that does not apply is checked, too: its last factor is made negative. */
TEST(Longrope, BothListsOfAGgufFileAreChecked)
{
    const std::vector<float> lists[] = { { 1.0f, 1.1f, 1.2f, 1.3f, 1.4f, 1.5f },
                                         { 1.0f, 2.6f, 4.2f, 5.8f, 7.4f, 9.0f } };
    for (std::vector<float> list : lists)
        for (const char *const context : { "16", "128" }) {
            const auto bytes_of = [](const std::vector<float> &of) {
                return std::string(
                    reinterpret_cast<const char *>(of.data()), of.size() * sizeof of[0]
                );
            };
            const Folder folder;
            const std::string good = bytes_of(list);
            list.back() = -1.0f;
            write_file(
                folder / "model.gguf",
                with(read_file(phi4 + "/phi4-mini-f16.gguf"), good, bytes_of(list))
            );
            list.back() = good == bytes_of(lists[0]) ? 1.5f : 9.0f;
            Engine engine;
            EXPECT_EQ(
                engine.open(folder / "model.gguf", { std::string("model.context=") + context }),
                WEIR_EFORMAT
            ) << context;
            EXPECT_SAYS(engine.text(), "RoPE factor 5");
        }
}

/* A GGUF file with one of the lists only. */
TEST(Longrope, BothListsMustBeThere)
{
    const Folder folder;
    std::string bytes = read_file(phi4 + "/phi4-mini-f16.gguf");
    bytes = with(bytes, "rope_factors_short.weight", "rope_factors_shirt.weight");
    write_file(folder / "model.gguf", bytes);
    Engine engine;
    EXPECT_NE(engine.open(folder / "model.gguf"), WEIR_OK);
    EXPECT_SAYS(engine.text(), "one of longrope's two lists of factors is missing");
}

/* ---- what is logged -------------------------------------------------------------------------- */

void note_line(void *user, const char *level, const char *text)
{
    static_cast<std::string *>(user)->append(level).append(": ").append(text).append("\n");
}

/* What opening the model logs about its context. */
std::string warnings(const std::string &path, const char *context, support::Settings settings = {})
{
    std::string lines;
    Engine engine;
    settings.push_back(std::string("model.context=") + context);
    weir_log_set_function(note_line, &lines);
    EXPECT_EQ(engine.open(path, settings), WEIR_OK) << engine.text();
    weir_log_set_function(nullptr, nullptr);
    return lines.find("model.context") == std::string::npos ? "" : lines;
}

const std::string ministral = "tests/golden/families/ministral3"; /* YaRN: 16 tokens, by 8 */

TEST(Context, LongerThanTrainedIsSaid)
{
    EXPECT_EQ(warnings(ministral, "128"), "");
    EXPECT_EQ(warnings(phi4, "128"), "");
    for (const std::string &path : { ministral, ministral + "/ministral3-f16.gguf", phi4 })
        EXPECT_SAYS(
            warnings(path, "129"),
            "model.context = 129 is more than the 128 tokens that the model was trained for"
        );
}

/* config.json still has the context of the training, as Qwen's guide to YaRN leaves it. */
TEST(Context, ScalingOfTheCheckpointExtendsIt)
{
    const std::string config = with(read_file(ministral + "/config.json"), "8.0", "32.0"),
                      linear = with(
                          with(config, "\"rope_type\": \"yarn\"", "\"rope_type\": \"linear\""),
                          "\"type\": \"yarn\"", "\"type\": \"linear\""
                      );
    for (const std::string &each : { config, linear }) {
        const Folder folder;
        write_file(folder / "model.safetensors", read_file(ministral + "/model.safetensors"));
        write_file(folder / "config.json", each);
        EXPECT_EQ(warnings(folder.path(), "512"), "");
        EXPECT_SAYS(
            warnings(folder.path(), "513"), "512 tokens that the model reaches with its RoPE"
        );
    }
}

/* Linear scaling without an original context: the one that config.json has is the extended one. */
TEST(Context, LinearScalingNeedsAnOriginal)
{
    const std::string smollm = "tests/golden/families/smollm3"; /* 4096 tokens */
    const Folder folder;
    write_file(folder / "model.safetensors", read_file(smollm + "/model.safetensors"));
    write_file(
        folder / "config.json", with(
                                    read_file(smollm + "/config.json"), "\"rope_scaling\": null",
                                    R"("rope_scaling": {"rope_type": "linear", "factor": 8.0})"
                                )
    );
    EXPECT_SAYS(warnings(folder.path(), "4097"), "more than the 4096 tokens");
}

/* Of these rows none are further apart than the budget. */
TEST(Context, PositionsInTheCacheHaveNoEnd)
{
    const support::Settings sinks = { "kv.policy.name=sinks", "kv.policy.budget=96" };
    support::Settings cache = sinks;
    cache.emplace_back("kv.policy.options=positions=cache");
    EXPECT_SAYS(warnings(ministral, "1024", sinks), "more than the 128 tokens");
    EXPECT_EQ(warnings(ministral, "1024", cache), "");
}

} // namespace
