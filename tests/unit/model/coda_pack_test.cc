// tests/unit/model/coda_pack_test.cc - states of CoDA-GQA-L in 8 and 4 bits, and bytes that are no
// states.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine/model/blocks/coda_pack.h"
#include "kernels/abi/coda_check.h"
#include "tests/unit/model/coda_states.h"

namespace {

using coda_test::layer_of;
using coda_test::State;

std::vector<char> pack(const weir_coda_layer &layer, State *state, int bits)
{
    std::vector<char> packed(weir_coda_packed_bytes(&layer, bits), 'x');
    weir_error error = {};
    EXPECT_EQ(weir_coda_pack(&layer, state->memory(), bits, packed.data(), &error), WEIR_OK)
        << error.text;
    return packed;
}

TEST(CodaState, ValuesComeBackWithinHalfAStepOfTheirChannel)
{
    for (const weir_kv_format format : { WEIR_KV_F32, WEIR_KV_BF16 })
        for (const int bits : { 8, 4 }) {
            const weir_coda_layer layer = layer_of(2, 16, 40, 10, 6, format);
            State state(layer), back(layer);
            state.write(200, 3);
            const std::vector<char> packed = pack(layer, &state, bits);
            weir_error error = {};
            ASSERT_EQ(weir_coda_unpack(&layer, packed.data(), bits, back.memory(), &error), WEIR_OK)
                << error.text;
            const int64_t begins[] = { 0, 40, 50, 56 };
            for (int64_t head = 0; head < 2; head++)
                for (const weir_kv_side side : { WEIR_KV_K, WEIR_KV_V })
                    for (int part = 0; part < 3; part++)
                        for (int64_t dim = 0; dim < 16; dim++) {
                            float low = INFINITY, high = -INFINITY, worst = 0;
                            for (int64_t slot = begins[part]; slot < begins[part + 1]; slot++) {
                                const float value = state.value(head, side, slot, dim);
                                low = std::fmin(low, value);
                                high = std::fmax(high, value);
                                worst = std::fmax(
                                    worst, std::fabs(back.value(head, side, slot, dim) - value)
                                );
                            }
                            const float rounding = (format == WEIR_KV_BF16 ? 0x1p-8f : 0x1p-20f) *
                                                   std::fmax(std::fabs(low), std::fabs(high));
                            const float step =
                                (high - low) / static_cast<float>((1 << bits) - 1) * (1 + 0x1p-8f) +
                                0x1p-10f * std::fabs(low);
                            ASSERT_LE(worst, step / 2 + rounding + 0x1p-24f)
                                << bits << " part " << part << " dim " << dim;
                        }
        }
}

/* Prototypes have no keys but in the low band: what is zero stays zero. Times, gates, rows and
 * counts are kept to the bit. */
TEST(CodaState, WhatIsNotAKeyOrAValueIsKept)
{
    const weir_coda_layer layer = layer_of(2, 16, 40, 10, 6, WEIR_KV_F32);
    State state(layer), back(layer);
    state.write(300, 5);
    const std::vector<char> packed = pack(layer, &state, 4);
    ASSERT_EQ(weir_coda_unpack(&layer, packed.data(), 4, back.memory(), nullptr), WEIR_OK);
    for (int64_t slot = 50; slot < 56; slot++)
        for (int64_t dim = 0; dim < 8; dim++) EXPECT_EQ(back.value(1, WEIR_KV_K, slot, dim), 0);
    const size_t before_pages =
        static_cast<size_t>(state.view().pages - static_cast<char *>(state.memory()));
    EXPECT_EQ(memcmp(state.memory(), back.memory(), before_pages), 0);
    EXPECT_EQ(pack(layer, &back, 4).size(), packed.size());
}

TEST(CodaState, OfAModelWith7BillionWeightsTakes13MegabytesIn4Bits)
{
    const weir_coda_layer layer = layer_of(8, 128, 256, 64, 64, WEIR_KV_BF16);
    EXPECT_NEAR(32 * static_cast<double>(weir_coda_packed_bytes(&layer, 4)), 13.5e6, 0.1e6);
    EXPECT_NEAR(32 * static_cast<double>(weir_coda_packed_bytes(&layer, 8)), 26.1e6, 0.1e6);
}

TEST(CodaState, EmptyBanksAndEmptySequences)
{
    for (const int32_t n : { 0, 3 }) {
        const weir_coda_layer layer = layer_of(1, 4, 5, n, 3 - n, WEIR_KV_F32);
        State state(layer), back(layer);
        EXPECT_EQ(weir_coda_problem(&layer, state.memory()), nullptr) << "zeros";
        const std::vector<char> zeros = pack(layer, &state, 8);
        ASSERT_EQ(weir_coda_unpack(&layer, zeros.data(), 8, back.memory(), nullptr), WEIR_OK);
        EXPECT_EQ(memcmp(state.memory(), back.memory(), state.size()), 0);
        state.write(n == 0 ? 3 : 30, 7);
        EXPECT_EQ(weir_coda_problem(&layer, state.memory()), nullptr);
        const std::vector<char> packed = pack(layer, &state, 8);
        EXPECT_EQ(weir_coda_unpack(&layer, packed.data(), 8, back.memory(), nullptr), WEIR_OK);
    }
}

TEST(CodaState, ValuesThatNoChannelCanHoldAreRefused)
{
    const weir_coda_layer layer = layer_of(1, 4, 5, 2, 2, WEIR_KV_F32);
    for (const float bad : { NAN, INFINITY, 1e6f }) {
        State state(layer);
        state.write(30, 9);
        weir_coda_state view = state.view();
        const std::vector<float> row = { 0, bad, 0, 0 };
        weir_coda_put(&layer, &view, WEIR_KV_V, view.rows[1], row.data());
        std::vector<char> packed(weir_coda_packed_bytes(&layer, 4));
        weir_error error = {};
        EXPECT_EQ(
            weir_coda_pack(&layer, state.memory(), 4, packed.data(), &error), WEIR_EUNSUPPORTED
        );
        EXPECT_NE(std::string(error.text).find("without quantisation"), std::string::npos);
    }
}

/* Each field, with something that would lead a kernel astray. */
TEST(CodaState, BytesThatAreNoStateAreRefused)
{
    const weir_coda_layer layer = layer_of(2, 8, 20, 6, 4, WEIR_KV_F32);
    const std::vector<std::function<void(const weir_coda_state &)>> damages = {
        [](const weir_coda_state &s) { s.head->position = -1; },
        [](const weir_coda_state &s) { s.head->position = 3; },
        [](const weir_coda_state &s) { s.head->n_recent = 19; },
        [](const weir_coda_state &s) { s.head->n_recent = 21; },
        [](const weir_coda_state &s) { s.head->first_recent = 20; },
        [](const weir_coda_state &s) { s.head->first_recent = -1; },
        [](const weir_coda_state &s) { s.head->n_open_exact = 7; },
        [](const weir_coda_state &s) { s.head->n_open_summary = -4; },
        [](const weir_coda_state &s) { s.head->n_rows = 31; },
        [](const weir_coda_state &s) { s.head->n_rows = 19; },
        [](const weir_coda_state &s) { s.head->counts[WEIR_CODA_HITS] = -5; },
        [](const weir_coda_state &s) { s.head->counts[WEIR_CODA_EVICTIONS] = INT64_MAX; },
        [](const weir_coda_state &s) { s.rows[3] = 30; },
        [](const weir_coda_state &s) { s.rows[3] = -1; },
        [](const weir_coda_state &s) { s.rows[3] = s.rows[4]; },
        [](const weir_coda_state &s) { std::swap(s.rows[3], s.rows[29]), s.head->n_rows = 29; },
        [](const weir_coda_state &s) { s.used_at[2] = 101; },
        [](const weir_coda_state &s) { s.gates[7] = NAN; },
        [](const weir_coda_state &s) { s.gates[7] = 1.5f; },
    };
    for (size_t i = 0; i < damages.size(); i++) {
        State state(layer), back(layer);
        state.write(100, 11);
        ASSERT_EQ(weir_coda_problem(&layer, state.memory()), nullptr);
        damages[i](state.view());
        EXPECT_NE(weir_coda_problem(&layer, state.memory()), nullptr) << i;
        std::vector<char> packed(weir_coda_packed_bytes(&layer, 8));
        State sound(layer);
        sound.write(100, 11);
        ASSERT_EQ(weir_coda_pack(&layer, sound.memory(), 8, packed.data(), nullptr), WEIR_OK);
        memcpy(packed.data(), state.memory(), sizeof(weir_coda_head));
        weir_error error = {};
        if (i < 12) {
            EXPECT_EQ(
                weir_coda_unpack(&layer, packed.data(), 8, back.memory(), &error), WEIR_EFORMAT
            ) << i;
        }
    }
}

TEST(CodaState, ABlockOfRandomBytesIsRefusedOrSound)
{
    const weir_coda_layer layer = layer_of(2, 8, 20, 6, 4, WEIR_KV_F32);
    State state(layer), back(layer);
    state.write(100, 13);
    std::mt19937 random(1);
    std::vector<char> packed(weir_coda_packed_bytes(&layer, 4));
    ASSERT_EQ(weir_coda_pack(&layer, state.memory(), 4, packed.data(), nullptr), WEIR_OK);
    int n_refused = 0;
    for (int round = 0; round < 3000; round++) {
        std::vector<char> damaged = packed;
        for (int i = 0; i < 3; i++)
            damaged[random() % damaged.size()] = static_cast<char>(random());
        if (weir_coda_unpack(&layer, damaged.data(), 4, back.memory(), nullptr) != WEIR_OK)
            n_refused++;
        else
            ASSERT_EQ(weir_coda_problem(&layer, back.memory()), nullptr);
    }
    EXPECT_GT(n_refused, 0);
}

} // namespace
