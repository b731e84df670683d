#include "engine/session/state_form.h"

#include <string.h>

/* ---- fewer bits ------------------------------------------------------------------------------ */
/* Layers are in order in the recurrent state. Memory between two packed layers is copied as it
 * is. */
typedef struct piece {
    const weir_state_ops *state; /* of the layer, if it is packed; NULL: copied */
    const void *options;
    size_t at, bytes; /* of the pages in memory */
    size_t packed_at, packed_bytes;
} piece;

static size_t padded(size_t n) { return (n + 63) / 64 * 64; }

static const weir_state_ops *state_of(const weir_model *model, int64_t layer)
{
    return weir_model_layer_mixer(model, layer)->state;
}

static bool is_packed(const weir_model *model, int64_t layer)
{
    const weir_state_ops *const state = state_of(model, layer);
    return state != NULL && state->packed_bytes != NULL;
}

/* From `at` to the next packed layer, or that layer. Returns false at the end. next_layer: where to
 * continue the search. */
static bool next_piece(const weir_model *model, int32_t bits, int64_t *next_layer, piece *p)
{
    const weir_shape *const shape = weir_model_shape(model);
    const size_t at = p->at + p->bytes, total = weir_model_recurrent_bytes(model);
    size_t begin = total;
    if (at == total) return false;
    *p = (piece){ .at = at, .packed_at = p->packed_at + p->packed_bytes };
    while (*next_layer < shape->n_layers && !is_packed(model, *next_layer)) (*next_layer)++;
    if (*next_layer < shape->n_layers)
        begin = (size_t)weir_model_layer_memory(model, *next_layer).state_offset * sizeof(float);
    p->bytes = p->packed_bytes = begin - at;
    if (begin == at) {
        p->state = state_of(model, *next_layer);
        p->options = weir_model_layer_options(model, *next_layer);
        p->bytes = p->state->packable_bytes(shape, p->options);
        p->packed_bytes = p->state->packed_bytes(shape, p->options, bits);
        (*next_layer)++;
    }
    p->packed_bytes = padded(p->packed_bytes);
    return true;
}

size_t weir_state_packed_bytes(const weir_model *model, int32_t bits)
{
    piece p = { 0 };
    int64_t layer = 0;
    bool is_any = false;
    while (next_piece(model, bits, &layer, &p)) is_any = is_any || p.state != NULL;
    return is_any ? p.packed_at + p.packed_bytes : 0;
}

weir_status weir_state_pack(
    const weir_model *model, const float *recurrent, int32_t bits, void *packed, weir_error *error
)
{
    piece p = { 0 };
    int64_t layer = 0;
    memset(packed, 0, weir_state_packed_bytes(model, bits));
    while (next_piece(model, bits, &layer, &p)) {
        const char *const from = (const char *)recurrent + p.at;
        char *const to = (char *)packed + p.packed_at;
        if (p.state != NULL)
            WEIR_TRY(p.state->pack(weir_model_shape(model), p.options, from, bits, to, error));
        else
            memcpy(to, from, p.bytes);
    }
    return WEIR_OK;
}

weir_status weir_state_unpack(
    const weir_model *model, const void *packed, int32_t bits, float *recurrent, weir_error *error
)
{
    piece p = { 0 };
    int64_t layer = 0;
    while (next_piece(model, bits, &layer, &p)) {
        const char *const from = (const char *)packed + p.packed_at;
        char *const to = (char *)recurrent + p.at;
        if (p.state != NULL)
            WEIR_TRY(p.state->unpack(weir_model_shape(model), p.options, from, bits, to, error));
        else
            memcpy(to, from, p.bytes);
    }
    return WEIR_OK;
}

/* ---- two as one ------------------------------------------------------------------------------ */
const char *weir_state_merge_problem(const weir_model *model)
{
    for (int64_t i = 0; i < weir_model_shape(model)->n_layers; i++) {
        const weir_state_ops *const state = state_of(model, i);
        if (weir_model_layer_kv(model, i) != NULL)
            return "some of its layers attend to all rows of a sequence, which cannot be merged "
                   "with "
                   "those of another";
        if (state == NULL || state->merge == NULL)
            return "some of its layers keep a state that cannot be merged with another";
    }
    return NULL;
}

size_t weir_state_merge_scratch(const weir_model *model)
{
    size_t most = 0;
    for (int64_t i = 0; i < weir_model_shape(model)->n_layers; i++) {
        const weir_state_ops *const state = state_of(model, i);
        if (state == NULL || state->merge == NULL) continue;
        const size_t bytes =
            state->merge_scratch(weir_model_shape(model), weir_model_layer_options(model, i));
        if (bytes > most) most = bytes;
    }
    return most;
}

void weir_state_merge(
    const weir_model *model, const float *earlier, const float *later, float *out, void *scratch,
    weir_state_merged *merged
)
{
    *merged = (weir_state_merged){ 0 };
    memcpy(out, later, weir_model_recurrent_bytes(model));
    for (int64_t i = 0; i < weir_model_shape(model)->n_layers; i++) {
        const weir_state_ops *const state = state_of(model, i);
        const int64_t at = weir_model_layer_memory(model, i).state_offset;
        if (state != NULL && state->merge != NULL)
            state->merge(
                weir_model_shape(model), weir_model_layer_options(model, i), earlier + at,
                later + at, out + at, scratch, merged
            );
    }
}
