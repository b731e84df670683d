#include "engine/serve/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
               127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static weir_status listen_on(
    weir_listener *out, const struct addrinfo *address, const weir_listen_options *o,
    weir_access *access, weir_error *error
)
{
    access->is_loopback = address_is_loopback(address->ai_addr);
    if (!access->is_loopback && access->n_keys == 0 && !o->insecure)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "server.host %s can be reached from other machines and no API key is "
            "set; give server.api_key_file or WEIR_API_KEY, or set "
            "server.insecure if that is meant",
            o->host
        );
    out->fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (out->fd < 0)
        return weir_error_set(error, WEIR_EIO, "cannot make a socket: %s", strerror(errno));
    const int one = 1;
    (void)setsockopt(out->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(out->fd, address->ai_addr, address->ai_addrlen) != 0 || listen(out->fd, 1024) != 0) {
        if (errno == EADDRINUSE)
            return weir_error_set(
                error, WEIR_EIO,
                "port %d of %s is in use by another program; choose another with server.port",
                o->port, o->host
            );
        return weir_error_set(
            error, WEIR_EIO, "cannot listen on %s port %d: %s", o->host, o->port, strerror(errno)
        );
    }
    return WEIR_OK;
}

void weir_access_name(weir_access *access, const char *host)
{
    struct in6_addr address;
    const bool is_address =
        inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
    if (!is_address)
        (void)snprintf(access->own_host, sizeof access->own_host, "%s", host);
    else if (gethostname(access->own_host, sizeof access->own_host - 1) != 0)
        access->own_host[0] = 0;
}

/* Without a key it is for one user, as a loopback address is for one machine. */
static weir_status listen_locally(
    weir_listener *out, const weir_listen_options *o, weir_access *access, weir_error *error
)
{
    access->is_loopback = true;
    return weir_local_socket_open(
        &out->fd, &out->local, o->host, access->n_keys == 0 && !o->insecure, error
    );
}

weir_status weir_listen(
    weir_listener *out, const weir_listen_options *o, weir_access *access, weir_error *error
)
{
    *out = (weir_listener){ .fd = -1 };
    if (weir_local_socket_is_named(o->host)) return listen_locally(out, o, access, error);
    if (o->port < 0 || o->port > 65535)
        return weir_error_set(
            error, WEIR_ECONFIG, "server.port is %d; it must be 0 to 65535", o->port
        );
    char port[8];
    (void)snprintf(port, sizeof port, "%d", o->port);
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    struct addrinfo *found = NULL;
    const int why = getaddrinfo(o->host, port, &hints, &found);
    if (why != 0 || found == NULL)
        return weir_error_set(
            error, WEIR_ECONFIG, "server.host %s is not an address of this machine: %s", o->host,
            gai_strerror(why)
        );
    const struct addrinfo *pick =
        found; /* "localhost" may resolve to ::1 first on a machine without IPv6 */
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next)
        if (a->ai_family == AF_INET && pick->ai_family != AF_INET) pick = a;
    const weir_status status = listen_on(out, pick, o, access, error);
    freeaddrinfo(found);
    if (status != WEIR_OK) return status;

    struct sockaddr_storage bound = { 0 };
    socklen_t size = sizeof bound;
    if (getsockname(out->fd, (struct sockaddr *)&bound, &size) != 0)
        return weir_error_set(error, WEIR_EIO, "cannot read the bound port: %s", strerror(errno));
    out->port = ntohs(
        bound.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&bound)->sin_port
                                   : ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
    );
    return WEIR_OK;
}

struct in6_addr weir_address_of(const struct sockaddr_storage *peer)
{
    struct in6_addr address = { 0 };
    if (peer->ss_family == AF_INET6)
        return ((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr;
    if (peer->ss_family == AF_UNIX) return in6addr_loopback;
    if (peer->ss_family != AF_INET) return address;
    address.s6_addr[10] = address.s6_addr[11] = 0xff;
    memcpy(address.s6_addr + 12, &((const struct sockaddr_in *)(const void *)peer)->sin_addr, 4);
    return address;
}

bool weir_address_is_loopback(const struct in6_addr *address)
{
    return IN6_IS_ADDR_LOOPBACK(address) ||
           (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
}
