/* engine/toolcalls/call.h - one tool call: while its text is read, and complete. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "engine/base/buffer.h"
#include "engine/toolcalls/format.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_tool_call {
    char *name, *arguments; /* owned; arguments is the JSON text of an object */
    char *id; /* owned; NULL: the model wrote none */
} weir_tool_call;
void weir_tool_call_free(weir_tool_call *call);

/* A call that is being read. Zero-initialise. */
typedef struct weir_call_draft {
    weir_buffer name, id, key; /* key: of the next parameter or member */
    weir_buffer arguments, value; /* JSON; of the member that is being read */
    weir_buffer keys; /* of the parameters so far: each with a NUL */
    size_t n_keys;
} weir_call_draft;
void weir_call_draft_clear(weir_call_draft *draft);
void weir_call_draft_free(weir_call_draft *draft);

/* These return EINVAL if the text is no call; the others only ENOMEM. */

/* Adds the parameter `key` with text [n] as its value. `tools` has the declared types. */
WEIR_MUST_CHECK weir_status weir_call_add_parameter(
    weir_call_draft *draft, const json_t *tools, weir_value_type type, const char *text, size_t n
);
/* Adds the member `key` with the JSON `value`: name, id, arguments or parameters; others are
 * ignored. */
WEIR_MUST_CHECK weir_status weir_call_add_member(weir_call_draft *draft, bool has_id);
/* True if `key` is that of the arguments. */
bool weir_call_is_arguments(const weir_call_draft *draft);
/* Takes the call, whose arguments are cut, from the draft, which becomes empty. */
void weir_call_take_cut(weir_call_draft *draft, const weir_buffer *arguments, weir_tool_call *out);
/* Takes the call from the draft, which becomes empty. */
WEIR_MUST_CHECK weir_status weir_call_take(weir_call_draft *draft, weir_tool_call *out);

/* True if `tools` declare it. */
bool weir_tools_have(const json_t *tools, const char *name, size_t n);

/* types.c */

enum weir_types {
    WEIR_TYPES_STRING = 1,
    WEIR_TYPES_NUMBER = 2,
    WEIR_TYPES_BOOLEAN = 4,
    WEIR_TYPES_NULL = 8,
    WEIR_TYPES_ARRAY = 16,
    WEIR_TYPES_OBJECT = 32,
};
/* The types that the tool declares for this parameter, of enum weir_types; 0: not declared. */
unsigned weir_types_of(
    const json_t *tools, const char *name, size_t n, const char *key, size_t key_length
);

#ifdef __cplusplus
}
#endif
