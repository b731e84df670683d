// Cases of the ops that look along a sequence: kv_write, attention, conv1d, gated delta rule.
#include <algorithm>
#include <cmath>

#include "kernels/ref/kv_codec.h"
#include "tests/kernel/cases_internal.h"

namespace weir_test {
namespace {

struct Span { // one sequence in the batch
    int32_t n_rows, n_past;
};
using Spans = std::vector<Span>;

std::string text_of(const Spans &spans)
{
    std::string text;
    for (const auto &span : spans) text += "_" + std::to_string(span.n_rows) + "at" + std::to_string(span.n_past);
    return text;
}

int64_t rows_of(const Spans &spans)
{
    int64_t n = 0;
    for (const auto &span : spans) n += span.n_rows;
    return n;
}

struct Kv {
    int64_t        n_kv_heads, key_dim, value_dim;
    weir_kv_format k_format, v_format;
    weir_kv_sinks  sinks = {};
};

std::string name_of(weir_kv_pair pair)
{
    const std::string k = weir_kv_format_name(pair.k), v = weir_kv_format_name(pair.v);
    return k == v ? k : k + "_" + v;
}

std::string name_of(const Kv &kv)
{
    const std::string sinks = kv.sinks.n_pages > 0 ? "_after_" + std::to_string(kv.sinks.n_pages) + "_" + name_of(kv.sinks.pair) : "";
    return name_of(weir_kv_pair{ kv.k_format, kv.v_format }) + sinks;
}

// As page number `page` has it.
Kv at(const Kv &kv, int64_t page)
{
    const weir_kv_pair pair = weir_kv_pair_at({ kv.k_format, kv.v_format }, kv.sinks, page);
    return { kv.n_kv_heads, kv.key_dim, kv.value_dim, pair.k, pair.v };
}

size_t bytes_of(const Kv &kv) { return (size_t)weir_kv_bytes(kv.k_format, kv.v_format, kv.key_dim, kv.value_dim); }

constexpr int64_t kMadePages = 50;

struct Page {
    void *coded, *open; // open: NULL when no part needs it
};

// A page with its first n_tokens rows filled and the rest zero, as the contract promises.
Page page_of(Builder &b, const Kv &kv, int64_t n_tokens, bool compared)
{
    const size_t bytes = bytes_of(kv);
    const size_t open_bytes = (size_t)weir_kv_open_bytes(kv.k_format, kv.v_format, kv.key_dim, kv.value_dim);
    char        *coded = b.array<char>(bytes), *open = open_bytes > 0 ? b.array<char>(open_bytes) : nullptr;
    std::fill_n(coded, bytes, 0);
    std::fill_n(open, open_bytes, 0);
    const weir_kv_part k = { kv.k_format, WEIR_KV_K, kv.key_dim, coded, open };
    const weir_kv_part v = { kv.v_format, WEIR_KV_V, kv.value_dim, coded + weir_kv_v_part(kv.k_format, kv.key_dim),
                             open ? open + weir_kv_open_v_part(kv.k_format, kv.key_dim) : nullptr };
    std::vector<float> row((size_t)std::max(kv.key_dim, kv.value_dim));
    for (int64_t t = 0; t < n_tokens; t++) {
        for (int64_t d = 0; d < kv.key_dim; d++) row[(size_t)d] = b.normal();
        weir_kv_encode_rows(&k, t, 1, row.data(), 0);
        for (int64_t d = 0; d < kv.value_dim; d++) row[(size_t)d] = b.normal();
        weir_kv_encode_rows(&v, t, 1, row.data(), 0);
    }
    if (compared) b.compare(coded, bytes, WEIR_U8);
    if (compared && open) b.compare(open, open_bytes, WEIR_U8);
    return { coded, open };
}

// What a call does with the rows of its batch: kv_write puts them into pages that are compared; kv_read finds full pages closed and not open;
// attention finds the rows of all pages that they lie in open too.
enum class Use { Write, Read, Attend };

// Pages for all heads of each span. Of long texts only the first pages and the last are made, the others are copies.
weir_kv_segment *kv_segments(Builder &b, const Spans &spans, const Kv &kv, Use use)
{
    const bool   written = use != Use::Write;
    const size_t bytes = bytes_of(kv);
    auto        *segments = b.array<weir_kv_segment>(spans.size());
    int32_t      row = 0;
    for (size_t s = 0; s < spans.size(); s++) {
        const int64_t end = spans[s].n_past + spans[s].n_rows, filled = written ? end : spans[s].n_past;
        const int64_t n_pages = (end + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS, stride = n_pages + 2;
        const int64_t first_page = spans[s].n_past / WEIR_PAGE_TOKENS;
        auto        **pages = b.array<void *>((size_t)(kv.n_kv_heads * stride)), **open = b.array<void *>((size_t)(kv.n_kv_heads * stride));
        for (int64_t g = 0; g < kv.n_kv_heads; g++)
            for (int64_t p = 0; p < n_pages; p++) {
                const int64_t n = std::clamp<int64_t>(filled - p * WEIR_PAGE_TOKENS, 0, WEIR_PAGE_TOKENS);
                const bool    made = p < kMadePages || p >= first_page;
                const Page    page = made ? page_of(b, at(kv, p), n, !written) : Page{ b.array<char>(bytes), nullptr };
                if (!made)
                    std::copy_n(static_cast<const char *>(pages[g * stride + p % kMadePages]), bytes, static_cast<char *>(page.coded));
                pages[g * stride + p] = page.coded;
                if (p >= first_page) open[g * stride + p - first_page] = use == Use::Read && n == WEIR_PAGE_TOKENS ? nullptr : page.open;
            }
        segments[s] = {};
        segments[s].pages = pages, segments[s].page_stride = stride;
        segments[s].first_row = row, segments[s].n_rows = spans[s].n_rows, segments[s].n_past = spans[s].n_past;
        segments[s].open_pages = open, segments[s].open_stride = stride;
        row += spans[s].n_rows;
    }
    return segments;
}

Case kv_write(Spans spans, Kv kv, Fill fill = Fill::Normal)
{
    const int64_t rows = rows_of(spans);
    return { label("kv_write", { kv.n_kv_heads, kv.key_dim, kv.value_dim }) + text_of(spans) + "_" + name_of(kv) + suffix(fill),
             [=](Builder &b, bool) {
                 auto         *args = b.one<weir_kv_write_args>();
                 const int64_t k_stride = kv.n_kv_heads * kv.key_dim + 3, v_stride = kv.n_kv_heads * kv.value_dim + 5;
                 *args = { b.input((size_t)(rows * k_stride), fill),
                           b.input((size_t)(rows * v_stride), fill),
                           kv_segments(b, spans, kv, Use::Write),
                           (int64_t)spans.size(),
                           kv.n_kv_heads,
                           kv.key_dim,
                           kv.value_dim,
                           k_stride,
                           v_stride,
                           kv.k_format,
                           kv.v_format,
                           kv.sinks };
                 return args;
             },
             { (double)(rows * kv.n_kv_heads * (kv.key_dim + kv.value_dim)) * 6, 0 } };
}

// Full pages are read closed, the last one open if it has open rows.
Case kv_read(Spans spans, Kv kv)
{
    const int64_t rows = rows_of(spans);
    return { label("kv_read", { kv.n_kv_heads, kv.key_dim, kv.value_dim }) + text_of(spans) + "_" + name_of(kv),
             [=](Builder &b, bool) {
                 auto         *args = b.one<weir_kv_read_args>();
                 const int64_t k_stride = kv.n_kv_heads * kv.key_dim + 3, v_stride = kv.n_kv_heads * kv.value_dim + 5;
                 *args = { b.output((size_t)(rows * k_stride)),
                           b.output((size_t)(rows * v_stride)),
                           kv_segments(b, spans, kv, Use::Read),
                           (int64_t)spans.size(),
                           kv.n_kv_heads,
                           kv.key_dim,
                           kv.value_dim,
                           k_stride,
                           v_stride,
                           kv.k_format,
                           kv.v_format,
                           kv.sinks };
                 return args;
             },
             { (double)(rows * kv.n_kv_heads * (kv.key_dim + kv.value_dim)) * 6, 0 } };
}

// One text of n_rows in each segment, of which each head keeps every row with this probability in percent, and all of its first n_first.
Case kv_compact(const std::vector<int32_t> &n_rows, Kv kv, uint32_t percent, int32_t n_first)
{
    std::string name = label("kv_compact", { kv.n_kv_heads, kv.key_dim, kv.value_dim, percent, n_first });
    double      rows = 0;
    for (const int32_t n : n_rows) name += "_" + std::to_string(n), rows += n;
    return { name + "_" + name_of(kv),
             [=](Builder &b, bool) {
                 auto *segments = b.array<weir_kv_compact_segment>(n_rows.size());
                 for (size_t s = 0; s < n_rows.size(); s++) {
                     const int64_t n_pages = (n_rows[s] + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS, stride = n_pages + 1;
                     auto         *pages = b.array<void *>((size_t)(kv.n_kv_heads * stride));
                     auto         *keep = b.array<int32_t>((size_t)kv.n_kv_heads * (size_t)(n_rows[s] + 3)),
                          *n_keep = b.array<int32_t>((size_t)kv.n_kv_heads);
                     for (int64_t g = 0; g < kv.n_kv_heads; g++) {
                         for (int64_t p = 0; p < n_pages; p++)
                             pages[g * stride + p] =
                                 page_of(b, at(kv, p), std::min<int64_t>(n_rows[s] - p * WEIR_PAGE_TOKENS, WEIR_PAGE_TOKENS), true).coded;
                         n_keep[g] = 0;
                         for (int32_t row = 0; row < n_rows[s]; row++)
                             if (row < n_first || b.below(100) < percent) keep[g * (n_rows[s] + 3) + n_keep[g]++] = row;
                     }
                     segments[s] = { pages, stride, n_rows[s] + 3, keep, n_keep, nullptr };
                 }
                 auto *args = b.one<weir_kv_compact_args>();
                 *args = { segments, (int64_t)n_rows.size(), kv.n_kv_heads, kv.key_dim, kv.value_dim, kv.k_format, kv.v_format, kv.sinks };
                 return args;
             },
             { rows * percent / 50 / WEIR_PAGE_TOKENS * (double)kv.n_kv_heads * (double)bytes_of(kv), 0 } };
}

// Span: slots n_past .. n_past + n_rows - 1 of the first KV head. n_pairs 0: no lengths.
struct Products {
    int64_t n_vectors, n_pairs;
    bool    is_interleaved = false;
};

Case key_products(Span span, Kv kv, Products p)
{
    kv.n_kv_heads = 1;
    return { label("key_products", { p.n_vectors, p.n_pairs, p.is_interleaved, kv.key_dim }) + text_of({ span }) + "_" + name_of(kv),
             [=](Builder &b, bool) {
                 auto         *args = b.one<weir_key_products_args>();
                 const int64_t stride = span.n_rows + 5;
                 *args = { b.output((size_t)(p.n_vectors * stride)),
                           b.input((size_t)(p.n_vectors * kv.key_dim)),
                           p.n_pairs > 0 ? b.input((size_t)(p.n_vectors * p.n_pairs)) : nullptr,
                           kv_segments(b, { span }, kv, Use::Read),
                           p.n_vectors,
                           stride,
                           kv.key_dim,
                           p.n_pairs,
                           kv.k_format,
                           kv.sinks,
                           p.is_interleaved };
                 return args;
             },
             { (double)span.n_rows / WEIR_PAGE_TOKENS * (double)weir_kv_v_part(kv.k_format, kv.key_dim),
               2 * (double)(span.n_rows * p.n_vectors * (kv.key_dim + p.n_pairs)) } };
}

// Every format on a width that it takes, K and V alike, and some mixed; rows that end within a page, at its end, and past it.
std::vector<Kv> coded_formats()
{
    std::vector<Kv> all;
    for (int f = WEIR_KV_BF16; f < WEIR_KV_FORMAT_COUNT; f++) {
        const auto format = (weir_kv_format)f;
        all.push_back({ 2, 64, 128, format, format });
        for (const int64_t dim : { 16, 20, 45 })
            if (!weir_kv_format_reject(format, WEIR_KV_K, dim) && !weir_kv_format_reject(format, WEIR_KV_V, dim))
                all.push_back({ 1, dim, dim, format, format });
    }
    all.push_back({ 2, 128, 64, WEIR_KV_KIVI4, WEIR_KV_Q4_0 });
    all.push_back({ 1, 32, 32, WEIR_KV_Q8_0, WEIR_KV_INT8 });
    all.push_back({ 1, 77, 32, WEIR_KV_KIVI2, WEIR_KV_TURBO3 });
    all.push_back({ 1, 256, 256, WEIR_KV_TURBO4, WEIR_KV_KIVI2 });
    return all;
}

// The first pages in a format of their own: with open pages and without, turbo's on either side, on both and on none.
std::vector<Kv> formats_with_sinks()
{
    const weir_kv_pair f16 = { WEIR_KV_F16, WEIR_KV_F16 }, f32 = { WEIR_KV_F32, WEIR_KV_F32 };
    return { { 2, 64, 64, WEIR_KV_TURBO4, WEIR_KV_TURBO4, { f16, 1 } },
             { 1, 16, 16, WEIR_KV_TURBO3, WEIR_KV_TURBO2, { { WEIR_KV_BF16, WEIR_KV_INT8 }, 2 } },
             { 1, 512, 256, WEIR_KV_TURBO4, WEIR_KV_Q8_0, { { WEIR_KV_INT8, WEIR_KV_TURBO4 }, 1 } },
             { 1, 128, 32, WEIR_KV_Q8_0, WEIR_KV_TURBO4, { { WEIR_KV_Q8_0, WEIR_KV_Q4_0 }, 1 } },
             { 2, 64, 128, WEIR_KV_Q8_0, WEIR_KV_Q8_0, { f16, 1 } },
             { 2, 64, 32, WEIR_KV_KIVI4, WEIR_KV_KIVI4, { f16, 1 } },
             { 1, 32, 32, WEIR_KV_INT8, WEIR_KV_KIVI2, { { WEIR_KV_Q8_0, WEIR_KV_INT8 }, 2 } },
             { 1, 64, 64, WEIR_KV_F16, WEIR_KV_F16, { { WEIR_KV_KIVI8, WEIR_KV_TURBO4 }, 1 } },
             { 1, 45, 20, WEIR_KV_FP8_E4M3, WEIR_KV_FP8_E4M3, { f32, 1 } },
             { 1, 96, 96, WEIR_KV_Q4_0, WEIR_KV_Q4_0, { { WEIR_KV_Q8_0, WEIR_KV_F16 }, 3 } } };
}

struct Attention {
    int64_t n_heads;
    Kv      kv;
    int32_t window = 0;
    int64_t pad = 0;
    float   sharp = 1; // scale of q: large values make one key win
    bool    is_ragged = false; // KV heads with unequal numbers of rows, and all that attention can give
};

// Segment `whole` of each span as segments of one KV head, of which each later one has five rows less, or as it is.
std::vector<weir_kv_segment> heads_of(const weir_kv_segment *whole, size_t n_spans, const Attention &a)
{
    std::vector<weir_kv_segment> ranges(whole, whole + n_spans);
    if (!a.is_ragged) return ranges;
    ranges.clear();
    for (size_t s = 0; s < n_spans; s++)
        for (int32_t g = 0; g < (int32_t)a.kv.n_kv_heads; g++) {
            weir_kv_segment range = whole[s];
            range.pages += g * range.page_stride, range.open_pages += g * range.open_stride;
            range.first_head = g, range.n_heads = 1;
            range.n_past -= std::min(range.n_past % WEIR_PAGE_TOKENS, 5 * g); // in the same page: later ones may be closed
            ranges.push_back(range);
        }
    return ranges;
}

Case attention(Spans spans, Attention a)
{
    double pairs = 0, tokens = 0;
    for (const auto &span : spans) {
        for (int32_t r = 0; r < span.n_rows; r++) pairs += a.window > 0 ? std::min(a.window, span.n_past + r + 1) : span.n_past + r + 1;
        tokens += span.n_past + span.n_rows;
    }
    const int64_t rows = rows_of(spans), width = a.kv.key_dim + a.kv.value_dim;
    return {
        label("attention", { a.n_heads, a.kv.n_kv_heads, a.kv.key_dim, a.kv.value_dim, a.window, a.pad, (int64_t)a.sharp }) +
            text_of(spans) + "_" + name_of(a.kv) + (a.is_ragged ? "_ragged" : ""),
        [=](Builder &b, bool) {
            auto         *args = b.one<weir_attention_args>();
            const int64_t q_head = a.kv.key_dim + a.pad, q_stride = a.n_heads * q_head + a.pad;
            const int64_t out_stride = a.n_heads * a.kv.value_dim + a.pad;
            args->out = b.output((size_t)(rows * out_stride));
            args->q = b.input((size_t)(rows * q_stride), Fill::Normal, a.sharp);
            args->segments = kv_segments(b, spans, a.kv, Use::Attend);
            args->n_segments = (int64_t)spans.size(), args->n_heads = a.n_heads, args->n_kv_heads = a.kv.n_kv_heads;
            args->key_dim = a.kv.key_dim, args->value_dim = a.kv.value_dim, args->k_format = a.kv.k_format, args->v_format = a.kv.v_format;
            args->sinks = a.kv.sinks;
            args->q_stride = q_stride, args->q_head_stride = q_head, args->out_stride = out_stride;
            args->window = a.window, args->scale = 1 / std::sqrt((float)a.kv.key_dim);
            if (!a.is_ragged) return args;
            const std::vector<weir_kv_segment> ranges = heads_of(args->segments, spans.size(), a);
            auto                              *segments = b.array<weir_kv_segment>(ranges.size());
            for (size_t s = 0; s < ranges.size(); s++) {
                segments[s] = ranges[s];
                segments[s].logits_stride = ranges[s].n_past + ranges[s].n_rows + 3;
                if (a.kv.k_format == WEIR_KV_F16 || s % 3 == 2) continue; // GPUs, which read f16, keep none
                segments[s].logits = b.output((size_t)(a.n_heads / a.kv.n_kv_heads * segments[s].logits_stride));
            }
            args->segments = segments, args->n_segments = (int64_t)ranges.size();
            args->lse = b.output((size_t)(rows * a.n_heads));
            return args;
        },
        { tokens / WEIR_PAGE_TOKENS * (double)(a.kv.n_kv_heads * weir_kv_bytes(a.kv.k_format, a.kv.v_format, a.kv.key_dim, a.kv.value_dim)),
          2 * pairs * (double)(a.n_heads * width) }
    };
}

// Some of the rows that come alone have logits.
Case attention_mass(Spans spans, Attention a)
{
    double pairs = 0, tokens = 0;
    for (const auto &span : spans) {
        for (int32_t r = 0; r < span.n_rows; r++) pairs += span.n_past + r + 1;
        tokens += span.n_past + span.n_rows;
    }
    const int64_t rows = rows_of(spans), group = a.n_heads / a.kv.n_kv_heads;
    return { label("attention_mass", { a.n_heads, a.kv.n_kv_heads, a.kv.key_dim, a.pad, (int64_t)a.sharp }) + text_of(spans) + "_" +
                 name_of(a.kv) + (a.is_ragged ? "_ragged" : ""),
             [=](Builder &b, bool) {
                 auto                              *args = b.one<weir_attention_mass_args>();
                 const int64_t                      q_head = a.kv.key_dim + a.pad, q_stride = a.n_heads * q_head + a.pad;
                 float                             *lse = b.input((size_t)(rows * a.n_heads), Fill::Normal, 0.3f);
                 const weir_kv_segment             *whole = kv_segments(b, spans, a.kv, Use::Attend);
                 const std::vector<weir_kv_segment> ranges = heads_of(whole, spans.size(), a);
                 auto                              *segments = b.array<weir_attention_mass_segment>(ranges.size());
                 for (size_t s = 0; s < spans.size(); s++)
                     for (int64_t i = 0; i < spans[s].n_rows * a.n_heads; i++)
                         lse[whole[s].first_row * a.n_heads + i] += 0.5f + std::log((float)(spans[s].n_past + i / a.n_heads + 1));
                 for (size_t s = 0; s < ranges.size(); s++) {
                     const int64_t stride = ranges[s].n_past + ranges[s].n_rows + 3;
                     const size_t  n = (size_t)(weir_kv_segment_heads(&ranges[s], a.kv.n_kv_heads) * group * stride);
                     segments[s] = { ranges[s], b.output(n), b.output(n), s % 2 ? nullptr : b.output(n), stride };
                     if (s % 3 != 1 || ranges[s].n_rows > 1) continue;
                     segments[s].rows.logits = b.input(n), segments[s].rows.logits_stride = stride;
                 }
                 args->q = b.input((size_t)(rows * q_stride), Fill::Normal, a.sharp), args->lse = lse;
                 args->segments = segments, args->n_segments = (int64_t)ranges.size();
                 args->n_heads = a.n_heads, args->n_kv_heads = a.kv.n_kv_heads, args->key_dim = a.kv.key_dim;
                 args->q_stride = q_stride, args->q_head_stride = q_head, args->scale = 1 / std::sqrt((float)a.kv.key_dim);
                 args->k_format = a.kv.k_format, args->sinks = a.kv.sinks;
                 return args;
             },
             { tokens / WEIR_PAGE_TOKENS * (double)(a.kv.n_kv_heads * weir_kv_v_part(a.kv.k_format, a.kv.key_dim)),
               2 * pairs * (double)(a.n_heads * a.kv.key_dim) } };
}

weir_recurrent_segment *recurrent_segments(Builder &b, const Spans &spans, int64_t history, int64_t state)
{
    auto   *segments = b.array<weir_recurrent_segment>(spans.size());
    int32_t row = 0;
    for (size_t s = 0; s < spans.size(); s++) {
        segments[s] = { b.inout((size_t)history), state > 0 ? b.inout((size_t)state, Fill::Normal, 0.3f) : nullptr, row, spans[s].n_rows };
        row += spans[s].n_rows;
    }
    return segments;
}

Case conv1d(Spans spans, int64_t n_channels, int64_t n_taps, Fill fill = Fill::Normal)
{
    const int64_t rows = rows_of(spans);
    return { label("conv1d", { n_channels, n_taps }) + text_of(spans) + suffix(fill),
             [=](Builder &b, bool) {
                 auto        *args = b.one<weir_conv1d_args>();
                 const size_t n = (size_t)(rows * n_channels);
                 *args = { b.output(n),
                           b.input(n, fill),
                           b.input((size_t)(n_channels * n_taps)),
                           recurrent_segments(b, spans, (n_taps - 1) * n_channels, 0),
                           (int64_t)spans.size(),
                           n_channels,
                           n_taps };
                 return args;
             },
             { (double)(rows * n_channels) * 8, (double)(rows * n_channels * n_taps) * 2 } };
}

struct Delta {
    int64_t n_k_heads, n_v_heads, key_dim, value_dim;
    bool    tiled = false;
    int64_t pad = 0;
};

// Lanes past value_dim are zero, as the contract says.
void clear_unused_lanes(float *state, const Delta &d)
{
    const int64_t tiles = (d.value_dim + WEIR_DELTA_LANES - 1) / WEIR_DELTA_LANES;
    for (int64_t h = 0; h < d.n_v_heads; h++)
        for (int64_t j = d.value_dim; j < tiles * WEIR_DELTA_LANES; j++)
            for (int64_t i = 0; i < d.key_dim; i++)
                state[((h * tiles + j / WEIR_DELTA_LANES) * d.key_dim + i) * WEIR_DELTA_LANES + j % WEIR_DELTA_LANES] = 0;
}

Case gated_delta_rule(Spans spans, Delta d)
{
    const int64_t rows = rows_of(spans), tiles = (d.value_dim + WEIR_DELTA_LANES - 1) / WEIR_DELTA_LANES;
    const int64_t state = d.n_v_heads * tiles * d.key_dim * WEIR_DELTA_LANES;
    return { label("gated_delta_rule", { d.n_k_heads, d.n_v_heads, d.key_dim, d.value_dim, d.pad }) + (d.tiled ? "_tiled" : "") +
                 text_of(spans),
             [=](Builder &b, bool) {
                 auto         *args = b.one<weir_gated_delta_rule_args>();
                 const int64_t q_width = d.n_k_heads * d.key_dim, stride = 2 * q_width + d.n_v_heads * d.value_dim + d.pad;
                 const int64_t ab = 2 * d.n_v_heads + d.pad;
                 float        *qkv = b.input((size_t)(rows * stride)), *gates = b.input((size_t)(rows * ab), Fill::Normal, 2);
                 auto         *a_neg = b.array<float>((size_t)d.n_v_heads);
                 for (int64_t h = 0; h < d.n_v_heads; h++) a_neg[h] = -std::exp(b.normal());
                 args->out = b.output((size_t)(rows * d.n_v_heads * d.value_dim));
                 args->q = qkv, args->k = qkv + q_width, args->v = qkv + 2 * q_width, args->a = gates, args->b = gates + d.n_v_heads;
                 args->a_neg = a_neg, args->dt_bias = b.input((size_t)d.n_v_heads);
                 auto *segments = recurrent_segments(b, spans, 1, state);
                 for (size_t s = 0; s < spans.size(); s++) clear_unused_lanes(segments[s].state, d);
                 args->segments = segments, args->n_segments = (int64_t)spans.size(), args->n_k_heads = d.n_k_heads;
                 args->n_v_heads = d.n_v_heads, args->key_dim = d.key_dim, args->value_dim = d.value_dim, args->qkv_stride = stride;
                 args->ab_stride = ab, args->tiled_heads = d.tiled;
                 return args;
             },
             { (double)state * 8 * (double)spans.size(), (double)(rows * state) * 7 } };
}

} // namespace

std::vector<Case> sequence_cases(weir_op op)
{
    const Kv f16 = { 2, 64, 64, WEIR_KV_F16, WEIR_KV_F16 }, f32 = { 1, 32, 32, WEIR_KV_F32, WEIR_KV_F32 };
    switch (op) {
    case WEIR_OP_KV_WRITE: {
        std::vector<Case> cases = { kv_write({ { 1, 0 } }, f16),
                                    kv_write({ { 1, 63 }, { 1, 64 }, { 1, 31 } }, f16),
                                    kv_write({ { 130, 40 } }, { 2, 128, 64, WEIR_KV_F16, WEIR_KV_F16 }),
                                    kv_write({ { 5, 30 }, { 70, 0 } }, f32),
                                    kv_write({ { 3, 61 } }, { 3, 40, 24, WEIR_KV_F16, WEIR_KV_F16 }),
                                    kv_write({ { 33, 0 } }, { 1, 256, 256, WEIR_KV_F16, WEIR_KV_F16 }) };
        for (const Kv &kv : coded_formats()) {
            cases.push_back(kv_write({ { 130, 40 }, { 1, 63 }, { 3, 20 } }, kv));
            cases.push_back(kv_write({ { 70, 60 } }, kv, Fill::Mixed));
        }
        for (const Kv &kv : formats_with_sinks())
            cases.push_back(kv_write({ { 230, 40 }, { 1, 63 }, { 1, 64 }, { 70, 0 }, { 3, 200 } }, kv));
        return cases;
    }
    case WEIR_OP_KV_READ: {
        std::vector<Case> cases = { kv_read({ { 1, 0 } }, f16), kv_read({ { 130, 40 }, { 5, 30 } }, f32) };
        for (const Kv &kv : coded_formats()) cases.push_back(kv_read({ { 100, 40 }, { 1, 63 }, { 3, 20 } }, kv));
        for (const Kv &kv : formats_with_sinks()) cases.push_back(kv_read({ { 230, 0 }, { 1, 63 }, { 3, 63 } }, kv));
        return cases;
    }
    case WEIR_OP_KV_COMPACT: {
        std::vector<Case> cases = { kv_compact({ 1 }, f16, 100, 0), kv_compact({ 200, 64 }, f32, 40, 4),
                                    kv_compact({ 130 }, { 3, 40, 24, WEIR_KV_F16, WEIR_KV_BF16 }, 70, 0) };
        for (const Kv &kv : coded_formats())
            if (!weir_kv_needs_open(kv.k_format) && !weir_kv_needs_open(kv.v_format))
                cases.push_back(kv_compact({ 300, 63, 65 }, kv, 50, 4));
        cases.push_back(kv_compact({ 400 }, { 2, 64, 64, WEIR_KV_TURBO4, WEIR_KV_Q8_0, { { WEIR_KV_F16, WEIR_KV_F32 }, 1 } }, 30, 64));
        return cases;
    }
    case WEIR_OP_KEY_PRODUCTS: {
        std::vector<Case> cases = { key_products({ 1, 0 }, f16, { 1, 0 }), key_products({ 300, 37 }, f16, { 4, 16 }),
                                    key_products({ 90, 64 }, f32, { 70, 16, true }),
                                    key_products({ 70, 3 }, { 1, 576, 64, WEIR_KV_F16, WEIR_KV_F16 }, { 40, 288 }),
                                    key_products({ 70, 3 }, { 1, 40, 24, WEIR_KV_F16, WEIR_KV_F16 }, { 3, 20 }) };
        for (const Kv &kv : coded_formats()) {
            const bool is_turbo = weir_kv_scheme_of(kv.k_format) == WEIR_KV_TURBO;
            cases.push_back(key_products({ 100, 40 }, kv, { 3, is_turbo ? 0 : kv.key_dim / 2, kv.value_dim == 128 }));
        }
        for (const Kv &kv : formats_with_sinks()) cases.push_back(key_products({ 230, 0 }, kv, { 9, 0 }));
        return cases;
    }
    case WEIR_OP_ATTENTION: {
        std::vector<Case> cases = { attention({ { 1, 0 } }, { 4, f16 }),
                                    attention({ { 1, 31 }, { 1, 32 }, { 1, 63 }, { 1, 64 } }, { 4, f16 }),
                                    attention({ { 1, 2600 } }, { 4, f16 }),
                                    attention({ { 70, 0 } }, { 6, f16, 0, 3 }),
                                    attention({ { 40, 1000 }, { 1, 1023 }, { 1, 1024 } }, { 4, f16 }),
                                    attention({ { 1, 300 }, { 9, 100 } }, { 8, { 2, 256, 256, WEIR_KV_F16, WEIR_KV_F16 }, 0, 4 }),
                                    attention({ { 17, 90 } }, { 2, f32 }),
                                    attention({ { 33, 50 } }, { 4, { 4, 128, 128, WEIR_KV_F16, WEIR_KV_F16 } }),
                                    attention({ { 3, 200 } }, { 4, { 1, 96, 64, WEIR_KV_F16, WEIR_KV_F16 } }),
                                    attention({ { 40, 1500 } }, { 4, f16, 100 }),
                                    attention({ { 5, 40 } }, { 4, f16, 1 }),
                                    attention({ { 5, 125 }, { 1, 1100 }, { 1, 20 } }, { 6, f16, 0, 3, 1, true }),
                                    attention({ { 3, 500 } }, { 4, f16, 0, 0, 20 }),
                                    attention({ { 2, 70 } }, { 16, { 1, 64, 64, WEIR_KV_F32, WEIR_KV_F32 }, 33 }) };
        for (const Kv &kv : coded_formats()) {
            cases.push_back(attention({ { 5, 125 }, { 1, 63 } }, { 3 * kv.n_kv_heads, kv }));
            cases.push_back(attention({ { 30, 40 } }, { 2 * kv.n_kv_heads, kv, 20, 3 }));
            if (kv.n_kv_heads > 1)
                cases.push_back(attention({ { 5, 125 }, { 1, 1100 }, { 1, 20 } }, { 3 * kv.n_kv_heads, kv, 0, 3, 1, true }));
        }
        for (const Kv &kv : formats_with_sinks()) {
            cases.push_back(attention({ { 5, 125 }, { 1, 63 }, { 1, 250 }, { 3, 10 } }, { 3 * kv.n_kv_heads, kv }));
            cases.push_back(attention({ { 150, 0 }, { 40, 40 } }, { 2 * kv.n_kv_heads, kv, 70, 3 }));
        }
        const Kv long_sinks = { 1, 64, 64, WEIR_KV_TURBO4, WEIR_KV_TURBO3, { { WEIR_KV_F16, WEIR_KV_Q8_0 }, 17 } };
        cases.push_back(attention({ { 1, 1100 }, { 4, 1022 } }, { 4, long_sinks })); // past the first split
        cases.push_back(attention({ { 1, 2100 }, { 6, 1020 } }, { 2, { 1, 32, 64, WEIR_KV_INT8, WEIR_KV_TURBO4 } }));
        return cases;
    }
    case WEIR_OP_ATTENTION_MASS: {
        std::vector<Case> cases = { attention_mass({ { 1, 0 } }, { 4, f16 }),
                                    attention_mass({ { 1, 31 }, { 1, 32 }, { 1, 63 }, { 1, 64 }, { 1, 600 } }, { 4, f16 }),
                                    attention_mass({ { 70, 0 } }, { 6, f16, 0, 3 }),
                                    attention_mass({ { 40, 300 }, { 1, 255 }, { 1, 256 }, { 3, 500 } }, { 14, f16, 0, 0, 1, true }),
                                    attention_mass({ { 17, 90 } }, { 40, { 1, 32, 32, WEIR_KV_F32, WEIR_KV_F32 } }),
                                    attention_mass({ { 3, 70 } }, { 2, { 1, 576, 64, WEIR_KV_F16, WEIR_KV_F16 } }) };
        for (const Kv &kv : coded_formats())
            cases.push_back(attention_mass({ { 5, 125 }, { 1, 63 }, { 30, 40 } }, { 3 * kv.n_kv_heads, kv, 0, 0, 1, kv.key_dim == 64 }));
        for (const Kv &kv : formats_with_sinks())
            cases.push_back(attention_mass({ { 5, 125 }, { 1, 63 }, { 1, 250 }, { 90, 10 } }, { 2 * kv.n_kv_heads, kv }));
        return cases;
    }
    case WEIR_OP_CONV1D:
        return { conv1d({ { 1, 0 } }, 64, 4),
                 conv1d({ { 2, 0 }, { 1, 0 }, { 3, 0 } }, 100, 4),
                 conv1d({ { 50, 0 } }, 6144, 4),
                 conv1d({ { 9, 0 } }, 33, 8),
                 conv1d({ { 4, 0 } }, 17, 1),
                 conv1d({ { 7, 0 }, { 1, 0 } }, 64, 2, Fill::Large),
                 conv1d({ { 5, 0 } }, 64, 3, Fill::Zero) };
    case WEIR_OP_GATED_DELTA_RULE:
        return { gated_delta_rule({ { 1, 0 } }, { 2, 4, 64, 64 }),
                 gated_delta_rule({ { 70, 0 } }, { 2, 2, 128, 128 }),
                 gated_delta_rule({ { 1, 0 }, { 5, 0 }, { 2, 0 } }, { 2, 4, 128, 128, true, 8 }),
                 gated_delta_rule({ { 9, 0 } }, { 2, 6, 64, 64, false, 3 }),
                 gated_delta_rule({ { 4, 0 } }, { 1, 2, 32, 24 }),
                 gated_delta_rule({ { 3, 0 } }, { 1, 1, 16, 8, true }) };
    default: return {};
    }
}

std::vector<Case> sequence_benches(weir_op op)
{
    const Kv kv = { 2, 256, 256, WEIR_KV_F16, WEIR_KV_F16 };
    switch (op) {
    case WEIR_OP_KV_WRITE: {
        std::vector<Case> cases;
        for (const auto format : { WEIR_KV_F16, WEIR_KV_Q8_0, WEIR_KV_KIVI4, WEIR_KV_TURBO4 })
            for (const Span span : { Span{ 1, 4000 }, Span{ 512, 0 } })
                cases.push_back(kv_write({ span }, { 2, 256, 256, format, format }));
        return cases;
    }
    case WEIR_OP_KV_READ: {
        std::vector<Case> cases;
        for (const auto format : { WEIR_KV_F16, WEIR_KV_Q8_0, WEIR_KV_FP8_E4M3, WEIR_KV_KIVI4, WEIR_KV_TURBO4 })
            cases.push_back(kv_read({ { 512, 0 } }, { 2, 256, 256, format, format }));
        return cases;
    }
    case WEIR_OP_KV_COMPACT: {
        std::vector<Case> cases;
        for (const auto format : { WEIR_KV_F16, WEIR_KV_Q8_0, WEIR_KV_TURBO4 })
            cases.push_back(kv_compact({ 8192 }, { 2, 256, 256, format, format }, 50, 0));
        return cases;
    }
    case WEIR_OP_KEY_PRODUCTS: {
        std::vector<Case> cases = { key_products({ 2176, 0 }, kv, { 64, 0 }), key_products({ 32768, 0 }, kv, { 4, 0 }) };
        for (const auto format : { WEIR_KV_F16, WEIR_KV_Q8_0 })
            for (const int64_t pairs : { 32, 128 })
                cases.push_back(key_products({ 32768, 0 }, { 1, 256, 256, format, format }, { 4, pairs }));
        return cases;
    }
    case WEIR_OP_ATTENTION: {
        std::vector<Case> cases = { attention({ { 1, 4096 } }, { 8, kv }), attention({ { 512, 0 } }, { 8, kv }) };
        for (const auto format : { WEIR_KV_F16, WEIR_KV_BF16, WEIR_KV_Q8_0, WEIR_KV_TURBO4, WEIR_KV_Q4_0, WEIR_KV_FP8_E4M3, WEIR_KV_KIVI4 })
            for (const Span span : { Span{ 1, 32768 }, Span{ 512, 4096 } })
                cases.push_back(attention({ span }, { 8, { 2, 256, 256, format, format } }));
        return cases;
    }
    case WEIR_OP_ATTENTION_MASS: {
        std::vector<Case> cases = { attention_mass({ { 1, 32768 }, { 1, 32768 } }, { 8, kv }) };
        for (const auto format : { WEIR_KV_F16, WEIR_KV_Q8_0, WEIR_KV_TURBO4, WEIR_KV_KIVI4 })
            cases.push_back(attention_mass({ { 512, 4096 } }, { 8, { 2, 256, 256, format, format } }));
        return cases;
    }
    case WEIR_OP_CONV1D: return { conv1d({ { 1, 0 } }, 6144, 4), conv1d({ { 512, 0 } }, 6144, 4) };
    case WEIR_OP_GATED_DELTA_RULE:
        return { gated_delta_rule({ { 1, 0 } }, { 16, 16, 128, 128 }), gated_delta_rule({ { 512, 0 } }, { 16, 16, 128, 128 }) };
    default: return {};
    }
}

} // namespace weir_test
