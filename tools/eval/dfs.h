/* tools/eval/dfs.h - the state of a depth-first search after k steps: graphs, the search, and texts
 * about it.
 *
 * The search goes to the smallest unvisited neighbour, else it goes back; it ends when the stack is
 * empty, after 2n - 1 steps of a connected graph of n nodes. The answer for step k depends on all
 * steps before it: a model writes them down, which tests its memory. For models that cannot search,
 * the true trace is part of the prompt (tasks dfs_traced, dfs_probe). */
#pragma once
#include "tools/eval/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_DFS_NODES = 32 };

typedef struct weir_dfs_graph {
    int32_t n; /* 1 .. WEIR_DFS_NODES */
    uint32_t neighbours[WEIR_DFS_NODES]; /* bit i: an edge to node i */
} weir_dfs_graph;

typedef struct weir_dfs_state {
    int32_t current; /* -1: the search is over */
    int32_t stack[WEIR_DFS_NODES], n_stack;
    uint32_t visited; /* bits */
} weir_dfs_state;

void weir_dfs_join(weir_dfs_graph *graph, int32_t a, int32_t b);
bool weir_dfs_is_connected(const weir_dfs_graph *graph);
weir_dfs_state weir_dfs_begin(int32_t start);
/* Returns false, with the state unchanged, if the search is over. */
bool weir_dfs_step(const weir_dfs_graph *graph, weir_dfs_state *state);

/* Any labelled tree, with equal probability. */
void weir_dfs_tree(weir_dfs_graph *out, int32_t n, weir_eval_random *r);
/* A connected small world (Watts and Strogatz): 2n edges for n > 4. */
void weir_dfs_sparse(weir_dfs_graph *out, int32_t n, weir_eval_random *r);

enum { WEIR_DFS_FREE, WEIR_DFS_TRACED, WEIR_DFS_PROBE };
weir_status weir_dfs_build(
    weir_eval_item *out, const weir_eval_task *task, const weir_eval_setting *setting,
    int32_t sample, int32_t n_units, weir_eval_random *r, weir_error *error
);
void weir_dfs_units(
    weir_eval_units *out, const weir_eval_task *task, const weir_eval_setting *setting
);

#ifdef __cplusplus
}
#endif
