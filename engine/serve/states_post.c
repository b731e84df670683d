/* engine/serve/states_post.c - the computations of /v1/states: adding, querying and merging
 * states. */
#include <math.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/serve/json_in.h"
#include "engine/serve/states_api.h"

enum { MOST_FOUND = 100 };

typedef weir_status begin_operation(weir_states_call *call, const json_t *root, weir_buffer *text);

/* Reads the body and begins the operation, which replies at once or waits. */
static weir_status read_body(weir_states_call *call, weir_buffer *text, begin_operation *begin)
{
    weir_exchange *const x = call->exchange;
    json_t *root = NULL;
    weir_status status =
        weir_json_read(&root, x->body.data != NULL ? x->body.data : "", x->body.size, &x->error);
    if (status == WEIR_OK) status = begin(call, root, text);
    json_decref(root);
    return status;
}

/* Reads the label and the metadata of a new state. */
static weir_status read_label(weir_states_call *call, const json_t *root)
{
    weir_api_error *const error = &call->exchange->error;
    const json_t *const object = weir_field(root, "metadata");
    const char *label = NULL;
    WEIR_TRY(weir_field_text(root, "label", &label, error));
    if (label == NULL)
        return weir_api_bad(error, "label", "label is missing: name what the state contains");
    if (object != NULL && !json_is_object(object))
        return weir_api_bad(error, "metadata", "metadata must be an object");
    call->label = weir_memory_text(label);
    if (object != NULL) call->metadata = weir_json_text(object, JSON_COMPACT);
    return call->label != NULL && (object == NULL || call->metadata != NULL)
               ? WEIR_OK
               : weir_api_no_memory(error);
}

static weir_status check_ids(weir_states_call *call, bool given, const char *param)
{
    weir_exchange *const x = call->exchange;
    const weir_ids *const ids = &call->ids;
    if (!given || ids->count == 0)
        return weir_api_bad(
            &x->error, param, "give a text that is not empty: prompt, messages or tokens"
        );
    if (ids->count <= (size_t)x->server->limits.window) return WEIR_OK;
    return weir_api_too_long(&x->error, param, (int64_t)ids->count, x->server->limits.window);
}

/* ---- adding ---------------------------------------------------------------------------------- */
static weir_status add_it(weir_states_call *call, weir_error *error)
{
    const weir_state_service documents = weir_states_documents(call->exchange);
    const weir_document document = states_document(call);
    WEIR_TRY(
        weir_state_service_add(&documents, &document, call->embedding.vector, &call->info, error)
    );
    return states_describe(call, error);
}

static weir_status add_computed(weir_states_call *call, weir_buffer *text)
{
    (void)text;
    states_call_do(call, add_it, states_write);
    return WEIR_OK;
}

static weir_status begin_adding(weir_states_call *call, const json_t *root, weir_buffer *text)
{
    weir_exchange *const x = call->exchange;
    const weir_state_service documents = weir_states_documents(x);
    bool given = false;
    weir_error why = { 0 };
    (void)text;
    WEIR_TRY(weir_exchange_check_fields(x, root, WEIR_BODY_STATE));
    WEIR_TRY(read_label(call, root));
    WEIR_TRY(weir_text_ids(&call->ids, &given, x->server, root, &x->error));
    WEIR_TRY(check_ids(call, given, "prompt"));
    const weir_document document = states_document(call);
    const weir_status found = weir_state_service_find(&documents, &document, &call->info, &why);
    if (found == WEIR_ENOTFOUND) return states_call_embed(call, true, add_computed);
    if (found != WEIR_OK) return weir_states_fail(&x->error, found, &why);
    states_call_describe(call, states_write);
    return WEIR_OK;
}

static weir_status post_state(weir_states_call *call, weir_buffer *text)
{
    return read_body(call, text, begin_adding);
}

void weir_states_api_post(weir_exchange *x) { states_call_begin(x, post_state); }

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

/* Writes the states that are nearest to the vector. */
static weir_status route(weir_states_call *call, const float *vector, weir_buffer *text)
{
    weir_exchange *const x = call->exchange;
    weir_state_hit *const hits = weir_memory_take(call->most * sizeof *hits);
    const weir_states_question question = {
        .vector = vector, .most = call->most, .accepts = states_may_see, .user = &call->owner
    };
    size_t n = 0;
    weir_error why = { 0 };
    if (hits == NULL) return WEIR_ENOMEM;
    weir_status status = weir_states_route(x->server->options.states, &question, hits, &n, &why);
    if (status == WEIR_OK) {
        weir_json_out json = { .buffer = text };
        write_hits(&json, &call->owner, hits, n);
        status = json.status;
    } else
        status = weir_states_fail(&x->error, status, &why);
    weir_memory_give(hits);
    return status;
}

