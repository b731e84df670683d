/* engine/serve/loop.c - the HTTP thread: accepts connections, gives each its turn and checks
 * timeouts. Up to max_connections are served. A further one replaces another (close_victim), or
 * gets one of a few spare places, which serve /health and answer 503 to all else. */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/serve/internal.h"
#include "engine/serve/listen.h"

enum { EVENTS = 64, TICK_MS = 200, ACCEPTS_PER_TURN = 64, OTHER_DESCRIPTORS = 128 };

/* ---- the list of connections ----------------------------------------------------------------- */

static void add(weir_loop *loop, weir_connection *c)
{
    c->next = loop->connections;
    if (c->next != NULL) c->next->previous = c;
    loop->connections = c;
    *(c->is_spare ? &loop->n_spare : &loop->n_connections) += 1;
}

/* Frees closed connections; no event of this turn can refer to them any more. */
static void sweep(weir_loop *loop)
{
    for (weir_connection *c = loop->connections, *next; c != NULL; c = next) {
        next = c->next;
        if (c->phase != WEIR_PHASE_CLOSED) continue;
        if (c->next != NULL) c->next->previous = c->previous;
        *(c->previous != NULL ? &c->previous->next : &loop->connections) = c->next;
        *(c->is_spare ? &loop->n_spare : &loop->n_connections) -= 1;
        weir_connection_free(c);
    }
}

void weir_loop_watch(weir_loop *loop, weir_connection *c, uint32_t events)
{
    if (c->events == events) return;
    struct epoll_event event = { .events = events, .data.ptr = c };
    (void)epoll_ctl(loop->epoll, EPOLL_CTL_MOD, c->fd, &event);
    c->events = events;
}

/* ---- accepting ------------------------------------------------------------------------------- */

/* Closes the connection whose loss matters least: an idle one, else one that is reading a header,
 * else one that waits for a body; among equals, the one that waits longest. */
static bool close_victim(weir_loop *loop, bool among_spare)
{
    const int64_t now_ns = weir_clock_ns();
    weir_connection *victim = NULL;
    int least = 3;
    for (weir_connection *c = loop->connections; c != NULL; c = c->next) {
        const int worth = c->is_spare == among_spare ? weir_connection_worth(c, now_ns) : -1;
        if (worth < 0 || worth > least ||
            (worth == least && victim != NULL && c->since_ns > victim->since_ns))
            continue;
        victim = c;
        least = worth;
    }
    if (victim == NULL) return false;
    weir_connection_close(victim);
    sweep(loop);
    return true;
}

/* True if the address has used its share. Loopback clients share one. */
static bool has_share(const weir_server *server, const struct in6_addr *address)
{
    int64_t n = 0;
    if (weir_address_is_loopback(address)) return false;
    for (const weir_connection *c = server->loop.connections; c != NULL; c = c->next)
        n += !c->is_spare && memcmp(&c->address, address, sizeof *address) == 0;
    return n >= server->options.connections_per_address;
}

