/* engine/constrain/schema_array.c - arrays: a state for each count up to the limits, then a
 * loop. */
#include <string.h>

#include "engine/constrain/schema.h"

weir_schema_set weir_schema_item(weir_schema *s, const weir_schema_leaf *leaf, size_t index)
{
    weir_schema_set set = { 0 };
    for (uint32_t i = 0; i < leaf->n; i++) {
        const weir_tree *const prefix = weir_tree_get(leaf->nodes[i], "prefixItems");
        const weir_tree *const items = weir_tree_get(leaf->nodes[i], "items");
        if (prefix != NULL && index < prefix->n) {
            weir_schema_add(s, &set, &prefix->items[index], false);
        } else if (items != NULL) {
            weir_schema_add(s, &set, items, false);
        }
    }
    return set;
}

typedef struct array {
    weir_schema *s;
    uint64_t low, high; /* items */
    uint32_t end; /* the closing bracket */
} array;

/* After `count` items and white space, when `more` is what a further item is, or 0. */
static uint32_t after_item(const array *a, uint64_t count, uint32_t more)
{
    weir_nfa *const nfa = a->s->nfa;
    const uint32_t comma =
        more == 0 ? 0 : weir_nfa_byte(nfa, ',', ',', weir_schema_white(a->s, more));
    return weir_nfa_split(nfa, comma, count >= a->low ? a->end : 0);
}

uint32_t weir_schema_array(weir_schema *s, const weir_schema_leaf *leaf, uint32_t next)
{
    weir_nfa *const nfa = s->nfa;
    array a = { .s = s, .high = UINT64_MAX };
    weir_schema_limit(s, leaf, "minItems", true, &a.low);
    const bool limited = weir_schema_limit(s, leaf, "maxItems", false, &a.high);
    if (limited && a.low > a.high) return 0;
    uint64_t prefix = 0;
    for (uint32_t i = 0; i < leaf->n; i++) {
        const weir_tree *const list = weir_tree_get(leaf->nodes[i], "prefixItems");
        if (list != NULL && list->n > prefix) prefix = list->n;
    }
    if (prefix > a.high) prefix = a.high;
    const uint64_t counted = limited ? a.high : a.low > prefix ? a.low : prefix;
    if (counted > s->compiler->limits->states / 4) {
        weir_schema_refuse(
            s, WEIR_EUNSUPPORTED, leaf->nodes[0], limited ? "maxItems" : "minItems",
            "\"%s\" %llu needs too many automaton states", limited ? "maxItems" : "minItems",
            (unsigned long long)counted
        );
        return 0;
    }
    a.end = weir_nfa_byte(nfa, ']', ']', next);
    const uint32_t rest = weir_schema_rule_of(s, weir_schema_item(s, leaf, (size_t)prefix));
    uint32_t item = 0; /* the item of index `at`, from the last one down */
    if (!limited) {
        const uint32_t more = weir_nfa_loop(nfa);
        item = weir_nfa_call(nfa, rest, weir_schema_white(s, more));
        const uint32_t comma = weir_nfa_byte(nfa, ',', ',', weir_schema_white(s, item));
        weir_nfa_loop_join(nfa, more, comma, counted + 1 >= a.low ? a.end : 0);
    }
    for (uint64_t at = counted; at-- > 0 && s->status == WEIR_OK && nfa->status == WEIR_OK;) {
        const uint32_t rule =
            at >= prefix ? rest : weir_schema_rule_of(s, weir_schema_item(s, leaf, (size_t)at));
        item = weir_nfa_call(nfa, rule, weir_schema_white(s, after_item(&a, at + 1, item)));
    }
    const uint32_t first = weir_nfa_split(nfa, item, a.low == 0 ? a.end : 0);
    return weir_nfa_byte(nfa, '[', '[', weir_schema_white(s, first));
}
