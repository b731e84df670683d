/* engine/kv/pool/geometry.h - the KV rows of one layer. */
#pragma once
#include <stdint.h>

typedef struct weir_kv_geometry {
    int64_t n_heads; /* KV heads */
    /* Elements of a row of K and of V, per head. */
    int64_t key_dim, value_dim;
    int64_t window; /* only this many last rows are read; 0: all */
} weir_kv_geometry;
