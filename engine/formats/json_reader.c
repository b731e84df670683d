/* engine/formats/json_reader.c - parses text into jansson values. jansson's own parser has no
 * limits, and reads past its buffer when memory runs out inside a string (2.14). */
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/hex.h"
#include "engine/base/utf8.h"
#include "engine/formats/json.h"

typedef struct reader {
    const char *text, *at, *end;
    const weir_json_limits *limits;
    size_t depth, values, keys;
    const char *reason;
    char key[sizeof((weir_json_place *)0)->key];
    weir_buffer scratch; /* a string without its escapes, or a number for strtod */
} reader;

typedef struct span {
    const char *bytes;
    size_t n;
} span;

static weir_json_fault syntax(reader *r, const char *reason)
{
    r->reason = reason;
    return WEIR_JSON_SYNTAX;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const weir_json_fault fault_ = (call);                                                     \
        if (fault_ != WEIR_JSON_FINE) return fault_;                                               \
    } while (0)

static unsigned char peek(const reader *r) { return r->at < r->end ? (unsigned char)*r->at : 0; }

static void skip_space(reader *r)
{
    while (r->at < r->end && memchr(" \t\n\r", *r->at, 4) != NULL) r->at++;
}

/* ---- strings --------------------------------------------------------------------------------- */
/* Finds the quote that ends the string. *escapes tells whether it contains any. */
static weir_json_fault find_end(reader *r, bool *escapes)
{
    while (r->at < r->end && *r->at != '"') {
        const unsigned char c = (unsigned char)*r->at;
        size_t n = 1;
        if (c < 0x20) return syntax(r, "a control character in a string must be escaped");
        if (c == '\\') *escapes = true, n = 2;
        if (c >= 0x80 && (n = weir_utf8_sequence(r->at, (size_t)(r->end - r->at))) == 0)
            return syntax(r, "invalid UTF-8");
        if ((size_t)(r->end - r->at) < n) break;
        r->at += n;
    }
    return peek(r) == '"' ? WEIR_JSON_FINE : syntax(r, "a string without an end");
}

/* Reads four hexadecimal digits; -1 if there are none. */
static int32_t hex(const char *at, const char *end)
{
    int32_t code = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = weir_hex_digit(at[i]);
        if (digit < 0) return -1;
        code = code * 16 + digit;
    }
    return code;
}

static size_t encode(char *out, int32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    const size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00 >> n & 0xff) | code);
    return n;
}

/* Reads the code point after "\\u". *used is the number of bytes, including the second half of a
 * pair. */
static weir_json_fault read_code(
    reader *r, int32_t *code, const char *at, const char *end, size_t *used
)
{
    *code = hex(at, end);
    *used = 4;
    if (*code < 0) return syntax(r, "\\\\u needs four hexadecimal digits");
    if (*code < 0xd800 || *code > 0xdfff) return WEIR_JSON_FINE;
    const bool pair = *code < 0xdc00 && end - at >= 10 && at[4] == '\\' && at[5] == 'u';
    const int32_t low = pair ? hex(at + 6, end) : -1;
    if (low < 0xdc00 || low > 0xdfff) return syntax(r, "half of a surrogate pair");
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    *used = 10;
    return WEIR_JSON_FINE;
}

/* Decoded escapes are never longer than their source. */
static weir_json_fault unescape(reader *r, span *text)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *const end = text->bytes + text->n;
    weir_buffer_clear(&r->scratch);
    if (weir_buffer_reserve(&r->scratch, text->n) != WEIR_OK) return WEIR_JSON_NO_MEMORY;
    char *out = r->scratch.data;
    for (const char *at = text->bytes; at < end;) {
        const char *const escape = memchr(at, '\\', (size_t)(end - at));
        const size_t plain = (size_t)((escape != NULL ? escape : end) - at);
        memcpy(out, at, plain);
        out += plain;
        at += plain;
        if (escape == NULL) break;
        const char *const name = memchr(names, at[1], sizeof names - 1);
        int32_t code;
        size_t used;
        at += 2;
        if (name != NULL) {
            *out++ = meanings[name - names];
            continue;
        }
        if (at[-1] != 'u') return syntax(r, "an unknown escape in a string");
        TRY(read_code(r, &code, at, end, &used));
        out += encode(out, code);
        at += used;
    }
    *text = (span){ .bytes = r->scratch.data, .n = (size_t)(out - r->scratch.data) };
    return WEIR_JSON_FINE;
}

