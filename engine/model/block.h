/* engine/model/block.h - blocks: the pieces that arch files combine. Blocks know shapes and
 * options, never architectures. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/formats/tensor_directory.h"
#include "engine/kv/pool/geometry.h"
#include "engine/model/block_option.h"
#include "engine/model/shape.h"
#include "engine/model/state_ops.h"
#include "engine/model/step.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_parameter_kind {
    WEIR_PARAMETER_MATRIX, /* packed for matmul: const weir_weight * */
    WEIR_PARAMETER_VECTOR, /* converted to f32, row-major: const float * */
    /* A matrix for each expert: const weir_weight *, an array as long as the first dimension; the
     * others are those of each matrix. All have the same type and layout. */
    WEIR_PARAMETER_EXPERTS,
    WEIR_PARAMETER_HEADS, /* the same for each head: every row uses all of them */
} weir_parameter_kind;

/* Options are the struct that the block's option table describes. */
typedef int64_t (*weir_extent)(const weir_shape *shape, const void *options);
/* Defines a weir_extent, an expression of `shape` and `options`; the second one is of its file. */
#define WEIR_SHARED_EXTENT(name, expression)                                                       \
    int64_t name(const weir_shape *shape, const void *options)                                     \
    {                                                                                              \
        (void)shape, (void)options;                                                                \
        return expression;                                                                         \
    }
#define WEIR_EXTENT(name, expression) static WEIR_SHARED_EXTENT(name, expression)

/* A place for a tensor. Absent optional parameters stay NULL; all others are bound or the
 * checkpoint is refused, whatever the arch file says. Shapes are compared without dimensions of 1.
 * A matrix has as many inputs as its last dimension, and the product of the others as outputs. A
 * parameter with a dimension of 0 has no tensor: it stays NULL. */
typedef struct weir_parameter {
    const char *name; /* as in [tensor] of arch files */
    weir_parameter_kind kind;
    size_t offset; /* in the block's weights struct */
    weir_extent dims[WEIR_TENSOR_DIMS]; /* terminated by NULL, unless full */
    bool optional;
    bool is_exact; /* a matrix whose products take activations in f32 */
    /* A vector whose elements follow those of the parameter before it, as one array. Both are
     * required. */
    bool is_joined;
    /* An optional matrix that all layers with the same block and options have, or none of them. */
    bool all_or_none;
    bool (*wanted)(const void *options); /* may be NULL: always */
    double (*scale)(const weir_shape *shape); /* factor of a vector's elements; may be NULL: none */
    /* The elements of an optional vector if it is absent; NULL: it stays NULL. */
    double (*initial)(const void *options);
} weir_parameter;

/* Designated initialisers of a parameter for `member` of the weights struct; its dimensions
 * follow. */
#define WEIR_MATRIX(text, type, member, ...)                                                       \
    .name = text, .kind = WEIR_PARAMETER_MATRIX, .offset = offsetof(type, member),                 \
    .dims = { __VA_ARGS__ }
#define WEIR_EXPERTS(text, type, member, ...)                                                      \
    .name = text, .kind = WEIR_PARAMETER_EXPERTS, .offset = offsetof(type, member),                \
    .dims = { __VA_ARGS__ }
#define WEIR_HEADS(text, type, member, ...)                                                        \
    .name = text, .kind = WEIR_PARAMETER_HEADS, .offset = offsetof(type, member),                  \
    .dims = { __VA_ARGS__ }
#define WEIR_VECTOR(text, type, member, ...)                                                       \
    .name = text, .kind = WEIR_PARAMETER_VECTOR, .offset = offsetof(type, member),                 \
    .dims = { __VA_ARGS__ }

/* The KV rows of a layer. */
typedef struct weir_block_kv {
    weir_kv_geometry geometry;
    weir_rope_pairing rope; /* of its keys */
    bool no_rope; /* they are not rotated */
    bool rope_last; /* their last dims are rotated, not the first ones */
    bool rope_local; /* they are rotated by weir_step_inputs.local_rope */
    float scale; /* of the products of queries and keys */
    int64_t n_queries; /* queries per row: each has a partial result of attention */
    /* The layer keeps no rows of its own: it reads those of the latest layer before it that keeps
     * rows of this geometry and rotation. Its attention is not observed: policies evict rows by the
     * attention of the layer that keeps them. */
    bool is_shared;
    bool watched; /* a weir_attention_watch can observe its attention */
} weir_block_kv;

typedef enum weir_block_kind {
    WEIR_BLOCK_MIXER, /* [block.NAME] mixer: owns the layer's part of a sequence's memory */
    WEIR_BLOCK_FFN, /* [ffn] kind: has no memory */
    /* What follows the FFN in all layers of a model with per-layer embeddings (d_layer_input), and
     * reads those of the layer. No table names it. */
    WEIR_BLOCK_LAYER_INPUT,
} weir_block_kind;

/* Everything that the engine knows about a block. Pointers that may be NULL say so. */
typedef struct weir_block {
    const char *name; /* its name in `mixer` or `kind` of arch files */
    weir_block_kind kind;
    const weir_parameter *parameters; /* terminated by name == NULL */
    /* Names of shapes that the block uses in addition to d_model; terminated by NULL. */
    const char *const *shapes;
    size_t weights_bytes;
    const weir_block_option *options; /* terminated by name == NULL; may be NULL: none */
    size_t options_bytes;
    /* The same in all containers: its options never differ between them, nor its tensors. */
    bool is_alike;
    /* Why devices cannot run it, static text; NULL: they can. */
    const char *host_only;
    const weir_state_ops *state; /* per sequence; may be NULL */

    int64_t (*scratch_elements)(
        const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
    );
    /* ---- may be NULL ------------------------------------------------------------------------- */
    /* NULL: layers with it have no such block, and no norm for it. */
    weir_status (*forward)(
        const weir_shape *shape, const void *options, const void *weights, const weir_step *step
    );
    /* May be NULL: no KV rows. */
    weir_block_kv (*kv)(const weir_shape *shape, const void *options);
    /* Checks the options together, once all are set. Returns ECONFIG. */
    weir_status (*check)(const void *options, weir_error *error);
    /* Called once after that: derives values from the options and from kv.format, which is the
     * format of states with keys and values; WEIR_KV_FORMAT_COUNT: kv.format has two. */
    void (*complete)(void *options, weir_kv_format state_format);
    /* Names of further shapes that the options need; terminated by NULL. */
    const char *const *(*more_shapes)(const void *options);
    /* Returns NULL, or why the options do not fit the shape; static text. */
    const char *(*reject)(const weir_shape *shape, const void *options);
    /* Prompt rows are computed in blocks that end at multiples of this; other cuts would change
     * results. NULL: 1. */
    int64_t (*block_rows)(const void *options);
} weir_block;

/* Blocks in addition to those of blocks/registry.c, terminated by NULL; may be NULL. */
typedef const weir_block *const *weir_block_list;

/* Finds a block by name, kind (its first one) or index, those of the registry first. Returns NULL
 * if there is none. */
const weir_block *weir_block_find(weir_block_list more, weir_block_kind kind, const char *name);
const weir_block *weir_block_of_kind(weir_block_list more, weir_block_kind kind);
const weir_block *weir_block_at(weir_block_list more, size_t index);

#ifdef __cplusplus
}
#endif
