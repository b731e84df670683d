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
typedef struct wish {
    weir_sessions *sessions;
    const weir_session_wish *save;
    weir_prefix_cursor *cursor;
    uint64_t *pruned_use; /* not NULL: only sequences with a policy */
    int32_t n_rest; /* last tokens that are not shared */
    weir_prefix_hit hit;
    weir_status status;
} wish;

/* Shares the pages of the sequence's tokens and pins the states. */
static void share_text(wish *w)
{
    weir_sessions *const s = w->sessions;
    w->hit = weir_prefix_match(
        s->service->prefix, &s->own.sequence, s->own.salt, s->own.sequence.n_tokens
    );
    s->own.sequence.n_tokens = s->own.sequence.n_computed;
    const int32_t most = s->identity.state_bytes > 0 ? WEIR_SESSION_STATES : 0;
    s->own.n_marks =
        most > 0
            ? weir_prefix_pin(s->service->prefix, &s->own.sequence, s->own.salt, s->own.marks, most)
            : 0;
    w->status = s->own.sequence.n_computed > 0 ? WEIR_OK : WEIR_ENOTFOUND;
}

/* Pins the pruned sequence that has the name, or more of the tokens than the others. */
static bool pin_pruned(wish *w)
{
    const weir_session_wish *const save = w->save;
    weir_prefix *const prefix = w->sessions->service->prefix;
    const weir_pruned_query pruned = { .name = save->tokens == NULL ? save->name : NULL,
                                       .salt = save->salt,
                                       .tokens = save->tokens,
                                       .n_tokens = save->n_tokens };
    if (!session_pin_pruned(w->sessions, &pruned)) return false;
    w->status = WEIR_OK;
    if (save->tokens == NULL ||
        w->sessions->own.pruned.n_tokens >=
            weir_prefix_match_length(prefix, save->tokens, save->n_tokens, save->salt))
        return true;
    session_unpin_pruned(w->sessions);
    weir_kv_sequence_clear(&w->sessions->own.sequence);
    return false;
}

/* Sequences of an origin are saved too, if they hold more of the tokens. */
static void use_origin(weir_sessions *s)
{
    char plain[WEIR_PREFIX_SALT + 1];
    const weir_kv_sequence *const text = &s->own.sequence;
    const int32_t origin = weir_origin_best(
        &s->service->origins, s->service->prefix, text->tokens, text->n_tokens, s->own.salt
    );
    (void)strcpy(plain, s->own.salt);
    if (origin < 0 || !weir_origin_salt(s->own.salt, origin, plain))
        (void)strcpy(s->own.salt, plain);
}

static void take_wished(weir_service *service, void *user)
{
    wish *const w = user;
    weir_sessions *const s = w->sessions;
    const weir_session_wish *const save = w->save;
    w->status = WEIR_ENOTFOUND;
    w->hit = (weir_prefix_hit
    ){ .reason = "no request has used this name, or its text was dropped since" };
    if (pin_pruned(w)) return;
    if (save->tokens == NULL &&
        !weir_prefix_named(service->prefix, save->name, &s->own.sequence, s->own.salt))
        return;
    if (save->tokens != NULL) {
        memcpy(s->own.sequence.tokens, save->tokens, (size_t)save->n_tokens * sizeof *save->tokens);
        s->own.sequence.n_tokens = save->n_tokens - w->n_rest;
        (void)snprintf(
            s->own.salt, sizeof s->own.salt, "%s",
            save->salt != NULL ? save->salt : WEIR_PREFIX_NO_SALT
        );
        use_origin(s);
    }
    share_text(w);
}

static void take_next(weir_service *service, void *user)
{
    wish *const w = user;
    weir_sessions *const s = w->sessions;
    w->status = WEIR_ENOTFOUND;
    if (w->pruned_use != NULL) {
        if (session_pin_next_pruned(s, w->pruned_use)) w->status = WEIR_OK;
        return;
    }
    if (weir_prefix_next(service->prefix, w->cursor, &s->own.sequence, s->own.salt, s->own.name)) {
        share_text(w);
        /* Nothing of this one can be continued; others may be usable. */
        if (w->status != WEIR_OK) w->status = WEIR_EMISMATCH;
    }
}

