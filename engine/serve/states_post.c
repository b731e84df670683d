/* engine/serve/states_post.c - the computations of /v1/states: adding, querying and merging states.
 *
 * Each occupies a worker; with two or more, one always stays free for other requests. */
#include <math.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/serve/json_in.h"
#include "engine/serve/states_api.h"

enum { MOST_FOUND = 100 };

/* ---- waiting workers ------------------------------------------------------------------------- */
/* Reads the body and runs the operation, unless too many workers are waiting already. */
static void post(
    weir_exchange *x, weir_status (*run)(weir_exchange *x, const json_t *root, weir_buffer *text)
)
{
    weir_server *const server = x->server;
    json_t *root = NULL;
    weir_buffer text = { 0 };
    weir_status status = states_need(x);
    if (status == WEIR_OK)
        status = weir_json_read(
            &root, x->body.data != NULL ? x->body.data : "", x->body.size, &x->error
        );
    if (status == WEIR_OK) {
        const int n = atomic_fetch_add(&server->n_state_waits, 1);
        status = n == 0 || n + 1 < server->workers.n_threads
                     ? run(x, root, &text)
                     : weir_api_fail(
                           &x->error, 429, "states_busy", NULL,
                           "other states are being computed; try again"
                       );
        atomic_fetch_sub(&server->n_state_waits, 1);
    }
    json_decref(root);
    weir_reply_result(x, &text, status);
}

static weir_status read_label(
    const char **label, char **metadata, const json_t *root, weir_api_error *error
)
{
    const json_t *const object = weir_field(root, "metadata");
    WEIR_TRY(weir_field_text(root, "label", label, error));
    if (*label == NULL)
        return weir_api_bad(error, "label", "label is missing: name what the state contains");
    if (object == NULL) return WEIR_OK;
    if (!json_is_object(object))
        return weir_api_bad(error, "metadata", "metadata must be an object");
    *metadata = weir_json_text(object, JSON_COMPACT);
    return *metadata != NULL ? WEIR_OK : weir_api_no_memory(error);
}

/* The document to be computed, with its owner. */
static weir_document document_of(
    const weir_exchange *x, const weir_ids *ids, const weir_own_name *own
)
{
    return (weir_document){ .tokens = ids->data,
                            .n_tokens = (int32_t)ids->count,
                            .salt = own->salt[0] != '\0' ? own->salt : NULL,
                            .client = x->key };
}

static weir_status check_ids(
    const weir_exchange *x, const weir_ids *ids, bool given, const char *param,
    weir_api_error *error
)
{
    if (!given || ids->count == 0)
        return weir_api_bad(
            error, param, "give a text that is not empty: prompt, messages or tokens"
        );
    if (ids->count <= (size_t)x->server->limits.window) return WEIR_OK;
    return weir_api_too_long(error, param, (int64_t)ids->count, x->server->limits.window);
}

static weir_status ingest(
    weir_exchange *x, const weir_ids *ids, const char *label, const char *metadata,
    weir_buffer *text
)
{
    const states_owner own = states_owner_of(x);
    const weir_own_name named = weir_exchange_own(x, NULL, "");
    const weir_state_service documents = weir_states_documents(x);
    weir_document document = document_of(x, ids, &named);
    weir_state_info info;
    bool is_new;
    weir_error why = { 0 };
    document.label = label;
    document.metadata = metadata;
    document.owner = own.name[0] != '\0' ? own.name : NULL;
    const weir_status status =
        weir_state_service_ingest(&documents, &document, &info, &is_new, &why);
    return status == WEIR_OK ? states_write(x, &info, text)
                             : weir_states_fail(&x->error, status, &why);
}

static weir_status post_state(weir_exchange *x, const json_t *root, weir_buffer *text)
{
    weir_ids ids = { 0 };
    const char *label = NULL;
    char *metadata = NULL;
    bool given = false;
    WEIR_TRY(weir_exchange_check_fields(x, root, WEIR_BODY_STATE));
    weir_status status = read_label(&label, &metadata, root, &x->error);
    if (status == WEIR_OK) status = weir_text_ids(&ids, &given, x->server, root, &x->error);
    if (status == WEIR_OK) status = check_ids(x, &ids, given, "prompt", &x->error);
    if (status == WEIR_OK) status = ingest(x, &ids, label, metadata, text);
    weir_ids_free(&ids);
    weir_memory_give(metadata);
    return status;
}

