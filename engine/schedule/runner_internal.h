/* engine/schedule/runner_internal.h - internals of the runner, for runner.c and runner_watch.c. */
#pragma once
#include "engine/kv/tiers/prefetch.h"
#include "engine/schedule/runner.h"

/* A sequence of the step whose policy observes the attention of its rows. */
typedef struct watched {
    weir_attention_watch watch;
    const weir_batch_item *item;
    const weir_runner *runner;
} watched;

struct weir_runner {
    const weir_model *model;
    weir_workspace *workspace;
    weir_ledger *ledger;
    void *memory; /* holds the four arrays below */
    weir_runner_limits limits;
    const weir_kv_pair *formats; /* [kv_layers] borrowed */
    weir_kv_sinks sinks;
    bool has_tiers;
    weir_kv_prefetch *prefetch; /* NULL: there is no lower tier, or it is nested */
    weir_kv_source source;
    weir_kv_holders holders;
    weir_step_times *times; /* NULL: not measured */
    const char *problem; /* why a work of the last step failed */
    int32_t *tokens;     /* [limits.rows] */
    int32_t *logit_rows; /* [limits.logits] */
    weir_batch_segment *segments;   /* [limits.items] */
    watched *watched;    /* [limits.items] */
    weir_queries_visitor visit_queries; /* may be NULL */
    /* queries: [limits.rows, heads, head_dim]; NULL until requested. */
    void *queries_user, *queries;
    weir_kv_evictor *evictor; /* NULL: no sequence has a policy */
    void (*observe)(void *user, int64_t layer, const float *hidden);
    void *user;
};

/* runner_watch.c: what observes the rows of an item, which begin at row first_row of the step.
 * NULL: nothing does. Lives in *place. */
const weir_attention_watch *runner_watch(
    const weir_runner *runner, watched *place, const weir_batch_item *item, int32_t first_row
);
