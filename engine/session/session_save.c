/* engine/session/session_save.c - saves cached sequences to files: the engine thread lets the
 * sequence share the pages and pins the states, the caller's thread writes them, the engine thread
 * releases them. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/session/session_internal.h"

/* ---- on the engine thread -------------------------------------------------------------------- */
/* Arguments of one call. */
typedef struct save_call {
    session_transfer *own;
    const weir_session_request *save;
    weir_prefix_cursor *cursor;
    uint64_t *pruned_use; /* not NULL: only sequences with a policy */
    int32_t n_rest; /* last tokens that are not shared */
    bool waits; /* its last state or its window is being read from disk */
    weir_prefix_hit hit;
    weir_status status;
} save_call;

/* Of the shared sequence, unless the last one has to be read first. */
static void pin_states(weir_service *service, void *user)
{
    save_call *const w = user;
    session_transfer *const own = w->own;
    own->n_marks = weir_prefix_pin(
        service->prefix, &own->sequence, own->salt, own->marks, WEIR_SESSION_STATES
    );
    w->waits = own->n_marks == WEIR_PREFIX_WAITS;
    if (w->waits) own->n_marks = 0;
}

/* Shares the pages of the sequence's tokens and pins the states, if running sequences can spare the
 * memory for its table. */
static void share_sequence(save_call *w)
{
    session_transfer *const own = w->own;
    weir_service *const service = own->sessions->service;
    weir_prefix *const prefix = service->prefix;
    const int32_t rows =
        weir_prefix_match_length(prefix, own->sequence.tokens, own->sequence.n_tokens, own->salt);
    w->status = WEIR_EFULL;
    w->hit.reason = "running requests need the memory for page tables; try later";
    if (!weir_service_spares_table(service, rows)) return;
    w->hit = weir_prefix_match(prefix, &own->sequence, own->salt, own->sequence.n_tokens);
    w->waits = w->hit.waits;
    if (w->waits) return;
    own->sequence.n_tokens = own->sequence.n_computed;
    if (own->sessions->identity.state_bytes > 0) pin_states(service, w);
    /* Of several, others may be usable. */
    const weir_status none = w->cursor != NULL ? WEIR_EMISMATCH : WEIR_ENOTFOUND;
    w->status = own->sequence.n_computed > 0 ? WEIR_OK : none;
}

/* Pins the pruned sequence that has the name, or more of the tokens than the others. True if no
 * other one should be looked for. */
static bool pin_pruned(save_call *w)
{
    const weir_session_request *const save = w->save;
    session_transfer *const own = w->own;
    weir_prefix *const prefix = own->sessions->service->prefix;
    const weir_pruned_query pruned = { .name = save->tokens == NULL ? save->name : NULL,
                                       .salt = save->salt,
                                       .tokens = save->tokens,
                                       .n_tokens = save->n_tokens };
    w->status = session_pin_pruned(own, &pruned);
    if (w->status == WEIR_EFULL)
        w->hit.reason = "running requests need the memory for page tables; try later";
    if (w->status != WEIR_OK) return w->status == WEIR_EFULL;
    if (save->tokens == NULL ||
        own->pruned.n_tokens >=
            weir_prefix_match_length(prefix, save->tokens, save->n_tokens, save->salt))
        return true;
    session_unpin_pruned(own);
    weir_kv_sequence_clear(&own->sequence);
    return false;
}

/* Sequences of an origin are saved too, if they hold more of the tokens. */
static void use_origin(session_transfer *own)
{
    char plain[WEIR_PREFIX_SALT + 1];
    weir_service *const service = own->sessions->service;
    const weir_kv_sequence *const sequence = &own->sequence;
    const int32_t origin = weir_origin_best(
        &service->origins, service->prefix, sequence->tokens, sequence->n_tokens, own->salt
    );
    (void)strcpy(plain, own->salt);
    if (origin < 0 || !weir_origin_salt(own->salt, origin, plain)) (void)strcpy(own->salt, plain);
}

