/* engine/text/tokenizer_json.h - parsing of tokenizer.json without file access, also for the fuzz
 * target and tests. */
#pragma once
#include <jansson.h>

#include "engine/text/tokenizer_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All steps but weir_tokenizer_finish. config: tokenizer_config.json or NULL.
 * errors : EFORMAT, EUNSUPPORTED with the key, ENOMEM */
WEIR_MUST_CHECK weir_status weir_tokenizer_load_json(
    weir_tokenizer *tokenizer, const json_t *root, const json_t *config, weir_error *error
);
/* Reads normalizer, pre_tokenizer, decoder and post_processor. */
WEIR_MUST_CHECK weir_status
weir_tokenizer_load_steps(weir_tokenizer *tokenizer, const json_t *root, weir_error *error);

#ifdef __cplusplus
}
#endif
