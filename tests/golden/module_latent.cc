/* tests/golden/module_latent.cc - latent attention (G22): the block over one page of rows, all at
 * once and one by one; FP8 matrices with scales of blocks (G25). */
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "engine/model/block.h"
#include "engine/model/model_internal.h"
#include "tests/golden/kernel_rows.h"
#include "tests/golden/module_golden.h"

extern "C" const weir_block weir_block_mla;

namespace golden {
namespace {

using Floats = std::vector<float>;

size_t of(int64_t n) { return static_cast<size_t>(n); }

/* Matrices [n_out, n_in], one after another, each for a group of rows. */
class Matrices {
  public:
    Matrices(const Floats &values, int64_t n, int64_t n_out, int64_t n_in) : all_(of(n))
    {
        for (size_t i = 0; i < all_.size(); i++) {
            const weir_matrix_source source = { values.data() + i * of(n_out * n_in), n_out, n_in,
                                                WEIR_F32, true };
            weir_error error = {};
            if (weir_weight_plan(&all_[i], stream(), &source, WEIR_ACTIVATIONS_F32, &error) !=
                WEIR_OK)
                throw Broken(error.text);
            memory_.emplace_back(std::aligned_alloc(64, (all_[i].bytes + 63) / 64 * 64), std::free);
            if (weir_weight_pack(&all_[i], stream(), &source, memory_.back().get(), &error) !=
                WEIR_OK)
                throw Broken(error.text);
        }
    }
    const weir_weight *get() const { return all_.data(); }

  private:
    std::vector<weir_weight> all_;
    std::vector<std::unique_ptr<void, decltype(&std::free)>> memory_;
};

/* A case: its numbers, weights and input. */
class Layer {
  public:
    Layer(Modules *m, const std::string &group, const std::string &number)
        : m_(m), prefix_(group + ".w.")
    {
        const Tensors &t = m->values.tensors;
        const std::string text = m->values.meaning(group + "." + number + ".config");
        const std::vector<int32_t> config = t.need_integers(group + "." + number + ".config");
        double scale = 0;
        if (config.size() != 7 || !number_after(text, "softmax scale ", &scale))
            throw Broken("its config has other numbers");
        const std::vector<int64_t> x = t.need_shape(prefix_ + "x", 2);
        shape.d_model = x[1], shape.n_heads = config[0], shape.nope_dim = config[1];
        shape.rotary_dim = config[2], shape.value_dim = config[3], shape.kv_lora_rank = config[4];
        shape.q_lora_rank = config[5], shape.attention_scale = scale, shape.rope_score_scale = 1;
        n = x[0], width = shape.nope_dim + shape.rotary_dim;
        row = shape.kv_lora_rank + shape.rotary_dim;
        pairs = config[6] != 0;
        input = t.need_floats(prefix_ + "x");
        rope = yarn(text);
        load();
    }
    Layer(const Layer &) = delete;
    Layer &operator=(const Layer &) = delete;

    /* The block's input of W_out instead of its output. */
    void show_sums()
    {
        const int64_t all = shape.n_heads * shape.value_dim;
        Floats one(of(all * all));
        for (int64_t i = 0; i < all; i++) one[of(i * all + i)] = 1;
        put("attn.out", keep(one, 1, all, all));
        n_out = all;
    }
    const void *options() const { return options_.data(); }
    const void *weights() const { return weights_.data(); }

    weir_shape shape = {};
    int64_t n = 0, width = 0, row = 0, n_out = 0;
    bool pairs = false;
    Floats input;
    Frequencies rope;

