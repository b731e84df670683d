#include "tests/unit/kv/policy_sequence.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

namespace policy_test {

namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(*state >> 11) / 9007199254740992.0;
}

/* Irwin-Hall: near enough to normal. */
float normal(uint64_t *state)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += uniform(state);
    return static_cast<float>(sum);
}

void rotate(const Data &data, float *row, int64_t position, const Doubles &frequencies)
{
    const int64_t half = data.rotated() / 2;
    for (int64_t f = 0; f < half; f++) {
        float *const a = row + (data.is_interleaved ? 2 * f : f), *const b =
                                                                      row + (data.is_interleaved
                                                                                 ? 2 * f + 1
                                                                                 : f + half);
        const double angle =
                         static_cast<double>(frequencies[at(f)]) * static_cast<double>(position),
                     x = *a, y = *b;
        *a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
        *b = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
    }
}

} // namespace

Doubles Data::frequencies() const
{
    Doubles out;
    for (int64_t f = 0; f < rotated() / 2; f++)
        out.push_back(std::pow(base, -2.0 * static_cast<double>(f) / static_cast<double>(rotated()))
        );
    return out;
}

Data random_data(
    int64_t layers, int64_t heads, int64_t kv_heads, int64_t tokens, int64_t dim, uint64_t seed,
    int64_t rotary_dim, bool is_interleaved
)
{
    Data d = { layers, heads, kv_heads, tokens, dim, dim, {}, {}, {}, {} };
    d.rotary_dim = rotary_dim;
    d.is_interleaved = is_interleaved;
    const auto frequencies = d.frequencies();
    for (Floats *x : { &d.plain, &d.k, &d.v }) {
        x->resize(at(layers * (x == &d.plain ? heads : kv_heads) * tokens * dim));
        for (float &value : *x) value = normal(&seed);
    }
    /* Queries of a head agree on a direction, as those of models do. */
    for (int64_t row = 0; row < layers * heads; row++)
        for (int64_t t = 1; t < tokens; t++)
            for (int64_t i = 0; i < dim; i++)
                d.plain[at((row * tokens + t) * dim + i)] += d.plain[at(row * tokens * dim + i)];
    d.q = d.plain;
    for (int64_t row = 0; row < layers * heads; row++)
        for (int64_t t = 0; t < tokens; t++)
            rotate(d, &d.q[at((row * tokens + t) * dim)], t, frequencies);
    for (int64_t row = 0; row < layers * kv_heads; row++)
        for (int64_t t = 0; t < tokens; t++)
            rotate(d, &d.k[at((row * tokens + t) * dim)], t, frequencies);
    return d;
}

weir_policy_shape shape_of(const Data &data, const Doubles &frequencies, int64_t max_rows)
{
    weir_policy_shape s = {};
    s.n_layers = data.layers;
    s.n_heads = data.heads;
    s.n_kv_heads = data.kv_heads;
    s.key_dim = data.key_dim;
    s.value_dim = data.value_dim;
    s.rotary_dim = data.rotated();
    s.is_interleaved = data.is_interleaved;
    s.frequencies = frequencies.data();
    s.rope_magnitude = 1;
    s.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(data.key_dim)));
    s.max_rows = max_rows > 0 ? max_rows : data.tokens;
    s.model[0] = 11, s.model[1] = 12;
    return s;
}

std::vector<double> probabilities(
    const Data &data, int64_t layer, int64_t head, int64_t t, const Ints &positions
)
{
    const int64_t kv_head = head / (data.heads / data.kv_heads);
    std::vector<double> out;
    double greatest = -INFINITY, sum = 0;
    for (const int32_t p : positions) {
        double dot = 0;
        for (int64_t i = 0; i < data.key_dim; i++)
            dot += static_cast<double>(data.query(layer, head, t)[i]) *
                   static_cast<double>(data.key(layer, kv_head, p)[i]);
        out.push_back(dot / std::sqrt(static_cast<double>(data.key_dim)));
        greatest = std::max(greatest, out.back());
    }
    for (double &x : out) sum += x = std::exp(x - greatest);
    for (double &x : out) x /= sum;
    return out;
}

