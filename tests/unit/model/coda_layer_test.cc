/* The mixers of CoDA-GQA-L as layers of a model give what the published package gives: outputs after prompts in blocks and after steps. */
#include <algorithm>

#include "tests/golden/golden.h"
#include "tests/unit/model/coda.h"

namespace {

using support::Array;
using support::Arrays;
using support::Engine;
using support::Folder;
using support::Sequence;
using support::Settings;
using Floats = std::vector<float>;

constexpr int PAD = 16; /* dimensions beside those of the layer, the first of which makes all rows equally long */

/* A model of one layer without feed-forward part: its residual stream gains what the mixer makes of x. RMS norms see rows of one length, so the norm's weights
 * undo it. */
class Layer {
  public:
    Layer(const Folder &folder, const Floats &x, int64_t width) : folder_(folder), x_(x), width_(width) {}

    void write(const std::map<std::string, Array> &weights, const std::string &block, int64_t heads, int64_t kv_heads, int64_t dim,
               double base)
    {
        const int64_t n = static_cast<int64_t>(x_.size()) / width_, d = width_ + PAD;
        double        longest = 0;
        Floats        sums;
        for (int64_t t = 0; t < n; t++) {
            double sum = 0;
            for (int64_t i = 0; i < width_; i++) sum += static_cast<double>(x_[t * width_ + i]) * x_[t * width_ + i];
            sums.push_back(static_cast<float>(sum));
            longest = std::max(longest, sum + 1);
        }
        Array embed = { { n, d }, Floats(n * d, 0.0f) }, norm = { { d }, Floats(d, 0.0f) };
        for (int64_t t = 0; t < n; t++) {
            std::copy_n(x_.begin() + t * width_, width_, embed.values.begin() + t * d);
            embed.values[t * d + width_] = static_cast<float>(std::sqrt(longest - sums[t]));
        }
        for (int64_t i = 0; i < width_; i++) norm.values[i] = static_cast<float>(std::sqrt(longest / static_cast<double>(d)));
        Arrays            all = { { "model.embed_tokens.weight", embed }, { "model.layers.0.input_layernorm.weight", norm } };
        const std::string at = "model.layers.0.";
        for (const auto &[name, array] : weights) all[at + "self_attn." + name] = padded(name, array);
        all[at + "post_attention_layernorm.weight"] = all["model.norm.weight"] = { { d }, Floats(d, 1.0f) };
        for (const char *const name : { "gate_proj", "up_proj", "down_proj" })
            all[at + "mlp." + name + ".weight"] = { name[0] == 'd' ? std::vector<int64_t>{ d, 16 } : std::vector<int64_t>{ 16, d },
                                                    Floats(16 * d, 0.0f) };
        support::write_safetensors(folder_ / "model.safetensors", all);
        std::filesystem::create_directories(folder_ / "archs");
        std::string arch = support::coda_arch("acme", "\"coda\"", block);
        if (weights.count("q_norm.weight") != 0)
            arch += "\"attn.q_norm\" = \"layers.{i}.self_attn.q_norm.weight\"\n\"attn.k_norm\" = \"layers.{i}.self_attn.k_norm.weight\"\n";
        support::write_file(folder_ / "archs/acme.toml", arch);
        support::write_file(folder_ / "config.json",
                            golden::format(R"({"model_type":"acme","hidden_size":%d,"num_hidden_layers":1,"num_attention_heads":%d,)"
                                           R"("num_key_value_heads":%d,"head_dim":%d,"intermediate_size":16,"rms_norm_eps":1e-6,)"
                                           R"("max_position_embeddings":512,"rope_theta":%g,"vocab_size":%d})",
                                           (int)d, (int)heads, (int)kv_heads, (int)dim, base, (int)n));
    }
    weir_status open(const Settings &more = {})
    {
        Settings settings = { "model.arch_dir=" + (folder_ / "archs"), "kernels.activations=f32", "kv.format=f32", "batch.chunk=256",
                              "batch.max_sequences=2" };
        settings.insert(settings.end(), more.begin(), more.end());
        return engine_.open(folder_.path(), settings);
    }
    /* What the mixer adds to tokens [first, first + n), read as a prompt or as steps. */
    Floats run(Sequence *sequence, int64_t first, int64_t n, bool is_prompt)
    {
        std::vector<int32_t> tokens;
        for (int64_t t = first; t < first + n; t++) tokens.push_back(static_cast<int32_t>(t));
        sequence->add(tokens);
        rows_.clear();
        weir_runner_observe(engine_.runner(), watch, this);
        for (int64_t at = 0; at < n; at += n_now_) {
            n_now_ = is_prompt ? n : 1;
            first_now_ = first + at;
            weir_work    work = support::work_of(sequence, static_cast<int>(n_now_), WEIR_LOGITS_LAST);
            const float *logits;
            work.is_prompt = is_prompt;
            EXPECT_EQ(weir_runner_step(engine_.runner(), &work, 1, &logits, engine_.error()), WEIR_OK) << engine_.text();
        }
        return rows_;
    }
    Engine &engine() { return engine_; }

