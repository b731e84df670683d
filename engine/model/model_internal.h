/* engine/model/model_internal.h - internals of weir_model, shared by binding, loading and the
 * forward pass. */
#pragma once
#include "engine/model/model.h"
#include "engine/model/rope.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum transform { TRANSFORM_NONE, TRANSFORM_ONE_PLUS, TRANSFORM_NEG_EXP } transform;

/* Rows r of a parameter in its tensor: r / length * stride + r % length, counted from its first. */
typedef struct weir_row_runs {
    int64_t length, stride;
} weir_row_runs;

static inline int64_t weir_row_at(weir_row_runs runs, int64_t row)
{
    return row / runs.length * runs.stride + row % runs.length;
}

/* FP8 matrices have a scale for each block of as many rows and inputs. */
enum { WEIR_SCALED_BLOCK = 128 };

/* A matrix to pack, or a vector to convert, at load. A tensor may hold several of them. */
typedef struct bound_matrix {
    const weir_tensor *tensor;
    const unsigned char *data; /* in the tensor */
    /* MXFP4 in two tensors: `tensor` has the codes of blocks, [.., inputs / 32, 16], each byte
     * elements 2 j and 2 j + 1; `scales` the exponents, [.., inputs / 32]. FP8: `scales` has those
     * of blocks of the whole tensor, or one number for all of it. Otherwise NULL. */
    const weir_tensor *scales;
    const unsigned char *scale_data; /* in `scales` */
    int64_t first_row; /* in the tensor; FP8 */
    bool has_one_scale; /* FP8 */
    weir_row_runs runs;
    weir_dtype dtype, stored; /* of the matrix, and of the tensor */
    bool is_transposed; /* the tensor has its columns as rows */
    int64_t row_width; /* elements of the tensor's rows, of which the matrix has some; 0: all */
    float factor; /* of its elements; 0: none */
    int64_t expert; /* index in the parameter's array; 0 in other parameters */
    bool is_expert, is_last; /* of the tensor */
} bound_matrix;

typedef struct bound_vector {
    const float **parameter; /* where the pointer is stored */
    const weir_tensor *tensor;
    const unsigned char *data; /* in the tensor */
    int64_t count;
    weir_row_runs runs; /* of elements; a stride of 0: all are the tensor's only one */
    transform transform;
    float scale; /* factor of all elements, after the transform; 0: none */
    float initial; /* of all elements, if there is no tensor */
    bool is_joined; /* to the vector before it: no gap */
} bound_vector;

/* A parameter of experts in a layer: its matrices are weights [first, first + n) of the model. */
typedef struct weir_expert_array {
    int64_t layer, n;
    size_t first;
} weir_expert_array;

/* What a cache of experts takes (expert_cache.h). */
typedef struct weir_expert_plan {
    size_t entry_bytes; /* of the largest expert */
    /* Of a buffer: an expert as it lies in the file; and of one gathered matrix, 0: none is. */
    size_t read_bytes, gathered_bytes;
    int64_t timeout_ns; /* of a request to the disk */
    bool is_direct, may_be_cached; /* reads; whether they may be others where direct ones fail */
    bool prefetches;
    size_t all_bytes; /* of all experts, packed */
    size_t bytes; /* of the cache; 0: there is none, experts are weights like others */
    int64_t n_experts; /* of all layers */
    int32_t n_entries, n_reads, n_pins; /* n_reads: buffers; n_pins: pinned, at most */
} weir_expert_plan;

typedef struct layer {
    weir_block_use mixer, ffn, input; /* input: block NULL without per-layer embeddings */
    void *mixer_weights, *ffn_weights, *input_weights;
    /* Of a block's input and, `after`, of its output; NULL: none ([layers] norms). */
    const float *mixer_norm, *ffn_norm, *mixer_norm_after, *ffn_norm_after, *input_norm_after;
    /* [d_model] the same number: factor of the residual stream after the layer; NULL: none. */
    const float *scale;
    weir_block_kv kv; /* with kv_index >= 0 */
    /* The layer whose rows it reads, as a number of layers with KV rows of their own; -1: none. */
    int64_t kv_index;
    bool drops_rows; /* that layer keeps only the rows that its window reads */
    /* f32 elements in the sequence's recurrent state. */
    int64_t history_offset, state_offset, history_elements, state_elements;
} layer;

