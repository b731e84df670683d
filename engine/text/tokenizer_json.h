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
/* Adds a token of model.vocab, which may also be an added token of the same id. */
WEIR_MUST_CHECK weir_status weir_json_add_base(
    weir_tokenizer *tokenizer, int64_t id, const char *name, size_t length, weir_error *error
);
/* SentencePiece: model.vocab of Unigram; what else `model` says; the sections normalizer,
 * pre_tokenizer and decoder (NULL: absent). */
WEIR_MUST_CHECK weir_status
weir_json_load_unigram(weir_tokenizer *tokenizer, const json_t *model, weir_error *error);
WEIR_MUST_CHECK weir_status
weir_json_load_pieces(weir_tokenizer *tokenizer, const json_t *model, weir_error *error);
WEIR_MUST_CHECK weir_status
weir_json_load_piece_steps(weir_tokenizer *tokenizer, const json_t *root, weir_error *error);
/* Adds the steps of `normalizer`.
 * errors : EUNSUPPORTED with the component, EFORMAT, ENOMEM */
WEIR_MUST_CHECK weir_status
weir_json_load_normalizer(weir_normalizer *normalizer, const json_t *component, weir_error *error);
/* Adds a Split or Digits of pre_tokenizer. */
WEIR_MUST_CHECK weir_status
weir_json_load_split(weir_tokenizer *tokenizer, const json_t *component, weir_error *error);

/* Reads normalizer, pre_tokenizer, decoder and post_processor. */
WEIR_MUST_CHECK weir_status
weir_tokenizer_load_steps(weir_tokenizer *tokenizer, const json_t *root, weir_error *error);

#ifdef __cplusplus
}
#endif
