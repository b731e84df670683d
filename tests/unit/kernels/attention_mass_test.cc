// tests/unit/kernels/attention_mass_test.cc - what attention gives away (log-sum-exp, logits), and
// what attention_mass makes of it.
#include <algorithm>
#include <functional>

#include "kernels/abi/attention_partials.h"
#include "tests/every_nth.h"
#include "tests/unit/kernels/attention_support.h"

namespace weir_test {
namespace {

// ---- log-sum-exp and logits ---------------------------------------------------------------------
struct Given {
    Floats out, lse, logits; // [T, H, value_dim], [T, H], [H, stride]
    int64_t stride = 0;
};

// All rows of a sequence, at once or a split at a time.
Given give(const weir_kernel &kernel, const Sequence &sequence, bool in_pieces = false)
{
    const Shape &shape = sequence.shape;
    const size_t n = (size_t)(shape.n_rows * shape.heads);
    const int32_t n_splits =
        in_pieces ? (shape.n_past + shape.n_rows - 1) / WEIR_ATTENTION_SPLIT + 1 : 1;
    Given given;
    given.stride = shape.n_past + shape.n_rows + 5;
    given.out.assign(n * (size_t)shape.value_dim, NAN), given.lse.assign(n, NAN);
    given.logits.assign((size_t)(shape.heads * given.stride), 7.0f);
    Floats partials(n * (size_t)weir_attention_partials_floats(shape.value_dim), NAN);
    std::vector<weir_kv_segment> segments = {
        sequence.pages.segment(0, shape.n_rows, shape.n_past)
    };
    segments[0].logits = given.logits.data(), segments[0].logits_stride = given.stride;
    weir_attention_args args = args_of(shape, sequence.q.data(), given.out.data(), segments);
    args.lse = given.lse.data();
    for (int32_t split = 0; split < n_splits; split++) {
        args.partials = in_pieces ? partials.data() : nullptr;
        args.first_split = split, args.end_split = split + 1, args.is_last = split + 1 == n_splits;
        EXPECT_EQ(run(kernel, &args), WEIR_OK) << text(kernel, shape);
        const int64_t done =
            in_pieces ? std::min<int64_t>((split + 1) * WEIR_ATTENTION_SPLIT, given.stride - 5)
                      : given.stride - 5;
        for (int64_t h = 0; h < shape.heads; h++)
            for (int64_t j = done; j < given.stride; j++)
                EXPECT_EQ(given.logits[(size_t)(h * given.stride + j)], 7.0f)
                    << text(kernel, shape) << " slot " << j << " is not the call's";
    }
    return given;
}

// scale * q . K as coded, in f64; [H][slots] of one row.
std::vector<std::vector<double>> logits_of(const Sequence &sequence, int32_t row)
{
    const Shape &s = sequence.shape;
    const int32_t n = s.n_past + s.n_rows;
    Floats k((size_t)(n * s.kv_heads * s.key_dim));
    const std::vector<weir_kv_segment> segments = { sequence.pages.segment(0, n, 0) };
    weir_kv_read_args args = {};
    args.k = k.data(), args.segments = segments.data(), args.n_segments = 1,
    args.n_kv_heads = s.kv_heads;
    args.key_dim = s.key_dim, args.value_dim = s.value_dim, args.k_stride = s.kv_heads * s.key_dim;
    args.k_format = s.k_format, args.v_format = s.v_format;
    EXPECT_EQ(run(weir_kernel_ref_kv_read, &args), WEIR_OK);
    std::vector<std::vector<double>> all((size_t)s.heads);
    for (int64_t h = 0; h < s.heads; h++)
        for (int64_t j = 0; j <= s.n_past + row; j++) {
            const float *const q = &sequence.q[(size_t)((row * s.heads + h) * s.key_dim)];
            const float *const key =
                &k[(size_t)((j * s.kv_heads + h / (s.heads / s.kv_heads)) * s.key_dim)];
            double sum = 0;
            for (int64_t d = 0; d < s.key_dim; d++) sum += (double)q[d] * (double)key[d];
            all[(size_t)h].push_back(sum / std::sqrt((double)s.key_dim));
        }
    return all;
}

double lse_of(const std::vector<double> &logits)
{
    const double highest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double x : logits) sum += std::exp(x - highest);
    return highest + std::log(sum);
}

// Decode and prefill, over splits, groups that do not divide a register block, and rows of a token
// that fall into two units.
const Shape shapes[] = {
    { 4, 2, 32, 32, 0, 1, 0, WEIR_KV_F32, WEIR_KV_F32 },
    { 4, 2, 32, 32, 2100, 1, 0, WEIR_KV_F16, WEIR_KV_F16 },
    { 7, 1, 64, 32, 1020, 12, 0, WEIR_KV_Q8_0, WEIR_KV_F16 },
    { 12, 2, 64, 64, 50, 33, 0, WEIR_KV_TURBO4, WEIR_KV_TURBO4 },
    { 40, 1, 32, 20, 990, 3, 0, WEIR_KV_F32, WEIR_KV_F32 },
    { 3, 3, 48, 16, 31, 70, 0, WEIR_KV_F16, WEIR_KV_BF16 },
    { 2, 1, 32, 32, 1023, 66, 0, WEIR_KV_F32, WEIR_KV_Q8_0 },
};

TEST(AttentionGives, LseAndLogits)
{
    for (const Shape &shape : shapes) {
        const Sequence sequence(shape, 51);
        for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION))
            for (const bool in_pieces : { false, true }) {
                const Given given = give(*kernel, sequence, in_pieces);
                for (int32_t row = 0; row < shape.n_rows; row++) {
                    const auto logits = logits_of(sequence, row);
                    for (int64_t h = 0; h < shape.heads; h++) {
                        const double want = lse_of(logits[(size_t)h]);
                        ASSERT_NEAR(
                            given.lse[(size_t)(row * shape.heads + h)], want,
                            1e-6 + 1e-6 * std::fabs(want)
                        ) << text(*kernel, shape)
                          << " row " << row;
                        for (size_t j = 0; row == shape.n_rows - 1 && j < logits[(size_t)h].size();
                             j++)
                            ASSERT_NEAR(
                                given.logits[(size_t)(h * given.stride) + j], logits[(size_t)h][j],
                                4e-6
                            ) << text(*kernel, shape)
                              << " head " << h << " slot " << j;
                    }
                }
                if (kernel->backend == WEIR_BACKEND_REF && shape.n_past > 0)
                    break; // one way is slow enough
            }
    }
}

