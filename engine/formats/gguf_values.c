/* engine/formats/gguf_values.c - primitive values of GGUF: numbers, strings, arrays. Memory use is
 * bounded by the bytes read. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/formats/gguf.h"
#include "engine/formats/printable.h"

/* NOLINTBEGIN(clang-analyzer-core.*): the analyzer does not see that weir_gguf_bad never says OK */

enum { ARRAY_DEPTH = 4, INNER_ARRAYS_MAX = 65536 };

size_t weir_packed_bytes(weir_packed_type type)
{
    switch (type) {
    case WEIR_PACKED_U8:
    case WEIR_PACKED_I8:
    case WEIR_PACKED_BOOL: return 1;
    case WEIR_PACKED_U16:
    case WEIR_PACKED_I16: return 2;
    case WEIR_PACKED_U32:
    case WEIR_PACKED_I32:
    case WEIR_PACKED_F32: return 4;
    case WEIR_PACKED_U64:
    case WEIR_PACKED_I64:
    case WEIR_PACKED_F64: return 8;
    case WEIR_PACKED_STRING:
    case WEIR_PACKED_ARRAY:
    case WEIR_PACKED_TYPES: break;
    }
    return 0;
}

static weir_meta_type meta_type(weir_packed_type type)
{
    switch (type) {
    case WEIR_PACKED_F32:
    case WEIR_PACKED_F64: return WEIR_META_FLOAT;
    case WEIR_PACKED_BOOL: return WEIR_META_BOOL;
    case WEIR_PACKED_STRING: return WEIR_META_STRING;
    case WEIR_PACKED_ARRAY: return WEIR_META_ARRAY;
    default: return WEIR_META_INT;
    }
}

static uint64_t little_endian(const unsigned char *bytes, size_t n)
{
    uint64_t value = 0;
    for (size_t i = n; i-- > 0;) value = value << 8 | bytes[i];
    return value;
}

bool weir_packed_read(weir_meta *out, weir_packed_type type, const unsigned char *bytes)
{
    const uint64_t bits = little_endian(bytes, weir_packed_bytes(type));
    weir_meta value = { .type = meta_type(type), .packed_type = (unsigned char)type };
    switch (type) {
    case WEIR_PACKED_I8: value.integer = (int8_t)bits; break;
    case WEIR_PACKED_I16: value.integer = (int16_t)bits; break;
    case WEIR_PACKED_I32: value.integer = (int32_t)bits; break;
    case WEIR_PACKED_U8:
    case WEIR_PACKED_U16:
    case WEIR_PACKED_U32:
    case WEIR_PACKED_I64: value.integer = (int64_t)bits; break;
    case WEIR_PACKED_U64:
        if (bits > INT64_MAX) return false;
        value.integer = (int64_t)bits;
        break;
    case WEIR_PACKED_BOOL:
        if (bits > 1) return false;
        value.boolean = bits == 1;
        break;
    case WEIR_PACKED_F32: {
        const uint32_t word = (uint32_t)bits;
        float number;
        memcpy(&number, &word, sizeof number);
        value.number = (double)number;
        break;
    }
    case WEIR_PACKED_F64: memcpy(&value.number, &bits, sizeof value.number); break;
    case WEIR_PACKED_STRING:
    case WEIR_PACKED_ARRAY:
    case WEIR_PACKED_TYPES: return false;
    }
    *out = value;
    return true;
}

weir_status weir_gguf_bad(const weir_gguf_cursor *cursor, size_t at, const char *format, ...)
{
    char text[800];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return weir_error_set(cursor->error, WEIR_EFORMAT, "%s: byte %zu: %s", cursor->name, at, text);
}

weir_status weir_gguf_need(weir_gguf_cursor *cursor, uint64_t n, const char *what)
{
    const size_t left = cursor->size - cursor->at;
    if (n > left)
        return weir_gguf_bad(
            cursor, cursor->at, "%s needs %" PRIu64 " bytes and %zu are left of the file", what, n,
            left
        );
    if (cursor->at + n > WEIR_HEADER_BYTES_MAX)
        return weir_gguf_bad(
            cursor, cursor->at, "the header is longer than %d bytes", WEIR_HEADER_BYTES_MAX
        );
    return WEIR_OK;
}

weir_status weir_gguf_u32(weir_gguf_cursor *cursor, uint32_t *out, const char *what)
{
    WEIR_TRY(weir_gguf_need(cursor, sizeof *out, what));
    *out = (uint32_t)little_endian(cursor->bytes + cursor->at, sizeof *out);
    cursor->at += sizeof *out;
    return WEIR_OK;
}

weir_status weir_gguf_u64(weir_gguf_cursor *cursor, uint64_t *out, const char *what)
{
    WEIR_TRY(weir_gguf_need(cursor, sizeof *out, what));
    *out = little_endian(cursor->bytes + cursor->at, sizeof *out);
    cursor->at += sizeof *out;
    return WEIR_OK;
}

weir_status weir_gguf_text(
    weir_gguf_cursor *cursor, weir_arena *arena, weir_text *out, const char *what
)
{
    uint64_t length;
    WEIR_TRY(weir_gguf_u64(cursor, &length, what));
    WEIR_TRY(weir_gguf_need(cursor, length, what));
    *out = (weir_text){ .bytes = weir_arena_text(arena, cursor->bytes + cursor->at, (size_t)length),
                        .length = (size_t)length };
    if (out->bytes == NULL) return weir_directory_no_memory(cursor->error, cursor->name);
    cursor->at += (size_t)length;
    return WEIR_OK;
}

