#include "tools/measure/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/cli/progress.h"
#include "engine/engine_parts.h"
#include "engine/kv/pool/sequence.h"
#include "engine/kv/pool/store.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/kv/tiers/residency.h"
#include "engine/model/model.h"
#include "engine/schedule/evaluate.h"
#include "offload/bandwidth.h"
#include "offload/ledger.h"

enum { MAX_REPEATS = 32, WARM_UP = 4 /* WARM_UP: tokens decoded before measuring. */ };

/* Loading and the buffers that measure bandwidth are no part of the peak: proc(5), clear_refs. */
void weir_bench_peak_begin(void)
{
    FILE *const file = fopen("/proc/self/clear_refs", "we");
    if (file == NULL) return;
    (void)fputs("5", file);
    (void)fclose(file);
}

size_t weir_bench_peak(void)
{
    FILE *const file = fopen("/proc/self/status", "re");
    unsigned long long kib = 0;
    char line[256];
    if (file == NULL) return 0;
    while (kib == 0 && fgets(line, sizeof line, file) != NULL)
        (void)sscanf(line, "VmHWM: %llu kB", &kib);
    (void)fclose(file);
    return (size_t)kib * 1024;
}

/* `base` holds the context of the row's depth; `work` is forked from it for every repeat. */
typedef struct bench {
    const weir_engine *engine;
    weir_kv_sequence base, work;
    weir_policy_run *policy_run; /* of both, for one depth; NULL: no policy */
    int32_t n_prompt; /* the depth */
    int32_t *tokens; /* any ids: speed does not depend on them */
    int64_t n_vocab;
    size_t peak_rss; /* of all measurements */
    int64_t n_timed, n_runs; /* measurements done and in total, for progress */
} bench;

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

weir_bench_rate weir_bench_summarise(double *rates, int32_t n)
{
    qsort(rates, (size_t)n, sizeof *rates, by_size);
    return (weir_bench_rate){ .median = n % 2 != 0 ? rates[n / 2]
                                                   : 0.5 * (rates[n / 2 - 1] + rates[n / 2]),
                              .least = rates[0],
                              .most = rates[n - 1] };
}

/* Decoding needs logits of every token, as generation does; a prompt only of its last one. */
static void take_logits(void *user, int32_t first, int32_t n_rows, const float *logits)
{
    (void)user, (void)first, (void)n_rows, (void)logits;
}

static weir_status compute(
    bench *b, weir_kv_sequence *sequence, int32_t n, bool decode, weir_error *error
)
{
    const weir_status status = weir_evaluate(
        weir_engine_runner(b->engine), sequence,
        &(weir_evaluation){ .tokens = b->tokens,
                            .n_tokens = n,
                            .decode_from = decode ? 0 : INT32_MAX,
                            .visit = decode ? take_logits : NULL,
                            .stopped = &weir_interrupted },
        error
    );
    return weir_progress_after(status, b->n_timed, error);
}

static weir_status timed(bench *b, int32_t n, bool decode, double *rate, weir_error *error)
{
    weir_kv_sequence_clear(&b->work);
    if (b->policy_run != NULL)
        b->work.policy_run = weir_policy_run_begin(b->policy_run, 1, b->n_prompt, 0);
    if (weir_kv_sequence_fork(&b->work, &b->base) != WEIR_OK)
        return weir_error_set(error, WEIR_EFULL, "no memory for page tables; raise memory.host");
    WEIR_TRY(weir_progress_step(b->n_timed, error)); /* nothing is printed while the clock runs */
    const int64_t start = weir_clock_ns();
    WEIR_TRY(compute(b, &b->work, n, decode, error));
    *rate = (double)n / ((double)(weir_clock_ns() - start) * 1e-9);
    b->n_timed++;
    return WEIR_OK;
}

