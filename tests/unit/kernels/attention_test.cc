// tests/unit/kernels/attention_test.cc - attention against ref, and the promise that a row's bits
// depend on its own positions only.
#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "tests/every_nth.h"
#include "tests/kernel/attention_partials.h"
#include "tests/unit/kernels/attention_support.h"

namespace weir_test {
namespace {

const Shape shapes[] = {
    { 1, 1, 4, 4, 0, 1, 0, WEIR_KV_F32, WEIR_KV_F32 },
    { 4, 2, 32, 32, 0, 9, 0, WEIR_KV_F16, WEIR_KV_F16 },
    { 4, 2, 16, 24, 31, 3, 0, WEIR_KV_F16, WEIR_KV_F16 },
    { 8, 2, 256, 256, 100, 1, 0, WEIR_KV_F16, WEIR_KV_F16 },
    { 8, 2, 256, 256, 0, 33, 0, WEIR_KV_F16, WEIR_KV_F16 },
    { 16, 1, 64, 64, 62, 5, 0, WEIR_KV_F32, WEIR_KV_F32 },
    { 7, 1, 128, 128, 1022, 4, 0, WEIR_KV_F16, WEIR_KV_F16 },
    { 8, 2, 64, 128, 2990, 1, 0, WEIR_KV_F16, WEIR_KV_F16 },
    { 6, 2, 20, 12, 2040, 40, 0, WEIR_KV_F32, WEIR_KV_F32 },
    { 2, 2, 32, 32, 0, 70, 4, WEIR_KV_F16, WEIR_KV_F16 },
    { 4, 1, 32, 32, 1500, 30, 600, WEIR_KV_F16, WEIR_KV_F16 },
    { 4, 4, 64, 64, 2900, 2, 1100, WEIR_KV_F32, WEIR_KV_F32 },
    { 3, 1, 192, 128, 500, 2, 0, WEIR_KV_F16, WEIR_KV_F16 },
    { 2, 1, 576, 512, 40, 5, 0, WEIR_KV_F16, WEIR_KV_F16 },
};

TEST(Attention, MatchesRef)
{
    for (const Shape &shape : shapes) {
        const Sequence sequence(shape, 7);
        const Floats want = attend(weir_kernel_ref_attention, sequence, 0, shape.n_rows);
        for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION))
            expect_close(
                attend(*kernel, sequence, 0, shape.n_rows), want, kernel->atol, kernel->rtol,
                text(*kernel, shape)
            );
    }
}

// Every format on both sides, and every other pair once or twice: on all widths that they take, in
// groups of 1 to 8 heads, with windows, from before a page's end to after it.
std::vector<Shape> shapes_of_formats()
{
    const std::pair<int64_t, int64_t> widths[] = { { 16, 16 },  { 20, 12 },  { 45, 77 },
                                                   { 64, 128 }, { 128, 64 }, { 256, 256 },
                                                   { 96, 160 } };
    std::vector<Shape> all;
    for (int k = 0; k < WEIR_KV_FORMAT_COUNT; k++)
        for (int v = 0; v < WEIR_KV_FORMAT_COUNT; v++)
            for (size_t w = 0; w < std::size(widths); w++) {
                const int64_t kv_heads = 1 + (k + v) % 2, group = 1 + (k + 3 * v + (int64_t)w) % 8;
                const Shape shape = { kv_heads * group,       kv_heads,
                                      widths[w].first,        widths[w].second,
                                      (int32_t)(30 + 11 * w), 4 + (int32_t)(w * 3),
                                      w % 3 == 2 ? 70 : 0,    (weir_kv_format)k,
                                      (weir_kv_format)v };
                if (takes(shape) && (k == v || (size_t)(k + v) % std::size(widths) == w))
                    all.push_back(shape);
            }
    return all;
}

