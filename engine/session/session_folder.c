/* engine/session/session_folder.c - the session folder: names and contents. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/session/session_internal.h"

#define ENDING ".session"

weir_status session_path_of(
    session_path out, const weir_sessions *sessions, const char *name, weir_error *error
)
{
    if (!weir_session_name_is_good(name, WEIR_SESSION_NAME))
        return weir_error_set(
            error, WEIR_EINVAL,
            "a session's name is 1 to %d letters, digits, '.', '_' or '-', not a dot first",
            (int)WEIR_SESSION_NAME
        );
    if (snprintf(out, sizeof(session_path), "%s/%s" ENDING, sessions->folder, name) >=
        (int)sizeof(session_path))
        return weir_error_set(
            error, WEIR_EINVAL, "%s: the path of a session in it would be too long",
            sessions->folder
        );
    return WEIR_OK;
}

void session_touch(const weir_sessions *sessions, const char *name)
{
    session_path path;
    if (session_path_of(path, sessions, name, NULL) == WEIR_OK)
        (void)utimensat(AT_FDCWD, path, NULL, 0);
}

/* Other processes may be writing to the folder. */
static void drop_torn(const weir_sessions *sessions, const char *entry)
{
    char path[PATH_MAX];
    if (strstr(entry, ENDING WEIR_TEMPORARY_MARK) != NULL &&
        snprintf(path, sizeof path, "%s/%s", sessions->folder, entry) < (int)sizeof path)
        (void)weir_file_drop_torn(path);
}

weir_status session_folder_prepare(const weir_sessions *sessions, weir_error *error)
{
    if (mkdir(sessions->folder, 0700) != 0 && errno != EEXIST)
        return weir_error_set(
            error, WEIR_EIO, "%s: cannot make this folder (sessions.dir): %s", sessions->folder,
            strerror(errno)
        );
    DIR *const folder = opendir(sessions->folder);
    if (folder == NULL)
        return weir_error_set(
            error, WEIR_EIO, "%s: cannot read this folder (sessions.dir): %s", sessions->folder,
            strerror(errno)
        );
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder))
        drop_torn(sessions, entry->d_name);
    (void)closedir(folder);
    if (access(sessions->folder, W_OK) != 0)
        weir_log(
            WEIR_LOG_WARNING, "%s: sessions cannot be saved here (sessions.dir): %s",
            sessions->folder, strerror(errno)
        );
    return WEIR_OK;
}

/* ---- what is there --------------------------------------------------------------------------- */
/* Extracts the name from a session's file name; false for other files. */
static bool name_of(char name[WEIR_SESSION_NAME + 1], const char *entry)
{
    const size_t n = strlen(entry), ending = sizeof ENDING - 1;
    if (n <= ending || n - ending > WEIR_SESSION_NAME || strcmp(entry + n - ending, ENDING) != 0)
        return false;
    memcpy(name, entry, n - ending);
    name[n - ending] = '\0';
    return weir_session_name_is_good(name, WEIR_SESSION_NAME);
}

static void look_into(const weir_sessions *sessions, weir_session_info *info, const char *path)
{
    weir_session_reader *reader = NULL;
    weir_error why = { 0 };
    info->problem = weir_session_open(&reader, path, &why);
    if (info->problem == WEIR_OK) {
        const weir_session_header *const header = weir_session_header_of(reader);
        info->n_tokens = header->n_tokens;
        info->created = header->created;
        info->is_automatic = header->is_automatic;
        (void)snprintf(
            info->policy, sizeof info->policy, "%s",
            header->is_pruned ? header->identity.policy : ""
        );
        if (sessions->service != NULL)
            info->problem = weir_session_check(reader, &sessions->identity, &why);
        if (info->problem == WEIR_OK && weir_session_has_form(header))
            info->problem = WEIR_EUNSUPPORTED;
    }
    weir_session_close(reader);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const weir_session_info *)a)->name, ((const weir_session_info *)b)->name);
}

