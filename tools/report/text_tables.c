/* tools/report/text_tables.c - one function per table. Cells are right-aligned, columns two blanks
 * apart. */
#include <inttypes.h>
#include <stdio.h>

#include "tools/report/text_internal.h"

static const double giga = 1e9, mega = 1e6;

static weir_status size_cell(weir_buffer *out, double bytes)
{
    char text[WEIR_REPORT_CELL];
    return weir_buffer_format(out, "  %11s", weir_report_size(text, bytes));
}

/* The seed's tables have one unit per column and fixed digits, and are compared digit by digit. */
static weir_status column_cell(
    const weir_report *report, weir_buffer *out, double bytes, int digits, double unit,
    const char *name
)
{
    if (!report->assumptions->narrow_ffn || bytes < 0) return size_cell(out, bytes);
    return weir_buffer_format(out, "  %7.*f %s", digits, bytes / unit, name);
}
static weir_status gib_cell(const weir_report *report, weir_buffer *out, double bytes)
{
    return column_cell(report, out, bytes, 2, (double)(1 << 30), "GiB");
}

static weir_status count_cell(weir_buffer *out, int64_t n)
{
    char text[WEIR_REPORT_CELL];
    return weir_buffer_format(out, "  %10s", weir_report_count(text, n));
}

static weir_status tokens_cell(weir_buffer *out, int64_t n)
{
    if (n == WEIR_REPORT_ANY_CONTEXT) return weir_buffer_format(out, "  %12s", "any");
    return weir_buffer_format(out, "  %12" PRId64, n);
}

static double kv_of(
    const weir_report *report, const weir_report_shape *shape, weir_kv_format format, int64_t batch,
    int64_t tokens
)
{
    const weir_report_assumptions *const a = report->assumptions;
    return weir_report_reject(a, shape, format) != NULL
               ? -1
               : (double)(batch * weir_report_kv(a, shape, format, tokens));
}

/* ---- the shape ------------------------------------------------------------------------------- */

/* The tables are of one format for all rows. */
static weir_status configured(const weir_report_shape *s, weir_buffer *out)
{
    char all[WEIR_REPORT_CELL], first[WEIR_REPORT_CELL];
    if (s->kv_format[0] == '\0' || s->n_kv_layers == 0) return WEIR_OK;
    WEIR_TRY(weir_buffer_format(
        out, "as configured: KV in %s, %s per token", s->kv_format,
        weir_report_size(all, (double)s->kv_per_token)
    ));
    if (s->sink_tokens > 0)
        WEIR_TRY(weir_buffer_format(
            out, ", %s for each of the first %" PRId64,
            weir_report_size(first, (double)s->kv_per_sink), s->sink_tokens
        ));
    return weir_buffer_text(out, "\n");
}

static weir_status title(const weir_report *report, const weir_report_shape *s, weir_buffer *out)
{
    const weir_report_assumptions *const a = report->assumptions;
    const weir_report_rows rows = weir_report_rows_of(a, s);
    char weights[WEIR_REPORT_CELL], activations[WEIR_REPORT_CELL], state[WEIR_REPORT_CELL];
    char context[WEIR_REPORT_CELL];
    WEIR_TRY(weir_buffer_format(
        out, "\n== %s: %.3f B parameters, %" PRId64 " layers", s->title,
        (double)weir_report_parameters(a, s) / giga, s->n_layers
    ));
    if (s->n_kv_layers != s->n_layers)
        WEIR_TRY(weir_buffer_format(out, " (%" PRId64 " with KV)", s->n_kv_layers));
    WEIR_TRY(weir_buffer_format(out, ", %" PRId64 " heads, ", s->n_heads));
    if (rows.value == 0)
        WEIR_TRY(weir_buffer_format(out, "latent rows of %" PRId64 " ==\n", rows.key));
    else
        WEIR_TRY(weir_buffer_format(
            out, "%" PRId64 " KV heads of %" PRId64 " + %" PRId64 " ==\n", rows.heads, rows.key,
            rows.value
        ));
    WEIR_TRY(weir_buffer_format(
        out, "trained for %s tokens; weights %s, activations %s, state %s per sequence\n",
        weir_report_count(context, s->context),
        weir_report_size(weights, (double)weir_report_weights(a, s)),
        weir_report_size(activations, (double)weir_report_activations(a, s, report->batch)),
        weir_report_size(state, (double)s->recurrent_bytes)
    ));
    WEIR_TRY(configured(s, out));
    for (size_t i = 0; i < report->n_formats; i++) {
        const char *const reason = weir_report_reject(a, s, report->formats[i]);
        if (reason != NULL)
            WEIR_TRY(weir_buffer_format(
                out, "%s is omitted: it %s\n", weir_kv_format_name(report->formats[i]), reason
            ));
    }
    /* A cache of expanded K and V, as many programs have. */
    if (s->latent_dim > 0 && rows.value == 0) {
        const double expanded =
            2.0 * (double)(s->n_kv_layers * s->n_heads * (s->key_dim + s->value_dim));
        const double latent = weir_report_kv_per_token(a, s, WEIR_KV_F16);
        WEIR_TRY(weir_buffer_format(
            out, "f16 per token: latent %.0f bytes, expanded K and V %.0f bytes (%.1f times)\n",
            latent, expanded, expanded / latent
        ));
    }
    return WEIR_OK;
}

