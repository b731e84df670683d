/* engine/kv/pool/formats.h - the number formats of the layers' pages: pairs as text, which head
 * widths they support, which layers keep a wider format. */
#pragma once
#include "engine/base/error.h"
#include "engine/kv/pool/geometry.h"
#include "kernels/abi/kv_format.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_KV_PAIR_TEXT = 32, WEIR_KV_FORMATS_TEXT = 112 };

/* Parses "q8_0/turbo4" (K and V) or "q8_0" (both). */
bool weir_kv_pair_parse(weir_kv_pair *out, const char *text);
void weir_kv_pair_print(char out[WEIR_KV_PAIR_TEXT], weir_kv_pair pair);
bool weir_kv_pair_is_same(weir_kv_pair a, weir_kv_pair b);

/* Returns ECONFIG if rows of a layer cannot have the formats, with the reason and the formats
 * that fit; `key` is the configuration key. */
WEIR_MUST_CHECK weir_status weir_kv_pair_check(
    weir_kv_pair pair, const weir_kv_geometry *layer, const char *key, weir_error *error
);

/* The formats of a model's layers: `wide` in the first and the last n_wide layers that have KV,
 * `rest` between them, except that the first n_wide_tokens tokens of every sequence are wide in all
 * layers. */
typedef struct weir_kv_choice {
    weir_kv_pair rest, wide;
    int64_t n_wide, n_wide_tokens;
} weir_kv_choice;
/* The formats of layer i of n_layers. */
weir_kv_pair weir_kv_choice_of(const weir_kv_choice *choice, int64_t i, int64_t n_layers);
void weir_kv_choice_fill(weir_kv_pair *out, int64_t n_layers, const weir_kv_choice *choice);
/* The sinks: these tokens in whole pages; none if all layers are wide anyway. */
weir_kv_sinks weir_kv_choice_sinks(const weir_kv_choice *choice, int64_t n_layers);
/* True if some layer stores less than 16-bit floats: answers may differ from those over exact rows,
 * which must be disclosed. */
bool weir_kv_any_lossy(const weir_kv_pair *formats, int64_t n_layers);
/* "q8_0/turbo4", or "q8_0/turbo4, f16 in the first and last 2 layers and the first 64 tokens". */
void weir_kv_choice_print(char out[WEIR_KV_FORMATS_TEXT], const weir_kv_choice *choice);
/* The same without the tokens, as session files store it. */
void weir_kv_choice_print_layers(char out[WEIR_KV_FORMATS_TEXT], const weir_kv_choice *choice);

#ifdef __cplusplus
}
#endif
