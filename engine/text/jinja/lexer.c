/* engine/text/jinja/lexer.c - see lexer.h. */
#include "engine/text/jinja/lexer.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/hex.h"

typedef struct lexer {
    weir_jinja_arena *arena;
    weir_jinja_tokens *out;
    weir_error *error;
    const char *text; /* newlines are "\n"; the last one is removed */
    size_t size, at;
    int line;
    size_t line_at;       /* `line` counts the newlines before this offset */
    bool line_starting; /* the previous piece ended with a newline */
} lexer;

static bool looking_at(const lexer *lex, size_t at, const char *text)
{
    const size_t size = strlen(text);
    return lex->size - at >= size && memcmp(lex->text + at, text, size) == 0;
}

static int line_of(lexer *lex, size_t at)
{
    for (; lex->line_at < at; lex->line_at++) lex->line += lex->text[lex->line_at] == '\n';
    return lex->line;
}

static weir_status fail(lexer *lex, size_t at, const char *reason)
{
    return weir_error_set(
        lex->error, WEIR_EFORMAT, "chat template, line %d: %s", line_of(lex, at), reason
    );
}

static weir_status push(
    lexer *lex, weir_jinja_token_kind kind, int operation, size_t at, weir_jinja_value value
)
{
    weir_jinja_tokens *out = lex->out;
    WEIR_TRY(
        weir_jinja_grow(lex->arena, &out->items, &out->capacity, out->count, 1, sizeof *out->items)
    );
    out->items[out->count++] = (weir_jinja_token
    ){ .kind = kind, .operation = operation, .line = line_of(lex, at), .value = value };
    return WEIR_OK;
}

static size_t skip_space(const lexer *lex, size_t at)
{
    size_t size = 0;
    while (at < lex->size &&
           weir_jinja_is_space(weir_jinja_decode(lex->text + at, lex->size - at, &size)))
        at += size;
    return at;
}

/* ---- text outside of tags -------------------------------------------------------------------- */

/* The end of text [begin, end) without the white space that the tag at `end` strips. */
static size_t trimmed_end(const lexer *lex, size_t begin, size_t end, bool printing)
{
    const char sign = end + 2 < lex->size ? lex->text[end + 2] : 0;
    size_t size = 0, stop = end;
    if (sign == '-') {
        while (stop > begin &&
               weir_jinja_is_space(weir_jinja_decode_last(lex->text + begin, stop - begin, &size)))
            stop -= size;
        return stop;
    }
    if (sign == '+' || printing) return end;
    while (stop > begin && lex->text[stop - 1] != '\n' &&
           weir_jinja_is_space(weir_jinja_decode_last(lex->text + begin, stop - begin, &size)))
        stop -= size;
    const bool whole_line = stop > begin ? lex->text[stop - 1] == '\n' : lex->line_starting;
    return whole_line ? stop : end;
}

static weir_status push_data(lexer *lex, size_t begin, size_t end)
{
    weir_jinja_value text;
    if (end == begin) return WEIR_OK;
    WEIR_TRY(weir_jinja_string_copy(
        lex->arena, &text, lex->text + begin, end - begin, WEIR_JINJA_TEMPLATE
    ));
    return push(lex, WEIR_JINJA_TOKEN_DATA, 0, begin, text);
}

/* Moves past the end of a tag at `at`. "-%}" strips white space, "%}" one newline (except in print
 * tags). */
static void close_tag(lexer *lex, size_t at, bool printing)
{
    const char sign = lex->text[at];
    const size_t after = at + (sign == '-' || sign == '+' ? 3 : 2);
    lex->at = after;
    if (sign == '-')
        lex->at = skip_space(lex, after);
    else if (sign != '+' && !printing && after < lex->size && lex->text[after] == '\n')
        lex->at++;
    lex->line_starting = lex->text[lex->at - 1] == '\n';
}

/* True if a tag ends at `at`, with or without a sign. */
static bool tag_ends(const lexer *lex, size_t at, const char *close, bool plus)
{
    if (looking_at(lex, at, close)) return true;
    return at < lex->size && (lex->text[at] == '-' || (plus && lex->text[at] == '+')) &&
           looking_at(lex, at + 1, close);
}

