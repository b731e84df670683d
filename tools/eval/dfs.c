#include "tools/eval/dfs.h"

#include <string.h>

/* ---- graphs ---------------------------------------------------------------------------------- */

void weir_dfs_join(weir_dfs_graph *graph, int32_t a, int32_t b)
{
    graph->neighbours[a] |= 1u << b;
    graph->neighbours[b] |= 1u << a;
}

static void part(weir_dfs_graph *graph, int32_t a, int32_t b)
{
    graph->neighbours[a] &= ~(1u << b);
    graph->neighbours[b] &= ~(1u << a);
}

static bool is_joined(const weir_dfs_graph *graph, int32_t a, int32_t b)
{
    return (graph->neighbours[a] >> b & 1) != 0;
}

bool weir_dfs_is_connected(const weir_dfs_graph *graph)
{
    uint32_t seen = 1, before = 0;
    while (seen != before) {
        before = seen;
        for (int32_t i = 0; i < graph->n; i++)
            if ((before >> i & 1) != 0) seen |= graph->neighbours[i];
    }
    return __builtin_popcount(seen) == graph->n;
}

/* Decoded from a random Pruefer sequence. */
void weir_dfs_tree(weir_dfs_graph *out, int32_t n, weir_eval_random *r)
{
    int32_t sequence[WEIR_DFS_NODES], degree[WEIR_DFS_NODES];
    *out = (weir_dfs_graph){ .n = n };
    for (int32_t i = 0; i < n; i++) degree[i] = 1;
    for (int32_t i = 0; i < n - 2; i++)
        degree[sequence[i] = (int32_t)weir_eval_random_below(r, (uint32_t)n)]++;
    for (int32_t i = 0; i < n - 2; i++) {
        int32_t leaf = 0;
        while (degree[leaf] != 1) leaf++;
        weir_dfs_join(out, leaf, sequence[i]);
        degree[leaf] = 0;
        degree[sequence[i]]--;
    }
    int32_t last[2] = { 0 }, count = 0;
    for (int32_t i = 0; i < n; i++)
        if (degree[i] == 1) last[count++] = i;
    if (count == 2) weir_dfs_join(out, last[0], last[1]);
}

/* A ring with 4 neighbours each; one edge in ten gets another end. */
static void draw_small_world(weir_dfs_graph *out, int32_t n, weir_eval_random *r)
{
    enum { REACH = 2, ONE_IN = 10 };
    *out = (weir_dfs_graph){ .n = n };
    for (int32_t j = 1; j <= REACH; j++)
        for (int32_t i = 0; i < n; i++)
            if (i != (i + j) % n) weir_dfs_join(out, i, (i + j) % n);
    for (int32_t j = 1; j <= REACH; j++)
        for (int32_t i = 0; i < n; i++) {
            const int32_t old = (i + j) % n;
            if (weir_eval_random_below(r, ONE_IN) != 0 ||
                __builtin_popcount(out->neighbours[i]) >= n - 1 || !is_joined(out, i, old))
                continue;
            int32_t other;
            do other = (int32_t)weir_eval_random_below(r, (uint32_t)n);
            while (other == i || is_joined(out, i, other));
            part(out, i, old);
            weir_dfs_join(out, i, other);
        }
}

void weir_dfs_sparse(weir_dfs_graph *out, int32_t n, weir_eval_random *r)
{
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        draw_small_world(out, n, r);
        if (weir_dfs_is_connected(out)) return;
    }
    /* 100 disconnected graphs in a row do not occur in practice. */
    weir_dfs_tree(out, n, r);
}

/* ---- the walk -------------------------------------------------------------------------------- */

weir_dfs_state weir_dfs_begin(int32_t start)
{
    return (weir_dfs_state
    ){ .current = start, .stack = { start }, .n_stack = 1, .visited = 1u << start };
}

