/* tools/load/target.h - the server under load: its address, connections to it, and single requests
 * before the load begins. */
#pragma once
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_load_target {
    char host[256], port[8]; /* without brackets */
    char path[512]; /* before /v1; "" in most cases */
    const char *key; /* borrowed; NULL: none */
    struct sockaddr_storage address;
    socklen_t n_address;
} weir_load_target;

/* Reads "http://HOST[:PORT][/PATH][/v1]" and the key, and checks both. Returns EINVAL. */
WEIR_MUST_CHECK weir_status
weir_load_target_parse(weir_load_target *out, const char *url, const char *key, weir_error *error);
/* Finds the first address that accepts a connection. Returns ENOTFOUND, EIO. */
WEIR_MUST_CHECK weir_status weir_load_target_find(weir_load_target *target, weir_error *error);

/* Begins a connection that does not block; writable once it stands. Returns the descriptor; -1:
 * errno says why. */
int weir_load_connect(const weir_load_target *target);

/* Appends the head of a request; `what` is the path below the server's: "/v1/models". n_body < 0:
 * GET. */
WEIR_MUST_CHECK weir_status
weir_load_head(weir_buffer *out, const weir_load_target *target, const char *what, int64_t n_body);

/* Sends one request and appends the body of its reply, at most 4 MiB. `sent` NULL: GET. Waits for
 * timeout_ms. Returns EIO with a message if there is no whole reply. */
WEIR_MUST_CHECK weir_status weir_load_fetch(
    weir_buffer *body, int *status, const weir_load_target *target, const char *what,
    const weir_buffer *sent, int64_t timeout_ms, weir_error *error
);

#ifdef __cplusplus
}
#endif
