/* engine/session/session_room.c - makes room in the session folder: deletes automatic files for new
 * ones. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/session/session_internal.h"

/* ---- one thread at a time -------------------------------------------------------------------- */
void session_folder_enter(weir_sessions *sessions)
{
    (void)pthread_mutex_lock(&sessions->lock);
    while (sessions->is_folder_taken) (void)pthread_cond_wait(&sessions->changed, &sessions->lock);
    sessions->is_folder_taken = true;
    (void)pthread_mutex_unlock(&sessions->lock);
}

void session_folder_leave(weir_sessions *sessions)
{
    (void)pthread_mutex_lock(&sessions->lock);
    sessions->is_folder_taken = false;
    (void)pthread_cond_broadcast(&sessions->changed);
    (void)pthread_mutex_unlock(&sessions->lock);
}

/* ---- room ------------------------------------------------------------------------------------ */
static void note_loss(weir_service *service, void *user)
{
    const session_contents *const lost = user;
    weir_prefix_mark_unsaved(service->prefix, lost->tokens, lost->n_tokens, lost->salt);
}

static int remove_file(weir_sessions *sessions, const char *name)
{
    session_path path;
    if (session_path_of(path, sessions, name, NULL) != WEIR_OK) return EINVAL;
    if (unlink(path) != 0) return errno;
    session_index_forget(sessions, name);
    return 0;
}

int session_folder_drop(weir_sessions *sessions, const char *name)
{
    session_contents lost = { 0 };
    const bool is_known = sessions->service != NULL &&
                          session_contents_read(&lost, sessions, name) == WEIR_OK &&
                          !lost.is_pruned;
    const int reason = remove_file(sessions, name);
    if (is_known && reason == 0) weir_service_call(sessions->service, note_loss, &lost);
    session_contents_free(&lost);
    return reason;
}

/* Deletes an automatic file to make space for a new one. */
static void replace_file(weir_sessions *sessions, const weir_session_info *info, bool is_for_limit)
{
    if (session_folder_drop(sessions, info->name) != 0) return;
    const int64_t n = atomic_fetch_add(&sessions->n_replaced, 1) + 1;
    if ((n & (n - 1)) != 0) return;
    if (is_for_limit)
        weir_log(
            WEIR_LOG_INFO,
            "the saved text of %d tokens that was used longest ago gave way to a newer one "
            "(%" PRId64 " times so far): sessions.limit = %d; raise it to find more of them again",
            (int)info->n_tokens, n, (int)sessions->limit
        );
    else
        weir_log(
            WEIR_LOG_INFO,
            "the saved text of %d tokens that was used longest ago gave way to a newer one "
            "(%" PRId64 " times so far): memory.disk leaves %" PRId64
            " bytes to sessions; raise it to find more of them again",
            (int)info->n_tokens, n, sessions->disk
        );
}

/* The files of a folder, and those that are being written: `own` and others. */
typedef struct survey {
    weir_session_info *list; /* [n] */
    size_t n;
    const session_pending *own;
    session_pending others[SESSION_WRITERS]; /* [n_others] */
    int n_others;
} survey;

/* Old files of these names stay until the new ones are complete. */
static bool is_pending(const survey *s, const char *name)
{
    bool is = strcmp(name, s->own->name) == 0;
    for (int i = 0; i < s->n_others; i++) is = is || strcmp(name, s->others[i].name) == 0;
    return is;
}

static weir_session_info *oldest_of(const survey *s)
{
    weir_session_info *oldest = NULL;
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].is_automatic && !is_pending(s, s->list[i].name) &&
            (oldest == NULL || s->list[i].changed_ns < oldest->changed_ns))
            oldest = &s->list[i];
    return oldest;
}

/* Damaged files count for their bytes but are not deleted automatically: they may hold the only
 * copy. */
