/* engine/constrain/machine.c - states: sets of automaton states, looked up by their content. */
#include "engine/constrain/machine.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/constrain/parts.h"

weir_status weir_machine_init(weir_machine *machine, const weir_rules *rules)
{
    const size_t n = (size_t)rules->nfa.count + 1;
    *machine = (weir_machine){ .rules = rules, .n_ids = 2, .step_limit = UINT64_MAX };
    machine->n_buckets = 1024;
    machine->capacity = 256;
    machine->key_capacity = 256;
    machine->buckets = weir_memory_take_zero(machine->n_buckets, sizeof *machine->buckets);
    machine->states = weir_memory_take_zero(machine->capacity, sizeof *machine->states);
    machine->free_ids = weir_memory_take(machine->capacity * sizeof *machine->free_ids);
    machine->marks = weir_memory_take_zero(n, sizeof *machine->marks);
    machine->entries = weir_memory_take_zero((size_t)rules->n_rules + 1, sizeof *machine->entries);
    machine->pending = weir_memory_take(2 * n * sizeof *machine->pending);
    machine->set = weir_memory_take(n * sizeof *machine->set);
    machine->key = weir_memory_take(machine->key_capacity * sizeof *machine->key);
    if (machine->buckets != NULL && machine->states != NULL && machine->free_ids != NULL &&
        machine->marks != NULL && machine->pending != NULL && machine->set != NULL &&
        machine->key != NULL && machine->entries != NULL) {
        return WEIR_OK;
    }
    weir_machine_free(machine);
    return WEIR_ENOMEM;
}

static void free_state(weir_machine_state *state)
{
    if (state == NULL) return;
    weir_mask_entry_free(state->mask);
    weir_memory_give(state->calls);
    weir_memory_give(state);
}

void weir_machine_free(weir_machine *machine)
{
    for (uint32_t i = 0; i < machine->n_ids && machine->states != NULL; i++) {
        free_state(machine->states[i]);
    }
    weir_memory_give(machine->buckets);
    weir_memory_give(machine->states);
    weir_memory_give(machine->free_ids);
    weir_search_free(machine->search);
    weir_memory_give(machine->entries);
    weir_memory_give(machine->marks);
    weir_memory_give(machine->pending);
    weir_memory_give(machine->set);
    weir_memory_give(machine->key);
    *machine = (weir_machine){ 0 };
}

static void fail(weir_machine *machine, weir_status status)
{
    if (machine->status == WEIR_OK) machine->status = status;
}

/* Adds to the set what is reached from `state` without bytes: live byte, call and end states. */
static void close_over(weir_machine *machine, uint32_t state)
{
    const weir_rules *const rules = machine->rules;
    uint32_t n = 0;
    machine->pending[n++] = state;
    while (n > 0) {
        const uint32_t at = machine->pending[--n];
        const weir_nfa_state s = rules->nfa.states[at];
        if (machine->marks[at] == machine->mark) continue;
        machine->marks[at] = machine->mark;
        if (s.kind == WEIR_NFA_SPLIT) {
            if (machine->marks[s.other] != machine->mark) machine->pending[n++] = s.other;
            if (machine->marks[s.next] != machine->mark) machine->pending[n++] = s.next;
            continue;
        }
        if (s.live) machine->set[machine->n_set++] = at;
        if (s.kind == WEIR_NFA_CALL && rules->rules[s.other].nullable &&
            machine->marks[s.next] != machine->mark) {
            machine->pending[n++] = s.next;
        }
    }
}

static void begin_set(weir_machine *machine)
{
    machine->n_set = 0;
    if (++machine->mark != 0) return;
    memset(machine->marks, 0, ((size_t)machine->rules->nfa.count + 1) * sizeof *machine->marks);
    machine->mark = 1;
}

static int compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sort(uint32_t *set, uint32_t n)
{
    if (n > 32) {
        qsort(set, n, sizeof *set, compare);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        const uint32_t value = set[i];
        uint32_t k = i;
        for (; k > 0 && set[k - 1] > value; k--) set[k] = set[k - 1];
        set[k] = value;
    }
}