/* A head that drafts tokens (mtp.c). Its layer is layers[n_layers], which nothing else counts. */
typedef struct weir_mtp_head {
    bool is_planned, is_there; /* its layer can be a head; all its tensors are bound */
    bool reads_stream; /* the next draft reads what its last norm reads, not what that gives */
    const weir_weight *proj; /* [d_model, 2 d_model] */
    const float *embed_norm, *hidden_norm, *norm;
    size_t first_matrix, first_vector; /* its matrices and vectors are the last */
    size_t bytes, read_bytes; /* of its matrices; of those that one row uses */
    char problem[256]; /* why there is none, although it is wanted; empty: nothing is wrong */
} weir_mtp_head;

struct weir_model {
    /* adapter: may be NULL; replaces tensors of the other. */
    const weir_tensor_directory *directory, *adapter;
    const weir_arch *arch;
    weir_stream *stream;
    weir_activations activations;
    weir_kv_format state_format;
    weir_shape shape;
    /* The residual stream is kept divided by residual_scale, so blocks add what they compute as it
     * is: rows enter it times stream_scale, and their norms have stream_eps
     * (docs/decisions/0056). Both scales are 1 without one. */
    float residual_scale, stream_scale, stream_eps;
    float embedding_factor; /* `hf_factors` of the embedding; in stream_scale, too; 1: none */
    layer *layers;
    weir_kv_geometry *geometry; /* [kv_layers + window_layers], with first_head set */
    int32_t *kv_numbers; /* [kv_layers + window_layers] */
    weir_kv_reader *readers; /* [n_readers] */
    /* [max_matrices]: plans, then the weights themselves. Never reallocated: blocks point at them;
     * those of a parameter of experts are adjacent. */
    weir_weight *weights;
    bound_matrix *matrices; /* [max_matrices]: where they come from */
    bound_vector *vectors;
    size_t n_matrices, max_matrices, n_vectors, max_vectors;
    weir_expert_array *expert_arrays; /* [max_expert_arrays], ascending by layer */
    size_t n_expert_arrays, max_expert_arrays;
    weir_expert_plan expert_plan;
    struct weir_expert_cache *experts; /* NULL: all are in weight_memory */
    weir_expert_watch expert_watch; /* see NULL: none */
    bool *used; /* per tensor of the directory, then of the adapter */

    const weir_tensor *embedding;
    /* Per-layer embeddings (layer_inputs.c): the table [n_vocab, n_layers * d_layer_input], the
     * projection of embedded rows and its norm; NULL: none. */
    const weir_tensor *layer_embedding;
    const weir_weight *layer_projection;
    const float *layer_projection_norm;
    const weir_weight *output;
    const float *output_norm, *rope_factors;
    const float *rope_lists[2]; /* longrope's in GGUF: short, long; NULL until they are loaded */
    weir_rope_context rope_context;
    bool has_long_rope;
    int64_t reach; /* weir_rope_reach */
    /* near_*: for kernels. local_rope: from rope_theta_local, without scaling. */
    weir_rope_table rope, near_rope, near_local_rope;
    float *frequencies; /* of rope, then of local_rope */

    weir_ledger *ledger; /* of the memory below */
    /* Owned, near the kernels; near_frequencies only with a device. */
    void *weight_memory, *vector_memory, *near_frequencies;
    size_t weight_bytes, vector_bytes; /* weight_bytes: without experts that have a cache */
    size_t used_expert_bytes, idle_bytes; /* of experts that one row uses, and does not use */
    int64_t kv_layers, window_layers, n_readers, recurrent_elements, n_parameters;
    bool drops_windows, wants_mtp;
    int32_t block_rows;
    weir_mtp_head mtp;
};

