/* engine/states/states.c - the public functions of the database. Adding writes the session file,
 * then the record; removing the record, then the file (docs/state-database.md). Writers of all
 * processes take turns with a lock on a separate file, which the kernel releases when they end. */
#include "engine/states/states.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/states/states_internal.h"

/* ---- writers take turns ---------------------------------------------------------------------- */
static weir_status open_guard(int *guard, const char *folder, weir_error *error)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/states.lock", folder) >= (int)sizeof path)
        return weir_error_set(
            error, WEIR_EINVAL, "%s: the path of a database in it would be too long", folder
        );
    *guard = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return *guard >= 0
               ? WEIR_OK
               : weir_error_set(error, WEIR_EIO, "%s: cannot open: %s", path, strerror(errno));
}

static weir_status take_guard(int guard, const char *folder, weir_error *error)
{
    enum { TRIES = 600, PAUSE_NS = 50000000 };
    for (int i = 0; i < TRIES; i++) {
        if (flock(guard, LOCK_EX | LOCK_NB) == 0) return WEIR_OK;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return weir_error_set(error, WEIR_EIO, "%s: cannot lock: %s", folder, strerror(errno));
        (void)nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    }
    return weir_error_set(
        error, WEIR_ECANCELED,
        "%s: another process has been writing to this state database for half a minute; try again",
        folder
    );
}

/* Makes this thread the only writer, with the index up to date. */
static weir_status begin(weir_states *s, weir_error *error)
{
    if (s->guard < 0)
        return weir_error_set(
            error, WEIR_EINVAL, "%s: the state database was opened read-only", s->folder
        );
    (void)pthread_mutex_lock(&s->writer);
    weir_status status = take_guard(s->guard, s->folder, error);
    if (status == WEIR_OK) {
        status = state_log_read(s, error);
        if (status != WEIR_OK) (void)flock(s->guard, LOCK_UN);
    }
    if (status != WEIR_OK) (void)pthread_mutex_unlock(&s->writer);
    return status;
}

static void end(weir_states *s)
{
    (void)flock(s->guard, LOCK_UN);
    (void)pthread_mutex_unlock(&s->writer);
}

/* ---- opening --------------------------------------------------------------------------------- */
static weir_status check_kind(const weir_states_kind *kind, weir_error *error)
{
    if (kind->dim < 0 || kind->dim > WEIR_STATE_DIM)
        return weir_error_set(
            error, WEIR_EINVAL, "vectors of states have 0 to %d dimensions, not %d",
            (int)WEIR_STATE_DIM, (int)kind->dim
        );
    if (kind->state_bits != 0 && kind->state_bits != 8 && kind->state_bits != 4)
        return weir_error_set(
            error, WEIR_EINVAL, "states are stored in 8 or 4 bits, or unpacked, not in %d bits",
            (int)kind->state_bits
        );
    if (strnlen(kind->embedding, sizeof kind->embedding) == sizeof kind->embedding)
        return weir_error_set(
            error, WEIR_EINVAL, "the name of the embedding has at most %d bytes",
            (int)WEIR_STATE_EMBEDDING
        );
    return WEIR_OK;
}

static weir_status write_empty(const char *folder, const weir_states_kind *kind, weir_error *error)
{
    char path[PATH_MAX];
    unsigned char bytes[STATE_HEADER];
    state_log_header header = { .kind = { .model = { kind->model[0], kind->model[1] },
                                          .dim = kind->dim,
                                          .state_bits = kind->state_bits },
                                .created = weir_clock_unix_seconds(),
                                .next_serial = 1 };
    (void)snprintf(header.kind.embedding, sizeof header.kind.embedding, "%s", kind->embedding);
    while (header.id == 0)
        if (getrandom(&header.id, sizeof header.id, 0) != (ssize_t)sizeof header.id)
            header.id = (uint64_t)weir_clock_ns();
    WEIR_TRY(state_log_path(path, folder, error));
    if (weir_file_exists(path))
        return weir_error_set(
            error, WEIR_EINVAL,
            "%s: there is a state database already; use it, or choose another folder", folder
        );
    state_header_encode(bytes, &header);
    return weir_file_write_private(path, bytes, sizeof bytes, error);
}

weir_status weir_states_create(const char *folder, const weir_states_kind *kind, weir_error *error)
{
    int guard;
    WEIR_TRY(check_kind(kind, error));
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return weir_error_set(
            error, WEIR_EIO, "%s: cannot make this folder: %s", folder, strerror(errno)
        );
    WEIR_TRY(open_guard(&guard, folder, error));
    weir_status status = take_guard(guard, folder, error);
    if (status == WEIR_OK) status = write_empty(folder, kind, error);
    (void)close(guard);
    return status;
}

