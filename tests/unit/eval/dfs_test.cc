/* Depth-first search: the walk of the published example, graphs of the right kinds, and answers
 * that follow from the printed graph. */
#include "tools/eval/dfs.h"

#include <sstream>

#include "tests/unit/eval/samples.h"
#include "tools/eval/score.h"

namespace {

using samples::count;
using samples::generate;
using samples::Sample;

std::vector<int32_t> stack_of(const weir_dfs_state &state)
{
    return { state.stack, state.stack + state.n_stack };
}

int n_edges(const weir_dfs_graph &graph)
{
    int n = 0;
    for (int32_t i = 0; i < graph.n; i++) n += __builtin_popcount(graph.neighbours[i]);
    return n / 2;
}

TEST(Dfs, WalksTheExample)
{
    weir_dfs_graph graph = {};
    graph.n = 6;
    for (const auto &[a, b] : { std::pair(0, 2), { 0, 3 }, { 2, 4 }, { 2, 1 }, { 3, 5 } })
        weir_dfs_join(&graph, a, b);
    const std::vector<std::pair<int32_t, std::vector<int32_t>>> want = {
        { 2, { 0, 2 } }, { 1, { 0, 2, 1 } }, { 2, { 0, 2 } }, { 4, { 0, 2, 4 } },
        { 2, { 0, 2 } }, { 0, { 0 } },       { 3, { 0, 3 } }, { 5, { 0, 3, 5 } },
        { 3, { 0, 3 } }, { 0, { 0 } },       { -1, {} },
    };
    weir_dfs_state state = weir_dfs_begin(0);
    for (const auto &[current, stack] : want) {
        ASSERT_TRUE(weir_dfs_step(&graph, &state));
        EXPECT_EQ(state.current, current);
        EXPECT_EQ(stack_of(state), stack);
    }
    EXPECT_EQ(state.visited, 0x3fu);
    EXPECT_FALSE(weir_dfs_step(&graph, &state));
}

TEST(Dfs, GraphsAreConnectedAndOfTheirKind)
{
    weir_eval_random r = {};
    r.seed = 5;
    for (int32_t n = 1; n <= 32; n++)
        for (int i = 0; i < 30; i++) {
            weir_dfs_graph tree, sparse;
            weir_dfs_tree(&tree, n, &r);
            EXPECT_EQ(n_edges(tree), n - 1);
            EXPECT_TRUE(weir_dfs_is_connected(&tree));
            int steps = 0;
            weir_dfs_state state = weir_dfs_begin(0);
            while (weir_dfs_step(&tree, &state)) steps++;
            EXPECT_EQ(steps, 2 * n - 1);
            if (n < 5) continue;
            weir_dfs_sparse(&sparse, n, &r);
            EXPECT_EQ(n_edges(sparse), 2 * n);
            EXPECT_TRUE(weir_dfs_is_connected(&sparse));
            for (int32_t j = 0; j < n; j++) EXPECT_EQ(sparse.neighbours[j] >> j & 1, 0u);
        }
}

/* All 16 labelled trees of 4 nodes come, none of them rarely. */
TEST(Dfs, TreesAreAsLikelyAsEachOther)
{
    weir_eval_random r = {};
    std::vector<std::pair<uint64_t, int>> seen;
    for (int i = 0; i < 3200; i++) {
        weir_dfs_graph tree;
        weir_dfs_tree(&tree, 4, &r);
        uint64_t key = 0;
        for (int32_t j = 0; j < 4; j++) key = key << 4 | tree.neighbours[j];
        size_t at = 0;
        while (at < seen.size() && seen[at].first != key) at++;
        if (at == seen.size()) seen.emplace_back(key, 0);
        seen[at].second++;
    }
    EXPECT_EQ(seen.size(), 16u);
    for (const auto &[key, n] : seen) EXPECT_NEAR(n, 200, 60);
}

/* Reads the graph of a sample from its text, and walks it. */
weir_dfs_state walked(const Sample &sample, int steps)
{
    weir_dfs_graph graph = {};
    const size_t nodes = sample.context.find("Nodes: ") + 7,
                 edges = sample.context.find("Edges: ") + 7;
    std::istringstream in(sample.context.substr(edges, sample.context.find('\n', edges) - edges));
    graph.n = static_cast<int32_t>(count(sample.context.substr(nodes, edges - nodes), ", ")) + 1;
    for (std::string edge; std::getline(in, edge, ',');)
        weir_dfs_join(&graph, std::stoi(edge), std::stoi(edge.substr(edge.find('-') + 1)));
    weir_dfs_state state = weir_dfs_begin(0);
    for (int i = 0; i < steps; i++) EXPECT_TRUE(weir_dfs_step(&graph, &state)) << sample.context;
    return state;
}

int steps_of(const Sample &sample)
{
    return std::stoi(sample.question.substr(sample.question.find("after ") + 6));
}

TEST(Dfs, AnswersFollowFromTheGraph)
{
    int n_empty = 0;
    for (const char *task : { "dfs", "dfs_traced" }) {
        const auto got = generate(task, 4096, 60).samples;
        ASSERT_EQ(got.size(), 60u);
        for (size_t i = 0; i < got.size(); i++) {
            const int steps = steps_of(got[i]);
            const bool is_small = strcmp(task, "dfs") != 0;
            /* Each as often */
            EXPECT_EQ(
                steps, is_small ? 2 + static_cast<int>(i) % 13 : 1 + static_cast<int>(i) % 30
            );
            const weir_dfs_state want = walked(got[i], steps);
            weir_state state;
            ASSERT_TRUE(weir_state_read(&state, got[i].answers[0].c_str())) << got[i].answers[0];
            EXPECT_EQ(state.current, want.current);
            EXPECT_EQ(
                (std::vector<int32_t>(state.stack, state.stack + state.n_stack)), stack_of(want)
            );
            EXPECT_EQ(state.visited, want.visited);
            n_empty += want.n_stack == 0;
            if (!is_small) continue;
            EXPECT_EQ(count(got[i].prefix, "Step "), static_cast<size_t>(steps) + 1);
            EXPECT_EQ(got[i].prefix.substr(got[i].prefix.size() - 8), "\nAnswer:");
        }
    }
    EXPECT_GT(n_empty, 0); /* the search that is over is asked about, too */
}

TEST(Dfs, ProbesAskForTheNextLineOfTheTrace)
{
    for (const Sample &sample : generate("dfs_probe", 2048, 26).samples) {
        const std::string last = sample.prefix.substr(sample.prefix.rfind("Step "));
        const int step = std::stoi(last.substr(5));
        std::ostringstream line;
        EXPECT_EQ(last, "Step " + std::to_string(step) + ":");
        EXPECT_EQ(count(sample.prefix, "\n"), static_cast<size_t>(step));
        const weir_dfs_state want = walked(sample, step);
        want.current < 0 ? line << "at null, stack ["
                         : line << "at " << want.current << ", stack [";
        for (int32_t i = 0; i < want.n_stack; i++) line << (i > 0 ? ", " : "") << want.stack[i];
        EXPECT_EQ(sample.answers[0].rfind(line.str() + "], visited [", 0), 0u)
            << sample.answers[0] << " is not " << line.str();
        EXPECT_EQ(
            weir_score_line(
                (" " + sample.answers[0] + "\nStep 99").c_str(), sample.answers[0].c_str()
            ),
            1.0
        );
    }
}

} // namespace
