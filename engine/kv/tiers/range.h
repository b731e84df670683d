/* engine/kv/tiers/range.h - a range of a segment's splits. Its pages can be read until it is given
 * back. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct weir_kv_range {
    /* [KV heads, page_stride] of one layer; only pages of the range's positions can be read. */
    void *const *pages;
    int64_t page_stride;
    int32_t first_split, end_split;
    bool is_last;
} weir_kv_range;
