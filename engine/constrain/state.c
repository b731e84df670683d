/* engine/constrain/state.c - the states of sequences: accepting, masks, forced bytes. */
#include <string.h>

#include "engine/base/memory.h"
#include "engine/constrain/grammar.h"
#include "engine/constrain/mask.h"

/* A call on a grammar: its lock is held and its tracker is the thread's. */
typedef struct call {
    weir_grammar *grammar;
    weir_memory_tracker *before;
} call;

static call enter(weir_grammar *grammar)
{
    pthread_mutex_lock(&grammar->lock);
    const call c = { grammar, weir_memory_tracker_set(grammar->tracker) };
    weir_parser_begin(&grammar->parser, grammar->limits.steps);
    weir_parser_make_room(&grammar->parser);
    return c;
}

static void leave(const call *c)
{
    weir_memory_tracker_set(c->before);
    weir_grammar_measure(c->grammar);
    pthread_mutex_unlock(&c->grammar->lock);
}

static weir_status failed(const weir_grammar *grammar, weir_error *error)
{
    if (grammar->parser.machine.status == WEIR_EFULL) {
        return weir_error_set(
            error, WEIR_EFULL,
            "the grammar is too ambiguous here: a token needs more than %zu automaton steps or too "
            "many states; simplify it",
            grammar->limits.steps
        );
    }
    return weir_error_set(error, WEIR_ENOMEM, "no memory for the state of the grammar");
}

/* Pushes the state's items. */
static bool push_items(const weir_grammar_state *state, weir_item_set *set)
{
    weir_parser *const parser = &state->grammar->parser;
    set->begin = parser->n_items;
    for (uint32_t i = 0; i < state->n_items; i++) {
        if (!weir_parser_push(parser, state->items[i])) return false;
    }
    set->end = parser->n_items;
    return true;
}

static void release_items(weir_parser *parser, weir_item *items, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) weir_parser_release(parser, &items[i]);
    weir_memory_give(items);
}

/* Returns kept copies of the items of a set; NULL when memory is short. */
static weir_item *keep_items(weir_parser *parser, weir_item_set set)
{
    const uint32_t n = set.end - set.begin;
    weir_item *const items = weir_memory_take(n * sizeof *items + 1);
    if (items == NULL) return NULL;
    for (uint32_t i = 0; i < n; i++) {
        items[i] = parser->items[set.begin + i];
        if (weir_parser_keep(parser, &items[i])) continue;
        release_items(parser, items, i);
        return NULL;
    }
    return items;
}

weir_status weir_grammar_state_open(
    weir_grammar_state **out, weir_grammar *grammar, weir_error *error
)
{
    const call c = enter(grammar);
    weir_parser *const parser = &grammar->parser;
    const uint32_t entry = weir_machine_enter(&parser->machine, grammar->root);
    weir_grammar_state *const state = weir_memory_take_zero(1, sizeof *state);
    weir_item *items = NULL;
    if (entry > WEIR_MACHINE_DEAD && state != NULL &&
        weir_parser_push(parser, (weir_item){ entry, NULL })) {
        items = keep_items(parser, (weir_item_set){ 0, 1 });
    }
    weir_status status = WEIR_OK;
    if (items == NULL) {
        status = failed(grammar, error);
        weir_memory_give(state);
    } else {
        weir_grammar_retain(grammar);
        *state = (weir_grammar_state){ .grammar = grammar, .items = items, .n_items = 1 };
        *out = state;
    }
    leave(&c);
    return status;
}

void weir_grammar_state_close(weir_grammar_state *state)
{
    if (state == NULL) return;
    weir_grammar *const grammar = state->grammar;
    const call c = enter(grammar);
    release_items(&grammar->parser, state->items, state->n_items);
    weir_memory_give(state);
    leave(&c);
    weir_grammar_release(grammar);
}

