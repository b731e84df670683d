/* engine/constrain/trie.c - builds the trie of a vocabulary. */
#include "engine/constrain/trie.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"
#include "engine/base/utf8.h"

enum { MOST_TOKENS = 1 << 24, LONGEST_TOKEN = 4096 }; /* longer ones are never allowed */

typedef struct entry {
    const unsigned char *bytes;
    size_t length;
    int32_t id;
} entry;

static int compare(const void *a, const void *b)
{
    const entry *const x = a, *const y = b;
    const size_t n = x->length < y->length ? x->length : y->length;
    const int order = memcmp(x->bytes, y->bytes, n);
    if (order != 0) return order;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static size_t common(const entry *a, const entry *b)
{
    size_t n = 0;
    while (n < a->length && n < b->length && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

/* Writes the nodes of sorted entries; only counts them if `nodes` is NULL. open: the nodes of the
 * current prefix, by depth. */
static uint32_t lay_out(
    weir_trie_node *nodes, const entry *entries, size_t n, uint32_t open[LONGEST_TOKEN + 1]
)
{
    uint32_t n_nodes = 0;
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        const entry *const e = &entries[i];
        const size_t shared = i == 0 ? 0 : common(e, e - 1);
        for (; depth > shared; depth--) {
            if (nodes != NULL) nodes[open[depth]].skip = n_nodes;
        }
        while (depth < e->length) {
            open[++depth] = n_nodes;
            if (nodes != NULL) {
                nodes[n_nodes] = (weir_trie_node
                ){ .first = (uint32_t)i, .depth = (uint16_t)depth, .byte = e->bytes[depth - 1] };
            }
            n_nodes++;
        }
        if (nodes != NULL) nodes[open[depth]].count++;
    }
    for (; depth > 0 && nodes != NULL; depth--) nodes[open[depth]].skip = n_nodes;
    return n_nodes;
}

static weir_status copy_tokens(
    weir_token_trie *trie, const weir_token_bytes *tokens, const int32_t *end_ids, weir_error *error
)
{
    size_t total = 1;
    for (size_t i = 0; i < trie->n_tokens; i++) {
        if (!weir_add_size(&total, total, tokens[i].length)) {
            return weir_error_set(error, WEIR_EINVAL, "the vocabulary has too many bytes");
        }
    }
    weir_token_bytes *const copies = weir_memory_take_zero(trie->n_tokens + 1, sizeof *copies);
    trie->tokens = copies;
    trie->bytes = weir_memory_take(total);
    trie->end_ids = weir_memory_take_zero(trie->n_end_ids + 1, sizeof *trie->end_ids);
    if (copies == NULL || trie->bytes == NULL || trie->end_ids == NULL) {
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the vocabulary's trie");
    }
    char *at = trie->bytes;
    for (size_t i = 0; i < trie->n_tokens; i++) {
        if (tokens[i].length > 0) memcpy(at, tokens[i].bytes, tokens[i].length);
        copies[i] = (weir_token_bytes){ .bytes = at, .length = tokens[i].length };
        at += tokens[i].length;
    }
    for (size_t i = 0; i < trie->n_end_ids; i++) {
        if (end_ids[i] < 0 || (size_t)end_ids[i] >= trie->n_tokens) {
            return weir_error_set(
                error, WEIR_EINVAL, "end of answer %d is not one of %zu tokens", end_ids[i],
                trie->n_tokens
            );
        }
        trie->end_ids[i] = end_ids[i];
        copies[end_ids[i]].length = 0;
    }
    return WEIR_OK;
}

/* The characters of a token, if all of them stand for themselves in a JSON string; else 0. */
static uint32_t text_chars(const weir_token_bytes *token)
{
    uint32_t n = 0, c;
    for (size_t at = 0, size; at < token->length; at += size, n++) {
        size = weir_utf8_next(&c, token->bytes + at, token->length - at);
        if (size == 0 || c < 0x20 || c == '"' || c == '\\') return 0;
    }
    return n;
}

static bool make_part(weir_trie_part *part, const entry *entries, size_t n, uint32_t *open)
{
    int32_t *const ids = weir_memory_take((n + 1) * sizeof *ids);
    part->ids = ids;
    for (size_t i = 0; i < n && ids != NULL; i++) ids[i] = entries[i].id;
    part->n_nodes = lay_out(NULL, entries, n, open);
    weir_trie_node *const nodes = weir_memory_take(((size_t)part->n_nodes + 1) * sizeof *nodes);
    part->nodes = nodes;
    if (nodes == NULL || ids == NULL) return false;
    lay_out(nodes, entries, n, open);
    return true;
}

static int by_chars(const void *a, const void *b)
{
    const weir_text_token *const x = a, *const y = b;
    if (x->n_chars != y->n_chars) return x->n_chars < y->n_chars ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Takes the text tokens out of the entries and makes their masks. Returns how many are left, or
 * SIZE_MAX: no memory. */
static size_t make_text(weir_token_trie *trie, entry *entries, size_t n)
{
    const size_t words = weir_token_trie_words(trie);
    size_t left = 0;
    trie->long_text = weir_memory_take((n + 1) * sizeof *trie->long_text);
    if (trie->long_text == NULL) return SIZE_MAX;
    for (int i = 0; i <= WEIR_TEXT_COUNTS; i++) {
        trie->text[i] = weir_memory_take_zero(words + 1, sizeof(uint64_t));
        if (trie->text[i] == NULL) return SIZE_MAX;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t id = (uint32_t)entries[i].id, chars = text_chars(&trie->tokens[id]);
        if (chars == 0) {
            entries[left++] = entries[i];
            continue;
        }
        if (chars < WEIR_TEXT_COUNTS) trie->text[chars][id >> 6] |= (uint64_t)1 << (id & 63);
        trie->text[WEIR_TEXT_COUNTS][id >> 6] |= (uint64_t)1 << (id & 63);
        if (chars < WEIR_TEXT_COUNTS) continue;
        trie->long_text[trie->n_long_text++] = (weir_text_token){ chars, entries[i].id };
    }
    for (int k = 1; k < WEIR_TEXT_COUNTS; k++) {
        for (size_t i = 0; i < words; i++) trie->text[k][i] |= trie->text[k - 1][i];
    }
    qsort(trie->long_text, trie->n_long_text, sizeof *trie->long_text, by_chars);
    return left;
}

void weir_token_trie_text(const weir_token_trie *trie, uint64_t n_chars, uint64_t *mask)
{
    const size_t words = weir_token_trie_words(trie);
    const bool all = n_chars >= trie->longest;
    const uint64_t most = n_chars < WEIR_TEXT_COUNTS ? n_chars : WEIR_TEXT_COUNTS - 1;
    const uint64_t *const text = trie->text[all ? WEIR_TEXT_COUNTS : most];
    for (size_t i = 0; i < words; i++) mask[i] |= text[i];
    for (size_t i = 0; !all && i < trie->n_long_text; i++) {
        if (trie->long_text[i].n_chars > n_chars) return;
        const uint32_t id = (uint32_t)trie->long_text[i].id;
        mask[id >> 6] |= (uint64_t)1 << (id & 63);
    }
}

static weir_status build(weir_token_trie *trie, weir_error *error)
{
    weir_status status = WEIR_OK;
    uint32_t *const open = weir_memory_take((LONGEST_TOKEN + 1) * sizeof *open);
    entry *const entries = weir_memory_take((trie->n_tokens + 1) * sizeof *entries);
    size_t n = 0;
    if (open == NULL || entries == NULL) goto full;
    for (size_t i = 0; i < trie->n_tokens; i++) {
        const weir_token_bytes *const t = &trie->tokens[i];
        if (t->length == 0 || t->length > LONGEST_TOKEN) continue;
        entries[n++] = (entry
        ){ .bytes = (const unsigned char *)t->bytes, .length = t->length, .id = (int32_t)i };
        if (t->length > trie->longest) trie->longest = (uint32_t)t->length;
    }
    qsort(entries, n, sizeof *entries, compare);
    if (!make_part(&trie->all, entries, n, open)) goto full;
    n = make_text(trie, entries, n);
    if (n == SIZE_MAX || !make_part(&trie->others, entries, n, open)) goto full;
    goto done;
full:
    status = weir_error_set(error, WEIR_ENOMEM, "no memory for the vocabulary's trie");
done:
    weir_memory_give(open);
    weir_memory_give(entries);
    return status;
}

weir_status weir_token_trie_open(
    weir_token_trie **out, const weir_token_bytes *tokens, size_t n_tokens, const int32_t *end_ids,
    size_t n_end_ids, weir_error *error
)
{
    if (n_tokens > MOST_TOKENS || n_end_ids > MOST_TOKENS) {
        return weir_error_set(
            error, WEIR_EINVAL, "%zu tokens are more than %d", n_tokens, MOST_TOKENS
        );
    }
    weir_token_trie *const trie = weir_memory_take_zero(1, sizeof *trie);
    if (trie == NULL) {
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the vocabulary's trie");
    }
    trie->references = 1;
    trie->n_tokens = n_tokens;
    trie->n_end_ids = n_end_ids;
    weir_status status = copy_tokens(trie, tokens, end_ids, error);
    if (status == WEIR_OK) status = build(trie, error);
    if (status != WEIR_OK) {
        weir_token_trie_close(trie);
        return status;
    }
    *out = trie;
    return WEIR_OK;
}

void weir_token_trie_retain(weir_token_trie *trie)
{
    __atomic_fetch_add(&trie->references, 1, __ATOMIC_RELAXED);
}

void weir_token_trie_close(weir_token_trie *trie)
{
    if (trie == NULL) return;
    if (__atomic_sub_fetch(&trie->references, 1, __ATOMIC_ACQ_REL) > 0) return;
    weir_memory_give((void *)trie->all.nodes);
    weir_memory_give((void *)trie->all.ids);
    weir_memory_give((void *)trie->others.nodes);
    weir_memory_give((void *)trie->others.ids);
    for (int i = 0; i <= WEIR_TEXT_COUNTS; i++) weir_memory_give(trie->text[i]);
    weir_memory_give(trie->long_text);
    weir_memory_give(trie->end_ids);
    weir_memory_give((void *)trie->tokens);
    weir_memory_give(trie->bytes);
    weir_memory_give(trie);
}

size_t weir_token_trie_size(const weir_token_trie *trie) { return trie->n_tokens; }
size_t weir_token_trie_words(const weir_token_trie *trie) { return (trie->n_tokens + 63) / 64; }

bool weir_token_trie_is_end(const weir_token_trie *trie, int32_t id)
{
    for (size_t i = 0; i < trie->n_end_ids; i++) {
        if (trie->end_ids[i] == id) return true;
    }
    return false;
}
