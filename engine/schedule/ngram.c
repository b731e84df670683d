#include "engine/schedule/ngram.h"

#include "kernels/abi/minmax.h"

enum { SEARCHED = 65536, LONGEST = 32 };

/* Tokens before `end` that equal the last ones, at most `most`. */
static int32_t match_length(const int32_t *tokens, int32_t n, int32_t end, int32_t most)
{
    int32_t length = 0;
    while (length < most && tokens[end - 1 - length] == tokens[n - 1 - length]) length++;
    return length;
}

int32_t weir_ngram_draft(
    const int32_t *tokens, int32_t n, int32_t least, int32_t *draft, int32_t most
)
{
    const int32_t first = n > SEARCHED ? n - SEARCHED : 0;
    int32_t best = 0, from = 0;
    for (int32_t end = n - 1; end >= first + least && best < LONGEST; end--) {
        if (tokens[end - 1] != tokens[n - 1]) continue;
        const int32_t length = match_length(tokens, n, end, weir_min_i32(end - first, LONGEST));
        if (length < least || length <= best) continue;
        best = length;
        from = end;
    }
    if (best == 0) return 0;
    /* What would follow the last token repeats the draft. */
    for (int32_t i = 0; i < most; i++)
        draft[i] = from + i < n ? tokens[from + i] : draft[from + i - n];
    return most;
}
