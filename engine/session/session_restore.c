/* engine/session/session_restore.c - restores cached sequences from files: the engine thread gives
 * the sequence empty pages and memory for states, the caller's thread reads into them, the engine
 * thread inserts what was read once it is checked. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/schedule/tiers.h"
#include "engine/session/session_internal.h"
#include "kernels/abi/minmax.h"

/* ---- on the engine thread -------------------------------------------------------------------- */
/* The pages and states that one call on the engine thread takes. */
typedef struct page_request {
    session_transfer *own;
    int32_t n_states;
    int64_t rows; /* of it that are in the cache, or have pages now */
    session_need need;
    weir_status status;
    weir_error error;
} page_request;

/* Blocks near the kernels with which running sequences and other jobs can go on. */
static int64_t least_blocks(const weir_sessions *s)
{
    return weir_tiers_least_blocks(
        s->service->facts->n_slots + s->n_transfers, s->service->chunk,
        weir_runner_limits_of(s->service->runner)->hot
    );
}

/* Engine thread. Rows that are restored at a time with a lower tier: those that are free, so that
 * the disk and not the length of steps sets the speed; else what running sequences can always
 * spare. */
static int64_t piece_rows(const weir_sessions *s)
{
    enum { LEAST_BLOCKS = 2, MOST_BLOCKS = 16 };
    const weir_kv_spec *const spec = weir_kv_store_spec(s->service->store);
    const int64_t all = (spec->pages.n - weir_kv_cold_pages(spec) - spec->pages.n_sinks) /
                        weir_kv_pages_for(spec, 1),
                  least = least_blocks(s),
                  unused = weir_kv_free_blocks(s->service->store) - s->service->n_short - least,
                  spare = LEAST_BLOCKS + (all - least) / (2 * s->n_transfers);
    const int64_t wanted = spare < LEAST_BLOCKS  ? LEAST_BLOCKS
                           : spare < MOST_BLOCKS ? spare
                                                 : MOST_BLOCKS;
    return (unused > wanted ? unused : wanted) * WEIR_PAGE_TOKENS;
}

bool session_reclaim_pages(
    const weir_sessions *sessions, const weir_kv_pages *pages, session_need *need
)
{
    weir_service *const service = sessions->service;
    weir_reclaim_need for_pages = { 0 };
    const weir_reclaim_request request = { .caller = WEIR_RECLAIM_FOR_SESSION,
                                           .store = service->store,
                                           .pages = *pages,
                                           .need = &for_pages };
    const bool is_done = (weir_tiers_may_try(service->store, &service->holders) ||
                          weir_service_claim(service, *pages)) &&
                         weir_reclaim(&service->holders, &request, NULL) == WEIR_OK;
    need->waits = for_pages.waits;
    return is_done;
}

weir_status session_reclaim_memory(
    const weir_service *service, int64_t n_blocks, session_need *need, weir_error *error
)
{
    const weir_reclaim_request request = { .caller = WEIR_RECLAIM_FOR_MEMORY,
                                           .store = service->store,
                                           .blocks = n_blocks,
                                           .hot = weir_runner_limits_of(service->runner)->hot,
                                           .need = &need->memory };
    const weir_status status = weir_reclaim(&service->holders, &request, error);
    need->waits = need->memory.waits;
    return status;
}

void session_call_with_need(
    weir_service *service, void (*run)(weir_service *service, void *user), void *user,
    session_need *need
)
{
    weir_service_call(service, run, user);
    while (need->waits) {
        if (!weir_kv_wait_for_move(service->store)) weir_prefix_wait_for_moves(service->prefix);
        need->waits = false;
        weir_service_call(service, run, user);
    }
}

/* Memory near the kernels for a piece of its rows: sets r->rows to their end. If blocks have to
 * leave first, the piece is what is free and no step waits for. */
