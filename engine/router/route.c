/* engine/router/route.c - one connection and its request. A step returns true when it entered
 * another phase, false when it must wait. */
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/router/internal.h"

enum { LINGER_BYTES = 64 << 20 };
static const int64_t linger_ns = 2000000000, spare_ns = 2000000000;
static const int64_t body_bytes_per_second = 1024;

/* ---- memory ---------------------------------------------------------------------------------- */

weir_route *weir_route_open(
    weir_router *router, int fd, const struct in6_addr *address, bool is_spare
)
{
    const size_t capacity = (size_t)router->options.header_limit + WEIR_ROUTE_HEAD_LINE;
    weir_route *const r = weir_memory_take(sizeof *r + capacity);
    if (r == NULL) return NULL;
    *r = (weir_route){ .router = router,
                       .address = *address,
                       .is_spare = is_spare,
                       .model = -1,
                       .in_capacity = capacity,
                       .client = { WEIR_ROUTE_CLIENT, fd, 0, r },
                       .server = { WEIR_ROUTE_SERVER, -1, 0, r } };
    r->head.limit = (size_t)router->options.header_limit;
    r->since_ns = r->moved_ns = weir_clock_ns();
    return r;
}

/* Bodies of all requests share a budget. */
void weir_route_release(weir_route *r)
{
    r->router->body_bytes -= (int64_t)r->up.capacity;
    weir_memory_give(r->up.data);
    r->up = (weir_route_bytes){ 0 };
}

void weir_route_free(weir_route *r)
{
    weir_route_release(r);
    weir_memory_give(r->down.data);
    weir_memory_give(r);
}

/* A head and a body, with the framing of its chunks. */
static size_t most_up(const weir_route *r)
{
    return r->in_capacity + WEIR_SERVER_HEAD_MORE + (size_t)r->router->options.body_limit;
}

bool weir_route_reserve(weir_route *r, size_t n)
{
    weir_route_bytes *const up = &r->up;
    const size_t left = (size_t)(r->router->body_limit - r->router->body_bytes),
                 need = up->size + n;
    if (need <= up->capacity) return true;
    size_t capacity = 2 * up->capacity;
    if (capacity > most_up(r)) capacity = most_up(r);
    if (capacity < need || capacity - up->capacity > left) capacity = need;
    if (capacity - up->capacity > left) return false;
    char *const data = weir_memory_resize(up->data, capacity);
    if (data == NULL) return false;
    r->router->body_bytes += (int64_t)(capacity - up->capacity);
    up->data = data;
    up->capacity = capacity;
    return true;
}

/* ---- phases ---------------------------------------------------------------------------------- */

void weir_route_enter(weir_route *r, weir_route_phase phase)
{
    r->phase = phase;
    r->since_ns = weir_clock_ns();
}

/* A process that was just forked may still have the descriptor: closing alone would leave it in
 * epoll. */
static void unwatch(const weir_router *router, weir_route_source *source)
{
    if (source->fd >= 0 && source->events != 0)
        (void)epoll_ctl(router->epoll, EPOLL_CTL_DEL, source->fd, NULL);
    if (source->fd >= 0) (void)close(source->fd);
    source->fd = -1;
    source->events = 0;
}

/* The server sees the end, and cancels what it computes. */
static void leave_server(weir_route *r)
{
    weir_supply_leave(r);
    unwatch(r->router, &r->server);
}

void weir_route_close(weir_route *r)
{
    if (r->phase == WEIR_ROUTE_CLOSED) return;
    leave_server(r);
    unwatch(r->router, &r->client);
    weir_route_enter(r, WEIR_ROUTE_CLOSED);
}

/* Events 0: not watched at all, since an end would be reported again and again. */
static void watch(weir_router *router, weir_route_source *source, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.ptr = source };
    if (source->fd < 0 || source->events == events) return;
    const int what = events == 0           ? EPOLL_CTL_DEL
                     : source->events == 0 ? EPOLL_CTL_ADD
                                           : EPOLL_CTL_MOD;
    (void)epoll_ctl(router->epoll, what, source->fd, &event);
    source->events = events;
}

