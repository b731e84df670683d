/* engine/constrain/rules.c - what is known of rules: which can match, begin, follow and recurse. */
#include "engine/constrain/rules.h"

#include <string.h>

#include "engine/base/memory.h"

weir_status weir_rules_init(weir_rules *rules, size_t states, size_t limit)
{
    *rules = (weir_rules){ .limit = limit > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)limit };
    return weir_nfa_init(&rules->nfa, states);
}

void weir_rules_free(weir_rules *rules)
{
    weir_nfa_free(&rules->nfa);
    weir_memory_give(rules->rules);
    weir_memory_give(rules->parts);
    *rules = (weir_rules){ 0 };
}

/* Makes room for one more element. */
static bool grow(void **array, uint32_t *capacity, uint32_t count, size_t size, weir_nfa *nfa)
{
    if (count < *capacity) return true;
    const size_t larger = *capacity == 0 ? 16 : (size_t)*capacity * 2;
    void *const memory = weir_memory_resize(*array, larger * size);
    if (memory == NULL) {
        nfa->status = WEIR_ENOMEM;
        return false;
    }
    *array = memory;
    *capacity = (uint32_t)larger;
    return true;
}

uint32_t weir_rules_add(weir_rules *rules)
{
    if (rules->nfa.status != WEIR_OK) return UINT32_MAX;
    if (rules->n_rules >= rules->limit) {
        rules->nfa.status = WEIR_EFULL;
        return UINT32_MAX;
    }
    void *array = rules->rules;
    const bool fits =
        grow(&array, &rules->rules_capacity, rules->n_rules, sizeof *rules->rules, &rules->nfa);
    rules->rules = array;
    if (!fits) return UINT32_MAX;
    rules->rules[rules->n_rules] = (weir_rule){ .first_part = rules->n_parts };
    return rules->n_rules++;
}

void weir_rules_part(weir_rules *rules, weir_part part)
{
    if (rules->nfa.status != WEIR_OK) return;
    void *array = rules->parts;
    const bool fits =
        grow(&array, &rules->parts_capacity, rules->n_parts, sizeof *rules->parts, &rules->nfa);
    rules->parts = array;
    if (!fits) return;
    rules->parts[rules->n_parts++] = part;
    rules->rules[rules->n_rules - 1].n_parts++;
}

enum { LIVE = 1, NULLABLE = 2 };

/* What is known of the states while it grows. */
typedef struct facts {
    weir_rules *rules;
    uint8_t *flags; /* [states] */
    uint64_t (*first)[4]; /* [states], NULL: too many states, then any byte may begin all */
    uint32_t *pending, *marks; /* [states]; a state is marked when marks[state] == mark */
    uint32_t mark;
    uint32_t (*follows)[2]; /* rule, what follows [1] also follows [0] */
    uint32_t n_follows, follows_capacity;
    uint64_t work;
} facts;

static bool add_bytes(uint64_t to[4], const uint64_t from[4])
{
    uint64_t changed = 0;
    for (int i = 0; i < 4; i++) {
        changed |= from[i] & ~to[i];
        to[i] |= from[i];
    }
    return changed != 0;
}

/* Updates one state from those after it; returns whether anything is new. */
static bool update(facts *f, uint32_t i)
{
    const weir_nfa_state s = f->rules->nfa.states[i];
    const weir_rule *const called = s.kind == WEIR_NFA_CALL ? &f->rules->rules[s.other] : NULL;
    uint8_t flags = f->flags[i];
    bool changed = false;
    switch ((weir_nfa_kind)s.kind) {
    case WEIR_NFA_ACCEPT: flags |= LIVE | NULLABLE; break;
    case WEIR_NFA_BYTE: flags |= f->flags[s.next] & LIVE; break;
    case WEIR_NFA_SPLIT: flags |= f->flags[s.next] | f->flags[s.other]; break;
    case WEIR_NFA_CALL:
        if (called->productive) flags |= f->flags[s.next] & LIVE;
        if (called->nullable) flags |= f->flags[s.next] & NULLABLE;
        break;
    case WEIR_NFA_NEVER:
    case WEIR_NFA_BEGIN:
    case WEIR_NFA_END: break;
    }
    changed = flags != f->flags[i];
    f->flags[i] = flags;
    if (f->first == NULL) return changed;
    if (s.kind == WEIR_NFA_BYTE) {
        uint64_t range[4] = { 0 };
        for (unsigned b = s.low; b <= s.high; b++) weir_byte_add(range, b);
        changed |= add_bytes(f->first[i], range);
    } else if (s.kind == WEIR_NFA_SPLIT) {
        changed |= add_bytes(f->first[i], f->first[s.next]);
        changed |= add_bytes(f->first[i], f->first[s.other]);
    } else if (s.kind == WEIR_NFA_CALL) {
        changed |= add_bytes(f->first[i], called->first);
        if (called->nullable) changed |= add_bytes(f->first[i], f->first[s.next]);
    }
    return changed;
}

