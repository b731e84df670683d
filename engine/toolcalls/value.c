/* engine/toolcalls/value.c - a state machine with a stack of open arrays and objects. JSON is
 * copied as a whole; the other dialects are written piece by piece. */
#include "engine/toolcalls/value.h"

#include <string.h>

#include "engine/base/hex.h"

enum state {
    VALUE, /* a value follows */
    FIRST, /* a value, or the end of the array */
    KEY, /* a key follows */
    FIRST_KEY, /* a key, or the end of the object */
    BARE_KEY, /* within a key without quotes */
    COLON, /* after a key */
    STRING,
    ESCAPE, /* after a backslash */
    HEX, /* digits of an escape */
    NUMBER,
    WORD,
    NEXT, /* after a value in an array or object */
    DONE,
};
enum kind { ARRAY, OBJECT, KEYWORDS };
enum number { MINUS, ZERO, INTEGER, POINT, FRACTION, EXPONENT, EXPONENT_SIGN, EXPONENT_DIGITS };

static const char gemma_quote[] = "<|\"|>";
enum { QUOTE_LENGTH = sizeof gemma_quote - 1 };

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* ---- writing --------------------------------------------------------------------------------- */

/* Nothing for JSON, which is copied. */
static weir_status put(const weir_value_scanner *s, weir_buffer *out, const char *text, size_t n)
{
    return s->dialect == WEIR_VALUE_JSON ? WEIR_OK : weir_buffer_add(out, text, n);
}

static weir_status put_char(const weir_value_scanner *s, weir_buffer *out, char c)
{
    return put(s, out, &c, 1);
}

static weir_status add_string_byte(weir_buffer *out, char c)
{
    if (c == '"' || c == '\\') return weir_buffer_add(out, (char[]){ '\\', c }, 2);
    if (c == '\n') return weir_buffer_add(out, "\\n", 2);
    if ((unsigned char)c < 0x20) return weir_buffer_format(out, "\\u%04x", (unsigned)c);
    return weir_buffer_add(out, &c, 1);
}

static weir_status put_string_byte(const weir_value_scanner *s, weir_buffer *out, char c)
{
    return s->dialect == WEIR_VALUE_JSON ? WEIR_OK : add_string_byte(out, c);
}

weir_status weir_value_quote(weir_buffer *out, const char *text, size_t n)
{
    WEIR_TRY(weir_buffer_add(out, "\"", 1));
    for (size_t i = 0; i < n;) {
        size_t run = i;
        while (run < n && (unsigned char)text[run] >= 0x20 && text[run] != '"' && text[run] != '\\')
            run++;
        WEIR_TRY(weir_buffer_add(out, text + i, run - i));
        if (run < n) WEIR_TRY(add_string_byte(out, text[run++]));
        i = run;
    }
    return weir_buffer_add(out, "\"", 1);
}

/* Writes the comma before an item, if there is one. */
static weir_status begin_item(weir_value_scanner *s, weir_buffer *out)
{
    if (!s->has_comma) return WEIR_OK;
    s->has_comma = false;
    return put_char(s, out, ',');
}

/* ---- arrays and objects ---------------------------------------------------------------------- */

static void end_value(weir_value_scanner *s) { s->state = s->depth == 0 ? DONE : NEXT; }

static weir_status open_container(
    weir_value_scanner *s, weir_buffer *out, enum kind kind, bool *is_bad
)
{
    *is_bad = s->depth == WEIR_VALUE_DEPTH;
    if (*is_bad) return WEIR_OK;
    s->kind[s->depth++] = (uint8_t)kind;
    s->state = kind == ARRAY ? FIRST : FIRST_KEY;
    return put_char(s, out, kind == ARRAY ? '[' : '{');
}

static char closing(const weir_value_scanner *s)
{
    static const char end[] = { [ARRAY] = ']', [OBJECT] = '}', [KEYWORDS] = ')' };
    return end[s->kind[s->depth - 1]];
}

static weir_status close_container(weir_value_scanner *s, weir_buffer *out, bool *is_bad)
{
    *is_bad = s->has_comma && s->dialect != WEIR_VALUE_PYTHON;
    s->has_comma = false;
    WEIR_TRY(put_char(s, out, s->kind[--s->depth] == ARRAY ? ']' : '}'));
    end_value(s);
    return WEIR_OK;
}

