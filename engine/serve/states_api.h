/* engine/serve/states_api.h - shared by the files of /v1/states. */
#pragma once
#include "engine/serve/internal.h"
#include "engine/serve/json_out.h"

/* The owner of states that a client adds. "" without keys: all states are shared and have their
 * plain names. */
typedef struct states_owner {
    char name[WEIR_STATE_OWNER + 2];
} states_owner;
states_owner states_owner_of(const weir_exchange *x);
/* weir_state_accepts; `user` is a states_owner. True for its own states and those without an
 * owner. */
bool states_may_see(void *user, const weir_state_info *info);

/* Replies 501: no database. */
WEIR_MUST_CHECK weir_status states_need(weir_exchange *x);
/* weir_states_find_own. Fills the error on failure. */
WEIR_MUST_CHECK weir_status
states_of_name(weir_state_info *info, weir_exchange *x, const char *name, const char *param);
/* Writes the members of a state into the open object. */
void states_write_members(
    weir_json_out *json, const states_owner *own, const weir_state_info *info
);
/* ---- operations that wait (states_call.c) ---------------------------------------------------- */
/* Continues on a worker: writes the reply to `text`, or waits again. Fills exchange->error on
 * failure. */
typedef weir_status states_next(weir_states_call *call, weir_buffer *text);
/* Runs on a thread of the sessions. */
typedef weir_status states_task(weir_states_call *call, weir_error *error);

/* One operation of /v1/states. Workers only, but for is_over and what a task uses. */
struct weir_states_call {
    weir_exchange *exchange;
    states_next *next; /* while it waits */
    states_task *task;
    bool is_waiting;
    bool is_over; /* atomic: what it waits for has ended */
    weir_embedding embedding; /* has a job while the engine computes it */
    weir_session_job job;
    states_owner owner;
    weir_own_name own;
    char *label, *metadata; /* owned */
    weir_ids ids;
    size_t most; /* hits of a query */
    weir_state_info sources[2]; /* to be merged, or [0]: removed */
    weir_state_info info; /* that was asked for or added */
    weir_buffer described; /* its metadata */
    weir_state_merged merged;
};

/* Calls `next` once the index has what other processes wrote, and replies unless it waits. Replies
 * 501 without a database. */
void states_call_begin(weir_exchange *x, states_next *next);
/* Its text as a document; borrows. */
weir_document states_document(const weir_states_call *call);
/* Waits for the vector of the text, then calls `next`. Fills exchange->error on failure. keeps: as
 * for weir_embedding_begin. */
WEIR_MUST_CHECK weir_status
states_call_embed(weir_states_call *call, bool keeps, states_next *next);
/* Waits for a task that writes to the database, then calls `next`. */
void states_call_do(weir_states_call *call, states_task *task, states_next *next);
/* A task: reads the metadata of call->info. */
weir_status states_describe(weir_states_call *call, weir_error *error);
/* Waits for that, then calls `next`. */
void states_call_describe(weir_states_call *call, states_next *next);
/* Writes a state that was described. */
weir_status states_write(weir_states_call *call, weir_buffer *text);
