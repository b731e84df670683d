#include "engine/cli/prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "engine/formats/json.h"
#include "engine/text/messages.h"

enum { MAX_FILE = 64 << 20 };
#define HOW_TO_GIVE "give one of --prompt, --file, --tokens and --messages"

weir_status weir_prompt_from_list(
    weir_ids *ids, const char *list, int64_t n_vocab, weir_error *error
)
{
    const char *at = list;
    for (;;) {
        char *end;
        errno = 0;
        const long long id = strtoll(at, &end, 10);
        if (end == at || errno != 0)
            return weir_error_set(
                error, WEIR_EINVAL,
                "token list: expected a number at '%.20s'; write ids like 1,2,3", at
            );
        if (id < 0 || id >= n_vocab)
            return weir_error_set(
                error, WEIR_EINVAL, "token list: %lld is not in the vocabulary of %lld", id,
                (long long)n_vocab
            );
        if (weir_ids_add(ids, (int32_t)id) != WEIR_OK)
            return weir_error_set(error, WEIR_ENOMEM, "no memory for the token list");
        at = end + strspn(end, " \t\n");
        if (*at == '\0') return WEIR_OK;
        if (*at != ',')
            return weir_error_set(
                error, WEIR_EINVAL, "token list: expected a comma at '%.20s'", at
            );
        at++;
    }
}

static weir_status encode(
    weir_ids *ids, const weir_engine *engine, const char *text, size_t n, weir_error *error
)
{
    const weir_tokenizer *const tokenizer = weir_engine_tokenizer(engine);
    if (tokenizer == NULL)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "the model has no tokenizer: give --tokens instead"
        );
    return weir_tokenizer_encode(
        tokenizer, ids, text, n,
        &(weir_encode_options){ .add_special = true, .parse_special = true }, error
    );
}

weir_status weir_prompt_from_text(
    weir_ids *ids, const weir_engine *engine, const char *text, weir_error *error
)
{
    return encode(ids, engine, text, strlen(text), error);
}

static weir_status from_text_file(
    weir_ids *ids, const weir_engine *engine, const char *path, weir_error *error
)
{
    weir_buffer text = { 0 };
    weir_status status = weir_file_read_input(&text, path, MAX_FILE, error);
    if (status == WEIR_OK) status = encode(ids, engine, text.data, text.size, error);
    weir_buffer_free(&text);
    return status;
}

weir_status weir_prompt_render(
    weir_ids *ids, weir_buffer *text, const weir_tokenizer *tokenizer,
    const weir_chat_template *chat, const json_t *messages, weir_error *error
)
{
    return weir_messages_render(
        ids, text, tokenizer, chat, messages, (weir_messages_place){ .is_question = true }, error
    );
}

weir_status weir_prompt_add_question(
    weir_ids *ids, const weir_engine *engine, const char *question, weir_error *error
)
{
    WEIR_TRY(weir_prompt_need_chat(engine, error));
    json_t *const messages = json_pack("[{s:s, s:s}]", "role", "user", "content", question);
    if (messages == NULL)
        return weir_error_set(error, WEIR_EINVAL, "the question is not valid UTF-8 text");
    const weir_status status = weir_messages_render(
        ids, NULL, weir_engine_tokenizer(engine), weir_engine_chat(engine), messages,
        (weir_messages_place){ .follows = true, .is_question = true }, error
    );
    json_decref(messages);
    return status;
}

weir_status weir_prompt_conversation(
    weir_ids *ids, const weir_engine *engine, const char *path, weir_error *error
)
{
    json_t *messages = NULL;
    WEIR_TRY(weir_prompt_need_chat(engine, error));
    WEIR_TRY(weir_json_read_input(&messages, path, MAX_FILE, error));
    const weir_status status = weir_messages_render(
        ids, NULL, weir_engine_tokenizer(engine), weir_engine_chat(engine), messages,
        (weir_messages_place){ 0 }, error
    );
    json_decref(messages);
    return status;
}

weir_status weir_prompt_need_chat(const weir_engine *engine, weir_error *error)
{
    if (weir_engine_chat_problem(engine) != NULL)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "the model's chat template cannot be used: %s; give a text prompt instead",
            weir_engine_chat_problem(engine)
        );
    if (weir_engine_tokenizer(engine) == NULL || weir_engine_chat(engine) == NULL)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "the model has no %s: messages cannot be rendered",
            weir_engine_tokenizer(engine) == NULL ? "tokenizer" : "chat template"
        );
    return WEIR_OK;
}

weir_status weir_prompt_from_messages(
    weir_ids *ids, weir_buffer *text, const weir_engine *engine, const json_t *chat,
    weir_error *error
)
{
    WEIR_TRY(weir_prompt_need_chat(engine, error));
    return weir_prompt_render(
        ids, text, weir_engine_tokenizer(engine), weir_engine_chat(engine), chat, error
    );
}

weir_status weir_prompt_from_file(
    weir_ids *ids, weir_buffer *text, const weir_engine *engine, const char *path, weir_error *error
)
{
    json_t *chat = NULL;
    WEIR_TRY(weir_json_read_input(&chat, path, MAX_FILE, error));
    const weir_status status = weir_prompt_from_messages(ids, text, engine, chat, error);
    json_decref(chat);
    return status;
}

/* Reads a pipe or a file, without a final newline. */
static weir_status from_input(weir_ids *ids, const weir_engine *engine, weir_error *error)
{
    weir_buffer text = { 0 };
    weir_status status = weir_file_read_input(&text, "-", MAX_FILE, error);
    size_t n = text.size;
    if (n > 0 && text.data[n - 1] == '\n') n--;
    if (status == WEIR_OK && n == 0)
        status = weir_error_set(error, WEIR_EINVAL, "standard input is empty; " HOW_TO_GIVE);
    if (status == WEIR_OK) status = encode(ids, engine, text.data, n, error);
    weir_buffer_free(&text);
    return status;
}

static const char *const text_options[] = { "prompt", "tokens", "messages", "file" };

weir_status weir_prompt_check(const weir_arguments *arguments, weir_error *error)
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof text_options / sizeof text_options[0]; i++)
        n += weir_argument_given(arguments, text_options[i]);
    if (n == 1 || (n == 0 && !isatty(STDIN_FILENO))) return WEIR_OK;
    return weir_error_set(error, WEIR_EINVAL, HOW_TO_GIVE);
}

weir_status weir_prompt_from_arguments(
    weir_ids *ids, const weir_engine *engine, const weir_arguments *arguments, weir_error *error
)
{
    const char *const text = weir_argument(arguments, "prompt"),
                      *const list = weir_argument(arguments, "tokens"),
                      *const messages = weir_argument(arguments, "messages"),
                      *const file = weir_argument(arguments, "file");
    WEIR_TRY(weir_prompt_check(arguments, error));
    if (list != NULL)
        return weir_prompt_from_list(
            ids, list, weir_service_facts_of(weir_engine_service(engine))->n_valid_vocab, error
        );
    if (text != NULL) return weir_prompt_from_text(ids, engine, text, error);
    if (file != NULL) return from_text_file(ids, engine, file, error);
    return messages != NULL ? weir_prompt_from_file(ids, NULL, engine, messages, error)
                            : from_input(ids, engine, error);
}
