#include "tools/load/target.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "tools/load/http_reply.h"

enum { FETCH_BYTES = 4 << 20, CONNECT_MS = 5000 };
static const int64_t ms = 1000000;

/* ---- the address ----------------------------------------------------------------------------- */

static bool is_plain(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] <= 0x20 || (unsigned char)text[i] >= 0x7f) return false;
    return true;
}

static bool copy(char *out, size_t room, const char *text, size_t n)
{
    if (n >= room) return false;
    memcpy(out, text, n);
    out[n] = '\0';
    return true;
}

/* HOST, HOST:PORT, [::1], [::1]:PORT */
static bool read_authority(weir_load_target *t, const char *text, size_t n)
{
    const bool is_v6 = n > 0 && text[0] == '[';
    const char *const close = is_v6 ? memchr(text, ']', n) : NULL;
    if (is_v6 && close == NULL) return false;
    const char *const host = is_v6 ? text + 1 : text, *const after_v6 = is_v6 ? close + 1 : text;
    const char *const colon = memchr(after_v6, ':', n - (size_t)(after_v6 - text));
    const char *const end = colon != NULL ? colon : text + n, *const host_end = is_v6 ? close : end;
    if (host_end == host || (is_v6 && end != close + 1)) return false;
    if (!copy(t->host, sizeof t->host, host, (size_t)(host_end - host))) return false;
    if (colon == NULL) return copy(t->port, sizeof t->port, "80", 2);
    const size_t digits = n - (size_t)(colon + 1 - text);
    if (digits < 1 || digits > 5 || strspn(colon + 1, "0123456789") < digits) return false;
    return copy(t->port, sizeof t->port, colon + 1, digits);
}

static bool ends_with(const char *text, size_t n, const char *end)
{
    return n >= strlen(end) && memcmp(text + n - strlen(end), end, strlen(end)) == 0;
}

weir_status weir_load_target_parse(
    weir_load_target *out, const char *url, const char *key, weir_error *error
)
{
    static const char http[] = "http://", https[] = "https://";
    weir_load_target t = { .key = key };
    if (strncmp(url, https, sizeof https - 1) == 0)
        return weir_error_set(
            error, WEIR_EINVAL, "%.100s: TLS is not supported; give the address behind the proxy",
            url
        );
    const char *const begin =
        strncmp(url, http, sizeof http - 1) == 0 ? url + sizeof http - 1 : url;
    const size_t n = strcspn(begin, "/");
    size_t n_path = strlen(begin + n);
    while (n_path > 0 && begin[n + n_path - 1] == '/') n_path--;
    if (ends_with(begin + n, n_path, "/v1")) n_path -= 3;
    if (!is_plain(begin, strlen(begin)) || strpbrk(begin, "?#@") != NULL ||
        !read_authority(&t, begin, n) || !copy(t.path, sizeof t.path, begin + n, n_path))
        return weir_error_set(
            error, WEIR_EINVAL, "%.100s: is no address of a server; one is http://127.0.0.1:8080",
            url
        );
    if (key != NULL && (key[0] == '\0' || strlen(key) > 1024 || !is_plain(key, strlen(key))))
        return weir_error_set(
            error, WEIR_EINVAL, "--api-key: must be 1 to 1024 printable characters without blanks"
        );
    *out = t;
    return WEIR_OK;
}

/* Waits until the descriptor is ready for `what`. */
static bool wait_for(int fd, short what, int64_t until_ns)
{
    for (;;) {
        const int64_t left = until_ns - weir_clock_ns();
        struct pollfd ready = { .fd = fd, .events = what };
        const int n = poll(&ready, 1, left > 0 ? (int)(left / ms) + 1 : 0);
        if (n > 0) return true;
        if (n == 0 || errno != EINTR) return false;
    }
}

int weir_load_connect(const weir_load_target *t)
{
    const int on = 1;
    const int fd = socket(t->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (const struct sockaddr *)&t->address, t->n_address) == 0 ||
        errno == EINPROGRESS)
        return fd;
    const int why = errno;
    (void)close(fd);
    errno = why;
    return -1;
}

/* Returns 0, or why the address accepts no connection. */
static int try_address(const weir_load_target *t)
{
    const int fd = weir_load_connect(t);
    int why = 0;
    socklen_t n = sizeof why;
    if (fd < 0) return errno;
    if (!wait_for(fd, POLLOUT, weir_clock_ns() + CONNECT_MS * ms))
        why = ETIMEDOUT;
    else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n) != 0)
        why = errno;
    (void)close(fd);
    return why;
}

