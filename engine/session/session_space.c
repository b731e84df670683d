/* engine/session/session_space.c - makes room in the session folder: deletes automatic files for
 * new ones. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
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

/* ---- space ----------------------------------------------------------------------------------- */
typedef struct loss {
    session_contents of;
    bool for_client;
} loss;

static void note_loss(weir_service *service, void *user)
{
    const loss *const lost = user;
    const session_contents *const of = &lost->of;
    if (lost->for_client)
        weir_prefix_forget(service->prefix, of->tokens, of->n_tokens, of->salt);
    else if (!of->is_pruned)
        weir_prefix_mark_unsaved(service->prefix, of->tokens, of->n_tokens, of->salt);
}

static int remove_file(weir_sessions *sessions, const char *name)
{
    session_path path;
    if (session_path_of(path, sessions, name, NULL) != WEIR_OK) return EINVAL;
    if (unlink(path) != 0) return errno;
    session_index_forget(sessions, name);
    return 0;
}

int session_folder_drop(weir_sessions *sessions, const char *name, bool for_client)
{
    loss lost = { .for_client = for_client };
    const bool is_known =
        sessions->service != NULL && session_contents_read(&lost.of, sessions, name) == WEIR_OK;
    const int reason = remove_file(sessions, name);
    if (is_known && reason == 0) weir_service_call(sessions->service, note_loss, &lost);
    session_contents_free(&lost.of);
    return reason;
}

