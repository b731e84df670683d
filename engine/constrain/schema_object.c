/* engine/constrain/schema_object.c - objects: declared properties in their order, then additional
 * ones. With minProperties or maxProperties there is a state for each count. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/constrain/schema.h"

typedef struct property {
    const char *key;
    size_t length;
    uint32_t chain; /* index + 1 */
    bool required;
    uint32_t rule; /* of the value */
} property;

typedef struct pattern { /* of patternProperties, the same in several schemas counted once */
    const weir_tree *value; /* the first with it */
    uint32_t start; /* its automaton, of keys in quotation marks */
} pattern;

typedef struct object {
    weir_schema *s;
    const weir_schema_leaf *leaf;
    property *properties; /* owned */
    uint32_t *heads; /* owned, [n_heads] */
    pattern *patterns; /* in the scratch */
    uint32_t n, capacity, n_heads, n_patterns;
    uint64_t low, high; /* members */
} object;

enum { MOST_PATTERNS = 32 };

static uint32_t hash_of(const char *key, size_t n)
{
    uint32_t hash = 2166136261U;
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)key[i]) * 16777619U;
    return hash;
}

static property *find(const object *o, const char *key, size_t length)
{
    for (uint32_t i = o->heads[hash_of(key, length) % o->n_heads]; i != 0;) {
        property *const p = &o->properties[i - 1];
        if (p->length == length && memcmp(p->key, key, length) == 0) return p;
        i = p->chain;
    }
    return NULL;
}

/* Returns the property, which is added if it is new. */
static property *declare(object *o, const char *key, size_t length)
{
    property *const known = find(o, key, length);
    if (known != NULL) return known;
    uint32_t *const head = &o->heads[hash_of(key, length) % o->n_heads];
    o->properties[o->n] = (property){ .key = key, .length = length, .chain = *head };
    *head = ++o->n;
    return &o->properties[o->n - 1];
}

static bool find_properties(object *o)
{
    const weir_schema_leaf *const leaf = o->leaf;
    size_t most = 1;
    for (uint32_t i = 0; i < leaf->n; i++) {
        const weir_tree *const properties = weir_tree_get(leaf->nodes[i], "properties");
        const weir_tree *const required = weir_tree_get(leaf->nodes[i], "required");
        most += (properties == NULL ? 0 : properties->n) + (required == NULL ? 0 : required->n);
    }
    o->n_heads = (uint32_t)most;
    o->properties = weir_memory_take(most * sizeof *o->properties);
    o->heads = weir_memory_take_zero(most, sizeof *o->heads);
    const weir_tree **const order =
        weir_scratch_take(&o->s->scratch, leaf->n * sizeof(const weir_tree *));
    if (o->properties == NULL || o->heads == NULL || order == NULL) {
        weir_schema_no_memory(o->s);
        return false;
    }
    weir_schema_order(leaf, order);
    for (uint32_t i = 0; i < leaf->n; i++) {
        const weir_tree *const properties = weir_tree_get(order[i], "properties");
        for (size_t k = 0; properties != NULL && k < properties->n; k++) {
            declare(o, properties->items[k].key, properties->items[k].key_length);
        }
    }
    for (uint32_t i = 0; i < leaf->n; i++) {
        const weir_tree *const required = weir_tree_get(order[i], "required");
        for (size_t k = 0; required != NULL && k < required->n; k++) {
            const weir_tree *const key = &required->items[k];
            declare(o, key->text, key->length)->required = true;
        }
    }
    return true;
}

uint32_t weir_schema_members(
    weir_schema *s, const weir_schema_leaf *leaf, weir_schema_member **members
)
{
    object o = { .s = s, .leaf = leaf };
    uint32_t n = 0;
    if (find_properties(&o)) {
        *members = weir_scratch_take(&s->scratch, (o.n + 1U) * sizeof **members);
        if (*members == NULL) weir_schema_no_memory(s);
        for (; *members != NULL && n < o.n; n++) {
            const property *const p = &o.properties[n];
            (*members)[n] = (weir_schema_member){ p->key, p->length, p->required };
        }
    }
    weir_memory_give(o.properties);
    weir_memory_give(o.heads);
    return n;
}

