#include "tools/measure/bench_streams.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/clock.h"
#include "engine/cli/progress.h"
#include "engine/engine_parts.h"
#include "engine/model/model.h"

enum { SPARE = 64 }; /* tokens that a stream may compute before the end of a round is seen */

typedef struct bench bench;

/* One request. Its times are written on the engine thread. */
typedef struct stream {
    bench *bench;
    weir_job *job;
    int64_t *times; /* [max_tokens], of its tokens */
    int32_t n_times;
    int32_t *prompt; /* [n_prompt] */
} stream;

struct bench {
    const weir_engine *engine;
    const weir_streams_options *options;
    stream *streams; /* [most] */
    int32_t n_streams, max_tokens, n_started, n_ended;
    int64_t last_first_ns; /* when the last stream had its first token; 0: not yet */
    int32_t n_complete; /* streams that have the tokens of the measurement */
    weir_status status; /* of the first request that failed */
    weir_error problem;
    uint32_t round; /* of the whole run; prompts differ between rounds */
    int64_t n_timed;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    weir_samples ttft, itl, per_stream; /* of a row */
    size_t kv_bytes, peak_rss;
};

int64_t weir_streams_context(const weir_streams_options *o, int64_t chunk)
{
    int64_t most = 1;
    for (int32_t i = 0; i < o->n_counts; i++)
        if (o->counts[i] > most) most = o->counts[i];
    const int64_t steps = most * ((o->n_prompt + chunk - 1) / chunk); /* a prompt's chunk in each */
    return (int64_t)o->n_prompt + 2 * steps + o->n_generate + SPARE;
}

/* ---- the engine thread ----------------------------------------------------------------------- */

/* The index of the first token after all streams had begun. */
static int32_t first_measured(const stream *s, int64_t start_ns)
{
    int32_t i = s->n_times;
    while (i > 0 && s->times[i - 1] > start_ns) i--;
    return i;
}

static void note_token(bench *b, stream *s, int64_t now_ns)
{
    if (s->n_times == b->max_tokens) return;
    s->times[s->n_times++] = now_ns;
    if (s->n_times == 1 && ++b->n_started == b->n_streams) b->last_first_ns = now_ns;
    if (b->last_first_ns == 0) return;
    if (s->n_times - first_measured(s, b->last_first_ns) == b->options->n_generate + 1 &&
        ++b->n_complete == b->n_streams)
        pthread_cond_signal(&b->changed);
}

static bool on_event(void *user, const weir_event *event)
{
    stream *const s = user;
    bench *const b = s->bench;
    const int64_t now_ns = weir_clock_ns();
    pthread_mutex_lock(&b->lock);
    if (event->type == WEIR_EVENT_TOKEN) note_token(b, s, now_ns);
    if (event->type == WEIR_EVENT_DONE) {
        b->n_ended++;
        if (event->status != WEIR_OK && event->status != WEIR_ECANCELED && b->status == WEIR_OK)
            b->status = weir_error_set(
                &b->problem, event->status, "%s",
                event->message != NULL ? event->message : "a request failed"
            );
        pthread_cond_signal(&b->changed);
    }
    pthread_mutex_unlock(&b->lock);
    return true;
}

/* ---- a round --------------------------------------------------------------------------------- */

/* Any ids: speed does not depend on them. No two prompts of a run begin alike. */
static void write_prompt(const bench *b, int32_t *prompt, int32_t number)
{
    const uint64_t n_vocab = (uint64_t)weir_engine_plan_of(b->engine)->facts.n_valid_vocab;
    const uint64_t seed = (uint64_t)b->round << 32 | (uint32_t)number;
    for (int32_t i = 0; i < b->options->n_prompt; i++) {
        const uint64_t mixed = (seed + (uint64_t)i * 0x9E3779B97F4A7C15u) * 0xD1342543DE82EF95u;
        prompt[i] = (int32_t)((mixed >> 32) % n_vocab);
    }
}

static weir_status submit(bench *b, stream *s, weir_error *error)
{
    weir_sampling sampling = weir_sampling_default();
    sampling.temperature = 0.0f;
    const weir_request request = { .prompt = s->prompt,
                                   .n_prompt = b->options->n_prompt,
                                   .max_tokens = b->max_tokens,
                                   .n_choices = 1,
                                   .ignore_eos = true,
                                   .sampling = sampling,
                                   .callback = on_event,
                                   .user = s };
    return weir_service_submit(weir_engine_service(b->engine), &s->job, &request, error);
}

