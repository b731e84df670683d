/* tools/convert/checkpoint_internal.h - shared by the files that plan and read a checkpoint. */
#pragma once
#include "tools/convert/from_checkpoint.h"
#include "tools/convert/row_order.h"

enum { PARTS = 8, WEIR_CHECKPOINT_NAME = 512 };

/* A parameter in a tensor of the file. */
typedef struct part {
    weir_parameter_source source;
    weir_row_order order;
    unsigned char *gathered; /* owned: the matrix that was read last, where it has to be gathered */
    const unsigned char *rows; /* of that matrix */
    int64_t matrix; /* its number; -1: none */
} part;

/* A tensor of the file: the rows of its parts one after another, in groups, for each matrix. */
typedef struct target {
    part parts[PARTS];
    size_t n_parts;
    int64_t n_groups;
    float *factors; /* owned: a tensor that no parameter has; NULL */
    int64_t n_factors;
    const char *factor_name; /* in [tensor] */
} target;

struct weir_checkpoint {
    const weir_model *model;
    const weir_arch *arch; /* in GGUF */
    const weir_tensor_directory *directory;
    target *targets; /* owned */
    size_t n, capacity;
    weir_block_use *mixers, *ffns; /* owned, [n_layers]: blocks with the options of GGUF */
    float *row; /* owned: one row before its columns are ordered */
};

/* The name of a tensor in GGUF. ECONFIG: the arch file has none. */
WEIR_MUST_CHECK weir_status weir_checkpoint_name(
    const weir_checkpoint *checkpoint, const target *tensor, char out[WEIR_CHECKPOINT_NAME],
    weir_error *error
);
