// tests/unit/kernels/coda_test.cc - states of CoDA-GQA-L: what a ring holds, dense rows, copies,
// needles; and the two orders of candidates.
#include <algorithm>
#include <random>

#include "kernels/abi/coda_choice.h"
#include "tests/unit/kernels/coda_support.h"

namespace weir_test {
namespace {

// ---- candidates ---------------------------------------------------------------------------------
std::vector<weir_coda_choice> few_values(std::mt19937 *random, int64_t n)
{
    const int64_t range = 1 + (*random)() % 40;
    std::vector<weir_coda_choice> all;
    for (int64_t i = 0; i < n; i++)
        all.push_back({ static_cast<int64_t>((*random)() % range), static_cast<int32_t>(i) });
    return all;
}

TEST(CodaChoice, SortedByKeyThenIndex)
{
    std::mt19937 random(1);
    for (int round = 0; round < 2000; round++) {
        const int64_t n = 1 + random() % 300, k = random() % (n + 1);
        std::vector<weir_coda_choice> all = few_values(&random, n), sorted = all;
        weir_coda_choose(all.data(), n, k);
        std::sort(sorted.begin(), sorted.end(), [](const auto &a, const auto &b) {
            return std::pair(a.key, a.index) < std::pair(b.key, b.index);
        });
        for (int64_t i = 0; i < k; i++) ASSERT_EQ(all[i].index, sorted[i].index) << n << " " << k;
    }
}

TEST(CodaChoice, FoundAsTheLibraryFindsThem)
{
    const auto less = [](const weir_coda_choice &a, const weir_coda_choice &b) {
        return a.key < b.key;
    };
    std::mt19937 random(2);
    for (int round = 0; round < 5000; round++) {
        const int64_t n = 1 + random() % 500, k = 1 + random() % (round % 2 == 0 ? n : 1 + n / 64);
        const bool is_sorted = random() % 2 == 0;
        std::vector<weir_coda_choice> all = few_values(&random, n), library = all;
        weir_coda_find(all.data(), n, k, is_sorted);
        if (k * 64 <= n) {
            std::partial_sort(library.begin(), library.begin() + k, library.end(), less);
        } else {
            std::nth_element(library.begin(), library.begin() + k - 1, library.end(), less);
            if (is_sorted) std::sort(library.begin(), library.begin() + k - 1, less);
        }
        for (int64_t i = 0; i < k; i++)
            ASSERT_EQ(all[i].index, library[i].index) << n << " " << k << " " << is_sorted;
    }
}

TEST(CodaChoice, GatesFallIntoKeysThatRise)
{
    const float gates[] = { INFINITY, 2.0f, 1.0f, 0.5f, 1e-30f, 0.0f, -1e-30f, -1.0f, -INFINITY };
    for (size_t i = 1; i < std::size(gates); i++)
        EXPECT_LT(weir_coda_gate_key(gates[i - 1]), weir_coda_gate_key(gates[i])) << gates[i];
}

// ---- states -------------------------------------------------------------------------------------
float rounded(weir_kv_format format, float x)
{
    char bytes[4];
    weir_coda_store(format, bytes, 0, x);
    return weir_coda_load(format, bytes, 0);
}

TEST(CodaState, TheRingHoldsTheLastTokensAndRowsAreDense)
{
    for (const weir_kernel *kernel : write_rows())
        for (const weir_kv_format format : { WEIR_KV_F32, WEIR_KV_BF16, WEIR_KV_F16 })
            for (const auto &shape :
                 { layer_of(2, 16, 24, 8, 6, format), layer_of(1, 8, 1, 3, 0, format),
                   layer_of(3, 4, 70, 0, 5, format) }) {
                const Sequence sequence(shape, 300, 5);
                State state(shape);
                int32_t n_rows = 0;
                write_sequence(*kernel, &state, sequence, 300, 7, [&](int64_t at) {
                    const weir_coda_state view = state.view();
                    ASSERT_EQ(view.head->position, at);
                    ASSERT_EQ(view.head->n_recent, std::min<int64_t>(at, shape.window));
                    ASSERT_GE(view.head->n_rows, n_rows);
                    n_rows = view.head->n_rows;
                    std::vector<bool> seen((size_t)view.n_slots, false);
                    for (int64_t slot = 0; slot < view.n_slots; slot++) {
                        ASSERT_TRUE(
                            view.rows[slot] >= 0 && view.rows[slot] < view.n_slots &&
                            !seen[(size_t)view.rows[slot]]
                        );
                        seen[(size_t)view.rows[slot]] = true;
                    }
                    for (int64_t i = 0; i < view.head->n_recent; i++) {
                        const int64_t slot = (view.head->first_recent + i) % shape.window,
                                      token = at - view.head->n_recent + i;
                        ASSERT_TRUE(weir_coda_is_used(&view, slot));
                        const Floats k = state.row(WEIR_KV_K, slot), v = state.row(WEIR_KV_V, slot);
                        for (int64_t x = 0; x < sequence.width; x++) {
                            ASSERT_EQ(
                                k[(size_t)x],
                                rounded(format, sequence.k[(size_t)(token * sequence.width + x)])
                            ) << kernel->name
                              << " token " << token;
                            ASSERT_EQ(
                                v[(size_t)x],
                                rounded(format, sequence.v[(size_t)(token * sequence.width + x)])
                            );
                        }
                    }
                });
            }
}

TEST(CodaState, PrototypesHoldTheLowBandOnly)
{
    for (const weir_kernel *kernel : write_rows())
        for (const weir_coda_band band : { WEIR_CODA_UPPER_HALF, WEIR_CODA_SLOW_PAIRS }) {
            weir_coda_layer layer = layer_of(2, 16, 12, 4, 6);
            layer.band = band;
            const Sequence sequence(layer, 200, 8);
            State state(layer);
            write_sequence(*kernel, &state, sequence, 200, 9, [](int64_t) {});
            EXPECT_GT(state.view().head->counts[WEIR_CODA_FOUNDED], 0) << kernel->name;
            for (int64_t slot = 16; slot < 22; slot++) {
                const Floats k = state.row(WEIR_KV_K, slot);
                for (int64_t x = 0; x < sequence.width; x++)
                    if (!weir_coda_is_low(&layer, x % 16))
                        EXPECT_EQ(k[(size_t)x], 0.0f) << kernel->name;
            }
        }
}

TEST(CodaState, ACopyGoesOnWithTheSameBits)
{
    const weir_coda_layer layer = layer_of(2, 16, 20, 8, 6);
    const Sequence sequence(layer, 240, 11);
    for (const weir_kernel *kernel : write_rows()) {
        State whole(layer);
        write_sequence(*kernel, &whole, sequence, 120, 3, [](int64_t) {});
        State other(whole);
        for (State *state : { &whole, &other })
            for (int64_t at = 120; at < 240; at += 15)
                state->write(*kernel, sequence, at, 15, false);
        EXPECT_EQ(whole.contents(), other.contents()) << kernel->name;
    }
}

// Values of few directions: they hit, fall between, are new. Whatever a kernel sums in an order of
// its own is far from decisions here.
TEST(CodaState, EveryKernelKeepsWhatRefKeeps)
{
    std::mt19937 random(21);
    for (const weir_kv_format format : { WEIR_KV_F32, WEIR_KV_F16, WEIR_KV_BF16 })
        for (int round = 0; round < 24; round++) {
            weir_coda_layer layer = layer_of(
                1 + random() % 3, 2 * (4 + random() % 20), 1 + random() % 40, random() % 9,
                random() % 9, format
            );
            layer.least_exact = layer.n_exact / 2, layer.least_summary = layer.n_summary / 2,
            layer.growth = 200;
            layer.is_compat = random() % 2 == 0, layer.refreshes = random() % 2 == 0,
            layer.founds = random() % 4 != 0;
            layer.is_gated = random() % 4 != 0;
            layer.band = random() % 2 == 0 ? WEIR_CODA_UPPER_HALF : WEIR_CODA_SLOW_PAIRS;
            Sequence sequence(layer, 300, 40 + (uint32_t)round);
            const Floats noise = sequence.v;
            for (size_t x = 0; x < sequence.v.size(); x++) {
                const size_t token = x / (size_t)sequence.width,
                             of = token * 7 % 11 * (size_t)sequence.width +
                                  x % (size_t)sequence.width;
                sequence.v[x] =
                    token < 11 ? noise[x] : noise[of] + noise[x] * (token % 3 == 0 ? 0.75f : 0.05f);
            }
            std::vector<std::vector<char>> want;
            State reference(layer);
            const auto keep = [&](int64_t) { want.push_back(reference.contents()); };
            write_sequence(
                *ref_row(WEIR_OP_CODA_WRITE), &reference, sequence, 300, (uint32_t)round, keep
            );
            for (const weir_kernel *kernel : omp_rows(WEIR_OP_CODA_WRITE)) {
                State state(layer);
                size_t n = 0;
                write_sequence(*kernel, &state, sequence, 300, (uint32_t)round, [&](int64_t at) {
                    ASSERT_TRUE(state.contents() == want[n++])
                        << kernel->name << " round " << round << " token " << at;
                });
            }
        }
}

// One token of open gate and of values unlike all others, among tokens whose gates are nearly
// closed: kept, wherever it stands and however sequences are cut.
TEST(CodaState, ANeedleIsKept)
{
    weir_coda_layer layer = layer_of(2, 16, 32, 8, 8);
    const int64_t n = 400;
    for (const weir_kernel *kernel : write_rows())
        for (uint32_t seed = 0; seed < 30; seed++) {
            Sequence sequence(layer, n, 100 + seed);
            const int64_t needle = (seed * 37) % (n - layer.window - 41);
            for (int64_t t = 0; t < n; t++) {
                sequence.gates[(size_t)t] = t == needle ? 4.0f : -5.0f;
                for (int64_t x = 0; x < sequence.width; x++)
                    sequence.v[(size_t)(t * sequence.width + x)] += t == needle ? -3.0f : 3.0f;
            }
            State state(layer);
            write_sequence(*kernel, &state, sequence, n, seed, [](int64_t) {});
            bool is_there = false;
            for (int64_t slot = layer.window; slot < layer.window + layer.n_exact; slot++)
                is_there = is_there || state.row(WEIR_KV_K, slot) ==
                                           Floats(
                                               sequence.k.begin() + needle * sequence.width,
                                               sequence.k.begin() + (needle + 1) * sequence.width
                                           );
            EXPECT_TRUE(is_there) << kernel->name << " seed " << seed;
        }
}

TEST(CodaState, WhatDoesNotFitIsRefused)
{
    weir_coda_layer good = layer_of(1, 8, 4, 2, 2);
    for (const weir_kernel *kernel : write_rows())
        for (const auto &spoil : std::vector<void (*)(weir_coda_layer *)>{
                 [](weir_coda_layer *l) { l->window = 0; },
                 [](weir_coda_layer *l) { l->head_dim = 7; },
                 [](weir_coda_layer *l) { l->least_exact = 3; },
                 [](weir_coda_layer *l) { l->n_summary = -1; },
                 [](weir_coda_layer *l) { l->format = WEIR_KV_Q8_0; },
                 [](weir_coda_layer *l) { l->exact_candidates = -1; } }) {
            weir_coda_layer layer = good;
            spoil(&layer);
            weir_coda_write_args args = {};
            args.layer = &layer;
            EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL) << kernel->name;
        }
    const weir_coda_segment segment = { nullptr, 0, 2, true };
    weir_coda_write_args args = {};
    args.layer = &good;
    args.segments = &segment;
    args.n_segments = 1;
    for (const weir_kernel *kernel : write_rows())
        EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL) << kernel->name << ": a step of two rows";
}

} // namespace
} // namespace weir_test
