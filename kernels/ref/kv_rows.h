/* kernels/ref/kv_rows.h - the page parts that hold a row of a segment, and reading it. */
#pragma once
#include "kernels/abi/ops.h"
#include "kernels/ref/kv_codec.h"

/* The formats and widths of a call's pages. */
typedef struct ref_pages {
    weir_kv_pair others;
    weir_kv_sinks sinks;
    int64_t key_dim, value_dim;
} ref_pages;

/* Of an op's arguments; kernels that read K alone have no value_dim. */
#define REF_PAGES(args)                                                                            \
    { { (args)->k_format, (args)->v_format }, (args)->sinks, (args)->key_dim, (args)->value_dim }
#define REF_KEY_PAGES(args)                                                                        \
    { { (args)->k_format, (args)->k_format }, (args)->sinks, (args)->key_dim, 0 }

/* A side of page `page` of table `table`; with `unsealed` if the segment has the page's unsealed
 * rows and the format needs them. */
static inline weir_kv_part ref_part(
    ref_pages pages, const weir_kv_segment *segment, int64_t table, int64_t page, weir_kv_side side
)
{
    const bool key = side == WEIR_KV_K;
    const weir_kv_pair pair = weir_kv_pair_at(pages.others, pages.sinks, page);
    const int64_t unsealed_page = page - segment->n_past / WEIR_PAGE_TOKENS;
    char *const coded = segment->pages[table * segment->page_stride + page];
    weir_kv_part part = { .format = key ? pair.k : pair.v,
                          .side = side,
                          .dim = key ? pages.key_dim : pages.value_dim };
    part.coded = coded ? coded + (key ? 0 : weir_kv_v_part(pair.k, pages.key_dim)) : NULL;
    char *const unsealed =
        weir_kv_seals_pages(part.format) && segment->unsealed_pages && unsealed_page >= 0
            ? segment->unsealed_pages[table * segment->unsealed_stride + unsealed_page]
            : NULL;
    if (unsealed != NULL)
        part.unsealed = unsealed + (key ? 0 : weir_kv_unsealed_v_part(pair.k, pages.key_dim));
    return part;
}

/* Reads one token's row, unsealed if `unsealed` and the part has unsealed rows. */
static inline void ref_read_row(const weir_kv_part *part, int64_t token, bool unsealed, float *row)
{
    if (unsealed && part->unsealed)
        weir_kv_decode_open(part, token, 1, row, 0);
    else
        weir_kv_decode_rows(part, token, 1, row, 0, false);
}
