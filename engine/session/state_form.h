/* engine/session/state_form.h - the recurrent memory of a sequence as state databases keep it: in
 * fewer bits, or made of two.
 *
 * Layers whose blocks can are packed and merged (engine/model/state_ops.h); the memory of others is
 * kept to the bit, and cannot be merged. */
#pragma once
#include "engine/model/model.h"
#include "engine/session/sessions.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the memory takes in so many bits, 8 or 4; 0: no layer can be packed. */
size_t weir_state_packed_bytes(const weir_model *model, int32_t bits);
/* recurrent [weir_model_recurrent_bytes] is what a text left (weir_model_is_state). EUNSUPPORTED as
 * weir_coda_pack. */
WEIR_MUST_CHECK weir_status weir_state_pack(
    const weir_model *model, const float *recurrent, int32_t bits, void *packed, weir_error *error
);
/* EFORMAT for bytes that are no state; `recurrent` is then void. */
WEIR_MUST_CHECK weir_status weir_state_unpack(
    const weir_model *model, const void *packed, int32_t bits, float *recurrent, weir_error *error
);

/* NULL, or why states of this model cannot be merged; a static text. */
const char *weir_state_merge_problem(const weir_model *model);
size_t weir_state_merge_scratch(const weir_model *model);
/* All but `scratch` [weir_state_merge_scratch] is memory of one sequence each; `out` is none of the
 * others. */
void weir_state_merge(
    const weir_model *model, const float *earlier, const float *later, float *out, void *scratch,
    weir_state_merged *merged
);

#ifdef __cplusplus
}
#endif
