// Cases of the ops of mixtures of experts.
#include "tests/kernel/cases_internal.h"

namespace weir_test {
namespace {

struct Route {
    int64_t n_rows, n_experts, n_chosen;
    weir_expert_scores scores = WEIR_EXPERTS_SOFTMAX;
    weir_expert_shared shared = WEIR_EXPERTS_NONE;
    bool normalise = true, bias = false;
    float scale = 1;
    int64_t n_groups = 0, n_groups_used = 0;
    Fill fill = Fill::Normal; // Zero: all keys are equal
};

Case route(Route s)
{
    return { label(
                 "expert_route", { s.n_rows, s.n_experts, s.n_chosen, s.scores, s.shared,
                                   s.normalise, s.bias, s.n_groups, s.n_groups_used }
             ) + suffix(s.fill),
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_expert_route_args>();
                 const size_t n = (size_t)s.n_rows, k = (size_t)s.n_chosen,
                              n_weights = k + (s.shared != WEIR_EXPERTS_NONE);
                 auto *chosen = b.array<int32_t>(n * k);
                 b.compare(chosen, n * k * sizeof *chosen, WEIR_U8);
                 *args = { b.input(n * (size_t)s.n_experts, s.fill, 2),
                           s.bias ? b.input((size_t)s.n_experts, Fill::Normal, 0.2f) : nullptr,
                           s.shared == WEIR_EXPERTS_GATED ? b.input(n, Fill::Normal, 2) : nullptr,
                           chosen,
                           b.output(n * n_weights),
                           s.n_rows,
                           s.n_experts,
                           s.n_chosen,
                           s.n_groups,
                           s.n_groups_used,
                           s.scores,
                           s.shared,
                           s.normalise,
                           s.scale };
                 return args;
             },
             { (double)(s.n_rows * s.n_experts) * 4,
               (double)(s.n_rows * s.n_experts * s.n_chosen) } };
}

Case sum(int64_t n_rows, int64_t n_terms, int64_t dim)
{
    return { label("expert_sum", { n_rows, n_terms, dim }),
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_expert_sum_args>();
                 const int64_t n_src = n_rows * n_terms + 3;
                 auto *rows = b.array<int32_t>((size_t)(n_rows * n_terms));
                 for (int64_t i = 0; i < n_rows * n_terms; i++)
                     rows[i] = (int32_t)b.below((uint32_t)n_src);
                 *args = { b.output((size_t)(n_rows * dim)),
                           b.input((size_t)(n_src * dim)),
                           b.input((size_t)(n_rows * n_terms), Fill::Normal, 0.3f),
                           rows,
                           n_rows,
                           n_terms,
                           dim };
                 return args;
             },
             { (double)(n_rows * (n_terms + 1) * dim) * 4, (double)(n_rows * n_terms * dim) * 2 } };
}

}  // namespace

std::vector<Case> experts_cases(weir_op op)
{
    const auto softmax = WEIR_EXPERTS_SOFTMAX, sigmoid = WEIR_EXPERTS_SIGMOID;
    if (op == WEIR_OP_EXPERT_SUM)
        return { sum(0, 2, 64), sum(1, 1, 1), sum(5, 8, 2048), sum(3, 9, 1025), sum(17, 3, 77) };
    return { route({ 0, 8, 2 }),
             route({ 1, 1, 1 }),
             route({ 7, 8, 3 }),
             route({ 5, 256, 8, softmax, WEIR_EXPERTS_GATED }),
             route({ 5, 60, 4, softmax, WEIR_EXPERTS_PLAIN, false, false, 1.5f }),
             route({ 5, 129, 64, softmax, WEIR_EXPERTS_NONE, false }),
             route({ 5, 32, 4, sigmoid, WEIR_EXPERTS_NONE, true, true, 2.5f }),
             route({ 4, 160, 8, sigmoid, WEIR_EXPERTS_PLAIN, false, true }),
             route({ 4, 16, 2, sigmoid, WEIR_EXPERTS_GATED, true, false }),
             route({ 3, 12, 5, softmax, WEIR_EXPERTS_NONE, true, false, 1, 0, 0, Fill::Zero }),
             route({ 6, 16, 4, sigmoid, WEIR_EXPERTS_NONE, true, true, 2.5f, 4, 2 }),
             route({ 6, 18, 5, softmax, WEIR_EXPERTS_PLAIN, false, false, 16, 6, 3 }),
             route({ 2, 12, 4, sigmoid, WEIR_EXPERTS_NONE, true, false, 1, 12, 4 }),
             route({ 7, 64, 6, softmax, WEIR_EXPERTS_PLAIN, true, true }),
             route({ 5, 18, 5, softmax, WEIR_EXPERTS_NONE, false, true, 2, 6, 3 }),
             route({ 2, 12, 6, softmax, WEIR_EXPERTS_NONE, true, false, 1, 4, 3, Fill::Zero }),
             route({ 3, 12, 12, sigmoid, WEIR_EXPERTS_NONE, true, false, 1, 0, 0, Fill::Zero }) };
}

std::vector<Case> experts_benches(weir_op op)
{
    std::vector<Case> cases;
    for (const int64_t rows : { 1, 512 })
        cases.push_back(op == WEIR_OP_EXPERT_SUM ? sum(rows, 9, 2048) : route({ rows, 256, 8 }));
    return cases;
}

}  // namespace weir_test