TEST(Attention, EveryPairOfFormatsMatchesRef)
{
    for (const Shape &shape : every_nth(shapes_of_formats(), 4)) {
        const Sequence sequence(shape, 17);
        const Floats want = attend(weir_kernel_ref_attention, sequence, 0, shape.n_rows);
        for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION))
            expect_close(
                attend(*kernel, sequence, 0, shape.n_rows), want, kernel->atol, kernel->rtol,
                text(*kernel, shape)
            );
    }
}

// ref on a case that can be done on paper: two keys, scores 0 and ln 3, so weights 1/4 and 3/4.
TEST(Attention, RefClosedForm)
{
    const Shape shape = { 1, 1, 4, 4, 1, 1, 0, WEIR_KV_F32, WEIR_KV_F32 };
    Sequence sequence(shape, 1);
    sequence.q = { 2 * std::log(3.0f), 0, 0, 0 };
    sequence.k = { 0, 5, 5, 5, 1, 6, 7, 8 };
    sequence.v = { 4, 0, 8, -4, 0, 4, 8, 4 };
    sequence.write(0, 2);
    expect_close(
        attend(weir_kernel_ref_attention, sequence, 0, 1), { 1, 3, 8, 2 }, 1e-6, 1e-6, "ref"
    );
}

// ref reads the own page as it was written, to f16, and earlier pages as they were coded.
TEST(Attention, RefReadsTheOwnPageWide)
{
    const Shape shape = { 1, 1, 32, 32, 63, 2, 0, WEIR_KV_KIVI2, WEIR_KV_KIVI2 },
                wide = { 1, 1, 32, 32, 63, 2, 0, WEIR_KV_F16, WEIR_KV_F16 };
    const Sequence coded(shape, 9), halves(wide, 9);
    const Floats got = attend(weir_kernel_ref_attention, coded, 0, 2),
                 want = attend(weir_kernel_ref_attention, halves, 0, 2);
    const auto row = [](const Floats &x, int i) {
        return Floats(x.begin() + i * 32, x.begin() + (i + 1) * 32);
    };
    EXPECT_TRUE(same_bits(row(got, 0), row(want, 0)))
        << "position 63 seals its page and reads it unsealed";
    EXPECT_FALSE(same_bits(row(got, 1), row(want, 1)))
        << "position 64 reads the page before it coded";
}

// A prompt in one call, in chunks on and off the tile grid, token by token, and with any number of
// threads: the same bits.
TEST(Attention, BitsDoNotDependOnChunks)
{
    for (const Shape &shape : { Shape{ 8, 2, 64, 64, 0, 300, 0, WEIR_KV_F16, WEIR_KV_F16 },
                                Shape{ 6, 2, 32, 20, 990, 90, 0, WEIR_KV_F16, WEIR_KV_F16 },
                                Shape{ 4, 1, 16, 16, 2030, 60, 0, WEIR_KV_F32, WEIR_KV_F32 },
                                Shape{ 3, 3, 32, 32, 980, 130, 1000, WEIR_KV_F16, WEIR_KV_F16 },
                                Shape{ 10, 2, 128, 128, 0, 45, 7, WEIR_KV_F16, WEIR_KV_F16 } }) {
        const Sequence sequence(shape, 11);
        for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION)) {
            const Floats whole = attend(*kernel, sequence, 0, shape.n_rows);
            EXPECT_TRUE(same_bits(whole, attend(*kernel, sequence, 0, shape.n_rows, 1)))
                << text(*kernel, shape);
            for (int32_t chunk : { 64, 17, 1 }) {
                Floats pieces;
                for (int32_t first = 0; first < shape.n_rows; first += chunk) {
                    const Floats piece =
                        attend(*kernel, sequence, first, std::min(chunk, shape.n_rows - first));
                    pieces.insert(pieces.end(), piece.begin(), piece.end());
                }
                EXPECT_TRUE(same_bits(whole, pieces)) << text(*kernel, shape) << " chunk " << chunk;
            }
        }
    }
}

