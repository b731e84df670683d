/* engine/serve/connection.c - one connection: it reads a request, sends the answer and starts over.
 * A step returns true when it entered another phase, false when it must wait. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/serve/internal.h"

enum {
    SPARE_HEADER_BYTES = 4 << 10, /* for a connection that serves only /health */
    REQUESTS_PER_TURN = 64, /* pipelined requests before other connections get their turn */
    LINGER_BYTES = 64 << 20,
};
static const int64_t linger_ns = 2000000000, spare_ns = 2000000000, stall_ns = 2000000000;
static const int64_t body_bytes_per_second = 1024;

static_assert(
    sizeof(weir_connection) <= WEIR_CONNECTION_RECORD + WEIR_REPLY_HEADER_BYTES,
    "weir_connection_bytes does not cover it"
);

static int64_t header_limit(const weir_server *server, bool is_spare)
{
    return is_spare ? SPARE_HEADER_BYTES : server->options.header_limit;
}

weir_connection *weir_connection_open(
    weir_server *server, int fd, const struct in6_addr *address, bool is_spare
)
{
    const size_t limit = (size_t)header_limit(server, is_spare),
                 capacity = limit + WEIR_REQUEST_LINE_BYTES;
    weir_memory_tracker *tracker = &server->tracker.tracker;
    if (!is_spare && !tracker->charge(tracker, weir_connection_bytes(limit)))
        return NULL; /* spare ones belong to account process */
    /* A mapping, so that the memory returns to the system when the connection closes. */
    void *const memory = mmap(
        NULL, sizeof(weir_connection) + capacity, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0
    );
    if (memory == MAP_FAILED) {
        if (!is_spare) tracker->refund(tracker, weir_connection_bytes(limit));
        return NULL;
    }
    weir_connection *const c = memory;
    c->server = server;
    c->fd = fd;
    c->address = *address;
    c->is_spare = is_spare;
    c->since_ns = c->moved_ns = weir_clock_ns();
    c->head.limit = limit;
    c->in_capacity = capacity;
    return c;
}

void weir_connection_free(weir_connection *c)
{
    weir_memory_tracker *const tracker = &c->server->tracker.tracker;
    const size_t charged =
        c->is_spare ? 0 : weir_connection_bytes((size_t)c->server->options.header_limit);
    (void)munmap(c, sizeof *c + c->in_capacity);
    if (charged > 0) tracker->refund(tracker, charged);
}

static void enter(weir_connection *c, weir_phase phase)
{
    c->phase = phase;
    c->since_ns = weir_clock_ns();
}

static void let_go(weir_connection *c, bool complete)
{
    if (c->exchange != NULL) weir_exchange_detach(c->exchange, complete);
    c->exchange = NULL;
}

void weir_connection_close(weir_connection *c)
{
    if (c->phase == WEIR_PHASE_CLOSED) return;
    let_go(c, false);
    enter(c, WEIR_PHASE_CLOSED);
    (void)close(c->fd); /* close also removes it from epoll */
    c->fd = -1;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Returns 1 if bytes were received, 0 if there are none now or the peer has closed (then
 * c->peer_closed is set). Closes the connection on failure. */
static int receive(weir_connection *c, char *to, size_t n, size_t *received)
{
    ssize_t got;
    do {
        got = recv(c->fd, to, n, 0);
    } while (got < 0 && errno == EINTR);
    if (got == 0) c->peer_closed = true;
    if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK) weir_connection_close(c);
    if (got <= 0) return 0;
    *received = (size_t)got;
    c->moved_ns = weir_clock_ns();
    return 1;
}

static int receive_in(weir_connection *c)
{
    size_t got = 0;
    if (c->in_used == c->in_capacity) return 0;
    const int some = receive(c, c->in + c->in_used, c->in_capacity - c->in_used, &got);
    c->in_used += got;
    return some;
}