static weir_status make_room_in(weir_sessions *sessions, const survey *s, weir_error *error)
{
    int64_t bytes = (int64_t)s->own->bytes, n = 1 + s->n_others;
    for (int i = 0; i < s->n_others; i++) bytes += (int64_t)s->others[i].bytes;
    for (size_t i = 0; i < s->n; i++) {
        n += !is_pending(s, s->list[i].name);
        bytes += s->list[i].n_bytes;
    }
    while (n > sessions->limit || (sessions->disk > 0 && bytes > sessions->disk)) {
        weir_session_info *const oldest = oldest_of(s);
        if (oldest == NULL)
            return weir_error_set(
                error, WEIR_EFULL,
                n > sessions->limit ? "%s: %lld sessions are there, of %lld allowed; delete one, "
                                      "or raise sessions.limit"
                                    : "%s: sessions would take %lld bytes, of %lld allowed; delete "
                                      "one, or raise memory.disk",
                sessions->folder, (long long)(n > sessions->limit ? n - 1 : bytes),
                (long long)(n > sessions->limit ? sessions->limit : sessions->disk)
            );
        replace_file(sessions, oldest, n > sessions->limit);
        n--;
        bytes -= oldest->n_bytes;
        oldest->is_automatic = false;
    }
    return WEIR_OK;
}

/* Folder entered. A file whose writer ended meanwhile counts as pending. */
static weir_status make_room(
    weir_sessions *sessions, int writer, const session_pending *file, weir_error *error
)
{
    survey s = { .own = file };
    bool is_written = false;
    (void)pthread_mutex_lock(&sessions->lock);
    for (int i = 0; i < SESSION_WRITERS; i++) {
        if (i == writer || sessions->pending[i].name[0] == '\0') continue;
        is_written = is_written || strcmp(sessions->pending[i].name, file->name) == 0;
        s.others[s.n_others++] = sessions->pending[i];
    }
    (void)pthread_mutex_unlock(&sessions->lock);
    if (is_written)
        return weir_error_set(
            error, WEIR_ECANCELED, "session %s is being written; try again", file->name
        );
    WEIR_TRY(session_folder_list(sessions, &s.list, &s.n, error));
    const weir_status status = make_room_in(sessions, &s, error);
    weir_memory_give(s.list);
    return status;
}

weir_status session_folder_make_room(
    weir_sessions *sessions, int writer, const session_pending *file, weir_error *error
)
{
    if (sessions->disk > 0 && file->bytes > (size_t)sessions->disk)
        return weir_error_set(
            error, WEIR_EFULL,
            "a session of %zu bytes is more than memory.disk, %lld bytes; raise it", file->bytes,
            (long long)sessions->disk
        );
    session_folder_enter(sessions);
    const weir_status status = make_room(sessions, writer, file, error);
    (void)pthread_mutex_lock(&sessions->lock);
    if (status == WEIR_OK) sessions->pending[writer] = *file;
    (void)pthread_mutex_unlock(&sessions->lock);
    session_folder_leave(sessions);
    return status;
}

void session_folder_done(weir_sessions *sessions, int writer)
{
    (void)pthread_mutex_lock(&sessions->lock);
    sessions->pending[writer] = (session_pending){ 0 };
    (void)pthread_mutex_unlock(&sessions->lock);
}

/* True if its tokens are a prefix of the sequence's, under the same salt. */
static bool is_beginning(
    const weir_sessions *sessions, const weir_session_info *info, const weir_session_text *text
)
{
    session_contents found;
    if (session_contents_read(&found, sessions, info->name) != WEIR_OK) return false;
    const bool is =
        !found.is_pruned && !found.is_refused && found.n_tokens <= text->n_tokens &&
        strcmp(found.salt, text->salt) == 0 &&
        memcmp(found.tokens, text->tokens, (size_t)found.n_tokens * sizeof *found.tokens) == 0;
    session_contents_free(&found);
    return is;
}

void session_folder_drop_beginnings(
    weir_sessions *sessions, const weir_session_text *text, const char *name
)
{
    weir_session_info *list = NULL;
    size_t n = 0;
    /* A sequence of other numerics has no rows for those that were computed here. */
    if (session_has_origin(sessions, text) ||
        session_folder_list(sessions, &list, &n, NULL) != WEIR_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        const weir_session_info *const info = &list[i];
        if (!info->is_automatic || info->problem != WEIR_OK || strcmp(info->name, name) == 0)
            continue;
        if (info->n_tokens > text->n_tokens || !is_beginning(sessions, info, text)) continue;
        session_folder_enter(sessions);
        (void)remove_file(sessions, info->name); /* the sequence's own file has these tokens */
        session_folder_leave(sessions);
    }
    weir_memory_give(list);
}