/* *out is valid until the next string is read. */
static weir_json_fault read_text(reader *r, span *out)
{
    const char *const begin = ++r->at;
    bool escapes = false;
    TRY(find_end(r, &escapes));
    *out = (span){ .bytes = begin, .n = (size_t)(r->at++ - begin) };
    return escapes ? unescape(r, out) : WEIR_JSON_FINE;
}

/* ---- scalars --------------------------------------------------------------------------------- */
static weir_json_fault made(json_t **out, json_t *value)
{
    *out = value;
    return value != NULL ? WEIR_JSON_FINE : WEIR_JSON_NO_MEMORY;
}

static weir_json_fault read_string(reader *r, json_t **out)
{
    span text = { 0 };
    TRY(read_text(r, &text));
    return made(out, json_stringn_nocheck(text.bytes, text.n));
}

static size_t digits(const char *at, const char *end)
{
    size_t n = 0;
    while (at + n < end && at[n] >= '0' && at[n] <= '9') n++;
    return n;
}

static weir_json_fault read_integer(json_t **out, const char *at, const char *end)
{
    const bool negative = *at == '-';
    int64_t value = 0;
    for (at += negative; at < end; at++) {
        const int64_t digit = negative ? '0' - *at : *at - '0';
        if (!weir_mul_i64(&value, value, 10) || !weir_add_i64(&value, value, digit))
            return WEIR_JSON_LARGE_INTEGER;
    }
    return made(out, json_integer(value));
}

static weir_json_fault read_real(reader *r, json_t **out, const char *at, const char *end)
{
    weir_buffer_clear(&r->scratch);
    if (weir_buffer_add(&r->scratch, at, (size_t)(end - at)) != WEIR_OK) return WEIR_JSON_NO_MEMORY;
    /* strtod expects the decimal point of the locale. */
    char *const point = strchr(r->scratch.data, '.');
    if (point != NULL) *point = localeconv()->decimal_point[0];
    const double value = strtod(r->scratch.data, NULL);
    return isfinite(value) ? made(out, json_real(value)) : WEIR_JSON_LARGE_NUMBER;
}

static weir_json_fault read_number(reader *r, json_t **out)
{
    const char *at = r->at + (*r->at == '-');
    const size_t whole = digits(at, r->end);
    bool real = false;
    if (whole == 0 || (whole > 1 && *at == '0')) return syntax(r, "a number is not well formed");
    at += whole;
    if (at < r->end && *at == '.') {
        const size_t n = digits(at + 1, r->end);
        if (n == 0) return syntax(r, "a number is not well formed");
        at += 1 + n;
        real = true;
    }
    if (at < r->end && (*at == 'e' || *at == 'E')) {
        at += 1 + (at + 1 < r->end && (at[1] == '+' || at[1] == '-'));
        const size_t n = digits(at, r->end);
        if (n == 0) return syntax(r, "a number is not well formed");
        at += n;
        real = true;
    }
    TRY(real ? read_real(r, out, r->at, at) : read_integer(out, r->at, at));
    r->at = at;
    return WEIR_JSON_FINE;
}

