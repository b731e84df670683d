/* engine/kv/pool/geometry.h - what each layer keeps in KV pages, and the numbers of its KV heads
 * among those of all layers. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct weir_kv_geometry {
    int64_t n_heads; /* KV heads */
    int64_t key_dim, value_dim; /* Elements of a row of K and of V, per head. */
    int64_t window; /* only this many last rows are read; 0: all */
    /* The layer's heads are numbers first_head .. first_head + n_heads - 1 of all layers' heads */
    int64_t first_head;
} weir_kv_geometry;

/* A layer of a model that reads KV rows, its own or those of an earlier layer. */
typedef struct weir_kv_reader {
    int32_t layer; /* among those that keep rows */
    bool is_watched; /* it reads them once more, for what attention gave to each */
} weir_kv_reader;

/* Sets first_head of each layer. */
static inline void weir_kv_number_heads(weir_kv_geometry *layers, int64_t n)
{
    for (int64_t i = 0, first = 0; i < n; i++) {
        layers[i].first_head = first;
        first += layers[i].n_heads;
    }
}
