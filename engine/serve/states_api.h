/* engine/serve/states_api.h - shared by the files of /v1/states. */
#pragma once
#include "engine/serve/internal.h"
#include "engine/serve/json_out.h"

/* Whose states a client adds. "" without keys: then all states are everybody's, under their whole
 * names. */
typedef struct states_owner {
    char name[WEIR_STATE_OWNER + 2];
} states_owner;
states_owner states_owner_of(const weir_exchange *x);
/* weir_state_accepts; user: a states_owner. Its own, and those of nobody. */
bool states_may_see(void *user, const weir_state_info *info);

/* 501 without a database. */
WEIR_MUST_CHECK weir_status states_need(weir_exchange *x);
/* The members of a state, in the object that is open. */
void states_write_members(
    weir_json_out *json, const states_owner *own, const weir_state_info *info
);
/* A state with its metadata; on failure the error is filled, or the status says why. */
WEIR_MUST_CHECK weir_status
states_write(weir_exchange *x, const weir_state_info *info, weir_buffer *text);
