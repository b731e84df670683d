/* engine/serve/access.h - access control: API keys, the host names under which clients may address
 * the server (against DNS rebinding), and the origins of pages that may call it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/error.h"
#include "engine/base/sha256.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_ACCESS_KEYS = 64, WEIR_ACCESS_ORIGIN = 256, WEIR_PRIORITY = 1000 };

typedef struct weir_access {
    weir_sha256 key[WEIR_ACCESS_KEYS]; /* digests only; the keys are not stored */
    int32_t priority[WEIR_ACCESS_KEYS]; /* of requests with this key; lower goes first */
    size_t n_keys; /* 0: no key is required */
    bool is_loopback; /* bound to a loopback address: accepts only names of loopback */
    char own_host[256]; /* the name it is bound to or the machine's; "": none */
    /* Borrowed comma-separated lists; may be NULL. "*" in origins: any page. */
    const char *hosts, *origins;
} weir_access;

/* Adds a key, which " priority=N" may follow. EINVAL: empty, too many, not printable ASCII without
 * spaces, or a priority that is not a number from -1000 to 1000. */
WEIR_MUST_CHECK weir_status
weir_access_add(weir_access *access, const char *key, size_t length, weir_error *error);
/* Returns the index of the key in the Authorization header, or if that is absent (NULL) in
 * x-api-key; -1: no match. Takes the same time for all keys of one length. */
int weir_access_check(const weir_access *access, const char *authorization, const char *api_key);

/* ECONFIG: an entry is not a host name, or not an origin such as http://localhost:3000. */
WEIR_MUST_CHECK weir_status weir_access_check_lists(const weir_access *access, weir_error *error);
/* True if a Host header is acceptable: an address with any port, `localhost`, the machine's own
 * name or a listed one. A server on a loopback address accepts only loopback addresses, `localhost`
 * and listed names. */
bool weir_access_host(const weir_access *access, const char *host);
/* True if the origin is listed. */
bool weir_access_origin(const weir_access *access, const char *origin);
/* True if the origin is a page of this host, over http or https. */
bool weir_origin_is_host(const char *origin, const char *host);

#ifdef __cplusplus
}
#endif
