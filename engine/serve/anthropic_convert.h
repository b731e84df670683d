/* engine/serve/anthropic_convert.h - system, messages and tools of Anthropic's API as those of a
 * chat. Only their form is checked here that a chat does not have; the result is read like a chat's
 * (chat_request.h). */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "engine/serve/errors.h"
#include "engine/serve/request_fields.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a client marks for caching: checked, and without effect, since every prompt is cached.
 * object: has the member "cache_control". */
WEIR_MUST_CHECK weir_status
weir_anthropic_cache_control(const json_t *object, const char *param, weir_api_error *error);

/* *messages: a new array for a chat, from `system` and `messages` of root. *is_redacted: thinking
 * that only Anthropic can read was left out. */
WEIR_MUST_CHECK weir_status weir_anthropic_messages(
    json_t **messages, bool *is_redacted, const json_t *root, weir_api_error *error
);
/* For templates that take a system message only at the beginning: the others become messages of the
 * user, or with `joins` the end of the user's message before them. Requires messages that were read
 * as a chat's. */
bool weir_anthropic_has_late_system(const json_t *messages);
WEIR_MUST_CHECK weir_status weir_anthropic_fold_system(json_t *messages, bool joins);
/* Removes the thinking of all answers in a chat's messages but the last n. */
void weir_anthropic_keep_thinking(json_t *messages, int64_t n);

/* Sets `tools`, `tool_choice` and `parallel_tool_calls` of a chat. Members of tools without effect
 * are added to *unknown. */
WEIR_MUST_CHECK weir_status weir_anthropic_tools(
    json_t *chat, const json_t *root, weir_unknown_fields *unknown, weir_api_error *error
);

#ifdef __cplusplus
}
#endif
