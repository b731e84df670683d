/* engine/text/pattern.c - translates patterns of tokenizer files from Oniguruma's syntax to
 * PCRE2's. Where the two differ, or are not known to agree, the pattern is refused: a tokenizer
 * that splits text slightly differently gives worse answers without any sign. */
#include <string.h>

#include "engine/text/pretokenizer.h"

typedef struct reader {
    const char *text;
    size_t n, at;
    bool in_class;
} reader;

static weir_status refuse(const reader *in, size_t length, const char *what, weir_error *error)
{
    const size_t shown = length < in->n - in->at ? length : in->n - in->at;
    return weir_error_set(
        error, WEIR_EUNSUPPORTED, "the pattern has %s '%.*s' at byte %zu, which is not supported",
        what, (int)shown, in->text + in->at, in->at
    );
}

static bool follows(const reader *in, const char *text)
{
    const size_t length = strlen(text);
    return length <= in->n - in->at && memcmp(in->text + in->at, text, length) == 0;
}

static weir_status copy(reader *in, weir_buffer *out, size_t n)
{
    in->at += n;
    return weir_buffer_add(out, in->text + in->at - n, n);
}

/* \p{Name}: a general category is copied; the name of a script means its Script property, not its
 * extensions as in PCRE2. */
static weir_status property(reader *in, weir_buffer *out, weir_error *error)
{
    const char *const close = memchr(in->text + in->at, '}', in->n - in->at);
    if (in->n - in->at < 4 || in->text[in->at + 2] != '{' || close == NULL)
        return refuse(in, 4, "the property", error);
    const size_t length = (size_t)(close - in->text) - in->at + 1, name = length - 4;
    for (size_t i = 3; i < length - 1; i++) {
        const char letter = in->text[in->at + i];
        if (!(letter >= 'a' && letter <= 'z') && !(letter >= 'A' && letter <= 'Z') && letter != '_')
            return refuse(in, length, "the property", error);
    }
    if (name <= 2) return copy(in, out, length);
    WEIR_TRY(weir_buffer_add(out, in->text + in->at, 3));
    WEIR_TRY(weir_buffer_text(out, "sc:"));
    in->at += 3;
    return copy(in, out, length - 3);
}

/* In Oniguruma `\s` is the property White_Space; PCRE2's also matches U+180E. */
static weir_status escape(reader *in, weir_buffer *out, weir_error *error)
{
    const char letter = in->at + 1 < in->n ? in->text[in->at + 1] : '\0';
    if (letter == 's' || letter == 'S') {
        in->at += 2;
        return weir_buffer_text(out, letter == 's' ? "\\p{White_Space}" : "\\P{White_Space}");
    }
    if (letter == 'p' || letter == 'P') return property(in, out, error);
    if (letter == 'x' && follows(in, "\\x{")) return copy(in, out, 3);
    if (letter == 'u') {
        if (in->n - in->at < 6) return refuse(in, 6, "the escape", error);
        WEIR_TRY(weir_buffer_text(out, "\\x{"));
        WEIR_TRY(weir_buffer_add(out, in->text + in->at + 2, 4));
        in->at += 6;
        return weir_buffer_text(out, "}");
    }
    const bool punctuation = letter > ' ' && letter < 0x7F && strchr("_<>", letter) == NULL &&
                             !((letter | 32) >= 'a' && (letter | 32) <= 'z') &&
                             !(letter >= '0' && letter <= '9');
    if (punctuation || (letter != '\0' && strchr("rntfdD_<>", letter) != NULL))
        return copy(in, out, 2);
    return refuse(in, 2, "the escape", error);
}

static weir_status group(reader *in, weir_buffer *out, weir_error *error)
{
    static const char *const known[] = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?i)", "(?>"
    };
    if (!follows(in, "(?")) return copy(in, out, 1);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (follows(in, known[i])) return copy(in, out, strlen(known[i]));
    return refuse(in, 4, "the group", error);
}

/* Inside a class, Oniguruma reads `[` as a nested set and `&&` as an intersection; PCRE2 reads
 * plain characters. */
static weir_status class_item(reader *in, weir_buffer *out, weir_error *error)
{
    if (follows(in, "[") || follows(in, "&&")) return refuse(in, 2, "the set operation", error);
    if (follows(in, "]")) in->in_class = false;
    return copy(in, out, 1);
}

static weir_status item(reader *in, weir_buffer *out, weir_error *error)
{
    if (follows(in, "\\")) return escape(in, out, error);
    if (in->in_class) return class_item(in, out, error);
    if (follows(in, "[")) {
        in->in_class = true;
        return copy(in, out, follows(in, "[^") ? 2 : 1);
    }
    if (follows(in, "(")) return group(in, out, error);
    if (follows(in, "}+")) return refuse(in, 2, "the repeated interval", error);
    return copy(in, out, 1);
}

weir_status weir_pattern_translate(
    weir_buffer *out, const char *pattern, size_t length, weir_error *error
)
{
    /* At every position of a run of spaces, `\s+$` is quadratic in the run; it can only match where
     * the run begins. */
    static const char trailing[] = "\\s+$";
    if (length == sizeof trailing - 1 && memcmp(pattern, trailing, length) == 0)
        return weir_buffer_text(out, "(?<!\\p{White_Space})\\p{White_Space}+$");
    reader in = { .text = pattern, .n = length };
    while (in.at < in.n) WEIR_TRY(item(&in, out, error));
    return WEIR_OK;
}
