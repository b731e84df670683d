/* engine/model/workspace.c - the memory of a step: laid out once; the kernels' scratch is found by
 * running the largest batches in planning mode. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/array_layout.h"
#include "engine/model/workspace.h"
#include "kernels/abi/kv_format_text.h"
#include "kernels/abi/minmax.h"

weir_kv_pair weir_layer_format(const weir_kv_pair *formats, const layer *l)
{
    return l->kv_index >= 0 ? formats[l->kv_index] : (weir_kv_pair){ WEIR_KV_F32, WEIR_KV_F32 };
}

static int64_t scratch_elements(const weir_model *model, const weir_workspace_limits *limits)
{
    int64_t n = limits->rows * weir_model_layer_input_row(model);
    for (int64_t i = 0; i < weir_model_all_layers(model); i++) {
        const layer *const l = &model->layers[i];
        n = weir_max(
            n, l->mixer.block->scratch_elements(
                   &model->shape, l->mixer.options, limits->rows, limits->segments
               )
        );
        n = weir_max(
            n, l->ffn.block->scratch_elements(
                   &model->shape, l->ffn.options, limits->rows, limits->segments
               )
        );
        if (l->input.block == NULL) continue;
        n = weir_max(
            n, l->input.block->scratch_elements(
                   &model->shape, l->input.options, limits->rows, limits->segments
               )
        );
    }
    return n;
}

size_t weir_unsealed_bytes(const layer *l, const weir_kv_pair *formats, weir_kv_sinks sinks)
{
    const weir_kv_geometry *const g = &l->kv.geometry;
    const weir_kv_pair others = weir_layer_format(formats, l),
                       first = weir_kv_pair_at(others, sinks, 0);
    const int64_t values = weir_kv_stored_value_dim(g);
    return (size_t)weir_max(
        weir_kv_unsealed_bytes(others.k, others.v, g->key_dim, values),
        weir_kv_unsealed_bytes(first.k, first.v, g->key_dim, values)
    );
}

static int64_t most_kv_heads(const weir_model *model)
{
    int64_t n = 0;
    for (int64_t i = 0; i < model->shape.n_layers; i++)
        n = weir_max(n, model->layers[i].kv.geometry.n_heads);
    return n;
}

/* Bytes for all KV heads in the layer with the largest; 0: no format has unsealed rows. */
static size_t most_unsealed_bytes(const weir_model *model, const weir_workspace_limits *limits)
{
    size_t n = 0;
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        const layer *const l = &model->layers[i];
        if (l->kv_index < 0) continue;
        const size_t bytes =
            (size_t)l->kv.geometry.n_heads * weir_unsealed_bytes(l, limits->formats, limits->sinks);
        if (bytes > n) n = bytes;
    }
    return n;
}

/* Pages other than the last one that the segments of a step can write to: two rows of a segment may
 * be in two pages, every other page takes 64. */
static size_t unsealed_pages(const weir_workspace_limits *limits)
{
    const int32_t pairs = limits->segments < limits->rows / 2 ? limits->segments : limits->rows / 2;
    return (size_t)(pairs + (limits->rows - 2 * pairs) / WEIR_PAGE_TOKENS);
}

static int64_t most_kv_segments(const weir_model *model, const weir_workspace_limits *limits)
{
    return limits->segments * (limits->evicts ? weir_max(most_kv_heads(model), 1) : 1);
}

/* Queries of a row, in the observed layers. */
static int64_t most_queries(const weir_model *model)
{
    int64_t n = 0;
    for (int64_t i = 0; i < model->shape.n_layers; i++)
        if (model->layers[i].kv.watched) n = weir_max(n, model->layers[i].kv.n_queries);
    return n;
}

/* Elements of partial results of a row's attention: per query its maximum, sum and output. */
static int64_t most_partials(const weir_model *model)
{
    int64_t n = 0;
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        const weir_block_kv *const kv = weir_model_layer_kv(model, i);
        if (kv != NULL) n = weir_max(n, kv->n_queries * (2 + kv->geometry.value_dim));
    }
    return n;
}

