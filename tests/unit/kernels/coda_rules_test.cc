// tests/unit/kernels/coda_rules_test.cc - what every state of CoDA-GQA-L has in common, decisions
// at their very bounds, steps next to blocks of one row, and the sizes that the published package
// states.
#include "kernels/abi/coda_check.h"
#include "tests/unit/kernels/coda_support.h"

namespace weir_test {
namespace {

int64_t used_slots(const weir_coda_state &state, int64_t first, int64_t n)
{
    int64_t count = 0;
    for (int64_t slot = first; slot < first + n; slot++) count += weir_coda_is_used(&state, slot);
    return count;
}

// ---- invariants ---------------------------------------------------------------------------------
TEST(CodaRules, StatesAreSoundAtEveryToken)
{
    for (const weir_kernel *kernel : write_rows())
        for (const bool is_gated : { true, false })
            for (const int64_t block :
                 { int64_t{ 64 }, int64_t{ 7 }, int64_t{ 1 }, int64_t{ 0 } }) { // 0: steps
                weir_coda_layer layer = layer_of(2, 32, 32, 16, 16);
                layer.is_gated = is_gated;
                const int64_t n = 7 * 32 + 7;
                const Sequence sequence(layer, n, 61);
                State state(layer);
                int64_t n_exact = 0, n_summary = 0;
                for (int64_t at = 0; at < n;) {
                    const int64_t rows = std::min(n - at, std::max<int64_t>(block, 1)), before = at;
                    state.write(*kernel, sequence, at, rows, block == 0);
                    at += rows;
                    const weir_coda_state view = state.view();
                    const weir_coda_head &head = *view.head;
                    ASSERT_EQ(weir_coda_problem(&layer, state.memory()), nullptr)
                        << weir_coda_problem(&layer, state.memory());
                    ASSERT_EQ(head.position, at);
                    ASSERT_EQ(head.n_recent, std::min<int64_t>(at, 32));
                    ASSERT_EQ(head.first_recent, block == 0 && at > 32 ? (before - 31) % 32 : 0)
                        << kernel->name << " token " << at;
                    ASSERT_EQ(used_slots(view, 0, 32), head.n_recent);
                    const int64_t exact = used_slots(view, 32, 16),
                                  summary = used_slots(view, 48, 16);
                    ASSERT_GE(exact, n_exact) << "a bank loses nothing";
                    ASSERT_GE(summary, n_summary);
                    n_exact = exact, n_summary = summary;
                    ASSERT_EQ(head.n_rows, head.n_recent + exact + summary);
                    ASSERT_LE(
                        head.n_rows,
                        at <= 32 ? at : 64
                    ); // after the ring a row may be in both banks
                    ASSERT_EQ(head.counts[WEIR_CODA_EVICTIONS], at - head.n_recent);
                    for (int64_t slot = 0; slot < 16; slot++) {
                        if (weir_coda_is_used(&view, 32 + slot))
                            ASSERT_LT(view.used_at[slot], at - 32);
                        else
                            ASSERT_EQ(view.used_at[slot], 0);
                    }
                    if (at <= 32) ASSERT_EQ(exact + summary, 0);
                }
                EXPECT_GT(n_exact, 0);
                EXPECT_GT(n_summary, 0);
                const std::vector<char> held = state.contents();
                state.write(*kernel, sequence, 0, 0, false);
                EXPECT_EQ(state.contents(), held) << "a block of no rows";
            }
}

// ---- bounds -------------------------------------------------------------------------------------
// A ring of one row: each token pushes the one before it out.
struct Short {
    explicit Short(const weir_coda_layer &layer, int64_t n) : sequence(layer, n, 3), state(layer)
    {
        std::fill(sequence.gates.begin(), sequence.gates.end(), 2.0f);
    }
    void value(int64_t token, std::vector<float> x) // zero past its end
    {
        std::fill_n(sequence.v.begin() + token * sequence.width, sequence.width, 0.0f);
        std::copy(x.begin(), x.end(), sequence.v.begin() + token * sequence.width);
    }
    const int64_t *run(const weir_kernel &kernel, bool is_step)
    {
        for (size_t at = 0; at < sequence.gates.size(); at++)
            state.write(kernel, sequence, static_cast<int64_t>(at), 1, is_step);
        return state.view().head->counts;
    }
    Sequence sequence;
    State state;
};

TEST(CodaRules, ARowAtTheLeastGatePasses)
{
    for (const weir_kernel *kernel : write_rows())
        for (const bool is_step : { true, false })
            for (const bool is_above : { false, true }) {
                weir_coda_layer layer = layer_of(1, 8, 1, 4, 4);
                const float gate = weir_coda_gate(0.3f);
                layer.exact_gate = layer.summary_gate =
                    is_above ? std::nextafter(gate, 1.0f) : gate;
                Short one(layer, 2);
                one.sequence.gates[0] = 0.3f;
                const int64_t *const counts = one.run(*kernel, is_step);
                EXPECT_EQ(counts[WEIR_CODA_EVICTIONS], 1);
                EXPECT_EQ(counts[WEIR_CODA_GATED_OUT], is_above)
                    << kernel->name << " step " << is_step;
                EXPECT_EQ(counts[WEIR_CODA_INSERTS], !is_above);
                EXPECT_EQ(counts[WEIR_CODA_UPDATES], !is_above);
                EXPECT_EQ(counts[WEIR_CODA_FOUNDED], !is_above);
            }
}

TEST(CodaRules, ACosineAtTheBoundIsAHitAndNotNew)
{
    const float above = std::nextafter(1.0f, 2.0f);
    const struct {
        float hit, novelty;
        int64_t hits, inserts;
    } cases[] = {
        { 1.0f, 1.0f, 1, 1 }, { above, 1.0f, 0, 1 }, { above, above, 0, 2 }, { 1.0f, above, 1, 2 }
    };
    for (const weir_kernel *kernel : write_rows())
        for (const bool is_step : { true, false })
            for (const auto &c : cases) {
                weir_coda_layer layer = layer_of(1, 8, 1, 4, 0);
                layer.hit = c.hit, layer.novelty = c.novelty;
                Short three(layer, 3);
                for (int64_t token = 0; token < 3; token++) three.value(token, { 2 });
                const int64_t *const counts = three.run(*kernel, is_step);
                EXPECT_EQ(counts[WEIR_CODA_HITS], c.hits) << kernel->name << " step " << is_step;
                EXPECT_EQ(counts[WEIR_CODA_INSERTS], c.inserts)
                    << kernel->name << " step " << is_step;
            }
}

// New, new, between: the third finds the first slot, so the second is the one that a fourth
// replaces; a row below the gate finds nothing.
TEST(CodaRules, WhatIsBetweenIsFoundAndTheSlotFoundLongestAgoGoes)
{
    for (const weir_kernel *kernel : write_rows())
        for (const bool is_step : { true, false }) {
            Short all(layer_of(1, 8, 1, 2, 0), 6);
            all.value(0, { 1 });
            all.value(1, { 0, 1 });
            all.value(2, { 0.8f, 0.6f });
            all.value(3, { 0, 1 });
            all.value(4, { 0, 0, 1 });
            all.sequence.gates[3] = -9;
            const int64_t *const counts = all.run(*kernel, is_step);
            const weir_coda_state view = all.state.view();
            EXPECT_EQ(counts[WEIR_CODA_INSERTS], 3) << kernel->name;
            EXPECT_EQ(counts[WEIR_CODA_GATED_OUT], 1);
            EXPECT_EQ(counts[WEIR_CODA_HITS], is_step)
                << "a step counts hits that are not kept, too";
            EXPECT_EQ(view.used_at[0], 2) << kernel->name << " step " << is_step;
            EXPECT_EQ(view.used_at[1], 4);
            EXPECT_NEAR(all.state.row(WEIR_KV_V, 1)[0], 1, 1e-6);
            EXPECT_NEAR(all.state.row(WEIR_KV_V, 2)[2], 1, 1e-6);
            EXPECT_NEAR(all.state.row(WEIR_KV_V, 2)[1], 0, 1e-6);
        }
}

// ---- steps and blocks ---------------------------------------------------------------------------
// Exact banks decide alike; a prototype takes a step's row by rate and gate, a block's by the rate
// alone.
TEST(CodaRules, BlocksOfOneRowKeepWhatStepsKeep)
{
    for (const weir_kernel *kernel : write_rows())
        for (const bool is_gated : { true, false }) {
            weir_coda_layer layer = layer_of(2, 16, 20, 6, 5);
            layer.is_gated = is_gated;
            const Sequence sequence(layer, 300, 17);
            State steps(layer), blocks(layer);
            for (int64_t at = 0; at < 300; at++)
                steps.write(*kernel, sequence, at, 1, true),
                    blocks.write(*kernel, sequence, at, 1, false);
            const weir_coda_state a = steps.view(), b = blocks.view();
            double apart = 0;
            for (int64_t i = 0; i < 6; i++) EXPECT_EQ(a.used_at[i], b.used_at[i]) << kernel->name;
            for (const weir_kv_side side : { WEIR_KV_K, WEIR_KV_V }) {
                for (int64_t slot = 20; slot < 26; slot++)
                    EXPECT_EQ(steps.row(side, slot), blocks.row(side, slot)) << kernel->name;
                for (int64_t slot = 26; slot < 31; slot++)
                    for (size_t i = 0; i < 32; i++)
                        apart = std::max(
                            apart,
                            std::fabs(double(steps.row(side, slot)[i]) - blocks.row(side, slot)[i])
                        );
            }
            for (const weir_coda_count count :
                 { WEIR_CODA_EVICTIONS, WEIR_CODA_INSERTS, WEIR_CODA_GATED_OUT })
                EXPECT_EQ(a.head->counts[count], b.head->counts[count])
                    << kernel->name << " count " << count;
            EXPECT_GT(a.head->counts[WEIR_CODA_INSERTS], 6);
            if (is_gated)
                EXPECT_GT(apart, 1e-3) << kernel->name;
            else
                EXPECT_LE(apart, 1e-6) << kernel->name;
        }
}

// ---- sizes --------------------------------------------------------------------------------------
TEST(CodaRules, AStateIsNotLargerThanThePackages)
{
    const struct {
        int64_t heads, dim;
        int32_t window, exact, summary;
        int64_t bytes; // that the package states
    } cases[] = { { 8, 128, 256, 64, 64, 1771392 },   { 8, 128, 128, 32, 32, 885696 },
                  { 8, 128, 512, 128, 128, 3542784 }, { 8, 128, 256, 0, 0, 1049856 },
                  { 2, 64, 256, 64, 64, 223104 },     { 2, 64, 256, 0, 0, 132352 } };
    for (const auto &c : cases) {
        const weir_coda_layer layer =
            layer_of(c.heads, c.dim, c.window, c.exact, c.summary, WEIR_KV_BF16);
        const int64_t rows = 2 * weir_coda_slots(&layer) * c.heads * c.dim * 2,
                      slots = weir_coda_slots(&layer);
        // Ours: no unit vectors, no flags; slots to whole pages, each array to whole lines. All of
        // these sizes are whole pages.
        const int64_t head = 128, small = head + 8 * c.exact + 4 * slots + 4 * c.window;
        EXPECT_EQ(static_cast<int64_t>(weir_coda_view(&layer, nullptr).bytes), rows + small);
        EXPECT_LT(rows + small, c.bytes + 4 * slots + head);
    }
}

} // namespace
} // namespace weir_test
