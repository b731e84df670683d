/* engine/constrain/mask.c - computes, keeps and joins the masks of automaton states. */
#include "engine/constrain/mask.h"

#include <string.h>

#include "engine/base/memory.h"

enum { MOST_ENDS = 1 << 14 }; /* places where a rule may have ended; more: not kept */

void weir_mask_entry_free(weir_mask_entry *entry)
{
    if (entry == NULL) return;
    weir_memory_give(entry->ids);
    weir_memory_give(entry->bits);
    weir_memory_give((void *)entry->rest.nodes);
    weir_memory_give((void *)entry->rest.ids);
    weir_memory_give(entry);
}

size_t weir_mask_entry_bytes(const weir_mask_entry *entry)
{
    return entry == NULL ? 0 : entry->bytes;
}

/* Takes over the mask as bits or, if that is smaller, as ids. */
static bool store_mask(weir_mask_entry *entry, uint64_t *mask, size_t words)
{
    size_t n = 0;
    for (size_t i = 0; i < words; i++) n += (size_t)__builtin_popcountll(mask[i]);
    if (n * sizeof *entry->ids >= words * sizeof *mask) {
        entry->bits = mask;
        entry->bytes += words * sizeof *mask;
        return true;
    }
    entry->ids = n == 0 ? NULL : weir_memory_take(n * sizeof *entry->ids);
    if (n > 0 && entry->ids == NULL) return false;
    entry->bytes += n * sizeof *entry->ids;
    for (size_t i = 0; i < words && entry->ids != NULL; i++) {
        for (uint64_t word = mask[i]; word != 0; word &= word - 1) {
            entry->ids[entry->n_ids++] = (int32_t)(i * 64 + (size_t)__builtin_ctzll(word));
        }
    }
    weir_memory_give(mask);
    return true;
}

/* Computes what a state allows whatever its callers are. */
static bool compute(
    weir_parser *parser, const weir_token_trie *trie, uint32_t id, weir_mask_entry *entry
)
{
    const size_t words = weir_token_trie_words(trie);
    const weir_machine *const machine = &parser->machine;
    uint64_t n_chars = 0;
    const bool text = weir_machine_in_text(machine, id, &n_chars);
    weir_walk walk = { .parser = parser,
                       .part = text ? trie->others : trie->all,
                       .most_ends = MOST_ENDS };
    bool stored = false;
    walk.mask = weir_memory_take_zero(words + 1, sizeof *walk.mask);
    walk.ends = weir_memory_take(MOST_ENDS * sizeof *walk.ends);
    const uint32_t begin = parser->n_items;
    if (walk.mask == NULL || walk.ends == NULL ||
        !weir_parser_push(parser, (weir_item){ id, NULL }) ||
        !weir_walk_run(&walk, (weir_item_set){ begin, begin + 1 })) {
        goto done;
    }
    if (text) weir_token_trie_text(trie, n_chars, walk.mask);
    const uint64_t *const follow = machine->rules->rules[machine->states[id]->rule].follow;
    int found = 1;
    if (walk.n_ends <= MOST_ENDS) {
        found = weir_rest_build(&entry->rest, &walk.part, walk.ends, walk.n_ends, follow);
    }
    if (found < 0) goto done;
    entry->whole = found > 0;
    entry->bytes += entry->rest.n_nodes * (sizeof *entry->rest.nodes + sizeof *entry->rest.ids);
    stored = entry->whole || store_mask(entry, walk.mask, words);
    if (!entry->whole && stored) walk.mask = NULL;
done:
    parser->n_items = begin;
    weir_memory_give(walk.mask);
    weir_memory_give(walk.ends);
    return stored;
}

/* Returns the kept mask of a state; computes it if there is none. NULL on failure. *holder becomes
 * the state that owns it, which may be another one that nothing else holds. */
