#include <math.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/cli/progress.h"
#include "engine/engine_parts.h"
#include "engine/schedule/evaluate.h"
#include "tools/measure/evaluate.h"

enum { MAX_TEXT = 1 << 28, PIECE = 64 /* PIECE: tokens between two evictions. */ };

typedef struct scorer {
    const int32_t *window; /* tokens of the current window */
    int32_t n, place_tokens;
    int64_t n_vocab, n_valid, n_scored[WEIR_PERPLEXITY_PLACES];
    int64_t n_windows, n_kept, n_evicted, kv_bytes; /* sums over the windows */
    double nll[WEIR_PERPLEXITY_PLACES];
    bool is_stream;
} scorer;

static void on_logits(void *user, int32_t first, int32_t n_rows, const float *logits)
{
    scorer *const s = user;
    for (int32_t r = 0; r < n_rows && first + r + 1 < s->n; r++) {
        const int32_t next = first + r + 1, place = next / s->place_tokens;
        s->nll[place] -= weir_log_probability(
            logits + r * s->n_vocab, (size_t)s->n_valid, (size_t)s->window[next]
        );
        s->n_scored[place]++;
    }
    if (s->is_stream) weir_progress_tick(first + n_rows);
}

/* Powers of two from 64 on, so that a window has at most WEIR_PERPLEXITY_PLACES places. */
static int32_t place_tokens(int32_t window)
{
    int32_t width = 64;
    while (window > width * WEIR_PERPLEXITY_PLACES) width *= 2;
    return width;
}

static void summarise(weir_perplexity *out, const scorer *s, size_t n_tokens, size_t n_bytes)
{
    double nll = 0.0;
    WEIR_ASSERT(s->n_windows > 0);
    *out = (weir_perplexity){ .n_tokens = (int64_t)n_tokens,
                              .window = s->n,
                              .kv_bytes = s->kv_bytes / s->n_windows,
                              .n_kept = s->n_kept / s->n_windows,
                              .n_evicted = s->n_evicted / s->n_windows };
    for (int32_t i = 0; i * s->place_tokens < s->n; i++) {
        const int32_t first = i * s->place_tokens,
                      end = first + s->place_tokens < s->n ? first + s->place_tokens : s->n;
        if (s->n_scored[i] == 0) continue;
        out->places[out->n_places++] = (weir_perplexity_place
        ){ first, end, s->n_scored[i], s->nll[i] / (double)s->n_scored[i] };
        out->n_scored += s->n_scored[i];
        nll += s->nll[i];
    }
    out->nll = nll / (double)out->n_scored;
    out->perplexity = exp(out->nll);
    out->bits_per_byte = out->nll / log(2.0) * (double)n_tokens / (double)n_bytes;
}

weir_status weir_eval_tokens(
    weir_ids *ids, size_t *n_bytes, const weir_engine *engine, const char *path, weir_error *error
)
{
    const weir_tokenizer *const tokenizer = weir_engine_tokenizer(engine);
    weir_buffer text = { 0 };
    if (tokenizer == NULL)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "the model has no tokenizer: the text cannot be scored"
        );
    weir_status status = weir_file_read_input(&text, path, MAX_TEXT, error);
    *n_bytes = text.size;
    if (status == WEIR_OK)
        status = weir_tokenizer_encode(
            tokenizer, ids, text.data, text.size, &(weir_encode_options){ .parse_special = true },
            error
        );
    weir_buffer_free(&text);
    return status;
}

/* Scores one window, or the whole stream. */
static weir_status score_window(
    scorer *s, const weir_engine *engine, weir_kv_sequence *sequence, weir_policy_run *policy_run,
    weir_error *error
)
{
    weir_evaluation evaluation = { .tokens = s->window,
                                   .n_tokens = s->n,
                                   .chunk = policy_run != NULL ? PIECE : 0,
                                   .decode_from = INT32_MAX,
                                   .visit = on_logits,
                                   .user = s,
                                   .stopped = &weir_interrupted };
    weir_kv_sequence_clear(sequence);
    if (policy_run != NULL) sequence->policy_run = weir_policy_run_begin(policy_run, 0, 0, 0);
    WEIR_TRY(weir_evaluate(weir_engine_runner(engine), sequence, &evaluation, error));
    const weir_policy_run_count count = weir_runner_count(weir_engine_runner(engine), sequence);
    s->n_kept += count.live;
    s->n_evicted += count.evicted;
    s->kv_bytes += (int64_t)weir_kv_sequence_kv_bytes(sequence);
    s->n_windows++;
    return WEIR_OK;
}

