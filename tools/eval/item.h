/* tools/eval/item.h - one question about one context, as generators write and `weir eval retrieval`
 * reads it: a JSON object per line.
 *
 *     {"task": .., "length": N, "context": .., "questions": [[question, answers]], "prefix": ..,
 *     "score": .., "max_tokens": N, "depth": N}
 *
 * The user's message is context, an empty line, question. `prefix` is the beginning of the
 * assistant's reply, already written: part of the prompt. `length` bounds prompt and max_tokens
 * together. An answer is a string, or a list in tasks whose score is a fraction. */
#pragma once
#include <stdbool.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_eval_scoring {
    /* 1 if the reply equals the answer exactly and ends there. */
    WEIR_EVAL_EXACT,
    WEIR_EVAL_ALL, /* share of the answers that occur in the reply */
    WEIR_EVAL_PART, /* 1 if one of the answers occurs in the reply */
    WEIR_EVAL_LINE, /* 1 if the reply's first line is the answer */
    /* 1 if the last state after "Answer:" is the answer's (tools/eval/dfs.h). */
    WEIR_EVAL_STATE,
    WEIR_EVAL_SCORINGS
} weir_eval_scoring;
/* By its name: "exact", "all", "part", "line", "state". False: there is none. */
bool weir_eval_scoring_find(weir_eval_scoring *out, const char *name);

/* Zero-initialise; weir_eval_item_free frees it, weir_eval_item_clear keeps the memory. */
typedef struct weir_eval_item {
    const char *task; /* borrowed */
    weir_buffer context, question, prefix;
    weir_buffer answers; /* each followed by NUL */
    size_t n_answers;
    weir_eval_scoring scoring;
    int32_t length, max_tokens;
    int32_t depth; /* of the needle in percent; -1: none */
} weir_eval_item;

void weir_eval_item_clear(weir_eval_item *item);
void weir_eval_item_free(weir_eval_item *item);
WEIR_MUST_CHECK weir_status weir_eval_item_answer(weir_eval_item *item, const char *text);
/* Appends the line, with its newline. */
WEIR_MUST_CHECK weir_status
weir_eval_item_print(const weir_eval_item *item, weir_buffer *out, weir_error *error);

#ifdef __cplusplus
}
#endif
