/* engine/cli/db.h - a state database (engine/states/states.h) and the engine that computes and
 * continues its states. */
#pragma once
#include "engine/cli/command.h"
#include "engine/engine.h"
#include "engine/session/session_store.h"
#include "engine/session/state_service.h"

/* An engine whose sessions read and write files in the database's folder: the exit code. */
int weir_db_open_engine(weir_engine **engine, const weir_arguments *arguments);
/* The database beside the engine; Ctrl-C stops what it computes. EMISMATCH: of another model.
 * EUNSUPPORTED: the model's texts cannot be saved. */
WEIR_MUST_CHECK weir_status weir_db_open(
    weir_state_service *documents, const weir_engine *engine, const weir_arguments *arguments,
    bool writes, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_db_need_sessions(const weir_engine *engine, weir_error *error);
/* "added paper: 200 tokens, 1.1 MiB" and what of it is not as it was computed. */
WEIR_MUST_CHECK weir_status weir_db_print_state(const weir_state_info *info, const char *verb);
/* " (keys and values in 8 bits)", " (merged)", both, or "". */
void weir_db_print_form(char out[64], const weir_state_info *info);
/* So many documents of those that progress counts are done. */
void weir_db_count_taken(int64_t n);
/* Full sessions are no memory plan that does not fit: exit code 1. */
int weir_db_fail(weir_status status, const weir_error *error);
