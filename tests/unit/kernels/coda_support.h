// tests/unit/kernels/coda_support.h - layers of CoDA-GQA-L, sequences for them, and states that
// rows are written into.
#pragma once
#include <algorithm>
#include <random>

#include "tests/unit/kernels/coda_layer.h"
#include "tests/unit/kernels/support.h"

namespace weir_test {

// A sequence: keys, values and gates of each token.
struct Sequence {
    Floats k, v, gates;
    int64_t width;
    Sequence(const weir_coda_layer &layer, int64_t n, uint32_t seed)
        : k(random_floats((size_t)(n * layer.n_kv_heads * layer.head_dim), seed)),
          v(random_floats(k.size(), seed + 1)), gates(random_floats((size_t)n, seed + 2)),
          width(layer.n_kv_heads * layer.head_dim)
    {
        for (float &gate : gates) gate *= 4;
    }
};

class State {
  public:
    explicit State(const weir_coda_layer &layer)
        : layer_(layer), bytes_(weir_coda_view(&layer_, nullptr).bytes + 64)
    {
        weir_coda_reset(&layer_, memory());
    }
    State(const State &other) : layer_(other.layer_), bytes_(other.bytes_.size())
    {
        memcpy(memory(), other.memory(), bytes_.size() - 64);
    }
    State &operator=(const State &) = delete;
    void *memory() const
    {
        return reinterpret_cast<void *>(
            (reinterpret_cast<uintptr_t>(bytes_.data()) + 63) / 64 * 64
        );
    }
    weir_coda_state view() const { return weir_coda_view(&layer_, memory()); }
    std::vector<char> contents() const
    {
        return { (char *)memory(), (char *)memory() + bytes_.size() - 64 };
    }
    Floats row(weir_kv_side side, int64_t slot) const
    {
        const weir_coda_state state = view();
        Floats out((size_t)(layer_.n_kv_heads * layer_.head_dim));
        weir_coda_read(&layer_, &state, side, state.rows[slot], out.data());
        return out;
    }
    void write(
        const weir_kernel &kernel, const Sequence &sequence, int64_t first, int64_t n, bool is_step
    )
    {
        const weir_coda_segment segment = { memory(), static_cast<int32_t>(first),
                                            static_cast<int32_t>(n), is_step };
        weir_coda_write_args args = {};
        args.k = sequence.k.data(), args.v = sequence.v.data(), args.gates = sequence.gates.data();
        args.layer = &layer_;
        args.segments = &segment;
        args.n_segments = 1;
        args.k_stride = args.v_stride = sequence.width;
        args.gate_stride = 1;
        ASSERT_EQ(run(kernel, &args), WEIR_OK);
    }

  private:
    weir_coda_layer layer_;
    std::vector<char> bytes_;
};

// Random cuts into blocks and steps; `then` after each.
template <typename Then>
void write_sequence(
    const weir_kernel &kernel, State *state, const Sequence &sequence, int64_t n, uint32_t seed,
    const Then &then
)
{
    std::mt19937 random(seed);
    for (int64_t at = 0; at < n;) {
        const bool is_step = random() % 2 == 0;
        const int64_t rows = is_step ? 1 : std::min<int64_t>(n - at, 1 + random() % 40);
        state->write(kernel, sequence, at, rows, is_step);
        at += rows;
        then(at);
    }
}

inline std::vector<const weir_kernel *> write_rows()
{
    std::vector<const weir_kernel *> rows = omp_rows(WEIR_OP_CODA_WRITE);
    rows.push_back(ref_row(WEIR_OP_CODA_WRITE));
    return rows;
}

} // namespace weir_test
