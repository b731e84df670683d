/* engine/session/session_store.h - opens and closes the sessions of an engine; saving and restoring
 * at start, end and under memory pressure. */
#pragma once
#include "engine/session/file/session_file.h"
#include "engine/session/sessions.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_sessions_options {
    /* Created if missing; NULL: none, and only paths are read and written
     * (weir_sessions_write_state, weir_sessions_read). */
    const char *folder;
    weir_session_identity identity;
    /* With a prefix index; outlives the sessions. NULL: sessions can only be listed and deleted. */
    weir_service *service;
    int32_t limit; /* maximum number of files */
    int64_t disk; /* bytes of all files; 0: no cap */
    /* Saves sequences before they are dropped, and finds files by content. */
    bool saves_unasked;
    /* Threads for weir_sessions_post, each with a sequence of its own, at most 8; 0: none, and one
     * sequence for the other functions. */
    int n_threads;
    /* Cached states that one session may take; at least 1 if the model has states. */
    int32_t n_states;
} weir_sessions_options;

/* Bytes on the account tokens for `saves_unasked`, in addition to a sequence. */
size_t weir_sessions_saver_bytes(int32_t limit, const weir_kv_spec *spec);

WEIR_MUST_CHECK weir_status
weir_sessions_open(weir_sessions **out, const weir_sessions_options *options, weir_error *error);
void weir_sessions_close(weir_sessions *sessions); /* before the service; NULL-safe */

/* What files must have in common with this engine. */
const weir_session_identity *weir_sessions_identity_of(const weir_sessions *sessions);

/* For tests: does a job of WEIR_SESSION_RECALL on the caller's thread, and returns its `unused`. */
const char *weir_sessions_recall(
    weir_sessions *sessions, const int32_t *tokens, int32_t n_tokens, const char *salt
);
/* For tests: waits until no sequence is being saved under memory pressure. */
void weir_sessions_settle(weir_sessions *sessions);
/* For tests: how often saves paused because sequences ran. */
int64_t weir_sessions_pauses(const weir_sessions *sessions);

/* At the end: writes the most recently used sequences, named ones under their names, as far as
 * limit and disk allow. Returns how many are on disk now; failures are logged. */
int32_t weir_sessions_save_recent(weir_sessions *sessions);
/* At the start: restores the most recently used files, as far as pages are free. Returns how many;
 * files that cannot be used are logged. */
int32_t weir_sessions_restore_recent(weir_sessions *sessions);

#ifdef __cplusplus
}
#endif
