/* engine/cli/run_chat.c - weir chat: a conversation in the terminal. Ctrl-C stops the answer,
 * Ctrl-D ends the program. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/cli/answer.h"
#include "engine/cli/open.h"
#include "engine/cli/prompt.h"
#include "engine/text/turns.h"

typedef struct conversation {
    const weir_engine *engine;
    json_t *messages;
    weir_detokenizer stream;
    weir_buffer answer; /* so far */
    weir_sampling sampling;
    int32_t max_tokens;
    bool is_terminal;
} conversation;

static bool on_token(void *user, int32_t token)
{
    conversation *const c = user;
    const weir_tokenizer *const tokenizer = weir_engine_tokenizer(c->engine);
    const size_t before = c->answer.size;
    if (weir_detokenizer_token(&c->stream, tokenizer, &c->answer, token, true) != WEIR_OK ||
        c->answer.size == before)
        return true;
    return fwrite(c->answer.data + before, 1, c->answer.size - before, stdout) ==
               c->answer.size - before &&
           fflush(stdout) == 0;
}

static weir_status add_message(
    conversation *c, const char *role, const char *text, size_t length, weir_error *error
)
{
    json_t *const message = json_pack("{s:s, s:s%}", "role", role, "content", text, length);
    if (message == NULL || json_array_append_new(c->messages, message) != 0)
        return weir_error_set(error, WEIR_EINVAL, "this is not valid UTF-8 text");
    return WEIR_OK;
}

static weir_status answer_once(conversation *c, weir_error *error)
{
    weir_ids ids = { 0 };
    weir_cli_answer answer = { 0 };
    weir_status status = weir_prompt_from_messages(&ids, NULL, c->engine, c->messages, error);
    if (status == WEIR_OK) {
        const int32_t window = weir_service_facts_of(weir_engine_service(c->engine))->window;
        const int32_t left = window > (int32_t)ids.count ? window - (int32_t)ids.count : 1;
        weir_request request = { .prompt = ids.data,
                                 .n_prompt = (int32_t)ids.count,
                                 .n_choices = 1,
                                 .cache_prompt = true,
                                 .sampling = c->sampling,
                                 .max_tokens = c->max_tokens > 0 && c->max_tokens < left
                                                   ? c->max_tokens
                                                   : left };
        weir_turn_starts(
            weir_engine_tokenizer(c->engine), ids.data, ids.count, request.turn_starts,
            WEIR_TURN_STARTS
        );
        weir_buffer_clear(&c->answer);
        c->stream = (weir_detokenizer){ 0 };
        weir_interrupted = 0;
        status = weir_cli_answer_wait(
            &answer, weir_engine_service(c->engine), &request, on_token, c, &weir_interrupted, error
        );
        if (status == WEIR_OK) status = weir_detokenizer_finish(&c->stream, &c->answer);
        (void)puts(weir_interrupted ? " [stopped]" : "");
    }
    if (status == WEIR_OK)
        status = add_message(
            c, "assistant", c->answer.data != NULL ? c->answer.data : "", c->answer.size, error
        );
    weir_cli_answer_free(&answer);
    weir_ids_free(&ids);
    return status;
}

/* Reads the next line without its newline. Returns false at the end of the input. Ctrl-C while
 * typing discards the line. */
static bool read_line(const conversation *c, char **line, size_t *capacity, size_t *length)
{
    for (;;) {
        if (c->is_terminal) (void)fputs("> ", stdout);
        (void)fflush(stdout);
        weir_interrupted = 0;
        const ssize_t n = getline(line, capacity, stdin);
        if (n < 0 && weir_interrupted) {
            clearerr(stdin);
            (void)puts("\n(Ctrl-D ends the conversation)");
            continue;
        }
        if (n < 0) return false;
        *length = (size_t)n;
        while (*length > 0 && ((*line)[*length - 1] == '\n' || (*line)[*length - 1] == '\r'))
            (*length)--;
        if (*length > 0) return true;
    }
}

static int converse(conversation *c, const char *system)
{
    char *line = NULL;
    size_t capacity = 0, length = 0;
    weir_error error = { 0 };
    weir_status status =
        system != NULL ? add_message(c, "system", system, strlen(system), &error) : WEIR_OK;
    while (status == WEIR_OK && read_line(c, &line, &capacity, &length)) {
        const size_t before = json_array_size(c->messages);
        if (add_message(c, "user", line, length, &error) == WEIR_OK &&
            answer_once(c, &error) == WEIR_OK)
            continue;
        /* The conversation continues without this turn. */
        (void)fprintf(stderr, "weir: %s\n", error.text);
        while (json_array_size(c->messages) > before)
            (void)json_array_remove(c->messages, json_array_size(c->messages) - 1);
    }
    if (c->is_terminal) (void)putchar('\n');
    free(line);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, &error);
}

int weir_run_chat(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_config config = arguments->config;
    config.batch.max_sequences = 1;
    int code = weir_open(&engine, &config, WEIR_USE_SERVICE);
    if (code != WEIR_EXIT_OK) return code;
    weir_error error = { 0 };
    const weir_status status = weir_prompt_need_chat(engine, &error);
    if (status != WEIR_OK) {
        weir_engine_close(engine);
        return weir_fail(status, &error);
    }
    conversation c = { .engine = engine,
                       .messages = json_array(),
                       .sampling = weir_sampling_of(&config),
                       .is_terminal = isatty(STDIN_FILENO) != 0,
                       .max_tokens = (int32_t)(config.sampling.max_tokens < INT32_MAX
                                                   ? config.sampling.max_tokens
                                                   : INT32_MAX) };
    weir_catch_interrupts();
    code = converse(&c, weir_argument(arguments, "system"));
    weir_buffer_free(&c.answer);
    json_decref(c.messages);
    weir_engine_close(engine);
    return code;
}