/* Memory that only kernels read and write. */
static size_t lay_out_near(weir_workspace *w, const weir_model *model, char *base)
{
    const weir_workspace_limits *const limits = &w->limits;
    const size_t rows = (size_t)limits->rows, width = (size_t)model->shape.d_model;
    weir_arrays arrays = { .base = base };
    WEIR_ARRAYS_PLACE(&arrays, w->x, rows * width);
    WEIR_ARRAYS_PLACE(&arrays, w->in, rows * width);
    WEIR_ARRAYS_PLACE(&arrays, w->out, rows * width);
    WEIR_ARRAYS_PLACE(&arrays, w->scratch, scratch_elements(model, limits));
    WEIR_ARRAYS_PLACE(&arrays, w->hidden, model->mtp.is_there ? rows * width : 0);
    WEIR_ARRAYS_PLACE(&arrays, w->joined, model->mtp.is_there ? rows * 2 * width : 0);
    WEIR_ARRAYS_PLACE(&arrays, w->layer_inputs, rows * (size_t)weir_model_layer_input_row(model));
    WEIR_ARRAYS_PLACE(&arrays, w->gathered, (size_t)limits->logits * width);
    WEIR_ARRAYS_PLACE(&arrays, w->logits, (size_t)limits->logits * (size_t)model->shape.n_vocab);
    WEIR_ARRAYS_PLACE(&arrays, w->lse, limits->evicts ? rows * (size_t)most_queries(model) : 0);
    WEIR_ARRAYS_PLACE(
        &arrays, w->partials, limits->has_cold ? rows * (size_t)most_partials(model) : 0
    );
    WEIR_ARRAYS_PLACE(
        &arrays, w->unsealed_rows, unsealed_pages(limits) * most_unsealed_bytes(model, limits)
    );
    if (weir_stream_device(model->stream) != NULL)
        WEIR_ARRAYS_PLACE(&arrays, w->near_positions, rows);
    return arrays.bytes;
}

static size_t lay_out(weir_workspace *w, const weir_model *model, char *base)
{
    const weir_workspace_limits *const limits = &w->limits;
    const bool has_device = weir_stream_device(model->stream) != NULL;
    const size_t rows = (size_t)limits->rows, heads = (size_t)most_kv_heads(model);
    weir_arrays arrays = { .base = base };
    WEIR_ARRAYS_PLACE(&arrays, w->positions, rows);
    WEIR_ARRAYS_PLACE(&arrays, w->kv, most_kv_segments(model, limits));
    WEIR_ARRAYS_PLACE(&arrays, w->kv_owner, most_kv_segments(model, limits));
    WEIR_ARRAYS_PLACE(&arrays, w->warm, limits->has_cold ? most_kv_segments(model, limits) : 0);
    WEIR_ARRAYS_PLACE(&arrays, w->watches, limits->evicts ? limits->segments : 0);
    WEIR_ARRAYS_PLACE(&arrays, w->mass, limits->evicts ? most_kv_segments(model, limits) : 0);
    WEIR_ARRAYS_PLACE(
        &arrays, w->unsealed_table,
        most_unsealed_bytes(model, limits) > 0
            ? (unsealed_pages(limits) + (size_t)limits->segments) * heads
            : 0
    );
    WEIR_ARRAYS_PLACE(&arrays, w->recurrent, (size_t)limits->segments * WEIR_MAX_ROUNDS);
    WEIR_ARRAYS_PLACE(&arrays, w->rounds, WEIR_MAX_ROUNDS);
    WEIR_ARRAYS_PLACE(&arrays, w->is_prompt, limits->segments);
    WEIR_ARRAYS_PLACE(&arrays, w->lost_rows, model->expert_plan.bytes > 0 ? limits->rows : 0);
    WEIR_ARRAYS_PLACE(&arrays, w->copies, (size_t)limits->segments * WEIR_MAX_ROUNDS * 2);
    WEIR_ARRAYS_PLACE(&arrays, w->shown_rows, has_device ? rows * (size_t)model->shape.d_model : 0);
    WEIR_ARRAYS_PLACE(
        &arrays, w->shown_logits,
        has_device ? (size_t)limits->logits * (size_t)model->shape.n_vocab : 0
    );
    WEIR_ARRAYS_PLACE(
        &arrays, w->shown_queries,
        has_device && limits->evicts ? rows * (size_t)(2 * weir_model_query_elements(model)) : 0
    );
    return arrays.bytes;
}

/* Without a device the host reads the arrays themselves. */
static void lay_out_both(weir_workspace *w, const weir_model *model)
{
    (void)lay_out_near(w, model, w->near);
    (void)lay_out(w, model, w->memory);
    if (weir_stream_device(model->stream) != NULL) return;
    w->near_positions = w->positions;
    w->shown_rows = w->x;
    w->shown_logits = w->logits;
    w->shown_queries = NULL;
}

size_t weir_workspace_bytes(const weir_model *model, const weir_workspace_limits *limits)
{
    weir_workspace measure = { .limits = *limits };
    return lay_out(&measure, model, NULL) + sizeof measure;
}

size_t weir_workspace_near_bytes(const weir_model *model, const weir_workspace_limits *limits)
{
    weir_workspace measure = { .limits = *limits };
    return lay_out_near(&measure, model, NULL);
}

