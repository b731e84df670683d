/* engine/serve/watch.c - all connections, and the thread that looks at them four times a second: slow headers and bodies, readers that do
 * not read, clients that left while their request waits (MHD does not watch a suspended connection's socket), pings. */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/serve/internal.h"

enum { TICK_MS = 200, BODY_BYTES_PER_SECOND = 1024 };
static const int64_t half_closed_grace_ns = 1000000000, first_chunk_ns = 5000000000;

/* Bytes the socket has received so far: tells an idle connection from one whose header drips in. */
static uint64_t received_bytes(int fd)
{
    struct tcp_info info;
    socklen_t       size = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
        size < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof(uint64_t))
        return 0;
    return info.tcpi_bytes_received;
}

void weir_watch_opened(weir_server *server, weir_connection *connection)
{
    (void)pthread_mutex_lock(&server->registry_lock);
    connection->since_ns = weir_clock_ns();
    connection->next = server->connections;
    if (connection->next != NULL) connection->next->previous = connection;
    server->connections = connection;
    (void)pthread_mutex_unlock(&server->registry_lock);
}

void weir_watch_closed(weir_server *server, weir_connection *connection)
{
    (void)pthread_mutex_lock(&server->registry_lock);
    if (connection->next != NULL) connection->next->previous = connection->previous;
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else if (server->connections == connection)
        server->connections = connection->next;
    (void)pthread_mutex_unlock(&server->registry_lock);
}

void weir_watch_phase(weir_server *server, weir_connection *connection, weir_phase phase, weir_exchange *exchange)
{
    (void)pthread_mutex_lock(&server->registry_lock);
    connection->phase = phase;
    connection->exchange = exchange;
    connection->chunked = exchange != NULL && exchange->chunked;
    connection->since_ns = weir_clock_ns();
    connection->writing_ns = 0;
    connection->body_bytes = 0;
    if (phase == WEIR_PHASE_IDLE) connection->received = received_bytes(connection->fd);
    (void)pthread_mutex_unlock(&server->registry_lock);
}

void weir_watch_body(weir_server *server, weir_connection *connection, size_t n)
{
    (void)pthread_mutex_lock(&server->registry_lock);
    connection->body_bytes += n;
    (void)pthread_mutex_unlock(&server->registry_lock);
}

void weir_watch_writing(weir_server *server, weir_connection *connection, bool writing)
{
    (void)pthread_mutex_lock(&server->registry_lock);
    connection->writing_ns = writing ? weir_clock_ns() : 0;
    (void)pthread_mutex_unlock(&server->registry_lock);
}

