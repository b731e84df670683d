/* engine/constrain/parser.c - one byte further: transitions, calls and returns. */
#include "engine/constrain/parser.h"

#include <stdint.h>
#include <string.h>

#include "engine/base/memory.h"

enum { CHUNK_BYTES = 16384, MOST_ITEMS = 1 << 20 };

weir_status weir_parser_init(
    weir_parser *parser, const weir_rules *rules, uint32_t depth, size_t cache
)
{
    *parser = (weir_parser){ .depth_limit = depth, .cache_limit = cache, .drop_at = cache };
    return weir_machine_init(&parser->machine, rules);
}

weir_status weir_parser_levels(weir_parser *parser, uint32_t longest)
{
    parser->levels = weir_memory_take(((size_t)longest + 1) * sizeof *parser->levels);
    return parser->levels == NULL ? WEIR_ENOMEM : WEIR_OK;
}

void weir_parser_free(weir_parser *parser)
{
    weir_machine_free(&parser->machine);
    weir_memory_give(parser->items);
    weir_memory_give(parser->pending);
    weir_memory_give(parser->seen);
    weir_memory_give(parser->calls);
    weir_memory_give(parser->levels);
    while (parser->chunks != NULL) {
        weir_parser_chunk *const next = parser->chunks->next;
        weir_memory_give(parser->chunks);
        parser->chunks = next;
    }
    *parser = (weir_parser){ 0 };
}

void weir_parser_begin(weir_parser *parser, uint64_t steps)
{
    parser->n_items = 0;
    parser->mark = (weir_parser_mark){ .chunk = parser->chunks };
    parser->machine.steps = 0;
    parser->machine.step_limit = steps;
    parser->machine.status = WEIR_OK;
}

static bool fail(weir_parser *parser, weir_status status)
{
    if (parser->machine.status == WEIR_OK) parser->machine.status = status;
    return false;
}

/* Makes room for one more element. */
static bool reserve(weir_parser *parser, void **array, uint32_t *capacity, uint32_t n, size_t size)
{
    if (n < *capacity) return true;
    if (n >= MOST_ITEMS) return fail(parser, WEIR_EFULL);
    const uint32_t larger = *capacity == 0 ? 64 : *capacity * 2;
    void *const memory = weir_memory_resize(*array, larger * size);
    if (memory == NULL) return fail(parser, WEIR_ENOMEM);
    *array = memory;
    *capacity = larger;
    return true;
}
#define RESERVE(parser, array, n, capacity)                                                        \
    reserve((parser), (void **)&(array), &(capacity), (n), sizeof *(array))

bool weir_parser_push(weir_parser *parser, weir_item item)
{
    if (!RESERVE(parser, parser->items, parser->n_items, parser->items_capacity)) return false;
    parser->items[parser->n_items++] = item;
    return true;
}

/* Takes memory of the running call; NULL on failure. */
static void *take(weir_parser *parser, size_t n)
{
    n = (n + 15) & ~(size_t)15;
    if (parser->mark.chunk == NULL || parser->mark.used + n > CHUNK_BYTES) {
        weir_parser_chunk **const place =
            parser->mark.chunk == NULL ? &parser->chunks : &parser->mark.chunk->next;
        if (*place == NULL) {
            weir_parser_chunk *const chunk =
                weir_memory_take(sizeof(weir_parser_chunk) + CHUNK_BYTES);
            if (chunk == NULL) {
                fail(parser, WEIR_ENOMEM);
                return NULL;
            }
            chunk->next = NULL;
            *place = chunk;
        }
        parser->mark = (weir_parser_mark){ .chunk = *place };
    }
    void *const memory = parser->mark.chunk->data + parser->mark.used;
    parser->mark.used += n;
    return memory;
}

static bool add_pending(weir_parser *parser, uint32_t state, weir_frame *frame, bool enters)
{
    if (!RESERVE(parser, parser->pending, parser->n_pending, parser->pending_capacity)) {
        return false;
    }
    parser->pending[parser->n_pending++] =
        (weir_parser_pending){ .item = { state, frame }, .enters = enters };
    return true;
}

static bool note_call(weir_parser *parser, uint32_t rule, weir_frame *frame, bool owned)
{
    if (!RESERVE(parser, parser->calls, parser->n_calls, parser->calls_capacity)) return false;
    parser->calls[parser->n_calls++] =
        (weir_parser_call){ .rule = rule, .owned = owned, .frame = frame };
    return true;
}