static bool take_word(reader *r, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

/* Infinity and -Infinity, if the limits allow them. */
static bool take_infinity(reader *r, double *out)
{
    const bool is_negative = *r->at == '-';
    if (!r->limits->reads_infinity || !take_word(r, is_negative ? "-Infinity" : "Infinity"))
        return false;
    *out = is_negative ? -DBL_MAX : DBL_MAX;
    return true;
}

static weir_json_fault read_word(reader *r, json_t **out)
{
    static const char *const words[] = { "true", "false", "null" };
    json_t *const values[] = { json_true(), json_false(), json_null() };
    for (size_t i = 0; i < 3; i++)
        if (take_word(r, words[i])) return made(out, values[i]);
    return syntax(r, r->at < r->end ? "a value is expected" : "the text ends unexpectedly");
}

/* ---- containers ------------------------------------------------------------------------------ */
static weir_json_fault read_value(reader *r, json_t **out);

/* Reads what follows an element. *more tells whether there is another one. */
static weir_json_fault next(reader *r, char close, bool *more)
{
    skip_space(r);
    *more = peek(r) == ',';
    if (!*more && peek(r) != (unsigned char)close)
        return syntax(r, close == ']' ? "',' or ']' is expected" : "',' or '}' is expected");
    r->at++;
    return WEIR_JSON_FINE;
}

static bool is_empty(reader *r, char close)
{
    r->at++;
    skip_space(r);
    if (peek(r) != (unsigned char)close) return false;
    r->at++;
    return true;
}

static weir_json_fault fill_array(reader *r, json_t *array)
{
    for (bool more = !is_empty(r, ']'); more;) {
        json_t *item = NULL;
        TRY(read_value(r, &item));
        if (json_array_append_new(array, item) != 0) return WEIR_JSON_NO_MEMORY;
        TRY(next(r, ']', &more));
    }
    return WEIR_JSON_FINE;
}

static void remember_key(reader *r, span key)
{
    size_t n = 0;
    for (; n < key.n && n < sizeof r->key - 1; n++)
        r->key[n] = key.bytes[n] > 0x20 && key.bytes[n] < 0x7f ? key.bytes[n] : '?';
    r->key[n] = 0;
}

/* Reads a key. It is kept as a jansson string until its value has been read. */
static weir_json_fault read_key(reader *r, json_t *object, json_t **key)
{
    span text = { 0 };
    skip_space(r);
    if (peek(r) != '"') return syntax(r, "a key in quotes is expected");
    if (++r->keys > r->limits->keys) return WEIR_JSON_TOO_MANY_KEYS;
    TRY(read_text(r, &text));
    if (memchr(text.bytes, 0, text.n) != NULL) return syntax(r, "a NUL in a key");
    if (json_object_getn(object, text.bytes, text.n) != NULL) return syntax(r, "duplicate key");
    if (r->depth == 1) remember_key(r, text);
    TRY(made(key, json_stringn_nocheck(text.bytes, text.n)));
    skip_space(r);
    if (peek(r) != ':') return syntax(r, "':' is expected");
    r->at++;
    return WEIR_JSON_FINE;
}

static weir_json_fault read_member(reader *r, json_t *object)
{
    json_t *key = NULL, *value = NULL;
    weir_json_fault fault = read_key(r, object, &key);
    if (fault == WEIR_JSON_FINE) fault = read_value(r, &value);
    if (fault == WEIR_JSON_FINE &&
        json_object_setn_new_nocheck(
            object, json_string_value(key), json_string_length(key), value
        ) != 0)
        fault = WEIR_JSON_NO_MEMORY;
    json_decref(key);
    return fault;
}

static weir_json_fault fill_object(reader *r, json_t *object)
{
    for (bool more = !is_empty(r, '}'); more;) {
        TRY(read_member(r, object));
        TRY(next(r, '}', &more));
    }
    return WEIR_JSON_FINE;
}

static weir_json_fault read_container(reader *r, json_t **out, bool is_array)
{
    json_t *container;
    if (r->depth == r->limits->depth) return WEIR_JSON_TOO_DEEP;
    TRY(made(&container, is_array ? json_array() : json_object()));
    r->depth++;
    const weir_json_fault fault = is_array ? fill_array(r, container) : fill_object(r, container);
    r->depth--;
    if (fault == WEIR_JSON_FINE)
        *out = container;
    else
        json_decref(container);
    return fault;
}

static weir_json_fault read_value(reader *r, json_t **out)
{
    skip_space(r);
    if (++r->values > r->limits->values) return WEIR_JSON_TOO_MANY_VALUES;
    const unsigned char c = peek(r);
    double infinity;
    if ((c == '-' || c == 'I') && take_infinity(r, &infinity))
        return made(out, json_real(infinity));
    if (c == '{' || c == '[') return read_container(r, out, c == '[');
    if (c == '"') return read_string(r, out);
    return c == '-' || (c >= '0' && c <= '9') ? read_number(r, out) : read_word(r, out);
}

/* ---- documents ------------------------------------------------------------------------------- */
static weir_json_place place_of(const reader *r)
{
    weir_json_place place = { .reason = r->reason, .line = 1, .column = 1 };
    place.offset = (size_t)(r->at - r->text);
    for (const char *at = r->text; at < r->at; at++) {
        if (*at == '\n')
            place.line++, place.column = 1;
        else
            place.column += ((unsigned char)*at & 0xC0) != 0x80;
    }
    memcpy(place.key, r->key, sizeof place.key);
    return place;
}

weir_json_fault weir_json_build(
    json_t **out, weir_json_place *place, const char *text, size_t n, const weir_json_limits *limits
)
{
    reader r = { .text = text, .at = text, .end = n > 0 ? text + n : text, .limits = limits };
    json_t *value = NULL;
    weir_json_fault fault = read_value(&r, &value);
    if (fault == WEIR_JSON_FINE) skip_space(&r);
    if (fault == WEIR_JSON_FINE && r.at < r.end) fault = syntax(&r, "text after the value");
    if (fault == WEIR_JSON_FINE)
        *out = value;
    else {
        json_decref(value);
        if (place != NULL) *place = place_of(&r);
    }
    weir_buffer_free(&r.scratch);
    return fault;
}