/* Waits until every stream has its tokens, or one ends before. */
static void wait_for_all(bench *b)
{
    pthread_mutex_lock(&b->lock);
    while (b->n_complete < b->n_streams && b->n_ended == 0 && !weir_interrupted) {
        const struct timespec until = weir_clock_after(CLOCK_REALTIME, 100000000);
        (void)pthread_cond_timedwait(&b->changed, &b->lock, &until);
    }
    pthread_mutex_unlock(&b->lock);
}

static void note_memory(bench *b)
{
    weir_service_stats stats;
    weir_service_stats_of(weir_engine_service(b->engine), &stats);
    const size_t peak = weir_bench_peak();
    if (peak > b->peak_rss) b->peak_rss = peak;
    b->kv_bytes = (size_t)stats.kv_bytes_used;
}

static weir_status run_requests(bench *b, int64_t *start_ns, weir_error *error)
{
    weir_status status = WEIR_OK;
    b->n_started = b->n_ended = b->n_complete = 0;
    b->last_first_ns = 0;
    b->status = WEIR_OK;
    b->round++;
    for (int32_t i = 0; i < b->n_streams; i++) {
        b->streams[i].n_times = 0;
        write_prompt(b, b->streams[i].prompt, i);
    }
    *start_ns = weir_clock_ns();
    int32_t n = 0;
    for (; status == WEIR_OK && n < b->n_streams; n++) status = submit(b, &b->streams[n], error);
    if (status == WEIR_OK) {
        wait_for_all(b);
        note_memory(b);
    } else {
        n--; /* the last one was refused */
    }
    for (int32_t i = 0; i < n; i++) weir_job_cancel(b->streams[i].job);
    for (int32_t i = 0; i < n; i++) weir_job_release(b->streams[i].job);
    WEIR_TRY(status);
    if (weir_interrupted) return weir_progress_interrupted(b->n_timed, error);
    if (b->status != WEIR_OK) return weir_error_set(error, b->status, "%s", b->problem.text);
    if (b->n_complete == b->n_streams) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL,
        "with %d streams the first answer reached its %d tokens before all were measured; raise "
        "--context",
        (int)b->n_streams, (int)b->max_tokens
    );
}

/* Takes the figures of a round from the times of its tokens. Streams that get a token in the step
 * of the last first token begin one step later: each is measured over its own n_generate steps. */
static weir_status take_figures(
    bench *b, int64_t start_ns, double *prefill, double *decode, weir_error *error
)
{
    const int32_t n = b->options->n_generate;
    weir_status status = WEIR_OK;
    *decode = 0.0;
    for (int32_t i = 0; status == WEIR_OK && i < b->n_streams; i++) {
        const stream *const s = &b->streams[i];
        const int64_t *const times = s->times + first_measured(s, b->last_first_ns);
        const double rate = (double)n / ((double)(times[n] - times[0]) * 1e-9);
        *decode += rate;
        status = weir_samples_add(&b->ttft, (double)(s->times[0] - start_ns) * 1e-6);
        if (status == WEIR_OK) status = weir_samples_add(&b->per_stream, rate);
        for (int32_t t = 1; status == WEIR_OK && t <= n; t++)
            status = weir_samples_add(&b->itl, (double)(times[t] - times[t - 1]) * 1e-6);
    }
    *prefill = (double)b->options->n_prompt * b->n_streams /
               ((double)(b->last_first_ns - start_ns) * 1e-9);
    return status == WEIR_OK ? WEIR_OK
                             : weir_error_set(error, status, "no memory for the times of tokens");
}

/* ---- rows ------------------------------------------------------------------------------------ */

static weir_status measure_row(bench *b, weir_streams_row *row, weir_error *error)
{
    double prefill[WEIR_STREAM_ROUNDS], decode[WEIR_STREAM_ROUNDS];
    weir_bandwidth before, after;
    int64_t start_ns;
    b->n_streams = row->n_streams;
    b->ttft.n = b->itl.n = b->per_stream.n = 0;
    b->peak_rss = 0;
    WEIR_TRY(weir_bench_bandwidth(&before, b->engine, error));
    weir_bench_peak_begin();
    for (int32_t i = 0; i < b->options->n_rounds; i++) {
        WEIR_TRY(weir_progress_step(b->n_timed, error));
        WEIR_TRY(run_requests(b, &start_ns, error));
        WEIR_TRY(take_figures(b, start_ns, &prefill[i], &decode[i], error));
        b->n_timed++;
    }
    WEIR_TRY(weir_bench_bandwidth(&after, b->engine, error));
    row->prefill = weir_bench_summarise(prefill, b->options->n_rounds);
    row->decode = weir_bench_summarise(decode, b->options->n_rounds);
    row->per_stream = weir_samples_at(&b->per_stream, 0.5);
    row->ttft = weir_samples_percentiles(&b->ttft);
    row->itl = weir_samples_percentiles(&b->itl);
    row->peak_rss = b->peak_rss;
    row->kv_bytes = b->kv_bytes;
    row->bandwidth = weir_bench_larger(&before, &after);
    const weir_model *const model = weir_engine_model(b->engine);
    const double step_bytes =
        (double)weir_model_decode_bytes(model) + (double)b->kv_bytes +
        (double)(b->n_streams - 1) * (double)weir_model_recurrent_bytes(model);
    row->bandwidth_share = row->decode.median / b->n_streams * step_bytes / (row->bandwidth * 1e9);
    return WEIR_OK;
}

