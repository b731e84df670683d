/* engine/model/bind_internal.h - shared by the files that bind tensors to parameters. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/model/model_internal.h"

enum { WEIR_BIND_PROBLEMS = 8 }; /* reported in full; the others are counted */

typedef struct binder {
    weir_model *model;
    const weir_toml_node *table; /* [tensor] */
    weir_container container;
    /* Of a draft head whose tensors are numbered apart ([mtp]): how their names begin, and the
     * number of its layer in them. NULL: names are as those of other layers. */
    const char *prefix;
    int64_t prefix_layer;
    weir_buffer problems;
    size_t n_problems;
} binder;

/* What a parameter needs from the checkpoint. */
typedef struct wanted {
    const char *parameter;
    const weir_toml_node *entry; /* of [tensor]; NULL: none */
    int64_t layer;
    int64_t dims[WEIR_TENSOR_DIMS];
    int32_t n_dims;
    int64_t n_experts; /* dims[0] of a parameter of experts or heads; 0 in other parameters */
    /* A matrix of the parameter: rows, and elements per row. A vector has rows of one element. */
    int64_t n_rows, n_in;
    /* With `fused`: rows of all its parameters, and of those before this one. fused_rows = 0:
     * none. */
    int64_t fused_rows, first_row;
    /* Equal parts of each fused parameter; the first parts of all parameters are one after another,
     * then the second ones. 1: whole parameters are. */
    int64_t n_groups;
    /* The parameter's matrices are transposed in a fused tensor: rows and their elements there. */
    int64_t fused_n_rows, fused_n_in;
    bool is_transposed;
    bool inputs_first; /* all matrices of the tensor are transposed: see hf_inputs_first */
    bool optional, is_exact, is_joined, has_initial;
    bool is_per_row; /* a row uses some experts */
    float initial;
    float scale; /* factor of a vector's elements; 0: none */
} wanted;

typedef struct found {
    const weir_tensor *tensor; /* NULL: missing */
    const char *name; /* as in [tensor], or the first name if none was found; NULL: no names */
} found;

/* A parameter's rows in a tensor; those of one expert. */
typedef struct part {
    const weir_tensor *tensor, *scales; /* scales: see bound_matrix */
    const unsigned char *data, *scale_data;
    weir_row_runs runs;
    weir_dtype dtype, stored; /* of the matrix, and of the tensor's elements */
    int64_t first_row; /* in the tensor, of rows with block scales */
    bool has_one_scale; /* of the whole tensor */
    bool is_transposed;
    int64_t row_width; /* see bound_matrix */
    float factor; /* of the elements, of `hf_factors`; 0: none */
    transform change; /* as [tensor] says */
} part;

/* bind.c: the tensors of a layer; problems are reported. */
void weir_bind_layer(binder *b, int64_t index);
/* A vector [n_out] or, with n_in > 0, a matrix [n_out, n_in] of the model itself. */
void weir_bind_vector(
    binder *b, const char *parameter, int64_t layer, int64_t n_out, const float **at
);
void weir_bind_matrix(
    binder *b, const char *parameter, int64_t layer, int64_t n_out, int64_t n_in,
    const weir_weight **at
);

/* bind_mtp.c: binds the draft head, if the file has all of it; otherwise the model has none. */
void weir_bind_mtp(weir_model *model);

/* bind_names.c */

__attribute__((format(printf, 2, 3))) void weir_bind_problem(binder *b, const char *format, ...);
/* Finds the tensor of a parameter, or of the parameter that its entry refers to with `or`. `expert`
 * replaces {e}. The adapter's tensors come before the checkpoint's. */
found weir_bind_find(binder *b, const wanted *w, int64_t expert);
bool weir_bind_is_per_expert(const found *f); /* its name has {e} */
/* The tensor with the scales of a parameter's blocks, marked as used: `hf_scales`. Returns false if
 * it is missing (reported). *out becomes NULL if the blocks have their scales themselves. */
bool weir_bind_find_scales(binder *b, const wanted *w, int64_t expert, const weir_tensor **out);
/* The tensor with the scales of an FP8 matrix's blocks, NAME_scale_inv, marked as used; *out
 * becomes NULL if there is none. Returns false if the codes have scales of another kind
 * (reported). */
bool weir_bind_find_fp8_scales(binder *b, const weir_tensor *codes, const weir_tensor **out);
void weir_bind_mark_used(binder *b, const weir_tensor *tensor);
void weir_bind_report_missing(binder *b, const wanted *w, const char *name, int64_t expert);

/* bind_part.c */

/* The product of the settings that `hf_factors` of the entry lists, of which a missing one is 1;
 * *out is 0 if it is 1. Returns false for one that is no number, or a product of 0 (reported). */
bool weir_bind_factor(binder *b, const char *parameter, const weir_toml_node *entry, float *out);

/* Elements of a shape; 0: more than any tensor has, or a dimension below 1. */
int64_t weir_bind_elements(const int64_t *dims, int32_t n_dims);
void weir_bind_describe(char *out, size_t size, const int64_t *dims, int32_t n_dims);
/* True if the parameter has a dimension of 0. */
bool weir_bind_is_empty(
    const binder *b, const weir_parameter *parameter, const weir_block_use *use
);
/* Sets the sizes of a parameter of a block. Returns false if no tensor has this shape, or `fused`
 * does not fit (reported). */
bool weir_bind_size(
    binder *b, wanted *w, const weir_parameter *parameter, const weir_block_use *use
);
/* Finds the parameter's rows in a tensor, or those of one expert, and marks it as used. Returns
 * false if the tensor has another shape (reported). */
bool weir_bind_part(binder *b, const wanted *w, const found *f, int64_t expert, part *out);

/* bind_alike.c: reports optional matrices that some layers of a block have and others lack. */
void weir_bind_check_alike(binder *b);
