/* The mixers of CoDA-GQA-L as layers of a model give what the published package gives: outputs
 * after prompts in blocks and after steps. */
#include <algorithm>

#include "tests/unit/model/coda_layer.h"

namespace {

using support::Array;
using support::Arrays;
using support::Folder;
using support::Layer;
using support::Sequence;
using Floats = std::vector<float>;

/* ---- reference values ------------------------------------------------------------------------ */
class CodaLayers : public ::testing::Test {
  protected:
    CodaLayers() : index_("tests/golden/kv/index.json") {}
    void open(const std::string &file)
    {
        std::string why;
        ASSERT_TRUE(tensors_.open("tests/golden/kv/" + file + ".safetensors", &why)) << why;
        cases_ = json_object_get(
            json_object_get(
                json_object_get(index_.root(), "files"), (file + ".safetensors").c_str()
            ),
            "cases"
        );
        ASSERT_NE(cases_, nullptr);
    }
    Arrays weights(const std::string &prefix) const
    {
        Arrays out;
        for (const std::string &name : tensors_.names(prefix))
            out[name.substr(prefix.size())] = { tensors_.shape(name), tensors_.floats(name) };
        return out;
    }
    void expect_near(const std::string &name, const Floats &got, double most = 2e-5) const
    {
        const Floats want = tensors_.need_floats(name);
        ASSERT_EQ(got.size(), want.size()) << name;
        double worst = 0;
        for (size_t i = 0; i < got.size(); i++)
            worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]));
        EXPECT_LE(worst, most) << name;
    }
    /* What the package counted for the case, against what the engine tells of the sequence. */
    void expect_counts(const std::string &key, const Layer &layer, Sequence *sequence)
    {
        const json_t *const metrics =
            json_object_get(json_object_get(cases_, key.c_str()), "metrics");
        const weir_bank_stats coda =
            weir_runner_bank_stats(layer.engine().runner(), sequence->get());
        const auto number = [&](const char *name) {
            return json_number_value(json_object_get(metrics, name));
        };
        const struct {
            const char *name;
            weir_bank_counter count;
        } counts[] = { { "total_evictions", WEIR_BANK_STATS_EVICTIONS },
                       { "tokens_gated_out", WEIR_BANK_STATS_GATED_OUT },
                       { "exact_hits", WEIR_BANK_STATS_EXACT_HITS },
                       { "exact_inserts", WEIR_BANK_STATS_EXACT_INSERTS },
                       { "exact_overwrites", WEIR_BANK_STATS_EXACT_OVERWRITES },
                       { "summary_updates", WEIR_BANK_STATS_SUMMARY_UPDATES },
                       { "summary_inserts", WEIR_BANK_STATS_SUMMARY_FOUNDED },
                       { "exact_frustrated", WEIR_BANK_STATS_EXACT_FRUSTRATED },
                       { "summary_frustrated", WEIR_BANK_STATS_SUMMARY_FRUSTRATED },
                       { "expansions_exact", WEIR_BANK_STATS_EXACT_OPENED },
                       { "expansions_summary", WEIR_BANK_STATS_SUMMARY_OPENED } };
        if (!json_is_object(metrics)) return;
        for (const auto &one : counts)
            EXPECT_EQ(coda.counts[one.count], number(one.name)) << key << " " << one.name;
        const auto fill = [](const weir_bank_use &part) {
            return part.slots > 0 ? static_cast<double>(part.used) / static_cast<double>(part.slots)
                                  : 0;
        };
        EXPECT_EQ(coda.n_layers, 1);
        EXPECT_NEAR(fill(coda.exact), number("exact_fill_ratio"), 1e-6) << key;
        EXPECT_NEAR(fill(coda.summary), number("summary_fill_ratio"), 1e-6) << key;
        EXPECT_EQ(coda.exact.open, number("active_exact")) << key;
        EXPECT_EQ(coda.summary.open, number("active_summary")) << key;
        n_counted_++;
    }
    /* A prompt of `tokens` and the steps after it. */
    void run_case(Layer *layer, const std::string &key, int64_t tokens)
    {
        Sequence sequence(layer->engine());
        if (tokens > 0) expect_near(key + ".y", layer->run(&sequence, 0, tokens, true));
        if (tokens > 0) expect_counts(key, *layer, &sequence);
        const std::string then = tokens > 0 ? key + ".then" : key;
        if (!tensors_.has(then + ".y")) return;
        const int64_t n = tensors_.need_shape(then + ".y", 2)[0];
        expect_near(then + ".y", layer->run(&sequence, tokens, n, false));
        expect_counts(then, *layer, &sequence);
    }
    golden::Document index_;
    golden::Tensors tensors_;
    json_t *cases_ = nullptr;
    int n_counted_ = 0;
};

