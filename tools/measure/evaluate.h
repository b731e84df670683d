/* tools/measure/evaluate.h - quality: perplexity of a text, how KV formats change it, and retrieval
 * (exact answers to questions about a context). */
#pragma once
#include "engine/engine.h"
#include "engine/kv/pool/formats.h"
#include "tools/eval/measures.h"

enum { WEIR_PERPLEXITY_PLACES = 32 };

/* Scored tokens at positions first .. end - 1 of their windows. */
typedef struct weir_perplexity_place {
    int32_t first, end;
    int64_t n_scored;
    double nll; /* mean */
} weir_perplexity_place;

typedef struct weir_perplexity {
    double nll, perplexity, bits_per_byte; /* nll: mean over scored tokens, nats */
    int64_t n_scored, n_tokens;
    int32_t window; /* tokens of each */
    /* Of equal width, 64 tokens or more. */
    weir_perplexity_place places[WEIR_PERPLEXITY_PLACES];
    int32_t n_places;
    /* Mean rows of a window at its end, over layers and heads. */
    int64_t kv_bytes, n_kept, n_evicted;
} weir_perplexity;

/* The file is tokenized whole and cut into windows of `window` tokens, the rest dropped; each
 * starts with an empty state and scores its tokens 1 .. window - 1. Window 0: one stream of as many
 * tokens as the file has and the engine's window takes. A KV policy may drop rows after every 64
 * tokens; when it does is its own option, or with `every` > 0 whenever a head has that many rows
 * too many. `engine` has no service. */
WEIR_MUST_CHECK weir_status weir_eval_perplexity(
    weir_perplexity *out, const weir_engine *engine, const char *path, int32_t window,
    int32_t every, weir_error *error
);

/* The token ids of the file; the caller frees them. */
WEIR_MUST_CHECK weir_status weir_eval_tokens(
    weir_ids *out, size_t *n_bytes, const weir_engine *engine, const char *path, weir_error *error
);

typedef struct weir_kv_quality { /* of one format */
    double perplexity;
    /* KL divergence of the next token's distribution from that with f32 KV, in nats; 99:
     * percentile. */
    double kl_mean, kl_99, kl_most;
    double same_best; /* share of positions with the same most likely token */
    int64_t bytes; /* per token; per sequence for states */
} weir_kv_quality;

typedef struct weir_kv_quality_task {
    const weir_ids *text;
    /* Windows as for perplexity; most: 0 for all. */
    int32_t window, most_windows;
} weir_kv_quality_task;
/* Computes the text with f32 KV and with these formats at the same time. `engine` has no service,
 * kv.format f32 and one sequence. */
WEIR_MUST_CHECK weir_status weir_eval_kv_quality(
    weir_kv_quality *out, int64_t *n_scored, const weir_engine *engine,
    const weir_kv_quality_task *task, const weir_kv_choice *choice, weir_error *error
);

/* Forms in which states of layers with fixed-size memory (docs/models/coda.md) are stored. */
typedef enum weir_state_form {
    WEIR_STATE_F32,
    WEIR_STATE_F16,
    WEIR_STATE_BF16,
    WEIR_STATE_INT8,
    WEIR_STATE_INT4,
    WEIR_STATE_FORMS
} weir_state_form;
const char *weir_state_form_name(weir_state_form form);

typedef struct weir_state_quality_task {
    const weir_ids *text;
    /* Each window is read up to `before`, and scored from there on; a multiple of the prompt's
     * blocks. */
    int32_t window, before;
    int32_t most_windows; /* 0: all */
} weir_state_quality_task;
/* Converts each window's state after `before` tokens to this form and back, and continues both;
 * bytes: of its states in that form. `engine` has no service, kv.format f32 and three sequences.
 * Returns EINVAL if the model has no such layers. */
WEIR_MUST_CHECK weir_status weir_eval_state_quality(
    weir_kv_quality *out, int64_t *n_scored, const weir_engine *engine,
    const weir_state_quality_task *task, weir_state_form form, weir_error *error
);

typedef struct weir_retrieval_row { /* one task, length and depth */
    char task[64];
    int32_t length, depth; /* depth -1: none */
    int32_t n_right, n_items; /* right: with the full score */
    double score; /* sum over the items, each 0 .. 1 */
} weir_retrieval_row;

typedef struct weir_retrieval {
    weir_retrieval_row *rows; /* [n_rows], owned */
    size_t n_rows;
    /* [n_items] in the order of the file, owned: for paired comparisons of two runs. */
    double *scores;
    int32_t n_right, n_items;
    double score; /* sum */
    weir_interval likely; /* of the mean score, 95 % */
    /* Mean rows of a sequence at its end, over layers and heads. */
    int64_t kv_bytes, n_kept, n_evicted;
} weir_retrieval;

/* Evaluates lines of items (tools/eval/item.h), which need "context" and "questions": [[question,
 * answer or answers], ..]. The user's message is context, an empty line, question; the reply begins
 * with "prefix". Without "score", a single answer is right if the greedy reply equals it exactly
 * and ends there; of several answers the share that occurs in the reply counts. `engine` has a
 * service. At most `most` items, 0: all. */
WEIR_MUST_CHECK weir_status weir_eval_retrieval(
    weir_retrieval *out, const weir_engine *engine, const char *path, int32_t most,
    weir_error *error
);
/* The same with a budget of this percentage of each prompt's tokens for the configured policy; 0:
 * its own budget. */
WEIR_MUST_CHECK weir_status weir_eval_retrieval_within(
    weir_retrieval *out, const weir_engine *engine, const char *path, int32_t most, int32_t percent,
    weir_error *error
);
void weir_retrieval_free(weir_retrieval *retrieval);
/* An SVG: a heat map of length and depth if all items have depths, else a curve of accuracy over
 * length per task. */
WEIR_MUST_CHECK weir_status
weir_retrieval_plot(const weir_retrieval *retrieval, const char *path, weir_error *error);

/* The ids of such a prompt. */
WEIR_MUST_CHECK weir_status weir_eval_prompt(
    weir_ids *ids, const weir_tokenizer *tokenizer, const weir_chat_template *chat,
    const char *context, const char *question, const char *prefix, weir_error *error
);
