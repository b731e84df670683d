// The draft head computes what the reference does (tests/golden/mtp), from both containers, and a
// file without all of it has none.
#include <algorithm>
#include <cmath>
#include <regex>

#include "engine/model/model.h"
#include "engine/schedule/runner.h"
#include "tests/unit/model/arch_files.h"
#include "tests/unit/model/support.h"

namespace {

using support::Engine;
using support::Settings;

const Settings with_head = { "speculation.mtp=on", "kernels.activations=f32",
                             "batch.max_sequences=2", "model.context=512", "kv.format=f32" };

class Golden {
  public:
    explicit Golden(const std::string &path)
    {
        weir_error error = {};
        EXPECT_EQ(weir_tensor_directory_open(&directory_, path.c_str(), &error), WEIR_OK)
            << error.text;
    }
    Golden(const Golden &) = delete;
    Golden &operator=(const Golden &) = delete;
    ~Golden() { weir_tensor_directory_close(directory_); }
    template <typename T> std::vector<T> get(const char *name) const
    {
        const weir_tensor *const tensor = weir_tensor_directory_find(directory_, name);
        EXPECT_NE(tensor, nullptr) << name;
        if (tensor == nullptr) return {};
        std::vector<T> out(tensor->bytes / sizeof(T));
        memcpy(out.data(), tensor->data, tensor->bytes);
        return out;
    }

