/* engine/model/blocks/mamba2.h - Mamba-2 as a part of blocks: parameters, options, state and the
 * forward pass. */
#pragma once
#include "engine/model/block.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_mamba2_options {
    bool norm_by_group; /* the file has the norm's weight as [groups, W / groups] */
    bool no_norm; /* the output is y * silu(z) */
    bool split_xbc; /* the projections of x, B and C are parameters of their own */
} weir_mamba2_options;

/* Rows of the option table of a `type` whose member `own` is a weir_mamba2_options. */
#define WEIR_MAMBA2_OPTIONS(type, own)                                                             \
    WEIR_FLAG_OPTION(type, own.norm_by_group, "norm_by_group", false),                             \
        WEIR_FLAG_OPTION(type, own.no_norm, "no_norm", false),                                     \
        WEIR_FLAG_OPTION(type, own.split_xbc, "split_xbc", false)

/* W: all heads; C: x, and B and C of all groups. xbc, or x, b and c. */
typedef struct weir_mamba2 {
    const weir_weight *z, *xbc, *x, *b, *c, *dt, *out; /* [W, D] [C, D] .. [H, D] [D, W] */
    const float *conv, *conv_bias; /* [C, taps] [C], NULL: none */
    const float *a_neg, *dt_bias, *skip, *norm; /* [H] [H] [H] [W], norm NULL: none */
} weir_mamba2;

int64_t weir_mamba2_model(const weir_shape *shape, const void *options);
int64_t weir_mamba2_width(const weir_shape *shape, const void *options);
int64_t weir_mamba2_shared(const weir_shape *shape, const void *options); /* of all groups */
int64_t weir_mamba2_channels(const weir_shape *shape, const void *options);
int64_t weir_mamba2_heads(const weir_shape *shape, const void *options);
int64_t weir_mamba2_taps(const weir_shape *shape, const void *options);
int64_t weir_mamba2_groups(const weir_shape *shape, const void *options);
int64_t weir_mamba2_group_width(const weir_shape *shape, const void *options);

/* Defines what WEIR_MAMBA2_PARAMETERS asks about the options of its block, of which `own` are those
 * of Mamba-2. */
#define WEIR_MAMBA2_CHOICES(type, own)                                                             \
    static bool has_split(const void *options) { return ((const type *)options)->own.split_xbc; }  \
    static bool has_whole(const void *options) { return !has_split(options); }                     \
    static bool has_norm_by_group(const void *options)                                             \
    {                                                                                              \
        const weir_mamba2_options *const o = &((const type *)options)->own;                        \
        return o->norm_by_group && !o->no_norm;                                                    \
    }                                                                                              \
    static bool has_one_norm(const void *options)                                                  \
    {                                                                                              \
        const weir_mamba2_options *const o = &((const type *)options)->own;                        \
        return !o->norm_by_group && !o->no_norm;                                                   \
    }

/* The parameters in a `type` whose member `ssm` is a weir_mamba2. */
#define WEIR_MAMBA2_PARAMETERS(type, ssm)                                                          \
    { WEIR_MATRIX("ssm.z", type, ssm.z, weir_mamba2_width, weir_mamba2_model) },                   \
        { WEIR_MATRIX("ssm.xbc", type, ssm.xbc, weir_mamba2_channels, weir_mamba2_model),          \
          .wanted = has_whole },                                                                   \
        { WEIR_MATRIX("ssm.x", type, ssm.x, weir_mamba2_width, weir_mamba2_model),                 \
          .wanted = has_split },                                                                   \
        { WEIR_MATRIX("ssm.b", type, ssm.b, weir_mamba2_shared, weir_mamba2_model),                \
          .wanted = has_split },                                                                   \
        { WEIR_MATRIX("ssm.c", type, ssm.c, weir_mamba2_shared, weir_mamba2_model),                \
          .wanted = has_split },                                                                   \
        { WEIR_MATRIX("ssm.dt", type, ssm.dt, weir_mamba2_heads, weir_mamba2_model) },             \
        { WEIR_MATRIX("ssm.out", type, ssm.out, weir_mamba2_model, weir_mamba2_width) },           \
        { WEIR_VECTOR("ssm.conv", type, ssm.conv, weir_mamba2_channels, weir_mamba2_taps) },       \
        { WEIR_VECTOR("ssm.conv_bias", type, ssm.conv_bias, weir_mamba2_channels),                 \
          .optional = true },                                                                      \
        { WEIR_VECTOR("ssm.a_neg", type, ssm.a_neg, weir_mamba2_heads) },                          \
        { WEIR_VECTOR("ssm.dt_bias", type, ssm.dt_bias, weir_mamba2_heads) },                      \
        { WEIR_VECTOR("ssm.d", type, ssm.skip, weir_mamba2_heads) },                               \
        { WEIR_VECTOR("ssm.norm", type, ssm.norm, weir_mamba2_width), .optional = true,            \
          .wanted = has_one_norm },                                                                \
    {                                                                                              \
        WEIR_VECTOR("ssm.norm", type, ssm.norm, weir_mamba2_groups, weir_mamba2_group_width),      \
            .optional = true, .wanted = has_norm_by_group                                          \
    }

#define WEIR_MAMBA2_SHAPES "ssm_heads", "ssm_groups", "ssm_head_dim", "ssm_state", "ssm_taps"

extern const weir_state_ops weir_mamba2_state;
/* NULL, or why the shape does not fit; static text. */
const char *weir_mamba2_reject(const weir_shape *shape);
int64_t weir_mamba2_scratch(const weir_shape *shape, int64_t n_rows);
/* Computes step->out.x of step->in.x. */
WEIR_MUST_CHECK weir_status
weir_mamba2_forward(const weir_shape *shape, const weir_mamba2 *w, const weir_step *step);

#ifdef __cplusplus
}
#endif
