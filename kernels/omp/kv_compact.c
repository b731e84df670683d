/* kernels/omp/kv_compact.c - moves kept rows to the front of their pages, in place. Unit: (segment,
 * KV head, COLUMNS columns of its pages). Bound by memory; each tile is read and written once. */
#include "kernels/omp/lanes.h"

enum { COLUMNS = LANE_WIDTH == 1 ? 8 : 64 };

#pragma omp declare target
/* A column is one element of every row: a dim or a word of K, V's whole row (on devices its words),
 * a scale. Its place in a page: in tile 0 and row 0 of the tile, the strides to the next tile and
 * row, and the size of its elements. */
typedef struct column {
    int64_t first, tile_step, row_step;
    int size;
} column;

/* Columns of one side: codes, then scales. V's rows are moved by words of 4 bytes, and its scales
 * by 2. */
typedef struct side_columns {
    int64_t n_codes, n_scales;
    /* The first of each; the next is next_* bytes further. */
    column codes, scales;
    int64_t next_code, next_scale;
} side_columns;

WEIR_INLINE side_columns columns_of_k(const weir_kv_format format, int64_t dim)
{
    const weir_kv_layout layout = weir_kv_layout_k(format, dim);
    const bool is_plain = weir_kv_scheme_of(format) == WEIR_KV_PLAIN;
    const int code = is_plain ? weir_kv_bits(format) / 8 : 4, scale = weir_kv_scale_bytes(format);
    return (side_columns){ .n_codes = is_plain ? dim : weir_kv_words(weir_kv_bits(format), dim),
                           .n_scales = weir_kv_row_scales(format, dim),
                           .codes = { layout.codes, layout.codes_step, code, code },
                           .scales = { layout.scales, layout.scales_step, scale, scale },
                           .next_code = WEIR_TILE_TOKENS * code,
                           .next_scale = WEIR_TILE_TOKENS * scale };
}

/* Rows need not be whole words: 20 dims of 8 bits are, 45 are not. */
WEIR_INLINE side_columns columns_of_v(const weir_kv_format format, int64_t dim, int64_t part)
{
    const weir_kv_layout layout = weir_kv_layout_v(format, dim);
    const int word = layout.codes_step % 4 == 0 ? 4 : layout.codes_step % 2 == 0 ? 2 : 1;
    const int code = LANE_WIDTH == 1 || layout.codes_step == 0 ? word : (int)layout.codes_step;
    const int one = weir_kv_scale_bytes(format), scale = layout.scales_step == 0 ? 1
                                                         : LANE_WIDTH == 1
                                                             ? one
                                                             : (int)layout.scales_step;
    return (side_columns){
        .n_codes = layout.codes_step / code,
        .n_scales = layout.scales_step / scale,
        .codes = { part + layout.codes, WEIR_TILE_TOKENS * layout.codes_step, layout.codes_step,
                   code },
        .scales = { part + layout.scales, WEIR_TILE_TOKENS * layout.scales_step, layout.scales_step,
                    scale },
        .next_code = code,
        .next_scale = scale,
    };
}

WEIR_INLINE int64_t count_columns(const side_columns *side)
{
    return side->n_codes + side->n_scales;
}

WEIR_INLINE column column_at(const side_columns *side, int64_t index)
{
    column c = index < side->n_codes ? side->codes : side->scales;
    c.first += index < side->n_codes ? index * side->next_code
                                     : (index - side->n_codes) * side->next_scale;
    return c;
}

WEIR_INLINE char *row_at(void *const *pages, const column *c, int32_t row)
{
    const int32_t token = row % WEIR_PAGE_TOKENS;
    return (char *)pages[row / WEIR_PAGE_TOKENS] + c->first +
           token / WEIR_TILE_TOKENS * c->tile_step + token % WEIR_TILE_TOKENS * c->row_step;
}

/* Forward, since `to` is before `from`: what is overwritten has been read. */
WEIR_INLINE void copy_bytes(char *to, const char *from, int64_t n)
{
    typedef struct {
        char at[64];
    } line;
    typedef struct {
        char at[32];
    } half;
    typedef struct {
        char at[16];
    } quarter;
#define MOVE(type)                                                                                 \
    {                                                                                              \
        type moved;                                                                                \
        __builtin_memcpy(&moved, from, sizeof moved);                                              \
        __builtin_memcpy(to, &moved, sizeof moved);                                                \
        to += sizeof moved, from += sizeof moved;                                                  \
    }
    for (; n >= 64; n -= 64) MOVE(line)
    if (n & 32) MOVE(half)
    if (n & 16) MOVE(quarter)
    if (n & 8) MOVE(uint64_t)
    if (n & 4) MOVE(uint32_t)
    if (n & 2) MOVE(uint16_t)
    if (n & 1) MOVE(char)
#undef MOVE
}

/* Rows [from, from + n), of one tile, become rows [to, to + n) of another or the same tile:
 * consecutive kept rows, adjacent in both. */
typedef struct piece {
    int32_t from, to, n;
} piece;

