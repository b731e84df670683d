/* engine/router/router.c - opens the router, accepts connections and gives each its turn. */
#include "engine/router/router.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/router/internal.h"

enum {
    EVENTS = 64,
    TICK_MS = 50, /* also how soon a server that listens is found */
    IDLE_TICK_MS = 500,
    ACCEPTS_PER_TURN = 64,
    OTHER_DESCRIPTORS = 64,
    BODIES = 4, /* of body_limit, that all requests may have on their way */
    UP_BYTES = 64 << 10, /* of each request besides */
    PROCESS_BYTES = 8 << 20, /* program, stack, libraries */
};

/* For clients to take the ends of their answers. */
static const int64_t last_words_ns = 1000000000;

static int64_t body_budget(const weir_router_options *o)
{
    return BODIES * o->body_limit + (o->max_connections + WEIR_ROUTE_SPARE) * UP_BYTES;
}

int64_t weir_router_bytes(const weir_router_options *o)
{
    const int64_t each =
        (int64_t)sizeof(weir_route) + o->header_limit + WEIR_ROUTE_HEAD_LINE + WEIR_ROUTE_PIECE;
    return PROCESS_BYTES + (o->max_connections + WEIR_ROUTE_SPARE) * each + body_budget(o);
}

/* ---- opening --------------------------------------------------------------------------------- */

static weir_status fill_access(
    weir_access *access, const char *const *keys, size_t n, weir_error *error
)
{
    for (size_t i = 0; i < n; i++)
        WEIR_TRY(weir_access_add(access, keys[i], strlen(keys[i]), error));
    return WEIR_OK;
}

static weir_status fill_models(weir_router *router, weir_error *error)
{
    const weir_router_options *const o = &router->options;
    const double mib = 1024.0 * 1024.0;
    const int64_t own = weir_router_bytes(o);
    router->loads.bytes = o->memory - own;
    if (o->n_models == 0 || o->n_models > WEIR_ROUTER_MODELS)
        return weir_error_set(
            error, WEIR_ECONFIG, "a router has 1 to %d models", (int)WEIR_ROUTER_MODELS
        );
    router->loads.n = o->n_models; /* weir_router_close goes by it */
    for (size_t i = 0; i < o->n_models; i++) {
        router->loads.of[i] = (weir_load){ .name = o->models[i].name, .bytes = o->models[i].bytes };
        router->children[i].source.fd = -1;
        WEIR_TRY(fill_access(&router->own[i], o->models[i].keys, o->models[i].n_keys, error));
        if (o->models[i].bytes > router->loads.bytes)
            return weir_error_set(
                error, WEIR_EFULL,
                "the model %s has memory = %.1f MiB, and of memory.host, %.1f MiB, %.1f MiB are "
                "left when the router has its %.1f MiB for connections and bodies; raise "
                "memory.host, or lower the model's memory, server.body_limit or "
                "server.max_connections",
                o->models[i].name, (double)o->models[i].bytes / mib, (double)o->memory / mib,
                (double)router->loads.bytes / mib, (double)own / mib
            );
    }
    return WEIR_OK;
}

static weir_status make_folder(weir_router *router, weir_error *error)
{
    (void)snprintf(router->folder, sizeof router->folder, "/tmp/weir-router-XXXXXX");
    if (mkdtemp(router->folder) != NULL) return WEIR_OK; /* mode 0700 */
    const int why = errno;
    router->folder[0] = '\0';
    return weir_error_set(
        error, WEIR_EIO, "cannot make a folder for sockets in /tmp: %s", strerror(why)
    );
}

/* Without keys of the router, a model without keys of its own is open to all. */
static weir_status listen_now(weir_router *router, weir_error *error)
{
    const weir_router_options *const o = &router->options;
    const weir_listen_options where = { o->host, o->port, o->insecure };
    weir_access_name(&router->access, o->host);
    WEIR_TRY(weir_access_check_lists(&router->access, error));
    return weir_listen(&router->listener, &where, &router->access, error);
}

static weir_status watch_source(weir_router *router, weir_route_source *source, weir_error *error)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = source };
    if (epoll_ctl(router->epoll, EPOLL_CTL_ADD, source->fd, &event) == 0) return WEIR_OK;
    return weir_error_set(error, WEIR_EIO, "cannot watch a descriptor: %s", strerror(errno));
}