static void look_again(weir_service *service, void *user)
{
    save_call *const w = user;
    if (w->own->sequence.n_computed == 0)
        share_sequence(w);
    else
        pin_states(service, w);
}

static void take_saved(weir_service *service, void *user)
{
    save_call *const w = user;
    session_transfer *const own = w->own;
    const weir_session_request *const save = w->save;
    w->status = WEIR_ENOTFOUND;
    w->hit = (weir_prefix_hit
    ){ .reason = "no request has used this name, or its sequence was dropped since" };
    if (pin_pruned(w)) return;
    if (save->tokens == NULL &&
        !weir_prefix_named(service->prefix, save->name, &own->sequence, own->salt))
        return;
    if (save->tokens != NULL) {
        memcpy(own->sequence.tokens, save->tokens, (size_t)save->n_tokens * sizeof *save->tokens);
        own->sequence.n_tokens = save->n_tokens - w->n_rest;
        (void)snprintf(
            own->salt, sizeof own->salt, "%s", save->salt != NULL ? save->salt : WEIR_PREFIX_NO_SALT
        );
        use_origin(own);
    }
    share_sequence(w);
}

static void take_next(weir_service *service, void *user)
{
    save_call *const w = user;
    session_transfer *const own = w->own;
    w->status = WEIR_ENOTFOUND;
    if (w->pruned_use != NULL) {
        w->status = session_pin_next_pruned(own, w->pruned_use);
        return;
    }
    if (weir_prefix_next(service->prefix, w->cursor, &own->sequence, own->salt, own->name))
        share_sequence(w);
}

static void let_go(weir_service *service, void *user)
{
    session_transfer *const own = user;
    if (own->is_pruned) session_unpin_pruned(own);
    weir_prefix_unpin(service->prefix, own->marks, own->n_marks);
    own->n_marks = 0;
    weir_kv_sequence_clear(&own->sequence);
}

/* ---- this thread ----------------------------------------------------------------------------- */
/* Lets the transfer have a sequence. What is read for it may leave memory before it is pinned, but
 * only if others take that. */
static void get(save_call *w, void (*take)(weir_service *service, void *user))
{
    enum { TRIES = 100 };
    weir_service *const service = w->own->sessions->service;
    weir_service_call(service, take, w);
    for (int i = 0; w->waits && i < TRIES; i++) {
        weir_prefix_wait_for_moves(service->prefix);
        weir_service_call(service, look_again, w);
    }
    if (!w->waits) return;
    w->status = WEIR_EFULL;
    w->hit.reason = "running requests need the memory for what is on disk; try later";
}

/* ---- writing --------------------------------------------------------------------------------- */
weir_status session_write_content(
    weir_sessions *sessions, int writer, const char *name, const weir_session_content *content,
    weir_session_result *result, weir_error *error
)
{
    const weir_session_content file = session_as_written(sessions, content);
    const size_t bytes = weir_session_file_bytes(&sessions->identity, &file);
    session_path path;
    size_t written = 0;
    WEIR_TRY(session_path_of(path, sessions, name, error));
    session_pending pending = { .n_tokens = content->n_tokens,
                                .bytes = bytes,
                                .progress = content->progress };
    (void)snprintf(pending.name, sizeof pending.name, "%s", name);
    if (content->progress != NULL) weir_session_progress_begin(content->progress, (int64_t)bytes);
    WEIR_TRY(session_folder_make_space(sessions, writer, &pending, error));
    const weir_status status =
        weir_session_write(path, &sessions->identity, &file, &written, error);
    session_folder_done(sessions, writer, status == WEIR_OK);
    if (status == WEIR_OK)
        *result =
            (weir_session_result){ .n_tokens = content->n_tokens, .n_bytes = (int64_t)written };
    return status;
}

