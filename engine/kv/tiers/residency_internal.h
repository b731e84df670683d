/* engine/kv/tiers/residency_internal.h - sizes of the lower tier, shared by opening
 * (residency_open.c), moving and checking (residency.c). */
#pragma once
#include "engine/kv/pool/store.h"

/* KV heads of a layer, at most. */
enum { KV_LAYER_HEADS = 64 };

static inline int64_t kv_blocks_in(const weir_kv_spec *spec, int64_t n_pages)
{
    const int64_t heads = weir_kv_n_heads(spec);
    return heads > 0 ? n_pages / heads : 0;
}

static inline int64_t kv_cold_blocks(const weir_kv_spec *spec)
{
    return kv_blocks_in(spec, weir_kv_cold_pages(spec));
}