static weir_status add_entry(
    const weir_sessions *sessions, weir_session_info **list, size_t *n, const char *entry
)
{
    weir_session_info info = { .name = "" };
    session_path path;
    struct stat st;
    if (!name_of(info.name, entry) || session_path_of(path, sessions, info.name, NULL) != WEIR_OK)
        return WEIR_OK;
    const bool is_seen = lstat(path, &st) == 0;
    if (is_seen ? !S_ISREG(st.st_mode) : errno == ENOENT) return WEIR_OK;
    info.problem = WEIR_EIO;
    if (is_seen) {
        info.n_bytes = st.st_size;
        info.created = (int64_t)st.st_mtim.tv_sec;
        info.changed_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        look_into(sessions, &info, path);
    }
    weir_session_info *const longer = weir_memory_resize(*list, (*n + 1) * sizeof info);
    if (longer == NULL) return WEIR_ENOMEM;
    *list = longer;
    longer[(*n)++] = info;
    return WEIR_OK;
}

weir_status session_folder_list(
    const weir_sessions *sessions, weir_session_info **out, size_t *n, weir_error *error
)
{
    weir_session_info *list = NULL;
    weir_status status = WEIR_OK;
    DIR *const folder = opendir(sessions->folder);
    *n = 0;
    if (folder == NULL)
        return weir_error_set(
            error, WEIR_EIO, "%s: cannot read this folder (sessions.dir): %s", sessions->folder,
            strerror(errno)
        );
    int reason = 0; /* why the folder could not be read to its end */
    const struct dirent *entry;
    while (status == WEIR_OK && (errno = 0, entry = readdir(folder)) != NULL)
        status = add_entry(sessions, &list, n, entry->d_name);
    if (status == WEIR_OK) reason = errno;
    (void)closedir(folder);
    if (reason != 0) {
        weir_memory_give(list);
        return weir_error_set(
            error, WEIR_EIO, "%s: cannot read this folder (sessions.dir): %s", sessions->folder,
            strerror(reason)
        );
    }
    if (status != WEIR_OK) {
        weir_memory_give(list);
        return weir_error_set(error, status, "no memory for the list of sessions");
    }
    if (*n > 0) qsort(list, *n, sizeof *list, by_name);
    *out = list;
    return WEIR_OK;
}

/* ---- what is in a file ----------------------------------------------------------------------- */
static weir_status read_open(
    session_contents *out, const weir_sessions *s, weir_session_reader *reader
)
{
    const weir_session_header *const header = weir_session_header_of(reader);
    out->is_refused = session_is_refused(s, reader);
    if (!out->is_refused) WEIR_TRY(weir_session_check(reader, &s->identity, NULL));
    if (weir_session_has_form(header)) return WEIR_EUNSUPPORTED;
    out->n_tokens = header->n_tokens;
    out->n_states = header->n_states;
    out->is_automatic = header->is_automatic;
    out->is_pruned = header->is_pruned;
    if (s->service != NULL && out->n_tokens > s->service->facts->window) return WEIR_EMISMATCH;
    out->tokens = weir_memory_take((size_t)out->n_tokens * sizeof *out->tokens);
    if (out->tokens == NULL) return WEIR_ENOMEM;
    WEIR_TRY(weir_session_read_tokens(reader, out->tokens, s->n_vocab, NULL));
    WEIR_TRY(weir_session_read_salt(reader, out->salt, NULL));
    return weir_session_read_places(reader, out->places, NULL);
}

weir_status session_contents_read(
    session_contents *out, const weir_sessions *sessions, const char *name
)
{
    session_path path;
    weir_session_reader *reader = NULL;
    *out = (session_contents){ 0 };
    WEIR_TRY(session_path_of(path, sessions, name, NULL));
    WEIR_TRY(weir_session_open(&reader, path, NULL));
    const weir_status status = read_open(out, sessions, reader);
    weir_session_close(reader);
    if (status != WEIR_OK) session_contents_free(out);
    return status;
}

void session_contents_free(session_contents *contents)
{
    weir_memory_give(contents->tokens);
    contents->tokens = NULL;
}
