/* engine/text/jinja/string.c - see string.h. */
#include "engine/text/jinja/string.h"

#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/utf8.h"

enum { BUILDER_LIMIT = 64 << 20 };

weir_status weir_jinja_string_view(
    weir_jinja_arena *arena, weir_jinja_value *out, const char *bytes, size_t size,
    weir_jinja_origin origin
)
{
    weir_jinja_string *string = NULL;
    WEIR_TRY(weir_jinja_alloc(arena, &string, sizeof *string));
    *string =
        (weir_jinja_string){ .bytes = bytes, .size = size, .count = SIZE_MAX, .origin = origin };
    *out = weir_jinja_from_string(string);
    return WEIR_OK;
}

weir_status weir_jinja_string_copy(
    weir_jinja_arena *arena, weir_jinja_value *out, const char *bytes, size_t size,
    weir_jinja_origin origin
)
{
    char *copy = NULL;
    WEIR_TRY(weir_jinja_alloc(arena, &copy, size + 1));
    if (size) memcpy(copy, bytes, size);
    return weir_jinja_string_view(arena, out, copy, size, origin);
}

weir_status weir_jinja_substring(
    weir_jinja_arena *arena, weir_jinja_value *out, const weir_jinja_string *string, size_t begin,
    size_t size
)
{
    weir_jinja_string *part = NULL;
    WEIR_TRY(weir_jinja_alloc(arena, &part, sizeof *part));
    *part = *string;
    part->bytes = string->bytes + begin;
    part->size = size;
    part->base = string->base + begin;
    /* A part of ASCII text is ASCII. */
    part->count = string->count == string->size ? size : SIZE_MAX;
    *out = weir_jinja_from_string(part);
    return WEIR_OK;
}

size_t weir_jinja_string_count(weir_jinja_string *string)
{
    if (string->count != SIZE_MAX) return string->count;
    size_t count = 0;
    unsigned char all = 0;
    for (size_t i = 0; i < string->size; i++) all |= (unsigned char)string->bytes[i];
    if (all < 0x80)
        count = string->size;
    else
        for (size_t i = 0, size = 0; i < string->size; i += size, count++)
            (void)weir_jinja_decode(string->bytes + i, string->size - i, &size);
    string->count = count;
    return count;
}

size_t weir_jinja_string_offset(weir_jinja_string *string, size_t index)
{
    if (index >= weir_jinja_string_count(string)) return string->size;
    if (string->count == string->size) return index;
    size_t at = 0, size = 0;
    while (index-- > 0) {
        (void)weir_jinja_decode(string->bytes + at, string->size - at, &size);
        at += size;
    }
    return at;
}

bool weir_jinja_string_is(const weir_jinja_string *string, const char *text)
{
    return strlen(text) == string->size &&
           (string->size == 0 || memcmp(text, string->bytes, string->size) == 0);
}

bool weir_jinja_string_same(const weir_jinja_string *a, const weir_jinja_string *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->bytes, b->bytes, a->size) == 0);
}

size_t weir_jinja_find(
    const weir_jinja_string *string, size_t begin, const weir_jinja_string *needle
)
{
    if (begin > string->size) return SIZE_MAX;
    if (needle->size == 0) return begin;
    if (begin == string->size) return SIZE_MAX;
    const char *hit =
        memmem(string->bytes + begin, string->size - begin, needle->bytes, needle->size);
    return hit ? (size_t)(hit - string->bytes) : SIZE_MAX;
}

weir_jinja_origin weir_jinja_string_origin(const weir_jinja_string *string, size_t at, size_t *end)
{
    *end = string->size;
    if (!string->spans) return string->origin;
    size_t low = 0, high = string->n_spans - 1;
    while (low < high) { /* the first span that ends after the byte */
        const size_t middle = low + (high - low) / 2;
        if (string->spans[middle].end > string->base + at)
            high = middle;
        else
            low = middle + 1;
    }
    const size_t span_end = string->spans[low].end - string->base;
    if (span_end < *end) *end = span_end;
    return string->spans[low].origin;
}

