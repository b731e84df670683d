// tests/unit/kernels/kv_codec_test.cc - what KV formats promise whatever the rows: sizes, refusals,
// the same bytes for any cut, no value that spoils others.
#include "tests/unit/kernels/kv_codec.h"

namespace weir_test {
namespace {

// ---- the table ----------------------------------------------------------------------------------
TEST(KvFormat, BitsPerValueOfAPage)
{
    // At a width of 128: what kernels/abi/kv_format.h states; scales of turbo and fp8 belong to a
    // row, int8's to 64 tokens, kivi's to 32 values.
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
TEST(KvWrite, PagesAreSealedWithTheir64thRow)
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
            const Rows unsealed = read(weir_kernel_ref_kv_read, pages, 63, 64, format);
            for (size_t i = 0; i < unsealed.k.size(); i++)
                ASSERT_EQ(unsealed.k[i], (float)(_Float16)rows.k[i]);
            for (size_t i = 0; i < unsealed.v.size(); i++)
                ASSERT_EQ(unsealed.v[i], (float)(_Float16)rows.v[i]);
            ASSERT_EQ(write(*kernel, pages, rows, format, 63, 1), WEIR_OK);
            pages.hide_unsealed(0);
            const Rows sealed = read(weir_kernel_ref_kv_read, pages, 64, 64, format);
            EXPECT_NE(sealed.k, rows.k);
            const double worst = format == WEIR_KV_KIVI2 ? 2.5
                                 : format == WEIR_KV_KIVI4
                                     ? 0.5
                                     : 0.05; // half a step, of a range below 15
            expect_close(sealed.k, rows.k, worst, 0, kernel->name);
            expect_close(sealed.v, rows.v, worst, 0, kernel->name);
        }
    }
}

// Either side alone; a page that is named unsealed is read unsealed.
TEST(KvRead, OneSide)
{
    const Rows rows(100, 32, 3);
    Pages pages(WEIR_KV_KIVI4, 2, 32, 32, 100);
    ASSERT_EQ(write(weir_kernel_ref_kv_write, pages, rows, WEIR_KV_KIVI4, 0, 100), WEIR_OK);
    const Rows unsealed = read(weir_kernel_ref_kv_read, pages, 100, 32, WEIR_KV_KIVI4);
    pages.hide_unsealed(0);
    const Rows sealed = read(weir_kernel_ref_kv_read, pages, 100, 32, WEIR_KV_KIVI4);
    EXPECT_NE(
        Floats(unsealed.k.begin(), unsealed.k.begin() + 64 * 64),
        Floats(sealed.k.begin(), sealed.k.begin() + 64 * 64)
    );
    EXPECT_EQ(
        Floats(unsealed.k.begin() + 64 * 64, unsealed.k.end()),
        Floats(sealed.k.begin() + 64 * 64, sealed.k.end())
    );
    std::vector<const weir_kernel *> kernels = omp_rows(WEIR_OP_KV_READ);
    kernels.push_back(&weir_kernel_ref_kv_read);
    for (const weir_kernel *kernel : kernels) {
        const weir_kv_segment segment = pages.segment(0, 100, 0);
        Floats k(sealed.k.size()), v(sealed.v.size());
        weir_kv_read_args args = { k.data(), nullptr,       &segment,      1, 2, 32, 32, 64,
                                   64,       WEIR_KV_KIVI4, WEIR_KV_KIVI4, {} };
        ASSERT_EQ(run(*kernel, &args), WEIR_OK);
        args.k = nullptr, args.v = v.data();
        ASSERT_EQ(run(*kernel, &args), WEIR_OK);
        EXPECT_TRUE(same_bits(k, sealed.k)) << kernel->name;
        EXPECT_TRUE(same_bits(v, sealed.v)) << kernel->name;
    }
}

} // namespace
} // namespace weir_test