TEST(AttentionGives, OutKeepsItsBits)
{
    for (const Shape &shape : shapes) {
        const Sequence sequence(shape, 53);
        for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION)) {
            const Floats out = attend(*kernel, sequence, 0, shape.n_rows);
            EXPECT_TRUE(same_bits(out, give(*kernel, sequence).out)) << text(*kernel, shape);
            EXPECT_TRUE(same_bits(out, give(*kernel, sequence, true).out)) << text(*kernel, shape);
        }
    }
}

TEST(AttentionGives, RefusesLogitsThatHaveNoRoom)
{
    const Shape shape = { 2, 1, 32, 32, 10, 2, 0, WEIR_KV_F16, WEIR_KV_F16 };
    const Sequence sequence(shape, 5);
    Floats out(2 * 2 * 32), logits(24);
    std::vector<weir_kv_segment> segments = { sequence.pages.segment(0, 2, 10) };
    weir_attention_args args = args_of(shape, sequence.q.data(), out.data(), segments);
    for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION)) {
        segments[0].logits = logits.data(), segments[0].logits_stride = 11, args.window = 0;
        EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL) << kernel->name;
        segments[0].logits_stride = 12;
        EXPECT_EQ(run(*kernel, &args), WEIR_OK) << kernel->name;
        args.window = 4;
        EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL) << kernel->name;
    }
}

// ---- mass ---------------------------------------------------------------------------------------
struct Mass {
    Floats mass, below, last; // [H, slots]
};

struct Slots { // end 0: all
    int32_t first = 0, end = 0;
};

