/* engine/constrain/nfa.c - states of automata, and anchors. */
#include "engine/constrain/nfa.h"

#include <string.h>

#include "engine/base/memory.h"

weir_status weir_nfa_init(weir_nfa *nfa, size_t limit)
{
    *nfa = (weir_nfa){ .limit = limit > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)limit };
    nfa->states = weir_memory_take(256 * sizeof *nfa->states);
    if (nfa->states == NULL) return WEIR_ENOMEM;
    nfa->capacity = 256;
    nfa->states[0] = (weir_nfa_state){ .kind = WEIR_NFA_NEVER };
    nfa->count = 1;
    return WEIR_OK;
}

void weir_nfa_free(weir_nfa *nfa)
{
    weir_memory_give(nfa->states);
    *nfa = (weir_nfa){ 0 };
}

static uint32_t add(weir_nfa *nfa, weir_nfa_state state)
{
    if (nfa->status != WEIR_OK) return 0;
    if (nfa->count >= nfa->limit) {
        nfa->status = WEIR_EFULL;
        return 0;
    }
    if (nfa->count == nfa->capacity) {
        const size_t capacity = (size_t)nfa->capacity * 2;
        weir_nfa_state *const larger =
            weir_memory_resize(nfa->states, capacity * sizeof *nfa->states);
        if (larger == NULL) {
            nfa->status = WEIR_ENOMEM;
            return 0;
        }
        nfa->states = larger;
        nfa->capacity = (uint32_t)capacity;
    }
    nfa->states[nfa->count] = state;
    return nfa->count++;
}

uint32_t weir_nfa_accept(weir_nfa *nfa)
{
    return add(nfa, (weir_nfa_state){ .kind = WEIR_NFA_ACCEPT });
}

uint32_t weir_nfa_byte(weir_nfa *nfa, unsigned low, unsigned high, uint32_t next)
{
    if (next == 0) return 0;
    return add(
        nfa, (weir_nfa_state
             ){ .kind = WEIR_NFA_BYTE, .low = (uint8_t)low, .high = (uint8_t)high, .next = next }
    );
}

uint32_t weir_nfa_text(weir_nfa *nfa, const char *text, size_t n, uint32_t next)
{
    while (n > 0) {
        const unsigned byte = (unsigned char)text[--n];
        next = weir_nfa_byte(nfa, byte, byte, next);
    }
    return next;
}

uint32_t weir_nfa_call(weir_nfa *nfa, uint32_t rule, uint32_t next)
{
    if (next == 0) return 0;
    return add(nfa, (weir_nfa_state){ .kind = WEIR_NFA_CALL, .next = next, .other = rule });
}

uint32_t weir_nfa_anchor_state(weir_nfa *nfa, weir_nfa_kind kind, uint32_t next)
{
    if (next == 0) return 0;
    return add(nfa, (weir_nfa_state){ .kind = (uint8_t)kind, .next = next });
}

uint32_t weir_nfa_split(weir_nfa *nfa, uint32_t a, uint32_t b)
{
    if (a == 0 || a == b) return b;
    if (b == 0) return a;
    return add(nfa, (weir_nfa_state){ .kind = WEIR_NFA_SPLIT, .next = a, .other = b });
}

uint32_t weir_nfa_loop(weir_nfa *nfa)
{
    return add(nfa, (weir_nfa_state){ .kind = WEIR_NFA_SPLIT });
}

void weir_nfa_loop_join(weir_nfa *nfa, uint32_t head, uint32_t body, uint32_t after)
{
    if (nfa->status != WEIR_OK) return;
    nfa->states[head].next = body;
    nfa->states[head].other = after;
}

/* Places of the copy: whether a byte came before, and whether END forbids more. */
enum { STARTED = 1, ENDED = 2, LAYERS = 4 };

typedef struct copy {
    weir_nfa *nfa;
    uint32_t *places; /* [n, LAYERS]: the copy of each state, 0: none yet */
    uint32_t *pending; /* state * LAYERS + layer */
    size_t n_pending;
    uint32_t n; /* states before the copy */
    uint32_t end; /* not copied */
} copy;

/* Returns the copy of a state in a layer, which may still have to be filled. */
static uint32_t copy_of(copy *c, uint32_t state, uint32_t layer)
{
    for (uint32_t hops = 0; hops <= c->n && state != c->end; hops++) {
        const weir_nfa_state *const s = &c->nfa->states[state];
        if (s->kind == WEIR_NFA_BEGIN && (layer & STARTED) == 0) {
            state = s->next;
        } else if (s->kind == WEIR_NFA_END) {
            state = s->next;
            layer |= ENDED;
        } else {
            break;
        }
    }
    if (state == c->end) return state;
    const weir_nfa_state s = c->nfa->states[state];
    const bool never = s.kind == WEIR_NFA_NEVER || s.kind == WEIR_NFA_BEGIN ||
                       s.kind == WEIR_NFA_END || (s.kind == WEIR_NFA_BYTE && (layer & ENDED) != 0);
    if (never) return 0;
    uint32_t *const place = &c->places[(size_t)state * LAYERS + layer];
    if (*place == 0) {
        *place = add(c->nfa, s);
        if (*place != 0) c->pending[c->n_pending++] = state * LAYERS + layer;
    }
    return *place;
}

uint32_t weir_nfa_anchor(weir_nfa *nfa, uint32_t start, uint32_t end)
{
    if (start == 0 || nfa->status != WEIR_OK) return 0;
    copy c = { .nfa = nfa, .n = nfa->count, .end = end };
    c.places = weir_memory_take_zero((size_t)nfa->count * LAYERS, sizeof *c.places);
    c.pending = weir_memory_take((size_t)nfa->count * LAYERS * sizeof *c.pending);
    uint32_t first = 0;
    if (c.places == NULL || c.pending == NULL) {
        nfa->status = WEIR_ENOMEM;
        goto done;
    }
    first = copy_of(&c, start, 0);
    while (c.n_pending > 0) {
        const uint32_t at = c.pending[--c.n_pending];
        const uint32_t state = at / LAYERS, layer = at % LAYERS;
        const weir_nfa_state s = nfa->states[state];
        const uint32_t after = s.kind == WEIR_NFA_BYTE ? layer | STARTED : layer;
        const uint32_t next = s.kind == WEIR_NFA_ACCEPT ? 0 : copy_of(&c, s.next, after);
        const uint32_t other = s.kind == WEIR_NFA_SPLIT ? copy_of(&c, s.other, after) : s.other;
        if (nfa->status != WEIR_OK) break;
        weir_nfa_state *const to = &nfa->states[c.places[at]];
        to->next = next;
        to->other = other;
    }
done:
    weir_memory_give(c.places);
    weir_memory_give(c.pending);
    return nfa->status == WEIR_OK ? first : 0;
}