static weir_status settle(weir_states *s, bool writes, weir_error *error)
{
    WEIR_TRY(state_log_read(s, error));
    const int64_t n_damaged = s->n_damaged;
    if (n_damaged > 0)
        weir_log(
            WEIR_LOG_WARNING, "%s: %" PRId64 " records of its log are damaged", s->folder, n_damaged
        );
    WEIR_TRY(state_folder_settle(s, writes, error));
    return writes && state_log_wants_compacting(s) ? state_log_compact(s, error) : WEIR_OK;
}

static weir_status check_model(const weir_states *s, const uint64_t *model, weir_error *error)
{
    const uint64_t *const own = s->header.kind.model;
    if (model == NULL || memcmp(own, model, sizeof s->header.kind.model) == 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EMISMATCH,
        "%s: a database of states of another model: its digest is %016" PRIx64
        ", that of the model here %016" PRIx64,
        s->folder, own[0], model[0]
    );
}

static weir_status open_states(
    weir_states *s, const weir_states_options *options, weir_error *error
)
{
    char path[PATH_MAX];
    if (s->folder == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for a path");
    WEIR_TRY(state_log_path(path, s->folder, error));
    if (!options->writes || !weir_file_exists(path)) return settle(s, false, error);
    WEIR_TRY(open_guard(&s->guard, s->folder, error));
    WEIR_TRY(take_guard(s->guard, s->folder, error));
    weir_status status = state_log_read(s, error);
    if (status == WEIR_OK)
        status = check_model(s, options->model, error); /* never touches states of another model */
    if (status == WEIR_OK) status = settle(s, true, error);
    (void)flock(s->guard, LOCK_UN);
    return status;
}

weir_status weir_states_open(
    weir_states **out, const weir_states_options *options, weir_error *error
)
{
    weir_states *const s = calloc(1, sizeof *s);
    if (s == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the state database");
    *s = (weir_states){ .folder = strdup(options->folder),
                        .log = -1,
                        .guard = -1,
                        .index.tracker = options->tracker,
                        .disk = options->disk };
    (void)pthread_mutex_init(&s->writer, NULL);
    (void)pthread_mutex_init(&s->reading, NULL);
    (void)pthread_rwlock_init(&s->lock, NULL);
    weir_status status = open_states(s, options, error);
    if (status == WEIR_OK) status = check_model(s, options->model, error);
    if (status != WEIR_OK)
        weir_states_close(s);
    else
        *out = s;
    return status;
}

void weir_states_close(weir_states *states)
{
    if (states == NULL) return;
    state_index_clear(&states->index);
    if (states->log >= 0) (void)close(states->log);
    if (states->guard >= 0) (void)close(states->guard);
    (void)pthread_rwlock_destroy(&states->lock);
    (void)pthread_mutex_destroy(&states->reading);
    (void)pthread_mutex_destroy(&states->writer);
    free(states->folder);
    free(states);
}

const weir_states_kind *weir_states_kind_of(const weir_states *states)
{
    return &states->header.kind;
}

/* ---- changing -------------------------------------------------------------------------------- */
static weir_status check_new(
    const weir_states *s, const weir_new_state *state, state_record *record, weir_error *error
)
{
    double length;
    WEIR_TRY(weir_state_label(record->info.label, state->label, error));
    if (state->vector != NULL) WEIR_TRY(state_vector_check(s, state->vector, &length, error));
    if (state->metadata == NULL) return WEIR_OK;
    record->metadata = state->metadata;
    record->n_metadata = strlen(state->metadata);
    return state_metadata_check(state->metadata, record->n_metadata, error);
}

/* The owner comes before the slug, which is cut to fit. */
static void slug_of(char out[WEIR_STATE_NAME + 1], const char *label, const char *owner)
{
    enum { OWNED = 32 };
    char slug[WEIR_STATE_NAME + 1];
    weir_state_slug(slug, label);
    if (owner != NULL)
        (void)snprintf(
            out, WEIR_STATE_NAME + 1, "%.*s-%.*s", WEIR_STATE_OWNER + 1, owner, (int)OWNED, slug
        );
    else
        (void)snprintf(out, WEIR_STATE_NAME + 1, "%s", slug);
}

/* Picks a serial and a name, and reserves space for the entry. */
static weir_status choose_place(
    weir_states *s, weir_state_info *info, const char *owner, weir_error *error
)
{
    char slug[WEIR_STATE_NAME + 1];
    slug_of(slug, info->label, owner);
    (void)pthread_rwlock_wrlock(&s->lock);
    info->serial = s->next_serial;
    weir_status status = state_index_free_name(&s->index, slug, info->name);
    if (status == WEIR_OK) status = state_index_reserve(&s->index);
    (void)pthread_rwlock_unlock(&s->lock);
    return status == WEIR_OK
               ? WEIR_OK
               : weir_error_set(
                     error, status,
                     "%s: no memory for one more state (memory.host; of a server states.memory)",
                     s->folder
                 );
}

/* Readers do not wait for the disk. One may see the record before it is there, as those of other
 * processes may. */
static weir_status append(weir_states *s, const state_record *record, weir_error *error)
{
    char path[PATH_MAX];
    WEIR_TRY(state_log_path(path, s->folder, error));
    (void)pthread_rwlock_rdlock(&s->lock);
    const int64_t end = state_log_end(s);
    (void)pthread_rwlock_unlock(&s->lock);
    const int fd = open(path, O_RDWR | O_CLOEXEC); /* a reader may close that of `log` */
    if (fd < 0)
        return weir_error_set(error, WEIR_EIO, "%s: cannot open: %s", path, strerror(errno));
    const weir_status status = state_log_write(s, fd, end, record, true, error);
    (void)close(fd);
    return status == WEIR_OK ? state_log_read(s, error) : status;
}

/* Bytes that one more file may take; 0: no limit. */
static weir_status find_space(weir_states *s, int64_t *max_bytes, weir_error *error)
{
    if (s->disk == 0) return WEIR_OK;
    (void)pthread_rwlock_rdlock(&s->lock);
    const int64_t used = state_index_bytes(&s->index);
    (void)pthread_rwlock_unlock(&s->lock);
    *max_bytes = s->disk - used;
    if (*max_bytes > 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EFULL,
        "%s: its states take %" PRId64 " bytes, %" PRId64 " are allowed (states.disk); delete some",
        s->folder, used, s->disk
    );
}

static weir_status add(
    weir_states *s, const weir_new_state *state, state_record *record, weir_error *error
)
{
    char path[PATH_MAX];
    weir_state_info *const info = &record->info;
    int64_t max_bytes = 0;
    WEIR_TRY(find_space(s, &max_bytes, error));
    WEIR_TRY(choose_place(s, info, state->owner, error));
    WEIR_TRY(state_file_path(path, s->folder, info->name, info->serial, error));
    weir_status status = state->write(state->user, path, max_bytes, error);
    if (status == WEIR_OK) status = state_file_look(info, path, s->header.kind.model, error);
    info->created = weir_clock_unix_seconds();
    if (status == WEIR_OK) status = append(s, record, error);
    if (status != WEIR_OK) (void)unlink(path);
    return status;
}

weir_status weir_states_add(
    weir_states *states, const weir_new_state *state, weir_state_info *out, weir_error *error
)
{
    state_record record = { .type = STATE_ADDED,
                            .vector = state->vector,
                            .info = { .has_vector = state->vector != NULL,
                                      .source = { state->source[0], state->source[1] } } };
    WEIR_TRY(check_new(states, state, &record, error));
    WEIR_TRY(begin(states, error));
    const weir_status status = add(states, state, &record, error);
    end(states);
    if (status == WEIR_OK && out != NULL) *out = record.info;
    return status;
}

/* If this fails, the log keeps removed records until the next time; with damaged records until it
 * is opened, which checks their files. */
static void compact(weir_states *s)
{
    weir_error why = { 0 };
    (void)pthread_rwlock_rdlock(&s->lock);
    const bool is_damaged = s->n_damaged > 0;
    (void)pthread_rwlock_unlock(&s->lock);
    if (!is_damaged && state_log_wants_compacting(s) && state_log_compact(s, &why) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "%s: the log cannot be compacted: %s", s->folder, why.text);
}

static weir_status remove_named(weir_states *s, const char *name, weir_error *error)
{
    char path[PATH_MAX];
    weir_state_info info;
    WEIR_TRY(weir_states_find(s, name, &info, error));
    const state_record record = { .type = STATE_REMOVED,
                                  .info = { .serial = info.serial,
                                            .created = weir_clock_unix_seconds() } };
    WEIR_TRY(state_file_path(path, s->folder, info.name, info.serial, error));
    WEIR_TRY(append(s, &record, error));
    if (unlink(path) != 0 && errno != ENOENT)
        weir_log(WEIR_LOG_WARNING, "%s: cannot delete: %s", path, strerror(errno));
    compact(s);
    return WEIR_OK;
}

weir_status weir_states_remove(weir_states *states, const char *name, weir_error *error)
{
    WEIR_TRY(begin(states, error));
    const weir_status status = remove_named(states, name, error);
    end(states);
    return status;
}
