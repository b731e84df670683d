// Pages of KV rows for cases.
#include "tests/kernel/cases_pages.h"

#include <algorithm>

#include "kernels/ref/kv_codec.h"

namespace weir_test {

std::string text_of(const Spans &spans)
{
    std::string text;
    for (size_t s = 0, n; s < spans.size(); s += n) {
        for (n = 1; s + n < spans.size() && spans[s + n].n_rows == spans[s].n_rows &&
                    spans[s + n].n_past == spans[s].n_past;)
            n++;
        text += "_" + (n > 3 ? std::to_string(n) + "x" : std::string());
        text += std::to_string(spans[s].n_rows) + "at" + std::to_string(spans[s].n_past);
        n = n > 3 ? n : 1;
    }
    return text;
}

int64_t rows_of(const Spans &spans)
{
    int64_t n = 0;
    for (const auto &span : spans) n += span.n_rows;
    return n;
}

static std::string name_of(weir_kv_pair pair)
{
    const std::string k = weir_kv_format_name(pair.k), v = weir_kv_format_name(pair.v);
    return k == v ? k : k + "_" + v;
}

std::string name_of(const Kv &kv)
{
    const std::string sinks = kv.sinks.n_pages > 0 ? "_after_" + std::to_string(kv.sinks.n_pages) +
                                                         "_" + name_of(kv.sinks.pair)
                                                   : "";
    return name_of(weir_kv_pair{ kv.k_format, kv.v_format }) + sinks;
}

Kv at(const Kv &kv, int64_t page)
{
    const weir_kv_pair pair = weir_kv_pair_at({ kv.k_format, kv.v_format }, kv.sinks, page);
    return { kv.n_kv_heads, kv.key_dim, kv.value_dim, pair.k, pair.v };
}

size_t bytes_of(const Kv &kv)
{
    return (size_t)weir_kv_bytes(kv.k_format, kv.v_format, kv.key_dim, kv.value_dim);
}

constexpr int64_t kMadePages = 50;

Page page_of(Builder &b, const Kv &kv, int64_t n_tokens, bool compared)
{
    const size_t bytes = bytes_of(kv);
    const size_t unsealed_bytes =
        (size_t)weir_kv_unsealed_bytes(kv.k_format, kv.v_format, kv.key_dim, kv.value_dim);
    char *coded = b.array<char>(bytes),
         *open = unsealed_bytes > 0 ? b.array<char>(unsealed_bytes) : nullptr;
    std::fill_n(coded, bytes, 0);
    std::fill_n(open, unsealed_bytes, 0);
    const weir_kv_part k = { kv.k_format, WEIR_KV_K, kv.key_dim, coded, open };
    const weir_kv_part v = { kv.v_format, WEIR_KV_V, kv.value_dim,
                             coded + weir_kv_v_part(kv.k_format, kv.key_dim),
                             open ? open + weir_kv_unsealed_v_part(kv.k_format, kv.key_dim)
                                  : nullptr };
    std::vector<float> row((size_t)std::max(kv.key_dim, kv.value_dim));
    for (int64_t t = 0; t < n_tokens; t++) {
        for (int64_t d = 0; d < kv.key_dim; d++) row[(size_t)d] = b.normal();
        weir_kv_encode_rows(&k, t, 1, row.data(), 0);
        for (int64_t d = 0; d < kv.value_dim; d++) row[(size_t)d] = b.normal();
        if (kv.value_dim > 0) weir_kv_encode_rows(&v, t, 1, row.data(), 0);
    }
    if (compared) b.compare(coded, bytes, WEIR_U8);
    if (compared && open) b.compare(open, unsealed_bytes, WEIR_U8);
    return { coded, open };
}

weir_kv_segment *kv_segments(Builder &b, const Spans &spans, const Kv &kv, Use use)
{
    const bool written = use != Use::Write;
    const size_t bytes = bytes_of(kv);
    auto *segments = b.array<weir_kv_segment>(spans.size());
    int32_t row = 0;
    for (size_t s = 0; s < spans.size(); s++) {
        const int64_t end = spans[s].n_past + spans[s].n_rows,
                      filled = written ? end : spans[s].n_past;
        const int64_t n_pages = (end + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS,
                      stride = n_pages + 2;
        const int64_t first_page = spans[s].n_past / WEIR_PAGE_TOKENS;
        auto **pages = b.array<void *>((size_t)(kv.n_kv_heads * stride)),
             **open = b.array<void *>((size_t)(kv.n_kv_heads * stride));
        for (int64_t g = 0; g < kv.n_kv_heads; g++)
            for (int64_t p = 0; p < n_pages; p++) {
                const int64_t n =
                    std::clamp<int64_t>(filled - p * WEIR_PAGE_TOKENS, 0, WEIR_PAGE_TOKENS);
                const bool made = p < kMadePages || p >= first_page;
                const Page page = made ? page_of(b, at(kv, p), n, !written)
                                       : Page{ b.array<char>(bytes), nullptr };
                if (!made)
                    std::copy_n(
                        static_cast<const char *>(pages[g * stride + p % kMadePages]), bytes,
                        static_cast<char *>(page.coded)
                    );
                pages[g * stride + p] = page.coded;
                if (p >= first_page)
                    open[g * stride + p - first_page] =
                        use == Use::Read && n == WEIR_PAGE_TOKENS ? nullptr : page.open;
            }
        segments[s] = {};
        segments[s].pages = pages, segments[s].page_stride = stride;
        segments[s].first_row = row, segments[s].n_rows = spans[s].n_rows,
        segments[s].n_past = spans[s].n_past;
        segments[s].unsealed_pages = open, segments[s].unsealed_stride = stride;
        row += spans[s].n_rows;
    }
    return segments;
}

std::vector<Kv> coded_formats()
{
    std::vector<Kv> all;
    for (int f = WEIR_KV_BF16; f < WEIR_KV_FORMAT_COUNT; f++) {
        const auto format = (weir_kv_format)f;
        all.push_back({ 2, 64, 128, format, format });
        for (const int64_t dim : { 16, 20, 45 })
            if (!weir_kv_format_reject(format, WEIR_KV_K, dim) &&
                !weir_kv_format_reject(format, WEIR_KV_V, dim))
                all.push_back({ 1, dim, dim, format, format });
    }
    all.push_back({ 2, 128, 64, WEIR_KV_KIVI4, WEIR_KV_Q4_0 });
    all.push_back({ 1, 32, 32, WEIR_KV_Q8_0, WEIR_KV_INT8 });
    all.push_back({ 1, 77, 32, WEIR_KV_KIVI2, WEIR_KV_TURBO3 });
    all.push_back({ 1, 256, 256, WEIR_KV_TURBO4, WEIR_KV_KIVI2 });
    return all;
}

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

std::vector<Kv> key_formats()
{
    std::vector<Kv> all;
    for (int f = 0; f < WEIR_KV_FORMAT_COUNT; f++) {
        const auto format = (weir_kv_format)f;
        for (const int64_t dim : { 64, 40, 576 })
            if (!weir_kv_is_rotated(format) && !weir_kv_format_reject(format, WEIR_KV_K, dim))
                all.push_back({ 1, dim, 0, format, format });
    }
    all.push_back({ 2, 96, 0, WEIR_KV_Q8_0, WEIR_KV_Q8_0, { { WEIR_KV_F16, WEIR_KV_F16 }, 1 } });
    all.push_back({ 1, 64, 0, WEIR_KV_F16, WEIR_KV_F16, { { WEIR_KV_INT8, WEIR_KV_INT8 }, 2 } });
    return all;
}

} // namespace weir_test