  private:
    Frequencies yarn(const std::string &text) const
    {
        const size_t at = text.find("yarn {"), end = text.find('}', at);
        if (at == text.npos || end == text.npos) throw Broken("its config has no scaling of RoPE");
        std::string json = text.substr(at + 5, end - at - 4);
        std::replace(json.begin(), json.end(), '\'', '"');
        const std::unique_ptr<json_t, decltype(&json_decref)> parameters(
            json_loads(json.c_str(), 0, nullptr), json_decref
        );
        if (!parameters) throw Broken("its scaling of RoPE is no object");
        return resolve_rope(
            parameters.get(), shape.rotary_dim, number_at(parameters.get(), "rope_theta", 0)
        );
    }
    const void *keep(const Floats &values, int64_t n_matrices, int64_t rows, int64_t n_in)
    {
        matrices_.push_back(std::make_unique<Matrices>(values, n_matrices, rows, n_in));
        return matrices_.back()->get();
    }
    const Floats &keep(Floats values)
    {
        vectors_.push_back(std::make_unique<Floats>(std::move(values)));
        return *vectors_.back();
    }
    void put(const char *parameter, const void *what)
    {
        for (const weir_parameter *s = weir_block_mla.parameters; s->name != nullptr; s++)
            if (strcmp(s->name, parameter) == 0)
                memcpy(weights_.data() + s->offset, &what, sizeof what);
    }
    void put_matrix(const char *parameter, const char *name, int64_t rows, int64_t n_in)
    {
        const Floats values = m_->values.tensors.need_floats(prefix_ + name, { rows, n_in });
        put(parameter, keep(values, 1, rows, n_in));
    }
    void put_vector(const char *parameter, const char *name, int64_t size)
    {
        put(parameter, keep(m_->values.tensors.need_floats(prefix_ + name, { size })).data());
    }
    void load()
    {
        const int64_t heads = shape.n_heads, rank = shape.kv_lora_rank, d = shape.d_model,
                      nope = shape.nope_dim, v = shape.value_dim, q_rank = shape.q_lora_rank;
        weights_.resize(weir_block_mla.weights_bytes);
        options_.resize(weir_block_mla.options_bytes);
        weir_block_options_default(options_.data(), weir_block_mla.options);
        const int32_t pairing = pairs ? WEIR_ROPE_PAIRS : WEIR_ROPE_HALF_SPLIT;
        memcpy(
            options_.data() + weir_block_option_find(weir_block_mla.options, "rope")->offset,
            &pairing, sizeof pairing
        );
        if (q_rank > 0) {
            put_matrix("attn.q_a", "q_a_proj.weight", q_rank, d);
            put_vector("attn.q_a_norm", "q_a_layernorm.weight", q_rank);
            put_matrix("attn.q_b", "q_b_proj.weight", heads * width, q_rank);
        } else {
            put_matrix("attn.q", "q_proj.weight", heads * width, d);
        }
        put_matrix("attn.kv_a", "kv_a_proj_with_mqa.weight", row, d);
        put_vector("attn.kv_a_norm", "kv_a_layernorm.weight", rank);
        put_matrix("attn.out", "o_proj.weight", d, heads * v);
        n_out = d;
        const Floats both = m_->values.tensors.need_floats(
            prefix_ + "kv_b_proj.weight", { heads * (nope + v), rank }
        );
        Floats k(of(heads * rank * nope)), values;
        for (int64_t h = 0; h < heads; h++) {
            const float *const from = both.data() + h * (nope + v) * rank;
            for (int64_t i = 0; i < nope * rank; i++)
                k[of((h * rank + i % rank) * nope + i / rank)] = from[i];
            values.insert(values.end(), from + nope * rank, from + (nope + v) * rank);
        }
        put("attn.k_b", keep(k, heads, rank, nope));
        put("attn.v_b", keep(values, heads, v, rank));
    }

