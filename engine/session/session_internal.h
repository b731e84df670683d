/* engine/session/session_internal.h - internals shared by saving, restoring and the session
 * folder. */
#pragma once
#include <limits.h>
#include <stdatomic.h>

#include "engine/base/log.h"
#include "engine/kv/prefix/pruned_cache.h"
#include "engine/schedule/job.h"
#include "engine/session/saver.h"
#include "engine/session/session_store.h"
#include "engine/session/state_form.h"

/* A cached sequence on its way to or from a file. */
typedef struct session_carrier {
    /* Its pages and tokens; the table changes on the engine thread only. */
    weir_kv_sequence sequence;
    char salt[WEIR_PREFIX_SALT + 1], name[WEIR_PREFIX_NAME + 1];
    /* [n_marks]: pinned (saving) or acquired (restoring). */
    weir_prefix_snapshot marks[WEIR_SESSION_STATES];
    int32_t n_marks;
    /* It has a policy: `pruned` is its entry in the pruned cache. */
    bool is_pruned;
    weir_pruned_entry pruned;
} session_carrier;

typedef struct session_entry session_entry; /* defined in session_index.c */

/* A file that is being written; counted in the folder before it exists. */
typedef struct session_pending {
    char name[WEIR_SESSION_NAME + 1]; /* "": none */
    size_t bytes;
} session_pending;
enum { SESSION_WRITERS = 2 }; /* on request, and under memory pressure */

struct weir_sessions {
    char *folder;
    weir_session_identity identity;
    weir_service *service;
    int32_t limit, most_states, n_vocab;
    int64_t disk;
    /* One sequence is saved or restored at a time; guards `own` and `recall_causes`. */
    pthread_mutex_t lock;
    session_carrier own;
    /* Salt to cache the sequence under; NULL: the file's. */
    const char *read_salt;
    /* Why files could not be used, since one was. */
    weir_log_causes recall_causes;
    weir_saver *saver; /* NULL: nothing is saved under memory pressure */

    pthread_mutex_t folder_lock; /* guards the folder's space and the index */
    session_pending pending[SESSION_WRITERS];
    session_entry *entries; /* [most_entries] automatic files; charged to the ledger */
    int32_t n_entries, most_entries;
    uint64_t n_added;
    _Atomic int64_t n_replaced; /* automatic files replaced by others since opening */
    uint64_t numerics[2]; /* digest of identity.numerics */
    weir_numerics origins[WEIR_ORIGINS]; /* [service->origins.n] */
};

/* session_folder.c */
typedef char session_path[PATH_MAX];
WEIR_MUST_CHECK weir_status session_path_of(
    session_path out, const weir_sessions *sessions, const char *name, weir_error *error
);
WEIR_MUST_CHECK weir_status
session_folder_prepare(const weir_sessions *sessions, weir_error *error);
WEIR_MUST_CHECK weir_status session_folder_list(
    const weir_sessions *sessions, weir_session_info **out, size_t *n, weir_error *error
);
/* The contents of a file that decide whether it is used. */
typedef struct session_contents {
    int32_t *tokens; /* [n_tokens] */
    int32_t n_tokens, n_states;
    bool is_automatic, is_pruned;
    bool is_refused; /* its numerics are others, and may not be continued */
    char salt[WEIR_PREFIX_SALT + 1];
    int32_t places[WEIR_SESSION_STATES]; /* [n_states] */
} session_contents;
/* Reads the contents of a file that can be used here, or could but for its numerics. After a
 * failure `out` may be freed, but need not be. */
WEIR_MUST_CHECK weir_status
session_contents_read(session_contents *out, const weir_sessions *sessions, const char *name);
void session_contents_free(session_contents *contents);
/* Deletes the file and its index entry. Returns 0 or errno. Folder locked. */
int session_folder_drop(weir_sessions *sessions, const char *name);
/* Deletes automatic files, least recently used first, until one of n_bytes may be added under
 * `name`; the space is reserved for this writer until session_folder_done. Returns ECANCELED if the
 * other writer is writing a file of this name. */
WEIR_MUST_CHECK weir_status session_folder_make_room(
    weir_sessions *sessions, int writer, const char *name, size_t n_bytes, weir_error *error
);
void session_folder_done(weir_sessions *sessions, int writer);
/* Deletes automatic files, other than `name`, whose sequence is a prefix of this one. */
void session_folder_drop_beginnings(
    weir_sessions *sessions, const weir_session_text *text, const char *name
);

