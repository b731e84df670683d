// tests/unit/kernels/attention_latent_test.cc - attention over latents (values that alias keys), by
// tile registers and without them: against ref, against keys and values that are expanded, and in
// pieces. The instructions of tile registers run in C on any machine.
#include <algorithm>

#include "offload/caps.h"
#include "tests/every_nth.h"
#include "tests/unit/kernels/attention_support.h"

extern "C" const weir_kernel weir_kernel_omp_attention_amx, weir_kernel_omp_attention_amx_emulated;

namespace weir_test {
namespace {

std::vector<const weir_kernel *> tile_rows()
{
    std::vector<const weir_kernel *> rows = { &weir_kernel_omp_attention_amx_emulated };
    if (weir_caps_detect().amx_bf16) rows.push_back(&weir_kernel_omp_attention_amx);
    return rows;
}

// A sequence of latent rows with `value_dim` values; pages without a V part.
struct Latents : Sequence {
    int64_t value_dim;
    float softcap = 0, sink = 0;

    Latents(Shape s, uint32_t seed) : Sequence(without_values(s), seed), value_dim(s.value_dim) {}
    static Shape without_values(Shape s)
    {
        s.value_dim = 0;
        return s;
    }

    // Rows [first, first + n); what else they give goes to lse and the logits of the last row.
    Floats attend(
        const weir_kernel &kernel, int32_t first, int32_t n, Floats *lse = nullptr,
        Floats *logits = nullptr, int n_threads = 2
    ) const
    {
        Floats out((size_t)(n * shape.heads * value_dim), NAN), of_heads;
        std::vector<weir_kv_segment> segments = { pages.segment(0, n, shape.n_past + first) };
        if (logits) {
            segments[0].logits_stride = shape.n_past + first + n;
            logits->assign((size_t)(shape.heads * segments[0].logits_stride), NAN);
            segments[0].logits = logits->data();
        }
        Shape wide = shape;
        wide.value_dim = value_dim;
        weir_attention_args args =
            args_of(wide, q.data() + first * shape.heads * shape.key_dim, out.data(), segments);
        args.value_aliases_key = true, args.softcap = softcap;
        if (sink > 0) {
            of_heads = random_floats((size_t)shape.heads, 5, sink);
            args.sink_logits = of_heads.data();
        }
        if (lse) {
            lse->assign((size_t)(n * shape.heads), NAN);
            args.lse = lse->data();
        }
        EXPECT_EQ(run(kernel, &args, n_threads), WEIR_OK) << text(kernel, wide);
        return out;
    }
    // The same by one call for each of the splits.
    Floats attend_splits(const weir_kernel &kernel) const
    {
        const size_t n = (size_t)(shape.n_rows * shape.heads);
        Floats out(n * (size_t)value_dim, NAN), partials(n * (size_t)(2 + value_dim), NAN);
        const std::vector<weir_kv_segment> segments = {
            pages.segment(0, shape.n_rows, shape.n_past)
        };
        Shape wide = shape;
        wide.value_dim = value_dim;
        weir_attention_args args = args_of(wide, q.data(), out.data(), segments);
        args.value_aliases_key = true, args.partials = partials.data();
        const int32_t n_splits = (shape.n_past + shape.n_rows - 1) / WEIR_ATTENTION_SPLIT + 1;
        for (int32_t split = 0; split < n_splits; split++) {
            args.first_split = split, args.end_split = split + 1;
            args.is_last = split + 1 == n_splits;
            EXPECT_EQ(run(kernel, &args), WEIR_OK);
        }
        return out;
    }
};

std::vector<weir_kv_format> formats_of_latents(int64_t key_dim)
{
    std::vector<weir_kv_format> all;
    for (int f = 0; f < WEIR_KV_FORMAT_COUNT; f++)
        if (!weir_kv_alias_reject((weir_kv_format)f, {}, key_dim, key_dim / 2))
            all.push_back((weir_kv_format)f);
    return all;
}

// Heads, key and value dims, past, rows, window. Below and above a group of 16 rows and a unit of
// 32, dims that fill no step of 32, ends of pages and splits.
const Shape shapes[] = { { 1, 1, 40, 32, 0, 1, 0, WEIR_KV_F16, WEIR_KV_F16 },
                         { 3, 1, 40, 24, 31, 5, 0, WEIR_KV_F16, WEIR_KV_F16 },
                         { 16, 1, 576, 512, 70, 1, 0, WEIR_KV_F16, WEIR_KV_F16 },
                         { 16, 1, 576, 512, 30, 3, 0, WEIR_KV_F16, WEIR_KV_F16 },
                         { 40, 1, 96, 64, 120, 3, 0, WEIR_KV_F16, WEIR_KV_F16 },
                         { 5, 1, 72, 72, 1010, 30, 0, WEIR_KV_F16, WEIR_KV_F16 },
                         { 6, 2, 50, 41, 2040, 20, 0, WEIR_KV_F16, WEIR_KV_F16 },
                         { 4, 1, 64, 32, 1500, 30, 600, WEIR_KV_F16, WEIR_KV_F16 } };

TEST(LatentAttention, TilesMatchRef)
{
    const std::vector<Shape> all(std::begin(shapes), std::end(shapes));
    for (const Shape &some : every_nth(all, 3))
        for (const weir_kv_format format : formats_of_latents(some.key_dim)) {
            if (format == WEIR_KV_F32) continue;
            if (some.n_past > 1000 && format != WEIR_KV_F16 && format != WEIR_KV_INT8) continue;
            Shape shape = some;
            shape.k_format = shape.v_format = format;
            Latents sequence(shape, 7);
            sequence.softcap = shape.heads == 5 ? 20 : 0, sequence.sink = shape.heads == 3;
            const bool has_logits = shape.window == 0 && shape.kv_heads == 1;
            Floats lse, logits, want_lse, want_logits;
            const Floats want = sequence.attend(
                weir_kernel_ref_attention, 0, shape.n_rows, &want_lse,
                has_logits ? &want_logits : nullptr
            );
            for (const weir_kernel *kernel : tile_rows()) {
                const Floats got =
                    sequence.attend(*kernel, 0, shape.n_rows, &lse, has_logits ? &logits : nullptr);
                const std::string what = text(*kernel, shape);
                expect_close(got, want, kernel->atol, kernel->rtol, what);
                expect_close(lse, want_lse, kernel->atol, kernel->rtol, what + " lse");
                expect_close(logits, want_logits, kernel->atol, kernel->rtol, what + " logits");
            }
        }
}

TEST(LatentAttention, SteepScoresMatchRef)
{
    Latents sequence({ 16, 1, 576, 512, 300, 2, 0, WEIR_KV_F16, WEIR_KV_F16 }, 19);
    for (float &q : sequence.q) q *= 8;
    const Floats want = sequence.attend(weir_kernel_ref_attention, 0, 2);
    for (const weir_kernel *kernel : tile_rows())
        expect_close(sequence.attend(*kernel, 0, 2), want, 1e-4, 1e-4, kernel->name);
}

TEST(LatentAttention, BitsDoNotDependOnChunks)
{
    for (const Shape &some : shapes)
        for (const weir_kv_format format : { WEIR_KV_F16, WEIR_KV_INT8 }) {
            Shape shape = some;
            shape.k_format = shape.v_format = format;
            const Latents sequence(shape, 11);
            for (const weir_kernel *kernel : tile_rows()) {
                if (kernel == tile_rows()[0] && (shape.key_dim > 100 || shape.n_past > 1000))
                    continue; /* half a minute */
                const Floats whole = sequence.attend(*kernel, 0, shape.n_rows);
                EXPECT_TRUE(
                    same_bits(whole, sequence.attend(*kernel, 0, shape.n_rows, nullptr, nullptr, 1))
                ) << text(*kernel, shape);
                EXPECT_TRUE(same_bits(whole, sequence.attend_splits(*kernel)))
                    << text(*kernel, shape);
                for (const int32_t chunk : { 1, 7 }) {
                    Floats pieces;
                    for (int32_t first = 0; first < shape.n_rows; first += chunk) {
                        const Floats piece =
                            sequence.attend(*kernel, first, std::min(chunk, shape.n_rows - first));
                        pieces.insert(pieces.end(), piece.begin(), piece.end());
                    }
                    EXPECT_TRUE(same_bits(whole, pieces))
                        << text(*kernel, shape) << " chunk " << chunk;
                }
            }
        }
}

// Keys W_UK c and values W_UV c of each head, as published; the kernels get W_UK^T q and give u,
// and W_UV u is the head's output (DeepSeek-V2, section 2.1).
TEST(LatentAttention, AbsorbedEqualsExpanded)
{
    const int64_t heads = 8, rank = 512, rope = 64, nope = 128, v_dim = 128;
    const int32_t n_past = 200, n_rows = 3;
    Latents sequence(
        { heads, 1, rank + rope, rank, n_past, n_rows, 0, WEIR_KV_F16, WEIR_KV_F16 }, 3
    );
    for (float &x : sequence.k) x = (float)(_Float16)x;
    sequence.write(0, n_past + n_rows);
    const Floats k_b = random_floats((size_t)(heads * nope * rank), 21, 0.05f),
                 v_b = random_floats((size_t)(heads * v_dim * rank), 22, 0.05f),
                 q = random_floats((size_t)(n_rows * heads * (nope + rope)), 23);
    const auto multiply = [](const float *matrix, int64_t n_out, int64_t n_in, const auto *x) {
        std::vector<double> y((size_t)n_out);
        for (int64_t o = 0; o < n_out; o++)
            for (int64_t i = 0; i < n_in; i++) y[(size_t)o] += (double)matrix[o * n_in + i] * x[i];
        return y;
    };
    const double scale = 1 / std::sqrt((double)sequence.shape.key_dim); /* args_of */
    Floats want;
    for (int64_t t = 0; t < n_rows; t++)
        for (int64_t h = 0; h < heads; h++) {
            const float *const own = &q[(size_t)((t * heads + h) * (nope + rope))];
            std::vector<double> scores, sum((size_t)v_dim);
            double total = 0;
            for (int64_t p = 0; p <= n_past + t; p++) {
                const float *const row = &sequence.k[(size_t)(p * (rank + rope))];
                const auto key = multiply(&k_b[(size_t)(h * nope * rank)], nope, rank, row);
                double score = 0;
                for (int64_t d = 0; d < nope; d++) score += own[d] * key[(size_t)d];
                for (int64_t d = 0; d < rope; d++) score += (double)own[nope + d] * row[rank + d];
                scores.push_back(scale * score);
            }
            const double highest = *std::max_element(scores.begin(), scores.end());
            for (int64_t p = 0; p <= n_past + t; p++) {
                const double weight = std::exp(scores[(size_t)p] - highest);
                const auto value = multiply(
                    &v_b[(size_t)(h * v_dim * rank)], v_dim, rank,
                    &sequence.k[(size_t)(p * (rank + rope))]
                );
                for (int64_t d = 0; d < v_dim; d++) sum[(size_t)d] += weight * value[(size_t)d];
                total += weight;
            }
            for (const double x : sum) want.push_back((float)(x / total));
            float *const absorbed = &sequence.q[(size_t)((t * heads + h) * (rank + rope))];
            for (int64_t i = 0; i < rank; i++) {
                double x = 0;
                for (int64_t d = 0; d < nope; d++)
                    x += (double)k_b[(size_t)((h * nope + d) * rank + i)] * own[d];
                absorbed[i] = (float)x;
            }
            std::copy_n(own + nope, rope, absorbed + rank);
        }
    std::vector<const weir_kernel *> kernels = omp_rows(WEIR_OP_ATTENTION);
    for (const weir_kernel *kernel : tile_rows()) kernels.push_back(kernel);
    for (const weir_kernel *kernel : kernels) {
        const Floats sums = sequence.attend(*kernel, 0, n_rows);
        Floats got;
        for (int64_t row = 0; row < n_rows * heads; row++)
            for (const double x : multiply(
                     &v_b[(size_t)(row % heads * v_dim * rank)], v_dim, rank,
                     &sums[(size_t)(row * rank)]
                 ))
                got.push_back((float)x);
        expect_close(got, want, 1e-4, 0, kernel->name);
    }
}

TEST(LatentAttention, TilesRefuseWhatTheyDoNotMultiply)
{
    const weir_kernel &kernel = weir_kernel_omp_attention_amx;
    weir_caps caps = {};
    weir_attention_args args = {};
    args.n_heads = 16, args.n_kv_heads = 1, args.key_dim = 576, args.value_dim = 512;
    args.k_format = WEIR_KV_F16, args.value_aliases_key = true;
    EXPECT_STREQ(kernel.reject(&caps, &args), "needs AMX-BF16");
    caps.amx_bf16 = true;
    EXPECT_EQ(kernel.reject(&caps, &args), nullptr);
    args.value_aliases_key = false, args.v_format = WEIR_KV_F16;
    EXPECT_STREQ(kernel.reject(&caps, &args), "needs values that alias keys");
    args.value_aliases_key = true, args.k_format = WEIR_KV_F32;
    EXPECT_STREQ(kernel.reject(&caps, &args), "f32 rows are multiplied as f32");
    args.k_format = WEIR_KV_F16, args.sinks.n_pages = 1;
    args.sinks.pair = { WEIR_KV_F32, WEIR_KV_F32 };
    EXPECT_STREQ(kernel.reject(&caps, &args), "f32 rows are multiplied as f32");
    args.sinks.pair = { WEIR_KV_BF16, WEIR_KV_BF16 };
    EXPECT_EQ(kernel.reject(&caps, &args), nullptr);
}

} // namespace
} // namespace weir_test
