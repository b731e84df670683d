// tests/unit/kernels/attention_test.cc - attention against ref, and the promise that a row's bits depend on its own positions only.
#include "tests/unit/kernels/support.h"

namespace weir_test {
namespace {

struct Shape {
    int64_t    heads, kv_heads, key_dim, value_dim;
    int32_t    n_past, n_rows, window;
    weir_dtype dtype;
};

// A sequence with random K and V at all positions and random queries for the last n_rows of them.
struct Sequence {
    Shape  shape;
    Floats q, k, v;
    Pages  pages;

    Sequence(const Shape &s, uint32_t seed)
        : shape(s), q(random_floats((size_t)(s.n_rows * s.heads * s.key_dim), seed, 1.5f)),
          k(random_floats((size_t)((s.n_past + s.n_rows) * s.kv_heads * s.key_dim), seed + 1, 1.5f)),
          v(random_floats((size_t)((s.n_past + s.n_rows) * s.kv_heads * s.value_dim), seed + 2)),
          pages(s.dtype, s.kv_heads, s.key_dim, s.value_dim, s.n_past + s.n_rows)
    {
        write(0, s.n_past + s.n_rows);
    }

    void write(int32_t first, int32_t n) const
    {
        const weir_kv_segment segment = pages.segment(0, n, first);
        weir_kv_write_args    args = {};
        args.k = k.data() + first * shape.kv_heads * shape.key_dim;
        args.v = v.data() + first * shape.kv_heads * shape.value_dim;
        args.segments = &segment;
        args.n_segments = 1;
        args.n_kv_heads = shape.kv_heads;
        args.key_dim = shape.key_dim;
        args.value_dim = shape.value_dim;
        args.k_stride = shape.kv_heads * shape.key_dim;
        args.v_stride = shape.kv_heads * shape.value_dim;
        args.dtype = shape.dtype;
        ASSERT_EQ(run(weir_kernel_ref_kv_write, &args), WEIR_OK);
    }
};

weir_attention_args args_of(const Shape &shape, const float *q, float *out, const std::vector<weir_kv_segment> &segments)
{
    weir_attention_args args = {};
    args.out = out;
    args.q = q;
    args.segments = segments.data();
    args.n_segments = (int64_t)segments.size();
    args.n_heads = shape.heads;
    args.n_kv_heads = shape.kv_heads;
    args.key_dim = shape.key_dim;
    args.value_dim = shape.value_dim;
    args.q_stride = shape.heads * shape.key_dim;
    args.q_head_stride = shape.key_dim;
    args.out_stride = shape.heads * shape.value_dim;
    args.window = shape.window;
    args.scale = 1.0f / std::sqrt((float)shape.key_dim);
    args.dtype = shape.dtype;
    return args;
}

// Rows [first, first + n) of the sequence's queries in one call.
Floats attend(const weir_kernel &kernel, const Sequence &sequence, int32_t first, int32_t n, int n_threads = 2)
{
    const Shape                       &shape = sequence.shape;
    Floats                             out((size_t)(n * shape.heads * shape.value_dim), NAN);
    const std::vector<weir_kv_segment> segments = { sequence.pages.segment(0, n, shape.n_past + first) };
    const weir_attention_args          args = args_of(shape, sequence.q.data() + first * shape.heads * shape.key_dim, out.data(), segments);
    EXPECT_EQ(run(kernel, &args, n_threads), WEIR_OK);
    return out;
}

std::string text(const weir_kernel &kernel, const Shape &s)
{
    return std::string(kernel.name) + " heads " + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " dims " +
           std::to_string(s.key_dim) + "," + std::to_string(s.value_dim) + " past " + std::to_string(s.n_past) + " rows " +
           std::to_string(s.n_rows) + " window " + std::to_string(s.window) + (s.dtype == WEIR_F16 ? " f16" : " f32");
}

const Shape shapes[] = {
    { 1, 1, 4, 4, 0, 1, 0, WEIR_F32 },        { 4, 2, 32, 32, 0, 9, 0, WEIR_F16 },       { 4, 2, 16, 24, 31, 3, 0, WEIR_F16 },
    { 8, 2, 256, 256, 100, 1, 0, WEIR_F16 },  { 8, 2, 256, 256, 0, 33, 0, WEIR_F16 },    { 16, 1, 64, 64, 62, 5, 0, WEIR_F32 },
    { 7, 1, 128, 128, 1022, 4, 0, WEIR_F16 }, { 8, 2, 64, 128, 2990, 1, 0, WEIR_F16 },   { 6, 2, 20, 12, 2040, 40, 0, WEIR_F32 },
    { 2, 2, 32, 32, 0, 70, 4, WEIR_F16 },     { 4, 1, 32, 32, 1500, 30, 600, WEIR_F16 }, { 4, 4, 64, 64, 2900, 2, 1100, WEIR_F32 },
    { 3, 1, 192, 128, 500, 2, 0, WEIR_F16 },  { 2, 1, 576, 512, 40, 5, 0, WEIR_F16 },
};

TEST(Attention, MatchesRef)
{
    for (const Shape &shape : shapes) {
        const Sequence sequence(shape, 7);
        const Floats   want = attend(weir_kernel_ref_attention, sequence, 0, shape.n_rows);
        for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION))
            expect_close(attend(*kernel, sequence, 0, shape.n_rows), want, kernel->atol, kernel->rtol, text(*kernel, shape));
    }
}

