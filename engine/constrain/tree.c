/* engine/constrain/tree.c - reads JSON into trees. */
#include "engine/constrain/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/hex.h"
#include "engine/base/utf8.h"

static weir_status malformed(weir_tree_reader *r, const char *why)
{
    if (r->why == NULL) r->why = why;
    return WEIR_EFORMAT;
}

static void skip_space(weir_tree_reader *r)
{
    while (r->at < r->n && memchr(" \t\r\n", r->text[r->at], 4) != NULL) r->at++;
}

static bool skip(weir_tree_reader *r, char c)
{
    if (r->at >= r->n || r->text[r->at] != c) return false;
    r->at++;
    return true;
}

static int hex4(weir_tree_reader *r)
{
    int value = 0;
    if (r->n - r->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = weir_hex_digit(r->text[r->at++]);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

static weir_status escape(weir_tree_reader *r, char *out, size_t *length)
{
    static const char letters[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
    const char c = r->at < r->n ? r->text[r->at++] : '\0';
    const char *const known = c == '\0' ? NULL : strchr(letters, c);
    if (known != NULL) {
        out[(*length)++] = codes[known - letters];
        return WEIR_OK;
    }
    if (c != 'u') return malformed(r, "unknown escape");
    const int first = hex4(r);
    if (first < 0) return malformed(r, "\\u without four hexadecimal digits");
    uint32_t code = (uint32_t)first;
    if (code >= 0xD800 && code <= 0xDFFF) {
        const int second = skip(r, '\\') && skip(r, 'u') ? hex4(r) : -1;
        if (code >= 0xDC00 || second < 0xDC00 || second > 0xDFFF) {
            return malformed(r, "half of a surrogate pair");
        }
        code = 0x10000 + ((code - 0xD800) << 10) + ((uint32_t)second - 0xDC00);
    }
    *length += weir_utf8_encode(out + *length, code);
    return WEIR_OK;
}

static weir_status read_string(weir_tree_reader *r, const char **text, size_t *length)
{
    if (!skip(r, '"')) return malformed(r, "a string is expected");
    size_t end = r->at;
    while (end < r->n && r->text[end] != '"') end += r->text[end] == '\\' ? 2 : 1;
    if (end >= r->n) return malformed(r, "a string without its end");
    char *const out = weir_scratch_take(&r->scratch, end - r->at + 1);
    if (out == NULL) return WEIR_ENOMEM;
    size_t n = 0;
    while (r->at < end) {
        const unsigned char c = (unsigned char)r->text[r->at];
        uint32_t code;
        if (c == '\\') {
            r->at++;
            WEIR_TRY(escape(r, out, &n));
            continue;
        }
        if (c < 0x20) return malformed(r, "a control character in a string");
        const size_t size = weir_utf8_next(&code, r->text + r->at, r->n - r->at);
        if (size == 0) return malformed(r, "ill-formed UTF-8");
        memcpy(out + n, r->text + r->at, size);
        n += size;
        r->at += size;
    }
    r->at = end + 1;
    out[n] = '\0';
    *text = out;
    *length = n;
    return WEIR_OK;
}

static size_t digits(weir_tree_reader *r)
{
    const size_t begin = r->at;
    while (r->at < r->n && r->text[r->at] >= '0' && r->text[r->at] <= '9') r->at++;
    return r->at - begin;
}

static weir_status read_number(weir_tree_reader *r, weir_tree *out)
{
    const size_t begin = r->at;
    skip(r, '-');
    const bool zero = r->at < r->n && r->text[r->at] == '0';
    const size_t whole = digits(r);
    bool right = whole > 0 && (!zero || whole == 1);
    if (skip(r, '.')) right = digits(r) > 0 && right;
    if (skip(r, 'e') || skip(r, 'E')) {
        if (!skip(r, '+')) skip(r, '-');
        right = digits(r) > 0 && right;
    }
    out->kind = WEIR_TREE_NUMBER;
    out->text = r->text + begin;
    out->length = r->at - begin;
    return right ? WEIR_OK : malformed(r, "not a JSON value");
}

static weir_status read_word(weir_tree_reader *r, weir_tree *out)
{
    static const char *const words[] = { "null", "false", "true" };
    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(words[i]);
        if (r->n - r->at < n || memcmp(r->text + r->at, words[i], n) != 0) continue;
        r->at += n;
        out->kind = (weir_tree_kind)i;
        return WEIR_OK;
    }
    return read_number(r, out);
}

static int by_key(const void *a, const void *b)
{
    const weir_tree *const x = *(const weir_tree *const *)a, *const y =
                                                                 *(const weir_tree *const *)b;
    const size_t n = x->key_length < y->key_length ? x->key_length : y->key_length;
    const int order = memcmp(x->key, y->key, n);
    if (order != 0) return order;
    return (x->key_length > y->key_length) - (x->key_length < y->key_length);
}

static weir_status check_keys(weir_tree_reader *r, const weir_tree *object)
{
    if (object->n < 2) return WEIR_OK;
    const weir_tree **const sorted =
        weir_scratch_take(&r->scratch, object->n * sizeof(const weir_tree *));
    if (sorted == NULL) return WEIR_ENOMEM;
    for (size_t i = 0; i < object->n; i++) sorted[i] = &object->items[i];
    qsort(sorted, object->n, sizeof *sorted, by_key);
    for (size_t i = 1; i < object->n; i++) {
        if (by_key(&sorted[i - 1], &sorted[i]) == 0) return malformed(r, "a key twice");
    }
    return WEIR_OK;
}

static weir_status read_value(weir_tree_reader *r, weir_tree *out);

/* Reads the items of an array or object, after its bracket, into a list that grows in the
 * scratch. */
static weir_status read_items(weir_tree_reader *r, weir_tree *out, char end)
{
    size_t capacity = 0;
    skip_space(r);
    if (skip(r, end)) return WEIR_OK;
    for (;;) {
        if (out->n == capacity) {
            capacity = capacity == 0 ? 4 : capacity * 2;
            weir_tree *const larger = weir_scratch_take(&r->scratch, capacity * sizeof *larger);
            if (larger == NULL) return WEIR_ENOMEM;
            if (out->n > 0) memcpy(larger, out->items, out->n * sizeof *larger);
            out->items = larger;
        }
        weir_tree item = { 0 };
        skip_space(r);
        if (end == '}') {
            WEIR_TRY(read_string(r, &item.key, &item.key_length));
            skip_space(r);
            if (!skip(r, ':')) return malformed(r, "a : is expected");
        }
        WEIR_TRY(read_value(r, &item));
        out->items[out->n++] = item;
        skip_space(r);
        if (skip(r, end)) return end == '}' ? check_keys(r, out) : WEIR_OK;
        if (!skip(r, ',')) return malformed(r, "a , or a closing bracket is expected");
    }
}

static weir_status read_bare(weir_tree_reader *r, weir_tree *out)
{
    out->id = r->count++;
    if (r->at < r->n && r->text[r->at] == '"') {
        out->kind = WEIR_TREE_STRING;
        return read_string(r, &out->text, &out->length);
    }
    const bool object = skip(r, '{');
    if (!object && !skip(r, '[')) return read_word(r, out);
    out->kind = object ? WEIR_TREE_OBJECT : WEIR_TREE_ARRAY;
    if (++r->depth > r->most_depth) return malformed(r, "too many levels");
    WEIR_TRY(read_items(r, out, object ? '}' : ']'));
    r->depth--;
    return WEIR_OK;
}

static weir_status read_value(weir_tree_reader *r, weir_tree *out)
{
    skip_space(r);
    const size_t begin = r->at;
    WEIR_TRY(read_bare(r, out));
    out->raw = r->text + begin;
    out->raw_length = r->at - begin;
    return WEIR_OK;
}

static void set_parents(weir_tree *tree)
{
    for (size_t i = 0; i < tree->n; i++) {
        tree->items[i].parent = tree;
        set_parents(&tree->items[i]);
    }
}

weir_status weir_tree_read(
    weir_tree_reader *reader, const weir_tree **out, const char *text, size_t n, const char *name,
    weir_error *error
)
{
    reader->text = text;
    reader->n = n;
    if (reader->most_depth == 0) reader->most_depth = WEIR_TREE_DEPTH;
    weir_status status = WEIR_ENOMEM;
    weir_tree *const root = weir_scratch_take(&reader->scratch, sizeof *root);
    if (root != NULL) {
        *root = (weir_tree){ 0 };
        status = read_value(reader, root);
        skip_space(reader);
        if (status == WEIR_OK && reader->at < n) status = malformed(reader, "more after the value");
    }
    if (status == WEIR_EFORMAT) {
        return weir_error_set(
            error, status, "%s: not JSON: %s (at byte %zu)", name, reader->why, reader->at
        );
    }
    if (status != WEIR_OK) return weir_error_set(error, status, "no memory to read the %s", name);
    set_parents(root);
    *out = root;
    return WEIR_OK;
}

void weir_tree_reader_free(weir_tree_reader *reader)
{
    weir_scratch_free(&reader->scratch);
    *reader = (weir_tree_reader){ 0 };
}

const weir_tree *weir_tree_find(const weir_tree *object, const char *key, size_t length)
{
    if (object->kind != WEIR_TREE_OBJECT) return NULL;
    for (size_t i = 0; i < object->n; i++) {
        const weir_tree *const item = &object->items[i];
        if (item->key_length == length && memcmp(item->key, key, length) == 0) return item;
    }
    return NULL;
}

const weir_tree *weir_tree_get(const weir_tree *object, const char *key)
{
    return weir_tree_find(object, key, strlen(key));
}

bool weir_tree_is(const weir_tree *string, const char *text)
{
    return string->kind == WEIR_TREE_STRING && string->length == strlen(text) &&
           memcmp(string->text, text, string->length) == 0;
}

void weir_tree_path(const weir_tree *tree, char *out, size_t size)
{
    const weir_tree *chain[WEIR_TREE_DEEPEST + 2];
    size_t n = 0, at = 0;
    for (const weir_tree *t = tree; t->parent != NULL; t = t->parent) chain[n++] = t;
    out[at++] = '#';
    while (n > 0 && at + 24 < size) {
        const weir_tree *const t = chain[--n];
        out[at++] = '/';
        if (t->parent->kind == WEIR_TREE_ARRAY) {
            at += (size_t)snprintf(out + at, size - at, "%zu", (size_t)(t - t->parent->items));
            continue;
        }
        for (size_t i = 0; i < t->key_length && at + 24 < size; i++) {
            const unsigned char c = (unsigned char)t->key[i];
            if (c == '/' || c == '~') {
                out[at++] = '~';
                out[at++] = c == '/' ? '1' : '0';
            } else {
                out[at++] = c < 0x20 || c == 0x7F ? '?' : (char)c;
            }
        }
    }
    out[at] = '\0';
}
