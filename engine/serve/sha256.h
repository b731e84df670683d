/* engine/serve/sha256.h - SHA-256 (FIPS 180-4) of short strings: API keys are stored and compared
 * as digests. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_sha256 {
    uint8_t bytes[32];
} weir_sha256;
weir_sha256 weir_sha256_of(const void *data, size_t n);

#ifdef __cplusplus
}
#endif