weir_status weir_grammar_state_copy(
    weir_grammar_state *to, const weir_grammar_state *from, weir_error *error
)
{
    WEIR_ASSERT(to->grammar == from->grammar);
    if (to == from) return WEIR_OK;
    const call c = enter(to->grammar);
    weir_parser *const parser = &to->grammar->parser;
    weir_status status = WEIR_OK;
    weir_item *const items = weir_memory_take(from->n_items * sizeof *items + 1);
    if (items == NULL) {
        status = failed(to->grammar, error);
    } else {
        for (uint32_t i = 0; i < from->n_items; i++) {
            items[i] = from->items[i];
            weir_parser_retain(parser, &items[i]);
        }
        release_items(parser, to->items, to->n_items);
        to->items = items;
        to->n_items = from->n_items;
    }
    leave(&c);
    return status;
}

weir_status weir_grammar_state_clone(
    weir_grammar_state **out, const weir_grammar_state *state, weir_error *error
)
{
    weir_grammar_state *copy;
    WEIR_TRY(weir_grammar_state_open(&copy, state->grammar, error));
    const weir_status status = weir_grammar_state_copy(copy, state, error);
    if (status != WEIR_OK) {
        weir_grammar_state_close(copy);
        return status;
    }
    *out = copy;
    return WEIR_OK;
}

/* Steps of a text between two copies of its frames: bounds the memory of a call. */
enum { KEEP_EVERY = 64 };

/* Steps through bytes from `*set`, which is left at the last items. Returns how many passed. */
static size_t step_bytes(weir_parser *parser, weir_item_set *set, const char *bytes, size_t n)
{
    size_t done = 0;
    for (; done < n; done++) {
        weir_item_set next;
        if (!weir_parser_step(parser, &next, *set, (unsigned char)bytes[done])) break;
        if (next.begin == next.end) break;
        *set = next;
    }
    return done;
}

static weir_status accept(
    weir_grammar_state *state, const char *bytes, size_t n, size_t *n_accepted, weir_error *error
)
{
    weir_grammar *const grammar = state->grammar;
    weir_parser *const parser = &grammar->parser;
    weir_grammar_state now = *state; /* its items are owned if they are not the state's */
    weir_status status = WEIR_OK;
    size_t done = 0;
    while (done < n) {
        weir_item_set set;
        weir_parser_begin(parser, grammar->limits.steps);
        weir_parser_make_room(parser);
        const size_t part = n - done < KEEP_EVERY ? n - done : KEEP_EVERY;
        const size_t passed =
            push_items(&now, &set) ? step_bytes(parser, &set, bytes + done, part) : 0;
        weir_item *items = NULL;
        if (parser->machine.status == WEIR_OK) items = keep_items(parser, set);
        if (items == NULL) {
            status = failed(grammar, error);
            break;
        }
        if (now.items != state->items) release_items(parser, now.items, now.n_items);
        now.items = items;
        now.n_items = set.end - set.begin;
        done += passed;
        if (passed < part) break;
    }
    if (status == WEIR_OK) *n_accepted = done;
    weir_grammar_state *const rest = done == n && status == WEIR_OK ? state : &now;
    if (now.items != state->items) {
        release_items(parser, rest->items, rest->n_items);
        if (rest == state) *state = now;
    }
    return status;
}

weir_status weir_grammar_accept_bytes(
    weir_grammar_state *state, const char *bytes, size_t n, size_t *n_accepted, weir_error *error
)
{
    const call c = enter(state->grammar);
    *n_accepted = 0;
    const weir_status status = accept(state, bytes, n, n_accepted, error);
    leave(&c);
    return status;
}

static bool completes(const weir_grammar_state *state)
{
    weir_item_set set;
    return push_items(state, &set) && weir_parser_completes(&state->grammar->parser, set);
}

