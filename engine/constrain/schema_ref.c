/* engine/constrain/schema_ref.c - what "$ref" refers to: places, anchors and ids in the same
 * document. Nothing is fetched. */
#include <string.h>

#include "engine/base/hex.h"
#include "engine/constrain/schema.h"

static const char *copy(weir_schema *s, const char *a, size_t n, const char *b, size_t m)
{
    char *const out = weir_scratch_take(&s->scratch, n + m + 1);
    if (out == NULL) {
        weir_schema_no_memory(s);
        return "";
    }
    memcpy(out, a, n);
    memcpy(out + n, b, m);
    out[n + m] = '\0';
    return out;
}

/* Resolves a reference without fragment against the address of a document: absolute ones stay,
 * others replace what follows the last slash. */
static const char *resolve(weir_schema *s, const char *base, const char *text, size_t n)
{
    const char *const colon = memchr(text, ':', n);
    const char *const slash = memchr(text, '/', n);
    if (colon != NULL && (slash == NULL || colon < slash)) return copy(s, text, n, "", 0);
    if (n == 0 || base == NULL)
        return copy(s, base == NULL ? "" : base, base == NULL ? 0 : strlen(base), text, n);
    size_t keep = strlen(base);
    if (text[0] == '/') {
        const char *const host = strstr(base, "://");
        const char *const path = host == NULL ? NULL : strchr(host + 3, '/');
        keep = path == NULL ? keep : (size_t)(path - base);
    } else {
        while (keep > 0 && base[keep - 1] != '/') keep--;
    }
    return copy(s, base, keep, text, n);
}

static size_t without_fragment(const weir_tree *text)
{
    const char *const hash = memchr(text->text, '#', text->length);
    return hash == NULL ? text->length : (size_t)(hash - text->text);
}

static const char *base_of(const weir_schema *s, const weir_tree *node)
{
    for (; node != NULL; node = node->parent) {
        if (s->base[node->id] != NULL) return s->base[node->id];
    }
    return NULL;
}

void weir_schema_find_ids(weir_schema *s)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        const weir_tree *const node = s->by_id[i];
        const weir_tree *const id = weir_tree_get(node, "$id");
        if (id == NULL || id->kind != WEIR_TREE_STRING) continue;
        const size_t n = without_fragment(id);
        const char *const outer = node->parent == NULL ? NULL : base_of(s, node->parent);
        s->base[i] = resolve(s, outer, id->text, n);
        s->has_ids = true;
    }
}

/* Decodes %XX, then ~0 and ~1, of one step of a pointer. Returns its length. */
static size_t decode(char *out, const char *text, size_t n)
{
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        const int high = text[i] == '%' && n - i > 2 ? weir_hex_digit(text[i + 1]) : -1;
        const int low = high >= 0 ? weir_hex_digit(text[i + 2]) : -1;
        out[length++] = low >= 0 ? (char)(high << 4 | low) : text[i];
        if (low >= 0) i += 2;
    }
    size_t to = 0;
    for (size_t i = 0; i < length; i++, to++) {
        const bool escaped = out[i] == '~' && i + 1 < length;
        if (escaped && (out[i + 1] == '0' || out[i + 1] == '1')) {
            out[to] = out[++i] == '0' ? '~' : '/';
        } else {
            out[to] = out[i];
        }
    }
    return to;
}

