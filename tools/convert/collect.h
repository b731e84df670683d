/* tools/convert/collect.h - sums the squares of the inputs of a model's matrices while it computes,
 * for an importance matrix (imatrix.h). */
#pragma once
#include "engine/base/error.h"
#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weir_model;
typedef struct weir_collector weir_collector;

/* Finds the matrices of a model, and their names in GGUF. path: its file or folder, opened again;
 * arch_dir: more architectures, NULL: none. The model must outlive the collector, and hold all its
 * experts in memory.
 * errors : those of opening the file; EUNSUPPORTED: the architecture has no form in GGUF */
WEIR_MUST_CHECK weir_status weir_collector_open(
    weir_collector **out, const struct weir_model *model, const char *path, const char *arch_dir,
    weir_error *error
);
void weir_collector_close(weir_collector *collector); /* NULL-safe */

/* An observer of a stream of the host (weir_stream_observe); user: the collector. */
void weir_collector_see(void *user, weir_op op, const void *args);

typedef struct weir_collected {
    size_t n_tensors; /* with inputs */
    size_t n_unused; /* matrices, most of them experts, that no row was multiplied with */
} weir_collected;
/* Writes the file.
 * errors : EINVAL: nothing was computed; EIO */
WEIR_MUST_CHECK weir_status weir_collector_write(
    weir_collected *out, const weir_collector *collector, const char *path, const char *text_name,
    uint32_t n_windows, uint32_t window, weir_error *error
);

#ifdef __cplusplus
}
#endif
