/* engine/router/router.h - several models behind one address: an HTTP proxy that starts a server
 * for a model when a request names it, and stops the one used least recently when another needs its
 * memory.
 *
 * Each model is a process of its own (`serve` on a UNIX socket), so that one that fails takes no
 * other down. The router reads of a request what it needs to choose the model, and passes bytes on.
 * It has one thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_router weir_router;

enum { WEIR_ROUTER_MODELS = 16 };

typedef struct weir_router_model {
    const char *name; /* printable ASCII without blanks, quotes and backslashes */
    int64_t bytes; /* of memory that its server may take */
    /* argv of its server, ended by NULL; the router adds --set server.host=SOCKET. */
    const char *const *arguments;
    const char *const
        *keys; /* [n_keys] the only API keys that may use it; 0: those of the router */
    size_t n_keys;
    int keys_fd; /* a descriptor that its server inherits; -1: none */
} weir_router_model;

/* All borrowed until weir_router_close. */
typedef struct weir_router_options {
    const char *host;
    int port;
    bool insecure;
    const char *const *keys; /* [n_keys] that may use each model without keys of its own */
    size_t n_keys;
    const char *allowed_hosts, *allowed_origins; /* engine/serve/access.h */
    int64_t body_limit, header_limit, max_connections;
    int64_t connections_per_address; /* 0: half of max_connections; loopback is exempt */
    int64_t header_timeout_ms, read_timeout_ms, write_timeout_ms;
    int64_t wait_ms; /* of a request for its model */
    int64_t queue; /* requests that wait */
    int64_t stop_ms; /* for a server to end after SIGTERM; then it is killed */
    int64_t backoff_ms; /* after a failure, doubled with each further one, at most 64 times it */
    int64_t memory; /* bytes of all models and of the router itself */
    const char *program; /* path of the servers' program */
    const char *const *environment; /* of the servers, ended by NULL */
    const weir_router_model *models; /* [n_models]; the first is that of requests without a model */
    size_t n_models;
} weir_router_options;

/* Bytes that the router itself may take with these limits: connections and bodies. */
int64_t weir_router_bytes(const weir_router_options *options);
/* Checks the options and listens. Starts no server.
 * errors : ECONFIG; EFULL: a model does not fit in `memory` even alone; EIO */
WEIR_MUST_CHECK weir_status
weir_router_open(weir_router **out, const weir_router_options *options, weir_error *error);
int weir_router_port(const weir_router *router);
/* Serves in the calling thread until stop_fd is readable. Then new requests get 503, and the
 * servers are told to end, which lets running requests end. They also end with this thread. */
WEIR_MUST_CHECK weir_status weir_router_run(weir_router *router, int stop_fd, weir_error *error);
void weir_router_close(weir_router *router); /* NULL-safe */

#ifdef __cplusplus
}
#endif
