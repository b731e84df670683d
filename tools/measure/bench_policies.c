#include "tools/measure/bench_policies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/cli/progress.h"
#include "engine/engine_parts.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/schedule/runner.h"
#include "offload/bandwidth.h"
#include "offload/dispatch.h"

enum {
    /* TAIL: tokens of a prompt that are computed; no window of queries is longer. */
    MAX_PAIRS = 64,
    TAIL = 64
};

typedef struct paired {
    const weir_engine *engine;
    weir_runner *runner;
    const weir_policy_bench_options *options;
    weir_kv_sequence plain, policy, work; /* work: a fork of one of the others */
    weir_policy_run *policy_run; /* of policy and work */
    int32_t *tokens; /* any ids */
    int32_t n_pairs; /* taken so far */
} paired;

typedef struct timed_run {
    double seconds, evicting; /* evicting: part of seconds */
} timed_run;

/* ---- steps ----------------------------------------------------------------------------------- */

/* A step of n tokens, then the policy's eviction. */
static weir_status step(
    paired *p, weir_kv_sequence *s, int32_t n, double *evicting, weir_error *error
)
{
    weir_batch_item item = { .sequence = s, .n_rows = n, .wanted = WEIR_LOGITS_LAST };
    const float *logits;
    memcpy(s->tokens + s->n_tokens, p->tokens, (size_t)n * sizeof *p->tokens);
    s->n_tokens += n;
    WEIR_TRY(weir_runner_step(p->runner, &item, 1, &logits, error));
    const int64_t start = weir_clock_ns();
    WEIR_TRY(weir_runner_evict(p->runner, s, error));
    *evicting += (double)(weir_clock_ns() - start) * 1e-9;
    weir_runner_move(p->runner, &item, 1, 0);
    return WEIR_OK;
}

static weir_status decode(
    paired *p, weir_kv_sequence *s, int32_t n, timed_run *out, weir_error *error
)
{
    const int64_t start = weir_clock_ns();
    *out = (timed_run){ 0 };
    for (int32_t i = 0; i < n; i++) {
        if (weir_interrupted) return weir_progress_interrupted(p->n_pairs, error);
        WEIR_TRY(step(p, s, 1, &out->evicting, error));
    }
    out->seconds = (double)(weir_clock_ns() - start) * 1e-9;
    return WEIR_OK;
}

/* A policy that never acts after the prompt is opened again for each run, as the plain cache is;
 * others continue. */
static weir_status take_run(paired *p, bool is_policy, timed_run *out, weir_error *error)
{
    weir_kv_sequence *const base = is_policy ? &p->policy : &p->plain;
    if (is_policy && weir_policy_options_of(weir_policy_run_policy(p->policy_run))->every > 0)
        return decode(p, base, p->options->n_tokens, out, error);
    weir_kv_sequence_clear(&p->work);
    if (is_policy)
        p->work.policy_run = weir_policy_run_begin(p->policy_run, 1, p->options->depth, 0);
    if (weir_kv_sequence_fork(&p->work, base) != WEIR_OK)
        return weir_error_set(error, WEIR_EFULL, "no memory for page tables; raise memory.host");
    return decode(p, &p->work, p->options->n_tokens, out, error);
}

/* ---- a policy -------------------------------------------------------------------------------- */

static weir_policy_run_options run_options_for(const paired *p, const weir_policy_options *policy)
{
    const weir_service_policy *const model = weir_engine_policy(p->engine);
    weir_policy_run_options run = { .policy = policy,
                                    .budget = p->options->budget,
                                    .shape = model->shape,
                                    .layers = model->layers,
                                    .calibration = model->calibration,
                                    .n_sequences = 1,
                                    .n_new = weir_runner_limits_of(p->runner)->rows,
                                    .n_prompt = p->options->depth };
    run.shape.max_rows = weir_policy_bench_tokens(p->options);
    return run;
}

static weir_status open_policy_run(
    paired *p, const weir_policy_options *policy, weir_policy_bench_row *row, weir_error *error
)
{
    weir_policy_run_options run = run_options_for(p, policy);
    weir_policy_run_size size;
    WEIR_TRY(weir_policy_run_measure(&size, &run, error));
    row->memory_bytes = size.bytes;
    run.n_sequences = 2;
    return weir_policy_run_open(&p->policy_run, &run, weir_engine_ledger(p->engine), error);
}