void weir_route_watch(weir_route *r)
{
    const uint32_t out = weir_route_has(&r->down) && r->began ? EPOLLOUT : 0;
    uint32_t client = EPOLLIN, server = 0;
    if (r->phase == WEIR_ROUTE_CLOSED) return;
    if (r->phase == WEIR_ROUTE_WAIT || r->phase == WEIR_ROUTE_ANSWER) client = EPOLLRDHUP | out;
    if (r->phase == WEIR_ROUTE_ANSWER && r->peer_closed) client = EPOLLOUT;
    if (r->phase == WEIR_ROUTE_PASS) {
        client = out | (r->peer_closed ? 0 : EPOLLRDHUP);
        if (!weir_route_has(&r->up) && !r->body_done) client |= EPOLLIN;
        if (!weir_route_has(&r->down) || !r->began) server |= EPOLLIN;
        if (weir_route_has(&r->up)) server |= EPOLLOUT;
    }
    watch(r->router, &r->client, client);
    watch(r->router, &r->server, server);
}

void weir_route_answer(weir_route *r, weir_buffer *text)
{
    leave_server(r);
    weir_memory_give(r->down.data);
    r->down = (weir_route_bytes){ text->data, text->size, 0, text->capacity };
    r->began = true;
    weir_route_enter(r, WEIR_ROUTE_ANSWER);
    weir_route_watch(r);
}

void weir_route_linger(weir_route *r)
{
    leave_server(r);
    (void)shutdown(r->client.fd, SHUT_WR);
    r->in_used = 0;
    r->body_bytes = 0;
    weir_route_enter(r, WEIR_ROUTE_LINGER);
}

/* ---- receiving and sending ------------------------------------------------------------------- */

/* Returns the bytes that were received; 0: none now, or the peer has closed. */
static size_t receive(weir_route *r, char *to, size_t n)
{
    ssize_t got;
    if (n == 0) return 0;
    do {
        got = recv(r->client.fd, to, n, 0);
    } while (got < 0 && errno == EINTR);
    if (got == 0) r->peer_closed = true;
    if (got < 0 && errno != EAGAIN) weir_route_close(r);
    if (got <= 0) return 0;
    r->moved_ns = weir_clock_ns();
    return (size_t)got;
}

bool weir_route_receive_in(weir_route *r)
{
    const size_t got = receive(r, r->in + r->in_used, r->in_capacity - r->in_used);
    r->in_used += got;
    return got > 0;
}

static void consume(weir_route *r, size_t n)
{
    r->in_used -= n;
    memmove(r->in, r->in + n, r->in_used);
}

/* Sends what there is for the client. Returns true if that is all. */
bool weir_route_send_down(weir_route *r)
{
    const size_t before = r->down.at;
    switch (weir_route_send(r->client.fd, &r->down)) {
    case WEIR_SENT_ALL: r->moved_ns = weir_clock_ns(); return true;
    case WEIR_SENT_FAILED: weir_route_close(r); return false;
    case WEIR_SENT_PART: break;
    }
    if (r->down.at > before) r->moved_ns = weir_clock_ns();
    return false;
}

/* ---- the request ----------------------------------------------------------------------------- */

/* An answer that has begun cannot become an error. */
static void refuse(weir_route *r, int status, const char *text)
{
    if (r->phase == WEIR_ROUTE_PASS && r->began)
        weir_route_close(r);
    else
        weir_answer_refuse(r, status, NULL, status == 503, "%s", text);
}

static bool add_body(weir_route *r, size_t used, size_t n_data)
{
    const int64_t limit = r->router->options.body_limit;
    r->body_bytes += (int64_t)n_data;
    if (r->body_bytes > limit || (int64_t)r->chunks.left > limit ||
        r->up.size + used > most_up(r)) {
        refuse(r, 413, "the body is larger than this server takes");
        return false;
    }
    if (!weir_route_reserve(r, used)) {
        refuse(r, 503, "no memory for the body now; try again");
        return false;
    }
    memcpy(r->up.data + r->up.size, r->in, used);
    r->up.size += used;
    (void)weir_body_model_read(&r->field, r->in + used - n_data, n_data);
    consume(r, used);
    return true;
}