void weir_states_api_post(weir_exchange *x) { post(x, post_state); }

/* ---- queries --------------------------------------------------------------------------------- */
static weir_status read_vector(float *vector, const json_t *list, size_t dim, weir_api_error *error)
{
    if (!json_is_array(list) || json_array_size(list) != dim)
        return weir_api_bad(error, "vector", "vector must be an array of %zu numbers", dim);
    for (size_t i = 0; i < dim; i++) {
        const json_t *const number = json_array_get(list, i);
        const double value = json_number_value(number);
        if (!json_is_number(number) || !(fabs(value) <= 1e30))
            return weir_api_bad(error, "vector", "vector[%zu] is not a number in range", i);
        vector[i] = (float)value;
    }
    return WEIR_OK;
}

static weir_status route_vector(
    weir_exchange *x, const json_t *list, weir_states_question *question, weir_state_hit *hits,
    size_t *n
)
{
    weir_states *const states = x->server->options.states;
    const size_t dim = (size_t)weir_states_kind_of(states)->dim;
    float *const vector = weir_memory_take((dim + 1) * sizeof *vector);
    weir_error why = { 0 };
    weir_status status = vector != NULL ? read_vector(vector, list, dim, &x->error) : WEIR_ENOMEM;
    if (status == WEIR_OK) {
        question->vector = vector;
        status = weir_states_route(states, question, hits, n, &why);
        if (status != WEIR_OK) status = weir_states_fail(&x->error, status, &why);
    }
    weir_memory_give(vector);
    return status;
}

static weir_status route_text(
    weir_exchange *x, const json_t *root, weir_states_question *question, weir_state_hit *hits,
    size_t *n
)
{
    const weir_own_name own = weir_exchange_own(x, NULL, "");
    const weir_state_service documents = weir_states_documents(x);
    const char *asked = NULL;
    weir_ids ids = { 0 };
    weir_error why = { 0 };
    WEIR_TRY(weir_field_text(root, "question", &asked, &x->error));
    if (asked == NULL) return weir_api_bad(&x->error, "question", "give a question, or a vector");
    weir_status status = weir_tokenizer_encode(
        x->server->options.tokenizer, &ids, asked, strlen(asked),
        &(weir_encode_options){ .add_special = true }, &why
    );
    if (status == WEIR_OK) {
        status = check_ids(x, &ids, true, "question", &x->error);
        const weir_document document = document_of(x, &ids, &own);
        if (status == WEIR_OK) {
            status = weir_state_service_route(&documents, &document, question, hits, n, &why);
            if (status != WEIR_OK) status = weir_states_fail(&x->error, status, &why);
        }
    } else
        status = weir_states_fail(&x->error, status, &why);
    weir_ids_free(&ids);
    return status;
}

static void write_hits(
    weir_json_out *json, const states_owner *own, const weir_state_hit *hits, size_t n
)
{
    weir_json_open(json, '{');
    weir_json_put_string(json, "object", "list");
    weir_json_key(json, "data");
    weir_json_open(json, '[');
    for (size_t i = 0; i < n; i++) {
        weir_json_open(json, '{');
        states_write_members(json, own, &hits[i].info);
        weir_json_put_number(json, "similarity", (double)hits[i].similarity);
        weir_json_close(json, '}');
    }
    weir_json_close(json, ']');
    weir_json_close(json, '}');
}

