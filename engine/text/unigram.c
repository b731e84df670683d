/* engine/text/unigram.c - Viterbi over the positions of a text. */
#include "engine/text/unigram.h"

#include "engine/base/memory.h"
#include "engine/base/utf8.h"

static const uint32_t none = UINT32_MAX;

void weir_unigram_scratch_free(weir_unigram_scratch *scratch)
{
    weir_memory_give(scratch->nodes);
    *scratch = (weir_unigram_scratch){ 0 };
}

static weir_status reserve(weir_unigram_scratch *scratch, size_t n)
{
    if (n <= scratch->capacity) return WEIR_OK;
    const size_t capacity = n + n / 2 + 64; /* n <= 2^30 + 1 */
    weir_unigram_node *const nodes = weir_memory_resize(scratch->nodes, capacity * sizeof *nodes);
    if (nodes == NULL) return WEIR_ENOMEM;
    scratch->nodes = nodes;
    scratch->capacity = capacity;
    return WEIR_OK;
}

static void offer(
    const weir_unigram *model, weir_unigram_node *node, uint32_t start, int32_t id, double sum
)
{
    if (model->is_single) sum = (double)(float)sum;
    if (node->start != none && !(sum > node->sum)) return;
    *node = (weir_unigram_node){ .sum = sum, .start = start, .id = id };
}

/* A user-defined piece has more than any way to write it with pieces of negative scores, and the
 * longer of two has more. */
static double score_of(const weir_unigram *model, int32_t id, size_t length)
{
    return (model->vocabulary->tokens[id].flags & WEIR_TOKEN_USER) == 0
               ? model->scores[id]
               : (double)(0.1F * (float)(length - 1));
}

/* Offers every piece that begins at `start`; false: none is the character of `length` bytes. */
static bool offer_pieces(
    weir_unigram_node *nodes, const weir_unigram *model, const char *text, size_t n, size_t start,
    size_t length, weir_unigram_allows *allows, void *context
)
{
    bool is_character = false;
    uint32_t place = 0;
    for (size_t end = start; end < n;) {
        const weir_pair_entry *const entry =
            weir_pair_find(&model->trie->edges, weir_pair_key(place, (unsigned char)text[end++]));
        if (entry == NULL) break;
        place = entry->number;
        if (entry->id < 0) continue;
        if ((model->vocabulary->tokens[entry->id].flags & WEIR_TOKEN_USER) != 0 &&
            !allows(context, start, end, entry->id))
            continue;
        offer(
            model, &nodes[end], (uint32_t)start, entry->id,
            score_of(model, entry->id, end - start) + nodes[start].sum
        );
        is_character = is_character || end - start == length;
    }
    return is_character;
}

/* sentencepiece keeps sums in float32 small: past this one it counts from the present position. */
static void keep_small(weir_unigram_node *nodes, const weir_unigram *model, size_t n, size_t start)
{
    static const double least = -100000;
    const double sum = nodes[start].sum;
    if (!model->is_single || sum >= least) return;
    for (size_t i = start; i <= n && i <= start + model->longest; i++)
        if (nodes[i].start != none) nodes[i].sum = (double)(float)(nodes[i].sum - sum);
}

static void find_paths(
    weir_unigram_scratch *scratch, const weir_unigram *model, const char *text, size_t n,
    weir_unigram_allows *allows, void *context
)
{
    weir_unigram_node *const nodes = scratch->nodes;
    nodes[0] = (weir_unigram_node){ .sum = scratch->sum, .start = 0, .id = -1 };
    for (size_t i = 1; i <= n; i++) nodes[i] = (weir_unigram_node){ .start = none, .id = -1 };
    size_t length = 0;
    for (size_t start = 0; start < n; start += length) {
        bool valid;
        length = weir_utf8_step(text + start, n - start, &valid);
        keep_small(nodes, model, n, start);
        if (offer_pieces(nodes, model, text, n, start, length, allows, context)) continue;
        offer(
            model, &nodes[start + length], (uint32_t)start, -1,
            model->unknown_score + nodes[start].sum
        );
    }
    scratch->sum = nodes[n].sum;
}

weir_status weir_unigram_encode(
    weir_unigram_scratch *scratch, const weir_unigram *model, const char *text, size_t n,
    weir_unigram_allows *allows, weir_unigram_sink *sink, void *context
)
{
    if (n == 0) return WEIR_OK;
    WEIR_TRY(reserve(scratch, n + 1));
    find_paths(scratch, model, text, n, allows, context);
    weir_unigram_node *const nodes = scratch->nodes;
    /* Turns the chain of starts around: each node then says where the next piece ends. */
    uint32_t next = none;
    for (uint32_t at = (uint32_t)n; at > 0;) {
        const uint32_t start = nodes[at].start;
        nodes[at].start = next;
        next = at;
        at = start;
    }
    for (uint32_t begin = 0, end = next; end != none; begin = end, end = nodes[end].start)
        WEIR_TRY(sink(context, begin, end, nodes[end].id));
    return WEIR_OK;
}