static weir_status skip_comment(lexer *lex, size_t begin)
{
    const char sign = begin + 2 < lex->size ? lex->text[begin + 2] : 0;
    for (size_t at = begin + (sign == '-' || sign == '+' ? 3 : 2); at < lex->size; at++) {
        if (!tag_ends(lex, at, "#}", true)) continue;
        close_tag(lex, at, false);
        return WEIR_OK;
    }
    return fail(lex, begin, "a comment does not end");
}

/* Matches "{%", a sign, white space, `word`, white space and the end of the tag. Returns the offset
 * of that end, or 0. */
static size_t word_tag(const lexer *lex, size_t at, const char *word)
{
    at += 2;
    if (at < lex->size && (lex->text[at] == '-' || lex->text[at] == '+')) at++;
    at = skip_space(lex, at);
    if (!looking_at(lex, at, word)) return 0;
    at = skip_space(lex, at + strlen(word));
    return tag_ends(lex, at, "%}", true) ? at : 0;
}

static weir_status lex_raw(lexer *lex, size_t begin, size_t end_of_tag)
{
    const bool strip = lex->text[end_of_tag] == '-';
    if (lex->text[end_of_tag] == '+') return fail(lex, begin, "'+' is not allowed after raw");
    size_t from = end_of_tag + (strip ? 3 : 2);
    if (strip) from = skip_space(lex, from);
    lex->line_starting = lex->text[from - 1] == '\n';
    for (size_t at = from; at < lex->size; at++) {
        if (!looking_at(lex, at, "{%")) continue;
        const size_t end = word_tag(lex, at, "endraw");
        if (!end) continue;
        WEIR_TRY(push_data(lex, from, trimmed_end(lex, from, at, false)));
        close_tag(lex, end, false);
        return WEIR_OK;
    }
    return fail(lex, begin, "a raw block does not end");
}

/* ---- inside of tags -------------------------------------------------------------------------- */

static bool is_name_start(char c) { return isalpha((unsigned char)c) || c == '_' || (c & 0x80); }
static bool is_name(char c) { return is_name_start(c) || isdigit((unsigned char)c); }

static bool read_hex(const char *text, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        const int digit = weir_hex_digit(text[i]);
        if (digit < 0) return false;
        *out = *out * 16 + (uint32_t)digit;
    }
    return true;
}

/* Decodes a Python escape after the backslash at text[-1]. *used is its length. */
static weir_status unescape(
    lexer *lex, weir_jinja_builder *out, size_t at, size_t end, size_t *used
)
{
    static const char names[] = "abfnrtv\\'\"", codes[] = "\a\b\f\n\r\t\v\\'\"";
    const char *text = lex->text + at;
    const char *name = strchr(names, text[0]);
    uint32_t code = 0;
    *used = 1;
    if (text[0] == '\n') return WEIR_OK;
    if (name && text[0])
        return weir_jinja_add_code(out, (unsigned char)codes[name - names], WEIR_JINJA_TEMPLATE);
    if (text[0] >= '0' && text[0] <= '7') {
        size_t n = 0;
        for (; n < 3 && at + n < end && text[n] >= '0' && text[n] <= '7'; n++)
            code = code * 8 + (uint32_t)(text[n] - '0');
        *used = n;
        return weir_jinja_add_code(out, code, WEIR_JINJA_TEMPLATE);
    }
    const size_t digits = text[0] == 'x' ? 2 : text[0] == 'u' ? 4 : text[0] == 'U' ? 8 : 0;
    if (!digits) {
        *used = 0;
        return weir_jinja_add(out, "\\", 1, WEIR_JINJA_TEMPLATE);
    }
    if (end - at <= digits || !read_hex(text + 1, digits, &code) || code > 0x10ffff ||
        (code >= 0xd800 && code < 0xe000))
        return fail(lex, at, "a string has an invalid escape");
    *used = digits + 1;
    return weir_jinja_add_code(out, code, WEIR_JINJA_TEMPLATE);
}