static void let_go(weir_service *service, void *user)
{
    weir_sessions *const s = user;
    if (s->own.is_pruned) session_unpin_pruned(s);
    weir_prefix_unpin(service->prefix, s->own.marks, s->own.n_marks);
    s->own.n_marks = 0;
    weir_kv_sequence_clear(&s->own.sequence);
}

/* ---- writing --------------------------------------------------------------------------------- */
weir_status session_write_text(
    weir_sessions *sessions, int writer, const char *name, const weir_session_text *text,
    weir_session_result *result, weir_error *error
)
{
    const weir_session_text file = session_as_written(sessions, text);
    const size_t bytes = weir_session_file_bytes(&sessions->identity, &file);
    session_path path;
    size_t written = 0;
    WEIR_TRY(session_path_of(path, sessions, name, error));
    WEIR_TRY(session_folder_make_room(sessions, writer, name, bytes, error));
    const weir_status status =
        weir_session_write(path, &sessions->identity, &file, &written, error);
    session_folder_done(sessions, writer);
    if (status == WEIR_OK)
        *result = (weir_session_result){ .n_tokens = text->n_tokens, .n_bytes = (int64_t)written };
    return status;
}

/* Describes the shared sequence. `pruned` is filled in if it has a policy. */
static weir_session_text shared_text(
    const weir_sessions *s, bool is_automatic, weir_session_pruned *pruned
)
{
    if (s->own.is_pruned) session_pruned_of(pruned, s);
    return (weir_session_text){ .pruned = s->own.is_pruned ? pruned : NULL,
                                .tokens = s->own.sequence.tokens,
                                .n_tokens = s->own.sequence.n_computed,
                                .n_states = s->own.n_marks,
                                .salt = s->own.salt,
                                .pages = s->own.sequence.table.pages,
                                .page_stride = s->own.sequence.table.capacity,
                                .spec = weir_kv_store_spec(s->service->store),
                                .store = s->service->store,
                                .states = s->own.marks,
                                .is_automatic = is_automatic };
}

/* state, path: NULL for a session in the folder. */
static weir_status write_shared(
    weir_sessions *s, const weir_session_wish *save, const weir_state_wish *state, const char *path,
    weir_session_result *result, weir_error *error
)
{
    weir_session_pruned pruned;
    const weir_session_text text = shared_text(s, false, &pruned);
    return state != NULL ? session_write_state(s, save, state, &text, path, result, error)
                         : session_write_text(s, 0, save->name, &text, result, error);
}

