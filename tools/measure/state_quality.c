/* tools/measure/state_quality.c - compares a sequence continued from a state that was stored in
 * fewer bits with one continued from the exact state. */
#include <stdlib.h>
#include <string.h>

#include "engine/cli/progress.h"
#include "engine/engine_parts.h"
#include "engine/model/blocks/coda_memory.h"
#include "engine/model/blocks/coda_pack.h"
#include "engine/schedule/runner.h"
#include "tools/measure/quality.h"

/* `origin` computes what comes before, the others continue from there. */
typedef struct comparison {
    weir_runner *runner;
    const weir_model *model;
    weir_kv_sequence origin, whole, other;
    weir_quality_sum sum;
    float *logits; /* [block, n_vocab] of `whole` */
    /* For the largest state; NULL: the form has 16 bits or more. */
    void *packed;
    int64_t n_vocab, n_windows; /* n_windows: compared so far */
    int32_t block;
    weir_state_form form;
} comparison;

const char *weir_state_form_name(weir_state_form form)
{
    static const char *const names[WEIR_STATE_FORMS] = { "f32", "f16", "bf16", "int8", "int4" };
    return names[form];
}

/* Returns 0 for forms that are not packed. */
static int bits_of(weir_state_form form)
{
    return form == WEIR_STATE_INT8 ? 8 : form == WEIR_STATE_INT4 ? 4 : 0;
}

/* Bytes of a layer's state in the form. A rounded form changes only its pages. */
static size_t stored_bytes(const weir_coda_layer *layer, weir_state_form form)
{
    const weir_coda_state state = weir_coda_view(layer, NULL);
    if (bits_of(form) > 0) return weir_coda_packed_bytes(layer, bits_of(form));
    return state.bytes - (form == WEIR_STATE_F32
                              ? 0
                              : (size_t)(layer->n_kv_heads * state.n_pages * state.page_bytes / 2));
}

static void round_pages(const weir_coda_layer *layer, void *memory, weir_state_form form)
{
    const weir_coda_state state = weir_coda_view(layer, memory);
    float *const values = (float *)(void *)state.pages;
    const int64_t n =
        layer->n_kv_heads * state.n_pages * state.page_bytes / (int64_t)sizeof *values;
    for (int64_t i = 0; i < n; i++)
        values[i] = form == WEIR_STATE_BF16 ? weir_bf16_to_f32(weir_bf16_from_f32(values[i]))
                                            : weir_f16_to_f32(weir_f16_from_f32(values[i]));
}

/* Converts every state of the sequence to the form and back. */
static weir_status store_and_load(
    const comparison *c, weir_kv_sequence *sequence, weir_error *error
)
{
    const int bits = bits_of(c->form);
    for (int64_t i = 0; i < weir_model_shape(c->model)->n_layers && c->form != WEIR_STATE_F32;
         i++) {
        weir_coda_layer layer;
        if (!weir_coda_layer_at(c->model, i, &layer)) continue;
        void *const memory =
            sequence->recurrent + weir_model_layer_memory(c->model, i).state_offset;
        if (bits == 0) {
            round_pages(&layer, memory, c->form);
            continue;
        }
        WEIR_TRY(weir_coda_pack(&layer, memory, bits, c->packed, error));
        WEIR_TRY(weir_coda_unpack(&layer, c->packed, bits, memory, error));
    }
    return WEIR_OK;
}

static weir_status step(
    const comparison *c, weir_kv_sequence *sequence, const int32_t *tokens, int32_t n,
    const float **logits, weir_error *error
)
{
    weir_batch_item item = {
        .sequence = sequence, .n_rows = n, .is_prompt = true, .wanted = WEIR_LOGITS_ALL
    };
    memcpy(sequence->tokens + sequence->n_tokens, tokens, (size_t)n * sizeof *tokens);
    sequence->n_tokens += n;
    return weir_runner_step(c->runner, &item, 1, logits, error);
}

