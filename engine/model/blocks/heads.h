/* engine/model/blocks/heads.h - shared by mixers with grouped queries: projections with their
 * biases and norms, RoPE, and the output projection. */
#pragma once
#include "engine/model/block.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options of blocks with heads begin with these. */
typedef struct weir_heads_options {
    int32_t rope; /* weir_rope_pairing */
    /* q_proj rows are [query | gate] per head; out *= sigmoid(gate). */
    bool q_gate;
    bool qk_norm; /* RMS norm on q and k before RoPE */
    int32_t qk_norm_over; /* weir_heads_norm */
    bool qk_norm_optional; /* no norm where the checkpoint has none */
    bool no_rope; /* q and k are not rotated (Kazemnejad et al. 2023, NoPE) */
    bool rope_local; /* rotated by frequencies of rope_theta_local, without scaling */
    bool local_heads; /* head_dim_local and n_kv_heads_local are the sizes of its heads */
    /* No k and v: the rows of an earlier layer are read (Brandon et al. 2024, cross-layer
     * attention). */
    bool shared;
    bool v_norm; /* RMS norm on v, without a weight */
    bool v_optional; /* v is k before its norm where the checkpoint has none */
} weir_heads_options;

typedef enum weir_heads_norm {
    WEIR_NORM_HEAD, /* of each head */
    WEIR_NORM_ALL, /* of all heads together */
} weir_heads_norm;

/* Rows of the option table of a `type` whose member `heads` is a weir_heads_options. */
#define WEIR_HEADS_OPTIONS(type, heads)                                                            \
    WEIR_WORD_OPTION(type, heads.rope, "rope", "half_split pairs", WEIR_ROPE_HALF_SPLIT),          \
        WEIR_FLAG_OPTION(type, heads.q_gate, "q_gate", false),                                     \
        WEIR_FLAG_OPTION(type, heads.qk_norm, "qk_norm", false),                                   \
        WEIR_WORD_OPTION(type, heads.qk_norm_over, "qk_norm_over", "head all", WEIR_NORM_HEAD),    \
        WEIR_FLAG_OPTION(type, heads.qk_norm_optional, "qk_norm_optional", false),                 \
        WEIR_FLAG_OPTION(type, heads.no_rope, "no_rope", false)

typedef struct weir_heads {
    const weir_weight *q, *k, *v, *out; /* [H*hd*(1 or 2), D] [G*hd, D] [G*hd, D] [D, H*hd] */
    const float *q_bias, *k_bias, *v_bias, *out_bias; /* NULL or [rows of q, k, v, out] */
    const float *q_norm, *k_norm; /* [hd], or [H*hd] [G*hd] over all heads */
    const float *v_norm; /* NULL or [hd] ones */
} weir_heads;

int64_t weir_heads_model(const weir_shape *shape, const void *options);
int64_t weir_heads_one(const weir_shape *shape, const void *options);
int64_t weir_heads_dim(const weir_shape *shape, const void *options);
/* Includes the gates of q_gate. */
int64_t weir_heads_q_width(const weir_shape *shape, const void *options);
int64_t weir_heads_kv_width(const weir_shape *shape, const void *options);
int64_t weir_heads_width(const weir_shape *shape, const void *options); /* of all query heads */
int64_t weir_heads_kv_heads(const weir_shape *shape, const void *options);
int64_t weir_heads_q_norm(const weir_shape *shape, const void *options);
int64_t weir_heads_k_norm(const weir_shape *shape, const void *options);
bool weir_heads_with_norm(const void *options);
bool weir_heads_may_have_norm(const void *options);
bool weir_heads_with_k(const void *options);
bool weir_heads_with_v(const void *options);
bool weir_heads_may_have_v(const void *options);
bool weir_heads_with_k_norm(const void *options);
bool weir_heads_may_have_k_norm(const void *options);
bool weir_heads_with_v_norm(const void *options);
double weir_heads_unit(const void *options); /* the elements of v_norm */
/* For the `check` and `reject` of blocks with heads. */
WEIR_MUST_CHECK weir_status weir_heads_check(const void *options, weir_error *error);
const char *weir_heads_reject(const weir_shape *shape, const void *options);