static void consume(weir_connection *c, size_t n)
{
    c->in_used -= n;
    memmove(c->in, c->in + n, c->in_used);
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* Answers the request being read with an error, then closes the connection. */
static bool refuse(weir_connection *c, int status, const char *text)
{
    if (c->exchange == NULL) c->exchange = weir_exchange_open(c, "", "");
    if (c->exchange == NULL) {
        weir_connection_close(c);
        return true;
    }
    (void)!weir_api_fail(&c->exchange->error, status, NULL, NULL, "%s", text);
    c->close_after = true;
    weir_reply_error(c->exchange);
    enter(c, WEIR_PHASE_ANSWER);
    return true;
}

/* ---- requests -------------------------------------------------------------------------------- */

static bool dispatch(weir_connection *c)
{
    weir_exchange *const x = c->exchange;
    enter(c, WEIR_PHASE_ANSWER);
    if (x->route->by_worker)
        weir_workers_add(&c->server->workers, x, WEIR_WORK_START);
    else
        weir_exchange_run(x);
    return true;
}

/* An exchange that is ready without a body makes the empty answer. */
static bool answer_options(weir_connection *c)
{
    weir_buffer nothing = { 0 };
    weir_reply_json(c->exchange, 204, &nothing);
    c->exchange->content_type = NULL;
    enter(c, WEIR_PHASE_ANSWER);
    return true;
}

static bool begin_body(weir_connection *c, bool expects_continue)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    c->chunks = (weir_http_chunks){ 0 };
    c->body_bytes = 0;
    enter(c, WEIR_PHASE_BODY);
    if (expects_continue && c->in_used == 0 && !c->http_1_0 &&
        send(c->fd, go_on, sizeof go_on - 1, MSG_DONTWAIT | MSG_NOSIGNAL) !=
            (ssize_t)sizeof go_on - 1)
        weir_connection_close(c);
    return true;
}

/* Called when the head is complete. */
static bool begin_request(weir_connection *c)
{
    const weir_http_head head = c->head;
    const char *const expect = weir_http_value(&head, c->in, WEIR_HTTP_EXPECT);
    const bool expects_continue = expect != NULL;
    c->n_requests++;
    c->close_after = !head.keep_alive;
    c->http_1_0 = head.minor == 0;
    c->head_only = strcmp(c->in + head.method, "HEAD") == 0;
    c->chunked = head.chunked;
    c->body_left = head.length > 0 ? head.length : 0;
    weir_exchange *const x = c->exchange =
        weir_exchange_open(c, c->in + head.method, c->in + head.target);
    if (x == NULL) {
        weir_connection_close(c);
        return true;
    }
    bool must_close = false;
    c->close_after |= x->is_spare;
    weir_status status = weir_check_head(x, &head, c->in, &must_close);
    consume(c, head.scanned);
    c->head = (weir_http_head){ .limit = head.limit };
    if (status == WEIR_OK && strcmp(x->method, "OPTIONS") == 0 && x->route == NULL) {
        c->close_after |= must_close;
        return answer_options(c);
    }
    if (status == WEIR_OK && strcmp(x->method, "POST") == 0 &&
        !weir_exchange_charge(x, (size_t)c->body_left))
        status = weir_api_fail(
            &x->error, 503, NULL, NULL, "no memory for a body of %lld bytes now; try again",
            (long long)c->body_left
        );
    if (status == WEIR_OK)
        return c->chunked || c->body_left > 0 ? begin_body(c, expects_continue) : dispatch(c);
    c->close_after |= must_close || c->chunked || c->body_left > 0;
    weir_reply_error(x);
    enter(c, WEIR_PHASE_ANSWER);
    return true;
}