/* Deletes an automatic file in favour of a new one. */
static void replace_file(weir_sessions *sessions, const weir_session_info *info, bool is_for_limit)
{
    if (session_folder_drop(sessions, info->name, false) != 0) return;
    const int64_t n = atomic_fetch_add(&sessions->n_replaced, 1) + 1;
    if ((n & (n - 1)) != 0) return;
    if (is_for_limit)
        weir_log(
            WEIR_LOG_INFO,
            "the saved sequence of %d tokens that was used longest ago gave way to a newer one "
            "(%" PRId64 " times so far): sessions.limit = %d; raise it to find more of them again",
            (int)info->n_tokens, n, (int)sessions->limit
        );
    else
        weir_log(
            WEIR_LOG_INFO,
            "the saved sequence of %d tokens that was used longest ago gave way to a newer one "
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

/* What the folder will hold, and how much of it may be deleted. */
typedef struct count {
    int64_t n, bytes, n_removable, bytes_removable;
} count;

/* Damaged files count for their bytes but are not deleted automatically: they may hold the only
 * copy. */
static count count_all(const survey *s)
{
    count all = { .n = 1 + s->n_others, .bytes = (int64_t)s->own->bytes };
    for (int i = 0; i < s->n_others; i++) all.bytes += (int64_t)s->others[i].bytes;
    for (size_t i = 0; i < s->n; i++) {
        const bool is_counted = is_pending(s, s->list[i].name),
                   is_removable = s->list[i].is_automatic && !is_counted;
        all.n += !is_counted;
        all.bytes += s->list[i].n_bytes;
        all.n_removable += is_removable;
        all.bytes_removable += is_removable ? s->list[i].n_bytes : 0;
    }
    return all;
}

static weir_status check_room(const weir_sessions *sessions, const count *all, weir_error *error)
{
    if (all->n - all->n_removable > sessions->limit)
        return weir_error_set(
            error, WEIR_EFULL,
            "%s: %lld sessions are there, of %lld allowed; delete one, or raise sessions.limit",
            sessions->folder, (long long)(all->n - 1), (long long)sessions->limit
        );
    if (sessions->disk > 0 && all->bytes - all->bytes_removable > sessions->disk)
        return weir_error_set(
            error, WEIR_EFULL,
            "%s: sessions would take %lld bytes, of %lld allowed; delete one, or raise memory.disk",
            sessions->folder, (long long)all->bytes, (long long)sessions->disk
        );
    return WEIR_OK;
}

/* True if the file system has space for one more file, or does not say. */
static bool has_space(const weir_sessions *sessions, size_t bytes)
{
    struct statvfs system;
    const int fd = open(sessions->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return true;
    const bool is_known = fstatvfs(fd, &system) == 0;
    (void)close(fd);
    return !is_known || system.f_frsize == 0 || bytes / system.f_frsize < system.f_bavail;
}

/* Folder entered. A file that is over the number stays until the new one is there
 * (session_folder_done), if the disk has space for both. */
static weir_status make_space_in(weir_sessions *sessions, const survey *s, weir_error *error)
{
    count all = count_all(s);
    WEIR_TRY(check_room(sessions, &all, error));
    const bool is_tight = all.n > sessions->limit && !has_space(sessions, s->own->bytes);
    while ((sessions->disk > 0 && all.bytes > sessions->disk) ||
           (is_tight && all.n > sessions->limit)) {
        weir_session_info *const oldest = oldest_of(s);
        replace_file(sessions, oldest, all.n > sessions->limit);
        all.n--;
        all.bytes -= oldest->n_bytes;
        oldest->is_automatic = false;
    }
    sessions->is_over_limit = sessions->is_over_limit || all.n > sessions->limit;
    return WEIR_OK;
}

/* Returns false if another writer is writing a file of this name. */
static bool find_others(survey *s, weir_sessions *sessions, int writer)
{
    bool is_written = false;
    (void)pthread_mutex_lock(&sessions->lock);
    for (int i = 0; i < SESSION_WRITERS; i++) {
        if (i == writer || sessions->pending[i].name[0] == '\0') continue;
        is_written = is_written || strcmp(sessions->pending[i].name, s->own->name) == 0;
        s->others[s->n_others++] = sessions->pending[i];
    }
    (void)pthread_mutex_unlock(&sessions->lock);
    return !is_written;
}

/* Folder entered. A file whose writer ended meanwhile counts as pending. */
static weir_status make_space(
    weir_sessions *sessions, int writer, const session_pending *file, weir_error *error
)
{
    survey s = { .own = file };
    if (!find_others(&s, sessions, writer))
        return weir_error_set(
            error, WEIR_ECANCELED, "session %s is being written; try again", file->name
        );
    WEIR_TRY(session_folder_list(sessions, &s.list, &s.n, error));
    const weir_status status = make_space_in(sessions, &s, error);
    weir_memory_give(s.list);
    return status;
}

weir_status session_folder_make_space(
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
    const weir_status status = make_space(sessions, writer, file, error);
    (void)pthread_mutex_lock(&sessions->lock);
    if (status == WEIR_OK) sessions->pending[writer] = *file;
    (void)pthread_mutex_unlock(&sessions->lock);
    session_folder_leave(sessions);
    return status;
}

/* Deletes the files over the limit, now that the writer's is there. Those that others are writing
 * do not count yet. Folder entered. */
static void drop_excess(weir_sessions *sessions, int writer)
{
    survey s = { .own = &sessions->pending[writer] };
    (void)find_others(&s, sessions, writer);
    if (session_folder_list(sessions, &s.list, &s.n, NULL) != WEIR_OK) return;
    weir_session_info *oldest;
    int64_t n = (int64_t)s.n;
    for (; n > sessions->limit && (oldest = oldest_of(&s)) != NULL; n--) {
        replace_file(sessions, oldest, true);
        oldest->is_automatic = false;
    }
    weir_memory_give(s.list);
    sessions->is_over_limit = n + s.n_others > sessions->limit;
}

void session_folder_done(weir_sessions *sessions, int writer, bool is_written)
{
    session_folder_enter(sessions);
    if (is_written && sessions->is_over_limit) drop_excess(sessions, writer);
    (void)pthread_mutex_lock(&sessions->lock);
    sessions->pending[writer] = (session_pending){ 0 };
    (void)pthread_mutex_unlock(&sessions->lock);
    session_folder_leave(sessions);
}

/* True if its tokens are a prefix of the sequence's, under the same salt. */
static bool is_beginning(
    const weir_sessions *sessions, const weir_session_info *info,
    const weir_session_content *content
)
{
    session_contents found;
    if (session_contents_read(&found, sessions, info->name) != WEIR_OK) return false;
    const bool is =
        !found.is_pruned && !found.is_refused && found.n_tokens <= content->n_tokens &&
        strcmp(found.salt, content->salt) == 0 &&
        memcmp(found.tokens, content->tokens, (size_t)found.n_tokens * sizeof *found.tokens) == 0;
    session_contents_free(&found);
    return is;
}

void session_folder_drop_beginnings(
    weir_sessions *sessions, const weir_session_content *content, const char *name
)
{
    weir_session_info *list = NULL;
    size_t n = 0;
    /* A sequence of other numerics has no rows for those that were computed here. */
    if (session_has_origin(sessions, content) ||
        session_folder_list(sessions, &list, &n, NULL) != WEIR_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        const weir_session_info *const info = &list[i];
        if (!info->is_automatic || info->problem != WEIR_OK || strcmp(info->name, name) == 0)
            continue;
        if (info->n_tokens > content->n_tokens || !is_beginning(sessions, info, content)) continue;
        session_folder_enter(sessions);
        (void)remove_file(sessions, info->name); /* the sequence's own file has these tokens */
        session_folder_leave(sessions);
    }
    weir_memory_give(list);
}
