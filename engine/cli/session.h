/* engine/cli/session.h - restores and saves the session of a command. */
#pragma once
#include "engine/engine.h"

/* Restores the session; OK if there is none of this name. Returns ECONFIG if sessions.dir is not
 * set. */
WEIR_MUST_CHECK weir_status
weir_session_resume(weir_engine *engine, const char *name, weir_error *error);
/* Saves the sequence to which a request gave this name. result may be NULL. */
WEIR_MUST_CHECK weir_status weir_session_keep(
    weir_engine *engine, const char *name, weir_session_result *result, weir_error *error
);