void weir_workspace_close(weir_workspace *workspace)
{
    if (workspace == NULL) return;
    weir_ledger_return(
        workspace->ledger, weir_ledger_device_tier(workspace->ledger), WEIR_ACCOUNT_ACTIVATIONS,
        workspace->device_scratch_size
    );
    weir_ledger_return(
        workspace->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_ACTIVATIONS, workspace->host_scratch_size
    );
    weir_ledger_free_device(
        workspace->ledger, workspace->near, WEIR_ACCOUNT_ACTIVATIONS, workspace->near_bytes
    );
    weir_ledger_free_pinned(
        workspace->ledger, workspace->memory, WEIR_ACCOUNT_ACTIVATIONS, workspace->bytes
    );
    weir_ledger_free(workspace->ledger, workspace, WEIR_ACCOUNT_ACTIVATIONS, sizeof *workspace);
}

const char *weir_workspace_problem(const weir_workspace *w)
{
    return w->problem.code != WEIR_OK ? w->problem.text : NULL;
}

/* The kernels only report their scratch, and read nothing. */
static void plan_watches(weir_workspace *w, int32_t n_segments)
{
    static float nothing;
    static const weir_attention_watch all = {
        .mass = &nothing, .below = &nothing, .last = &nothing, .stride = INT32_MAX
    };
    w->is_watched = w->limits.evicts;
    for (int32_t i = 0; w->is_watched && i < n_segments; i++) w->watches[i] = &all;
}

/* Segments of `each` rows at full depth; the last one has all that is left. */
static weir_status plan_mixers(
    const weir_model *model, weir_workspace *w, int32_t n_segments, int32_t each, int32_t last
)
{
    const int32_t n_rows = (n_segments - 1) * each + last;
    for (int32_t s = 0; s < n_segments; s++) {
        const int32_t n = s + 1 < n_segments ? each : last,
                      n_past = w->limits.context > n ? w->limits.context - n : 0;
        w->kv[s] = (weir_kv_segment){ .first_row = s * each,
                                      .n_rows = n,
                                      .n_past = n_past,
                                      .unsealed_pages = w->unsealed_table };
        w->kv_owner[s] = s;
        w->recurrent[s] = (weir_recurrent_segment){ .first_row = s * each, .n_rows = n };
    }
    w->rounds[0] = (weir_recurrent_round){ .segments = w->recurrent };
    w->n_kv = n_segments;
    w->n_rounds = 1;
    plan_watches(w, n_segments);
    const weir_batch batch = { .n_rows = n_rows,
                               .n_segments = n_segments,
                               .formats = w->limits.formats,
                               .sinks = w->limits.sinks };
    for (int64_t i = 0; i < weir_model_all_layers(model); i++) {
        const layer *const l = &model->layers[i];
        weir_batch rows = batch;
        if (i == model->shape.n_layers) {
            rows.formats = weir_mtp_formats;
            rows.sinks = (weir_kv_sinks){ 0 };
        }
        const weir_step step = weir_step_of(model, w, &rows, l);
        if (l->mixer.block->forward == NULL) continue;
        WEIR_TRY(l->mixer.block->forward(&model->shape, l->mixer.options, l->mixer_weights, &step));
    }
    return WEIR_OK;
}

/* Plans one prompt alone, and many segments. Short pieces let attention split every row, unequal
 * ones leave the most partly filled chunks: both grow with the number of segments, and pieces
 * longer than SHORT are not split. */
static weir_status plan_batches(const weir_model *model, weir_workspace *w)
{
    enum { SHORT = 64 };
    const int32_t rows = w->limits.rows, n = w->limits.segments < rows ? w->limits.segments : rows;
    WEIR_TRY(plan_mixers(model, w, 1, rows, rows));
    for (int32_t each = 1; each <= SHORT && each <= rows; each++) {
        const int32_t segments = each * n <= rows ? n : rows / each;
        WEIR_TRY(plan_mixers(model, w, segments, each, each));
        WEIR_TRY(plan_mixers(model, w, segments, each, rows - (segments - 1) * each));
    }
    return WEIR_OK;
}

