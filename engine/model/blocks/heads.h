/* engine/model/blocks/heads.h - what mixers with grouped queries share: projections with their
 * biases and norms, RoPE, and the way out. */
#pragma once
#include "engine/model/block.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_heads {
    const weir_weight *q, *k, *v, *out; /* [H*hd*(1 or 2), D] [G*hd, D] [G*hd, D] [D, H*hd] */
    const float       *q_bias, *k_bias, *v_bias, *out_bias; /* NULL or [rows of q, k, v, out] */
    const float       *q_norm, *k_norm; /* [hd] */
} weir_heads;

int64_t weir_heads_model(const weir_shape *shape, const weir_block_options *options);
int64_t weir_heads_one(const weir_shape *shape, const weir_block_options *options);
int64_t weir_heads_dim(const weir_shape *shape, const weir_block_options *options);
int64_t weir_heads_q_width(const weir_shape         *shape,
                           const weir_block_options *options); /* with the gates of q_gate */
int64_t weir_heads_kv_width(const weir_shape *shape, const weir_block_options *options);
int64_t weir_heads_width(const weir_shape         *shape,
                         const weir_block_options *options); /* of all query heads */
bool    weir_heads_with_norm(const weir_block_options *options);

/* Their slots in a `type` whose member `heads` is a weir_heads. */
#define WEIR_HEADS_SLOTS(type, heads)                                                              \
    { .name = "attn.q",                                                                            \
      .kind = WEIR_SLOT_MATRIX,                                                                    \
      .rows = weir_heads_q_width,                                                                  \
      .cols = weir_heads_model,                                                                    \
      .offset = offsetof(type, heads.q) },                                                         \
        { .name = "attn.k",                                                                        \
          .kind = WEIR_SLOT_MATRIX,                                                                \
          .rows = weir_heads_kv_width,                                                             \
          .cols = weir_heads_model,                                                                \
          .offset = offsetof(type, heads.k) },                                                     \
        { .name = "attn.v",                                                                        \
          .kind = WEIR_SLOT_MATRIX,                                                                \
          .rows = weir_heads_kv_width,                                                             \
          .cols = weir_heads_model,                                                                \
          .offset = offsetof(type, heads.v) },                                                     \
        { .name = "attn.out",                                                                      \
          .kind = WEIR_SLOT_MATRIX,                                                                \
          .rows = weir_heads_model,                                                                \
          .cols = weir_heads_width,                                                                \
          .offset = offsetof(type, heads.out) },                                                   \
        { .name = "attn.q_bias",                                                                   \
          .kind = WEIR_SLOT_VECTOR,                                                                \
          .rows = weir_heads_q_width,                                                              \
          .cols = weir_heads_one,                                                                  \
          .offset = offsetof(type, heads.q_bias),                                                  \
          .optional = true },                                                                      \
        { .name = "attn.k_bias",                                                                   \
          .kind = WEIR_SLOT_VECTOR,                                                                \
          .rows = weir_heads_kv_width,                                                             \
          .cols = weir_heads_one,                                                                  \
          .offset = offsetof(type, heads.k_bias),                                                  \
          .optional = true },                                                                      \
        { .name = "attn.v_bias",                                                                   \
          .kind = WEIR_SLOT_VECTOR,                                                                \
          .rows = weir_heads_kv_width,                                                             \
          .cols = weir_heads_one,                                                                  \
          .offset = offsetof(type, heads.v_bias),                                                  \
          .optional = true },                                                                      \
        { .name = "attn.out_bias",                                                                 \
          .kind = WEIR_SLOT_VECTOR,                                                                \
          .rows = weir_heads_model,                                                                \
          .cols = weir_heads_one,                                                                  \
          .offset = offsetof(type, heads.out_bias),                                                \
          .optional = true },                                                                      \
        { .name = "attn.q_norm",                                                                   \
          .kind = WEIR_SLOT_VECTOR,                                                                \
          .rows = weir_heads_dim,                                                                  \
          .cols = weir_heads_one,                                                                  \
          .offset = offsetof(type, heads.q_norm),                                                  \
          .wanted = weir_heads_with_norm },                                                        \
    {                                                                                              \
        .name = "attn.k_norm", .kind = WEIR_SLOT_VECTOR, .rows = weir_heads_dim,                   \
        .cols = weir_heads_one, .offset = offsetof(type, heads.k_norm),                            \
        .wanted = weir_heads_with_norm                                                             \
    }

/* q [n, H, hd (| gate)], k, v [n, G, hd] of the step's rows, contiguous; q and k after their norm,
 * not turned. */
WEIR_MUST_CHECK weir_status weir_heads_project(const weir_shape         *shape,
                                               const weir_block_options *options,
                                               const weir_heads *w, const weir_step *step, float *q,
                                               float *k, float *v);
/* RoPE in place: heads of `stride` elements in rows of n_heads * stride. */
WEIR_MUST_CHECK weir_status weir_heads_turn(const weir_shape         *shape,
                                            const weir_block_options *options,
                                            const weir_step *step, float *x, int64_t n_heads,
                                            int64_t stride);
/* x [n, H, hd] *= sigmoid of the gates in q [n, H, hd | gate]; without q_gate nothing. */
WEIR_MUST_CHECK weir_status weir_heads_gate(const weir_shape         *shape,
                                            const weir_block_options *options,
                                            const weir_step *step, float *x, const float *q);
/* Has this one of the step's segments pages on disk? Then it comes in ranges (weir_kv_source): the
 * next, whose pages become those of `rows`. */
bool          weir_heads_is_cold(const weir_step *step, int64_t segment);
weir_kv_range weir_heads_take_range(const weir_step *step, int64_t segment, weir_kv_segment *rows);
/* Attention over the segments of the step. Those whose pages are all in memory are one call. */
WEIR_MUST_CHECK weir_status weir_heads_attend(const weir_step           *step,
                                              const weir_attention_args *args);
/* mixed = W_out x + bias, x [n, H, hd] */
WEIR_MUST_CHECK weir_status weir_heads_out(const weir_shape *shape, const weir_heads *w,
                                           const weir_step *step, const float *x);

#ifdef __cplusplus
}
#endif
