/* kernels/abi/coda.h - the bounded memory of an attention layer for one sequence (CoDA-GQA-L, Maio
 * 2026): a ring of the most recent rows, a bank of exact rows, a bank of prototypes that rows are
 * blended into; and the layout of all three.
 *
 *   slot  0 .. window - 1: the ring | n_exact slots of the exact bank | n_summary slots of the
 *         summary bank
 *   row   of the pages: where a slot's key and value are. The slots in use have rows 0 ..
 *         n_rows - 1, in the order of their first use, so attention reads them densely, without a
 *         mask. The other slots have the rows after those, and their contents matter: routing
 *         compares unused prototypes too, and a first write blends with the old contents.
 * A state is one block of memory without pointers, copied to fork, save and restore it:
 * weir_coda_head, then arrays at multiples of 64 bytes. Pages are those of kv_page.h in f32, f16 or
 * bf16, [KV head][page]. Keys are rotated to their own positions once. */
#pragma once
#include <math.h>

#include "kernels/abi/convert.h"
#include "kernels/abi/kv_format.h"

/* Dimensions with slow rotation: prototypes hold only these of a key, since blending keys of
 * different positions is sound where their phases hardly differ. */
typedef enum weir_coda_band {
    /* head_dim / 2 and up: right for interleaved pairs; the published package uses it for every
     * layout. */
    WEIR_CODA_UPPER_HALF,
    WEIR_CODA_SLOW_PAIRS, /* of pairs (i, i + head_dim / 2): i >= head_dim / 4 */
} weir_coda_band;

/* The parameters that all states of a layer share. */
typedef struct weir_coda_layer {
    int64_t n_kv_heads, head_dim; /* of keys and values */
    int32_t window, n_exact, n_summary; /* slots */
    /* Used from the start; the others are opened as the sequence grows. */
    int32_t least_exact, least_summary;
    int64_t growth; /* all of them after this many tokens; <= 0: as needed */
    /* Most rows considered of those that leave the ring together; 0: none. */
    int32_t exact_candidates, summary_candidates;
    float exact_gate, summary_gate; /* minimum write gates */
    /* Mean cosine of values: from `hit` on they are the same, below `novelty` new. */
    float hit, novelty;
    bool is_gated; /* false: every gate is 1 and passes */
    bool refreshes; /* a hit overwrites what it hit */
    /* The first row of a prototype becomes it, whatever the rate. */
    bool founds;
    /* Finds candidates as the published package does: kernels/abi/coda_choice.h. */
    bool is_compat;
    weir_coda_band band;
    weir_kv_format format; /* F32, F16, BF16 */
    /* [n_kv_heads] blending rates: sigmoid of the layer's parameter. */
    const float *rates;
} weir_coda_layer;

typedef enum weir_coda_count {
    WEIR_CODA_EVICTIONS, /* rows that left the ring */
    WEIR_CODA_GATED_OUT, /* below the gate of the exact bank */
    WEIR_CODA_HITS,
    WEIR_CODA_INSERTS,
    WEIR_CODA_OVERWRITES,
    /* Of prototypes: a block counts prototypes, a step counts rows. */
    WEIR_CODA_UPDATES,
    WEIR_CODA_FOUNDED,
    WEIR_CODA_EXACT_FRUSTRATED,
    WEIR_CODA_SUMMARY_FRUSTRATED,
    WEIR_CODA_EXACT_OPENED,
    WEIR_CODA_SUMMARY_OPENED,
    WEIR_CODA_COUNTS
} weir_coda_count;

typedef struct weir_coda_head {
    int64_t position; /* of the next token */
    /* Slot of the oldest row in the ring once it is full; else 0. */
    int32_t first_recent, n_recent;
    int32_t n_open_exact, n_open_summary;
    int32_t n_rows; /* slots in use */
    int32_t reserved;
    int64_t counts[WEIR_CODA_COUNTS];
} weir_coda_head;

typedef struct weir_coda_state {
    weir_coda_head *head;
    /* [n_exact] position of the row that last matched the slot. */
    int64_t *used_at;
    int32_t *rows; /* [slots] */
    float *gates; /* [window] */
    char *pages; /* [n_kv_heads][n_pages] of page_bytes */
    int64_t n_pages, page_bytes, n_slots;
    size_t bytes; /* of all */
} weir_coda_state;

static inline int64_t weir_coda_slots(const weir_coda_layer *layer)
{
    return (int64_t)layer->window + layer->n_exact + layer->n_summary;
}

