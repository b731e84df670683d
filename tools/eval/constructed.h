/* tools/eval/constructed.h - a checkpoint with computed, not trained weights: exact associative
 * recall, and no answer by chance. docs/guides/evaluation.md says how it is made.
 *
 * After "... key value ... key" the most likely next token is `value`, at any distance inside the
 * window, exactly if every KV head of the second layer still has the row of `value`. If some head
 * has lost it, the answer is another token, usually token 0 ("none"). A context may hold each key
 * once before the question, and no key as a value or between the pairs; its first token counts as
 * its own predecessor, so begin with one that is no key. */
#pragma once
#include <stdint.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_CONSTRUCTED_HEAD = 128, WEIR_CONSTRUCTED_CODE = 64, WEIR_CONSTRUCTED_NONE = 0 };

typedef struct weir_constructed {
    int32_t n_vocab; /* 16 .. 8192, including token 0 */
    int32_t n_heads, n_kv_heads; /* 1 .. 16 over 1 .. 4, which divides it */
    int32_t context; /* context length in the checkpoint: 64 .. 1 << 20 */
    /* 0: full attention; else a sliding window (the checkpoint is a Mistral). */
    int32_t window;
} weir_constructed;

/* Writes config.json and model.safetensors (f32, about n_vocab * n_kv_heads * 2 KiB) to `folder`,
 * which is created if missing. The same bytes every time. errors : EINVAL for numbers out of range;
 * EIO; ENOMEM */
WEIR_MUST_CHECK weir_status
weir_constructed_write(const char *folder, const weir_constructed *model, weir_error *error);

#ifdef __cplusplus
}
#endif
