/* The bank of `landmarks`, against its definition over whole arrays in double. */
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/unit/kv/policy_sequence.h"

namespace {

using policy_test::Data;
using policy_test::Doubles;
using policy_test::Ints;
using policy_test::random_data;
using policy_test::Sequence;

/* Values of a few kinds, each with some noise, of lengths from 0.2 to 2. */
Data data_of_kinds(int64_t tokens, int n_classes, uint64_t seed)
{
    Data data = random_data(1, 2, 2, tokens, 16, seed);
    const Data noise = random_data(1, 2, 2, tokens, 16, seed + 1);
    const int64_t dim = data.value_dim;
    for (int64_t head = 0; head < 2; head++)
        for (int64_t t = 0; t < tokens; t++) {
            const int64_t kind = (t * 7919 + t / 5 + head) % n_classes;
            const float length = 0.2f + 0.1f * static_cast<float>((t * 31) % 19);
            for (int64_t d = 0; d < dim; d++) {
                const float prototype = noise.value(0, head, kind)[d],
                            other = noise.value(0, head, t)[d];
                data.v[static_cast<size_t>((head * tokens + t) * dim + d)] =
                    length * (prototype + 0.3f * other);
            }
        }
    return data;
}

double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++) sum += static_cast<double>(a[d]) * static_cast<double>(b[d]);
    return sum;
}

double length_of(const Data &data, int64_t head, int64_t t)
{
    return std::sqrt(dot(data.value(0, head, t), data.value(0, head, t), data.value_dim));
}

double cosine(const Data &data, int64_t head, int64_t a, int64_t b)
{
    return dot(data.value(0, head, a), data.value(0, head, b), data.value_dim) /
           (length_of(data, head, a) * length_of(data, head, b));
}

struct Place {
    int64_t row, found;
};

/* Rows [0, end) in order. */
std::vector<Place> bank_of(
    const Data &data, int64_t head, int64_t first, int64_t end, size_t n_places, double novelty,
    bool is_gated
)
{
    double mean = 0;
    for (int64_t t = first; t < end; t++)
        mean += length_of(data, head, t) / static_cast<double>(end - first);
    std::vector<Place> bank;
    for (int64_t t = first; t < end; t++) {
        if (is_gated && length_of(data, head, t) < mean / 2) continue;
        const auto near = std::max_element(bank.begin(), bank.end(), [&](Place a, Place b) {
            return cosine(data, head, a.row, t) < cosine(data, head, b.row, t);
        });
        if (near != bank.end() && cosine(data, head, near->row, t) >= novelty) {
            near->found = t;
        } else if (bank.size() < n_places) {
            bank.push_back({ t, t });
        } else {
            *std::min_element(bank.begin(), bank.end(), [](Place a, Place b) {
                return a.found < b.found;
            }) = { t, t };
        }
    }
    return bank;
}

Ints kept_of(const std::vector<Place> &bank, int64_t n, int64_t n_first, size_t budget)
{
    Ints kept(static_cast<size_t>(n_first));
    std::iota(kept.begin(), kept.end(), 0);
    for (const Place &place : bank) kept.push_back(static_cast<int32_t>(place.row));
    for (int64_t t = n - 1; kept.size() < budget; t--)
        if (std::none_of(bank.begin(), bank.end(), [&](const Place &place) {
                return place.row == t;
            }))
            kept.push_back(static_cast<int32_t>(t));
    std::sort(kept.begin(), kept.end());
    return kept;
}

TEST(PolicyLandmarks, KeepTheBankTheFirstAndTheLatest)
{
    const int64_t n = 600;
    for (const int n_classes : { 5, 20, 300 }) /* a bank that is not filled, one that is just, one
                                                that is replaced all the time */
        for (const bool is_gated : { false, true }) {
            const Data data = data_of_kinds(n, n_classes, 91);
            Sequence seq(
                data, "landmarks",
                std::string("sinks=4,landmarks=16,novelty=0.8,gate=") +
                    (is_gated ? "norm" : "constant")
            );
            seq.forward(n);
            seq.plan({ 84 });
            for (int64_t head = 0; head < 2; head++) {
                const std::vector<Place> bank =
                    bank_of(data, head, 4, n - (84 - 4 - 16), 16, 0.8, is_gated);
                EXPECT_EQ(bank.size() == 16, n_classes > 5);
                EXPECT_EQ(seq.held(0, head), kept_of(bank, n, 4, 84)) << n_classes << is_gated;
            }
        }
}

/* A row that nothing is like stays, however long ago it was; rows like others make no way for
 * themselves. */
TEST(PolicyLandmarks, ANewValueStaysThroughManyEvictions)
{
    Data data = data_of_kinds(2000, 6, 93);
    for (int64_t d = 0; d < data.value_dim; d++)
        data.v[static_cast<size_t>(100 * data.value_dim + d)] = d == 3 ? 5.0f : 0.0f;
    Sequence seq(data, "landmarks", "landmarks=32,every=16");
    while (seq.position() < 2000) seq.step(1, 128, WEIR_POLICY_DECODE);
    EXPECT_EQ(std::count(seq.held(0, 0).begin(), seq.held(0, 0).end(), 100), 1);
    EXPECT_EQ(std::count(seq.held(0, 1).begin(), seq.held(0, 1).end(), 100), 0)
        << "the other head's row has nothing new";
}

TEST(PolicyLandmarks, ABankTakesAtMostHalfOfTheBudget)
{
    const Data data = random_data(1, 1, 1, 100, 16, 95);
    Sequence seq(data, "landmarks", "sinks=2,landmarks=4096,novelty=1");
    seq.forward(100);
    seq.plan({ 12 });
    ASSERT_EQ(seq.held(0, 0).size(), 12u);
    for (int32_t t = 95; t < 100; t++)
        EXPECT_EQ(std::count(seq.held(0, 0).begin(), seq.held(0, 0).end(), t), 1);
    seq.plan({ 3 }); /* no place at all */
    EXPECT_EQ(seq.held(0, 0), (Ints{ 0, 1, 99 }));
}

/* It would be unlike everything else, and the mean length no number. */
TEST(PolicyLandmarks, AValueThatIsNoNumberIsTheLastToStay)
{
    const int64_t n = 600;
    Data zeroed = data_of_kinds(n, 20, 97);
    for (int64_t d = 0; d < zeroed.value_dim; d++)
        zeroed.v[static_cast<size_t>(50 * zeroed.value_dim + d)] = 0.0f;
    for (const float bad : { NAN, INFINITY, 3e38f }) {
        Data data = zeroed;
        for (int64_t d = 0; d < data.value_dim; d++)
            data.v[static_cast<size_t>(50 * data.value_dim + d)] = bad;
        for (const bool is_gated : { false, true }) {
            Sequence seq(
                data, "landmarks",
                std::string("sinks=4,landmarks=16,novelty=0.8,gate=") +
                    (is_gated ? "norm" : "constant")
            );
            seq.forward(n);
            seq.plan({ 84 });
            EXPECT_EQ(std::count(seq.held(0, 0).begin(), seq.held(0, 0).end(), 50), 0)
                << bad << is_gated;
            EXPECT_EQ(seq.last_plan().n_nan, 1) << bad << is_gated;
            if (is_gated)
                EXPECT_EQ(
                    seq.held(0, 0),
                    kept_of(bank_of(zeroed, 0, 4, n - (84 - 4 - 16), 16, 0.8, true), n, 4, 84)
                ) << bad;
        }
    }
}

} // namespace
