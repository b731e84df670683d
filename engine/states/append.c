/* engine/states/append.c - the log on disk: reads complete records, appends. An incomplete record
 * is damaged if a complete one follows; otherwise it is being written, or its writer was killed:
 * readers wait for more, the next writer cuts it off. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/states/states_internal.h"

enum { PIECE_BYTES = 1 << 20 };

static weir_status fail(const weir_states *s, const char *what, weir_error *error)
{
    return weir_error_set(
        error, WEIR_EIO, "%s: cannot %s the log of the state database: %s", s->folder, what,
        strerror(errno)
    );
}

weir_status state_log_path(char path[PATH_MAX], const char *folder, weir_error *error)
{
    if (snprintf(path, PATH_MAX, "%s/states.log", folder) < PATH_MAX) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL, "%s: the path of a database in it would be too long", folder
    );
}

static int64_t at_record(const weir_states *s, int64_t number)
{
    return STATE_HEADER + number * (int64_t)state_record_bytes(s->header.kind.dim);
}

/* ---- reading --------------------------------------------------------------------------------- */
/* Reads all n bytes, or returns EIO. */
static weir_status read_at(
    const weir_states *s, int fd, void *out, size_t n, int64_t at, weir_error *error
)
{
    for (size_t done = 0; done < n;) {
        const ssize_t m = pread(fd, (char *)out + done, n - done, (off_t)(at + (int64_t)done));
        if (m < 0 && errno == EINTR) continue;
        if (m < 0) return fail(s, "read", error);
        if (m == 0)
            return weir_error_set(
                error, WEIR_EIO, "%s: the log of the state database was truncated", s->folder
            );
        done += (size_t)m;
    }
    return WEIR_OK;
}

/* True if no log is open, or the file that has its name is another one, or is shorter than what was
 * read of it. */
static bool is_replaced(const weir_states *s, const struct stat *named)
{
    struct stat own;
    return s->log < 0 || fstat(s->log, &own) != 0 || own.st_ino != named->st_ino ||
           own.st_dev != named->st_dev || named->st_size < at_record(s, s->n_records);
}

bool state_log_is_current(const weir_states *states)
{
    char path[PATH_MAX];
    struct stat named;
    return state_log_path(path, states->folder, NULL) == WEIR_OK && stat(path, &named) == 0 &&
           !is_replaced(states, &named) && named.st_size == at_record(states, states->n_records);
}

static void close_log(weir_states *s)
{
    if (s->log >= 0) (void)close(s->log);
    s->log = -1;
    s->n_records = 0;
    s->n_damaged = 0;
    state_index_clear(&s->index);
}

/* Field by field: the struct ends in padding. */
static bool is_same_kind(const weir_states_kind *a, const weir_states_kind *b)
{
    return memcmp(a->model, b->model, sizeof a->model) == 0 && a->dim == b->dim &&
           strcmp(a->embedding, b->embedding) == 0 && a->state_bits == b->state_bits;
}

