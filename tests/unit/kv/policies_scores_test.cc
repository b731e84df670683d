/* What each method computes, against its definition written out over whole matrices in double. */
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numeric>

#include "engine/kv/policy/tri_scores.h"
#include "tests/unit/kv/policy_sequence.h"

namespace {

using policy_test::Data;
using policy_test::Floats;
using policy_test::Ints;
using policy_test::probabilities;
using policy_test::random_data;
using policy_test::Sequence;

size_t at(int64_t i) { return static_cast<size_t>(i); }

void expect_near(
    const Floats &got, const std::vector<double> &want, double tolerance, const std::string &what
)
{
    ASSERT_EQ(got.size(), want.size()) << what;
    for (size_t i = 0; i < want.size(); i++)
        ASSERT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::fabs(want[i])))
            << what << " row " << i;
}

/* ---- SnapKV: chunks and tiles ---------------------------------------------------------------- */

TEST(PolicySnapKv, APromptInChunksGivesWhatItGivesAtOnce)
{
    const Data data = random_data(2, 4, 2, 700, 16, 31);
    for (const char *const name : { "snapkv", "snapkv_original", "snapkv_decode" }) {
        Sequence whole(data, name, "window=24");
        whole.forward(700);
        for (const int64_t chunk : { 1, 7, 64, 333 }) {
            Sequence parts(data, name, "window=24");
            while (parts.position() < 700) parts.forward(std::min(chunk, 700 - parts.position()));
            for (int64_t g = 0; g < 4; g++)
                EXPECT_EQ(parts.scores(g / 2, g % 2, 100), whole.scores(g / 2, g % 2, 100))
                    << name << chunk;
        }
    }
}

TEST(PolicySnapKv, TilesGiveTheCausalProbabilitiesOfAllRows)
{
    const int64_t n = 600, window = 5; /* more than two tiles */
    const Data data = random_data(1, 4, 2, n, 16, 32);
    Sequence seq(data, "snapkv", "window=5,kernel=3");
    seq.forward(n);
    for (int64_t g = 0; g < 2; g++) {
        std::vector<double> sums(at(n - window)), want(at(n), INFINITY);
        for (int64_t h = 2 * g; h < 2 * g + 2; h++)
            for (int64_t t = n - window; t < n; t++) {
                Ints seen(at(t + 1));
                std::iota(seen.begin(), seen.end(), 0);
                const std::vector<double> p = probabilities(data, 0, h, t, seen);
                for (size_t j = 0; j < sums.size(); j++)
                    sums[j] += p[j] / static_cast<double>(2 * window);
            }
        for (size_t j = 0; j < sums.size(); j++) {
            want[j] = sums[j] / 3;
            if (j > 0) want[j] += sums[j - 1] / 3;
            if (j + 1 < sums.size()) want[j] += sums[j + 1] / 3;
        }
        const Floats got = seq.scores(0, g, 100);
        for (int64_t j = 0; j < n - window; j++)
            ASSERT_NEAR(got[at(j)], want[at(j)], 1e-6 + 1e-5 * want[at(j)]);
        for (int64_t j = n - window; j < n; j++) EXPECT_EQ(got[at(j)], INFINITY);
    }
}

/* Products that the caller computes give the scores that rows give. */
TEST(PolicyProducts, KeepWhatRowsThatAreReadKeep)
{
    const Data data = random_data(2, 4, 2, 1200, 16, 71);
    for (const char *const name : { "snapkv", "snapkv_original", "snapkv_decode", "rkv" }) {
        std::vector<Floats> of_head;
        for (const bool multiplies : { false, true }) {
            Sequence seq(data, name, "");
            seq.multiplies = multiplies;
            seq.forward(1200);
            of_head.push_back(seq.scores(1, 1, 100));
        }
        for (size_t j = 0; j < of_head[0].size(); j++)
            if (std::isfinite(of_head[0][j]))
                ASSERT_NEAR(of_head[1][j], of_head[0][j], 1e-6) << name << " " << j;
    }
}