/* The layers, and that of the draft head if there is one. */
static inline int64_t weir_model_all_layers(const weir_model *model)
{
    return model->shape.n_layers + model->mtp.is_there;
}

/* True for a matrix of an expert that is read when it is needed. */
static inline bool weir_model_is_cached(const weir_model *model, size_t matrix)
{
    return model->expert_plan.bytes > 0 && model->matrices[matrix].is_expert;
}

/* The directory that contains the tensor. */
const weir_tensor_directory *weir_model_directory_of(
    const weir_model *model, const weir_tensor *tensor
);
/* The index of the tensor among those of the directory, then of the adapter. */
size_t weir_model_tensor_index(const weir_model *model, const weir_tensor *tensor);

/* model.c */

enum { WEIR_WEIGHT_ALIGNMENT = 64 }; /* of the weights in weight_memory */

/* Places for the frequencies of one RoPE table. */
static inline size_t weir_model_frequencies(const weir_model *model)
{
    const int64_t own = model->shape.rotary_dim, local = weir_shape_local_rotary(&model->shape);
    return (size_t)((own > local ? own : local) / 2 + 1);
}
/* Bytes of RoPE's frequencies for a device's kernels; 0: they read the host's. */
size_t weir_model_near_frequency_bytes(const weir_model *model);
/* Called once for the scaling's own numbers, and after loading with the factors that a file may
 * have. */
WEIR_MUST_CHECK weir_status weir_model_resolve_rope(weir_model *model, weir_error *error);

/* Elements of a vector in its tensor. */
static inline int64_t weir_vector_elements(const bound_vector *vector)
{
    return vector->runs.stride == 0 && vector->tensor != NULL ? vector->runs.length : vector->count;
}

/* Width of a row of per-layer embeddings, of all layers; 0: none. */
static inline int64_t weir_model_layer_input_row(const weir_model *model)
{
    return model->shape.n_layers * model->shape.d_layer_input;
}

/* load.c */

/* Elements from the beginning of a vector to that of the next one. */
size_t weir_vector_stride(const weir_model *model, size_t index);
/* Resolves RoPE of a bound model whose vectors are not loaded: its factors are read for that. */
WEIR_MUST_CHECK weir_status weir_model_bind_rope(weir_model *model, weir_error *error);
/* Reads a vector to dst [count], and sets its parameter. `path` begins messages. */
WEIR_MUST_CHECK weir_status
weir_load_vector(const bound_vector *vector, float *dst, const char *path, weir_error *error);

/* layers.c: shapes that the arch file must have; the layers; space for what they bind. */
WEIR_MUST_CHECK weir_status weir_require_shapes(
    const weir_model *model, const char *const *names, const char *who, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_plan_layers(weir_model *model, weir_error *error);
WEIR_MUST_CHECK weir_status weir_open_parameters(weir_model *model, weir_error *error);

/* gather.c: matrices whose rows are not one after another in a tensor, or that the tensor has
 * transposed, or with their scales in another. */
bool weir_matrix_is_scattered(const bound_matrix *matrix, int64_t n_out);
/* Writes n_out rows of n_in elements one after another, as the matrix's type has them. */
void weir_matrix_gather(
    unsigned char *dst, const bound_matrix *matrix, int64_t n_out, int64_t n_in, int32_t n_threads
);

/* bind.c */
WEIR_MUST_CHECK weir_status weir_bind_tensors(weir_model *model, weir_error *error);
/* True if the architecture skips this tensor on purpose. */
bool weir_bind_skips(const weir_model *model, const char *name);
/* True for a tensor of the vision tower ([arch] images). */
bool weir_bind_is_of_images(const weir_model *model, const char *name);

#ifdef __cplusplus
}
#endif
