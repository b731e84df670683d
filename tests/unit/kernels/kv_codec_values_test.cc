// KV formats: rows that are kept when others are dropped, and values that spoil no others.
#include "tests/unit/kernels/kv_codec.h"

namespace weir_test {
namespace {

// ---- rows that stay -----------------------------------------------------------------------------
std::vector<const weir_kernel *> compact_rows()
{
    std::vector<const weir_kernel *> rows = omp_rows(WEIR_OP_KV_COMPACT);
    rows.push_back(&weir_kernel_ref_kv_compact);
    return rows;
}

// Each head keeps rows of its own; they read as before, in the formats that code rows by
// themselves, and the others are refused.
TEST(KvCompact, KeptRowsReadAsBefore)
{
    for (const weir_kv_format format : formats()) {
        for (const int64_t dim : { 20, 64 }) {
            if (!takes(format, dim)) continue;
            const Rows rows(200, dim, 9);
            int32_t keep[2][200], n_keep[2] = { 0, 0 };
            for (int32_t i = 0; i < 200; i++) {
                if (i < 4 || i % 3 == 1 || i > 190) keep[0][n_keep[0]++] = i;
                if (i % 64 > 40) keep[1][n_keep[1]++] = i;
            }
            for (const weir_kernel *kernel : compact_rows()) {
                Pages pages(format, 2, dim, dim, 200);
                ASSERT_EQ(write(weir_kernel_ref_kv_write, pages, rows, format, 0, 200), WEIR_OK);
                const weir_kv_segment all = pages.segment(0, 200, 0);
                const weir_kv_compact_segment segment = { all.pages, all.page_stride, 200,
                                                          keep[0],   n_keep,          nullptr };
                const weir_kv_compact_args args = { &segment, 1, 2, dim, dim, format, format, {} };
                if (weir_kv_seals_pages(format)) {
                    EXPECT_EQ(run(*kernel, &args), WEIR_EUNSUPPORTED)
                        << kernel->name << " " << text_of(format, dim);
                    continue;
                }
                const Rows before = read(weir_kernel_ref_kv_read, pages, 200, dim, format);
                ASSERT_EQ(run(*kernel, &args), WEIR_OK) << kernel->name;
                const Rows after = read(weir_kernel_ref_kv_read, pages, 200, dim, format);
                for (int g = 0; g < 2; g++)
                    for (int32_t i = 0; i < n_keep[g]; i++) {
                        const auto to = (i * 2 + g) * dim, from = (keep[g][i] * 2 + g) * dim;
                        ASSERT_TRUE(std::equal(
                            &after.k[(size_t)to], &after.k[(size_t)to] + dim,
                            &before.k[(size_t)from]
                        )) << kernel->name
                           << " " << text_of(format, dim) << " row " << i;
                        ASSERT_TRUE(std::equal(
                            &after.v[(size_t)to], &after.v[(size_t)to] + dim,
                            &before.v[(size_t)from]
                        )) << kernel->name
                           << " " << text_of(format, dim) << " row " << i;
                    }
            }
        }
    }
}

// Rows before `first` are in place: neither their entries of `keep` nor their pages are looked at.
TEST(KvCompact, BeginsAtTheFirstRowThatMoves)
{
    const Rows rows(200, 64, 9);
    const int32_t first[2] = { 70, 3 },
                  n_keep[2] = { 100, 3 }; // the second head's stay as they are
    int32_t keep[2][200], all_of_them[2][200];
    for (int32_t i = 0; i < 200; i++) {
        all_of_them[0][i] = all_of_them[1][i] = i < 70 ? i : i + 90;
        keep[0][i] = keep[1][i] = i < 70 ? -7 : i + 90;
    }
    for (const weir_kv_sinks &sinks :
         { weir_kv_sinks{}, weir_kv_sinks{ { WEIR_KV_Q4_0, WEIR_KV_Q4_0 }, 1 } })
        for (const weir_kernel *kernel : compact_rows()) {
            Pages got(WEIR_KV_Q4_0, 2, 64, 64, 200), want(WEIR_KV_Q4_0, 2, 64, 64, 200);
            for (Pages *pages : { &got, &want })
                ASSERT_EQ(
                    write(weir_kernel_ref_kv_write, *pages, rows, WEIR_KV_Q4_0, 0, 200), WEIR_OK
                );
            weir_kv_segment all = got.segment(0, 200, 0);
            std::vector<void *> table(all.pages, all.pages + 2 * all.page_stride);
            table[0] = nullptr;
            weir_kv_compact_segment segment = { table.data(), all.page_stride, 200,
                                                keep[0],      n_keep,          first };
            const weir_kv_compact_args args = { &segment,     1,    2, 64, 64, WEIR_KV_Q4_0,
                                                WEIR_KV_Q4_0, sinks };
            ASSERT_EQ(run(*kernel, &args), WEIR_OK) << kernel->name;
            segment = {
                want.segment(0, 200, 0).pages, all.page_stride, 200, all_of_them[0], n_keep, nullptr
            };
            ASSERT_EQ(run(*kernel, &args), WEIR_OK) << kernel->name;
            EXPECT_EQ(got.pages(), want.pages()) << kernel->name;
            const int32_t negative[2] = { -1, 0 };
            segment.first = negative;
            EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL) << kernel->name;
        }
}

TEST(KvCompact, RefusesRowsOutOfOrder)
{
    Pages pages(WEIR_KV_Q8_0, 2, 32, 32, 128);
    for (const std::vector<int32_t> &keep :
         { std::vector<int32_t>{ 3, 2 }, { 5, 5 }, { -1, 2 }, { 1, 64, 65 }, { 0, 1, 1 } }) {
        for (const weir_kernel *kernel : compact_rows()) {
            const auto n = (int32_t)keep.size();
            const int32_t n_keep[2] = { n, n };
            const weir_kv_segment all = pages.segment(0, 128, 0);
            const weir_kv_compact_segment segment = { all.pages,   all.page_stride, 0,
                                                      keep.data(), n_keep,          nullptr };
            weir_kv_compact_args args = { &segment, 1, 2, 32, 32, WEIR_KV_Q8_0, WEIR_KV_Q8_0, {} };
            const bool is_ordered = keep[1] == 64;
            if (is_ordered)
                args.sinks = { { WEIR_KV_F16, WEIR_KV_F16 },
                               1 }; // row 64 is past the sinks, row 1 is not
            EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL) << kernel->name;
        }
    }
}

