#include "engine/session/saver.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/base/worker.h"
#include "engine/session/session_internal.h"
#include "offload/ledger.h"

enum { TRIES = 4 /* Sequences that one search may reject. */ };

struct weir_saver {
    weir_sessions *sessions;
    weir_ledger_tracker tracker;
    weir_service_hooks hooks;
    /* ---- the engine thread's */
    session_transfer transfer;
    int32_t n_whole; /* whole tokens of the sequence; the last of them may be unusable */
    bool is_busy, is_taken_away;
    int n_pauses;
    weir_prefix_wanted reserve;
    int64_t seen_free; /* free pages when the last search found nothing */
    int64_t seen_tokens; /* cached tokens at that time */
    weir_service_stats counts; /* only the fields that `count` copies */
    /* ---- handed over with has_work */
    weir_session_content file;
    weir_session_source source;
    weir_session_progress progress;
    /* ---- the writing thread's */
    bool is_written;
    weir_log_causes causes; /* of failures since the last success */

    /* The lock guards the fields below, and the pages and states of `transfer` while it is written.
     * It is woken too when a pause shall look whether it is needed. */
    weir_worker worker;
    bool has_work, is_gone;
};

/* ---- the writing thread ---------------------------------------------------------------------- */
static bool is_ending(const void *user)
{
    const weir_saver *const s = user;
    return s->is_gone || s->worker.is_closing;
}

static weir_status refuse(const weir_saver *s, weir_error *error)
{
    return is_ending(s) ? weir_error_set(error, WEIR_ECANCELED, "its memory was needed") : WEIR_OK;
}

static weir_status copy_page(
    void *user, void *bytes, int64_t block, int64_t head, weir_error *error
)
{
    weir_saver *const s = user;
    const weir_kv_table *const table = &s->transfer.sequence.table;
    weir_kv_store *const store = s->sessions->service->store;
    weir_kv_page_read read;
    weir_worker_lock(&s->worker);
    const weir_status status = refuse(s, error);
    if (status == WEIR_OK)
        weir_kv_page_read_begin(
            store, &read, bytes, table->pages[head * table->capacity + block], head
        );
    weir_worker_unlock(&s->worker);
    /* The place of a page in the lower tier stays as it is until it is read. */
    return status == WEIR_OK ? weir_kv_page_read_end(store, &read, error) : status;
}

static weir_status copy_state(
    void *user, void *bytes, int64_t i, size_t at, size_t n, weir_error *error
)
{
    weir_saver *const s = user;
    weir_worker_lock(&s->worker);
    const weir_status status = refuse(s, error);
    if (status == WEIR_OK) memcpy(bytes, (const char *)s->transfer.marks[i].state + at, n);
    weir_worker_unlock(&s->worker);
    return status;
}

static weir_status copy_window(
    void *user, void *bytes, int64_t i, size_t at, size_t n, weir_error *error
)
{
    weir_saver *const s = user;
    const weir_kv_windows *const windows = weir_kv_store_windows(s->sessions->service->store);
    weir_worker_lock(&s->worker);
    const weir_status status = refuse(s, error);
    if (status == WEIR_OK) {
        const int32_t block = s->transfer.sequence.table.windows.blocks[i];
        memcpy(bytes, (const char *)weir_kv_window_memory(windows, block) + at, n);
    }
    weir_worker_unlock(&s->worker);
    return status;
}

static void give_way(void *user, int64_t ns)
{
    weir_saver *const s = user;
    const session_pause pause = {
        .lock = &s->worker.lock, .changed = &s->worker.changed, .is_over = is_ending, .user = s
    };
    session_give_way(s->sessions, &pause, ns);
}

static void log_failure(weir_saver *s, const weir_error *why)
{
    if (!weir_log_is_new(&s->causes, why->text)) return;
    weir_log(
        WEIR_LOG_WARNING,
        "a cached sequence of %d tokens is dropped unsaved, and others may be for the same reason: "
        "%s",
        (int)s->file.n_tokens, why->text
    );
}

