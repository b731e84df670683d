/* engine/states/states_internal.h - internals: the log's layout, the entries in memory, the files
 * of the folder. */
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
    /* Random, drawn on creation; checksums of records depend on it. */
    uint64_t id;
    /* next_serial: at least that of the states added after this header. */
    int64_t created, next_serial;
} state_log_header;

typedef enum state_record_type { STATE_ADDED = 1, STATE_REMOVED = 2 } state_record_type;

typedef struct state_record {
    state_record_type type;
    weir_state_info info; /* for REMOVED: the serial and the time */
    const char *metadata; /* [n_metadata] borrowed */
    size_t n_metadata;
    const float *vector; /* [dim] borrowed, for encoding */
    double length; /* length of the vector, after decoding */
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
/* Returns false if it is damaged or of another log. The vector is at bytes +
 * STATE_RECORD_VECTOR. */
bool state_record_decode(
    state_record *out, const unsigned char *bytes, const state_log_header *header
);
/* True for lower-case letters and digits with '-' between them. */
bool state_name_is_good(const char *name);
/* The length of a vector; 0 if it has no direction or some value is not finite. */
double state_vector_length(const float *vector, int32_t dim);

/* ---- index.c: entries in memory -------------------------------------------------------------- */
enum { STATE_BLOCK = 256 };

typedef struct state_entry {
    weir_state_info info;
    int64_t record; /* its index in the log */
    float scale; /* 1 / length of the vector */
    bool is_live, has_file; /* has_file: seen in the folder (folder.c) */
} state_entry;

/* Entries in the order of the log, that is by ascending serial. */
typedef struct state_index {
    /* [n_blocks] of STATE_BLOCK entries each, followed by their vectors. */
    state_entry **blocks;
    size_t n_blocks, n_entries, n_live;
    int32_t dim;
    weir_memory_tracker *tracker;
} state_index;

/* Reserves space for one more entry. Returns ENOMEM. */
WEIR_MUST_CHECK weir_status state_index_reserve(state_index *index);
/* vector [dim] in little endian, if the record has one. */
WEIR_MUST_CHECK weir_status state_index_add(
    state_index *index, const state_record *record, int64_t number, const unsigned char *vector
);
void state_index_clear(state_index *index);
state_entry *state_index_at(const state_index *index, size_t i);
float *state_index_vector(const state_index *index, size_t i);
/* The live entry, or NULL. */
state_entry *state_index_serial(const state_index *index, int64_t serial);
state_entry *state_index_name(const state_index *index, const char *name); /* the same */
void state_index_remove(state_index *index, state_entry *entry);
/* Bytes of all session files. */
int64_t state_index_bytes(const state_index *index);
/* Finds a name that no live entry has: the slug, or the slug with the lowest free number from 2
 * up. */
WEIR_MUST_CHECK weir_status
state_index_free_name(const state_index *index, const char *slug, char out[WEIR_STATE_NAME + 1]);
/* hits [question->most], *n of them. length: of the query's vector. Returns ENOMEM. */
WEIR_MUST_CHECK weir_status state_index_route(
    const state_index *index, const weir_states_question *question, double length,
    weir_state_hit *hits, size_t *n
);

/* ---- states.c -------------------------------------------------------------------------------- */
struct weir_states {
    char *folder;
    /* The log as last opened, and the file that writers lock; guard -1: read-only. */
    int log, guard;
    state_log_header header; /* as it was when the log was opened; id 0: not read yet */
    state_index index;
    /* Records in the index, damaged ones included. */
    int64_t n_records;
    int64_t n_damaged, next_serial;
    int64_t disk; /* cap of all session files; 0: none */
    /* One thread adds or removes at a time, and holds the guard. */
    pthread_mutex_t writer;
    /* One thread reads new records of the log, or replaces it, at a time; taken after `writer`. It
     * reads what `lock` guards without that. */
    pthread_mutex_t reading;
    /* Guards log, index and what depends on them. Not held over reads and writes of files, unless
     * there is no memory for a second index. */
    pthread_rwlock_t lock;
};

/* ---- query.c: what is given ---------------------------------------------------------------- */
/* Returns EINVAL if it is no JSON object, or too long. */
WEIR_MUST_CHECK weir_status state_metadata_check(const char *metadata, size_t n, weir_error *error);
/* Returns EINVAL if the database has no vectors, or this one has no direction. */
WEIR_MUST_CHECK weir_status state_vector_check(
    const weir_states *states, const float *vector, double *length, weir_error *error
);

/* ---- append.c: the log on the disk. Who calls these does not hold `lock`, unless that is said. */
WEIR_MUST_CHECK weir_status
state_log_path(char path[PATH_MAX], const char *folder, weir_error *error);
/* Reads new records of the log into the index, which keeps what it has on failure. Any thread. */
WEIR_MUST_CHECK weir_status state_log_read(weir_states *states, weir_error *error);
/* with the lock held, for reading or writing */
bool state_log_is_current(const weir_states *states);
/* Reads the record of an entry from the log, open here as `fd`, into memory [state_record_bytes],
 * and checks it. */
WEIR_MUST_CHECK weir_status state_log_record(
    const weir_states *states, int fd, const state_entry *entry, unsigned char *memory,
    state_record *out, weir_error *error
);
/* Where the next record goes; with the lock held, for reading or writing. */
int64_t state_log_end(const weir_states *states);
/* Writes a record at the end of the log, open here as `fd`; on disk when this returns, if `syncs`.
 * Needs no `lock`: what it reads of the states is constant. */
WEIR_MUST_CHECK weir_status state_log_write(
    const weir_states *states, int fd, int64_t end, const state_record *record, bool syncs,
    weir_error *error
);
/* The same, and reads it into the index. */
WEIR_MUST_CHECK weir_status
state_log_append(weir_states *states, const state_record *record, bool syncs, weir_error *error);
WEIR_MUST_CHECK weir_status state_log_sync(const weir_states *states, weir_error *error);
/* Replaces the log by a new file with the live entries only. The writer calls it. */
WEIR_MUST_CHECK weir_status state_log_compact(weir_states *states, weir_error *error);
bool state_log_wants_compacting(weir_states *states);

/* ---- folder.c: session files ----------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status state_file_path(
    char path[PATH_MAX], const char *folder, const char *name, int64_t serial, weir_error *error
);
/* Fills in tokens, bytes, created, numerics and payload from the session file at `path`. Returns
 * EMISMATCH if it is of another model. */
WEIR_MUST_CHECK weir_status
state_file_look(weir_state_info *out, const char *path, const uint64_t model[2], weir_error *error);
/* Drops entries whose file is gone; with `writes` also from the log, and removes or adds files
 * without entries. */
WEIR_MUST_CHECK weir_status
state_folder_settle(weir_states *states, bool writes, weir_error *error);

#ifdef __cplusplus
}
#endif