// ---- values -------------------------------------------------------------------------------------
// Bad elements are taken as 0 or as the largest half; the rest of the row and all other rows are as
// if they had been given so.
TEST(KvWrite, OneBadElementSpoilsNothing)
{
    const float bad[] = { NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-42f, -1e-42f, -0.0f };
    for (const weir_kv_format format : formats()) {
        if (!weir_kv_is_lossy(format)) continue;
        Rows rows(64, 64, 3);
        for (size_t i = 0; i < rows.k.size(); i += 97)
            rows.k[i] = bad[i % 8], rows.v[i] = bad[i % 7];
        Rows tame = rows;
        for (float &x : tame.k) x = std::isnan(x) ? 0 : std::clamp(x, -65504.0f, 65504.0f);
        for (float &x : tame.v) x = std::isnan(x) ? 0 : std::clamp(x, -65504.0f, 65504.0f);
        Pages want(format, 2, 64, 64, 64);
        ASSERT_EQ(write(weir_kernel_ref_kv_write, want, tame, format, 0, 64), WEIR_OK);
        for (const weir_kernel *kernel : write_rows()) {
            Pages pages(format, 2, 64, 64, 64);
            ASSERT_EQ(write(*kernel, pages, rows, format, 0, 64), WEIR_OK);
            EXPECT_EQ(pages.pages(), want.pages())
                << kernel->name << " " << weir_kv_format_name(format);
            pages.hide_unsealed(0);
            const Rows decoded = read(weir_kernel_ref_kv_read, pages, 64, 64, format);
            for (const float x : decoded.k)
                ASSERT_TRUE(std::isfinite(x)) << weir_kv_format_name(format);
            for (const float x : decoded.v)
                ASSERT_TRUE(std::isfinite(x)) << weir_kv_format_name(format);
        }
    }
}

