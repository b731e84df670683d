/* engine/schedule/evaluate.h - computes one sequence in the caller's thread; used by logits,
 * perplexity and the goldens. */
#pragma once
#include "engine/schedule/runner.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Called with the logits [n_rows, n_vocab] of positions first .. first + n_rows - 1, in order. */
typedef void (*weir_logits_visitor)(void *user, int32_t first, int32_t n_rows, const float *logits);

typedef struct weir_evaluation {
    const int32_t *tokens;
    int32_t n_tokens;
    int32_t chunk; /* rows per step at most; 0: the runner's limit */
    int32_t decode_from; /* positions from here on are computed one at a time; INT32_MAX: none */
    /* Called before each step; may be NULL. */
    void (*before)(void *user, int32_t first, int32_t n_rows);
    weir_logits_visitor visit; /* NULL: computes logits of the last row only, see `last` */
    void *user;
    const float *last; /* out: logits of the last position, borrowed until the next step */
    /* Checked before each step: nonzero ends it with ECANCELED; what is computed stays. */
    const volatile int *stopped;
} weir_evaluation;

/* Appends the tokens to `sequence` and computes them. Returns EFULL if they do not fit into the
 * window or the pages, ECANCELED if stopped. */
WEIR_MUST_CHECK weir_status weir_evaluate(
    weir_runner *runner, weir_kv_sequence *sequence, weir_evaluation *evaluation, weir_error *error
);

#ifdef __cplusplus
}
#endif
