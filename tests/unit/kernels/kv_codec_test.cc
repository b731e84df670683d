// tests/unit/kernels/kv_codec_test.cc - what KV formats promise whatever the rows: sizes, refusals,
// the same bytes for any cut, no value that spoils others.
#include <algorithm>

#include "kernels/ref/kv_codec.h"
#include "tests/unit/kernels/support.h"

namespace weir_test {
namespace {

const weir_kv_side sides[] = { WEIR_KV_K, WEIR_KV_V };
const int64_t dims[] = { 16, 20, 32, 64, 77, 80, 96, 128, 192, 256 };

std::vector<weir_kv_format> formats()
{
    std::vector<weir_kv_format> all;
    for (int f = 0; f < WEIR_KV_FORMAT_COUNT; f++) all.push_back((weir_kv_format)f);
    return all;
}

bool takes(weir_kv_format format, int64_t dim)
{
    return !weir_kv_format_reject(format, WEIR_KV_K, dim) &&
           !weir_kv_format_reject(format, WEIR_KV_V, dim);
}

std::string text_of(weir_kv_format format, int64_t dim)
{
    return std::string(weir_kv_format_name(format)) + " " + std::to_string(dim);
}

std::vector<const weir_kernel *> write_rows()
{
    std::vector<const weir_kernel *> rows = omp_rows(WEIR_OP_KV_WRITE);
    rows.push_back(&weir_kernel_ref_kv_write);
    return rows;
}

// Two KV heads of n rows each.
struct Rows {
    int64_t n, dim;
    Floats k, v;
    Rows(int64_t rows, int64_t d, uint32_t seed)
        : n(rows), dim(d), k(random_floats((size_t)(rows * 2 * d), seed, 2)),
          v(random_floats((size_t)(rows * 2 * d), seed + 1))
    {
    }
};

weir_status write(
    const weir_kernel &kernel, const Pages &pages, const Rows &rows, weir_kv_format format,
    int64_t first, int64_t n
)
{
    const weir_kv_segment segment = pages.segment(0, (int32_t)n, (int32_t)first);
    const int64_t stride = 2 * rows.dim;
    const weir_kv_write_args args = { rows.k.data() + first * stride,
                                      rows.v.data() + first * stride,
                                      &segment,
                                      1,
                                      2,
                                      rows.dim,
                                      rows.dim,
                                      stride,
                                      stride,
                                      format,
                                      format,
                                      {} };
    return run(kernel, &args);
}

Rows read(
    const weir_kernel &kernel, const Pages &pages, int64_t n, int64_t dim, weir_kv_format format
)
{
    Rows rows(n, dim, 1);
    const weir_kv_segment segment = pages.segment(0, (int32_t)n, 0);
    const weir_kv_read_args args = { rows.k.data(), rows.v.data(), &segment, 1,      2,      dim,
                                     dim,           2 * dim,       2 * dim,  format, format, {} };
    EXPECT_EQ(run(kernel, &args), WEIR_OK);
    return rows;
}

// ---- the table ----------------------------------------------------------------------------------
TEST(KvFormat, BitsPerValueOfAPage)
{
    // At a width of 128: what spec/kv.md 9 states; scales of turbo and fp8 belong to a row, int8's
    // to 64 tokens, kivi's to 32 values.
    const std::pair<weir_kv_format, double> bits[] = {
        { WEIR_KV_F32, 32 },        { WEIR_KV_F16, 16 },        { WEIR_KV_BF16, 16 },
        { WEIR_KV_Q8_0, 8.5 },      { WEIR_KV_Q4_0, 4.5 },      { WEIR_KV_INT8, 8.5 },
        { WEIR_KV_FP8_E4M3, 8.25 }, { WEIR_KV_FP8_E5M2, 8.25 }, { WEIR_KV_KIVI2, 3 },
        { WEIR_KV_KIVI4, 5 },       { WEIR_KV_KIVI8, 9 },       { WEIR_KV_TURBO2, 2.125 },
        { WEIR_KV_TURBO3, 3.125 },  { WEIR_KV_TURBO4, 4.125 },
    };
    for (const auto &[format, want] : bits) {
        for (const weir_kv_side side : sides)
            EXPECT_EQ((double)weir_kv_part_bytes(format, side, 128) * 8 / (64 * 128), want)
                << weir_kv_format_name(format) << " " << side;
        EXPECT_EQ(weir_kv_is_lossy(format), want < 16);
    }
    EXPECT_EQ(std::size(bits), (size_t)WEIR_KV_FORMAT_COUNT);
}

TEST(KvFormat, NamesAreThoseOfTheConfiguration)
{
    for (const weir_kv_format format : formats())
        EXPECT_EQ(weir_kv_format_named(weir_kv_format_name(format)), format);
    EXPECT_EQ(weir_kv_format_named("turbo3"), WEIR_KV_TURBO3);
    for (const char *name : { "", "unknown", "q8", "Q8_0" })
        EXPECT_EQ(weir_kv_format_named(name), WEIR_KV_FORMAT_COUNT) << name;
    EXPECT_STREQ(weir_kv_format_name(WEIR_KV_FORMAT_COUNT), "unknown");
}

TEST(KvFormat, PartsAreAlignedAndPlainPagesAreThoseOfKvPage)
{
    for (const weir_kv_format format : formats()) {
        for (const int64_t dim : dims) {
            for (const weir_kv_side side : sides) {
                if (weir_kv_format_reject(format, side, dim)) continue;
                const weir_kv_layout layout = weir_kv_layout_of(format, side, dim);
                for (const int64_t offset :
                     { layout.scales, layout.mins, layout.codes, layout.bytes })
                    EXPECT_EQ(offset % 64, 0);
                if (side == WEIR_KV_K) EXPECT_EQ(layout.codes_step % 64, 0);
            }
        }
    }
    for (const auto &[format, dtype] :
         { std::pair{ WEIR_KV_F16, WEIR_F16 }, std::pair{ WEIR_KV_F32, WEIR_F32 } }) {
        EXPECT_EQ(
            (size_t)weir_kv_bytes(format, format, 77, 45),
            weir_row_bytes(dtype, WEIR_PAGE_TOKENS * (77 + 45))
        );
        EXPECT_EQ(
            (size_t)weir_kv_v_part(format, 77), weir_row_bytes(dtype, weir_page_v(0, 77, 45))
        );
    }
    EXPECT_EQ(weir_kv_unsealed_bytes(WEIR_KV_Q8_0, WEIR_KV_TURBO4, 128, 128), 0);
    EXPECT_EQ(weir_kv_unsealed_bytes(WEIR_KV_KIVI4, WEIR_KV_Q8_0, 128, 64), 64 * 128 * 2);
    EXPECT_EQ(weir_kv_unsealed_bytes(WEIR_KV_Q8_0, WEIR_KV_INT8, 128, 64), 64 * 64 * 2);
}

TEST(KvFormat, RefusesWidthsWithAReason)
{
    const auto why = [](weir_kv_format format, weir_kv_side side, int64_t dim) {
        const char *const text = weir_kv_format_reject(format, side, dim);
        return std::string(text ? text : "");
    };
    EXPECT_EQ(why(WEIR_KV_Q8_0, WEIR_KV_K, 80), "takes head widths that are multiples of 32");
    EXPECT_EQ(why(WEIR_KV_Q4_0, WEIR_KV_V, 16), "takes head widths that are multiples of 32");
    EXPECT_EQ(why(WEIR_KV_KIVI2, WEIR_KV_V, 80), "takes value widths that are multiples of 32");
    EXPECT_EQ(
        why(WEIR_KV_TURBO3, WEIR_KV_K, 96),
        "takes head widths that are powers of two from 16 to 512"
    );
    EXPECT_EQ(
        why(WEIR_KV_TURBO3, WEIR_KV_K, 8), "takes head widths that are powers of two from 16 to 512"
    );
    for (const int64_t dim : { (int64_t)0, (int64_t)-1, (int64_t)577, INT64_MAX, INT64_MIN })
        EXPECT_EQ(why(WEIR_KV_F16, WEIR_KV_K, dim), "takes head widths from 1 to 576") << dim;
    EXPECT_EQ(why(WEIR_KV_FORMAT_COUNT, WEIR_KV_K, 64), "is no KV format");
    EXPECT_EQ(why(WEIR_KV_KIVI2, WEIR_KV_K, 80), "");
    EXPECT_EQ(why(WEIR_KV_INT8, WEIR_KV_V, 77), "");
    const weir_caps caps = {};
    for (const weir_kernel *kernel : write_rows()) {
        const weir_kv_write_args args = { nullptr, nullptr, nullptr,      0,           2, 80, 64,
                                          160,     128,     WEIR_KV_Q8_0, WEIR_KV_F16, {} };
        EXPECT_EQ(run(*kernel, &args), WEIR_EUNSUPPORTED) << kernel->name;
        if (kernel->reject)
            EXPECT_STREQ(
                kernel->reject(&caps, &args), "takes head widths that are multiples of 32"
            );
    }
}

// ---- cuts ---------------------------------------------------------------------------------------
// Rows one at a time, all at once, and in uneven pieces: the same bytes, from every kernel.
TEST(KvWrite, AnyCutGivesTheSameBytes)
{
    for (const weir_kv_format format : formats()) {
        for (const int64_t dim : dims) {
            if (!takes(format, dim)) continue;
            const Rows rows(150, dim, 7);
            Pages once(format, 2, dim, dim, rows.n);
            ASSERT_EQ(write(weir_kernel_ref_kv_write, once, rows, format, 0, rows.n), WEIR_OK);
            for (const weir_kernel *kernel : write_rows()) {
                for (const int64_t cut : { 1, 13, 64, 150 }) {
                    Pages pages(format, 2, dim, dim, rows.n);
                    for (int64_t at = 0; at < rows.n; at += cut)
                        ASSERT_EQ(
                            write(*kernel, pages, rows, format, at, std::min(cut, rows.n - at)),
                            WEIR_OK
                        );
                    EXPECT_EQ(pages.pages(), once.pages())
                        << kernel->name << " " << text_of(format, dim) << " cut " << cut;
                    EXPECT_EQ(pages.unsealed_pages(), once.unsealed_pages())
                        << kernel->name << " " << text_of(format, dim) << " cut " << cut;
                }
            }
        }
    }
}

// After rows are dropped, other rows in their places leave nothing of them; pages that stay do not
// change.
TEST(KvWrite, RowsOverDroppedRowsGiveTheSameBytes)
{
    for (const weir_kv_format format : formats()) {
        const int64_t dim = 64;
        const Rows rows(150, dim, 7), others(150, dim, 9);
        for (const weir_kernel *kernel : write_rows()) {
            Pages again(format, 2, dim, dim, rows.n), fresh(format, 2, dim, dim, rows.n);
            ASSERT_EQ(write(*kernel, again, others, format, 0, 140), WEIR_OK);
            ASSERT_EQ(write(*kernel, again, rows, format, 0, rows.n), WEIR_OK);
            ASSERT_EQ(write(*kernel, fresh, rows, format, 0, rows.n), WEIR_OK);
            EXPECT_EQ(again.pages(), fresh.pages())
                << kernel->name << " " << weir_kv_format_name(format);
        }
    }
}

// Rows of one side alone leave the other as it was.
TEST(KvWrite, OneSideAlone)
{
    const int64_t dim = 64, width = 2 * dim, first = 3, n = 17;
    for (const weir_kv_format format : formats()) {
        const Rows rows(150, dim, 7), others(150, dim, 9);
        for (const weir_kernel *kernel : write_rows())
            for (const weir_kv_side side : sides) {
                Rows mixed = rows;
                auto &changed = side == WEIR_KV_K ? mixed.k : mixed.v;
                auto &from = side == WEIR_KV_K ? others.k : others.v;
                std::copy(
                    from.begin() + first * width, from.begin() + (first + n) * width,
                    changed.begin() + first * width
                );
                Pages pages(format, 2, dim, dim, rows.n), want(format, 2, dim, dim, rows.n);
                ASSERT_EQ(write(*kernel, pages, rows, format, 0, 60), WEIR_OK);
                const weir_kv_segment segment = pages.segment(0, (int32_t)n, (int32_t)first);
                weir_kv_write_args args = { nullptr, nullptr, &segment, 1,      2,      dim,
                                            dim,     width,   width,    format, format, {} };
                (side == WEIR_KV_K ? args.k : args.v) = from.data() + first * width;
                ASSERT_EQ(run(*kernel, &args), WEIR_OK) << kernel->name;
                ASSERT_EQ(write(*kernel, pages, rows, format, 60, rows.n - 60), WEIR_OK);
                ASSERT_EQ(write(*kernel, want, mixed, format, 0, rows.n), WEIR_OK);
                EXPECT_EQ(pages.pages(), want.pages())
                    << kernel->name << " " << weir_kv_format_name(format) << " side " << side;
            }
    }
}

// A page of a format that needs it stays uncoded until its 64th row.
TEST(KvWrite, OpenPagesCloseWithTheir64thRow)
{
    for (const weir_kv_format format : formats()) {
        if (!weir_kv_seals_pages(format)) continue;
        const Rows rows(64, 64, 3);
        for (const weir_kernel *kernel : write_rows()) {
            Pages pages(format, 2, 64, 64, 64);
            ASSERT_EQ(write(*kernel, pages, rows, format, 0, 63), WEIR_OK);
            for (const auto &page : pages.pages())
                EXPECT_EQ(std::count(page.begin(), page.end(), 0), (ptrdiff_t)page.size())
                    << kernel->name;
            const Rows open = read(weir_kernel_ref_kv_read, pages, 63, 64, format);
            for (size_t i = 0; i < open.k.size(); i++)
                ASSERT_EQ(open.k[i], (float)(_Float16)rows.k[i]);
            for (size_t i = 0; i < open.v.size(); i++)
                ASSERT_EQ(open.v[i], (float)(_Float16)rows.v[i]);
            ASSERT_EQ(write(*kernel, pages, rows, format, 63, 1), WEIR_OK);
            pages.hide_unsealed(0);
            const Rows closed = read(weir_kernel_ref_kv_read, pages, 64, 64, format);
            EXPECT_NE(closed.k, rows.k);
            const double worst = format == WEIR_KV_KIVI2 ? 2.5
                                 : format == WEIR_KV_KIVI4
                                     ? 0.5
                                     : 0.05; // half a step, of a range below 15
            expect_close(closed.k, rows.k, worst, 0, kernel->name);
            expect_close(closed.v, rows.v, worst, 0, kernel->name);
        }
    }
}

// Either side alone; a page that is named open is read open.
TEST(KvRead, OneSide)
{
    const Rows rows(100, 32, 3);
    Pages pages(WEIR_KV_KIVI4, 2, 32, 32, 100);
    ASSERT_EQ(write(weir_kernel_ref_kv_write, pages, rows, WEIR_KV_KIVI4, 0, 100), WEIR_OK);
    const Rows open = read(weir_kernel_ref_kv_read, pages, 100, 32, WEIR_KV_KIVI4);
    pages.hide_unsealed(0);
    const Rows closed = read(weir_kernel_ref_kv_read, pages, 100, 32, WEIR_KV_KIVI4);
    EXPECT_NE(
        Floats(open.k.begin(), open.k.begin() + 64 * 64),
        Floats(closed.k.begin(), closed.k.begin() + 64 * 64)
    );
    EXPECT_EQ(
        Floats(open.k.begin() + 64 * 64, open.k.end()),
        Floats(closed.k.begin() + 64 * 64, closed.k.end())
    );
    std::vector<const weir_kernel *> kernels = omp_rows(WEIR_OP_KV_READ);
    kernels.push_back(&weir_kernel_ref_kv_read);
    for (const weir_kernel *kernel : kernels) {
        const weir_kv_segment segment = pages.segment(0, 100, 0);
        Floats k(closed.k.size()), v(closed.v.size());
        weir_kv_read_args args = { k.data(), nullptr,       &segment,      1, 2, 32, 32, 64,
                                   64,       WEIR_KV_KIVI4, WEIR_KV_KIVI4, {} };
        ASSERT_EQ(run(*kernel, &args), WEIR_OK);
        args.k = nullptr, args.v = v.data();
        ASSERT_EQ(run(*kernel, &args), WEIR_OK);
        EXPECT_TRUE(same_bits(k, closed.k)) << kernel->name;
        EXPECT_TRUE(same_bits(v, closed.v)) << kernel->name;
    }
}

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

// Mean squared error on the standard normal: what the codebook of each width has.
TEST(KvTurbo, ErrorsAreThoseOfTheCodebook)
{
    const std::pair<weir_kv_format, double> errors[] = { { WEIR_KV_TURBO2, 0.117482 },
                                                         { WEIR_KV_TURBO3, 0.034548 },
                                                         { WEIR_KV_TURBO4, 0.009501 } };
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
        EXPECT_NEAR(squares / (double)n / want, 1, 0.02) << weir_kv_format_name(format);
    }
}

// What attention multiplies is the row turned by H D: turning it back gives the row.
TEST(KvTurbo, RotatedRowsAreTheRowsTurned)
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