    Modules *m_;
    std::string prefix_;
    std::vector<char> options_, weights_;
    std::vector<std::unique_ptr<Matrices>> matrices_;
    std::vector<std::unique_ptr<Floats>> vectors_;
};

/* What the block computed from its input, with one page of rows. */
struct Seen {
    Floats out, queries, weights, keys; /* queries [T, heads, rotary], weights [heads, T, T] */
};

class Run {
  public:
    Run(const Layer &layer, Seen *seen) : l_(layer), seen_(seen)
    {
        if (l_.n > WEIR_PAGE_TOKENS) throw Broken("more rows than a page has");
        kv_ = weir_block_mla.kv(&l_.shape, l_.options());
        const weir_kv_geometry &g = kv_.geometry;
        page_.resize(
            of(weir_kv_bytes(WEIR_KV_F32, WEIR_KV_F32, g.key_dim, weir_kv_stored_value_dim(&g))) / 4
        );
        seen_->out.resize(of(l_.n * l_.n_out));
        seen_->queries.resize(of(l_.n * l_.shape.n_heads * l_.shape.rotary_dim));
        seen_->weights.resize(of(l_.shape.n_heads * l_.n * l_.n));
        for (int64_t t = 0; t < l_.n; t++) positions_.push_back(static_cast<int32_t>(t));
        last_.resize(of(l_.shape.n_heads * WEIR_PAGE_TOKENS));
        lse_.resize(of(l_.n * l_.shape.n_heads));
        watch_.last = last_.data(), watch_.stride = WEIR_PAGE_TOKENS, watch_.user = this;
        watch_.seen = [](void *user, int64_t, const float *q, int64_t row, int64_t head) {
            static_cast<Run *>(user)->take(q, row, head);
        };
    }
    void all() { rows(0, l_.n); }
    void one_by_one()
    {
        for (int64_t t = 0; t < l_.n; t++) rows(t, 1);
    }
    void read_keys()
    {
        for (int64_t t = 0; t < l_.n; t++)
            for (int64_t d = 0; d < l_.row; d++)
                seen_->keys.push_back(page_[of(weir_page_k(t, d, l_.row))]);
    }

  private:
    void rows(int64_t first, int64_t n)
    {
        first_ = first, n_ = n;
        void *const page = page_.data();
        const weir_kv_segment segment = {
            &page, 1,       0, static_cast<int32_t>(n), static_cast<int32_t>(first), nullptr, 0, 0,
            0,     nullptr, 0
        };
        const weir_attention_watch *const watches[] = { &watch_ };
        weir_attention_mass_segment mass = {};
        const int32_t owner = 0;
        Floats scratch(of(weir_block_mla.scratch_elements(&l_.shape, l_.options(), n, 1)) + 16);
        weir_step step = {};
        step.stream = stream(), step.n_rows = n, step.n_segments = 1;
        step.in.x = l_.input.data() + first * l_.shape.d_model;
        step.in.positions = positions_.data() + first;
        step.in.rope = { l_.rope.values.data(), l_.rope.magnitude, 0, 0 };
        step.out.x = seen_->out.data() + first * l_.n_out;
        step.out.scratch =
            reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
        step.kv.segments = &segment, step.kv.owner = &owner, step.kv.n_segments = 1;
        step.kv.format = { WEIR_KV_F32, WEIR_KV_F32 };
        step.observer.watches = watches, step.observer.lse = lse_.data();
        step.observer.mass = &mass;
        if (weir_block_mla.forward(&l_.shape, l_.options(), l_.weights(), &step) != WEIR_OK)
            throw Broken("the block failed");
    }
    void take(const float *q, int64_t row_stride, int64_t head_stride)
    {
        const int64_t rotary = l_.shape.rotary_dim, heads = l_.shape.n_heads;
        for (int64_t t = 0; t < n_; t++)
            for (int64_t h = 0; h < heads; h++)
                std::copy_n(
                    q + t * row_stride + h * head_stride + l_.shape.kv_lora_rank, rotary,
                    seen_->queries.begin() + ((first_ + t) * heads + h) * rotary
                );
        const int64_t own = first_ + n_ - 1;
        for (int64_t h = 0; h < heads; h++)
            std::copy_n(
                last_.begin() + h * WEIR_PAGE_TOKENS, own + 1,
                seen_->weights.begin() + (h * l_.n + own) * l_.n
            );
    }