weir_status weir_load_target_find(weir_load_target *t, weir_error *error)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    struct addrinfo *list = NULL;
    int why = 0;
    const int failed = getaddrinfo(t->host, t->port, &hints, &list);
    if (failed != 0)
        return weir_error_set(
            error, WEIR_ENOTFOUND, "%s: has no address: %s", t->host, gai_strerror(failed)
        );
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        if (a->ai_addrlen > sizeof t->address) continue;
        memcpy(&t->address, a->ai_addr, a->ai_addrlen);
        t->n_address = a->ai_addrlen;
        why = try_address(t);
        if (why == 0) break;
    }
    freeaddrinfo(list);
    if (why == 0 && t->n_address > 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EIO, "%s port %s: no connection: %s; is the server running?", t->host, t->port,
        strerror(why)
    );
}

/* ---- requests -------------------------------------------------------------------------------- */

weir_status weir_load_head(
    weir_buffer *out, const weir_load_target *t, const char *what, int64_t n_body
)
{
    const bool is_v6 = strchr(t->host, ':') != NULL;
    WEIR_TRY(weir_buffer_format(
        out, "%s %s%s HTTP/1.1\r\nHost: %s%s%s:%s\r\nUser-Agent: weir-load\r\n",
        n_body >= 0 ? "POST" : "GET", t->path, what, is_v6 ? "[" : "", t->host, is_v6 ? "]" : "",
        t->port
    ));
    if (t->key != NULL) WEIR_TRY(weir_buffer_format(out, "Authorization: Bearer %s\r\n", t->key));
    if (n_body >= 0)
        WEIR_TRY(weir_buffer_format(
            out, "Content-Type: application/json\r\nContent-Length: %lld\r\n", (long long)n_body
        ));
    return weir_buffer_text(out, "\r\n");
}

static weir_status no_reply(const weir_load_target *t, const char *why, weir_error *error)
{
    return weir_error_set(error, WEIR_EIO, "%s port %s: no reply: %s", t->host, t->port, why);
}

static weir_status send_all(
    int fd, const weir_load_target *t, const weir_buffer *out, int64_t until_ns, weir_error *error
)
{
    for (size_t at = 0; at < out->size;) {
        if (!wait_for(fd, POLLOUT, until_ns)) return no_reply(t, "time ran out", error);
        const ssize_t n = send(fd, out->data + at, out->size - at, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) return no_reply(t, strerror(errno), error);
        if (n > 0) at += (size_t)n;
    }
    return WEIR_OK;
}

/* Appends the data of bytes [n]. */
static weir_status take(
    weir_buffer *body, weir_http_reply *reply, const char *bytes, size_t n,
    const weir_load_target *t, weir_error *error
)
{
    for (size_t at = 0; at < n && reply->state != WEIR_REPLY_OVER;) {
        size_t used, n_data;
        const char *why = "";
        if (weir_http_reply_read(reply, bytes + at, n - at, &used, &n_data, &why) == WEIR_HTTP_BAD)
            return no_reply(t, why, error);
        at += used;
        if (body->size + n_data > FETCH_BYTES) return no_reply(t, "it is over 4 MiB", error);
        if (n_data > 0 && weir_buffer_add(body, bytes + at - n_data, n_data) != WEIR_OK)
            return weir_error_set(error, WEIR_ENOMEM, "no memory for a reply");
    }
    return WEIR_OK;
}

static weir_status read_reply(
    weir_buffer *body, int *status, int fd, const weir_load_target *t, int64_t until_ns,
    weir_error *error
)
{
    char bytes[16 << 10];
    weir_http_reply reply = { 0 };
    while (reply.state != WEIR_REPLY_OVER) {
        if (!wait_for(fd, POLLIN, until_ns)) return no_reply(t, "time ran out", error);
        const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n < 0) return no_reply(t, strerror(errno), error);
        if (n == 0 && !weir_http_reply_end(&reply))
            return no_reply(t, "the server closed the connection", error);
        WEIR_TRY(take(body, &reply, bytes, (size_t)n, t, error));
    }
    *status = reply.status;
    return WEIR_OK;
}

weir_status weir_load_fetch(
    weir_buffer *body, int *status, const weir_load_target *t, const char *what,
    const weir_buffer *sent, int64_t timeout_ms, weir_error *error
)
{
    const int64_t until_ns = weir_clock_ns() + timeout_ms * ms;
    weir_buffer out = { 0 };
    weir_status result = weir_load_head(&out, t, what, sent != NULL ? (int64_t)sent->size : -1);
    if (result == WEIR_OK && sent != NULL) result = weir_buffer_add(&out, sent->data, sent->size);
    if (result != WEIR_OK) result = weir_error_set(error, result, "no memory for a request");
    const int fd = result == WEIR_OK ? weir_load_connect(t) : -1;
    if (result == WEIR_OK && fd < 0) result = no_reply(t, strerror(errno), error);
    if (result == WEIR_OK) result = send_all(fd, t, &out, until_ns, error);
    if (result == WEIR_OK) result = read_reply(body, status, fd, t, until_ns, error);
    if (fd >= 0) (void)close(fd);
    weir_buffer_free(&out);
    return result;
}
