/* tools/measure/run_verify.c - weir verify: logits and greedy tokens of prompts, compared with
 * those of llama.cpp, transformers or another program. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/cli/open.h"
#include "engine/engine_parts.h"
#include "engine/schedule/evaluate.h"
#include "tools/convert/compare.h"
#include "tools/convert/peer.h"
#include "tools/measure/evaluate.h"

enum { N_PROMPTS = 4, WINDOW = 64, N_GREEDY = 16 };

typedef struct run {
    const weir_arguments *arguments;
    const weir_engine *engine;
    weir_ids ids; /* of all prompts, one after another */
    int32_t n_prompts, window, n_greedy;
    int64_t n_vocab;
    float *own, *other; /* [window, n_vocab] */
    int32_t *own_ids, *other_ids; /* [n_greedy] */
    weir_difference sum;
    int64_t n_tokens, n_same; /* greedy tokens, and those before the first that differs */
    double limit; /* of the mean KL divergence */
} run;

/* ---- Weir's side ----------------------------------------------------------------------------- */
static void keep(void *user, int32_t first, int32_t n_rows, const float *logits)
{
    run *const r = user;
    for (int32_t i = 0; i < n_rows && first + i < r->window; i++)
        memcpy(
            r->own + (int64_t)(first + i) * r->n_vocab, logits + (int64_t)i * r->n_vocab,
            (size_t)r->n_vocab * sizeof *logits
        );
}

static weir_status compute(
    run *r, weir_kv_sequence *sequence, const int32_t *tokens, int32_t n, bool is_prompt,
    const float **last, weir_error *error
)
{
    weir_evaluation e = { .tokens = tokens,
                          .n_tokens = n,
                          .decode_from = is_prompt ? INT32_MAX : 0,
                          .visit = is_prompt ? keep : NULL,
                          .user = r,
                          .stopped = &weir_interrupted };
    WEIR_TRY(weir_evaluate(weir_engine_runner(r->engine), sequence, &e, error));
    *last = is_prompt ? r->own + (int64_t)(n - 1) * r->n_vocab : e.last;
    return WEIR_OK;
}

static weir_status compute_prompt(
    run *r, weir_kv_sequence *sequence, const int32_t *prompt, weir_error *error
)
{
    const float *last = NULL;
    weir_kv_sequence_clear(sequence);
    WEIR_TRY(compute(r, sequence, prompt, r->window, true, &last, error));
    for (int32_t i = 0; i < r->n_greedy; i++) {
        r->own_ids[i] = weir_largest(last, r->n_vocab);
        if (i + 1 < r->n_greedy)
            WEIR_TRY(compute(r, sequence, &r->own_ids[i], 1, false, &last, error));
    }
    return WEIR_OK;
}

/* ---- both ------------------------------------------------------------------------------------ */
static void compare_prompt(run *r, int32_t index)
{
    int32_t same = 0;
    for (int32_t i = 0; i < r->window; i++)
        weir_difference_add(
            &r->sum, r->own + (int64_t)i * r->n_vocab, r->other + (int64_t)i * r->n_vocab,
            r->n_vocab
        );
    while (same < r->n_greedy && r->own_ids[same] == r->other_ids[same]) same++;
    r->n_tokens += r->n_greedy;
    r->n_same += same;
    if (same < r->n_greedy && !weir_argument_given(r->arguments, "json"))
        (void)printf(
            "prompt %d: token %d after it is %d here and %d there\n", (int)index + 1, (int)same,
            (int)r->own_ids[same], (int)r->other_ids[same]
        );
}

static weir_status compare_all(run *r, weir_peer *peer, weir_error *error)
{
    weir_kv_sequence sequence = { 0 };
    weir_status status = weir_kv_sequence_open(
        &sequence, weir_engine_store(r->engine), weir_engine_ledger(r->engine),
        weir_model_recurrent_bytes(weir_engine_model(r->engine)), error
    );
    weir_progress_begin("comparing", "prompts", r->n_prompts);
    for (int32_t i = 0; status == WEIR_OK && i < r->n_prompts; i++) {
        status = weir_progress_step(i, error);
        if (status == WEIR_OK)
            status = compute_prompt(r, &sequence, r->ids.data + (int64_t)i * r->window, error);
        if (status == WEIR_OK)
            status = weir_peer_read(
                peer, r->other, r->window, r->n_vocab, r->other_ids, r->n_greedy, error
            );
        weir_progress_pause();
        if (status == WEIR_OK) compare_prompt(r, i);
    }
    weir_progress_end();
    weir_kv_sequence_close(&sequence);
    return status;
}

