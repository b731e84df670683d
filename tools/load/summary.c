#include "tools/load/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double ns_ms = 1e-6, ns_s = 1e-9;

/* ---- goodput --------------------------------------------------------------------------------- */

/* Reads a positive number and moves *text past it. */
static bool read_limit(const char **text, double *out)
{
    char *end;
    if ((**text < '0' || **text > '9') && **text != '.') return false;
    *out = strtod(*text, &end);
    if (end == *text || !isfinite(*out) || *out <= 0.0) return false;
    *text = end;
    return true;
}

static bool read_goodput(weir_goodput *out, const char *text)
{
    for (;;) {
        const struct {
            const char *name;
            double *limit;
        } rows[] = { { "ttft:", &out->ttft },
                     { "tpot:", &out->tpot },
                     { "e2el:", &out->e2e }, /* as vLLM spells it */
                     { "e2e:", &out->e2e } };
        size_t i = 0;
        while (i < sizeof rows / sizeof rows[0] &&
               strncmp(text, rows[i].name, strlen(rows[i].name)) != 0)
            i++;
        if (i == sizeof rows / sizeof rows[0] || *rows[i].limit > 0.0) return false;
        text += strlen(rows[i].name);
        if (!read_limit(&text, rows[i].limit)) return false;
        if (*text == '\0') return true;
        if (*text++ != ',') return false;
    }
}

weir_status weir_goodput_parse(weir_goodput *out, const char *text, weir_error *error)
{
    weir_goodput goodput = { 0 };
    if (!read_goodput(&goodput, text))
        return weir_error_set(
            error, WEIR_EINVAL,
            "--goodput %.60s: must be limits in ms, each at most once: ttft:200,tpot:50,e2e:5000",
            text
        );
    *out = goodput;
    return WEIR_OK;
}

/* ---- one request ----------------------------------------------------------------------------- */

double weir_load_ttft(const weir_load_record *r)
{
    return (double)(r->first_ns - r->due_ns) * ns_ms;
}
double weir_load_e2e(const weir_load_record *r) { return (double)(r->end_ns - r->due_ns) * ns_ms; }

static int64_t answer_tokens(const weir_load_record *r)
{
    return r->answer_tokens >= 0 ? r->answer_tokens : r->n_events;
}

double weir_load_tpot(const weir_load_record *r)
{
    const int64_t n = answer_tokens(r);
    return n > 1 ? (double)(r->last_ns - r->first_ns) * ns_ms / (double)(n - 1) : -1.0;
}

static bool is_within(const weir_load_record *r, const weir_goodput *g)
{
    return (g->ttft <= 0.0 || weir_load_ttft(r) <= g->ttft) &&
           (g->tpot <= 0.0 || weir_load_tpot(r) <= g->tpot) &&
           (g->e2e <= 0.0 || weir_load_e2e(r) <= g->e2e);
}

/* ---- all ------------------------------------------------------------------------------------- */

static void count_failure(weir_load_summary *s, const weir_load_record *r)
{
    const int32_t status = r->outcome == WEIR_LOAD_STATUS ? r->status : 0;
    s->n_failed++;
    int32_t i = 0;
    while (i < s->n_failures &&
           (s->failures[i].outcome != r->outcome || s->failures[i].status != status))
        i++;
    if (i == WEIR_LOAD_FAILURES) i--;
    if (i == s->n_failures)
        s->failures[s->n_failures++] =
            (weir_load_failure){ .outcome = r->outcome, .status = status };
    s->failures[i].n++;
}

static int by_count(const void *a, const void *b)
{
    const weir_load_failure *const x = a, *const y = b;
    return (x->n < y->n) - (x->n > y->n);
}

typedef struct lists {
    weir_samples ttft, tpot, e2e, late;
} lists;

static weir_status add_good(
    weir_load_summary *s, lists *l, const weir_load_record *r, const weir_goodput *goodput
)
{
    const double tpot = weir_load_tpot(r);
    s->n_good++;
    s->n_within += is_within(r, goodput);
    if (r->prompt_tokens > 0) s->prompt_tokens += r->prompt_tokens;
    if (r->cached_tokens > 0) s->cached_tokens += r->cached_tokens;
    s->answer_tokens += answer_tokens(r);
    if (r->answer_tokens < 0) s->is_counted = false;
    WEIR_TRY(weir_samples_add(&l->ttft, weir_load_ttft(r)));
    WEIR_TRY(weir_samples_add(&l->e2e, weir_load_e2e(r)));
    return tpot >= 0.0 ? weir_samples_add(&l->tpot, tpot) : WEIR_OK;
}

static weir_status add_all(
    weir_load_summary *s, lists *l, const weir_load_result *result, const weir_goodput *goodput
)
{
    int64_t end_ns = result->start_ns;
    for (int32_t i = 0; i < result->n; i++) {
        const weir_load_record *const r = &result->records[i];
        s->n_sent++;
        WEIR_TRY(weir_samples_add(&l->late, (double)(r->sent_ns - r->due_ns) * ns_ms));
        if (r->end_ns > end_ns) end_ns = r->end_ns;
        if (r->outcome == WEIR_LOAD_OPEN)
            s->n_open++;
        else if (r->outcome == WEIR_LOAD_OK)
            WEIR_TRY(add_good(s, l, r, goodput));
        else
            count_failure(s, r);
    }
    s->seconds = (double)(end_ns - result->start_ns) * ns_s;
    return WEIR_OK;
}

weir_status weir_load_summarise(
    weir_load_summary *out, weir_load_result *result, const weir_goodput *goodput
)
{
    lists l = { 0 };
    *out = (weir_load_summary){ .is_counted = true };
    const weir_status status = add_all(out, &l, result, goodput);
    if (status == WEIR_OK) {
        const double seconds = out->seconds > 0.0 ? out->seconds : INFINITY;
        out->requests_per_second = out->n_good / seconds;
        out->goodput_per_second = out->n_within / seconds;
        out->prompt_per_second = (double)out->prompt_tokens / seconds;
        out->answer_per_second = (double)out->answer_tokens / seconds;
        out->ttft = weir_samples_percentiles(&l.ttft);
        out->tpot = weir_samples_percentiles(&l.tpot);
        out->e2e = weir_samples_percentiles(&l.e2e);
        out->late = weir_samples_percentiles(&l.late);
        out->itl = weir_samples_percentiles(&result->gaps);
        qsort(out->failures, (size_t)out->n_failures, sizeof *out->failures, by_count);
    }
    weir_samples_free(&l.ttft);
    weir_samples_free(&l.tpot);
    weir_samples_free(&l.e2e);
    weir_samples_free(&l.late);
    return status;
}
