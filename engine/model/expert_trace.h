/* engine/model/expert_trace.h - which experts a run used, as a text, and how often they would have
 * been in memory, for every number of entries.
 *
 *   weir experts trace 1
 *   layers 24 experts 64 total 1536 bytes 1671168
 *   0: 3 17 22           the experts of a step in a layer, ascending
 *
 * LRU is a stack algorithm (Mattson et al. 1970): an expert is in a cache of n entries if fewer
 * than n others were used since its last use, so one pass gives the hits of every size. The experts
 * of a step in a layer have one age, as in the cache (expert_cache.h): hits are the same as there,
 * as long as a step has no more experts in a layer than there are entries, and without reading
 * ahead and pins. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_expert_trace_head {
    int64_t n_layers, n_experts; /* of the model; of a layer with experts */
    int64_t n_total; /* of all layers */
    int64_t expert_bytes; /* of an entry */
} weir_expert_trace_head;

/* How deep in the stack experts were when they were used. Zero-initialise it. */
typedef struct weir_expert_stack {
    weir_expert_trace_head head;
    int32_t *recent, *moved; /* [n_layers * n_experts] numbers of experts, the last used first */
    bool *is_used; /* [n_layers * n_experts] by the step */
    int64_t *at; /* [n_layers * n_experts] uses at this depth of `recent` */
    int64_t n_recent, n_uses;
    int64_t n_passes, last_layer; /* passes through the model: decoded tokens */
} weir_expert_stack;

/* ENOMEM; EINVAL: numbers that no model has. */
WEIR_MUST_CHECK weir_status weir_expert_stack_open(
    weir_expert_stack *stack, const weir_expert_trace_head *head, weir_error *error
);
void weir_expert_stack_close(weir_expert_stack *stack);
/* Experts [n] of a layer are used: all different, ascending, below n_experts. */
void weir_expert_stack_use(
    weir_expert_stack *stack, int64_t layer, const int32_t *experts, int32_t n
);
/* The share of uses that `n_entries` entries have in memory. */
double weir_expert_stack_hits(const weir_expert_stack *stack, int64_t n_entries);

WEIR_MUST_CHECK weir_status
weir_expert_trace_begin(weir_buffer *out, const weir_expert_trace_head *head);
WEIR_MUST_CHECK weir_status
weir_expert_trace_add(weir_buffer *out, int64_t layer, const int32_t *experts, int32_t n);
/* The sizes of a text [n], which is not trusted. EFORMAT: as below. */
WEIR_MUST_CHECK weir_status weir_expert_trace_sizes(
    weir_expert_trace_head *out, const char *text, size_t n, const char *path, weir_error *error
);
/* Opens `stack` for a text [n], which is not trusted, and uses its experts. EFORMAT: `path` and the
 * line say what is wrong; the stack is closed. */
WEIR_MUST_CHECK weir_status weir_expert_trace_read(
    weir_expert_stack *stack, const char *text, size_t n, const char *path, weir_error *error
);

/* A table of `rows` sizes, or the members of a JSON object, "tokens" to "budgets". `own`: entries
 * of the present memory.experts, a row of its own; 0: none. */
WEIR_MUST_CHECK weir_status
weir_expert_stack_print(weir_buffer *out, const weir_expert_stack *stack, int64_t own);
WEIR_MUST_CHECK weir_status
weir_expert_stack_print_json(weir_buffer *out, const weir_expert_stack *stack, int64_t own);

#ifdef __cplusplus
}
#endif
