/* engine/session/session_internal.h - internals shared by jobs, saving, restoring and the session
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

/* A cached sequence on its way to or from a file. One job at a time has it. */
typedef struct session_transfer {
    weir_sessions *sessions;
    int writer; /* its place in `pending` */
    /* Salt to cache the sequence under; NULL: the file's. */
    const char *read_salt;
    weir_session_progress progress;
    /* Its pages and tokens; the table changes on the engine thread only. */
    weir_kv_sequence sequence;
    char salt[WEIR_PREFIX_SALT + 1], name[WEIR_PREFIX_NAME + 1];
    /* [n_marks]: pinned (saving) or acquired (restoring). */
    weir_prefix_snapshot marks[WEIR_SESSION_STATES];
    int32_t n_marks;
    /* It has a policy: `pruned` is its entry in the pruned cache. */
    bool is_pruned;
    weir_pruned_entry pruned;
} session_transfer;

typedef struct session_entry session_entry; /* defined in session_index.c */

/* A file that is being written; counted in the folder before it exists. */
typedef struct session_pending {
    char name[WEIR_SESSION_NAME + 1]; /* "": none */
    int32_t n_tokens;
    size_t bytes;
    const weir_session_progress *progress;
} session_pending;
/* Jobs that may run at once, and the writer under memory pressure. */
enum { SESSION_TRANSFERS = WEIR_SERVICE_SESSIONS - 1, SESSION_WRITERS = SESSION_TRANSFERS + 1 };

/* Jobs in order of arrival. */
typedef struct session_queue {
    weir_session_job *first, *last;
} session_queue;

struct weir_sessions {
    char *folder;
    weir_session_identity identity;
    weir_service *service;
    int32_t limit, most_states, n_vocab;
    int64_t disk;
    bool is_tiered; /* pages may be in a lower tier */
    weir_saver *saver; /* NULL: nothing is saved under memory pressure */
    session_transfer transfers[SESSION_TRANSFERS]; /* [n_transfers] */
    int n_transfers;
    pthread_t threads[SESSION_TRANSFERS]; /* [n_threads] */
    int n_threads;
    uint64_t numerics[2]; /* digest of identity.numerics */
    /* [service->origins.n]; written on the engine thread, and constant afterwards. */
    weir_numerics origins[WEIR_ORIGINS];
    _Atomic int64_t n_replaced; /* automatic files replaced by others since opening */
    _Atomic int64_t n_pauses; /* of saves, for sequences that ran */