/* Adds a caller to a frame that was made in this step. */
static bool add_edge(weir_parser *parser, weir_frame *frame, uint32_t after, weir_frame *parent)
{
    WEIR_ASSERT(frame != NULL);
    for (const weir_frame_edge *e = &frame->edge; e != NULL; e = e->next) {
        parser->machine.steps++;
        if (e->after == after && e->parent == parent) return true;
    }
    weir_frame_edge *const edge = take(parser, sizeof *edge);
    if (edge == NULL) return false;
    *edge = (weir_frame_edge){ .after = after, .parent = parent, .next = frame->edge.next };
    frame->edge.next = edge;
    const uint32_t depth = parent == NULL ? 1 : parent->depth + 1;
    if (depth > frame->depth) frame->depth = depth;
    return true;
}

/* Calls a rule from an item. */
static bool call(weir_parser *parser, weir_item caller, uint32_t index)
{
    weir_machine *const machine = &parser->machine;
    const uint32_t rule = machine->states[caller.state]->calls[index].rule;
    const uint32_t after = weir_machine_after(machine, caller.state, index);
    const uint32_t entry = after > WEIR_MACHINE_DEAD ? weir_machine_enter(machine, rule) : after;
    if (entry == 0) return false;
    if (entry == WEIR_MACHINE_DEAD) return true;
    const bool returns = machine->states[after]->last;
    for (uint32_t i = 0; i < parser->n_calls; i++) {
        weir_parser_call *const c = &parser->calls[i];
        machine->steps++;
        if (c->rule != rule) continue;
        if (returns && c->frame == caller.frame && !c->owned) return true;
        if (!returns && c->owned) return add_edge(parser, c->frame, after, caller.frame);
    }
    if (returns) {
        return note_call(parser, rule, caller.frame, false) &&
               add_pending(parser, entry, caller.frame, true);
    }
    const uint32_t depth = caller.frame == NULL ? 1 : caller.frame->depth + 1;
    if (depth > parser->depth_limit) return true; /* not possible */
    weir_frame *const frame = take(parser, sizeof *frame);
    if (frame == NULL) return false;
    *frame = (weir_frame){ .depth = depth, .edge = { after, caller.frame, NULL } };
    return note_call(parser, rule, frame, true) && add_pending(parser, entry, frame, true);
}

/* The entry of an item, or the free one where it belongs. */
static weir_parser_seen *find_seen(const weir_parser *parser, weir_item item, bool after)
{
    const uint32_t mask = parser->seen_capacity - 1;
    uint64_t hash = ((uint64_t)(uintptr_t)item.frame >> 4) * 0x9E3779B97F4A7C15U;
    hash = (hash ^ item.state * 2U ^ after) * 0xFF51AFD7ED558CCDU;
    for (uint32_t i = (uint32_t)(hash >> 32) & mask;; i = (i + 1) & mask) {
        weir_parser_seen *const s = &parser->seen[i];
        if (s->step != parser->step) return s;
        if (s->item.state == item.state && s->item.frame == item.frame && s->after == after) {
            return s;
        }
    }
}

static bool grow_seen(weir_parser *parser)
{
    weir_parser old = *parser;
    const uint32_t capacity = old.seen_capacity == 0 ? 64 : old.seen_capacity * 2;
    if (capacity > 2 * MOST_ITEMS) return fail(parser, WEIR_EFULL);
    parser->seen = weir_memory_take_zero(capacity, sizeof *parser->seen);
    if (parser->seen == NULL) {
        parser->seen = old.seen;
        return fail(parser, WEIR_ENOMEM);
    }
    parser->seen_capacity = capacity;
    for (uint32_t i = 0; i < old.seen_capacity; i++) {
        const weir_parser_seen *const s = &old.seen[i];
        if (s->step == parser->step) *find_seen(parser, s->item, s->after) = *s;
    }
    weir_memory_give(old.seen);
    return true;
}

/* Notes an item of this step. Returns whether it is new; *failed: no room. */
static bool is_new(weir_parser *parser, weir_item item, bool after, bool *failed)
{
    if (parser->n_seen * 2 >= parser->seen_capacity && !grow_seen(parser)) {
        *failed = true;
        return false;
    }
    weir_parser_seen *const s = find_seen(parser, item, after);
    if (s->step == parser->step) return false;
    *s = (weir_parser_seen){ .item = item, .step = parser->step, .after = after };
    parser->n_seen++;
    return true;
}

/* Forgets the items of the step before. */
static void forget_seen(weir_parser *parser)
{
    parser->n_seen = 0;
    if (++parser->step != 0) return;
    if (parser->seen != NULL) {
        memset(parser->seen, 0, parser->seen_capacity * sizeof *parser->seen);
    }
    parser->step = 1;
}

/* Goes on after the callers of an item whose rule may end here. */
static bool go_back(weir_parser *parser, const weir_frame *frame)
{
    bool failed = false;
    for (const weir_frame_edge *e = frame == NULL ? NULL : &frame->edge; e != NULL; e = e->next) {
        parser->machine.steps++; /* step_limit: by the caller's loop */
        if (is_new(parser, (weir_item){ e->after, e->parent }, false, &failed) &&
            !add_pending(parser, e->after, e->parent, false)) {
            return false;
        }
    }
    return !failed;
}