static weir_status lex_string(lexer *lex)
{
    const size_t begin = lex->at;
    const char quote = lex->text[begin];
    size_t end = begin + 1;
    weir_jinja_builder text = weir_jinja_builder_new(lex->arena);
    weir_jinja_value value;
    while (end < lex->size && lex->text[end] != quote) end += lex->text[end] == '\\' ? 2 : 1;
    if (end >= lex->size) return fail(lex, begin, "a string does not end");
    for (size_t at = begin + 1, used = 0; at < end; at += used) {
        const char *slash = memchr(lex->text + at, '\\', end - at);
        used = slash ? (size_t)(slash - lex->text) - at : end - at;
        WEIR_TRY(weir_jinja_add(&text, lex->text + at, used, WEIR_JINJA_TEMPLATE));
        if (!slash) break;
        at += used + 1;
        WEIR_TRY(unescape(lex, &text, at, end, &used));
    }
    WEIR_TRY(weir_jinja_builder_finish(&text, &value));
    /* Computed now, because constants are shared by threads. */
    (void)weir_jinja_string_count(value.as.string);
    lex->at = end + 1;
    return push(lex, WEIR_JINJA_TOKEN_LITERAL, 0, begin, value);
}

/* Copies a number without underscores. *real: it has a fraction or an exponent. */
static size_t number_text(const lexer *lex, char *out, size_t capacity, bool *real)
{
    size_t at = lex->at, n = 0;
    const char mark =
        lex->text[at] == '0' && at + 1 < lex->size ? (char)(lex->text[at + 1] | 32) : 0;
    const bool based = mark == 'x' || mark == 'o' || mark == 'b';
    *real = false;
    for (; at < lex->size && n + 1 < capacity; at++) {
        const char c = lex->text[at], next = at + 1 < lex->size ? lex->text[at + 1] : 0;
        const bool digit = isdigit((unsigned char)c);
        if (based ? !isalnum((unsigned char)c) && c != '_' : !digit) {
            const bool underscore = c == '_' && isdigit((unsigned char)next);
            const bool point = c == '.' && !*real && isdigit((unsigned char)next);
            const bool sign = (c == '+' || c == '-') && n > 0 && (out[n - 1] | 32) == 'e' &&
                              isdigit((unsigned char)next);
            const char third = at + 2 < lex->size ? lex->text[at + 2] : 0;
            const bool power = (c | 32) == 'e' && n > 0 && !memchr(out, 'e', n) &&
                               !memchr(out, 'E', n) &&
                               (isdigit((unsigned char)next) ||
                                ((next == '+' || next == '-') && isdigit((unsigned char)third)));
            if (based || (!underscore && !point && !sign && !power)) break;
            *real = *real || point || power;
        }
        if (c != '_') out[n++] = c;
    }
    out[n] = 0;
    return at;
}

static weir_status lex_number(lexer *lex)
{
    char text[64], *stop = NULL;
    bool real = false;
    const size_t begin = lex->at, end = number_text(lex, text, sizeof text, &real);
    const char mark = text[0] == '0' ? (char)(text[1] | 32) : 0;
    errno = 0;
    weir_jinja_value value;
    if (real)
        value = weir_jinja_float(strtod(text, &stop));
    else if (mark == 'x')
        value = weir_jinja_int(strtoll(text + 2, &stop, 16));
    else if (mark == 'o')
        value = weir_jinja_int(strtoll(text + 2, &stop, 8));
    else if (mark == 'b')
        value = weir_jinja_int(strtoll(text + 2, &stop, 2));
    else
        value = weir_jinja_int(strtoll(text, &stop, 10));
    if (*stop || (errno && !real) || strlen(text) + 1 >= sizeof text)
        return fail(lex, begin, "a number is malformed or does not fit");
    lex->at = end;
    return push(lex, WEIR_JINJA_TOKEN_LITERAL, 0, begin, value);
}

static weir_status lex_name(lexer *lex)
{
    const size_t begin = lex->at;
    weir_jinja_value name;
    while (lex->at < lex->size && is_name(lex->text[lex->at])) lex->at++;
    WEIR_TRY(weir_jinja_string_copy(
        lex->arena, &name, lex->text + begin, lex->at - begin, WEIR_JINJA_TEMPLATE
    ));
    (void)weir_jinja_string_count(name.as.string);
    return push(lex, WEIR_JINJA_TOKEN_NAME, 0, begin, name);
}

static weir_status lex_operator(lexer *lex)
{
    static const char *const pairs[] = { "//", "**", "==", "!=", ">=", "<=" };
    const char c = lex->text[lex->at];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!looking_at(lex, lex->at, pairs[i])) continue;
        lex->at += 2;
        return push(
            lex, WEIR_JINJA_TOKEN_OPERATOR, WEIR_JINJA_OP(pairs[i][0], pairs[i][1]), lex->at - 2,
            weir_jinja_none()
        );
    }
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c))
        return fail(lex, lex->at, "an unexpected character");
    return push(lex, WEIR_JINJA_TOKEN_OPERATOR, WEIR_JINJA_OP(c, 0), lex->at++, weir_jinja_none());
}

