/* tools/convert/from_checkpoint.h - a bound safetensors checkpoint as the tensors of a GGUF file:
 * names, shapes and fused tensors as the arch file declares them for GGUF. */
#pragma once
#include "engine/model/sources.h"
#include "tools/convert/plan.h"
#include "tools/convert/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_checkpoint weir_checkpoint;

/* model, written_as: outlive the checkpoint. written_as: the architecture in GGUF. */
WEIR_MUST_CHECK weir_status weir_checkpoint_open(
    weir_checkpoint **out, const weir_model *model, const weir_arch *written_as,
    const weir_tensor_directory *directory, weir_error *error
);
void weir_checkpoint_close(weir_checkpoint *checkpoint); /* NULL-safe */
/* Plans all tensors with the types of the mix. */
WEIR_MUST_CHECK weir_status weir_plan_from_checkpoint(
    weir_plan *plan, weir_checkpoint *checkpoint, const weir_mix *mix, weir_error *error
);
weir_row_reader weir_checkpoint_row_reader(weir_checkpoint *checkpoint);

#ifdef __cplusplus
}
#endif
