/* engine/constrain/parser.h - sets of items: places in rules, each with the stacks that it may
 * return to.
 *
 * A frame stands for a rule that was called at one place of the text, and lists where its callers
 * go on; callers at the same place share it. A frame with callers that only return is left out.
 * Frames and items of a call live in the parser's memory and are dropped with it; what a sequence
 * keeps is copied to frames that count their references. */
#pragma once
#include "engine/constrain/machine.h"
#include "engine/constrain/trie.h"

typedef struct weir_frame_edge {
    uint32_t after; /* the caller's state after the rule */
    struct weir_frame *parent; /* NULL: the whole text */
    struct weir_frame_edge *next;
} weir_frame_edge;

typedef struct weir_frame {
    uint32_t references; /* 0: of the running call */
    uint32_t depth;
    uint32_t stamp; /* of the last visit */
    weir_frame_edge edge; /* its `next` are the other edges */
    struct weir_frame *moved; /* its copy, or the next one to free */
} weir_frame;

typedef struct weir_item {
    uint32_t state;
    weir_frame *frame;
} weir_item;

/* A set of items in the parser's stack. */
typedef struct weir_item_set {
    uint32_t begin, end;
} weir_item_set;

typedef struct weir_parser_chunk {
    struct weir_parser_chunk *next;
    char data[];
} weir_parser_chunk;
typedef struct weir_parser_mark { /* of the memory for frames */
    weir_parser_chunk *chunk;
    size_t used;
} weir_parser_mark;

typedef struct weir_parser_call { /* a rule that was called in this step */
    uint32_t rule;
    bool owned; /* `frame` was made for it, so callers can be added */
    weir_frame *frame;
} weir_parser_call;

typedef struct weir_parser_pending {
    weir_item item;
    bool enters; /* begins a rule: its empty match is already with the caller */
} weir_parser_pending;

typedef struct weir_parser_seen { /* an item that was met in this step */
    weir_item item;
    uint32_t step; /* that of the entry; others are free */
    bool after; /* among those after the byte; else among those returned to */
} weir_parser_seen;

typedef struct weir_parser_level { /* of a walk: the items after a node's bytes */
    weir_item_set set;
    weir_parser_mark mark;
} weir_parser_level;

typedef struct weir_parser {
    weir_machine machine;
    weir_item *items; /* owned */
    weir_parser_pending *pending; /* owned */
    weir_parser_seen *seen; /* owned: a hash table of a power of two, at most half full */
    weir_parser_call *calls; /* owned */
    weir_parser_level *levels; /* owned, [longest token + 1] */
    weir_parser_chunk *chunks; /* owned */
    weir_parser_mark mark;
    uint32_t n_items, items_capacity, n_pending, pending_capacity, n_seen, seen_capacity;
    uint32_t n_calls, calls_capacity, stamp;
    uint32_t step; /* of the entries of `seen` that count */
    uint32_t depth_limit;
    size_t frame_bytes; /* of frames with references */
    size_t cache_limit, drop_at; /* bytes of the machine */
} weir_parser;

weir_status weir_parser_init(
    weir_parser *parser, const weir_rules *rules, uint32_t depth, size_t cache
);
/* Makes room for walks of tokens of at most `longest` bytes. */
weir_status weir_parser_levels(weir_parser *parser, uint32_t longest);
void weir_parser_free(weir_parser *parser);

/* Begins a call: no items, no frames of its own. */
void weir_parser_begin(weir_parser *parser, uint64_t steps);
bool weir_parser_push(weir_parser *parser, weir_item item);
/* Appends the items after `byte` to the stack. False on failure (machine.status); an empty set: the
 * byte is not possible. */
bool weir_parser_step(weir_parser *parser, weir_item_set *out, weir_item_set set, unsigned byte);
/* Whether the text may end in one of these items. */
bool weir_parser_completes(weir_parser *parser, weir_item_set set);
/* Goes back to a mark, with n_items items. */
static inline void weir_parser_back(weir_parser *parser, weir_parser_mark mark, uint32_t n_items)
{
    parser->mark = mark;
    parser->n_items = n_items;
}
/* Drops automaton states if they take more than the limit. All items in the stack stay. */
void weir_parser_make_room(weir_parser *parser);

/* Counts references: pins the item's state, and copies its frame if it is of the running call.
 * False: no memory. */
bool weir_parser_keep(weir_parser *parser, weir_item *item);
void weir_parser_retain(weir_parser *parser, const weir_item *item); /* one that is kept already */
void weir_parser_release(weir_parser *parser, const weir_item *item);
