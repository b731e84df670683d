/* TriAttention: the fast form against the expanded one, votes, and the file of statistics that it
 * stands on. */
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include "engine/kv/policy/tri_scores.h"
#include "tests/unit/kv/policy_text.h"

namespace {

using policy_test::Data;
using policy_test::Doubles;
using policy_test::Floats;
using policy_test::Ints;
using policy_test::random_data;
using policy_test::Text;
using Complex = std::complex<double>;
using Bytes = std::vector<unsigned char>;

size_t at(int64_t i) { return static_cast<size_t>(i); }

weir_policy_shape shape_with(const Data &data, const Doubles &frequencies, float magnitude)
{
    weir_policy_shape shape = policy_test::shape_of(data, frequencies, 0);
    shape.rope_magnitude = magnitude;
    return shape;
}

/* The statistics of the data's own queries. */
class Calibration {
  public:
    explicit Calibration(const Data &data) : frequencies_(data.frequencies())
    {
        const weir_policy_shape shape = shape_with(data, frequencies_, 1);
        weir_error error = {};
        weir_calibrator *calibrator = nullptr;
        EXPECT_EQ(
            weir_calibrator_open(&calibrator, &shape, static_cast<float>(data.base), &error),
            WEIR_OK
        ) << error.text;
        for (int64_t layer = 0; layer < data.layers; layer++)
            for (int64_t first = 0; first < data.tokens;
                 first += 7) { /* in pieces, as chunks come */
                const weir_policy_queries some = {
                    data.plain.data() + (layer * data.heads * data.tokens + first) * data.key_dim,
                    std::min<int64_t>(7, data.tokens - first), data.tokens * data.key_dim,
                    data.key_dim
                };
                weir_calibrator_add(calibrator, layer, &some);
            }
        EXPECT_EQ(weir_calibrator_finish(calibrator, &made_, &error), WEIR_OK) << error.text;
        weir_calibrator_close(calibrator);
    }
    ~Calibration() { weir_calibration_close(made_); }
    Calibration(const Calibration &) = delete;
    Calibration &operator=(const Calibration &) = delete;
    const weir_calibration *get() const { return made_; }
    Bytes bytes(bool is_plain = false) const
    {
        weir_buffer out = {};
        EXPECT_EQ(weir_calibration_print(&out, made_, is_plain), WEIR_OK);
        const Bytes copy(out.data, out.data + out.size);
        weir_buffer_free(&out);
        return copy;
    }