/* ---- code points ----------------------------------------------------------------------------- */

uint32_t weir_jinja_decode(const char *bytes, size_t n, size_t *size)
{
    uint32_t code = (unsigned char)bytes[0];
    const size_t length = weir_utf8_next(&code, bytes, n);
    *size = length > 0 ? length : 1;
    return code;
}

uint32_t weir_jinja_decode_last(const char *bytes, size_t end, size_t *size)
{
    size_t back = 1;
    while (back < 4 && back < end && ((unsigned char)bytes[end - back] & 0xc0) == 0x80) back++;
    const uint32_t code = weir_jinja_decode(bytes + end - back, back, size);
    if (*size == back) return code;
    *size = 1;
    return (unsigned char)bytes[end - 1];
}

bool weir_jinja_is_space(uint32_t code)
{
    if (code < 128) return (code >= 9 && code <= 13) || (code >= 28 && code <= 32);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

/* ---- building -------------------------------------------------------------------------------- */

weir_jinja_builder weir_jinja_builder_new(weir_jinja_arena *arena)
{
    return (weir_jinja_builder){ .arena = arena, .limit = BUILDER_LIMIT };
}

weir_status weir_jinja_add(
    weir_jinja_builder *builder, const char *bytes, size_t size, weir_jinja_origin origin
)
{
    if (size == 0) return WEIR_OK;
    if (size > builder->limit || builder->size > builder->limit - size) return WEIR_EFULL;
    WEIR_TRY(
        weir_jinja_grow(builder->arena, &builder->bytes, &builder->capacity, builder->size, size, 1)
    );
    memcpy(builder->bytes + builder->size, bytes, size);
    builder->size += size;
    weir_jinja_span *last = builder->n_spans ? &builder->spans[builder->n_spans - 1] : NULL;
    if (last && last->origin == origin) {
        last->end = builder->size;
        return WEIR_OK;
    }
    WEIR_TRY(weir_jinja_grow(
        builder->arena, &builder->spans, &builder->span_capacity, builder->n_spans, 1,
        sizeof *builder->spans
    ));
    builder->spans[builder->n_spans++] =
        (weir_jinja_span){ .end = builder->size, .origin = origin };
    return WEIR_OK;
}

weir_status weir_jinja_add_text(
    weir_jinja_builder *builder, const char *text, weir_jinja_origin origin
)
{
    return weir_jinja_add(builder, text, strlen(text), origin);
}

weir_status weir_jinja_add_code(
    weir_jinja_builder *builder, uint32_t code, weir_jinja_origin origin
)
{
    char bytes[4];
    return weir_jinja_add(builder, bytes, weir_utf8_encode(bytes, code), origin);
}

weir_status weir_jinja_add_part(
    weir_jinja_builder *builder, const weir_jinja_string *string, size_t begin, size_t size
)
{
    for (size_t at = begin, end = 0; at < begin + size; at = end) {
        const weir_jinja_origin origin = weir_jinja_string_origin(string, at, &end);
        if (end > begin + size) end = begin + size;
        WEIR_TRY(weir_jinja_add(builder, string->bytes + at, end - at, origin));
    }
    return WEIR_OK;
}

weir_status weir_jinja_add_string(weir_jinja_builder *builder, const weir_jinja_string *string)
{
    return weir_jinja_add_part(builder, string, 0, string->size);
}

weir_status weir_jinja_builder_finish(weir_jinja_builder *builder, weir_jinja_value *out)
{
    const weir_jinja_origin origin =
        builder->n_spans ? builder->spans[0].origin : WEIR_JINJA_TEMPLATE;
    WEIR_TRY(weir_jinja_string_view(
        builder->arena, out, builder->bytes ? builder->bytes : "", builder->size, origin
    ));
    if (builder->n_spans > 1) {
        out->as.string->spans = builder->spans;
        out->as.string->n_spans = builder->n_spans;
    }
    return WEIR_OK;
}