static bool reserve_key(weir_machine *machine, uint32_t extra)
{
    const size_t need = (size_t)machine->n_key + extra;
    if (need <= machine->key_capacity) return true;
    const size_t capacity = need * 2;
    uint32_t *const larger = weir_memory_resize(machine->key, capacity * sizeof *machine->key);
    if (larger == NULL || capacity > UINT32_MAX) {
        if (larger != NULL) machine->key = larger;
        fail(machine, WEIR_ENOMEM);
        return false;
    }
    machine->key = larger;
    machine->key_capacity = (uint32_t)capacity;
    return true;
}

/* Appends the set to the key, after its size if the rule is a product. */
static bool key_set(weir_machine *machine, bool product)
{
    if (!reserve_key(machine, machine->n_set + 1)) return false;
    sort(machine->set, machine->n_set);
    if (product) machine->key[machine->n_key++] = machine->n_set;
    memcpy(machine->key + machine->n_key, machine->set, machine->n_set * sizeof *machine->set);
    machine->n_key += machine->n_set;
    return true;
}

static uint32_t hash_of(uint32_t rule, const uint32_t *key, uint32_t n)
{
    uint64_t hash = 0x9E3779B97F4A7C15U + rule;
    for (uint32_t i = 0; i < n; i++) hash = (hash ^ key[i]) * 0xFF51AFD7ED558CCDU ^ hash >> 29;
    return (uint32_t)(hash ^ hash >> 32);
}

/* Groups the calls of the set by rule. Returns false when memory is short. */
static bool find_calls(weir_machine *machine, weir_machine_state *state)
{
    const weir_nfa_state *const nfa = machine->rules->nfa.states;
    uint32_t n = 0;
    for (uint32_t i = 0; i < state->n_key; i++) n += nfa[state->key[i]].kind == WEIR_NFA_CALL;
    if (n == 0) return true;
    const size_t bytes = n * (sizeof *state->calls + sizeof *state->after_states);
    state->calls = weir_memory_take(bytes);
    if (state->calls == NULL) return false;
    machine->bytes += bytes;
    state->after_states = (uint32_t *)(state->calls + n);
    uint32_t filled = 0;
    for (uint32_t i = 0; i < state->n_key; i++) {
        const weir_nfa_state s = nfa[state->key[i]];
        if (s.kind != WEIR_NFA_CALL) continue;
        uint32_t k = 0;
        while (k < state->n_calls && state->calls[k].rule != s.other) k++;
        if (k < state->n_calls) continue;
        weir_machine_call *const call = &state->calls[state->n_calls++];
        *call = (weir_machine_call){ .rule = s.other, .begin = filled };
        for (uint32_t m = i; m < state->n_key; m++) {
            const weir_nfa_state t = nfa[state->key[m]];
            if (t.kind != WEIR_NFA_CALL || t.other != s.other) continue;
            state->after_states[filled++] = t.next;
        }
        call->n = filled - call->begin;
        const uint64_t *const first = machine->rules->rules[s.other].first;
        for (int w = 0; w < 4; w++) state->call_first[w] |= first[w];
    }
    return true;
}

static uint32_t take_id(weir_machine *machine)
{
    if (machine->n_free > 0) return machine->free_ids[--machine->n_free];
    if (machine->n_ids < machine->capacity) return machine->n_ids++;
    const size_t capacity = (size_t)machine->capacity * 2;
    void *const states = weir_memory_resize(machine->states, capacity * sizeof *machine->states);
    if (states != NULL) machine->states = states;
    void *const ids = weir_memory_resize(machine->free_ids, capacity * sizeof *machine->free_ids);
    if (ids != NULL) machine->free_ids = ids;
    if (states == NULL || ids == NULL) return 0;
    machine->capacity = (uint32_t)capacity;
    return machine->n_ids++;
}

