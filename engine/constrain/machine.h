/* engine/constrain/machine.h - the deterministic states of rules, built as they are met.
 *
 * A state is the set of a rule's automaton states after some bytes; of a product one set or counter
 * for each part. Its transitions are filled when they are first needed. When the states take more
 * than the limit, those that nothing holds are dropped, and built again if they are met again. */
#pragma once
#include "engine/constrain/rules.h"

enum { WEIR_MACHINE_UNKNOWN = 0, WEIR_MACHINE_DEAD = 1 }; /* in `next`; ids begin at 2 */

typedef struct weir_machine_call { /* of a rule, from a state */
    uint32_t rule;
    uint32_t after; /* the state after it, 0: not built */
    uint32_t begin, n; /* of its automaton states in `after_states` */
} weir_machine_call;

typedef struct weir_machine_state {
    uint32_t rule;
    uint32_t pins; /* held by frames and sequences */
    uint32_t hash, chain; /* the next state of the same bucket */
    uint32_t n_key, n_calls;
    bool accepts;
    bool plain; /* neither accepts nor calls: only `next` counts */
    bool last; /* accepts, and no byte may follow in this rule */
    bool marked; /* by weir_machine_mark */
    uint8_t live; /* of products: 0 unknown, 1 an end can be reached, 2 none */
    uint64_t call_first[4]; /* bytes that may begin a called rule */
    weir_machine_call *calls; /* owned, [n_calls] */
    uint32_t *after_states; /* in the memory of calls */
    struct weir_mask_entry *mask; /* owned, NULL: not computed */
    uint32_t next[256];
    uint32_t key[];
} weir_machine_state;

typedef struct weir_machine {
    const weir_rules *rules;
    weir_machine_state **states; /* owned, [capacity], by id */
    uint32_t *buckets; /* owned, [n_buckets] */
    uint32_t *free_ids; /* owned, [capacity] */
    uint32_t *entries; /* owned, [rules]: the pinned first state of each, 0: not built */
    uint32_t *marks, *pending, *set; /* owned, of a closure: [nfa states + 1], twice, once */
    struct weir_search *search; /* owned: memory of machine_live.c */
    uint32_t *key; /* owned, [key_capacity], of the state that is looked up */
    uint32_t capacity, n_ids, n_free, n_buckets, mark, n_set, n_key, key_capacity;
    size_t bytes; /* of states and masks */
    uint64_t steps; /* transitions computed since the call began */
    uint64_t step_limit;
    weir_status status; /* the first failure of this call: ENOMEM, EFULL */
} weir_machine;

weir_status weir_machine_init(weir_machine *machine, const weir_rules *rules);
void weir_machine_free(weir_machine *machine);
void weir_search_free(struct weir_search *search); /* machine_live.c; NULL-safe */

/* These return an id; 0 on failure (machine->status), WEIR_MACHINE_DEAD if nothing can match. */
uint32_t weir_machine_enter(weir_machine *machine, uint32_t rule);
uint32_t weir_machine_fill(weir_machine *machine, uint32_t id, unsigned byte);
uint32_t weir_machine_after(weir_machine *machine, uint32_t id, uint32_t call);

static inline uint32_t weir_machine_step(weir_machine *machine, uint32_t id, unsigned byte)
{
    const uint32_t next = machine->states[id]->next[byte];
    return next != WEIR_MACHINE_UNKNOWN ? next : weir_machine_fill(machine, id, byte);
}

/* Whether an end can be reached; computes it for products. False also on failure. */
bool weir_machine_is_live(weir_machine *machine, uint32_t id);

/* Whether a state is inside a JSON string that takes any text of at most *n_chars characters. */
bool weir_machine_in_text(const weir_machine *machine, uint32_t id, uint64_t *n_chars);
/* A state that allows the same texts of at most `longest` bytes: in a string whose limit is further
 * away, another count. 0 on failure. */
uint32_t weir_machine_alike(weir_machine *machine, uint32_t id, uint32_t longest);

/* Drops the states that are neither pinned nor marked, and unmarks the others. */
void weir_machine_drop(weir_machine *machine);
void weir_mask_entry_free(struct weir_mask_entry *entry); /* mask.c; NULL-safe */
size_t weir_mask_entry_bytes(const struct weir_mask_entry *entry); /* 0: NULL */

/* For machine.c and machine_live.c. */
uint32_t weir_machine_raw_step(weir_machine *machine, uint32_t id, unsigned byte);