static inline const char *weir_coda_reject(const weir_coda_layer *layer)
{
    if (layer->format != WEIR_KV_F32 && layer->format != WEIR_KV_F16 &&
        layer->format != WEIR_KV_BF16)
        return "CoDA states are f32, f16 or bf16";
    if (layer->n_kv_heads < 1 || layer->head_dim < 2 || layer->head_dim % 2 != 0 ||
        layer->head_dim > 512 || layer->n_kv_heads > 1 << 12)
        return "CoDA: heads do not fit";
    if (layer->window < 1 || layer->window > 1 << 24 || layer->n_exact < 0 ||
        layer->n_exact > 1 << 20 || layer->n_summary < 0 || layer->n_summary > 1 << 20)
        return "CoDA: slots do not fit";
    if (layer->least_exact < 0 || layer->least_exact > layer->n_exact || layer->least_summary < 0 ||
        layer->least_summary > layer->n_summary)
        return "CoDA: more slots are open than there are";
    return NULL;
}

/* The arrays of a state in its memory, 64-byte aligned; NULL: only the sizes. The layer must not
 * have been rejected. */
static inline weir_coda_state weir_coda_view(const weir_coda_layer *layer, void *memory)
{
    weir_coda_state state;
    size_t at = 0;
    memset(&state, 0, sizeof state);
    state.n_slots = weir_coda_slots(layer);
    state.n_pages = (state.n_slots + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
    state.page_bytes =
        weir_kv_bytes(layer->format, layer->format, layer->head_dim, layer->head_dim);
#define PLACE(field, type, count)                                                                  \
    do {                                                                                           \
        state.field = memory ? (type *)((char *)memory + at) : NULL;                               \
        at = (at + (size_t)(count) * sizeof(type) + 63) / 64 * 64;                                 \
    } while (0)
    PLACE(head, weir_coda_head, 1);
    PLACE(used_at, int64_t, layer->n_exact);
    PLACE(rows, int32_t, state.n_slots);
    PLACE(gates, float, layer->window);
    PLACE(pages, char, layer->n_kv_heads *state.n_pages *state.page_bytes);
#undef PLACE
    state.bytes = at;
    return state;
}

/* ---- low band -------------------------------------------------------------------------------- */
static inline bool weir_coda_is_low(const weir_coda_layer *layer, int64_t dim)
{
    const int64_t half = layer->head_dim / 2;
    return layer->band == WEIR_CODA_UPPER_HALF ? dim >= half : dim % half >= half / 2;
}
static inline int64_t weir_coda_low_dims(const weir_coda_layer *layer)
{
    const int64_t half = layer->head_dim / 2;
    return layer->band == WEIR_CODA_UPPER_HALF ? layer->head_dim - half : 2 * (half - half / 2);
}
/* Prototypes have fewer dimensions: their keys are scaled up so that logits keep their size. */
static inline float weir_coda_energy(const weir_coda_layer *layer)
{
    return (float)sqrt((double)layer->head_dim / (double)weir_coda_low_dims(layer));
}

/* ---- numbers --------------------------------------------------------------------------------- */
/* Decisions and stored values have the same bits on every target, with or without fused
 * multiply-adds: products of two floats are exact in f64, and each operation is rounded
 * separately. */
static inline float weir_coda_gate(float logit)
{
    return (float)(1.0 / (1.0 + exp(-(double)logit)));
}

/* old + rate * (scale * in - old) */
static inline float weir_coda_blend(float old, float in, float scale, float rate)
{
    const float step = (float)((double)scale * (double)in - (double)old);
    return (float)((double)old + (double)rate * (double)step);
}

/* ---- elements -------------------------------------------------------------------------------- */
static inline float weir_coda_load(weir_kv_format format, const char *base, int64_t index)
{
    uint16_t bits;
    float value;
    if (format == WEIR_KV_F32) {
        memcpy(&value, base + index * 4, sizeof value);
        return value;
    }
    memcpy(&bits, base + index * 2, sizeof bits);
    return format == WEIR_KV_BF16 ? weir_bf16_to_f32(bits) : weir_f16_to_f32(bits);
}
static inline void weir_coda_store(weir_kv_format format, char *base, int64_t index, float value)
{
    const uint16_t bits =
        format == WEIR_KV_BF16 ? weir_bf16_from_f32(value) : weir_f16_from_f32(value);
    if (format == WEIR_KV_F32)
        memcpy(base + index * 4, &value, sizeof value);
    else
        memcpy(base + index * 2, &bits, sizeof bits);
}

/* Element index of a row's dimension inside its page, K or V. */
static inline int64_t weir_coda_index(
    const weir_coda_layer *layer, weir_kv_side side, int64_t row, int64_t dim
)
{
    const int64_t token = row % WEIR_PAGE_TOKENS, n = layer->head_dim;
    return side == WEIR_KV_K ? weir_page_k(token, dim, n) : weir_page_v(token, n, n) + dim;
}
static inline char *weir_coda_page(const weir_coda_state *state, int64_t head, int64_t row)
{
    return state->pages + (head * state->n_pages + row / WEIR_PAGE_TOKENS) * state->page_bytes;
}
/* Reads or writes [n_kv_heads, head_dim] of a row. */
static inline void weir_coda_read(
    const weir_coda_layer *layer, const weir_coda_state *state, weir_kv_side side, int64_t row,
    float *out
)
{
    for (int64_t h = 0; h < layer->n_kv_heads; h++)
        for (int64_t d = 0; d < layer->head_dim; d++)
            out[h * layer->head_dim + d] = weir_coda_load(
                layer->format, weir_coda_page(state, h, row), weir_coda_index(layer, side, row, d)
            );
}
static inline void weir_coda_put(
    const weir_coda_layer *layer, const weir_coda_state *state, weir_kv_side side, int64_t row,
    const float *in
)
{
    for (int64_t h = 0; h < layer->n_kv_heads; h++)
        for (int64_t d = 0; d < layer->head_dim; d++)
            weir_coda_store(
                layer->format, weir_coda_page(state, h, row), weir_coda_index(layer, side, row, d),
                in[h * layer->head_dim + d]
            );
}

/* ---- slots ----------------------------------------------------------------------------------- */
/* Sets a state without tokens. The banks are zero; initial contents are written afterwards, slot by
 * slot. */
static inline void weir_coda_reset(const weir_coda_layer *layer, void *memory)
{
    const weir_coda_state state = weir_coda_view(layer, memory);
    memset(memory, 0, state.bytes);
    state.head->n_open_exact = layer->least_exact;
    state.head->n_open_summary = layer->least_summary;
    for (int64_t slot = 0; slot < state.n_slots; slot++) state.rows[slot] = (int32_t)slot;
}

static inline bool weir_coda_is_used(const weir_coda_state *state, int64_t slot)
{
    return state->rows[slot] < state->head->n_rows;
}

/* Marks the slot as used: swaps its row, contents included, with that of the unused slot which has
 * the first row after the used ones. */
static inline void weir_coda_use(
    const weir_coda_layer *layer, const weir_coda_state *state, int64_t slot
)
{
    if (weir_coda_is_used(state, slot)) return;
    const int32_t to = state->head->n_rows++, from = state->rows[slot];
    int64_t other = 0;
    while (state->rows[other] != to) other++;
    if (from == to) return;
    state->rows[other] = from;
    state->rows[slot] = to;
    for (int64_t h = 0; h < layer->n_kv_heads; h++)
        for (int64_t d = 0; d < layer->head_dim; d++)
            for (int side = WEIR_KV_K; side <= WEIR_KV_V; side++) {
                char *const a = weir_coda_page(state, h, from), *const b =
                                                                    weir_coda_page(state, h, to);
                const int64_t i = weir_coda_index(layer, (weir_kv_side)side, from, d),
                              j = weir_coda_index(layer, (weir_kv_side)side, to, d);
                const float x = weir_coda_load(layer->format, a, i),
                            y = weir_coda_load(layer->format, b, j);
                weir_coda_store(layer->format, a, i, y);
                weir_coda_store(layer->format, b, j, x);
            }
}

/* Opens up to `n` more slots of a bank that has `least` at the start and `most` in all, as far as
 * the length of the sequence allows. Returns how many. */
static inline int32_t weir_coda_open_slots(
    const weir_coda_layer *layer, int32_t *n_open, int32_t least, int32_t most, int64_t position,
    int32_t n
)
{
    const double share =
        layer->growth <= 0 ? 1.0 : log(1.0 + (double)position) / log(1.0 + (double)layer->growth);
    const int32_t limit = least + (int32_t)((double)(most - least) * (share < 1.0 ? share : 1.0));
    const int32_t more = limit - *n_open < n ? limit - *n_open : n;
    if (more <= 0) return 0;
    *n_open += more;
    return more;
}