TEST(PolicySnapKv, ASequenceThatCameWithoutItsQueriesKeepsWindowAndEarliest)
{
    const Data data = random_data(1, 2, 1, 60, 8, 33);
    Sequence seq(data, "snapkv", "window=4,kernel=1");
    seq.forward(60);
    weir_policy_reset(seq.policy(), seq.state());
    seq.plan({ 10 });
    EXPECT_EQ(seq.held(0, 0), (Ints{ 0, 1, 2, 3, 4, 5, 56, 57, 58, 59 }));
}

TEST(PolicySnapKv, QueriesBeforeAGapDoNotJudge)
{
    const Data data = random_data(1, 2, 1, 60, 8, 47);
    Sequence seq(data, "snapkv", "window=6");
    seq.forward(20);
    EXPECT_EQ(policy_n_queries(seq.policy(), seq.state()), 6);
    /* Positions 20 to 37 came from elsewhere */
    weir_policy_advance(seq.policy(), seq.state(), 2, 40);
    EXPECT_EQ(policy_n_queries(seq.policy(), seq.state()), 2);
    weir_policy_advance(seq.policy(), seq.state(), 1, 41);
    EXPECT_EQ(policy_n_queries(seq.policy(), seq.state()), 3);
}

/* ---- R-KV: tiles ----------------------------------------------------------------------------- */

/* Section 5 over the whole matrix of cosines. */
std::vector<double> dense_redundancy(const Data &data, int64_t n, double tau)
{
    const int64_t dim = data.key_dim;
    std::vector<std::vector<double>> C(at(n), std::vector<double>(at(n)));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double dot = 0, a = 0, b = 0;
            for (int64_t d = 0; d < dim; d++) {
                const double x = data.key(0, 0, i)[d], y = data.key(0, 0, j)[d];
                dot += x * y, a += x * x, b += y * y;
            }
            C[at(i)][at(j)] = i == j ? 0 : dot / ((std::sqrt(a) + 1e-8) * (std::sqrt(b) + 1e-8));
        }
    std::vector<double> out(at(n));
    for (std::vector<double> &row : C) {
        size_t last = 0;
        for (size_t j = 0; j < row.size(); j++)
            if (row[j] > tau) last = j;
        row[last] = 0;
        for (size_t j = 0; j < row.size(); j++) out[j] += row[j] / static_cast<double>(n);
    }
    double sum = 0;
    for (double &x : out) sum += x = std::exp(x);
    for (double &x : out) x /= sum;
    return out;
}

TEST(PolicyRkv, TilesGiveWhatTheWholeMatrixGives)
{
    for (const int64_t n : { 40, 256, 257, 620, 1100 }) {
        Data data = random_data(1, 2, 1, n, 8, 34);
        for (int64_t j = 5; j < n; j += 9) /* near duplicates, some far apart */
            for (int64_t d = 0; d < 8; d++)
                data.k[at(j * 8 + d)] =
                    data.k[at((j % 40) * 8 + d)] * 1.5f + 0.01f * static_cast<float>(d);
        for (const double tau :
             { 0.5, 0.9, 0.99999, -0.99 }) { /* of all rows, of some, of none, of the diagonal */
            const std::vector<double> want = dense_redundancy(data, n, tau);
            for (const bool multiplies : { false, true }) {
                Sequence seq(data, "rkv", "threshold=" + std::to_string(tau));
                seq.multiplies = multiplies;
                seq.forward(n);
                Floats importance(at(n)), red(at(n));
                seq.within(0, 0, 20, [&](policy_call *call, const policy_head *where) {
                    return policy_rkv_parts(call, where, importance.data(), red.data());
                });
                for (int64_t j = 0; j < n; j++)
                    ASSERT_NEAR(red[at(j)] / want[at(j)], 1, 1e-5) << n << " " << j << " " << tau;
            }
        }
    }
}

/* ---- H2O ------------------------------------------------------------------------------------- */

/* Scores by a dense mask: every row's probabilities under what was alive then, summed over all
 * steps, evicting or not. */