static weir_status compare_window(
    comparison *c, const int32_t *tokens, const weir_state_quality_task *task, weir_error *error
)
{
    const float *logits;
    weir_kv_sequence_clear(&c->origin);
    weir_kv_sequence_clear(&c->whole);
    weir_kv_sequence_clear(&c->other);
    for (int32_t at = 0; at < task->before; at += c->block) {
        WEIR_TRY(weir_progress_step(c->n_windows, error));
        WEIR_TRY(step(c, &c->origin, tokens + at, c->block, &logits, error));
    }
    if (weir_kv_sequence_fork(&c->whole, &c->origin) != WEIR_OK ||
        weir_kv_sequence_fork(&c->other, &c->origin) != WEIR_OK)
        return weir_error_set(error, WEIR_EFULL, "no memory for page tables; raise memory.host");
    WEIR_TRY(store_and_load(c, &c->other, error));
    for (int32_t at = task->before; at < task->window; at += c->block) {
        const int32_t n = task->window - at < c->block ? task->window - at : c->block;
        WEIR_TRY(weir_progress_step(c->n_windows, error));
        WEIR_TRY(step(c, &c->whole, tokens + at, n, &logits, error));
        memcpy(c->logits, logits, (size_t)n * (size_t)c->n_vocab * sizeof *logits);
        WEIR_TRY(step(c, &c->other, tokens + at, n, &logits, error));
        for (int32_t r = 0; r < n && at + r + 1 < task->window; r++)
            weir_quality_add(
                &c->sum, c->logits + r * c->n_vocab, logits + r * c->n_vocab, tokens[at + r + 1]
            );
    }
    return WEIR_OK;
}

static weir_status open_sequences(comparison *c, const weir_engine *engine, weir_error *error)
{
    weir_kv_sequence *const all[] = { &c->origin, &c->whole, &c->other };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        WEIR_TRY(weir_kv_sequence_open(
            all[i], weir_engine_store(engine), weir_engine_ledger(engine),
            weir_model_recurrent_bytes(c->model), error
        ));
    return WEIR_OK;
}

static weir_status run(
    comparison *c, const weir_engine *engine, const weir_state_quality_task *task,
    size_t most_packed, weir_error *error
)
{
    int64_t n_windows;
    WEIR_TRY(weir_quality_windows(&n_windows, task->text, task->window, task->most_windows, error));
    c->logits = calloc((size_t)c->block * (size_t)c->n_vocab, sizeof *c->logits);
    c->packed = most_packed > 0 ? calloc(1, most_packed) : NULL;
    if (c->logits == NULL || (most_packed > 0 && c->packed == NULL))
        return weir_error_set(
            error, WEIR_ENOMEM, "no memory for the logits of a block of %d rows", (int)c->block
        );
    WEIR_TRY(weir_quality_open(&c->sum, n_windows * (task->window - task->before), engine, error));
    WEIR_TRY(open_sequences(c, engine, error));
    weir_progress_begin("comparing states", "windows", n_windows);
    for (; c->n_windows < n_windows; c->n_windows++)
        WEIR_TRY(compare_window(c, task->text->data + c->n_windows * task->window, task, error));
    weir_progress_end();
    return WEIR_OK;
}

weir_status weir_eval_state_quality(
    weir_kv_quality *out, int64_t *n_scored, const weir_engine *engine,
    const weir_state_quality_task *task, weir_state_form form, weir_error *error
)
{
    const weir_model *const model = weir_engine_model(engine);
    comparison c = { .runner = weir_engine_runner(engine),
                     .model = model,
                     .n_vocab = weir_model_shape(model)->n_vocab,
                     .block = weir_model_block_rows(model),
                     .form = form };
    size_t bytes = 0, most_packed = 0;
    const int64_t most = weir_kv_store_spec(weir_engine_store(engine))->max_rows;
    for (int64_t i = 0; i < weir_model_shape(model)->n_layers; i++) {
        weir_coda_layer layer;
        if (!weir_coda_layer_at(model, i, &layer)) continue;
        const size_t each = stored_bytes(&layer, form);
        bytes += each;
        if (bits_of(form) > 0 && each > most_packed) most_packed = each;
    }
    if (bytes == 0)
        return weir_error_set(
            error, WEIR_EINVAL, "no layer of %s has memory of fixed size (model.arch)",
            weir_model_arch(model)
        );
    if (task->window > most || task->before < c.block || task->before % c.block != 0 ||
        task->before > task->window - 2)
        return weir_error_set(
            error, WEIR_EINVAL,
            "a window of %d tokens, its state after %d: prompts are computed in blocks of %d, and "
            "at most %d tokens",
            (int)task->window, (int)task->before, (int)c.block, (int)most
        );
    const weir_status status = run(&c, engine, task, most_packed, error);
    if (status == WEIR_OK) {
        *out = weir_quality_summarise(&c.sum);
        out->bytes = (int64_t)bytes;
        *n_scored = c.sum.n_scored;
    }
    weir_kv_sequence_close(&c.origin);
    weir_kv_sequence_close(&c.whole);
    weir_kv_sequence_close(&c.other);
    weir_quality_close(&c.sum);
    free(c.logits);
    free(c.packed);
    return status;
}
