/* engine/session/session_pruned.c - sessions of sequences with a KV policy
 * (engine/kv/prefix/pruned_cache.h): saves an entry, and makes one from a file after everything in
 * it is checked: the policy is opened, its state read, its rows counted. */
#include <string.h>

#include "engine/base/memory.h"
#include "engine/session/session_internal.h"

/* ---- saving ---------------------------------------------------------------------------------- */
static weir_status take(session_transfer *own, weir_status held)
{
    WEIR_TRY(held);
    memcpy(
        own->sequence.tokens, own->pruned.tokens,
        (size_t)own->pruned.n_tokens * sizeof *own->pruned.tokens
    );
    own->sequence.n_tokens = own->sequence.n_computed = own->pruned.n_tokens;
    (void)strcpy(own->salt, own->pruned.salt);
    (void)strcpy(own->name, own->pruned.name);
    if (own->pruned.recurrent != NULL)
        own->marks[own->n_marks++] = (weir_prefix_snapshot
        ){ own->pruned.n_tokens,
           (float *)(uintptr_t)own->pruned.recurrent }; /* The sequence is only read. */
    own->is_pruned = true;
    return WEIR_OK;
}

weir_status session_pin_pruned(session_transfer *own, const weir_pruned_query *query)
{
    weir_prefix *const prefix = own->sessions->service->prefix;
    return take(own, weir_pruned_pin(prefix, query, &own->sequence, &own->pruned));
}

weir_status session_pin_next_pruned(session_transfer *own, uint64_t *use)
{
    weir_prefix *const prefix = own->sessions->service->prefix;
    return take(own, weir_pruned_pin_next(prefix, use, &own->sequence, &own->pruned));
}

void session_unpin_pruned(session_transfer *own)
{
    weir_pruned_unpin(own->sessions->service->prefix, &own->pruned);
    own->n_marks = 0;
    own->is_pruned = false;
}

void session_pruned_of(weir_session_pruned *out, const session_transfer *own)
{
    *out = (weir_session_pruned){ .head_rows = own->sequence.table.head_rows,
                                  .unsealed = own->sequence.table.unsealed_memory,
                                  .past = own->pruned.past,
                                  .policy = own->pruned.policy,
                                  .state = own->pruned.state,
                                  .state_bytes = own->pruned.state_bytes };
}

/* ---- restoring ------------------------------------------------------------------------------- */
/* A sequence that is being restored. */
typedef struct arrival {
    session_transfer *own;
    session_need need;
    weir_session_pruned pruned;
    int32_t *head_rows; /* owned, as are the others */
    char *policy;
    float *recurrent;
    weir_status status;
    const char *reason; /* why it was not inserted; NULL: it was */
    weir_error error;
} arrival;

static weir_status no_memory(const session_transfer *own, weir_error *error)
{
    return weir_error_set(error, WEIR_ENOMEM, "no memory for session %s now", own->name);
}

static weir_status parse_policy(weir_policy_options *out, const char *text, weir_error *error)
{
    char name[64];
    const size_t n = strcspn(text, " ");
    if (n >= sizeof name) return weir_error_set(error, WEIR_ECONFIG, "a name of %zu bytes", n);
    memcpy(name, text, n);
    name[n] = '\0';
    WEIR_TRY(weir_policy_options_default(out, name, error));
    return text[n] == '\0' ? WEIR_OK : weir_policy_options_set(out, text + n + 1, error);
}

/* True if layers without a policy have all rows, and the others as many as their state says. */
static bool are_rows_right(
    const arrival *a, const weir_policy *policy, const weir_policy_state *state, int64_t *n_rows,
    int32_t n_tokens
)
{
    const weir_service_policy *const here = a->own->sessions->service->policy;
    const weir_kv_spec *const spec = weir_kv_store_spec(a->own->sessions->service->store);
    int64_t listed = 0, n = 0; /* layers, and their heads */
    for (int64_t layer = 0; layer < spec->n_layers; layer++) {
        const bool is_listed = listed < here->shape.n_layers && here->layers[listed] == layer;
        const weir_kv_geometry *const g = &spec->geometry[layer];
        for (int64_t h = g->first_head; h < g->first_head + g->n_heads; h++) {
            const int32_t rows = a->head_rows[h];
            if (is_listed)
                n_rows[n++] = rows;
            else if (rows != n_tokens)
                return false;
        }
        listed += is_listed;
    }
    return weir_policy_fits(policy, state, n_rows, n_tokens);
}

