/* A mixer of CoDA-GQA-L as the only layer of a model, its inputs given. */
#pragma once
#include <algorithm>

#include "tests/golden/golden.h"
#include "tests/unit/model/coda.h"

namespace support {

/* Dimensions in addition to those of the layer; the first one makes all rows equally long. */
constexpr int PAD = 16;

/* A model of one layer without feed-forward part: its residual stream gains what the mixer makes of
 * x. RMS norms see rows of one length, so the norm's weights undo it. */
class Layer {
  public:
    Layer(const Folder &folder, const std::vector<float> &x, int64_t width)
        : folder_(folder), x_(x), width_(width)
    {
    }

    void write(
        const std::map<std::string, Array> &weights, const std::string &block, int64_t heads,
        int64_t kv_heads, int64_t dim, double base
    )
    {
        const int64_t n = static_cast<int64_t>(x_.size()) / width_, d = width_ + PAD;
        double longest = 0;
        std::vector<float> sums;
        for (int64_t t = 0; t < n; t++) {
            double sum = 0;
            for (int64_t i = 0; i < width_; i++)
                sum += static_cast<double>(x_[t * width_ + i]) * x_[t * width_ + i];
            sums.push_back(static_cast<float>(sum));
            longest = std::max(longest, sum + 1);
        }
        Array embed = { { n, d }, std::vector<float>(n * d, 0.0f) },
              norm = { { d }, std::vector<float>(d, 0.0f) };
        for (int64_t t = 0; t < n; t++) {
            std::copy_n(x_.begin() + t * width_, width_, embed.values.begin() + t * d);
            embed.values[t * d + width_] = static_cast<float>(std::sqrt(longest - sums[t]));
        }
        for (int64_t i = 0; i < width_; i++)
            norm.values[i] = static_cast<float>(std::sqrt(longest / static_cast<double>(d)));
        Arrays all = { { "model.embed_tokens.weight", embed },
                       { "model.layers.0.input_layernorm.weight", norm } };
        const std::string at = "model.layers.0.";
        for (const auto &[name, array] : weights)
            all[at + "self_attn." + name] = padded(name, array);
        all[at + "post_attention_layernorm.weight"] =
            all["model.norm.weight"] = { { d }, std::vector<float>(d, 1.0f) };
        for (const char *const name : { "gate_proj", "up_proj", "down_proj" })
            all[at + "mlp." + name + ".weight"] = { name[0] == 'd' ? std::vector<int64_t>{ d, 16 }
                                                                   : std::vector<int64_t>{ 16, d },
                                                    std::vector<float>(16 * d, 0.0f) };
        support::write_safetensors(folder_ / "model.safetensors", all);
        std::filesystem::create_directories(folder_ / "archs");
        std::string arch = support::coda_arch("acme", "\"coda\"", block);
        if (weights.count("q_norm.weight") != 0)
            arch += "\"attn.q_norm\" = \"layers.{i}.self_attn.q_norm.weight\"\n\"attn.k_norm\" = "
                    "\"layers.{i}.self_attn.k_norm.weight\"\n";
        support::write_file(folder_ / "archs/acme.toml", arch);
        support::write_file(
            folder_ / "config.json",
            golden::format(
                R"({"model_type":"acme","hidden_size":%d,"num_hidden_layers":1,)"
                R"("num_attention_heads":%d,)"
                R"("num_key_value_heads":%d,"head_dim":%d,"intermediate_size":16,)"
                R"("rms_norm_eps":1e-6,)"
                R"("max_position_embeddings":512,"rope_theta":%g,"vocab_size":%d})",
                (int)d, (int)heads, (int)kv_heads, (int)dim, base, (int)n
            )
        );
    }
    weir_status open(const Settings &more = {})
    {
        Settings settings = { "model.arch_dir=" + (folder_ / "archs"), "kernels.activations=f32",
                              "kv.format=f32", "batch.chunk=256", "batch.max_sequences=2" };
        settings.insert(settings.end(), more.begin(), more.end());
        return engine_.open(folder_.path(), settings);
    }
    /* What the mixer adds to tokens [first, first + n), read as a prompt or as steps. */
    std::vector<float> run(Sequence *sequence, int64_t first, int64_t n, bool is_prompt)
    {
        std::vector<int32_t> tokens;
        for (int64_t t = first; t < first + n; t++) tokens.push_back(static_cast<int32_t>(t));
        sequence->add(tokens);
        rows_.clear();
        weir_runner_observe(engine_.runner(), watch, this);
        for (int64_t at = 0; at < n; at += n_now_) {
            n_now_ = is_prompt ? n : 1;
            first_now_ = first + at;
            weir_batch_item item =
                support::item_of(sequence, static_cast<int>(n_now_), WEIR_LOGITS_LAST);
            const float *logits;
            item.is_prompt = is_prompt;
            EXPECT_EQ(
                weir_runner_step(engine_.runner(), &item, 1, &logits, engine_.error()), WEIR_OK
            ) << engine_.text();
        }
        return rows_;
    }
    Engine &engine() { return engine_; }
    const Engine &engine() const { return engine_; }

  private:
    static void watch(void *user, int64_t layer, const float *hidden)
    {
        Layer *const self = static_cast<Layer *>(user);
        const int64_t d = self->width_ + PAD;
        for (int64_t t = 0; layer == 0 && t < self->n_now_; t++)
            for (int64_t i = 0; i < self->width_; i++)
                self->rows_.push_back(
                    hidden[t * d + i] - self->x_[(self->first_now_ + t) * self->width_ + i]
                );
    }
    /* Columns of zeros for what reads the rows of the stream, rows of zeros for what writes
     * them. */
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
                out.values.insert(
                    out.values.end(), array.values.begin() + r * width_,
                    array.values.begin() + (r + 1) * width_
                );
                out.values.resize(out.values.size() + PAD, 0.0f);
            }
        }
        return out;
    }
    const Folder &folder_;
    std::vector<float> x_, rows_;
    int64_t width_, n_now_ = 0, first_now_ = 0;
    Engine engine_;
};

} // namespace support
