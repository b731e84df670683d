/* tools/convert/from_gguf.h - a GGUF file written again with other types. */
#pragma once
#include "tools/convert/plan.h"
#include "tools/convert/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Plans all tensors of the file, with the types of the mix, and puts its keys to the writer. */
WEIR_MUST_CHECK weir_status weir_plan_from_gguf(
    weir_plan *plan, weir_gguf_writer *writer, const weir_tensor_directory *directory,
    const weir_mix *mix, weir_error *error
);
/* Rows of such a plan; user: the directory. */
weir_row_reader weir_gguf_row_reader(const weir_tensor_directory *directory);

#ifdef __cplusplus
}
#endif