static weir_status route_computed(weir_states_call *call, weir_buffer *text)
{
    return route(call, call->embedding.vector, text);
}

static weir_status route_vector(weir_states_call *call, const json_t *list, weir_buffer *text)
{
    weir_exchange *const x = call->exchange;
    const size_t dim = (size_t)weir_states_kind_of(x->server->options.states)->dim;
    float *const vector = weir_memory_take((dim + 1) * sizeof *vector);
    if (vector == NULL) return WEIR_ENOMEM;
    weir_status status = read_vector(vector, list, dim, &x->error);
    if (status == WEIR_OK) status = route(call, vector, text);
    weir_memory_give(vector);
    return status;
}

static weir_status route_question(weir_states_call *call, const json_t *root)
{
    weir_exchange *const x = call->exchange;
    const weir_state_service documents = weir_states_documents(x);
    const weir_encode_options options = { .add_special = true };
    const char *asked = NULL;
    weir_error why = { 0 };
    WEIR_TRY(weir_field_text(root, "question", &asked, &x->error));
    if (asked == NULL) return weir_api_bad(&x->error, "question", "give a question, or a vector");
    weir_status status = weir_tokenizer_encode(
        x->server->options.tokenizer, &call->ids, asked, strlen(asked), &options, &why
    );
    if (status != WEIR_OK) return weir_states_fail(&x->error, status, &why);
    WEIR_TRY(check_ids(call, true, "question"));
    status = weir_state_service_check_vectors(&documents, &why);
    if (status != WEIR_OK) return weir_states_fail(&x->error, status, &why);
    return states_call_embed(call, false, route_computed);
}

static weir_status begin_query(weir_states_call *call, const json_t *root, weir_buffer *text)
{
    weir_exchange *const x = call->exchange;
    const json_t *const vector = weir_field(root, "vector");
    int64_t most = 5;
    WEIR_TRY(weir_exchange_check_fields(x, root, WEIR_BODY_STATE_QUERY));
    WEIR_TRY(weir_field_integer(root, "top_k", 1, MOST_FOUND, &most, &x->error));
    call->most = (size_t)most;
    return vector != NULL ? route_vector(call, vector, text) : route_question(call, root);
}

static weir_status post_query(weir_states_call *call, weir_buffer *text)
{
    return read_body(call, text, begin_query);
}

void weir_states_api_query(weir_exchange *x) { states_call_begin(x, post_query); }

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

static weir_status write_merged(weir_states_call *call, weir_buffer *text)
{
    const weir_state_merged *const m = &call->merged;
    weir_buffer state = { 0 };
    weir_status status = states_write(call, &state);
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

static weir_status merge_them(weir_states_call *call, weir_error *error)
{
    const weir_state_service documents = weir_states_documents(call->exchange);
    const weir_merge merge = { .earlier = &call->sources[0],
                               .later = &call->sources[1],
                               .label = call->label,
                               .metadata = call->metadata,
                               .owner = call->owner.name[0] != '\0' ? call->owner.name : NULL };
    WEIR_TRY(weir_state_service_merge(&documents, &merge, &call->info, &call->merged, error));
    return states_describe(call, error);
}

static weir_status begin_merging(weir_states_call *call, const json_t *root, weir_buffer *text)
{
    weir_exchange *const x = call->exchange;
    const char *names[2] = { NULL, NULL }, *const keys[2] = { "earlier", "later" };
    (void)text;
    WEIR_TRY(weir_exchange_check_fields(x, root, WEIR_BODY_STATE_MERGE));
    WEIR_TRY(read_label(call, root));
    for (int i = 0; i < 2; i++) {
        WEIR_TRY(weir_field_text(root, keys[i], &names[i], &x->error));
        if (names[i] == NULL)
            return weir_api_bad(&x->error, keys[i], "%s is missing: the name of a state", keys[i]);
        WEIR_TRY(states_of_name(&call->sources[i], x, names[i], keys[i]));
    }
    states_call_do(call, merge_them, write_merged);
    return WEIR_OK;
}

static weir_status post_merge(weir_states_call *call, weir_buffer *text)
{
    return read_body(call, text, begin_merging);
}

void weir_states_api_merge(weir_exchange *x) { states_call_begin(x, post_merge); }
