/* tools/report/json.c - the report as JSON: bytes as integers, times in seconds, rates per
 * second. */
#include <jansson.h>

#include "engine/base/memory.h"
#include "engine/formats/json.h"
#include "tools/report/print.h"

/* jansson's constructors return NULL without memory, and its containers refuse NULL, so one check
 * at the end suffices. */
typedef struct writer {
    const weir_report *report;
    bool failed;
} writer;

static json_t *kept(writer *w, json_t *value)
{
    if (value == NULL) w->failed = true;
    return value;
}

static void add(writer *w, json_t *array, json_t *value)
{
    if (json_array_append_new(array, kept(w, value)) != 0) w->failed = true;
}

static void set(writer *w, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, kept(w, value)) != 0) w->failed = true;
}

static bool can_keep(const writer *w, const weir_report_shape *shape, weir_kv_format format)
{
    return weir_report_reject(w->report->assumptions, shape, format) == NULL;
}

static json_t *gpu_json(const weir_report_gpu *gpu)
{
    return json_pack(
        "{s:s, s:I, s:f, s:f, s:s}", "name", gpu->name, "memory", (json_int_t)gpu->memory,
        "bandwidth", gpu->bandwidth, "dense_flops", gpu->flops, "source", gpu->source
    );
}

static json_t *assumptions_json(writer *w)
{
    const weir_report_assumptions *const a = w->report->assumptions;
    return kept(
        w, json_pack(
               "{s:s, s:I, s:I, s:I, s:s, s:f, s:b, s:b, s:b, s:o}", "name", a->name, "page_tokens",
               (json_int_t)a->page_tokens, "chunk", (json_int_t)a->chunk, "reserve",
               (json_int_t)a->reserve, "weight_format", a->weight_format, "weights_as_activations",
               a->weights_as_activations, "every_head_keeps_kv", (int)a->every_head_keeps_kv,
               "narrow_ffn", (int)a->narrow_ffn, "one_scale", (int)a->one_scale, "reference",
               gpu_json(&a->reference)
           )
    );
}

static json_t *shape_json(writer *w, const weir_report_shape *s)
{
    const weir_report_assumptions *const a = w->report->assumptions;
    const weir_report_rows rows = weir_report_rows_of(a, s);
    json_t *const root = kept(
        w, json_pack(
               "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", s->name,
               "title", s->title, "parameters", (json_int_t)weir_report_parameters(a, s), "weights",
               (json_int_t)weir_report_weights(a, s), "activations",
               (json_int_t)weir_report_activations(a, s, w->report->batch), "recurrent",
               (json_int_t)s->recurrent_bytes, "context", (json_int_t)s->context, "layers",
               (json_int_t)s->n_layers, "kv_layers", (json_int_t)s->n_kv_layers, "heads",
               (json_int_t)s->n_heads, "kv_heads", (json_int_t)rows.heads, "key",
               (json_int_t)rows.key, "value", (json_int_t)rows.value
           )
    );
    if (root == NULL || s->kv_format[0] == '\0') return root;
    set(w, root, "configured",
        json_pack(
            "{s:s, s:I, s:I, s:I}", "kv_format", s->kv_format, "per_token",
            (json_int_t)s->kv_per_token, "sink_tokens", (json_int_t)s->sink_tokens, "per_sink",
            (json_int_t)s->kv_per_sink
        ));
    return root;
}

static json_t *growth_json(writer *w, const weir_report_shape *shape)
{
    const weir_report *const r = w->report;
    json_t *const rows = kept(w, json_array());
    for (size_t b = 0; b < r->n_batches; b++)
        for (size_t f = 0; f < r->n_formats; f++)
            for (size_t c = 0; can_keep(w, shape, r->formats[f]) && c < r->n_contexts; c++)
                add(w, rows,
                    json_pack(
                        "{s:I, s:s, s:I, s:I}", "batch", (json_int_t)r->batches[b], "format",
                        weir_kv_format_name(r->formats[f]), "context", (json_int_t)r->contexts[c],
                        "kv",
                        (json_int_t)(r->batches[b] *
                                     weir_report_kv(
                                         r->assumptions, shape, r->formats[f], r->contexts[c]
                                     ))
                    ));
    return rows;
}