static void write_file(weir_saver *s)
{
    weir_error error = { 0 };
    weir_session_result result = { 0 };
    weir_status status = WEIR_OK;
    char name[WEIR_PREFIX_NAME + 1];
    session_name_content(name, s->file.tokens, s->file.n_tokens, s->file.salt, NULL);
    if (!session_is_there(s->sessions, name, &s->file))
        status = session_write_content(
            s->sessions, SESSION_WRITERS - 1, name, &s->file, &result, &error
        );
    s->is_written = status == WEIR_OK;
    if (s->is_written) {
        s->causes = (weir_log_causes){ 0 };
        session_index_add(s->sessions, name, &s->file);
        session_folder_drop_beginnings(s->sessions, &s->file, name);
    } else if (status != WEIR_ECANCELED) {
        log_failure(s, &error);
    }
}

static void finish(weir_service *service, void *user);

static void *write_files(void *user)
{
    weir_saver *const s = user;
    (void)weir_memory_tracker_set(&s->tracker.tracker);
    weir_worker_lock(&s->worker);
    for (;;) {
        while (!s->has_work && !s->worker.is_closing) weir_worker_wait(&s->worker);
        if (!s->has_work) break;
        weir_worker_unlock(&s->worker);
        write_file(s);
        weir_service_call(s->sessions->service, finish, s);
        weir_worker_lock(&s->worker);
    }
    weir_worker_unlock(&s->worker);
    return NULL;
}

/* ---- the engine thread ----------------------------------------------------------------------- */
static void let_go(weir_saver *s)
{
    weir_prefix_unpin(s->sessions->service->prefix, s->transfer.marks, s->transfer.n_marks);
    s->transfer.n_marks = 0;
    weir_kv_sequence_clear(&s->transfer.sequence);
}

/* Each sequence is tried once, whatever the result, unless its memory was taken away. */
static void finish(weir_service *service, void *user)
{
    weir_saver *const s = user;
    if (!s->is_taken_away) {
        weir_prefix_mark_saved(
            service->prefix, s->file.tokens, s->n_whole, s->is_written ? s->file.n_tokens : 0,
            s->file.salt
        );
        let_go(s);
        s->counts.saved_sequences += s->is_written;
        s->counts.saved_tokens += s->is_written ? s->file.n_tokens : 0;
        s->counts.save_failures += !s->is_written;
    }
    s->is_busy = false;
    s->seen_free = INT64_MAX;
    weir_worker_lock(&s->worker);
    s->has_work = false;
    weir_worker_wake(&s->worker);
    weir_worker_unlock(&s->worker);
}

/* Starts to save the sequence, unless too little of it could be continued. If its last state
 * or its window is being read from disk, the next search finds it again. */
static bool begin(weir_saver *s)
{
    weir_prefix *const prefix = s->sessions->service->prefix;
    session_transfer *const transfer = &s->transfer;
    s->n_whole = transfer->sequence.n_tokens;
    const int32_t n_shared = weir_prefix_share(prefix, &transfer->sequence, transfer->salt);
    if (n_shared == WEIR_PREFIX_WAITS) {
        weir_kv_sequence_clear(&transfer->sequence);
        return true;
    }
    if (n_shared < WEIR_SAVED_TOKENS) {
        weir_prefix_mark_saved(prefix, transfer->sequence.tokens, s->n_whole, 0, transfer->salt);
        weir_kv_sequence_clear(&transfer->sequence);
        return false;
    }
    transfer->sequence.n_tokens = transfer->sequence.n_computed;
    const int32_t most = s->sessions->identity.state_bytes > 0 ? WEIR_SESSION_STATES : 0;
    transfer->n_marks =
        most > 0
            ? weir_prefix_pin(prefix, &transfer->sequence, transfer->salt, transfer->marks, most)
            : 0;
    if (transfer->n_marks == WEIR_PREFIX_WAITS) {
        transfer->n_marks = 0;
        weir_kv_sequence_clear(&transfer->sequence);
        return true;
    }
    s->file = (weir_session_content){ .tokens = transfer->sequence.tokens,
                                      .n_tokens = transfer->sequence.n_computed,
                                      .n_states = transfer->n_marks,
                                      .salt = transfer->salt,
                                      .spec = weir_kv_store_spec(s->sessions->service->store),
                                      .states = transfer->marks,
                                      .source = &s->source,
                                      .is_automatic = true,
                                      .progress = &s->progress };
    s->is_busy = true;
    s->is_taken_away = false;
    weir_worker_lock(&s->worker);
    s->has_work = true;
    s->is_gone = false;
    weir_worker_wake(&s->worker);
    weir_worker_unlock(&s->worker);
    return true;
}