WEIR_INLINE void move_piece(void *const *pages, const column *c, piece p)
{
    char *to = row_at(pages, c, p.to);
    const char *from = row_at(pages, c, p.from);
    if (LANE_WIDTH > 1) { /* elements of a column are adjacent */
        copy_bytes(to, from, p.n * c->row_step);
        return;
    }
    for (int32_t i = 0; i < p.n; i++, to += c->row_step, from += c->row_step) {
        if (c->size == 4)
            *(uint32_t *)to = *(const uint32_t *)from;
        else if (c->size == 2)
            *(uint16_t *)to = *(const uint16_t *)from;
        else
            *to = *from;
    }
}

/* The piece that begins with the i-th kept row. */
WEIR_INLINE piece piece_at(const int32_t *keep, int32_t i, int32_t end)
{
    const int32_t from = keep[i], source = WEIR_TILE_TOKENS - from % WEIR_TILE_TOKENS,
                  target = WEIR_TILE_TOKENS - i % WEIR_TILE_TOKENS;
    int32_t most = source < target ? source : target, n = 1;
    if (most > end - i) most = end - i;
    while (n < most && keep[i + n] == from + n) n++;
    return (piece){ .from = from, .to = i, .n = n };
}

/* The pair of formats of these rows' pages, and the first of the unit's columns. */
typedef struct moved_rows {
    weir_kv_pair pair;
    const int32_t *keep;
    int32_t first, end;
} moved_rows;

/* One thread moves all pieces of a column, ascending: no row is overwritten before it is moved, so
 * there is no barrier and no second copy. */
WEIR_INLINE void move_columns(
    void *const *pages, const moved_rows *rows, int64_t key_dim, int64_t value_dim, int64_t first,
    int tid
)
{
    const side_columns k = columns_of_k(rows->pair.k, key_dim);
    const side_columns v =
        columns_of_v(rows->pair.v, value_dim, weir_kv_v_part(rows->pair.k, key_dim));
    const int64_t n_k = count_columns(&k), n = n_k + count_columns(&v);
    for (int32_t i = rows->first; i < rows->end;) {
        const piece p = piece_at(rows->keep, i, rows->end);
        i += p.n;
        for (int64_t index = first + tid; p.from > p.to && index < n && index < first + COLUMNS;
             index += LANE_THREADS) {
            const column c = index < n_k ? column_at(&k, index) : column_at(&v, index - n_k);
            move_piece(pages, &c, p);
        }
    }
}
#pragma omp end declare target

static int64_t most_columns(const weir_kv_compact_args *args, weir_kv_pair pair)
{
    const side_columns k = columns_of_k(pair.k, args->key_dim),
                       v = columns_of_v(pair.v, args->value_dim, 0);
    return count_columns(&k) + count_columns(&v);
}

static const char *reject(const weir_caps *caps, const void *op_args)
{
    (void)caps;
    return weir_kv_compact_reject(op_args);
}

static weir_status WEIR_K(kv_compact)(const weir_kernel_context *context, const void *op_args)
{
    const weir_kv_compact_args *const args = op_args;
    if (weir_kv_compact_reject(args)) return WEIR_EUNSUPPORTED;
    if (!weir_kv_compact_is_sound(args)) return WEIR_EINVAL;
    const weir_kv_compact_segment *const segments = args->segments;
    const int64_t n_segments = args->n_segments, n_kv_heads = args->n_kv_heads,
                  key_dim = args->key_dim, value_dim = args->value_dim;
    const weir_kv_format k_others = args->k_format, v_others = args->v_format,
                         k_sinks = args->sinks.pair.k, v_sinks = args->sinks.pair.v;
    const int32_t n_sinks = args->sinks.n_pages;
    int64_t columns = most_columns(args, (weir_kv_pair){ k_others, v_others });
    if (n_sinks > 0 && most_columns(args, args->sinks.pair) > columns)
        columns = most_columns(args, args->sinks.pair);
    const int64_t per_head = (columns + COLUMNS - 1) / COLUMNS,
                  n_units = n_segments * n_kv_heads * per_head;
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, segments)
    {
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const weir_kv_compact_segment *const segment = segments + u / per_head / n_kv_heads;
            const int64_t head = u / per_head % n_kv_heads, first = u % per_head * COLUMNS;
            void *const *const pages = segment->pages + head * segment->page_stride;
            const int32_t *const keep = segment->keep + head * segment->keep_stride;
            const int32_t n = segment->n_keep[head],
                          end = n_sinks * WEIR_PAGE_TOKENS < n ? n_sinks * WEIR_PAGE_TOKENS : n;
            const int32_t begin = segment->first ? segment->first[head] : 0;
            const moved_rows sinks = { { k_sinks, v_sinks }, keep, begin, end };
            const moved_rows others = {
                { k_others, v_others }, keep, begin > end ? begin : end, n
            };
            if (end > begin) move_columns(pages, &sinks, key_dim, value_dim, first, lane_thread());
            move_columns(pages, &others, key_dim, value_dim, first, lane_thread());
        }
    }
    return WEIR_OK;
}

/* Tolerance: bytes are moved. */
extern const weir_kernel WEIR_K_ROW(kv_compact);
const weir_kernel WEIR_K_ROW(kv_compact) = {
    .op = WEIR_OP_KV_COMPACT,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("kv_compact"),
    .atol = 0.0,
    .rtol = 0.0,
    .reject = reject,
    .run = WEIR_K(kv_compact),
};