static void grow_buckets(weir_machine *machine)
{
    const uint32_t n = machine->n_buckets * 4;
    uint32_t *const buckets = weir_memory_take_zero(n, sizeof *buckets);
    if (buckets == NULL) return; /* longer chains */
    for (uint32_t i = 0; i < machine->n_buckets; i++) {
        for (uint32_t id = machine->buckets[i]; id != 0;) {
            weir_machine_state *const state = machine->states[id];
            const uint32_t following = state->chain;
            state->chain = buckets[state->hash & (n - 1)];
            buckets[state->hash & (n - 1)] = id;
            id = following;
        }
    }
    weir_memory_give(machine->buckets);
    machine->buckets = buckets;
    machine->n_buckets = n;
}

static void describe(weir_machine *machine, weir_machine_state *state)
{
    const weir_nfa_state *const nfa = machine->rules->nfa.states;
    const weir_rule *const rule = &machine->rules->rules[state->rule];
    bool bytes = false;
    if (rule->n_parts > 0) {
        state->accepts = weir_parts_accept(machine->rules, rule, state->key);
        /* The first part is one to match: without bytes its text has ended. */
        for (uint32_t i = 0; i < state->key[0] && rule->always_live; i++) {
            bytes |= nfa[state->key[1 + i]].kind == WEIR_NFA_BYTE;
        }
        state->live = state->accepts || bytes ? 1 : 0;
    } else {
        state->live = 1;
        for (uint32_t i = 0; i < state->n_key; i++) {
            const uint8_t kind = nfa[state->key[i]].kind;
            state->accepts |= kind == WEIR_NFA_ACCEPT;
            bytes |= kind == WEIR_NFA_BYTE;
        }
        state->last = state->accepts && !bytes && state->n_calls == 0;
    }
    state->plain = !state->accepts && state->n_calls == 0;
}

/* Returns the state of machine->key, which it builds if it is new. */
static uint32_t look_up(weir_machine *machine, uint32_t rule)
{
    const uint32_t n = machine->n_key;
    const uint32_t hash = hash_of(rule, machine->key, n);
    for (uint32_t id = machine->buckets[hash & (machine->n_buckets - 1)]; id != 0;) {
        const weir_machine_state *const s = machine->states[id];
        if (s->hash == hash && s->rule == rule && s->n_key == n &&
            memcmp(s->key, machine->key, n * sizeof *s->key) == 0) {
            return id;
        }
        id = s->chain;
    }
    const size_t bytes = sizeof(weir_machine_state) + n * sizeof(uint32_t);
    const uint32_t id = take_id(machine);
    weir_machine_state *const state = id == 0 ? NULL : weir_memory_take_zero(1, bytes);
    if (state == NULL) {
        if (id != 0) machine->free_ids[machine->n_free++] = id;
        if (id != 0) machine->states[id] = NULL;
        fail(machine, WEIR_ENOMEM);
        return 0;
    }
    state->rule = rule;
    state->hash = hash;
    state->n_key = n;
    memcpy(state->key, machine->key, n * sizeof *state->key);
    machine->states[id] = state;
    machine->bytes += bytes;
    if (machine->rules->rules[rule].n_parts == 0 && !find_calls(machine, state)) {
        fail(machine, WEIR_ENOMEM);
    }
    describe(machine, state);
    state->chain = machine->buckets[hash & (machine->n_buckets - 1)];
    machine->buckets[hash & (machine->n_buckets - 1)] = id;
    if (machine->n_ids - machine->n_free > machine->n_buckets) grow_buckets(machine);
    return machine->status == WEIR_OK ? id : 0;
}

/* The state of the current set of a rule without parts. */
static uint32_t look_up_set(weir_machine *machine, uint32_t rule)
{
    if (machine->n_set == 0) return WEIR_MACHINE_DEAD;
    machine->n_key = 0;
    return key_set(machine, false) ? look_up(machine, rule) : 0;
}

/* Appends the key of a part after `byte`, or of its start if byte is -1. Returns 1, 0: dead,
 * -1: failure. */
