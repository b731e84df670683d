// The CUDA attention on an emulated GPU: against ref over widths, groups and windows, and the
// promise that a row's bits depend on its own positions only, whether narrow or wide blocks attend
// it and whether splits are apart or walked.
#include <algorithm>

#include "kernels/abi/attention_partials.h"
#include "tests/unit/kernels/attention_support.h"

extern "C" const weir_kernel weir_kernel_cuda_attention;

namespace weir_test {
namespace {

const weir_kernel &kernel = weir_kernel_cuda_attention;

const weir_kv_format formats[] = { WEIR_KV_F16, WEIR_KV_BF16, WEIR_KV_Q8_0, WEIR_KV_TURBO4 };

Shape with(Shape shape, weir_kv_format format)
{
    shape.k_format = shape.v_format = format;
    return shape;
}

bool accepts(const Shape &shape)
{
    const weir_caps caps = { .cuda_capability = 80 };
    const weir_attention_args args = args_of(shape, nullptr, nullptr, {});
    return !kernel.reject(&caps, &args);
}

// All rows in calls of `chunk` rows.
Floats attend_chunks(const Sequence &sequence, int32_t chunk)
{
    Floats pieces;
    for (int32_t first = 0; first < sequence.shape.n_rows; first += chunk) {
        const Floats piece =
            attend(kernel, sequence, first, std::min(chunk, sequence.shape.n_rows - first));
        pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    return pieces;
}

TEST(CudaAttention, MatchesRefOnEveryWidth)
{
    int n = 0;
    for (const weir_kv_format format : formats)
        for (const Shape &some :
             { Shape{ 1, 1, 1, 8, 0, 1, 0 }, Shape{ 3, 1, 16, 16, 30, 5, 0 },
               Shape{ 5, 1, 20, 24, 61, 9, 0 }, Shape{ 20, 1, 45, 8, 10, 4, 0 },
               Shape{ 8, 2, 32, 96, 90, 2, 0 }, Shape{ 4, 4, 64, 128, 5, 70, 0 },
               Shape{ 2, 1, 128, 64, 130, 33, 50 }, Shape{ 16, 1, 128, 128, 40, 9, 0 },
               Shape{ 6, 2, 160, 40, 70, 3, 0 }, Shape{ 4, 1, 256, 256, 100, 12, 0 },
               Shape{ 3, 1, 256, 32, 50, 7, 0 }, Shape{ 8, 1, 192, 128, 33, 1, 0 },
               Shape{ 2, 2, 96, 224, 60, 40, 30 } }) {
            const Shape shape = with(some, format);
            if (!takes(shape) || !accepts(shape)) continue;
            const Sequence sequence(shape, 7);
            expect_close(
                attend(kernel, sequence, 0, shape.n_rows),
                attend(weir_kernel_ref_attention, sequence, 0, shape.n_rows), kernel.atol,
                kernel.rtol, text(kernel, shape)
            );
            n++;
        }
    EXPECT_GE(n, 30);
}

// Queries of any size: f16 has few exponents.
TEST(CudaAttention, LargeAndSmallQueries)
{
    for (const weir_kv_format format : formats)
        for (const float scale : { 1e-30f, 1e-6f, 1.0f, 1e5f, 1e20f }) {
            const Shape shape = with({ 4, 2, 64, 64, 70, 3, 0 }, format);
            Sequence sequence(shape, 19);
            for (float &x : sequence.q) x *= scale;
            Floats got(sequence.q.size()), want(sequence.q.size());
            const std::vector<weir_kv_segment> segments = { sequence.pages.segment(0, 3, 70) };
            for (Floats *out : { &got, &want }) {
                weir_attention_args args = args_of(shape, sequence.q.data(), out->data(), segments);
                args.scale /= scale;
                ASSERT_EQ(run(out == &got ? kernel : weir_kernel_ref_attention, &args), WEIR_OK);
            }
            expect_close(got, want, kernel.atol, kernel.rtol, text(kernel, shape));
        }
}

TEST(CudaAttention, BitsDoNotDependOnChunks)
{
    for (const weir_kv_format format : formats)
        for (const Shape &some :
             { Shape{ 6, 2, 32, 64, 1000, 40, 0 }, Shape{ 3, 1, 64, 32, 1000, 40, 700 },
               Shape{ 10, 1, 128, 128, 0, 45, 7 }, Shape{ 4, 1, 160, 256, 1010, 20, 0 },
               Shape{ 2, 1, 256, 128, 1015, 13, 0 } }) {
            const Shape shape = with(some, format);
            if (!takes(shape)) continue;
            const Sequence sequence(shape, 11);
            const Floats whole = attend(kernel, sequence, 0, shape.n_rows);
            for (const int32_t chunk : { 17, format == WEIR_KV_F16 ? 1 : 4 })
                EXPECT_TRUE(same_bits(whole, attend_chunks(sequence, chunk)))
                    << text(kernel, shape) << " chunk " << chunk;
        }
}

TEST(CudaAttention, BitsDoNotDependOnTheBatch)
{
    const Shape base = { 8, 2, 32, 32, 0, 0, 0, WEIR_KV_F16, WEIR_KV_F16 };
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<weir_kv_segment> segments;
    Floats q;
    int32_t n_rows = 0;
    /* More than a warp looks at at once, or a launch is given; of the latter, number 80 has splits
     * apart. */
    for (int i = 0; i < 82; i++) {
        Shape shape = base;
        shape.n_past = i % 13 == 2 ? 2100 + i : i * 7, shape.n_rows = i % 9 == 4   ? 19
                                                                      : i % 5 == 1 ? 0
                                                                                   : 1;
        sequences.push_back(std::make_unique<Sequence>(shape, 20 + (uint32_t)i));
        segments.push_back(sequences.back()->pages.segment(n_rows, shape.n_rows, shape.n_past));
        q.insert(q.end(), sequences.back()->q.begin(), sequences.back()->q.end());
        n_rows += shape.n_rows;
    }
    Floats out((size_t)n_rows * 8 * 32, NAN), alone;
    const weir_attention_args args = args_of(base, q.data(), out.data(), segments);
    ASSERT_EQ(run(kernel, &args), WEIR_OK);
    for (const auto &sequence : sequences) {
        const Floats piece = attend(kernel, *sequence, 0, sequence->shape.n_rows);
        alone.insert(alone.end(), piece.begin(), piece.end());
    }
    EXPECT_TRUE(same_bits(out, alone));
}

// Heads as segments of their own, with rows of their own.
TEST(CudaAttention, BitsDoNotDependOnTheCutOfHeads)
{
    for (const int32_t n_rows : { 1, 23 }) {
        const Shape shape = { 12, 4, 64, 64, 1100, n_rows, 0, WEIR_KV_F16, WEIR_KV_F16 };
        const Sequence sequence(shape, 23);
        const Floats whole = attend(kernel, sequence, 0, n_rows);
        const weir_kv_segment segment = sequence.pages.segment(0, n_rows, shape.n_past);
        for (const std::vector<int32_t> &ends : { std::vector<int32_t>{ 1, 2, 3, 4 }, { 1, 4 } }) {
            Floats out(whole.size(), NAN), lse((size_t)(n_rows * 12), NAN),
                want((size_t)(n_rows * 12), NAN);
            const std::vector<weir_kv_segment> ranges = cut(segment, ends), one = { segment };
            weir_attention_args args = args_of(shape, sequence.q.data(), out.data(), ranges);
            args.lse = lse.data();
            ASSERT_EQ(run(kernel, &args), WEIR_OK);
            EXPECT_TRUE(same_bits(out, whole));
            args.segments = one.data(), args.n_segments = 1, args.lse = want.data();
            ASSERT_EQ(run(weir_kernel_ref_attention, &args), WEIR_OK);
            expect_close(lse, want, kernel.atol, kernel.rtol, "lse");
        }
    }
}

// Rows by calls that end at these splits; pages of other splits are not there.
Floats attend_pieces(const Sequence &sequence, const std::vector<int32_t> &ends)
{
    const Shape &shape = sequence.shape;
    const size_t n = (size_t)(shape.n_rows * shape.heads);
    Floats out(n * (size_t)shape.value_dim, 7.0f),
        partials(n * (size_t)weir_attention_partials_floats(shape.value_dim), NAN);
    const Floats untouched = out;
    const weir_kv_segment segment = sequence.pages.segment(0, shape.n_rows, shape.n_past);
    int32_t first_split = 0;
    for (size_t call = 0; call < ends.size(); call++) {
        const int32_t end = ends[call];
        std::vector<void *> present(
            segment.pages, segment.pages + segment.page_stride * shape.kv_heads
        );
        for (size_t i = 0; i < present.size(); i++) {
            const int64_t split =
                (int64_t)i % segment.page_stride / (WEIR_ATTENTION_SPLIT / WEIR_PAGE_TOKENS);
            if (split < first_split || split >= end) present[i] = nullptr;
        }
        std::vector<weir_kv_segment> segments = { segment };
        segments[0].pages = present.data();
        weir_attention_args args = args_of(shape, sequence.q.data(), out.data(), segments);
        args.partials = partials.data(), args.first_split = first_split, args.end_split = end,
        args.is_last = call + 1 == ends.size();
        EXPECT_EQ(run(kernel, &args), WEIR_OK);
        if (!args.is_last)
            EXPECT_TRUE(same_bits(out, untouched)) << "wrote out before its last call";
        first_split = end;
    }
    return out;
}

TEST(CudaAttention, PiecesGiveTheBitsOfOneCall)
{
    for (const weir_kv_format format : formats)
        for (const Shape &some :
             { Shape{ 4, 1, 32, 32, 3300, 1, 0 }, Shape{ 4, 2, 32, 64, 2040, 40, 0 },
               Shape{ 2, 2, 32, 32, 2500, 3, 1100 }, Shape{ 2, 1, 32, 32, 2100, 45, 60 } }) {
            const Shape shape = with(some, format);
            const Sequence sequence(shape, 41);
            const int32_t n_splits = (shape.n_past + shape.n_rows - 1) / WEIR_ATTENTION_SPLIT + 1;
            const Floats whole = attend(kernel, sequence, 0, shape.n_rows);
            for (int32_t cuts = 0; cuts < 1 << (n_splits - 1); cuts++) {
                std::vector<int32_t> ends;
                for (int32_t split = 1; split < n_splits; split++)
                    if (cuts >> (split - 1) & 1) ends.push_back(split);
                ends.push_back(n_splits);
                EXPECT_TRUE(same_bits(whole, attend_pieces(sequence, ends)))
                    << text(kernel, shape) << " cuts " << cuts;
                ends.push_back(n_splits); /* the last call has no splits */
                EXPECT_TRUE(same_bits(whole, attend_pieces(sequence, ends)))
                    << text(kernel, shape) << " cuts " << cuts << " and an empty one";
            }
            if (n_splits > 3 && format != WEIR_KV_F16) break;
        }
}

// More splits than a block has threads.
TEST(CudaAttention, JoinsManySplits)
{
    const Shape shape = with({ 2, 1, 16, 16, 66000, 1, 0 }, WEIR_KV_F16);
    const Sequence sequence(shape, 61);
    const Floats whole = attend(kernel, sequence, 0, 1);
    expect_close(
        whole, attend(weir_kernel_ref_attention, sequence, 0, 1), kernel.atol, kernel.rtol,
        text(kernel, shape)
    );
    EXPECT_TRUE(same_bits(whole, attend_pieces(sequence, { 1, 60, 65 })));
}

// Its first row begins a page or ends one; few rows, whose splits are apart, and many.
TEST(CudaAttention, PagesBeforeTheWindowAreNotRead)
{
    for (const weir_kv_format format : formats)
        for (const Shape &some :
             { Shape{ 4, 2, 32, 32, 127, 1, 64 }, Shape{ 2, 1, 32, 64, 1023 + 69, 40, 70 },
               Shape{ 2, 1, 32, 32, 1024 + 1099, 3, 1100 } }) {
            const Shape shape = with(some, format);
            const Sequence sequence(shape, 53);
            EXPECT_TRUE(same_bits(
                attend(kernel, sequence, 0, shape.n_rows), attend_window(kernel, { &sequence })
            )) << text(kernel, shape);
        }
}

TEST(CudaAttention, RejectsWithReasons)
{
    weir_caps caps = { .cuda_capability = 75 };
    Shape shape = { 2, 1, 32, 32, 0, 1, 0, WEIR_KV_F16, WEIR_KV_F16 };
    auto args = args_of(shape, nullptr, nullptr, {});
    EXPECT_STREQ(kernel.reject(&caps, &args), "needs sm_80");
    caps.cuda_capability = 120;
    EXPECT_EQ(kernel.reject(&caps, &args), nullptr);
    args.sinks = { { WEIR_KV_F32, WEIR_KV_F32 }, 1 };
    EXPECT_STREQ(kernel.reject(&caps, &args), "reads all pages in one format");
    args.sinks = {}, args.k_format = WEIR_KV_INT8;
    EXPECT_STREQ(kernel.reject(&caps, &args), "reads KV in f16 bf16 q8_0 turbo4");
}

} // namespace
} // namespace weir_test