// The same for all formats, over pages that close on the way and splits that end: one query row
// more or less per unit changes nothing.
TEST(Attention, BitsOfCodedRowsDoNotDependOnChunks)
{
    for (int f = 0; f < WEIR_KV_FORMAT_COUNT; f++)
        for (const Shape &some :
             { Shape{ 3, 1, 32, 32, 20, 120, 0, WEIR_KV_F16, WEIR_KV_F16 },
               Shape{ 4, 1, 32, 32, 1000, 50, 300, WEIR_KV_F16, WEIR_KV_F16 } }) {
            Shape shape = some;
            shape.k_format = (weir_kv_format)f;
            shape.v_format =
                (weir_kv_format)(shape.window > 0 ? (f + 5) % WEIR_KV_FORMAT_COUNT : f);
            const Sequence sequence(shape, 31);
            for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION)) {
                const Floats whole = attend(*kernel, sequence, 0, shape.n_rows);
                for (int32_t chunk : { 50, 1 }) {
                    Floats pieces;
                    for (int32_t first = 0; first < shape.n_rows; first += chunk) {
                        const Floats piece =
                            attend(*kernel, sequence, first, std::min(chunk, shape.n_rows - first));
                        pieces.insert(pieces.end(), piece.begin(), piece.end());
                    }
                    EXPECT_TRUE(same_bits(whole, pieces))
                        << text(*kernel, shape) << " chunk " << chunk;
                }
            }
        }
}

// A block of few rows has more sums on their way than a full one, and takes the widths that fill
// them apart from the rest: still the same bits.
TEST(Attention, BitsDoNotDependOnRowsOfABlock)
{
    for (const weir_kv_format format :
         { WEIR_KV_F16, WEIR_KV_BF16, WEIR_KV_F32, WEIR_KV_Q8_0, WEIR_KV_TURBO4, WEIR_KV_INT8 })
        for (const auto &[heads, key_dim, value_dim] : { std::array<int64_t, 3>{ 1, 128, 256 },
                                                         { 2, 256, 128 },
                                                         { 3, 64, 128 },
                                                         { 4, 128, 64 },
                                                         { 4, 224, 160 },
                                                         { 2, 96, 192 },
                                                         { 1, 160, 224 } }) {
            const Shape shape = { heads, 1, key_dim, value_dim, 50, 16, 0, format, format };
            if (!takes(shape)) continue;
            const Sequence sequence(shape, 47);
            for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION)) {
                const Floats whole = attend(*kernel, sequence, 0, shape.n_rows);
                Floats pieces;
                for (int32_t first = 0; first < shape.n_rows; first++) {
                    const Floats piece = attend(*kernel, sequence, first, 1);
                    pieces.insert(pieces.end(), piece.begin(), piece.end());
                }
                EXPECT_TRUE(same_bits(whole, pieces)) << text(*kernel, shape);
            }
        }
}

// ---- pieces -------------------------------------------------------------------------------------
// All rows, by calls that end at these splits; pages of other splits are not there.
Floats attend_pieces(
    const weir_kernel &kernel, const Sequence &sequence, const std::vector<int32_t> &ends
)
{
    const Shape &shape = sequence.shape;
    const size_t n = (size_t)(shape.n_rows * shape.heads);
    const Floats untouched(n * (size_t)shape.value_dim, 7.0f);
    Floats out = untouched,
           partials(n * (size_t)weir_attention_partials_floats(shape.value_dim), NAN);
    weir_kv_segment segment = sequence.pages.segment(0, shape.n_rows, shape.n_past);
    const int64_t pages_of_split = WEIR_ATTENTION_SPLIT / WEIR_PAGE_TOKENS;
    int32_t first_split = 0;
    for (const int32_t end : ends) {
        std::vector<void *> present(
            segment.pages, segment.pages + segment.page_stride * shape.kv_heads
        );
        for (size_t i = 0; i < present.size(); i++) {
            const int64_t split = (int64_t)i % segment.page_stride / pages_of_split;
            if (split < first_split || split >= end) present[i] = nullptr;
        }
        weir_kv_segment piece = segment;
        piece.pages = present.data();
        const std::vector<weir_kv_segment> segments = { piece };
        weir_attention_args args = args_of(shape, sequence.q.data(), out.data(), segments);
        args.partials = partials.data();
        args.first_split = first_split;
        args.end_split = end;
        args.is_last = end == ends.back();
        EXPECT_EQ(run(kernel, &args), WEIR_OK) << text(kernel, shape);
        if (!args.is_last)
            EXPECT_TRUE(same_bits(out, untouched))
                << text(kernel, shape) << " wrote out before its last call";
        first_split = end;
    }
    return out;
}