bool weir_dfs_step(const weir_dfs_graph *graph, weir_dfs_state *state)
{
    if (state->n_stack == 0) return false;
    const uint32_t fresh = graph->neighbours[state->stack[state->n_stack - 1]] & ~state->visited;
    if (fresh != 0) {
        const int32_t next = __builtin_ctz(fresh);
        state->stack[state->n_stack++] = next;
        state->visited |= 1u << next;
    } else {
        state->n_stack--;
    }
    state->current = state->n_stack > 0 ? state->stack[state->n_stack - 1] : -1;
    return true;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static weir_status put_stack(weir_buffer *out, const weir_dfs_state *state)
{
    WEIR_TRY(weir_buffer_text(out, "["));
    for (int32_t i = 0; i < state->n_stack; i++)
        WEIR_TRY(weir_buffer_format(out, "%s%d", i > 0 ? ", " : "", (int)state->stack[i]));
    return weir_buffer_text(out, "]");
}

static weir_status put_visited(weir_buffer *out, const weir_dfs_state *state)
{
    WEIR_TRY(weir_buffer_text(out, "["));
    for (uint32_t left = state->visited; left != 0; left &= left - 1)
        WEIR_TRY(
            weir_buffer_format(out, "%s%d", left != state->visited ? ", " : "", __builtin_ctz(left))
        );
    return weir_buffer_text(out, "]");
}

static weir_status put_current(weir_buffer *out, const weir_dfs_state *state)
{
    return state->current < 0 ? weir_buffer_text(out, "null")
                              : weir_buffer_format(out, "%d", (int)state->current);
}

static weir_status put_json(weir_buffer *out, const weir_dfs_state *state)
{
    WEIR_TRY(weir_buffer_text(out, "{\"current_node\": "));
    WEIR_TRY(put_current(out, state));
    WEIR_TRY(weir_buffer_text(out, ", \"stack\": "));
    WEIR_TRY(put_stack(out, state));
    WEIR_TRY(weir_buffer_text(out, ", \"visited_nodes\": "));
    WEIR_TRY(put_visited(out, state));
    return weir_buffer_text(out, "}");
}

/* A line of the trace, after "Step k:". */
static weir_status put_line(weir_buffer *out, const weir_dfs_state *state)
{
    WEIR_TRY(weir_buffer_text(out, "at "));
    WEIR_TRY(put_current(out, state));
    WEIR_TRY(weir_buffer_text(out, ", stack "));
    WEIR_TRY(put_stack(out, state));
    WEIR_TRY(weir_buffer_text(out, ", visited "));
    return put_visited(out, state);
}

static weir_status put_graph(weir_buffer *out, const weir_dfs_graph *graph)
{
    int32_t n_edges = 0;
    WEIR_TRY(weir_buffer_text(out, "An undirected graph.\nNodes: "));
    for (int32_t i = 0; i < graph->n; i++)
        WEIR_TRY(weir_buffer_format(out, "%s%d", i > 0 ? ", " : "", (int)i));
    WEIR_TRY(weir_buffer_text(out, "\nEdges: "));
    for (int32_t i = 0; i < graph->n; i++)
        for (int32_t j = i + 1; j < graph->n; j++)
            if (is_joined(graph, i, j))
                WEIR_TRY(
                    weir_buffer_format(out, "%s%d-%d", n_edges++ > 0 ? ", " : "", (int)i, (int)j)
                );
    return weir_buffer_text(
        out, "\n\nA depth-first search starts at node 0; that is step 0. Every "
             "further step is one move: to the neighbour with the "
             "smallest number that was not visited yet, or, when there is "
             "none, one node back. The stack is the path from the start "
             "to the current node. When the search has gone back from the "
             "start, the current node is null and the stack is empty."
    );
}

static weir_status put_question(weir_buffer *out, int32_t step)
{
    return weir_buffer_format(
        out,
        "Where is the search after %d steps? Go step by step and write the "
        "state after each: \"Step k: at NODE, stack [..], "
        "visited [..]\" with the visited nodes in ascending order. Then "
        "write \"Answer:\" and a JSON object with the keys "
        "current_node, stack and visited_nodes.",
        (int)step
    );
}

/* Steps 0 .. last, one line each. */
static weir_status put_trace(weir_buffer *out, const weir_dfs_graph *graph, int32_t last)
{
    weir_dfs_state state = weir_dfs_begin(0);
    for (int32_t i = 0; i <= last; i++) {
        WEIR_TRY(weir_buffer_format(out, "Step %d: ", (int)i));
        WEIR_TRY(put_line(out, &state));
        WEIR_TRY(weir_buffer_text(out, "\n"));
        (void)weir_dfs_step(graph, &state);
    }
    return WEIR_OK;
}

/* The ranges of the task. */
typedef struct sizes {
    int32_t least_nodes, most_nodes, first_step, last_step;
    bool trees_only;
} sizes;

static const sizes *sizes_of(const weir_eval_task *task)
{
    static const sizes large = { 10, 30, 1, 30, false }, small = { 6, 12, 2, 14, true };
    return task->variant == WEIR_DFS_FREE ? &large : &small;
}

/* Draws every step of the range with equal probability. A graph of n nodes has 2n - 1 steps; enough
 * nodes are drawn, whatever was configured. */
static int32_t draw_graph(
    weir_dfs_graph *out, const sizes *s, int32_t sample, int32_t most_nodes, weir_eval_random *r
)
{
    const int32_t step = s->first_step + sample % (s->last_step - s->first_step + 1);
    const int32_t least = s->least_nodes > step / 2 + 1 ? s->least_nodes : step / 2 + 1;
    const int32_t n =
        least + (most_nodes > least
                     ? (int32_t)weir_eval_random_below(r, (uint32_t)(most_nodes - least + 1))
                     : 0);
    if (s->trees_only || weir_eval_random_below(r, 2) == 0)
        weir_dfs_tree(out, n, r);
    else
        weir_dfs_sparse(out, n, r);
    return step;
}

weir_status weir_dfs_build(
    weir_eval_item *out, const weir_eval_task *task, const weir_eval_setting *setting,
    int32_t sample, int32_t n_units, weir_eval_random *r, weir_error *error
)
{
    weir_dfs_graph graph;
    const int32_t step = draw_graph(&graph, sizes_of(task), sample, n_units, r);
    weir_dfs_state state = weir_dfs_begin(0);
    (void)error;
    for (int32_t i = 0; i < step; i++) (void)weir_dfs_step(&graph, &state);
    WEIR_TRY(put_graph(&out->context, &graph));
    WEIR_TRY(put_question(&out->question, step));
    const int32_t room = setting->length < WEIR_EVAL_SHORT
                             ? setting->length / 2
                             : setting->length / 4 * 3; /* to write the steps */
    if (task->variant == WEIR_DFS_FREE && out->max_tokens < room) out->max_tokens = room;
    if (task->variant == WEIR_DFS_TRACED) {
        WEIR_TRY(put_trace(&out->prefix, &graph, step));
        WEIR_TRY(weir_buffer_text(&out->prefix, "Answer:"));
    }
    if (task->variant == WEIR_DFS_PROBE) {
        WEIR_TRY(put_trace(&out->prefix, &graph, step - 1));
        WEIR_TRY(weir_buffer_format(&out->prefix, "Step %d:", (int)step));
    }
    WEIR_TRY((task->variant == WEIR_DFS_PROBE ? put_line : put_json)(&out->answers, &state));
    out->n_answers = 1;
    return weir_buffer_add(&out->answers, "", 1);
}

void weir_dfs_units(
    weir_eval_units *out, const weir_eval_task *task, const weir_eval_setting *setting
)
{
    const sizes *const s = sizes_of(task);
    (void)setting;
    *out = (weir_eval_units){ .least = s->least_nodes, .step = 1, .most = s->most_nodes };
}
