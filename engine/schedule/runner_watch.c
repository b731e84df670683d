/* engine/schedule/runner_watch.c - what observes the attention of a step's rows: the policy of
 * their sequence, or a visitor of queries. */
#include "engine/schedule/runner_internal.h"

static void show(
    void *user, int64_t kv_layer, const float *queries, int64_t row_stride, int64_t head_stride
)
{
    const watched *const seen = user;
    weir_kv_sequence *const sequence = seen->item->sequence;
    const weir_policy_queries rows = { .data = queries,
                                       .n = seen->item->n_rows,
                                       .head_stride = head_stride,
                                       .row_stride = row_stride };
    weir_policy_run_observe(
        sequence->policy_run, &sequence->table, kv_layer, sequence->n_computed, &rows
    );
}

static void show_plain(
    void *user, int64_t kv_layer, const float *queries, int64_t row_stride, int64_t head_stride
)
{
    const watched *const seen = user;
    (void)queries, (void)row_stride, (void)head_stride;
    seen->runner->visit_queries(
        seen->runner->queries_user, kv_layer, seen->watch.plain, seen->item->n_rows
    );
}

/* The watch on the step's rows from first_row on, for a sequence without a policy. */
static const weir_attention_watch *watch_queries(
    const weir_runner *runner, watched *place, const weir_batch_item *item, int32_t first_row
)
{
    if (runner->visit_queries == NULL) return NULL;
    *place = (watched){ .watch = { .plain = (float *)runner->queries +
                                            first_row * weir_model_query_elements(runner->model),
                                   .seen = show_plain,
                                   .user = place },
                        .item = item,
                        .runner = runner };
    return &place->watch;
}

const weir_attention_watch *runner_watch(
    const weir_runner *runner, watched *place, const weir_batch_item *item, int32_t first_row
)
{
    if (item->sequence->policy_run == NULL) return watch_queries(runner, place, item, first_row);
    const weir_policy_run_view view =
        weir_policy_run_view_of(item->sequence->policy_run, item->n_rows);
    *place =
        (watched){ .watch = { .logits = weir_model_keeps_logits(runner->model) ? view.logits : NULL,
                              .mass = view.mass,
                              .below = view.below,
                              .last = view.last,
                              .stride = view.stride,
                              .plain = view.plain,
                              .seen = show,
                              .user = place },
                   .item = item };
    return &place->watch;
}
