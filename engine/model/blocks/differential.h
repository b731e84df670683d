/* engine/model/blocks/differential.h - differential attention (Ye et al. 2024) as in CoDA-GQA-L,
 * over the keys and values of any mixer: signal - lambda * noise, where the noise comes from the
 * same query rotated by angles of its head. With differential = false it is plain attention, with
 * one query per head and the output gate of models with q_gate. */
#pragma once
#include "engine/model/blocks/coda_options.h"
#include "engine/model/blocks/heads.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_differential {
    weir_heads heads;
    const weir_weight *lambda; /* [H, D]; NULL: zero */
    const float *lambda_bias, *theta, *norm; /* [H] [H, hd/2] [hd]; norm NULL: none */
} weir_differential;

int64_t weir_differential_heads(const weir_shape *shape, const void *options);
int64_t weir_differential_pairs(const weir_shape *shape, const void *options);
bool weir_differential_is_on(const void *options);
bool weir_differential_with_norm(const void *options);
double weir_differential_lambda_bias(const void *options);
double weir_differential_theta(const void *options);
double weir_differential_norm(const void *options);

/* The parameters in a `type` whose member `differential` is a weir_differential. Parameters that a
 * checkpoint without adapter lacks have their initial values. */
#define WEIR_DIFFERENTIAL_PARAMETERS(type, differential)                                           \
    WEIR_HEADS_PARAMETERS(type, differential.heads),                                               \
        { WEIR_MATRIX(                                                                             \
              "coda.lambda", type, differential.lambda, weir_differential_heads, weir_heads_model  \
          ),                                                                                       \
          .optional = true, .wanted = weir_differential_is_on },                                   \
        { WEIR_VECTOR(                                                                             \
              "coda.lambda_bias", type, differential.lambda_bias, weir_differential_heads          \
          ),                                                                                       \
          .optional = true, .wanted = weir_differential_is_on,                                     \
          .initial = weir_differential_lambda_bias },                                              \
        { WEIR_VECTOR(                                                                             \
              "coda.theta", type, differential.theta, weir_differential_heads,                     \
              weir_differential_pairs                                                              \
          ),                                                                                       \
          .optional = true, .wanted = weir_differential_is_on,                                     \
          .initial = weir_differential_theta },                                                    \
    {                                                                                              \
        WEIR_VECTOR("coda.head_norm", type, differential.norm, weir_heads_dim), .optional = true,  \
            .wanted = weir_differential_with_norm, .initial = weir_differential_norm               \
    }

/* Returns NULL, or why the options are not supported; static text. */
const char *weir_differential_reject(const void *options);

/* Rows of the step, in its scratch. */
typedef struct weir_differential_rows {
    /* [n, H, hd (| gate)] [n, G, hd] [n, G, hd], rotated. */
    float *q, *k, *v;
    /* [n, G, 2 H/G, hd] signal and noise queries of each KV head; NULL if not differential, as is
     * lambda. */
    float *doubled;
    float *attended; /* results of the queries: as doubled, or [n, H, hd] */
    float *lambda; /* [n, H] before its bias */
} weir_differential_rows;
int64_t weir_differential_elements(const weir_shape *shape, const void *options, int64_t n_rows);
weir_differential_rows weir_differential_place(
    const weir_shape *shape, const void *options, const weir_step *step
);

/* Computes everything but `attended`. */
WEIR_MUST_CHECK weir_status weir_differential_project(
    const weir_shape *shape, const void *options, const weir_differential *w, const weir_step *step,
    const weir_differential_rows *rows
);
/* The arguments that all calls of attention over `attended` share. */
weir_attention_args weir_differential_attention(
    const weir_shape *shape, const void *options, const weir_differential_rows *rows
);
/* Computes W_out (signal - lambda * noise, after its norm), or W_out (attended * sigmoid(gate)).
 * Overwrites q or attended. */
WEIR_MUST_CHECK weir_status weir_differential_out(
    const weir_shape *shape, const void *options, const weir_differential *w, const weir_step *step,
    const weir_differential_rows *rows
);

#ifdef __cplusplus
}
#endif
