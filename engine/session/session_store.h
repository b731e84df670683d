/* engine/session/session_store.h - opening the sessions of an engine, and what happens without
 * anyone asking. */
#pragma once
#include "engine/session/file/session_file.h"
#include "engine/session/sessions.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_sessions_options {
    /* Made when it is not there; NULL: none, only paths are read and written
     * (weir_sessions_write_state, weir_sessions_read) */
    const char *folder;
    weir_session_identity identity;
    /* With a prefix index; outlives the sessions. NULL: they can be listed and deleted, no more */
    weir_service *service;
    int32_t limit; /* files */
    int64_t disk; /* bytes of all files; 0: no cap */
    bool saves_unasked; /* texts that would be dropped, and finds files by what is in them */
    /* That one session may take of the kept states; at least 1 where the model has any */
    int32_t n_states;
} weir_sessions_options;

/* What the account tokens holds for `saves_unasked` beside a sequence. */
size_t weir_sessions_saver_bytes(int32_t limit, const weir_kv_spec *spec);

WEIR_MUST_CHECK weir_status
weir_sessions_open(weir_sessions **out, const weir_sessions_options *options, weir_error *error);
void weir_sessions_close(weir_sessions *sessions); /* before the service; NULL-safe */

/* What files must have in common with this engine. */
const weir_session_identity *weir_sessions_identity_of(const weir_sessions *sessions);

/* For tests: the text that is being saved because memory is short is done with. */
void weir_sessions_settle(weir_sessions *sessions);

/* At the end: writes the texts that were used last, named ones under their names, as far as limit
 * and disk allow. Returns how many are on the disk now; what fails is logged. */
int32_t weir_sessions_save_recent(weir_sessions *sessions);
/* At the start: restores the files that were used last, as far as pages are free. Returns how many;
 * what cannot be used is logged. */
int32_t weir_sessions_restore_recent(weir_sessions *sessions);

#ifdef __cplusplus
}
#endif