static weir_status check(
    const weir_streams_options *o, const weir_engine *engine, weir_error *error
)
{
    const weir_engine_facts *const facts = &weir_engine_plan_of(engine)->facts;
    if (o->n_prompt < 1 || o->n_generate < 1 || o->n_rounds < 1 ||
        o->n_rounds > WEIR_STREAM_ROUNDS || o->n_counts < 1)
        return weir_error_set(
            error, WEIR_EINVAL,
            "--streams needs --prompt and --gen of 1 or more, and --repeat of 1 to %d",
            (int)WEIR_STREAM_ROUNDS
        );
    if (o->n_prompt + (int64_t)o->n_generate + SPARE > facts->window)
        return weir_error_set(
            error, WEIR_EINVAL, "%d and %d tokens do not fit the window of %d (model.context)",
            (int)o->n_prompt, (int)o->n_generate, (int)facts->window
        );
    for (int32_t i = 0; i < o->n_counts; i++)
        if (o->counts[i] > facts->n_slots)
            return weir_error_set(
                error, WEIR_EINVAL, "%d streams need batch.max_sequences = %d", (int)o->counts[i],
                (int)o->counts[i]
            );
    return WEIR_OK;
}

static weir_status open_streams(bench *b, int32_t most, weir_error *error)
{
    size_t n_times, n_tokens;
    b->streams = calloc((size_t)most, sizeof *b->streams);
    if (b->streams != NULL && weir_mul_size(&n_times, (size_t)b->max_tokens, sizeof(int64_t)) &&
        weir_mul_size(&n_tokens, (size_t)b->options->n_prompt, sizeof(int32_t)))
        for (int32_t i = 0; i < most; i++) {
            stream *const s = &b->streams[i];
            s->bench = b;
            s->times = malloc(n_times);
            s->prompt = malloc(n_tokens);
            if (s->times == NULL || s->prompt == NULL) break;
            if (i + 1 == most) return WEIR_OK;
        }
    return weir_error_set(
        error, WEIR_ENOMEM, "no memory for %d streams of %d tokens", (int)most, (int)b->max_tokens
    );
}

static void close_streams(bench *b, int32_t most)
{
    for (int32_t i = 0; b->streams != NULL && i < most; i++) {
        free(b->streams[i].times);
        free(b->streams[i].prompt);
    }
    free(b->streams);
    weir_samples_free(&b->ttft);
    weir_samples_free(&b->itl);
    weir_samples_free(&b->per_stream);
    (void)pthread_mutex_destroy(&b->lock);
    (void)pthread_cond_destroy(&b->changed);
}

weir_status weir_streams_run(
    weir_streams_row *rows, const weir_engine *engine, const weir_streams_options *o,
    void (*progress)(const weir_streams_row *row), weir_error *error
)
{
    bench b = { .engine = engine,
                .options = o,
                .lock = PTHREAD_MUTEX_INITIALIZER,
                .changed = PTHREAD_COND_INITIALIZER };
    int32_t most = 1;
    double single = 0.0;
    WEIR_TRY(check(o, engine, error));
    for (int32_t i = 0; i < o->n_counts; i++) most = o->counts[i] > most ? o->counts[i] : most;
    b.max_tokens = weir_engine_plan_of(engine)->facts.window - o->n_prompt;
    weir_status status = open_streams(&b, most, error);
    weir_progress_begin("measuring", "rounds", (int64_t)o->n_counts * o->n_rounds);
    for (int32_t i = 0; status == WEIR_OK && i < o->n_counts; i++) {
        rows[i] = (weir_streams_row){ .n_streams = o->counts[i] };
        status = measure_row(&b, &rows[i], error);
        if (status != WEIR_OK) break;
        if (rows[i].n_streams == 1) single = rows[i].decode.median;
        if (single > 0.0) rows[i].efficiency = rows[i].decode.median / (single * o->counts[i]);
        weir_progress_pause();
        if (progress != NULL) progress(&rows[i]);
    }
    weir_progress_end();
    close_streams(&b, most);
    return status;
}