// Every split by a call of its own, in any order, joined in any order.
TEST(Attention, PartsJoinInAnyOrder)
{
    std::vector<const weir_kernel *> kernels = omp_rows(WEIR_OP_ATTENTION);
    kernels.push_back(&weir_kernel_ref_attention);
    std::mt19937 rng(3);
    for (const Shape &shape :
         { Shape{ 4, 1, 32, 32, 3300, 1, 0, WEIR_KV_F16, WEIR_KV_F16 },
           Shape{ 4, 2, 32, 20, 2040, 40, 0, WEIR_KV_F32, WEIR_KV_BF16 },
           Shape{ 2, 1, 64, 64, 3060, 20, 0, WEIR_KV_TURBO4, WEIR_KV_TURBO4 },
           Shape{ 2, 2, 32, 32, 3500, 3, 1100, WEIR_KV_Q8_0, WEIR_KV_INT8 } }) {
        const Sequence sequence(shape, 43);
        const int32_t n_splits = (shape.n_past + shape.n_rows - 1) / WEIR_ATTENTION_SPLIT + 1;
        const int64_t floats = weir_attention_partials_floats(shape.value_dim),
                      n = shape.n_rows * shape.heads;
        const std::vector<weir_kv_segment> segments = {
            sequence.pages.segment(0, shape.n_rows, shape.n_past)
        };
        std::vector<int32_t> order((size_t)n_splits);
        std::iota(order.begin(), order.end(), 0);
        for (const weir_kernel *kernel : kernels) {
            const Floats whole = attend(*kernel, sequence, 0, shape.n_rows);
            for (int trial = 0; trial < 3; trial += every_nth(3)) {
                std::shuffle(order.begin(), order.end(), rng);
                Floats total((size_t)(n * floats)), part(total.size()), out(whole.size(), NAN);
                weir_attention_args args = args_of(shape, sequence.q.data(), out.data(), segments);
                for (int64_t row = 0; row < n; row++)
                    attention_partials::clear(&total[(size_t)(row * floats)], shape.value_dim);
                for (const int32_t split : order) {
                    for (int64_t row = 0; row < n; row++)
                        attention_partials::clear(&part[(size_t)(row * floats)], shape.value_dim);
                    args.partials = part.data(), args.first_split = split,
                    args.end_split = split + 1;
                    ASSERT_EQ(run(*kernel, &args), WEIR_OK);
                    for (int64_t row = 0; row < n; row++)
                        attention_partials::join(
                            &total[(size_t)(row * floats)], &part[(size_t)(row * floats)],
                            shape.value_dim
                        );
                }
                args.partials = total.data(), args.first_split = args.end_split = n_splits,
                args.is_last = true;
                ASSERT_EQ(run(*kernel, &args), WEIR_OK);
                expect_close(out, whole, 2e-6, 2e-6, text(*kernel, shape));
            }
        }
    }
}

