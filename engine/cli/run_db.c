/* engine/cli/run_db.c - weir db create, list, delete: the commands that compute nothing. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/cli/db.h"
#include "engine/formats/json.h"

static weir_status read_bits(
    int32_t *bits, const weir_engine *engine, const weir_arguments *arguments, weir_error *error
)
{
    const char *const form = weir_argument(arguments, "states");
    if (form == NULL || strcmp(form, "exact") == 0) return WEIR_OK;
    *bits = strcmp(form, "int8") == 0 ? 8 : strcmp(form, "int4") == 0 ? 4 : 0;
    if (*bits == 0)
        return weir_error_set(
            error, WEIR_EINVAL, "--states is exact, int8 or int4, not %.40s", form
        );
    if (weir_sessions_packed_bytes(weir_engine_sessions(engine), *bits) > 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EUNSUPPORTED,
        "--states %s: no layer of this model keeps keys and values in a memory "
        "of fixed size (CoDA does); leave it out",
        form
    );
}

int weir_run_db_create(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    const int code = weir_db_open_engine(&engine, arguments);
    if (code != WEIR_EXIT_OK) return code;
    const bool has_vectors = !weir_argument_given(arguments, "no-vectors");
    int32_t bits = 0;
    weir_status status = weir_db_need_sessions(engine, &error);
    if (status == WEIR_OK) status = read_bits(&bits, engine, arguments, &error);
    if (status == WEIR_OK) {
        const uint64_t *const model =
            weir_sessions_identity_of(weir_engine_sessions(engine))->model;
        const weir_states_kind kind = {
            .model = { model[0], model[1] },
            .dim = has_vectors ? weir_service_facts_of(weir_engine_service(engine))->d_model : 0,
            .embedding = WEIR_STATE_SERVICE_EMBEDDING,
            .state_bits = bits
        };
        status = weir_states_create(weir_argument(arguments, "dir"), &kind, &error);
    }
    weir_engine_close(engine);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_db_fail(status, &error);
}

static weir_status open_folder(
    weir_states **states, const weir_arguments *arguments, bool writes, weir_error *error
)
{
    const weir_states_options options = { .folder = weir_argument(arguments, "dir"),
                                          .writes = writes };
    return weir_states_open(states, &options, error);
}

/* ---- list ------------------------------------------------------------------------------------ */
static weir_status add_metadata(
    json_t *line, weir_states *states, const weir_state_info *info, weir_error *error
)
{
    weir_buffer text = { 0 };
    weir_status status = weir_states_metadata(states, info, &text, error);
    json_t *metadata = NULL;
    if (status == WEIR_OK)
        status = weir_json_parse_within(
            &metadata, text.data, text.size, "metadata", &weir_json_request, error
        );
    if (status == WEIR_OK && json_object_set_new(line, "metadata", metadata) != 0)
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for the metadata of %s", info->name);
    weir_buffer_free(&text);
    return status;
}

static weir_status print_json(
    weir_buffer *text, weir_states *states, const weir_state_info *info, bool with_metadata,
    weir_error *error
)
{
    char source[33];
    (void
    )snprintf(source, sizeof source, "%016" PRIx64 "%016" PRIx64, info->source[1], info->source[0]);
    json_t *const line = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:b, s:s, s:i, s:b}", "name", info->name, "label", info->label,
        "tokens", (json_int_t)info->n_tokens, "bytes", (json_int_t)info->n_bytes, "created",
        (json_int_t)info->created, "vector", info->has_vector, "source", source, "state_bits",
        (int)info->state_bits, "merged", info->is_merged
    );
    weir_status status =
        line != NULL ? WEIR_OK : weir_error_set(error, WEIR_ENOMEM, "no memory for a line");
    if (status == WEIR_OK && with_metadata) status = add_metadata(line, states, info, error);
    char *const dump = status == WEIR_OK ? weir_json_text(line, JSON_COMPACT) : NULL;
    if (status == WEIR_OK && (dump == NULL || weir_buffer_format(text, "%s\n", dump) != WEIR_OK))
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for a line");
    weir_memory_give(dump);
    json_decref(line);
    return status;
}

static weir_status print_line(weir_buffer *text, const weir_state_info *info)
{
    char form[64];
    weir_db_print_form(form, info);
    return weir_buffer_format(
        text, "%-32s %8" PRId64 " tokens %12" PRId64 " bytes  %s%s%s\n", info->name, info->n_tokens,
        info->n_bytes, info->label, form, info->has_vector ? "" : "  (by name only)"
    );
}

