/* engine/serve/json_out.c - the JSON writer: one pass into one buffer, no tree. */
#include "engine/serve/json_out.h"

#include <math.h>
#include <string.h>

#include "engine/base/utf8.h"

static void put(weir_json_out *out, const void *bytes, size_t n)
{
    if (out->status == WEIR_OK) out->status = weir_buffer_add(out->buffer, bytes, n);
}

static void before_value(weir_json_out *out)
{
    if (out->comma) put(out, ",", 1);
    out->comma = true;
}

void weir_json_open(weir_json_out *out, char bracket)
{
    before_value(out);
    put(out, &bracket, 1);
    out->comma = false;
}

void weir_json_close(weir_json_out *out, char bracket)
{
    put(out, &bracket, 1);
    out->comma = true;
}

void weir_json_key(weir_json_out *out, const char *key)
{
    weir_json_string(out, key);
    put(out, ":", 1);
    out->comma = false;
}

static void put_escape(weir_json_out *out, unsigned char c)
{
    static const char digits[] = "0123456789abcdef";
    switch (c) {
    case '"': put(out, "\\\"", 2); return;
    case '\\': put(out, "\\\\", 2); return;
    case '\n': put(out, "\\n", 2); return;
    case '\r': put(out, "\\r", 2); return;
    case '\t': put(out, "\\t", 2); return;
    default: {
        const char text[6] = { '\\', 'u', '0', '0', digits[c >> 4], digits[c & 15] };
        put(out, text, sizeof text);
    }
    }
}

void weir_json_bytes(weir_json_out *out, const char *bytes, size_t n)
{
    const unsigned char *const text = (const unsigned char *)bytes;
    before_value(out);
    put(out, "\"", 1);
    size_t begin = 0, i = 0; /* [begin, i) needs no escaping and is copied at once */
    while (i < n) {
        const size_t length = weir_utf8_sequence(bytes + i, n - i);
        if (length > 0 && text[i] >= 0x20 && text[i] != '"' && text[i] != '\\') {
            i += length;
            continue;
        }
        put(out, bytes + begin, i - begin);
        if (length == 0)
            put(out, WEIR_UTF8_REPLACEMENT, 3);
        else
            put_escape(out, text[i]);
        begin = ++i;
    }
    if (n > begin) put(out, bytes + begin, n - begin);
    put(out, "\"", 1);
}

void weir_json_string(weir_json_out *out, const char *text)
{
    weir_json_bytes(out, text, strlen(text));
}

void weir_json_integer(weir_json_out *out, int64_t value)
{
    before_value(out);
    if (out->status == WEIR_OK)
        out->status = weir_buffer_format(out->buffer, "%lld", (long long)value);
}

void weir_json_number(weir_json_out *out, double value)
{
    before_value(out);
    if (out->status == WEIR_OK)
        out->status = weir_buffer_format(out->buffer, "%.9g", isfinite(value) ? value : -9999.0);
}

void weir_json_bool(weir_json_out *out, bool value)
{
    before_value(out);
    put(out, value ? "true" : "false", value ? 4 : 5);
}

void weir_json_null(weir_json_out *out)
{
    before_value(out);
    put(out, "null", 4);
}

void weir_json_raw(weir_json_out *out, const char *json, size_t n)
{
    before_value(out);
    put(out, json, n);
}

void weir_json_put_string(weir_json_out *out, const char *key, const char *text)
{
    weir_json_key(out, key);
    weir_json_string(out, text);
}

void weir_json_put_integer(weir_json_out *out, const char *key, int64_t value)
{
    weir_json_key(out, key);
    weir_json_integer(out, value);
}

void weir_json_put_number(weir_json_out *out, const char *key, double value)
{
    weir_json_key(out, key);
    weir_json_number(out, value);
}

void weir_json_put_bool(weir_json_out *out, const char *key, bool value)
{
    weir_json_key(out, key);
    weir_json_bool(out, value);
}
