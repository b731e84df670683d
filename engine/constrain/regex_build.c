/* engine/constrain/regex_build.c - from a parsed expression to automata. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/constrain/regex.h"

weir_status weir_ranges_add(weir_ranges *ranges, weir_scratch *scratch, uint32_t low, uint32_t high)
{
    if (ranges->n == ranges->capacity) {
        const size_t capacity = ranges->capacity == 0 ? 8 : ranges->capacity * 2;
        weir_range *const larger = weir_scratch_take(scratch, capacity * sizeof *larger);
        if (larger == NULL) return WEIR_ENOMEM;
        if (ranges->n > 0) memcpy(larger, ranges->data, ranges->n * sizeof *larger);
        ranges->data = larger;
        ranges->capacity = capacity;
    }
    ranges->data[ranges->n++] = (weir_range){ low, high };
    return WEIR_OK;
}

static int compare(const void *a, const void *b)
{
    const weir_range *const x = a, *const y = b;
    return (x->low > y->low) - (x->low < y->low);
}

weir_status weir_ranges_finish(weir_ranges *ranges, weir_scratch *scratch, bool negated)
{
    if (ranges->n > 1) qsort(ranges->data, ranges->n, sizeof *ranges->data, compare);
    size_t n = 0;
    for (size_t i = 0; i < ranges->n; i++) {
        const weir_range r = ranges->data[i];
        if (n > 0 && r.low <= ranges->data[n - 1].high + 1) {
            if (r.high > ranges->data[n - 1].high) ranges->data[n - 1].high = r.high;
        } else {
            ranges->data[n++] = r;
        }
    }
    ranges->n = n;
    if (!negated) return WEIR_OK;
    weir_ranges others = { 0 };
    uint32_t from = 0;
    for (size_t i = 0; i < n; from = ranges->data[i++].high + 1) {
        if (ranges->data[i].low <= from) continue;
        WEIR_TRY(weir_ranges_add(&others, scratch, from, ranges->data[i].low - 1));
    }
    if (from <= 0x10FFFF) WEIR_TRY(weir_ranges_add(&others, scratch, from, 0x10FFFF));
    *ranges = others;
    return WEIR_OK;
}

weir_regex *weir_regex_node(weir_scratch *scratch, weir_regex_kind kind)
{
    weir_regex *const node = weir_scratch_take(scratch, sizeof *node);
    if (node != NULL) *node = (weir_regex){ .kind = kind };
    return node;
}

bool weir_regex_has_anchors(const weir_regex *regex)
{
    if (regex->kind == WEIR_REGEX_BEGIN || regex->kind == WEIR_REGEX_END) return true;
    for (const weir_regex *c = regex->child; c != NULL; c = c->next) {
        if (weir_regex_has_anchors(c)) return true;
    }
    return false;
}

/* Children are built from the last to the first; their number is bounded by the text, so the list
 * is turned around first. */
static uint32_t build_join(
    weir_nfa *nfa, const weir_regex *regex, weir_encoding encoding, uint32_t next
)
{
    size_t n = 0;
    for (const weir_regex *c = regex->child; c != NULL; c = c->next) n++;
    const weir_regex **const children = weir_memory_take(n * sizeof(const weir_regex *) + 1);
    if (children == NULL) {
        nfa->status = WEIR_ENOMEM;
        return 0;
    }
    n = 0;
    for (const weir_regex *c = regex->child; c != NULL; c = c->next) children[n++] = c;
    while (n > 0) next = weir_regex_build(nfa, children[--n], encoding, next);
    weir_memory_give(children);
    return next;
}

static uint32_t build_repeat(
    weir_nfa *nfa, const weir_regex *regex, weir_encoding encoding, uint32_t next
)
{
    uint32_t at = next;
    if (regex->high == WEIR_REGEX_ENDLESS) {
        at = weir_nfa_loop(nfa);
        const uint32_t body = weir_regex_build(nfa, regex->child, encoding, at);
        weir_nfa_loop_join(nfa, at, body, next);
    } else {
        for (int32_t i = regex->low; i < regex->high && nfa->status == WEIR_OK; i++) {
            const uint32_t before = at;
            at = weir_nfa_split(nfa, weir_regex_build(nfa, regex->child, encoding, at), next);
            if (at == before) break; /* the child has no text: further ones add no states */
        }
    }
    for (int32_t i = 0; i < regex->low && nfa->status == WEIR_OK && at != 0; i++) {
        const uint32_t before = at;
        at = weir_regex_build(nfa, regex->child, encoding, at);
        if (at == before) break;
    }
    return at;
}

uint32_t weir_regex_build(
    weir_nfa *nfa, const weir_regex *regex, weir_encoding encoding, uint32_t next
)
{
    if (nfa->status != WEIR_OK) return 0;
    switch (regex->kind) {
    case WEIR_REGEX_EMPTY: return next;
    case WEIR_REGEX_CLASS: return weir_nfa_class(nfa, regex->ranges, regex->n, encoding, next);
    case WEIR_REGEX_BEGIN: return weir_nfa_anchor_state(nfa, WEIR_NFA_BEGIN, next);
    case WEIR_REGEX_END: return weir_nfa_anchor_state(nfa, WEIR_NFA_END, next);
    case WEIR_REGEX_JOIN: return build_join(nfa, regex, encoding, next);
    case WEIR_REGEX_REPEAT: return build_repeat(nfa, regex, encoding, next);
    case WEIR_REGEX_RULE: return weir_nfa_call(nfa, (uint32_t)regex->low, next);
    case WEIR_REGEX_EITHER: break;
    }
    uint32_t out = 0;
    for (const weir_regex *c = regex->child; c != NULL; c = c->next) {
        out = weir_nfa_split(nfa, out, weir_regex_build(nfa, c, encoding, next));
    }
    return out;
}