int weir_run_db_list(const weir_arguments *arguments)
{
    weir_states *states = NULL;
    weir_state_info *list = NULL;
    weir_error error = { 0 };
    weir_buffer text = { 0 };
    size_t n = 0, total = 0;
    const bool as_json = weir_argument_given(arguments, "json"),
               with_metadata = weir_argument_given(arguments, "metadata");
    weir_status status = open_folder(&states, arguments, false, &error);
    const weir_states_page page = { .most =
                                        (size_t)weir_argument_int(arguments, "limit", INT32_MAX) };
    if (status == WEIR_OK) status = weir_states_list(states, &page, &list, &n, &total, &error);
    for (size_t i = 0; i < n && status == WEIR_OK; i++)
        status = as_json ? print_json(&text, states, &list[i], with_metadata, &error)
                         : print_line(&text, &list[i]);
    if (status == WEIR_OK && n < total) weir_log(WEIR_LOG_INFO, "%zu of %zu states", n, total);
    if (status == WEIR_OK && total == 0)
        weir_log(WEIR_LOG_INFO, "%s: no states here", weir_argument(arguments, "dir"));
    const int code = status != WEIR_OK ? weir_db_fail(status, &error)
                     : text.size > 0   ? weir_print(&text)
                                       : WEIR_EXIT_OK;
    weir_memory_give(list);
    weir_buffer_free(&text);
    weir_states_close(states);
    return code;
}

int weir_run_db_delete(const weir_arguments *arguments)
{
    weir_states *states = NULL;
    weir_error error = { 0 };
    weir_status status = open_folder(&states, arguments, true, &error);
    if (status == WEIR_OK)
        status = weir_states_remove(states, weir_argument(arguments, "name"), &error);
    weir_states_close(states);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_db_fail(status, &error);
}

/* ---- merge ----------------------------------------------------------------------------------- */
static weir_status print_merged(
    const weir_state_info *info, const weir_state_merged *m, bool as_json
)
{
    weir_buffer text = { 0 };
    weir_status status =
        as_json ? weir_buffer_format(
                      &text,
                      "{\"name\": \"%s\", \"tokens\": %" PRId64 ", \"bytes\": %" PRId64
                      ", \"exact_rows\": {\"earlier\": %" PRId64 ", \"later\": %" PRId64
                      ", \"kept\": %" PRId64 "}, \"prototypes\": {\"earlier\": %" PRId64
                      ", \"later\": %" PRId64 ", \"kept\": %" PRId64
                      "}, \"recent_rows_dropped\": %" PRId64 "}\n",
                      info->name, info->n_tokens, info->n_bytes, m->n_exact_earlier,
                      m->n_exact_later, m->n_exact_kept, m->n_summary_earlier, m->n_summary_later,
                      m->n_summary_kept, m->n_recent_earlier
                  )
                : weir_buffer_format(
                      &text,
                      "over all layers: %" PRId64 " and %" PRId64 " exact rows became %" PRId64
                      ", %" PRId64 " and %" PRId64 " prototypes became %" PRId64 "; the %" PRId64
                      " latest rows of the earlier one are not in it, beyond what its banks have\n",
                      m->n_exact_earlier, m->n_exact_later, m->n_exact_kept, m->n_summary_earlier,
                      m->n_summary_later, m->n_summary_kept, m->n_recent_earlier
                  );
    if (status == WEIR_OK && !as_json) status = weir_db_print_state(info, "added");
    if (status == WEIR_OK && weir_print(&text) != WEIR_EXIT_OK) status = WEIR_EIO;
    weir_buffer_free(&text);
    return status;
}

static weir_status merge(
    const weir_state_service *d, const weir_arguments *arguments, weir_error *error
)
{
    weir_state_info earlier, later, info;
    weir_state_merged merged;
    WEIR_TRY(weir_states_find(d->states, weir_argument(arguments, "earlier"), &earlier, error));
    WEIR_TRY(weir_states_find(d->states, weir_argument(arguments, "later"), &later, error));
    const weir_merge merge = { .earlier = &earlier,
                               .later = &later,
                               .label = weir_argument(arguments, "label"),
                               .metadata = weir_argument(arguments, "metadata") };
    WEIR_TRY(weir_state_service_merge(d, &merge, &info, &merged, error));
    return print_merged(&info, &merged, weir_argument_given(arguments, "json"));
}

int weir_run_db_merge(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_state_service d = { 0 };
    const int code = weir_db_open_engine(&engine, arguments);
    if (code != WEIR_EXIT_OK) return code;
    weir_status status = weir_db_open(&d, engine, arguments, true, &error);
    if (status == WEIR_OK) status = merge(&d, arguments, &error);
    weir_states_close(d.states);
    weir_engine_close(engine);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_db_fail(status, &error);
}
