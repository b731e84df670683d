/* engine/states/folder.c - session files of the database, NAME.SERIAL.session each, and recovery of
 * file and log after a kill. Files without an entry, left by a killed writer, are recognised by
 * their serials and deleted; others are left alone (docs/state-database.md). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/session/file/session_file.h"
#include "engine/states/states_internal.h"

#define ENDING ".session"

weir_status state_file_path(
    char path[PATH_MAX], const char *folder, const char *name, int64_t serial, weir_error *error
)
{
    if (snprintf(path, PATH_MAX, "%s/%s.%" PRId64 ENDING, folder, name, serial) < PATH_MAX)
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL, "%s: the path of a state in it would be too long", folder
    );
}

/* Parses NAME.SERIAL.session; *temporary: it is another writer's temporary file. Returns false for
 * any other file. */
static bool parse(
    char name[WEIR_STATE_NAME + 1], int64_t *serial, bool *temporary, const char *entry
)
{
    const char *const dot = strchr(entry, '.');
    const size_t n = dot != NULL ? (size_t)(dot - entry) : 0;
    if (n < 1 || n > WEIR_STATE_NAME || dot[1] < '1' || dot[1] > '9') return false;
    char *end;
    errno = 0;
    const long long number = strtoll(dot + 1, &end, 10);
    if (errno != 0 || strncmp(end, ENDING, sizeof ENDING - 1) != 0) return false;
    end += sizeof ENDING - 1;
    *temporary = strncmp(end, WEIR_TEMPORARY_MARK, sizeof WEIR_TEMPORARY_MARK - 1) == 0;
    if (*end != '\0' && !*temporary) return false;
    memcpy(name, entry, n);
    name[n] = '\0';
    *serial = number;
    return state_name_is_good(name);
}

