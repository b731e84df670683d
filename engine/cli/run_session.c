/* engine/cli/run_session.c - weir session list, save, restore, delete. */
#include <inttypes.h>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/cli/answer.h"
#include "engine/cli/open.h"
#include "engine/cli/prompt.h"
#include "engine/cli/session.h"
#include "engine/session/session_store.h"

static weir_status need_sessions(weir_engine *engine, weir_error *error)
{
    if (weir_engine_sessions(engine) != NULL) return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG,
        "no folder of sessions: give --dir, or sessions.dir in the configuration"
    );
}

weir_status weir_session_resume(weir_engine *engine, const char *name, weir_error *error)
{
    WEIR_TRY(need_sessions(engine, error));
    return weir_sessions_resume(weir_engine_sessions(engine), name, error);
}

weir_status weir_session_keep(
    weir_engine *engine, const char *name, weir_session_result *result, weir_error *error
)
{
    const weir_session_request request = { .name = name };
    weir_session_result unused;
    WEIR_TRY(need_sessions(engine, error));
    return weir_sessions_save(
        weir_engine_sessions(engine), &request, result != NULL ? result : &unused, error
    );
}

/* ---- with a model ---------------------------------------------------------------------------- */
/* As weir_end, but a full disk is exit code 1: it is not the memory plan that does not fit. */
static int end(weir_engine *engine, weir_status status, const weir_error *error, weir_buffer *text)
{
    int code = status == WEIR_OK ? weir_print(text) : weir_fail(status, error);
    if (status == WEIR_EFULL) code = WEIR_EXIT_FAILED;
    weir_buffer_free(text);
    weir_engine_close(engine);
    return code;
}

static weir_status print_result(
    weir_buffer *text, const char *name, const char *verb, const weir_session_result *result
)
{
    const bool is_other = result->numerics != NULL;
    return weir_buffer_format(
        text, "%s %s: %d tokens, %.1f MiB in %.3f s%s%s\n", verb, name, (int)result->n_tokens,
        (double)result->n_bytes / (1 << 20), (double)result->time_ns * 1e-9,
        is_other ? ", computed with other numerics: " : "", is_other ? result->numerics : ""
    );
}

static weir_status compute(
    weir_engine *engine, const weir_ids *ids, const char *name, weir_error *error
)
{
    const weir_request request = { .prompt = ids->data,
                                   .n_prompt = (int32_t)ids->count,
                                   .n_choices = 1,
                                   .cache_prompt = true,
                                   .session = name,
                                   .sampling = weir_sampling_default() };
    weir_cli_answer answer = { 0 };
    weir_catch_interrupts();
    weir_status status = weir_cli_answer_wait(
        &answer, weir_engine_service(engine), &request, NULL, NULL, &weir_interrupted, error
    );
    if (status == WEIR_OK && weir_interrupted)
        status = weir_error_set(error, WEIR_ECANCELED, "interrupted; nothing is saved");
    weir_cli_answer_free(&answer);
    return status;
}

int weir_run_session_save(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_ids ids = { 0 };
    weir_buffer text = { 0 };
    weir_session_result result = { 0 };
    const char *const name = weir_argument(arguments, "name");
    const int code = weir_open(&engine, &arguments->config, WEIR_USE_SERVICE);
    if (code != WEIR_EXIT_OK) return code;
    weir_status status = need_sessions(engine, &error);
    if (status == WEIR_OK) status = weir_prompt_from_arguments(&ids, engine, arguments, &error);
    if (status == WEIR_OK) status = compute(engine, &ids, name, &error);
    if (status == WEIR_OK) status = weir_session_keep(engine, name, &result, &error);
    if (status == WEIR_OK) status = print_result(&text, name, "saved", &result);
    weir_ids_free(&ids);
    return end(engine, status, &error, &text);
}

