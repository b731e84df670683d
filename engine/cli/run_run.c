/* engine/cli/run_run.c - weir run: an answer or a chat of a model, which is downloaded if need
 * be. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "engine/cli/chat.h"
#include "engine/cli/generate.h"
#include "engine/cli/get.h"
#include "engine/cli/open.h"
#include "engine/cli/prompt.h"

enum { MAX_PROMPT = 16 << 20 };

/* True for y or yes. */
static bool agrees(const char *name)
{
    char line[16] = "";
    (void)fprintf(stderr, "%s is not complete on this machine. Download it? [y/N] ", name);
    (void)fflush(stderr);
    if (fgets(line, sizeof line, stdin) == NULL) return false;
    return strcmp(line, "y\n") == 0 || strcmp(line, "Y\n") == 0 || strcmp(line, "yes\n") == 0;
}

/* A bare word that is neither a file here nor a name of the hub. */
static weir_status check_name(const char *name, weir_error *error)
{
    weir_hub_name parsed;
    if (weir_file_exists(name) || strchr(name, '/') != NULL || weir_hub_name_parse(&parsed, name))
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL,
        "%.100s: there is no such file or folder, and a model to download is named OWNER/NAME or "
        "OWNER/NAME:QUANT",
        name
    );
}

/* Sets model.path to the file or folder that the name leads to. */
static weir_status find_model(
    weir_config *config, const char *name, bool downloads, weir_error *error
)
{
    weir_hub_result result;
    WEIR_TRY(check_name(name, error));
    const size_t capacity = sizeof config->model.path;
    WEIR_TRY(weir_config_set(config, "model.path", name, error));
    const weir_status status = weir_models_resolve(config->model.path, capacity, error);
    if (status != WEIR_ENOTFOUND) return status;
    const bool may_ask = isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0;
    if (!downloads && !(may_ask && agrees(name))) return status;
    WEIR_TRY(weir_get_model(&result, &(weir_get){ .name = name }, error));
    (void)signal(SIGINT, SIG_DFL); /* Ctrl-C ends what follows, as without a download */
    (void)snprintf(config->model.path, capacity, "%s", result.path);
    return strcmp(config->model.path, result.path) == 0
               ? WEIR_OK
               : weir_error_set(error, WEIR_ECONFIG, "%.300s: its path is too long", name);
}

/* The prompt as a user's message, where the model has a template for chats. */
static weir_status make_prompt(
    weir_ids *ids, const weir_engine *engine, const char *text, size_t length, const char *system,
    weir_error *error
)
{
    if (weir_engine_chat(engine) == NULL && system == NULL && strlen(text) == length)
        return weir_prompt_from_text(ids, engine, text, error);
    weir_chat chat = { .engine = engine, .messages = json_array() };
    weir_status status = weir_chat_add(&chat, "user", text, length, error);
    if (status == WEIR_OK && system != NULL)
        status = weir_chat_set_system(&chat, system, strlen(system), error);
    if (status == WEIR_OK)
        status = weir_prompt_from_messages(ids, NULL, engine, chat.messages, error);
    json_decref(chat.messages);
    return status;
}

static int answer(const weir_config *config, const char *text, size_t length, const char *system)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_ids ids = { 0 };
    weir_cli_answer given = { 0 };
    int code = weir_open(&engine, config, WEIR_USE_SERVICE);
    if (code != WEIR_EXIT_OK) return code;
    weir_status status =
        weir_engine_tokenizer(engine) != NULL
            ? make_prompt(&ids, engine, text, length, system, &error)
            : weir_error_set(&error, WEIR_EUNSUPPORTED, "the model has no tokenizer");
    const weir_cli_prompt prompt = { .ids = &ids };
    if (status == WEIR_OK) status = weir_cli_generate(&given, engine, config, &prompt, &error);
    if (status != WEIR_OK) code = weir_fail(status, &error);
    if (weir_interrupted) code = WEIR_EXIT_INTERRUPTED;
    weir_cli_answer_free(&given);
    weir_ids_free(&ids);
    weir_engine_close(engine);
    return code;
}

/* Standard input is the prompt, without its last newline. */
static int answer_input(const weir_config *config, const char *system)
{
    weir_error error = { 0 };
    weir_buffer text = { 0 };
    weir_status status = weir_file_read_input(&text, "-", MAX_PROMPT, &error);
    size_t n = text.size;
    if (n > 0 && text.data[n - 1] == '\n') text.data[--n] = '\0';
    if (status == WEIR_OK && n == 0)
        status = weir_error_set(
            &error, WEIR_EINVAL,
            "standard input is empty, and there is no prompt: weir run MODEL TEXT"
        );
    const int code =
        status == WEIR_OK ? answer(config, text.data, n, system) : weir_fail(status, &error);
    weir_buffer_free(&text);
    return code;
}

int weir_run_run(const weir_arguments *arguments)
{
    weir_config config = arguments->config;
    weir_error error = { 0 };
    const char *const text = weir_argument(arguments, "prompt"), *const system = weir_argument(
                                                                     arguments, "system"
                                                                 );
    const weir_status status = find_model(
        &config, weir_argument(arguments, "model"), weir_argument_given(arguments, "yes"), &error
    );
    if (status != WEIR_OK) return weir_end(status, &error);
    if (text != NULL) return answer(&config, text, strlen(text), system);
    if (!isatty(STDIN_FILENO)) return answer_input(&config, system);
    return weir_chat_run(&config, &(weir_chat_start){ .system = system });
}
