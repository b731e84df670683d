/* tools/eval/score.h - scores of replies: pure functions of texts. ASCII letters are compared
 * without regard to case. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/eval/item.h"

#ifdef __cplusplus
extern "C" {
#endif

/* answers: n texts, each followed by NUL, as in weir_eval_item. Returns the share of the answers
 * that occur in the reply. */
double weir_score_all(const char *reply, const char *answers, size_t n);
/* Returns 1 if one of them occurs in the reply. */
double weir_score_part(const char *reply, const char *answers, size_t n);
/* Returns 1 if the first non-blank line, without white space around it, equals the answer. */
double weir_score_line(const char *reply, const char *answer);

/* A state of a depth-first search. */
typedef struct weir_state {
    int64_t current; /* -1: null */
    int64_t stack[64];
    int32_t n_stack;
    uint64_t visited; /* bits */
} weir_state;
/* Reads the last JSON object with "current_node" after the last "Answer:" (in the whole text if
 * there is none). Returns false if none can be read. */
bool weir_state_read(weir_state *out, const char *text);

typedef struct weir_state_score {
    bool is_correct; /* current node, stack in order, visited as a set */
    bool current, depth, top, stack; /* depth: the stack's height; top: its last node */
    double visited_share; /* |got and want| / |got or want| */
    double precision, recall, f1; /* of the visited nodes */
} weir_state_score;
weir_state_score weir_score_state(const weir_state *got, const weir_state *want);

/* Scores by the item's rule, except EXACT, which compares tokens. `reply` begins with the item's
 * prefix if that is part of the answer (STATE). */
double weir_score_reply(
    weir_eval_scoring scoring, const char *reply, const char *answers, size_t n
);

#ifdef __cplusplus
}
#endif
