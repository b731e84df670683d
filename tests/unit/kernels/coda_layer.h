// tests/unit/kernels/coda_layer.h - a layer of CoDA-GQA-L with the options that most tests have.
#pragma once
#include "kernels/abi/coda.h"

namespace weir_test {

inline const float rates[16] = { 0.05f, 0.1f, 0.2f };

inline weir_coda_layer layer_of(
    int64_t n_kv_heads, int64_t dim, int32_t window, int32_t exact, int32_t summary,
    weir_kv_format format = WEIR_KV_F32
)
{
    weir_coda_layer layer = {};
    layer.n_kv_heads = n_kv_heads, layer.head_dim = dim, layer.window = window;
    layer.n_exact = layer.least_exact = exact, layer.n_summary = layer.least_summary = summary;
    layer.exact_candidates = 8, layer.summary_candidates = 64;
    layer.exact_gate = 0.1f, layer.summary_gate = 0.05f, layer.hit = 0.9f, layer.novelty = 0.7f;
    layer.is_gated = layer.founds = true;
    layer.format = format;
    layer.rates = rates;
    return layer;
}

} // namespace weir_test
