/* engine/router/pass.c - passes a request on to its model's server, and the answer back. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/base/memory.h"
#include "engine/router/internal.h"

enum { CORS_BYTES = 1 << 10 }; /* kept free for weir_answer_allow */

weir_sent weir_route_send(int fd, weir_route_bytes *bytes)
{
    while (weir_route_has(bytes)) {
        const ssize_t n = send(fd, bytes->data + bytes->at, bytes->size - bytes->at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN ? WEIR_SENT_PART : WEIR_SENT_FAILED;
        bytes->at += (size_t)n;
    }
    bytes->at = bytes->size = 0;
    return WEIR_SENT_ALL;
}

/* A page may be shown by a model that does not exist for this client. */
static const char *name_for(const weir_route *r)
{
    const size_t model = (size_t)r->model;
    return weir_request_may_use(r, model) ? r->router->loads.of[model].name : "of this page";
}

void weir_route_pass(weir_route *r)
{
    weir_load *const load = &r->router->loads.of[r->model];
    const int fd = weir_child_connect(r->router, (size_t)r->model);
    if (fd < 0) {
        weir_answer_refuse(
            r, 503, NULL, 1, "the model %s takes no further request now; try again", name_for(r)
        );
        return;
    }
    r->server.fd = fd;
    weir_route_enter(r, WEIR_ROUTE_PASS);
    r->moved_ns = r->since_ns;
    r->is_counted = weir_request_may_use(r, (size_t)r->model); /* pages are no use of a model */
    if (r->is_counted) {
        weir_load_outlive(load);
        load->n_running++;
        load->n_requests++;
        load->used_ns = r->since_ns;
    }
    weir_route_watch(r);
}

static void pass_up(weir_route *r)
{
    for (;;) {
        switch (weir_route_send(r->server.fd, &r->up)) {
        case WEIR_SENT_PART: return;
        case WEIR_SENT_FAILED: /* it may have answered already */
            r->body_done = true;
            r->up.at = r->up.size = 0;
            return;
        case WEIR_SENT_ALL: break;
        }
        if (r->body_done || r->up.capacity > r->in_capacity) weir_route_release(r);
        if (r->body_done) break;
        if (r->in_used == 0 && !weir_route_receive_in(r)) break;
        if (!weir_route_take_body(r)) return;
    }
    if (r->peer_closed) weir_route_close(r); /* in its body, or with the end of it */
}

/* Receives into `down`, which is empty or has not begun. Returns false if there is nothing now. */
static bool fetch(weir_route *r)
{
    weir_route_bytes *const down = &r->down;
    if (down->data == NULL) {
        down->data = weir_memory_take(WEIR_ROUTE_PIECE);
        if (down->data == NULL) {
            weir_route_close(r);
            return false;
        }
        down->capacity = WEIR_ROUTE_PIECE;
    }
    const size_t room = down->capacity - down->size - (r->began ? 0 : CORS_BYTES);
    ssize_t got;
    do {
        got = recv(r->server.fd, down->data + down->size, room, 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
        r->server_closed = true;
        return true;
    }
    down->size += (size_t)got;
    if (!r->began) r->began = weir_answer_allow(r) || down->size + CORS_BYTES >= down->capacity;
    return true;
}

static void end_of_server(weir_route *r)
{
    if (r->began) {
        /* Its server's end was not seen before. */
        if (r->is_counted) r->router->loads.of[r->model].answered = true;
        weir_route_linger(r);
        return;
    }
    r->down.size = 0;
    weir_answer_refuse(
        r, 502, "model_failed", 1, "the server of the model %s ended before it answered; try again",
        name_for(r)
    );
}

/* Returns true if the phase changed. */
static bool pass_down(weir_route *r)
{
    while (r->phase == WEIR_ROUTE_PASS) {
        if (r->began && !weir_route_send_down(r)) return r->phase != WEIR_ROUTE_PASS;
        if (r->server_closed)
            end_of_server(r);
        else if (!fetch(r))
            break;
    }
    return r->phase != WEIR_ROUTE_PASS;
}

bool weir_route_passes(weir_route *r)
{
    pass_up(r);
    return r->phase != WEIR_ROUTE_PASS || pass_down(r);
}
