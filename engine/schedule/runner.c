#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/schedule/runner_internal.h"

size_t weir_runner_bytes(const weir_runner_limits *limits)
{
    return (size_t)limits->items * (sizeof(weir_batch_segment) + sizeof(watched)) +
           ((size_t)limits->rows + (size_t)limits->logits) * sizeof(int32_t);
}

static size_t queries_bytes(const weir_runner *runner)
{
    return (size_t)runner->limits.rows * (size_t)weir_model_query_elements(runner->model) *
           sizeof(float);
}

/* ---- cold pages, as attention sees them ------------------------------------------------------ */
static bool is_cold(void *user, int64_t kv_layer, int32_t segment)
{
    const weir_runner *const runner = user;
    return weir_kv_prefetch_is_cold(runner->prefetch, kv_layer, segment);
}

static void take(void *user, int64_t kv_layer, int32_t segment, weir_kv_range *range)
{
    weir_runner *const runner = user;
    weir_kv_prefetch_take(runner->prefetch, kv_layer, segment, range);
}

static void give(void *user)
{
    weir_runner *const runner = user;
    weir_kv_prefetch_give(runner->prefetch);
}

static weir_status open_prefetch(weir_runner *runner, const weir_kv_spec *spec, weir_error *error)
{
    if (!runner->has_tiers || runner->limits.is_nested) return WEIR_OK;
    weir_kv_prefetch_limits limits = { .segments = runner->limits.items };
    limits.readers = weir_model_kv_readers(runner->model, &limits.n_readers);
    const weir_status status =
        weir_kv_prefetch_open(&runner->prefetch, spec, &limits, runner->ledger, error);
    runner->source =
        (weir_kv_source){ .is_cold = is_cold, .take = take, .give = give, .user = runner };
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */
weir_status weir_runner_open(
    weir_runner **out, const weir_model *model, weir_ledger *ledger, const weir_kv_spec *spec,
    const weir_runner_limits *limits, weir_error *error
)
{
    weir_runner *const runner = calloc(1, sizeof *runner);
    if (runner == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the runner");
    *runner = (weir_runner){ .model = model,
                             .ledger = ledger,
                             .limits = *limits,
                             .formats = spec->formats,
                             .sinks = spec->sinks,
                             .has_tiers = weir_kv_cold_pages(spec) > 0 && spec->n_layers > 0 };
    if (runner->limits.hot < 1) runner->limits.hot = 1;
    weir_status status = weir_ledger_alloc(
        ledger, &runner->memory, WEIR_ACCOUNT_TOKENS, weir_runner_bytes(limits), error
    );
    if (status == WEIR_OK) {
        runner->segments = runner->memory; /* widest element first */
        runner->watched = (watched *)(runner->segments + limits->items);
        runner->tokens = (int32_t *)(runner->watched + limits->items);
        runner->logit_rows = runner->tokens + limits->rows;
    }
    const weir_workspace_limits space = { .rows = limits->rows,
                                          .segments = limits->items,
                                          .logits = limits->logits,
                                          .context = (int32_t)spec->max_rows,
                                          .formats = spec->formats,
                                          .sinks = spec->sinks,
                                          .has_cold =
                                              weir_kv_cold_pages(spec) > 0 && !limits->is_nested,
                                          .evicts = spec->evicts,
                                          .shares_scratch = limits->is_nested };
    if (status == WEIR_OK)
        status = weir_workspace_open(&runner->workspace, model, ledger, &space, error);
    if (status == WEIR_OK) status = open_prefetch(runner, spec, error);
    if (status != WEIR_OK) {
        weir_runner_close(runner);
        return status;
    }
    *out = runner;
    return WEIR_OK;
}

void weir_runner_close(weir_runner *runner)
{
    if (runner == NULL) return;
    weir_kv_prefetch_close(runner->prefetch);
    weir_workspace_close(runner->workspace);
    weir_ledger_free(
        runner->ledger, runner->queries, WEIR_ACCOUNT_ACTIVATIONS, queries_bytes(runner)
    );
    weir_ledger_free(
        runner->ledger, runner->memory, WEIR_ACCOUNT_TOKENS, weir_runner_bytes(&runner->limits)
    );
    free(runner);
}

const weir_runner_limits *weir_runner_limits_of(const weir_runner *runner)
{
    return &runner->limits;
}

const weir_model *weir_runner_model(const weir_runner *runner) { return runner->model; }

int32_t weir_runner_block_rows(const weir_runner *runner)
{
    return weir_model_block_rows(runner->model);
}

bool weir_runner_is_state(const weir_runner *runner, const float *recurrent, int64_t n_tokens)
{
    return weir_model_is_state(runner->model, recurrent, n_tokens);
}

weir_bank_stats weir_runner_bank_stats(const weir_runner *runner, const weir_kv_sequence *sequence)
{
    const bool has_rows = sequence != NULL && sequence->n_computed > 0;
    return weir_model_bank_stats(runner->model, has_rows ? sequence->recurrent : NULL);
}

weir_policy_run_count weir_runner_count(const weir_runner *runner, const weir_kv_sequence *sequence)
{
    if (sequence->policy_run != NULL)
        return weir_policy_run_count_of(
            sequence->policy_run, &sequence->table, sequence->n_computed
        );
    const weir_bank_stats banks = weir_runner_bank_stats(runner, sequence);
    if (banks.n_layers == 0) return (weir_policy_run_count){ .live = sequence->n_computed };
    return (weir_policy_run_count){ .live = weir_bank_stats_live(&banks),
                                    .evicted = weir_bank_stats_evicted(&banks) };
}

int64_t weir_runner_n_vocab(const weir_runner *runner)
{
    return weir_model_shape(runner->model)->n_vocab;
}

void weir_runner_observe(
    weir_runner *runner, void (*observe)(void *user, int64_t layer, const float *hidden), void *user
)
{
    runner->observe = observe;
    runner->user = user;
}

weir_status weir_runner_show_queries(
    weir_runner *runner, weir_queries_visitor visit, void *user, weir_error *error
)
{
    WEIR_ASSERT(visit == NULL || runner->evictor != NULL);
    if (visit != NULL && runner->queries == NULL)
        WEIR_TRY(weir_ledger_alloc(
            runner->ledger, &runner->queries, WEIR_ACCOUNT_ACTIVATIONS, queries_bytes(runner), error
        ));
    runner->visit_queries = visit;
    runner->queries_user = user;
    return WEIR_OK;
}

void weir_runner_share(weir_runner *runner, const weir_kv_holders *holders)
{
    runner->holders = *holders;
}

void weir_runner_run_others(
    weir_runner *runner, bool (*run)(void *user), void (*listener)(void *user), void *user
)
{
    if (runner->prefetch != NULL)
        weir_kv_prefetch_run_others(runner->prefetch, run, listener, user);
}

void weir_runner_measure(weir_runner *runner, weir_step_times *times) { runner->times = times; }

static void end_part(const weir_runner *runner, weir_step_part part)
{
    if (runner->times != NULL) weir_step_times_add(runner->times, part);
}

const char *weir_runner_problem(const weir_runner *runner) { return runner->problem; }

/* ---- a step ---------------------------------------------------------------------------------- */
/* Memory blocks past the sinks that reserving the rows takes: new ones, and copies of shared
 * ones. */
static int64_t blocks_wanted(const weir_batch_item *items, int32_t n_items)
{
    weir_kv_pages n = { 0 };
    for (int32_t i = 0; i < n_items; i++) {
        const weir_kv_sequence *const s = items[i].sequence;
        n = weir_kv_pages_plus(n, weir_kv_reserve_pages(&s->table, s->store, items[i].n_rows));
    }
    return weir_kv_pages_blocks(weir_kv_store_spec(items[0].sequence->store), n);
}

static weir_status reclaim_blocks(
    const weir_runner *runner, const weir_batch_item *items, int32_t n_items, int64_t n_blocks,
    weir_error *error
)
{
    const weir_reclaim_request request = { .caller = WEIR_RECLAIM_FOR_MEMORY,
                                           .store = items[0].sequence->store,
                                           .items = items,
                                           .n_items = n_items,
                                           .blocks = n_blocks,
                                           .hot = runner->limits.hot };
    return weir_reclaim(&runner->holders, &request, error);
}

/* Blocks near the kernels for all rows, with a lower tier. */
static weir_status reclaim_memory(
    const weir_runner *runner, const weir_batch_item *items, int32_t n_items, weir_error *error
)
{
    if (runner->prefetch == NULL) return WEIR_OK;
    return reclaim_blocks(runner, items, n_items, blocks_wanted(items, n_items), error);
}

/* Reserves pages for all rows. If a last page cannot be read back, only its work fails. */
static weir_status reserve_rows(
    weir_runner *runner, weir_batch_item *items, int32_t n_items, weir_error *error
)
{
    for (int32_t i = 0; i < n_items; i++) {
        weir_kv_sequence *const sequence = items[i].sequence;
        const weir_status status =
            weir_kv_reserve(&sequence->table, sequence->store, items[i].n_rows);
        if (status == WEIR_EFULL)
            return weir_error_set(
                error, status, "no KV pages, or no memory for page tables, left for %d rows (%s)",
                (int)(sequence->n_computed + items[i].n_rows), weir_kv_store_budget(sequence->store)
            );
        items[i].failed = status != WEIR_OK;
        if (items[i].failed)
            runner->problem = "its last KV page cannot be read back from the disk "
                              "(memory.disk_dir); check that disk";
        if (!items[i].failed && sequence->policy_run != NULL &&
            !weir_policy_run_fits(sequence->policy_run, &sequence->table, items[i].n_rows)) {
            items[i].failed = true;
            runner->problem =
                "it has more KV rows than its KV policy allows; start the sequence again";
        }
    }
    return WEIR_OK;
}

static int64_t window_stride(const weir_kv_sequence *sequence)
{
    const weir_kv_windows *const windows = weir_kv_store_windows(sequence->store);
    return windows != NULL ? weir_kv_window_stride(windows) : 0;
}

static weir_batch build_batch(weir_runner *runner, weir_batch_item *items, int32_t n_items)
{
    weir_batch batch = { .tokens = runner->tokens,
                         .segments = runner->segments,
                         .logit_rows = runner->logit_rows,
                         .formats = runner->formats,
                         .sinks = runner->sinks,
                         .observe = runner->observe,
                         .user = runner->user };
    for (int32_t i = 0; i < n_items; i++) {
        weir_batch_item *const item = &items[i];
        weir_kv_sequence *const sequence = item->sequence;
        item->first_logit = -1;
        item->first_row = batch.n_rows;
        item->first_position = sequence->n_computed;
        if (item->failed) continue;
        WEIR_ASSERT(
            item->n_rows >= 1 &&
            sequence->n_computed + item->n_rows - item->n_drafts <= sequence->n_tokens
        );
        WEIR_ASSERT(batch.n_rows + item->n_rows <= runner->limits.rows);
        memcpy(
            runner->tokens + batch.n_rows, sequence->tokens + sequence->n_computed,
            (size_t)item->n_rows * sizeof(int32_t)
        );
        const weir_attention_watch *const watches =
            runner_watch(runner, &runner->watched[batch.n_segments], item, batch.n_rows);
        const int64_t n_cold = weir_kv_table_cold_blocks(&sequence->table, sequence->store);
        if (runner->prefetch != NULL)
            weir_kv_prefetch_views(runner->prefetch)[batch.n_segments] =
                (weir_kv_view){ .n_cold = (int32_t)n_cold,
                                .end_cold = (int32_t)sequence->table.cold.end,
                                .pages = (void *const *)sequence->table.pages,
                                .stride = sequence->table.capacity,
                                .n_past = sequence->n_computed,
                                .n_rows = item->n_rows,
                                .is_reread = watches != NULL &&
                                             weir_attention_watch_rereads(watches, item->n_rows) };
        runner->segments[batch.n_segments++] = (weir_batch_segment
        ){ .first_row = batch.n_rows,
           .n_rows = item->n_rows,
           .n_past = sequence->n_computed,
           .is_prompt = item->is_prompt,
           .head_rows = sequence->table.is_pruned ? sequence->table.head_rows : NULL,
           .watch = watches,
           .pages = (void *const *)sequence->table.pages,
           .page_stride = sequence->table.capacity,
           .window_pages = weir_kv_window_pages(&sequence->table.windows),
           .window_stride = window_stride(sequence),
           .unsealed = (void *const *)sequence->table.unsealed,
           .recurrent = sequence->recurrent,
           .snapshots = item->snapshots,
           .n_snapshots = item->n_snapshots,
           .lost = &item->failed };
        sequence->recurrent_dirty = true;
        const int32_t wanted = item->wanted == WEIR_LOGITS_ALL    ? item->n_rows
                               : item->wanted == WEIR_LOGITS_LAST ? 1 + item->n_drafts
                                                                  : 0;
        if (wanted > 0) item->first_logit = batch.n_logits;
        WEIR_ASSERT(batch.n_logits + wanted <= runner->limits.logits);
        for (int32_t r = item->n_rows - wanted; r < item->n_rows; r++)
            runner->logit_rows[batch.n_logits++] = batch.n_rows + r;
        batch.n_rows += item->n_rows;
    }
    return batch;
}

/* Runs the batch while its cold pages are read ahead. */
static weir_status forward(
    weir_runner *runner, weir_batch *batch, weir_batch_item *items, int32_t n_items,
    const float **logits, weir_error *error
)
{
    const bool reads =
        runner->prefetch != NULL &&
        weir_kv_prefetch_begin(runner->prefetch, items[0].sequence->store, batch->n_segments);
    if (reads) batch->source = &runner->source;
    const weir_status status =
        weir_model_forward(runner->model, runner->workspace, batch, logits, error);
    const char *const lost = weir_workspace_problem(runner->workspace);
    if (lost != NULL) runner->problem = lost;
    if (!reads) return status;
    weir_kv_prefetch_end(runner->prefetch);
    for (int32_t i = 0, segment = 0; i < n_items && segment < batch->n_segments; i++) {
        const char *why;
        if (runner->segments[segment].lost != &items[i].failed) continue; /* it has none */
        if (!weir_kv_prefetch_failed(runner->prefetch, segment++, &why)) continue;
        items[i].failed = true;
        runner->problem = why;
    }
    return status;
}

weir_status weir_runner_step(
    weir_runner *runner, weir_batch_item *items, int32_t n_items, const float **logits,
    weir_error *error
)
{
    WEIR_ASSERT(n_items >= 1 && n_items <= runner->limits.items);
    int32_t n_failed = 0;
    runner->problem = NULL;
    WEIR_TRY(reclaim_memory(runner, items, n_items, error));
    WEIR_TRY(reserve_rows(runner, items, n_items, error));
    end_part(runner, WEIR_STEP_MEMORY);
    weir_batch batch = build_batch(runner, items, n_items);
    end_part(runner, WEIR_STEP_MARSHAL);
    if (batch.n_segments > 0) WEIR_TRY(forward(runner, &batch, items, n_items, logits, error));
    end_part(runner, WEIR_STEP_FORWARD);
    for (int32_t i = 0; i < n_items; i++) {
        weir_kv_sequence *const sequence = items[i].sequence;
        n_failed += items[i].failed;
        if (items[i].failed) continue;
        const int32_t n_rows = items[i].n_rows - items[i].n_drafts;
        sequence->n_computed += n_rows;
        weir_kv_commit(&sequence->table, n_rows);
        if (sequence->policy_run != NULL)
            weir_policy_run_advance(sequence->policy_run, n_rows, sequence->n_computed);
    }
    return n_failed < n_items ? WEIR_OK : weir_error_set(error, WEIR_EIO, "%s", runner->problem);
}

const float *weir_runner_hidden(
    const weir_runner *runner, const weir_batch_item *item, int32_t position
)
{
    const int64_t row = item->first_row + position - item->first_position;
    WEIR_ASSERT(position >= item->first_position && position < item->first_position + item->n_rows);
    return weir_workspace_hidden(runner->workspace) +
           row * weir_model_shape(runner->model)->d_model;
}

weir_status weir_runner_draft(
    weir_runner *runner, const weir_mtp_batch *batch, const float **logits, const float **hidden,
    weir_error *error
)
{
    return weir_model_draft(runner->model, runner->workspace, batch, logits, hidden, error);
}

weir_status weir_runner_fill(weir_runner *runner, weir_batch_item *item, weir_error *error)
{
    weir_kv_sequence *const sequence = item->sequence;
    runner->problem = NULL;
    WEIR_TRY(reclaim_memory(runner, item, 1, error));
    WEIR_TRY(reserve_rows(runner, item, 1, error));
    if (item->failed) return weir_error_set(error, WEIR_EIO, "%s", runner->problem);
    const weir_batch batch = build_batch(runner, item, 1);
    WEIR_TRY(weir_model_fill_noise(runner->model, runner->workspace, &batch, error));
    sequence->n_computed += item->n_rows;
    weir_kv_commit(&sequence->table, item->n_rows);
    return WEIR_OK;
}

void weir_runner_evict_with(weir_runner *runner, weir_kv_evictor *evictor)
{
    runner->evictor = evictor;
}

weir_kv_evictor *weir_runner_evictor(const weir_runner *runner) { return runner->evictor; }

/* The sequence's own blocks may be demoted to make space for the rows that stay. */
static bool reclaim_for_policy(void *user, const weir_kv_sequence *sequence, weir_kv_pages pages)
{
    const weir_runner *const runner = user;
    const weir_batch_item item = { .sequence = (weir_kv_sequence *)(uintptr_t
                                   )sequence }; /* The sequence is only read. */
    const int64_t n_blocks = weir_kv_pages_blocks(weir_kv_store_spec(sequence->store), pages);
    if (runner->has_tiers && weir_kv_free_blocks(sequence->store) < n_blocks &&
        reclaim_blocks(runner, &item, 1, n_blocks, NULL) == WEIR_OK)
        return true;
    const weir_reclaim_request request = { .caller = WEIR_RECLAIM_FOR_POLICY,
                                           .store = sequence->store,
                                           .sequence = sequence,
                                           .pages = pages };
    return weir_reclaim(&runner->holders, &request, NULL) == WEIR_OK;
}

weir_status weir_runner_evict(weir_runner *runner, weir_kv_sequence *sequence, weir_error *error)
{
    const weir_reclaim_hook hook = { .reclaim = reclaim_for_policy, .user = runner };
    if (sequence->policy_run == NULL) return WEIR_OK;
    WEIR_ASSERT(runner->evictor != NULL);
    return weir_apply_policy(sequence, runner->evictor, &hook, error);
}

void weir_runner_move(
    weir_runner *runner, const weir_batch_item *items, int32_t n_items, int64_t n_short
)
{
    for (int32_t i = 0; i < n_items; i++)
        weir_kv_trim_windows(&items[i].sequence->table, items[i].sequence->store);
    if (runner->has_tiers && n_items > 0)
        weir_tiers_move(
            items[0].sequence->store, &runner->holders, items, n_items, runner->limits.hot, n_short
        );
}