static weir_status format_names(const weir_report *report, weir_buffer *out)
{
    for (size_t i = 0; i < report->n_formats; i++)
        WEIR_TRY(weir_buffer_format(out, "  %11s", weir_kv_format_name(report->formats[i])));
    return WEIR_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static weir_status growth(
    const weir_report *report, const weir_report_shape *shape, int64_t batch, weir_buffer *out
)
{
    const weir_kv_format first = report->formats[0];
    const double weights = (double)weir_report_weights(report->assumptions, shape);
    char step[WEIR_REPORT_CELL];
    const double added =
        (double)batch * weir_report_kv_per_token(report->assumptions, shape, first);
    WEIR_TRY(weir_buffer_format(
        out, "\nKV by context, batch %" PRId64 ": a token of each sequence adds %s in %s\n", batch,
        weir_report_size(step, added), weir_kv_format_name(first)
    ));
    WEIR_TRY(weir_buffer_format(out, "%10s", "context"));
    WEIR_TRY(format_names(report, out));
    WEIR_TRY(weir_buffer_format(out, "  %11s  %8s\n", "and weights", "KV share"));
    for (size_t i = 0; i < report->n_contexts; i++) {
        char text[WEIR_REPORT_CELL];
        WEIR_TRY(weir_buffer_format(out, "%10s", weir_report_count(text, report->contexts[i])));
        for (size_t f = 0; f < report->n_formats; f++)
            WEIR_TRY(gib_cell(
                report, out, kv_of(report, shape, report->formats[f], batch, report->contexts[i])
            ));
        const double kv = kv_of(report, shape, first, batch, report->contexts[i]);
        WEIR_TRY(gib_cell(report, out, weights + kv));
        WEIR_TRY(weir_buffer_format(out, "  %6.1f %%\n", 100 * kv / (weights + kv)));
    }
    return WEIR_OK;
}

static weir_status max_context(
    const weir_report *report, const weir_report_shape *shape, weir_buffer *out
)
{
    const weir_report_assumptions *const a = report->assumptions;
    WEIR_TRY(weir_buffer_format(
        out, "\nLongest context of each sequence in %s (0: does not fit)\n",
        weir_kv_format_name(report->formats[0])
    ));
    WEIR_TRY(
        weir_buffer_format(out, "%-12s%9s%8s%9s%8s", "GPU", "memory", "GB/s", "TFLOPS", "FLOP/B")
    );
    for (size_t b = 0; b < report->n_batches; b++) {
        char name[WEIR_REPORT_CELL];
        (void)snprintf(name, sizeof name, "batch %" PRId64, report->batches[b]);
        WEIR_TRY(weir_buffer_format(out, "  %12s", name));
    }
    WEIR_TRY(weir_buffer_text(out, "\n"));
    for (const weir_report_gpu *gpu = a->gpus; gpu < a->gpus + a->n_gpus; gpu++) {
        WEIR_TRY(weir_buffer_format(
            out, "%-12s%5.1f GiB", gpu->name, (double)gpu->memory / (double)(1 << 30)
        ));
        if (gpu->bandwidth > 0)
            WEIR_TRY(weir_buffer_format(
                out, "%8.0f%9.1f%8.0f", gpu->bandwidth / giga, gpu->flops / (giga * 1e3),
                gpu->flops / gpu->bandwidth
            ));
        else
            WEIR_TRY(weir_buffer_format(out, "%8s%9s%8s", "", "", ""));
        for (size_t b = 0; b < report->n_batches; b++)
            WEIR_TRY(tokens_cell(
                out, weir_report_max_context(
                         a, shape, report->formats[0], gpu->memory, report->batches[b]
                     )
            ));
        WEIR_TRY(weir_buffer_text(out, "\n"));
    }
    return WEIR_OK;
}

static weir_status savings(
    const weir_report *report, const weir_report_shape *shape, weir_buffer *out
)
{
    const double f16 = kv_of(report, shape, WEIR_KV_F16, report->batch, report->tokens);
    char text[WEIR_REPORT_CELL];
    WEIR_TRY(weir_buffer_format(
        out, "\nFormats, batch %" PRId64 ", context %s\n", report->batch,
        weir_report_count(text, report->tokens)
    ));
    WEIR_TRY(weir_buffer_format(
        out, "%-10s%13s%13s%13s%9s%9s\n", "format", "per token", "a layer", "all", "of f16", "saved"
    ));
    for (size_t i = 0; i < report->n_formats; i++) {
        const weir_kv_format format = report->formats[i];
        const double all = kv_of(report, shape, format, report->batch, report->tokens);
        if (all < 0) continue;
        WEIR_TRY(weir_buffer_format(out, "%-10s", weir_kv_format_name(format)));
        WEIR_TRY(size_cell(out, weir_report_kv_per_token(report->assumptions, shape, format)));
        const double layer = shape->n_kv_layers > 0 ? all / (double)shape->n_kv_layers : 0;
        WEIR_TRY(column_cell(report, out, layer, 1, (double)(1 << 20), "MiB"));
        WEIR_TRY(gib_cell(report, out, all));
        WEIR_TRY(weir_buffer_format(
            out, "%8.3fx%7.1f %%\n", f16 > 0 ? all / f16 : 0, f16 > 0 ? 100 * (1 - all / f16) : 0
        ));
    }
    return WEIR_OK;
}

static weir_status paging(
    const weir_report *report, const weir_report_shape *shape, weir_buffer *out
)
{
    const weir_report_assumptions *const a = report->assumptions;
    const int64_t window = report->tokens > shape->context ? report->tokens : shape->context;
    const int64_t lengths[] = { 1, 63, 64, 65, 1000, 4096, window };
    char text[WEIR_REPORT_CELL];
    WEIR_TRY(weir_buffer_format(
        out,
        "\nOne sequence in pages of %" PRId64
        " tokens, and in memory for its window of %s, in %s\n",
        a->page_tokens, weir_report_count(text, window), weir_kv_format_name(report->formats[0])
    ));
    WEIR_TRY(weir_buffer_format(
        out, "%10s  %11s  %11s  %11s  %11s  %11s\n", "tokens", "filled", "pages", "waste",
        "contiguous", "waste"
    ));
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        if (lengths[i] > window || (i > 0 && lengths[i] == lengths[i - 1])) continue;
        const weir_report_paging p =
            weir_report_paging_of(a, shape, report->formats[0], lengths[i], window);
        WEIR_TRY(weir_buffer_format(out, "%10s", weir_report_count(text, lengths[i])));
        WEIR_TRY(size_cell(out, (double)p.used));
        WEIR_TRY(size_cell(out, (double)p.paged));
        WEIR_TRY(size_cell(out, (double)(p.paged - p.used)));
        WEIR_TRY(size_cell(out, (double)p.contiguous));
        WEIR_TRY(size_cell(out, (double)(p.contiguous - p.used)));
        WEIR_TRY(weir_buffer_text(out, "\n"));
    }
    return WEIR_OK;
}