static bool read_head(weir_connection *c)
{
    weir_http_problem problem = { 0 };
    do {
        if (c->in_used == c->head.scanned) continue;
        if (c->phase == WEIR_PHASE_IDLE) enter(c, WEIR_PHASE_HEADER);
        switch (weir_http_head_read(&c->head, c->in, c->in_used, &problem)) {
        case WEIR_HTTP_MORE: break;
        case WEIR_HTTP_DONE: return begin_request(c);
        case WEIR_HTTP_BAD: return refuse(c, problem.status, problem.text);
        }
    } while (receive_in(c));
    if (c->phase == WEIR_PHASE_CLOSED || !c->peer_closed) return false;
    if (c->phase == WEIR_PHASE_HEADER) return refuse(c, 400, "the request ended in its header");
    weir_connection_close(c);
    return true;
}

/* Bodies of methods other than POST have no meaning and are skipped. */
static bool add_to_body(weir_connection *c, const char *bytes, size_t n)
{
    weir_exchange *const x = c->exchange;
    c->body_bytes += (int64_t)n;
    if (c->body_bytes > c->server->options.body_limit)
        return refuse(c, 413, "the body is larger than this server takes"), false;
    if (strcmp(x->method, "POST") != 0) return true;
    if (!weir_exchange_charge(x, n) || weir_buffer_add(&x->body, bytes, n) != WEIR_OK)
        return refuse(c, 503, "no memory for the body now; try again"), false;
    return true;
}

/* Returns true if the phase changed. */
static bool read_chunks(weir_connection *c)
{
    weir_http_problem problem = { 0 };
    while (c->in_used > 0) {
        size_t used = 0, n_data = 0;
        const weir_http_progress progress =
            weir_http_chunks_read(&c->chunks, c->in, c->in_used, &used, &n_data, &problem);
        if (progress == WEIR_HTTP_BAD) return refuse(c, problem.status, problem.text);
        if ((int64_t)c->chunks.left > c->server->options.body_limit)
            return refuse(c, 413, "the body is larger than this server takes");
        if (!add_to_body(c, c->in + used - n_data, n_data)) return true;
        consume(c, used);
        if (progress == WEIR_HTTP_DONE) return dispatch(c);
    }
    return false;
}

static bool read_sized(weir_connection *c)
{
    const size_t n = (int64_t)c->in_used < c->body_left ? c->in_used : (size_t)c->body_left;
    if (!add_to_body(c, c->in, n)) return true;
    consume(c, n);
    c->body_left -= (int64_t)n;
    return c->body_left == 0 && dispatch(c);
}

