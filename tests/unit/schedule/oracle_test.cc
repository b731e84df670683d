/* Evictions of every method against the oracle: hybrid models, models whose layers alternate with sliding windows, forks in one batch, files. */
#include "tests/unit/schedule/oracle.h"

namespace oracle {
namespace {

const std::pair<const char *, const char *> methods[] = {
    { "sinks", "every=3" },
    { "h2o", "sinks=2,recent=8,every=3" },
    { "scissorhands", "recent=8,every=3,history=32" },
    { "snapkv", "window=8,every=3" },
    { "rkv", "window=8,recent=4,every=3" },
    { "tova", "every=1" },
    { "keydiff", "every=3" },
    { "knorm", "every=3,split=adaptive" },
    { "expected", "every=3" },
    { "lagkv", "lag=8,every=3" },
    { "landmarks", "landmarks=8,every=3" },
    { "random", "every=3" },
    { "observed", "every=3,split=adaptive" },
};

TEST_F(Oracle, ThroughManyEvictionsAForkAndAFile)
{
    for (const char *const model : { "tq", "qwen3" })
        for (const auto &[name, options] : methods) {
            open(support::golden(model), name, options);
            run(std::string(model) + " " + name, 10, {}, true);
            close();
        }
}

/* Layers with a sliding window lose nothing, whichever comes first; the window ends within a page. */
TEST_F(Oracle, LayersWithASlidingWindowKeepTheirRows)
{
    for (const bool window_first : { true, false }) {
        const Folder folder;
        Settings     settings;
        support::write_windowed(
            folder, window_first ? std::vector<std::string>{ "window", "whole" } : std::vector<std::string>{ "whole", "window" }, 40,
            &settings);
        for (const auto &[name, options] : methods) {
            open(folder.path(), name, options, settings);
            run(std::string(name) + (window_first ? " behind" : " before") + " a window", 10, { window_first ? 0 : 1 }, true);
            close();
        }
    }
}

/* A first layer with a window computes from tokens alone: the same with and without a policy, to the bit. */
TEST_F(Oracle, AWindowSeesWhatItSawBefore)
{
    const Folder         folder;
    Settings             settings;
    std::vector<float>   hidden;
    std::vector<int32_t> tokens;
    support::write_windowed(folder, { "window", "whole" }, 40, &settings);
    open(folder.path(), "sinks", "every=3", settings);
    for (int i = 0; i < 200; i++) tokens.push_back((i * 31 + i * i) % 300);
    const auto cut = text(0, tokens), whole = text(1, tokens);
    const auto width = static_cast<size_t>(engine_.shape().d_model);
    struct Seen {
        std::vector<float> *hidden;
        size_t              n;
    } seen = { &hidden, 0 };
    whole->get()->keeping = nullptr;
    weir_runner_observe(
        engine_.runner(),
        [](void *user, int64_t layer, const float *x) {
            const Seen *const s = static_cast<const Seen *>(user);
            if (layer == 0) s->hidden->assign(x, x + s->n);
        },
        &seen);
    for (int n_computed = 0, n = 25; n_computed < 200; n_computed += n, n = n_computed < n_prompt ? 25 : 1) {
        seen.n = 2 * static_cast<size_t>(n) * width;
        const auto logits = step({ &cut->sequence, &whole->sequence }, n);
        const auto half = hidden.begin() + static_cast<int64_t>(seen.n / 2);
        EXPECT_TRUE(std::equal(hidden.begin(), half, half)) << "at " << n_computed;
        if (n_computed > n_prompt) EXPECT_NE(logits[0], logits[1]) << "the other layer lost rows";
        EXPECT_EQ(weir_runner_evict(engine_.runner(), cut->get(), nullptr, engine_.error()), WEIR_OK) << engine_.text();
    }
}

TEST_F(Oracle, AModelOfWindowsOnlyHasNothingToDrop)
{
    EXPECT_EQ(engine_.open(support::golden("mistral"), { "kv.policy.name=sinks", "kv.policy.budget=24" }), WEIR_ECONFIG);
    EXPECT_NE(std::string(engine_.text()).find("no layer of this model keeps KV rows of the whole text"), std::string::npos)
        << engine_.text();
}

} // namespace
} // namespace oracle