// Of a sequence, by segments of these ranges of heads; `logits`: as given, or NULL. Pages of other
// slots are not there.
Mass observe(
    const weir_kernel &kernel, const Sequence &sequence, Given &given, bool with_logits,
    const std::vector<int32_t> &ends, int n_threads = 2, Slots part = {}
)
{
    const Shape &s = sequence.shape;
    const int64_t slots = s.n_past + s.n_rows, group = s.heads / s.kv_heads;
    Mass all = { Floats((size_t)(s.heads * slots), NAN), Floats((size_t)(s.heads * slots), NAN),
                 Floats((size_t)(s.heads * slots), NAN) };
    std::vector<weir_attention_mass_segment> segments;
    weir_kv_segment whole = sequence.pages.segment(0, s.n_rows, s.n_past);
    std::vector<void *> pages(whole.pages, whole.pages + s.kv_heads * whole.page_stride);
    for (int64_t p = 0; part.end > 0 && p < (int64_t)pages.size(); p++) {
        const int64_t slot = p % whole.page_stride * WEIR_PAGE_TOKENS;
        if (slot < part.first || slot >= part.end) pages[(size_t)p] = nullptr;
    }
    whole.pages = pages.data();
    for (const weir_kv_segment &range : cut(whole, ends)) {
        const int64_t at = range.first_head * group;
        segments.push_back({ range, &all.mass[(size_t)(at * slots)],
                             &all.below[(size_t)(at * slots)], &all.last[(size_t)(at * slots)],
                             slots, part.first, part.end });
        if (!with_logits) continue;
        segments.back().rows.logits = &given.logits[(size_t)(at * given.stride)],
        segments.back().rows.logits_stride = given.stride;
    }
    weir_attention_mass_args args = {};
    args.q = sequence.q.data(), args.lse = given.lse.data(), args.segments = segments.data(),
    args.n_segments = (int64_t)segments.size();
    args.n_heads = s.heads, args.n_kv_heads = s.kv_heads, args.key_dim = s.key_dim;
    args.q_stride = s.heads * s.key_dim, args.q_head_stride = s.key_dim,
    args.scale = 1.0f / std::sqrt((float)s.key_dim);
    args.k_format = s.k_format;
    EXPECT_EQ(run(kernel, &args, n_threads), WEIR_OK) << text(kernel, s);
    return all;
}

std::vector<Shape> mass_shapes()
{
    std::vector<Shape> all(std::begin(shapes), std::end(shapes));
    for (const weir_kv_format format : { WEIR_KV_INT8, WEIR_KV_KIVI2, WEIR_KV_KIVI4, WEIR_KV_Q4_0,
                                         WEIR_KV_FP8_E4M3, WEIR_KV_TURBO3 })
        all.push_back({ 6, 2, 32, 32, 300, 80, 0, format, WEIR_KV_F16 });
    all.push_back({ 4, 2, 64, 64, 1100, 1, 0, WEIR_KV_INT8, WEIR_KV_INT8 });
    return all;
}

TEST(AttentionMass, MatchesRefAndSumsToTheRows)
{
    for (const Shape &shape : every_nth(mass_shapes(), 2)) {
        const Sequence sequence(shape, 61);
        const std::vector<int32_t> whole = { (int32_t)shape.kv_heads };
        const int64_t slots = shape.n_past + shape.n_rows;
        Given given = give(*omp_rows(WEIR_OP_ATTENTION)[0], sequence);
        const Mass want = observe(weir_kernel_ref_attention_mass, sequence, given, false, whole);
        for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION_MASS)) {
            const Mass got = observe(*kernel, sequence, given, false, whole);
            expect_close(got.mass, want.mass, kernel->atol, kernel->rtol, text(*kernel, shape));
            expect_close(got.last, want.last, kernel->atol, kernel->rtol, text(*kernel, shape));
            int64_t n_close = 0; // a weight at the mean may count or not
            for (size_t i = 0; i < got.below.size(); i++) {
                ASSERT_NEAR(got.below[i], want.below[i], 1) << text(*kernel, shape) << " " << i;
                n_close += got.below[i] != want.below[i];
            }
            EXPECT_LE(n_close, 2) << text(*kernel, shape);
            for (int64_t h = 0; h < shape.heads; h++) {
                double sum = 0, last = 0;
                for (int64_t j = 0; j < slots; j++)
                    sum += got.mass[(size_t)(h * slots + j)],
                        last += got.last[(size_t)(h * slots + j)];
                EXPECT_NEAR(sum / shape.n_rows, 1, 1e-4) << text(*kernel, shape) << " head " << h;
                EXPECT_NEAR(last, 1, 1e-4) << text(*kernel, shape) << " head " << h;
            }
        }
    }
}

