/* tools/eval/generate.h - synthetic long-context tasks with exact lengths, deterministic for a
 * seed.
 *
 * The 13 tasks of RULER (Hsieh et al., "RULER: What's the real context size of your long-context
 * language models?", 2024; content and parameters are theirs, the wording is ours), needles by
 * depth and length, and the state of a depth-first search. Each task is a row of a table. All share
 * the fitting: prompt and answer together never exceed the requested length, as counted by the
 * caller. */
#pragma once
#include "tools/eval/haystack.h"
#include "tools/eval/item.h"
#include "tools/eval/qa_source.h"
#include "tools/eval/random.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Counts the tokens of an item's whole prompt: the conversation as the model gets it, prefix
 * included. */
typedef struct weir_eval_counter {
    weir_status (*count)(
        void *user, const weir_eval_item *item, int32_t *n_tokens, weir_error *error
    );
    void *user;
} weir_eval_counter;

typedef struct weir_eval_setting {
    int32_t length; /* tokens, prompt and answer */
    int32_t n_samples;
    uint64_t seed;
    const weir_eval_essay *essay;
    /* May be NULL: tasks that need it are refused. */
    const weir_eval_qa *qa;
    const weir_eval_counter *counter;
    bool (*take)(void *user, const weir_eval_item *item); /* returns false to stop */
    void *user;
} weir_eval_setting;

typedef struct weir_eval_task weir_eval_task;

/* Below this length, contexts are made of smaller pieces and words are repeated less. */
enum { WEIR_EVAL_SHORT = 4096 };

/* How much a context may hold, in the task's own units: multiples of `step` from `least` to
 * `most`. */
typedef struct weir_eval_units {
    int32_t least, step, most;
} weir_eval_units;

struct weir_eval_task {
    const char *name, *summary;
    const char *unit; /* "words" */
    int32_t max_tokens;
    weir_eval_scoring scoring;
    int variant; /* for the builder */
    bool needs_qa;
    void (*units)(
        weir_eval_units *out, const weir_eval_task *task, const weir_eval_setting *setting
    );
    /* Fills everything but length, scoring and max_tokens, from a fresh stream `r`: the same r and
     * n_units give the same item. */
    weir_status (*build)(
        weir_eval_item *out, const weir_eval_task *task, const weir_eval_setting *setting,
        int32_t sample, int32_t n_units, weir_eval_random *r, weir_error *error
    );
};

const weir_eval_task *weir_eval_tasks(size_t *n);
/* Returns NULL if there is none. */
const weir_eval_task *weir_eval_task_find(const char *name);

/* Passes n_samples items of one task and length to `take`, in order. *stopped: take returned false.
 * errors : EINVAL, with the length needed, if a sample cannot be made to fit */
WEIR_MUST_CHECK weir_status weir_eval_generate(
    const weir_eval_task *task, const weir_eval_setting *setting, bool *stopped, weir_error *error
);

#ifdef __cplusplus
}
#endif