static weir_status open_log(weir_states *s, const char *path, weir_error *error)
{
    unsigned char bytes[STATE_HEADER];
    state_log_header header;
    struct stat st;
    close_log(s);
    s->log = open(path, (s->guard >= 0 ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
    if (s->log < 0 && errno == ENOENT)
        return weir_error_set(
            error, WEIR_ENOTFOUND,
            "%s: there is no state database here; `weir db create` makes one", s->folder
        );
    if (s->log < 0) return fail(s, "open", error);
    if (fstat(s->log, &st) != 0 || !S_ISREG(st.st_mode))
        return weir_error_set(error, WEIR_EIO, "%s: not a regular file", path);
    if (st.st_size < STATE_HEADER)
        return weir_error_set(error, WEIR_EFORMAT, "%s: not the log of a state database", path);
    WEIR_TRY(read_at(s, s->log, bytes, sizeof bytes, 0, error));
    WEIR_TRY(state_header_decode(&header, bytes, path, error));
    if (s->header.id != 0 &&
        (s->header.id != header.id || !is_same_kind(&s->header.kind, &header.kind)))
        return weir_error_set(
            error, WEIR_EMISMATCH, "%s: the database was replaced by another one; open it again",
            s->folder
        );
    s->next_serial = header.next_serial;
    if (s->header.id == 0) {
        s->header = header;
        s->index.dim = header.kind.dim;
    }
    return WEIR_OK;
}

/* Applies a record to the index. Returns false if it cannot be valid. */
static bool apply(
    weir_states *s, const state_record *record, const unsigned char *bytes, int64_t number,
    weir_status *status
)
{
    const int64_t serial = record->info.serial;
    if (record->type == STATE_REMOVED) {
        state_entry *const entry = state_index_serial(&s->index, serial);
        if (entry != NULL) state_index_remove(&s->index, entry);
        if (serial >= s->next_serial) s->next_serial = serial + 1;
        return true;
    }
    if (s->index.n_entries > 0 &&
        serial <= state_index_at(&s->index, s->index.n_entries - 1)->info.serial)
        return false;
    *status = state_index_add(&s->index, record, number, bytes + STATE_RECORD_VECTOR);
    if (*status == WEIR_OK && serial >= s->next_serial) s->next_serial = serial + 1;
    return *status == WEIR_OK;
}

/* Applies n records from the memory; the first is `next` in the log. n_bad: since the last good
 * one. */
static weir_status apply_records(
    weir_states *s, const unsigned char *memory, int64_t n, int64_t next, int64_t *n_bad
)
{
    const size_t bytes = state_record_bytes(s->header.kind.dim);
    weir_status status = WEIR_OK;
    (void)pthread_rwlock_wrlock(&s->lock);
    for (int64_t i = 0; i < n && status == WEIR_OK; i++) {
        const unsigned char *const at = memory + (size_t)i * bytes;
        state_record record;
        if (state_record_decode(&record, at, &s->header) &&
            apply(s, &record, at, next + i, &status)) {
            s->n_damaged += *n_bad;
            *n_bad = 0;
            s->n_records = next + i + 1;
        } else
            ++*n_bad;
    }
    (void)pthread_rwlock_unlock(&s->lock);
    return status;
}

/* Reads complete records from the first that is not in the index yet. */
static weir_status read_records(
    weir_states *s, int64_t n_whole, unsigned char *memory, size_t n_bytes, weir_error *error
)
{
    const size_t bytes = state_record_bytes(s->header.kind.dim);
    const int64_t most = (int64_t)(n_bytes / bytes);
    int64_t n_bad = 0;
    for (int64_t next = s->n_records; next < n_whole;) {
        const int64_t n = n_whole - next < most ? n_whole - next : most;
        WEIR_TRY(read_at(s, s->log, memory, (size_t)n * bytes, at_record(s, next), error));
        const weir_status status = apply_records(s, memory, n, next, &n_bad);
        if (status != WEIR_OK)
            return weir_error_set(
                error, status,
                "%s: no memory for the %" PRId64
                " states of this database (memory.host; of a server states.memory)",
                s->folder, n_whole
            );
        next += n;
    }
    return WEIR_OK;
}

/* What follows in the log that is open. */
static weir_status read_on(weir_states *s, weir_error *error)
{
    struct stat own;
    if (fstat(s->log, &own) != 0) return fail(s, "look at", error);
    const size_t bytes = state_record_bytes(s->header.kind.dim);
    const int64_t n_whole = (own.st_size - STATE_HEADER) / (int64_t)bytes;
    if (n_whole <= s->n_records) return WEIR_OK;
    const int64_t left = n_whole - s->n_records,
                  fit = bytes < PIECE_BYTES ? PIECE_BYTES / (int64_t)bytes : 1;
    const size_t n_bytes = (size_t)(left < fit ? left : fit) * bytes;
    unsigned char *const memory = weir_memory_take(n_bytes);
    if (memory == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "%s: no memory to read its log", s->folder);
    const weir_status status = read_records(s, n_whole, memory, n_bytes, error);
    weir_memory_give(memory);
    return status;
}

/* Moves what was read of the log that replaces the other. Lock held. */
static void take_over(weir_states *s, weir_states *fresh)
{
    close_log(s);
    if (s->header.id == 0) s->header = fresh->header; /* which others read without the lock */
    s->log = fresh->log;
    s->index = fresh->index;
    s->n_records = fresh->n_records;
    s->n_damaged = fresh->n_damaged;
    s->next_serial = fresh->next_serial;
    fresh->log = -1;
    fresh->index = (state_index){ 0 };
}

/* Reads a log that replaced the one that is open, while others use the index of that one. If there
 * is no memory for both, they wait. */
static weir_status read_anew(weir_states *s, const char *path, weir_error *error)
{
    weir_states fresh = { .folder = s->folder,
                          .log = -1,
                          .guard = s->guard,
                          .header = s->header,
                          .index = { .dim = s->index.dim, .tracker = s->index.tracker } };
    (void)pthread_rwlock_init(&fresh.lock, NULL);
    weir_status status = open_log(&fresh, path, error);
    if (status == WEIR_OK) status = read_on(&fresh, error);
    (void)pthread_rwlock_wrlock(&s->lock);
    if (status == WEIR_ENOMEM && fresh.log >= 0) {
        close_log(s);
        status = read_on(&fresh, error);
    }
    if (status == WEIR_OK) take_over(s, &fresh);
    (void)pthread_rwlock_unlock(&s->lock);
    close_log(&fresh);
    (void)pthread_rwlock_destroy(&fresh.lock);
    return status;
}

static weir_status read_log(weir_states *s, weir_error *error)
{
    char path[PATH_MAX];
    struct stat named;
    WEIR_TRY(state_log_path(path, s->folder, error));
    const bool is_there = stat(path, &named) == 0;
    if (!is_there && errno != ENOENT) return fail(s, "look for", error);
    if (!is_there || is_replaced(s, &named)) return read_anew(s, path, error);
    return read_on(s, error);
}

weir_status state_log_read(weir_states *states, weir_error *error)
{
    (void)pthread_mutex_lock(&states->reading);
    const weir_status status = read_log(states, error);
    (void)pthread_mutex_unlock(&states->reading);
    return status;
}

weir_status state_log_record(
    const weir_states *states, int fd, const state_entry *entry, unsigned char *memory,
    state_record *out, weir_error *error
)
{
    const size_t bytes = state_record_bytes(states->header.kind.dim);
    WEIR_TRY(read_at(states, fd, memory, bytes, at_record(states, entry->record), error));
    if (state_record_decode(out, memory, &states->header) && out->info.serial == entry->info.serial)
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_EFORMAT,
        "%s: the log's record of state %s is damaged; put back a good copy of states.log",
        states->folder, entry->info.name
    );
}

/* ---- writing --------------------------------------------------------------------------------- */
static bool write_at(int fd, const unsigned char *bytes, size_t n, int64_t at)
{
    for (size_t done = 0; done < n;) {
        const ssize_t m = pwrite(fd, bytes + done, n - done, (off_t)(at + (int64_t)done));
        if (m < 0 && errno == EINTR) continue;
        if (m <= 0) return false;
        done += (size_t)m;
    }
    return true;
}

/* Cuts off what follows the last good record: it was never completed. */
static weir_status cut_tail(const weir_states *s, int fd, int64_t end, weir_error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return fail(s, "look at", error);
    if (st.st_size == end) return WEIR_OK;
    weir_log(
        WEIR_LOG_WARNING, "%s: a state was being added when its writer ended; it was not added",
        s->folder
    );
    return ftruncate(fd, (off_t)end) == 0 ? WEIR_OK : fail(s, "cut the unfinished end of", error);
}

weir_status state_log_sync(const weir_states *states, weir_error *error)
{
    return fsync(states->log) == 0 ? WEIR_OK : fail(states, "sync", error);
}

int64_t state_log_end(const weir_states *states) { return at_record(states, states->n_records); }

weir_status state_log_write(
    const weir_states *states, int fd, int64_t end, const state_record *record, bool syncs,
    weir_error *error
)
{
    const size_t bytes = state_record_bytes(states->header.kind.dim);
    unsigned char *const memory = weir_memory_take(bytes);
    if (memory == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "%s: no memory for a record", states->folder);
    state_record_encode(memory, record, &states->header);
    weir_status status = cut_tail(states, fd, end, error);
    if (status == WEIR_OK && !write_at(fd, memory, bytes, end))
        status = fail(states, "write to", error);
    if (status == WEIR_OK && syncs && fsync(fd) != 0) status = fail(states, "sync", error);
    weir_memory_give(memory);
    /* The rest has no good record after it: the next writer cuts it off. */
    if (status != WEIR_OK) (void)!ftruncate(fd, (off_t)end);
    return status;
}

weir_status state_log_append(
    weir_states *states, const state_record *record, bool syncs, weir_error *error
)
{
    WEIR_TRY(state_log_write(states, states->log, state_log_end(states), record, syncs, error));
    return state_log_read(states, error);
}

/* ---- writing anew ---------------------------------------------------------------------------- */
bool state_log_wants_compacting(weir_states *states)
{
    enum { LEAST = 64 };
    (void)pthread_rwlock_rdlock(&states->lock);
    const bool wants =
        states->n_damaged > 0 || states->n_records > 2 * (int64_t)states->index.n_live + LEAST;
    (void)pthread_rwlock_unlock(&states->lock);
    return wants;
}

static weir_status copy_live(const weir_states *s, int fd, unsigned char *memory, weir_error *error)
{
    const size_t bytes = state_record_bytes(s->header.kind.dim);
    state_log_header header = s->header;
    unsigned char head[STATE_HEADER];
    int64_t n = 0;
    header.next_serial = s->next_serial;
    state_header_encode(head, &header);
    if (!write_at(fd, head, sizeof head, 0)) return fail(s, "write anew", error);
    for (size_t i = 0; i < s->index.n_entries; i++) {
        const state_entry *const entry = state_index_at(&s->index, i);
        state_record record;
        if (!entry->is_live) continue;
        WEIR_TRY(state_log_record(s, s->log, entry, memory, &record, error));
        if (!write_at(fd, memory, bytes, at_record(s, n++))) return fail(s, "write anew", error);
    }
    return WEIR_OK;
}

static weir_status compact(weir_states *s, unsigned char *memory, weir_error *error)
{
    char path[PATH_MAX];
    weir_new_file file;
    const size_t bytes = state_record_bytes(s->header.kind.dim);
    weir_status status = state_log_path(path, s->folder, error);
    if (status == WEIR_OK)
        status = weir_new_file_open(&file, path, STATE_HEADER + s->index.n_live * bytes, error);
    if (status == WEIR_OK) {
        status = copy_live(s, file.fd, memory, error);
        if (status == WEIR_OK)
            status = weir_new_file_keep(&file, error);
        else
            weir_new_file_drop(&file);
    }
    return status == WEIR_OK ? read_log(s, error) : status;
}

/* Others use the index of the old log meanwhile, which only a thread that has `reading` changes.
 * No other writer appends: the caller holds the guard. */
weir_status state_log_compact(weir_states *states, weir_error *error)
{
    unsigned char *const memory = weir_memory_take(state_record_bytes(states->header.kind.dim));
    if (memory == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "%s: no memory for a record", states->folder);
    (void)pthread_mutex_lock(&states->reading);
    const weir_status status = compact(states, memory, error);
    (void)pthread_mutex_unlock(&states->reading);
    weir_memory_give(memory);
    return status;
}