/* The parameters in a `type` whose member `heads` is a weir_heads. */
#define WEIR_HEADS_PARAMETERS(type, heads)                                                         \
    { WEIR_MATRIX("attn.q", type, heads.q, weir_heads_q_width, weir_heads_model) },                \
        { WEIR_MATRIX("attn.k", type, heads.k, weir_heads_kv_width, weir_heads_model),             \
          .wanted = weir_heads_with_k },                                                           \
        { WEIR_MATRIX("attn.v", type, heads.v, weir_heads_kv_width, weir_heads_model),             \
          .wanted = weir_heads_with_v },                                                           \
        { WEIR_MATRIX("attn.v", type, heads.v, weir_heads_kv_width, weir_heads_model),             \
          .wanted = weir_heads_may_have_v, .optional = true, .all_or_none = true },                \
        { WEIR_MATRIX("attn.out", type, heads.out, weir_heads_model, weir_heads_width) },          \
        { WEIR_VECTOR("attn.q_bias", type, heads.q_bias, weir_heads_q_width), .optional = true },  \
        { WEIR_VECTOR("attn.k_bias", type, heads.k_bias, weir_heads_kv_width),                     \
          .wanted = weir_heads_with_k, .optional = true },                                         \
        { WEIR_VECTOR("attn.v_bias", type, heads.v_bias, weir_heads_kv_width),                     \
          .wanted = weir_heads_with_v, .optional = true },                                         \
        { WEIR_VECTOR("attn.out_bias", type, heads.out_bias, weir_heads_model),                    \
          .optional = true },                                                                      \
        { WEIR_VECTOR("attn.q_norm", type, heads.q_norm, weir_heads_q_norm),                       \
          .wanted = weir_heads_with_norm },                                                        \
        { WEIR_VECTOR("attn.k_norm", type, heads.k_norm, weir_heads_k_norm),                       \
          .wanted = weir_heads_with_k_norm },                                                      \
        { WEIR_VECTOR("attn.q_norm", type, heads.q_norm, weir_heads_q_norm),                       \
          .wanted = weir_heads_may_have_norm, .optional = true },                                  \
        { WEIR_VECTOR("attn.k_norm", type, heads.k_norm, weir_heads_k_norm),                       \
          .wanted = weir_heads_may_have_k_norm, .optional = true },                                \
    {                                                                                              \
        WEIR_VECTOR("attn.v_norm", type, heads.v_norm, weir_heads_dim),                            \
            .wanted = weir_heads_with_v_norm, .optional = true, .initial = weir_heads_unit         \
    }

/* The names of shapes that heads use; weir_heads_kv returns their KV rows, which are kept for the
 * whole sequence. */
extern const char *const weir_heads_shapes[];
weir_block_kv weir_heads_kv(const weir_shape *shape, const void *options);
float weir_heads_scale(const weir_shape *shape, const void *options); /* of q . k */

/* Computes q [n, H, hd (| gate)], k and v [n, G, hd] of the step's rows, contiguous, after their
 * norms, before RoPE; with `shared` only q. */
WEIR_MUST_CHECK weir_status weir_heads_project(
    const weir_shape *shape, const void *options, const weir_heads *w, const weir_step *step,
    float *q, float *k, float *v
);
/* Passes q to the observers that need it before rotation, then applies RoPE to q and k in place,
 * unless no_rope; with `shared` to q. */
WEIR_MUST_CHECK weir_status weir_heads_rope(
    const weir_shape *shape, const void *options, const weir_step *step, float *q, float *k
);
/* Multiplies x [n, H, hd] by the sigmoid of the gates in q [n, H, hd | gate]; does nothing without
 * q_gate. */
WEIR_MUST_CHECK weir_status weir_heads_gate(
    const weir_shape *shape, const void *options, const weir_step *step, float *x, const float *q
);
/* Computes the block's output W_out x + bias, x [n, H, hd]. */
WEIR_MUST_CHECK weir_status
weir_heads_out(const weir_heads *w, const weir_step *step, const float *x);

#ifdef __cplusplus
}
#endif
