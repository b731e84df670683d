#include "engine/session/state_form.h"

#include <string.h>

#include "engine/kv/coda_compose.h"
#include "engine/kv/coda_state.h"

/* ---- fewer bits ------------------------------------------------------------------------------ */
/* Layers lie in their order in the recurrent memory: what is between two that are packed is kept as
 * it is. */
typedef struct piece {
    weir_coda_layer layer; /* if is_coda */
    bool            is_coda;
    size_t          at, bytes; /* in memory */
    size_t          packed_at, packed_bytes;
} piece;

static size_t padded(size_t n) { return (n + 63) / 64 * 64; }

/* From `at` to the next layer that is packed, or that layer; false: there is no more. next_layer:
 * where to look on. */
static bool next_piece(const weir_model *model, int32_t bits, int64_t *next_layer, piece *p)
{
    const size_t  at = p->at + p->bytes, total = weir_model_recurrent_bytes(model);
    const int64_t n = weir_model_shape(model)->n_layers;
    size_t        begin = total;
    if (at == total) return false;
    *p = (piece){ .at = at, .packed_at = p->packed_at + p->packed_bytes };
    while (*next_layer < n && !weir_model_coda_layer(model, *next_layer, &p->layer))
        (*next_layer)++;
    if (*next_layer < n)
        begin = (size_t)weir_model_layer_memory(model, *next_layer).state_offset * sizeof(float);
    p->is_coda = begin == at;
    p->bytes = p->is_coda ? weir_coda_view(&p->layer, NULL).bytes : begin - at;
    p->packed_bytes = padded(p->is_coda ? weir_coda_packed_bytes(&p->layer, bits) : p->bytes);
    *next_layer += p->is_coda;
    return true;
}

size_t weir_state_packed_bytes(const weir_model *model, int32_t bits)
{
    piece   p = { 0 };
    int64_t layer = 0;
    bool    is_any = false;
    while (next_piece(model, bits, &layer, &p)) is_any = is_any || p.is_coda;
    return is_any ? p.packed_at + p.packed_bytes : 0;
}

weir_status weir_state_pack(const weir_model *model, const float *recurrent, int32_t bits,
                            void *packed, weir_error *error)
{
    piece   p = { 0 };
    int64_t layer = 0;
    memset(packed, 0, weir_state_packed_bytes(model, bits));
    while (next_piece(model, bits, &layer, &p)) {
        const char *const from = (const char *)recurrent + p.at;
        char *const       to = (char *)packed + p.packed_at;
        if (p.is_coda)
            WEIR_TRY(weir_coda_pack(&p.layer, from, bits, to, error));
        else
            memcpy(to, from, p.bytes);
    }
    return WEIR_OK;
}

weir_status weir_state_unpack(const weir_model *model, const void *packed, int32_t bits,
                              float *recurrent, weir_error *error)
{
    piece   p = { 0 };
    int64_t layer = 0;
    while (next_piece(model, bits, &layer, &p)) {
        const char *const from = (const char *)packed + p.packed_at;
        char *const       to = (char *)recurrent + p.at;
        if (p.is_coda)
            WEIR_TRY(weir_coda_unpack(&p.layer, from, bits, to, error));
        else
            memcpy(to, from, p.bytes);
    }
    return WEIR_OK;
}

/* ---- two as one ------------------------------------------------------------------------------ */
const char *weir_state_merge_problem(const weir_model *model)
{
    weir_coda_layer layer;
    for (int64_t i = 0; i < weir_model_shape(model)->n_layers; i++)
        if (!weir_model_coda_layer(model, i, &layer))
            return weir_model_layer_memory(model, i).kv_index >= 0
                       ? "some of its layers attend to all rows of a text, and rows of two texts "
                         "do not make one"
                       : "some of its layers keep a memory that nobody knows how to add to another";
    return NULL;
}

size_t weir_state_merge_scratch(const weir_model *model)
{
    size_t          most = 0;
    weir_coda_layer layer;
    for (int64_t i = 0; i < weir_model_shape(model)->n_layers; i++) {
        if (!weir_model_coda_layer(model, i, &layer)) continue;
        const size_t bytes = weir_coda_merge_scratch(&layer);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Slots [first, first + n) that are in use. */
static int64_t count_used(const weir_coda_layer *layer, const float *memory, int64_t first,
                          int64_t n)
{
    const weir_coda_state state = weir_coda_view(layer, (void *)(uintptr_t)memory); /* only read */
    int64_t               used = 0;
    for (int64_t slot = first; slot < first + n; slot++) used += weir_coda_is_used(&state, slot);
    return used;
}

void weir_state_merge(const weir_model *model, const float *earlier, const float *later, float *out,
                      void *scratch, weir_state_merged *merged)
{
    weir_coda_layer layer;
    *merged = (weir_state_merged){ 0 };
    memcpy(out, later, weir_model_recurrent_bytes(model));
    for (int64_t i = 0; i < weir_model_shape(model)->n_layers; i++) {
        if (!weir_model_coda_layer(model, i, &layer)) continue;
        const int64_t at = weir_model_layer_memory(model, i).state_offset, exact = layer.window,
                      summary = exact + layer.n_exact;
        weir_coda_merge(&layer, earlier + at, later + at, out + at, scratch);
        merged->n_recent_earlier += count_used(&layer, earlier + at, 0, layer.window);
        merged->n_exact_earlier += count_used(&layer, earlier + at, exact, layer.n_exact);
        merged->n_exact_later += count_used(&layer, later + at, exact, layer.n_exact);
        merged->n_exact_kept += count_used(&layer, out + at, exact, layer.n_exact);
        merged->n_summary_earlier += count_used(&layer, earlier + at, summary, layer.n_summary);
        merged->n_summary_later += count_used(&layer, later + at, summary, layer.n_summary);
        merged->n_summary_kept += count_used(&layer, out + at, summary, layer.n_summary);
    }
}