TEST(PolicyH2o, ScoresGoWithTheirRows)
{
    const Data data = random_data(1, 4, 2, 90, 8, 35);
    for (const char *scope : { "layer", "kv_head" }) {
        const bool is_layer = scope[0] == 'l';
        Sequence seq(data, "h2o", std::string("sinks=2,recent=4,every=3,scope=") + scope);
        std::vector<std::vector<double>> total(2, std::vector<double>(90));
        for (int64_t step = 0; seq.position() < 90; step++) {
            const int64_t first = seq.position(), n = step == 0 ? 20 : 1;
            seq.forward(n);
            for (int64_t h = 0; h < 4; h++)
                for (int64_t t = first; t < first + n; t++) {
                    Ints alive;
                    for (const int32_t p : seq.held(0, h / 2))
                        if (p <= t) alive.push_back(p);
                    const std::vector<double> p = probabilities(data, 0, h, t, alive);
                    for (size_t j = 0; j < alive.size(); j++)
                        total[is_layer ? 0 : at(h / 2)][at(alive[j])] += p[j];
                }
            if (seq.is_due({ 14 }, WEIR_POLICY_DECODE)) seq.plan({ 14 });
            EXPECT_EQ((step + 1) % 3 == 0, seq.held(0, 0).size() <= 14) << step;
        }
        for (int64_t g = 0; g < 2; g++) {
            const Floats got = seq.scores(0, g, 14);
            std::vector<double> want;
            for (const int32_t p : seq.held(0, g))
                want.push_back(total[is_layer ? 0 : at(g)][at(p)]);
            expect_near(got, want, 1e-5, scope);
        }
        if (is_layer) EXPECT_EQ(seq.held(0, 0), seq.held(0, 1));
    }
}

TEST(PolicyH2o, NormalisedSumsDoNotFavourOldRows)
{
    Data data = random_data(1, 2, 1, 50, 8, 36);
    std::fill(data.k.begin(), data.k.end(), 0.0f); /* every query attends to all rows alike */
    Sequence raw(data, "h2o", "sinks=0,recent=0"), normalised(data, "observed", "");
    raw.forward(50);
    normalised.forward(50);
    const Floats a = raw.scores(0, 0, 10), b = normalised.scores(0, 0, 10);
    for (size_t j = 1; j < 50; j++) EXPECT_LT(a[j], a[j - 1]) << "the triangle of spec 17 (5)";
    for (size_t j = 0; j < 50; j++) {
        double want = 0; /* mean over the queries that see row j of 1 / (rows that they see) */
        for (size_t t = j; t < 50; t++)
            want += 1.0 / static_cast<double>(t + 1) / static_cast<double>(50 - j);
        EXPECT_NEAR(b[j], want, 1e-6);
    }
}

TEST(PolicyH2o, DecayForgetsByStep)
{
    const Data data = random_data(1, 1, 1, 12, 8, 37);
    Sequence seq(data, "h2o", "decay=0.5,sinks=0,recent=0,every=0");
    std::vector<double> want(12);
    for (int64_t t = 0; t < 12; t++) {
        seq.forward(1);
        Ints seen(at(t + 1));
        std::iota(seen.begin(), seen.end(), 0);
        const std::vector<double> p = probabilities(data, 0, 0, t, seen);
        for (size_t j = 0; j < p.size(); j++) want[j] = want[j] / 2 + p[j];
    }
    expect_near(seq.scores(0, 0, 12), want, 1e-6, "decay");
}

TEST(PolicyH2o, ResetBeginsAnew)
{
    const Data data = random_data(1, 1, 1, 30, 8, 38);
    Sequence used(data, "h2o", ""), fresh(data, "h2o", "");
    used.forward(30);
    weir_policy_reset(used.policy(), used.state());
    EXPECT_EQ(memcmp(used.state(), fresh.state(), weir_policy_state_bytes(used.policy())), 0);
}

/* ---- Scissorhands, TOVA ---------------------------------------------------------------------- */