/* The prompt: noise, then TAIL tokens that the policy observes. */
static weir_status read_prompt(paired *p, weir_policy_bench_row *row, weir_error *error)
{
    double seconds = 0;
    weir_kv_sequence_clear(&p->policy);
    p->policy.policy_run = weir_policy_run_begin(p->policy_run, 0, p->options->depth, 0);
    WEIR_TRY(weir_bench_fill(p->runner, &p->policy, p->tokens, p->options->depth - TAIL, error));
    WEIR_TRY(step(p, &p->policy, TAIL, &seconds, error));
    row->prompt_ms = seconds * 1e3;
    return WEIR_OK;
}

static weir_status take_pairs(paired *p, weir_policy_bench_row *row, weir_error *error)
{
    double ratios[MAX_PAIRS], plain[MAX_PAIRS], policy[MAX_PAIRS], evicting = 0;
    const double n = (double)p->options->n_tokens;
    const int32_t n_pairs = p->options->n_pairs;
    timed_run warm_up, runs[2]; /* the plain cache's, the policy's */
    weir_progress_begin(row->name, "pairs", n_pairs);
    p->n_pairs = 0;
    WEIR_TRY(take_run(p, false, &warm_up, error));
    WEIR_TRY(take_run(p, true, &warm_up, error));
    for (int32_t i = 0; i < n_pairs; i++) {
        WEIR_TRY(weir_progress_step(i, error)); /* nothing is printed while the clock runs */
        WEIR_TRY(take_run(p, i % 2 != 0, &runs[i % 2], error));
        WEIR_TRY(take_run(p, i % 2 == 0, &runs[1 - i % 2], error));
        plain[i] = n / runs[0].seconds;
        policy[i] = n / runs[1].seconds;
        ratios[i] = runs[0].seconds / runs[1].seconds;
        evicting += runs[1].evicting;
        p->n_pairs = i + 1;
    }
    weir_progress_end();
    row->evict_ms = evicting / (n * (double)n_pairs) * 1e3;
    row->plain = weir_bench_summarise(plain, n_pairs);
    row->policy = weir_bench_summarise(policy, n_pairs);
    row->ratio = weir_bench_summarise(ratios, n_pairs);
    return WEIR_OK;
}

