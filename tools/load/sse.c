#include "tools/load/sse.h"

#include <string.h>

static weir_status end_event(weir_sse_reader *r, weir_sse_event on_event, void *user)
{
    if (!r->has_data) return WEIR_OK;
    r->has_data = false;
    WEIR_TRY(weir_buffer_add(&r->data, "", 0)); /* NUL-terminates an empty one */
    const weir_status status = on_event(user, r->data.data, r->data.size);
    weir_buffer_clear(&r->data);
    return status;
}

/* One line of an event: "data: text"; several are joined by newlines. */
static weir_status end_line(weir_sse_reader *r, weir_sse_event on_event, void *user)
{
    static const char field[] = "data";
    const size_t name = sizeof field - 1;
    const char *const line = r->line.data;
    const size_t n = r->line.size;
    if (n == 0) return end_event(r, on_event, user);
    if (n < name || memcmp(line, field, name) != 0 || (n > name && line[name] != ':'))
        return WEIR_OK;
    size_t at = n > name ? name + 1 : name;
    if (at < n && line[at] == ' ') at++;
    if (r->data.size + (n - at) + 1 > WEIR_SSE_EVENT_BYTES) return WEIR_EFORMAT;
    if (r->has_data) WEIR_TRY(weir_buffer_add(&r->data, "\n", 1));
    r->has_data = true;
    return weir_buffer_add(&r->data, line + at, n - at);
}

weir_status weir_sse_read(
    weir_sse_reader *r, const char *bytes, size_t n, weir_sse_event on_event, void *user
)
{
    for (size_t at = 0; at < n;) {
        size_t end = at;
        while (end < n && bytes[end] != '\n' && bytes[end] != '\r') end++;
        const bool is_rest = r->after_cr && end == at && bytes[end] == '\n';
        r->after_cr = false;
        if (is_rest) {
            at++;
            continue;
        }
        if (r->line.size + (end - at) > WEIR_SSE_EVENT_BYTES) return WEIR_EFORMAT;
        WEIR_TRY(weir_buffer_add(&r->line, bytes + at, end - at));
        if (end == n) return WEIR_OK;
        r->after_cr = bytes[end] == '\r';
        const weir_status status = end_line(r, on_event, user);
        weir_buffer_clear(&r->line);
        WEIR_TRY(status);
        at = end + 1;
    }
    return WEIR_OK;
}

void weir_sse_reader_clear(weir_sse_reader *r)
{
    weir_buffer_clear(&r->line);
    weir_buffer_clear(&r->data);
    r->has_data = r->after_cr = false;
}

void weir_sse_reader_free(weir_sse_reader *r)
{
    weir_buffer_free(&r->line);
    weir_buffer_free(&r->data);
    weir_sse_reader_clear(r);
}
