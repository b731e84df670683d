/* tools/eval/toolcalls.h - answers of models and what they mean: runs the chat parser over
 * cases. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends a line for the case. With `json`: id, format, the result of its text at once, and the
 * deltas of its text byte by byte; else id, format, reason to finish, and calls. `templates` is a
 * folder of chat templates by which formats are detected; NULL, or no file there: the case's family
 * names the format. A case without a known format has "problem" in place of a result.
 * errors : EFORMAT: no case; ENOMEM; those of reading files */
WEIR_MUST_CHECK weir_status weir_eval_toolcalls_case(
    weir_buffer *out, const json_t *item, const json_t *tools, const char *templates, bool json,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