// ref on a case that can be done on paper: two keys, scores 0 and ln 3, so weights 1/4 and 3/4.
TEST(Attention, RefClosedForm)
{
    const Shape shape = { 1, 1, 4, 4, 1, 1, 0, WEIR_F32 };
    Sequence    sequence(shape, 1);
    sequence.q = { 2 * std::log(3.0f), 0, 0, 0 };
    sequence.k = { 0, 5, 5, 5, 1, 6, 7, 8 };
    sequence.v = { 4, 0, 8, -4, 0, 4, 8, 4 };
    sequence.write(0, 2);
    expect_close(attend(weir_kernel_ref_attention, sequence, 0, 1), { 1, 3, 8, 2 }, 1e-6, 1e-6, "ref");
}

// A prompt in one call, in chunks on and off the tile grid, token by token, and with any number of threads: the same bits.
TEST(Attention, BitsDoNotDependOnChunks)
{
    for (const Shape &shape : { Shape{ 8, 2, 64, 64, 0, 300, 0, WEIR_F16 }, Shape{ 6, 2, 32, 20, 990, 90, 0, WEIR_F16 },
                                Shape{ 4, 1, 16, 16, 2030, 60, 0, WEIR_F32 }, Shape{ 3, 3, 32, 32, 980, 130, 1000, WEIR_F16 },
                                Shape{ 10, 2, 128, 128, 0, 45, 7, WEIR_F16 } }) {
        const Sequence sequence(shape, 11);
        for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION)) {
            const Floats whole = attend(*kernel, sequence, 0, shape.n_rows);
            EXPECT_TRUE(same_bits(whole, attend(*kernel, sequence, 0, shape.n_rows, 1))) << text(*kernel, shape);
            for (int32_t chunk : { 64, 17, 1 }) {
                Floats pieces;
                for (int32_t first = 0; first < shape.n_rows; first += chunk) {
                    const Floats piece = attend(*kernel, sequence, first, std::min(chunk, shape.n_rows - first));
                    pieces.insert(pieces.end(), piece.begin(), piece.end());
                }
                EXPECT_TRUE(same_bits(whole, pieces)) << text(*kernel, shape) << " chunk " << chunk;
            }
        }
    }
}