  private:
    static void watch(void *user, int64_t layer, const float *hidden)
    {
        Layer *const  self = static_cast<Layer *>(user);
        const int64_t d = self->width_ + PAD;
        for (int64_t t = 0; layer == 0 && t < self->n_now_; t++)
            for (int64_t i = 0; i < self->width_; i++)
                self->rows_.push_back(hidden[t * d + i] - self->x_[(self->first_now_ + t) * self->width_ + i]);
    }
    /* Columns of zeros for what reads the rows of the stream, rows of zeros for what writes them. */
    Array padded(const std::string &name, const Array &array) const
    {
        Array out = array;
        if (name == "o_proj.weight") {
            out.shape[0] += PAD;
            out.values.resize(out.values.size() + static_cast<size_t>(PAD * array.shape[1]), 0.0f);
        } else if (name.find("_proj.weight") != std::string::npos) {
            out.shape[1] += PAD;
            out.values.clear();
            for (int64_t r = 0; r < array.shape[0]; r++) {
                out.values.insert(out.values.end(), array.values.begin() + r * width_, array.values.begin() + (r + 1) * width_);
                out.values.resize(out.values.size() + PAD, 0.0f);
            }
        }
        return out;
    }
    const Folder &folder_;
    Floats        x_, rows_;
    int64_t       width_, n_now_ = 0, first_now_ = 0;
    Engine        engine_;
};

/* ---- reference values ---------------------------------------------------------------------------------------------------- */
class CodaLayers : public ::testing::Test {
  protected:
    CodaLayers() : index_("tests/golden/kv/index.json") {}
    void open(const std::string &file)
    {
        std::string why;
        ASSERT_TRUE(tensors_.open("tests/golden/kv/" + file + ".safetensors", &why)) << why;
        cases_ = json_object_get(json_object_get(json_object_get(index_.root(), "files"), (file + ".safetensors").c_str()), "cases");
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
        for (size_t i = 0; i < got.size(); i++) worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]));
        EXPECT_LE(worst, most) << name;
    }
    /* A prompt of `tokens` and the steps behind it. */
    void run_case(Layer *layer, const std::string &key, int64_t tokens)
    {
        Sequence sequence(layer->engine());
        if (tokens > 0) expect_near(key + ".y", layer->run(&sequence, 0, tokens, true));
        const std::string then = tokens > 0 ? key + ".then" : key;
        if (!tensors_.has(then + ".y")) return;
        const int64_t n = tensors_.need_shape(then + ".y", 2)[0];
        expect_near(then + ".y", layer->run(&sequence, tokens, n, false));
    }
    golden::Document index_;
    golden::Tensors  tensors_;
    json_t          *cases_ = nullptr;
};