/* A key in quotation marks, then `next`. */
static uint32_t key_text(weir_nfa *nfa, const char *key, size_t n, uint32_t next)
{
    const uint32_t end = weir_nfa_byte(nfa, '"', '"', next);
    return weir_nfa_byte(nfa, '"', '"', weir_nfa_encoded(nfa, key, n, WEIR_ENCODING_JSON, end));
}

/* Whether the pattern of a member of patternProperties matches the key. */
static bool matches_key(
    weir_schema *s, const weir_tree *patterns, size_t index, const char *key, size_t n
)
{
    const weir_tree *const pattern = &patterns->items[index];
    const uint32_t start = weir_schema_pattern(s, patterns, pattern->key, pattern->key_length);
    return weir_schema_key_matches(s, start, key, n);
}

weir_schema_set weir_schema_property(
    weir_schema *s, const weir_schema_leaf *leaf, const char *key, size_t length, bool *declared
)
{
    weir_schema_set set = { 0 };
    *declared = false;
    for (uint32_t i = 0; i < leaf->n; i++) {
        const weir_tree *const properties = weir_tree_get(leaf->nodes[i], "properties");
        const weir_tree *const patterns = weir_tree_get(leaf->nodes[i], "patternProperties");
        const weir_tree *const others = weir_tree_get(leaf->nodes[i], "additionalProperties");
        const weir_tree *const own =
            properties == NULL ? NULL : weir_tree_find(properties, key, length);
        bool matched = own != NULL;
        if (properties != NULL) (void)weir_schema_spend(s, properties->n);
        if (own != NULL) weir_schema_add(s, &set, own, false);
        for (size_t k = 0; patterns != NULL && k < patterns->n && s->status == WEIR_OK; k++) {
            if (!matches_key(s, patterns, k, key, length)) continue;
            weir_schema_add(s, &set, &patterns->items[k], false);
            matched = true;
        }
        *declared |= own != NULL;
        if (!matched && others != NULL) weir_schema_add(s, &set, others, false);
    }
    return set;
}

static bool find_patterns(object *o)
{
    weir_schema *const s = o->s;
    o->patterns = weir_scratch_take(&s->scratch, MOST_PATTERNS * sizeof *o->patterns);
    if (o->patterns == NULL) {
        weir_schema_no_memory(s);
        return false;
    }
    for (uint32_t i = 0; i < o->leaf->n && s->status == WEIR_OK; i++) {
        const weir_tree *const list = weir_tree_get(o->leaf->nodes[i], "patternProperties");
        for (size_t k = 0; list != NULL && k < list->n && s->status == WEIR_OK; k++) {
            const weir_tree *const value = &list->items[k];
            bool known = false;
            for (uint32_t p = 0; p < o->n_patterns && !known; p++) {
                const weir_tree *const other = o->patterns[p].value;
                known = other->key_length == value->key_length &&
                        memcmp(other->key, value->key, value->key_length) == 0;
            }
            if (known) continue;
            if (o->n_patterns == MOST_PATTERNS) {
                weir_schema_refuse(
                    s, WEIR_EUNSUPPORTED, o->leaf->nodes[i], "patternProperties",
                    "\"patternProperties\" has more than %d patterns", MOST_PATTERNS
                );
                return false;
            }
            o->patterns[o->n_patterns++] = (pattern){
                .value = value,
                .start = weir_schema_pattern(s, list, value->key, value->key_length),
            };
        }
    }
    return s->status == WEIR_OK;
}

static void add_part(weir_schema *s, weir_part_kind kind, uint32_t start)
{
    weir_rules_part(s->rules, (weir_part){ .kind = kind, .start = start });
}

/* Two patterns must not match the same key. */
static void note_disjoint(object *o)
{
    weir_schema *const s = o->s;
    for (uint32_t i = 0; i < o->n_patterns; i++) {
        for (uint32_t k = i + 1; k < o->n_patterns; k++) {
            const weir_schema_duty duty = { .rule = weir_rules_add(s->rules),
                                            .node = o->leaf->nodes[0],
                                            .keyword = "patternProperties" };
            if (duty.rule == UINT32_MAX) return;
            add_part(s, WEIR_PART_MATCH, o->patterns[i].start);
            add_part(s, WEIR_PART_MATCH, o->patterns[k].start);
            weir_schema_add_duty(s, duty);
        }
    }
}

/* The rule of keys that are not declared, and match pattern `index`, or none if it is
 * n_patterns. */