  private:
    Doubles frequencies_;
    weir_calibration *made_ = nullptr;
};

/* ---- the score ------------------------------------------------------------------------------- */

/* Section 7.2 as it is written: each key turned back, one cosine for each band and distance. */
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
            Text text(data, "triattention", is_max ? "aggregate=max" : "", calibration.get());
            text.multiplies = variant / 2 != 0;
            text.forward(300);
            for (int64_t layer = 0; layer < 2; layer++)
                for (int64_t g = 0; g < 2; g++)
                    text.within(layer, g, 300, [&](policy_call *call, const policy_head *where) {
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
    Text whole(data, "triattention", "vote=per_layer_head", calibration.get()),
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
        Text text(data, "triattention", "", calibration.get());
        const_cast<weir_policy *>(text.policy())->shape.rope_magnitude = m;
        Data cached = data;
        for (float &x : cached.k) x *= m;
        text.forward(50);
        float weight[16], length[8];
        for (int64_t h = 0; h < 2; h++) {
            tri_weights(text.policy(), 0, h, 50, -1, weight, length);
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
    Text per_head(data, "triattention", "", calibration.get()),
        each(data, "triattention", "vote=per_layer_head", calibration.get()),
        all(data, "triattention", "vote=union", calibration.get());
    for (Text *text : { &per_head, &each, &all }) {
        text->forward(150);
        text->plan({ 50 });
        for (int64_t i = 0; i < 6; i++) {
            EXPECT_EQ(text->held(i / 2, i % 2).size(), 50u);
            for (int32_t j = 0; j < 4; j++)
                EXPECT_EQ(text->held(i / 2, i % 2)[at(j)], j) << "sinks";
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
    Text two(data, "triattention", "group=mean", with.get()),
        one(alone, "triattention", "", without.get());
    EXPECT_TRUE(tri_votes(two.policy(), 0, 0));
    EXPECT_FALSE(tri_votes(two.policy(), 0, 1));
    for (Text *text : { &two, &one }) {
        text->forward(80);
        text->plan({ 30 });
    }
    EXPECT_EQ(two.held(0, 0), one.held(0, 0));
}

TEST(PolicyTri, LayersOfOtherLengthsNeedVotesOfTheirOwn)
{
    const Data data = random_data(2, 2, 1, 60, 16, 56);
    const Calibration calibration(data);
    for (const char *vote : { "per_head", "union", "per_layer_head" }) {
        Text text(data, "triattention", std::string("vote=") + vote, calibration.get());
        text.forward(40);
        std::string why;
        try {
            text.plan({ 20, 30 });
            text.forward(20);
            text.plan({ 20 });
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
        Text text(
            data, "triattention",
            std::string("sinks=0,every=16,pin_prompt=true,trigger=") + trigger, calibration.get()
        );
        int64_t n_plans = 0;
        text.forward(24);
        text.n_prompt = 24;
        while (text.position() < 200) {
            text.forward(1);
            EXPECT_LE(text.held(0, 0).size(), 40u + 16);
            if (!text.is_due({ 40 }, WEIR_POLICY_DECODE)) continue;
            if (trigger[1] == 't') EXPECT_EQ(text.position() % 16, 0);
            text.plan({ 40 });
            EXPECT_EQ(text.held(0, 0).size(), 40u);
            EXPECT_EQ(text.held(0, 0)[23], 23);
            n_plans++;
        }
        EXPECT_GE(n_plans, 9);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

weir_status parse(
    const Bytes &bytes, std::string *why = nullptr, const weir_policy_shape *shape = nullptr,
    bool foreign = false
)
{
    weir_calibration *read = nullptr;
    weir_error error = {};
    const Bytes exact(bytes); /* of exactly its size: ASan sees what is read behind it */
    weir_status status =
        weir_calibration_parse(&read, exact.data(), exact.size(), "stats.tria", &error);
    if (status == WEIR_OK && shape != nullptr)
        status = weir_calibration_check(read, shape, foreign, &error);
    if (why != nullptr) *why = error.text;
    EXPECT_EQ(status == WEIR_OK, error.text[0] == '\0');
    weir_calibration_close(read);
    return status;
}

void put32(Bytes *bytes, size_t offset, uint32_t value)
{
    for (size_t i = 0; i < 4; i++)
        (*bytes)[offset + i] = static_cast<unsigned char>(value >> (8 * i));
}

void put_float(Bytes *bytes, size_t offset, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    put32(bytes, offset, bits);
}

Bytes sealed(Bytes bytes)
{
    const uint64_t sum = XXH3_64bits(bytes.data(), bytes.size() - 8);
    put32(&bytes, bytes.size() - 8, static_cast<uint32_t>(sum));
    put32(&bytes, bytes.size() - 4, static_cast<uint32_t>(sum >> 32));
    return bytes;
}

struct TriFile : testing::Test {
    const Data data = random_data(2, 4, 2, 30, 16, 58, 12, true);
    const Doubles frequencies = data.frequencies();
    const Calibration calibration{ data };
    const Bytes good = calibration.bytes();
    const weir_policy_shape shape = policy_test::shape_of(data, frequencies, 0);
    const size_t added =
        good.size() - (32 + 4 * 6 + 4 * 2 * 4 * 4 + 8); /* where what Weir adds begins */
};

TEST_F(TriFile, IsReadAsItWasWritten)
{
    weir_calibration *read = nullptr;
    weir_error error = {};
    const std::string path = testing::TempDir() + "stats.tria";
    ASSERT_EQ(weir_calibration_write(path.c_str(), calibration.get(), &error), WEIR_OK)
        << error.text;
    ASSERT_EQ(weir_calibration_read(&read, path.c_str(), &error), WEIR_OK) << error.text;
    EXPECT_EQ(weir_calibration_digest(read), weir_calibration_digest(calibration.get()));
    EXPECT_EQ(weir_calibration_bytes(read), weir_calibration_bytes(calibration.get()));
    EXPECT_EQ(weir_calibration_check(read, &shape, false, &error), WEIR_OK) << error.text;
    for (int64_t d = 0; d < 4; d++)
        EXPECT_EQ(
            weir_calibration_at(read, 1, 3).plain[d],
            weir_calibration_at(calibration.get(), 1, 3).plain[d]
        );
    weir_calibration_close(read);
    EXPECT_EQ(weir_calibration_read(&read, (path + ".none").c_str(), &error), WEIR_ENOTFOUND);
}

TEST_F(TriFile, OfTheSizeThatTheFormatSays)
{
    EXPECT_EQ(calibration.bytes(true).size(), 64u + 4 * 2 + 16 * 2 * 4 * 6);
    EXPECT_EQ(added, calibration.bytes(true).size());
}

TEST_F(TriFile, CutShortOrLongerIsRefused)
{
    for (size_t n = 0; n < good.size(); n++)
        EXPECT_EQ(parse(Bytes(good.begin(), good.begin() + static_cast<long>(n))), WEIR_EFORMAT)
            << n;
    Bytes longer = good;
    longer.push_back(0);
    EXPECT_EQ(parse(longer), WEIR_EFORMAT);
}

TEST_F(TriFile, AnyChangedByteIsFound)
{
    for (size_t i = 0; i < good.size(); i += 3) {
        Bytes bad = good;
        bad[i] ^= 0x10;
        EXPECT_NE(parse(bad), WEIR_OK) << i;
    }
}

TEST_F(TriFile, SizesThatNoModelHasAreRefusedBeforeAnythingIsTaken)
{
    for (const size_t field : { 8u, 12u, 16u, 20u, 24u })
        for (const uint32_t value : { 0u, 1u << 31, 0xffffffffu, 65536u, 3u }) {
            Bytes bad = good;
            put32(&bad, field, value);
            EXPECT_EQ(parse(sealed(bad)), WEIR_EFORMAT) << field << " " << value;
        }
    Bytes huge(64, 0); /* a header alone that asks for as much as it can */
    memcpy(huge.data(), good.data(), 36);
    for (const size_t field : { 8u, 12u, 16u, 20u }) put32(&huge, field, 65536);
    put32(&huge, 24, 32768);
    EXPECT_EQ(parse(huge), WEIR_EFORMAT);
}

TEST_F(TriFile, NumbersThatNoQueriesHaveAreRefused)
{
    const size_t first = 64 + 4 * 2;
    struct {
        size_t offset;
        float value;
    } const bad_numbers[] = {
        { first, NAN },
        { first + 24, INFINITY },
        { first + 48, -1 },
        { first, 1e6f }, /* a mean longer than the lengths */
        { 64, NAN },
        { 64, -1 },
        { 28, 0 },
        { 28, NAN },
        { 32, -1 },
        { added + 32, NAN },
        { good.size() - 12, NAN },
    };
    for (const auto &one : bad_numbers) {
        Bytes bad = good;
        put_float(&bad, one.offset, one.value);
        std::string why;
        EXPECT_EQ(parse(sealed(bad), &why), WEIR_EFORMAT) << one.offset;
        EXPECT_NE(why.find("stats.tria"), std::string::npos) << why;
    }
    Bytes ignored = good; /* |q| / a follows from the others; writers disagree about it */
    put_float(&ignored, first + 72, NAN);
    EXPECT_EQ(parse(sealed(ignored)), WEIR_OK);
}

TEST_F(TriFile, OtherModelsAreRefused)
{
    std::string why;
    EXPECT_EQ(parse(good, &why, &shape), WEIR_OK) << why;
    const auto refused = [&](const std::function<void(weir_policy_shape *)> &change) {
        weir_policy_shape other = shape;
        change(&other);
        EXPECT_EQ(parse(good, &why, &other, true), WEIR_EMISMATCH);
        EXPECT_NE(why.find("weir calibrate"), std::string::npos) << why;
    };
    Doubles scaled = frequencies;
    scaled[2] *= 1.01;
    refused([](weir_policy_shape *s) { s->model[1]++; });
    refused([](weir_policy_shape *s) { s->n_layers++; });
    refused([](weir_policy_shape *s) { s->n_kv_heads = 4; });
    refused([](weir_policy_shape *s) { s->rotary_dim = 10; });
    refused([](weir_policy_shape *s) { s->is_interleaved = false; });
    refused([](weir_policy_shape *s) { s->rope_magnitude = 1.1f; });
    refused([&](weir_policy_shape *s) { s->frequencies = scaled.data(); });
    Bytes before_norm = good;
    put32(&before_norm, added + 24, 2); /* interleaved, not after the norm */
    EXPECT_EQ(parse(sealed(before_norm), &why, &shape), WEIR_EMISMATCH);
    EXPECT_NE(why.find("before their norm"), std::string::npos) << why;
}

TEST_F(TriFile, OtherVersionsAreRefusedAsSuch)
{
    std::string why;
    Bytes bad = good;
    put32(&bad, 4, 3);
    EXPECT_EQ(parse(sealed(bad), &why), WEIR_EUNSUPPORTED);
    EXPECT_NE(why.find("version 3"), std::string::npos) << why;
    bad = good;
    put32(&bad, 40, 2);
    EXPECT_EQ(parse(sealed(bad)), WEIR_EUNSUPPORTED);
    bad = good;
    put32(&bad, 44, 1); /* another size of what Weir adds */
    EXPECT_EQ(parse(sealed(bad)), WEIR_EFORMAT);
    bad = good;
    bad[0] = 'x';
    EXPECT_EQ(parse(bad), WEIR_EFORMAT);
}

TEST_F(TriFile, OneThatDoesNotSayItsModelIsTakenOnlyOnRequest)
{
    const Data halves = random_data(2, 4, 2, 30, 16, 59);
    const auto own = halves.frequencies();
    const Calibration other(halves);
    const weir_policy_shape plain = policy_test::shape_of(halves, own, 0);
    Bytes foreign = other.bytes(true);
    std::string why;
    EXPECT_EQ(parse(foreign, &why, &plain), WEIR_EMISMATCH);
    EXPECT_NE(why.find("foreign=true"), std::string::npos) << why;
    EXPECT_EQ(parse(foreign, &why, &plain, true), WEIR_OK) << why;
    put_float(&foreign, 32, 0); /* a writer that leaves the scale out */
    EXPECT_EQ(parse(foreign, &why, &plain, true), WEIR_OK) << why;
    put_float(&foreign, 28, 5e5f); /* another base */
    EXPECT_EQ(parse(foreign, &why, &plain, true), WEIR_EMISMATCH);
}

TEST(TriCalibrator, NeedsQueriesThatAreNumbers)
{
    Data data = random_data(2, 2, 1, 10, 8, 60);
    const auto frequencies = data.frequencies();
    const weir_policy_shape shape = policy_test::shape_of(data, frequencies, 0);
    weir_calibrator *calibrator = nullptr;
    weir_calibration *made = nullptr;
    weir_error error = {};
    ASSERT_EQ(weir_calibrator_open(&calibrator, &shape, 1e4f, &error), WEIR_OK);
    weir_policy_queries queries = { data.plain.data(), 10, 80, 8 };
    weir_calibrator_add(calibrator, 0, &queries);
    EXPECT_EQ(weir_calibrator_finish(calibrator, &made, &error), WEIR_EINVAL);
    EXPECT_NE(std::string(error.text).find("layer 1 has seen no query"), std::string::npos)
        << error.text;
    data.plain[3] = NAN;
    weir_calibrator_add(calibrator, 1, &queries);
    EXPECT_EQ(weir_calibrator_finish(calibrator, &made, &error), WEIR_EFORMAT);
    weir_calibrator_close(calibrator);
    EXPECT_EQ(made, nullptr);
}

} // namespace
