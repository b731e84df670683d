/* engine/constrain/schema_value.c - values of enum and const: their texts, and whether the other
 * keywords allow them. */
#include <string.h>

#include "engine/base/buffer.h"
#include "engine/base/memory.h"
#include "engine/constrain/decimal.h"
#include "engine/constrain/parts.h"
#include "engine/constrain/schema.h"

static uint32_t number_literal(weir_schema *s, const weir_tree *value, uint32_t next)
{
    weir_nfa *const nfa = s->nfa;
    const uint32_t written = weir_nfa_text(nfa, value->text, value->length, next);
    weir_decimal d;
    if (!weir_decimal_read(&d, &s->scratch, value->text, value->length)) return written;
    /* The same number without exponent and without zeros at the end. */
    uint32_t plain = weir_nfa_text(nfa, d.fraction, d.n_fraction, next);
    if (d.n_fraction > 0) plain = weir_nfa_byte(nfa, '.', '.', plain);
    plain = weir_nfa_text(nfa, d.whole, d.n_whole, plain);
    if (d.negative) plain = weir_nfa_byte(nfa, '-', '-', plain);
    return weir_nfa_split(nfa, written, plain);
}

uint32_t weir_schema_word(weir_schema *s, weir_tree_kind kind, uint32_t next)
{
    static const char *const words[2][3] = { { "null", "false", "true" },
                                             { "None", "False", "True" } };
    const char *const word = words[s->nfa->python ? 1 : 0][kind];
    return weir_nfa_text(s->nfa, word, strlen(word), next);
}

uint32_t weir_schema_literal(weir_schema *s, const weir_tree *value, uint32_t next)
{
    weir_nfa *const nfa = s->nfa;
    if (value->kind <= WEIR_TREE_TRUE) return weir_schema_word(s, value->kind, next);
    if (value->kind == WEIR_TREE_NUMBER) return number_literal(s, value, next);
    if (value->kind == WEIR_TREE_STRING) {
        const uint32_t end = weir_nfa_byte(nfa, '"', '"', next);
        return weir_nfa_byte(
            nfa, '"', '"',
            weir_nfa_encoded(nfa, value->text, value->length, WEIR_ENCODING_JSON, end)
        );
    }
    const bool object = value->kind == WEIR_TREE_OBJECT;
    uint32_t at = weir_nfa_byte(nfa, object ? '}' : ']', object ? '}' : ']', next);
    for (size_t i = value->n; i-- > 0;) {
        const weir_tree *const item = &value->items[i];
        at = weir_schema_literal(s, item, weir_schema_white(s, at));
        if (object) {
            const uint32_t colon = weir_nfa_byte(nfa, ':', ':', weir_schema_white(s, at));
            const uint32_t end = weir_nfa_byte(nfa, '"', '"', weir_schema_white(s, colon));
            at = weir_nfa_byte(
                nfa, '"', '"',
                weir_nfa_encoded(nfa, item->key, item->key_length, WEIR_ENCODING_JSON, end)
            );
        }
        if (i > 0) at = weir_nfa_byte(nfa, ',', ',', weir_schema_white(s, at));
    }
    return weir_nfa_byte(nfa, object ? '{' : '[', object ? '{' : '[', weir_schema_white(s, at));
}

/* A set of states of an automaton without calls, while it reads a text. */
typedef struct reading {
    weir_schema *s;
    uint8_t *marks; /* owned, [states] */
    uint32_t *now, *next, *pending; /* owned, [states]; pending twice that */
    uint32_t n_now, n_next;
    bool accepts;
} reading;

static void enter(reading *r, uint32_t state)
{
    uint32_t n = 0;
    r->pending[n++] = state;
    while (n > 0) {
        const uint32_t at = r->pending[--n];
        const weir_nfa_state s = r->s->nfa->states[at];
        if (at == 0 || r->marks[at]) continue;
        r->marks[at] = 1;
        r->next[r->n_next++] = at;
        r->accepts |= s.kind == WEIR_NFA_ACCEPT;
        if (s.kind != WEIR_NFA_SPLIT) continue;
        r->pending[n++] = s.next;
        r->pending[n++] = s.other;
    }
}

static void turn(reading *r)
{
    uint32_t *const swap = r->now;
    r->now = r->next;
    r->n_now = r->n_next;
    r->next = swap;
    r->n_next = 0;
    for (uint32_t i = 0; i < r->n_now; i++) r->marks[r->now[i]] = 0;
}