static uint32_t other_key(object *o, uint32_t index)
{
    weir_schema *const s = o->s;
    weir_nfa *const nfa = s->nfa;
    if (o->n == 0 && o->n_patterns == 0) return weir_schema_any_string(s);
    const uint32_t rule = weir_rules_add(s->rules);
    if (rule == UINT32_MAX) return 0;
    if (index < o->n_patterns) {
        add_part(s, WEIR_PART_MATCH, o->patterns[index].start);
    } else {
        static const weir_range all = { 0, 0x10FFFF };
        const uint32_t end = weir_nfa_byte(nfa, '"', '"', weir_nfa_accept(nfa));
        const uint32_t head = weir_nfa_loop(nfa);
        weir_nfa_loop_join(nfa, head, weir_nfa_class(nfa, &all, 1, WEIR_ENCODING_JSON, head), end);
        add_part(s, WEIR_PART_MATCH, weir_nfa_byte(nfa, '"', '"', head));
        if (o->n_patterns == 0) s->rules->rules[rule].text_end = end;
    }
    uint32_t keys = 0;
    const uint32_t end = weir_nfa_accept(nfa);
    for (uint32_t i = 0; i < o->n; i++) {
        keys = weir_nfa_split(
            nfa, keys, key_text(nfa, o->properties[i].key, o->properties[i].length, end)
        );
    }
    if (keys != 0) add_part(s, WEIR_PART_EXCLUDE, keys);
    for (uint32_t i = 0; i < o->n_patterns && index == o->n_patterns; i++) {
        add_part(s, WEIR_PART_EXCLUDE, o->patterns[i].start);
    }
    if (nfa->status == WEIR_OK) s->rules->rules[rule].always_live = o->n_patterns == 0;
    return rule;
}

/* The schemas of such a key's value. */
static weir_schema_set other_value(object *o, uint32_t index)
{
    weir_schema_set set = { 0 };
    const weir_tree *const known = index < o->n_patterns ? o->patterns[index].value : NULL;
    for (uint32_t i = 0; i < o->leaf->n; i++) {
        const weir_tree *const node = o->leaf->nodes[i];
        const weir_tree *const patterns = weir_tree_get(node, "patternProperties");
        const weir_tree *const others = weir_tree_get(node, "additionalProperties");
        const weir_tree *const own = known == NULL || patterns == NULL
                                         ? NULL
                                         : weir_tree_find(patterns, known->key, known->key_length);
        if (own != NULL) {
            weir_schema_add(o->s, &set, own, false);
        } else if (others != NULL) {
            weir_schema_add(o->s, &set, others, false);
        }
    }
    return set;
}

static bool allows_others(const object *o)
{
    static const char *const about[] = { "additionalProperties", "patternProperties",
                                         "minProperties", "maxProperties" };
    bool is_said = false, has_own = false;
    for (uint32_t i = 0; i < o->leaf->n; i++) {
        const weir_tree *const node = o->leaf->nodes[i];
        const weir_tree *const others = weir_tree_get(node, about[0]);
        if (others != NULL && others->kind == WEIR_TREE_FALSE) return false;
        has_own = has_own || weir_tree_get(node, "properties") != NULL;
        for (size_t k = 0; k < sizeof about / sizeof *about; k++)
            is_said = is_said || weir_tree_get(node, about[k]) != NULL;
    }
    return is_said || !has_own || !o->s->compiler->limits->closed_objects;
}

/* A key's value and the white space around: ':' value, then `next`. */
static uint32_t value_of(object *o, uint32_t rule, uint32_t next)
{
    weir_nfa *const nfa = o->s->nfa;
    const uint32_t value = weir_nfa_call(nfa, rule, weir_schema_white(o->s, next));
    const uint32_t colon = weir_nfa_byte(nfa, ':', ':', weir_schema_white(o->s, value));
    return weir_schema_white(o->s, colon);
}

/* Puts a comma before a member unless it is the first. */
static uint32_t member(object *o, uint32_t key, bool first)
{
    if (first || key == 0) return key;
    return weir_nfa_byte(o->s->nfa, ',', ',', weir_schema_white(o->s, key));
}

/* States of one place in the properties: [counts], what may follow for each number of members.
 * The last count stands for all larger ones if there is no maximum. */
typedef struct place {
    uint32_t *at; /* [n_counts] */
    uint32_t n_counts;
    bool open_ended;
} place;