    const Layer &l_;
    Seen *seen_;
    weir_block_kv kv_ = {};
    weir_attention_watch watch_ = {};
    Floats page_, last_, lse_;
    std::vector<int32_t> positions_;
    int64_t first_ = 0, n_ = 0;
};

/* Dims [first, first + n) of rows of `width`; from pairs into the order even dims, odd dims. */
Floats dims(const Floats &rows, int64_t width, int64_t first, int64_t n, bool pairs)
{
    Floats out;
    for (size_t at = 0; at < rows.size(); at += of(width))
        for (int64_t d = 0; d < n; d++)
            out.push_back(rows[at + of(first + (!pairs ? d : d < n / 2 ? 2 * d : 2 * d - n + 1))]);
    return out;
}

void run_case(Modules *m, Check *check, const std::string &group, const std::string &number)
{
    Layer layer(m, group, number);
    const int64_t rank = layer.shape.kv_lora_rank, rotary = layer.shape.rotary_dim;
    const auto compare = [&](const char *what, const Floats &got, const char *how) {
        m->values.compare(check, group + "." + number + "." + what, got, how);
    };
    m->values.mark(group + "." + number + ".config");
    for (const char *how : { "all at once:", "one by one:" }) {
        Seen seen;
        Run run(layer, &seen);
        const bool is_whole = how[0] == 'a';
        if (is_whole) run.all();
        if (!is_whole) run.one_by_one();
        run.read_keys();
        compare("c", dims(seen.keys, layer.row, 0, rank, false), how);
        compare("kr", dims(seen.keys, layer.row, rank, rotary, layer.pairs), how);
        compare("qr", dims(seen.queries, rotary, 0, rotary, layer.pairs), how);
        compare("out", seen.out, how);
        if (!is_whole) compare("probs", seen.weights, how);
    }
    Seen seen;
    layer.show_sums();
    Run(layer, &seen).all();
    compare("o", seen.out, "");
}

/* The whole matrix, from its codes and scales, by the loader. */
Floats read_scaled(const Modules *m, const std::string &group)
{
    const Tensors &t = m->values.tensors;
    const std::vector<int64_t> shape = t.need_shape(group + ".fp8", 2);
    const weir_tensor &codes = t.need(group + ".fp8", WEIR_U8),
                      &scales = t.need(group + ".scale_inv", WEIR_F32);
    bound_matrix matrix = {};
    matrix.tensor = &codes, matrix.data = codes.data, matrix.scales = &scales;
    matrix.scale_data = scales.data, matrix.runs = { shape[0], shape[0] };
    matrix.dtype = WEIR_F32, matrix.stored = WEIR_F8_E4M3;
    Floats out(of(shape[0] * shape[1]));
    weir_matrix_gather(
        reinterpret_cast<unsigned char *>(out.data()), &matrix, shape[0], shape[1], 1
    );
    return out;
}

} // namespace

void run_latents(Modules *m, const std::string &group)
{
    const std::string suffix = ".config";
    for (const std::string &name : m->values.tensors.names(group + ".")) {
        if (name.size() < suffix.size() ||
            name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0)
            continue;
        const std::string number =
            name.substr(group.size() + 1, name.size() - group.size() - 1 - suffix.size());
        m->run(group + "." + number, [&](Check *check) { run_case(m, check, group, number); });
    }
}

void run_scaled_blocks(Modules *m, const std::string &group)
{
    const std::string rows = group + ".rows", sums = group + ".column_sums";
    if (m->values.tensors.has(rows))
        m->run(rows, [&](Check *check) {
            const Floats all = read_scaled(m, group);
            const std::vector<int64_t> shape = m->values.tensors.need_shape(group + ".fp8", 2);
            Floats some;
            for (const int64_t r :
                 { int64_t{ 0 }, int64_t{ 1 }, int64_t{ 127 }, int64_t{ 128 }, shape[0] - 1 })
                if (r < shape[0])
                    some.insert(
                        some.end(), all.begin() + r * shape[1], all.begin() + (r + 1) * shape[1]
                    );
            m->values.compare(check, rows, some);
        });
    if (m->values.tensors.has(sums))
        m->run(sums, [&](Check *check) {
            const Floats all = read_scaled(m, group);
            const auto width = of(m->values.tensors.need_shape(group + ".fp8", 2)[1]);
            std::vector<double> columns(width);
            for (size_t i = 0; i < all.size(); i++)
                columns[i % width] += static_cast<double>(all[i]);
            m->values.compare(check, sums, Floats(columns.begin(), columns.end()));
        });
}

} // namespace golden