TEST(AttentionMass, KeptLogitsGiveThePassOverK)
{
    for (const Shape &shape : mass_shapes()) {
        if (shape.n_rows > 1) continue;
        const Sequence sequence(shape, 67);
        const std::vector<int32_t> whole = { (int32_t)shape.kv_heads };
        for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION_MASS)) {
            Given given = give(*omp_rows(WEIR_OP_ATTENTION)[0], sequence);
            const Mass pass = observe(*kernel, sequence, given, false, whole),
                       kept = observe(*kernel, sequence, given, true, whole);
            for (size_t i = 0; i < pass.mass.size(); i++) {
                ASSERT_NEAR(kept.mass[i], pass.mass[i], 1e-6) << text(*kernel, shape) << " " << i;
                ASSERT_EQ(kept.mass[i], kept.last[i]) << text(*kernel, shape) << " " << i;
                ASSERT_EQ(
                    kept.below[i], (double)kept.mass[i] * (shape.n_past + 1) < 1 && shape.n_past > 0
                ) << text(*kernel, shape)
                  << " " << i;
            }
        }
    }
}

// Threads, and cuts of the heads, some of whose segments are done from logits.
TEST(AttentionMass, BitsDoNotDependOnTheWork)
{
    for (const Shape &shape : { Shape{ 8, 4, 32, 32, 700, 1, 0, WEIR_KV_F16, WEIR_KV_F16 },
                                Shape{ 12, 4, 32, 32, 500, 90, 0, WEIR_KV_TURBO4, WEIR_KV_F16 },
                                Shape{ 8, 4, 32, 32, 200, 70, 0, WEIR_KV_KIVI4, WEIR_KV_F16 } }) {
        const Sequence sequence(shape, 71);
        for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION_MASS)) {
            if (kernel->backend == WEIR_BACKEND_REF && shape.n_rows > 1) continue;
            Given given = give(*omp_rows(WEIR_OP_ATTENTION)[0], sequence);
            for (const bool with_logits : { false, shape.n_rows == 1 }) {
                const Mass whole = observe(*kernel, sequence, given, with_logits, { 4 }, 1);
                for (const std::vector<int32_t> &ends :
                     { std::vector<int32_t>{ 4 }, { 1, 4 }, { 1, 2, 3, 4 } }) {
                    const Mass parts = observe(*kernel, sequence, given, with_logits, ends, 3);
                    EXPECT_TRUE(
                        same_bits(whole.mass, parts.mass) && same_bits(whole.below, parts.below) &&
                        same_bits(whole.last, parts.last)
                    ) << text(*kernel, shape)
                      << " ranges " << ends.size();
                }
            }
        }
    }
}

// The part of `whole` that a call for some slots gives, and nothing else.
void expect_part(
    const Floats &got, const Floats &whole, int64_t n_slots, Slots part, const std::string &what
)
{
    for (size_t i = 0; i < got.size(); i++) {
        const int64_t slot = (int64_t)i % n_slots;
        const bool is_in = slot >= part.first && slot < part.end;
        ASSERT_TRUE(is_in ? memcmp(&got[i], &whole[i], sizeof(float)) == 0 : std::isnan(got[i]))
            << what << ": slots " << part.first << " to " << part.end << ", element " << i << " is "
            << got[i] << " for " << whole[i];
    }
}

