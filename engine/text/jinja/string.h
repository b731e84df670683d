/* engine/text/jinja/string.h - strings of templates: code points, slices, searching, and building
 * with the origin of each byte. Expects well-formed UTF-8; ill-formed bytes count as one code point
 * each and never cause reads out of bounds. */
#pragma once
#include "engine/text/jinja/value.h"

/* Makes a string that borrows the bytes. */
WEIR_MUST_CHECK weir_status weir_jinja_string_view(
    weir_jinja_arena *arena, weir_jinja_value *out, const char *bytes, size_t size,
    weir_jinja_origin origin
);
WEIR_MUST_CHECK weir_status weir_jinja_string_copy(
    weir_jinja_arena *arena, weir_jinja_value *out, const char *bytes, size_t size,
    weir_jinja_origin origin
);
/* Bytes [begin, begin + size) of `string`, shared with it. */
WEIR_MUST_CHECK weir_status weir_jinja_substring(
    weir_jinja_arena *arena, weir_jinja_value *out, const weir_jinja_string *string, size_t begin,
    size_t size
);
size_t weir_jinja_string_count(weir_jinja_string *string); /* in code points */
/* Byte offset of code point `index`, at most the size. */
size_t weir_jinja_string_offset(weir_jinja_string *string, size_t index);
bool weir_jinja_string_is(const weir_jinja_string *string, const char *text);
bool weir_jinja_string_same(const weir_jinja_string *a, const weir_jinja_string *b);
/* Byte offset of the first `needle` in bytes [begin, size); SIZE_MAX: none. */
size_t weir_jinja_find(
    const weir_jinja_string *string, size_t begin, const weir_jinja_string *needle
);
/* The origin of byte `at`. *end is where that origin ends (at most the size). */
weir_jinja_origin weir_jinja_string_origin(const weir_jinja_string *string, size_t at, size_t *end);

/* Decodes the code point at `bytes` (n > 0 left). *size is its length. */
uint32_t weir_jinja_decode(const char *bytes, size_t n, size_t *size);
bool weir_jinja_is_space(uint32_t code); /* Python's str.isspace */
/* Decodes the last code point before `end`. */
uint32_t weir_jinja_decode_last(const char *bytes, size_t end, size_t *size);

/* A string under construction. Adjacent bytes of one origin share a span. */
typedef struct weir_jinja_builder {
    weir_jinja_arena *arena;
    char *bytes;
    size_t size, capacity;
    weir_jinja_span *spans;
    size_t n_spans, span_capacity;
    size_t limit; /* EFULL past this many bytes */
} weir_jinja_builder;

weir_jinja_builder weir_jinja_builder_new(weir_jinja_arena *arena);
WEIR_MUST_CHECK weir_status weir_jinja_add(
    weir_jinja_builder *builder, const char *bytes, size_t size, weir_jinja_origin origin
);
WEIR_MUST_CHECK weir_status
weir_jinja_add_text(weir_jinja_builder *builder, const char *text, weir_jinja_origin origin);
WEIR_MUST_CHECK weir_status
weir_jinja_add_code(weir_jinja_builder *builder, uint32_t code, weir_jinja_origin origin);
WEIR_MUST_CHECK weir_status weir_jinja_add_part(
    weir_jinja_builder *builder, const weir_jinja_string *string, size_t begin, size_t size
);
WEIR_MUST_CHECK weir_status
weir_jinja_add_string(weir_jinja_builder *builder, const weir_jinja_string *string);
WEIR_MUST_CHECK weir_status
weir_jinja_builder_finish(weir_jinja_builder *builder, weir_jinja_value *out);