static weir_status find_memory(weir_service *service, page_request *r)
{
    const weir_kv_table *const table = &r->own->sequence.table;
    r->rows = weir_min(r->rows, table->n_pages * WEIR_PAGE_TOKENS + piece_rows(r->own->sessions));
    const weir_kv_pages pages = weir_kv_store_pages_of(
        service->store, table->n_pages, (r->rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS
    );
    const int64_t n_blocks = weir_kv_pages_blocks(weir_kv_store_spec(service->store), pages);
    const weir_status status = session_reclaim_memory(service, n_blocks, &r->need, &r->error);
    const int64_t n_free = weir_kv_free_blocks(service->store) - service->n_short;
    if (!r->need.waits || n_free < 1) return status;
    r->need = (session_need){ 0 };
    r->rows = weir_min(r->rows, (table->n_pages + n_free) * WEIR_PAGE_TOKENS);
    return WEIR_OK;
}

/* Pages for more of its rows: earlier ones are complete, and may move. */
static void grow(weir_service *service, void *user)
{
    page_request *const r = user;
    weir_kv_table *const table = &r->own->sequence.table;
    r->rows = r->own->sequence.n_tokens;
    if (r->own->sessions->is_tiered) {
        weir_kv_commit(table, table->n_pages * WEIR_PAGE_TOKENS - table->n_rows);
        r->status = find_memory(service, r);
        if (r->status != WEIR_OK) return;
    }
    r->status = weir_kv_reserve_main(table, service->store, r->rows - table->n_rows);
}

static weir_kv_pages pages_of_sequence(const weir_kv_store *store, int32_t n_tokens)
{
    return weir_kv_store_pages_of(store, 0, (n_tokens + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS);
}

weir_status session_reserve_windows(session_transfer *own)
{
    weir_kv_windows *const windows = weir_kv_store_windows(own->sessions->service->store);
    return windows != NULL ? weir_kv_window_reserve_before(
                                 &own->sequence.table.windows, windows, own->sequence.n_tokens
                             )
                           : WEIR_OK;
}

/* Takes pages that no running sequence has a claim to, and memory for the last states; all or
 * none. */
static void make_place(weir_service *service, void *user)
{
    page_request *const r = user;
    session_transfer *const own = r->own;
    const weir_sessions *const s = own->sessions;
    weir_kv_pages pages = pages_of_sequence(service->store, own->sequence.n_tokens);
    pages.tables = weir_kv_store_tables_of(
        service->store, (own->sequence.n_tokens + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS
    );
    r->status = WEIR_EFULL;
    if (!session_reclaim_pages(s, &pages, &r->need)) return;
    grow(service, r);
    if (r->need.waits) return;
    if (r->status == WEIR_OK) r->status = session_reserve_windows(own);
    if (r->status != WEIR_OK) {
        weir_kv_sequence_clear(&own->sequence);
        return;
    }
    r->status = WEIR_EFULL;
    const int32_t want = r->n_states < s->most_states ? r->n_states : s->most_states;
    while (own->n_marks < want) {
        float *const state = weir_prefix_acquire_snapshot(
            service->prefix, own->n_marks == 0 ? WEIR_STATE_LAST : WEIR_STATE_CHECKPOINT, 0
        );
        if (state == NULL) break;
        own->marks[own->n_marks++] = (weir_prefix_snapshot){ .state = state };
    }
    if (own->n_marks > 1) { /* the first one may displace the end of another turn */
        float *const end = own->marks[0].state;
        own->marks[0].state = own->marks[own->n_marks - 1].state;
        own->marks[own->n_marks - 1].state = end;
    }
    if (own->n_marks > 0 || r->n_states == 0)
        r->status = WEIR_OK;
    else
        weir_kv_sequence_clear(&own->sequence);
}

/* Inserts the checked sequence, so that others may continue it. */
static void take_in(weir_service *service, void *user)
{
    session_transfer *const own = user;
    weir_kv_commit(&own->sequence.table, own->sequence.n_tokens - own->sequence.table.n_rows);
    own->sequence.n_computed = own->sequence.n_tokens;
    (void)weir_prefix_insert(
        service->prefix, &own->sequence, own->salt, own->marks, own->n_marks, false
    );
    weir_prefix_name(service->prefix, &own->sequence, own->salt, own->name);
    weir_prefix_mark_saved(
        service->prefix, own->sequence.tokens, own->sequence.n_tokens, own->sequence.n_tokens,
        own->salt
    );
    own->n_marks = 0;
    weir_kv_sequence_clear(&own->sequence);
}

static void throw_away(weir_service *service, void *user)
{
    session_transfer *const own = user;
    for (int32_t i = 0; i < own->n_marks; i++)
        weir_prefix_release_snapshot(service->prefix, own->marks[i].state);
    own->n_marks = 0;
    weir_kv_sequence_clear(&own->sequence);
}

/* ---- reading --------------------------------------------------------------------------------- */
weir_status session_read_salt(session_transfer *own, weir_session_reader *reader, weir_error *error)
{
    WEIR_TRY(weir_session_read_salt(reader, own->salt, error));
    if (own->read_salt != NULL) (void)snprintf(own->salt, sizeof own->salt, "%s", own->read_salt);
    return session_choose_salt(own, weir_session_header_of(reader), error);
}

static weir_status read_content(
    session_transfer *own, weir_session_reader *reader, int32_t *places, weir_error *error
)
{
    const weir_sessions *const s = own->sessions;
    const int32_t n = weir_session_header_of(reader)->n_tokens;
    WEIR_TRY(weir_session_check(reader, &s->identity, error));
    const int64_t n_all = (int64_t)n + weir_session_header_of(reader)->form.n_rest;
    if (n_all > s->service->facts->window)
        return weir_error_set(
            error, WEIR_EFULL,
            "the session has %" PRId64 " tokens, the window here is %d; raise model.context", n_all,
            (int)s->service->facts->window
        );
    WEIR_TRY(weir_session_read_tokens(reader, own->sequence.tokens, s->n_vocab, error));
    WEIR_TRY(session_read_salt(own, reader, error));
    WEIR_TRY(weir_session_read_places(reader, places, error));
    own->sequence.n_tokens = n;
    return WEIR_OK;
}

/* With a lower tier in pieces, so that a sequence larger than memory can pass through it. */
static weir_status read_pages(session_transfer *own, weir_session_reader *reader, weir_error *error)
{
    const weir_sessions *const s = own->sessions;
    const weir_kv_spec *const spec = weir_kv_store_spec(s->service->store);
    const weir_kv_table *const table = &own->sequence.table;
    if (!s->is_tiered)
        return weir_session_read_pages(reader, table->pages, table->capacity, spec, error);
    const int64_t n = own->sequence.n_tokens;
    int64_t first = 0;
    for (;;) {
        const int64_t end = table->n_pages;
        WEIR_TRY(
            weir_session_read_blocks(reader, table->pages, table->capacity, spec, first, end, error)
        );
        if (end * WEIR_PAGE_TOKENS >= n) return WEIR_OK;
        page_request r = { .own = own };
        session_call_with_need(s->service, grow, &r, &r.need);
        if (r.status != WEIR_OK)
            return weir_error_set(
                error, r.status, "no room for the %d tokens of session %s: %s", (int)n, own->name,
                r.error.text[0] != '\0' ? r.error.text : "other requests took it; try later"
            );
        first = end;
    }
}

weir_status session_read_windows(
    session_transfer *own, weir_session_reader *reader, weir_error *error
)
{
    const weir_kv_store *const store = own->sessions->service->store;
    const weir_session_windows windows = weir_session_windows_of(&own->sequence.table, store);
    return weir_session_read_windows(reader, &windows, &weir_kv_store_spec(store)->windows, error);
}

/* Reads the last states of the file into their memory; earlier ones are read into that of the first
 * and overwritten. */
static weir_status read_memory(
    session_transfer *own, weir_session_reader *reader, const int32_t *places, weir_error *error
)
{
    const weir_sessions *const s = own->sessions;
    const int32_t n = weir_session_header_of(reader)->n_states, skipped = n - own->n_marks;
    float *states[WEIR_SESSION_STATES];
    for (int32_t i = 0; i < n; i++) states[i] = own->marks[i < skipped ? 0 : i - skipped].state;
    for (int32_t i = 0; i < own->n_marks; i++) own->marks[i].at = places[skipped + i];
    WEIR_TRY(session_read_states(s, reader, states, error));
    for (int32_t i = 0; i < own->n_marks; i++) {
        if (!weir_runner_is_state(s->service->runner, own->marks[i].state, own->marks[i].at))
            return weir_error_set(
                error, WEIR_EFORMAT,
                "session %s: its state after token %d cannot be one of this model", own->name,
                (int)own->marks[i].at
            );
    }
    WEIR_TRY(read_pages(own, reader, error));
    return session_read_windows(own, reader, error);
}

static void look_for(weir_service *service, void *user)
{
    page_request *const r = user;
    const weir_kv_sequence *const sequence = &r->own->sequence;
    r->rows = weir_prefix_match_length(
        service->prefix, sequence->tokens, sequence->n_tokens, r->own->salt
    );
}

/* True if the state is cached already; the usual case, since a state is used many times. */
static bool is_there(session_transfer *own)
{
    page_request r = { .own = own };
    if (own->read_salt == NULL) return false;
    weir_service_call(own->sessions->service, look_for, &r);
    return r.rows >= own->sequence.n_tokens;
}

static weir_status restore_from(
    session_transfer *own, weir_session_reader *reader, weir_session_result *result,
    weir_error *error
)
{
    weir_service *const service = own->sessions->service;
    int32_t places[WEIR_SESSION_STATES];
    const weir_session_header *const header = weir_session_header_of(reader);
    weir_status status = read_content(own, reader, places, error);
    page_request r = { .own = own, .n_states = header->n_states };
    if (status == WEIR_OK && is_there(own)) {
        *result = (weir_session_result){ .n_tokens = header->n_tokens,
                                         .n_bytes = (int64_t)header->bytes };
        weir_service_call(service, throw_away, own);
        return WEIR_OK;
    }
    if (status == WEIR_OK) {
        session_call_with_need(service, make_place, &r, &r.need);
        status = r.status;
        if (status != WEIR_OK)
            (void)weir_error_set(
                error, status,
                "no room for the %d tokens of session %s next to the running requests%s%s; try "
                "later, or raise %s",
                (int)header->n_tokens, own->name, r.error.text[0] != '\0' ? ": " : "", r.error.text,
                weir_kv_store_budget(service->store)
            );
    }
    if (status == WEIR_OK) status = read_memory(own, reader, places, error);
    weir_service_call(service, status == WEIR_OK ? take_in : throw_away, own);
    if (status == WEIR_OK)
        *result = (weir_session_result){ .n_tokens = header->n_tokens,
                                         .n_bytes = (int64_t)header->bytes };
    return status;
}

/* name: "" for a sequence without one. */
static weir_status restore_file(
    session_transfer *own, const char *path, const char *name, weir_session_result *result,
    weir_error *error
)
{
    weir_session_reader *reader = NULL;
    const weir_service *const service = own->sessions->service;
    WEIR_TRY(weir_session_open(&reader, path, error));
    weir_session_read_near(reader, service->ledger);
    (void)snprintf(own->name, sizeof own->name, "%s", name);
    const weir_session_header *const header = weir_session_header_of(reader);
    weir_session_progress_begin(&own->progress, (int64_t)header->bytes);
    weir_session_read_with(reader, &own->progress);
    if (header->is_automatic) own->name[0] = '\0';
    const weir_status status =
        weir_session_has_form(header) && own->read_salt == NULL
            ? weir_error_set(
                  error, WEIR_EUNSUPPORTED,
                  "%s: a state of a database, not a session: `weir db query` continues it", path
              )
        : header->is_pruned ? session_restore_pruned(own, reader, result, error)
                            : restore_from(own, reader, result, error);
    if (status == WEIR_OK) result->numerics = weir_origin_text(&service->origins, own->salt);
    weir_session_close(reader);
    return status;
}

weir_status session_restore_named(
    session_transfer *own, const char *name, weir_session_result *result, weir_error *error
)
{
    session_path path;
    const int64_t start = weir_clock_ns();
    WEIR_TRY(session_path_of(path, own->sessions, name, error));
    const weir_status status = restore_file(own, path, name, result, error);
    if (status == WEIR_OK) result->time_ns = weir_clock_ns() - start;
    return status == WEIR_ENOTFOUND ? weir_error_set(error, status, "there is no session %s", name)
                                    : status;
}

weir_status session_read_path(
    session_transfer *own, const char *path, const char *salt, weir_session_result *result,
    weir_error *error
)
{
    const int64_t start = weir_clock_ns();
    if (salt != NULL && (salt[0] == '\0' || strlen(salt) > WEIR_PREFIX_SALT))
        return weir_error_set(
            error, WEIR_EINVAL, "a salt has 1 to %d bytes", (int)WEIR_PREFIX_SALT
        );
    own->read_salt = salt;
    const weir_status status = restore_file(own, path, "", result, error);
    own->read_salt = NULL;
    if (status == WEIR_EFULL) return weir_error_prefix(error, status, "%s", path);
    if (status == WEIR_OK) result->time_ns = weir_clock_ns() - start;
    return status;
}

/* Is a sequence of this name cached? */
typedef struct question {
    const char *name;
    bool is_kept;
} question;

static void answer(weir_service *service, void *user)
{
    question *const q = user;
    q->is_kept = weir_prefix_has_name(service->prefix, q->name) ||
                 weir_pruned_has_name(service->prefix, q->name);
}

bool session_is_kept(session_transfer *own, const char *name)
{
    question q = { .name = name };
    weir_service_call(own->sessions->service, answer, &q);
    return q.is_kept;
}

/* ---- the most recent ones -------------------------------------------------------------------- */
static int by_age(const void *a, const void *b)
{
    const int64_t left = ((const weir_session_info *)a)->changed_ns,
                  right = ((const weir_session_info *)b)->changed_ns;
    return (left > right) - (left < right);
}

/* Moves the newest usable files that fit in free pages to the end of the list. Returns the index of
 * the first of them. */
static size_t choose(const weir_sessions *s, weir_session_info *list, size_t n)
{
    weir_kv_pages pages = weir_kv_store_free(s->service->store);
    size_t first = n;
    qsort(list, n, sizeof *list, by_age);
    for (size_t i = n; i-- > 0;) {
        const weir_session_info info = list[i];
        const weir_kv_pages wanted = pages_of_sequence(s->service->store, info.n_tokens);
        if (info.problem != WEIR_OK)
            weir_log(
                WEIR_LOG_WARNING, "session %s is skipped: %s; `weir session list` says more",
                info.name, weir_status_text(info.problem)
            );
        if (info.problem != WEIR_OK || !weir_kv_pages_fit(wanted, pages) ||
            info.n_tokens > s->service->facts->window)
            continue;
        pages = weir_kv_pages_minus(pages, wanted);
        list[i] = list[--first];
        list[first] = info;
    }
    return first;
}

int32_t weir_sessions_restore_recent(weir_sessions *sessions)
{
    weir_session_info *list = NULL;
    size_t n = 0;
    int32_t n_restored = 0;
    weir_error error = { 0 };
    if (weir_sessions_list(sessions, &list, &n, &error) != WEIR_OK) {
        weir_log(WEIR_LOG_WARNING, "no session is restored: %s", error.text);
        return 0;
    }
    for (size_t i = n > 0 ? choose(sessions, list, n) : 0; i < n;
         i++) { /* the newest last, so that it is dropped last */
        weir_session_result result;
        if (weir_sessions_restore(sessions, list[i].name, &result, &error) == WEIR_OK)
            n_restored++;
        else
            weir_log(WEIR_LOG_WARNING, "session %s is not restored: %s", list[i].name, error.text);
    }
    weir_memory_give(list);
    return n_restored;
}
