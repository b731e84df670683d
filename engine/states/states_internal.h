/* engine/states/states_internal.h - the log's layout, the entries in memory, the files of the
 * folder. */
#pragma once
#include <pthread.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "engine/states/states.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- log.c: bytes of the log (docs/state-database.md) ---------------------------------------- */
enum { STATE_HEADER = 512, STATE_RECORD_VECTOR = 1536 };

typedef struct state_log_header {
    weir_states_kind kind;
    uint64_t id; /* drawn when the database was made: checksums of records depend on it */
    int64_t created,
        next_serial; /* next_serial: or a greater one, of states that come after this header */
} state_log_header;

typedef enum state_record_type { STATE_ADDED = 1, STATE_REMOVED = 2 } state_record_type;

typedef struct state_record {
    state_record_type type;
    weir_state_info info; /* REMOVED: the serial, and when */
    const char *metadata; /* [n_metadata] borrowed */
    size_t n_metadata;
    const float *vector; /* [dim] borrowed, of what is encoded */
    double length; /* of the vector, of what was decoded */
} state_record;

size_t state_record_bytes(int32_t dim);
void state_header_encode(unsigned char out[STATE_HEADER], const state_log_header *header);
WEIR_MUST_CHECK weir_status state_header_decode(
    state_log_header *out, const unsigned char bytes[STATE_HEADER], const char *path,
    weir_error *error
);
/* out [state_record_bytes] */
void state_record_encode(
    unsigned char *out, const state_record *record, const state_log_header *header
);
/* false: damaged, or of another log. The vector is at bytes + STATE_RECORD_VECTOR. */
bool state_record_decode(
    state_record *out, const unsigned char *bytes, const state_log_header *header
);
/* Small letters, digits, '-' between them: what a slug is. */
bool state_name_is_good(const char *name);
/* The length of a vector of numbers; 0: some are none, or it has no direction. */
double state_vector_length(const float *vector, int32_t dim);

/* ---- index.c: entries in memory -------------------------------------------------------------- */
enum { STATE_BLOCK = 256 };

typedef struct state_entry {
    weir_state_info info;
    int64_t record; /* its number in the log */
    float scale; /* 1 / length of the vector */
    bool is_live, has_file; /* has_file: seen in the folder (folder.c) */
} state_entry;

/* Entries in the order of the log, so by ascending serial. */
typedef struct state_index {
    state_entry **blocks; /* [n_blocks] of STATE_BLOCK entries each, their vectors behind them */
    size_t n_blocks, n_entries, n_live;
    int32_t dim;
    weir_payer *payer;
} state_index;

/* Room for one more entry. ENOMEM. */
WEIR_MUST_CHECK weir_status state_index_reserve(state_index *index);
/* vector [dim] in little endian, where the record has one. */
WEIR_MUST_CHECK weir_status state_index_add(
    state_index *index, const state_record *record, int64_t number, const unsigned char *vector
);
void state_index_clear(state_index *index);
state_entry *state_index_at(const state_index *index, size_t i);
float *state_index_vector(const state_index *index, size_t i);
/* Live; NULL: there is none */
state_entry *state_index_serial(const state_index *index, int64_t serial);
state_entry *state_index_name(const state_index *index, const char *name); /* the same */
void state_index_remove(state_index *index, state_entry *entry);
/* Bytes of all files. */
int64_t state_index_bytes(const state_index *index);
/* A name that no live entry has: the slug, or with the lowest number from 2 up. */
WEIR_MUST_CHECK weir_status
state_index_free_name(const state_index *index, const char *slug, char out[WEIR_STATE_NAME + 1]);
/* hits [question->most], *n of them. length: of the question's vector. ENOMEM. */
WEIR_MUST_CHECK weir_status state_index_route(
    const state_index *index, const weir_states_question *question, double length,
    weir_state_hit *hits, size_t *n
);

/* ---- states.c -------------------------------------------------------------------------------- */
struct weir_states {
    char *folder;
    /* Files: the log as it was opened last, and the one that writers lock; guard -1: nothing is
     * written */
    int log, guard;
    state_log_header header; /* as it was when this was opened; id 0: not read yet */
    state_index index;
    int64_t n_records; /* of the log that are in the index, damaged ones among them */
    int64_t n_damaged, next_serial;
    int64_t disk; /* cap of all files; 0: none */
    pthread_mutex_t writer; /* one thread adds or removes at a time, and holds the guard */
    pthread_rwlock_t lock; /* log, index and what follows from them */
};

/* ---- query.c: what is given ---------------------------------------------------------------- */
/* EINVAL: no JSON object, or too long. */
WEIR_MUST_CHECK weir_status state_metadata_check(const char *metadata, size_t n, weir_error *error);
/* EINVAL: the database has no vectors, or this one has no direction. */
WEIR_MUST_CHECK weir_status state_vector_check(
    const weir_states *states, const float *vector, double *length, weir_error *error
);

/* ---- append.c: the log on the disk. Who calls these holds the writer's locks, and `lock` for
 * writing.  */
WEIR_MUST_CHECK weir_status
state_log_path(char path[PATH_MAX], const char *folder, weir_error *error);
/* The log as it is now goes into the index. */
WEIR_MUST_CHECK weir_status state_log_read(weir_states *states, weir_error *error);
bool state_log_is_current(const weir_states *states); /* any lock */
/* The record of an entry: into memory [state_record_bytes], checked. */
WEIR_MUST_CHECK weir_status state_log_record(
    const weir_states *states, const state_entry *entry, unsigned char *memory, state_record *out,
    weir_error *error
);
/* Behind the last good record; on the disk when this returns, if `syncs`. */
WEIR_MUST_CHECK weir_status
state_log_append(weir_states *states, const state_record *record, bool syncs, weir_error *error);
WEIR_MUST_CHECK weir_status state_log_sync(const weir_states *states, weir_error *error);
/* Only live entries, in a new file in the place of the old one. */
WEIR_MUST_CHECK weir_status state_log_compact(weir_states *states, weir_error *error);
bool state_log_wants_compacting(const weir_states *states);

/* ---- folder.c: session files ----------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status state_file_path(
    char path[PATH_MAX], const char *folder, const char *name, int64_t serial, weir_error *error
);
/* Numbers of the session file at `path`: tokens, bytes, created, payload. EMISMATCH: of another
 * model. */
WEIR_MUST_CHECK weir_status
state_file_look(weir_state_info *out, const char *path, const uint64_t model[2], weir_error *error);
/* EUNSUPPORTED: the log has no word for such a state. */
WEIR_MUST_CHECK weir_status
state_form_check(const weir_states *states, const weir_state_info *info, weir_error *error);
/* Entries whose file is gone are dropped; with `writes` also from the log, and files without
 * entries are removed or taken in. */
WEIR_MUST_CHECK weir_status
state_folder_settle(weir_states *states, bool writes, weir_error *error);

#ifdef __cplusplus
}
#endif