/* Tracks open brackets, so that "}}" of nested dictionaries does not end the tag. */
static weir_status track_bracket(lexer *lex, char *stack, size_t capacity, size_t *depth)
{
    const char c = lex->text[lex->at];
    const char expected = c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : 0;
    const bool closes = c == ')' || c == ']' || c == '}';
    if (expected && *depth == capacity) return fail(lex, lex->at, "brackets are nested too deep");
    if (expected) stack[(*depth)++] = expected;
    if (closes && (*depth == 0 || stack[--*depth] != c))
        return fail(lex, lex->at, "a closing bracket without an opening one");
    return WEIR_OK;
}

static weir_status lex_tag(lexer *lex, bool printing)
{
    const char *close = printing ? "}}" : "%}";
    const size_t begin = lex->at;
    char stack[128];
    size_t depth = 0;
    WEIR_TRY(push(
        lex, printing ? WEIR_JINJA_TOKEN_PRINT_BEGIN : WEIR_JINJA_TOKEN_BLOCK_BEGIN, 0, begin,
        weir_jinja_none()
    ));
    lex->at += 2;
    if (lex->at < lex->size && (lex->text[lex->at] == '-' || (lex->text[lex->at] == '+')))
        lex->at++;
    for (;;) {
        lex->at = skip_space(lex, lex->at);
        if (lex->at >= lex->size) return fail(lex, begin, "a tag does not end");
        if (depth == 0 && tag_ends(lex, lex->at, close, !printing)) {
            WEIR_TRY(push(
                lex, printing ? WEIR_JINJA_TOKEN_PRINT_END : WEIR_JINJA_TOKEN_BLOCK_END, 0, lex->at,
                weir_jinja_none()
            ));
            close_tag(lex, lex->at, printing);
            return WEIR_OK;
        }
        const char c = lex->text[lex->at];
        WEIR_TRY(track_bracket(lex, stack, sizeof stack, &depth));
        if (c == '\'' || c == '"')
            WEIR_TRY(lex_string(lex));
        else if (isdigit((unsigned char)c))
            WEIR_TRY(lex_number(lex));
        else if (is_name_start(c))
            WEIR_TRY(lex_name(lex));
        else
            WEIR_TRY(lex_operator(lex));
    }
}

static weir_status lex_all(lexer *lex)
{
    for (size_t begin = 0; lex->at < lex->size;) {
        begin = lex->at;
        size_t at = begin;
        while (at < lex->size && !(lex->text[at] == '{' && at + 1 < lex->size &&
                                   lex->text[at + 1] && strchr("{%#", lex->text[at + 1])))
            at++;
        if (at == lex->size) {
            WEIR_TRY(push_data(lex, begin, at));
            lex->at = at;
            break;
        }
        const bool printing = lex->text[at + 1] == '{';
        WEIR_TRY(push_data(lex, begin, trimmed_end(lex, begin, at, printing)));
        lex->at = at;
        const size_t raw = lex->text[at + 1] == '%' ? word_tag(lex, at, "raw") : 0;
        if (raw)
            WEIR_TRY(lex_raw(lex, at, raw));
        else if (lex->text[at + 1] == '#')
            WEIR_TRY(skip_comment(lex, at));
        else
            WEIR_TRY(lex_tag(lex, printing));
    }
    return push(lex, WEIR_JINJA_TOKEN_END, 0, lex->size, weir_jinja_none());
}

weir_status weir_jinja_lex(
    weir_jinja_arena *arena, weir_jinja_tokens *out, const char *text, size_t size,
    weir_error *error
)
{
    char *copy = NULL;
    size_t n = 0;
    WEIR_TRY(weir_jinja_alloc(arena, &copy, size + 1));
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\r' && i + 1 < size && text[i + 1] == '\n') continue;
        copy[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (n > 0 && copy[n - 1] == '\n') n--;
    lexer lex = { .arena = arena,
                  .out = out,
                  .error = error,
                  .text = copy,
                  .size = n,
                  .line = 1,
                  .line_starting = true };
    return lex_all(&lex);
}
