/* engine/constrain/frames.c - items and frames that sequences keep. */
#include "engine/base/memory.h"
#include "engine/constrain/parser.h"

static void free_frames(weir_parser *parser, weir_frame *frame)
{
    weir_frame *list = frame;
    frame->moved = NULL;
    while (list != NULL) {
        weir_frame *const at = list;
        list = at->moved;
        for (weir_frame_edge *e = &at->edge, *next; e != NULL; e = next) {
            next = e->next;
            parser->machine.states[e->after]->pins--;
            if (e->parent != NULL && --e->parent->references == 0) {
                e->parent->moved = list;
                list = e->parent;
            }
            if (e == &at->edge) continue;
            parser->frame_bytes -= sizeof *e;
            weir_memory_give(e);
        }
        parser->frame_bytes -= sizeof *at;
        weir_memory_give(at);
    }
}

static weir_frame *keep_frame(weir_parser *parser, weir_frame *frame);

/* Copies an edge, with a reference to its kept parent. */
static bool keep_edge(weir_parser *parser, weir_frame_edge *to, const weir_frame_edge *from)
{
    weir_frame *const parent = keep_frame(parser, from->parent);
    if (parent == NULL && from->parent != NULL) return false;
    *to = (weir_frame_edge){ .after = from->after, .parent = parent };
    parser->machine.states[to->after]->pins++;
    return true;
}

/* Returns `frame` or its copy, with one reference more; NULL if it is NULL or on failure. Frames of
 * a call are as many as its bytes allow, so the recursion is bounded. */
static weir_frame *keep_frame(weir_parser *parser, weir_frame *frame)
{
    if (frame == NULL) return NULL;
    weir_frame *const known = frame->references > 0 ? frame : frame->moved;
    if (known != NULL) {
        known->references++;
        return known;
    }
    weir_frame *const copy = weir_memory_take(sizeof *copy);
    if (copy == NULL) return NULL;
    *copy = (weir_frame){ .references = 1, .depth = frame->depth };
    if (!keep_edge(parser, &copy->edge, &frame->edge)) {
        weir_memory_give(copy);
        return NULL;
    }
    parser->frame_bytes += sizeof *copy;
    for (const weir_frame_edge *e = frame->edge.next; e != NULL; e = e->next) {
        weir_frame_edge *const edge = weir_memory_take(sizeof *edge);
        if (edge == NULL || !keep_edge(parser, edge, e)) {
            weir_memory_give(edge);
            free_frames(parser, copy);
            return NULL;
        }
        parser->frame_bytes += sizeof *edge;
        edge->next = copy->edge.next;
        copy->edge.next = edge;
    }
    frame->moved = copy;
    return copy;
}

bool weir_parser_keep(weir_parser *parser, weir_item *item)
{
    weir_frame *const frame = keep_frame(parser, item->frame);
    if (frame == NULL && item->frame != NULL) return false;
    item->frame = frame;
    parser->machine.states[item->state]->pins++;
    return true;
}

void weir_parser_retain(weir_parser *parser, const weir_item *item)
{
    if (item->frame != NULL) item->frame->references++;
    parser->machine.states[item->state]->pins++;
}

void weir_parser_release(weir_parser *parser, const weir_item *item)
{
    parser->machine.states[item->state]->pins--;
    if (item->frame != NULL && --item->frame->references == 0) free_frames(parser, item->frame);
}
