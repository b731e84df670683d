/* engine/cli/session.h - a command's text before and after it in the folder of sessions. */
#pragma once
#include "engine/engine.h"

/* Restores the session; none of this name is fine. ECONFIG when sessions.dir names no folder. */
WEIR_MUST_CHECK weir_status
weir_session_resume(weir_engine *engine, const char *name, weir_error *error);
/* Saves the text that a request has named so. result may be NULL. */
WEIR_MUST_CHECK weir_status weir_session_keep(
    weir_engine *engine, const char *name, weir_session_result *result, weir_error *error
);