/* ---- one file -------------------------------------------------------------------------------- */
static weir_status digest_header(uint64_t digest[2], const char *path, weir_error *error)
{
    unsigned char bytes[WEIR_SESSION_ALIGNMENT];
    size_t done = 0;
    ssize_t n = -1;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd >= 0 && done < sizeof bytes) {
        n = pread(fd, bytes + done, sizeof bytes - done, (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    const int reason = errno;
    if (fd >= 0) (void)close(fd);
    if (done < sizeof bytes)
        return weir_error_set(
            error, WEIR_EIO, "%s: cannot read: %s", path,
            n < 0 ? strerror(reason) : "the file ends early"
        );
    const XXH128_hash_t hash = XXH3_128bits(bytes, sizeof bytes);
    digest[0] = hash.low64;
    digest[1] = hash.high64;
    return WEIR_OK;
}

weir_status state_file_look(
    weir_state_info *out, const char *path, const uint64_t model[2], weir_error *error
)
{
    weir_session_reader *reader = NULL;
    WEIR_TRY(weir_session_open(&reader, path, error));
    const weir_session_header header = *weir_session_header_of(reader);
    weir_session_close(reader);
    if (memcmp(header.identity.model, model, sizeof header.identity.model) != 0)
        return weir_error_set(
            error, WEIR_EMISMATCH,
            "%s: a state of another model: its digest is %016" PRIx64
            ", that of the database's model %016" PRIx64,
            path, header.identity.model[0], model[0]
        );
    out->n_tokens = (int64_t)header.n_tokens + header.form.n_rest;
    out->state_bits = header.form.state_bits;
    out->is_merged = header.form.is_merged;
    out->n_bytes = (int64_t)header.bytes;
    out->created = header.created;
    weir_numerics_digest(out->numerics, &header.identity.numerics);
    return digest_header(out->payload, path, error);
}

/* ---- all files ------------------------------------------------------------------------------- */
typedef struct sweep {
    weir_states *states;
    bool writes;
    int64_t next_serial; /* at the start */
    int64_t n_removed, n_left;
} sweep;

static void remove_file(sweep *w, const char *path)
{
    if (unlink(path) == 0)
        w->n_removed++;
    else
        weir_log(
            WEIR_LOG_WARNING, "%s: cannot delete the leftover file of a state: %s", path,
            strerror(errno)
        );
}

/* Adds a complete file whose entry may be damaged, without vector and metadata. */
static weir_status adopt(sweep *w, const char *name, const char *path)
{
    weir_states *const s = w->states;
    weir_error why = { 0 };
    char place[PATH_MAX];
    state_record record = { .type = STATE_ADDED, .info.serial = s->next_serial };
    weir_state_info *info = &record.info;
    weir_status status =
        state_index_name(&s->index, name) == NULL
            ? state_file_look(info, path, s->header.kind.model, &why)
            : weir_error_set(&why, WEIR_EINVAL, "%s: another state has its name", path);
    (void)snprintf(info->name, sizeof info->name, "%s", name);
    (void)snprintf(info->label, sizeof info->label, "%s", name);
    if (status == WEIR_OK) status = state_file_path(place, s->folder, name, info->serial, &why);
    if (status == WEIR_OK && rename(path, place) != 0)
        status = weir_error_set(&why, WEIR_EIO, "%s: %s", path, strerror(errno));
    if (status == WEIR_OK) status = state_log_append(s, &record, true, &why);
    if (status == WEIR_OK) {
        state_index_at(&s->index, s->index.n_entries - 1)->has_file = true;
        weir_log(
            WEIR_LOG_WARNING,
            "%s: the record of state %s was damaged; the state is restored without label, metadata "
            "and vector",
            s->folder, name
        );
    } else
        weir_log(
            WEIR_LOG_WARNING, "state %s, whose record is damaged, cannot be restored: %s", name,
            why.text
        );
    return status == WEIR_OK || status == WEIR_ENOMEM ? status : WEIR_OK;
}

/* Temporary files of states and of the log. */
static const char log_parts[] = "states.log" WEIR_TEMPORARY_MARK;

static weir_status look_at(sweep *w, const char *entry)
{
    weir_states *const s = w->states;
    char name[WEIR_STATE_NAME + 1], path[PATH_MAX];
    int64_t serial;
    bool is_temporary;
    const bool is_log = strncmp(entry, log_parts, sizeof log_parts - 1) == 0;
    if (!is_log && !parse(name, &serial, &is_temporary, entry)) return WEIR_OK;
    if (snprintf(path, sizeof path, "%s/%s", s->folder, entry) >= (int)sizeof path) return WEIR_OK;
    if (is_log || is_temporary) {
        w->n_removed += w->writes && weir_file_drop_torn(path);
        return WEIR_OK;
    }
    state_entry *const own = state_index_serial(&s->index, serial);
    if (own != NULL && strcmp(own->info.name, name) == 0) {
        own->has_file = true;
        return WEIR_OK;
    }
    if (!w->writes) return WEIR_OK;
    /* A serial greater than the next one was not written by the log's writers: the file came from
     * elsewhere. */
    if (serial > w->next_serial)
        w->n_left++;
    else if (serial == w->next_serial || s->n_damaged == 0)
        remove_file(w, path);
    else
        return adopt(w, name, path);
    return WEIR_OK;
}

/* True for files that were seen, and for states that were added since the folder was read. */
static bool is_there(const weir_states *s, const state_entry *entry)
{
    char path[PATH_MAX];
    if (entry->has_file) return true;
    return state_file_path(path, s->folder, entry->info.name, entry->info.serial, NULL) ==
               WEIR_OK &&
           weir_file_exists(path);
}

static weir_status drop_missing(sweep *w, weir_error *error)
{
    weir_states *const s = w->states;
    bool has_written = false;
    for (size_t i = 0; i < s->index.n_entries; i++) {
        state_entry *const entry = state_index_at(&s->index, i);
        const state_record record = { .type = STATE_REMOVED,
                                      .info = { .serial = entry->info.serial,
                                                .created = weir_clock_unix_seconds() } };
        if (!entry->is_live || is_there(s, entry)) continue;
        weir_log(
            WEIR_LOG_WARNING, "%s: the file of state %s is missing; the state is removed",
            s->folder, entry->info.name
        );
        if (w->writes)
            WEIR_TRY(state_log_append(s, &record, false, error));
        else
            state_index_remove(&s->index, entry);
        has_written = w->writes;
    }
    return has_written ? state_log_sync(s, error) : WEIR_OK;
}

weir_status state_folder_settle(weir_states *states, bool writes, weir_error *error)
{
    sweep w = { .states = states, .writes = writes, .next_serial = states->next_serial };
    DIR *const folder = opendir(states->folder);
    if (folder == NULL)
        return weir_error_set(
            error, WEIR_EIO, "%s: cannot read this folder: %s", states->folder, strerror(errno)
        );
    weir_status status = WEIR_OK;
    int reason = 0; /* why the folder could not be read to its end */
    while (status == WEIR_OK) {
        errno = 0;
        const struct dirent *const entry = readdir(folder);
        reason = entry == NULL ? errno : 0;
        if (entry == NULL) break;
        status = look_at(&w, entry->d_name);
    }
    (void)closedir(folder);
    if (reason != 0)
        return weir_error_set(
            error, WEIR_EIO, "%s: cannot read this folder: %s", states->folder, strerror(reason)
        );
    if (status != WEIR_OK)
        return weir_error_set(error, status, "%s: no memory to check its files", states->folder);
    if (w.n_removed > 0)
        weir_log(
            WEIR_LOG_INFO,
            "%s: %" PRId64
            " files of states that were not completely added, or were removed, are deleted",
            states->folder, w.n_removed
        );
    if (w.n_left > 0)
        weir_log(
            WEIR_LOG_WARNING,
            "%s: %" PRId64
            " files of states are not in the log, and are kept: the log is older than they are",
            states->folder, w.n_left
        );
    if (!writes)
        WEIR_TRY(state_log_read(states, error)); /* states removed meanwhile do not matter */
    return drop_missing(&w, error);
}