// Whatever is asked for: before the rows, among them, up to the last, and after it.
TEST(AttentionMass, PartsAreThoseOfTheWhole)
{
    for (const Shape &shape : { Shape{ 8, 4, 32, 32, 1100, 1, 0, WEIR_KV_F16, WEIR_KV_F16 },
                                Shape{ 8, 2, 32, 32, 1000, 90, 0, WEIR_KV_F32, WEIR_KV_F32 },
                                Shape{ 6, 2, 32, 32, 500, 140, 0, WEIR_KV_TURBO4, WEIR_KV_F16 },
                                Shape{ 4, 2, 32, 32, 290, 100, 0, WEIR_KV_INT8, WEIR_KV_F16 },
                                Shape{ 4, 2, 32, 32, 200, 70, 0, WEIR_KV_KIVI4, WEIR_KV_F16 } }) {
        const Sequence sequence(shape, 83);
        const int32_t n = shape.n_past + shape.n_rows;
        const std::vector<int32_t> whole = { (int32_t)shape.kv_heads },
                                   halves = { 1, (int32_t)shape.kv_heads };
        Given given = give(*omp_rows(WEIR_OP_ATTENTION)[0], sequence);
        for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION_MASS))
            for (const bool with_logits : { false, true }) {
                if (kernel->backend == WEIR_BACKEND_REF && (with_logits || n > 600)) continue;
                const Mass all = observe(*kernel, sequence, given, with_logits, whole);
                for (const Slots part :
                     { Slots{ 0, 64 }, Slots{ 64, 192 }, Slots{ 192, n }, Slots{ 128, n + 500 },
                       Slots{ shape.n_past / 64 * 64, n }, Slots{ 64, 100 }, Slots{ 0, n - 1 },
                       Slots{ 128, 128 }, Slots{ (n / 64 + 1) * 64, n + 200 } }) {
                    const Mass got =
                        observe(*kernel, sequence, given, with_logits, halves, 3, part);
                    const Slots written = { part.first, std::min(part.end, n) };
                    expect_part(got.mass, all.mass, n, written, "mass " + text(*kernel, shape));
                    expect_part(got.below, all.below, n, written, "below " + text(*kernel, shape));
                    expect_part(got.last, all.last, n, written, "last " + text(*kernel, shape));
                    ASSERT_FALSE(testing::Test::HasFatalFailure());
                }
            }
    }
}

// One key of a row's two has 3/4 of it: above the mean, the other below. A row that sees itself
// alone is at the mean.
TEST(AttentionMass, ClosedForm)
{
    const Shape shape = { 1, 1, 4, 4, 0, 2, 0, WEIR_KV_F32, WEIR_KV_F32 };
    Sequence sequence(shape, 1);
    sequence.q = { 1, 2, 3, 4, 2 * std::log(3.0f), 0, 0, 0 };
    sequence.k = { 0, 5, 5, 5, 1, 6, 7, 8 };
    sequence.write(0, 2);
    for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION_MASS)) {
        Given given = give(weir_kernel_ref_attention, sequence);
        const Mass got = observe(*kernel, sequence, given, false, { 1 });
        expect_close(got.mass, { 1.25f, 0.75f }, 4e-6, 0, kernel->name);
        expect_close(got.last, { 0.25f, 0.75f }, 4e-6, 0, kernel->name);
        EXPECT_EQ(got.below, (Floats{ 1, 0 })) << kernel->name;
    }
}