static weir_status check_wish(
    const weir_sessions *s, const weir_session_wish *save, weir_error *error
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

/* n_rest: fewer than the tokens of `save`. */
static weir_status save_to(
    weir_sessions *sessions, const weir_session_wish *save, const weir_state_wish *state,
    int32_t n_rest, const char *path, weir_session_result *result, weir_error *error
)
{
    const int64_t start = weir_clock_ns();
    WEIR_TRY(check_wish(sessions, save, error));
    if (state != NULL)
        (void)pthread_mutex_lock(&sessions->lock);
    else
        WEIR_TRY(session_begin(sessions, error));
    wish w = { .sessions = sessions, .save = save, .n_rest = n_rest };
    /* A save in the background takes space that is needed here; once written, its file can be
     * replaced. */
    weir_saver_pause(sessions->saver);
    weir_service_call(sessions->service, take_wished, &w);
    weir_status status =
        w.status == WEIR_OK
            ? write_shared(sessions, save, state, path, result, error)
            : weir_error_set(
                  error, w.status, "nothing to save as %s: %s", save->name, w.hit.reason
              );
    weir_service_call(sessions->service, let_go, sessions);
    weir_saver_resume(sessions->saver);
    session_end(sessions);
    if (status == WEIR_OK) result->time_ns = weir_clock_ns() - start;
    return status;
}

weir_status weir_sessions_save(
    weir_sessions *sessions, const weir_session_wish *save, weir_session_result *result,
    weir_error *error
)
{
    return save_to(sessions, save, NULL, 0, NULL, result, error);
}

weir_status weir_sessions_write_state(
    weir_sessions *sessions, const weir_session_wish *wish, const weir_state_wish *state,
    const char *path, weir_session_result *result, weir_error *error
)
{
    return save_to(sessions, wish, state, 0, path, result, error);
}

weir_status weir_sessions_write_text(
    weir_sessions *sessions, const weir_session_wish *wish, const char *path,
    weir_session_result *result, weir_error *error
)
{
    if (wish->tokens == NULL || wish->n_tokens < 2)
        return weir_error_set(
            error, WEIR_EINVAL, "%d tokens: of fewer than 2 there is nothing to save",
            (int)wish->n_tokens
        );
    return save_to(sessions, wish, &(weir_state_wish){ 0 }, 1, path, result, error);
}

void session_name_text(
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
    const weir_sessions *sessions, const char *name, const weir_session_text *text
)
{
    session_path path;
    weir_session_reader *reader = NULL;
    if (session_path_of(path, sessions, name, NULL) != WEIR_OK ||
        weir_session_open(&reader, path, NULL) != WEIR_OK)
        return false;
    const weir_session_header *const header = weir_session_header_of(reader);
    const bool is = header->is_automatic && header->n_tokens == text->n_tokens &&
                    header->n_states >= text->n_states &&
                    weir_session_check(reader, &sessions->identity, NULL) == WEIR_OK &&
                    utimensat(AT_FDCWD, path, NULL, 0) == 0;
    weir_session_close(reader);
    return is;
}

static bool save_shared(weir_sessions *s, weir_log_causes *causes)
{
    weir_error error = { 0 };
    weir_session_result result;
    const bool is_named = s->own.name[0] != '\0';
    weir_session_pruned pruned;
    const weir_session_text text = shared_text(s, !is_named, &pruned);
    if (!is_named)
        session_name_text(s->own.name, text.tokens, text.n_tokens, text.salt, text.pruned);
    bool is_saved = (!is_named && session_is_there(s, s->own.name, &text)) ||
                    session_is_unchanged(s, s->own.name, &text);
    if (!is_saved)
        is_saved = session_write_text(s, 0, s->own.name, &text, &result, &error) == WEIR_OK;
    if (!is_saved && weir_log_is_new(causes, error.text))
        weir_log(
            WEIR_LOG_WARNING, "a conversation of %d tokens is not saved: %s", (int)text.n_tokens,
            error.text
        );
    if (is_saved && !is_named && text.pruned == NULL) session_index_add(s, s->own.name, &text);
    if (is_saved && text.pruned == NULL) session_folder_drop_beginnings(s, &text, s->own.name);
    return is_saved;
}

int32_t weir_sessions_save_recent(weir_sessions *sessions)
{
    enum { SHORTEST = WEIR_PAGE_TOKENS };
    weir_prefix_cursor cursor = { 0 };
    weir_log_causes causes = { 0 };
    uint64_t pruned_use = 0;
    bool has_texts = true, has_pruned = true, is_pruned = true;
    int32_t n = 0, n_tried = 0;
    (void)pthread_mutex_lock(&sessions->lock);
    weir_saver_pause(sessions->saver);
    while (n_tried < sessions->limit && (has_texts || has_pruned)) {
        wish w = { .sessions = sessions,
                   .cursor = &cursor,
                   .pruned_use = is_pruned && has_pruned ? &pruned_use : NULL };
        weir_service_call(sessions->service, take_next, &w);
        const bool is_worth_it =
            w.status == WEIR_OK &&
            (sessions->own.sequence.n_computed >= SHORTEST || sessions->own.name[0] != '\0');
        if (is_worth_it) {
            n += save_shared(sessions, &causes);
            n_tried++;
        }
        weir_service_call(sessions->service, let_go, sessions);
        if (w.status == WEIR_ENOTFOUND) *(w.pruned_use != NULL ? &has_pruned : &has_texts) = false;
        /* Alternates as long as there are both. */
        is_pruned = has_texts ? !is_pruned && has_pruned : true;
    }
    weir_saver_resume(sessions->saver);
    (void)pthread_mutex_unlock(&sessions->lock);
    if (n < n_tried)
        weir_log(
            WEIR_LOG_WARNING,
            "%s: %d of %d conversations are not saved; free space there, or set sessions.dir to "
            "another folder",
            sessions->folder, (int)(n_tried - n), (int)n_tried
        );
    return n;
}