static bool update_rules(facts *f)
{
    bool changed = false;
    static const uint64_t all[4] = { UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX };
    for (uint32_t i = 0; i < f->rules->n_rules; i++) {
        weir_rule *const rule = &f->rules->rules[i];
        if (rule->n_parts > 0) continue;
        const uint8_t flags = f->flags[rule->start];
        const bool productive = (flags & LIVE) != 0, nullable = (flags & NULLABLE) != 0;
        changed |= productive != rule->productive || nullable != rule->nullable;
        rule->productive = productive;
        rule->nullable = nullable;
        changed |= add_bytes(rule->first, f->first == NULL ? all : f->first[rule->start]);
    }
    return changed;
}

/* The fields of a product that its automata tell: which bytes may begin it. */
static void first_of_product(facts *f, weir_rule *rule)
{
    static const uint64_t all[4] = { UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX };
    for (uint32_t p = 0; p < rule->n_parts; p++) {
        const weir_part *const part = &f->rules->parts[rule->first_part + p];
        if (part->kind != WEIR_PART_MATCH) continue;
        add_bytes(rule->first, f->first == NULL ? all : f->first[part->start]);
        return;
    }
    add_bytes(rule->first, all);
}

/* Updates of a compilation. Rules that call each other in a long chain take a pass for each. */
static const uint64_t most_work = 1 << 28;

static weir_status find_facts(facts *f)
{
    const uint32_t n = f->rules->nfa.count;
    bool changed = true;
    while (changed) {
        f->work += 2 * ((uint64_t)n + f->rules->n_rules);
        if (f->work > most_work) return WEIR_EFULL;
        changed = false;
        for (uint32_t i = 1; i < n; i++) changed |= update(f, i);
        for (uint32_t i = 0; i < f->rules->n_rules; i++) {
            weir_rule *const rule = &f->rules->rules[i];
            if (rule->n_parts > 0) first_of_product(f, rule);
        }
        changed |= update_rules(f);
        if (!changed) break;
        for (uint32_t i = n; i-- > 1;) changed |= update(f, i);
        changed |= update_rules(f);
    }
    return WEIR_OK;
}

/* Visits the states that are reached from `start`: without bytes only (`left`), or all. */
static uint32_t reach(facts *f, uint32_t start, bool left)
{
    uint32_t n = 0, done = 0;
    f->mark++;
    f->pending[n++] = start;
    f->marks[start] = f->mark;
    while (done < n) {
        const weir_nfa_state s = f->rules->nfa.states[f->pending[done++]];
        uint32_t next[2] = { 0, 0 };
        if (s.kind == WEIR_NFA_SPLIT) {
            next[0] = s.next;
            next[1] = s.other;
        } else if (s.kind == WEIR_NFA_CALL) {
            if (!left || f->rules->rules[s.other].nullable) next[0] = s.next;
        } else if (s.kind == WEIR_NFA_BYTE && !left) {
            next[0] = s.next;
        }
        for (int k = 0; k < 2; k++) {
            if (next[k] == 0 || f->marks[next[k]] == f->mark) continue;
            f->marks[next[k]] = f->mark;
            f->pending[n++] = next[k];
        }
    }
    return n;
}

/* Notes what follows the rules that `rule` calls. */
static weir_status note_follows(facts *f, uint32_t rule)
{
    const uint32_t n = reach(f, f->rules->rules[rule].start, false);
    for (uint32_t i = 0; i < n; i++) {
        const weir_nfa_state s = f->rules->nfa.states[f->pending[i]];
        if (s.kind != WEIR_NFA_CALL) continue;
        weir_rule *const called = &f->rules->rules[s.other];
        if (f->first != NULL) add_bytes(called->follow, f->first[s.next]);
        if ((f->flags[s.next] & NULLABLE) == 0 || s.other == rule) continue;
        if (f->n_follows == f->follows_capacity) {
            const uint32_t capacity = f->follows_capacity == 0 ? 64 : f->follows_capacity * 2;
            void *const larger = weir_memory_resize(f->follows, capacity * sizeof *f->follows);
            if (larger == NULL) return WEIR_ENOMEM;
            f->follows = larger;
            f->follows_capacity = capacity;
        }
        f->follows[f->n_follows][0] = s.other;
        f->follows[f->n_follows++][1] = rule;
    }
    return WEIR_OK;
}