static bool take(weir_server *server, int fd, const struct in6_addr *address, bool is_spare)
{
    weir_connection *const c = weir_connection_open(server, fd, address, is_spare);
    if (c == NULL) return false;
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };
    c->events = EPOLLIN;
    add(&server->loop, c);
    if (epoll_ctl(server->loop.epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        weir_connection_close(c);
    else
        weir_connection_run(c, 0); /* its request has often arrived already */
    return true;
}

static void admit(weir_server *server, int fd, const struct in6_addr *address)
{
    weir_loop *const loop = &server->loop;
    const bool share = has_share(server, address);
    sweep(loop); /* frees connections that closed in this turn */
    const bool is_place = loop->n_connections < server->options.max_connections;
    if (!share && is_place && take(server, fd, address, false))
        return; /* all places are taken, or there is no memory */
    if (!share && close_victim(loop, false) && take(server, fd, address, false)) return;
    weir_metrics_add(&server->metrics.connections_refused, 1);
    if (loop->n_spare >= WEIR_SPARE_PLACES && !close_victim(loop, true)) {
        (void)close(fd);
        return;
    }
    if (!take(server, fd, address, true)) (void)close(fd);
}

static void listen_for(weir_loop *loop, bool wanted)
{
    struct epoll_event event = { .events = wanted ? EPOLLIN : 0, .data.ptr = &loop->listener };
    (void)epoll_ctl(loop->epoll, EPOLL_CTL_MOD, loop->listener, &event);
    loop->is_full = !wanted;
}

static void accept_some(weir_server *server)
{
    weir_loop *const loop = &server->loop;
    const int one = 1;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage peer = { 0 };
        socklen_t size = sizeof peer;
        const int fd =
            accept4(loop->listener, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (fd < 0) { /* no descriptors or no memory: close an idle one, retry at the next tick */
            if (!close_victim(loop, false)) (void)close_victim(loop, true);
            listen_for(loop, false);
            return;
        }
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        const struct in6_addr address = weir_address_of(&peer);
        admit(server, fd, &address);
    }
}

/* ---- calls from other threads ---------------------------------------------------------------- */

static void ring(const weir_loop *loop)
{
    const uint64_t one = 1;
    (void)!write(loop->wake, &one, sizeof one);
}

/* A token costs one exchange of a flag while the HTTP thread has not seen the one before, and one
 * write otherwise. */
void weir_loop_wake(weir_loop *loop, weir_exchange *x)
{
    if (atomic_exchange(&x->awake, true)) return; /* it will be looked at, or was forgotten */
    (void)pthread_mutex_lock(&loop->lock);
    const bool was_empty = loop->first_awake == NULL;
    if (!x->is_forgotten) {
        x->is_listed = true;
        x->previous_awake = NULL;
        x->next_awake = loop->first_awake;
        if (x->next_awake != NULL) x->next_awake->previous_awake = x;
        loop->first_awake = x;
    }
    const bool rings = was_empty && x->is_listed;
    (void)pthread_mutex_unlock(&loop->lock);
    if (rings) ring(loop);
}

/* Requires the lock. */
static void unlink_awake(weir_loop *loop, weir_exchange *x)
{
    if (!x->is_listed) return;
    x->is_listed = false;
    if (x->next_awake != NULL) x->next_awake->previous_awake = x->previous_awake;
    *(x->previous_awake != NULL ? &x->previous_awake->next_awake : &loop->first_awake) =
        x->next_awake;
}

void weir_loop_forget(weir_loop *loop, weir_exchange *x)
{
    (void)pthread_mutex_lock(&loop->lock);
    unlink_awake(loop, x);
    x->is_forgotten = true;
    (void)pthread_mutex_unlock(&loop->lock);
}

void weir_loop_command(weir_loop *loop, unsigned command)
{
    (void)pthread_mutex_lock(&loop->lock);
    loop->commands |= command;
    (void)pthread_mutex_unlock(&loop->lock);
    ring(loop);
}

static weir_exchange *next_awake(weir_loop *loop)
{
    (void)pthread_mutex_lock(&loop->lock);
    weir_exchange *const x = loop->first_awake;
    if (x != NULL) unlink_awake(loop, x);
    (void)pthread_mutex_unlock(&loop->lock);
    /* Before it is looked at: what comes later wakes it again. */
    if (x != NULL) (void)atomic_exchange(&x->awake, false);
    return x;
}

static unsigned take_commands(weir_loop *loop)
{
    (void)pthread_mutex_lock(&loop->lock);
    const unsigned commands = loop->commands;
    loop->commands = 0;
    (void)pthread_mutex_unlock(&loop->lock);
    return commands;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void handle_events(weir_server *server, const struct epoll_event *events, int n)
{
    weir_loop *const loop = &server->loop;
    bool has_new = false;
    for (int i = 0; i < n; i++) {
        uint64_t count;
        if (events[i].data.ptr == &loop->listener)
            has_new = true;
        else if (events[i].data.ptr == &loop->wake)
            (void)!read(loop->wake, &count, sizeof count);
        else
            weir_connection_run(events[i].data.ptr, events[i].events);
    }
    if (has_new) accept_some(server); /* last, because it frees connections that events refer to */
}

static void handle_awake(weir_loop *loop)
{
    for (weir_exchange *x = next_awake(loop); x != NULL; x = next_awake(loop))
        if (x->connection->phase == WEIR_PHASE_ANSWER) weir_connection_run(x->connection, 0);
}

/* Returns true at the end. */
static bool handle_commands(weir_loop *loop)
{
    const unsigned commands = take_commands(loop);
    for (weir_connection *c = loop->connections; c != NULL && commands != 0; c = c->next) {
        if (commands & WEIR_LOOP_QUIT)
            weir_connection_close(c);
        else if (c->exchange != NULL && (commands & WEIR_LOOP_LEAVE) != 0)
            weir_exchange_leave(c->exchange);
        else if (c->exchange != NULL)
            weir_exchange_stop(c->exchange);
    }
    return (commands & WEIR_LOOP_QUIT) != 0;
}

static void tick(weir_loop *loop, int64_t now_ns)
{
    for (weir_connection *c = loop->connections; c != NULL; c = c->next)
        weir_connection_tick(c, now_ns);
    if (loop->is_full) listen_for(loop, true);
}

static bool run_again(weir_loop *loop)
{
    bool again = false;
    for (weir_connection *c = loop->connections; c != NULL; c = c->next) {
        if (c->again) weir_connection_run(c, 0);
        again |= c->again;
    }
    return again;
}

static void *run(void *argument)
{
    weir_server *const server = argument;
    weir_loop *const loop = &server->loop;
    struct epoll_event events[EVENTS];
    int64_t next_tick_ns = 0;
    bool again = false;
    (void)weir_memory_tracker_set(&server->tracker.tracker);
    for (bool over = false; !over;) {
        const int n = epoll_wait(loop->epoll, events, EVENTS, again ? 0 : TICK_MS);
        const int64_t now_ns = weir_clock_ns();
        handle_events(server, events, n);
        handle_awake(loop);
        over = handle_commands(loop);
        if (now_ns >= next_tick_ns) {
            tick(loop, now_ns);
            next_tick_ns = now_ns + TICK_MS * 1000000LL;
        }
        again = run_again(loop);
        sweep(loop);
    }
    return NULL;
}

/* Raises the limit of descriptors to what connections need, if the hard limit allows. Below that,
 * idle connections are closed. */
static void raise_descriptors(int64_t max_connections)
{
    struct rlimit limit;
    const rlim_t want = (rlim_t)max_connections + WEIR_SPARE_PLACES + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want) return;
    limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

weir_status weir_loop_open(weir_server *server, weir_error *error)
{
    weir_loop *const loop = &server->loop;
    struct epoll_event listener = { .events = EPOLLIN, .data.ptr = &loop->listener };
    struct epoll_event wake = { .events = EPOLLIN, .data.ptr = &loop->wake };
    raise_descriptors(server->options.max_connections);
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->epoll < 0 || loop->wake < 0 ||
        epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->listener, &listener) != 0 ||
        epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->wake, &wake) != 0)
        return weir_error_set(
            error, WEIR_EIO, "cannot watch the server's socket: %s", strerror(errno)
        );
    return WEIR_OK;
}

weir_status weir_loop_start(weir_server *server, weir_error *error)
{
    if (pthread_create(&server->loop.thread, NULL, run, server) != 0)
        return weir_error_set(error, WEIR_ENOMEM, "cannot start the HTTP thread");
    server->loop.running = true;
    return WEIR_OK;
}

void weir_loop_close(weir_loop *loop)
{
    if (loop->running) {
        weir_loop_command(loop, WEIR_LOOP_QUIT);
        (void)pthread_join(loop->thread, NULL);
        loop->running = false;
    }
    for (int *const *fd = (int *const[]){ &loop->listener, &loop->epoll, &loop->wake, NULL };
         *fd != NULL; fd++) {
        if (**fd >= 0) (void)close(**fd);
        **fd = -1;
    }
}
