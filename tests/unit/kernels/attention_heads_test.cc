// tests/unit/kernels/attention_heads_test.cc - segments of some of the KV heads: rows of unequal
// number after an eviction, and any cut of equal ones.
#include <climits>

#include "kernels/abi/attention_partials.h"
#include "tests/unit/kernels/attention_support.h"

namespace weir_test {
namespace {

// A sequence whose KV heads hold different numbers of rows: each head is a sequence of its own,
// with the same new rows.
struct Ragged {
    Shape shape; // of the op; n_past is the longest head's
    std::vector<std::unique_ptr<Sequence>> heads;

    Ragged(const Shape &all, const std::vector<int32_t> &n_past, uint32_t seed) : shape(all)
    {
        for (size_t g = 0; g < n_past.size(); g++) {
            Shape one = all;
            one.heads = all.heads / all.kv_heads, one.kv_heads = 1, one.n_past = n_past[g];
            heads.push_back(std::make_unique<Sequence>(one, seed + 10 * (uint32_t)g));
        }
    }
    // Row-major [rows, heads, width] of what each head has as [rows, heads / G, width].
    Floats side_by_side(const std::vector<Floats> &each, int64_t width) const
    {
        const size_t per = (size_t)(width * shape.heads / shape.kv_heads);
        Floats all;
        for (size_t t = 0; t < (size_t)shape.n_rows; t++)
            for (const Floats &x : each) all.insert(all.end(), &x[t * per], &x[t * per] + per);
        return all;
    }
    Floats queries() const
    {
        std::vector<Floats> each;
        for (const auto &head : heads) each.push_back(head->q);
        return side_by_side(each, shape.key_dim);
    }
    std::vector<weir_kv_segment> segments(int32_t first_row) const
    {
        std::vector<weir_kv_segment> all;
        for (size_t g = 0; g < heads.size(); g++) {
            all.push_back(heads[g]->pages.segment(first_row, shape.n_rows, heads[g]->shape.n_past));
            all.back().first_head = (int32_t)g, all.back().n_heads = 1;
        }
        return all;
    }
};

// ---- attention ----------------------------------------------------------------------------------
struct RaggedCase {
    Shape shape;
    std::vector<int32_t> n_past;
};

std::vector<RaggedCase> ragged_cases()
{
    std::vector<RaggedCase> all = {
        { { 6, 3, 32, 24, 0, 1, 0, WEIR_KV_F16, WEIR_KV_F16 }, { 2100, 0, 1023 } },
        { { 8, 2, 32, 32, 0, 20, 0, WEIR_KV_F32, WEIR_KV_F32 }, { 1010, 2200 } },
        { { 4, 4, 16, 16, 0, 90, 0, WEIR_KV_F32, WEIR_KV_F16 }, { 0, 31, 70, 300 } }
    };
    for (const weir_kv_format format : { WEIR_KV_F32, WEIR_KV_F16, WEIR_KV_Q8_0, WEIR_KV_TURBO4,
                                         WEIR_KV_INT8, WEIR_KV_KIVI4, WEIR_KV_KIVI2 })
        for (const int32_t n_rows : { 1, 12 }) {
            const weir_kv_format v_format = n_rows == 1 ? format : WEIR_KV_Q8_0;
            all.push_back({ { 6, 2, 64, 32, 0, n_rows, 0, format, v_format }, { 1100, 45 } });
        }
    return all;
}

TEST(AttentionHeads, RaggedHeadsAreWhatEachIsAlone)
{
    for (const RaggedCase &c : ragged_cases()) {
        const Ragged text_of_heads(c.shape, c.n_past, 3);
        const Floats q = text_of_heads.queries();
        const std::vector<weir_kv_segment> segments = text_of_heads.segments(0);
        Floats want((size_t)(c.shape.n_rows * c.shape.heads * c.shape.value_dim), NAN);
        weir_attention_args args = args_of(c.shape, q.data(), want.data(), segments);
        ASSERT_EQ(run(weir_kernel_ref_attention, &args), WEIR_OK);
        for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION)) {
            Floats got(want.size(), NAN);
            std::vector<Floats> alone;
            args.out = got.data();
            ASSERT_EQ(run(*kernel, &args, 3), WEIR_OK);
            for (const auto &head : text_of_heads.heads)
                alone.push_back(attend(*kernel, *head, 0, c.shape.n_rows));
            EXPECT_TRUE(same_bits(got, text_of_heads.side_by_side(alone, c.shape.value_dim)))
                << text(*kernel, c.shape);
            expect_close(got, want, kernel->atol, kernel->rtol, text(*kernel, c.shape));
        }
    }
}

