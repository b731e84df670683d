/* engine/cli/db.h - a state database (engine/states/states.h) and the engine that computes and continues its states. */
#pragma once
#include "engine/cli/command.h"
#include "engine/schedule/session_store.h"
#include "engine/states/states.h"
#include "engine/weir.h"

/* How the vectors of `weir db` are made: the mean of hidden states (weir_request.want_embedding). */
#define WEIR_DB_EMBEDDING "mean_hidden"

/* An engine whose sessions read and write files in the database's folder: the exit code. */
int weir_db_open_engine(weir_engine **engine, const weir_arguments *arguments);
/* EMISMATCH: of another model. EUNSUPPORTED: the model's texts cannot be saved. */
WEIR_MUST_CHECK weir_status weir_db_open(weir_states **states, const weir_engine *engine, const weir_arguments *arguments, bool writes,
                                         weir_error *error);
WEIR_MUST_CHECK weir_status weir_db_need_sessions(const weir_engine *engine, weir_error *error);
/* The vector of a text, [d_model], to be freed. `keeps`: the text is kept, to be saved. ECANCELED: interrupted. */
WEIR_MUST_CHECK weir_status weir_db_embed(float **vector, const weir_engine *engine, const weir_ids *ids, bool keeps, weir_error *error);
/* Full sessions are no memory plan that does not fit: exit code 1. */
int weir_db_fail(weir_status status, const weir_error *error);