// Decode, where splits are units of their own, prefill, where a unit walks them, rows that see
// different splits, windows that begin late.
TEST(Attention, PiecesGiveTheBitsOfOneCall)
{
    std::vector<const weir_kernel *> kernels = omp_rows(WEIR_OP_ATTENTION);
    kernels.push_back(&weir_kernel_ref_attention);
    for (const Shape &shape : { Shape{ 4, 1, 32, 32, 3300, 1, 0, WEIR_KV_F16, WEIR_KV_F16 },
                                Shape{ 4, 2, 32, 20, 2040, 40, 0, WEIR_KV_F32, WEIR_KV_BF16 },
                                Shape{ 2, 1, 64, 64, 3060, 20, 0, WEIR_KV_TURBO4, WEIR_KV_TURBO4 },
                                Shape{ 4, 1, 16, 16, 3000, 1, 0, WEIR_KV_TURBO3, WEIR_KV_TURBO2 },
                                Shape{ 4, 1, 32, 32, 2000, 70, 0, WEIR_KV_KIVI4, WEIR_KV_Q8_0 },
                                Shape{ 2, 2, 32, 32, 3500, 3, 1100, WEIR_KV_Q8_0, WEIR_KV_INT8 },
                                Shape{ 2, 1, 32, 32, 2100, 45, 60, WEIR_KV_F16, WEIR_KV_F16 } }) {
        const Sequence sequence(shape, 41);
        const int32_t n_splits = (shape.n_past + shape.n_rows - 1) / WEIR_ATTENTION_SPLIT + 1;
        for (const weir_kernel *kernel : kernels) {
            const Floats whole = attend(*kernel, sequence, 0, shape.n_rows);
            for (int32_t cuts = 0; cuts < 1 << (n_splits - 1); cuts += every_nth(5)) {
                std::vector<int32_t> ends;
                for (int32_t split = 1; split < n_splits; split++)
                    if (cuts >> (split - 1) & 1) ends.push_back(split);
                ends.push_back(n_splits);
                EXPECT_TRUE(same_bits(whole, attend_pieces(*kernel, sequence, ends)))
                    << text(*kernel, shape) << " cuts " << cuts;
            }
        }
    }
}

// Rows of later tokens in the pages do not touch earlier queries: a row gives the same bits before
// they were written.
TEST(Attention, BitsDoNotDependOnLaterTokens)
{
    const Shape shape = { 8, 2, 64, 64, 1000, 50, 0, WEIR_KV_F16, WEIR_KV_F16 };
    const Sequence full(shape, 3);
    Sequence fresh(shape, 3);
    fresh.pages = Pages(
        shape.k_format, shape.v_format, shape.kv_heads, shape.key_dim, shape.value_dim,
        shape.n_past + shape.n_rows
    );
    fresh.write(0, shape.n_past + 1);
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION))
        EXPECT_TRUE(same_bits(attend(*kernel, full, 0, 1), attend(*kernel, fresh, 0, 1)))
            << kernel->name;
}

// Sequences of unequal length in one call, some without rows, give what each gives alone.
TEST(Attention, BitsDoNotDependOnTheBatch)
{
    const Shape shapes_of[] = { { 8, 2, 32, 32, 2500, 1, 0, WEIR_KV_F16, WEIR_KV_F16 },
                                { 8, 2, 32, 32, 0, 70, 0, WEIR_KV_F16, WEIR_KV_F16 },
                                { 8, 2, 32, 32, 10, 1, 0, WEIR_KV_F16, WEIR_KV_F16 },
                                { 8, 2, 32, 32, 1023, 2, 0, WEIR_KV_F16, WEIR_KV_F16 },
                                { 8, 2, 32, 32, 1100, 20, 0, WEIR_KV_F16, WEIR_KV_F16 } };
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<weir_kv_segment> segments;
    Floats q;
    int32_t n_rows = 0;
    for (const Shape &shape : shapes_of) {
        sequences.push_back(std::make_unique<Sequence>(shape, 20 + (uint32_t)n_rows));
        segments.push_back(sequences.back()->pages.segment(n_rows, shape.n_rows, shape.n_past));
        segments.push_back(sequences.back()->pages.segment(n_rows, 0, shape.n_past));
        q.insert(q.end(), sequences.back()->q.begin(), sequences.back()->q.end());
        n_rows += shape.n_rows;
    }
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION)) {
        Floats out((size_t)n_rows * 8 * 32, NAN), alone;
        const weir_attention_args args = args_of(shapes_of[0], q.data(), out.data(), segments);
        ASSERT_EQ(run(*kernel, &args), WEIR_OK);
        for (const auto &sequence : sequences) {
            const Floats piece = attend(*kernel, *sequence, 0, sequence->shape.n_rows);
            alone.insert(alone.end(), piece.begin(), piece.end());
        }
        EXPECT_TRUE(same_bits(out, alone)) << kernel->name;
    }
}