// Whole and ragged segments in one call give what each gives alone.
TEST(AttentionHeads, BatchesOfWholeAndRagged)
{
    const Shape shape = { 4, 2, 32, 32, 1030, 3, 0, WEIR_KV_Q8_0, WEIR_KV_F16 },
                one = { 4, 2, 32, 32, 50, 1, 0, WEIR_KV_Q8_0, WEIR_KV_F16 };
    const Sequence first(one, 5), last(shape, 6);
    const Ragged middle(shape, { 77, 2050 }, 7);
    std::vector<weir_kv_segment> segments = { first.pages.segment(0, 1, 50) };
    for (const weir_kv_segment &range : middle.segments(1)) segments.push_back(range);
    segments.push_back(last.pages.segment(4, 3, 1030));
    Floats q = first.q;
    for (const Floats &more : { middle.queries(), last.q })
        q.insert(q.end(), more.begin(), more.end());
    for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION)) {
        Floats out(7 * 4 * 32, NAN), alone = attend(*kernel, first, 0, 1);
        const weir_attention_args args = args_of(shape, q.data(), out.data(), segments);
        ASSERT_EQ(run(*kernel, &args), WEIR_OK);
        const Floats ragged = middle.side_by_side(
            { attend(*kernel, *middle.heads[0], 0, 3), attend(*kernel, *middle.heads[1], 0, 3) }, 32
        );
        const Floats whole = attend(*kernel, last, 0, 3);
        alone.insert(alone.end(), ragged.begin(), ragged.end());
        alone.insert(alone.end(), whole.begin(), whole.end());
        EXPECT_TRUE(same_bits(out, alone)) << kernel->name;
    }
}

// All rows of a sequence by ranges of heads that end so; in pieces of one split with a partials, or
// at once.
Floats attend_cut(
    const weir_kernel &kernel, const Sequence &sequence, const std::vector<int32_t> &ends,
    bool in_pieces
)
{
    const Shape &shape = sequence.shape;
    const std::vector<weir_kv_segment> ranges =
        cut(sequence.pages.segment(0, shape.n_rows, shape.n_past), ends);
    const size_t n = (size_t)(shape.n_rows * shape.heads);
    Floats out(n * (size_t)shape.value_dim, NAN);
    Floats partials(n * (size_t)weir_attention_partials_floats(shape.value_dim), NAN);
    weir_attention_args args = args_of(shape, sequence.q.data(), out.data(), ranges);
    const int32_t n_splits =
        in_pieces ? (shape.n_past + shape.n_rows - 1) / WEIR_ATTENTION_SPLIT + 1 : 1;
    for (int32_t split = 0; split < n_splits; split++) {
        args.partials = in_pieces ? partials.data() : nullptr;
        args.first_split = split, args.end_split = split + 1, args.is_last = split + 1 == n_splits;
        EXPECT_EQ(run(kernel, &args), WEIR_OK) << text(kernel, shape);
    }
    return out;
}