Sequence::Sequence(
    const Data &d, const std::string &name, const std::string &options,
    const weir_calibration *calibration, int64_t max_rows
)
    : data(d)
{
    weir_error error = {};
    weir_policy_options parsed;
    const auto frequencies = d.frequencies();
    const weir_policy_shape shape = shape_of(d, frequencies, max_rows);
    if (weir_policy_options_default(&parsed, name.c_str(), &error) != WEIR_OK ||
        weir_policy_options_set(&parsed, options.c_str(), &error) != WEIR_OK ||
        weir_policy_open(&policy_, &parsed, &shape, calibration, &error) != WEIR_OK)
        throw std::runtime_error(error.text);
    state_.resize((weir_policy_state_bytes(policy_) + 7) / 8);
    weir_policy_reset(policy_, state());
    scratch_.resize(weir_policy_scratch_bytes(policy_) + 64);
    scratch_at_ = scratch_.data() + (64 - reinterpret_cast<uintptr_t>(scratch_.data()) % 64) % 64;
    held_.resize(at(d.layers * d.kv_heads));
    keep_.resize(held_.size() * at(shape.max_rows));
    n_keep_.resize(held_.size());
}

Sequence::~Sequence() { weir_policy_close(policy_); }

std::vector<int64_t> Sequence::row_counts() const
{
    std::vector<int64_t> counts;
    for (const Ints &one : held_) counts.push_back(static_cast<int64_t>(one.size()));
    return counts;
}

weir_status Sequence::read(void *context, const weir_policy_tile *tile)
{
    const Sequence *const seq = static_cast<const Sequence *>(context);
    const Data &d = seq->data;
    if (seq->on_read) seq->on_read();
    for (int64_t i = 0; i < tile->n; i++) {
        const int32_t p = seq->held(tile->layer, tile->head).at(at(tile->first + i));
        if (tile->keys != nullptr)
            memcpy(
                tile->keys + i * d.key_dim, d.key(tile->layer, tile->head, p),
                at(d.key_dim) * sizeof(float)
            );
        if (tile->values != nullptr)
            memcpy(
                tile->values + i * d.value_dim, d.value(tile->layer, tile->head, p),
                at(d.value_dim) * sizeof(float)
            );
    }
    return seq->read_status;
}

weir_status Sequence::multiply(void *context, const weir_policy_products *p)
{
    const auto *const seq = static_cast<const Sequence *>(context);
    const auto &d = seq->data;
    const int64_t n_pairs = d.rotated() / 2;
    const Ints &held = seq->held_[at(p->layer * d.kv_heads + p->head)];
    for (int64_t v = 0; v < p->n_vectors; v++)
        for (int64_t i = 0; i < p->n; i++) {
            const float *const key = d.key(p->layer, p->head, held[at(p->first + i)]);
            double sum = 0;
            for (int64_t k = 0; k < d.key_dim; k++)
                sum += (double)p->vectors[v * d.key_dim + k] * (double)key[k];
            for (int64_t f = 0; p->lengths != nullptr && f < n_pairs; f++)
                sum += (double)p->lengths[v * n_pairs + f] *
                       std::hypot(
                           (double)key[d.is_interleaved ? 2 * f : f],
                           (double)key[d.is_interleaved ? 2 * f + 1 : f + n_pairs]
                       );
            p->out[v * p->stride + i] = static_cast<float>(sum);
        }
    return seq->read_status;
}

weir_policy_rows Sequence::rows(const std::vector<int64_t> &counts) const
{
    return { counts.data(),
             position_,
             0,
             n_pinned,
             n_prompt,
             read,
             multiplies ? multiply : nullptr,
             const_cast<Sequence *>(this) };
}

void Sequence::forward(int64_t n_queries)
{
    const int64_t group = data.heads / data.kv_heads;
    for (Ints &one : held_)
        for (int64_t i = 0; i < n_queries; i++) one.push_back(static_cast<int32_t>(position_ + i));
    const std::vector<int64_t> counts = row_counts();
    size_t stride = 0;
    for (const Ints &one : held_) stride = std::max(stride, one.size());
    const unsigned needs = weir_policy_needs(policy_);
    const bool has_mass = (needs & (WEIR_POLICY_MASS | WEIR_POLICY_BELOW | WEIR_POLICY_LAST)) != 0;
    for (int64_t layer = 0; layer < data.layers; layer++) {
        Floats mass(at(data.heads) * stride), below(mass.size()), last(mass.size());
        for (int64_t h = 0; h < data.heads && has_mass; h++)
            for (int64_t i = 0; i < n_queries; i++) {
                const Ints &all = held(layer, h / group);
                const Ints seen(all.begin(), all.end() - (n_queries - 1 - i));
                const std::vector<double> p = probabilities(data, layer, h, position_ + i, seen);
                for (size_t j = 0; j < p.size(); j++) {
                    const size_t k = at(h) * stride + j;
                    mass[k] += static_cast<float>(p[j]);
                    below[k] += p[j] < 1.0 / static_cast<double>(p.size()) ? 1.0f : 0.0f;
                    if (i == n_queries - 1) last[k] = static_cast<float>(p[j]);
                }
            }
        const int64_t head_stride = data.tokens * data.key_dim;
        const weir_policy_queries rotated = { data.query(layer, 0, position_), n_queries,
                                              head_stride, data.key_dim };
        weir_policy_queries plain = rotated;
        plain.data = data.plain.data() + (data.query(layer, 0, position_) - data.q.data());
        weir_policy_observation o = {};
        o.layer = layer;
        o.n_queries = n_queries;
        o.first_position = position_;
        o.n_rows = counts.data() + layer * data.kv_heads;
        o.stride = static_cast<int64_t>(stride);
        /* Exactly what was asked for, so that a policy that reads more is found out. */
        const bool is_one = n_queries == 1;
        if ((needs & WEIR_POLICY_MASS) != 0 || (has_mass && is_one)) o.mass = mass.data();
        if ((needs & WEIR_POLICY_BELOW) != 0 && !is_one) o.below = below.data();
        if ((needs & WEIR_POLICY_LAST) != 0 && !is_one) o.last = last.data();
        if ((needs & WEIR_POLICY_QUERIES) != 0) o.queries = rotated;
        if ((needs & WEIR_POLICY_PLAIN_QUERIES) != 0) o.plain = plain;
        weir_policy_observe(policy_, state(), &o);
    }
    position_ += n_queries;
    weir_policy_advance(policy_, state(), n_queries, position_);
}

