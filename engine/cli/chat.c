/* engine/cli/chat.c - the turns of a conversation: lines from a terminal or a pipe, answers to
 * stdout. Ctrl-C stops the answer. */
#include "engine/cli/chat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/cli/editor.h"
#include "engine/cli/open.h"
#include "engine/cli/prompt.h"
#include "engine/formats/json.h"
#include "engine/text/turns.h"

enum { MAX_FILE = 64 << 20 };

static bool on_token(void *user, int32_t token)
{
    weir_chat *const c = user;
    const weir_tokenizer *const tokenizer = weir_engine_tokenizer(c->engine);
    const size_t before = c->answer.size;
    if (weir_detokenizer_token(&c->stream, tokenizer, &c->answer, token, true) != WEIR_OK ||
        c->answer.size == before)
        return true;
    const size_t n = c->answer.size - before;
    if (fwrite(c->answer.data + before, 1, n, stdout) != n || fflush(stdout) != 0) c->lost = errno;
    return c->lost == 0;
}

static json_t *message_of(const char *role, const char *text, size_t length)
{
    return json_pack("{s:s, s:s%}", "role", role, "content", text, length);
}

weir_status weir_chat_add(
    weir_chat *chat, const char *role, const char *text, size_t length, weir_error *error
)
{
    json_t *const message = message_of(role, text, length);
    if (message == NULL || json_array_append_new(chat->messages, message) != 0)
        return weir_error_set(error, WEIR_EINVAL, "this is not valid UTF-8 text");
    return WEIR_OK;
}

weir_status weir_chat_set_system(
    weir_chat *chat, const char *text, size_t length, weir_error *error
)
{
    const char *const role =
        json_string_value(json_object_get(json_array_get(chat->messages, 0), "role"));
    json_t *const message = length > 0 ? message_of("system", text, length) : NULL;
    if (length > 0 && message == NULL)
        return weir_error_set(error, WEIR_EINVAL, "this is not valid UTF-8 text");
    if (role != NULL && strcmp(role, "system") == 0) (void)json_array_remove(chat->messages, 0);
    if (message == NULL || json_array_insert_new(chat->messages, 0, message) == 0) return WEIR_OK;
    return weir_error_set(error, WEIR_ENOMEM, "no memory for this message");
}

static weir_request request_of(const weir_chat *c, const weir_ids *ids)
{
    const int32_t window = weir_service_facts_of(weir_engine_service(c->engine))->window;
    const int32_t left = window > (int32_t)ids->count ? window - (int32_t)ids->count : 1;
    weir_request request = { .prompt = ids->data,
                             .n_prompt = (int32_t)ids->count,
                             .n_choices = 1,
                             .cache_prompt = true,
                             .sampling = c->sampling,
                             .policy = c->has_policy ? &c->policy : NULL,
                             .kv_budget = c->kv_budget,
                             .max_tokens =
                                 c->max_tokens > 0 && c->max_tokens < left ? c->max_tokens : left };
    weir_turn_starts(
        weir_engine_tokenizer(c->engine), ids->data, ids->count, request.turn_starts,
        WEIR_TURN_STARTS
    );
    return request;
}

static weir_status answer_once(weir_chat *c, weir_error *error)
{
    weir_ids ids = { 0 };
    weir_cli_answer answer = { 0 };
    weir_status status = weir_prompt_from_messages(&ids, NULL, c->engine, c->messages, error);
    if (status == WEIR_OK) {
        const weir_request request = request_of(c, &ids);
        weir_buffer_clear(&c->answer);
        c->stream = (weir_detokenizer){ 0 };
        weir_interrupted = 0;
        status = weir_cli_answer_wait(
            &answer, weir_engine_service(c->engine), &request, on_token, c, &weir_interrupted, error
        );
        if (c->lost != 0) status = weir_stdout_lost(c->lost, error);
        if (status == WEIR_OK) status = weir_detokenizer_finish(&c->stream, &c->answer);
        (void)puts(weir_interrupted ? " [stopped]" : "");
    }
    if (status == WEIR_OK) {
        c->usage = answer.usage;
        c->has_usage = true;
        status = weir_chat_add(
            c, "assistant", c->answer.data != NULL ? c->answer.data : "", c->answer.size, error
        );
    }
    weir_cli_answer_free(&answer);
    weir_ids_free(&ids);
    return status;
}

