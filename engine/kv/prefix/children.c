/* engine/kv/prefix/children.c - the children of a node, as a crit-bit tree (PATRICIA) over the bits
 * of their tokens. A branch names the first bit in which its two sides differ; n siblings have
 * n - 1 branches, each stored in a sibling below it (docs/decisions/0040). */
#include "engine/kv/prefix/prefix_internal.h"

static int32_t n_words(const node *n) { return n->n_tokens > 0 ? n->n_tokens : RUN; }

/* The side of these words; any, if they end before. */
static int side_of(const branch *at, const int32_t *words, int32_t n)
{
    return at->word < n ? (int)((uint32_t)words[at->word] >> at->bit & 1) : 0;
}

/* Follows the bits of the tokens to a child with the longest common prefix, which may be empty.
 * Branches on the way are in order of (word, bit from the highest down): at most 64 * 32 of them,
 * whatever clients send; about the logarithm of the siblings for random tokens. */
static int32_t follow(const weir_prefix *p, int32_t at, const int32_t *words, int32_t n)
{
    for (; at < 0; ++*p->visits) {
        const branch *const b = &p->nodes[-at].stored;
        at = b->side[side_of(b, words, n)];
    }
    ++*p->visits;
    return at;
}

int32_t prefix_nearest_child(
    const weir_prefix *p, int32_t parent, const int32_t *tokens, int32_t n, int32_t *n_same
)
{
    *n_same = 0;
    if (p->nodes[parent].children == 0) return NONE;
    const int32_t child = follow(p, p->nodes[parent].children, tokens, n);
    const int32_t words = n_words(&p->nodes[child]);
    *n_same = common(p->nodes[child].tokens, tokens, words < n ? words : n);
    return *n_same > 0 ? child : NONE;
}

void prefix_salt_words(int32_t *words, const char *salt)
{
    memset(words, 0, RUN * sizeof *words);
    memcpy(words, salt, strlen(salt));
}

int32_t prefix_find_salt(const weir_prefix *p, const char *salt)
{
    int32_t words[RUN], n_same;
    if (strlen(salt) > WEIR_PREFIX_SALT) return NONE;
    prefix_salt_words(words, salt);
    const int32_t found = prefix_nearest_child(p, FOREST, words, RUN, &n_same);
    return n_same == RUN ? found : NONE;
}

static bool is_before(const branch *b, int32_t word, int bit)
{
    return b->word < word || (b->word == word && b->bit > bit);
}

void prefix_add_child(weir_prefix *p, int32_t index)
{
    node *const own = &p->nodes[index];
    int32_t *at = &p->nodes[own->parent].children;
    own->stored.word = NONE;
    if (*at == 0) {
        *at = index;
        return;
    }
    const node *const near = &p->nodes[follow(p, *at, own->tokens, n_words(own))];
    const int32_t n = n_words(own) < n_words(near) ? n_words(own) : n_words(near),
                  word = common(own->tokens, near->tokens, n);
    WEIR_ASSERT(word < n);
    const uint32_t differs = (uint32_t)own->tokens[word] ^ (uint32_t)near->tokens[word];
    const int bit = 31 - __builtin_clz(differs);
    while (*at < 0 && is_before(&p->nodes[-*at].stored, word, bit)) {
        branch *const b = &p->nodes[-*at].stored;
        at = &b->side[side_of(b, own->tokens, n_words(own))];
        ++*p->visits;
    }
    own->stored = (branch){ .word = (int16_t)word, .bit = (int8_t)bit };
    const int side = side_of(&own->stored, own->tokens, n_words(own));
    own->stored.side[side] = index;
    own->stored.side[!side] = *at;
    *at = -index;
}

/* The branch above the node goes; if the node stores another one, that moves to the place of it. */
void prefix_remove_child(weir_prefix *p, int32_t index)
{
    node *const own = &p->nodes[index];
    int32_t *at = &p->nodes[own->parent].children, *above = NULL, *stored = NULL;
    while (*at != index) {
        WEIR_ASSERT(*at < 0);
        branch *const b = &p->nodes[-*at].stored;
        if (*at == -index) stored = at;
        above = at;
        at = &b->side[side_of(b, own->tokens, n_words(own))];
        ++*p->visits;
    }
    if (above == NULL) {
        *at = 0;
        return;
    }
    const int32_t keeper = -*above;
    branch *const gone = &p->nodes[keeper].stored;
    *above = gone->side[at == &gone->side[0]];
    gone->word = NONE;
    if (stored == NULL || keeper == index) return;
    *gone = own->stored;
    *stored = -keeper;
}