static uint32_t after_one(const place *p, uint32_t count)
{
    if (count + 1 < p->n_counts) return p->at[count + 1];
    return p->open_ended ? p->at[count] : 0;
}

/* The additional members, from the largest count down. */
static void build_others(object *o, place *p, uint32_t end)
{
    weir_nfa *const nfa = o->s->nfa;
    const uint32_t n_kinds = o->n_patterns + 1;
    uint32_t keys[MOST_PATTERNS + 1], values[MOST_PATTERNS + 1];
    const bool others = allows_others(o);
    for (uint32_t k = 0; k < n_kinds; k++) {
        const bool none = k == o->n_patterns && !others;
        keys[k] = none ? UINT32_MAX : other_key(o, k);
        values[k] = none ? 0 : weir_schema_rule_of(o->s, other_value(o, k));
    }
    for (uint32_t count = p->n_counts; count-- > 0;) {
        const uint32_t head = weir_nfa_loop(nfa);
        p->at[count] = head;
        const uint32_t after = after_one(p, count);
        uint32_t out = 0;
        for (uint32_t k = 0; k < n_kinds && after != 0; k++) {
            if (keys[k] == UINT32_MAX) continue;
            const uint32_t value = value_of(o, values[k], after);
            out =
                weir_nfa_split(nfa, out, member(o, weir_nfa_call(nfa, keys[k], value), count == 0));
        }
        weir_nfa_loop_join(nfa, head, out, count >= o->low ? end : 0);
    }
}

static uint32_t build(object *o, uint32_t next)
{
    weir_schema *const s = o->s;
    weir_nfa *const nfa = s->nfa;
    const bool limited = o->high != UINT64_MAX;
    const uint64_t last = limited ? o->high : o->low > 1 ? o->low : 1;
    if (last + 1 > s->compiler->limits->states / 4 / (o->n + 1)) {
        const char *const keyword = limited ? "maxProperties" : "minProperties";
        weir_schema_refuse(
            s, WEIR_EUNSUPPORTED, o->leaf->nodes[0], keyword,
            "\"%s\" %llu needs too many automaton states", keyword, (unsigned long long)last
        );
        return 0;
    }
    place p = { .n_counts = (uint32_t)last + 1, .open_ended = !limited };
    p.at = weir_memory_take((size_t)p.n_counts * sizeof *p.at);
    if (p.at == NULL) {
        weir_schema_no_memory(s);
        return 0;
    }
    build_others(o, &p, weir_nfa_byte(nfa, '}', '}', next));
    for (uint32_t i = o->n; i-- > 0 && s->status == WEIR_OK && nfa->status == WEIR_OK;) {
        const property *const q = &o->properties[i];
        uint32_t key = 0, of = 0; /* the key that leads to state `of` */
        /* From the least count up: a count reads the states after this property of the next. */
        for (uint32_t count = 0; count < p.n_counts; count++) {
            const uint32_t after = after_one(&p, count);
            if (after != 0 && after != of) {
                key = key_text(nfa, q->key, q->length, value_of(o, q->rule, after));
                of = after;
            }
            const uint32_t with = after == 0 ? 0 : member(o, key, count == 0);
            p.at[count] = weir_nfa_split(nfa, with, q->required ? 0 : p.at[count]);
        }
    }
    const uint32_t first = p.at[0];
    weir_memory_give(p.at);
    return weir_nfa_byte(nfa, '{', '{', weir_schema_white(s, first));
}

uint32_t weir_schema_object(weir_schema *s, const weir_schema_leaf *leaf, uint32_t next)
{
    object o = { .s = s, .leaf = leaf, .high = UINT64_MAX };
    uint32_t out = 0;
    weir_schema_limit(s, leaf, "minProperties", true, &o.low);
    weir_schema_limit(s, leaf, "maxProperties", false, &o.high);
    if (find_properties(&o) && find_patterns(&o) && o.low <= o.high) {
        note_disjoint(&o);
        for (uint32_t i = 0; i < o.n && s->status == WEIR_OK; i++) {
            property *const p = &o.properties[i];
            bool declared;
            p->rule =
                weir_schema_rule_of(s, weir_schema_property(s, leaf, p->key, p->length, &declared));
        }
        if (s->status == WEIR_OK) out = build(&o, next);
    }
    weir_memory_give(o.properties);
    weir_memory_give(o.heads);
    return out;
}