bool weir_schema_accepts(weir_schema *s, uint32_t start, const char *text, size_t n)
{
    const size_t states = (size_t)s->nfa->count + 1;
    reading r = { .s = s };
    if (start == 0 || s->nfa->status != WEIR_OK) return false;
    if (!weir_schema_spend(s, states / 16 + n + 256)) return false;
    r.marks = weir_memory_take_zero(states, 1);
    r.now = weir_memory_take(states * sizeof *r.now);
    r.next = weir_memory_take(states * sizeof *r.next);
    r.pending = weir_memory_take(2 * states * sizeof *r.pending);
    if (r.marks == NULL || r.now == NULL || r.next == NULL || r.pending == NULL) {
        weir_schema_no_memory(s);
    } else {
        enter(&r, start);
        for (size_t i = 0; i < n; i++) {
            const unsigned char byte = (unsigned char)text[i];
            turn(&r);
            r.accepts = false;
            for (uint32_t k = 0; k < r.n_now; k++) {
                const weir_nfa_state state = s->nfa->states[r.now[k]];
                if (state.kind == WEIR_NFA_BYTE && state.low <= byte && byte <= state.high) {
                    enter(&r, state.next);
                }
            }
        }
    }
    weir_memory_give(r.marks);
    weir_memory_give(r.now);
    weir_memory_give(r.next);
    weir_memory_give(r.pending);
    return r.accepts;
}

static bool part_accepts(weir_schema *s, const weir_part *part, const char *text, size_t n)
{
    if (part->kind == WEIR_PART_MATCH) return weir_schema_accepts(s, part->start, text, n);
    if (part->kind == WEIR_PART_EXCLUDE) return !weir_schema_accepts(s, part->start, text, n);
    uint32_t value[WEIR_COUNTER_WORDS] = { 0 };
    for (size_t i = 0; i < n; i++) {
        if (!weir_counter_step(part, value, (unsigned char)text[i])) return false;
    }
    return weir_counter_accepts(part, value);
}

bool weir_schema_matches(weir_schema *s, uint32_t rule, const char *text, size_t n)
{
    if (s->status != WEIR_OK || s->nfa->status != WEIR_OK) return false;
    const weir_rule r = s->rules->rules[rule];
    if (rule == s->string) return true; /* any string */
    if (r.n_parts == 0) return weir_schema_accepts(s, r.start, text, n);
    for (uint32_t p = 0; p < r.n_parts; p++) {
        if (!part_accepts(s, &s->rules->parts[r.first_part + p], text, n)) return false;
    }
    return true;
}

/* Writes a string as JSON, with the escapes that are needed; NULL: no memory. */
static char *quoted(weir_schema *s, const char *text, size_t n, size_t *length)
{
    char *const out = weir_scratch_take(&s->scratch, 6 * n + 3);
    if (out == NULL) {
        weir_schema_no_memory(s);
        return NULL;
    }
    static const char hex[] = "0123456789abcdef";
    size_t at = 0;
    out[at++] = '"';
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\') out[at++] = '\\';
        if (c >= 0x20) {
            out[at++] = (char)c;
            continue;
        }
        memcpy(out + at, "\\u00", 4);
        out[at + 4] = hex[c >> 4];
        out[at + 5] = hex[c & 15];
        at += 6;
    }
    out[at++] = '"';
    *length = at;
    return out;
}

bool weir_schema_key_matches(weir_schema *s, uint32_t start, const char *key, size_t n)
{
    size_t length = 0;
    const char *const text = quoted(s, key, n, &length);
    return text != NULL && weir_schema_accepts(s, start, text, length);
}

typedef struct fitting {
    const weir_tree *value;
    bool fits;
} fitting;

static bool equal(const weir_tree *a, const weir_tree *b, weir_schema *s)
{
    if (a->kind != b->kind) return false;
    if (a->kind == WEIR_TREE_NUMBER) {
        weir_decimal x, y;
        if (!weir_decimal_read(&x, &s->scratch, a->text, a->length) ||
            !weir_decimal_read(&y, &s->scratch, b->text, b->length)) {
            return a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
        }
        return x.negative == y.negative && x.n_whole == y.n_whole && x.n_fraction == y.n_fraction &&
               memcmp(x.whole, y.whole, x.n_whole) == 0 &&
               memcmp(x.fraction, y.fraction, x.n_fraction) == 0;
    }
    if (a->kind == WEIR_TREE_STRING) {
        return a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
    }
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const weir_tree *const other =
            a->kind == WEIR_TREE_ARRAY ? &b->items[i]
                                       : weir_tree_find(b, a->items[i].key, a->items[i].key_length);
        if (other == NULL || !equal(&a->items[i], other, s)) return false;
    }
    return true;
}