/* A search goes through the sequences that were used least recently, in as many calls as that
 * takes, so none begins while nothing was cached and few pages were used since the last one
 * ended. */
static void save_next(void *user)
{
    enum { SHARE = 32 };
    weir_saver *const s = user;
    if (s->is_busy || s->n_pauses > 0) return;
    weir_service *const service = s->sessions->service;
    const weir_prefix_stats kept = weir_prefix_stats_of(service->prefix);
    const int64_t free = weir_kv_store_free_pages(service->store),
                  written = kept.n_tokens + kept.dropped_tokens;
    const bool has_room = weir_kv_pages_fit(s->reserve.pages, weir_kv_store_free(service->store)) &&
                          weir_prefix_has_free_states(service->prefix, s->reserve.n_states) &&
                          weir_prefix_has_free_windows(service->prefix, s->reserve.n_windows);
    if (has_room || (written == s->seen_tokens &&
                     free + weir_kv_pages_others(s->reserve.pages) / SHARE >= s->seen_free))
        return;
    for (int i = 0; i < TRIES; i++) {
        const weir_prefix_victim victim = weir_prefix_next_victim(
            service->prefix, &s->reserve, WEIR_SAVED_TOKENS, &s->transfer.sequence, s->transfer.salt
        );
        if (victim == WEIR_VICTIM_LATER) return;
        if (victim == WEIR_VICTIM_NONE ||
            !weir_service_spares_table(service, s->transfer.sequence.n_tokens)) {
            weir_kv_sequence_clear(&s->transfer.sequence);
            s->seen_tokens = written;
            s->seen_free = free;
            return;
        }
        if (begin(s)) return;
    }
}

static bool holds_pages(const weir_saver *s) { return s->is_busy && !s->is_taken_away; }

