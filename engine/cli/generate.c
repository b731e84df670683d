#include "engine/cli/generate.h"

#include <errno.h>
#include <stdio.h>

#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/cli/command.h"
#include "engine/cli/open.h"
#include "engine/formats/json.h"
#include "engine/serve/kv_out.h"

/* Prints tokens as text as they come. */
typedef struct printer {
    const weir_tokenizer *tokenizer;
    weir_detokenizer stream;
    weir_buffer text;
    int lost; /* errno of a write to stdout that failed; 0: none did */
} printer;

static void print_text(printer *p)
{
    if (fwrite(p->text.data, 1, p->text.size, stdout) != p->text.size || fflush(stdout) != 0)
        p->lost = errno;
}

static bool print_token(void *user, int32_t token)
{
    printer *const p = user;
    weir_buffer_clear(&p->text);
    if (weir_detokenizer_token(&p->stream, p->tokenizer, &p->text, token, true) != WEIR_OK ||
        p->text.size == 0)
        return true;
    print_text(p);
    return p->lost == 0;
}

static void print_end(printer *p)
{
    weir_buffer_clear(&p->text);
    if (weir_detokenizer_finish(&p->stream, &p->text) == WEIR_OK &&
        weir_buffer_text(&p->text, "\n") == WEIR_OK)
        print_text(p);
}

static json_t *ids_json(const weir_cli_answer *answer)
{
    json_t *const list = json_array();
    for (size_t i = 0; i < answer->tokens.count; i++)
        (void)json_array_append_new(list, json_integer(answer->tokens.data[i]));
    if (answer->stop_token >= 0)
        (void)json_array_append_new(list, json_integer(answer->stop_token));
    return list;
}

/* {"kv": ..} as in `usage` of the HTTP API, or {}; NULL: out of memory. */
static json_t *kv_json(const weir_engine *engine, const weir_usage *usage)
{
    weir_buffer text = { 0 };
    weir_json_out out = { .buffer = &text };
    weir_json_open(&out, '{');
    weir_usage_kv_write(&out, weir_service_facts_of(weir_engine_service(engine)), usage);
    weir_json_close(&out, '}');
    json_t *json = NULL;
    if (out.status == WEIR_OK)
        (void)weir_json_build(&json, NULL, text.data, text.size, &weir_json_request);
    weir_buffer_free(&text);
    return json;
}

/* An answer continues its prompt, so a space that it begins with stays. */
static weir_status answer_text(
    weir_buffer *text, const weir_tokenizer *tokenizer, const weir_cli_answer *answer
)
{
    weir_detokenizer stream = { .n_held = 0 };
    for (size_t i = 0; i < answer->tokens.count; i++)
        WEIR_TRY(weir_detokenizer_token(&stream, tokenizer, text, answer->tokens.data[i], true));
    return weir_detokenizer_finish(&stream, text);
}

int weir_cli_print_answer(const weir_engine *engine, const weir_cli_answer *answer, json_t *more)
{
    weir_buffer text = { 0 };
    if (weir_engine_tokenizer(engine) != NULL &&
        answer_text(&text, weir_engine_tokenizer(engine), answer) != WEIR_OK)
        weir_buffer_clear(&text);
    json_t *const out = json_pack(
        "{s:o, s:s%, s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:f}", "tokens", ids_json(answer), "text",
        text.data != NULL ? text.data : "", text.size, "finish_reason",
        answer->finish == WEIR_FINISH_STOP     ? "stop"
        : answer->finish == WEIR_FINISH_LENGTH ? "length"
                                               : "cancelled",
        "prompt_tokens", (int)answer->usage.n_prompt, "cached_tokens", (int)answer->usage.n_cached,
        "completion_tokens", (int)answer->usage.n_answer, "drafted_tokens",
        (int)answer->usage.n_drafted, "accepted_tokens", (int)answer->usage.n_accepted,
        "prefill_seconds", (double)answer->usage.prefill_ns * 1e-9, "decode_seconds",
        (double)answer->usage.decode_ns * 1e-9
    );
    weir_buffer_free(&text);
    json_t *const kv = kv_json(engine, &answer->usage);
    if (out != NULL && kv != NULL) (void)json_object_update(out, kv);
    json_decref(kv);
    if (out != NULL && answer->usage.numerics != NULL)
        (void)json_object_set_new(out, "numerics", json_string(answer->usage.numerics));
    if (out != NULL && more != NULL) (void)json_object_update(out, more);
    char *const line =
        out != NULL ? weir_json_text(out, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(out);
    if (line == NULL) return WEIR_EXIT_FAILED;
    weir_error error = { 0 };
    const weir_status status = weir_print_line(line, &error);
    weir_memory_give(line);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, &error);
}

weir_status weir_cli_generate(
    weir_cli_answer *answer, const weir_engine *engine, const weir_config *config,
    const weir_cli_prompt *prompt, weir_error *error
)
{
    const int64_t most = config->sampling.max_tokens > 0 ? config->sampling.max_tokens : INT32_MAX;
    const weir_request request = { .prompt = prompt->ids->data,
                                   .n_prompt = (int32_t)prompt->ids->count,
                                   .max_tokens = (int32_t)(most < INT32_MAX ? most : INT32_MAX),
                                   .n_choices = 1,
                                   .cache_prompt = prompt->reuses,
                                   .session = prompt->session,
                                   .cache_salt = prompt->salt,
                                   .n_kept = prompt->n_kept,
                                   .sampling = weir_sampling_of(config) };
    printer p = { .tokenizer = weir_engine_tokenizer(engine) };
    const bool stream = !prompt->is_quiet && p.tokenizer != NULL;
    weir_catch_interrupts();
    weir_status status = weir_cli_answer_wait(
        answer, weir_engine_service(engine), &request, stream ? print_token : NULL, &p,
        &weir_interrupted, error
    );
    if (stream && status == WEIR_OK) print_end(&p);
    if (status == WEIR_OK && !prompt->is_quiet && answer->usage.numerics != NULL)
        weir_log(
            WEIR_LOG_WARNING,
            "the answer continues %d tokens that were computed with other numerics (%s): it may "
            "differ from a cold one",
            (int)answer->usage.n_cached, answer->usage.numerics
        );
    if (status == WEIR_OK && weir_interrupted)
        (void)fprintf(
            stderr, "weir: interrupted after %zu tokens of the answer\n", answer->tokens.count
        );
    if (p.lost != 0) status = weir_stdout_lost(p.lost, error);
    weir_buffer_free(&p.text);
    return status;
}
