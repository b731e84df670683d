/* engine/constrain/machine_live.c - whether a state of a product can reach an end: a depth-first
 * search, whose results are kept. */
#include <string.h>

#include "engine/base/memory.h"
#include "engine/constrain/machine.h"
#include "engine/constrain/parts.h"

enum { SEARCHED_STATES = 8192 }; /* more are refused */

/* The bytes of which one must be tried: where a range of the state begins. */
static void borders_of(const weir_machine *machine, uint32_t id, uint64_t borders[4])
{
    const weir_machine_state *const state = machine->states[id];
    const weir_rule *const rule = &machine->rules->rules[state->rule];
    const uint32_t *key = state->key;
    for (uint32_t p = 0; p < rule->n_parts; p++) {
        const weir_part *const part = &machine->rules->parts[rule->first_part + p];
        if (part->kind == WEIR_PART_LENGTH || part->kind == WEIR_PART_MULTIPLE) {
            weir_counter_borders(part, borders);
            key += WEIR_COUNTER_WORDS;
            continue;
        }
        const uint32_t n = *key++;
        for (uint32_t i = 0; i < n; i++) {
            const weir_nfa_state s = machine->rules->nfa.states[key[i]];
            if (s.kind != WEIR_NFA_BYTE) continue;
            weir_byte_add(borders, s.low);
            if (s.high < 0xFF) weir_byte_add(borders, s.high + 1U);
        }
        key += n;
    }
}

typedef struct visit {
    uint32_t id;
    unsigned byte; /* the next one to try */
    uint64_t borders[4];
} visit;

typedef struct weir_search {
    visit *path; /* owned, [capacity] */
    uint32_t *seen; /* owned, [capacity], all states met */
    uint32_t depth, n_seen, capacity;
} weir_search;

void weir_search_free(weir_search *search)
{
    if (search == NULL) return;
    weir_memory_give(search->path);
    weir_memory_give(search->seen);
    weir_memory_give(search);
}

static bool grow(weir_search *s)
{
    const uint32_t capacity = s->capacity == 0 ? 32 : s->capacity * 2;
    void *const path = weir_memory_resize(s->path, capacity * sizeof *s->path);
    if (path != NULL) s->path = path;
    void *const seen = weir_memory_resize(s->seen, capacity * sizeof *s->seen);
    if (seen != NULL) s->seen = seen;
    if (path == NULL || seen == NULL) return false;
    s->capacity = capacity;
    return true;
}

static bool enter(weir_machine *machine, uint32_t id)
{
    weir_search *const s = machine->search;
    if (s->n_seen == SEARCHED_STATES) {
        machine->status = WEIR_EFULL;
        return false;
    }
    if (s->n_seen == s->capacity && !grow(s)) {
        machine->status = WEIR_ENOMEM;
        return false;
    }
    s->seen[s->n_seen++] = id;
    machine->states[id]->live = 2; /* until an end is found */
    visit *const v = &s->path[s->depth++];
    *v = (visit){ .id = id };
    borders_of(machine, id, v->borders);
    return true;
}

/* Returns whether an end was found. */
static bool run(weir_machine *machine)
{
    weir_search *const s = machine->search;
    while (s->depth > 0) {
        visit *const v = &s->path[s->depth - 1];
        while (v->byte < 256 && !weir_byte_in(v->borders, v->byte)) v->byte++;
        if (v->byte >= 256) {
            s->depth--;
            continue;
        }
        const uint32_t next = weir_machine_raw_step(machine, v->id, v->byte++);
        if (machine->status != WEIR_OK) return false;
        if (next == WEIR_MACHINE_DEAD) continue;
        const uint8_t live = machine->states[next]->live;
        if (live == 1) return true;
        if (live == 0 && !enter(machine, next)) return false;
    }
    return false;
}

bool weir_machine_is_live(weir_machine *machine, uint32_t id)
{
    const uint8_t known = machine->states[id]->live;
    if (known != 0) return known == 1;
    if (machine->search == NULL) machine->search = weir_memory_take_zero(1, sizeof(weir_search));
    if (machine->search == NULL) {
        machine->status = WEIR_ENOMEM;
        return false;
    }
    weir_search *const s = machine->search;
    s->depth = s->n_seen = 0;
    const bool found = enter(machine, id) && run(machine);
    /* Without an end, all that were met are dead. With one, those on the path are live, and the
     * others are not known: they may lead to a state that was on the path. */
    if (found || machine->status != WEIR_OK) {
        for (uint32_t i = 0; i < s->n_seen; i++) machine->states[s->seen[i]]->live = 0;
        for (uint32_t i = 0; found && i < s->depth; i++) machine->states[s->path[i].id]->live = 1;
    }
    return found;
}
