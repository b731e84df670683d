// Cases of the ops that write, read, move and multiply KV rows.
#include "tests/kernel/cases_pages.h"

namespace weir_test {
namespace {

// Arguments of kv_write and kv_read: `rows` makes an array of K or V.
template <class Args, class Rows>
const Args *row_args(Builder &b, const Spans &spans, const Kv &kv, Use use, Rows rows)
{
    auto *args = b.one<Args>();
    const int64_t n = rows_of(spans), k_stride = kv.n_kv_heads * kv.key_dim + 3,
                  v_stride = kv.n_kv_heads * kv.value_dim + 5;
    *args = { rows((size_t)(n * k_stride)),
              kv.value_dim > 0 ? rows((size_t)(n * v_stride)) : nullptr,
              kv_segments(b, spans, kv, use),
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
}

Work row_work(const Spans &spans, const Kv &kv)
{
    return { (double)(rows_of(spans) * kv.n_kv_heads * (kv.key_dim + kv.value_dim)) * 6, 0 };
}

Case kv_write(Spans spans, Kv kv, Fill fill = Fill::Normal)
{
    return { label("kv_write", { kv.n_kv_heads, kv.key_dim, kv.value_dim }) + text_of(spans) + "_" +
                 name_of(kv) + suffix(fill),
             [=](Builder &b, bool) {
                 return row_args<weir_kv_write_args>(b, spans, kv, Use::Write, [&](size_t n) {
                     return b.input(n, fill);
                 });
             },
             row_work(spans, kv) };
}

// Full pages are read sealed, the last one open if it has unsealed rows.
Case kv_read(Spans spans, Kv kv)
{
    return { label("kv_read", { kv.n_kv_heads, kv.key_dim, kv.value_dim }) + text_of(spans) + "_" +
                 name_of(kv),
             [=](Builder &b, bool) {
                 return row_args<weir_kv_read_args>(b, spans, kv, Use::Read, [&](size_t n) {
                     return b.output(n);
                 });
             },
             row_work(spans, kv) };
}

// One sequence of n_rows in each segment, of which each head keeps every row with this probability
// in percent, and all of its first n_first.
Case kv_compact(const std::vector<int32_t> &n_rows, Kv kv, uint32_t percent, int32_t n_first)
{
    std::string name =
        label("kv_compact", { kv.n_kv_heads, kv.key_dim, kv.value_dim, percent, n_first });
    double rows = 0;
    for (const int32_t n : n_rows) name += "_" + std::to_string(n), rows += n;
    return {
        name + "_" + name_of(kv),
        [=](Builder &b, bool) {
            auto *segments = b.array<weir_kv_compact_segment>(n_rows.size());
            for (size_t s = 0; s < n_rows.size(); s++) {
                const int64_t n_pages = (n_rows[s] + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS,
                              stride = n_pages + 1;
                auto *pages = b.array<void *>((size_t)(kv.n_kv_heads * stride));
                auto *keep = b.array<int32_t>((size_t)kv.n_kv_heads * (size_t)(n_rows[s] + 3)),
                     *n_keep = b.array<int32_t>((size_t)kv.n_kv_heads);
                for (int64_t g = 0; g < kv.n_kv_heads; g++) {
                    for (int64_t p = 0; p < n_pages; p++)
                        pages[g * stride + p] =
                            page_of(
                                b, at(kv, p),
                                std::min<int64_t>(
                                    n_rows[s] - p * WEIR_PAGE_TOKENS, WEIR_PAGE_TOKENS
                                ),
                                true
                            )
                                .coded;
                    n_keep[g] = 0;
                    for (int32_t row = 0; row < n_rows[s]; row++)
                        if (row < n_first || b.below(100) < percent)
                            keep[g * (n_rows[s] + 3) + n_keep[g]++] = row;
                }
                segments[s] = { pages, stride, n_rows[s] + 3, keep, n_keep, nullptr };
            }
            auto *args = b.one<weir_kv_compact_args>();
            *args = { segments,      (int64_t)n_rows.size(),
                      kv.n_kv_heads, kv.key_dim,
                      kv.value_dim,  kv.k_format,
                      kv.v_format,   kv.sinks };
            return args;
        },
        { rows * percent / 50 / WEIR_PAGE_TOKENS * (double)kv.n_kv_heads * (double)bytes_of(kv), 0 }
    };
}

// Span: slots n_past .. n_past + n_rows - 1 of the first KV head. n_pairs 0: no lengths.
struct Products {
    int64_t n_vectors, n_pairs;
    bool is_interleaved = false;
};

Case key_products(Span span, Kv kv, Products p)
{
    kv.n_kv_heads = 1;
    return { label("key_products", { p.n_vectors, p.n_pairs, p.is_interleaved, kv.key_dim }) +
                 text_of({ span }) + "_" + name_of(kv),
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_key_products_args>();
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
             { (double)span.n_rows / WEIR_PAGE_TOKENS *
                   (double)weir_kv_v_part(kv.k_format, kv.key_dim),
               2 * (double)(span.n_rows * p.n_vectors * (kv.key_dim + p.n_pairs)) } };
}

} // namespace

std::vector<Case> kv_cases(weir_op op)
{
    const Kv f16 = { 2, 64, 64, WEIR_KV_F16, WEIR_KV_F16 },
             f32 = { 1, 32, 32, WEIR_KV_F32, WEIR_KV_F32 };
    switch (op) {
    case WEIR_OP_KV_WRITE: {
        std::vector<Case> cases = {
            kv_write({ { 1, 0 } }, f16),
            kv_write({ { 1, 63 }, { 1, 64 }, { 1, 31 } }, f16),
            kv_write({ { 130, 40 } }, { 2, 128, 64, WEIR_KV_F16, WEIR_KV_F16 }),
            kv_write({ { 5, 30 }, { 70, 0 } }, f32),
            kv_write({ { 3, 61 } }, { 3, 40, 24, WEIR_KV_F16, WEIR_KV_F16 }),
            kv_write({ { 33, 0 } }, { 1, 256, 256, WEIR_KV_F16, WEIR_KV_F16 }),
            kv_write(Spans(41, { 2, 63 }), f32) /* more than a launch of CUDA is given */
        };
        for (const Kv &kv : coded_formats()) {
            cases.push_back(kv_write({ { 130, 40 }, { 1, 63 }, { 3, 20 } }, kv));
            cases.push_back(kv_write({ { 70, 60 } }, kv, Fill::Mixed));
        }
        for (const Kv &kv : formats_with_sinks())
            cases.push_back(
                kv_write({ { 230, 40 }, { 1, 63 }, { 1, 64 }, { 70, 0 }, { 3, 200 } }, kv)
            );
        for (const Kv &kv : key_formats())
            cases.push_back(kv_write({ { 130, 40 }, { 1, 63 } }, kv));
        return cases;
    }
    case WEIR_OP_KV_READ: {
        std::vector<Case> cases = { kv_read({ { 1, 0 } }, f16),
                                    kv_read({ { 130, 40 }, { 5, 30 } }, f32) };
        for (const Kv &kv : coded_formats())
            cases.push_back(kv_read({ { 100, 40 }, { 1, 63 }, { 3, 20 } }, kv));
        for (const Kv &kv : formats_with_sinks())
            cases.push_back(kv_read({ { 230, 0 }, { 1, 63 }, { 3, 63 } }, kv));
        for (const Kv &kv : key_formats()) cases.push_back(kv_read({ { 100, 40 }, { 3, 20 } }, kv));
        return cases;
    }
    case WEIR_OP_KV_COMPACT: {
        std::vector<Case> cases = {
            kv_compact({ 1 }, f16, 100, 0), kv_compact({ 200, 64 }, f32, 40, 4),
            kv_compact({ 130 }, { 3, 40, 24, WEIR_KV_F16, WEIR_KV_BF16 }, 70, 0)
        };
        for (const Kv &kv : coded_formats())
            if (!weir_kv_seals_pages(kv.k_format) && !weir_kv_seals_pages(kv.v_format))
                cases.push_back(kv_compact({ 300, 63, 65 }, kv, 50, 4));
        for (const Kv &kv : key_formats())
            if (!weir_kv_seals_pages(kv.k_format) && kv.sinks.n_pages == 0)
                cases.push_back(kv_compact({ 300, 65 }, kv, 50, 4));
        cases.push_back(kv_compact(
            { 400 },
            { 2, 64, 64, WEIR_KV_TURBO4, WEIR_KV_Q8_0, { { WEIR_KV_F16, WEIR_KV_F32 }, 1 } }, 30, 64
        ));
        return cases;
    }
    case WEIR_OP_KEY_PRODUCTS: {
        std::vector<Case> cases = {
            key_products({ 1, 0 }, f16, { 1, 0 }), key_products({ 300, 37 }, f16, { 4, 16 }),
            key_products({ 90, 64 }, f32, { 70, 16, true }),
            key_products({ 70, 3 }, { 1, 576, 64, WEIR_KV_F16, WEIR_KV_F16 }, { 40, 288 }),
            key_products({ 70, 3 }, { 1, 40, 24, WEIR_KV_F16, WEIR_KV_F16 }, { 3, 20 })
        };
        for (const Kv &kv : coded_formats()) {
            const bool is_turbo = weir_kv_scheme_of(kv.k_format) == WEIR_KV_TURBO;
            cases.push_back(key_products(
                { 100, 40 }, kv, { 3, is_turbo ? 0 : kv.key_dim / 2, kv.value_dim == 128 }
            ));
        }
        for (const Kv &kv : formats_with_sinks())
            cases.push_back(key_products({ 230, 0 }, kv, { 9, 0 }));
        return cases;
    }
    default: return {};
    }
}

std::vector<Case> kv_benches(weir_op op)
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
        for (const auto format :
             { WEIR_KV_F16, WEIR_KV_Q8_0, WEIR_KV_FP8_E4M3, WEIR_KV_KIVI4, WEIR_KV_TURBO4 })
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
        std::vector<Case> cases = { key_products({ 2176, 0 }, kv, { 64, 0 }),
                                    key_products({ 32768, 0 }, kv, { 4, 0 }) };
        for (const auto format : { WEIR_KV_F16, WEIR_KV_Q8_0 })
            for (const int64_t pairs : { 32, 128 })
                cases.push_back(
                    key_products({ 32768, 0 }, { 1, 256, 256, format, format }, { 4, pairs })
                );
        return cases;
    }
    default: return {};
    }
}

} // namespace weir_test
