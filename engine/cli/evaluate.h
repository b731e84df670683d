/* engine/cli/evaluate.h - quality: perplexity of a text, and retrieval (exact answers to questions about a context). */
#pragma once
#include "engine/weir.h"

typedef struct weir_perplexity {
    double  nll, perplexity, bits_per_byte; /* nll: mean over scored tokens, nats */
    int64_t n_scored, n_tokens;
} weir_perplexity;

/* The file is tokenised whole and cut into windows of `window` tokens, the rest dropped; each runs from an empty state and scores its tokens
 * 1 .. window - 1. `engine` has no service. */
WEIR_MUST_CHECK weir_status weir_eval_perplexity(weir_perplexity *out, const weir_engine *engine, const char *path, int32_t window,
                                                 weir_error *error);

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
