/* engine/cli/evaluate.h - quality: perplexity of a text, what KV formats change about it, and retrieval (exact answers to questions about a
 * context). */
#pragma once
#include "engine/kv/formats.h"
#include "engine/weir.h"

typedef struct weir_perplexity {
    double  nll, perplexity, bits_per_byte; /* nll: mean over scored tokens, nats */
    int64_t n_scored, n_tokens;
} weir_perplexity;

/* The file is tokenised whole and cut into windows of `window` tokens, the rest dropped; each runs from an empty state and scores its tokens
 * 1 .. window - 1. `engine` has no service. */
WEIR_MUST_CHECK weir_status weir_eval_perplexity(weir_perplexity *out, const weir_engine *engine, const char *path, int32_t window,
                                                 weir_error *error);

/* The file as ids, to be freed. */
WEIR_MUST_CHECK weir_status weir_eval_tokens(weir_ids *out, size_t *n_bytes, const weir_engine *engine, const char *path,
                                             weir_error *error);
/* Of token `id` by a row of logits [n], natural logarithm. */
double weir_eval_log_probability(const float *row, int64_t n, int32_t id);

typedef struct weir_kv_quality { /* of one format */
    double  perplexity;
    double  kl_mean, kl_99, kl_most; /* divergence of the next token's distribution from that with f32 KV, nats; 99: percentile */
    double  same_best; /* share of positions with the same likeliest token */
    int64_t bytes_per_token;
} weir_kv_quality;

typedef struct weir_kv_quality_task {
    const weir_ids *text;
    int32_t         window, most_windows; /* windows as for perplexity; most: 0 for all */
} weir_kv_quality_task;
/* Computes the text with f32 KV and with these formats side by side. `engine` has no service, kv.format f32 and one sequence. */
WEIR_MUST_CHECK weir_status weir_eval_kv_quality(weir_kv_quality *out, int64_t *n_scored, const weir_engine *engine,
                                                 const weir_kv_quality_task *task, const weir_kv_choice *choice, weir_error *error);

typedef struct weir_retrieval_row { /* one task and length */
    char    task[64];
    int32_t length, n_right, n_items;
} weir_retrieval_row;

typedef struct weir_retrieval {
    weir_retrieval_row *rows; /* [n_rows], owned */
    size_t              n_rows;
    int32_t             n_right, n_items;
    int64_t             n_kept; /* KV rows per layer and head that the contexts had, all kept */
} weir_retrieval;

/* Lines of {"task", "length", "context", "questions": [[question, answer], ..]}. The user's message is context, an empty line, question; an item
 * is right when the greedy answer equals the answer to the letter and ends there. `engine` has a service. At most `most` items, 0: all. */
WEIR_MUST_CHECK weir_status weir_eval_retrieval(weir_retrieval *out, const weir_engine *engine, const char *path, int32_t most,
                                                weir_error *error);
void                        weir_retrieval_free(weir_retrieval *retrieval);
