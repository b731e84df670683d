/* engine/states/query.c - queries by name, source, page and vector. Any thread. All read the log if
 * other processes have changed it; metadata and payloads are on disk. No lock is held meanwhile
 * that queries of an unchanged log wait for. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/formats/json.h"
#include "engine/states/states_internal.h"

/* Brings the index up to date. If this returns OK, the lock is held for reading. */
static weir_status look(weir_states *s, weir_error *error)
{
    (void)pthread_rwlock_rdlock(&s->lock);
    if (state_log_is_current(s)) return WEIR_OK;
    (void)pthread_rwlock_unlock(&s->lock);
    WEIR_TRY(state_log_read(s, error));
    (void)pthread_rwlock_rdlock(&s->lock);
    return WEIR_OK;
}

static void leave(weir_states *s) { (void)pthread_rwlock_unlock(&s->lock); }

bool weir_states_is_current(weir_states *states)
{
    (void)pthread_rwlock_rdlock(&states->lock);
    const bool is_current = state_log_is_current(states);
    leave(states);
    return is_current;
}

weir_status weir_states_refresh(weir_states *states, weir_error *error)
{
    return state_log_read(states, error);
}

weir_status state_metadata_check(const char *metadata, size_t n, weir_error *error)
{
    json_t *root = NULL;
    if (n > WEIR_STATE_METADATA)
        return weir_error_set(
            error, WEIR_EINVAL, "the metadata has %zu bytes, at most %d are allowed", n,
            (int)WEIR_STATE_METADATA
        );
    weir_status status =
        weir_json_parse_within(&root, metadata, n, "metadata", &weir_json_request, error);
    if (status == WEIR_EFORMAT)
        status = weir_error_prefix(error, WEIR_EINVAL, "the metadata is no JSON");
    if (status == WEIR_OK && !json_is_object(root))
        status = weir_error_set(error, WEIR_EINVAL, "the metadata is not a JSON object");
    json_decref(root);
    return status;
}

weir_status state_vector_check(
    const weir_states *s, const float *vector, double *length, weir_error *error
)
{
    const int32_t dim = s->header.kind.dim;
    if (dim == 0)
        return weir_error_set(
            error, WEIR_EINVAL, "%s: this database has no vectors; make a new one with vectors",
            s->folder
        );
    *length = state_vector_length(vector, dim);
    if (*length > 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL,
        "the vector of %d numbers has no direction: it is zero, too long, or has a value that is "
        "not a number",
        (int)dim
    );
}

static weir_status not_found(const weir_states *s, const char *name, weir_error *error)
{
    return weir_error_set(
        error, WEIR_ENOTFOUND, "%s: there is no state %.*s", s->folder, (int)WEIR_STATE_NAME, name
    );
}

weir_status weir_states_find(
    weir_states *states, const char *name, weir_state_info *out, weir_error *error
)
{
    WEIR_TRY(look(states, error));
    const state_entry *const entry = state_index_name(&states->index, name);
    if (entry != NULL) *out = entry->info;
    leave(states);
    return entry != NULL ? WEIR_OK : not_found(states, name, error);
}

static bool is_of(const weir_state_info *info, const char *owner)
{
    char own[WEIR_STATE_OWNER + 2];
    weir_state_owner(own, info->name);
    return strcmp(own, owner != NULL ? owner : "") == 0;
}

weir_status weir_states_find_source(
    weir_states *states, const uint64_t source[2], const char *owner, const uint64_t *numerics,
    weir_state_info *out, weir_error *error
)
{
    bool is_there = false;
    WEIR_TRY(look(states, error));
    for (size_t i = states->index.n_entries; i-- > 0 && !is_there;) {
        const state_entry *const entry = state_index_at(&states->index, i);
        is_there = entry->is_live &&
                   memcmp(entry->info.source, source, sizeof entry->info.source) == 0 &&
                   (numerics == NULL ||
                    memcmp(entry->info.numerics, numerics, sizeof entry->info.numerics) == 0) &&
                   is_of(&entry->info, owner);
        if (is_there) *out = entry->info;
    }
    leave(states);
    return is_there
               ? WEIR_OK
               : weir_error_set(
                     error, WEIR_ENOTFOUND, "%s: there is no state of this source", states->folder
                 );
}

/* The metadata of a record; "{}" if it has none. */
static weir_status take_metadata(
    const weir_states *s, const state_record *record, weir_buffer *out, const char *name,
    weir_error *error
)
{
    weir_status status = WEIR_OK;
    if (record->n_metadata > 0)
        status = state_metadata_check(record->metadata, record->n_metadata, NULL);
    if (status != WEIR_OK && status != WEIR_ENOMEM)
        return weir_error_set(
            error, WEIR_EFORMAT, "%s: the metadata of state %s is no JSON object", s->folder, name
        );
    if (status == WEIR_OK)
        status = record->n_metadata > 0 ? weir_buffer_add(out, record->metadata, record->n_metadata)
                                        : weir_buffer_text(out, "{}");
    return status == WEIR_OK
               ? WEIR_OK
               : weir_error_set(
                     error, status, "%s: no memory for the metadata of state %s", s->folder, name
                 );
}

