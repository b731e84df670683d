/* engine/constrain/schema_set.c - sets of schemas that must all hold: their rules, and the leaves
 * to which they expand. */
#include <string.h>

#include "engine/base/memory.h"
#include "engine/constrain/schema.h"

/* Makes room for one more element of an array that is owned. */
static bool reserve(weir_schema *s, void **array, uint32_t *capacity, uint32_t n, size_t size)
{
    if (s->status != WEIR_OK) return false;
    if (n < *capacity) return true;
    const uint32_t larger = *capacity == 0 ? 8 : *capacity * 2;
    void *const memory = weir_memory_resize(*array, larger * size);
    if (memory == NULL) {
        weir_schema_no_memory(s);
        return false;
    }
    *array = memory;
    *capacity = larger;
    return true;
}

weir_schema_set weir_schema_one(weir_schema *s, const weir_tree *node)
{
    weir_schema_set set = { 0 };
    weir_schema_add(s, &set, node, false);
    return set;
}

/* A schema that only refers to another one is that one. Cycles are refused before. */
static const weir_tree *behind(weir_schema *s, const weir_tree *node)
{
    while (node != NULL && node->kind == WEIR_TREE_OBJECT && node->n == 1 &&
           weir_tree_get(node, "$ref") != NULL) {
        weir_schema_check(s, node);
        if (s->status != WEIR_OK) return NULL;
        node = weir_schema_target(s, node);
    }
    return node;
}

void weir_schema_add(weir_schema *s, weir_schema_set *set, const weir_tree *node, bool stripped)
{
    if (!stripped) node = behind(s, node);
    if (node == NULL || s->status != WEIR_OK || node->kind == WEIR_TREE_TRUE) return;
    const uint32_t member = node->id * 2 + (stripped ? 1 : 0);
    uint32_t at = 0;
    while (at < set->n && set->members[at] < member) at++;
    if (at < set->n && set->members[at] == member) return;
    uint32_t *const members = weir_scratch_take(&s->scratch, (set->n + 1U) * sizeof *members);
    if (members == NULL) {
        weir_schema_no_memory(s);
        return;
    }
    if (at > 0) memcpy(members, set->members, at * sizeof *members);
    members[at] = member;
    if (at < set->n) memcpy(members + at + 1, set->members + at, (set->n - at) * sizeof *members);
    *set = (weir_schema_set){ .members = members, .n = set->n + 1 };
}

void weir_schema_add_duty(weir_schema *s, weir_schema_duty duty)
{
    if (!reserve(s, (void **)&s->duties, &s->duties_capacity, s->n_duties, sizeof *s->duties)) {
        return;
    }
    s->duties[s->n_duties++] = duty;
}

static uint32_t hash_of(weir_schema_set set)
{
    uint32_t hash = 2166136261U;
    for (uint32_t i = 0; i < set.n; i++) hash = (hash ^ set.members[i]) * 16777619U ^ hash >> 15;
    return hash % WEIR_SCHEMA_HEADS;
}

uint32_t weir_schema_rule_of(weir_schema *s, weir_schema_set set)
{
    if (s->status != WEIR_OK) return 0;
    if (set.n == 0) return weir_schema_any(s);
    const uint32_t head = hash_of(set);
    for (uint32_t i = s->made_heads[head]; i != 0; i = s->made[i - 1].chain) {
        const weir_schema_rule *const known = &s->made[i - 1];
        if (known->set.n == set.n &&
            memcmp(known->set.members, set.members, set.n * sizeof *set.members) == 0) {
            return known->rule;
        }
    }
    const uint32_t rule = weir_rules_add(s->rules);
    if (rule == UINT32_MAX ||
        !reserve(s, (void **)&s->made, &s->made_capacity, s->n_made, sizeof *s->made)) {
        return 0;
    }
    s->made[s->n_made] =
        (weir_schema_rule){ .set = set, .rule = rule, .chain = s->made_heads[head] };
    s->made_heads[head] = ++s->n_made;
    return rule;
}

