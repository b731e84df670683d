/* engine/text/charsmap.h - SentencePiece's precompiled normalisation (`precompiled_charsmap`):
 * texts and what replaces them, such as NFKC with case folding.
 *
 * A u32 with the bytes of a double array (darts-clone, u32 units, little-endian), the array, then
 * the replacements, each ended by a NUL. A value of the array is an offset among the
 * replacements. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_CHARSMAP_BYTES = 1 << 24,
    WEIR_CHARSMAP_KEY_BYTES = 256, /* longer keys are not found: an array may be a cycle */
    WEIR_REPLACEMENT_BYTES = 1 << 10,
};

/* Zero-initialise: an empty map, which replaces nothing. */
typedef struct weir_charsmap {
    uint32_t *units;
    size_t n_units;
    char *texts;
    size_t n_texts; /* bytes; the last is NUL */
} weir_charsmap;

/* Copies the map. The caller prepends the place to the error message.
 * errors : EFORMAT (cut off, a replacement without end or too long), ENOMEM */
WEIR_MUST_CHECK weir_status
weir_charsmap_open(weir_charsmap *map, const void *bytes, size_t n, weir_error *error);
void weir_charsmap_free(weir_charsmap *map);
/* Appends what was opened; nothing of an empty map.
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status weir_charsmap_write(const weir_charsmap *map, weir_buffer *out);

typedef enum weir_charsmap_rule {
    WEIR_CHARSMAP_LONGEST,
    WEIR_CHARSMAP_SHORTEST
} weir_charsmap_rule;

/* The replacement [*n_to], well-formed and maybe empty, of the longest or shortest key that begins
 * at `text` [n]. Returns the bytes of the key; 0: none. Any array ends in bounds. */
size_t weir_charsmap_match(
    const weir_charsmap *map, weir_charsmap_rule rule, const char *text, size_t n, const char **to,
    size_t *n_to
);

#ifdef __cplusplus
}
#endif
