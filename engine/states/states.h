/* engine/states/states.h - a database of states: documents that a model has computed, kept on disk,
 * listed and found by vector.
 *
 * A state is an unchanged session file (engine/session/file/session_file.h) and an entry in a log:
 * name, label, digest, hash of the source, metadata, vector. docs/state-database.md has the format.
 * A state exists if its entry does; a killed process loses at most the one it was adding. One
 * process writes at a time; others read meanwhile and see what was added. Any thread; only adding
 * and removing wait for the disk. */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_STATES_VERSION = 3,
    WEIR_STATE_NAME = 63, /* most bytes of a name */
    WEIR_STATE_LABEL = 255,
    WEIR_STATE_METADATA = 1024,
    WEIR_STATE_EMBEDDING = 31,
    WEIR_STATE_DIM = 1 << 16,
    WEIR_STATE_HITS = 1024, /* most hits of one query */
    WEIR_STATE_OWNER = 16
};

typedef struct weir_states weir_states;

/* The kind of a database; fixed when it is created. */
typedef struct weir_states_kind {
    uint64_t model[2]; /* digest of the model whose states these are (weir_session_identity) */
    int32_t dim; /* of vectors; 0: states have none */
    /* How vectors are made, such as "mean_hidden"; vectors made differently cannot be compared. */
    char embedding[WEIR_STATE_EMBEDDING + 1];
    /* Bits of keys and values of fixed-size memory in states that are added: 8 or 4; 0: not
     * packed. */
    int32_t state_bits;
} weir_states_kind;

typedef struct weir_state_info {
    /* Order in which states were added, from 1; never reused. */
    int64_t serial;
    /* created: seconds since 1970; n_bytes: of the session file. */
    int64_t created, n_tokens, n_bytes;
    /* Digest of the session file's header, which holds those of its sections. */
    uint64_t payload[2];
    uint64_t source[2]; /* hash of the source document, as given; 0: none */
    uint64_t numerics[2]; /* weir_numerics_digest of those in its file */
    bool has_vector, is_merged; /* is_merged: made of two states */
    int32_t state_bits; /* as in its file */
    char name[WEIR_STATE_NAME + 1], label[WEIR_STATE_LABEL + 1];
} weir_state_info;

/* True if the state equals what computing its tokens gives, bit for bit. */
static inline bool weir_state_is_exact(const weir_state_info *info)
{
    return info->state_bits == 0 && !info->is_merged;
}
/* Gets the owner from a name: those of an owner are OWNER-SLUG, where an owner is 'k' and 16
 * lower-case hexadecimal digits. "": no owner. */
void weir_state_owner(char out[WEIR_STATE_OWNER + 2], const char *name);

/* Copies a label without white space at its ends. Returns EINVAL if nothing is left, or if it is
 * too long, not UTF-8, or has control characters. */
WEIR_MUST_CHECK weir_status
weir_state_label(char out[WEIR_STATE_LABEL + 1], const char *label, weir_error *error);
/* Makes a name from a label: lower-case letters and digits, with one '-' for what is between them;
 * "state" if nothing is left. */
void weir_state_slug(char out[WEIR_STATE_NAME + 1], const char *label);

/* ---- opening --------------------------------------------------------------------------------- */
/* Creates the folder if it is missing, and an empty database in it. Returns EINVAL if there is
 * one. */
WEIR_MUST_CHECK weir_status
weir_states_create(const char *folder, const weir_states_kind *kind, weir_error *error);

typedef struct weir_states_options {
    const char *folder;
    /* [2] Open returns EMISMATCH if the database is of another model; NULL: any. */
    const uint64_t *model;
    /* Cleans up what a killed process left incomplete; without it nothing in the folder changes. */
    bool writes;
    /* Charged for entries and vectors, about 500 bytes and 4 per dimension each; outlives the
     * database; may be NULL. */
    weir_memory_tracker *tracker;
    int64_t disk; /* most bytes of all session files; 0: no limit */
} weir_states_options;

/* Returns ENOTFOUND if there is no database; EFORMAT or EUNSUPPORTED if it is damaged or of another
 * version; ENOMEM, also if the tracker refuses. */
WEIR_MUST_CHECK weir_status
weir_states_open(weir_states **out, const weir_states_options *options, weir_error *error);
void weir_states_close(weir_states *states); /* NULL-safe */
const weir_states_kind *weir_states_kind_of(const weir_states *states);

