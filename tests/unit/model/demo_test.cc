/* The bundled model against what its authors measured with a reference implementation: greedy
 * tokens, perplexity, recall. The default configuration throughout, both containers. */
#include <jansson.h>

#include <cmath>

#include "tests/unit/model/support.h"

extern "C" {
#include "engine/cli/answer.h"
#include "tools/measure/evaluate.h"
}

namespace {

using support::Engine;
using support::Settings;

const char *const folder = "models/weir-demo";
const char *const quantised = "models/weir-demo/weir-demo-q8_0.gguf";

struct Json {
    json_t *root;
    explicit Json(const std::string &text) : root(json_loads(text.c_str(), 0, nullptr)) {}
    Json(const Json &) = delete;
    Json &operator=(const Json &) = delete;
    ~Json() { json_decref(root); }
};

std::vector<int32_t> ids_of(const json_t *line, const char *key)
{
    std::vector<int32_t> ids;
    const json_t *const list = json_object_get(line, key);
    for (size_t i = 0; i < json_array_size(list); i++)
        ids.push_back(static_cast<int32_t>(json_integer_value(json_array_get(list, i))));
    return ids;
}

class Greedy : public ::testing::TestWithParam<const char *> {};

TEST_P(Greedy, AnswersAreTheReferencesTokenForToken)
{
    Engine engine;
    ASSERT_EQ(engine.open(GetParam(), {}, true), WEIR_OK) << engine.text();
    std::istringstream lines(support::read_file("models/weir-demo/eval/golden.jsonl"));
    int n_lines = 0;
    for (std::string text; std::getline(lines, text); n_lines++) {
        const Json line(text);
        const std::vector<int32_t> prompt = ids_of(line.root, "prompt_ids"),
                                   want = ids_of(line.root, "output_ids");
        ASSERT_FALSE(prompt.empty() || want.empty()) << "line " << n_lines + 1;
        weir_request request = {};
        request.prompt = prompt.data();
        request.n_prompt = static_cast<int32_t>(prompt.size());
        request.max_tokens = static_cast<int32_t>(want.size());
        request.n_choices = 1;
        request.sampling = weir_sampling_default();
        request.sampling.temperature = 0.0f;
        weir_cli_answer answer;
        ASSERT_EQ(
            weir_cli_answer_wait(
                &answer, weir_engine_service(engine.get()), &request, nullptr, nullptr, nullptr,
                engine.error()
            ),
            WEIR_OK
        ) << engine.text();
        std::vector<int32_t> got(answer.tokens.data, answer.tokens.data + answer.tokens.count);
        if (answer.stop_token >= 0) got.push_back(answer.stop_token); /* the reference keeps it */
        weir_cli_answer_free(&answer);
        EXPECT_EQ(got, want) << "line " << n_lines + 1;
    }
    EXPECT_EQ(n_lines, 20);
}
INSTANTIATE_TEST_SUITE_P(
    Containers, Greedy, ::testing::Values(folder, quantised),
    [](const auto &info) { return info.param == folder ? "Folder" : "Gguf"; }
);

TEST(Perplexity, IsTheReferences)
{
    Engine engine;
    ASSERT_EQ(engine.open(folder), WEIR_OK) << engine.text();
    const Json expected(support::read_file("models/weir-demo/eval/expected.json"));
    const json_t *const list = json_object_get(expected.root, "perplexity");
    int n_checked = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const want = json_array_get(list, i);
        const std::string path = std::string("models/weir-demo/eval/") +
                                 json_string_value(json_object_get(want, "file"));
        if (json_integer_value(json_object_get(want, "window")) != 512 ||
            !std::filesystem::exists(path))
            continue;
        weir_perplexity got;
        ASSERT_EQ(
            weir_eval_perplexity(&got, engine.get(), path.c_str(), 512, 0, engine.error()), WEIR_OK
        ) << engine.text();
        EXPECT_EQ(got.n_scored, json_integer_value(json_object_get(want, "scored"))) << path;
        const double perplexity = json_real_value(json_object_get(want, "ppl")),
                     bits = json_real_value(json_object_get(want, "bits_per_byte"));
        EXPECT_NEAR(got.perplexity, perplexity, 0.005 * perplexity) << path;
        EXPECT_NEAR(got.bits_per_byte, bits, 0.005 * bits) << path;
        n_checked++;
    }
    EXPECT_EQ(n_checked, 2);
}

/* Sets whose shortest length the reference answers whole or but for one item: `most` items from the
 * beginning, all of that length. */
struct Set {
    const char *task;
    int32_t most, fewest_right;
};

class Retrieval : public ::testing::TestWithParam<Set> {};

TEST_P(Retrieval, AnswersAreRight)
{
    Engine engine;
    ASSERT_EQ(engine.open(folder, {}, true), WEIR_OK) << engine.text();
    const std::string path = std::string("models/weir-demo/eval/") + GetParam().task + ".jsonl";
    weir_retrieval got;
    ASSERT_EQ(
        weir_eval_retrieval(&got, engine.get(), path.c_str(), GetParam().most, engine.error()),
        WEIR_OK
    ) << engine.text();
    EXPECT_EQ(got.n_items, GetParam().most);
    EXPECT_GE(got.n_right, GetParam().fewest_right);
    weir_retrieval_free(&got);
}
INSTANTIATE_TEST_SUITE_P(
    Sets, Retrieval,
    ::testing::Values(
        Set{ "niah_single", 40, 40 }, Set{ "tracking", 20, 20 }, Set{ "niah_multikey", 50, 49 },
        Set{ "table", 100, 99 }
    ),
    [](const auto &info) { return std::string(info.param.task); }
);

/* A whole set, the hardest that is answered at all: a third right, so that a shift either way
 * shows. */
TEST(RetrievalSet, WholeSetOfSeveralValues)
{
    Engine engine;
    ASSERT_EQ(engine.open(folder, {}, true), WEIR_OK) << engine.text();
    const Json expected(support::read_file("models/weir-demo/eval/expected.json"));
    weir_retrieval got;
    ASSERT_EQ(
        weir_eval_retrieval(
            &got, engine.get(), "models/weir-demo/eval/multivalue.jsonl", 0, engine.error()
        ),
        WEIR_OK
    ) << engine.text();
    const json_t *const lengths =
        json_object_get(json_object_get(expected.root, "exact_match"), "multivalue");
    EXPECT_EQ(got.n_rows, json_object_size(lengths));
    for (size_t i = 0; i < got.n_rows; i++) {
        const json_t *const want =
            json_object_get(lengths, std::to_string(got.rows[i].length).c_str());
        const auto n_items = json_integer_value(json_array_get(want, 1)),
                   n_right = json_integer_value(json_array_get(want, 0));
        EXPECT_EQ(got.rows[i].n_items, n_items) << got.rows[i].length;
        EXPECT_NEAR(
            got.rows[i].n_right, static_cast<double>(n_right), 0.02 * static_cast<double>(n_items)
        ) << got.rows[i].length;
    }
    weir_retrieval_free(&got);
}

} // namespace
