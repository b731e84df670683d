/* tools/convert/tokenizer_keys.h - the tokenizer of a checkpoint as keys tokenizer.ggml.*. */
#pragma once
#include "engine/formats/gguf_writer.h"
#include "engine/text/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Puts tokens, types, merges or scores, special ids and the chat template. *tokenizer: that of the
 * checkpoint, which the caller closes; it stays NULL where the folder has no tokenizer.json: then
 * the file says that it has none.
 * n_vocab : rows of the embedding; the list of tokens is filled up to it
 * errors  : EUNSUPPORTED: what GGUF has no name for; EFORMAT: the files of the tokenizer */
WEIR_MUST_CHECK weir_status weir_put_tokenizer(
    weir_gguf_writer *writer, const weir_tensor_directory *directory, int64_t n_vocab,
    weir_tokenizer **tokenizer, weir_error *error
);
/* The file says that it has no tokenizer. */
void weir_put_no_tokenizer(weir_gguf_writer *writer);

enum { WEIR_DIFFERING_BYTES = 80 };

/* Opens the tokenizer of a GGUF file and checks that it gives the ids of this one for texts of many
 * kinds. differing: an added token next to which texts have others, which only a unigram vocabulary
 * may not have; "": none.
 * errors : EUNSUPPORTED: it gives others */
WEIR_MUST_CHECK weir_status weir_check_tokenizer(
    const char *path, const weir_tokenizer *tokenizer, char differing[WEIR_DIFFERING_BYTES],
    weir_error *error
);

#ifdef __cplusplus
}
#endif
