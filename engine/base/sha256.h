/* engine/base/sha256.h - SHA-256 (FIPS 180-4), of short strings at once and of files as they
 * arrive. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_sha256 {
    uint8_t bytes[32];
} weir_sha256;
weir_sha256 weir_sha256_of(const void *data, size_t n);

/* The sum of bytes that come in pieces: begin, add ..., end. */
typedef struct weir_sha256_stream {
    uint32_t state[8];
    uint64_t n_bytes;
    uint8_t block[64]; /* the last n_bytes % 64 bytes */
} weir_sha256_stream;
void weir_sha256_begin(weir_sha256_stream *stream);
void weir_sha256_add(weir_sha256_stream *stream, const void *data, size_t n);
weir_sha256 weir_sha256_end(weir_sha256_stream *stream);

/* 64 lower-case hexadecimal digits; parsing takes upper case, too, and `text` may go on. */
enum { WEIR_SHA256_HEX = 64 };
void weir_sha256_text(char out[WEIR_SHA256_HEX + 1], const weir_sha256 *sum);
bool weir_sha256_parse(weir_sha256 *out, const char *text);

/* ---- implementations, for tests -------------------------------------------------------------- */

typedef void weir_sha256_blocks(uint32_t state[8], const uint8_t *blocks, size_t n);
weir_sha256_blocks weir_sha256_blocks_plain, weir_sha256_blocks_shani;
bool weir_sha256_has_shani(void); /* whether this processor has the SHA instructions */

#ifdef __cplusplus
}
#endif
