#include "engine/router/server_head.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/hex.h"

/* ---- the query ------------------------------------------------------------------------------- */

static void take_name(char out[WEIR_QUERY_MODEL], const char *text, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '%') {
            const int high = i + 1 < n ? weir_hex_digit(text[i + 1]) : -1;
            const int low = i + 2 < n ? weir_hex_digit(text[i + 2]) : -1;
            c = high < 0 || low < 0 ? '\0' : (char)(high * 16 + low);
            i += 2;
        }
        if (c <= 0x20 || used + 1 >= WEIR_QUERY_MODEL) {
            memcpy(out, "?", 2);
            return;
        }
        out[used++] = c;
    }
    out[used] = '\0';
}

/* Parameters begin with '?' or '&'; returns the bytes of this one. */
static size_t parameter_bytes(const char *at) { return 1 + strcspn(at + 1, "&"); }

static bool is_model(const char *parameter) { return strncmp(parameter + 1, "model=", 6) == 0; }

void weir_query_model(char out[WEIR_QUERY_MODEL], const char *target)
{
    out[0] = '\0';
    for (const char *at = target + strcspn(target, "?"); *at != '\0'; at += parameter_bytes(at))
        if (is_model(at)) take_name(out, at + 7, parameter_bytes(at) - 7);
}

/* ---- the head -------------------------------------------------------------------------------- */

typedef struct writer {
    char *out;
    size_t size, n;
    bool good;
} writer;

static void add(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(w->out + w->n, w->size - w->n, format, arguments);
    va_end(arguments);
    if (n < 0 || (size_t)n >= w->size - w->n)
        w->good = false;
    else
        w->n += (size_t)n;
}

static void add_target(writer *w, const char *target)
{
    const size_t path = strcspn(target, "?");
    bool first = true;
    add(w, "%.*s", (int)path, target);
    for (const char *at = target + path; *at != '\0'; at += parameter_bytes(at)) {
        if (is_model(at)) continue;
        add(w, "%c%.*s", first ? '?' : '&', (int)parameter_bytes(at) - 1, at + 1);
        first = false;
    }
}

size_t weir_server_head(char *out, size_t size, const weir_http_head *head, const char *bytes)
{
    static const struct {
        weir_http_field field;
        const char *name;
    } fields[] = {
        { WEIR_HTTP_CONTENT_LENGTH, "Content-Length" },
        { WEIR_HTTP_TRANSFER_ENCODING, "Transfer-Encoding" },
        { WEIR_HTTP_CONTENT_TYPE, "Content-Type" },
        { WEIR_HTTP_CONTENT_ENCODING, "Content-Encoding" },
        { WEIR_HTTP_AUTHORIZATION, "Authorization" },
        { WEIR_HTTP_API_KEY, "X-Api-Key" },
        { WEIR_HTTP_REQUEST_ID, "X-Request-Id" },
    };
    writer w = { .out = out, .size = size, .good = true };
    add(&w, "%s ", bytes + head->method);
    add_target(&w, bytes + head->target);
    add(&w, " HTTP/1.%d\r\nHost: localhost\r\nConnection: close\r\n", head->minor);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const char *const value = weir_http_value(head, bytes, fields[i].field);
        if (value != NULL) add(&w, "%s: %s\r\n", fields[i].name, value);
    }
    add(&w, "\r\n");
    return w.good ? w.n : 0;
}