static weir_status check_state(
    const arrival *a, const weir_policy *policy, int32_t n_tokens, weir_error *error
)
{
    const weir_policy_shape *const shape = &a->own->sessions->service->policy->shape;
    weir_policy_state *const state = weir_memory_take(weir_policy_state_bytes(policy));
    int64_t *const n_rows =
        weir_memory_take((size_t)(shape->n_layers * shape->n_kv_heads) * sizeof *n_rows);
    weir_status status = state != NULL && n_rows != NULL ? WEIR_OK : no_memory(a->own, error);
    if (status == WEIR_OK)
        status = weir_policy_load(policy, state, a->pruned.state, a->pruned.state_bytes, error);
    if (status == WEIR_OK && !are_rows_right(a, policy, state, n_rows, n_tokens))
        status = weir_error_set(
            error, WEIR_EFORMAT, "its KV policy's state is of other rows than those in the file"
        );
    weir_memory_give(n_rows);
    weir_memory_give(state);
    return status;
}

/* The policy must have the same options in this process; otherwise the sequence cannot be used. */
static weir_status check_policy(const arrival *a, int32_t n_tokens, weir_error *error)
{
    const weir_service_policy *const here = a->own->sessions->service->policy;
    weir_policy_shape shape = here->shape;
    weir_policy_options options;
    weir_policy *policy = NULL;
    weir_error why = { 0 };
    uint64_t digest[2];
    shape.max_rows = n_tokens + 1;
    shape.n_pinned = a->pruned.past.n_pinned;
    weir_status status = parse_policy(&options, a->pruned.policy, &why);
    if (status == WEIR_OK)
        status = weir_policy_open(&policy, &options, &shape, here->calibration, &why);
    if (status == WEIR_OK) status = weir_policy_check_budget(policy, a->pruned.past.budget, &why);
    if (status != WEIR_OK) {
        weir_policy_close(policy);
        return weir_error_set(
            error, status == WEIR_ENOMEM ? status : WEIR_EMISMATCH,
            "its KV policy cannot be opened: %s", why.text
        );
    }
    weir_policy_digest(policy, digest);
    if (memcmp(digest, a->pruned.past.policy, sizeof digest) != 0)
        status = weir_error_set(
            error, WEIR_EMISMATCH,
            "made with the KV policy %s for another model, with other statistics, or by a program "
            "whose version of it differs",
            weir_policy_name(&options)
        );
    else
        status = check_state(a, policy, n_tokens, error);
    weir_policy_close(policy);
    return status;
}

static weir_status read_parts(arrival *a, weir_session_reader *reader, weir_error *error)
{
    session_transfer *const own = a->own;
    const weir_sessions *const s = own->sessions;
    const weir_kv_spec *const spec = weir_kv_store_spec(s->service->store);
    const weir_session_header *const header = weir_session_header_of(reader);
    int32_t places[WEIR_SESSION_STATES];
    WEIR_TRY(weir_session_check(reader, &s->identity, error));
    if (s->service->policy == NULL)
        return weir_error_set(
            error, WEIR_EMISMATCH,
            "session %s was made with the KV policy %s, but this model has no rows to evict",
            own->name, header->identity.policy
        );
    if (header->n_tokens > s->service->facts->window)
        return weir_error_set(
            error, WEIR_EFULL,
            "the session has %d tokens, the window here is %d; raise model.context",
            (int)header->n_tokens, (int)s->service->facts->window
        );
    a->head_rows = weir_memory_take((size_t)weir_kv_n_heads(spec) * sizeof *a->head_rows);
    a->policy = weir_memory_take(header->policy_bytes + 1);
    a->recurrent = header->n_states > 0 ? weir_memory_take((size_t)s->identity.state_bytes) : NULL;
    if (a->head_rows == NULL || a->policy == NULL || (header->n_states > 0 && a->recurrent == NULL))
        return no_memory(own, error);
    WEIR_TRY(weir_session_read_tokens(reader, own->sequence.tokens, s->n_vocab, error));
    WEIR_TRY(session_read_salt(own, reader, error));
    WEIR_TRY(weir_session_read_places(reader, places, error));
    WEIR_TRY(weir_session_read_rows(reader, a->head_rows, spec, error));
    WEIR_TRY(weir_session_read_policy(reader, &a->pruned, a->policy, error));
    weir_error why = { 0 };
    const weir_status status = check_policy(a, header->n_tokens, &why);
    return status == WEIR_OK ? WEIR_OK
                             : weir_error_set(error, status, "session %s: %s", own->name, why.text);
}

