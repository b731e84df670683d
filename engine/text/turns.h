/* engine/text/turns.h - finds the turns of a rendered conversation from its tokens. */
#pragma once
#include "engine/text/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills starts[0] with the position of the last control token of a prompt (in common templates it
 * opens the answer) and starts[1], starts[2], ... with earlier positions of the same token
 * (previous messages); 0 if there are none. */
void weir_turn_starts(
    const weir_tokenizer *tokenizer, const int32_t *ids, size_t n, int32_t *starts, int32_t n_starts
);
/* Where the second turn begins, by the same token: the tokens before it are the first message. 0 if
 * there is none. */
int32_t weir_turn_second(const weir_tokenizer *tokenizer, const int32_t *ids, size_t n);

#ifdef __cplusplus
}
#endif
