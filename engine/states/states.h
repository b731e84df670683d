/* engine/states/states.h - a database of states: what a model computed of documents, kept on disk,
 * listed and found by vector.
 *
 * A state is a session file (engine/session/file/session_file.h), unchanged, beside an entry in a log: name,
 * label, digest, hash of the source, metadata, vector. docs/state-database.md has the format. A
 * state is there when its entry is; a process that is killed loses the one in flight at most. One
 * process writes at a time, others read meanwhile and see what was added. Any thread; only adding
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
    WEIR_STATES_VERSION = 2,
    WEIR_STATE_NAME = 63, /* bytes of a name, at most */
    WEIR_STATE_LABEL = 255,
    WEIR_STATE_METADATA = 1024,
    WEIR_STATE_EMBEDDING = 31,
    WEIR_STATE_DIM = 1 << 16,
    WEIR_STATE_HITS = 1024, /* of one question */
    WEIR_STATE_OWNER = 16
};

typedef struct weir_states weir_states;

/* What a database is of: fixed when it is made. */
typedef struct weir_states_kind {
    uint64_t model[2]; /* digest of the model whose states these are (weir_session_identity) */
    int32_t dim; /* of vectors; 0: states have none */
    /* How vectors are made: "mean_hidden"; vectors made otherwise do not compare */
    char embedding[WEIR_STATE_EMBEDDING + 1];
    /* Of keys and values of fixed size in the states that are added: 8, 4; 0: as in memory */
    int32_t state_bits;
    /* Of the log; 1: no state of it is packed or merged. Not looked at when it is made */
    int32_t version;
} weir_states_kind;

typedef struct weir_state_info {
    int64_t serial; /* of states in the order in which they were added, from 1; never used again */
    int64_t created, n_tokens,
        n_bytes; /* created: seconds since 1970; n_bytes: of the session file */
    uint64_t
        payload[2]; /* digest of the session file's header, which holds those of its sections */
    uint64_t source[2]; /* hash of the text that it was made from, as given; 0: none */
    bool has_vector, is_merged; /* is_merged: made of two states */
    int32_t state_bits; /* as its file has it */
    char name[WEIR_STATE_NAME + 1], label[WEIR_STATE_LABEL + 1];
} weir_state_info;

/* The state is what computing its text leaves, to the bit. */
static inline bool weir_state_is_exact(const weir_state_info *info)
{
    return info->state_bits == 0 && !info->is_merged;
}
/* Whose it is, from its name: those of an owner are called OWNER- and what their label asks for,
 * where an owner is 'k' and 16 hexadecimal digits, in small letters. "": nobody's. */
void weir_state_owner(char out[WEIR_STATE_OWNER + 2], const char *name);

/* A label without white space at its ends. EINVAL: nothing is left, too long, no UTF-8, control
 * characters. */
WEIR_MUST_CHECK weir_status
weir_state_label(char out[WEIR_STATE_LABEL + 1], const char *label, weir_error *error);
/* The name that a label asks for: small letters and digits, what is between them as one '-';
 * "state" when nothing is left. */
void weir_state_slug(char out[WEIR_STATE_NAME + 1], const char *label);

/* ---- opening --------------------------------------------------------------------------------- */
/* Makes the folder if it is not there, and an empty database in it. EINVAL: there is one. */
WEIR_MUST_CHECK weir_status
weir_states_create(const char *folder, const weir_states_kind *kind, weir_error *error);

typedef struct weir_states_options {
    const char *folder;
    const uint64_t *model; /* [2] EMISMATCH when the database is of another model; NULL: any */
    /* What a killed process left half done is cleared away; without it nothing in the folder
     * changes */
    bool writes;
    /* For entries and vectors, some 500 bytes and 4 per dimension each; outlives the database;
     * NULL: nobody */
    weir_payer *payer;
    int64_t disk; /* bytes that the files of all states may take; 0: any */
} weir_states_options;

/* ENOTFOUND: no database there; EFORMAT, EUNSUPPORTED: damaged, of another version; ENOMEM: also
 * when the payer refuses. */