/* Methods that act only at the end of prompts are also run whenever `every` rows exceed the
 * budget. */
static weir_status open_policy_run(
    weir_policy_run **out, const weir_engine *engine, int32_t window, int32_t every,
    weir_error *error
)
{
    const weir_service_policy *const configured = weir_engine_policy(engine);
    if (every == 0 || configured == NULL)
        return weir_engine_policy_run_open(engine, out, NULL, 1, window, 0, PIECE, error);
    weir_service_policy policy = *configured;
    policy.options.every = every;
    policy.options.trigger = WEIR_TRIGGER_SLACK;
    return weir_engine_policy_run_open(engine, out, &policy, 1, window, 0, PIECE, error);
}

static weir_status score_windows(
    scorer *s, const weir_engine *engine, const weir_ids *ids, bool is_stream, int32_t every,
    weir_error *error
)
{
    weir_kv_sequence sequence = { 0 };
    weir_policy_run *policy_run = NULL;
    WEIR_TRY(open_policy_run(&policy_run, engine, s->n, every, error));
    weir_status status = weir_kv_sequence_open(
        &sequence, weir_engine_store(engine), weir_engine_ledger(engine),
        weir_model_recurrent_bytes(weir_engine_model(engine)), error
    );
    s->n_vocab = weir_model_shape(weir_engine_model(engine))->n_vocab;
    s->n_valid = (int64_t)weir_tokenizer_size(weir_engine_tokenizer(engine));
    s->place_tokens = place_tokens(s->n);
    const size_t n_windows = is_stream ? 1 : ids->count / (size_t)s->n;
    s->is_stream = is_stream;
    weir_progress_begin(
        "scoring", is_stream ? "tokens" : "windows", is_stream ? s->n : (int64_t)n_windows
    );
    for (size_t i = 0; status == WEIR_OK && i < n_windows; i++) {
        s->window = ids->data + i * (size_t)s->n;
        status = weir_progress_step((int64_t)i, error);
        if (status == WEIR_OK) status = score_window(s, engine, &sequence, policy_run, error);
        status = weir_progress_after(status, is_stream ? sequence.n_computed : (int64_t)i, error);
    }
    weir_progress_end();
    weir_kv_sequence_close(&sequence);
    weir_policy_run_close(policy_run);
    return status;
}

weir_status weir_eval_perplexity(
    weir_perplexity *out, const weir_engine *engine, const char *path, int32_t window,
    int32_t every, weir_error *error
)
{
    const int32_t most = weir_engine_plan_of(engine)->facts.window;
    scorer s = { .n = window };
    weir_ids ids = { 0 };
    size_t n_bytes = 0;
    if (window < 0 || window == 1 || window > most)
        return weir_error_set(
            error, WEIR_EINVAL, "the window is %d tokens, allowed is 2 to %d", (int)window,
            (int)most
        );
    weir_status status = weir_eval_tokens(&ids, &n_bytes, engine, path, error);
    if (status == WEIR_OK && window == 0)
        s.n = ids.count < (size_t)most ? (int32_t)ids.count : most;
    if (status == WEIR_OK && (ids.count < (size_t)s.n || s.n < 2))
        status = weir_error_set(
            error, WEIR_EINVAL, "%s: %zu tokens, fewer than one window of %d", path, ids.count,
            (int)(s.n < 2 ? 2 : s.n)
        );
    if (status == WEIR_OK) status = score_windows(&s, engine, &ids, window == 0, every, error);
    if (status == WEIR_OK) summarise(out, &s, ids.count, n_bytes);
    weir_ids_free(&ids);
    return status;
}
