/* engine/serve/tool_text.h - tools and earlier calls as plain text, for chat templates without tool
 * support: in the form of Qwen's templates, which engine/toolcalls reads. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns a copy with `tools` (NULL: none) in its system message and, if requested, with calls as
 * text in their messages. */
WEIR_MUST_CHECK weir_status weir_messages_with_tools(
    json_t **out, const json_t *messages, const json_t *tools, bool calls_as_text
);
/* Returns a copy without calls. */
WEIR_MUST_CHECK weir_status weir_messages_strip(json_t **out, const json_t *messages);

#ifdef __cplusplus
}
#endif
