/* engine/cli/run_text.c - weir tokenize and weir render: text to ids or to a prompt; weights are
 * not loaded. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/cli/open.h"
#include "engine/cli/prompt.h"
#include "engine/formats/json.h"
#include "engine/formats/tensor_directory.h"

enum { MAX_MESSAGES = 64 << 20 };

static weir_status open_tokenizer(
    weir_tensor_directory **directory, weir_tokenizer **tokenizer, const weir_config *config,
    weir_error *error
)
{
    WEIR_TRY(weir_tensor_directory_open(directory, config->model.path, error));
    return weir_tokenizer_open(tokenizer, *directory, error);
}

/* Prints one line of JSON; the text is what the ids decode to. */
static weir_status print_line(
    const weir_tokenizer *tokenizer, const char *line, size_t length, weir_error *error
)
{
    weir_ids ids = { 0 };
    weir_buffer text = { 0 };
    weir_status status = weir_tokenizer_encode(
        tokenizer, &ids, line, length, &(weir_encode_options){ .parse_special = true }, error
    );
    if (status == WEIR_OK)
        status = weir_tokenizer_decode(tokenizer, &text, ids.data, ids.count, false);
    json_t *const list = json_array();
    for (size_t i = 0; i < ids.count; i++)
        (void)json_array_append_new(list, json_integer(ids.data[i]));
    json_t *const out = json_pack(
        "{s:o, s:s%}", "ids", list, "text", text.data != NULL ? text.data : "", text.size
    );
    char *const dumped = out != NULL ? weir_json_text(out, JSON_COMPACT) : NULL;
    json_decref(out);
    if (status == WEIR_OK && dumped == NULL)
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for a line of tokens");
    else if (status == WEIR_OK && puts(dumped) < 0)
        status = weir_stdout_lost(errno, error);
    weir_memory_give(dumped);
    weir_buffer_free(&text);
    weir_ids_free(&ids);
    return status;
}

int weir_run_tokenize(const weir_arguments *arguments)
{
    weir_tensor_directory *directory = NULL;
    weir_tokenizer *tokenizer = NULL;
    weir_error error = { 0 };
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    weir_status status = open_tokenizer(&directory, &tokenizer, &arguments->config, &error);
    while (status == WEIR_OK && (n = getline(&line, &capacity, stdin)) >= 0)
        status =
            print_line(tokenizer, line, (size_t)n - (n > 0 && line[n - 1] == '\n' ? 1 : 0), &error);
    if (status == WEIR_OK && fflush(stdout) != 0) status = weir_stdout_lost(errno, &error);
    free(line);
    weir_tokenizer_close(tokenizer);
    weir_tensor_directory_close(directory);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, &error);
}

int weir_run_render(const weir_arguments *arguments)
{
    weir_tensor_directory *directory = NULL;
    weir_tokenizer *tokenizer = NULL;
    weir_chat_template *chat = NULL;
    json_t *messages = NULL;
    weir_buffer text = { 0 };
    weir_error error = { 0 };
    weir_status status = open_tokenizer(&directory, &tokenizer, &arguments->config, &error);
    const char *const source = status == WEIR_OK ? weir_tokenizer_chat_template(tokenizer) : NULL;
    if (status == WEIR_OK && source == NULL)
        status = weir_error_set(
            &error, WEIR_EUNSUPPORTED, "%s: no chat template", arguments->config.model.path
        );
    if (status == WEIR_OK) status = weir_chat_template_open(&chat, source, strlen(source), &error);
    if (status == WEIR_OK)
        status = weir_json_read_input(
            &messages, weir_argument(arguments, "messages"), MAX_MESSAGES, &error
        );
    if (status == WEIR_OK)
        status = weir_prompt_render(NULL, &text, tokenizer, chat, messages, &error);
    const int code = status == WEIR_OK ? weir_print(&text) : weir_fail(status, &error);
    weir_buffer_free(&text);
    json_decref(messages);
    weir_chat_template_close(chat);
    weir_tokenizer_close(tokenizer);
    weir_tensor_directory_close(directory);
    return code;
}
