/* engine/constrain/schema_leaf.c - a leaf: its types, and the automata of those without
 * keywords. */
#include <string.h>

#include "engine/constrain/decimal.h"
#include "engine/constrain/schema.h"

static unsigned type_bits(const weir_tree *type)
{
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {
        { "null", WEIR_TYPE_NULL },      { "boolean", WEIR_TYPE_BOOLEAN },
        { "integer", WEIR_TYPE_NUMBER }, { "number", WEIR_TYPE_NUMBER | WEIR_TYPE_FRACTION },
        { "string", WEIR_TYPE_STRING },  { "array", WEIR_TYPE_ARRAY },
        { "object", WEIR_TYPE_OBJECT },
    };
    unsigned bits = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (weir_tree_is(type, types[i].name)) bits |= types[i].bits;
    }
    for (size_t i = 0; i < type->n; i++) bits |= type_bits(&type->items[i]);
    return bits;
}

static void put(const weir_schema_leaf *leaf, uint32_t at, const weir_tree **order, uint32_t *n)
{
    for (uint32_t i = at + 1; i < leaf->n; i++) {
        if (leaf->before[i] == at) put(leaf, i, order, n);
    }
    order[(*n)++] = leaf->nodes[at];
}

void weir_schema_order(const weir_schema_leaf *leaf, const weir_tree **order)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < leaf->n; i++) {
        if (leaf->before[i] == UINT32_MAX) put(leaf, i, order, &n);
    }
}

unsigned weir_schema_types(const weir_schema_leaf *leaf)
{
    unsigned bits = WEIR_TYPE_ALL | WEIR_TYPE_FRACTION;
    for (uint32_t i = 0; i < leaf->n; i++) {
        const weir_tree *const type = weir_tree_get(leaf->nodes[i], "type");
        if (type != NULL) bits &= type_bits(type);
    }
    return bits;
}

const weir_tree *weir_schema_enum(const weir_schema_leaf *leaf, size_t *n)
{
    for (uint32_t i = 0; i < leaf->n; i++) {
        const weir_tree *const value = weir_tree_get(leaf->nodes[i], "const");
        *n = 1;
        if (value != NULL) return value;
    }
    for (uint32_t i = 0; i < leaf->n; i++) {
        const weir_tree *const values = weir_tree_get(leaf->nodes[i], "enum");
        if (values == NULL) continue;
        *n = values->n;
        return values->n == 0 ? values : values->items;
    }
    return NULL;
}

bool weir_schema_is_free(const weir_schema_leaf *leaf)
{
    static const char *const keywords[] = {
        "type",
        "enum",
        "const",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "multipleOf",
        "items",
        "prefixItems",
        "exclusiveMaximum",
        "minItems",
        "maxItems",
        "properties",
        "required",
        "patternProperties",
        "additionalProperties",
        "minProperties",
        "maxProperties",
    };
    for (uint32_t i = 0; i < leaf->n; i++) {
        for (size_t k = 0; k < sizeof keywords / sizeof *keywords; k++) {
            if (weir_tree_get(leaf->nodes[i], keywords[k]) != NULL) return false;
        }
    }
    return true;
}

uint32_t weir_schema_white(weir_schema *s, uint32_t next)
{
    weir_nfa *const nfa = s->nfa;
    if (s->white == UINT32_MAX) {
        s->white = weir_rules_add(s->rules);
        if (s->white == UINT32_MAX) return 0;
        uint32_t at = weir_nfa_accept(nfa);
        const uint32_t end = at;
        for (size_t i = 0; i < s->compiler->limits->white_space; i++) {
            const uint32_t space = weir_nfa_byte(nfa, ' ', ' ', at);
            const uint32_t lines = weir_nfa_split(
                nfa, weir_nfa_byte(nfa, '\t', '\n', at), weir_nfa_byte(nfa, '\r', '\r', at)
            );
            at = weir_nfa_split(nfa, weir_nfa_split(nfa, space, lines), end);
        }
        if (nfa->status == WEIR_OK) s->rules->rules[s->white].start = at;
    }
    return weir_nfa_call(nfa, s->white, next);
}

uint32_t weir_schema_any_string(weir_schema *s)
{
    if (s->string != UINT32_MAX) return s->string;
    weir_nfa *const nfa = s->nfa;
    const uint32_t rule = weir_rules_add(s->rules);
    if (rule == UINT32_MAX) return 0;
    const uint32_t end = weir_nfa_byte(nfa, '"', '"', weir_nfa_accept(nfa));
    const uint32_t head = weir_nfa_loop(nfa);
    weir_nfa_loop_join(nfa, head, weir_nfa_json_char(nfa, head), end);
    s->rules->rules[rule].start = weir_nfa_byte(nfa, '"', '"', head);
    s->rules->rules[rule].text_end = end;
    s->string = rule;
    return rule;
}

