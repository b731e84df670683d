/* tools/load/output.c - the summary as text and as JSON. */
#include "tools/load/output.h"

#include <stdio.h>

/* ---- text ------------------------------------------------------------------------------------ */

static weir_status print_row(weir_buffer *out, const char *name, const weir_percentiles *p)
{
    if (p->n == 0) return weir_buffer_format(out, "%-12s %10s\n", name, "-");
    return weir_buffer_format(
        out, "%-12s %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f\n", name, p->mean, p->p50, p->p90,
        p->p95, p->p99, p->most
    );
}

static weir_status print_failures(weir_buffer *out, const weir_load_report *report)
{
    const weir_load_summary *const s = report->summary;
    for (int32_t i = 0; i < s->n_failures; i++) {
        const weir_load_failure *const f = &s->failures[i];
        const char *const problem = report->result->problems[f->outcome];
        char status[16] = "";
        if (f->status != 0) (void)snprintf(status, sizeof status, " %d", (int)f->status);
        WEIR_TRY(weir_buffer_format(
            out, "  %6d %s%s%s%s\n", (int)f->n, weir_load_outcome_text(f->outcome), status,
            problem[0] != '\0' ? ": " : "", problem
        ));
    }
    return WEIR_OK;
}

static weir_status print_counts(weir_buffer *out, const weir_load_report *report)
{
    const weir_load_summary *const s = report->summary;
    WEIR_TRY(weir_buffer_format(
        out, "%d requests sent, %d answered, %d failed", (int)s->n_sent, (int)s->n_good,
        (int)s->n_failed
    ));
    if (s->n_open > 0) WEIR_TRY(weir_buffer_format(out, ", %d stopped", (int)s->n_open));
    if (report->result->n_unsent > 0)
        WEIR_TRY(weir_buffer_format(out, ", %d later turns not sent", (int)report->result->n_unsent)
        );
    WEIR_TRY(weir_buffer_format(
        out, "; at most %d at a time, %.2f s\n", (int)report->result->peak, s->seconds
    ));
    return print_failures(out, report);
}

static weir_status print_rates(weir_buffer *out, const weir_load_report *report)
{
    const weir_load_summary *const s = report->summary;
    const weir_goodput *const g = report->goodput;
    const double good = s->n_good > 0 ? (double)s->n_good : 1.0;
    WEIR_TRY(weir_buffer_format(
        out,
        "%.3f requests/s, %.1f answer tokens/s, %.1f prompt tokens/s; in the mean %.1f prompt "
        "tokens (%.1f cached), %.1f answer tokens\n",
        s->requests_per_second, s->answer_per_second, s->prompt_per_second,
        (double)s->prompt_tokens / good, (double)s->cached_tokens / good,
        (double)s->answer_tokens / good
    ));
    if (!s->is_counted)
        WEIR_TRY(weir_buffer_text(
            out, "the server reports no usage in some answers: an event counts as a token there\n"
        ));
    if (g->ttft <= 0.0 && g->tpot <= 0.0 && g->e2e <= 0.0) return WEIR_OK;
    return weir_buffer_format(
        out, "goodput %.3f requests/s: %d of %d within the limits\n", s->goodput_per_second,
        (int)s->n_within, (int)s->n_sent
    );
}

static weir_status print_memory(weir_buffer *out, const weir_server_memory *m)
{
    if (!m->is_known) return WEIR_OK;
    WEIR_TRY(weir_buffer_format(out, "server: peak memory %.1f MB", (double)m->peak * 1e-6));
    if (m->device_peak > 0)
        WEIR_TRY(weir_buffer_format(out, ", device %.1f MB", (double)m->device_peak * 1e-6));
    return weir_buffer_format(
        out, ", KV pool %.1f MB, %lld KV bytes per token\n", (double)m->kv_pool * 1e-6,
        (long long)m->kv_bytes_per_token
    );
}

