/* engine/session/sessions.h - sessions: cached sequences that are saved to a folder and restored by
 * a later process.
 *
 * Everything that touches a file is a job (weir_session_job). weir_sessions_post gives it to
 * threads of the sessions; the other functions do it on the caller's thread, and block. Jobs for
 * one file are done one after the other, in order; others side by side. The engine continues
 * meanwhile: its thread only hands out what is cached and inserts what was read, once all of it is
 * checked. Any thread. */
#pragma once
#include "engine/model/bank_stats.h"
#include "engine/schedule/service.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a name; more than clients may use, so that a server can add a prefix. */
enum { WEIR_SESSION_NAME = 96 };

typedef struct weir_sessions weir_sessions;

/* True for letters, digits, '.', '_' and '-', no leading dot, at most `most` bytes: a name is also
 * a file name. */
static inline bool weir_session_name_is_good(const char *name, size_t most)
{
    size_t n = 0;
    for (; name[n] != '\0' && n <= most; n++) {
        const char c = name[n];
        const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
        if (!is_plain || (n == 0 && c == '.')) return false;
    }
    return n >= 1 && n <= most;
}

typedef enum weir_session_state {
    WEIR_SESSION_IDLE,
    WEIR_SESSION_SAVING,
    WEIR_SESSION_RESTORING
} weir_session_state;

typedef struct weir_session_info {
    char name[WEIR_SESSION_NAME + 1];
    int32_t n_tokens;
    int64_t n_bytes, created; /* seconds since 1970 */
    int64_t changed_ns; /* modification time of the file */
    bool is_automatic;
    /* "NAME:BUDGET" if it has a KV policy; else "". */
    char policy[64];
    weir_status problem; /* if not OK, it cannot be restored here */
    weir_session_state state;
    int64_t n_done, n_total; /* bytes, if it is not idle */
} weir_session_info;

typedef struct weir_session_result {
    int32_t n_tokens;
    int64_t n_bytes, time_ns;
    /* Restored with sessions.numerics = "any": what it was computed with, if not as here; else
     * NULL. Valid as long as the service. */
    const char *numerics;
} weir_session_result;

/* What to save: the cached sequence that is a prefix of these tokens, or with tokens NULL the one
 * that requests gave this name (weir_request.session). */
typedef struct weir_session_request {
    const char *name, *salt; /* salt: as in weir_request */
    const int32_t *tokens;
    int32_t n_tokens;
} weir_session_request;

/* ---- jobs ------------------------------------------------------------------------------------ */
typedef enum weir_session_work {
    WEIR_SESSION_SAVE, /* weir_sessions_save: name, tokens, salt */
    WEIR_SESSION_RESTORE, /* weir_sessions_restore: name */
    WEIR_SESSION_RESUME, /* weir_sessions_resume: name */
    /* Restores the automatic file with the longest matching prefix if it has at least 512 tokens
     * more than what is cached: tokens, salt. For requests without a name, or whose name did not
     * help. Failures are logged: the tokens can be computed. */
    WEIR_SESSION_RECALL,
    WEIR_SESSION_READ, /* weir_sessions_read: path, salt */
    WEIR_SESSION_DELETE, /* weir_sessions_delete: name */
    WEIR_SESSION_LIST, /* weir_sessions_list */
    WEIR_SESSION_TASK, /* task; path: what no other job has meanwhile */
    WEIR_SESSION_WRITE, /* not for weir_sessions_post, like the next */
    WEIR_SESSION_SAVE_RECENT
} weir_session_work;

typedef struct weir_session_job weir_session_job;
/* Zero-initialise. What it points to stays valid until `done`. */
struct weir_session_job {
    weir_session_work work;
    const char *name, *path, *salt;
    const int32_t *tokens; /* [n_tokens] */
    int32_t n_tokens;
    /* TASK: work on other files, done by a thread that saves unless it only `reads`. It may call
     * functions that do other jobs on its thread. */
    weir_status (*task)(void *user, weir_error *error);
    bool reads;
    struct weir_memory_tracker *tracker; /* of the memory that the work takes; may be NULL */
    /* Called once, on a thread of the sessions, the engine thread or that of weir_sessions_cancel;
     * no lock is held. Must not block. The job may be freed there. */
    void (*done)(weir_session_job *job);
    void *user;
    /* ---- set before `done` */
    weir_status status; /* ECANCELED: cancelled */
    weir_error error;
    weir_session_result result;
    /* RESUME: the file is refused for its numerics, and the status is EMISMATCH. */
    bool is_refused;
    /* RECALL: why a file that holds more of the tokens is not used, for weir_request.unused:
     * sessions.numerics = "same" refuses it. NULL: no such file. */
    const char *unused;
    weir_session_info *list; /* LIST: [n]; weir_memory_give */
    size_t n; /* LIST; SAVE_RECENT: files */
    /* ---- of the sessions */
    const struct weir_state_request *state; /* WRITE */
    int32_t n_rest; /* WRITE */
    char file[256]; /* no other job has it meanwhile; "": none */
    struct session_transfer *transfer;
    weir_session_job *next;
    int stage;
    bool is_here, is_again, is_cancelled;
};