TEST(AttentionMass, RefusesWhatItCannot)
{
    const Shape shape = { 4, 2, 32, 32, 40, 3, 0, WEIR_KV_INT8, WEIR_KV_F16 };
    const Sequence sequence(shape, 5);
    Floats mass(4 * 43), lse(3 * 4), logits(4);
    weir_attention_mass_segment segment = {
        sequence.pages.segment(0, 3, 40), mass.data(), nullptr, nullptr, 43, 0, 0
    };
    const auto fits = segment;
    weir_attention_mass_args args = {};
    args.q = sequence.q.data(), args.lse = lse.data(), args.segments = &segment,
    args.n_segments = 1, args.n_heads = 4, args.n_kv_heads = 2;
    args.key_dim = 32, args.q_stride = 128, args.q_head_stride = 32, args.scale = 1,
    args.k_format = WEIR_KV_INT8;
    for (const weir_kernel *kernel : rows_and_ref(WEIR_OP_ATTENTION_MASS)) {
        const auto run_with = [&](const std::function<void()> &change) {
            segment = fits;
            change();
            return run(*kernel, &args);
        };
        EXPECT_EQ(run_with([] {}), WEIR_OK) << kernel->name << ": outputs may be NULL";
        EXPECT_EQ(run_with([&] { segment.stride = 42; }), WEIR_EINVAL) << kernel->name;
        EXPECT_EQ(run_with([&] { segment.first_slot = 32; }), WEIR_EINVAL) << kernel->name;
        EXPECT_EQ(run_with([&] { segment.first_slot = -64; }), WEIR_EINVAL) << kernel->name;
        EXPECT_EQ(run_with([&] { segment.end_slot = -1; }), WEIR_EINVAL) << kernel->name;
        EXPECT_EQ(
            run_with([&] { segment.first_slot = INT32_MAX / 64 * 64, segment.end_slot = INT32_MAX; }
            ),
            WEIR_OK
        ) << kernel->name;
        EXPECT_EQ(run_with([&] { segment.rows.first_head = 1; }), WEIR_EINVAL) << kernel->name;
        EXPECT_EQ(
            run_with([&] { segment.rows.first_head = -1, segment.rows.n_heads = 1; }), WEIR_EINVAL
        ) << kernel->name;
        EXPECT_EQ(run_with([&] { segment.rows.n_heads = INT32_MAX; }), WEIR_EINVAL) << kernel->name;
        EXPECT_EQ(run_with([&] { segment.rows.n_past = -1; }), WEIR_EINVAL) << kernel->name;
        EXPECT_EQ(
            run_with([&] { segment.rows.n_past = INT32_MAX, segment.stride = INT64_MAX; }),
            WEIR_EINVAL
        ) << kernel->name;
        EXPECT_EQ(run_with([&] { segment.rows.unsealed_pages = nullptr; }), WEIR_EINVAL)
            << kernel->name;
        EXPECT_EQ(
            run_with([&] {
                segment.rows.n_rows = 1, segment.rows.logits = logits.data(),
                segment.rows.logits_stride = 40;
            }),
            WEIR_EINVAL
        ) << kernel->name;
        EXPECT_EQ(run_with([&] { segment.rows.n_rows = 0, segment.rows.pages = nullptr; }), WEIR_OK)
            << kernel->name;
        args.k_format = WEIR_KV_TURBO4, args.key_dim = 24;
        EXPECT_EQ(run_with([] {}), WEIR_EUNSUPPORTED) << kernel->name;
        args.k_format = WEIR_KV_INT8, args.key_dim = 32, args.n_heads = 3;
        EXPECT_EQ(run_with([] {}), WEIR_EINVAL) << kernel->name;
        args.n_heads = 4;
    }
}

// Numbers that are none give some bits, and end.
TEST(AttentionMass, GarbageStaysInItsHeads)
{
    const Shape shape = { 4, 2, 32, 32, 270, 40, 0, WEIR_KV_F16, WEIR_KV_F16 };
    const Sequence clean(shape, 5);
    Sequence sequence(shape, 5);
    const float bad[] = { NAN, INFINITY, -INFINITY, 1e38f, -1e38f };
    for (size_t i = 0; i < sequence.q.size(); i += 7)
        if (i % (4 * 32) < 2 * 32) sequence.q[i] = bad[i % 5];
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_ATTENTION_MASS)) {
        Given given = give(*omp_rows(WEIR_OP_ATTENTION)[0], clean);
        const Mass want = observe(*kernel, clean, given, false, { 2 });
        given = give(*omp_rows(WEIR_OP_ATTENTION)[0], sequence);
        const Mass got = observe(*kernel, sequence, given, false, { 2 });
        const size_t half = got.mass.size() / 2;
        for (const auto &[a, b] : { std::pair{ &got.mass, &want.mass },
                                    { &got.below, &want.below },
                                    { &got.last, &want.last } })
            EXPECT_TRUE(same_bits(
                { a->begin() + (ptrdiff_t)half, a->end() },
                { b->begin() + (ptrdiff_t)half, b->end() }
            )) << kernel->name;
        EXPECT_FALSE(same_bits(got.mass, want.mass)) << kernel->name << ": nothing was tested";
    }
}

} // namespace
} // namespace weir_test