/* Follows a JSON pointer. */
static const weir_tree *follow(weir_schema *s, const weir_tree *from, const char *pointer, size_t n)
{
    char *const step = weir_scratch_take(&s->scratch, n + 1);
    if (step == NULL) {
        weir_schema_no_memory(s);
        return NULL;
    }
    for (size_t at = 0; at < n && from != NULL;) {
        const char *const end = memchr(pointer + at + 1, '/', n - at - 1);
        const size_t stop = end == NULL ? n : (size_t)(end - pointer);
        const size_t length = decode(step, pointer + at + 1, stop - at - 1);
        at = stop;
        if (!weir_schema_spend(s, from->n)) return NULL;
        if (from->kind != WEIR_TREE_ARRAY) {
            from = weir_tree_find(from, step, length);
            continue;
        }
        size_t index = length == 0 ? SIZE_MAX : 0;
        for (size_t i = 0; i < length && index != SIZE_MAX; i++) {
            const bool digit = step[i] >= '0' && step[i] <= '9' && i < 9;
            index = digit ? index * 10 + (size_t)(step[i] - '0') : SIZE_MAX;
        }
        from = index < from->n ? &from->items[index] : NULL;
    }
    return from;
}

/* The schema with this anchor in the document of `root`. */
static const weir_tree *anchored(
    weir_schema *s, const weir_tree *root, const weir_tree *ref, const char *name, size_t n
)
{
    if (!weir_schema_spend(s, 8 * (uint64_t)s->n_nodes)) return NULL;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        const weir_tree *const node = s->by_id[i];
        static const char *const kinds[] = { "$anchor", "$dynamicAnchor" };
        for (int k = 0; k < 2; k++) {
            const weir_tree *const anchor = weir_tree_get(node, kinds[k]);
            if (anchor == NULL || anchor->kind != WEIR_TREE_STRING || anchor->length != n ||
                memcmp(anchor->text, name, n) != 0) {
                continue;
            }
            if (base_of(s, node) != base_of(s, root)) continue;
            if (k == 0) return node;
            weir_schema_refuse(
                s, WEIR_EUNSUPPORTED, ref, "$dynamicAnchor",
                "\"$ref\" to a \"$dynamicAnchor\" is not supported"
            );
            return NULL;
        }
    }
    return NULL;
}

static const weir_tree *document(weir_schema *s, const weir_tree *ref, size_t n)
{
    const char *const address = resolve(s, base_of(s, ref), ref->text, n);
    if (!weir_schema_spend(s, s->n_nodes)) return NULL;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        if (s->base[i] != NULL && strcmp(s->base[i], address) == 0) return s->by_id[i];
    }
    return NULL;
}

const weir_tree *weir_schema_target(weir_schema *s, const weir_tree *node)
{
    const weir_tree *const ref = weir_tree_get(node, "$ref");
    const size_t n = without_fragment(ref);
    const weir_tree *from = s->root, *target = NULL;
    if (n > 0) {
        from = document(s, ref, n);
    } else if (s->has_ids) {
        const weir_tree *inside = node;
        while (inside->parent != NULL && s->base[inside->id] == NULL) inside = inside->parent;
        from = inside;
    }
    const bool fragment = n < ref->length;
    const char *const name = ref->text + n + (fragment ? 1 : 0);
    const size_t length = ref->length - n - (fragment ? 1 : 0);
    if (from != NULL && (length == 0 || name[0] == '/')) {
        target = follow(s, from, name, length);
    } else if (from != NULL) {
        target = anchored(s, from, node, name, length);
    }
    if (target != NULL || s->status != WEIR_OK) return target;
    if (from == NULL) {
        static const char meta[] = "https://json-schema.org/";
        const bool schemas =
            ref->length >= strlen(meta) && memcmp(ref->text, meta, strlen(meta)) == 0;
        weir_schema_refuse(
            s, WEIR_EUNSUPPORTED, node, "$ref",
            "\"$ref\" to \"%.*s\", which is not in this document; nothing is fetched%s",
            (int)(ref->length < 150 ? ref->length : 150), ref->text,
            schemas ? " (and the schema of schemas uses \"$dynamicAnchor\")" : ""
        );
    } else {
        weir_schema_refuse(
            s, WEIR_EFORMAT, node, "$ref", "\"$ref\" to \"%.*s\", which does not exist",
            (int)(ref->length < 150 ? ref->length : 150), ref->text
        );
    }
    return NULL;
}
