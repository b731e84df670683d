/* tests/unit/kv/policy_sequence.h - a sequence under a policy as the engine runs it, over arrays:
 * forward passes with what they let the policy observe, plans carried out on lists of positions,
 * attention in double over what is held. */
#pragma once
#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "engine/kv/policy/budget.h"
#include "engine/kv/policy/policy_ops.h"

namespace policy_test {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Ints = std::vector<int32_t>;

/* Rotated and plain queries (layer, head, token, dim), keys and values of a sequence. */
struct Data {
    int64_t layers, heads, kv_heads, tokens, key_dim, value_dim;
    Floats plain, q, k, v;
    double base = 10000;
    int64_t rotary_dim = -1; /* -1: key_dim */
    bool is_interleaved = false;

    const float *query(int64_t layer, int64_t head, int64_t t) const
    {
        return q.data() + ((layer * heads + head) * tokens + t) * key_dim;
    }
    const float *key(int64_t layer, int64_t head, int64_t t) const
    {
        return k.data() + ((layer * kv_heads + head) * tokens + t) * key_dim;
    }
    const float *value(int64_t layer, int64_t head, int64_t t) const
    {
        return v.data() + ((layer * kv_heads + head) * tokens + t) * value_dim;
    }
    int64_t rotated() const { return rotary_dim < 0 ? key_dim : rotary_dim; }
    Doubles frequencies() const;
};

/* Pseudo-random data, keys and queries rotated; the same on every machine. */
Data random_data(
    int64_t layers, int64_t heads, int64_t kv_heads, int64_t tokens, int64_t dim, uint64_t seed,
    int64_t rotary_dim = -1, bool is_interleaved = false
);

/* Throws std::runtime_error with the policy's own words when it refuses. */
class Sequence {
  public:
    /* max_rows 0: all tokens. */
    Sequence(
        const Data &data, const std::string &name, const std::string &options,
        const weir_calibration *calibration = nullptr, int64_t max_rows = 0
    );
    ~Sequence();
    Sequence(const Sequence &) = delete;
    Sequence &operator=(const Sequence &) = delete;

    void forward(int64_t n_queries); /* the next tokens of the sequence */
    bool is_due(const std::vector<int64_t> &budget, weir_policy_phase phase, bool is_shared = false)
        const;
    /* The plan carried out: held, state. budget [layers * kv_heads], or one number for all. */
    void plan(const std::vector<int64_t> &budget, bool is_shared = false, double floor = 0);
    /* forward, then plan if due. */
    void step(int64_t n_queries, int64_t budget, weir_policy_phase phase);
    /* The method's own scores of one head, before anything is protected. */
    Floats scores(int64_t layer, int64_t head, int64_t budget);
    /* Any call with the inside of a plan. */
    void within(
        int64_t layer, int64_t head, int64_t budget,
        const std::function<weir_status(policy_call *, const policy_head *)> &body
    );

    const Ints &held(int64_t layer, int64_t head) const
    {
        return held_[static_cast<size_t>(layer * data.kv_heads + head)];
    }
    const weir_policy *policy() const { return policy_; }
    weir_policy_state *state() { return reinterpret_cast<weir_policy_state *>(state_.data()); }
    const weir_policy_state *state() const
    {
        return reinterpret_cast<const weir_policy_state *>(state_.data());
    }
    int64_t position() const { return position_; }
    weir_policy_plan last_plan() const { return plan_; }

    const Data &data;
    int64_t n_pinned = 0, n_prompt = 0;
    std::function<void()> on_read; /* called before every tile */
    weir_status read_status = WEIR_OK;
    bool multiplies = false; /* products are made without reading rows */

  private:
    std::vector<int64_t> row_counts() const;
    weir_policy_rows rows(const std::vector<int64_t> &counts) const;
    std::vector<int64_t> spread(const std::vector<int64_t> &budget) const;
    void carry_out();
    static weir_status read(void *context, const weir_policy_tile *tile);
    static weir_status multiply(void *context, const weir_policy_products *products);

    weir_policy *policy_ = nullptr;
    std::vector<uint64_t> state_;
    std::vector<char> scratch_;
    void *scratch_at_ = nullptr;
    std::vector<Ints> held_;
    int64_t position_ = 0;
    std::vector<int32_t> keep_;
    std::vector<int64_t> n_keep_;
    weir_policy_plan plan_ = {};
};

/* The policy opened by name and options for this shape of data. */
weir_policy_shape shape_of(const Data &data, const Doubles &frequencies, int64_t max_rows);

/* Softmax of a query over positions, in double. */
std::vector<double> probabilities(
    const Data &data, int64_t layer, int64_t head, int64_t t, const Ints &positions
);

/* The rows with the highest scores, by a sort; of equal ones those with the lowest numbers. */
inline Ints sorted_out(const Floats &scores, size_t n_keep)
{
    Ints order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
        return x != y ? x > y : a < b;
    });
    order.resize(std::min(n_keep, order.size()));
    std::sort(order.begin(), order.end());
    return order;
}

} // namespace policy_test
