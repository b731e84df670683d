/* engine/serve/structured_request.h - the fields of a request that say what form its answers must
 * have: OpenAI's response_format, vLLM's structured_outputs and guided_*, llama.cpp's grammar and
 * json_schema. */
#pragma once
#include <jansson.h>

#include "engine/base/buffer.h"
#include "engine/constrain/constrain.h"
#include "engine/serve/errors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What answers must match; field NULL: anything. */
typedef struct weir_structured {
    const char *field; /* static: the field of the request that said so */
    weir_grammar_kind kind;
    weir_buffer text; /* owned */
} weir_structured;

/* errors : 400 with the field: more than one of them, or one that is malformed. Whether the grammar
 *          can be compiled is not looked at. */
WEIR_MUST_CHECK weir_status
weir_structured_read(weir_structured *out, const json_t *root, weir_api_error *error);

#ifdef __cplusplus
}
#endif