WEIR_MUST_CHECK weir_status
weir_states_open(weir_states **out, const weir_states_options *options, weir_error *error);
void weir_states_close(weir_states *states); /* NULL-safe */
const weir_states_kind *weir_states_kind_of(const weir_states *states);

/* ---- changing -------------------------------------------------------------------------------- */
typedef struct weir_new_state {
    const char *label; /* the name comes from it, with -2, -3 ... where it is taken */
    const char *owner; /* NULL: nobody */
    const char *metadata; /* a JSON object of at most WEIR_STATE_METADATA bytes; NULL: none */
    const float *vector; /* [dim] not zero; NULL: the state is not found by vectors */
    uint64_t source[2];
    /* Writes the session file of at most `room` bytes (0: any): it is there whole and on the disk
     * when this returns OK. */
    weir_status (*write)(void *user, const char *path, int64_t room, weir_error *error);
    void *user;
} weir_new_state;

/* EINVAL: label, metadata or vector; EMISMATCH: the file is of another model; ECANCELED: another
 * process has been writing for half a minute; EFULL: the cap of the disk; EUNSUPPORTED: a packed or
 * merged state in a log of version 1; what `write` returns. On failure the database is as it
 * was. */
WEIR_MUST_CHECK weir_status weir_states_add(
    weir_states *states, const weir_new_state *state, weir_state_info *out, weir_error *error
);
/* Who reads the state's file goes on reading. ENOTFOUND. */
WEIR_MUST_CHECK weir_status
weir_states_remove(weir_states *states, const char *name, weir_error *error);

/* ---- looking --------------------------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status
weir_states_find(weir_states *states, const char *name, weir_state_info *out, weir_error *error);
/* The newest state of this owner (NULL: of nobody) made from this source. ENOTFOUND. */
WEIR_MUST_CHECK weir_status weir_states_find_source(
    weir_states *states, const uint64_t source[2], const char *owner, weir_state_info *out,
    weir_error *error
);
/* vector [dim]. ENOTFOUND: the state is gone, or has none. */
WEIR_MUST_CHECK weir_status weir_states_vector(
    weir_states *states, const weir_state_info *info, float *vector, weir_error *error
);
/* The metadata as it was given; "{}": none. */
WEIR_MUST_CHECK weir_status weir_states_metadata(
    weir_states *states, const weir_state_info *info, weir_buffer *out, weir_error *error
);
/* Where its session file is, which is looked at: ENOTFOUND, EFORMAT, or EMISMATCH when it is not
 * the one that was added. */
WEIR_MUST_CHECK weir_status weir_states_payload(
    weir_states *states, const weir_state_info *info, char path[PATH_MAX], weir_error *error
);

/* Quick, and calls nothing here */
typedef bool (*weir_state_accepts)(void *user, const weir_state_info *info);

typedef struct weir_states_page {
    int64_t before; /* states added before this one; 0: all */
    size_t most;
    weir_state_accepts accepts; /* NULL: all */
    void *user;
} weir_states_page;
/* *out [*n <= most], newest first; weir_memory_give frees it. *total: states that are accepted,
 * whatever `before`. */
WEIR_MUST_CHECK weir_status weir_states_list(
    weir_states *states, const weir_states_page *page, weir_state_info **out, size_t *n,
    size_t *total, weir_error *error
);

typedef struct weir_state_hit {
    weir_state_info info;
    float similarity; /* cosine, -1 to 1 */
} weir_state_hit;

typedef struct weir_states_question {
    const float *vector; /* [dim] of the database, made as its vectors are */
    size_t most; /* hits, 1 to WEIR_STATE_HITS */
    weir_state_accepts accepts; /* NULL: all */
    void *user;
} weir_states_question;

/* hits [question->most], *n of them: the nearest first, of equal ones the newer. Every vector is
 * looked at. EINVAL: the vector. */
WEIR_MUST_CHECK weir_status weir_states_route(
    weir_states *states, const weir_states_question *question, weir_state_hit *hits, size_t *n,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