/* The switches of the package as options of a block; none of those that states do not have. */
std::string changed_options(
    const json_t *changed, std::string *rope, int *window, int *exact, int *summary
)
{
    std::string out;
    const char *name;
    const json_t *value;
    json_object_foreach(const_cast<json_t *>(changed), name, value)
    {
        const std::string key = name;
        const int number = static_cast<int>(json_number_value(value));
        if (key == "rope_interleaved")
            *rope = json_is_true(value) ? "pairs" : "half_split";
        else if (key == "head_norm_mode")
            out += "head_norm = \"" + std::string(json_string_value(value)) + "\"\n";
        else if (key == "write_policy")
            out += "gate = \"constant\"\n";
        else if (key == "exact_refresh_on_hit")
            out += "refresh = true\n";
        else if (key == "summary_overwrite_on_insert")
            out += "found = false\n";
        else if (key == "num_landmarks_exact" || key == "max_landmarks_exact")
            *exact = number;
        else if (key == "num_landmarks_summary" || key == "max_landmarks_summary")
            *summary = number;
        else if (key == "min_landmarks_exact")
            out += "least_exact = " + std::to_string(number) + "\n";
        else if (key == "min_landmarks_summary")
            out += "least_summary = " + std::to_string(number) + "\n";
        else if (key == "expansion_t_max")
            out += "growth = " + std::to_string(number) + "\n";
        else if (key == "window")
            *window = number;
        else
            return "no";
    }
    return out;
}

TEST_F(CodaLayers, PromptsAndStepsAreThoseOfThePublishedPackage)
{
    open("coda_a");
    const json_t *const config = json_object_get(cases_, "A.config");
    const auto integer = [&](const char *key) {
        return static_cast<int>(json_integer_value(json_object_get(config, key)));
    };
    const Folder folder;
    Arrays all = weights("A.w.");
    int n_cases = 0;
    const char *label;
    const json_t *entry;
    json_object_foreach(cases_, label, entry)
    {
        const std::string key = label;
        const bool is_option = key.rfind("A.opt.", 0) == 0, is_steps = key == "A.steps";
        const bool is_compat = key.size() > 7 && key.rfind(".compat") == key.size() - 7;
        if (!is_steps && !is_compat && (key.size() < 6 || key.rfind(".fixed") != key.size() - 6))
            continue;
        if (!is_steps && !is_option && key.rfind("A.T", 0) != 0) continue;
        std::string rope = "pairs", options;
        int window = integer("W"), exact = integer("Me"), summary = integer("Ms");
        const int64_t tokens = json_integer_value(json_object_get(entry, "tokens")),
                      block = is_steps ? 8 : json_integer_value(json_object_get(entry, "block"));
        if (is_option)
            options = changed_options(
                json_object_get(
                    json_object_get(cases_, (key.substr(0, key.rfind('.')) + ".config").c_str()),
                    "changed"
                ),
                &rope, &window, &exact, &summary
            );
        if (options == "no") continue; /* attending to slots that hold nothing */
        options += golden::format(
            "window = %d\nlandmarks_exact = %d\nlandmarks_summary = "
            "%d\nexact_candidates = %d\nsummary_candidates = %d\n"
            "block_rows = %d\ncandidates = \"%s\"\nband = \"upper_half\"\n",
            window, exact, summary, integer("Te"), integer("Ts"), (int)block,
            is_compat ? "compat" : "fixed"
        );
        SCOPED_TRACE(key);
        Layer layer(folder, tensors_.need_floats("A.x"), integer("D"));
        layer.write(
            all, support::coda_block(options, "coda", rope), integer("H"), integer("Hk"),
            integer("Dh"), 10000
        );
        ASSERT_EQ(layer.open(), WEIR_OK) << layer.engine().text();
        run_case(&layer, key, tokens);
        n_cases++;
    }
    EXPECT_GT(n_cases, 40);
    EXPECT_GT(n_counted_, 60);
}

