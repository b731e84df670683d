/* engine/constrain/walk.c - walks a trie with sets of items. */
#include <string.h>

#include "engine/constrain/mask.h"

static void set_tokens(const weir_walk *walk, const weir_trie_node *node)
{
    for (uint32_t i = 0; i < node->count; i++) {
        const uint32_t id = (uint32_t)walk->part.ids[node->first + i];
        walk->mask[id >> 6] |= (uint64_t)1 << (id & 63);
    }
}

bool weir_walk_run(weir_walk *walk, weir_item_set set)
{
    weir_parser *const parser = walk->parser;
    const weir_trie_node *const nodes = walk->part.nodes;
    if (walk->part.n_nodes == 0) return true;
    weir_parser_level *const levels = parser->levels;
    levels[0] = (weir_parser_level){ set, parser->mark };
    for (uint32_t i = 0; i < walk->part.n_nodes;) {
        const weir_trie_node *const node = &nodes[i];
        const weir_parser_level *const above = &levels[node->depth - 1];
        weir_parser_back(parser, above->mark, above->set.end);
        if (parser->machine.bytes > parser->drop_at) weir_parser_make_room(parser);
        weir_item_set next;
        if (!weir_parser_step(parser, &next, above->set, node->byte)) return false;
        if (next.begin == next.end) {
            i = node->skip;
            continue;
        }
        set_tokens(walk, node);
        levels[node->depth] = (weir_parser_level){ next, parser->mark };
        i++;
        if (walk->ends == NULL || node->skip == i) continue;
        if (weir_parser_completes(parser, next)) {
            if (walk->n_ends < walk->most_ends) walk->ends[walk->n_ends] = i - 1;
            walk->n_ends++;
        }
    }
    weir_parser_back(parser, levels[0].mark, set.end);
    return parser->machine.status == WEIR_OK;
}