/* Moves the body that has arrived to `up`, as it is framed. Returns false if it was refused. */
bool weir_route_take_body(weir_route *r)
{
    weir_http_problem problem = { 0 };
    while (r->in_used > 0 && !r->body_done) {
        size_t used = (int64_t)r->in_used < r->body_left ? r->in_used : (size_t)r->body_left,
               n_data = used;
        if (r->chunked) {
            const weir_http_progress progress =
                weir_http_chunks_read(&r->chunks, r->in, r->in_used, &used, &n_data, &problem);
            if (progress == WEIR_HTTP_BAD) {
                refuse(r, problem.status, problem.text);
                return false;
            }
            r->body_done = progress == WEIR_HTTP_DONE;
        } else {
            r->body_left -= (int64_t)used;
            r->body_done = r->body_left == 0;
        }
        if (!add_body(r, used, n_data)) return false;
    }
    return true;
}

/* Pages are shown without a key by a model that is loaded and is to stay. */
static void show_page(weir_route *r)
{
    for (size_t i = 0; i < r->router->loads.n; i++) {
        const weir_load *const load = &r->router->loads.of[i];
        if (load->state != WEIR_LOAD_DONE || load->leaves || load->stop) continue;
        r->model = (int)i;
        weir_supply_ask(r);
        return;
    }
    weir_answer_refuse(r, 401, "invalid_api_key", 0, "no model is loaded, and loading needs a key");
}

static void choose(weir_route *r)
{
    const weir_router *const router = r->router;
    const char *const name = r->field.state == WEIR_BODY_FOUND ? r->field.text
                             : r->query[0] != '\0'             ? r->query
                                                               : NULL;
    int model = -1;
    if (name != NULL) {
        model = weir_supply_find(router, name, strlen(name));
        if (model >= 0 && !weir_request_may_use(r, (size_t)model)) model = -1;
    }
    for (size_t i = 0; name == NULL && model < 0 && i < router->loads.n; i++)
        if (weir_request_may_use(r, i)) model = (int)i;
    r->model = model;
    if (model >= 0)
        weir_supply_ask(r);
    else if (r->is_public && name == NULL)
        show_page(r);
    else
        weir_answer_unknown(r, name != NULL ? name : "");
}

static bool read_body(weir_route *r)
{
    do {
        if (!weir_route_take_body(r)) return true;
        if (r->body_done || r->field.state == WEIR_BODY_FOUND || r->field.state == WEIR_BODY_NONE) {
            choose(r);
            return true;
        }
    } while (weir_route_receive_in(r));
    if (r->phase == WEIR_ROUTE_CLOSED || !r->peer_closed) return false;
    refuse(r, 400, "the request ended in its body");
    return true;
}

static void begin_body(weir_route *r)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const bool expects = r->head.value[WEIR_HTTP_EXPECT] != 0 && r->head.minor == 1;
    consume(r, r->head.scanned);
    weir_route_enter(r, WEIR_ROUTE_BODY);
    if (expects && r->in_used == 0 && !r->body_done &&
        send(r->client.fd, go_on, sizeof go_on - 1, MSG_NOSIGNAL) != (ssize_t)sizeof go_on - 1)
        weir_route_close(r);
}