weir_status weir_load_print(weir_buffer *out, const weir_load_report *report)
{
    const weir_load_summary *const s = report->summary;
    WEIR_TRY(print_counts(out, report));
    WEIR_TRY(print_rates(out, report));
    WEIR_TRY(weir_buffer_format(
        out, "%-12s %10s %10s %10s %10s %10s %10s\n", "ms", "mean", "p50", "p90", "p95", "p99",
        "max"
    ));
    WEIR_TRY(print_row(out, "TTFT", &s->ttft));
    WEIR_TRY(print_row(out, "TPOT", &s->tpot));
    WEIR_TRY(print_row(out, "ITL", &s->itl));
    WEIR_TRY(print_row(out, "end to end", &s->e2e));
    WEIR_TRY(print_row(out, "sent late", &s->late));
    return print_memory(out, report->memory);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *percentiles_json(const weir_percentiles *p)
{
    if (p->n == 0) return json_null();
    return json_pack(
        "{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "n", (json_int_t)p->n, "mean", p->mean, "p50",
        p->p50, "p90", p->p90, "p95", p->p95, "p99", p->p99, "max", p->most
    );
}

static json_t *failures_json(const weir_load_report *report)
{
    const weir_load_summary *const s = report->summary;
    json_t *const list = json_array();
    for (int32_t i = 0; list != NULL && i < s->n_failures; i++) {
        const weir_load_failure *const f = &s->failures[i];
        json_t *const one = json_pack(
            "{s:s, s:i, s:s}", "kind", weir_load_outcome_text(f->outcome), "requests", (int)f->n,
            "first_message", report->result->problems[f->outcome]
        );
        if (one != NULL && f->status != 0)
            (void)json_object_set_new(one, "status", json_integer(f->status));
        (void)json_array_append_new(list, one);
    }
    return list;
}

static json_t *length_json(const weir_length *l)
{
    switch (l->kind) {
    case WEIR_LENGTH_FIXED: return json_pack("{s:s, s:f}", "kind", "fixed", "tokens", l->a);
    case WEIR_LENGTH_UNIFORM:
        return json_pack("{s:s, s:f, s:f}", "kind", "uniform", "least", l->a, "most", l->b);
    case WEIR_LENGTH_NORMAL:
        return json_pack("{s:s, s:f, s:f}", "kind", "normal", "mean", l->a, "deviation", l->b);
    case WEIR_LENGTH_EXPONENTIAL:
        return json_pack("{s:s, s:f}", "kind", "exponential", "mean", l->a);
    }
    return json_null();
}

static json_t *workload_json(const weir_load_report *report)
{
    const weir_workload_options *const w = report->workload;
    const weir_load_form *const f = report->form;
    return json_pack(
        "{s:s, s:f, s:i, s:I, s:f, s:I, s:o, s:o, s:i, s:i, s:i, s:f, s:b, s:f, s:b}", "loop",
        report->options->is_open ? "open" : "closed", "rate", w->rate, "streams",
        (int)report->options->n_streams, "requests", (json_int_t)w->n_requests, "duration_seconds",
        w->seconds, "seed", (json_int_t)w->seed, "prompt", length_json(&w->prompt), "answer",
        length_json(&w->answer), "prefix", (int)w->prefix, "groups", (int)w->n_groups, "turns",
        (int)w->n_turns, "think_seconds", w->think, "ignore_eos", f->ignore_eos, "tokens_per_word",
        f->tokens_per_word, "tokens_per_word_is_measured", f->is_measured
    );
}

static json_t *goodput_json(const weir_load_report *report)
{
    const weir_goodput *const g = report->goodput;
    json_t *const limits = json_object();
    if (g->ttft <= 0.0 && g->tpot <= 0.0 && g->e2e <= 0.0) {
        json_decref(limits);
        return json_null();
    }
    if (g->ttft > 0.0) (void)json_object_set_new(limits, "ttft_ms", json_real(g->ttft));
    if (g->tpot > 0.0) (void)json_object_set_new(limits, "tpot_ms", json_real(g->tpot));
    if (g->e2e > 0.0) (void)json_object_set_new(limits, "e2e_ms", json_real(g->e2e));
    return json_pack(
        "{s:o, s:i, s:f}", "limits", limits, "requests", (int)report->summary->n_within,
        "requests_per_second", report->summary->goodput_per_second
    );
}

static json_t *memory_json(const weir_server_memory *m)
{
    if (!m->is_known) return json_null();
    return json_pack(
        "{s:I, s:I, s:I, s:I}", "peak_bytes", (json_int_t)m->peak, "device_peak_bytes",
        (json_int_t)(m->device_peak > 0 ? m->device_peak : 0), "kv_pool_bytes",
        (json_int_t)m->kv_pool, "kv_bytes_per_token", (json_int_t)m->kv_bytes_per_token
    );
}

static double since(const weir_load_report *report, int64_t ns)
{
    return ns != 0 ? (double)(ns - report->result->start_ns) * 1e-6 : -1.0;
}

/* Times in ms from the start of the run; -1: did not happen. */
static json_t *requests_json(const weir_load_report *report)
{
    json_t *const list = json_array();
    for (int32_t i = 0; list != NULL && i < report->result->n; i++) {
        const weir_load_record *const r = &report->result->records[i];
        (void)json_array_append_new(
            list,
            json_pack(
                "{s:i, s:i, s:i, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:i, s:I, s:I, s:I}",
                "conversation", (int)r->conversation, "turn", (int)r->turn, "group", (int)r->group,
                "outcome", weir_load_outcome_text(r->outcome), "status", (int)r->status, "due_ms",
                since(report, r->due_ns), "sent_ms", since(report, r->sent_ns), "first_ms",
                since(report, r->first_ns), "last_ms", since(report, r->last_ns), "end_ms",
                since(report, r->end_ns), "events", (int)r->n_events, "prompt_tokens",
                (json_int_t)r->prompt_tokens, "answer_tokens", (json_int_t)r->answer_tokens,
                "cached_tokens", (json_int_t)r->cached_tokens
            )
        );
    }
    return list;
}

json_t *weir_load_json(const weir_load_report *report, bool with_requests)
{
    const weir_load_summary *const s = report->summary;
    json_t *const out = json_pack(
        "{s:s, s:s, s:s, s:o, s:f, s:i, s:i, s:i, s:i, s:i, s:i, s:o}", "url", report->url, "model",
        report->form->model, "endpoint", weir_load_form_path(report->form), "workload",
        workload_json(report), "seconds", s->seconds, "requests_sent", (int)s->n_sent,
        "requests_ok", (int)s->n_good, "requests_failed", (int)s->n_failed, "requests_stopped",
        (int)s->n_open, "turns_not_sent", (int)report->result->n_unsent, "peak_streams",
        (int)report->result->peak, "failures", failures_json(report)
    );
    json_t *const figures = json_pack(
        "{s:f, s:I, s:I, s:I, s:b, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o}", "requests_per_second",
        s->requests_per_second, "prompt_tokens", (json_int_t)s->prompt_tokens, "cached_tokens",
        (json_int_t)s->cached_tokens, "answer_tokens", (json_int_t)s->answer_tokens,
        "answer_tokens_are_from_usage", s->is_counted, "prompt_tokens_per_second",
        s->prompt_per_second, "answer_tokens_per_second", s->answer_per_second, "ttft_ms",
        percentiles_json(&s->ttft), "tpot_ms", percentiles_json(&s->tpot), "itl_ms",
        percentiles_json(&s->itl), "e2e_ms", percentiles_json(&s->e2e), "sent_late_ms",
        percentiles_json(&s->late), "goodput", goodput_json(report)
    );
    if (out == NULL || figures == NULL || json_object_update(out, figures) != 0) {
        json_decref(out);
        json_decref(figures);
        return NULL;
    }
    json_decref(figures);
    (void)json_object_set_new(out, "server_memory", memory_json(report->memory));
    if (with_requests) (void)json_object_set_new(out, "requests", requests_json(report));
    return out;
}
