/* engine/model/blocks/coda_memory.h - a sequence's memory in one layer: the state of
 * kernels/abi/coda.h and, where gates come from values, their mean length. */
#pragma once
#include "engine/model/model.h"
#include "kernels/abi/coda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Without its rates. */
weir_coda_layer weir_coda_layer_of(const weir_shape *shape, const void *options);
/* Why there can be no such memory; NULL: there can. */
const char *weir_coda_memory_reject(const weir_shape *shape, const void *options);
/* Makes a state of memory that is still zeros. */
void weir_coda_memory_begin(const weir_coda_layer *layer, const void *options, void *memory);
/* Mean length of values, which gates that come from them are measured by; NULL: there are none. */
float *weir_coda_memory_level(const weir_coda_layer *layer, const void *options, void *memory);
/* Size, checks, counts, and the forms in which it is stored. */
extern const weir_state_ops weir_coda_state_ops;
/* A layer of the model that keeps such a memory; false: it is of another kind. */
bool weir_coda_layer_at(const weir_model *model, int64_t layer, weir_coda_layer *out);

#ifdef __cplusplus
}
#endif