TEST(PolicyScissorhands, CountsHowOftenARowWasBelowTheMean)
{
    const Data data = random_data(1, 4, 2, 40, 8, 39);
    Sequence seq(data, "scissorhands", "history=1000,every=0");
    std::vector<double> want(40);
    for (int64_t first = 0; first < 40;) {
        const int64_t n = first == 0 ? 15 : 1; /* a chunk, then tokens */
        seq.forward(n);
        for (int64_t t = first; t < first + n; t++)
            for (int64_t h = 0; h < 2; h++) {
                Ints seen(at(t + 1));
                std::iota(seen.begin(), seen.end(), 0);
                const std::vector<double> p = probabilities(data, 0, h, t, seen);
                for (size_t j = 0; j < p.size(); j++)
                    want[j] -= p[j] < 1.0 / static_cast<double>(p.size());
            }
        first += n;
    }
    expect_near(seq.scores(0, 0, 10), want, 0, "counts");
}

TEST(PolicyScissorhands, StepsLongAgoDoNotCount)
{
    const Data data = random_data(1, 1, 1, 64, 8, 40);
    Sequence seq(data, "scissorhands", "history=8,every=0");
    for (int64_t t = 0; t < 64; t++) seq.forward(1);
    for (const float score : seq.scores(0, 0, 10)) {
        EXPECT_LE(-score, 8);
        EXPECT_LE(score, 0);
    }
}

TEST(PolicyTova, DropsTheRowThatTheLastQueryAttendsToLeast)
{
    const Data data = random_data(1, 4, 2, 60, 8, 41);
    Sequence seq(data, "tova", "");
    while (seq.position() < 60) {
        const Ints before = seq.held(0, 0);
        seq.forward(1);
        if (!seq.is_due({ 16 }, WEIR_POLICY_DECODE)) continue;
        std::vector<double> mean(seq.held(0, 0).size());
        for (int64_t h = 0; h < 4; h++) {
            const std::vector<double> p =
                probabilities(data, 0, h, seq.position() - 1, seq.held(0, h / 2));
            for (size_t j = 0; j < p.size(); j++) mean[j] += p[j] / 4;
        }
        Ints want = seq.held(0, 0);
        want.erase(want.begin() + (std::min_element(mean.begin(), mean.end() - 1) - mean.begin()));
        seq.plan({ 16 });
        EXPECT_EQ(seq.held(0, 0), want);
        EXPECT_EQ(seq.held(0, 1), want);
    }
}

/* ---- keys alone ------------------------------------------------------------------------------ */

TEST(PolicyLagKv, ShortSequencesAreLeftAlone)
{
    const Data data = random_data(1, 1, 1, 64, 8, 42);
    Sequence seq(data, "lagkv", "sinks=4,lag=16,every=1");
    seq.forward(4 + 2 * 16 - 1);
    EXPECT_FALSE(seq.is_due({ 20 }, WEIR_POLICY_PROMPT_END));
    seq.plan({ 20 });
    EXPECT_EQ(seq.held(0, 0).size(), 35u);
    seq.forward(1);
    EXPECT_TRUE(seq.is_due({ 20 }, WEIR_POLICY_DECODE));
    seq.plan({ 20 });
    EXPECT_EQ(seq.held(0, 0).size(), 20u);
}

TEST(PolicyLagKv, RanksFillThePartitionAndConstantChannelsSayNothing)
{
    Data data = random_data(1, 1, 1, 64, 8, 43);
    for (int64_t j = 0; j < 64; j++) data.k[at(j * 8 + 3)] = 2.5f;
    Sequence seq(data, "lagkv", "sinks=0,lag=16");
    seq.forward(64);
    Floats scores = seq.scores(0, 0, 20);
    for (size_t part = 0; part < 3; part++) {
        std::sort(
            scores.begin() + static_cast<long>(16 * part),
            scores.begin() + static_cast<long>(16 * part + 16)
        );
        for (size_t j = 0; j < 16; j++)
            EXPECT_EQ(scores[16 * part + j], static_cast<float>(j) / 16);
    }
    for (size_t j = 48; j < 64; j++) EXPECT_EQ(scores[j], 1);
}

