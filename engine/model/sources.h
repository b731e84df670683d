/* engine/model/sources.h - what the parameters of a bound model are read from: for programs that
 * write them elsewhere. The model need not be loaded. */
#pragma once
#include "engine/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A parameter with its elements in the checkpoint: `n_matrices` of [n_rows, n_in] (a parameter of
 * experts or heads has several), or a vector, whose rows are elements: n_in = 1. */
typedef struct weir_parameter_source {
    const char *name; /* as in [tensor]; borrowed from the model */
    int64_t layer; /* -1: of no layer */
    weir_parameter_kind kind;
    const weir_parameter *parameter; /* of a block; NULL: of the model itself, or a norm */
    bool is_mixer; /* the block is the layer's mixer, not its feed-forward block */
    int64_t n_matrices, n_rows, n_in;
    size_t first; /* private */
} weir_parameter_source;

/* Lists all parameters that have elements in the checkpoint: embedding, the layers in order, last
 * norm, output unless it is the embedding. The caller frees *out with weir_memory_give. */
WEIR_MUST_CHECK weir_status weir_model_sources(
    weir_parameter_source **out, size_t *n, const weir_model *model, weir_error *error
);

/* The type of its elements: that of the checkpoint's, f32 of what has to be computed (transposed
 * blocks, FP8 with scales). */
weir_dtype weir_source_dtype(const weir_model *model, const weir_parameter_source *source);
/* What the values of its rows are to be multiplied by; 1 for all but the table of embeddings. */
float weir_source_factor(const weir_model *model, const weir_parameter_source *source);
/* Bytes that weir_source_rows needs to gather a matrix; 0: its rows are read in place. */
size_t weir_source_gathered(const weir_model *model, const weir_parameter_source *source);
/* The rows of a matrix one after another, of weir_source_dtype: gathered, or in the mapped file.
 * gathered: weir_source_gathered bytes */
const unsigned char *weir_source_rows(
    const weir_model *model, const weir_parameter_source *source, int64_t matrix,
    unsigned char *gathered
);
/* The elements of a vector, [n_rows], with the transform of its entry.
 * errors : EUNSUPPORTED (a type of integers), EFORMAT (not finite) */
WEIR_MUST_CHECK weir_status weir_source_vector(
    const weir_model *model, const weir_parameter_source *source, float *out, weir_error *error
);
/* The matrices as products have them, [n_matrices] adjacent: what a call of matmul is about. Of the
 * embedding those of the output, if they are the same; else NULL, as of vectors. */
const weir_weight *weir_source_weights(
    const weir_model *model, const weir_parameter_source *source
);
/* The tensor with the first of its elements; borrowed. */
const weir_tensor *weir_source_tensor(const weir_model *model, const weir_parameter_source *source);
/* Tells the kernel that the pages read so far are not needed again soon. */
void weir_source_release(const weir_model *model, const weir_parameter_source *source);

/* The blocks of a layer with their options in this model. */
const weir_block_use *weir_model_layer_use(const weir_model *model, int64_t layer, bool is_mixer);
const weir_arch *weir_model_arch_of(const weir_model *model);

#ifdef __cplusplus
}
#endif