/* `before`: the index of the schema whose $ref it is, or UINT32_MAX. */
static void leaf_add(
    weir_schema *s, weir_schema_leaf *leaf, const weir_tree *node, bool stripped, uint32_t before
)
{
    if (node == NULL || s->status != WEIR_OK) return;
    weir_schema_check(s, node);
    if (node->kind == WEIR_TREE_FALSE) leaf->never = true;
    if (node->kind != WEIR_TREE_OBJECT) return;
    for (uint32_t i = 0; i < leaf->n; i++) {
        if (leaf->nodes[i] == node) {
            /* Both with and without its choices: the choices hold. */
            if (leaf->stripped[i] && !stripped && i < leaf->done) leaf->done = i;
            leaf->stripped[i] &= stripped;
            return;
        }
    }
    if (leaf->n == WEIR_SCHEMA_LEAVES) {
        weir_schema_refuse(
            s, WEIR_EUNSUPPORTED, node, "allOf", "more than %d schemas apply to one value",
            WEIR_SCHEMA_LEAVES
        );
        return;
    }
    uint32_t capacity = leaf->capacity, same = leaf->capacity;
    if (!reserve(s, (void **)&leaf->stripped, &capacity, leaf->n, 1) ||
        !reserve(s, (void **)&leaf->before, &same, leaf->n, sizeof *leaf->before) ||
        !reserve(s, (void **)&leaf->nodes, &leaf->capacity, leaf->n, sizeof(const weir_tree *))) {
        return;
    }
    leaf->nodes[leaf->n] = node;
    leaf->before[leaf->n] = before;
    leaf->stripped[leaf->n++] = stripped;
}

static void add_choice(weir_schema *s, weir_schema_leaf *leaf, const weir_tree *branches)
{
    for (uint32_t i = 0; i < leaf->n_choices; i++) {
        if (leaf->choices[i].branches == branches) return;
    }
    if (!reserve(
            s, (void **)&leaf->choices, &leaf->choices_capacity, leaf->n_choices,
            sizeof *leaf->choices
        )) {
        return;
    }
    leaf->choices[leaf->n_choices++] = (weir_schema_choice){ .branches = branches };
}

enum { ONE_OF_NOTED = 8 }; /* in seen */

/* Notes that each two branches of a oneOf must have no value in common. */
static void note_one_of(weir_schema *s, const weir_tree *node, const weir_tree *branches)
{
    if ((s->seen[node->id] & ONE_OF_NOTED) != 0) return;
    s->seen[node->id] |= ONE_OF_NOTED;
    for (size_t i = 0; i < branches->n; i++) {
        for (size_t k = i + 1; k < branches->n && s->status == WEIR_OK; k++) {
            if (s->n_duties == WEIR_SCHEMA_DUTIES) {
                weir_schema_refuse(
                    s, WEIR_EUNSUPPORTED, node, "oneOf",
                    "\"oneOf\" has too many branches; use "
                    "\"anyOf\""
                );
                return;
            }
            weir_schema_set both = { 0 };
            weir_schema_add(s, &both, node, true);
            weir_schema_add(s, &both, &branches->items[i], false);
            weir_schema_add(s, &both, &branches->items[k], false);
            const weir_schema_duty duty = { .rule = weir_schema_rule_of(s, both),
                                            .node = node,
                                            .keyword = "oneOf" };
            weir_schema_add_duty(s, duty);
        }
    }
}

/* Adds what the members refer to, and notes their choices. */
static void flatten(weir_schema *s, weir_schema_leaf *leaf)
{
    while (leaf->done < leaf->n && s->status == WEIR_OK && !leaf->never) {
        const weir_tree *const node = leaf->nodes[leaf->done];
        const bool stripped = leaf->stripped[leaf->done++];
        const weir_tree *const all = weir_tree_get(node, "allOf");
        const weir_tree *const any = weir_tree_get(node, "anyOf");
        const weir_tree *const one = weir_tree_get(node, "oneOf");
        if (weir_tree_get(node, "$ref") != NULL) {
            leaf_add(s, leaf, weir_schema_target(s, node), false, leaf->done - 1);
        }
        for (size_t i = 0; all != NULL && i < all->n; i++) {
            leaf_add(s, leaf, &all->items[i], false, UINT32_MAX);
        }
        if (stripped) continue;
        if (any != NULL) add_choice(s, leaf, any);
        if (one == NULL) continue;
        add_choice(s, leaf, one);
        note_one_of(s, node, one);
    }
}