// Rows of later tokens in the pages do not touch earlier queries: a row gives the same bits before they were written.
TEST(Attention, BitsDoNotDependOnLaterTokens)
{
    const Shape    shape = { 8, 2, 64, 64, 1000, 50, 0, WEIR_F16 };
    const Sequence full(shape, 3);
    Sequence       fresh(shape, 3);
    fresh.pages = Pages(shape.dtype, shape.kv_heads, shape.key_dim, shape.value_dim, shape.n_past + shape.n_rows);
    fresh.write(0, shape.n_past + 1);
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION))
        EXPECT_TRUE(same_bits(attend(*kernel, full, 0, 1), attend(*kernel, fresh, 0, 1))) << kernel->name;
}

// Sequences of unequal length in one call, some without rows, give what each gives alone.
TEST(Attention, BitsDoNotDependOnTheBatch)
{
    const Shape                            shapes_of[] = { { 8, 2, 32, 32, 2500, 1, 0, WEIR_F16 },
                                                           { 8, 2, 32, 32, 0, 70, 0, WEIR_F16 },
                                                           { 8, 2, 32, 32, 10, 1, 0, WEIR_F16 },
                                                           { 8, 2, 32, 32, 1023, 2, 0, WEIR_F16 },
                                                           { 8, 2, 32, 32, 1100, 20, 0, WEIR_F16 } };
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<weir_kv_segment>           segments;
    Floats                                 q;
    int32_t                                n_rows = 0;
    for (const Shape &shape : shapes_of) {
        sequences.push_back(std::make_unique<Sequence>(shape, 20 + (uint32_t)n_rows));
        segments.push_back(sequences.back()->pages.segment(n_rows, shape.n_rows, shape.n_past));
        segments.push_back(sequences.back()->pages.segment(n_rows, 0, shape.n_past));
        q.insert(q.end(), sequences.back()->q.begin(), sequences.back()->q.end());
        n_rows += shape.n_rows;
    }
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION)) {
        Floats                    out((size_t)n_rows * 8 * 32, NAN), alone;
        const weir_attention_args args = args_of(shapes_of[0], q.data(), out.data(), segments);
        ASSERT_EQ(run(*kernel, &args), WEIR_OK);
        for (const auto &sequence : sequences) {
            const Floats piece = attend(*kernel, *sequence, 0, sequence->shape.n_rows);
            alone.insert(alone.end(), piece.begin(), piece.end());
        }
        EXPECT_TRUE(same_bits(out, alone)) << kernel->name;
    }
}

TEST(Attention, GarbageEnds)
{
    const Shape shape = { 4, 2, 32, 32, 1030, 20, 0, WEIR_F16 };
    Sequence    sequence(shape, 5);
    const float bad[] = { NAN, INFINITY, -INFINITY, 1e38f, -1e38f };
    for (size_t i = 0; i < sequence.q.size(); i += 7) sequence.q[i] = bad[i % 5];
    for (size_t i = 0; i < sequence.k.size(); i += 11) sequence.k[i] = bad[i % 5];
    for (size_t i = 0; i < sequence.v.size(); i += 13) sequence.v[i] = bad[i % 5];
    sequence.write(0, shape.n_past + shape.n_rows);
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION)) attend(*kernel, sequence, 0, shape.n_rows);
}

TEST(Attention, RefusesWhatItCannot)
{
    const Shape                        shape = { 2, 1, 32, 32, 0, 1, 0, WEIR_F16 };
    const Sequence                     sequence(shape, 5);
    Floats                             out(64);
    const std::vector<weir_kv_segment> segments = { sequence.pages.segment(0, 1, 0) };
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION)) {
        weir_attention_args args = args_of(shape, sequence.q.data(), out.data(), segments);
        const weir_caps     caps = {};
        EXPECT_EQ(kernel->reject(&caps, &args), nullptr);
        args.dtype = WEIR_BF16;
        EXPECT_NE(kernel->reject(&caps, &args), nullptr);
        EXPECT_EQ(run(*kernel, &args), WEIR_EUNSUPPORTED);
        args.dtype = WEIR_F16;
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
