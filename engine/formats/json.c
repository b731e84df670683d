/* engine/formats/json.c - a scan checks the limits before jansson builds anything: its own are 2048 levels and any number of values. */
#include "engine/formats/json.h"

#include <stdbool.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/formats/printable.h"

/* About 100 bytes of memory each once parsed; the largest tokenizer files hold 1.2 million. */
enum { MAX_VALUES = 4 << 20 };

typedef struct place {
    size_t line, column;
} place;

static void advance(place *at, unsigned char byte)
{
    if (byte == '\n')
        *at = (place){ .line = at->line + 1 };
    else if ((byte & 0xC0) != 0x80)
        at->column++;
}

/* Brackets outside strings give the depth, commas and brackets bound the number of values. Whatever is not JSON is left to jansson. */
static weir_status check_limits(const char *bytes, size_t n, const char *name, size_t max_depth, weir_error *error)
{
    place  at = { .line = 1 };
    size_t depth = 0, values = 1;
    bool   in_string = false, escaped = false;
    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        advance(&at, byte);
        if (escaped)
            escaped = false;
        else if (byte == '"')
            in_string = !in_string;
        else if (in_string)
            escaped = byte == '\\';
        else if (byte == '[' || byte == '{') {
            values++;
            if (++depth > max_depth)
                return weir_error_set(error, WEIR_EFORMAT, "%s:%zu:%zu: nested deeper than %zu levels", name, at.line, at.column,
                                      max_depth);
        } else if ((byte == ']' || byte == '}') && depth > 0)
            depth--;
        else if (byte == ',')
            values++;
        if (values > MAX_VALUES)
            return weir_error_set(error, WEIR_EFORMAT, "%s:%zu:%zu: more than %d values", name, at.line, at.column, MAX_VALUES);
    }
    return WEIR_OK;
}

size_t weir_json_tree_bytes(const char *bytes, size_t n)
{
    /* jansson 2.14 on glibc. A value: its string's struct and shortest text, a place in a list that doubles. A key: its pair, and two
     * buckets in a table that doubles. A list or object: itself and its first table. Texts: once kept, once doubled while they are read. */
    enum { VALUE = 112, KEY = 144, BRACKET = 256, READER = 4096 };
    size_t values = 1, keys = 0, brackets = 0;
    for (size_t i = 0; i < n; i++) {
        values += bytes[i] == ',';
        keys += bytes[i] == ':';
        brackets += bytes[i] == '[' || bytes[i] == '{';
    }
    return READER + 4 * n + VALUE * (values + brackets) + KEY * keys + BRACKET * brackets; /* n fits in memory: no overflow */
}

weir_status weir_json_parse(json_t **out, const char *bytes, size_t n, const char *name, size_t max_depth, weir_error *error)
{
    WEIR_TRY(check_limits(bytes, n, name, max_depth, error));
    json_error_t  reason;
    json_t *const value = json_loadb(n > 0 ? bytes : "", n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &reason);
    if (value != NULL) {
        *out = value;
        return WEIR_OK;
    }
    char text[JSON_ERROR_TEXT_LENGTH];
    weir_printable(text, sizeof text, reason.text, strlen(reason.text));
    const bool no_memory = json_error_code(&reason) == json_error_out_of_memory;
    return weir_error_set(error, no_memory ? WEIR_ENOMEM : WEIR_EFORMAT, "%s:%d:%d: %s", name, reason.line, reason.column, text);
}

typedef weir_status (*read_bytes)(weir_buffer *out, const char *path, size_t limit, weir_error *error);

static weir_status read_and_parse(json_t **out, read_bytes read, const char *path, size_t limit, weir_error *error)
{
    weir_buffer text = { 0 };
    weir_status status = read(&text, path, limit, error);
    if (status == WEIR_OK) status = weir_json_parse(out, text.data, text.size, path, WEIR_JSON_DEPTH, error);
    weir_buffer_free(&text);
    return status;
}

weir_status weir_json_read_file(json_t **out, const char *path, size_t limit, weir_error *error)
{
    return read_and_parse(out, weir_file_read, path, limit, error);
}

weir_status weir_json_read_input(json_t **out, const char *path, size_t limit, weir_error *error)
{
    return read_and_parse(out, weir_file_read_input, path, limit, error);
}