static weir_status step_next(weir_value_scanner *s, weir_buffer *out, char c, bool *is_bad)
{
    if (c == closing(s)) return close_container(s, out, is_bad);
    *is_bad = c != ',';
    s->has_comma = true;
    const bool python = s->dialect == WEIR_VALUE_PYTHON;
    if (s->kind[s->depth - 1] == ARRAY)
        s->state = python ? FIRST : VALUE;
    else
        s->state = python ? FIRST_KEY : KEY;
    return WEIR_OK;
}

/* ---- keys and strings ------------------------------------------------------------------------ */

static weir_status begin_string(weir_value_scanner *s, weir_buffer *out, char quote, bool in_key)
{
    s->quote = quote;
    s->in_key = in_key;
    s->n_matched = quote == '<' ? 1 : 0;
    s->state = STRING;
    WEIR_TRY(begin_item(s, out));
    return quote == '<' ? WEIR_OK : put_char(s, out, '"');
}

static bool begins_string(const weir_value_scanner *s, char c)
{
    return s->dialect == WEIR_VALUE_GEMMA
               ? c == '<'
               : c == '"' || (c == '\'' && s->dialect == WEIR_VALUE_PYTHON);
}

static bool is_bare(const weir_value_scanner *s, char c)
{
    if (s->dialect == WEIR_VALUE_JSON) return false;
    return is_letter(c) || is_digit(c) || c == '_' || (unsigned char)c >= 0x80 ||
           (s->dialect == WEIR_VALUE_GEMMA && (c == '-' || c == '.' || c == '$' || c == ' '));
}

static weir_status step_key(weir_value_scanner *s, weir_buffer *out, char c, bool *is_bad)
{
    if (s->state == FIRST_KEY && c == closing(s)) return close_container(s, out, is_bad);
    const bool keywords = s->kind[s->depth - 1] == KEYWORDS;
    if (!keywords && begins_string(s, c)) return begin_string(s, out, c, true);
    *is_bad = !is_bare(s, c) || (s->dialect == WEIR_VALUE_PYTHON && !keywords);
    if (*is_bad) return WEIR_OK;
    s->state = BARE_KEY;
    WEIR_TRY(begin_item(s, out));
    WEIR_TRY(put_char(s, out, '"'));
    return put_char(s, out, c);
}

static weir_status step_colon(weir_value_scanner *s, weir_buffer *out, char c, bool *is_bad)
{
    *is_bad = c != (s->kind[s->depth - 1] == KEYWORDS ? '=' : ':');
    s->state = VALUE;
    return put_char(s, out, ':');
}

static weir_status step_bare_key(weir_value_scanner *s, weir_buffer *out, char c, bool *is_bad)
{
    if (is_bare(s, c)) return put_char(s, out, c);
    WEIR_TRY(put_char(s, out, '"'));
    s->state = COLON;
    return is_space(c) ? WEIR_OK : step_colon(s, out, c, is_bad);
}

static void end_string(weir_value_scanner *s)
{
    if (s->in_key)
        s->state = COLON;
    else
        end_value(s);
}

/* The first quote begins the string, and `quote` becomes '>'; the next one ends it. */
static weir_status step_gemma_string(weir_value_scanner *s, weir_buffer *out, char c, bool *is_bad)
{
    const bool inside = s->quote == '>';
    if (c == gemma_quote[s->n_matched]) {
        if (++s->n_matched < QUOTE_LENGTH) return WEIR_OK;
        s->n_matched = 0;
        s->quote = '>';
        if (inside) end_string(s);
        return put_char(s, out, '"');
    }
    *is_bad = !inside;
    for (int i = 0; i < s->n_matched; i++) WEIR_TRY(put_string_byte(s, out, gemma_quote[i]));
    s->n_matched = c == gemma_quote[0] ? 1 : 0;
    return s->n_matched > 0 ? WEIR_OK : put_string_byte(s, out, c);
}

static weir_status step_string(weir_value_scanner *s, weir_buffer *out, char c, bool *is_bad)
{
    if (s->dialect == WEIR_VALUE_GEMMA) return step_gemma_string(s, out, c, is_bad);
    if (c == s->quote) {
        end_string(s);
        return put_char(s, out, '"');
    }
    if (c == '\\') {
        s->state = ESCAPE;
        return WEIR_OK;
    }
    *is_bad = (unsigned char)c < 0x20 && s->dialect == WEIR_VALUE_JSON;
    return put_string_byte(s, out, c);
}

