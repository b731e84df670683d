/* tools/eval/structured.h - runs cases of constrained decoding: compiles a grammar and says of each
 * text where it first becomes impossible. The format is that of tests/structured/README.md. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs the case of one line and appends its answer, a line of JSON.
 * errors : EFORMAT: not a case; ENOMEM */
WEIR_MUST_CHECK weir_status
weir_structured_run(weir_buffer *out, const char *line, size_t n, size_t number, weir_error *error);

#ifdef __cplusplus
}
#endif
