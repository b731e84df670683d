/* engine/constrain/schema_number.c - rules of numbers. With bounds or "multipleOf" a number has no
 * exponent: an automaton could not compare it. */
#include <stdio.h>
#include <string.h>

#include "engine/base/buffer.h"
#include "engine/constrain/decimal.h"
#include "engine/constrain/schema.h"

static const char *const bounds[] = { "minimum", "exclusiveMinimum", "maximum",
                                      "exclusiveMaximum" };
enum { MOST_MODULUS = 4096 }; /* together with bounds or a fraction */

/* Adds the parts of the bounds of a rule that was just made. */
static void add_bounds(weir_schema *s, const weir_schema_leaf *leaf)
{
    weir_nfa *const nfa = s->nfa;
    for (uint32_t i = 0; i < leaf->n * 4 && s->status == WEIR_OK; i++) {
        const weir_tree *const value = weir_tree_get(leaf->nodes[i / 4], bounds[i % 4]);
        weir_decimal bound;
        if (value == NULL) continue;
        if (!weir_decimal_read(&bound, &s->scratch, value->text, value->length)) {
            weir_schema_no_memory(s);
            return;
        }
        const uint32_t end = weir_nfa_accept(nfa);
        const uint32_t start = i % 4 < 2 ? weir_nfa_at_least(nfa, &bound, i % 4 == 1, end)
                                         : weir_nfa_at_most(nfa, &bound, i % 4 == 3, end);
        weir_rules_part(s->rules, (weir_part){ .kind = WEIR_PART_MATCH, .start = start });
    }
}

/* The divisor as modulus / 10^scale; false: too large. */
static bool divisor(const weir_decimal *d, uint64_t *modulus, uint64_t *scale)
{
    *modulus = 0;
    *scale = d->n_fraction;
    if (d->n_whole + d->n_fraction > 15) return false;
    for (size_t i = 0; i < d->n_whole; i++)
        *modulus = *modulus * 10 + (uint64_t)(d->whole[i] - '0');
    for (size_t i = 0; i < d->n_fraction; i++) {
        *modulus = *modulus * 10 + (uint64_t)(d->fraction[i] - '0');
    }
    return *modulus > 0;
}

/* Adds the parts of "multipleOf". Returns how many. */
static uint32_t add_divisors(weir_schema *s, const weir_schema_leaf *leaf, bool alone)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < leaf->n && s->status == WEIR_OK; i++) {
        const weir_tree *const value = weir_tree_get(leaf->nodes[i], "multipleOf");
        weir_decimal decimal;
        uint64_t modulus = 0, scale = 0;
        if (value == NULL) continue;
        if (!weir_decimal_read(&decimal, &s->scratch, value->text, value->length) ||
            !divisor(&decimal, &modulus, &scale) || (!alone && modulus > MOST_MODULUS)) {
            weir_schema_refuse(
                s, WEIR_EUNSUPPORTED, leaf->nodes[i], "multipleOf",
                "\"multipleOf\" %.*s is too large or has too many digits (together with bounds or "
                "fractions at most %d)",
                (int)(value->length < 60 ? value->length : 60), value->text, MOST_MODULUS
            );
            return n;
        }
        weir_rules_part(
            s->rules, (weir_part){ .kind = WEIR_PART_MULTIPLE, .low = modulus, .high = scale }
        );
        n++;
    }
    return n;
}

static bool has_any(const weir_schema_leaf *leaf, const char *keyword)
{
    for (uint32_t i = 0; i < leaf->n; i++) {
        if (weir_tree_get(leaf->nodes[i], keyword) != NULL) return true;
    }
    return false;
}

/* The constraints as a text, which is the same for the same rule. NULL: no memory. */
static const char *signature(weir_schema *s, const weir_schema_leaf *leaf, bool whole)
{
    weir_buffer buffer = { 0 };
    weir_status status = weir_buffer_text(&buffer, whole ? "integer" : "number");
    for (uint32_t i = 0; i < leaf->n * 5 && status == WEIR_OK; i++) {
        const char *const keyword = i % 5 < 4 ? bounds[i % 5] : "multipleOf";
        const weir_tree *const value = weir_tree_get(leaf->nodes[i / 5], keyword);
        if (value == NULL) continue;
        status = weir_buffer_format(&buffer, " %s=%.*s", keyword, (int)value->length, value->text);
    }
    char *const out = status == WEIR_OK ? weir_scratch_take(&s->scratch, buffer.size + 1) : NULL;
    if (out != NULL) memcpy(out, buffer.data, buffer.size + 1);
    weir_buffer_free(&buffer);
    if (out == NULL) weir_schema_no_memory(s);
    return out;
}

uint32_t weir_schema_number(weir_schema *s, const weir_schema_leaf *leaf, bool whole)
{
    weir_nfa *const nfa = s->nfa;
    const char *const text = signature(s, leaf, whole);
    uint32_t rule = text == NULL ? 0 : weir_schema_known_text(s, text);
    if (text == NULL || rule != UINT32_MAX) return rule;
    rule = weir_rules_add(s->rules);
    if (rule == UINT32_MAX) return 0;
    bool bounded = false;
    for (int i = 0; i < 4; i++) bounded |= has_any(leaf, bounds[i]);
    const bool divided = has_any(leaf, "multipleOf");
    const uint32_t end = weir_nfa_accept(nfa);
    const uint32_t start = whole                ? weir_nfa_integer(nfa, end)
                           : bounded || divided ? weir_nfa_fraction(nfa, end)
                                                : weir_nfa_number(nfa, end);
    if (bounded || divided) {
        weir_rules_part(s->rules, (weir_part){ .kind = WEIR_PART_MATCH, .start = start });
        const uint32_t n = add_divisors(s, leaf, whole && !bounded);
        add_bounds(s, leaf);
        /* Digits that make an integer a multiple can always be appended. */
        if (nfa->status == WEIR_OK) {
            const weir_rule *const r = &s->rules->rules[rule];
            const bool integral =
                r->n_parts == 2 && n == 1 && whole && s->rules->parts[r->first_part + 1].high == 0;
            s->rules->rules[rule].always_live = integral;
        }
    } else {
        s->rules->rules[rule].start = start;
    }
    weir_schema_know_text(s, text, rule);
    return rule;
}