/* ---- escapes --------------------------------------------------------------------------------- */

static weir_status begin_hex(weir_value_scanner *s, int n)
{
    s->state = HEX;
    s->n_hex = n;
    s->code = 0;
    s->is_wide = n == 8;
    return WEIR_OK;
}

/* What Python does not know stands for itself, backslash included. */
static weir_status step_python_escape(weir_value_scanner *s, weir_buffer *out, char c)
{
    static const char names[] = "ntrabfv0\\'\"", bytes[] = "\n\t\r\a\b\f\v\0\\'\"";
    s->state = STRING;
    if (c == 'x') return begin_hex(s, 2);
    if (c == 'u') return begin_hex(s, 4);
    if (c == 'U') return begin_hex(s, 8);
    if (c == '\n') return WEIR_OK; /* continues the line */
    const char *const at = memchr(names, c, sizeof names - 1);
    if (at != NULL) return add_string_byte(out, bytes[at - names]);
    WEIR_TRY(add_string_byte(out, '\\'));
    return add_string_byte(out, c);
}

static weir_status step_escape(weir_value_scanner *s, weir_buffer *out, char c, bool *is_bad)
{
    if (s->dialect == WEIR_VALUE_PYTHON) return step_python_escape(s, out, c);
    s->state = STRING;
    if (c == 'u') return begin_hex(s, 4);
    *is_bad = c == '\0' || strchr("\"\\/bfnrt", c) == NULL;
    return WEIR_OK;
}

/* Beyond the first plane JSON has a pair of surrogates. */
static weir_status put_code(const weir_value_scanner *s, weir_buffer *out, bool *is_bad)
{
    const uint32_t code = s->code;
    if (s->dialect == WEIR_VALUE_JSON) return WEIR_OK;
    if (code < 0x10000) return weir_buffer_format(out, "\\u%04x", (unsigned)code);
    *is_bad = code > 0x10FFFF;
    return weir_buffer_format(
        out, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((code - 0x10000) >> 10 & 0x3FF)),
        (unsigned)(0xDC00 + (code & 0x3FF))
    );
}

static weir_status step_hex(weir_value_scanner *s, weir_buffer *out, char c, bool *is_bad)
{
    const int digit = weir_hex_digit(c);
    *is_bad = digit < 0;
    if (*is_bad) return WEIR_OK;
    s->code = s->code << 4 | (uint32_t)digit;
    if (--s->n_hex > 0) return WEIR_OK;
    s->state = STRING;
    return put_code(s, out, is_bad);
}

/* ---- numbers and words ----------------------------------------------------------------------- */

/* The state after c; -1: c is not part of the number. */
static int next_number(int number, char c)
{
    const bool digit = is_digit(c), e = c == 'e' || c == 'E';
    switch ((enum number)number) {
    case MINUS: return c == '0' ? ZERO : digit ? INTEGER : -1;
    case ZERO: return c == '.' ? POINT : e ? EXPONENT : -1;
    case INTEGER: return digit ? INTEGER : c == '.' ? POINT : e ? EXPONENT : -1;
    case POINT: return digit ? FRACTION : -1;
    case FRACTION: return digit ? FRACTION : e ? EXPONENT : -1;
    case EXPONENT: return digit ? EXPONENT_DIGITS : c == '+' || c == '-' ? EXPONENT_SIGN : -1;
    case EXPONENT_SIGN: return digit ? EXPONENT_DIGITS : -1;
    case EXPONENT_DIGITS: return digit ? EXPONENT_DIGITS : -1;
    }
    return -1;
}

static bool is_number(int number)
{
    return number == ZERO || number == INTEGER || number == FRACTION || number == EXPONENT_DIGITS;
}

static const char *word_of(const weir_value_scanner *s)
{
    static const char *const words[][2] = { { "true", "true" },   { "false", "false" },
                                            { "null", "null" },   { "True", "true" },
                                            { "False", "false" }, { "None", "null" } };
    const size_t n = s->dialect == WEIR_VALUE_PYTHON ? 6 : 3;
    for (size_t i = 0; i < n; i++)
        if (strlen(words[i][0]) == s->n_word && memcmp(words[i][0], s->word, s->n_word) == 0)
            return words[i][1];
    return NULL;
}