/* null: any length. */
static json_t *context_json(int64_t tokens)
{
    return tokens == WEIR_REPORT_ANY_CONTEXT ? json_null() : json_integer(tokens);
}

static json_t *max_context_json(writer *w, const weir_report_shape *shape)
{
    const weir_report *const r = w->report;
    const weir_report_assumptions *const a = r->assumptions;
    json_t *const rows = kept(w, json_array());
    for (const weir_report_gpu *gpu = a->gpus; gpu < a->gpus + a->n_gpus; gpu++)
        for (size_t f = 0; f < r->n_formats; f++)
            for (size_t b = 0; can_keep(w, shape, r->formats[f]) && b < r->n_batches; b++)
                add(w, rows,
                    json_pack(
                        "{s:s, s:s, s:I, s:o}", "gpu", gpu->name, "format",
                        weir_kv_format_name(r->formats[f]), "batch", (json_int_t)r->batches[b],
                        "context",
                        context_json(weir_report_max_context(
                            a, shape, r->formats[f], gpu->memory, r->batches[b]
                        ))
                    ));
    return rows;
}

static json_t *formats_json(writer *w, const weir_report_shape *shape)
{
    const weir_report *const r = w->report;
    const weir_report_assumptions *const a = r->assumptions;
    json_t *const rows = kept(w, json_array());
    for (size_t f = 0; f < r->n_formats; f++) {
        const weir_kv_format format = r->formats[f];
        const char *const reason = weir_report_reject(a, shape, format);
        if (reason != NULL) {
            add(w, rows,
                json_pack("{s:s, s:s}", "format", weir_kv_format_name(format), "reject", reason));
            continue;
        }
        const int64_t all = r->batch * weir_report_kv(a, shape, format, r->tokens);
        add(w, rows,
            json_pack(
                "{s:s, s:f, s:I, s:I, s:I}", "format", weir_kv_format_name(format), "per_token",
                weir_report_kv_per_token(a, shape, format), "batch", (json_int_t)r->batch,
                "context", (json_int_t)r->tokens, "kv", (json_int_t)all
            ));
    }
    return rows;
}

static json_t *paging_json(writer *w, const weir_report_shape *shape)
{
    const weir_report *const r = w->report;
    const int64_t window = r->tokens > shape->context ? r->tokens : shape->context;
    json_t *const rows = kept(w, json_array());
    for (size_t c = 0; c < r->n_contexts; c++) {
        if (r->contexts[c] > window) continue;
        const weir_report_paging p =
            weir_report_paging_of(r->assumptions, shape, r->formats[0], r->contexts[c], window);
        add(w, rows,
            json_pack(
                "{s:I, s:I, s:I, s:I, s:I}", "tokens", (json_int_t)r->contexts[c], "window",
                (json_int_t)window, "filled", (json_int_t)p.used, "paged", (json_int_t)p.paged,
                "contiguous", (json_int_t)p.contiguous
            ));
    }
    return rows;
}

static json_t *prefill_json(writer *w, const weir_report_shape *shape)
{
    const weir_report *const r = w->report;
    json_t *const rows = kept(w, json_array());
    for (size_t c = 0; c < r->n_contexts; c++) {
        const weir_report_prefill p = weir_report_prefill_of(r->assumptions, shape, r->contexts[c]);
        add(w, rows,
            json_pack(
                "{s:I, s:f, s:f, s:f, s:f}", "prompt", (json_int_t)r->contexts[c], "scores_whole",
                p.scores_whole, "scores_chunked", p.scores_chunked, "activations_whole",
                p.activations_whole, "activations_chunked", p.activations_chunked
            ));
    }
    return rows;
}

