/* engine/constrain/rest.c - merges parts of the vocabulary's trie. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/constrain/mask.h"

enum { MOST_NODES = 1 << 15, MOST_IDS = 1 << 17 };

typedef struct child {
    uint32_t node;
    uint8_t byte;
} child;

typedef struct builder {
    const weir_trie_part *trie;
    weir_trie_node *nodes; /* owned */
    int32_t *ids; /* owned */
    child *children; /* owned: a stack */
    uint32_t n_nodes, nodes_capacity, n_ids, ids_capacity, n_children, children_capacity;
    int failure; /* as weir_rest_build */
} builder;

static bool reserve(
    builder *b, void **array, uint32_t *capacity, uint32_t n, size_t size, uint32_t most
)
{
    if (b->failure != 0) return false;
    if (n < *capacity) return true;
    const uint32_t larger = *capacity == 0 ? 64 : *capacity * 2;
    void *const memory = n >= most ? NULL : weir_memory_resize(*array, larger * size);
    if (memory == NULL) {
        b->failure = n >= most ? 1 : -1;
        return false;
    }
    *array = memory;
    *capacity = larger;
    return true;
}

static bool add_children(builder *b, uint32_t node, const uint64_t *follow)
{
    const weir_trie_node *const nodes = b->trie->nodes;
    for (uint32_t i = node + 1; i < nodes[node].skip; i = nodes[i].skip) {
        if (follow != NULL && !weir_byte_in(follow, nodes[i].byte)) continue;
        if (!reserve(
                b, (void **)&b->children, &b->children_capacity, b->n_children, sizeof(child),
                MOST_IDS
            )) {
            return false;
        }
        b->children[b->n_children++] = (child){ .node = i, .byte = nodes[i].byte };
    }
    return true;
}

static int compare(const void *a, const void *b)
{
    const child *const x = a, *const y = b;
    if (x->byte != y->byte) return x->byte < y->byte ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

/* Appends the node of children [begin, end), which have the same byte. */
static bool add_node(builder *b, uint32_t begin, uint32_t end, uint32_t depth)
{
    if (!reserve(
            b, (void **)&b->nodes, &b->nodes_capacity, b->n_nodes, sizeof *b->nodes, MOST_NODES
        )) {
        return false;
    }
    weir_trie_node *const node = &b->nodes[b->n_nodes++];
    *node = (weir_trie_node
    ){ .first = b->n_ids, .depth = (uint16_t)depth, .byte = b->children[begin].byte };
    for (uint32_t i = begin; i < end; i++) {
        const weir_trie_node *const from = &b->trie->nodes[b->children[i].node];
        for (uint32_t k = 0; k < from->count; k++) {
            if (!reserve(
                    b, (void **)&b->ids, &b->ids_capacity, b->n_ids, sizeof *b->ids, MOST_IDS
                )) {
                return false;
            }
            b->ids[b->n_ids++] = b->trie->ids[from->first + k];
            node->count++;
        }
    }
    return true;
}

/* Appends the nodes of the children on the stack from `begin` on, and takes them off. The depth is
 * that of tokens at most. */
static void build(builder *b, uint32_t begin, uint32_t depth)
{
    const uint32_t end = b->n_children;
    if (end - begin > 1) qsort(b->children + begin, end - begin, sizeof(child), compare);
    for (uint32_t i = begin, group; i < end; i = group) {
        for (group = i + 1; group < end && b->children[group].byte == b->children[i].byte;) group++;
        const uint32_t at = b->n_nodes;
        if (!add_node(b, i, group, depth)) return;
        for (uint32_t k = i; k < group; k++) {
            if (!add_children(b, b->children[k].node, NULL)) return;
        }
        if (b->n_children > end) build(b, end, depth + 1);
        if (b->failure != 0) return;
        b->nodes[at].skip = b->n_nodes;
    }
    b->n_children = begin;
}

int weir_rest_build(
    weir_trie_part *out, const weir_trie_part *trie, const uint32_t *nodes, uint32_t n,
    const uint64_t follow[4]
)
{
    builder b = { .trie = trie };
    for (uint32_t i = 0; i < n; i++) {
        if (!add_children(&b, nodes[i], follow)) break;
    }
    if (b.failure == 0 && b.n_children > 0) build(&b, 0, 1);
    weir_memory_give(b.children);
    if (b.failure != 0) {
        weir_memory_give(b.nodes);
        weir_memory_give(b.ids);
        return b.failure;
    }
    *out = (weir_trie_part){ .nodes = b.nodes, .ids = b.ids, .n_nodes = b.n_nodes };
    return 0;
}
