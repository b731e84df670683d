/* engine/session/state_form.h - the recurrent state of a sequence as state databases store it:
 * packed in fewer bits, or merged from two.
 *
 * Layers whose blocks support it are packed and merged (engine/model/state_ops.h). The memory of
 * others is copied unchanged, and cannot be merged. */
#pragma once
#include "engine/model/model.h"
#include "engine/session/sessions.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the state packed in 8 or 4 bits; 0: no layer can be packed. */
size_t weir_state_packed_bytes(const weir_model *model, int32_t bits);
/* recurrent [weir_model_recurrent_bytes] must be valid (weir_model_is_state). Returns EUNSUPPORTED
 * for a value that the packed form cannot hold. */
WEIR_MUST_CHECK weir_status weir_state_pack(
    const weir_model *model, const float *recurrent, int32_t bits, void *packed, weir_error *error
);
/* Returns EFORMAT for bytes that are no state; `recurrent` is then undefined. */
WEIR_MUST_CHECK weir_status weir_state_unpack(
    const weir_model *model, const void *packed, int32_t bits, float *recurrent, weir_error *error
);

/* Returns NULL, or why states of this model cannot be merged; static text. */
const char *weir_state_merge_problem(const weir_model *model);
size_t weir_state_merge_scratch(const weir_model *model);
/* All but `scratch` [weir_state_merge_scratch] are states of one sequence each; `out` must not
 * alias the others. */
void weir_state_merge(
    const weir_model *model, const float *earlier, const float *later, float *out, void *scratch,
    weir_state_merged *merged
);

#ifdef __cplusplus
}
#endif