static weir_kv_pages held_pages(const void *user)
{
    const weir_saver *const s = user;
    const int64_t rows = holds_pages(s) ? s->transfer.sequence.n_computed : 0;
    const int64_t end = (rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
    weir_kv_pages n = weir_kv_store_pages_of(s->sessions->service->store, 0, end);
    n.tables = s->transfer.sequence.table.n_units;
    return n;
}

static bool release(void *user)
{
    weir_saver *const s = user;
    if (!holds_pages(s)) return false;
    weir_worker_lock(&s->worker);
    s->is_gone = true;
    let_go(s);
    weir_worker_wake(&s->worker);
    weir_worker_unlock(&s->worker);
    s->is_taken_away = true;
    const int64_t n = ++s->counts.saves_given_up;
    if ((n & (n - 1)) == 0)
        weir_log(
            WEIR_LOG_INFO,
            "memory was needed sooner than a sequence of %d tokens could be saved (%" PRId64
            " times so far)",
            (int)s->file.n_tokens, n
        );
    return true;
}

static void count(const void *user, weir_service_stats *stats)
{
    const weir_saver *const s = user;
    stats->saved_sequences = s->counts.saved_sequences;
    stats->saved_tokens = s->counts.saved_tokens;
    stats->save_failures = s->counts.save_failures;
    stats->saves_given_up = s->counts.saves_given_up;
    stats->replaced_sequences = atomic_load(&s->sessions->n_replaced);
}

/* ---- opening --------------------------------------------------------------------------------- */
static void enter(weir_service *service, void *user)
{
    weir_saver *const s = user;
    service->session_sequences[s->sessions->n_transfers] = &s->transfer.sequence;
    service->hooks = &s->hooks;
}

static void leave(weir_service *service, void *user)
{
    service->session_sequences[((weir_saver *)user)->sessions->n_transfers] = NULL;
    service->hooks = NULL;
}

/* The next prompt may be as long as the window; at most half of the pool. */
static weir_prefix_wanted reserve_of(const weir_kv_store *store)
{
    const int64_t window = weir_kv_store_spec(store)->max_rows,
                  n_blocks = (window + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
    const weir_kv_pages all = weir_kv_store_all(store);
    const weir_kv_windows *const windows = weir_kv_store_windows(store);
    weir_kv_pages n = weir_kv_store_pages_of(store, 0, n_blocks);
    if (n.sinks > all.sinks / 2) n.sinks = all.sinks / 2;
    for (int i = 0; i < WEIR_KV_SIZE_CLASSES; i++)
        if (n.others[i] > all.others[i] / 2) n.others[i] = all.others[i] / 2;
    const int64_t half = windows != NULL ? weir_kv_windows_spec_of(windows)->n_blocks / 2 : 0;
    return (weir_prefix_wanted
    ){ .pages = n, .n_states = CHOICE_MARKS, .n_windows = n_blocks < half ? n_blocks : half };
}

weir_status weir_saver_open(weir_saver **out, weir_sessions *sessions, weir_error *error)
{
    weir_service *const service = sessions->service;
    const weir_kv_spec *const spec = weir_kv_store_spec(service->store);
    weir_saver *const s = calloc(1, sizeof *s);
    if (s == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory to save cached sequences");
    s->sessions = sessions;
    s->hooks = (weir_service_hooks
    ){ .after_step = save_next, .release = release, .held = held_pages, .count = count, .user = s };
    s->progress = (weir_session_progress){ .give_way = give_way, .user = s };
    s->source = (weir_session_source
    ){ .page = copy_page, .state = copy_state, .window = copy_window, .user = s };
    s->reserve = reserve_of(service->store);
    s->seen_free = INT64_MAX;
    weir_ledger_tracker_init(&s->tracker, service->ledger, WEIR_ACCOUNT_HTTP, NULL);
    weir_status status =
        weir_kv_sequence_open(&s->transfer.sequence, service->store, service->ledger, 0, error);
    if (status == WEIR_OK)
        status = weir_ledger_alloc(
            service->ledger, &s->source.memory, WEIR_ACCOUNT_TOKENS, weir_session_copy_bytes(spec),
            error
        );
    if (status == WEIR_OK)
        status = weir_worker_open(&s->worker, write_files, s, "saves cached sequences", error);
    if (status == WEIR_OK) weir_service_call(service, enter, s);
    if (status != WEIR_OK)
        weir_saver_close(s);
    else
        *out = s;
    return status;
}

size_t weir_sessions_saver_bytes(int32_t limit, const weir_kv_spec *spec)
{
    return session_index_bytes(limit) + weir_session_copy_bytes(spec);
}

void weir_sessions_settle(weir_sessions *sessions)
{
    weir_saver_pause(sessions->saver);
    weir_saver_resume(sessions->saver);
}

void weir_saver_close(weir_saver *saver)
{
    if (saver == NULL) return;
    if (saver->worker.has_thread) weir_service_call(saver->sessions->service, leave, saver);
    weir_worker_close(&saver->worker);
    weir_service *const service = saver->sessions->service;
    if (saver->source.memory != NULL)
        weir_ledger_free(
            service->ledger, saver->source.memory, WEIR_ACCOUNT_TOKENS,
            weir_session_copy_bytes(weir_kv_store_spec(service->store))
        );
    weir_kv_sequence_close(&saver->transfer.sequence);
    free(saver);
}

static void hold_off(weir_service *service, void *user)
{
    (void)service;
    ((weir_saver *)user)->n_pauses++;
}

static void go_on(weir_service *service, void *user)
{
    ((weir_saver *)user)->n_pauses--;
    weir_service_publish(service);
}

void weir_saver_pause(weir_saver *saver)
{
    if (saver == NULL) return;
    weir_service_call(saver->sessions->service, hold_off, saver);
    weir_worker_lock(&saver->worker);
    weir_worker_wake(&saver->worker);
    while (saver->has_work) weir_worker_wait(&saver->worker);
    weir_worker_unlock(&saver->worker);
}

void weir_saver_resume(weir_saver *saver)
{
    if (saver != NULL) weir_service_call(saver->sessions->service, go_on, saver);
}
