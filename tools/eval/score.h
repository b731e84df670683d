/* tools/eval/score.h - what a reply is worth: pure functions of texts. Letters are compared
 * without regard to case where they are ASCII. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/eval/item.h"

#ifdef __cplusplus
extern "C" {
#endif

/* answers: n texts, NUL after each, as in weir_eval_item. Share of the answers that the reply
 * holds. */
double weir_score_all(const char *reply, const char *answers, size_t n);
/* 1: it holds one of them */
double weir_score_part(const char *reply, const char *answers, size_t n);
/* The first line that holds anything, without the space around it, is the answer to the letter. */
double weir_score_line(const char *reply, const char *answer);

/* A state of a depth-first search. */
typedef struct weir_state {
    int64_t current; /* -1: null */
    int64_t stack[64];
    int32_t n_stack;
    uint64_t visited; /* bits */
} weir_state;
/* The last JSON object with "current_node" behind the last "Answer:" (in the whole text without
 * one). False: there is none that can be read. */
bool weir_state_read(weir_state *out, const char *text);

typedef struct weir_state_score {
    bool is_correct; /* current node, stack in order, visited as a set */
    bool current, depth, top, stack; /* depth: the stack's height; top: its last node */
    double visited_share; /* |got and want| / |got or want| */
    double precision, recall, f1; /* of the visited nodes */
} weir_state_score;
weir_state_score weir_score_state(const weir_state *got, const weir_state *want);

/* By the item's rule, but EXACT, which is about tokens. `reply` begins with the item's prefix where
 * that is part of the answer (STATE). */
double weir_score_reply(
    weir_eval_scoring scoring, const char *reply, const char *answers, size_t n
);

#ifdef __cplusplus
}
#endif