static weir_status query(weir_exchange *x, const json_t *root, weir_buffer *text)
{
    states_owner own = states_owner_of(x);
    int64_t most = 5;
    size_t n = 0;
    WEIR_TRY(weir_exchange_check_fields(x, root, WEIR_BODY_STATE_QUERY));
    WEIR_TRY(weir_field_integer(root, "top_k", 1, MOST_FOUND, &most, &x->error));
    weir_state_hit *const hits = weir_memory_take((size_t)most * sizeof *hits);
    weir_states_question question = { .most = (size_t)most,
                                      .accepts = states_may_see,
                                      .user = &own };
    const json_t *const vector = weir_field(root, "vector");
    if (hits == NULL) return WEIR_ENOMEM;
    weir_status status = vector != NULL ? route_vector(x, vector, &question, hits, &n)
                                        : route_text(x, root, &question, hits, &n);
    if (status == WEIR_OK) {
        weir_json_out json = { .buffer = text };
        write_hits(&json, &own, hits, n);
        status = json.status;
    }
    weir_memory_give(hits);
    return status;
}

void weir_states_api_query(weir_exchange *x) { post(x, query); }

/* ---- merging --------------------------------------------------------------------------------- */
static void write_counts(
    weir_json_out *json, const char *key, int64_t earlier, int64_t later, int64_t kept
)
{
    weir_json_key(json, key);
    weir_json_open(json, '{');
    weir_json_put_integer(json, "earlier", earlier);
    weir_json_put_integer(json, "later", later);
    weir_json_put_integer(json, "kept", kept);
    weir_json_close(json, '}');
}

static weir_status write_merged(
    weir_exchange *x, const weir_state_info *info, const weir_state_merged *m, weir_buffer *text
)
{
    weir_buffer state = { 0 };
    weir_status status = states_write(x, info, &state);
    if (status == WEIR_OK) {
        weir_json_out json = { .buffer = text };
        weir_json_open(&json, '{');
        weir_json_put_string(&json, "object", "state.merged");
        weir_json_key(&json, "state");
        weir_json_raw(&json, state.data, state.size);
        write_counts(&json, "exact_rows", m->n_exact_earlier, m->n_exact_later, m->n_exact_kept);
        write_counts(
            &json, "prototypes", m->n_summary_earlier, m->n_summary_later, m->n_summary_kept
        );
        weir_json_put_integer(&json, "recent_rows_dropped", m->n_recent_earlier);
        weir_json_close(&json, '}');
        status = json.status;
    }
    weir_buffer_free(&state);
    return status;
}

static weir_status merge_named(
    weir_exchange *x, const json_t *root, const char *label, const char *metadata, weir_buffer *text
)
{
    const states_owner own = states_owner_of(x);
    const weir_state_service documents = weir_states_documents(x);
    const char *names[2] = { NULL, NULL }, *const keys[2] = { "earlier", "later" };
    weir_state_info sources[2], info;
    weir_state_merged merged;
    weir_error why = { 0 };
    for (int i = 0; i < 2; i++) {
        WEIR_TRY(weir_field_text(root, keys[i], &names[i], &x->error));
        if (names[i] == NULL)
            return weir_api_bad(&x->error, keys[i], "%s is missing: the name of a state", keys[i]);
        WEIR_TRY(weir_states_of_name(&sources[i], x, names[i], keys[i]));
    }
    const weir_merge merge = { .earlier = &sources[0],
                               .later = &sources[1],
                               .label = label,
                               .metadata = metadata,
                               .owner = own.name[0] != '\0' ? own.name : NULL };
    const weir_status status = weir_state_service_merge(&documents, &merge, &info, &merged, &why);
    return status == WEIR_OK ? write_merged(x, &info, &merged, text)
                             : weir_states_fail(&x->error, status, &why);
}

static weir_status post_merge(weir_exchange *x, const json_t *root, weir_buffer *text)
{
    const char *label = NULL;
    char *metadata = NULL;
    WEIR_TRY(weir_exchange_check_fields(x, root, WEIR_BODY_STATE_MERGE));
    weir_status status = read_label(&label, &metadata, root, &x->error);
    if (status == WEIR_OK) status = merge_named(x, root, label, metadata, text);
    weir_memory_give(metadata);
    return status;
}

void weir_states_api_merge(weir_exchange *x) { post(x, post_merge); }
