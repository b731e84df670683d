/* tools/measure/run_experts.c - weir experts: how often experts are in memory, by memory.experts;
 * and weir experts trace, which writes the experts that were used to a file. */
#include <inttypes.h>
#include <stdio.h>

#include "engine/base/file.h"
#include "engine/cli/open.h"
#include "engine/engine_parts.h"
#include "engine/model/expert_trace.h"
#include "engine/schedule/evaluate.h"
#include "tools/measure/evaluate.h"

enum { STEP = 128 };

typedef struct run {
    weir_expert_stack stack;
    weir_buffer *trace; /* NULL: none is written */
    weir_status status; /* of `trace` */
    int64_t n_tokens;
} run;

static void see(void *user, int64_t layer, const int32_t *experts, int32_t n)
{
    run *const r = user;
    weir_expert_stack_use(&r->stack, layer, experts, n);
    if (r->trace != NULL && r->status == WEIR_OK)
        r->status = weir_expert_trace_add(r->trace, layer, experts, n);
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

static weir_status measure(
    run *r, const weir_engine *engine, const weir_arguments *arguments, weir_error *error
)
{
    weir_ids ids = { 0 };
    size_t n_bytes;
    const weir_model *const model = weir_engine_model(engine);
    const weir_expert_sizes sizes = weir_model_expert_sizes(model);
    const weir_expert_trace_head head = { .n_layers = weir_model_shape(model)->n_layers,
                                          .n_experts = weir_model_shape(model)->n_experts,
                                          .n_total = sizes.n_experts,
                                          .expert_bytes = (int64_t)sizes.entry_bytes };
    if (sizes.n_experts == 0)
        return weir_error_set(error, WEIR_EUNSUPPORTED, "this model has no experts");
    WEIR_TRY(weir_expert_stack_open(&r->stack, &head, error));
    if (r->trace != NULL && weir_expert_trace_begin(r->trace, &head) != WEIR_OK)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for a trace of experts");
    WEIR_TRY(weir_eval_tokens(&ids, &n_bytes, engine, weir_argument(arguments, "text"), error));
    const int64_t most = weir_argument_int(arguments, "tokens", 1024);
    r->n_tokens = (int64_t)ids.count < most ? (int64_t)ids.count : most;
    weir_status status = r->n_tokens > 0 ? read_text(r, engine, &ids, error)
                                         : weir_error_set(error, WEIR_EINVAL, "the text is empty");
    if (status == WEIR_OK && r->status != WEIR_OK)
        status = weir_error_set(error, r->status, "no memory for a trace of experts");
    weir_ids_free(&ids);
    return status;
}

/* What the cache of this run itself had in memory. */
static weir_status print_cache(weir_buffer *out, const weir_expert_stats *stats, bool json)
{
    const double uses = (double)(stats->all.hits + stats->all.misses);
    if (stats->n_entries == 0) return WEIR_OK;
    return weir_buffer_format(
        out,
        json ? ", \"cache\": {\"experts\": %" PRId64 ", \"hits\": %.9f, \"prefetch_used\": %" PRId64
               "}"
             : "\nin this run, with %" PRId64
               " experts in memory, %.9f of all uses were hits, %" PRId64 " of them read ahead\n",
        stats->n_entries, (double)stats->all.hits / uses, stats->all.prefetch_used
    );
}

static weir_status print(weir_buffer *out, const run *r, const weir_expert_stats *stats, bool json)
{
    if (!json) {
        WEIR_TRY(weir_expert_stack_print(out, &r->stack, stats->n_entries));
        return print_cache(out, stats, json);
    }
    WEIR_TRY(weir_buffer_text(out, "{"));
    WEIR_TRY(weir_expert_stack_print_json(out, &r->stack, stats->n_entries));
    WEIR_TRY(print_cache(out, stats, json));
    return weir_buffer_text(out, "}\n");
}

static int run_experts(const weir_arguments *arguments, weir_buffer *trace)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_buffer text = { 0 };
    weir_config config = arguments->config;
    config.batch.max_sequences = 1;
    config.model.context = STEP;
    int code = weir_open(&engine, &config, WEIR_USE_RUNNER);
    if (code != WEIR_EXIT_OK) return code;
    run r = { .trace = trace };
    weir_model_watch_experts(
        weir_engine_model(engine), &(weir_expert_watch){ .see = see, .user = &r }
    );
    weir_stop_on_interrupt();
    weir_status status = measure(&r, engine, arguments, &error);
    if (status == WEIR_OK && trace != NULL)
        status = weir_file_write_atomic(
            weir_argument(arguments, "out"), trace->data, trace->size, &error
        );
    weir_expert_stats stats;
    weir_model_expert_stats(weir_engine_model(engine), &stats);
    if (status == WEIR_OK) {
        status = print(&text, &r, &stats, weir_argument_given(arguments, "json"));
        if (status != WEIR_OK)
            status = weir_error_set(&error, WEIR_ENOMEM, "no memory to print a table");
    }
    if (status == WEIR_OK) code = weir_print(&text);
    weir_buffer_free(&text);
    weir_expert_stack_close(&r.stack);
    weir_engine_close(engine);
    return status == WEIR_OK ? code : weir_end(status, &error);
}

int weir_run_experts(const weir_arguments *arguments) { return run_experts(arguments, NULL); }

int weir_run_experts_trace(const weir_arguments *arguments)
{
    weir_buffer trace = { 0 };
    const int code = run_experts(arguments, &trace);
    weir_buffer_free(&trace);
    return code;
}