/* Finds the entry and opens the log once more: that of `log` may be closed when another process
 * replaces the file. */
static weir_status open_record(
    weir_states *s, const weir_state_info *info, state_entry *found, int *fd, weir_error *error
)
{
    WEIR_TRY(look(s, error));
    const state_entry *const entry = state_index_serial(&s->index, info->serial);
    const bool is_there = entry != NULL;
    if (is_there) {
        *found = *entry;
        *fd = fcntl(s->log, F_DUPFD_CLOEXEC, 0);
    }
    leave(s);
    if (!is_there) return not_found(s, info->name, error);
    if (*fd >= 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EIO, "%s: cannot open the log once more: %s", s->folder, strerror(errno)
    );
}

weir_status weir_states_metadata(
    weir_states *states, const weir_state_info *info, weir_buffer *out, weir_error *error
)
{
    state_entry entry;
    state_record record;
    int fd;
    WEIR_TRY(open_record(states, info, &entry, &fd, error));
    unsigned char *const memory = weir_memory_take(state_record_bytes(states->header.kind.dim));
    weir_status status =
        memory != NULL
            ? state_log_record(states, fd, &entry, memory, &record, error)
            : weir_error_set(error, WEIR_ENOMEM, "%s: no memory for metadata", states->folder);
    if (status == WEIR_OK) status = take_metadata(states, &record, out, info->name, error);
    (void)close(fd);
    weir_memory_give(memory);
    return status;
}

weir_status weir_states_payload(
    weir_states *states, const weir_state_info *info, char path[PATH_MAX], weir_error *error
)
{
    weir_state_info found = { 0 };
    WEIR_TRY(state_file_path(path, states->folder, info->name, info->serial, error));
    const weir_status status = state_file_look(&found, path, states->header.kind.model, error);
    if (status == WEIR_ENOTFOUND)
        return weir_error_set(
            error, status,
            "%s: the file of state %s is missing; delete the state and make it again", path,
            info->name
        );
    if (status != WEIR_OK) return status;
    if (memcmp(found.payload, info->payload, sizeof found.payload) == 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EMISMATCH,
        "%s: not the file that was added as state %s; delete the state and make it again", path,
        info->name
    );
}

weir_status weir_states_vector(
    weir_states *states, const weir_state_info *info, float *vector, weir_error *error
)
{
    WEIR_TRY(look(states, error));
    const state_index *const index = &states->index;
    bool is_there = false;
    for (size_t i = 0; i < index->n_entries && !is_there; i++) {
        const state_entry *const entry = state_index_at(index, i);
        is_there = entry->is_live && entry->info.serial == info->serial && entry->info.has_vector;
        if (is_there)
            memcpy(vector, state_index_vector(index, i), (size_t)index->dim * sizeof *vector);
    }
    leave(states);
    return is_there
               ? WEIR_OK
               : weir_error_set(
                     error, WEIR_ENOTFOUND, "%s: state %s has no vector", states->folder, info->name
                 );
}

weir_status weir_states_list(
    weir_states *states, const weir_states_page *page, weir_state_info **out, size_t *n,
    size_t *total, weir_error *error
)
{
    WEIR_TRY(look(states, error));
    const state_index *const index = &states->index;
    const size_t n_most = page->most < index->n_live ? page->most : index->n_live;
    weir_state_info *const list = weir_memory_take((n_most > 0 ? n_most : 1) * sizeof *list);
    size_t found = 0;
    size_t accepted = 0;
    for (size_t i = index->n_entries; list != NULL && i-- > 0;) {
        const state_entry *const entry = state_index_at(index, i);
        if (!entry->is_live || (page->accepts != NULL && !page->accepts(page->user, &entry->info)))
            continue;
        accepted++;
        if ((page->before <= 0 || entry->info.serial < page->before) && found < n_most)
            list[found++] = entry->info;
    }
    *total = accepted;
    leave(states);
    if (list == NULL)
        return weir_error_set(
            error, WEIR_ENOMEM, "%s: no memory for a list of %zu states", states->folder, n_most
        );
    *out = list;
    *n = found;
    return WEIR_OK;
}

weir_status weir_states_route(
    weir_states *states, const weir_states_question *question, weir_state_hit *hits, size_t *n,
    weir_error *error
)
{
    double length = 0;
    if (question->most < 1 || question->most > WEIR_STATE_HITS)
        return weir_error_set(
            error, WEIR_EINVAL, "a query returns 1 to %d states, not %zu", (int)WEIR_STATE_HITS,
            question->most
        );
    WEIR_TRY(look(states, error));
    weir_status status = state_vector_check(states, question->vector, &length, error);
    if (status == WEIR_OK) {
        status = state_index_route(&states->index, question, length, hits, n);
        if (status != WEIR_OK)
            status = weir_error_set(error, status, "%s: no memory for a vector", states->folder);
    }
    leave(states);
    return status;
}
