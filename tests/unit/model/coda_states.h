// tests/unit/model/coda_states.h - states of CoDA-GQA-L with something in them.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/abi/ops.h"
#include "tests/unit/kernels/coda_layer.h"

extern "C" const weir_kernel weir_kernel_ref_coda_write;

namespace coda_test {

using weir_test::layer_of;

class State {
  public:
    explicit State(const weir_coda_layer &layer)
        : layer_(layer), words_(weir_coda_view(&layer_, nullptr).bytes / 8)
    {
    }
    void *memory() { return words_.data(); }
    size_t size() const { return words_.size() * 8; }
    weir_coda_state view() { return weir_coda_view(&layer_, memory()); }

    /* n tokens in blocks; each channel has a size of its own. */
    void write(int64_t n, uint32_t seed)
    {
        const int64_t width = layer_.n_kv_heads * layer_.head_dim, block = 24;
        std::mt19937 random(seed);
        std::vector<float> k(static_cast<size_t>(block * width)), v(k.size()),
            gates(static_cast<size_t>(block));
        weir_coda_reset(&layer_, memory());
        for (int64_t at = 0; at < n; at += block) {
            for (size_t i = 0; i < k.size(); i++) {
                const float size =
                    0.01f * static_cast<float>(1 + i % static_cast<size_t>(width) % 37);
                k[i] = size * draw(&random);
                v[i] = size * (bias + draw(&random));
            }
            for (float &gate : gates) gate = 4 * draw(&random);
            append(k.data(), v.data(), gates.data(), static_cast<int32_t>(std::min(block, n - at)));
        }
    }
    void append(const float *k, const float *v, const float *gates, int32_t n)
    {
        const weir_coda_segment segment = { memory(), 0, n, false };
        weir_coda_write_args args = {};
        args.k = k, args.v = v, args.gates = gates;
        args.layer = &layer_;
        args.segments = &segment;
        args.n_segments = 1;
        args.k_stride = args.v_stride = layer_.n_kv_heads * layer_.head_dim;
        args.gate_stride = 1;
        std::vector<double> scratch(weir_kernel_ref_coda_write.scratch(&args) / 8 + 8);
        const weir_kernel_context context = { 0, 1, nullptr, scratch.data(), scratch.size() * 8 };
        ASSERT_EQ(weir_kernel_ref_coda_write.run(&context, &args), WEIR_OK);
    }
    float value(int64_t head, weir_kv_side side, int64_t slot, int64_t dim)
    {
        const weir_coda_state state = view();
        const int64_t row = state.rows[slot];
        return weir_coda_load(
            layer_.format, weir_coda_page(&state, head, row),
            weir_coda_index(&layer_, side, row, dim)
        );
    }
    std::vector<float> row(weir_kv_side side, int64_t slot)
    {
        const weir_coda_state state = view();
        std::vector<float> out(static_cast<size_t>(layer_.n_kv_heads * layer_.head_dim));
        weir_coda_read(&layer_, &state, side, state.rows[slot], out.data());
        return out;
    }

    float bias = 0; /* of values: large ones make them all alike */

  private:
    static float draw(std::mt19937 *random)
    {
        return static_cast<float>((*random)()) * 0x1p-31f - 1;
    }
    weir_coda_layer layer_;
    std::vector<uint64_t> words_;
};

} // namespace coda_test
