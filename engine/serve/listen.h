/* engine/serve/listen.h - the socket on which a server or a router listens. */
#pragma once
#include <netinet/in.h>

#include "engine/serve/access.h"
#include "engine/serve/local_socket.h"

#ifdef __cplusplus
extern "C" {
#endif

/* server.host, server.port and server.insecure. */
typedef struct weir_listen_options {
    const char *host;
    int port; /* 0: any free one */
    bool insecure;
} weir_listen_options;

typedef struct weir_listener {
    int fd; /* the caller closes it, also on failure; -1: none */
    int port; /* 0: a UNIX socket */
    weir_local_socket local; /* the caller removes it */
} weir_listener;

/* Sets the name by which clients may address a server: `host`, or the machine's if that is an
 * address. */
void weir_access_name(weir_access *access, const char *host);
/* Listens, and sets access->is_loopback. The keys are in `access` before.
 * errors : ECONFIG: no such address, or one that other machines reach without key and without
 *          `insecure`; EIO: it is in use */
WEIR_MUST_CHECK weir_status weir_listen(
    weir_listener *out, const weir_listen_options *options, weir_access *access, weir_error *error
);

/* The address of a peer, by which its share of connections is counted: IPv4 as IPv6 maps it, the
 * loopback address for a UNIX socket. */
struct in6_addr weir_address_of(const struct sockaddr_storage *peer);
bool weir_address_is_loopback(const struct in6_addr *address);

#ifdef __cplusplus
}
#endif