/* ---- changing -------------------------------------------------------------------------------- */
typedef struct weir_new_state {
    /* Gives the name, with -2, -3 ... if it is taken. */
    const char *label;
    const char *owner; /* NULL: none */
    const char *metadata; /* a JSON object of at most WEIR_STATE_METADATA bytes; NULL: none */
    const float *vector; /* [dim], not zero; NULL: the state is not found by vector */
    uint64_t source[2];
    /* Writes the session file, of at most `room` bytes (0: no limit). It is complete and on disk
     * when this returns OK. */
    weir_status (*write)(void *user, const char *path, int64_t max_bytes, weir_error *error);
    void *user;
} weir_new_state;

/* Returns EINVAL for label, metadata or vector; EMISMATCH if the file is of another model;
 * ECANCELED if another process has been writing for half a minute; EFULL if the cap of the disk is
 * reached; or what `write` returns. After a failure the database is unchanged. */
WEIR_MUST_CHECK weir_status weir_states_add(
    weir_states *states, const weir_new_state *state, weir_state_info *out, weir_error *error
);
/* Readers that have the state's file open can read on. Returns ENOTFOUND. */
WEIR_MUST_CHECK weir_status
weir_states_remove(weir_states *states, const char *name, weir_error *error);

/* ---- listing --------------------------------------------------------------------------------- */
/* True if the log is as it was read: no function below reads it, but weir_states_metadata. Reads no
 * file. */
bool weir_states_is_current(weir_states *states);
/* Reads what other processes have changed, as all functions below do first. */
WEIR_MUST_CHECK weir_status weir_states_refresh(weir_states *states, weir_error *error);

WEIR_MUST_CHECK weir_status
weir_states_find(weir_states *states, const char *name, weir_state_info *out, weir_error *error);
/* The newest state with this owner (NULL: none) made from this source, computed with numerics of
 * this digest (NULL: any). Returns ENOTFOUND. */
WEIR_MUST_CHECK weir_status weir_states_find_source(
    weir_states *states, const uint64_t source[2], const char *owner, const uint64_t *numerics,
    weir_state_info *out, weir_error *error
);
/* vector [dim]. Returns ENOTFOUND if the state is gone or has none. */
WEIR_MUST_CHECK weir_status weir_states_vector(
    weir_states *states, const weir_state_info *info, float *vector, weir_error *error
);
/* The metadata as given; "{}" if none. */
WEIR_MUST_CHECK weir_status weir_states_metadata(
    weir_states *states, const weir_state_info *info, weir_buffer *out, weir_error *error
);
/* The path of its session file, which is checked: ENOTFOUND, EFORMAT, or EMISMATCH if it is not the
 * one that was added. */
WEIR_MUST_CHECK weir_status weir_states_payload(
    weir_states *states, const weir_state_info *info, char path[PATH_MAX], weir_error *error
);

/* Must be fast, and must not call the database. */
typedef bool (*weir_state_accepts)(void *user, const weir_state_info *info);

typedef struct weir_states_page {
    int64_t before; /* only states added before this serial; 0: all */
    size_t most;
    weir_state_accepts accepts; /* may be NULL: all */
    void *user;
} weir_states_page;
/* *out [*n <= most], newest first; free with weir_memory_give. *total: accepted states, ignoring
 * `before`. */
WEIR_MUST_CHECK weir_status weir_states_list(
    weir_states *states, const weir_states_page *page, weir_state_info **out, size_t *n,
    size_t *total, weir_error *error
);

typedef struct weir_state_hit {
    weir_state_info info;
    float similarity; /* cosine, -1 to 1 */
} weir_state_hit;

typedef struct weir_states_question {
    const float *vector; /* [dim], made as the database's vectors are */
    size_t most; /* maximum number of hits, 1 to WEIR_STATE_HITS */
    weir_state_accepts accepts; /* may be NULL: all */
    void *user;
} weir_states_question;

/* hits [question->most], *n of them: nearest first, of equal ones the newer. Compares every vector.
 * Returns EINVAL for a bad vector. */
WEIR_MUST_CHECK weir_status weir_states_route(
    weir_states *states, const weir_states_question *question, weir_state_hit *hits, size_t *n,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