static weir_status read_type(weir_gguf_cursor *cursor, weir_packed_type *out, const char *key)
{
    const size_t at = cursor->at;
    uint32_t type;
    WEIR_TRY(weir_gguf_u32(cursor, &type, "a value's type"));
    if (type >= WEIR_PACKED_TYPES)
        return weir_gguf_bad(cursor, at, "key %s has unknown value type %" PRIu32, key, type);
    *out = (weir_packed_type)type;
    return WEIR_OK;
}

static weir_status read_number(
    weir_gguf_cursor *cursor, weir_meta *out, weir_packed_type type, const char *key
)
{
    WEIR_TRY(weir_gguf_need(cursor, weir_packed_bytes(type), "a value"));
    if (!weir_packed_read(out, type, cursor->bytes + cursor->at))
        return weir_gguf_bad(
            cursor, cursor->at, "key %s holds %s", key,
            type == WEIR_PACKED_BOOL ? "a bool that is neither 0 nor 1" : "an integer past 2^63 - 1"
        );
    cursor->at += weir_packed_bytes(type);
    return WEIR_OK;
}

/* Checks the numbers by reading them once; they stay in the file. */
static weir_status read_numbers(
    weir_gguf_cursor *cursor, weir_elements *out, weir_packed_type type, uint64_t n, const char *key
)
{
    const size_t size = weir_packed_bytes(type);
    if (n > UINT64_MAX / size)
        n = UINT64_MAX / size; /* More than any file holds: weir_gguf_need then fails. */
    WEIR_TRY(weir_gguf_need(cursor, n * size, "an array of numbers"));
    *out = (weir_elements){ .packed = cursor->bytes + cursor->at, .packed_type = type };
    if (type != WEIR_PACKED_U64 && type != WEIR_PACKED_BOOL) {
        cursor->at += (size_t)n * size;
        return WEIR_OK;
    }
    weir_meta ignored;
    for (uint64_t i = 0; i < n; i++) WEIR_TRY(read_number(cursor, &ignored, type, key));
    return WEIR_OK;
}

static weir_status read_texts(
    weir_gguf_cursor *cursor, weir_arena *arena, weir_elements *out, uint64_t n
)
{
    if (n > (cursor->size - cursor->at) / sizeof(uint64_t))
        return weir_gguf_bad(
            cursor, cursor->at, "an array of %" PRIu64 " strings does not fit in the file", n
        );
    WEIR_TRY(weir_gguf_need(cursor, n * sizeof(uint64_t), "an array of strings"));
    weir_text *const texts = weir_arena_take(arena, (size_t)n * sizeof *texts);
    if (texts == NULL) return weir_directory_no_memory(cursor->error, cursor->name);
    for (uint64_t i = 0; i < n; i++)
        WEIR_TRY(weir_gguf_text(cursor, arena, &texts[i], "a string of an array"));
    *out = (weir_elements){ .texts = texts };
    return WEIR_OK;
}

static weir_status read_array(
    weir_gguf_cursor *cursor, weir_arena *arena, weir_meta *out, const char *key, int depth
);

static weir_status read_arrays(
    weir_gguf_cursor *cursor, weir_arena *arena, weir_elements *out, uint64_t n, const char *key,
    int depth
)
{
    if (depth == ARRAY_DEPTH)
        return weir_gguf_bad(
            cursor, cursor->at, "key %s nests arrays deeper than %d", key, ARRAY_DEPTH
        );
    if (n > INNER_ARRAYS_MAX - cursor->n_inner_arrays)
        return weir_gguf_bad(
            cursor, cursor->at, "key %s: more than %d arrays inside arrays", key, INNER_ARRAYS_MAX
        );
    cursor->n_inner_arrays += (size_t)n;
    weir_meta *const values = weir_arena_take(arena, (size_t)n * sizeof *values);
    if (values == NULL) return weir_directory_no_memory(cursor->error, cursor->name);
    for (uint64_t i = 0; i < n; i++)
        WEIR_TRY(read_array(cursor, arena, &values[i], key, depth + 1));
    *out = (weir_elements){ .values = values };
    return WEIR_OK;
}

static weir_status read_array(
    weir_gguf_cursor *cursor, weir_arena *arena, weir_meta *out, const char *key, int depth
)
{
    weir_packed_type type;
    uint64_t n;
    WEIR_TRY(read_type(cursor, &type, key));
    WEIR_TRY(weir_gguf_u64(cursor, &n, "an array's length"));
    weir_elements *const elements = weir_arena_take(arena, sizeof *elements);
    if (elements == NULL) return weir_directory_no_memory(cursor->error, cursor->name);
    if (type == WEIR_PACKED_STRING)
        WEIR_TRY(read_texts(cursor, arena, elements, n));
    else if (type == WEIR_PACKED_ARRAY)
        WEIR_TRY(read_arrays(cursor, arena, elements, n, key, depth));
    else
        WEIR_TRY(read_numbers(cursor, elements, type, n, key));
    *out = (weir_meta){ .type = WEIR_META_ARRAY,
                        .length = (size_t)n,
                        .element_type = meta_type(type),
                        .elements = elements };
    return WEIR_OK;
}

weir_status weir_gguf_value(
    weir_gguf_cursor *cursor, weir_arena *arena, weir_meta *out, const char *key
)
{
    char shown[80];
    weir_packed_type type;
    (void)weir_printable(shown, sizeof shown, key, strlen(key));
    WEIR_TRY(read_type(cursor, &type, shown));
    if (type == WEIR_PACKED_ARRAY) return read_array(cursor, arena, out, shown, 1);
    if (type != WEIR_PACKED_STRING) return read_number(cursor, out, type, shown);
    weir_text text;
    WEIR_TRY(weir_gguf_text(cursor, arena, &text, "a string"));
    *out = (weir_meta){ .type = WEIR_META_STRING, .string = text.bytes, .length = text.length };
    return WEIR_OK;
}
/* NOLINTEND(clang-analyzer-core.*) */