weir_status weir_router_open(
    weir_router **out, const weir_router_options *options, weir_error *error
)
{
    weir_router *const router = calloc(1, sizeof *router);
    if (router == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the router");
    router->options = *options;
    router->listener.fd = -1;
    router->access.hosts = options->allowed_hosts;
    router->access.origins = options->allowed_origins;
    router->start_unix = weir_clock_unix_seconds();
    router->body_limit = body_budget(options);
    weir_router_options *const o = &router->options;
    if (o->connections_per_address <= 0) o->connections_per_address = (o->max_connections + 1) / 2;
    router->epoll = epoll_create1(EPOLL_CLOEXEC);
    weir_status status = WEIR_OK;
    if (router->epoll < 0)
        status = weir_error_set(error, WEIR_EIO, "cannot watch sockets: %s", strerror(errno));
    if (status == WEIR_OK) status = fill_access(&router->access, o->keys, o->n_keys, error);
    if (status == WEIR_OK) status = fill_models(router, error);
    if (status == WEIR_OK) status = make_folder(router, error);
    if (status == WEIR_OK) status = listen_now(router, error);
    if (status == WEIR_OK) {
        router->listening =
            (weir_route_source){ WEIR_ROUTE_LISTENER, router->listener.fd, EPOLLIN, router };
        status = watch_source(router, &router->listening, error);
    }
    if (status == WEIR_OK)
        *out = router;
    else
        weir_router_close(router);
    return status;
}

int weir_router_port(const weir_router *router) { return router->listener.port; }

/* ---- connections ----------------------------------------------------------------------------- */

/* Frees closed connections; no event of this turn can refer to them any more. */
static void sweep(weir_router *router)
{
    for (weir_route *r = router->routes, *next; r != NULL; r = next) {
        next = r->next;
        if (r->phase != WEIR_ROUTE_CLOSED) continue;
        if (next != NULL) next->previous = r->previous;
        *(r->previous != NULL ? &r->previous->next : &router->routes) = next;
        *(r->is_spare ? &router->n_spare : &router->n_routes) -= 1;
        weir_route_free(r);
    }
}

/* The address has used its share. */
static bool has_share(const weir_router *router, const struct in6_addr *address)
{
    int64_t n = 0;
    if (weir_address_is_loopback(address)) return false;
    for (const weir_route *r = router->routes; r != NULL; r = r->next)
        n += !r->is_spare && memcmp(&r->address, address, sizeof *address) == 0;
    return n >= router->options.connections_per_address;
}

static bool is_victim(const weir_route *r)
{
    return !r->is_spare && (r->phase == WEIR_ROUTE_HEAD || r->phase == WEIR_ROUTE_LINGER);
}

/* Of those that wait for a head or for the peer to close, the oldest makes room. A head that has
 * arrived is read first. */
static bool close_victim(weir_router *router)
{
    weir_route *victim;
    do {
        victim = NULL;
        for (weir_route *r = router->routes; r != NULL; r = r->next)
            if (is_victim(r) && (victim == NULL || r->since_ns < victim->since_ns)) victim = r;
        if (victim == NULL) return false;
        weir_route_run(victim, NULL, 0);
    } while (victim->phase != WEIR_ROUTE_CLOSED && !is_victim(victim));
    weir_route_close(victim);
    sweep(router);
    return true;
}

static void admit(weir_router *router, int fd, const struct in6_addr *address)
{
    sweep(router); /* frees connections that closed in this turn */
    bool is_spare = has_share(router, address);
    if (!is_spare && router->n_routes >= router->options.max_connections)
        is_spare = !close_victim(router);
    weir_route *const r = is_spare && router->n_spare >= WEIR_ROUTE_SPARE
                              ? NULL
                              : weir_route_open(router, fd, address, is_spare);
    if (r == NULL) {
        router->n_refused++;
        (void)close(fd);
        return;
    }
    r->next = router->routes;
    if (r->next != NULL) r->next->previous = r;
    router->routes = r;
    *(is_spare ? &router->n_spare : &router->n_routes) += 1;
    weir_route_run(r, NULL, 0); /* its request has often arrived already */
}

static void accept_some(weir_router *router)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage peer = { 0 };
        socklen_t size = sizeof peer;
        const int fd = accept4(
            router->listener.fd, (struct sockaddr *)&peer, &size, SOCK_CLOEXEC | SOCK_NONBLOCK
        );
        const struct in6_addr address = weir_address_of(&peer);
        if (fd < 0) return; /* of descriptors that are used up some are free after a tick */
        admit(router, fd, &address);
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void handle(weir_router *router, const struct epoll_event *events, int n, bool *stop)
{
    bool has_new = false;
    for (int i = 0; i < n; i++) {
        const weir_route_source *const source = events[i].data.ptr;
        switch (source->kind) {
        case WEIR_ROUTE_LISTENER: has_new = true; break;
        case WEIR_ROUTE_STOP: *stop = true; break;
        case WEIR_ROUTE_CHILD: {
            const weir_child *const child = source->owner;
            if (child->pid != 0)
                weir_supply_ended(router, (size_t)(child - router->children), weir_clock_ns());
            break;
        }
        case WEIR_ROUTE_CLIENT:
        case WEIR_ROUTE_SERVER: weir_route_run(source->owner, source, events[i].events); break;
        }
    }
    if (has_new) accept_some(router); /* last, because it frees connections */
}

static void tick(weir_router *router, int64_t now_ns)
{
    for (weir_route *r = router->routes; r != NULL; r = r->next) {
        weir_route_tick(r, now_ns);
        weir_route_watch(r);
    }
}

static bool is_loading(const weir_router *router)
{
    for (size_t i = 0; i < router->loads.n; i++)
        if (router->loads.of[i].state == WEIR_LOAD_BEGUN) return true;
    return false;
}

/* One turn; sets *stop if stop_fd is readable. */
static void turn(weir_router *router, bool *stop)
{
    struct epoll_event events[EVENTS];
    const int n =
        epoll_wait(router->epoll, events, EVENTS, is_loading(router) ? TICK_MS : IDLE_TICK_MS);
    handle(router, events, n, stop);
    const int64_t now_ns = weir_clock_ns();
    tick(router, now_ns);
    weir_supply_run(router, now_ns);
    sweep(router);
}

static bool is_busy(const weir_router *router)
{
    for (const weir_route *r = router->routes; r != NULL; r = r->next)
        if (r->phase == WEIR_ROUTE_PASS || r->phase == WEIR_ROUTE_ANSWER) return true;
    return false;
}

static size_t n_children(const weir_router *router)
{
    size_t n = 0;
    for (size_t i = 0; i < router->loads.n; i++) n += router->children[i].pid != 0;
    return n;
}

/* New requests are answered with 503. Servers let running answers end, as they do without a router,
 * save what they keep, and end; what they wrote is passed on. */
static void drain(weir_router *router)
{
    bool stop = false;
    router->drains = true;
    (void)epoll_ctl(router->epoll, EPOLL_CTL_DEL, router->stopping.fd, NULL);
    for (weir_route *r = router->routes; r != NULL; r = r->next)
        if (r->phase == WEIR_ROUTE_WAIT) weir_supply_ask(r);
    for (size_t i = 0; i < router->loads.n; i++) {
        if (router->children[i].pid == 0) continue;
        router->loads.of[i].state = WEIR_LOAD_ENDING;
        weir_child_stop(router, i, weir_clock_ns());
    }
    while (n_children(router) > 0) turn(router, &stop);
    const int64_t deadline_ns = weir_clock_ns() + last_words_ns;
    while (is_busy(router) && weir_clock_ns() < deadline_ns) turn(router, &stop);
}

/* Two descriptors for each connection, if the hard limit allows. */
static void raise_descriptors(int64_t max_connections)
{
    struct rlimit limit;
    const rlim_t want = 2 * ((rlim_t)max_connections + WEIR_ROUTE_SPARE) + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want) return;
    limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

weir_status weir_router_run(weir_router *router, int stop_fd, weir_error *error)
{
    bool stop = false;
    router->stopping = (weir_route_source){ WEIR_ROUTE_STOP, stop_fd, EPOLLIN, router };
    WEIR_TRY(watch_source(router, &router->stopping, error));
    raise_descriptors(router->options.max_connections);
    while (!stop) turn(router, &stop);
    drain(router);
    return WEIR_OK;
}

void weir_router_close(weir_router *router)
{
    if (router == NULL) return;
    for (weir_route *r = router->routes; r != NULL; r = r->next) weir_route_close(r);
    sweep(router);
    for (size_t i = 0; i < router->loads.n; i++) {
        if (router->children[i].pid == 0) continue;
        (void)kill(router->children[i].pid, SIGKILL);
        (void)weir_child_end(router, i);
    }
    weir_local_socket_remove(&router->listener.local);
    if (router->listener.fd >= 0) (void)close(router->listener.fd);
    if (router->epoll >= 0) (void)close(router->epoll);
    if (router->folder[0] != '\0') (void)rmdir(router->folder);
    free(router);
}