/* Marks the file as used now; the least recently used automatic file is deleted first. */
void session_touch(const weir_sessions *sessions, const char *name);

/* sessions.c: takes the lock without waiting. Returns ECANCELED if it is taken. */
WEIR_MUST_CHECK weir_status session_begin(weir_sessions *sessions, weir_error *error);
void session_end(weir_sessions *sessions);

/* session_save.c */

/* Writes auto-DIGEST, so that the same sequence, under the same policy if any, has the same
 * file. */
void session_name_text(
    char name[WEIR_PREFIX_NAME + 1], const int32_t *tokens, int32_t n_tokens, const char *salt,
    const weir_session_pruned *pruned
);
/* True if there is a usable automatic file of this sequence with at least as many states; memory
 * may have dropped some since. Marks it as used now. */
bool session_is_there(
    const weir_sessions *sessions, const char *name, const weir_session_text *text
);
WEIR_MUST_CHECK weir_status session_write_text(
    weir_sessions *sessions, int writer, const char *name, const weir_session_text *text,
    weir_session_result *result, weir_error *error
);

/* session_restore.c. Lock held. */
WEIR_MUST_CHECK weir_status session_restore_named(
    weir_sessions *sessions, const char *name, weir_session_result *result, weir_error *error
);

/* Engine thread. Frees pages that no running sequence has a claim to, and blocks near the kernels.
 * Returns false if they cannot be freed. */
bool session_reclaim_pages(const weir_sessions *sessions, const weir_kv_pages *pages);
WEIR_MUST_CHECK weir_status
session_reclaim_memory(const weir_service *service, int64_t n_blocks, weir_error *error);

/* Reads the file's section and sets the salt to use. Lock held. */
WEIR_MUST_CHECK weir_status
session_read_salt(weir_sessions *sessions, weir_session_reader *reader, weir_error *error);

/* session_numerics.c: files of other numerics. */

/* Makes the carrier's salt that of the file's origin, if it has one. Lock held. */
WEIR_MUST_CHECK weir_status
session_choose_salt(weir_sessions *sessions, const weir_session_header *header, weir_error *error);
/* True if the file could be used here but for its numerics. */
bool session_is_refused(const weir_sessions *sessions, weir_session_reader *reader);
/* The sequence as it is written to a file: with the salt of its requests, and its origin. */
weir_session_text session_as_written(const weir_sessions *sessions, const weir_session_text *text);
bool session_has_origin(const weir_sessions *sessions, const weir_session_text *text);
/* True if the sequence has an origin, and the file of this name still holds all of it as it came
 * from there. */
bool session_is_unchanged(
    const weir_sessions *sessions, const char *name, const weir_session_text *text
);

/* session_state.c: states as state databases store them. */
WEIR_MUST_CHECK weir_status session_write_state(
    weir_sessions *s, const weir_session_wish *save, const weir_state_wish *state,
    const weir_session_text *shared, const char *path, weir_session_result *result,
    weir_error *error
);
/* Reads the states of a file to memory; unpacks packed ones. */
WEIR_MUST_CHECK weir_status session_read_states(
    const weir_sessions *s, weir_session_reader *reader, float *const *states, weir_error *error
);

/* session_pruned.c: sequences with a policy. */

/* Engine thread: the carrier holds it. Returns false if there is none. */
bool session_pin_pruned(weir_sessions *sessions, const weir_pruned_query *wish);
bool session_pin_next_pruned(weir_sessions *sessions, uint64_t *use);
void session_unpin_pruned(weir_sessions *sessions); /* engine thread */
/* Gets the policy's part of the carrier's sequence; `out` borrows from it. */
void session_pruned_of(weir_session_pruned *out, const weir_sessions *sessions);
/* Requires the lock. */
WEIR_MUST_CHECK weir_status session_restore_pruned(
    weir_sessions *sessions, weir_session_reader *reader, weir_session_result *result,
    weir_error *error
);

/* session_index.c: finds automatic files by their first tokens. */
size_t session_index_bytes(int32_t limit);
/* Indexes the existing files. */
WEIR_MUST_CHECK weir_status session_index_open(weir_sessions *sessions, weir_error *error);
void session_index_close(weir_sessions *sessions);
void session_index_add(weir_sessions *sessions, const char *name, const weir_session_text *text);
/* Its file is gone. Folder locked. */
void session_index_forget(weir_sessions *sessions, const char *name);
