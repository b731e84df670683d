/* engine/serve/tool_text.h - tools and earlier calls as plain text, for chat templates that do not
 * know them: in the form of Qwen's templates, which tool_call.h reads in answers. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A copy with `tools` (NULL: none) in its system message, and where that is asked for with calls in
 * the texts of their messages. */
WEIR_MUST_CHECK weir_status weir_messages_with_tools(
    json_t **out, const json_t *messages, const json_t *tools, bool calls_as_text
);
/* A copy without calls. */
WEIR_MUST_CHECK weir_status weir_messages_strip(json_t **out, const json_t *messages);

#ifdef __cplusplus
}
#endif