int weir_run_session_restore(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_buffer text = { 0 };
    weir_session_result result = { 0 };
    const char *const name = weir_argument(arguments, "name");
    const int code = weir_open(&engine, &arguments->config, WEIR_USE_SERVICE);
    if (code != WEIR_EXIT_OK) return code;
    weir_status status = need_sessions(engine, &error);
    if (status == WEIR_OK)
        status = weir_sessions_restore(weir_engine_sessions(engine), name, &result, &error);
    if (status == WEIR_OK) status = print_result(&text, name, "restored", &result);
    return end(engine, status, &error, &text);
}

/* ---- without one ----------------------------------------------------------------------------- */
/* A folder that is not there is a mistake here, where a server makes it. */
static weir_status open_folder(
    weir_sessions **sessions, const weir_config *config, weir_error *error
)
{
    if (config->sessions.dir[0] == '\0')
        return weir_error_set(
            error, WEIR_ECONFIG,
            "no folder of sessions: give --dir, or sessions.dir in the configuration"
        );
    if (!weir_file_exists(config->sessions.dir))
        return weir_error_set(
            error, WEIR_ENOTFOUND, "%.300s: there is no such folder (sessions.dir)",
            config->sessions.dir
        );
    return weir_sessions_open(
        sessions, &(weir_sessions_options){ .folder = config->sessions.dir }, error
    );
}

static weir_status print_info(weir_buffer *text, const weir_session_info *info, bool as_json)
{
    const bool is_good = info->problem == WEIR_OK;
    if (as_json) /* names need no JSON escapes */
        return weir_buffer_format(
            text,
            "{\"name\": \"%s\", \"tokens\": %d, \"bytes\": %" PRId64 ", \"created\": %" PRId64
            ", \"automatic\": %s, \"policy\": \"%s\", \"problem\": %s%s%s}\n",
            info->name, (int)info->n_tokens, info->n_bytes, info->created,
            info->is_automatic ? "true" : "false",
            info->policy[0] != '\0' ? info->policy : "full:0", is_good ? "" : "\"",
            is_good ? "null" : weir_status_text(info->problem), is_good ? "" : "\""
        );
    return weir_buffer_format(
        text, "%-40s %8d tokens %10.1f MiB%s%s%s%s%s\n", info->name, (int)info->n_tokens,
        (double)info->n_bytes / (1 << 20), info->is_automatic ? "  automatic" : "",
        info->policy[0] != '\0' ? "  " : "", info->policy, is_good ? "" : "  ",
        is_good ? "" : weir_status_text(info->problem)
    );
}

int weir_run_session_list(const weir_arguments *arguments)
{
    weir_sessions *sessions = NULL;
    weir_session_info *infos = NULL;
    weir_error error = { 0 };
    weir_buffer text = { 0 };
    size_t n = 0;
    weir_status status = open_folder(&sessions, &arguments->config, &error);
    if (status == WEIR_OK) status = weir_sessions_list(sessions, &infos, &n, &error);
    for (size_t i = 0; i < n && status == WEIR_OK; i++)
        status = print_info(&text, &infos[i], weir_argument_given(arguments, "json"));
    if (status == WEIR_OK && n == 0)
        weir_log(
            WEIR_LOG_INFO, "%s: no sessions here (sessions.dir)", arguments->config.sessions.dir
        );
    const int code = status != WEIR_OK ? weir_fail(status, &error)
                     : text.size > 0   ? weir_print(&text)
                                       : WEIR_EXIT_OK;
    weir_memory_give(infos);
    weir_buffer_free(&text);
    weir_sessions_close(sessions);
    return code;
}

int weir_run_session_delete(const weir_arguments *arguments)
{
    weir_sessions *sessions = NULL;
    weir_error error = { 0 };
    weir_status status = open_folder(&sessions, &arguments->config, &error);
    if (status == WEIR_OK)
        status = weir_sessions_delete(sessions, weir_argument(arguments, "name"), &error);
    weir_sessions_close(sessions);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, &error);
}