std::vector<int64_t> Sequence::spread(const std::vector<int64_t> &budget) const
{
    return budget.size() == 1 ? std::vector<int64_t>(held_.size(), budget[0]) : budget;
}

bool Sequence::is_due(const std::vector<int64_t> &budget, weir_policy_phase phase, bool is_shared)
    const
{
    const std::vector<int64_t> counts = row_counts(), all = spread(budget);
    const weir_policy_rows r = rows(counts);
    const weir_policy_budget b = { all.data(), is_shared, 0 };
    return weir_policy_is_due(policy_, state(), &r, &b, phase);
}

void Sequence::carry_out()
{
    for (size_t i = 0; i < held_.size(); i++) {
        const size_t first = i * at(policy_->shape.max_rows);
        Ints kept;
        for (int64_t j = 0; j < n_keep_[i]; j++) {
            if (j > 0 && keep_[first + at(j)] <= keep_[first + at(j) - 1])
                throw std::runtime_error("a keep list does not ascend");
            kept.push_back(held_[i].at(at(keep_[first + at(j)])));
        }
        held_[i] = kept;
    }
    weir_policy_follow(policy_, state(), &plan_);
}

void Sequence::plan(const std::vector<int64_t> &budget, bool is_shared, double floor)
{
    const std::vector<int64_t> counts = row_counts(), all = spread(budget);
    const weir_policy_rows r = rows(counts);
    const weir_policy_budget b = { all.data(), is_shared, floor };
    weir_error error = {};
    plan_ = { keep_.data(), n_keep_.data(), -1, -1 };
    if (weir_policy_plan_rows(policy_, state(), &r, &b, scratch_at_, &plan_, &error) != WEIR_OK)
        throw std::runtime_error(error.text);
    if (weir_policy_hold_keys(policy_, state(), &r, &error) != WEIR_OK)
        throw std::runtime_error(error.text);
    carry_out();
}

void Sequence::step(int64_t n_queries, int64_t budget, weir_policy_phase phase)
{
    forward(n_queries);
    if (is_due({ budget }, phase)) plan({ budget });
}

void Sequence::within(
    int64_t layer, int64_t head, int64_t budget,
    const std::function<weir_status(policy_call *, const policy_head *)> &body
)
{
    const std::vector<int64_t> counts = row_counts(), all = spread({ budget });
    const weir_policy_rows r = rows(counts);
    const weir_policy_budget b = { all.data(), false, 0 };
    weir_error error = {};
    plan_ = { keep_.data(), n_keep_.data(), 0, 0 };
    policy_call call = {};
    call.policy = policy_, call.state = state(), call.rows = &r, call.budget = &b,
    call.plan = &plan_, call.error = &error;
    policy_call_open(&call, scratch_at_);
    const policy_head where = policy_head_at(&call, layer, head);
    if (where.n < policy_->layout.least_rows)
        throw std::runtime_error("the sequence is too short for the policy's options");
    if (body(&call, &where) != WEIR_OK) throw std::runtime_error(error.text);
}

Floats Sequence::scores(int64_t layer, int64_t head, int64_t budget)
{
    Floats out(held(layer, head).size());
    within(layer, head, budget, [&](policy_call *call, const policy_head *where) {
        return policy_score(call, where, out.data());
    });
    return out;
}

} // namespace policy_test