TEST(AttentionHeads, BitsDoNotDependOnTheCutOfHeads)
{
    for (const Shape &shape : { Shape{ 8, 4, 32, 32, 2100, 1, 0, WEIR_KV_F16, WEIR_KV_F16 },
                                Shape{ 4, 4, 64, 32, 1000, 40, 0, WEIR_KV_F32, WEIR_KV_BF16 },
                                Shape{ 12, 4, 32, 64, 1020, 9, 0, WEIR_KV_TURBO4, WEIR_KV_Q8_0 },
                                Shape{ 8, 4, 32, 32, 40, 50, 0, WEIR_KV_INT8, WEIR_KV_KIVI2 },
                                Shape{ 4, 4, 16, 20, 1100, 30, 300, WEIR_KV_F16, WEIR_KV_F16 } }) {
        const Sequence sequence(shape, 13);
        for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION)) {
            const Floats whole = attend(*kernel, sequence, 0, shape.n_rows);
            const bool is_slow = kernel->backend == WEIR_BACKEND_REF;
            for (const std::vector<int32_t> &ends :
                 { std::vector<int32_t>{ 2, 4 }, { 1, 4 }, { 1, 2, 3, 4 }, { 4 } })
                for (const bool in_pieces : { false, true }) {
                    if (is_slow && (in_pieces || ends[0] != 2)) continue;
                    EXPECT_TRUE(same_bits(whole, attend_cut(*kernel, sequence, ends, in_pieces)))
                        << text(*kernel, shape) << " ranges " << ends.size()
                        << (in_pieces ? " in pieces" : "");
                }
        }
    }
}

TEST(AttentionHeads, OthersAreNotTouched)
{
    for (const int32_t n_past : { 100, 2100 }) {
        const Shape shape = { 8, 4, 32, 32, n_past, 2, 0, WEIR_KV_F16, WEIR_KV_F16 };
        const Sequence sequence(shape, 23);
        std::vector<weir_kv_segment> ranges =
            cut(sequence.pages.segment(0, 2, n_past), { 1, 3, 4 });
        ranges = { ranges[1] };
        for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION)) {
            const Floats whole = attend(*kernel, sequence, 0, 2);
            Floats out(whole.size(), 7.0f);
            const weir_attention_args args = args_of(shape, sequence.q.data(), out.data(), ranges);
            ASSERT_EQ(run(*kernel, &args), WEIR_OK);
            for (size_t i = 0; i < out.size(); i++) {
                const size_t head = i / 32 % 8;
                ASSERT_EQ(out[i], head >= 2 && head < 6 ? whole[i] : 7.0f)
                    << kernel->name << " " << i;
            }
        }
    }
}

// ---- rows in and out ----------------------------------------------------------------------------
template <class Args>
Args rows_args(const Shape &shape, const std::vector<weir_kv_segment> &segments)
{
    Args args = {};
    args.segments = segments.data(), args.n_segments = (int64_t)segments.size();
    args.n_kv_heads = shape.kv_heads, args.key_dim = shape.key_dim,
    args.value_dim = shape.value_dim;
    args.k_stride = shape.kv_heads * shape.key_dim,
    args.v_stride = shape.kv_heads * shape.value_dim;
    args.k_format = shape.k_format, args.v_format = shape.v_format;
    return args;
}