/* Takes pages that no running sequence has a claim to; all or none. */
static void make_place(weir_service *service, void *user)
{
    arrival *const a = user;
    session_transfer *const own = a->own;
    const weir_kv_spec *const spec = weir_kv_store_spec(service->store);
    const weir_kv_pages pages = weir_kv_reserve_pruned_pages(service->store, a->head_rows);
    weir_reclaim_need more = { 0 };
    const weir_reclaim_request request = { .caller = WEIR_RECLAIM_FOR_SESSION_FULL,
                                           .store = service->store,
                                           .need = &more };
    a->status = WEIR_EFULL;
    if (!session_reclaim_pages(own->sessions, &pages, &a->need)) return;
    a->status =
        session_reclaim_memory(service, weir_kv_pages_blocks(spec, pages), &a->need, &a->error);
    if (a->status != WEIR_OK) return;
    /* Pages of one size class may be missing. */
    do a->status = weir_kv_reserve_pruned(&own->sequence.table, service->store, a->head_rows);
    while (a->status == WEIR_EFULL && weir_reclaim(&service->holders, &request, NULL) == WEIR_OK);
    a->need.waits = a->status == WEIR_EFULL && more.waits;
    if (a->status == WEIR_OK) a->status = session_reserve_windows(own);
}

static weir_status read_rows(const arrival *a, weir_session_reader *reader, weir_error *error)
{
    weir_kv_table *const table = &a->own->sequence.table;
    float *const states[] = { a->recurrent };
    WEIR_TRY(weir_session_read_states(reader, states, error));
    if (a->recurrent != NULL && !weir_runner_is_state(
                                    a->own->sessions->service->runner, a->recurrent,
                                    weir_session_header_of(reader)->n_tokens
                                ))
        return weir_error_set(
            error, WEIR_EFORMAT, "session %s: its state cannot be one of this model", a->own->name
        );
    WEIR_TRY(weir_session_read_unsealed(reader, table->unsealed_memory, error));
    const weir_kv_store *const store = a->own->sessions->service->store;
    WEIR_TRY(weir_session_read_pruned_pages(
        reader, table->pages, table->capacity, a->head_rows, weir_kv_store_spec(store), error
    ));
    WEIR_TRY(session_read_windows(a->own, reader, error));
    table->windows.n_rows = a->own->sequence.n_tokens;
    return WEIR_OK;
}

static void take_in(weir_service *service, void *user)
{
    arrival *const a = user;
    session_transfer *const own = a->own;
    const weir_pruned_entry content = { .tokens = own->sequence.tokens,
                                        .n_tokens = own->sequence.n_tokens,
                                        .salt = own->salt,
                                        .name = own->name,
                                        .past = a->pruned.past,
                                        .policy = a->pruned.policy,
                                        .recurrent = a->recurrent,
                                        .state = a->pruned.state,
                                        .state_bytes = a->pruned.state_bytes };
    a->reason = weir_pruned_restore(service->prefix, &own->sequence.table, &content);
    weir_kv_sequence_clear(&own->sequence);
}

static void throw_away(weir_service *service, void *user)
{
    (void)service;
    weir_kv_sequence_clear(&((arrival *)user)->own->sequence);
}

static weir_status restore(arrival *a, weir_session_reader *reader, weir_error *error)
{
    session_transfer *const own = a->own;
    weir_service *const service = own->sessions->service;
    const int32_t n = weir_session_header_of(reader)->n_tokens;
    WEIR_TRY(read_parts(a, reader, error));
    own->sequence.n_tokens = n;
    session_call_with_need(service, make_place, a, &a->need);
    if (a->status != WEIR_OK)
        return weir_error_set(
            error, a->status,
            "no room for the rows of session %s next to the running requests%s%s; try later, or "
            "raise %s",
            own->name, a->error.text[0] != '\0' ? ": " : "", a->error.text,
            weir_kv_store_budget(service->store)
        );
    const weir_status status = read_rows(a, reader, error);
    weir_service_call(service, status == WEIR_OK ? take_in : throw_away, a);
    if (status == WEIR_OK && a->reason != NULL)
        return weir_error_set(
            error, WEIR_EFULL, "session %s of %d tokens is not kept: %s", own->name, (int)n,
            a->reason
        );
    return status;
}

weir_status session_restore_pruned(
    session_transfer *own, weir_session_reader *reader, weir_session_result *result,
    weir_error *error
)
{
    const weir_session_header *const header = weir_session_header_of(reader);
    arrival a = { .own = own };
    const weir_status status = restore(&a, reader, error);
    if (status != WEIR_OK) weir_service_call(own->sessions->service, throw_away, &a);
    if (status == WEIR_OK)
        *result = (weir_session_result){ .n_tokens = header->n_tokens,
                                         .n_bytes = (int64_t)header->bytes };
    weir_memory_give(a.recurrent);
    weir_memory_give(a.policy);
    weir_memory_give(a.head_rows);
    return status;
}
