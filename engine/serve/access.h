/* engine/serve/access.h - who may ask: API keys, the names under which the server may be addressed
 * (a page whose name was made to point here, DNS rebinding, names its own), and the pages that may
 * ask. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/error.h"
#include "engine/serve/sha256.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_ACCESS_KEYS = 64, WEIR_ACCESS_ORIGIN = 256 };

typedef struct weir_access {
    weir_sha256 key[WEIR_ACCESS_KEYS]; /* digests only: the keys themselves are not kept */
    size_t n_keys; /* 0: everybody may ask */
    bool is_loopback; /* it listens on a loopback address: others are not its names */
    char own_host[256]; /* the name that it listens on or that the machine has; "": none */
    const char *hosts,
        *origins; /* borrowed lists with commas; may be NULL. "*" in origins: any page */
} weir_access;

/* EINVAL: empty, too many, or not printable ASCII without spaces. */
WEIR_MUST_CHECK weir_status
weir_access_add(weir_access *access, const char *key, size_t length, weir_error *error);
/* Index of the key in an Authorization header, or without one in x-api-key (NULL: absent); -1: none
 * fits. Takes the same time for any key of one length. */
int weir_access_check(const weir_access *access, const char *authorization, const char *api_key);

/* ECONFIG: an entry of a list is no host name, or no origin such as http://localhost:3000. */
WEIR_MUST_CHECK weir_status weir_access_check_lists(const weir_access *access, weir_error *error);
/* A Host header: an address, with any port, `localhost`, the machine's own name or a listed one. A
 * server on a loopback address has only loopback addresses, `localhost` and listed names. */
bool weir_access_host(const weir_access *access, const char *host);
/* A listed origin. */
bool weir_access_origin(const weir_access *access, const char *origin);
/* The origin is a page of this host itself, over http or https. */
bool weir_origin_is_host(const char *origin, const char *host);

#ifdef __cplusplus
}
#endif
