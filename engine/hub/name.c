/* engine/hub/name.c - names of models and of their files. */
#include "engine/hub/name.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "engine/formats/printable.h"

/* Not isalnum: it depends on the locale. */
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_alnum(char c) { return is_digit(c) || is_letter(c); }
static char upper(char c) { return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c; }

/* Length of the word at `text`; 0 if it is no good or longer than `most`. */
static size_t word_length(const char *text, size_t most)
{
    size_t n = 0;
    while (is_alnum(text[n]) || text[n] == '.' || text[n] == '_' || text[n] == '-') n++;
    if (n == 0 || n > most || text[0] == '.' || text[0] == '-') return 0;
    for (size_t i = 1; i < n; i++)
        if (text[i] == '.' && text[i - 1] == '.') return 0;
    return n;
}

/* Copies the word at *text and moves past it. */
static bool take_word(char *out, size_t most, const char **text)
{
    const size_t n = word_length(*text, most);
    memcpy(out, *text, n);
    out[n] = '\0';
    *text += n;
    return n > 0;
}

bool weir_hub_name_parse(weir_hub_name *out, const char *text)
{
    weir_hub_name name = { 0 };
    if (!take_word(name.owner, WEIR_HUB_WORD, &text) || *text != '/') return false;
    text++;
    if (!take_word(name.name, WEIR_HUB_WORD, &text)) return false;
    if (*text == ':') {
        text++;
        if (!take_word(name.quant, WEIR_HUB_QUANT, &text)) return false;
    }
    if (*text != '\0') return false;
    *out = name;
    return true;
}

bool weir_hub_revision_is_good(const char *revision)
{
    if (strlen(revision) > 200) return false;
    for (;;) {
        const size_t n = word_length(revision, 200);
        if (n == 0) return false;
        revision += n;
        if (*revision == '\0') return true;
        if (*revision++ != '/') return false;
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

const char *weir_hub_base_name(const char *file)
{
    const char *const slash = strrchr(file, '/');
    return slash != NULL ? slash + 1 : file;
}

bool weir_hub_ends_with(const char *file, const char *ending)
{
    const size_t n = strlen(file), m = strlen(ending);
    return n >= m && strcasecmp(file + n - m, ending) == 0;
}

/* One part of a path. */
static bool part_is_safe(const char *part, size_t n)
{
    enum { PART_BYTES = 200 }; /* a file system takes 255; ".part" is added */
    if (n == 0 || n > PART_BYTES || part[0] == '.') return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)part[i] < 0x20 || part[i] == 0x7F || part[i] == '\\' ||
            (i + 1 < n && (unsigned char)part[i] == 0xC2 && (unsigned char)part[i + 1] < 0xA0))
            return false; /* U+0080 to U+009F control terminals, too */
    return true;
}

bool weir_hub_file_is_safe(const char *file, size_t n)
{
    enum { DEPTH = 8 };
    if (n == 0 || n > WEIR_HUB_FILE || memchr(file, '\0', n) != NULL || !weir_name_valid(file, n) ||
        (n >= 5 && strncasecmp(file + n - 5, ".part", 5) == 0))
        return false;
    size_t begin = 0;
    for (int depth = 0; depth < DEPTH; depth++) {
        const char *const slash = memchr(file + begin, '/', n - begin);
        const size_t end = slash != NULL ? (size_t)(slash - file) : n;
        if (!part_is_safe(file + begin, end - begin)) return false;
        if (slash == NULL) return true;
        begin = end + 1;
    }
    return false;
}

bool weir_hub_file_has_quant(const char *file, const char *quant)
{
    const size_t n = strlen(quant);
    if (n == 0) return false;
    for (const char *at = file; *at != '\0'; at++) {
        if (at > file && is_alnum(at[-1])) continue;
        if (strncasecmp(at, quant, n) == 0 && !is_alnum(at[n]) && at[n] != '_') return true;
    }
    return false;
}

/* ---- quantisations --------------------------------------------------------------------------- */

/* Length of "Q4", "IQ2", "TQ1", "BF16", ... at `text`; 0: none. */
static size_t format_length(const char *text)
{
    static const char *const plain[] = { "BF16", "F16", "F32", "FP16", "FP8", "MXFP4", "NVFP4" };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strncasecmp(text, plain[i], strlen(plain[i])) == 0) return strlen(plain[i]);
    const size_t first = upper(text[0]) == 'I' || upper(text[0]) == 'T' ? 1 : 0;
    return upper(text[first]) == 'Q' && is_digit(text[first + 1]) ? first + 2 : 0;
}

/* Length of a quantisation: a format, and "_K", "_M", "_XXS", "_MOE" after it; 0: none. */
static size_t quant_length(const char *text)
{
    enum { SUFFIX = 3 };
    size_t n = format_length(text);
    if (n == 0) return 0;
    while (text[n] == '_') {
        size_t m = 0;
        while (is_alnum(text[n + 1 + m])) m++;
        if (m == 0 || m > SUFFIX) break;
        n += 1 + m;
    }
    return is_alnum(text[n]) || text[n] == '_' ? 0 : n;
}

void weir_hub_file_quant(char out[WEIR_HUB_QUANT + 1], const char *file)
{
    out[0] = '\0';
    for (const char *at = file; *at != '\0'; at++) {
        const size_t n = at > file && is_alnum(at[-1]) ? 0 : quant_length(at);
        if (n == 0 || n > WEIR_HUB_QUANT) continue;
        for (size_t i = 0; i < n; i++) out[i] = upper(at[i]);
        out[n] = '\0';
    }
}

bool weir_hub_is_gguf(const char *file)
{
    const char *const base = weir_hub_base_name(file);
    if (!weir_hub_ends_with(base, ".gguf")) return false;
    return strcasestr(base, "mmproj") == NULL && strcasestr(base, "imatrix") == NULL;
}

size_t weir_hub_set_length(const char *file)
{
    enum { SUFFIX = 20 }; /* "-00001-of-00003.gguf" */
    const size_t n = strlen(file);
    unsigned number, count;
    int end = 0;
    if (n > SUFFIX && sscanf(file + n - SUFFIX, "-%5u-of-%5u.gguf%n", &number, &count, &end) == 2 &&
        end == SUFFIX)
        return n - SUFFIX;
    return n;
}