static weir_status prefill(
    const weir_report *report, const weir_report_shape *shape, weir_buffer *out
)
{
    const weir_report_assumptions *const a = report->assumptions;
    WEIR_TRY(weir_buffer_format(
        out,
        "\nPrefill at once and in chunks of %" PRId64
        ". Scores: of one head, where attention keeps them (tiled attention, as here, does not)\n",
        a->chunk
    ));
    WEIR_TRY(weir_buffer_format(
        out, "%10s  %11s  %11s  %8s  %12s  %11s  %8s\n", "prompt", "scores", "chunked", "ratio",
        "activations", "chunked", "ratio"
    ));
    for (size_t i = 0; i < report->n_contexts; i++) {
        const weir_report_prefill p = weir_report_prefill_of(a, shape, report->contexts[i]);
        char text[WEIR_REPORT_CELL];
        WEIR_TRY(weir_buffer_format(out, "%10s", weir_report_count(text, report->contexts[i])));
        WEIR_TRY(size_cell(out, p.scores_whole));
        WEIR_TRY(size_cell(out, p.scores_chunked));
        WEIR_TRY(weir_buffer_format(
            out, "  %7.1fx  %12s", p.scores_whole / p.scores_chunked,
            weir_report_size(text, p.activations_whole)
        ));
        WEIR_TRY(size_cell(out, p.activations_chunked));
        WEIR_TRY(weir_buffer_format(out, "  %7.1fx\n", p.activations_whole / p.activations_chunked)
        );
    }
    return WEIR_OK;
}