/* The switches of the package as options of a block; none of those that states do not have. */
std::string changed_options(const json_t *changed, std::string *rope, int *window, int *exact, int *summary)
{
    std::string   out;
    const char   *name;
    const json_t *value;
    json_object_foreach(const_cast<json_t *>(changed), name, value)
    {
        const std::string key = name;
        const int         number = static_cast<int>(json_number_value(value));
        if (key == "rope_interleaved")
            *rope = json_is_true(value) ? "pairs" : "half_split";
        else if (key == "head_norm_mode")
            out += "head_norm = \"" + std::string(json_string_value(value)) + "\"\n";
        else if (key == "write_policy")
            out += "gated = false\n";
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
    const auto          integer = [&](const char *key) { return static_cast<int>(json_integer_value(json_object_get(config, key))); };
    const Folder        folder;
    Arrays              all = weights("A.w.");
    int                 n_cases = 0;
    const char         *label;
    const json_t       *entry;
    json_object_foreach(cases_, label, entry)
    {
        const std::string key = label;
        const bool        is_option = key.rfind("A.opt.", 0) == 0, is_steps = key == "A.steps";
        const bool        is_compat = key.size() > 7 && key.rfind(".compat") == key.size() - 7;
        if (!is_steps && !is_compat && (key.size() < 6 || key.rfind(".fixed") != key.size() - 6)) continue;
        if (!is_steps && !is_option && key.rfind("A.T", 0) != 0) continue;
        std::string   rope = "pairs", options;
        int           window = integer("W"), exact = integer("Me"), summary = integer("Ms");
        const int64_t tokens = json_integer_value(json_object_get(entry, "tokens")),
                      block = is_steps ? 8 : json_integer_value(json_object_get(entry, "block"));
        if (is_option)
            options =
                changed_options(json_object_get(json_object_get(cases_, (key.substr(0, key.rfind('.')) + ".config").c_str()), "changed"),
                                &rope, &window, &exact, &summary);
        if (options == "no") continue; /* attending to slots that hold nothing */
        options +=
            golden::format("window = %d\nlandmarks_exact = %d\nlandmarks_summary = %d\nexact_candidates = %d\nsummary_candidates = %d\n"
                           "block_rows = %d\ncandidates = \"%s\"\nband = \"upper_half\"\n",
                           window, exact, summary, integer("Te"), integer("Ts"), (int)block, is_compat ? "compat" : "fixed");
        SCOPED_TRACE(key);
        Layer layer(folder, tensors_.need_floats("A.x"), integer("D"));
        layer.write(all, support::coda_block(options, "coda", rope), integer("H"), integer("Hk"), integer("Dh"), 10000);
        ASSERT_EQ(layer.open(), WEIR_OK) << layer.engine().text();
        run_case(&layer, key, tokens);
        n_cases++;
    }
    EXPECT_GT(n_cases, 40);
}

TEST_F(CodaLayers, HeadsOfTheirOwnWidthAndNormsAndTheBandOfTheLayout)
{
    open("coda_a");
    const Folder folder;
    for (const char *const band : { "compat_band", "layout_band" }) {
        const std::string key = "A.ext." + std::string(band);
        Layer             layer(folder, tensors_.need_floats("A.x"), 64);
        layer.write(weights("A.ext.w."),
                    support::coda_block("qk_norm = true\nhead_norm = \"identity\"\nwindow = 8\nlandmarks_exact = 4\nlandmarks_summary = 3\n"
                                        "exact_candidates = 4\nsummary_candidates = 12\nblock_rows = 8\nband = \"" +
                                        std::string(band[0] == 'c' ? "upper_half" : "by_rope") + "\"\n"),
                    4, 2, 24, 1000000);
        ASSERT_EQ(layer.open(), WEIR_OK) << layer.engine().text();
        run_case(&layer, key, json_integer_value(json_object_get(json_object_get(cases_, key.c_str()), "tokens")));
    }
}

TEST_F(CodaLayers, WithoutBanksAllRowsAreAttended)
{
    open("coda_unbounded");
    const Folder folder;
    for (const char *const key : { "inter_full", "half_identity", "half_full" }) {
        const json_t *const entry = json_object_get(cases_, key);
        const std::string   rope = json_is_true(json_object_get(entry, "interleaved")) ? "pairs" : "half_split";
        const std::string   norm = golden::string_at(entry, "norm");
        Layer               layer(folder, tensors_.need_floats("x"), 64);
        layer.write(weights("w.w."),
                    "[block.coda]\nmixer = \"differential_attention\"\nrope = \"" + rope + "\"\nhead_norm = \"" + norm + "\"\n", 4, 2, 16,
                    10000);
        ASSERT_EQ(layer.open(), WEIR_OK) << layer.engine().text();
        Sequence      whole(layer.engine()), stepping(layer.engine());
        const int64_t n = tensors_.need_shape("x", 2)[0];
        const Floats  prompt = layer.run(&whole, 0, n, true);
        expect_near(std::string(key) + ".y", prompt);
        EXPECT_EQ(layer.run(&stepping, 0, n, false), prompt) << "steps have the bits of a prompt";
    }
}

/* As long as nothing leaves the ring, memory of fixed size is attention over everything. */
TEST_F(CodaLayers, AWindowAsLongAsTheTextIsAttentionOverAllOfIt)
{
    open("coda_unbounded");
    const Folder folder;
    const Floats x = tensors_.need_floats("x");
    const int    n = static_cast<int>(tensors_.need_shape("x", 2)[0]), window = n + 3;
    Floats       want;
    for (const int block : { 0, 1, 7, n, window }) {
        Layer             layer(folder, x, 64);
        const std::string options =
            golden::format("window = %d\nlandmarks_exact = 5\nlandmarks_summary = 3\nblock_rows = %d\n", window, block);
        layer.write(weights("w.w."),
                    block == 0 ? "[block.coda]\nmixer = \"differential_attention\"\nrope = \"half_split\"\n" : support::coda_block(options),
                    4, 2, 16, 10000);
        ASSERT_EQ(layer.open(), WEIR_OK) << layer.engine().text();
        Sequence     sequence(layer.engine()), stepping(layer.engine());
        const Floats got = layer.run(&sequence, 0, n, true), steps = layer.run(&stepping, 0, n, false);
        if (block == 0) want = got;
        double worst = 0;
        for (size_t i = 0; i < got.size(); i++)
            worst =
                std::max({ worst, std::fabs(static_cast<double>(got[i]) - want[i]), std::fabs(static_cast<double>(steps[i]) - want[i]) });
        EXPECT_LE(worst, 1e-6) << "blocks of " << block;
    }
}

} // namespace
