/* The file of statistics that TriAttention reads: every byte of it is checked. */
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/kv/policy/tri_scores.h"
#include "tests/unit/kv/policies_tri.h"

namespace policy_test {
namespace {

weir_status parse(
    const Bytes &bytes, std::string *why = nullptr, const weir_policy_shape *shape = nullptr,
    bool foreign = false
)
{
    weir_calibration *read = nullptr;
    weir_error error = {};
    const Bytes exact(bytes); /* of exactly its size: ASan sees what is read beyond it */
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
    EXPECT_NE(std::string(error.text).find("layer 1 has no query"), std::string::npos)
        << error.text;
    data.plain[3] = NAN;
    weir_calibrator_add(calibrator, 1, &queries);
    EXPECT_EQ(weir_calibrator_finish(calibrator, &made, &error), WEIR_EFORMAT);
    weir_calibrator_close(calibrator);
    EXPECT_EQ(made, nullptr);
}

} // namespace
} // namespace policy_test