static bool read_body(weir_connection *c)
{
    do {
        if (c->in_used > 0 && (c->chunked ? read_chunks(c) : read_sized(c))) return true;
    } while (receive_in(c));
    if (c->phase == WEIR_PHASE_CLOSED || !c->peer_closed) return false;
    return refuse(c, 400, "the request ended in its body");
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Reads and drops what the peer still sends: closing with unread data would reset the connection
 * and destroy the answer. */
static void linger(weir_connection *c)
{
    (void)shutdown(c->fd, SHUT_WR);
    c->in_used = 0;
    c->body_bytes = 0;
    enter(c, WEIR_PHASE_LINGER);
}

static bool drain(weir_connection *c)
{
    size_t got = 0;
    while (receive(c, c->in, c->in_capacity, &got) && c->body_bytes < LINGER_BYTES)
        c->body_bytes += (int64_t)got;
    if (c->phase == WEIR_PHASE_CLOSED || (!c->peer_closed && c->body_bytes < LINGER_BYTES))
        return false;
    weir_connection_close(c);
    return true;
}

static bool answer(weir_connection *c)
{
    switch (weir_respond(c)) {
    case WEIR_SENT_PART: return false;
    case WEIR_SENT_FAILED: weir_connection_close(c); return true;
    case WEIR_SENT_ALL: break;
    }
    let_go(c, true);
    c->begun = c->streaming = c->ending = false;
    if (c->close_after)
        linger(c);
    else
        enter(c, WEIR_PHASE_IDLE);
    return true;
}

static bool step(weir_connection *c)
{
    switch (c->phase) {
    case WEIR_PHASE_IDLE:
    case WEIR_PHASE_HEADER: return read_head(c);
    case WEIR_PHASE_BODY: return read_body(c);
    case WEIR_PHASE_ANSWER: return answer(c);
    case WEIR_PHASE_LINGER: return drain(c);
    case WEIR_PHASE_CLOSED: break;
    }
    return false;
}

static uint32_t events_of(const weir_connection *c)
{
    if (c->phase != WEIR_PHASE_ANSWER) return EPOLLIN;
    return (c->out_at < c->n_out ? EPOLLOUT : 0) | (c->peer_closed ? 0 : EPOLLRDHUP);
}

void weir_connection_run(weir_connection *c, uint32_t events)
{
    const int64_t before = c->n_requests;
    if (events & (EPOLLERR | EPOLLHUP)) weir_connection_close(c);
    if (c->phase == WEIR_PHASE_ANSWER && (events & EPOLLRDHUP) != 0) c->peer_closed = true;
    bool moved = true;
    while (moved && c->n_requests - before < REQUESTS_PER_TURN) moved = step(c);
    c->again = moved && c->phase != WEIR_PHASE_CLOSED;
    if (c->phase != WEIR_PHASE_CLOSED) weir_loop_watch(&c->server->loop, c, events_of(c));
}

/* ---- timeouts -------------------------------------------------------------------------------- */

static bool out_of_time(weir_connection *c, int64_t waited_ns)
{
    const weir_server_options *const o = &c->server->options;
    const int64_t header_ns = c->is_spare ? spare_ns : o->header_timeout_ms * 1000000;
    const int64_t idle_ns = c->n_requests > 0 ? o->read_timeout_ms * 1000000 : header_ns;
    const int64_t earned_ns = c->body_bytes / body_bytes_per_second * 1000000000;
    switch (c->phase) {
    case WEIR_PHASE_IDLE:
        if (waited_ns > idle_ns) weir_connection_close(c);
        return false;
    case WEIR_PHASE_HEADER:
        return waited_ns > header_ns && refuse(c, 408, "the header did not arrive in time");
    case WEIR_PHASE_BODY:
        return waited_ns > o->read_timeout_ms * 1000000 + earned_ns &&
               refuse(c, 408, "the body did not arrive in time");
    case WEIR_PHASE_LINGER:
        if (waited_ns > linger_ns) weir_connection_close(c);
        return false;
    case WEIR_PHASE_ANSWER:
    case WEIR_PHASE_CLOSED: break;
    }
    return false;
}

static void watch_answer(weir_connection *c, int64_t now_ns)
{
    const int64_t limit_ns = c->server->options.write_timeout_ms * 1000000;
    if (c->out_at < c->n_out && now_ns - c->moved_ns > limit_ns)
        weir_connection_close(c); /* the peer does not read */
    else if (c->peer_closed && (!c->begun || c->streaming))
        weir_exchange_leave(c->exchange);
    else
        weir_stream_tick(c->exchange, now_ns);
}

void weir_connection_tick(weir_connection *c, int64_t now_ns)
{
    if (c->phase == WEIR_PHASE_ANSWER)
        watch_answer(c, now_ns);
    else if (out_of_time(c, now_ns - c->since_ns))
        weir_connection_run(c, 0);
}

int weir_connection_worth(const weir_connection *c, int64_t now_ns)
{
    switch (c->phase) {
    case WEIR_PHASE_IDLE:
    case WEIR_PHASE_LINGER: return 0;
    case WEIR_PHASE_HEADER: return 1;
    case WEIR_PHASE_BODY: return now_ns - c->moved_ns > stall_ns ? 2 : -1;
    case WEIR_PHASE_ANSWER:
    case WEIR_PHASE_CLOSED: break;
    }
    return -1;
}