static weir_status measure(
    bench *b, int32_t n, bool decode, int32_t n_repeats, weir_bench_rate *out, weir_error *error
)
{
    double rates[MAX_REPEATS], warm_up;
    *out = (weir_bench_rate){ 0 };
    if (n == 0) return WEIR_OK;
    weir_bench_peak_begin();
    WEIR_TRY(timed(b, decode && n > WARM_UP ? WARM_UP : n, decode, &warm_up, error));
    for (int32_t i = 0; i < n_repeats; i++) WEIR_TRY(timed(b, n, decode, &rates[i], error));
    *out = weir_bench_summarise(rates, n_repeats);
    const size_t peak = weir_bench_peak();
    if (peak > b->peak_rss) b->peak_rss = peak;
    return WEIR_OK;
}

weir_status weir_bench_fill(
    weir_runner *runner, weir_kv_sequence *sequence, const int32_t *tokens, int32_t n,
    weir_error *error
)
{
    while (n > 0) {
        const int32_t most = weir_runner_limits_of(runner)->rows, rows = n < most ? n : most;
        weir_batch_item item = { .sequence = sequence, .n_rows = rows };
        memcpy(sequence->tokens + sequence->n_tokens, tokens, (size_t)rows * sizeof *tokens);
        sequence->n_tokens += rows;
        WEIR_TRY(weir_runner_fill(runner, &item, error));
        weir_runner_move(runner, &item, 1, 0);
        n -= rows;
    }
    return weir_runner_evict(runner, sequence, error);
}

/* With a policy the rows of each depth are a prompt of their own, after which it drops rows. */
static weir_status begin_depth(
    bench *b, const weir_bench_options *options, int32_t depth, weir_error *error
)
{
    const int32_t n_new = weir_runner_limits_of(weir_engine_runner(b->engine))->rows;
    weir_kv_sequence_clear(&b->work);
    if (b->policy_run != NULL) weir_kv_sequence_clear(&b->base);
    weir_policy_run_close(b->policy_run);
    b->policy_run = NULL;
    b->n_prompt = depth;
    if (depth == 0) return WEIR_OK;
    WEIR_TRY(weir_engine_policy_run_open(
        b->engine, &b->policy_run, NULL, 2, depth + options->n_generate, depth, n_new, error
    ));
    if (b->policy_run == NULL) return WEIR_OK;
    weir_kv_sequence_clear(&b->base);
    b->base.policy_run = weir_policy_run_begin(b->policy_run, 0, depth, 0);
    if (!options->synthetic_kv || weir_policy_run_unobserved(b->base.policy_run) > 0)
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL, "%s needs to observe the whole prompt: omit --synthetic-kv",
        weir_policy_name(weir_policy_options_of(weir_policy_run_policy(b->policy_run)))
    );
}

const char *weir_bench_cold_tier(const weir_engine *engine)
{
    const weir_plan *const plan = weir_engine_plan_of(engine);
    if (plan->facts.kv_pages.n_host > 0) return plan->facts.kv_pages.n_disk > 0 ? "cold" : "host";
    return plan->facts.kv_pages.n_disk > 0 ? "disk" : NULL;
}

/* Bytes read from the lower tier since opening. */
static int64_t cold_reads(const bench *b)
{
    const weir_kv_residency moved = weir_kv_residency_of(weir_engine_store(b->engine));
    return moved.bytes_read + moved.bytes_back;
}

/* Measures decoding, including what it reads from the lower tier and how fast. */
static weir_status measure_decode(
    bench *b, const weir_bench_options *options, weir_bench_row *row, weir_error *error
)
{
    weir_kv_store *const store = weir_engine_store(b->engine);
    double before, after;
    WEIR_TRY(weir_bench_cold_speed(&before, store, &b->base, error));
    const int64_t reads = cold_reads(b), n = options->n_generate;
    WEIR_TRY(measure(b, options->n_generate, true, options->n_repeats, &row->decode, error));
    if (n > 0)
        row->cold_bytes = (size_t)((cold_reads(b) - reads) /
                                   (n * options->n_repeats + (n > WARM_UP ? WARM_UP : n)));
    WEIR_TRY(weir_bench_cold_speed(&after, store, &b->base, error));
    row->cold_bandwidth = before > 0.0 && after > 0.0 ? 0.5 * (before + after) : before + after;
    if (row->cold_bandwidth > 0.0)
        row->cold_share =
            row->decode.median * (double)row->cold_bytes / (row->cold_bandwidth * 1e9);
    return WEIR_OK;
}