/* ---- time ------------------------------------------------------------------------------------ */

static weir_status intensity(
    const weir_report *report, const weir_report_shape *shape, weir_buffer *out
)
{
    const weir_report_assumptions *const a = report->assumptions;
    WEIR_TRY(weir_buffer_format(
        out,
        "\nDecode attention of one layer in %s; times on %s: %.1f TFLOPS, %.2f TB/s, %.0f FLOP/B\n",
        weir_kv_format_name(report->formats[0]), a->reference.name,
        a->reference.flops / (giga * 1e3), a->reference.bandwidth / (giga * 1e3),
        a->reference.flops / a->reference.bandwidth
    ));
    WEIR_TRY(weir_buffer_format(
        out, "%8s  %10s  %10s  %10s  %8s  %12s  %12s\n", "batch", "context", "GFLOP", "MB moved",
        "FLOP/B", "compute", "memory"
    ));
    for (size_t i = 0; i < report->n_points; i++) {
        const weir_report_point *const p = &report->points[i];
        const weir_report_intensity x =
            weir_report_intensity_of(a, shape, report->formats[0], p->batch, p->tokens);
        WEIR_TRY(weir_buffer_format(out, "%8" PRId64, p->batch));
        WEIR_TRY(count_cell(out, p->tokens));
        WEIR_TRY(weir_buffer_format(
            out, "  %10.2f  %10.2f  %8.2f  %9.4f ms  %9.4f ms\n", x.flops / giga, x.bytes / mega,
            x.intensity, 1e3 * x.compute_seconds, 1e3 * x.memory_seconds
        ));
    }
    return WEIR_OK;
}

static weir_status steps(
    const weir_report *report, const weir_report_shape *shape, weir_buffer *out
)
{
    WEIR_TRY(weir_buffer_format(
        out, "\nTime of a decode step by bandwidth in %s, and tokens per second of all sequences\n",
        weir_kv_format_name(report->formats[0])
    ));
    WEIR_TRY(
        weir_buffer_format(out, "%6s  %8s  %10s  %10s", "batch", "context", "weights", "KV, state")
    );
    for (size_t i = 0; i < report->n_bandwidths; i++)
        WEIR_TRY(weir_buffer_format(out, "  %12.0f GB/s", report->bandwidths[i] / giga));
    WEIR_TRY(weir_buffer_text(out, "\n"));
    for (size_t i = 0; i < report->n_points; i++) {
        const weir_report_point *const p = &report->points[i];
        const weir_report_step step = weir_report_step_of(
            report->assumptions, shape, report->formats[0], p->batch, p->tokens
        );
        char tokens[WEIR_REPORT_CELL], weights[WEIR_REPORT_CELL], kv[WEIR_REPORT_CELL];
        WEIR_TRY(weir_buffer_format(
            out, "%6" PRId64 "  %8s  %10s  %10s", p->batch, weir_report_count(tokens, p->tokens),
            weir_report_size(weights, step.weights), weir_report_size(kv, step.kv + step.states)
        ));
        for (size_t b = 0; b < report->n_bandwidths; b++) {
            const double seconds = step.bytes / report->bandwidths[b];
            WEIR_TRY(weir_buffer_format(
                out, " %9.3f ms %5.0f", 1e3 * seconds, (double)p->batch / seconds
            ));
        }
        WEIR_TRY(weir_buffer_text(out, "\n"));
    }
    return WEIR_OK;
}