static void leaf_free(weir_schema_leaf *leaf)
{
    weir_memory_give(leaf->nodes);
    weir_memory_give(leaf->stripped);
    weir_memory_give(leaf->before);
    weir_memory_give(leaf->choices);
}

static void leaf_copy(weir_schema *s, weir_schema_leaf *to, const weir_schema_leaf *from)
{
    *to = *from;
    to->capacity = from->n + 4;
    to->choices_capacity = from->n_choices + 1;
    to->nodes = weir_memory_take(to->capacity * sizeof(const weir_tree *));
    to->stripped = weir_memory_take(to->capacity);
    to->before = weir_memory_take(to->capacity * sizeof *to->before);
    to->choices = weir_memory_take(to->choices_capacity * sizeof *to->choices);
    if (to->nodes == NULL || to->stripped == NULL || to->before == NULL || to->choices == NULL) {
        weir_schema_no_memory(s);
        return;
    }
    if (from->n > 0) memcpy(to->nodes, from->nodes, from->n * sizeof(const weir_tree *));
    if (from->n > 0) memcpy(to->stripped, from->stripped, from->n);
    if (from->n > 0) memcpy(to->before, from->before, from->n * sizeof *to->before);
    if (from->n_choices == 0) return;
    memcpy(to->choices, from->choices, from->n_choices * sizeof *to->choices);
}

typedef struct expansion {
    weir_schema_visit *visit;
    void *context;
    uint32_t n_leaves;
    bool stopped;
} expansion;

/* Visits the leaves of a flattened set whose choices before `choice` are made. The depth is that of
 * anyOf in each other and next to each other. */
static void expand(weir_schema *s, expansion *e, const weir_schema_leaf *leaf, uint32_t choice)
{
    /* Combinations that never hold are no leaves, but may be 2^200. */
    if (!weir_schema_spend(s, 256) || e->stopped || leaf->never) return;
    if (choice == leaf->n_choices) {
        if (++e->n_leaves > WEIR_SCHEMA_LEAVES) {
            weir_schema_refuse(
                s, WEIR_EUNSUPPORTED, leaf->n == 0 ? s->root : leaf->nodes[0], "anyOf",
                "\"anyOf\" and \"oneOf\" have more than %d combinations", WEIR_SCHEMA_LEAVES
            );
            return;
        }
        e->stopped = !e->visit(s, leaf, e->context);
        return;
    }
    const weir_tree *const branches = leaf->choices[choice].branches;
    if (choice > 200) {
        weir_schema_refuse(
            s, WEIR_EUNSUPPORTED, branches, "anyOf", "more than 200 choices apply to one value"
        );
        return;
    }
    for (size_t i = 0; i < branches->n && s->status == WEIR_OK && !e->stopped; i++) {
        weir_schema_leaf copy;
        leaf_copy(s, &copy, leaf);
        leaf_add(s, &copy, &branches->items[i], false, UINT32_MAX);
        flatten(s, &copy);
        expand(s, e, &copy, choice + 1);
        leaf_free(&copy);
    }
}

void weir_schema_leaves(
    weir_schema *s, weir_schema_set set, weir_schema_visit *visit, void *context
)
{
    weir_schema_leaf leaf = { 0 };
    expansion e = { .visit = visit, .context = context };
    for (uint32_t i = 0; i < set.n; i++) {
        leaf_add(s, &leaf, s->by_id[set.members[i] / 2], (set.members[i] & 1) != 0, UINT32_MAX);
    }
    flatten(s, &leaf);
    expand(s, &e, &leaf, 0);
    leaf_free(&leaf);
}