/* Whether the value is one of those that enum and const of every schema list. */
static bool is_listed(weir_schema *s, const weir_tree *value, const weir_schema_leaf *leaf)
{
    for (uint32_t i = 0; i < leaf->n; i++) {
        const weir_tree *const one = weir_tree_get(leaf->nodes[i], "const");
        const weir_tree *const list = weir_tree_get(leaf->nodes[i], "enum");
        if (one != NULL && !equal(one, value, s)) return false;
        if (list == NULL || value->parent == list) continue;
        bool found = false;
        if (!weir_schema_spend(s, list->n)) return false;
        for (size_t k = 0; k < list->n && !found; k++) found = equal(&list->items[k], value, s);
        if (!found) return false;
    }
    return true;
}

static bool fits_leaf(weir_schema *s, const weir_schema_leaf *leaf, void *context)
{
    fitting *const f = context;
    f->fits = weir_schema_fits(s, f->value, leaf);
    return !f->fits;
}

static bool fits_set(weir_schema *s, const weir_tree *value, weir_schema_set set)
{
    fitting f = { .value = value };
    weir_schema_leaves(s, set, fits_leaf, &f);
    return f.fits;
}

static bool fits_number(weir_schema *s, const weir_tree *value, const weir_schema_leaf *leaf)
{
    const bool whole = (weir_schema_types(leaf) & WEIR_TYPE_FRACTION) == 0;
    weir_decimal d;
    if (!weir_decimal_read(&d, &s->scratch, value->text, value->length)) return !whole;
    if (whole && !weir_decimal_is_whole(&d)) return false;
    const uint32_t rule = weir_schema_number(s, leaf, whole);
    weir_buffer text = { 0 };
    weir_status status =
        weir_buffer_format(&text, "%s%.*s", d.negative ? "-" : "", (int)d.n_whole, d.whole);
    if (status == WEIR_OK && d.n_fraction > 0) {
        status = weir_buffer_format(&text, ".%.*s", (int)d.n_fraction, d.fraction);
    }
    if (status != WEIR_OK) weir_schema_no_memory(s);
    const bool fits = status == WEIR_OK && weir_schema_matches(s, rule, text.data, text.size);
    weir_buffer_free(&text);
    return fits;
}

static bool in_limits(
    weir_schema *s, const weir_schema_leaf *leaf, const char *least, const char *most, size_t n
)
{
    uint64_t low = 0, high = UINT64_MAX;
    weir_schema_limit(s, leaf, least, true, &low);
    weir_schema_limit(s, leaf, most, false, &high);
    return n >= low && n <= high;
}

static bool fits_object(weir_schema *s, const weir_tree *value, const weir_schema_leaf *leaf)
{
    if (!in_limits(s, leaf, "minProperties", "maxProperties", value->n)) return false;
    for (uint32_t i = 0; i < leaf->n; i++) {
        const weir_tree *const required = weir_tree_get(leaf->nodes[i], "required");
        for (size_t k = 0; required != NULL && k < required->n; k++) {
            const weir_tree *const key = &required->items[k];
            if (weir_tree_find(value, key->text, key->length) == NULL) return false;
        }
    }
    for (size_t i = 0; i < value->n; i++) {
        const weir_tree *const item = &value->items[i];
        bool declared;
        const weir_schema_set set =
            weir_schema_property(s, leaf, item->key, item->key_length, &declared);
        if (!fits_set(s, item, set)) return false;
    }
    return true;
}

bool weir_schema_fits(weir_schema *s, const weir_tree *value, const weir_schema_leaf *leaf)
{
    static const unsigned types[] = { WEIR_TYPE_NULL,   WEIR_TYPE_BOOLEAN, WEIR_TYPE_BOOLEAN,
                                      WEIR_TYPE_NUMBER, WEIR_TYPE_STRING,  WEIR_TYPE_ARRAY,
                                      WEIR_TYPE_OBJECT };
    if (s->status != WEIR_OK || (weir_schema_types(leaf) & types[value->kind]) == 0) return false;
    if (!is_listed(s, value, leaf)) return false;
    if (value->kind == WEIR_TREE_NUMBER) return fits_number(s, value, leaf);
    if (value->kind == WEIR_TREE_STRING) {
        size_t length = 0;
        const uint32_t rule = weir_schema_string(s, leaf);
        if (s->status != WEIR_OK || rule == s->string) return s->status == WEIR_OK;
        const char *const text = quoted(s, value->text, value->length, &length);
        return text != NULL && weir_schema_matches(s, rule, text, length);
    }
    if (value->kind == WEIR_TREE_OBJECT) return fits_object(s, value, leaf);
    if (value->kind != WEIR_TREE_ARRAY) return true;
    if (!in_limits(s, leaf, "minItems", "maxItems", value->n)) return false;
    for (size_t i = 0; i < value->n; i++) {
        if (!fits_set(s, &value->items[i], weir_schema_item(s, leaf, i))) return false;
    }
    return true;
}