    /* Guards what follows. Held for moments: never over a file call, nor over a call of the engine
     * thread. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Jobs that may need no file: the engine thread looks whether their sequence is cached. */
    session_queue asked;
    service_call ask; /* posted while is_asking */
    bool is_asking;
    session_queue waiting;
    weir_session_job *active; /* list */
    session_transfer *free_transfers[SESSION_TRANSFERS]; /* [n_free] */
    int n_free;
    int n_saving; /* active jobs that write a file */
    bool has_first, is_first_busy; /* the thread that leaves saves to the others */
    bool is_closing;
    bool is_folder_taken; /* one thread at a time makes room in the folder or deletes files */
    /* There are more files than sessions.limit, or will be. Of the thread that entered the
     * folder. */
    bool is_over_limit;
    session_pending pending[SESSION_WRITERS];
    session_entry *entries; /* [most_entries] automatic files; charged to the ledger */
    int32_t n_entries, most_entries;
    uint64_t n_added;
    /* Why files could not be used, since one was. */
    weir_log_causes recall_causes;
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
/* session_space.c */

/* The folder's files are deleted, and their space is planned, by one thread at a time. Threads of
 * jobs and of the saver wait for each other here; no other thread does. */
void session_folder_enter(weir_sessions *sessions);
void session_folder_leave(weir_sessions *sessions);
/* Deletes the file and its index entry; for_client: what is cached of it is not saved again before
 * it is used. Returns 0 or errno. Folder entered. */
int session_folder_drop(weir_sessions *sessions, const char *name, bool for_client);
/* Deletes automatic files, least recently used first, until there is space for this one, which is
 * reserved for this writer until session_folder_done. Returns ECANCELED if another writer is
 * writing a file of this name. */
WEIR_MUST_CHECK weir_status session_folder_make_space(
    weir_sessions *sessions, int writer, const session_pending *file, weir_error *error
);
/* The writer has ended. If its file is there, it deletes the files over sessions.limit. */
void session_folder_done(weir_sessions *sessions, int writer, bool is_written);
/* Deletes automatic files, other than `name`, whose sequence is a prefix of this one. */
void session_folder_drop_beginnings(
    weir_sessions *sessions, const weir_session_content *content, const char *name
);

/* Marks the file as used now; the least recently used automatic file is deleted first. */
void session_touch(const weir_sessions *sessions, const char *name);

/* session_io.c: threads and the order of jobs. */

WEIR_MUST_CHECK weir_status session_threads_open(weir_sessions *sessions, int n, weir_error *error);
void session_threads_close(weir_sessions *sessions); /* finishes what is queued; idempotent */
/* Runs the job on this thread, as soon as its turn comes. */
void session_job_run_here(weir_sessions *sessions, weir_session_job *job);
/* Sets the file of an active job that has none. Returns false if another job has it: then this one
 * is run again when its turn comes. */
bool session_job_take_file(weir_sessions *sessions, weir_session_job *job, const char *name);

/* What ends a pause of a save early. */
typedef struct session_pause {
    pthread_mutex_t *lock;
    pthread_cond_t *changed; /* on each signal the pause looks again */
    bool (*is_over)(const void *user); /* with the lock */
    const void *user;
} session_pause;
/* Waits for this time while sequences run. */
void session_give_way(weir_sessions *sessions, const session_pause *pause, int64_t ns);

/* session_job.c: does the work. Runs without locks. */
void session_job_do(weir_sessions *sessions, weir_session_job *job);
/* Engine thread. True for a RESUME or RECALL whose sequence is cached, as far as files hold it. */
bool session_job_is_cached(weir_sessions *sessions, const weir_session_job *job);

/* session_save.c */

/* Writes auto-DIGEST, so that the same sequence, under the same policy if any, has the same
 * file. */
void session_name_content(
    char name[WEIR_PREFIX_NAME + 1], const int32_t *tokens, int32_t n_tokens, const char *salt,
    const weir_session_pruned *pruned
);
/* True if there is a usable automatic file of this sequence with at least as many states; memory
 * may have dropped some since. Marks it as used now. */
bool session_is_there(
    const weir_sessions *sessions, const char *name, const weir_session_content *content
);
WEIR_MUST_CHECK weir_status session_write_content(
    weir_sessions *sessions, int writer, const char *name, const weir_session_content *content,
    weir_session_result *result, weir_error *error
);
/* state, path: NULL for a session in the folder. n_rest: fewer than the tokens of `save`. */
WEIR_MUST_CHECK weir_status session_save_to(
    session_transfer *own, const weir_session_request *save, const weir_state_request *state,
    int32_t n_rest, const char *path, weir_session_result *result, weir_error *error
);
/* Returns how many are on disk now. */
int32_t session_save_recent(session_transfer *own);

/* session_restore.c */
WEIR_MUST_CHECK weir_status session_restore_named(
    session_transfer *own, const char *name, weir_session_result *result, weir_error *error
);
bool session_is_kept(
    session_transfer *own, const char *name
); /* a sequence of this name is cached */
/* salt: as for weir_sessions_read. */
WEIR_MUST_CHECK weir_status session_read_path(
    session_transfer *own, const char *path, const char *salt, weir_session_result *result,
    weir_error *error
);

/* session_index.c */
/* Engine thread. True if no file holds enough more of the prompt than the cache. */
bool session_is_recalled(weir_sessions *sessions, const weir_session_job *job);
/* Failures are logged. ECANCELED, or OK. */
WEIR_MUST_CHECK weir_status session_recall(session_transfer *own, weir_session_job *job);

/* What a call of the engine thread needs, which waits for no move of blocks or states. */
typedef struct session_need {
    weir_reclaim_need memory;
    bool waits; /* out: to be called again when a move has ended */
} session_need;
/* Calls it until it waits no more. */
void session_call_with_need(
    weir_service *service, void (*run)(weir_service *service, void *user), void *user,
    session_need *need
);
/* Engine thread. Frees pages that no running sequence has a claim to, and blocks near the kernels.
 * Returns false, and EFULL, if they cannot be freed, or not yet. */
bool session_reclaim_pages(
    const weir_sessions *sessions, const weir_kv_pages *pages, session_need *need
);
WEIR_MUST_CHECK weir_status session_reclaim_memory(
    const weir_service *service, int64_t n_blocks, session_need *need, weir_error *error
);

/* Reads the file's section and sets the salt to use. */
WEIR_MUST_CHECK weir_status
session_read_salt(session_transfer *own, weir_session_reader *reader, weir_error *error);

/* session_numerics.c: files of other numerics. */

/* Makes the transfer's salt that of the file's origin, if it has one. */
WEIR_MUST_CHECK weir_status
session_choose_salt(session_transfer *own, const weir_session_header *header, weir_error *error);
/* True if the file could be used here but for its numerics. */
bool session_is_refused(const weir_sessions *sessions, weir_session_reader *reader);
/* The sequence as it is written to a file: with the salt of its requests, and its origin. */
weir_session_content session_as_written(
    const weir_sessions *sessions, const weir_session_content *content
);
bool session_has_origin(const weir_sessions *sessions, const weir_session_content *content);
/* True if the sequence has an origin, and the file of this name still holds all of it as it came
 * from there. */
bool session_is_unchanged(
    const weir_sessions *sessions, const char *name, const weir_session_content *content
);

/* session_state.c: states as state databases store them. */
WEIR_MUST_CHECK weir_status session_write_state(
    session_transfer *own, const weir_session_request *save, const weir_state_request *state,
    const weir_session_content *shared, const char *path, weir_session_result *result,
    weir_error *error
);
/* Reads the states of a file to memory; unpacks packed ones. */
WEIR_MUST_CHECK weir_status session_read_states(
    const weir_sessions *s, weir_session_reader *reader, float *const *states, weir_error *error
);

/* session_pruned.c: sequences with a policy. */

/* Engine thread: the transfer holds it. Returns ENOTFOUND if there is none, EFULL if there is no
 * memory for its table. */
WEIR_MUST_CHECK weir_status
session_pin_pruned(session_transfer *own, const weir_pruned_query *query);
WEIR_MUST_CHECK weir_status session_pin_next_pruned(session_transfer *own, uint64_t *use);
void session_unpin_pruned(session_transfer *own); /* engine thread */
/* session_restore.c. Engine thread: window blocks for the rows that the sequence's next one reads;
 * then they are read from the file. */
weir_status session_reserve_windows(session_transfer *own);
weir_status session_read_windows(
    session_transfer *own, weir_session_reader *reader, weir_error *error
);
/* Gets the policy's part of the transfer's sequence; `out` borrows from it. */
void session_pruned_of(weir_session_pruned *out, const session_transfer *own);
WEIR_MUST_CHECK weir_status session_restore_pruned(
    session_transfer *own, weir_session_reader *reader, weir_session_result *result,
    weir_error *error
);

/* session_index.c: finds automatic files by their first tokens. */
size_t session_index_bytes(int32_t limit);
/* Indexes the existing files. */
WEIR_MUST_CHECK weir_status session_index_open(weir_sessions *sessions, weir_error *error);
void session_index_close(weir_sessions *sessions);
void session_index_add(
    weir_sessions *sessions, const char *name, const weir_session_content *content
);
/* Its file is gone. */
void session_index_forget(weir_sessions *sessions, const char *name);