/* ---- the peer -------------------------------------------------------------------------------- */
/* The model and the prompts; paths are UTF-8, or the peer cannot open them. */
static weir_status put_lines(weir_buffer *out, const run *r)
{
    char *const path = realpath(r->arguments->config.model.path, NULL);
    weir_status status = path != NULL ? weir_buffer_text(out, "{\"model\": \"") : WEIR_EIO;
    for (const char *c = path; status == WEIR_OK && *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') status = weir_buffer_text(out, "\\");
        if (status == WEIR_OK) status = weir_buffer_add(out, c, 1);
    }
    free(path);
    if (status == WEIR_OK)
        status = weir_buffer_format(out, "\", \"generate\": %d}\n", (int)r->n_greedy);
    for (int32_t p = 0; status == WEIR_OK && p < r->n_prompts; p++) {
        for (int32_t i = 0; status == WEIR_OK && i < r->window; i++)
            status = weir_buffer_format(
                out, "%s%" PRId32, i > 0 ? "," : "[", r->ids.data[(int64_t)p * r->window + i]
            );
        if (status == WEIR_OK) status = weir_buffer_text(out, "]\n");
    }
    return status;
}

static weir_status with_peer(run *r, weir_error *error)
{
    const char *const against = weir_argument(r->arguments, "against"),
                      *const python = weir_argument(r->arguments, "python"),
                      *const program = weir_argument(r->arguments, "program");
    const bool is_known = against != NULL && (strcmp(against, "llama.cpp") == 0 ||
                                              strcmp(against, "transformers") == 0);
    if ((program == NULL) == (against == NULL) || (against != NULL && !is_known))
        return weir_error_set(
            error, WEIR_ECONFIG,
            "give either --against llama.cpp or transformers, or another --program"
        );
    const char *const known[] = { python != NULL ? python : "python3", "-c", weir_peer_script(),
                                  against, NULL };
    const char *const other[] = { program, NULL };
    weir_buffer lines = { 0 };
    weir_peer peer = { .fd = -1 };
    weir_status status = put_lines(&lines, r);
    if (status != WEIR_OK)
        status = weir_error_set(error, status, "no memory for the prompts");
    else
        status = weir_peer_start(
            &peer, program != NULL ? program : against, program != NULL ? other : known, &lines,
            error
        );
    if (status == WEIR_OK) status = compare_all(r, &peer, error);
    weir_peer_stop(&peer);
    weir_buffer_free(&lines);
    return status;
}

/* ---- prompts --------------------------------------------------------------------------------- */
static weir_status read_tokens(run *r, const char *list, weir_error *error)
{
    const char *at = list;
    while (*at != '\0') {
        char *end;
        const long id = strtol(at, &end, 10);
        if (end == at || id < 0 || id >= r->n_vocab || (*end != ',' && *end != '\0'))
            return weir_error_set(
                error, WEIR_EINVAL, "--tokens: '%.20s' is no id below %" PRId64, at, r->n_vocab
            );
        if (weir_ids_add(&r->ids, (int32_t)id) != WEIR_OK)
            return weir_error_set(error, WEIR_ENOMEM, "no memory for tokens");
        at = *end == ',' ? end + 1 : end;
    }
    r->window = (int32_t)r->ids.count;
    r->n_prompts = 1;
    return WEIR_OK;
}

