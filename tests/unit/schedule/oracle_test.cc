/* Evictions of every method against the oracle: hybrid models, models whose layers alternate with
 * sliding windows, forks in one batch, files. */
#include "engine/kv/policy/calibration.h"
#include "tests/every_nth.h"
#include "tests/unit/schedule/oracle.h"

namespace oracle {
namespace {

const std::vector<std::pair<const char *, const char *>> methods = {
    { "sinks", "every=3" },
    { "h2o", "sinks=2,recent=8,every=3" },
    { "scissorhands", "recent=8,every=3,history=32" },
    { "snapkv", "window=8,every=3" },
    { "snapkv_original", "window=8,every=3" },
    { "snapkv_decode", "window=8,every=3,trigger=slack" },
    { "rkv", "window=8,recent=4,every=3" },
    { "tova", "every=1" },
    { "keydiff", "every=3" },
    { "knorm", "every=3,split=adaptive" },
    { "expected", "every=3" },
    { "lagkv", "lag=8,every=3" },
    { "landmarks", "landmarks=8,every=3" },
    { "random", "every=3" },
    { "observed", "every=3,split=adaptive" },
    { "duo", "sinks=4,recent=19,every=3,heads=0:0" },
    { "triattention", "every=3,trigger=slack" },
    { "triattention", "every=3,trigger=slack,vote=per_layer_head,split=adaptive" },
    { "triattention", "every=3,trigger=slack,vote=union" },
};

struct Counting {
    const weir_service_policy *policy;
    weir_calibrator *calibrator;
};

/* Statistics of the model's queries over a sequence, in a file. */
std::string calibrate(const std::string &model, const Settings &more)
{
    Engine engine;
    Settings settings = { "kernels.activations=f32", "model.context=512", "batch.max_sequences=1" };
    settings.insert(settings.end(), more.begin(), more.end());
    EXPECT_EQ(engine.open(model, settings), WEIR_OK) << engine.text();
    Counting counting = { weir_engine_policy(engine.get()), nullptr };
    weir_calibration *statistics = nullptr;
    EXPECT_EQ(
        weir_calibrator_open(&counting.calibrator, &counting.policy->shape, 1e4f, engine.error()),
        WEIR_OK
    ) << engine.text();
    const auto add = [](void *user, int64_t kv_layer, const float *queries, int32_t n_rows) {
        const auto *const c = static_cast<const Counting *>(user);
        const auto &shape = c->policy->shape;
        const auto *const layers = c->policy->layers, *const end = layers + shape.n_layers,
                          *const at = std::find(layers, end, kv_layer);
        const weir_policy_queries rows = { queries, n_rows, shape.key_dim,
                                           shape.n_heads * shape.key_dim };
        if (at != end) weir_calibrator_add(c->calibrator, at - layers, &rows);
    };
    Sequence sequence(engine);
    EXPECT_EQ(weir_runner_show_queries(engine.runner(), add, &counting, engine.error()), WEIR_OK)
        << engine.text();
    const auto tokens = support::some_tokens(300, 9, engine.n_vocab());
    weir_evaluation evaluation = {};
    evaluation.tokens = tokens.data();
    evaluation.n_tokens = 300;
    evaluation.decode_from = INT32_MAX;
    EXPECT_EQ(weir_evaluate(engine.runner(), sequence.get(), &evaluation, engine.error()), WEIR_OK)
        << engine.text();
    EXPECT_EQ(weir_runner_show_queries(engine.runner(), nullptr, nullptr, engine.error()), WEIR_OK);
    const std::string path = ::testing::TempDir() + "oracle.tria";
    EXPECT_EQ(weir_calibrator_finish(counting.calibrator, &statistics, engine.error()), WEIR_OK)
        << engine.text();
    EXPECT_EQ(weir_calibration_write(path.c_str(), statistics, engine.error()), WEIR_OK)
        << engine.text();
    weir_calibration_close(statistics);
    weir_calibrator_close(counting.calibrator);
    return "kv.policy.calibration=" + path;
}

/* A method that is added is added here, too. */
TEST_F(Oracle, KnowsEveryMethod)
{
    const char *name, *summary;
    for (size_t i = 0; (name = weir_policy_at(i, &summary)) != nullptr; i++)
        EXPECT_TRUE(
            name == std::string("full") ||
            std::any_of(
                std::begin(methods), std::end(methods),
                [&](const auto &method) { return name == std::string(method.first); }
            )
        ) << name;
}

TEST_F(Oracle, ThroughManyEvictionsAForkAndAFile)
{
    for (const char *const model : { "tq", "qwen3" })
        for (const auto &[name, options] : weir_test::every_nth(methods, 3)) {
            Settings more;
            if (name == std::string("triattention"))
                more.push_back(calibrate(support::golden(model), {}));
            open(support::golden(model), name, options, more);
            run(std::string(model) + " " + name, 10, {}, true);
            close();
        }
}

/* Layers with a sliding window lose nothing, whichever comes first; the window ends within a
 * page. */
TEST_F(Oracle, LayersWithASlidingWindowKeepTheirRows)
{
    for (const bool window_first : { true, false }) {
        const Folder folder;
        Settings settings = { "kv.full_windows=true" };
        support::write_windowed(
            folder,
            window_first ? std::vector<std::string>{ "window", "whole" }
                         : std::vector<std::string>{ "whole", "window" },
            40, &settings
        );
        for (const auto &[name, options] : weir_test::every_nth(methods, 3)) {
            Settings more = settings;
            if (name == std::string("triattention"))
                more.push_back(calibrate(folder.path(), settings));
            open(folder.path(), name, options, more);
            run(std::string(name) + (window_first ? " after" : " before") + " a window", 10,
                { window_first ? 0 : 1 }, true);
            close();
        }
    }
}

/* Last layers read the rows that an earlier one is left with; the file has RoPE's factors, which
 * statistics are compared with. */
TEST_F(Oracle, LastLayersReadTheRowsThatAreLeft)
{
    const std::string model = support::golden("../families/gemma4/gemma4-f16.gguf");
    const std::pair<const char *, const char *> some[] = {
        { "h2o", "sinks=2,recent=8,every=3" },
        { "snapkv", "window=8,every=3" },
        { "expected", "every=3" },
        { "triattention", "every=3,trigger=slack" },
    };
    for (const auto &[name, options] : some) {
        Settings more = { "kv.full_windows=true" };
        if (name == std::string("triattention")) more.push_back(calibrate(model, more));
        open(model, name, options, more);
        run(name, 10, { 0, 1 }, true);
        close();
    }
}

/* A first layer with a window computes from tokens alone: the same with and without a policy, to
 * the bit. */
TEST_F(Oracle, AWindowSeesWhatItSawBefore)
{
    const Folder folder;
    Settings settings;
    std::vector<float> hidden;
    std::vector<int32_t> tokens;
    support::write_windowed(folder, { "window", "whole" }, 40, &settings);
    open(folder.path(), "sinks", "every=3", settings);
    for (int i = 0; i < 200; i++) tokens.push_back((i * 31 + i * i) % 300);
    const auto cut = watched(0, tokens), whole = watched(1, tokens);
    const auto width = static_cast<size_t>(engine_.shape().d_model);
    struct Seen {
        std::vector<float> *hidden;
        size_t n;
    } seen = { &hidden, 0 };
    whole->get()->policy_run = nullptr;
    weir_runner_observe(
        engine_.runner(),
        [](void *user, int64_t layer, const float *x) {
            const Seen *const s = static_cast<const Seen *>(user);
            if (layer == 0) s->hidden->assign(x, x + s->n);
        },
        &seen
    );
    for (int n_computed = 0, n = 25; n_computed < 200;
         n_computed += n, n = n_computed < n_prompt ? 25 : 1) {
        seen.n = 2 * static_cast<size_t>(n) * width;
        const auto logits = step({ &cut->sequence, &whole->sequence }, n);
        const auto half = hidden.begin() + static_cast<int64_t>(seen.n / 2);
        EXPECT_TRUE(std::equal(hidden.begin(), half, half)) << "at " << n_computed;
        if (n_computed > n_prompt) EXPECT_NE(logits[0], logits[1]) << "the other layer lost rows";
        EXPECT_EQ(weir_runner_evict(engine_.runner(), cut->get(), engine_.error()), WEIR_OK)
            << engine_.text();
    }
}

TEST_F(Oracle, AModelOfWindowsOnlyHasNothingToDrop)
{
    EXPECT_EQ(
        engine_.open(support::golden("mistral"), { "kv.policy.name=sinks", "kv.policy.budget=24" }),
        WEIR_ECONFIG
    );
    EXPECT_NE(
        std::string(engine_.text())
            .find("no layer of this model keeps KV rows of the whole sequence"),
        std::string::npos
    ) << engine_.text();
}

} // namespace
} // namespace oracle