static int key_part(weir_machine *machine, const weir_part *part, const uint32_t **key, int byte)
{
    if (part->kind == WEIR_PART_LENGTH || part->kind == WEIR_PART_MULTIPLE) {
        uint32_t value[WEIR_COUNTER_WORDS] = { 0 };
        if (!reserve_key(machine, WEIR_COUNTER_WORDS)) return -1;
        if (byte >= 0) memcpy(value, *key, sizeof value);
        if (byte >= 0) *key += WEIR_COUNTER_WORDS;
        if (byte >= 0 && !weir_counter_step(part, value, (unsigned)byte)) return 0;
        memcpy(machine->key + machine->n_key, value, sizeof value);
        machine->n_key += WEIR_COUNTER_WORDS;
        return 1;
    }
    begin_set(machine);
    if (byte < 0) {
        close_over(machine, part->start);
    } else {
        const uint32_t n = *(*key)++;
        for (uint32_t i = 0; i < n; i++) {
            const weir_nfa_state s = machine->rules->nfa.states[*(*key)++];
            if (s.kind == WEIR_NFA_BYTE && s.low <= byte && byte <= s.high) {
                close_over(machine, s.next);
            }
        }
    }
    if (machine->n_set == 0 && part->kind == WEIR_PART_MATCH) return 0;
    return key_set(machine, true) ? 1 : -1;
}

static uint32_t step_product(weir_machine *machine, uint32_t rule, const uint32_t *key, int byte)
{
    const weir_rule *const r = &machine->rules->rules[rule];
    machine->n_key = 0;
    for (uint32_t p = 0; p < r->n_parts; p++) {
        const weir_part *const part = &machine->rules->parts[r->first_part + p];
        const int found = key_part(machine, part, &key, byte);
        if (found <= 0) return found == 0 ? WEIR_MACHINE_DEAD : 0;
    }
    return look_up(machine, rule);
}

uint32_t weir_machine_enter(weir_machine *machine, uint32_t rule)
{
    const weir_rule *const r = &machine->rules->rules[rule];
    if (machine->entries[rule] != 0) return machine->entries[rule];
    if (machine->status != WEIR_OK) return 0;
    uint32_t id;
    if (r->n_parts > 0) {
        id = step_product(machine, rule, NULL, -1);
    } else {
        begin_set(machine);
        close_over(machine, r->start);
        id = look_up_set(machine, rule);
    }
    if (id > WEIR_MACHINE_DEAD) machine->states[id]->pins++;
    machine->entries[rule] = id;
    return id;
}

uint32_t weir_machine_raw_step(weir_machine *machine, uint32_t id, unsigned byte)
{
    const weir_machine_state *const state = machine->states[id];
    if (machine->status != WEIR_OK) return 0;
    machine->steps += 1 + state->n_key / 16;
    if (machine->steps > machine->step_limit) {
        fail(machine, WEIR_EFULL);
        return 0;
    }
    if (machine->rules->rules[state->rule].n_parts > 0) {
        return step_product(machine, state->rule, state->key, (int)byte);
    }
    begin_set(machine);
    for (uint32_t i = 0; i < state->n_key; i++) {
        const weir_nfa_state s = machine->rules->nfa.states[state->key[i]];
        if (s.kind == WEIR_NFA_BYTE && s.low <= byte && byte <= s.high) close_over(machine, s.next);
    }
    return look_up_set(machine, state->rule);
}

uint32_t weir_machine_fill(weir_machine *machine, uint32_t id, unsigned byte)
{
    uint32_t next = weir_machine_raw_step(machine, id, byte);
    if (next > WEIR_MACHINE_DEAD && !weir_machine_is_live(machine, next)) next = WEIR_MACHINE_DEAD;
    if (machine->status != WEIR_OK) return 0;
    machine->states[id]->next[byte] = next;
    return next;
}