  private:
    weir_tensor_directory *directory_ = nullptr;
};

/* Pages of the head, for one sequence of up to 64 rows. */
struct Head {
    explicit Head(const Engine &engine)
        : model(weir_engine_model(engine.get())), runner(engine.runner()),
          d((size_t)weir_model_shape(model)->d_model), v((size_t)weir_model_shape(model)->n_vocab)
    {
        const weir_kv_geometry *const g = weir_model_mtp_geometry(model);
        const size_t page = (size_t)(64 * 2 * (g->key_dim + g->value_dim));
        memory.resize(page * (size_t)g->n_heads, 0);
        for (int64_t h = 0; h < g->n_heads; h++) pages.push_back(memory.data() + h * page);
    }
    /* Rows first .. first + n - 1; all have logits. */
    void run(int first, const std::vector<int32_t> &tokens, const std::vector<const float *> &h)
    {
        const int n = (int)tokens.size();
        std::vector<int32_t> positions, rows;
        for (int r = 0; r < n; r++) positions.push_back(first + r), rows.push_back(r);
        weir_batch_segment segment = {};
        segment.n_rows = n;
        segment.n_past = first;
        segment.pages = pages.data();
        segment.page_stride = 1;
        const weir_mtp_batch batch = {
            tokens.data(), positions.data(), h.data(), &segment, rows.data(), n, 1, n
        };
        const float *l, *g;
        weir_error error = {};
        ASSERT_EQ(weir_runner_draft(runner, &batch, &l, &g, &error), WEIR_OK) << error.text;
        logits.assign(l, l + (size_t)n * v);
        hidden.assign(g, g + (size_t)n * d);
    }
    const weir_model *model;
    weir_runner *runner;
    size_t d, v;
    std::vector<char> memory;
    std::vector<void *> pages;
    std::vector<float> logits, hidden;
};

void expect_near(const std::vector<float> &got, const std::vector<float> &want, const char *what)
{
    float most = 0, worst = 0;
    ASSERT_EQ(got.size(), want.size()) << what;
    for (size_t i = 0; i < want.size(); i++) {
        most = std::max(most, std::fabs(want[i]));
        worst = std::max(worst, std::fabs(got[i] - want[i]));
    }
    EXPECT_LT(worst, 1e-3f * most) << what; /* its keys and values are f16 */
}

void check(const std::string &model, const std::string &golden)
{
    SCOPED_TRACE(model);
    Engine engine;
    ASSERT_EQ(engine.open(model, with_head, true), WEIR_OK) << engine.text();
    ASSERT_GT(weir_model_mtp_bytes(weir_engine_model(engine.get())), 0u)
        << weir_model_mtp_problem(weir_engine_model(engine.get()));
    const Golden g(golden);
    const auto tokens = g.get<int32_t>("tokens");
    const auto states = g.get<float>("final_norm");
    const auto second = g.get<int32_t>("mtp.second");
    Head head(engine);
    std::vector<int32_t> next(tokens.begin() + 1, tokens.end());
    std::vector<const float *> h;
    for (size_t i = 0; i < next.size(); i++) h.push_back(states.data() + i * head.d);
    head.run(0, next, h);
    expect_near(head.logits, g.get<float>("mtp.logits"), "logits");
    expect_near(head.hidden, g.get<float>("mtp.hidden"), "hidden states");
    const std::vector<float> all = head.logits,
                             last(head.hidden.end() - (long)head.d, head.hidden.end());
    head.run((int)next.size(), second, { last.data() });
    expect_near(head.logits, g.get<float>("mtp.second_logits"), "logits of the second draft");

    /* The same in two pieces: bits do not depend on the cut. */
    const long cut = 5, n = (long)next.size();
    head.run(0, { next.begin(), next.begin() + cut }, { h.begin(), h.begin() + cut });
    head.run((int)cut, { next.begin() + cut, next.end() }, { h.begin() + cut, h.end() });
    EXPECT_EQ(head.logits, std::vector<float>(all.end() - (n - cut) * (long)head.v, all.end()));
}

TEST(Mtp, ComputesWhatTheReferenceDoes)
{
    check("tests/golden/mtp/tq-mtp", "tests/golden/mtp/tq-mtp/golden.safetensors");
    check("tests/golden/mtp/deepseek3", "tests/golden/mtp/deepseek3/golden.safetensors");
    check("tests/golden/mtp/glm4-moe", "tests/golden/mtp/glm4-moe/golden.safetensors");
    check(support::golden("tq/tq-q4_0.gguf"), "tests/golden/mtp/tq-q4_0.safetensors");
}

TEST(Mtp, GetsTheHiddenStatesOfAStep)
{
    Engine engine;
    ASSERT_EQ(engine.open("tests/golden/mtp/tq-mtp", with_head, true), WEIR_OK) << engine.text();
    const Golden g("tests/golden/mtp/tq-mtp/golden.safetensors");
    const auto tokens = g.get<int32_t>("tokens");
    const auto states = g.get<float>("final_norm");
    support::Sequence sequence(engine);
    sequence.add(tokens);
    const size_t d = (size_t)engine.shape().d_model;
    const int first = 7, n = (int)tokens.size();
    const float *logits;
    for (const auto &[begin, end] : { std::pair(0, first), std::pair(first, n) }) {
        weir_batch_item item = support::item_of(&sequence, end - begin, WEIR_LOGITS_LAST);
        ASSERT_EQ(weir_runner_step(engine.runner(), &item, 1, &logits, engine.error()), WEIR_OK)
            << engine.text();
        for (int p = begin; p < end; p++) {
            const float *const row = weir_runner_hidden(engine.runner(), &item, p);
            for (size_t i = 0; i < d; i++) ASSERT_NEAR(row[i], states[(size_t)p * d + i], 1e-3f);
        }
    }
}

TEST(Mtp, IsNotThereUnlessAskedForAndWhole)
{
    Engine engine;
    Settings off = with_head;
    off[0] = "speculation.mtp=off";
    ASSERT_EQ(engine.open("tests/golden/mtp/tq-mtp", off, true), WEIR_OK) << engine.text();
    EXPECT_EQ(weir_model_mtp_bytes(weir_engine_model(engine.get())), 0u);
    const size_t before = weir_model_weight_bytes(weir_engine_model(engine.get()));
    const int64_t n = weir_model_parameters(weir_engine_model(engine.get()));
    ASSERT_EQ(engine.open("tests/golden/mtp/tq-mtp", with_head, false), WEIR_OK) << engine.text();
    EXPECT_EQ(weir_model_mtp_bytes(weir_engine_model(engine.get())), 0u) << "without a service";
    ASSERT_EQ(engine.open("tests/golden/mtp/tq-mtp", with_head, true), WEIR_OK) << engine.text();
    EXPECT_GE(
        weir_model_weight_bytes(weir_engine_model(engine.get())),
        before + weir_model_mtp_bytes(weir_engine_model(engine.get()))
    );
    EXPECT_EQ(weir_model_parameters(weir_engine_model(engine.get())), n);
    /* Of this one the file has a part. */
    ASSERT_EQ(engine.open(support::golden("tq-r1"), with_head, true), WEIR_OK) << engine.text();
    EXPECT_EQ(weir_model_mtp_bytes(weir_engine_model(engine.get())), 0u);
    EXPECT_SAYS(
        weir_model_mtp_problem(weir_engine_model(engine.get())),
        "mtp.pre_fc_norm_embedding.weight is missing"
    );
    ASSERT_EQ(engine.open(support::golden("qwen3"), with_head, true), WEIR_OK) << engine.text();
    EXPECT_EQ(weir_model_mtp_problem(weir_engine_model(engine.get())), nullptr);
}

/* Of another shape, tensors of the head do not keep the model from answering. */
TEST(Mtp, IsNotThereWithTensorsOfAnotherShape)
{
    for (const char *const name : { "mtp.fc.weight", "mtp.layers.0.mlp.down_proj.weight" }) {
        SCOPED_TRACE(name);
        const support::Folder folder;
        arch_files::copy_checkpoint(folder, "../mtp/tq-mtp");
        const std::string header = support::read_file(folder / "model.safetensors");
        std::smatch found;
        ASSERT_TRUE(std::regex_search(
            header, found,
            std::regex("\"" + std::string(name) + "\": ?\\{[^}]*\"shape\": ?\\[\\d+, ?\\d+\\]")
        ));
        const std::string entry = found.str();
        arch_files::change_header(
            folder, entry, std::regex_replace(entry, std::regex("\\[(\\d+), ?(\\d+)\\]"), "[$2,$1]")
        );
        Engine engine;
        ASSERT_EQ(engine.open(folder.path(), with_head, true), WEIR_OK) << engine.text();
        EXPECT_EQ(weir_model_mtp_bytes(weir_engine_model(engine.get())), 0u);
        EXPECT_SAYS(
            weir_model_mtp_problem(weir_engine_model(engine.get())),
            "tensor " + std::string(name) + " is ["
        );
    }
}

} // namespace
