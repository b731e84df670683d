/* engine/serve/respond.c - sends an exchange that is ready: the response head, then a complete body
 * or the pieces of a stream. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/base/clock.h"
#include "engine/serve/anthropic_error.h"
#include "engine/serve/generation.h"
#include "engine/serve/http_reply.h"
#include "engine/serve/internal.h"
#include "engine/serve/page.h"

/* ---- the head -------------------------------------------------------------------------------- */

/* A head that does not fit is not sent: `n` is then larger than the buffer. */
typedef struct head {
    char *text;
    size_t n;
} head;

static void add(head *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(head *h, const char *format, ...)
{
    va_list arguments;
    if (h->n >= WEIR_REPLY_HEADER_BYTES) return;
    va_start(arguments, format);
    const int n = vsnprintf(h->text + h->n, WEIR_REPLY_HEADER_BYTES - h->n, format, arguments);
    va_end(arguments);
    h->n += n > 0 ? (size_t)n : 0;
}

static void add_error(head *h, const weir_api_error *error)
{
    if (error->retry_after > 0) add(h, "Retry-After: %d\r\n", error->retry_after);
    const bool is_late = error->code != NULL && strcmp(error->code, "timeout") == 0;
    if (error->status == 500 || error->status == 501 || is_late)
        add(h, "x-should-retry: false\r\n");
    if (error->status == 401) add(h, "WWW-Authenticate: Bearer\r\n");
}

/* Sent with every answer computed over lossy or missing rows. */
static void add_kv(head *h, weir_exchange *x)
{
    const weir_engine_facts *const facts = weir_service_facts_of(x->server->options.service);
    const weir_bank_stats *const banks = &facts->banks;
    if (x->generation == NULL || x->status != 200) return;
    if (facts->kv_is_lossy) add(h, "x-weir-kv-format: %s\r\n", facts->kv_format);
    if (banks->n_layers > 0)
        add(h, "x-weir-kv-banks: %lld\r\n",
            (long long)((banks->ring.slots + banks->exact.slots) / banks->n_layers));
    (void)pthread_mutex_lock(&x->lock);
    const weir_usage usage = weir_generation_usage(x->generation);
    (void)pthread_mutex_unlock(&x->lock);
    if (usage.kv_policy != NULL)
        add(h, "x-weir-kv-policy: %s\r\nx-weir-kv-budget: %lld\r\n", usage.kv_policy,
            (long long)usage.kv_budget);
    if (usage.numerics != NULL) add(h, "x-weir-numerics: %s\r\n", usage.numerics);
}

/* Prevents browsers from guessing other content types and from embedding answers. */
static void add_browser(head *h, const weir_exchange *x)
{
    add(h, WEIR_HTTP_GUARD);
    if (x->content_type != NULL && strncmp(x->content_type, "text/html", 9) == 0)
        add(h, "Content-Security-Policy: %s\r\nReferrer-Policy: no-referrer\r\n", WEIR_PAGE_POLICY);
    if (x->cors[0] == 0) return;
    add(h, WEIR_CORS_ORIGIN, x->cors);
    add(h, "%s", x->status == 204 ? WEIR_CORS_PREFLIGHT : WEIR_CORS_EXPOSE);
}

static void add_allow(head *h, const weir_exchange *x)
{
    const char *allow = NULL;
    if (x->status != 405 && x->status != 204) return;
    (void)weir_route_find(x->method, x->path, &allow);
    if (allow != NULL) add(h, "Allow: %s\r\n", allow);
}

/* Returns false if it does not fit. */
static bool make_head(weir_connection *c, weir_exchange *x)
{
    head h = { .text = c->out_head };
    char date[WEIR_HTTP_DATE];
    weir_http_date(date);
    add(&h, "HTTP/1.1 %d %s\r\n%s", x->status, weir_http_reason(x->status), date);
    add(&h, "x-request-id: %s\r\n", x->id);
    if (weir_anthropic_has_path(x->path)) add(&h, "request-id: %s\r\n", x->id);
    if (x->content_type != NULL) add(&h, "Content-Type: %s\r\n", x->content_type);
    add_error(&h, &x->error);
    add_kv(&h, x);
    if (x->warning[0] != 0) add(&h, "x-weir-warning: %s\r\n", x->warning);
    add_browser(&h, x);
    add_allow(&h, x);
    if (c->streaming)
        add(&h, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n%s",
            c->http_1_0 ? "" : "Transfer-Encoding: chunked\r\n");
    else if (x->status != 204)
        add(&h, "Content-Length: %zu\r\n", x->reply.size);
    if (c->close_after) add(&h, "Connection: close\r\n");
    add(&h, "\r\n");
    c->out[0] = (struct iovec){ .iov_base = h.text, .iov_len = h.n };
    c->out_at = 0;
    c->n_out = 1;
    return h.n < WEIR_REPLY_HEADER_BYTES;
}

static bool begin_reply(weir_connection *c, weir_exchange *x)
{
    if (!make_head(c, x)) return false;
    if (!c->head_only && x->status != 204 && x->reply.size > 0)
        c->out[c->n_out++] = (struct iovec){ .iov_base = x->reply.data, .iov_len = x->reply.size };
    return true;
}

static bool begin_stream(weir_connection *c, weir_exchange *x)
{
    c->streaming = true;
    c->close_after |= c->http_1_0; /* HTTP/1.0: closing the connection ends the stream */
    x->status = 200;
    const char *const type = x->generation->api->stream_type;
    x->content_type = type != NULL ? type : "text/event-stream";
    return make_head(c, x);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void advance(weir_connection *c, size_t n)
{
    while (c->out_at < c->n_out && n >= c->out[c->out_at].iov_len) n -= c->out[c->out_at++].iov_len;
    if (c->out_at == c->n_out) return;
    struct iovec *const piece = &c->out[c->out_at];
    piece->iov_base = (char *)piece->iov_base + n;
    piece->iov_len -= n;
}

static weir_sent send_pieces(weir_connection *c)
{
    while (c->out_at < c->n_out) {
        const struct msghdr message = { .msg_iov = c->out + c->out_at,
                                        .msg_iovlen = (size_t)(c->n_out - c->out_at) };
        const ssize_t n = sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? WEIR_SENT_PART : WEIR_SENT_FAILED;
        c->moved_ns = weir_clock_ns();
        advance(c, (size_t)n);
    }
    return WEIR_SENT_ALL;
}

/* Queues the next piece as a chunk, or as it is for HTTP/1.0. */
static void put_piece(weir_connection *c, const char *text, size_t n)
{
    static char end[] = "\r\n";
    struct iovec piece = { .iov_base = (char *)(uintptr_t)text, .iov_len = n };
    c->out_at = c->n_out = 0;
    c->moved_ns = weir_clock_ns(); /* the write timeout starts now */
    if (!c->http_1_0) {
        const int size = snprintf(c->chunk_head, sizeof c->chunk_head, "%zx\r\n", n);
        c->out[c->n_out++] = (struct iovec){ .iov_base = c->chunk_head, .iov_len = (size_t)size };
    }
    c->out[c->n_out++] = piece;
    if (!c->http_1_0) c->out[c->n_out++] = (struct iovec){ .iov_base = end, .iov_len = 2 };
}

static void put_end(weir_connection *c)
{
    static char last[] = "0\r\n\r\n";
    c->ending = true;
    c->out_at = c->n_out = 0;
    if (!c->http_1_0)
        c->out[c->n_out++] = (struct iovec){ .iov_base = last, .iov_len = sizeof last - 1 };
}

static weir_sent send_stream(weir_connection *c)
{
    for (;;) {
        const char *text = NULL;
        size_t n = 0;
        const weir_sent sent = send_pieces(c);
        if (sent != WEIR_SENT_ALL || c->ending) return sent;
        switch (weir_stream_next(c->exchange, &text, &n)) {
        case WEIR_PIECE_NONE: return WEIR_SENT_PART;
        case WEIR_PIECE_TEXT: put_piece(c, text, n); break;
        case WEIR_PIECE_END: put_end(c); break;
        case WEIR_PIECE_BROKEN: return WEIR_SENT_FAILED;
        }
    }
}

weir_sent weir_respond(weir_connection *c)
{
    weir_exchange *const x = c->exchange;
    (void)pthread_mutex_lock(&x->lock);
    const bool gone = x->gone;
    const weir_ready ready = x->ready;
    (void)pthread_mutex_unlock(&x->lock);
    if (gone) return WEIR_SENT_FAILED;
    if (ready == WEIR_NOT_READY) return WEIR_SENT_PART;
    if (!c->begun) {
        c->begun = true;
        if (!(ready == WEIR_READY_STREAM ? begin_stream(c, x) : begin_reply(c, x)))
            return WEIR_SENT_FAILED;
    }
    return c->streaming ? send_stream(c) : send_pieces(c);
}