/* Describes the shared sequence. `pruned` is filled in if it has a policy. */
static weir_session_content shared_content(
    session_transfer *own, bool is_automatic, weir_session_pruned *pruned
)
{
    weir_kv_store *const store = own->sessions->service->store;
    if (own->is_pruned) session_pruned_of(pruned, own);
    return (weir_session_content){ .pruned = own->is_pruned ? pruned : NULL,
                                   .tokens = own->sequence.tokens,
                                   .n_tokens = own->sequence.n_computed,
                                   .n_states = own->n_marks,
                                   .salt = own->salt,
                                   .pages = own->sequence.table.pages,
                                   .page_stride = own->sequence.table.capacity,
                                   .spec = weir_kv_store_spec(store),
                                   .windows = weir_session_windows_of(&own->sequence.table, store),
                                   .store = store,
                                   .states = own->marks,
                                   .is_automatic = is_automatic,
                                   .progress = &own->progress };
}

static weir_status write_shared(
    session_transfer *own, const weir_session_request *save, const weir_state_request *state,
    const char *path, weir_session_result *result, weir_error *error
)
{
    weir_session_pruned pruned;
    const weir_session_content content = shared_content(own, false, &pruned);
    return state != NULL ? session_write_state(own, save, state, &content, path, result, error)
                         : session_write_content(
                               own->sessions, own->writer, save->name, &content, result, error
                           );
}

static weir_status check_request(
    const weir_sessions *s, const weir_session_request *save, weir_error *error
)
{
    session_path path;
    WEIR_TRY(session_path_of(path, s, save->name, error));
    if (save->tokens != NULL && (save->n_tokens < 1 || save->n_tokens > s->service->facts->window))
        return weir_error_set(
            error, WEIR_EINVAL, "a session has 1 to %d tokens here, not %d",
            (int)s->service->facts->window, (int)save->n_tokens
        );
    if (save->salt != NULL && strlen(save->salt) > WEIR_PREFIX_SALT)
        return weir_error_set(error, WEIR_EINVAL, "the salt is too long");
    return WEIR_OK;
}

static bool is_ending(const void *user) { return ((const weir_sessions *)user)->is_closing; }

static void give_way(void *user, int64_t ns)
{
    weir_sessions *const s = user;
    const session_pause pause = {
        .lock = &s->lock, .changed = &s->changed, .is_over = is_ending, .user = s
    };
    session_give_way(s, &pause, ns);
}

weir_status session_save_to(
    session_transfer *own, const weir_session_request *save, const weir_state_request *state,
    int32_t n_rest, const char *path, weir_session_result *result, weir_error *error
)
{
    const int64_t start = weir_clock_ns();
    weir_sessions *const s = own->sessions;
    WEIR_TRY(check_request(s, save, error));
    save_call w = { .own = own, .save = save, .n_rest = n_rest };
    own->progress.give_way = give_way;
    own->progress.user = s;
    /* A save in the background takes space that is needed here; once written, its file can be
     * replaced. */
    weir_saver_pause(s->saver);
    get(&w, take_saved);
    weir_status status = w.status == WEIR_OK ? write_shared(own, save, state, path, result, error)
                                             : weir_error_set(
                                                   error, w.status, "nothing to save as %s: %s",
                                                   save->name, w.hit.reason
                                               );
    weir_service_call(s->service, let_go, own);
    weir_saver_resume(s->saver);
    if (status == WEIR_OK) result->time_ns = weir_clock_ns() - start;
    return status;
}

void session_name_content(
    char name[WEIR_PREFIX_NAME + 1], const int32_t *tokens, int32_t n_tokens, const char *salt,
    const weir_session_pruned *pruned
)
{
    const char *const plain = weir_origin_plain_salt(salt);
    const XXH64_hash_t salted = XXH3_64bits(plain, strlen(plain));
    const XXH64_hash_t seed = pruned != NULL ? XXH3_64bits_withSeed(
                                                   &pruned->past.policy, sizeof pruned->past.policy,
                                                   salted ^ (uint64_t)pruned->past.budget
                                               )
                                             : salted;
    const XXH64_hash_t hash = XXH3_64bits_withSeed(tokens, (size_t)n_tokens * sizeof *tokens, seed);
    (void)snprintf(name, WEIR_PREFIX_NAME + 1, "auto-%016" PRIx64, (uint64_t)hash);
}

