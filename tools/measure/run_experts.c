/* tools/measure/run_experts.c - weir experts: how often experts are in memory, by memory.experts.
 *
 * LRU is a stack algorithm (Mattson et al. 1970): an expert is in a cache of n slots if fewer than
 * n others were used since its last use, so one pass over a text gives the hits of every size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/cli/open.h"
#include "engine/engine_parts.h"
#include "engine/schedule/evaluate.h"
#include "tools/measure/evaluate.h"

enum { ROWS = 10, STEP = 128 };

typedef struct run {
    const weir_model *model;
    weir_expert_sizes sizes;
    int32_t *recent; /* [n_recent] experts of all layers, the last used first */
    int64_t n_recent;
    int64_t *at; /* [n_experts] uses at this depth of `recent` */
    int64_t n_uses, n_first; /* n_first: of experts that were not used before */
    int64_t n_tokens;
} run;

static void use(run *r, int32_t number)
{
    int64_t depth = 0;
    while (depth < r->n_recent && r->recent[depth] != number) depth++;
    r->n_uses++;
    if (depth < r->n_recent) {
        r->at[depth]++;
    } else {
        r->n_first++;
        r->n_recent++;
    }
    memmove(r->recent + 1, r->recent, (size_t)depth * sizeof *r->recent);
    r->recent[0] = number;
}

static void see(void *user, int64_t layer, const int32_t *experts, int32_t n)
{
    run *const r = user;
    const int64_t first = weir_model_expert_number(r->model, layer, 0);
    for (int32_t i = 0; i < n; i++) use(r, (int32_t)(first + experts[i]));
}

/* Reads the text token by token. */
static weir_status read_text(
    run *r, const weir_engine *engine, const weir_ids *ids, weir_error *error
)
{
    weir_kv_sequence sequence = { 0 };
    WEIR_TRY(weir_kv_sequence_open(
        &sequence, weir_engine_store(engine), weir_engine_ledger(engine),
        weir_model_recurrent_bytes(weir_engine_model(engine)), error
    ));
    weir_status status = WEIR_OK;
    weir_progress_begin("reading", "tokens", r->n_tokens);
    for (int64_t at = 0; status == WEIR_OK && at < r->n_tokens; at += STEP) {
        const int64_t left = r->n_tokens - at;
        status = weir_progress_step(at, error);
        if (status != WEIR_OK) break;
        weir_kv_sequence_clear(&sequence);
        status = weir_evaluate(
            weir_engine_runner(engine), &sequence,
            &(weir_evaluation){ .tokens = ids->data + at,
                                .n_tokens = (int32_t)(left < STEP ? left : STEP),
                                .decode_from = 0,
                                .stopped = &weir_interrupted },
            error
        );
        status = weir_progress_after(status, at, error);
    }
    weir_progress_end();
    weir_kv_sequence_close(&sequence);
    return status;
}

static double hits_with(const run *r, int64_t n_slots)
{
    int64_t hits = 0;
    for (int64_t i = 0; i < n_slots && i < r->sizes.n_experts; i++) hits += r->at[i];
    return r->n_uses > 0 ? (double)hits / (double)r->n_uses : 0.0;
}

static void print_table(const run *r)
{
    const double gib = 1024.0 * 1024.0 * 1024.0, slot = (double)r->sizes.slot_bytes;
    (void)printf(
        "%lld tokens, %lld uses of experts, %lld of %lld experts used; an expert has %.2f MiB\n\n"
        "experts  GiB       in memory  read per token, MiB\n",
        (long long)r->n_tokens, (long long)r->n_uses, (long long)r->n_recent,
        (long long)r->sizes.n_experts, slot / (1024.0 * 1024.0)
    );
    for (int i = 1; i <= ROWS; i++) {
        const int64_t n = r->sizes.n_experts * i / ROWS;
        const double hits = hits_with(r, n),
                     missed = (1.0 - hits) * (double)r->n_uses / (double)r->n_tokens;
        (void)printf(
            "%7lld  %8.3f  %7.1f %%  %10.2f\n", (long long)n, (double)n * slot / gib, 100.0 * hits,
            missed * slot / (1024.0 * 1024.0)
        );
    }
}

static void print_json(const run *r)
{
    (void)printf(
        "{\"tokens\": %lld, \"uses\": %lld, \"experts\": %lld, \"expert_bytes\": %zu, "
        "\"budgets\": [",
        (long long)r->n_tokens, (long long)r->n_uses, (long long)r->sizes.n_experts,
        r->sizes.slot_bytes
    );
    for (int i = 1; i <= ROWS; i++) {
        const int64_t n = r->sizes.n_experts * i / ROWS;
        (void)printf(
            "%s{\"experts\": %lld, \"bytes\": %lld, \"hits\": %.6f}", i > 1 ? ", " : "",
            (long long)n, (long long)(n * (int64_t)r->sizes.slot_bytes), hits_with(r, n)
        );
    }
    (void)printf("]}\n");
}

static weir_status measure(
    run *r, const weir_engine *engine, const weir_arguments *arguments, weir_error *error
)
{
    weir_ids ids = { 0 };
    size_t n_bytes;
    if (r->sizes.n_experts == 0)
        return weir_error_set(error, WEIR_EUNSUPPORTED, "this model has no experts");
    r->recent = weir_memory_take_zero((size_t)r->sizes.n_experts, sizeof *r->recent);
    r->at = weir_memory_take_zero((size_t)r->sizes.n_experts, sizeof *r->at);
    if (r->recent == NULL || r->at == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory to count experts");
    WEIR_TRY(weir_eval_tokens(&ids, &n_bytes, engine, weir_argument(arguments, "text"), error));
    const int64_t most = weir_argument_int(arguments, "tokens", 1024);
    r->n_tokens = (int64_t)ids.count < most ? (int64_t)ids.count : most;
    const weir_status status = r->n_tokens > 0
                                   ? read_text(r, engine, &ids, error)
                                   : weir_error_set(error, WEIR_EINVAL, "the text is empty");
    weir_ids_free(&ids);
    return status;
}

int weir_run_experts(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_config config = arguments->config;
    config.batch.max_sequences = 1;
    config.model.context = STEP;
    const int code = weir_open(&engine, &config, WEIR_USE_RUNNER);
    if (code != WEIR_EXIT_OK) return code;
    run r = { .model = weir_engine_model(engine) };
    r.sizes = weir_model_expert_sizes(r.model);
    weir_model_watch_experts(
        weir_engine_model(engine), &(weir_expert_watch){ .see = see, .user = &r }
    );
    weir_stop_on_interrupt();
    const weir_status status = measure(&r, engine, arguments, &error);
    if (status == WEIR_OK) (weir_argument_given(arguments, "json") ? print_json : print_table)(&r);
    weir_memory_give(r.recent);
    weir_memory_give(r.at);
    weir_engine_close(engine);
    return weir_end(status, &error);
}
