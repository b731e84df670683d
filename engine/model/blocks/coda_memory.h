/* engine/model/blocks/coda_memory.h - a sequence's memory in one layer: the state of
 * kernels/abi/coda.h and, if gates come from values, their mean length. */
#pragma once
#include "engine/model/model.h"
#include "kernels/abi/coda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Does not set the rates. */
weir_coda_layer weir_coda_layer_of(const weir_shape *shape, const void *options);
/* Returns NULL, or why there can be no such memory. */
const char *weir_coda_memory_reject(const weir_shape *shape, const void *options);
/* Initialises the state in zeroed memory. */
void weir_coda_memory_begin(const weir_coda_layer *layer, const void *options, void *memory);
/* The mean length of values, from which gates are computed; NULL if gates do not come from
 * values. */
float *weir_coda_memory_level(const weir_coda_layer *layer, const void *options, void *memory);
/* Size, checks, counts, and stored forms. */
extern const weir_state_ops weir_coda_state_ops;
/* Gets a layer of the model that has such a memory. Returns false for other layers. */
bool weir_coda_layer_at(const weir_model *model, int64_t layer, weir_coda_layer *out);

#ifdef __cplusplus
}
#endif
