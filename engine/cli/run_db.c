/* engine/cli/run_db.c - weir db create, list, delete: what needs no text. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/cli/db.h"

int weir_run_db_create(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error   error = { 0 };
    const int    code = weir_db_open_engine(&engine, arguments);
    if (code != WEIR_EXIT_OK) return code;
    const bool  has_vectors = !weir_argument_given(arguments, "no-vectors");
    weir_status status = weir_db_need_sessions(engine, &error);
    if (status == WEIR_OK) {
        const uint64_t *const  model = weir_sessions_identity_of(weir_engine_sessions(engine))->model;
        const weir_states_kind kind = { .model = { model[0], model[1] },
                                        .dim = has_vectors ? weir_service_info_of(weir_engine_service(engine))->d_model : 0,
                                        .embedding = WEIR_DB_EMBEDDING };
        status = weir_states_create(weir_argument(arguments, "dir"), &kind, &error);
    }
    weir_engine_close(engine);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_db_fail(status, &error);
}

static weir_status open_folder(weir_states **states, const weir_arguments *arguments, bool writes, weir_error *error)
{
    const weir_states_options options = { .folder = weir_argument(arguments, "dir"), .writes = writes };
    return weir_states_open(states, &options, error);
}

/* ---- list ---------------------------------------------------------------------------------------------------------------- */
static weir_status add_metadata(json_t *line, weir_states *states, const weir_state_info *info, weir_error *error)
{
    weir_buffer text = { 0 };
    weir_status status = weir_states_metadata(states, info, &text, error);
    json_t     *metadata = status == WEIR_OK ? json_loadb(text.data, text.size, 0, NULL) : NULL;
    if (status == WEIR_OK && (metadata == NULL || json_object_set_new(line, "metadata", metadata) != 0))
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for the metadata of %s", info->name);
    weir_buffer_free(&text);
    return status;
}

static weir_status print_json(weir_buffer *text, weir_states *states, const weir_state_info *info, bool with_metadata, weir_error *error)
{
    char source[33];
    (void)snprintf(source, sizeof source, "%016" PRIx64 "%016" PRIx64, info->source[1], info->source[0]);
    json_t *const line =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:b, s:s}", "name", info->name, "label", info->label, "tokens", (json_int_t)info->n_tokens,
                  "bytes", (json_int_t)info->n_bytes, "created", (json_int_t)info->created, "vector", info->has_vector, "source", source);
    weir_status status = line != NULL ? WEIR_OK : weir_error_set(error, WEIR_ENOMEM, "no memory for a line");
    if (status == WEIR_OK && with_metadata) status = add_metadata(line, states, info, error);
    char *const dump = status == WEIR_OK ? json_dumps(line, JSON_COMPACT) : NULL;
    if (status == WEIR_OK && (dump == NULL || weir_buffer_format(text, "%s\n", dump) != WEIR_OK))
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for a line");
    free(dump);
    json_decref(line);
    return status;
}

static weir_status print_line(weir_buffer *text, const weir_state_info *info)
{
    return weir_buffer_format(text, "%-32s %8" PRId64 " tokens %10.1f MiB  %s%s\n", info->name, info->n_tokens,
                              (double)info->n_bytes / (1 << 20), info->label, info->has_vector ? "" : "  (by name only)");
}

int weir_run_db_list(const weir_arguments *arguments)
{
    weir_states     *states = NULL;
    weir_state_info *list = NULL;
    weir_error       error = { 0 };
    weir_buffer      text = { 0 };
    size_t           n = 0, total = 0;
    const bool       as_json = weir_argument_given(arguments, "json"), with_metadata = weir_argument_given(arguments, "metadata");
    weir_status      status = open_folder(&states, arguments, false, &error);
    if (status == WEIR_OK)
        status = weir_states_list(states, 0, (size_t)weir_argument_int(arguments, "limit", INT32_MAX), &list, &n, &total, &error);
    for (size_t i = 0; i < n && status == WEIR_OK; i++)
        status = as_json ? print_json(&text, states, &list[i], with_metadata, &error) : print_line(&text, &list[i]);
    if (status == WEIR_OK && n < total) weir_log(WEIR_LOG_INFO, "%zu of %zu states", n, total);
    if (status == WEIR_OK && total == 0) weir_log(WEIR_LOG_INFO, "%s: no states here", weir_argument(arguments, "dir"));
    const int code = status != WEIR_OK ? weir_db_fail(status, &error) : text.size > 0 ? weir_print(&text) : WEIR_EXIT_OK;
    weir_memory_give(list);
    weir_buffer_free(&text);
    weir_states_close(states);
    return code;
}

int weir_run_db_delete(const weir_arguments *arguments)
{
    weir_states *states = NULL;
    weir_error   error = { 0 };
    weir_status  status = open_folder(&states, arguments, true, &error);
    if (status == WEIR_OK) status = weir_states_remove(states, weir_argument(arguments, "name"), &error);
    weir_states_close(states);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_db_fail(status, &error);
}