static weir_status find_follows(facts *f)
{
    static const uint64_t all[4] = { UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX };
    for (uint32_t i = 0; i < f->rules->n_rules; i++) {
        if (f->first == NULL) add_bytes(f->rules->rules[i].follow, all);
        if (f->rules->rules[i].n_parts == 0) WEIR_TRY(note_follows(f, i));
    }
    for (bool changed = true; changed;) {
        changed = false;
        f->work += f->n_follows;
        if (f->work > most_work) return WEIR_EFULL;
        for (uint32_t i = 0; i < f->n_follows; i++) {
            weir_rule *const rules = f->rules->rules;
            changed |= add_bytes(rules[f->follows[i][0]].follow, rules[f->follows[i][1]].follow);
        }
    }
    return WEIR_OK;
}

/* Looks for a rule that calls itself before a byte: removes rules all of whose left calls are
 * removed, until none is left. */
static weir_status find_left_recursion(facts *f, uint32_t *rule)
{
    const uint32_t n = f->rules->n_rules;
    uint32_t *const waits = weir_memory_take_zero((size_t)n + 1, sizeof *waits);
    uint32_t *heads = NULL, *ready = NULL;
    uint32_t(*edges)[2] = NULL; /* caller, next edge of the same called rule */
    size_t n_edges = 0, capacity = 0, n_ready = 0, n_done = 0;
    weir_status status = WEIR_ENOMEM;
    heads = weir_memory_take((size_t)n * sizeof *heads + 1);
    ready = weir_memory_take((size_t)n * sizeof *ready + 1);
    if (waits == NULL || heads == NULL || ready == NULL) goto done;
    memset(heads, 0xFF, (size_t)n * sizeof *heads);
    for (uint32_t i = 0; i < n; i++) {
        if (f->rules->rules[i].n_parts > 0) continue;
        const uint32_t reached = reach(f, f->rules->rules[i].start, true);
        for (uint32_t k = 0; k < reached; k++) {
            const weir_nfa_state s = f->rules->nfa.states[f->pending[k]];
            if (s.kind != WEIR_NFA_CALL || (f->flags[f->pending[k]] & LIVE) == 0) continue;
            if (edges == NULL || n_edges == capacity) {
                capacity = capacity == 0 ? 64 : capacity * 2;
                void *const larger = weir_memory_resize(edges, capacity * sizeof *edges);
                if (larger == NULL) goto done;
                edges = larger;
            }
            edges[n_edges][0] = i;
            edges[n_edges][1] = heads[s.other];
            heads[s.other] = (uint32_t)n_edges++;
            waits[i]++;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (waits[i] == 0) ready[n_ready++] = i;
    }
    while (n_done < n_ready) {
        for (uint32_t e = heads[ready[n_done++]]; edges != NULL && e != UINT32_MAX;
             e = edges[e][1]) {
            if (--waits[edges[e][0]] == 0) ready[n_ready++] = edges[e][0];
        }
    }
    status = n_ready == n ? WEIR_OK : WEIR_EUNSUPPORTED;
    for (uint32_t i = 0; i < n && status != WEIR_OK; i++) {
        if (waits[i] > 0) {
            *rule = i;
            break;
        }
    }
done:
    weir_memory_give(waits);
    weir_memory_give(heads);
    weir_memory_give(ready);
    weir_memory_give(edges);
    return status;
}

static bool mark_live(weir_nfa *nfa, uint32_t i)
{
    weir_nfa_state *const s = &nfa->states[i];
    if (s->live) return false;
    const bool other = s->kind == WEIR_NFA_SPLIT && nfa->states[s->other].live;
    s->live = s->kind == WEIR_NFA_ACCEPT || nfa->states[s->next].live || other;
    return s->live;
}

void weir_rules_mark_live(weir_rules *rules)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 1; i < rules->nfa.count; i++) changed |= mark_live(&rules->nfa, i);
        for (uint32_t i = rules->nfa.count; changed && i-- > 1;) mark_live(&rules->nfa, i);
    }
}

weir_status weir_rules_finish(weir_rules *rules, uint32_t *rule)
{
    enum { FIRST_STATES = 1 << 18 };
    const uint32_t n = rules->nfa.count;
    facts f = { .rules = rules };
    weir_status status = WEIR_ENOMEM;
    f.flags = weir_memory_take_zero(n, 1);
    f.pending = weir_memory_take((size_t)n * sizeof *f.pending);
    f.marks = weir_memory_take_zero(n, sizeof *f.marks);
    if (n <= FIRST_STATES) f.first = weir_memory_take_zero(n, sizeof *f.first);
    if (f.flags == NULL || f.pending == NULL || f.marks == NULL) goto done;
    status = find_facts(&f);
    if (status != WEIR_OK) goto done;
    for (uint32_t i = 0; i < n; i++) rules->nfa.states[i].live = (f.flags[i] & LIVE) != 0;
    status = find_left_recursion(&f, rule);
    if (status == WEIR_OK) status = find_follows(&f);
done:
    weir_memory_give(f.flags);
    weir_memory_give(f.pending);
    weir_memory_give(f.marks);
    weir_memory_give(f.first);
    weir_memory_give(f.follows);
    return status;
}
