/* engine/kv/pool/formats.h - which number formats the layers' pages have: pairs as text, what head
 * widths allow, which layers stay wide. */
#pragma once
#include "engine/base/error.h"
#include "kernels/abi/kv_format.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_KV_PAIR_TEXT = 32, WEIR_KV_FORMATS_TEXT = 112 };

/* "q8_0/turbo4" is K and V, "q8_0" is both. */
bool weir_kv_pair_parse(weir_kv_pair *out, const char *text);
void weir_kv_pair_print(char out[WEIR_KV_PAIR_TEXT], weir_kv_pair pair);
bool weir_kv_pair_is_same(weir_kv_pair a, weir_kv_pair b);

/* ECONFIG when rows of these widths cannot be kept so, with the reason and the formats that fit;
 * `key` is what the user set. */
WEIR_MUST_CHECK weir_status weir_kv_pair_check(
    weir_kv_pair pair, int64_t key_dim, int64_t value_dim, const char *key, weir_error *error
);

/* The formats of a model's layers: `wide` in the first and the last n_wide layers that have KV,
 * `rest` between them, but for the first n_wide_tokens tokens of every text: those are wide in all
 * layers. */
typedef struct weir_kv_choice {
    weir_kv_pair rest, wide;
    int64_t n_wide, n_wide_tokens;
} weir_kv_choice;
void weir_kv_choice_fill(weir_kv_pair *out, int64_t n_layers, const weir_kv_choice *choice);
/* The tokens in whole pages; no pages where they have nothing of their own, as all layers are
 * wide. */
weir_kv_sinks weir_kv_choice_sinks(const weir_kv_choice *choice, int64_t n_layers);
/* Some layer keeps less than 16-bit floats: answers may differ from those over exact rows, and say
 * so. */
bool weir_kv_any_lossy(const weir_kv_pair *formats, int64_t n_layers);
/* "q8_0/turbo4", or "q8_0/turbo4, f16 in the first and last 2 layers and the first 64 tokens". */
void weir_kv_choice_print(char out[WEIR_KV_FORMATS_TEXT], const weir_kv_choice *choice);
/* The same without the tokens: what session files have had since they have been there. */
void weir_kv_choice_print_layers(char out[WEIR_KV_FORMATS_TEXT], const weir_kv_choice *choice);

#ifdef __cplusplus
}
#endif
