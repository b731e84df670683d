/* engine/states/states.c - the database as others see it: who may write when, what is there now, and the order of writes.
 *
 * To add: session file (whole, on the disk), record (on the disk). To remove: record, session file. Writers of all processes take turns by a
 * lock on a file of its own, which the kernel lets go of when they end, however they end. */
#include "engine/states/states.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
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
#include "engine/formats/json.h"
#include "engine/states/states_internal.h"

/* ---- writers take turns ----------------------------------------------------------------------------------------------- */
static weir_status open_guard(int *guard, const char *folder, weir_error *error)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/states.lock", folder) >= (int)sizeof path)
        return weir_error_set(error, WEIR_EINVAL, "%s: the path of a database in it would be too long", folder);
    *guard = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return *guard >= 0 ? WEIR_OK : weir_error_set(error, WEIR_EIO, "%s: cannot open: %s", path, strerror(errno));
}

static weir_status take_guard(int guard, const char *folder, weir_error *error)
{
    enum { TRIES = 600, PAUSE_NS = 50000000 };
    for (int i = 0; i < TRIES; i++) {
        if (flock(guard, LOCK_EX | LOCK_NB) == 0) return WEIR_OK;
        if (errno != EWOULDBLOCK && errno != EINTR) return weir_error_set(error, WEIR_EIO, "%s: cannot lock: %s", folder, strerror(errno));
        (void)nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    }
    return weir_error_set(error, WEIR_ECANCELED, "%s: another process has been writing to this state database for half a minute; try again",
                          folder);
}