/* Runs the largest batches with the stream in planning mode. */
static weir_status plan_scratch(
    weir_stream_memory *planned, const weir_model *model, weir_workspace *w
)
{
    const int32_t rows = w->limits.rows;
    const weir_batch_segment whole = { .n_rows = rows,
                                       .n_past = w->limits.context > rows ? w->limits.context - rows
                                                                          : 0 };
    const weir_batch prefill = { .segments = &whole,
                                 .n_segments = 1,
                                 .n_rows = rows,
                                 .n_logits = w->limits.logits,
                                 .formats = w->limits.formats,
                                 .sinks = w->limits.sinks };
    weir_stream_set_planning(model->stream, true);
    weir_status status = weir_run_layers(model, w, &prefill);
    if (status == WEIR_OK) status = plan_batches(model, w);
    if (status == WEIR_OK) status = weir_project_logits(model, w, w->limits.logits);
    if (status == WEIR_OK && model->mtp.is_there) {
        weir_batch drafts = prefill;
        drafts.formats = weir_mtp_formats;
        drafts.sinks = (weir_kv_sinks){ 0 };
        status = weir_run_mtp(model, w, &drafts);
    }
    weir_stream_set_planning(model->stream, false);
    *planned = weir_stream_planned(model->stream);
    return status;
}

static weir_status no_kernel(const weir_model *model, weir_status status, weir_error *error)
{
    const weir_device *const device = weir_stream_device(model->stream);
    if (device != NULL && status == WEIR_EUNSUPPORTED)
        return weir_error_set(
            error, status,
            "%s has no kernel for some op of this model in its KV format; it has "
            "them for kv.format" WEIR_KV_CUDA_READ_TEXT,
            weir_device_name(device)
        );
    return weir_error_set(error, status, "no kernel for this model: %s", weir_status_text(status));
}

/* Lays the arrays out in memory that is never touched, except for the segments. */
weir_status weir_workspace_scratch(
    weir_stream_memory *planned, const weir_model *model, const weir_workspace_limits *limits,
    weir_error *error
)
{
    weir_workspace w = { .limits = *limits };
    weir_status status = WEIR_ENOMEM;
    w.memory = aligned_alloc(64, lay_out(&w, model, NULL));
    w.near = aligned_alloc(64, lay_out_near(&w, model, NULL));
    if (w.memory != NULL && w.near != NULL) {
        lay_out_both(&w, model);
        status = plan_scratch(planned, model, &w);
        if (status != WEIR_OK) status = no_kernel(model, status, error);
    } else
        (void)weir_error_set(
            error, status, "no memory to plan steps of %d rows; lower batch.chunk",
            (int)limits->rows
        );
    free(w.memory);
    free(w.near);
    return status;
}

static weir_status take_scratch(weir_workspace *w, const weir_model *model, weir_error *error)
{
    weir_stream_memory planned;
    weir_status status = plan_scratch(&planned, model, w);
    if (status != WEIR_OK) return no_kernel(model, status, error);
    const size_t near = planned.scratch + planned.device;
    WEIR_TRY(weir_ledger_reserve(
        w->ledger, weir_ledger_device_tier(w->ledger), WEIR_ACCOUNT_ACTIVATIONS, near, error
    ));
    w->device_scratch_size = near;
    WEIR_TRY(weir_ledger_reserve(
        w->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_ACTIVATIONS, planned.host, error
    ));
    w->host_scratch_size = planned.host;
    status = weir_stream_reserve_planned(model->stream);
    return status == WEIR_OK
               ? WEIR_OK
               : weir_error_set(
                     error, status,
                     "there are no %zu bytes of scratch for the kernels; lower batch.chunk",
                     near + planned.host
                 );
}

weir_status weir_workspace_open(
    weir_workspace **out, const weir_model *model, weir_ledger *ledger,
    const weir_workspace_limits *limits, weir_error *error
)
{
    WEIR_ASSERT(limits->rows >= 1 && limits->segments >= 1 && limits->logits >= 1);
    void *self = NULL;
    WEIR_TRY(
        weir_ledger_alloc(ledger, &self, WEIR_ACCOUNT_ACTIVATIONS, sizeof(weir_workspace), error)
    );
    weir_workspace *const w = self;
    *w = (weir_workspace){ .ledger = ledger, .limits = *limits };
    w->bytes = lay_out(w, model, NULL);
    w->near_bytes = lay_out_near(w, model, NULL);
    weir_status status =
        weir_ledger_alloc_pinned(ledger, &w->memory, WEIR_ACCOUNT_ACTIVATIONS, w->bytes, error);
    if (status == WEIR_OK) memset(w->memory, 0, w->bytes);
    if (status == WEIR_OK)
        status = weir_ledger_alloc_device(
            ledger, &w->near, WEIR_ACCOUNT_ACTIVATIONS, w->near_bytes, error
        );
    if (status == WEIR_OK) {
        lay_out_both(w, model);
        if (!limits->shares_scratch) status = take_scratch(w, model, error);
    }
    if (status != WEIR_OK) {
        weir_workspace_close(w);
        return status;
    }
    *out = w;
    return WEIR_OK;
}