static json_t *decode_json(writer *w, const weir_report_shape *shape)
{
    const weir_report *const r = w->report;
    const weir_report_assumptions *const a = r->assumptions;
    json_t *const rows = kept(w, json_array());
    for (size_t i = 0; i < r->n_points; i++) {
        const weir_report_point *const p = &r->points[i];
        const weir_report_intensity x =
            weir_report_intensity_of(a, shape, r->formats[0], p->batch, p->tokens);
        const weir_report_step step =
            weir_report_step_of(a, shape, r->formats[0], p->batch, p->tokens);
        json_t *const bounds = kept(w, json_array());
        for (size_t b = 0; b < r->n_bandwidths; b++)
            add(w, bounds,
                json_pack(
                    "{s:f, s:f, s:f}", "bandwidth", r->bandwidths[b], "seconds",
                    step.bytes / r->bandwidths[b], "tokens_per_second",
                    (double)p->batch * r->bandwidths[b] / step.bytes
                ));
        add(w, rows,
            json_pack(
                "{s:I, s:I, s:s, s:{s:f, s:f, s:f, s:f, s:f}, s:{s:f, s:f, s:f, s:f, s:f}, s:o}",
                "batch", (json_int_t)p->batch, "context", (json_int_t)p->tokens, "format",
                weir_kv_format_name(r->formats[0]), "attention_layer", "flops", x.flops, "bytes",
                x.bytes, "intensity", x.intensity, "compute_seconds", x.compute_seconds,
                "memory_seconds", x.memory_seconds, "step", "weights", step.weights, "kv", step.kv,
                "states", step.states, "bytes", step.bytes, "flops", step.flops, "bounds", bounds
            ));
    }
    return rows;
}

static json_t *splits_json(writer *w, const weir_report_shape *shape)
{
    static const int64_t ranks[] = { 2, 4, 8, 16 };
    const weir_report *const r = w->report;
    const int64_t batch = r->batch > 8 ? r->batch : 8;
    json_t *const rows = kept(w, json_array());
    for (int s = 0; s < WEIR_REPORT_STRATEGY_COUNT; s++)
        for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
            const weir_report_split split = weir_report_split_of(
                r->assumptions, shape, (weir_report_strategy)s, ranks[i], r->formats[0], batch,
                r->tokens
            );
            if (!split.possible) continue;
            add(w, rows,
                json_pack(
                    "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "strategy",
                    weir_report_strategy_name((weir_report_strategy)s), "devices",
                    (json_int_t)ranks[i], "batch", (json_int_t)batch, "context",
                    (json_int_t)r->tokens, "weights", (json_int_t)split.weights, "kv",
                    (json_int_t)split.kv, "kv_total", (json_int_t)split.kv_total, "copies",
                    split.copies
                ));
        }
    return rows;
}

static json_t *tables_json(writer *w, const weir_report_shape *shape)
{
    json_t *const object = shape_json(w, shape);
    set(w, object, "formats", formats_json(w, shape));
    if (!can_keep(w, shape, w->report->formats[0])) return object;
    set(w, object, "growth", growth_json(w, shape));
    set(w, object, "max_context", max_context_json(w, shape));
    set(w, object, "paging", paging_json(w, shape));
    set(w, object, "prefill", prefill_json(w, shape));
    set(w, object, "decode", decode_json(w, shape));
    set(w, object, "devices", splits_json(w, shape));
    return object;
}

weir_status weir_report_json(const weir_report *report, weir_buffer *out)
{
    writer w = { .report = report };
    json_t *const root = kept(&w, json_object()), *const gpus = kept(&w, json_array());
    json_t *const shapes = kept(&w, json_array()), *const models = kept(&w, json_array());
    for (size_t i = 0; i < report->assumptions->n_gpus; i++)
        add(&w, gpus, gpu_json(&report->assumptions->gpus[i]));
    for (size_t i = 0; i < report->n_shapes; i++)
        add(&w, shapes, tables_json(&w, &report->shapes[i]));
    for (size_t i = 0; i < report->n_known; i++) add(&w, models, shape_json(&w, &report->known[i]));
    set(&w, root, "assumptions", assumptions_json(&w));
    set(&w, root, "gpus", gpus);
    set(&w, root, "shapes", shapes);
    set(&w, root, "models", models);
    char *const text =
        w.failed ? NULL : weir_json_text(root, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    json_decref(root);
    if (text == NULL) return WEIR_ENOMEM;
    weir_status status = weir_buffer_text(out, text);
    if (status == WEIR_OK) status = weir_buffer_text(out, "\n");
    weir_memory_give(text);
    return status;
}