/* This thread is the only writer, and knows what is there. */
static weir_status begin(weir_states *s, weir_error *error)
{
    if (s->guard < 0) return weir_error_set(error, WEIR_EINVAL, "%s: the state database was opened to be read", s->folder);
    (void)pthread_mutex_lock(&s->writer);
    weir_status status = take_guard(s->guard, s->folder, error);
    if (status == WEIR_OK) {
        (void)pthread_rwlock_wrlock(&s->lock);
        status = state_log_read(s, error);
        (void)pthread_rwlock_unlock(&s->lock);
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

/* What is there now; the lock is held for reading if this is OK. */
static weir_status look(weir_states *s, weir_error *error)
{
    (void)pthread_rwlock_rdlock(&s->lock);
    if (state_log_is_current(s)) return WEIR_OK;
    (void)pthread_rwlock_unlock(&s->lock);
    (void)pthread_rwlock_wrlock(&s->lock);
    const weir_status status = state_log_read(s, error);
    (void)pthread_rwlock_unlock(&s->lock);
    if (status == WEIR_OK) (void)pthread_rwlock_rdlock(&s->lock);
    return status;
}

static void leave(weir_states *s) { (void)pthread_rwlock_unlock(&s->lock); }

/* ---- opening ----------------------------------------------------------------------------------------------------------- */
static weir_status check_kind(const weir_states_kind *kind, weir_error *error)
{
    if (kind->dim < 0 || kind->dim > WEIR_STATE_DIM)
        return weir_error_set(error, WEIR_EINVAL, "vectors of states have 0 to %d dimensions, not %d", (int)WEIR_STATE_DIM, (int)kind->dim);
    if (strnlen(kind->embedding, sizeof kind->embedding) == sizeof kind->embedding)
        return weir_error_set(error, WEIR_EINVAL, "what vectors are is named in at most %d bytes", (int)WEIR_STATE_EMBEDDING);
    return WEIR_OK;
}

static weir_status write_empty(const char *folder, const weir_states_kind *kind, weir_error *error)
{
    char             path[PATH_MAX];
    unsigned char    bytes[STATE_HEADER];
    state_log_header header = { .kind = { .model = { kind->model[0], kind->model[1] }, .dim = kind->dim },
                                .created = weir_clock_unix_seconds(),
                                .next_serial = 1 };
    (void)snprintf(header.kind.embedding, sizeof header.kind.embedding, "%s", kind->embedding);
    while (header.id == 0)
        if (getrandom(&header.id, sizeof header.id, 0) != (ssize_t)sizeof header.id) header.id = (uint64_t)weir_clock_ns();
    WEIR_TRY(state_log_path(path, folder, error));
    if (weir_file_exists(path))
        return weir_error_set(error, WEIR_EINVAL, "%s: there is a state database already; use it, or choose another folder", folder);
    state_header_encode(bytes, &header);
    return weir_file_write_atomic(path, bytes, sizeof bytes, error);
}

weir_status weir_states_create(const char *folder, const weir_states_kind *kind, weir_error *error)
{
    int guard;
    WEIR_TRY(check_kind(kind, error));
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return weir_error_set(error, WEIR_EIO, "%s: cannot make this folder: %s", folder, strerror(errno));
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
    if (n_damaged > 0) weir_log(WEIR_LOG_WARNING, "%s: %" PRId64 " records of its log are damaged", s->folder, n_damaged);
    WEIR_TRY(state_folder_settle(s, writes, error));
    return writes && state_log_wants_compacting(s) ? state_log_compact(s, error) : WEIR_OK;
}

static weir_status check_model(const weir_states *s, const uint64_t *model, weir_error *error)
{
    const uint64_t *const own = s->header.kind.model;
    if (model == NULL || memcmp(own, model, sizeof s->header.kind.model) == 0) return WEIR_OK;
    return weir_error_set(error, WEIR_EMISMATCH,
                          "%s: a database of states of another model: its digest is %016" PRIx64 ", that of the model here %016" PRIx64,
                          s->folder, own[0], model[0]);
}

static weir_status open_states(weir_states *s, const weir_states_options *options, weir_error *error)
{
    char path[PATH_MAX];
    if (s->folder == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for a path");
    WEIR_TRY(state_log_path(path, s->folder, error));
    if (!options->writes || !weir_file_exists(path)) return settle(s, false, error);
    WEIR_TRY(open_guard(&s->guard, s->folder, error));
    WEIR_TRY(take_guard(s->guard, s->folder, error));
    weir_status status = state_log_read(s, error);
    if (status == WEIR_OK) status = check_model(s, options->model, error); /* nothing of another model's is touched */
    if (status == WEIR_OK) status = settle(s, true, error);
    (void)flock(s->guard, LOCK_UN);
    return status;
}

weir_status weir_states_open(weir_states **out, const weir_states_options *options, weir_error *error)
{
    weir_states *const s = calloc(1, sizeof *s);
    if (s == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the state database");
    *s = (weir_states){ .folder = strdup(options->folder), .log = -1, .guard = -1, .index.payer = options->payer };
    (void)pthread_mutex_init(&s->writer, NULL);
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
    (void)pthread_mutex_destroy(&states->writer);
    free(states->folder);
    free(states);
}

const weir_states_kind *weir_states_kind_of(const weir_states *states) { return &states->header.kind; }

/* ---- changing ------------------------------------------------------------------------------------------------------------ */
static weir_status check_metadata(const char *metadata, size_t n, weir_error *error)
{
    json_t *root = NULL;
    if (n > WEIR_STATE_METADATA)
        return weir_error_set(error, WEIR_EINVAL, "the metadata has %zu bytes, at most %d are kept", n, (int)WEIR_STATE_METADATA);
    weir_status status = weir_json_parse(&root, metadata, n, "metadata", WEIR_JSON_DEPTH, error);
    if (status == WEIR_EFORMAT) status = weir_error_prefix(error, WEIR_EINVAL, "the metadata is no JSON");
    if (status == WEIR_OK && !json_is_object(root)) status = weir_error_set(error, WEIR_EINVAL, "the metadata is no JSON object");
    json_decref(root);
    return status;
}

static weir_status check_vector(const weir_states *s, const float *vector, double *length, weir_error *error)
{
    const int32_t dim = s->header.kind.dim;
    if (dim == 0) return weir_error_set(error, WEIR_EINVAL, "%s: this database has no vectors; make one that has", s->folder);
    *length = state_vector_length(vector, dim);
    if (*length > 0) return WEIR_OK;
    return weir_error_set(error, WEIR_EINVAL, "the vector of %d numbers has no direction: it is zero, too long, or holds what is no number",
                          (int)dim);
}

static weir_status check_new(const weir_states *s, const weir_new_state *state, state_record *record, weir_error *error)
{
    double length;
    WEIR_TRY(weir_state_label(record->info.label, state->label, error));
    if (state->vector != NULL) WEIR_TRY(check_vector(s, state->vector, &length, error));
    if (state->metadata == NULL) return WEIR_OK;
    record->metadata = state->metadata;
    record->n_metadata = strlen(state->metadata);
    return check_metadata(state->metadata, record->n_metadata, error);
}

/* A serial, a name, and room for the entry. */
static weir_status choose_place(weir_states *s, weir_state_info *info, weir_error *error)
{
    char slug[WEIR_STATE_NAME + 1];
    weir_state_slug(slug, info->label);
    (void)pthread_rwlock_wrlock(&s->lock);
    info->serial = s->next_serial;
    weir_status status = state_index_free_name(&s->index, slug, info->name);
    if (status == WEIR_OK) status = state_index_reserve(&s->index);
    (void)pthread_rwlock_unlock(&s->lock);
    return status == WEIR_OK ? WEIR_OK : weir_error_set(error, status, "%s: no memory for one more state (memory.host)", s->folder);
}

static weir_status append(weir_states *s, const state_record *record, weir_error *error)
{
    (void)pthread_rwlock_wrlock(&s->lock);
    const weir_status status = state_log_append(s, record, true, error);
    (void)pthread_rwlock_unlock(&s->lock);
    return status;
}

static weir_status add(weir_states *s, const weir_new_state *state, state_record *record, weir_error *error)
{
    char                   path[PATH_MAX];
    weir_state_info *const info = &record->info;
    WEIR_TRY(choose_place(s, info, error));
    WEIR_TRY(state_file_path(path, s->folder, info->name, info->serial, error));
    weir_status status = state->write(state->user, path, error);
    if (status == WEIR_OK) status = state_file_look(info, path, s->header.kind.model, error);
    info->created = weir_clock_unix_seconds();
    if (status == WEIR_OK) status = append(s, record, error);
    if (status != WEIR_OK) (void)unlink(path);
    return status;
}

weir_status weir_states_add(weir_states *states, const weir_new_state *state, weir_state_info *out, weir_error *error)
{
    state_record record = { .type = STATE_ADDED,
                            .vector = state->vector,
                            .info = { .has_vector = state->vector != NULL, .source = { state->source[0], state->source[1] } } };
    WEIR_TRY(check_new(states, state, &record, error));
    WEIR_TRY(begin(states, error));
    const weir_status status = add(states, state, &record, error);
    end(states);
    if (status == WEIR_OK && out != NULL) *out = record.info;
    return status;
}

static weir_status not_found(const weir_states *s, const char *name, weir_error *error)
{
    return weir_error_set(error, WEIR_ENOTFOUND, "%s: there is no state %.*s", s->folder, (int)WEIR_STATE_NAME, name);
}

/* On failure the log keeps what is gone, until the next time; with damaged records until it is opened, which looks after their files. */
static void compact(weir_states *s)
{
    weir_error  why = { 0 };
    weir_status status = WEIR_OK;
    (void)pthread_rwlock_wrlock(&s->lock);
    if (s->n_damaged == 0 && state_log_wants_compacting(s)) status = state_log_compact(s, &why);
    (void)pthread_rwlock_unlock(&s->lock);
    if (status != WEIR_OK) weir_log(WEIR_LOG_WARNING, "%s: the log is not made shorter: %s", s->folder, why.text);
}

static weir_status remove_named(weir_states *s, const char *name, weir_error *error)
{
    char            path[PATH_MAX];
    weir_state_info info;
    WEIR_TRY(weir_states_find(s, name, &info, error));
    const state_record record = { .type = STATE_REMOVED, .info = { .serial = info.serial, .created = weir_clock_unix_seconds() } };
    WEIR_TRY(state_file_path(path, s->folder, info.name, info.serial, error));
    WEIR_TRY(append(s, &record, error));
    if (unlink(path) != 0 && errno != ENOENT) weir_log(WEIR_LOG_WARNING, "%s: cannot delete: %s", path, strerror(errno));
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

/* ---- looking --------------------------------------------------------------------------------------------------------------- */
weir_status weir_states_find(weir_states *states, const char *name, weir_state_info *out, weir_error *error)
{
    WEIR_TRY(look(states, error));
    const state_entry *const entry = state_index_name(&states->index, name);
    if (entry != NULL) *out = entry->info;
    leave(states);
    return entry != NULL ? WEIR_OK : not_found(states, name, error);
}

weir_status weir_states_find_source(weir_states *states, const uint64_t source[2], weir_state_info *out, weir_error *error)
{
    bool is_there = false;
    WEIR_TRY(look(states, error));
    for (size_t i = states->index.n_entries; i-- > 0 && !is_there;) {
        const state_entry *const entry = state_index_at(&states->index, i);
        is_there = entry->is_live && memcmp(entry->info.source, source, sizeof entry->info.source) == 0;
        if (is_there) *out = entry->info;
    }
    leave(states);
    return is_there ? WEIR_OK : weir_error_set(error, WEIR_ENOTFOUND, "%s: there is no state of this source", states->folder);
}

static weir_status read_metadata(const weir_states *s, const weir_state_info *info, weir_buffer *out, unsigned char *memory,
                                 weir_error *error)
{
    const state_entry *const entry = state_index_serial(&s->index, info->serial);
    state_record             record;
    if (entry == NULL) return not_found(s, info->name, error);
    WEIR_TRY(state_log_record(s, entry, memory, &record, error));
    if (record.n_metadata == 0) return weir_buffer_text(out, "{}");
    if (check_metadata(record.metadata, record.n_metadata, NULL) != WEIR_OK)
        return weir_error_set(error, WEIR_EFORMAT, "%s: the metadata of state %s is no JSON object", s->folder, info->name);
    return weir_buffer_add(out, record.metadata, record.n_metadata);
}

weir_status weir_states_metadata(weir_states *states, const weir_state_info *info, weir_buffer *out, weir_error *error)
{
    WEIR_TRY(look(states, error));
    unsigned char *const memory = weir_memory_take(state_record_bytes(states->header.kind.dim));
    const weir_status    status = memory != NULL ? read_metadata(states, info, out, memory, error)
                                                 : weir_error_set(error, WEIR_ENOMEM, "%s: no memory for metadata", states->folder);
    leave(states);
    weir_memory_give(memory);
    return status;
}

weir_status weir_states_payload(weir_states *states, const weir_state_info *info, char path[PATH_MAX], weir_error *error)
{
    weir_state_info found = { 0 };
    WEIR_TRY(state_file_path(path, states->folder, info->name, info->serial, error));
    const weir_status status = state_file_look(&found, path, states->header.kind.model, error);
    if (status == WEIR_ENOTFOUND)
        return weir_error_set(error, status, "%s: the file of state %s is gone; delete the state and make it again", path, info->name);
    if (status != WEIR_OK) return status;
    if (memcmp(found.payload, info->payload, sizeof found.payload) == 0) return WEIR_OK;
    return weir_error_set(error, WEIR_EMISMATCH, "%s: not the file that was added as state %s; delete the state and make it again", path,
                          info->name);
}

weir_status weir_states_list(weir_states *states, int64_t before, size_t most, weir_state_info **out, size_t *n, size_t *total,
                             weir_error *error)
{
    WEIR_TRY(look(states, error));
    const state_index *const index = &states->index;
    const size_t             room = most < index->n_live ? most : index->n_live;
    weir_state_info *const   list = weir_memory_take((room > 0 ? room : 1) * sizeof *list);
    size_t                   found = 0;
    for (size_t i = index->n_entries; list != NULL && i-- > 0 && found < room;) {
        const state_entry *const entry = state_index_at(index, i);
        if (entry->is_live && (before <= 0 || entry->info.serial < before)) list[found++] = entry->info;
    }
    *total = index->n_live;
    leave(states);
    if (list == NULL) return weir_error_set(error, WEIR_ENOMEM, "%s: no memory for a list of %zu states", states->folder, room);
    *out = list;
    *n = found;
    return WEIR_OK;
}

weir_status weir_states_route(weir_states *states, const weir_states_question *question, weir_state_hit *hits, size_t *n, weir_error *error)
{
    double length = 0;
    if (question->most < 1 || question->most > WEIR_STATE_HITS)
        return weir_error_set(error, WEIR_EINVAL, "one question finds 1 to %d states, not %zu", (int)WEIR_STATE_HITS, question->most);
    WEIR_TRY(look(states, error));
    weir_status status = check_vector(states, question->vector, &length, error);
    if (status == WEIR_OK) {
        status = state_index_route(&states->index, question, length, hits, n);
        if (status != WEIR_OK) status = weir_error_set(error, status, "%s: no memory for a vector", states->folder);
    }
    leave(states);
    return status;
}
