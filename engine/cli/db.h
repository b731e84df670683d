/* engine/cli/db.h - a state database (engine/states/states.h) and an engine that computes and
 * continues its states. */
#pragma once
#include "engine/cli/command.h"
#include "engine/engine.h"
#include "engine/session/session_store.h"
#include "engine/session/state_service.h"

/* Opens an engine whose sessions read and write files in the database's folder. Returns the exit
 * code. */
int weir_db_open_engine(weir_engine **engine, const weir_arguments *arguments);
/* Opens the database for the engine; Ctrl-C stops what it computes. Returns EMISMATCH if it is of
 * another model, EUNSUPPORTED if the model's sequences cannot be saved. */
WEIR_MUST_CHECK weir_status weir_db_open(
    weir_state_service *documents, const weir_engine *engine, const weir_arguments *arguments,
    bool writes, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_db_need_sessions(const weir_engine *engine, weir_error *error);
/* Prints "added paper: 200 tokens, 1.1 MiB", and how the state differs from what was computed. */
WEIR_MUST_CHECK weir_status weir_db_print_state(const weir_state_info *info, const char *verb);
/* Writes " (keys and values in 8 bits)", " (merged)", both, or "". */
void weir_db_print_form(char out[64], const weir_state_info *info);
/* Progress: n documents are done. */
void weir_db_count_taken(int64_t n);
/* As weir_fail, but a full disk is exit code 1: it is not the memory plan that does not fit. */
int weir_db_fail(weir_status status, const weir_error *error);