// Rows of nothing, of one value, and of values below any scale.
TEST(KvWrite, RowsOfOneValue)
{
    for (const weir_kv_format format : formats()) {
        for (const float value : { 0.0f, -0.0f, 0.75f, -65504.0f, 1e-42f, 1e-30f }) {
            Rows rows(64, 64, 3);
            std::fill(rows.k.begin(), rows.k.end(), value);
            std::fill(rows.v.begin(), rows.v.end(), value);
            Pages want(format, 2, 64, 64, 64);
            ASSERT_EQ(write(weir_kernel_ref_kv_write, want, rows, format, 0, 64), WEIR_OK);
            for (const weir_kernel *kernel : omp_rows(WEIR_OP_KV_WRITE)) {
                Pages pages(format, 2, 64, 64, 64);
                ASSERT_EQ(write(*kernel, pages, rows, format, 0, 64), WEIR_OK);
                EXPECT_EQ(pages.pages(), want.pages())
                    << kernel->name << " " << weir_kv_format_name(format) << " " << value;
            }
            want.hide_unsealed(0);
            // Turbo spreads a constant row into one value per row, far outside its codebook.
            if (weir_kv_scheme_of(format) == WEIR_KV_TURBO && std::fabs(value) > 0.5f) continue;
            const Rows decoded = read(weir_kernel_ref_kv_read, want, 64, 64, format);
            expect_close(decoded.k, rows.k, 1e-7, 0.01, weir_kv_format_name(format));
            expect_close(decoded.v, rows.v, 1e-7, 0.01, weir_kv_format_name(format));
        }
    }
}

// Mean squared error of the codebook of each width on a coordinate of a sphere of 128 dimensions,
// sqrt(128) in radius: rows are scaled to it, and have shorter tails than the normal distribution.
TEST(KvTurbo, ErrorsAreThoseOfTheCodebook)
{
    const std::pair<weir_kv_format, double> errors[] = { { WEIR_KV_TURBO2, 0.116005 },
                                                         { WEIR_KV_TURBO3, 0.033979 },
                                                         { WEIR_KV_TURBO4, 0.009325 } };
    for (const auto &[format, want] : errors) {
        double squares = 0;
        size_t n = 0;
        for (uint32_t seed = 0; seed < 40; seed++) {
            const Floats x = random_floats(64 * 128, seed);
            std::vector<char> coded((size_t)weir_kv_part_bytes(format, WEIR_KV_K, 128), 0);
            Floats y(x.size());
            const weir_kv_part part = { format, WEIR_KV_K, 128, coded.data(), nullptr };
            weir_kv_encode_rows(&part, 0, 64, x.data(), 128);
            weir_kv_decode_rows(&part, 0, 64, y.data(), 128, false);
            for (size_t i = 0; i < x.size(); i++)
                squares += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
            n += x.size();
        }
        EXPECT_NEAR(squares / (double)n / want, 1, 0.01) << weir_kv_format_name(format);
    }
}

// What attention multiplies is the row rotated by H D: rotating it back gives the row.
TEST(KvTurbo, RotatingBackGivesTheRow)
{
    for (const weir_kv_format format : { WEIR_KV_TURBO2, WEIR_KV_TURBO3, WEIR_KV_TURBO4 }) {
        for (const weir_kv_side side : sides) {
            const Floats x = random_floats(64 * 128, 11);
            std::vector<char> coded((size_t)weir_kv_part_bytes(format, side, 128), 0);
            const weir_kv_part part = { format, side, 128, coded.data(), nullptr };
            Floats rows(x.size()), rotated(x.size());
            weir_kv_encode_rows(&part, 0, 64, x.data(), 128);
            weir_kv_decode_rows(&part, 0, 64, rows.data(), 128, false);
            weir_kv_decode_rows(&part, 0, 64, rotated.data(), 128, true);
            for (int64_t t = 0; t < 64; t++) {
                float *const row = rotated.data() + t * 128;
                weir_kv_hadamard(row, 128);
                for (int64_t d = 0; d < 128; d++) row[d] *= weir_kv_sign(side, d);
            }
            EXPECT_TRUE(same_bits(rotated, rows)) << text_of(format, 128);
        }
    }
}

// The signs are part of the format: pages are saved and shared.
TEST(KvTurbo, SignsAreFixedAndBalanced)
{
    std::string k, v;
    for (int64_t d = 0; d < 32; d++) {
        k += weir_kv_sign(WEIR_KV_K, d) > 0 ? '+' : '-';
        v += weir_kv_sign(WEIR_KV_V, d) > 0 ? '+' : '-';
    }
    EXPECT_EQ(k, "++--+++-+-+++---+-+-++-+++-+++-+");
    EXPECT_EQ(v, "------+++---+---+--++----+-+-+-+");
    for (const weir_kv_side side : sides) {
        double sum = 0;
        for (int64_t d = 0; d < 512; d++) sum += (double)weir_kv_sign(side, d);
        EXPECT_LT(std::fabs(sum), 80);
    }
}

} // namespace
} // namespace weir_test