static bool read_head(weir_route *r)
{
    weir_http_problem problem = { 0 };
    do {
        if (r->in_used == r->head.scanned) continue;
        switch (weir_http_head_read(&r->head, r->in, r->in_used, &problem)) {
        case WEIR_HTTP_MORE: break;
        case WEIR_HTTP_DONE:
            if (weir_request_begin(r)) begin_body(r);
            return true;
        case WEIR_HTTP_BAD: refuse(r, problem.status, problem.text); return true;
        }
    } while (weir_route_receive_in(r));
    if (r->phase == WEIR_ROUTE_CLOSED || !r->peer_closed) return false;
    if (r->in_used > 0) {
        refuse(r, 400, "the request ended in its header");
        return true;
    }
    weir_route_close(r);
    return true;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool answer(weir_route *r)
{
    if (!weir_route_send_down(r)) return r->phase == WEIR_ROUTE_CLOSED;
    weir_route_linger(r);
    return true;
}

/* Reads what the peer still sends: closing before would reset the connection, and the answer would
 * be lost. */
static bool drain(weir_route *r)
{
    size_t got;
    while (r->body_bytes < LINGER_BYTES && (got = receive(r, r->in, r->in_capacity)) > 0)
        r->body_bytes += (int64_t)got;
    if (r->phase == WEIR_ROUTE_CLOSED || (!r->peer_closed && r->body_bytes < LINGER_BYTES))
        return false;
    weir_route_close(r);
    return true;
}

static bool step(weir_route *r)
{
    switch (r->phase) {
    case WEIR_ROUTE_HEAD: return read_head(r);
    case WEIR_ROUTE_BODY: return read_body(r);
    case WEIR_ROUTE_PASS: return weir_route_passes(r);
    case WEIR_ROUTE_ANSWER: return answer(r);
    case WEIR_ROUTE_LINGER: return drain(r);
    case WEIR_ROUTE_WAIT:
    case WEIR_ROUTE_CLOSED: break;
    }
    return false;
}

void weir_route_run(weir_route *r, const weir_route_source *source, uint32_t events)
{
    if (source == &r->client && (events & (EPOLLERR | EPOLLHUP)) != 0) weir_route_close(r);
    if (source == &r->client && (events & EPOLLRDHUP) != 0) {
        r->peer_closed = true;
        /* Gone. With a body on its way the end is found when that is read. */
        if (r->phase == WEIR_ROUTE_WAIT || (r->phase == WEIR_ROUTE_PASS && r->body_done))
            weir_route_close(r);
    }
    while (step(r)) continue;
    weir_route_watch(r);
}

/* ---- timeouts -------------------------------------------------------------------------------- */

static void out_of_wait(weir_route *r)
{
    weir_supply_leave(r);
    weir_answer_refuse(
        r, 503, NULL, 5, "the model %s was not loaded in %lld ms (router.wait); try again",
        r->router->loads.of[r->model].name, (long long)r->router->options.wait_ms
    );
}

void weir_route_tick(weir_route *r, int64_t now_ns)
{
    const weir_router_options *const o = &r->router->options;
    const int64_t waited_ns = now_ns - r->since_ns, still_ns = now_ns - r->moved_ns;
    const int64_t head_ns = r->is_spare ? spare_ns : o->header_timeout_ms * 1000000;
    const int64_t earned_ns = r->body_bytes / body_bytes_per_second * 1000000000;
    const bool unread =
        weir_route_has(&r->down) && r->began && still_ns > o->write_timeout_ms * 1000000;
    switch (r->phase) {
    case WEIR_ROUTE_HEAD:
        if (waited_ns <= head_ns) return;
        if (r->in_used == 0)
            weir_route_close(r);
        else
            refuse(r, 408, "the header did not arrive in time");
        break;
    case WEIR_ROUTE_BODY:
        if (waited_ns > o->read_timeout_ms * 1000000 + earned_ns)
            refuse(r, 408, "the body did not arrive in time");
        break;
    case WEIR_ROUTE_WAIT:
        if (waited_ns > o->wait_ms * 1000000) out_of_wait(r);
        break;
    case WEIR_ROUTE_PASS:
        if (unread ||
            (!r->body_done && !weir_route_has(&r->up) && still_ns > o->read_timeout_ms * 1000000))
            weir_route_close(r);
        break;
    case WEIR_ROUTE_ANSWER:
        if (unread) weir_route_close(r);
        break;
    case WEIR_ROUTE_LINGER:
        if (waited_ns > linger_ns) weir_route_close(r);
        break;
    case WEIR_ROUTE_CLOSED: break;
    }
}
