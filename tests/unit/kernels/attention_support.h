// tests/unit/kernels/attention_support.h - sequences of random rows for the tests of attention and
// of what it gives away.
#pragma once
#include "tests/unit/kernels/support.h"

namespace weir_test {

struct Shape {
    int64_t heads, kv_heads, key_dim, value_dim;
    int32_t n_past, n_rows, window;
    weir_kv_format k_format, v_format;
};

// A sequence with random K and V at all positions and random queries for the last n_rows of them.
struct Sequence {
    Shape shape;
    Floats q, k, v;
    Pages pages;

    Sequence(const Shape &s, uint32_t seed)
        : shape(s), q(random_floats((size_t)(s.n_rows * s.heads * s.key_dim), seed, 1.5f)),
          k(random_floats((size_t)((s.n_past + s.n_rows) * s.kv_heads * s.key_dim), seed + 1, 1.5f)
          ),
          v(random_floats((size_t)((s.n_past + s.n_rows) * s.kv_heads * s.value_dim), seed + 2)),
          pages(s.k_format, s.v_format, s.kv_heads, s.key_dim, s.value_dim, s.n_past + s.n_rows)
    {
        write(0, s.n_past + s.n_rows);
    }

    void write(int32_t first, int32_t n) const
    {
        const weir_kv_segment segment = pages.segment(0, n, first);
        weir_kv_write_args args = {};
        args.k = k.data() + first * shape.kv_heads * shape.key_dim;
        args.v = v.data() + first * shape.kv_heads * shape.value_dim;
        args.segments = &segment;
        args.n_segments = 1;
        args.n_kv_heads = shape.kv_heads;
        args.key_dim = shape.key_dim;
        args.value_dim = shape.value_dim;
        args.k_stride = shape.kv_heads * shape.key_dim;
        args.v_stride = shape.kv_heads * shape.value_dim;
        args.k_format = shape.k_format, args.v_format = shape.v_format;
        ASSERT_EQ(run(weir_kernel_ref_kv_write, &args), WEIR_OK);
    }
};

inline weir_attention_args args_of(
    const Shape &shape, const float *q, float *out, const std::vector<weir_kv_segment> &segments
)
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
    args.k_format = shape.k_format, args.v_format = shape.v_format;
    return args;
}

// Rows [first, first + n) of the sequence's queries in one call.
inline Floats attend(
    const weir_kernel &kernel, const Sequence &sequence, int32_t first, int32_t n, int n_threads = 2
)
{
    const Shape &shape = sequence.shape;
    Floats out((size_t)(n * shape.heads * shape.value_dim), NAN);
    const std::vector<weir_kv_segment> segments = {
        sequence.pages.segment(0, n, shape.n_past + first)
    };
    const weir_attention_args args = args_of(
        shape, sequence.q.data() + first * shape.heads * shape.key_dim, out.data(), segments
    );
    EXPECT_EQ(run(kernel, &args, n_threads), WEIR_OK);
    return out;
}

// All rows of sequences of equal widths and windows in one call, without the pages before the
// window of the first row of each, of which there must be some.
inline Floats attend_window(
    const weir_kernel &kernel, const std::vector<const Sequence *> &sequences
)
{
    const Shape &shape = sequences[0]->shape;
    std::vector<std::vector<void *>> tables;
    std::vector<weir_kv_segment> segments;
    Floats q;
    int32_t n_rows = 0;
    for (const Sequence *sequence : sequences) {
        const Shape &own = sequence->shape;
        weir_kv_segment segment = sequence->pages.segment(n_rows, own.n_rows, own.n_past);
        const int64_t n_before = (own.n_past - own.window + 1) / WEIR_PAGE_TOKENS;
        EXPECT_GT(n_before, 0) << "nothing is tested";
        tables.emplace_back(segment.pages, segment.pages + segment.page_stride * own.kv_heads);
        for (size_t i = 0; i < tables.back().size(); i++)
            if ((int64_t)i % segment.page_stride < n_before) tables.back()[i] = nullptr;
        segment.pages = tables.back().data();
        segments.push_back(segment);
        q.insert(q.end(), sequence->q.begin(), sequence->q.end());
        n_rows += own.n_rows;
    }
    Floats out((size_t)(n_rows * shape.heads * shape.value_dim), NAN);
    const weir_attention_args args = args_of(shape, q.data(), out.data(), segments);
    EXPECT_EQ(run(kernel, &args), WEIR_OK);
    return out;
}

inline std::string text(const weir_kernel &kernel, const Shape &s)
{
    return std::string(kernel.name) + " heads " + std::to_string(s.heads) + "/" +
           std::to_string(s.kv_heads) + " dims " + std::to_string(s.key_dim) + "," +
           std::to_string(s.value_dim) + " past " + std::to_string(s.n_past) + " rows " +
           std::to_string(s.n_rows) + " window " + std::to_string(s.window) + " " +
           weir_kv_format_name(s.k_format) + " " + weir_kv_format_name(s.v_format);
}

inline bool takes(const Shape &shape)
{
    return !weir_kv_format_reject(shape.k_format, WEIR_KV_K, shape.key_dim) &&
           !weir_kv_format_reject(shape.v_format, WEIR_KV_V, shape.value_dim);
}

inline std::vector<const weir_kernel *> rows_and_ref(weir_op op)
{
    std::vector<const weir_kernel *> rows = omp_rows(op);
    rows.push_back(ref_row(op));
    return rows;
}

// Segment `whole` of n heads as ranges that end at these heads.
inline std::vector<weir_kv_segment> cut(
    const weir_kv_segment &whole, const std::vector<int32_t> &ends
)
{
    std::vector<weir_kv_segment> ranges;
    int32_t first = 0;
    for (const int32_t end : ends) {
        weir_kv_segment range = whole;
        range.pages += first * whole.page_stride,
            range.unsealed_pages += first * whole.unsealed_stride;
        range.first_head = first, range.n_heads = end - first;
        ranges.push_back(range);
        first = end;
    }
    return ranges;
}

} // namespace weir_test