void weir_watch_answer_and_end(int fd, const weir_api_error *error)
{
    weir_payer *const payer = weir_payer_set(NULL); /* a page at most: that memory is short can be said even then */
    weir_buffer       body = { 0 }, text = { 0 };
    if (weir_api_error_write(&body, error) == WEIR_OK &&
        weir_buffer_format(&text,
                           "HTTP/1.1 %d Refused\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n%s",
                           error->status, body.size, error->retry_after > 0 ? "Retry-After: 5\r\n" : "", body.data) == WEIR_OK)
        (void)!send(fd, text.data, text.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    weir_buffer_free(&body);
    weir_buffer_free(&text);
    (void)weir_payer_set(payer);
    (void)shutdown(fd, SHUT_RDWR);
}

/* ---- the watcher ------------------------------------------------------------------------------------------------ */

static void refuse(weir_connection *connection, int status, const char *message)
{
    weir_api_error error;
    (void)!weir_api_fail(&error, status, NULL, NULL, "%s", message);
    weir_watch_answer_and_end(connection->fd, &error);
    connection->since_ns = INT64_MAX / 2; /* said once; MHD closes it when it sees the end of the socket */
}

/* Between requests and in a header MHD has no exchange of ours. An idle connection is closed without a word. */
static void look_at_header(weir_server *server, weir_connection *connection, int64_t now_ns, bool half_closed)
{
    const int64_t limit_ns = server->options.read_timeout_ms * 1000000;
    if (connection->phase == WEIR_PHASE_IDLE && received_bytes(connection->fd) != connection->received) {
        connection->phase = WEIR_PHASE_HEADER;
        connection->since_ns = now_ns;
    }
    const int64_t waited_ns = now_ns - connection->since_ns;
    if (connection->phase == WEIR_PHASE_HEADER && half_closed && waited_ns > half_closed_grace_ns) {
        refuse(connection, 400, "the request ended in its header");
    } else if (waited_ns > limit_ns && connection->phase == WEIR_PHASE_HEADER) {
        refuse(connection, 408, "the header did not arrive in time");
    } else if (waited_ns > limit_ns) {
        (void)shutdown(connection->fd, SHUT_RDWR);
        connection->since_ns = INT64_MAX / 2;
    }
}

/* A chunked body must begin soon: MHD waits without a word for the data of a chunk whose announced size no body can have. */
static void look_at_body(weir_server *server, weir_connection *connection, int64_t now_ns)
{
    const bool    not_begun = connection->chunked && connection->body_bytes == 0 && now_ns - connection->since_ns > first_chunk_ns;
    const int64_t earned_ns = (int64_t)(connection->body_bytes / BODY_BYTES_PER_SECOND) * 1000000000;
    if (not_begun)
        refuse(connection, 400, "the chunked body did not begin");
    else if (now_ns - connection->since_ns > server->options.read_timeout_ms * 1000000 + earned_ns)
        refuse(connection, 408, "the body did not arrive in time");
}

static void look_at_answer(weir_server *server, weir_connection *connection, int64_t now_ns, bool left)
{
    const int64_t limit_ns = server->options.write_timeout_ms * 1000000;
    const bool    stuck = connection->writing_ns != 0 && now_ns - connection->writing_ns > limit_ns;
    if (left || stuck)
        weir_exchange_leave(connection->exchange);
    else
        weir_stream_tick(connection->exchange, now_ns);
    if (stuck) (void)shutdown(connection->fd, SHUT_RDWR);
}

static size_t count_connections(const weir_server *server)
{
    size_t n = 0;
    for (const weir_connection *c = server->connections; c != NULL; c = c->next) n++;
    return n;
}

/* Registry lock held. `fds` is scratch of at least as many entries as there are connections. */
static void look_at_all(weir_server *server, struct pollfd *fds)
{
    nfds_t n = 0;
    for (weir_connection *c = server->connections; c != NULL; c = c->next)
        fds[n++] = (struct pollfd){ .fd = c->fd, .events = (short)POLLRDHUP };
    (void)poll(fds, n, 0);
    const int64_t now_ns = weir_clock_ns();
    n = 0;
    for (weir_connection *c = server->connections; c != NULL; c = c->next) {
        const bool left = (fds[n++].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
        switch (c->phase) {
        case WEIR_PHASE_IDLE:
        case WEIR_PHASE_HEADER: look_at_header(server, c, now_ns, left); break;
        case WEIR_PHASE_BODY: look_at_body(server, c, now_ns); break;
        case WEIR_PHASE_ANSWER: look_at_answer(server, c, now_ns, left); break;
        }
    }
}

void *weir_watch_run(void *argument)
{
    weir_server *const server = argument;
    struct pollfd     *fds = NULL;
    size_t             capacity = 0;
    while (!atomic_load(&server->stopping)) {
        (void)poll(NULL, 0, TICK_MS);
        (void)pthread_mutex_lock(&server->registry_lock);
        const size_t need = count_connections(server);
        if (need > capacity) {
            struct pollfd *const grown = reallocarray(fds, need * 2, sizeof *fds);
            if (grown != NULL) fds = grown, capacity = need * 2;
        }
        if (need > 0 && need <= capacity) look_at_all(server, fds);
        (void)pthread_mutex_unlock(&server->registry_lock);
    }
    free(fds);
    return NULL;
}