uint32_t weir_machine_after(weir_machine *machine, uint32_t id, uint32_t call)
{
    weir_machine_state *const state = machine->states[id];
    weir_machine_call *const c = &state->calls[call];
    if (c->after != 0) return c->after;
    if (machine->status != WEIR_OK) return 0;
    begin_set(machine);
    for (uint32_t i = 0; i < c->n; i++) close_over(machine, state->after_states[c->begin + i]);
    c->after = look_up_set(machine, state->rule);
    return c->after;
}

/* The counter of the only part that limits the length, in the key; NULL: none. */
static const uint32_t *length_of(
    const weir_machine *machine, const weir_machine_state *state, const weir_part **part
)
{
    const weir_rule *const rule = &machine->rules->rules[state->rule];
    const uint32_t *key = state->key;
    for (uint32_t p = 0; p < rule->n_parts; p++) {
        *part = &machine->rules->parts[rule->first_part + p];
        if ((*part)->kind == WEIR_PART_LENGTH) return key;
        key += (*part)->kind == WEIR_PART_MULTIPLE ? WEIR_COUNTER_WORDS : 1 + *key;
    }
    return NULL;
}

bool weir_machine_in_text(const weir_machine *machine, uint32_t id, uint64_t *n_chars)
{
    const weir_machine_state *const state = machine->states[id];
    const weir_rule *const rule = &machine->rules->rules[state->rule];
    const weir_part *part = NULL;
    if (rule->text_end == 0) return false;
    const uint32_t *const set = rule->n_parts > 0 ? state->key + 1 : state->key;
    const uint32_t n = rule->n_parts > 0 ? state->key[0] : state->n_key;
    bool inside = false;
    for (uint32_t i = 0; i < n && !inside; i++) inside = set[i] == rule->text_end;
    if (!inside) return false;
    const uint32_t *const count = length_of(machine, state, &part);
    const bool limited = count != NULL && part->high != WEIR_LENGTH_UNLIMITED;
    *n_chars = limited ? part->high - count[1] : UINT64_MAX;
    return true;
}

uint32_t weir_machine_alike(weir_machine *machine, uint32_t id, uint32_t longest)
{
    const weir_machine_state *const state = machine->states[id];
    const weir_part *part = NULL;
    uint64_t n_chars;
    if (!weir_machine_in_text(machine, id, &n_chars) || n_chars == UINT64_MAX) return id;
    const uint32_t *const count = length_of(machine, state, &part);
    if (count[1] < part->low || n_chars <= longest) return id;
    const size_t at = (size_t)(count - state->key) + 1;
    machine->n_key = 0;
    if (!reserve_key(machine, state->n_key)) return 0;
    memcpy(machine->key, state->key, state->n_key * sizeof *state->key);
    machine->key[at] = (uint32_t)part->high - longest;
    machine->n_key = state->n_key;
    return look_up(machine, state->rule);
}

void weir_machine_drop(weir_machine *machine)
{
    memset(machine->buckets, 0, machine->n_buckets * sizeof *machine->buckets);
    for (uint32_t id = 2; id < machine->n_ids; id++) {
        weir_machine_state *const state = machine->states[id];
        if (state == NULL) continue;
        if (state->pins == 0 && !state->marked) {
            machine->bytes -= sizeof *state + state->n_key * sizeof *state->key;
            uint32_t n = 0;
            for (uint32_t i = 0; i < state->n_calls; i++) n += state->calls[i].n;
            machine->bytes -= n * (sizeof *state->calls + sizeof *state->after_states);
            machine->bytes -= weir_mask_entry_bytes(state->mask);
            free_state(state);
            machine->states[id] = NULL;
            machine->free_ids[machine->n_free++] = id;
            continue;
        }
        state->marked = false;
        memset(state->next, 0, sizeof state->next);
        for (uint32_t i = 0; i < state->n_calls; i++) state->calls[i].after = 0;
        state->chain = machine->buckets[state->hash & (machine->n_buckets - 1)];
        machine->buckets[state->hash & (machine->n_buckets - 1)] = id;
    }
}
