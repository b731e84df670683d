// tests/unit/model/coda_merge_test.cc - two states of CoDA-GQA-L as one, and one in parts.
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

TEST(CodaMerge, WithATextThatHasNothingIsTheOther)
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

TEST(CodaParts, HeadsGoApartAndComeTogether)
{
    for (const weir_kv_format format : { WEIR_KV_F32, WEIR_KV_BF16 }) {
        const weir_coda_layer layer = layer_of(4, 8, 70, 6, 4, format);
        State state(layer), joined(layer);
        state.write(200, 9);
        const int64_t n_heads[] = { 1, 2, 1 };
        const auto part_of = [&](int64_t first, int64_t n) {
            return weir_coda_part(&layer, first, n);
        };
        State a(part_of(0, 1)), b(part_of(1, 2)), c(part_of(3, 1));
        weir_coda_split(&layer, state.memory(), 0, 1, a.memory());
        weir_coda_split(&layer, state.memory(), 1, 2, b.memory());
        weir_coda_split(&layer, state.memory(), 3, 1, c.memory());
        for (int64_t d = 0; d < 8; d++)
            EXPECT_EQ(b.value(1, WEIR_KV_V, 73, d), state.value(2, WEIR_KV_V, 73, d));
        const weir_coda_layer two = part_of(1, 2);
        EXPECT_EQ(weir_coda_problem(&two, b.memory()), nullptr);
        const void *const parts[] = { a.memory(), b.memory(), c.memory() };
        weir_error error = {};
        ASSERT_EQ(weir_coda_join(&layer, parts, n_heads, 3, joined.memory(), &error), WEIR_OK)
            << error.text;
        EXPECT_EQ(memcmp(joined.memory(), state.memory(), state.size()), 0);
    }
}

TEST(CodaParts, ThatDoNotBelongTogetherAreRefused)
{
    const weir_coda_layer layer = layer_of(2, 8, 20, 6, 4), one = weir_coda_part(&layer, 0, 1);
    State state(layer), joined(layer), a(one), b(one);
    state.write(100, 10);
    weir_coda_split(&layer, state.memory(), 0, 1, a.memory());
    weir_coda_split(&layer, state.memory(), 1, 1, b.memory());
    const void *const parts[] = { a.memory(), b.memory(), a.memory() };
    const int64_t ones[] = { 1, 1, 1 }, too_many[] = { 1, 2 }, none[] = { 0, 2 };
    weir_error error = {};
    EXPECT_EQ(weir_coda_join(&layer, parts, ones, 1, joined.memory(), &error), WEIR_EMISMATCH);
    EXPECT_NE(std::string(error.text).find("1 of its layer's 2"), std::string::npos) << error.text;
    EXPECT_EQ(weir_coda_join(&layer, parts, ones, 0, joined.memory(), &error), WEIR_EMISMATCH);
    EXPECT_EQ(weir_coda_join(&layer, parts, ones, 3, joined.memory(), &error), WEIR_EMISMATCH);
    EXPECT_EQ(weir_coda_join(&layer, parts, too_many, 2, joined.memory(), &error), WEIR_EMISMATCH);
    EXPECT_EQ(weir_coda_join(&layer, parts, none, 2, joined.memory(), &error), WEIR_EMISMATCH);
    b.view().head->position++;
    EXPECT_EQ(weir_coda_join(&layer, parts, ones, 2, joined.memory(), &error), WEIR_EMISMATCH);
    EXPECT_NE(std::string(error.text).find("has diverged"), std::string::npos) << error.text;
}

} // namespace
