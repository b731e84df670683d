// tests/unit/model/coda_merge_test.cc - two states of CoDA-GQA-L as one.
#include "engine/model/blocks/coda_merge.h"

#include <cmath>
#include <cstring>
#include <string>

#include "kernels/abi/coda_check.h"
#include "tests/unit/model/coda_states.h"

namespace {

using coda_test::layer_of;
using coda_test::State;

void merge(const weir_coda_layer &layer, State *earlier, State *later, State *out)
{
    std::vector<float> scratch(weir_coda_merge_scratch(&layer) / 4 + 1, NAN);
    weir_coda_merge(&layer, earlier->memory(), later->memory(), out->memory(), scratch.data());
    EXPECT_EQ(weir_coda_problem(&layer, out->memory()), nullptr);
}

/* A token whose value has one direction alone and whose gate is open, then others until it is in a
 * bank. */
void write_with_needle(State *state, const weir_coda_layer &layer, int64_t dim, uint32_t seed)
{
    state->bias = 8; /* every other value is like the next */
    state->write(48, seed);
    const size_t width = static_cast<size_t>(layer.n_kv_heads * layer.head_dim);
    std::vector<float> k(width, 0.5f), v(width, 0), gates(1, 9);
    for (size_t h = 0; h < width; h += static_cast<size_t>(layer.head_dim))
        v[h + static_cast<size_t>(dim)] = 1;
    state->append(k.data(), v.data(), gates.data(), 1);
    std::vector<float> others(width, 0.1f);
    gates[0] = -9;
    for (int i = 0; i < layer.window; i++) state->append(k.data(), others.data(), gates.data(), 1);
}

bool has_needle(State *state, const weir_coda_layer &layer, int64_t dim)
{
    for (int64_t slot = layer.window; slot < layer.window + layer.n_exact; slot++) {
        const weir_coda_state view = state->view();
        if (!weir_coda_is_used(&view, slot)) continue;
        const std::vector<float> value = state->row(WEIR_KV_V, slot);
        bool is_it = true;
        for (size_t i = 0; i < value.size(); i++)
            is_it = is_it &&
                    value[i] == (static_cast<int64_t>(i) % layer.head_dim == dim ? 1.0f : 0.0f);
        if (is_it) return true;
    }
    return false;
}

TEST(CodaMerge, WithASequenceThatHasNothingIsTheOther)
{
    const weir_coda_layer layer = layer_of(2, 8, 20, 6, 4);
    State empty(layer), full(layer), out(layer);
    full.write(100, 1);
    merge(layer, &empty, &full, &out);
    EXPECT_EQ(memcmp(out.memory(), full.memory(), full.size()), 0);
    merge(layer, &full, &empty, &out);
    EXPECT_EQ(memcmp(out.memory(), full.memory(), full.size()), 0);
}

TEST(CodaMerge, WhatIsNewInEitherBankIsInTheWhole)
{
    for (const int32_t n_exact : { 4, 8, 16 }) {
        const weir_coda_layer layer = layer_of(2, 16, 12, n_exact, 4);
        State earlier(layer), later(layer), out(layer), again(layer);
        write_with_needle(&earlier, layer, 3, 5);
        write_with_needle(&later, layer, 9, 6);
        ASSERT_TRUE(has_needle(&earlier, layer, 3) && has_needle(&later, layer, 9));
        ASSERT_FALSE(has_needle(&later, layer, 3));
        merge(layer, &earlier, &later, &out);
        EXPECT_TRUE(has_needle(&out, layer, 3)) << n_exact;
        EXPECT_TRUE(has_needle(&out, layer, 9)) << n_exact;
        merge(layer, &earlier, &later, &again);
        EXPECT_EQ(memcmp(out.memory(), again.memory(), out.size()), 0);
    }
}

TEST(CodaMerge, ItGoesOnWhereTheLaterEnds)
{
    const weir_coda_layer layer = layer_of(2, 8, 20, 6, 4);
    State earlier(layer), later(layer), out(layer);
    earlier.write(400, 2);
    later.write(90, 3);
    merge(layer, &earlier, &later, &out);
    EXPECT_EQ(out.view().head->position, 90);
    for (int64_t slot = 0; slot < 20; slot++) {
        EXPECT_EQ(out.row(WEIR_KV_K, slot), later.row(WEIR_KV_K, slot));
        EXPECT_EQ(out.row(WEIR_KV_V, slot), later.row(WEIR_KV_V, slot));
        EXPECT_EQ(out.view().gates[slot], later.view().gates[slot]);
    }
    for (int32_t i = 0; i < 6; i++) EXPECT_LE(out.view().used_at[i], 90);
    EXPECT_EQ(out.view().head->counts[WEIR_CODA_EVICTIONS], 400 - 20 + 90 - 20);
    std::vector<float> more(16, 0.5f), gate(1, 2);
    out.append(more.data(), more.data(), gate.data(), 1);
    EXPECT_EQ(weir_coda_problem(&layer, out.memory()), nullptr);
}

/* One slot each, in use in both. */
TEST(CodaMerge, PrototypesAreBlendedByTheirTokens)
{
    const weir_coda_layer layer = layer_of(1, 8, 4, 0, 1);
    State earlier(layer), later(layer), out(layer);
    earlier.write(72, 7);
    later.write(24, 8);
    merge(layer, &earlier, &later, &out);
    for (const weir_kv_side side : { WEIR_KV_K, WEIR_KV_V })
        for (int64_t d = 0; d < 8; d++) {
            const float a = earlier.value(0, side, 4, d), b = later.value(0, side, 4, d);
            EXPECT_NEAR(
                out.value(0, side, 4, d), side == WEIR_KV_K && d < 4 ? 0 : b + 0.75f * (a - b), 1e-6
            ) << d;
        }
}

TEST(CodaMerge, PrototypesTakeFreeSlotsFirst)
{
    const weir_coda_layer layer = layer_of(1, 8, 4, 0, 40);
    State earlier(layer), later(layer), out(layer);
    earlier.write(48, 7);
    later.write(24, 8);
    const auto n_used = [&](State *state) {
        const weir_coda_state view = state->view();
        int n = 0;
        for (int64_t slot = 4; slot < 44; slot++) n += weir_coda_is_used(&view, slot);
        return n;
    };
    merge(layer, &earlier, &later, &out);
    EXPECT_EQ(n_used(&out), std::min(40, n_used(&earlier) + n_used(&later)));
    EXPECT_GT(n_used(&earlier), 1);
}

} // namespace