// New rows join heads of unequal length: each head's pages are those of a sequence with that head
// alone, and read so.
TEST(KvHeads, WriteAndReadRaggedHeads)
{
    for (const weir_kv_format format :
         { WEIR_KV_F32, WEIR_KV_F16, WEIR_KV_Q8_0, WEIR_KV_TURBO4, WEIR_KV_INT8, WEIR_KV_KIVI4 }) {
        const Shape shape = { 3, 3, 64, 32, 0, 70, 0, format, format };
        const std::vector<int32_t> n_past = { 130, 0, 63 };
        const Ragged want(shape, n_past, 29);
        std::vector<Floats> k, v;
        for (size_t g = 0; g < 3; g++) {
            k.emplace_back(want.heads[g]->k.begin() + n_past[g] * 64, want.heads[g]->k.end());
            v.emplace_back(want.heads[g]->v.begin() + n_past[g] * 32, want.heads[g]->v.end());
        }
        const Floats all_k = want.side_by_side(k, 64), all_v = want.side_by_side(v, 32);
        for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_KV_WRITE)) {
            Ragged got(shape, n_past, 29);
            for (size_t g = 0; g < 3; g++) {
                Sequence &head = *got.heads[g];
                head.pages = Pages(format, format, 1, 64, 32, n_past[g] + 70);
                if (n_past[g] > 0) head.write(0, n_past[g]);
            }
            const std::vector<weir_kv_segment> segments = got.segments(0);
            auto args = rows_args<weir_kv_write_args>(shape, segments);
            args.k = all_k.data(), args.v = all_v.data();
            ASSERT_EQ(run(*kernel, &args), WEIR_OK);
            for (size_t g = 0; g < 3; g++) {
                EXPECT_EQ(got.heads[g]->pages.pages(), want.heads[g]->pages.pages())
                    << kernel->name << " " << weir_kv_format_name(format);
                EXPECT_EQ(
                    got.heads[g]->pages.unsealed_pages(), want.heads[g]->pages.unsealed_pages()
                ) << kernel->name;
            }
        }
        const std::vector<weir_kv_segment> segments = want.segments(0);
        for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_KV_READ)) {
            Floats got_k(all_k.size(), NAN), got_v(all_v.size(), NAN);
            auto args = rows_args<weir_kv_read_args>(shape, segments);
            args.k = got_k.data(), args.v = got_v.data();
            ASSERT_EQ(run(*kernel, &args), WEIR_OK);
            std::vector<Floats> each_k, each_v;
            for (size_t g = 0; g < 3; g++) {
                const Shape one = want.heads[g]->shape;
                const std::vector<weir_kv_segment> whole = {
                    want.heads[g]->pages.segment(0, 70, n_past[g])
                };
                auto alone = rows_args<weir_kv_read_args>(one, whole);
                each_k.emplace_back(70 * 64, NAN), each_v.emplace_back(70 * 32, NAN);
                alone.k = each_k.back().data(), alone.v = each_v.back().data();
                ASSERT_EQ(run(weir_kernel_ref_kv_read, &alone), WEIR_OK);
            }
            EXPECT_TRUE(same_bits(got_k, want.side_by_side(each_k, 64)))
                << kernel->name << " " << weir_kv_format_name(format);
            EXPECT_TRUE(same_bits(got_v, want.side_by_side(each_v, 32)))
                << kernel->name << " " << weir_kv_format_name(format);
        }
    }
}

TEST(KvHeads, RefusesHeadsThatAreNotThere)
{
    const Shape shape = { 4, 2, 32, 32, 0, 1, 0, WEIR_KV_F16, WEIR_KV_F16 };
    const Sequence sequence(shape, 5);
    Floats out(4 * 32);
    const std::pair<int32_t, int32_t> ranges[] = { { -1, 1 },
                                                   { 0, -1 },
                                                   { 0, 3 },
                                                   { 1, 2 },
                                                   { 2, 1 },
                                                   { 1, 0 },
                                                   { 2, 0 },
                                                   { 3, 1 },
                                                   { INT_MAX, INT_MAX },
                                                   { INT_MIN, INT_MAX } };
    for (const auto &[first, n] : ranges) {
        std::vector<weir_kv_segment> segments = { sequence.pages.segment(0, 1, 0),
                                                  sequence.pages.segment(0, 1, 0) };
        segments[1].first_head = first, segments[1].n_heads = n;
        const weir_attention_args attention =
            args_of(shape, sequence.q.data(), out.data(), segments);
        auto write = rows_args<weir_kv_write_args>(shape, segments);
        auto read = rows_args<weir_kv_read_args>(shape, segments);
        write.k = sequence.k.data(), write.v = sequence.v.data(), read.k = read.v = out.data();
        for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION))
            EXPECT_EQ(run(*kernel, &attention), WEIR_EINVAL) << first << " " << n;
        for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_KV_WRITE))
            EXPECT_EQ(run(*kernel, &write), WEIR_EINVAL) << first << " " << n;
        for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_KV_READ))
            EXPECT_EQ(run(*kernel, &read), WEIR_EINVAL) << first << " " << n;
    }
}

} // namespace
} // namespace weir_test