weir_status weir_grammar_accept_token(
    weir_grammar_state *state, int32_t id, bool *accepted, weir_error *error
)
{
    const weir_token_trie *const trie = state->grammar->trie;
    if (trie == NULL || id < 0 || (size_t)id >= trie->n_tokens) {
        return weir_error_set(error, WEIR_EINVAL, "token %d is not of the grammar's trie", id);
    }
    const call c = enter(state->grammar);
    const weir_token_bytes token = trie->tokens[id];
    size_t passed = 0;
    weir_status status = WEIR_OK;
    if (token.length == 0) {
        *accepted = weir_token_trie_is_end(trie, id) && completes(state);
    } else {
        status = accept(state, token.bytes, token.length, &passed, error);
        *accepted = status == WEIR_OK && passed == token.length;
    }
    leave(&c);
    return status;
}

weir_status weir_grammar_mask(weir_grammar_state *state, uint64_t *mask, weir_error *error)
{
    weir_grammar *const grammar = state->grammar;
    const weir_token_trie *const trie = grammar->trie;
    if (trie == NULL) return weir_error_set(error, WEIR_EINVAL, "the grammar has no vocabulary");
    const call c = enter(grammar);
    memset(mask, 0, weir_token_trie_words(trie) * sizeof *mask);
    weir_item_set set;
    weir_status status = WEIR_OK;
    if (!push_items(state, &set) || !weir_mask_items(&grammar->parser, trie, set, mask)) {
        status = failed(grammar, error);
    } else if (weir_parser_completes(&grammar->parser, set)) {
        for (size_t i = 0; i < trie->n_end_ids; i++) {
            const uint32_t id = (uint32_t)trie->end_ids[i];
            mask[id >> 6] |= (uint64_t)1 << (id & 63);
        }
    }
    leave(&c);
    return status;
}

/* Counts the bytes that are possible after a set, up to two. *byte: the first of them; `after` is
 * left with its items. Returns -1 on failure. */
static int possible(weir_parser *parser, weir_item_set set, unsigned *byte, weir_item_set *after)
{
    int n = 0;
    for (unsigned b = 0; b < 256 && n < 2; b++) {
        const weir_parser_mark mark = parser->mark;
        const uint32_t n_items = parser->n_items;
        weir_item_set next;
        if (!weir_parser_step(parser, &next, set, b)) return -1;
        if (next.begin == next.end) continue;
        if (n++ > 0) {
            weir_parser_back(parser, mark, n_items);
            break;
        }
        *byte = b;
        *after = next;
    }
    return n;
}

weir_status weir_grammar_forced(
    weir_grammar_state *state, char *out, size_t most, size_t *n, weir_error *error
)
{
    const call c = enter(state->grammar);
    weir_parser *const parser = &state->grammar->parser;
    weir_status status = WEIR_OK;
    weir_item_set set;
    *n = 0;
    int found = push_items(state, &set) ? 1 : -1;
    while (found == 1 && *n < most) {
        unsigned byte = 0;
        if (weir_parser_completes(parser, set)) break;
        found = possible(parser, set, &byte, &set);
        if (found == 1) out[(*n)++] = (char)byte;
    }
    if (found < 0 || parser->machine.status != WEIR_OK) status = failed(state->grammar, error);
    leave(&c);
    return status;
}

bool weir_grammar_is_complete(weir_grammar_state *state)
{
    const call c = enter(state->grammar);
    const bool complete = completes(state);
    leave(&c);
    return complete;
}

weir_status weir_grammar_must_end(weir_grammar_state *state, bool *must, weir_error *error)
{
    const call c = enter(state->grammar);
    weir_parser *const parser = &state->grammar->parser;
    weir_item_set set, after;
    unsigned byte;
    weir_status status = WEIR_OK;
    const int found = push_items(state, &set) ? possible(parser, set, &byte, &after) : -1;
    if (found < 0) {
        status = failed(state->grammar, error);
    } else {
        *must = found == 0 && weir_parser_completes(parser, set);
    }
    leave(&c);
    return status;
}

size_t weir_grammar_state_bytes(const weir_grammar_state *state)
{
    return sizeof *state + state->n_items * sizeof *state->items;
}
