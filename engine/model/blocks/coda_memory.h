/* engine/model/blocks/coda_memory.h - a sequence's memory in one layer: the state of
 * kernels/abi/coda.h and, where gates come from values, their mean length. */
#pragma once
#include "engine/model/block.h"
#include "kernels/abi/coda.h"

/* Without its rates. */
weir_coda_layer weir_coda_layer_of(const weir_shape *shape, const weir_block_options *options);
/* Why there can be no such memory; NULL: there can. */
const char *weir_coda_memory_reject(const weir_shape *shape, const weir_block_options *options);
/* f32 elements. */
int64_t weir_coda_memory_elements(const weir_shape *shape, const weir_block_options *options);
/* Makes a state of memory that is still zeros. */
void weir_coda_memory_begin(const weir_coda_layer *layer, const weir_block_options *options,
                            void *memory);
/* Mean length of values, which gates that come from them are measured by; NULL: there are none. */
float *weir_coda_memory_level(const weir_coda_layer *layer, const weir_block_options *options,
                              void *memory);
/* Whatever the bytes are: a state after `n_tokens`. */
bool weir_coda_memory_is_sound(const weir_shape *shape, const weir_block_options *options,
                               const void *memory, int64_t n_tokens);
/* Adds what the memory holds and counted; NULL: its capacity alone. */
void weir_coda_memory_count(const weir_shape *shape, const weir_block_options *options,
                            const void *memory, weir_banks *sum);
