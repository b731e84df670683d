/* kernels/ref/kv_compact.c - moves kept rows to the front of their pages, one element at a time. */
#include <string.h>

#include "kernels/ref/row.h"

typedef struct row_place {
    char *part; /* of the page */
    int64_t token;
} row_place;

/* Moves n elements of `size` bytes that are `step` apart. */
static void move(char *to, const char *from, int64_t n, int64_t size, int64_t step)
{
    for (int64_t i = 0; i < n; i++) memmove(to + i * step, from + i * step, (size_t)size);
}

static void move_k(weir_kv_format format, int64_t dim, row_place to, row_place from)
{
    const weir_kv_layout layout = weir_kv_layout_k(format, dim);
    const bool is_plain = weir_kv_scheme_of(format) == WEIR_KV_PLAIN;
    const int64_t to_tile = to.token / WEIR_TILE_TOKENS, from_tile = from.token / WEIR_TILE_TOKENS;
    const int64_t n_codes = is_plain ? dim : weir_kv_words(weir_kv_bits(format), dim),
                  code = is_plain ? weir_kv_bits(format) / 8 : 4,
                  n_scales = weir_kv_row_scales(format, dim), scale = weir_kv_scale_bytes(format);
    move(
        to.part + layout.codes + to_tile * layout.codes_step + to.token % WEIR_TILE_TOKENS * code,
        from.part + layout.codes + from_tile * layout.codes_step +
            from.token % WEIR_TILE_TOKENS * code,
        n_codes, code, WEIR_TILE_TOKENS * code
    );
    move(
        to.part + layout.scales + to_tile * layout.scales_step +
            to.token % WEIR_TILE_TOKENS * scale,
        from.part + layout.scales + from_tile * layout.scales_step +
            from.token % WEIR_TILE_TOKENS * scale,
        n_scales, scale, WEIR_TILE_TOKENS * scale
    );
}

static void move_v(weir_kv_format format, int64_t dim, row_place to, row_place from)
{
    const weir_kv_layout layout = weir_kv_layout_v(format, dim);
    move(
        to.part + layout.codes + to.token * layout.codes_step,
        from.part + layout.codes + from.token * layout.codes_step, 1, layout.codes_step, 0
    );
    move(
        to.part + layout.scales + to.token * layout.scales_step,
        from.part + layout.scales + from.token * layout.scales_step, 1, layout.scales_step, 0
    );
}

static void move_row(const weir_kv_compact_args *args, void *const *pages, int64_t to, int64_t from)
{
    const int64_t to_page = to / WEIR_PAGE_TOKENS, from_page = from / WEIR_PAGE_TOKENS;
    const weir_kv_pair pair =
        weir_kv_pair_at((weir_kv_pair){ args->k_format, args->v_format }, args->sinks, to_page);
    const int64_t v = weir_kv_v_part(pair.k, args->key_dim), t = to % WEIR_PAGE_TOKENS,
                  f = from % WEIR_PAGE_TOKENS;
    char *const to_base = pages[to_page], *const from_base = pages[from_page];
    move_k(pair.k, args->key_dim, (row_place){ to_base, t }, (row_place){ from_base, f });
    move_v(pair.v, args->value_dim, (row_place){ to_base + v, t }, (row_place){ from_base + v, f });
}

static weir_status weir_k_ref_kv_compact(const weir_kernel_context *context, const void *op_args)
{
    const weir_kv_compact_args *const args = op_args;
    (void)context;
    if (weir_kv_compact_reject(args)) return WEIR_EUNSUPPORTED;
    if (!weir_kv_compact_is_sound(args)) return WEIR_EINVAL;
    for (int64_t s = 0; s < args->n_segments; s++)
        for (int64_t g = 0; g < args->n_kv_heads; g++) {
            const weir_kv_compact_segment *const segment = args->segments + s;
            for (int32_t i = segment->first ? segment->first[g] : 0; i < segment->n_keep[g]; i++)
                move_row(
                    args, segment->pages + g * segment->page_stride, i,
                    segment->keep[g * segment->keep_stride + i]
                );
        }
    return WEIR_OK;
}

WEIR_REF_ROW(kv_compact, WEIR_OP_KV_COMPACT)
