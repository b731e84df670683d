#include "engine/cli/db.h"

#include <inttypes.h>
#include <stdio.h>

#include "engine/base/file.h"
#include "engine/cli/open.h"

int weir_db_fail(weir_status status, const weir_error *error)
{
    const int code = weir_fail(status, error);
    return status == WEIR_EFULL ? WEIR_EXIT_FAILED : code;
}

int weir_db_open_engine(weir_engine **engine, const weir_arguments *arguments)
{
    weir_config config = arguments->config;
    weir_error error = { 0 };
    const char *const dir = weir_argument(arguments, "dir");
    if (snprintf(config.sessions.dir, sizeof config.sessions.dir, "%s", dir) >=
        (int)sizeof config.sessions.dir)
        return weir_fail(
            weir_error_set(
                &error, WEIR_EINVAL, "--dir is a path of more than %d bytes", WEIR_CONFIG_TEXT - 1
            ),
            &error
        );
    if (weir_file_exists(dir) && !weir_file_is_directory(dir))
        return weir_fail(
            weir_error_set(&error, WEIR_EINVAL, "--dir %.300s: is no folder", dir), &error
        );
    config.sessions.autosave = false;
    config.states.dir[0] = '\0';
    return weir_open(engine, &config, WEIR_USE_SERVICE);
}

weir_status weir_db_need_sessions(const weir_engine *engine, weir_error *error)
{
    if (weir_engine_sessions(engine) != NULL) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EUNSUPPORTED,
        "this model keeps no KV rows, so its sequences cannot be saved as states"
    );
}

static int64_t n_taken = 0;

void weir_db_count_taken(int64_t n) { n_taken = n; }

/* Stops computing a document or an answer. */
static bool is_interrupted(void *user)
{
    (void)user;
    weir_progress_tick(n_taken);
    return weir_interrupted;
}

weir_status weir_db_open(
    weir_state_service *documents, const weir_engine *engine, const weir_arguments *arguments,
    bool writes, weir_error *error
)
{
    WEIR_TRY(weir_db_need_sessions(engine, error));
    const weir_states_options options = {
        .folder = weir_argument(arguments, "dir"),
        .model = weir_sessions_identity_of(weir_engine_sessions(engine))->model,
        .writes = writes
    };
    *documents = (weir_state_service){ .service = weir_engine_service(engine),
                                       .sessions = weir_engine_sessions(engine),
                                       .stops = is_interrupted };
    weir_catch_interrupts();
    return weir_states_open(&documents->states, &options, error);
}

void weir_db_print_form(char out[64], const weir_state_info *info)
{
    char bits[40] = "";
    if (info->state_bits != 0)
        (void)snprintf(bits, sizeof bits, "keys and values in %d bits", (int)info->state_bits);
    out[0] = '\0';
    if (!weir_state_is_exact(info))
        (void)snprintf(
            out, 64, "  (%s%s%s)", info->is_merged ? "merged" : "",
            info->is_merged && bits[0] != '\0' ? ", " : "", bits
        );
}

weir_status weir_db_print_state(const weir_state_info *info, const char *verb)
{
    weir_buffer text = { 0 };
    char form[64];
    weir_db_print_form(form, info);
    const weir_status status = weir_buffer_format(
        &text, "%s %s: %" PRId64 " tokens, %.1f MiB%s\n", verb, info->name, info->n_tokens,
        (double)info->n_bytes / (1 << 20), form
    );
    const bool is_printed = status == WEIR_OK && weir_print(&text) == WEIR_EXIT_OK;
    weir_buffer_free(&text);
    return is_printed ? WEIR_OK : WEIR_EIO;
}