// NaN, infinities and overflows in one KV head: the call ends, and heads that read the other one
// give the bits that they give without them.
TEST(Attention, GarbageStaysInItsHeads)
{
    const Shape shape = { 4, 2, 32, 32, 1030, 20, 0, WEIR_KV_F16, WEIR_KV_F16 };
    const Sequence clean(shape, 5);
    Sequence sequence(shape, 5);
    const float bad[] = { NAN, INFINITY, -INFINITY, 1e38f, -1e38f };
    const size_t row = 2 * 32, half_q = 2 * 32, half_kv = 32;
    for (size_t i = 0; i < sequence.q.size(); i += 7)
        if (i % (2 * half_q) < half_q) sequence.q[i] = bad[i % 5];
    for (size_t i = 0; i < sequence.k.size(); i += 11)
        if (i % row < half_kv) sequence.k[i] = bad[i % 5];
    for (size_t i = 0; i < sequence.v.size(); i += 13)
        if (i % row < half_kv) sequence.v[i] = bad[i % 5];
    sequence.write(0, shape.n_past + shape.n_rows);
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION)) {
        const Floats want = attend(*kernel, clean, 0, shape.n_rows),
                     got = attend(*kernel, sequence, 0, shape.n_rows);
        bool is_bad = false;
        for (size_t i = 0; i < got.size(); i++) {
            if (i % (4 * 32) < 2 * 32)
                is_bad = is_bad || !std::isfinite(got[i]);
            else
                ASSERT_EQ(memcmp(&got[i], &want[i], sizeof(float)), 0) << kernel->name << " " << i;
        }
        EXPECT_TRUE(is_bad) << kernel->name << ": nothing was tested";
    }
}

TEST(Attention, RefusesWhatItCannot)
{
    const Shape shape = { 2, 1, 32, 32, 0, 1, 0, WEIR_KV_F16, WEIR_KV_F16 };
    const Sequence sequence(shape, 5);
    Floats out(64);
    const std::vector<weir_kv_segment> segments = { sequence.pages.segment(0, 1, 0) };
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION)) {
        weir_attention_args args = args_of(shape, sequence.q.data(), out.data(), segments);
        const weir_caps caps = {};
        EXPECT_EQ(kernel->reject(&caps, &args), nullptr);
        args.k_format = WEIR_KV_TURBO4;
        args.key_dim = 24;
        EXPECT_NE(kernel->reject(&caps, &args), nullptr);
        EXPECT_EQ(run(*kernel, &args), WEIR_EUNSUPPORTED);
        args.key_dim = 32;
        args.k_format = WEIR_KV_INT8;
        std::vector<weir_kv_segment> closed = segments;
        closed[0].unsealed_pages = nullptr;
        args.segments = closed.data();
        EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL) << "the own page must be there open";
        args.k_format = WEIR_KV_F16;
        args.segments = segments.data();
        args.partials = out.data();
        args.first_split = -1;
        EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL);
        args.first_split = 2;
        args.end_split = 1;
        EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL);
        args.partials = nullptr;
        args.value_dim = 516;
        EXPECT_NE(kernel->reject(&caps, &args), nullptr);
        args.value_dim = 32;
        args.n_heads = 3;
        args.n_kv_heads = 2;
        EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL);
    }
}

} // namespace
} // namespace weir_test
