/* engine/serve/access.h - who may ask: API keys, and the names under which a loopback server may be addressed. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/error.h"
#include "engine/serve/sha256.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_ACCESS_KEYS = 64 };

typedef struct weir_access {
    weir_sha256 key[WEIR_ACCESS_KEYS]; /* digests only: the keys themselves are not kept */
    size_t      n_keys;                /* 0: everybody may ask */
} weir_access;

/* EINVAL: empty, too many, or not printable ASCII without spaces. */
WEIR_MUST_CHECK weir_status weir_access_add(weir_access *access, const char *key, size_t length, weir_error *error);
/* Index of the key in an Authorization header (NULL: absent), -1: none fits. Takes the same time for any key of one length. */
int weir_access_check(const weir_access *access, const char *authorization);

/* A loopback address or `localhost`, with any port: what a Host header may say while the server is bound to loopback. */
bool weir_host_is_loopback(const char *host);

#ifdef __cplusplus
}
#endif
