/* engine/kv/pool/geometry.h - what one layer keeps in KV pages. */
#pragma once
#include <stdint.h>

typedef struct weir_kv_geometry {
    int64_t n_heads; /* KV heads */
    int64_t key_dim, value_dim; /* elements of a row of K and of V, per head */
    int64_t window; /* only the latest rows are read, so many; 0: all */
} weir_kv_geometry;