/* Answers a message. The conversation continues without a turn that fails. */
static void answer_to(weir_chat *c, const char *line, size_t length)
{
    weir_error error = { 0 };
    const size_t before = json_array_size(c->messages);
    if (weir_chat_add(c, "user", line, length, &error) == WEIR_OK &&
        answer_once(c, &error) == WEIR_OK)
        return;
    (void)fprintf(stderr, "weir: %s\n", error.text);
    while (json_array_size(c->messages) > before)
        (void)json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Standard input. */
typedef struct input {
    weir_editor *editor; /* NULL: lines come as they are */
    bool is_terminal;
    char *text; /* owned [capacity], without an editor */
    size_t capacity;
} input;

static weir_editor_end plain_line(input *in, const char **line, size_t *length)
{
    if (in->is_terminal) (void)fputs("> ", stdout);
    (void)fflush(stdout);
    const ssize_t n = getline(&in->text, &in->capacity, stdin);
    if (n < 0 && weir_interrupted) {
        clearerr(stdin);
        return WEIR_EDITOR_INTERRUPTED;
    }
    if (n < 0) return WEIR_EDITOR_END;
    *line = in->text;
    *length = (size_t)n;
    while (*length > 0 && ((*line)[*length - 1] == '\n' || (*line)[*length - 1] == '\r'))
        (*length)--;
    return WEIR_EDITOR_LINE;
}

/* Reads the next line that is not empty. Returns false at the end of the input. Ctrl-C while typing
 * discards the line. */
static bool read_line(input *in, const char **line, size_t *length)
{
    for (;;) {
        weir_interrupted = 0;
        const weir_editor_end end = in->editor != NULL ? weir_editor_read(in->editor, line, length)
                                                       : plain_line(in, line, length);
        if (end == WEIR_EDITOR_END) return false;
        if (end == WEIR_EDITOR_INTERRUPTED) (void)puts("\n(Ctrl-D ends the conversation)");
        if (end == WEIR_EDITOR_LINE && *length > 0) return true;
    }
}

static void open_input(input *in)
{
    char path[PATH_MAX];
    weir_error error = { 0 };
    in->is_terminal = isatty(STDIN_FILENO) != 0;
    if (!in->is_terminal || !isatty(STDOUT_FILENO)) return;
    const bool has_path = weir_editor_history(path, sizeof path, "chat_history");
    if (weir_editor_open(&in->editor, "> ", has_path ? path : NULL, &error) != WEIR_OK)
        weir_log(WEIR_LOG_INFO, "%s", error.text);
}

static void close_input(input *in)
{
    weir_editor_close(in->editor);
    free(in->text);
}

/* ---- the conversation ------------------------------------------------------------------------ */

static void converse(weir_chat *c, input *in)
{
    const char *line = NULL;
    size_t length = 0;
    while (read_line(in, &line, &length)) {
        if (in->editor != NULL) weir_editor_keep(in->editor, line, length);
        /* A pipe has no commands: its lines are texts of others. */
        const bool is_slashed = in->is_terminal && line[0] == '/';
        if (is_slashed && weir_chat_is_command(line, length)) {
            if (!weir_chat_command(c, line, length)) return;
            continue;
        }
        answer_to(c, line + is_slashed, length - is_slashed);
        if (c->lost != 0) return;
    }
    if (in->is_terminal) (void)putchar('\n');
}

/* Contents are left to the template. */
static bool are_messages(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!json_is_string(json_object_get(json_array_get(messages, i), "role"))) return false;
    return json_is_array(messages);
}

/* Reads an array of messages, or an object that has one. */
static weir_status read_messages(weir_chat *c, const char *path, weir_error *error)
{
    json_t *chat = NULL;
    WEIR_TRY(weir_json_read_input(&chat, path, MAX_FILE, error));
    json_t *const messages = json_is_object(chat) ? json_object_get(chat, "messages") : chat;
    weir_status status = WEIR_OK;
    if (!are_messages(messages))
        status = weir_error_set(
            error, WEIR_EINVAL,
            "%.300s: must be a JSON array of messages with a \"role\", as /save writes it", path
        );
    else if (json_array_extend(c->messages, messages) != 0)
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for the conversation");
    json_decref(chat);
    return status;
}

static weir_status begin(weir_chat *c, const weir_chat_start *start, weir_error *error)
{
    WEIR_TRY(weir_prompt_need_chat(c->engine, error));
    if (start->messages != NULL) WEIR_TRY(read_messages(c, start->messages, error));
    if (start->system == NULL) return WEIR_OK;
    return weir_chat_set_system(c, start->system, strlen(start->system), error);
}

int weir_chat_run(const weir_config *given, const weir_chat_start *start)
{
    weir_engine *engine = NULL;
    weir_config config = *given;
    input in = { 0 };
    config.batch.max_sequences = 1;
    open_input(&in); /* while there are no other threads */
    int code = weir_open(&engine, &config, WEIR_USE_SERVICE);
    if (code != WEIR_EXIT_OK) {
        close_input(&in);
        return code;
    }
    const int64_t most = config.sampling.max_tokens;
    weir_chat c = { .engine = engine,
                    .messages = json_array(),
                    .sampling = weir_sampling_of(&config),
                    .max_tokens = (int32_t)(most < INT32_MAX ? most : INT32_MAX) };
    weir_error error = { 0 };
    const weir_status status = begin(&c, start, &error);
    weir_catch_interrupts();
    if (status == WEIR_OK)
        converse(&c, &in);
    else
        code = weir_fail(status, &error);
    if (c.lost != 0) code = WEIR_EXIT_FAILED;
    weir_buffer_free(&c.answer);
    json_decref(c.messages);
    weir_engine_close(engine);
    close_input(&in);
    return code;
}