static weir_status run_policy(
    paired *p, const weir_policy_options *policy, weir_policy_bench_row *row, weir_error *error
)
{
    const int32_t n_threads = weir_stream_threads(weir_engine_stream(p->engine));
    weir_bandwidth before = { 0 }, after = { 0 };
    WEIR_TRY(open_policy_run(p, policy, row, error));
    WEIR_TRY(read_prompt(p, row, error));
    WEIR_TRY(weir_bandwidth_measure(&before, n_threads, 0, 0, error));
    WEIR_TRY(take_pairs(p, row, error));
    WEIR_TRY(weir_bandwidth_measure(&after, n_threads, 0, 0, error));
    row->bandwidth = weir_bench_larger(&before, &after);
    row->n_live =
        weir_policy_run_count_of(p->policy.policy_run, &p->policy.table, p->policy.n_computed).live;
    return WEIR_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* The next item of "name;name:options". */
static weir_status next_policy(
    weir_policy_options *policy, char name[256], const char **list, weir_error *error
)
{
    const size_t n = strcspn(*list, ";");
    if (n == 0 || n > 255)
        return weir_error_set(error, WEIR_EINVAL, "policies: one is empty or too long");
    (void)snprintf(name, 256, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ';');
    char *const colon = strchr(name, ':');
    if (colon != NULL) *colon = '\0';
    WEIR_TRY(weir_policy_options_default(policy, name, error));
    if (weir_policy_is_full(policy))
        return weir_error_set(
            error, WEIR_EINVAL, "policies: \"%s\" keeps every row; the others are compared with it",
            name
        );
    if (colon == NULL) return WEIR_OK;
    WEIR_TRY(weir_policy_options_set(policy, colon + 1, error));
    *colon = ':';
    return WEIR_OK;
}

weir_status weir_policy_bench_check(const weir_policy_bench_options *options, weir_error *error)
{
    const char *list = options->policies;
    if (options->n_pairs < 1 || options->n_pairs > MAX_PAIRS || options->n_tokens < 1)
        return weir_error_set(
            error, WEIR_EINVAL, "bench of policies takes 1 to %d pairs of at least 1 token",
            (int)MAX_PAIRS
        );
    if (options->budget < 1 || options->depth <= TAIL || options->budget > options->depth)
        return weir_error_set(
            error, WEIR_EINVAL,
            "bench of policies needs a budget of rows, and a depth of at least "
            "that and more than %d",
            (int)TAIL
        );
    for (int32_t n = 0; *list != '\0'; n++) {
        weir_policy_options policy;
        char name[256];
        if (n == WEIR_POLICY_BENCH_ROWS)
            return weir_error_set(
                error, WEIR_EINVAL, "policies: at most %d", (int)WEIR_POLICY_BENCH_ROWS
            );
        WEIR_TRY(next_policy(&policy, name, &list, error));
    }
    return WEIR_OK;
}

/* Checks all policies with the model's statistics and the budget before the first is measured. */
static weir_status check_policies(const paired *p, weir_error *error)
{
    for (const char *list = p->options->policies; *list != '\0';) {
        weir_policy_options policy;
        weir_policy_run_size size;
        char name[256];
        WEIR_TRY(next_policy(&policy, name, &list, error));
        const weir_policy_run_options run = run_options_for(p, &policy);
        const weir_status status = weir_policy_run_measure(&size, &run, error);
        if (status != WEIR_OK) return weir_error_prefix(error, status, "%s", name);
    }
    return WEIR_OK;
}

static weir_status run_policies(
    paired *p, weir_policy_bench_report *out, void (*progress)(const weir_policy_bench_row *row),
    weir_error *error
)
{
    const char *list = p->options->policies;
    while (*list != '\0') {
        weir_policy_bench_row *const row = &out->rows[out->n_rows];
        weir_policy_options policy;
        WEIR_TRY(next_policy(&policy, row->name, &list, error));
        const weir_status status = run_policy(p, &policy, row, error);
        weir_kv_sequence_clear(&p->work);
        weir_kv_sequence_clear(&p->policy);
        weir_policy_run_close(p->policy_run);
        p->policy_run = NULL;
        if (status != WEIR_OK) return weir_error_prefix(error, status, "%s", row->name);
        out->n_rows++;
        if (progress != NULL) progress(row);
    }
    return WEIR_OK;
}

int64_t weir_policy_bench_tokens(const weir_policy_bench_options *options)
{
    return (int64_t)options->depth + (int64_t)options->n_tokens * (options->n_pairs + 1);
}

static weir_status check_options(
    const weir_policy_bench_options *options, const weir_engine *engine, weir_error *error
)
{
    const int32_t window = weir_engine_plan_of(engine)->facts.window;
    if (weir_engine_policy(engine) == NULL)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "this model has no KV rows that a policy could drop"
        );
    if (weir_policy_bench_tokens(options) > window)
        return weir_error_set(
            error, WEIR_EINVAL,
            "depth %d and %d runs of %d tokens do not fit the window of %d (model.context)",
            (int)options->depth, (int)(options->n_pairs + 1), (int)options->n_tokens, (int)window
        );
    return WEIR_OK;
}

static weir_status open_sequences(paired *p, weir_error *error)
{
    weir_kv_sequence *const sequences[] = { &p->plain, &p->policy, &p->work };
    const size_t n = (size_t)weir_engine_plan_of(p->engine)->facts.window;
    const int64_t n_vocab = weir_runner_n_vocab(p->runner);
    p->tokens = calloc(n, sizeof *p->tokens);
    if (p->tokens == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for %zu tokens", n);
    for (size_t i = 0; i < n; i++) p->tokens[i] = (int32_t)((i * 2654435761u) % (size_t)n_vocab);
    for (int i = 0; i < 3; i++)
        WEIR_TRY(weir_kv_sequence_open(
            sequences[i], weir_engine_store(p->engine), weir_engine_ledger(p->engine),
            weir_model_recurrent_bytes(weir_engine_model(p->engine)), error
        ));
    return weir_bench_fill(p->runner, &p->plain, p->tokens, (int32_t)p->options->budget, error);
}

weir_status weir_policy_bench_run(
    weir_policy_bench_report *out, const weir_engine *engine,
    const weir_policy_bench_options *options, void (*progress)(const weir_policy_bench_row *row),
    weir_error *error
)
{
    paired p = { .engine = engine, .runner = weir_engine_runner(engine), .options = options };
    *out = (weir_policy_bench_report){ 0 };
    WEIR_TRY(weir_policy_bench_check(options, error));
    WEIR_TRY(check_options(options, engine, error));
    WEIR_TRY(check_policies(&p, error));
    weir_status status = open_sequences(&p, error);
    if (status == WEIR_OK) status = run_policies(&p, out, progress, error);
    weir_kv_sequence_close(&p.work);
    weir_kv_sequence_close(&p.policy);
    weir_kv_sequence_close(&p.plain);
    weir_policy_run_close(p.policy_run);
    free(p.tokens);
    return status;
}
