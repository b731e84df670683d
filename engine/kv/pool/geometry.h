/* engine/kv/pool/geometry.h - what each layer keeps in KV pages: its KV heads with their indices
 * among the heads of all layers, the widths of its rows, its window. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct weir_kv_geometry {
    int64_t n_heads; /* KV heads */
    int64_t key_dim, value_dim; /* elements of a row of K and of V, per head */
    int64_t window; /* only the last rows up to this number are read; 0: all */
    /* The layer's heads have indices first_head to first_head + n_heads - 1 among the heads of all
     * layers. */
    int64_t first_head;
    /* A value is the first value_dim elements of its key: pages have no V part. */
    bool value_aliases_key;
} weir_kv_geometry;

/* A layer of a model that reads KV rows: its own, or those of an earlier layer. */
typedef struct weir_kv_reader {
    int32_t layer; /* whose rows it reads: index among the layers with KV */
    bool is_watched; /* its attention can be observed, for which it may read K again */
} weir_kv_reader;

/* Elements of a row of V in a page. */
static inline int64_t weir_kv_stored_value_dim(const weir_kv_geometry *layer)
{
    return layer->value_aliases_key ? 0 : layer->value_dim;
}

/* Sets first_head of each layer. */
static inline void weir_kv_number_heads(weir_kv_geometry *layers, int64_t n)
{
    for (int64_t i = 0, first = 0; i < n; i++) {
        layers[i].first_head = first;
        first += layers[i].n_heads;
    }
}
