/* tools/eval/constructed.h - a checkpoint whose weights are computed, not trained: exact
 * associative recall, and no answer by luck.
 *
 * After "... key value ... key" the likeliest next token is `value`, at any distance inside the
 * window, exactly when every KV head of the second layer still has the row of `value`. When some
 * head has lost it, the answer is another token, as a rule token 0 ("none"): the right one cannot
 * win.
 *
 * Two layers of the Llama architecture. Every token has a code of 64 signs per KV head; two codes
 * agree in at most 46 places. Layer 1 attends to the token before (RoPE on half of each head, the
 * peak of its cosines moved to distance 1) and notes its code. Layer 2 compares the code of the
 * token at hand with those notes, on the half that RoPE leaves alone, and copies the code of the
 * row that agrees. The output matrix compares what the heads copied with all codes. Token 0 wins
 * when they agree with none as a whole: without the row, a head's share of the agreement is at most
 * (46 - 18) / 64, whatever other rows it mixes.
 *
 * So a text may hold each key once before it is asked for, and no key as a value or between the
 * pairs. Layer 2 asks for nothing but its row; layer 1 needs the row before the one being computed.
 * The first token of a text counts as its own predecessor: begin with one that is no key. */
#pragma once
#include <stdint.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_CONSTRUCTED_HEAD = 128, WEIR_CONSTRUCTED_CODE = 64, WEIR_CONSTRUCTED_NONE = 0 };

typedef struct weir_constructed {
    int32_t n_vocab; /* 16 .. 8192, token 0 among them */
    int32_t n_heads, n_kv_heads; /* 1 .. 16 over 1 .. 4, which divides it */
    int32_t context; /* what the model was "trained" for: 64 .. 1 << 20 */
    int32_t window; /* 0: full attention; else a sliding window (the checkpoint is a Mistral) */
} weir_constructed;

/* config.json and model.safetensors (f32, about n_vocab * n_kv_heads * 2 KiB) in `folder`, which is
 * made when it is not there. The same bytes every time. errors : EINVAL for numbers out of range;
 * EIO; ENOMEM */
WEIR_MUST_CHECK weir_status
weir_constructed_write(const char *folder, const weir_constructed *model, weir_error *error);

#ifdef __cplusplus
}
#endif