TEST_F(CodaLayers, HeadsOfTheirOwnWidthAndNormsAndTheBandOfTheLayout)
{
    open("coda_a");
    const Folder folder;
    for (const char *const band : { "compat_band", "layout_band" }) {
        const std::string key = "A.ext." + std::string(band);
        Layer layer(folder, tensors_.need_floats("A.x"), 64);
        layer.write(
            weights("A.ext.w."),
            support::coda_block(
                "qk_norm = true\nhead_norm = \"identity\"\nwindow = 8\nlandmarks_exact = "
                "4\nlandmarks_summary = 3\n"
                "exact_candidates = 4\nsummary_candidates = 12\nblock_rows = 8\nband = \"" +
                std::string(band[0] == 'c' ? "upper_half" : "by_rope") + "\"\n"
            ),
            4, 2, 24, 1000000
        );
        ASSERT_EQ(layer.open(), WEIR_OK) << layer.engine().text();
        run_case(
            &layer, key,
            json_integer_value(json_object_get(json_object_get(cases_, key.c_str()), "tokens"))
        );
    }
}

TEST_F(CodaLayers, WithoutBanksAllRowsAreAttended)
{
    open("coda_unbounded");
    const Folder folder;
    for (const char *const key : { "inter_full", "half_identity", "half_full" }) {
        const json_t *const entry = json_object_get(cases_, key);
        const std::string rope =
            json_is_true(json_object_get(entry, "interleaved")) ? "pairs" : "half_split";
        const std::string norm = golden::string_at(entry, "norm");
        Layer layer(folder, tensors_.need_floats("x"), 64);
        layer.write(
            weights("w.w."),
            "[block.coda]\nmixer = \"differential_attention\"\nrope = \"" + rope +
                "\"\nhead_norm = \"" + norm + "\"\n",
            4, 2, 16, 10000
        );
        ASSERT_EQ(layer.open(), WEIR_OK) << layer.engine().text();
        Sequence whole(layer.engine()), stepping(layer.engine());
        const int64_t n = tensors_.need_shape("x", 2)[0];
        const Floats prompt = layer.run(&whole, 0, n, true);
        expect_near(std::string(key) + ".y", prompt);
        EXPECT_EQ(layer.run(&stepping, 0, n, false), prompt) << "steps have the bits of a prompt";
    }
}

/* As long as nothing leaves the ring, memory of fixed size is attention over everything. */
TEST_F(CodaLayers, AWindowAsLongAsTheSequenceIsAttentionOverAllOfIt)
{
    open("coda_unbounded");
    const Folder folder;
    const Floats x = tensors_.need_floats("x");
    const int n = static_cast<int>(tensors_.need_shape("x", 2)[0]), window = n + 3;
    Floats want;
    for (const int block : { 0, 1, 7, n, window }) {
        Layer layer(folder, x, 64);
        const std::string options = golden::format(
            "window = %d\nlandmarks_exact = 5\nlandmarks_summary = 3\nblock_rows = %d\n", window,
            block
        );
        layer.write(
            weights("w.w."),
            block == 0 ? "[block.coda]\nmixer = \"differential_attention\"\nrope = \"half_split\"\n"
                       : support::coda_block(options),
            4, 2, 16, 10000
        );
        ASSERT_EQ(layer.open(), WEIR_OK) << layer.engine().text();
        Sequence sequence(layer.engine()), stepping(layer.engine());
        const Floats got = layer.run(&sequence, 0, n, true),
                     steps = layer.run(&stepping, 0, n, false);
        if (block == 0) want = got;
        double worst = 0;
        for (size_t i = 0; i < got.size(); i++)
            worst = std::max({ worst, std::fabs(static_cast<double>(got[i]) - want[i]),
                               std::fabs(static_cast<double>(steps[i]) - want[i]) });
        EXPECT_LE(worst, 1e-6) << "blocks of " << block;
    }
}

} // namespace