/* Items or members in brackets, separated by commas. `member`: what one is before the white space
 * after it, given what follows. */
static uint32_t any_list(weir_schema *s, bool object, uint32_t next)
{
    weir_nfa *const nfa = s->nfa;
    const uint32_t end = weir_nfa_byte(nfa, object ? '}' : ']', object ? '}' : ']', next);
    const uint32_t more = weir_nfa_loop(nfa); /* after a member: a comma, or the end */
    uint32_t member = weir_nfa_call(nfa, s->any, weir_schema_white(s, more));
    if (object) {
        const uint32_t colon = weir_nfa_byte(nfa, ':', ':', weir_schema_white(s, member));
        member = weir_nfa_call(nfa, weir_schema_any_string(s), weir_schema_white(s, colon));
    }
    weir_nfa_loop_join(nfa, more, weir_nfa_byte(nfa, ',', ',', weir_schema_white(s, member)), end);
    const uint32_t first = weir_schema_white(s, weir_nfa_split(nfa, member, end));
    return weir_nfa_byte(nfa, object ? '{' : '[', object ? '{' : '[', first);
}

static uint32_t words(weir_schema *s, unsigned types, uint32_t next)
{
    weir_nfa *const nfa = s->nfa;
    uint32_t out = 0;
    if ((types & WEIR_TYPE_NULL) != 0) out = weir_schema_word(s, WEIR_TREE_NULL, next);
    if ((types & WEIR_TYPE_BOOLEAN) != 0) {
        out = weir_nfa_split(nfa, out, weir_schema_word(s, WEIR_TREE_TRUE, next));
        out = weir_nfa_split(nfa, out, weir_schema_word(s, WEIR_TREE_FALSE, next));
    }
    return out;
}

uint32_t weir_schema_any(weir_schema *s)
{
    if (s->any != UINT32_MAX) return s->any;
    weir_nfa *const nfa = s->nfa;
    s->any = weir_rules_add(s->rules);
    if (s->any == UINT32_MAX) return 0;
    const weir_schema_leaf free_leaf = { 0 };
    const uint32_t end = weir_nfa_accept(nfa);
    uint32_t out = words(s, WEIR_TYPE_ALL, end);
    out =
        weir_nfa_split(nfa, out, weir_nfa_call(nfa, weir_schema_number(s, &free_leaf, false), end));
    out = weir_nfa_split(nfa, out, weir_nfa_call(nfa, weir_schema_any_string(s), end));
    out = weir_nfa_split(nfa, out, any_list(s, false, end));
    out = weir_nfa_split(nfa, out, any_list(s, true, end));
    s->rules->rules[s->any].start = out;
    return s->any;
}

static uint32_t build_enum(
    weir_schema *s, const weir_schema_leaf *leaf, const weir_tree *values, size_t n, uint32_t end
)
{
    uint32_t out = 0;
    for (size_t i = 0; i < n && s->status == WEIR_OK && s->nfa->status == WEIR_OK; i++) {
        if (!weir_schema_fits(s, &values[i], leaf)) continue;
        out = weir_nfa_split(s->nfa, out, weir_schema_literal(s, &values[i], end));
    }
    return out;
}

uint32_t weir_schema_build(weir_schema *s, const weir_schema_leaf *leaf)
{
    const uint32_t end = weir_nfa_accept(s->nfa);
    size_t n = 0;
    const weir_tree *const values = weir_schema_enum(leaf, &n);
    if (values != NULL) return build_enum(s, leaf, values, n, end);
    if (weir_schema_is_free(leaf)) return weir_nfa_call(s->nfa, weir_schema_any(s), end);
    return weir_schema_build_types(s, leaf, weir_schema_types(leaf), end);
}

uint32_t weir_schema_build_types(
    weir_schema *s, const weir_schema_leaf *leaf, unsigned types, uint32_t end
)
{
    weir_nfa *const nfa = s->nfa;
    uint32_t out = words(s, types, end);
    if ((types & WEIR_TYPE_NUMBER) != 0) {
        const uint32_t rule = weir_schema_number(s, leaf, (types & WEIR_TYPE_FRACTION) == 0);
        if (s->status == WEIR_OK) out = weir_nfa_split(nfa, out, weir_nfa_call(nfa, rule, end));
    }
    if ((types & WEIR_TYPE_STRING) != 0) {
        const uint32_t rule = weir_schema_string(s, leaf);
        if (s->status == WEIR_OK) out = weir_nfa_split(nfa, out, weir_nfa_call(nfa, rule, end));
    }
    if ((types & WEIR_TYPE_ARRAY) != 0) {
        out = weir_nfa_split(nfa, out, weir_schema_array(s, leaf, end));
    }
    if ((types & WEIR_TYPE_OBJECT) != 0) {
        out = weir_nfa_split(nfa, out, weir_schema_object(s, leaf, end));
    }
    return out;
}