/* ---- more than one device -------------------------------------------------------------------- */

static weir_status splits(
    const weir_report *report, const weir_report_shape *shape, weir_buffer *out
)
{
    static const int64_t ranks[] = { 2, 4, 8, 16 };
    const int64_t batch = report->batch > 8 ? report->batch : 8;
    char text[WEIR_REPORT_CELL];
    WEIR_TRY(weir_buffer_format(
        out,
        "\nSeveral devices, batch %" PRId64
        ", context %s, KV in %s: the fullest device, and how many copies of the KV there are\n",
        batch, weir_report_count(text, report->tokens), weir_kv_format_name(report->formats[0])
    ));
    WEIR_TRY(weir_buffer_format(
        out, "%-10s%8s%13s%13s%10s   %s\n", "strategy", "devices", "weights", "KV", "KV copies",
        "effect on the KV"
    ));
    for (int s = 0; s < WEIR_REPORT_STRATEGY_COUNT; s++) {
        const weir_report_strategy strategy = (weir_report_strategy)s;
        const char *effect = weir_report_strategy_effect(strategy);
        for (size_t r = 0; r < sizeof ranks / sizeof ranks[0]; r++) {
            const weir_report_split split = weir_report_split_of(
                report->assumptions, shape, strategy, ranks[r], report->formats[0], batch,
                report->tokens
            );
            if (!split.possible) continue;
            WEIR_TRY(weir_buffer_format(
                out, "%-10s%8" PRId64, weir_report_strategy_name(strategy), ranks[r]
            ));
            WEIR_TRY(size_cell(out, (double)split.weights));
            WEIR_TRY(size_cell(out, (double)split.kv));
            WEIR_TRY(weir_buffer_format(
                out, "%10.1f%s%s\n", split.copies, *effect != '\0' ? "   " : "", effect
            ));
            effect = "";
        }
    }
    return WEIR_OK;
}

weir_status weir_report_shape_tables(
    const weir_report *report, const weir_report_shape *shape, weir_buffer *out
)
{
    WEIR_TRY(title(report, shape, out));
    if (weir_report_reject(report->assumptions, shape, report->formats[0]) != NULL)
        return weir_buffer_text(out, "No tables: list a format first that the shape supports.\n");
    for (size_t b = 0; b < report->n_batches; b++)
        WEIR_TRY(growth(report, shape, report->batches[b], out));
    WEIR_TRY(max_context(report, shape, out));
    WEIR_TRY(savings(report, shape, out));
    WEIR_TRY(paging(report, shape, out));
    WEIR_TRY(prefill(report, shape, out));
    WEIR_TRY(intensity(report, shape, out));
    WEIR_TRY(steps(report, shape, out));
    return splits(report, shape, out);
}

weir_status weir_report_model_table(const weir_report *report, weir_buffer *out)
{
    const weir_report_assumptions *const a = report->assumptions;
    WEIR_TRY(weir_buffer_format(
        out, "\n== Models ==\nKV of one sequence in f16; longest context on %s (%.1f GiB)\n",
        a->reference.name, (double)a->reference.memory / (double)(1 << 30)
    ));
    WEIR_TRY(weir_buffer_format(
        out, "%-14s%12s%12s  %11s  %11s  %11s  %12s\n", "shape", "parameters", "weights", "1K",
        "8K", "32K", "longest"
    ));
    for (const weir_report_shape *shape = report->known; shape < report->known + report->n_known;
         shape++) {
        char weights[WEIR_REPORT_CELL];
        WEIR_TRY(weir_buffer_format(
            out, "%-14s%10.3f B%12s", shape->name, (double)weir_report_parameters(a, shape) / giga,
            weir_report_size(weights, (double)weir_report_weights(a, shape))
        ));
        for (int64_t tokens = 1024; tokens <= 32768; tokens *= tokens == 1024 ? 8 : 4)
            WEIR_TRY(gib_cell(report, out, kv_of(report, shape, WEIR_KV_F16, 1, tokens)));
        WEIR_TRY(
            tokens_cell(out, weir_report_max_context(a, shape, WEIR_KV_F16, a->reference.memory, 1))
        );
        WEIR_TRY(weir_buffer_text(out, "\n"));
    }
    return WEIR_OK;
}