bool session_is_there(
    const weir_sessions *sessions, const char *name, const weir_session_content *content
)
{
    session_path path;
    weir_session_reader *reader = NULL;
    if (session_path_of(path, sessions, name, NULL) != WEIR_OK ||
        weir_session_open(&reader, path, NULL) != WEIR_OK)
        return false;
    const weir_session_header *const header = weir_session_header_of(reader);
    const bool is = header->is_automatic && header->n_tokens == content->n_tokens &&
                    header->n_states >= content->n_states &&
                    weir_session_check(reader, &sessions->identity, NULL) == WEIR_OK &&
                    utimensat(AT_FDCWD, path, NULL, 0) == 0;
    weir_session_close(reader);
    return is;
}

static bool save_shared(session_transfer *own, weir_log_causes *causes)
{
    weir_sessions *const s = own->sessions;
    weir_error error = { 0 };
    weir_session_result result;
    const bool is_named = own->name[0] != '\0';
    weir_session_pruned pruned;
    const weir_session_content content = shared_content(own, !is_named, &pruned);
    if (!is_named)
        session_name_content(
            own->name, content.tokens, content.n_tokens, content.salt, content.pruned
        );
    bool is_saved = (!is_named && session_is_there(s, own->name, &content)) ||
                    session_is_unchanged(s, own->name, &content);
    if (!is_saved)
        is_saved =
            session_write_content(s, own->writer, own->name, &content, &result, &error) == WEIR_OK;
    if (!is_saved && weir_log_is_new(causes, error.text))
        weir_log(
            WEIR_LOG_WARNING, "a conversation of %d tokens is not saved: %s", (int)content.n_tokens,
            error.text
        );
    if (is_saved && !is_named && content.pruned == NULL) session_index_add(s, own->name, &content);
    if (is_saved && content.pruned == NULL) session_folder_drop_beginnings(s, &content, own->name);
    return is_saved;
}

int32_t session_save_recent(session_transfer *own)
{
    enum { SHORTEST = WEIR_PAGE_TOKENS };
    weir_sessions *const sessions = own->sessions;
    weir_prefix_cursor cursor = { 0 };
    weir_log_causes causes = { 0 };
    uint64_t pruned_use = 0;
    bool has_sequences = true, has_pruned = true, is_pruned = true;
    int32_t n = 0, n_tried = 0;
    weir_saver_pause(sessions->saver);
    while (n_tried < sessions->limit && (has_sequences || has_pruned)) {
        save_call w = { .own = own,
                        .cursor = &cursor,
                        .pruned_use = is_pruned && has_pruned ? &pruned_use : NULL };
        get(&w, take_next);
        const bool is_worth_it =
            w.status == WEIR_OK && (own->sequence.n_computed >= SHORTEST || own->name[0] != '\0');
        if (is_worth_it) n += save_shared(own, &causes);
        n_tried += is_worth_it || w.status == WEIR_EFULL;
        weir_service_call(sessions->service, let_go, own);
        if (w.status == WEIR_ENOTFOUND)
            *(w.pruned_use != NULL ? &has_pruned : &has_sequences) = false;
        /* Alternates as long as there are both. */
        is_pruned = has_sequences ? !is_pruned && has_pruned : true;
    }
    weir_saver_resume(sessions->saver);
    if (n < n_tried)
        weir_log(
            WEIR_LOG_WARNING,
            "%s: %d of %d conversations are not saved; free space there, set sessions.dir to "
            "another folder, or save when fewer requests run",
            sessions->folder, (int)(n_tried - n), (int)n_tried
        );
    return n;
}
