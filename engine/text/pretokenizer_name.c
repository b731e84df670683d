#include "engine/text/pretokenizer_name.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"
#include "engine/text/pretokenizer.h"

enum { PATTERNS = 6 };

/* The patterns of a pre_tokenizer, in order. */
typedef struct list {
    const char *patterns[PATTERNS];
    size_t n;
    bool is_other; /* it has something that no name stands for */
} list;

static const char *text_of(const json_t *object, const char *key)
{
    const char *const text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static void add(list *l, const char *pattern)
{
    if (l->n == PATTERNS)
        l->is_other = true;
    else
        l->patterns[l->n++] = pattern;
}

static void add_component(list *l, const json_t *component)
{
    const char *const type = text_of(component, "type");
    size_t i;
    const json_t *part;
    if (strcmp(type, "Sequence") == 0) {
        json_array_foreach(json_object_get(component, "pretokenizers"), i, part)
            add_component(l, part); /* NOLINT(misc-no-recursion): JSON has limits on depth */
    } else if (strcmp(type, "ByteLevel") == 0) {
        if (!json_is_false(json_object_get(component, "use_regex"))) add(l, weir_pattern_gpt2);
    } else if (strcmp(type, "Digits") == 0) {
        add(l,
            json_is_true(json_object_get(component, "individual_digits")) ? "\\p{N}" : "\\p{N}+");
    } else if (strcmp(type, "Split") == 0) {
        const char *const regex = text_of(json_object_get(component, "pattern"), "Regex");
        if (regex[0] == '\0') l->is_other = true;
        add(l, regex);
    } else {
        l->is_other = true;
    }
}

/* Compares patterns, of which the first may have \x{HEX} for characters, and the second \" for a
 * quote. */
static bool is_same(const char *with_hex, const char *pattern)
{
    while (*with_hex != '\0' && *pattern != '\0') {
        if (strncmp(with_hex, "\\x{", 3) == 0 && *pattern != '\\') {
            char *end;
            size_t length;
            const unsigned long code = strtoul(with_hex + 3, &end, 16);
            if (weir_utf8_decode(pattern, &length) != (int32_t)code || *end != '}') return false;
            with_hex = end + 1;
            pattern += length;
        } else if (*with_hex == '"' && pattern[0] == '\\' && pattern[1] == '"') {
            with_hex++;
            pattern += 2;
        } else if (*with_hex++ != *pattern++) {
            return false;
        }
    }
    return *with_hex == '\0' && *pattern == '\0';
}

static bool is_kind(const weir_pretokenizer_kind *kind, const list *l)
{
    size_t n = 0;
    while (n < PATTERNS && kind->patterns[n] != NULL) n++;
    bool same = n == l->n;
    for (size_t i = 0; same && i < n; i++) same = is_same(kind->patterns[i], l->patterns[i]);
    return same;
}

static bool has_nfc(const json_t *normalizer)
{
    size_t i;
    const json_t *part;
    if (strcmp(text_of(normalizer, "type"), "NFC") == 0) return true;
    json_array_foreach(
        json_object_get(normalizer, "normalizers"), i, part
    ) if (has_nfc(part)) return true; /* NOLINT(misc-no-recursion) */
    return false;
}

const char *weir_pretokenizer_name(const json_t *root)
{
    list l = { .n = 0 };
    const bool nfc = has_nfc(json_object_get(root, "normalizer")),
               ignores =
                   json_is_true(json_object_get(json_object_get(root, "model"), "ignore_merges"));
    const weir_pretokenizer_kind *kind;
    add_component(&l, json_object_get(root, "pre_tokenizer"));
    for (size_t i = 0; !l.is_other && (kind = weir_pretokenizer_at(i)) != NULL; i++)
        if (kind->nfc == nfc && kind->ignore_merges == ignores && is_kind(kind, &l))
            return kind->name;
    return NULL;
}
