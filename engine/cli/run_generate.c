/* engine/cli/run_generate.c - weir generate: one prompt, one answer. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/cli/answer.h"
#include "engine/cli/explain.h"
#include "engine/cli/open.h"
#include "engine/cli/prompt.h"
#include "engine/cli/session.h"

/* Prints tokens as text while they come. */
typedef struct printer {
    const weir_tokenizer *tokenizer;
    weir_detokenizer      stream;
    weir_buffer           text;
    bool                  is_lost; /* stdout took no more */
} printer;

static void print_text(printer *p)
{
    if (fwrite(p->text.data, 1, p->text.size, stdout) != p->text.size || fflush(stdout) != 0) p->is_lost = true;
}

static bool print_token(void *user, int32_t token)
{
    printer *const    p = user;
    size_t            length;
    bool              special;
    const char *const bytes = weir_tokenizer_token_bytes(p->tokenizer, token, &length, &special);
    weir_buffer_clear(&p->text);
    if (special || weir_detokenizer_push(&p->stream, &p->text, bytes, length) != WEIR_OK) return true;
    print_text(p);
    return !p->is_lost;
}

static void print_end(printer *p)
{
    weir_buffer_clear(&p->text);
    if (weir_detokenizer_finish(&p->stream, &p->text) == WEIR_OK && weir_buffer_text(&p->text, "\n") == WEIR_OK) print_text(p);
}

static json_t *ids_json(const weir_cli_answer *answer)
{
    json_t *const list = json_array();
    for (size_t i = 0; i < answer->tokens.count; i++) (void)json_array_append_new(list, json_integer(answer->tokens.data[i]));
    if (answer->stop_token >= 0) (void)json_array_append_new(list, json_integer(answer->stop_token));
    return list;
}

static int print_json(const weir_engine *engine, const weir_cli_answer *answer)
{
    weir_buffer text = { 0 };
    if (weir_engine_tokenizer(engine) != NULL &&
        weir_tokenizer_decode(weir_engine_tokenizer(engine), &text, answer->tokens.data, answer->tokens.count, true) != WEIR_OK)
        weir_buffer_clear(&text);
    json_t *const out = json_pack("{s:o, s:s%, s:s, s:i, s:i, s:i, s:f, s:f}", "tokens", ids_json(answer), "text",
                                  text.data != NULL ? text.data : "", text.size, "finish_reason",
                                  answer->finish == WEIR_FINISH_STOP     ? "stop"
                                  : answer->finish == WEIR_FINISH_LENGTH ? "length"
                                                                         : "cancelled",
                                  "prompt_tokens", (int)answer->usage.n_prompt, "cached_tokens", (int)answer->usage.n_cached,
                                  "completion_tokens", (int)answer->usage.n_answer, "prefill_seconds",
                                  (double)answer->usage.prefill_ns * 1e-9, "decode_seconds", (double)answer->usage.decode_ns * 1e-9);
    weir_buffer_free(&text);
    char *const line = out != NULL ? json_dumps(out, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(out);
    if (line == NULL) return WEIR_EXIT_FAILED;
    const bool written = puts(line) >= 0 && fflush(stdout) == 0;
    free(line);
    if (!written) (void)fputs("weir: cannot write to stdout\n", stderr);
    return written ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}

int weir_run_generate(const weir_arguments *arguments)
{
    weir_engine    *engine = NULL;
    weir_error      error = { 0 };
    weir_ids        ids = { 0 };
    weir_cli_answer answer = { 0 };
    const bool      as_json = weir_argument_given(arguments, "json");
    if (weir_argument_given(arguments, "explain")) return weir_run_explain(&arguments->config);
    const int code = weir_open(&engine, &arguments->config, WEIR_USE_SERVICE);
    if (code != WEIR_EXIT_OK) return code;
    printer           p = { .tokenizer = weir_engine_tokenizer(engine) };
    weir_status       status = weir_prompt_from_arguments(&ids, engine, arguments, &error);
    const char *const session = weir_argument(arguments, "session");
    if (status == WEIR_OK && session != NULL) status = weir_session_resume(engine, session, &error);
    if (status == WEIR_OK) {
        const int64_t      most = arguments->config.sampling.max_tokens > 0 ? arguments->config.sampling.max_tokens : INT32_MAX;
        const weir_request request = { .prompt = ids.data,
                                       .n_prompt = (int32_t)ids.count,
                                       .max_tokens = (int32_t)(most < INT32_MAX ? most : INT32_MAX),
                                       .n_choices = 1,
                                       .cache_prompt = session != NULL,
                                       .session = session,
                                       .sampling = weir_sampling_of(&arguments->config) };
        weir_catch_interrupts();
        const bool stream = !as_json && p.tokenizer != NULL;
        status = weir_cli_answer_wait(&answer, weir_engine_service(engine), &request, stream ? print_token : NULL, &p, &weir_interrupted,
                                      &error);
        if (stream && status == WEIR_OK) print_end(&p);
        if (status == WEIR_OK && session != NULL) status = weir_session_keep(engine, session, NULL, &error);
        if (p.is_lost) status = weir_error_set(&error, WEIR_EIO, "cannot write to stdout");
    }
    int result = status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, &error);
    if (status == WEIR_OK && (as_json || p.tokenizer == NULL)) result = print_json(engine, &answer);
    if (weir_interrupted) result = 130;
    weir_buffer_free(&p.text);
    weir_cli_answer_free(&answer);
    weir_ids_free(&ids);
    weir_engine_close(engine);
    return result;
}
