/* TriAttention: the fast form against the expanded one, and votes. */
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include "engine/kv/policy/tri_scores.h"
#include "tests/unit/kv/policies_tri.h"

namespace policy_test {
namespace {

using Complex = std::complex<double>;

/* ---- the score ------------------------------------------------------------------------------- */

/* Section 7.2 as it is written: each key rotated back, one cosine for each band and distance. */
double expanded(const Data &data, int64_t layer, int64_t h, int64_t p, int64_t t, bool is_max)
{
    const int64_t bands = data.rotated() / 2;
    const auto w = data.frequencies();
    double norm = 0, plain = 0, total = 0, greatest = -INFINITY;
    std::vector<Complex> mean(at(bands)), key(at(bands));
    const auto pair = [&](const float *row, int64_t f) {
        return data.is_interleaved ? Complex(row[2 * f], row[2 * f + 1])
                                   : Complex(row[f], row[f + bands]);
    };
    const float *const k = data.key(layer, h / (data.heads / data.kv_heads), p);
    for (int64_t f = 0; f < bands; f++) {
        double length = 0;
        for (int64_t i = 0; i < data.tokens; i++) {
            const Complex q = pair(
                data.plain.data() + ((layer * data.heads + h) * data.tokens + i) * data.key_dim, f
            );
            mean[at(f)] += q / static_cast<double>(data.tokens);
            length += std::abs(q) / static_cast<double>(data.tokens);
        }
        key[at(f)] =
            pair(k, f) * std::polar(1.0, -static_cast<double>(w[at(f)]) * static_cast<double>(p));
        norm += (length - std::abs(mean[at(f)])) * std::abs(key[at(f)]);
    }
    for (int64_t d = data.rotated(); d < data.key_dim; d++)
        for (int64_t i = 0; i < data.tokens; i++)
            plain +=
                static_cast<double>(k[d]) *
                static_cast<double>(
                    data.plain[at(((layer * data.heads + h) * data.tokens + i) * data.key_dim + d)]
                ) /
                static_cast<double>(data.tokens);
    for (int i = 0; i < 17; i++) {
        double sum = 0;
        for (int64_t f = 0; f < bands; f++)
            sum += std::abs(mean[at(f)]) * std::abs(key[at(f)]) *
                   std::cos(
                       static_cast<double>(w[at(f)]) * static_cast<double>(t - p + (1 << i)) +
                       std::arg(mean[at(f)] * std::conj(key[at(f)]))
                   );
        total += sum / 17;
        greatest = std::max(greatest, sum);
    }
    return (is_max ? greatest : total) + plain + norm;
}

TEST(PolicyTri, TheFastFormIsTheExpandedOne)
{
    struct {
        int64_t rotary;
        bool is_interleaved;
    } const kinds[] = { { -1, false }, { -1, true }, { 16, false }, { 16, true } };
    for (const auto &kind : kinds)
        for (const int variant : { 0, 1, 2, 3 }) {
            const bool is_max = variant % 2 != 0;
            const Data data = random_data(2, 4, 2, 300, 32, 51, kind.rotary, kind.is_interleaved);
            const Calibration calibration(data);
            Sequence seq(data, "triattention", is_max ? "aggregate=max" : "", calibration.get());
            seq.multiplies = variant / 2 != 0;
            seq.forward(300);
            for (int64_t layer = 0; layer < 2; layer++)
                for (int64_t g = 0; g < 2; g++)
                    seq.within(layer, g, 300, [&](policy_call *call, const policy_head *where) {
                        Floats raw(600);
                        const weir_status status = tri_raw(call, where, raw.data());
                        for (int64_t m = 0; m < 2; m++)
                            for (int64_t p = 0; p < 300; p += 7) {
                                const double want =
                                    expanded(data, layer, 2 * g + m, p, 300, is_max);
                                EXPECT_NEAR(
                                    raw[at(m * 300 + p)], want,
                                    1e-5 * std::max(1.0, std::fabs(want))
                                );
                            }
                        return status;
                    });
        }
}

TEST(PolicyTri, RowsThatWentDoNotChangeTheScoresOfOthers)
{
    const Data data = random_data(1, 2, 1, 120, 16, 52);
    const Calibration calibration(data);
    Sequence whole(data, "triattention", "vote=per_layer_head", calibration.get()),
        cut(data, "triattention", "every=1", calibration.get());
    whole.forward(120);
    while (cut.position() < 120) cut.step(1, 40, WEIR_POLICY_DECODE);
    ASSERT_EQ(cut.held(0, 0).size(), 40u);
    Floats of_whole(240), of_cut(80);
    whole.within(0, 0, 120, [&](policy_call *call, const policy_head *where) {
        return tri_raw(call, where, of_whole.data());
    });
    cut.within(0, 0, 40, [&](policy_call *call, const policy_head *where) {
        return tri_raw(call, where, of_cut.data());
    });
    for (size_t j = 0; j < 40; j++)
        EXPECT_EQ(of_cut[j], of_whole[at(cut.held(0, 0)[j])])
            << "t is a position, not a count of rows";
}

TEST(PolicyTri, RopesMagnitudeCountsOncePerSide)
{
    Data data = random_data(1, 2, 1, 50, 16, 53);
    const Calibration calibration(data);
    const auto frequencies = data.frequencies();
    float scores[2][100];
    for (const int scaled : { 0, 1 }) {
        const float m = scaled != 0 ? 1.25f : 1;
        weir_policy_shape shape = shape_with(data, frequencies, m);
        weir_policy_options options;
        weir_policy *policy = nullptr;
        weir_error error = {};
        ASSERT_EQ(weir_policy_options_default(&options, "triattention", &error), WEIR_OK);
        const weir_status status =
            weir_policy_open(&policy, &options, &shape, calibration.get(), &error);
        if (scaled != 0) {
            EXPECT_EQ(status, WEIR_EMISMATCH) << "statistics of another rotation";
            EXPECT_NE(std::string(error.text).find("another RoPE"), std::string::npos)
                << error.text;
        }
        weir_policy_close(policy);
        /* The weights themselves, with the magnitude as a model has it. */
        Sequence seq(data, "triattention", "", calibration.get());
        const_cast<weir_policy *>(seq.policy())->shape.rope_magnitude = m;
        Data cached = data;
        for (float &x : cached.k) x *= m;
        seq.forward(50);
        float weight[16], length[8];
        for (int64_t h = 0; h < 2; h++) {
            tri_weights(seq.policy(), 0, h, 50, -1, weight, length);
            for (int64_t j = 0; j < 50; j++) {
                float bands[8];
                for (int f = 0; f < 8; f++)
                    bands[f] = std::hypot(cached.key(0, 0, j)[f], cached.key(0, 0, j)[f + 8]);
                scores[scaled][h * 50 + j] =
                    policy_dot(weight, cached.key(0, 0, j), 16) + policy_dot(length, bands, 8);
            }
        }
    }
    for (int i = 0; i < 100; i++)
        EXPECT_NEAR(
            scores[1][i], scores[0][i] * 1.25f * 1.25f, 1e-4f * std::fabs(scores[1][i]) + 1e-4f
        );
}

/* ---- votes ----------------------------------------------------------------------------------- */

TEST(PolicyTri, PerHeadKeepsTheSameRowsInAllLayersUnionInAllHeads)
{
    const Data data = random_data(3, 4, 2, 150, 16, 54);
    const Calibration calibration(data);
    Sequence per_head(data, "triattention", "", calibration.get()),
        each(data, "triattention", "vote=per_layer_head", calibration.get()),
        all(data, "triattention", "vote=union", calibration.get());
    for (Sequence *seq : { &per_head, &each, &all }) {
        seq->forward(150);
        seq->plan({ 50 });
        for (int64_t i = 0; i < 6; i++) {
            EXPECT_EQ(seq->held(i / 2, i % 2).size(), 50u);
            for (int32_t j = 0; j < 4; j++) EXPECT_EQ(seq->held(i / 2, i % 2)[at(j)], j) << "sinks";
        }
    }
    for (int64_t g = 0; g < 2; g++) {
        EXPECT_EQ(per_head.held(1, g), per_head.held(0, g));
        EXPECT_EQ(per_head.held(2, g), per_head.held(0, g));
        EXPECT_NE(each.held(1, g), each.held(0, g));
        EXPECT_EQ(all.held(2, g), all.held(0, 0));
    }
    EXPECT_NE(per_head.held(0, 1), per_head.held(0, 0));
}

TEST(PolicyTri, HeadsWithoutStatisticsDoNotVote)
{
    Data data = random_data(1, 2, 1, 80, 16, 55), silent = data;
    for (int64_t i = 0; i < 80 * 16; i++) silent.plain[at(80 * 16 + i)] = 0; /* the second head */
    Data alone = data;
    alone.heads = 1;
    alone.plain.resize(80 * 16);
    alone.q.resize(80 * 16);
    const Calibration with(silent), without(alone);
    Sequence two(data, "triattention", "group=mean", with.get()),
        one(alone, "triattention", "", without.get());
    EXPECT_TRUE(tri_votes(two.policy(), 0, 0));
    EXPECT_FALSE(tri_votes(two.policy(), 0, 1));
    for (Sequence *seq : { &two, &one }) {
        seq->forward(80);
        seq->plan({ 30 });
    }
    EXPECT_EQ(two.held(0, 0), one.held(0, 0));
}

TEST(PolicyTri, LayersOfOtherLengthsNeedVotesOfTheirOwn)
{
    const Data data = random_data(2, 2, 1, 60, 16, 56);
    const Calibration calibration(data);
    for (const char *vote : { "per_head", "union", "per_layer_head" }) {
        Sequence seq(data, "triattention", std::string("vote=") + vote, calibration.get());
        seq.forward(40);
        std::string why;
        try {
            seq.plan({ 20, 30 });
            seq.forward(20);
            seq.plan({ 20 });
        } catch (const std::runtime_error &error) {
            why = error.what();
        }
        if (vote[4] == 'l')
            EXPECT_EQ(why, "");
        else
            EXPECT_NE(why.find("vote=per_layer_head"), std::string::npos) << vote << why;
    }
}

TEST(PolicyTri, SlackAndStrictTriggersAndPinnedPrompts)
{
    const Data data = random_data(1, 2, 1, 200, 16, 57);
    const Calibration calibration(data);
    for (const char *const trigger : { "slack", "strict" }) {
        Sequence seq(
            data, "triattention",
            std::string("sinks=0,every=16,pin_prompt=true,trigger=") + trigger, calibration.get()
        );
        int64_t n_plans = 0;
        seq.forward(24);
        seq.n_prompt = 24;
        while (seq.position() < 200) {
            seq.forward(1);
            EXPECT_LE(seq.held(0, 0).size(), 40u + 16);
            if (!seq.is_due({ 40 }, WEIR_POLICY_DECODE)) continue;
            if (trigger[1] == 't') EXPECT_EQ(seq.position() % 16, 0);
            seq.plan({ 40 });
            EXPECT_EQ(seq.held(0, 0).size(), 40u);
            EXPECT_EQ(seq.held(0, 0)[23], 23);
            n_plans++;
        }
        EXPECT_GE(n_plans, 9);
    }
}

} // namespace
} // namespace policy_test