static weir_status read_prompts(run *r, weir_error *error)
{
    const char *const text = weir_argument(r->arguments, "text"), *const tokens = weir_argument(
                                                                      r->arguments, "tokens"
                                                                  );
    size_t n_bytes;
    if ((text == NULL) == (tokens == NULL))
        return weir_error_set(error, WEIR_ECONFIG, "give either --text FILE or --tokens LIST");
    if (tokens != NULL) return read_tokens(r, tokens, error);
    WEIR_TRY(weir_eval_tokens(&r->ids, &n_bytes, r->engine, text, error));
    const int64_t n = (int64_t)r->ids.count / r->window;
    if (n < r->n_prompts)
        return weir_error_set(
            error, WEIR_EINVAL, "the text has %zu tokens, fewer than %d prompts of %d",
            r->ids.count, (int)r->n_prompts, (int)r->window
        );
    return WEIR_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */
static void print_result(const run *r)
{
    const weir_difference *const d = &r->sum;
    const double mean = d->sum / (double)d->n_logits, kl = d->kl_sum / (double)d->n_rows;
    const char *const format =
        weir_argument_given(r->arguments, "json")
            ? "{\"rows\": %" PRId64 ", \"max_difference\": %.9g, \"mean_difference\": %.9g, "
              "\"kl_mean\": %.9g, \"kl_max\": %.9g, \"other_best\": %" PRId64
              ", \"greedy_tokens\": %" PRId64 ", \"greedy_same\": %" PRId64 "}\n"
            : "%" PRId64 " rows: logits differ by at most %.3g, %.3g on average; KL divergence "
              "%.3g on average, at most %.3g; another best token in %" PRId64 " rows; of %" PRId64
              " greedy tokens %" PRId64 " come before one that differs\n";
    (void)printf(
        format, d->n_rows, d->most, mean, kl, d->kl_most, d->n_other_best, r->n_tokens, r->n_same
    );
}

/* What makes the exit code 1. */
static weir_status judge(const run *r, weir_error *error)
{
    const double kl = r->sum.kl_sum / (double)r->sum.n_rows;
    if (r->sum.is_broken) return weir_error_set(error, WEIR_EMISMATCH, "a logit is not finite");
    if (!(kl <= r->limit))
        return weir_error_set(
            error, WEIR_EMISMATCH, "the mean KL divergence is %.3g, more than %.3g (--max-kl)", kl,
            r->limit
        );
    if (weir_argument_given(r->arguments, "same-tokens") && r->n_same < r->n_tokens)
        return weir_error_set(error, WEIR_EMISMATCH, "greedy tokens differ (--same-tokens)");
    return WEIR_OK;
}

static weir_status verify(run *r, weir_error *error)
{
    WEIR_TRY(read_prompts(r, error));
    const size_t n = (size_t)r->window * (size_t)r->n_vocab;
    r->own = weir_memory_take_zero(n, sizeof *r->own);
    r->other = weir_memory_take_zero(n, sizeof *r->other);
    r->own_ids = weir_memory_take_zero((size_t)r->n_greedy, sizeof *r->own_ids);
    r->other_ids = weir_memory_take_zero((size_t)r->n_greedy, sizeof *r->other_ids);
    if (r->own == NULL || r->other == NULL || r->own_ids == NULL || r->other_ids == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for logits");
    WEIR_TRY(with_peer(r, error));
    print_result(r);
    return judge(r, error);
}

/* Tokens of a list of ids. */
static int32_t count_ids(const char *list)
{
    int32_t n = 1;
    for (; *list != '\0' && n < 1 << 20; list++) n += *list == ',';
    return n;
}

int weir_run_verify(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_config config = arguments->config;
    const char *const limit = weir_argument(arguments, "max-kl");
    char *end = NULL;
    run r = { .arguments = arguments,
              .n_prompts = (int32_t)weir_argument_int(arguments, "prompts", N_PROMPTS),
              .window = (int32_t)weir_argument_int(arguments, "window", WINDOW),
              .n_greedy = (int32_t)weir_argument_int(arguments, "gen", N_GREEDY),
              .limit = limit != NULL ? strtod(limit, &end) : 1e-3 };
    if (limit != NULL && (end == limit || *end != '\0' || !(r.limit >= 0.0)))
        return weir_end(
            weir_error_set(
                &error, WEIR_ECONFIG, "--max-kl \"%.40s\" is no number of 0 or more", limit
            ),
            &error
        );
    const char *const tokens = weir_argument(arguments, "tokens");
    config.batch.max_sequences = 1;
    config.model.context = (tokens != NULL ? count_ids(tokens) : r.window) + r.n_greedy;
    const int code = weir_open(&engine, &config, WEIR_USE_RUNNER);
    if (code != WEIR_EXIT_OK) return code;
    r.engine = engine;
    r.n_vocab = weir_model_shape(weir_engine_model(engine))->n_vocab;
    weir_stop_on_interrupt();
    const weir_status status = verify(&r, &error);
    weir_ids_free(&r.ids);
    weir_memory_give(r.own);
    weir_memory_give(r.other);
    weir_memory_give(r.own_ids);
    weir_memory_give(r.other_ids);
    weir_engine_close(engine);
    return weir_end(status, &error);
}