/* Gives the job to the threads of the sessions (weir_sessions_options.n_threads). Never blocks. */
void weir_sessions_post(weir_sessions *sessions, weir_session_job *job);
/* Ends a posted job early: one that waits never begins, and `done` is called here; one that reads a
 * file stops before its next piece. One that writes is finished. No effect after `done`. */
void weir_sessions_cancel(weir_sessions *sessions, weir_session_job *job);
/* True if a file may begin like the prompt of this RECALL job. Does not block. */
bool weir_sessions_may_recall(weir_sessions *sessions, const weir_session_job *job);

typedef struct weir_session_activity {
    int32_t saving, restoring; /* files that are written and read now */
    int32_t waiting; /* jobs */
} weir_session_activity;
void weir_sessions_activity_of(weir_sessions *sessions, weir_session_activity *out);

/* ---- on the caller's thread ------------------------------------------------------------------ */
/* Returns ENOTFOUND if no such sequence is cached (the error says why); EFULL if [sessions] limit
 * or memory.disk leaves no space; ECANCELED if this file is just being written under memory
 * pressure; EIO: an existing file is unchanged. */
WEIR_MUST_CHECK weir_status weir_sessions_save(
    weir_sessions *sessions, const weir_session_request *request, weir_session_result *result,
    weir_error *error
);
/* Caches the sequence again: prompts that begin with it continue it. Returns ENOTFOUND; EFORMAT,
 * EUNSUPPORTED or EMISMATCH for the file; EFULL if no pages are free now. */
WEIR_MUST_CHECK weir_status weir_sessions_restore(
    weir_sessions *sessions, const char *name, weir_session_result *result, weir_error *error
);
/* Restores the session unless it is cached. OK if there is no such file. EMISMATCH if
 * sessions.numerics refuses it. For requests that name their session. */
WEIR_MUST_CHECK weir_status
weir_sessions_resume(weir_sessions *sessions, const char *name, weir_error *error);
/* Returns EMISMATCH if the file of this name could be restored but for its numerics, which
 * sessions.numerics = "same" refuses; the message says what differs. OK for any other file. */
WEIR_MUST_CHECK weir_status
weir_sessions_check_numerics(const weir_sessions *sessions, const char *name, weir_error *error);
/* The weir_numerics_digest [2] that a file must have to be continued; NULL: any. */
const uint64_t *weir_sessions_numerics(const weir_sessions *sessions);
/* A sequence as a state database stores it: one state, and the tokens after it. The file may be at
 * any path and is not counted in the folder; what is read is cached without a name. request->name
 * is the name that requests gave the sequence, not that of the file. EUNSUPPORTED: no layer can be
 * packed in so few bits. */
typedef struct weir_state_request {
    /* Bits of keys and values of fixed-size memory: 8 or 4; 0: not packed. */
    int32_t state_bits;
    /* Most bytes that the file may take; 0: no limit. */
    int64_t max_bytes;
} weir_state_request;
WEIR_MUST_CHECK weir_status weir_sessions_write_state(
    weir_sessions *sessions, const weir_session_request *request, const weir_state_request *state,
    const char *path, weir_session_result *result, weir_error *error
);
/* The same without a change of form; the last token is written as not computed, so a prompt of
 * exactly these tokens computes that one and continues from the rest. */
WEIR_MUST_CHECK weir_status weir_sessions_write_sequence(
    weir_sessions *sessions, const weir_session_request *request, const char *path,
    weir_session_result *result, weir_error *error
);
/* salt: under which the sequence is cached; if it already is, nothing is read. NULL: the file's,
 * which then is not of a state database. */
WEIR_MUST_CHECK weir_status weir_sessions_read(
    weir_sessions *sessions, const char *path, const char *salt, weir_session_result *result,
    weir_error *error
);

typedef struct weir_merge_request {
    const char *earlier, *later; /* files of states */
    weir_state_request state; /* of the file that is written */
} weir_merge_request;
/* Writes a state merged from two, which continues from the later one (weir_state_ops.merge).
 * EUNSUPPORTED: not with this model. The files are as for weir_sessions_read. */
WEIR_MUST_CHECK weir_status weir_sessions_merge(
    const weir_sessions *sessions, const weir_merge_request *request, const char *path,
    weir_state_merged *merged, weir_session_result *result, weir_error *error
);
/* Bytes of a packed state in a file; 0: the model has none that can be packed. */
size_t weir_sessions_packed_bytes(const weir_sessions *sessions, int32_t state_bits);
/* Deletes the file; what is cached of it, or under this name, is not saved before it is used again.
 * ENOTFOUND: there is neither. */
WEIR_MUST_CHECK weir_status
weir_sessions_delete(weir_sessions *sessions, const char *name, weir_error *error);
/* *out [*n], sorted by name; free with weir_memory_give. Of damaged files only name and size are
 * set. */
WEIR_MUST_CHECK weir_status
weir_sessions_list(weir_sessions *sessions, weir_session_info **out, size_t *n, weir_error *error);

#ifdef __cplusplus
}
#endif