/* How often a step reads what a token's rows take: layers that share rows read them again. */
static double reads_of_rows(const weir_engine *engine)
{
    const weir_kv_spec *const spec = weir_kv_store_spec(weir_engine_store(engine));
    size_t held = 0, read = 0;
    int64_t n;
    const weir_kv_reader *const readers = weir_model_kv_readers(weir_engine_model(engine), &n);
    for (int64_t i = 0; i < spec->n_layers; i++)
        held += weir_kv_page_stride(spec, i) * (size_t)spec->geometry[i].n_heads;
    for (int64_t i = 0; i < n; i++)
        read += weir_kv_page_stride(spec, readers[i].layer) *
                (size_t)spec->geometry[readers[i].layer].n_heads;
    return held > 0 ? (double)read / (double)held : 1.0;
}

static size_t kv_bytes_at(const weir_engine *engine, int64_t rows)
{
    const weir_plan *const plan = weir_engine_plan_of(engine);
    const int64_t sinks = rows < plan->facts.sink_tokens ? rows : plan->facts.sink_tokens;
    return (size_t)(reads_of_rows(engine) *
                    (double)(plan->facts.kv_bytes_per_sink * sinks +
                             plan->facts.kv_bytes_per_token * (rows - sinks)));
}

weir_status weir_bench_bandwidth(weir_bandwidth *out, const weir_engine *engine, weir_error *error)
{
    weir_stream *const stream = weir_engine_stream(engine);
    weir_device *const device = weir_stream_device(stream);
    if (device != NULL) return weir_bandwidth_measure_device(out, device, 0, error);
    return weir_bandwidth_measure(out, weir_stream_threads(stream), 0, 0, error);
}

static void show_context(void *user, int32_t first, int32_t n_rows)
{
    (void)user, (void)n_rows;
    weir_progress_tick(first);
}

/* Computes n more tokens before anything is timed. */
static weir_status read_context(bench *b, int32_t n, weir_error *error)
{
    weir_evaluation evaluation = {
        .tokens = b->tokens,
        .n_tokens = n,
        .decode_from = INT32_MAX,
        .before = show_context,
        .stopped = &weir_interrupted,
    };
    weir_progress_begin("reading the context", "tokens", (int64_t)b->base.n_tokens + n);
    const weir_status status = weir_progress_after(
        weir_evaluate(weir_engine_runner(b->engine), &b->base, &evaluation, error),
        b->base.n_computed, error
    );
    weir_progress_begin("measuring", "runs", b->n_runs);
    return status;
}

static weir_status run_row(
    bench *b, const weir_bench_options *options, weir_bench_row *row, weir_error *error
)
{
    weir_bandwidth before = { 0 }, after = { 0 };
    WEIR_TRY(begin_depth(b, options, row->depth, error));
    const int32_t grow = row->depth - b->base.n_tokens;
    if (grow > 0)
        WEIR_TRY(
            options->synthetic_kv
                ? weir_bench_fill(weir_engine_runner(b->engine), &b->base, b->tokens, grow, error)
                : read_context(b, grow, error)
        );
    WEIR_TRY(weir_bench_bandwidth(&before, b->engine, error));
    WEIR_TRY(measure_decode(b, options, row, error));
    WEIR_TRY(weir_bench_bandwidth(&after, b->engine, error));
    const bool has_prompt =
        !options->synthetic_kv &&
        b->policy_run == NULL; /* a prompt is not computed after rows were dropped */
    WEIR_TRY(measure(
        b, has_prompt ? options->n_prompt : 0, false, options->n_repeats, &row->prefill, error
    ));
    row->step_bytes = weir_model_decode_bytes(weir_engine_model(b->engine));
    int64_t n_rows = row->depth + options->n_generate / 2;
    if (b->policy_run != NULL)
        n_rows =
            weir_policy_run_count_of(b->work.policy_run, &b->work.table, b->work.n_computed).live;
    row->kv_bytes = kv_bytes_at(b->engine, n_rows);
    row->bandwidth = weir_bench_larger(&before, &after);
    row->bandwidth_share =
        row->decode.median * (double)(row->step_bytes + row->kv_bytes) / (row->bandwidth * 1e9);
    return WEIR_OK;
}