static bool add_item(weir_parser *parser, weir_item item)
{
    bool failed = false;
    if (is_new(parser, item, true, &failed)) return weir_parser_push(parser, item);
    return !failed;
}

static bool advance(weir_parser *parser, weir_parser_pending at, unsigned byte)
{
    weir_machine *const machine = &parser->machine;
    const uint32_t next = weir_machine_step(machine, at.item.state, byte);
    if (next == 0) return false;
    if (next != WEIR_MACHINE_DEAD && !add_item(parser, (weir_item){ next, at.item.frame })) {
        return false;
    }
    const weir_machine_state *const state = machine->states[at.item.state];
    if (state->n_calls > 0 && weir_byte_in(state->call_first, byte)) {
        for (uint32_t i = 0; i < state->n_calls; i++) {
            const weir_rule *const rule = &machine->rules->rules[state->calls[i].rule];
            if (weir_byte_in(rule->first, byte) && !call(parser, at.item, i)) return false;
        }
    }
    return !state->accepts || at.enters || go_back(parser, at.item.frame);
}

bool weir_parser_step(weir_parser *parser, weir_item_set *out, weir_item_set set, unsigned byte)
{
    weir_machine *const machine = &parser->machine;
    const uint32_t begin = parser->n_items;
    if (set.end - set.begin == 1) {
        const weir_item item = parser->items[set.begin];
        const weir_machine_state *const state = machine->states[item.state];
        const uint32_t next = state->next[byte];
        if (state->plain && next != WEIR_MACHINE_UNKNOWN) {
            if (next != WEIR_MACHINE_DEAD &&
                !weir_parser_push(parser, (weir_item){ next, item.frame })) {
                return false;
            }
            *out = (weir_item_set){ begin, parser->n_items };
            return true;
        }
    }
    parser->n_pending = parser->n_calls = 0;
    forget_seen(parser);
    machine->steps += set.end - set.begin;
    for (uint32_t i = set.begin; i < set.end; i++) {
        const weir_item item = parser->items[i];
        if (!add_pending(parser, item.state, item.frame, false)) return false;
    }
    while (parser->n_pending > 0) {
        const weir_parser_pending at = parser->pending[--parser->n_pending];
        if (!advance(parser, at, byte)) return false;
        if (++machine->steps > machine->step_limit) return fail(parser, WEIR_EFULL);
    }
    *out = (weir_item_set){ begin, parser->n_items };
    return true;
}

static bool reaches_end(weir_parser *parser, weir_frame *frame)
{
    if (frame == NULL) return true;
    parser->n_pending = 0;
    if (!add_pending(parser, 0, frame, false)) return false;
    while (parser->n_pending > 0) {
        weir_frame *const at = parser->pending[--parser->n_pending].item.frame;
        if (at == NULL) return true;
        if (at->stamp == parser->stamp) continue;
        at->stamp = parser->stamp;
        for (const weir_frame_edge *e = &at->edge; e != NULL; e = e->next) {
            if (!parser->machine.states[e->after]->accepts) continue;
            if (!add_pending(parser, 0, e->parent, false)) return false;
        }
    }
    return false;
}

bool weir_parser_completes(weir_parser *parser, weir_item_set set)
{
    parser->stamp++;
    for (uint32_t i = set.begin; i < set.end; i++) {
        const weir_item item = parser->items[i];
        if (!parser->machine.states[item.state]->accepts) continue;
        if (reaches_end(parser, item.frame)) return true;
    }
    return false;
}

static void mark_frames(weir_parser *parser, weir_frame *frame)
{
    parser->n_pending = 0;
    bool fits = add_pending(parser, 0, frame, false);
    while (fits && parser->n_pending > 0) {
        weir_frame *const at = parser->pending[--parser->n_pending].item.frame;
        if (at == NULL || at->references > 0 || at->stamp == parser->stamp) continue;
        at->stamp = parser->stamp;
        for (const weir_frame_edge *e = &at->edge; e != NULL && fits; e = e->next) {
            parser->machine.states[e->after]->marked = true;
            fits = add_pending(parser, 0, e->parent, false);
        }
    }
}

void weir_parser_make_room(weir_parser *parser)
{
    if (parser->machine.bytes <= parser->drop_at) return;
    parser->stamp++;
    for (uint32_t i = 0; i < parser->n_items; i++) {
        parser->machine.states[parser->items[i].state]->marked = true;
        mark_frames(parser, parser->items[i].frame);
    }
    if (parser->machine.status != WEIR_OK) return;
    weir_machine_drop(&parser->machine);
    const size_t twice = parser->machine.bytes * 2;
    parser->drop_at = twice > parser->cache_limit ? twice : parser->cache_limit;
}
