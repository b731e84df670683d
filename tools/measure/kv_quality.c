/* tools/measure/kv_quality.c - computes the same text with f32 KV and with other formats at the
 * same time, so that no logits are stored. What a query reads of a page depends on positions only,
 * so chunks measure the same as decoding. */
#include <stdlib.h>
#include <string.h>

#include "engine/cli/progress.h"
#include "engine/engine_parts.h"
#include "engine/model/model.h"
#include "engine/schedule/runner.h"
#include "kernels/abi/kv_format_text.h"
#include "offload/ledger.h"
#include "tools/measure/quality.h"

enum { PIECE = 64 };

/* A sequence with its own pages. */
typedef struct side {
    /* Owned if the formats are not the engine's. */
    weir_kv_store *store;
    weir_runner *runner;
    weir_kv_sequence sequence;
} side;

typedef struct comparison {
    side wide, coded;
    weir_quality_sum sum;
    int64_t n_vocab, n_windows; /* n_windows: compared so far */
} comparison;

static weir_status open_side(
    side *s, const weir_engine *engine, const weir_kv_spec *spec, weir_error *error
)
{
    weir_model *const model = weir_engine_model(engine);
    weir_ledger *const ledger = weir_engine_ledger(engine);
    weir_kv_store *store = weir_engine_store(engine);
    s->runner = weir_engine_runner(engine);
    if (spec != NULL) {
        const weir_runner_limits limits = { .rows = PIECE, .items = 1, .logits = PIECE };
        s->runner = NULL;
        WEIR_TRY(weir_kv_store_open(&s->store, spec, ledger, error));
        WEIR_TRY(weir_runner_open(&s->runner, model, ledger, spec, &limits, error));
        store = s->store;
    }
    return weir_kv_sequence_open(
        &s->sequence, store, ledger, weir_model_recurrent_bytes(model), error
    );
}

static void close_side(side *s)
{
    weir_kv_sequence_close(&s->sequence);
    if (s->store != NULL) weir_runner_close(s->runner);
    weir_kv_store_close(s->store);
}

static weir_status step(
    side *s, const int32_t *tokens, int32_t n, const float **logits, weir_error *error
)
{
    weir_batch_item item = { .sequence = &s->sequence, .n_rows = n, .wanted = WEIR_LOGITS_ALL };
    memcpy(s->sequence.tokens + s->sequence.n_tokens, tokens, (size_t)n * sizeof *tokens);
    s->sequence.n_tokens += n;
    return weir_runner_step(s->runner, &item, 1, logits, error);
}

static weir_status compare_window(
    comparison *c, const int32_t *tokens, int32_t window, weir_error *error
)
{
    weir_kv_sequence_clear(&c->wide.sequence);
    weir_kv_sequence_clear(&c->coded.sequence);
    for (int32_t at = 0; at < window; at += PIECE) {
        const int32_t n = window - at < PIECE ? window - at : PIECE;
        const float *wide, *coded;
        WEIR_TRY(weir_progress_step(c->n_windows, error));
        WEIR_TRY(step(&c->wide, tokens + at, n, &wide, error));
        WEIR_TRY(step(&c->coded, tokens + at, n, &coded, error));
        for (int32_t r = 0; r < n && at + r + 1 < window; r++)
            weir_quality_add(
                &c->sum, wide + r * c->n_vocab, coded + r * c->n_vocab, tokens[at + r + 1]
            );
    }
    return WEIR_OK;
}

static weir_status run(
    comparison *c, const weir_engine *engine, const weir_kv_quality_task *task,
    const weir_kv_spec *spec, weir_error *error
)
{
    int64_t n_windows;
    WEIR_TRY(weir_quality_windows(&n_windows, task->text, task->window, task->most_windows, error));
    WEIR_TRY(weir_quality_open(&c->sum, n_windows * task->window, engine, error));
    WEIR_TRY(open_side(&c->wide, engine, NULL, error));
    WEIR_TRY(open_side(&c->coded, engine, spec, error));
    weir_progress_begin("comparing formats", "windows", n_windows);
    for (; c->n_windows < n_windows; c->n_windows++)
        WEIR_TRY(
            compare_window(c, task->text->data + c->n_windows * task->window, task->window, error)
        );
    weir_progress_end();
    return WEIR_OK;
}

weir_status weir_eval_kv_quality(
    weir_kv_quality *out, int64_t *n_scored, const weir_engine *engine,
    const weir_kv_quality_task *task, const weir_kv_choice *choice, weir_error *error
)
{
    weir_kv_spec spec = *weir_kv_store_spec(weir_engine_store(engine));
    comparison c = { .n_vocab = weir_model_shape(weir_engine_model(engine))->n_vocab };
    const int64_t blocks = (task->window + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
    if (task->window < 2 || task->window > spec.max_rows)
        return weir_error_set(
            error, WEIR_EINVAL, "the window is %d tokens, allowed is 2 to %d", (int)task->window,
            (int)spec.max_rows
        );
    if (weir_model_shares_rows(weir_engine_model(engine)) &&
        (weir_kv_any_unsealed(choice->rest, weir_kv_choice_sinks(choice, spec.n_layers)) ||
         (choice->n_wide > 0 && weir_kv_any_unsealed(choice->wide, (weir_kv_sinks){ 0 }))))
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "--formats: layers of this model read the KV rows of others, which no format with "
            "unsealed rows allows:" WEIR_KV_PAGE_TEXT
        );
    for (int64_t i = 0; i < spec.n_layers; i++) {
        const weir_kv_geometry *const g = &spec.geometry[i];
        WEIR_TRY(weir_kv_pair_check(choice->rest, g, "--formats", error));
        if (choice->n_wide > 0 || choice->n_wide_tokens > 0)
            WEIR_TRY(weir_kv_pair_check(choice->wide, g, "kv.wide_format", error));
    }
    weir_kv_pair *const formats = calloc((size_t)spec.n_layers + 1, sizeof *formats);
    if (formats == NULL)
        return weir_error_set(
            error, WEIR_ENOMEM, "no memory for %lld layers", (long long)spec.n_layers
        );
    weir_kv_choice_fill(formats, spec.n_layers, choice);
    spec.formats = formats;
    spec.sinks = weir_kv_choice_sinks(choice, spec.n_layers);
    spec.pages.n = weir_kv_pages_for(&spec, task->window);
    spec.pages.n_sinks = weir_kv_pages_of(&spec, 0, blocks).sinks;
    spec.pages.n_disk = spec.pages.n_host = 0;
    spec.table_bytes = weir_kv_table_bytes(&spec, spec.max_rows);
    const weir_status status = run(&c, engine, task, &spec, error);
    if (status == WEIR_OK) {
        *out = weir_quality_summarise(&c.sum);
        out->bytes = (int64_t)weir_kv_blocks_bytes(&spec, blocks) / (blocks * WEIR_PAGE_TOKENS);
        *n_scored = c.sum.n_scored;
    }
    close_side(&c.coded);
    close_side(&c.wide);
    weir_quality_close(&c.sum);
    free(formats);
    return status;
}
