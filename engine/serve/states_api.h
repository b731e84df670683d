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

/* Replies 501 without a database. */
WEIR_MUST_CHECK weir_status states_need(weir_exchange *x);
/* Writes the members of a state into the open object. */
void states_write_members(
    weir_json_out *json, const states_owner *own, const weir_state_info *info
);
/* Writes a state with its metadata. On failure the error is filled, or the status says why. */
WEIR_MUST_CHECK weir_status
states_write(weir_exchange *x, const weir_state_info *info, weir_buffer *text);
