// Cases of attention, and of what it gave to each row.
#include <algorithm>
#include <cmath>

#include "tests/kernel/cases_pages.h"

namespace weir_test {
namespace {

struct Attention {
    int64_t n_heads;
    Kv kv;
    int32_t window = 0;
    int64_t pad = 0;
    float sharp = 1; // scale of q: large values make one key win
    bool is_ragged =
        false; // KV heads with unequal numbers of rows, and all that attention can give
    float sink_logits = 0; // their scale; 0: none
    float softcap = 0;
    int64_t aliased = 0; // the first dims of each key, which are the value; 0: pages have a V part
};

// Segment `whole` of each span as segments of one KV head, of which each later one has five rows
// less, or as it is.
std::vector<weir_kv_segment> heads_of(
    const weir_kv_segment *whole, size_t n_spans, const Attention &a
)
{
    std::vector<weir_kv_segment> ranges(whole, whole + n_spans);
    if (!a.is_ragged) return ranges;
    ranges.clear();
    for (size_t s = 0; s < n_spans; s++)
        for (int32_t g = 0; g < (int32_t)a.kv.n_kv_heads; g++) {
            weir_kv_segment range = whole[s];
            range.pages += g * range.page_stride, range.unsealed_pages += g * range.unsealed_stride;
            range.first_head = g, range.n_heads = 1;
            range.n_past -= std::min(
                range.n_past % WEIR_PAGE_TOKENS,
                5 * g
            ); // in the same page: later ones may be closed
            ranges.push_back(range);
        }
    return ranges;
}

Case attention(Spans spans, Attention a)
{
    double pairs = 0, tokens = 0;
    for (const auto &span : spans) {
        for (int32_t r = 0; r < span.n_rows; r++)
            pairs += a.window > 0 ? std::min(a.window, span.n_past + r + 1) : span.n_past + r + 1;
        tokens += span.n_past + span.n_rows;
    }
    const int64_t rows = rows_of(spans), value_dim = a.aliased > 0 ? a.aliased : a.kv.value_dim,
                  width = a.kv.key_dim + value_dim;
    return {
        label(
            a.aliased > 0 ? "attention_aliased" : "attention",
            { a.n_heads, a.kv.n_kv_heads, a.kv.key_dim, value_dim, a.window, a.pad,
              (int64_t)a.sharp }
        ) + text_of(spans) +
            "_" + name_of(a.kv) + (a.is_ragged ? "_ragged" : "") +
            (a.sink_logits > 0 ? "_sinks" + std::to_string((int)a.sink_logits) : "") +
            (a.softcap > 0 ? "_cap" + std::to_string((int)a.softcap) : ""),
        [=](Builder &b, bool) {
            auto *args = b.one<weir_attention_args>();
            args->softcap = a.softcap;
            const int64_t q_head = a.kv.key_dim + a.pad, q_stride = a.n_heads * q_head + a.pad;
            const int64_t out_stride = a.n_heads * value_dim + a.pad;
            args->out = b.output((size_t)(rows * out_stride));
            args->q = b.input((size_t)(rows * q_stride), Fill::Normal, a.sharp);
            args->segments = kv_segments(b, spans, a.kv, Use::Attend);
            args->n_segments = (int64_t)spans.size(), args->n_heads = a.n_heads,
            args->n_kv_heads = a.kv.n_kv_heads;
            args->key_dim = a.kv.key_dim, args->value_dim = value_dim,
            args->k_format = a.kv.k_format, args->v_format = a.kv.v_format;
            args->sinks = a.kv.sinks, args->value_aliases_key = a.aliased > 0;
            args->q_stride = q_stride, args->q_head_stride = q_head, args->out_stride = out_stride;
            args->window = a.window, args->scale = 1 / std::sqrt((float)a.kv.key_dim);
            if (a.sink_logits > 0)
                args->sink_logits = b.input((size_t)a.n_heads, Fill::Normal, a.sink_logits);
            if (!a.is_ragged) return args;
            const std::vector<weir_kv_segment> ranges = heads_of(args->segments, spans.size(), a);
            auto *segments = b.array<weir_kv_segment>(ranges.size());
            for (size_t s = 0; s < ranges.size(); s++) {
                segments[s] = ranges[s];
                segments[s].logits_stride = ranges[s].n_past + ranges[s].n_rows + 3;
                if (a.kv.k_format == WEIR_KV_F16 || s % 3 == 2)
                    continue; // GPUs, which read f16, keep none
                segments[s].logits =
                    b.output((size_t)(a.n_heads / a.kv.n_kv_heads * segments[s].logits_stride));
            }
            args->segments = segments, args->n_segments = (int64_t)ranges.size();
            args->lse = b.output((size_t)(rows * a.n_heads));
            return args;
        },
        { tokens / WEIR_PAGE_TOKENS *
              (double)(a.kv.n_kv_heads *
                       weir_kv_bytes(a.kv.k_format, a.kv.v_format, a.kv.key_dim, a.kv.value_dim)),
          2 * pairs * (double)(a.n_heads * width) }
    };
}

// Some of the rows that come alone have logits. `slots`: those that are asked for.
struct Slots {
    int32_t first = 0, end = 0;
};
Case attention_mass(Spans spans, Attention a, Slots slots = {})
{
    double pairs = 0, tokens = 0;
    for (const auto &span : spans) {
        for (int32_t r = 0; r < span.n_rows; r++) pairs += span.n_past + r + 1;
        tokens += span.n_past + span.n_rows;
    }
    const int64_t rows = rows_of(spans), group = a.n_heads / a.kv.n_kv_heads;
    return {
        label(
            "attention_mass", { a.n_heads, a.kv.n_kv_heads, a.kv.key_dim, a.pad, (int64_t)a.sharp }
        ) + text_of(spans) +
            "_" + name_of(a.kv) + (a.is_ragged ? "_ragged" : "") +
            (slots.end > 0
                 ? "_from" + std::to_string(slots.first) + "to" + std::to_string(slots.end)
                 : ""),
        [=](Builder &b, bool) {
            auto *args = b.one<weir_attention_mass_args>();
            args->softcap = a.softcap;
            const int64_t q_head = a.kv.key_dim + a.pad, q_stride = a.n_heads * q_head + a.pad;
            float *lse = b.input((size_t)(rows * a.n_heads), Fill::Normal, 0.3f);
            const weir_kv_segment *whole = kv_segments(b, spans, a.kv, Use::Attend);
            const std::vector<weir_kv_segment> ranges = heads_of(whole, spans.size(), a);
            auto *segments = b.array<weir_attention_mass_segment>(ranges.size());
            for (size_t s = 0; s < spans.size(); s++)
                for (int64_t i = 0; i < spans[s].n_rows * a.n_heads; i++)
                    lse[whole[s].first_row * a.n_heads + i] +=
                        0.5f + std::log((float)(spans[s].n_past + i / a.n_heads + 1));
            for (size_t s = 0; s < ranges.size(); s++) {
                const int64_t stride = ranges[s].n_past + ranges[s].n_rows + 3;
                const size_t n =
                    (size_t)(weir_kv_segment_heads(&ranges[s], a.kv.n_kv_heads) * group * stride);
                segments[s] = { ranges[s], b.output(n), b.output(n), s % 2 ? nullptr : b.output(n),
                                stride,    slots.first, slots.end };
                if (s % 3 != 1 || ranges[s].n_rows > 1) continue;
                segments[s].rows.logits = b.input(n), segments[s].rows.logits_stride = stride;
            }
            args->q = b.input((size_t)(rows * q_stride), Fill::Normal, a.sharp), args->lse = lse;
            args->segments = segments, args->n_segments = (int64_t)ranges.size();
            args->n_heads = a.n_heads, args->n_kv_heads = a.kv.n_kv_heads,
            args->key_dim = a.kv.key_dim;
            args->q_stride = q_stride, args->q_head_stride = q_head,
            args->scale = 1 / std::sqrt((float)a.kv.key_dim);
            args->k_format = a.kv.k_format, args->sinks = a.kv.sinks;
            return args;
        },
        { tokens / WEIR_PAGE_TOKENS *
              (double)(a.kv.n_kv_heads * weir_kv_v_part(a.kv.k_format, a.kv.key_dim)),
          2 * pairs * (double)(a.n_heads * a.kv.key_dim) }
    };
}

// More sequences than a launch of CUDA is given, unequal ones in each launch.
Spans many()
{
    Spans spans(70, { 1, 40 });
    spans[5] = { 20, 30 }, spans[66] = { 1, 1100 };
    return spans;
}

} // namespace

std::vector<Case> attention_cases(weir_op op)
{
    const Kv f16 = { 2, 64, 64, WEIR_KV_F16, WEIR_KV_F16 },
             f32 = { 1, 32, 32, WEIR_KV_F32, WEIR_KV_F32 };
    switch (op) {
    case WEIR_OP_ATTENTION: {
        std::vector<Case> cases = {
            attention({ { 1, 0 } }, { 4, f16 }),
            attention({ { 1, 31 }, { 1, 32 }, { 1, 63 }, { 1, 64 } }, { 4, f16 }),
            attention({ { 1, 2600 } }, { 4, f16 }),
            attention(many(), { 4, f16 }),
            attention({ { 70, 0 } }, { 6, f16, 0, 3 }),
            attention({ { 40, 1000 }, { 1, 1023 }, { 1, 1024 } }, { 4, f16 }),
            attention(
                { { 1, 300 }, { 9, 100 } }, { 8, { 2, 256, 256, WEIR_KV_F16, WEIR_KV_F16 }, 0, 4 }
            ),
            attention({ { 17, 90 } }, { 2, f32 }),
            attention({ { 33, 50 } }, { 4, { 4, 128, 128, WEIR_KV_F16, WEIR_KV_F16 } }),
            attention({ { 3, 200 } }, { 4, { 1, 96, 64, WEIR_KV_F16, WEIR_KV_F16 } }),
            attention({ { 40, 1500 } }, { 4, f16, 100 }),
            attention({ { 5, 40 } }, { 4, f16, 1 }),
            attention({ { 5, 125 }, { 1, 1100 }, { 1, 20 } }, { 6, f16, 0, 3, 1, true }),
            attention({ { 3, 500 } }, { 4, f16, 0, 0, 20 }),
            attention({ { 2, 70 } }, { 16, { 1, 64, 64, WEIR_KV_F32, WEIR_KV_F32 }, 33 }),
            attention({ { 1, 0 }, { 40, 100 }, { 1, 2600 } }, { 8, f16, 0, 0, 1, false, 3 }),
            attention({ { 5, 125 }, { 1, 1100 }, { 1, 20 } }, { 6, f32, 0, 3, 1, true, 3 }),
            attention({ { 30, 1010 } }, { 4, f16, 100, 0, 1, false, 30 }),
            attention({ { 30, 1010 }, { 1, 2600 } }, { 4, f16, 0, 0, 4, false, 0, 2 }),
            attention({ { 5, 125 }, { 1, 1100 }, { 1, 20 } }, { 6, f32, 0, 3, 3, true, 2, 50 })
        };
        for (const Kv &kv : coded_formats()) {
            cases.push_back(attention({ { 5, 125 }, { 1, 63 } }, { 3 * kv.n_kv_heads, kv }));
            cases.push_back(attention({ { 30, 40 } }, { 2 * kv.n_kv_heads, kv, 20, 3 }));
            if (kv.n_kv_heads > 1)
                cases.push_back(attention(
                    { { 5, 125 }, { 1, 1100 }, { 1, 20 } }, { 3 * kv.n_kv_heads, kv, 0, 3, 1, true }
                ));
        }
        for (const Kv &kv : formats_with_sinks()) {
            cases.push_back(attention(
                { { 5, 125 }, { 1, 63 }, { 1, 250 }, { 3, 10 } }, { 3 * kv.n_kv_heads, kv }
            ));
            cases.push_back(attention({ { 150, 0 }, { 40, 40 } }, { 2 * kv.n_kv_heads, kv, 70, 3 })
            );
        }
        for (const Kv &kv : key_formats()) {
            Attention few = { 3 * kv.n_kv_heads, kv }, many = { 20 * kv.n_kv_heads, kv, 0, 3 };
            few.aliased = kv.key_dim - 8, many.aliased = kv.key_dim * 8 / 9;
            cases.push_back(attention({ { 5, 125 }, { 1, 63 }, { 3, 10 } }, few));
            cases.push_back(attention({ { 1, 1100 }, { 4, 60 } }, many));
        }
        const Kv long_sinks = {
            1, 64, 64, WEIR_KV_TURBO4, WEIR_KV_TURBO3, { { WEIR_KV_F16, WEIR_KV_Q8_0 }, 17 }
        };
        cases.push_back(attention({ { 1, 1100 }, { 4, 1022 } }, { 4, long_sinks })
        ); // past the first split
        cases.push_back(attention(
            { { 1, 2100 }, { 6, 1020 } }, { 2, { 1, 32, 64, WEIR_KV_INT8, WEIR_KV_TURBO4 } }
        ));
        return cases;
    }
    case WEIR_OP_ATTENTION_MASS: {
        std::vector<Case> cases = {
            attention_mass({ { 1, 0 } }, { 4, f16 }),
            attention_mass({ { 1, 31 }, { 1, 32 }, { 1, 63 }, { 1, 64 }, { 1, 600 } }, { 4, f16 }),
            attention_mass({ { 70, 0 } }, { 6, f16, 0, 3 }),
            attention_mass(
                { { 40, 300 }, { 1, 255 }, { 1, 256 }, { 3, 500 } }, { 14, f16, 0, 0, 1, true }
            ),
            attention_mass({ { 17, 90 } }, { 40, { 1, 32, 32, WEIR_KV_F32, WEIR_KV_F32 } }),
            attention_mass({ { 17, 90 } }, { 6, f16, 0, 3, 4, false, 0, 3 }),
            attention_mass({ { 3, 70 } }, { 2, { 1, 576, 64, WEIR_KV_F16, WEIR_KV_F16 } }),
            attention_mass({ { 30, 310 }, { 1, 600 }, { 50, 0 } }, { 4, f16 }, { 64, 320 }),
            attention_mass({ { 30, 400 }, { 5, 125 } }, { 4, f16 }, { 128, 1024 })
        };
        for (const Kv &kv : coded_formats())
            cases.push_back(attention_mass(
                { { 5, 125 }, { 1, 63 }, { 30, 40 } },
                { 3 * kv.n_kv_heads, kv, 0, 0, 1, kv.key_dim == 64 }
            ));
        for (const Kv &kv : formats_with_sinks())
            cases.push_back(attention_mass(
                { { 5, 125 }, { 1, 63 }, { 1, 250 }, { 90, 10 } }, { 2 * kv.n_kv_heads, kv }
            ));
        return cases;
    }
    default: return {};
    }
}

std::vector<Case> attention_benches(weir_op op)
{
    const Kv kv = { 2, 256, 256, WEIR_KV_F16, WEIR_KV_F16 };
    switch (op) {
    case WEIR_OP_ATTENTION: {
        std::vector<Case> cases = { attention({ { 1, 4096 } }, { 8, kv }),
                                    attention({ { 512, 0 } }, { 8, kv }) };
        for (const auto format : { WEIR_KV_F16, WEIR_KV_BF16, WEIR_KV_Q8_0, WEIR_KV_TURBO4,
                                   WEIR_KV_Q4_0, WEIR_KV_FP8_E4M3, WEIR_KV_KIVI4 })
            for (const Span span : { Span{ 1, 32768 }, Span{ 512, 4096 } })
                cases.push_back(attention({ span }, { 8, { 2, 256, 256, format, format } }));
        // plain and differential (twice the query heads) over the same rows: a sequence out of
        // cache, CoDA's states, its blocks
        for (const int64_t n_heads : { 32, 64 }) {
            const Kv wide = { 8, 128, 128, WEIR_KV_F16, WEIR_KV_F16 };
            for (const Span &span :
                 { Span{ 1, 131071 }, Span{ 1, 383 }, Span{ 256, 384 }, Span{ 1024, 384 } })
                cases.push_back(attention({ span }, { n_heads, wide }));
            cases.push_back(attention(Spans(64, { 1, 383 }), { n_heads, wide }));
        }
        for (const Span &span : { Span{ 1, 383 }, Span{ 256, 384 } })
            cases.push_back(attention({ span }, { 32, { 4, 64, 64, WEIR_KV_F16, WEIR_KV_F16 } }));
        return cases;
    }
    case WEIR_OP_ATTENTION_MASS: {
        std::vector<Case> cases = { attention_mass({ { 1, 32768 }, { 1, 32768 } }, { 8, kv }) };
        for (const auto format : { WEIR_KV_F16, WEIR_KV_Q8_0, WEIR_KV_TURBO4, WEIR_KV_KIVI4 })
            cases.push_back(
                attention_mass({ { 512, 4096 } }, { 8, { 2, 256, 256, format, format } })
            );
        return cases;
    }
    default: return {};
    }
}

} // namespace weir_test
