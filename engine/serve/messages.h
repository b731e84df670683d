/* engine/serve/messages.h - checks chat messages and tools and converts them to the one form that
 * templates get. */
#pragma once
#include <jansson.h>

#include "engine/serve/errors.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_TOOLS = 128, WEIR_TOOL_NAME = 64 };

/* *out: a new array. Text parts are joined, `developer` becomes `system`, `reasoning` becomes
 * `reasoning_content`, arguments of tool calls that are JSON objects become objects. */
WEIR_MUST_CHECK weir_status
weir_messages_read(json_t **out, const json_t *messages, weir_api_error *error);
/* Checks the tool `index` of a request. */
WEIR_MUST_CHECK weir_status
weir_tool_check(const json_t *tool, size_t index, weir_api_error *error);
/* *out: a new array of the tools, NULL if there are none. */
WEIR_MUST_CHECK weir_status
weir_tools_read(json_t **out, const json_t *tools, weir_api_error *error);

#ifdef __cplusplus
}
#endif
