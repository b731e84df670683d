/* engine/session/session_internal.h - shared by what runs sessions and what keeps their folder. */
#pragma once
#include <limits.h>
#include <stdatomic.h>

#include "engine/base/log.h"
#include "engine/kv/prefix/pruned_cache.h"
#include "engine/schedule/job.h"
#include "engine/session/saver.h"
#include "engine/session/session_store.h"
#include "engine/session/state_form.h"

/* A kept text on its way to a file or from one. */
typedef struct session_carrier {
    weir_kv_sequence
        sequence; /* its pages and tokens; its table changes on the engine thread only */
    char salt[WEIR_PREFIX_SALT + 1], name[WEIR_PREFIX_NAME + 1];
    weir_prefix_snapshot
        marks[WEIR_SESSION_STATES]; /* [n_marks]: pinned (saving) or lent (restoring) */
    int32_t n_marks;
    /* a policy watched it: `cut` is what the list of such texts has of it, or will have */
    bool is_pruned;
    weir_pruned_entry pruned;
} session_carrier;

typedef struct session_entry session_entry; /* session_index.c */

/* A file that is being written: counts for the folder before it is there. */
typedef struct session_pending {
    char name[WEIR_SESSION_NAME + 1]; /* "": none */
    size_t bytes;
} session_pending;
enum { SESSION_WRITERS = 2 }; /* who saves because asked, and who saves under pressure */

struct weir_sessions {
    char *folder;
    weir_session_identity identity;
    weir_service *service;
    int32_t limit, most_states, n_vocab;
    int64_t disk;
    pthread_mutex_t lock; /* one is saved or restored at a time; guards `own` and `recall_causes` */
    session_carrier own;
    const char *read_salt; /* under which what is read now is kept; NULL: the file's */
    weir_log_causes recall_causes; /* why files were of no use, since one was */
    weir_saver *saver; /* NULL: nothing is saved under pressure */

    pthread_mutex_t folder_lock; /* guards room in the folder and the index */
    session_pending pending[SESSION_WRITERS];
    session_entry *entries; /* [most_entries] automatic files; on the ledger */
    int32_t n_entries, most_entries;
    uint64_t n_added;
    _Atomic int64_t n_replaced; /* automatic files that gave way to others, ever */
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
/* What a file holds, as far as it is needed to judge it. */
typedef struct session_contents {
    int32_t *tokens; /* [n_tokens] */
    int32_t n_tokens, n_states;
    bool is_automatic, is_pruned;
    char salt[WEIR_PREFIX_SALT + 1];
    int32_t places[WEIR_SESSION_STATES]; /* [n_states] */
} session_contents;
/* Of a file that can be used here. On failure there is nothing to free, and freeing it is
 * harmless. */
WEIR_MUST_CHECK weir_status
session_contents_read(session_contents *out, const weir_sessions *sessions, const char *name);
void session_contents_free(session_contents *contents);
/* Deletes it, also from the index; what it held is in no file now. Returns 0 or errno. Folder
 * locked. */
int session_folder_drop(weir_sessions *sessions, const char *name);
/* Deletes automatic files, those that were used longest ago first, until one of n_bytes may be
 * added under `name`, and keeps that room for this writer until session_folder_done. ECANCELED: the
 * other one writes a file of this name. */
WEIR_MUST_CHECK weir_status session_folder_make_room(
    weir_sessions *sessions, int writer, const char *name, size_t n_bytes, weir_error *error
);
void session_folder_done(weir_sessions *sessions, int writer);
/* Deletes automatic files whose text is the beginning of this one, other than `name`. */
void session_folder_drop_beginnings(
    weir_sessions *sessions, const weir_session_text *text, const char *name
);

/* It was used now: of automatic files the one that was used longest ago gives way first. */
void session_touch(const weir_sessions *sessions, const char *name);

/* sessions.c: the lock, for who does not wait. ECANCELED: somebody has it. */
WEIR_MUST_CHECK weir_status session_begin(weir_sessions *sessions, weir_error *error);
void session_end(weir_sessions *sessions);

/* session_save.c */
/* auto-DIGEST, so that the same text, under the same policy if it has one, has the same file. */
void session_name_text(
    char name[WEIR_PREFIX_NAME + 1], const int32_t *tokens, int32_t n_tokens, const char *salt,
    const weir_session_pruned *pruned
);
/* An automatic file of this text that can be used and has as many states, or more: memory may have
 * lost some since. It is marked as used now. */
bool session_is_there(
    const weir_sessions *sessions, const char *name, const weir_session_text *text
);
WEIR_MUST_CHECK weir_status session_write_text(
    weir_sessions *sessions, int writer, const char *name, const weir_session_text *text,
    weir_session_result *result, weir_error *error
);

/* session_restore.c */
/* Lock held */
WEIR_MUST_CHECK weir_status session_restore_named(
    weir_sessions *sessions, const char *name, weir_session_result *result, weir_error *error
);

/* Engine thread. Pages that no running sequence has a claim to are free; blocks are near the
 * kernels. */
bool session_reclaim_pages(const weir_sessions *sessions, const weir_kv_pages *pages);
WEIR_MUST_CHECK weir_status
session_reclaim_memory(const weir_service *service, int64_t n_blocks, weir_error *error);

/* The file's section, and the salt that counts. */
/* Lock held */
WEIR_MUST_CHECK weir_status
session_read_salt(weir_sessions *sessions, weir_session_reader *reader, weir_error *error);

/* session_state.c: states as databases keep them. */
WEIR_MUST_CHECK weir_status session_write_state(
    weir_sessions *s, const weir_session_wish *save, const weir_state_wish *state,
    const weir_session_text *shared, const char *path, weir_session_result *result,
    weir_error *error
);
/* The states of a file into memory, those of a packed one unpacked. */
WEIR_MUST_CHECK weir_status session_read_states(
    const weir_sessions *s, weir_session_reader *reader, float *const *states, weir_error *error
);

/* session_pruned.c: texts that a policy watched. */
/* Engine thread: the carrier holds it; false: there is none */
bool session_pin_pruned(weir_sessions *sessions, const weir_pruned_query *wish);
bool session_pin_next_pruned(weir_sessions *sessions, uint64_t *use);
void session_unpin_pruned(weir_sessions *sessions); /* engine thread */
/* What of the carrier's text is the policy's; `out` borrows from it. */
void session_pruned_of(weir_session_pruned *out, const weir_sessions *sessions);
/* Lock held */
WEIR_MUST_CHECK weir_status session_restore_pruned(
    weir_sessions *sessions, weir_session_reader *reader, weir_session_result *result,
    weir_error *error
);

/* session_index.c: automatic files by what they begin with. */
size_t session_index_bytes(int32_t limit);
WEIR_MUST_CHECK weir_status
session_index_open(weir_sessions *sessions, weir_error *error); /* of the files that are there */
void session_index_close(weir_sessions *sessions);
void session_index_add(weir_sessions *sessions, const char *name, const weir_session_text *text);
/* Its file is gone; folder locked */
void session_index_forget(weir_sessions *sessions, const char *name);