/* *used is false if c is behind the number or word. */
static weir_status step_scalar(
    weir_value_scanner *s, weir_buffer *out, char c, bool *used, bool *is_bad
)
{
    if (s->state == NUMBER) {
        const int next = next_number(s->number, c);
        *used = next >= 0;
        *is_bad = next < 0 && !is_number(s->number);
        if (*used) s->number = next;
        if (*used) return put_char(s, out, c);
    } else {
        *used = is_letter(c);
        *is_bad = *used && s->n_word == sizeof s->word;
        if (*is_bad) return WEIR_OK;
        if (*used) s->word[s->n_word++] = c;
        if (*used) return WEIR_OK;
        const char *const word = word_of(s);
        *is_bad = word == NULL;
        if (word != NULL) WEIR_TRY(put(s, out, word, strlen(word)));
    }
    end_value(s);
    return WEIR_OK;
}

static weir_status step_value(weir_value_scanner *s, weir_buffer *out, char c, bool *is_bad)
{
    if (s->state == FIRST && c == closing(s)) return close_container(s, out, is_bad);
    if (begins_string(s, c)) return begin_string(s, out, c, false);
    WEIR_TRY(begin_item(s, out));
    if (c == '[') return open_container(s, out, ARRAY, is_bad);
    if (c == '{') return open_container(s, out, OBJECT, is_bad);
    if (c == '(' && s->dialect == WEIR_VALUE_PYTHON && s->depth == 0)
        return open_container(s, out, KEYWORDS, is_bad);
    if (is_digit(c) || c == '-') {
        s->state = NUMBER;
        s->number = c == '-' ? MINUS : c == '0' ? ZERO : INTEGER;
        return put_char(s, out, c);
    }
    *is_bad = !is_letter(c);
    s->state = WORD;
    s->word[0] = c;
    s->n_word = 1;
    return WEIR_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static weir_status step(weir_value_scanner *s, weir_buffer *out, char c, bool *used, bool *is_bad)
{
    const bool skips = s->state <= FIRST_KEY || s->state == COLON || s->state == NEXT;
    *used = true;
    if (skips && is_space(c)) return WEIR_OK;
    switch ((enum state)s->state) {
    case VALUE:
    case FIRST: return step_value(s, out, c, is_bad);
    case KEY:
    case FIRST_KEY: return step_key(s, out, c, is_bad);
    case BARE_KEY: return step_bare_key(s, out, c, is_bad);
    case COLON: return step_colon(s, out, c, is_bad);
    case STRING: return step_string(s, out, c, is_bad);
    case ESCAPE: return step_escape(s, out, c, is_bad);
    case HEX: return step_hex(s, out, c, is_bad);
    case NUMBER:
    case WORD: return step_scalar(s, out, c, used, is_bad);
    case NEXT: return step_next(s, out, c, is_bad);
    case DONE: break;
    }
    *used = false;
    return WEIR_OK;
}

weir_status weir_value_scan(
    weir_value_scanner *s, weir_buffer *out, const char *text, size_t n, size_t *used,
    weir_value_end *end
)
{
    size_t i = 0;
    bool is_bad = false;
    while (i < n && s->state != DONE && !is_bad) {
        bool taken;
        WEIR_TRY(step(s, out, text[i], &taken, &is_bad));
        if (taken && !is_bad) i++;
    }
    if (s->dialect == WEIR_VALUE_JSON) WEIR_TRY(weir_buffer_add(out, text, i));
    *used = i;
    *end = is_bad ? WEIR_VALUE_BAD : s->state == DONE ? WEIR_VALUE_DONE : WEIR_VALUE_MORE;
    return WEIR_OK;
}

weir_status weir_value_is_json(bool *is_json, char *first, const char *text, size_t n)
{
    weir_value_scanner scanner = { .dialect = WEIR_VALUE_JSON };
    weir_value_end end = WEIR_VALUE_MORE;
    weir_buffer ignored = { 0 };
    size_t used = 0, after;
    while (n > 0 && is_space(*text)) text++, n--;
    while (n > 0 && is_space(text[n - 1])) n--;
    *first = n > 0 ? *text : '\0';
    weir_status status = weir_value_scan(&scanner, &ignored, text, n, &used, &end);
    if (status == WEIR_OK && end == WEIR_VALUE_MORE) /* ends a number or word */
        status = weir_value_scan(&scanner, &ignored, " ", 1, &after, &end);
    *is_json = status == WEIR_OK && end == WEIR_VALUE_DONE && used == n && n > 0;
    weir_buffer_free(&ignored);
    return status;
}