/* Measurements at a depth: prompts and decoding, each with a warm-up. */
static int64_t runs_of(const weir_bench_options *options)
{
    return 2 * (int64_t)(options->n_repeats + 1);
}

static weir_status run_rows(
    bench *b, const weir_bench_options *options, weir_bench_report *out,
    void (*progress)(const weir_bench_row *row), weir_error *error
)
{
    double medians[WEIR_BENCH_DEPTHS];
    b->n_runs = (int64_t)options->n_depths * runs_of(options);
    weir_progress_begin("measuring", "runs", b->n_runs);
    for (int32_t i = 0; i < options->n_depths; i++) {
        weir_bench_row *const row = &out->rows[i];
        row->depth = options->depths[i];
        WEIR_TRY(run_row(b, options, row, error));
        medians[i] = row->bandwidth;
        if (row->bandwidth > out->bandwidth_best) out->bandwidth_best = row->bandwidth;
        out->n_rows++;
        weir_progress_pause();
        if (progress != NULL) progress(row);
        b->n_timed = (int64_t)(i + 1) * runs_of(options);
    }
    weir_progress_end();
    out->bandwidth_median = weir_bench_summarise(medians, options->n_depths).median;
    return WEIR_OK;
}

static weir_status check_options(
    const weir_bench_options *options, const weir_engine *engine, weir_error *error
)
{
    const int32_t window = weir_engine_plan_of(engine)->facts.window;
    int32_t before = 0;
    if (options->n_depths < 1 || options->n_depths > WEIR_BENCH_DEPTHS || options->n_repeats < 1 ||
        options->n_repeats > MAX_REPEATS)
        return weir_error_set(
            error, WEIR_EINVAL, "bench takes 1 to %d depths and 1 to %d repeats",
            (int)WEIR_BENCH_DEPTHS, (int)MAX_REPEATS
        );
    for (int32_t i = 0; i < options->n_depths; i++) {
        const int32_t more =
            options->n_prompt > options->n_generate ? options->n_prompt : options->n_generate;
        if (options->depths[i] < before)
            return weir_error_set(error, WEIR_EINVAL, "the depths must ascend");
        if (more < 0 || options->depths[i] > window - more)
            return weir_error_set(
                error, WEIR_EINVAL,
                "depth %d and %d tokens do not fit the window of %d (model.context)",
                (int)options->depths[i], (int)more, (int)window
            );
        before = options->depths[i];
    }
    return WEIR_OK;
}

weir_status weir_bench_run(
    weir_bench_report *out, const weir_engine *engine, const weir_bench_options *options,
    void (*progress)(const weir_bench_row *row), weir_error *error
)
{
    const weir_model *const model = weir_engine_model(engine);
    bench b = { .engine = engine, .n_vocab = weir_model_shape(model)->n_vocab };
    const size_t window = (size_t)weir_engine_plan_of(engine)->facts.window,
                 state = weir_model_recurrent_bytes(model);
    *out = (weir_bench_report){ .n_threads = weir_stream_threads(weir_engine_stream(engine)),
                                .weight_bytes = weir_model_weight_bytes(model),
                                .kv_pool_bytes = weir_engine_plan_of(engine)->kv,
                                .cold_tier = weir_bench_cold_tier(engine),
                                .synthetic_kv = options->synthetic_kv };
    if (getloadavg(&out->machine_load, 1) != 1) out->machine_load = 0.0;
    WEIR_TRY(check_options(options, engine, error));
    b.tokens = calloc(window, sizeof *b.tokens);
    weir_status status =
        b.tokens != NULL ? WEIR_OK
                         : weir_error_set(error, WEIR_ENOMEM, "no memory for %zu tokens", window);
    for (size_t i = 0; status == WEIR_OK && i < window; i++)
        b.tokens[i] = (int32_t)((i * 2654435761u) % (size_t)b.n_vocab);
    if (status == WEIR_OK)
        status = weir_kv_sequence_open(
            &b.base, weir_engine_store(engine), weir_engine_ledger(engine), state, error
        );
    if (status == WEIR_OK)
        status = weir_kv_sequence_open(
            &b.work, weir_engine_store(engine), weir_engine_ledger(engine), state, error
        );
    if (status == WEIR_OK) status = run_rows(&b, options, out, progress, error);
    out->peak_rss = b.peak_rss;
    weir_ledger_state memory;
    weir_ledger_read(weir_engine_ledger(engine), &memory);
    out->memory_cap = memory.cap[WEIR_TIER_HOST];
    out->memory_peak = memory.peak[WEIR_TIER_HOST];
    weir_kv_sequence_close(&b.work);
    weir_kv_sequence_close(&b.base);
    weir_policy_run_close(b.policy_run);
    free(b.tokens);
    return status;
}

