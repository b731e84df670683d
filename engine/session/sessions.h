/* engine/session/sessions.h - conversations that outlive the process: kept texts written to a
 * folder and read back.
 *
 * Saving and restoring run on the caller's thread, one at a time; the engine goes on meanwhile. The
 * engine thread is asked only to hand out what is kept, and to take in what was read once all of it
 * has proved right. Any thread; all functions wait. */
#pragma once
#include "engine/model/coda_stats.h"
#include "engine/schedule/service.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a name; more than clients may use, so that a server can put something in front. */
enum { WEIR_SESSION_NAME = 96 };

typedef struct weir_sessions weir_sessions;

/* Letters, digits, '.', '_' and '-', not a dot first, at most `most` bytes: a name is a file's
 * name, and nothing else. */
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

typedef struct weir_session_info {
    char name[WEIR_SESSION_NAME + 1];
    int32_t n_tokens;
    int64_t n_bytes, created; /* seconds since 1970 */
    int64_t changed_ns; /* of the file */
    bool is_automatic;
    char policy[64]; /* "NAME:BUDGET" of a text that a KV policy watched; "" */
    weir_status problem; /* not OK: it cannot be restored here */
} weir_session_info;

typedef struct weir_session_result {
    int32_t n_tokens;
    int64_t n_bytes, time_ns;
} weir_session_result;

/* What to save: the kept text that begins these tokens, or with tokens NULL the one that requests
 * named so (weir_request.session). */
typedef struct weir_session_wish {
    const char *name, *salt; /* salt: as in weir_request */
    const int32_t *tokens;
    int32_t n_tokens;
} weir_session_wish;

/* ECANCELED: another one is being saved or restored. ENOTFOUND: no such text is kept; the error
 * says why. EFULL: [sessions] limit or memory.disk leaves no room. EIO: the disk; the file that was
 * there is as it was. */
WEIR_MUST_CHECK weir_status weir_sessions_save(
    weir_sessions *sessions, const weir_session_wish *wish, weir_session_result *result,
    weir_error *error
);
/* The text is kept again: prompts that begin with it continue it. ENOTFOUND; EFORMAT, EUNSUPPORTED,
 * EMISMATCH: the file; EFULL: no pages are free now; ECANCELED as above. */
WEIR_MUST_CHECK weir_status weir_sessions_restore(
    weir_sessions *sessions, const char *name, weir_session_result *result, weir_error *error
);
/* Restores it unless its text is kept, waiting for others; a name without a file is fine. What a
 * request does that names its text. */
WEIR_MUST_CHECK weir_status
weir_sessions_resume(weir_sessions *sessions, const char *name, weir_error *error);
/* Restores the automatic file that begins these tokens furthest, if that is worth it beside what is
 * kept: 512 tokens or more. Waits for others. What a request does that has no name, or whose name
 * did not help. What fails is logged: the tokens can be computed. */
void weir_sessions_recall(
    weir_sessions *sessions, const int32_t *tokens, int32_t n_tokens, const char *salt
);
/* A text as a database keeps it: one state, and the tokens behind what could be saved. Its file is
 * at any path, in no folder's count: what is written there counts as its caller's, what is read is
 * kept under no name. wish->name, for texts that requests named, is the text's and not the file's.
 * These wait for others. EUNSUPPORTED: no memory of the model can have so few bits. */
typedef struct weir_state_wish {
    int32_t state_bits; /* 8, 4: of keys and values of fixed size; 0: as they are */
    int64_t room; /* bytes that the file may take; 0: any */
} weir_state_wish;
WEIR_MUST_CHECK weir_status weir_sessions_write_state(
    weir_sessions *sessions, const weir_session_wish *wish, const weir_state_wish *state,
    const char *path, weir_session_result *result, weir_error *error
);
/* The same as it is, with the last token of the wish written as not computed: a prompt of exactly
 * these tokens has that one to compute, and goes on from the rest. */
WEIR_MUST_CHECK weir_status weir_sessions_write_text(
    weir_sessions *sessions, const weir_session_wish *wish, const char *path,
    weir_session_result *result, weir_error *error
);
/* salt: under which the text is kept, and not read if it is there; NULL: the file's, which then is
 * no state of a database. */
WEIR_MUST_CHECK weir_status weir_sessions_read(
    weir_sessions *sessions, const char *path, const char *salt, weir_session_result *result,
    weir_error *error
);

typedef struct weir_merge_wish {
    const char *earlier, *later; /* files of states */
    weir_state_wish state; /* of the file that is written */
} weir_merge_wish;
/* A state that has what the banks of two hold and goes on where the later one ends
 * (engine/model/blocks/coda_merge.h). EUNSUPPORTED: not with this model. The files as in
 * weir_sessions_read. */
WEIR_MUST_CHECK weir_status weir_sessions_merge(
    const weir_sessions *sessions, const weir_merge_wish *wish, const char *path,
    weir_state_merged *merged, weir_session_result *result, weir_error *error
);
/* Bytes of a state in a file of so many bits; 0: the model has none that can be packed. */
size_t weir_sessions_packed_bytes(const weir_sessions *sessions, int32_t state_bits);
WEIR_MUST_CHECK weir_status
weir_sessions_delete(weir_sessions *sessions, const char *name, weir_error *error);
/* *out [*n], by name; weir_memory_give frees it. Of damaged files only name and size are known. */
WEIR_MUST_CHECK weir_status
weir_sessions_list(weir_sessions *sessions, weir_session_info **out, size_t *n, weir_error *error);

#ifdef __cplusplus
}
#endif