static const weir_mask_entry *entry_of(
    weir_parser *parser, const weir_token_trie *trie, uint32_t *holder
)
{
    weir_mask_entry *entry = parser->machine.states[*holder]->mask;
    if (entry != NULL) return entry;
    const uint32_t id = weir_machine_alike(&parser->machine, *holder, trie->longest);
    if (id == 0) return NULL;
    *holder = id;
    entry = parser->machine.states[id]->mask;
    if (entry != NULL) return entry;
    entry = weir_memory_take_zero(1, sizeof *entry);
    if (entry != NULL) entry->bytes = sizeof *entry;
    if (entry == NULL || !compute(parser, trie, id, entry)) {
        if (parser->machine.status == WEIR_OK) parser->machine.status = WEIR_ENOMEM;
        weir_mask_entry_free(entry);
        return NULL;
    }
    parser->machine.states[id]->mask = entry;
    parser->machine.bytes += entry->bytes;
    return entry;
}

static void join(const weir_mask_entry *entry, uint64_t *mask, size_t words)
{
    for (uint32_t i = 0; i < entry->n_ids; i++) {
        const uint32_t id = (uint32_t)entry->ids[i];
        mask[id >> 6] |= (uint64_t)1 << (id & 63);
    }
    for (size_t i = 0; i < words && entry->bits != NULL; i++) mask[i] |= entry->bits[i];
}

/* Pushes the items of a frame's callers. */
static bool push_callers(weir_parser *parser, uint32_t known, const weir_frame *frame)
{
    for (const weir_frame_edge *e = frame == NULL ? NULL : &frame->edge; e != NULL; e = e->next) {
        bool seen = false;
        for (uint32_t i = known; i < parser->n_items && !seen; i++) {
            seen = parser->items[i].state == e->after && parser->items[i].frame == e->parent;
        }
        parser->machine.steps += parser->n_items - known + 1;
        if (parser->machine.steps > parser->machine.step_limit) {
            parser->machine.status = WEIR_EFULL;
            return false;
        }
        if (!seen && !weir_parser_push(parser, (weir_item){ e->after, e->parent })) return false;
    }
    return true;
}

static bool mask_item(
    weir_parser *parser, const weir_token_trie *trie, weir_item item, uint64_t *mask
)
{
    const uint32_t begin = parser->n_items;
    weir_walk walk = { .parser = parser, .mask = mask };
    const uint32_t depth = item.frame == NULL ? 0 : item.frame->depth;
    const weir_mask_entry *entry = NULL;
    uint32_t holder = item.state;
    if (depth + trie->longest <= parser->depth_limit) {
        entry = entry_of(parser, trie, &holder);
        if (entry == NULL) return false;
    }
    if (entry == NULL || entry->whole) {
        walk.part = trie->all;
        if (!weir_parser_push(parser, item)) return false;
    } else {
        join(entry, mask, weir_token_trie_words(trie));
        walk.part = entry->rest;
        if (entry->rest.n_nodes == 0) return true;
        if (!push_callers(parser, begin, item.frame)) return false;
    }
    parser->machine.states[holder]->pins++; /* the walk may make room, and reads entry->rest */
    const bool walked = weir_walk_run(&walk, (weir_item_set){ begin, parser->n_items });
    parser->machine.states[holder]->pins--;
    parser->n_items = begin;
    return walked;
}

bool weir_mask_items(
    weir_parser *parser, const weir_token_trie *trie, weir_item_set set, uint64_t *mask
)
{
    const uint32_t begin = parser->n_items;
    for (uint32_t i = set.begin; i < set.end; i++) {
        if (!weir_parser_push(parser, parser->items[i])) return false;
    }
    /* Items of callers are appended while the loop runs. */
    for (uint32_t i = begin; i < parser->n_items; i++) {
        const weir_item item = parser->items[i];
        if (!parser->machine.states[item.state]->accepts) continue;
        if (!push_callers(parser, begin, item.frame)) return false;
    }
    const uint32_t end = parser->n_items;
    for (uint32_t i = begin; i < end; i++) {
        if (!mask_item(parser, trie, parser->items[i], mask)) return false;
    }
    parser->n_items = begin;
    return true;
}