/* ---- explain --------------------------------------------------------------------------------- */
typedef struct explanation {
    weir_buffer *out;
    const weir_stream *stream;
    const weir_kernel *seen[256];
    size_t n_seen;
    const weir_kernel *picked;
    weir_status status;
} explanation;

static void on_row(void *user, const weir_kernel *kernel, const char *reject)
{
    explanation *const e = user;
    const char *const verdict = kernel == e->picked ? "runs"
                                : reject != NULL    ? reject
                                                    : "accepts, comes later";
    if (e->status == WEIR_OK)
        e->status = weir_buffer_format(e->out, "    %-36s %s\n", kernel->name, verdict);
}

/* Called for every call of a step; prints an op once per kernel that it picks. */
static void on_call(void *user, weir_op op, const void *args)
{
    explanation *const e = user;
    e->picked = weir_kernel_pick(e->stream, op, args, NULL, NULL);
    for (size_t i = 0; i < e->n_seen; i++) {
        if (e->seen[i] == e->picked) return;
    }
    if (e->n_seen < sizeof e->seen / sizeof *e->seen) e->seen[e->n_seen++] = e->picked;
    if (e->status == WEIR_OK) e->status = weir_buffer_format(e->out, "  %s\n", weir_op_name(op));
    (void)weir_kernel_pick(e->stream, op, args, on_row, e);
}

/* With the configured policy; the sequence is too short for it to drop rows. */
weir_status weir_bench_explain(weir_buffer *out, const weir_engine *engine, weir_error *error)
{
    enum { PROMPT = 2, ALL = 3 };
    weir_stream *const stream = weir_engine_stream(engine);
    weir_kv_sequence sequence = { 0 };
    weir_policy_run *policy_run = NULL;
    const int32_t tokens[ALL] = { 0 };
    explanation e = { .out = out, .stream = stream };
    WEIR_TRY(weir_engine_policy_run_open(engine, &policy_run, NULL, 1, ALL, PROMPT, PROMPT, error));
    weir_status status = weir_kv_sequence_open(
        &sequence, weir_engine_store(engine), weir_engine_ledger(engine),
        weir_model_recurrent_bytes(weir_engine_model(engine)), error
    );
    if (status == WEIR_OK && policy_run != NULL)
        sequence.policy_run = weir_policy_run_begin(policy_run, 0, PROMPT, 0);
    weir_stream_observe(stream, on_call, &e);
    if (status == WEIR_OK)
        status = weir_evaluate(
            weir_engine_runner(engine), &sequence,
            &(weir_evaluation){ .tokens = tokens, .n_tokens = ALL, .decode_from = PROMPT }, error
        );
    weir_stream_observe(stream, NULL, NULL);
    weir_kv_sequence_close(&sequence);
    weir_policy_run_close(policy_run);
    if (status == WEIR_OK && e.status != WEIR_OK)
        status = weir_error_set(error, e.status, "no memory for the explanation");
    return status;
}
