/* engine/text/turns.h - where the turns of a rendered conversation begin, as far as its tokens
 * tell. */
#pragma once
#include "engine/text/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills starts[0] with the position of the last control token of a prompt (in the usual templates
 * it opens the answer) and starts[1], starts[2],
 * .. with those of the same token before it (the message before); 0 where there is none. */
void weir_turn_starts(
    const weir_tokenizer *tokenizer, const int32_t *ids, size_t n, int32_t *starts, int32_t n_starts
);
/* Where the second turn begins, by the same token: all tokens before it are the first message. 0
 * where there is none. */
int32_t weir_turn_second(const weir_tokenizer *tokenizer, const int32_t *ids, size_t n);

#ifdef __cplusplus
}
#endif