TEST(PolicyKeyDiff, ABlockAtATimeNeverBringsARowBack)
{
    const Data data = random_data(1, 1, 1, 300, 8, 44);
    Sequence blocks(data, "keydiff", "block=32,sinks=30"),
        chunks(data, "keydiff", "every=1,in_prompt=true,sinks=30");
    blocks.forward(300);
    blocks.plan({ 40 });
    chunks.forward(40); /* the same, as the engine would do it chunk by chunk */
    while (chunks.position() < 300)
        chunks.step(std::min<int64_t>(32, 300 - chunks.position()), 40, WEIR_POLICY_IN_PROMPT);
    EXPECT_EQ(blocks.held(0, 0), chunks.held(0, 0));
}

TEST(PolicyRandom, FollowsFromItsSeedAlone)
{
    const Data data = random_data(1, 1, 1, 200, 8, 45);
    const auto held = [&](const char *options) {
        Sequence seq(data, "random", options);
        seq.forward(200);
        seq.plan({ 50 });
        return seq.held(0, 0);
    };
    EXPECT_EQ(held("seed=3"), held("seed=3"));
    EXPECT_NE(held("seed=3"), held("seed=4"));
}

/* ---- Expected Attention ---------------------------------------------------------------------- */

/* Section 6 with rotations averaged one by one, for pairs of either kind and dims that are not
 * rotated. */
TEST(PolicyExpected, MatchesRotationsAddedUpOneByOne)
{
    for (const bool is_interleaved : { false, true }) {
        const int64_t n = 40, dim = 8, rotary = 6, future = 20, sinks = 2;
        const Data data = random_data(1, 2, 1, n, dim, 46, rotary, is_interleaved);
        const auto w = data.frequencies();
        Sequence seq(data, "expected", "sinks=2,future=20");
        for (int64_t t = 0; t < n;)
            seq.forward(std::min<int64_t>(t == 0 ? 7 : 5, n - t)), t = seq.position();
        std::vector<std::vector<double>> R(at(dim), std::vector<double>(at(dim)));
        for (int64_t d = rotary; d < dim; d++) R[at(d)][at(d)] = 1;
        for (int64_t i = 0; i < future; i++)
            for (int64_t f = 0; f < rotary / 2; f++) {
                const size_t a = at(is_interleaved ? 2 * f : f),
                             b = at(is_interleaved ? 2 * f + 1 : f + rotary / 2);
                const double angle = static_cast<double>(w[at(f)]) * static_cast<double>(n + i),
                             c = std::cos(angle) / future, s = std::sin(angle) / future;
                R[a][a] += c, R[b][b] += c, R[a][b] -= s, R[b][a] += s;
            }
        std::vector<double> score(at(n), INFINITY), sum(at(n - sinks));
        for (int64_t h = 0; h < 2; h++) {
            std::vector<double> z;
            for (int64_t j = sinks; j < n; j++) {
                double mean = 0,
                       square =
                           0; /* of c (R q).k over the queries: its mean and half its variance */
                for (int64_t t = sinks; t < n; t++) {
                    double dot = 0;
                    for (size_t a = 0; a < at(dim); a++)
                        for (size_t b = 0; b < at(dim); b++)
                            dot += R[a][b] *
                                   static_cast<double>(data.plain[at((h * n + t) * dim) + b]) *
                                   static_cast<double>(data.key(0, 0, j)[a]);
                    dot /= std::sqrt(static_cast<double>(dim));
                    mean += dot / static_cast<double>(n - sinks),
                        square += dot * dot / static_cast<double>(n - sinks);
                }
                z.push_back(mean + (square - mean * mean) / 2);
            }
            double total = 0;
            for (double &x : z) total += x = std::exp(x);
            for (size_t j = 0; j < z.size(); j++) sum[j] += z[j] / total / 2;
        }
        for (int64_t j = sinks; j < n; j++) {
            double length = 0;
            for (int64_t d = 0; d < dim; d++)
                length += static_cast<double>(data.value(0, 0, j)[d]) *
                          static_cast<double>(data.value(0, 0, j)[d]);
            score[at(j)] = sum[at(j - sinks)] * std::sqrt(length);
        }
        const Floats got = seq.scores(0, 0, 10);
        for (int64_t j = sinks; j < n; j++)
            ASSERT_NEAR(got[at(j)], score[at(j)], 1e-5 * score[at(j)] + 1e-7) << j;
        EXPECT_EQ(got[0], INFINITY);
    }
}

} // namespace
