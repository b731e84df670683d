/* tests/golden/module_experts.cc - mixtures of experts: routers, and the sum over experts. */
#include <cmath>

#include "tests/golden/kernel_rows.h"
#include "tests/golden/module_golden.h"

namespace golden {
namespace {

using Floats = std::vector<float>;
using Integers = std::vector<int32_t>;

struct Choice {
    Integers experts; /* [n, k] */
    Floats weights; /* [n, k] without that of shared experts */
    Floats with_shared; /* [n, k + 1] */
};

/* Runs a row of the kernel table; false: it rejects. */
bool choose(Row *row, weir_expert_route_args args, Choice *out)
{
    const auto n = static_cast<size_t>(args.n_rows), k = static_cast<size_t>(args.n_chosen);
    const size_t n_weights = k + (args.shared != WEIR_EXPERTS_NONE);
    out->experts.assign(n * k, -1);
    out->with_shared.assign(n * n_weights, 0.0f);
    args.chosen = out->experts.data();
    args.weights = out->with_shared.data();
    if (!row->run(&args)) return false;
    out->weights.clear();
    for (size_t i = 0; i < n * n_weights; i++)
        if (i % n_weights < k) out->weights.push_back(out->with_shared[i]);
    return true;
}

void compare_integers(
    Modules *m, Check *check, const std::string &name, const Integers &got, const std::string &row
)
{
    m->values.mark(name);
    check->equal(name + " by " + row, got, m->values.tensors.need_integers(name));
}

void run_router_case(Modules *m, Check *check, const std::string &group, const std::string &number)
{
    const Tensors &t = m->values.tensors;
    const std::string name = group + ".logits." + number;
    const std::vector<int64_t> shape = t.need_shape(name, 2),
                               chosen = t.need_shape(group + ".experts." + number, 2);
    const Floats logits = t.need_floats(name),
                 bias = t.need_floats(group + ".bias." + number, { shape[1] });
    double n_groups = 1, n_used = 1, scale = 1;
    const std::string text = m->values.meaning(name);
    number_after(text, "n_group ", &n_groups);
    number_after(text, "topk_group ", &n_used);
    number_after(text, "scaling ", &scale);
    weir_expert_route_args args = {};
    args.logits = logits.data(), args.bias = bias.data();
    args.n_rows = shape[0], args.n_experts = shape[1], args.n_chosen = chosen[1];
    args.n_groups = static_cast<int64_t>(n_groups),
    args.n_groups_used = static_cast<int64_t>(n_used);
    args.scores = WEIR_EXPERTS_SIGMOID, args.normalise = true;
    args.scale = static_cast<float>(scale);
    if (chosen[0] != shape[0]) throw Broken(name + ": other rows than in .experts");
    each_row(WEIR_OP_EXPERT_ROUTE, [&](Row *row) {
        Choice got;
        if (!choose(row, args, &got)) return;
        compare_integers(m, check, group + ".experts." + number, got.experts, row->name());
        m->values.compare(check, group + ".weights." + number, got.weights, row->name());
    });
}

/* One block of experts with a gated shared one, as in Qwen3.5. */
struct Block {
    std::string prefix;
    int64_t n, width, n_experts, inner, k;
    Floats x, logits, shared_logits;

    Block(Modules *m, const std::string &group) : prefix(group + ".moe_")
    {
        const Tensors &t = m->values.tensors;
        const std::vector<int64_t> rows = t.need_shape(group + ".x", 2),
                                   down = t.need_shape(prefix + "experts.down_proj", 3);
        n = rows[0], width = rows[1], n_experts = down[0], inner = down[2];
        k = t.need_shape(prefix + "experts", 2)[1];
        x = t.need_floats(group + ".x");
        const Weight router(t.need_floats(prefix + "gate", { n_experts, width }), n_experts, width),
            gate(t.need_floats(prefix + "shared_expert_gate", { 1, width }), 1, width);
        logits = multiply(x, router);
        shared_logits = multiply(x, gate);
    }
    weir_expert_route_args route(int64_t n_chosen, bool with_shared) const
    {
        weir_expert_route_args args = {};
        args.logits = logits.data(), args.n_rows = n, args.n_experts = n_experts;
        args.n_chosen = n_chosen, args.normalise = n_chosen == k, args.scale = 1;
        args.shared = with_shared ? WEIR_EXPERTS_GATED : WEIR_EXPERTS_NONE;
        args.shared_logits = with_shared ? shared_logits.data() : nullptr;
        return args;
    }
};

Floats feed_forward(const Floats &x, const Weight &gate, const Weight &up, const Weight &down)
{
    const Floats a = multiply(x, gate), b = multiply(x, up);
    Floats inner(a.size());
    for (size_t i = 0; i < a.size(); i++) inner[i] = a[i] / (1 + std::exp(-a[i])) * b[i];
    return multiply(inner, down);
}

/* Outputs of all experts for all rows, [E, n, width], then those of the shared expert. */
Floats all_outputs(const Modules *m, const Block &b)
{
    const Tensors &t = m->values.tensors;
    const Floats both = t.need_floats(
                     b.prefix + "experts.gate_up_proj", { b.n_experts, 2 * b.inner, b.width }
                 ),
                 down = t.need_floats(
                     b.prefix + "experts.down_proj", { b.n_experts, b.width, b.inner }
                 );
    const auto part = [](const Floats &from, int64_t index, int64_t size) {
        return Floats(from.begin() + index * size, from.begin() + (index + 1) * size);
    };
    const int64_t size = b.inner * b.width;
    Floats y;
    const auto append = [&](const Floats &gate, const Floats &up, const Floats &out,
                            int64_t inner) {
        const Floats rows = feed_forward(
            b.x, Weight(gate, inner, b.width), Weight(up, inner, b.width),
            Weight(out, b.width, inner)
        );
        y.insert(y.end(), rows.begin(), rows.end());
    };
    for (int64_t e = 0; e < b.n_experts; e++)
        append(part(both, 2 * e, size), part(both, 2 * e + 1, size), part(down, e, size), b.inner);
    const int64_t wide = t.need_shape(b.prefix + "shared_expert.gate_proj", 2)[0];
    append(
        t.need_floats(b.prefix + "shared_expert.gate_proj", { wide, b.width }),
        t.need_floats(b.prefix + "shared_expert.up_proj", { wide, b.width }),
        t.need_floats(b.prefix + "shared_expert.down_proj", { b.width, wide }), wide
    );
    return y;
}

void run_choice(Modules *m, Check *check, const Block &b)
{
    each_row(WEIR_OP_EXPERT_ROUTE, [&](Row *row) {
        Choice got, all;
        if (!choose(row, b.route(b.k, false), &got)) return;
        compare_integers(m, check, b.prefix + "experts", got.experts, row->name());
        m->values.compare(check, b.prefix + "weights", got.weights, row->name());
        if (!choose(row, b.route(b.n_experts, false), &all)) return;
        Floats probabilities(all.weights.size());
        for (size_t i = 0; i < all.weights.size(); i++)
            probabilities
                [i / static_cast<size_t>(b.n_experts) * static_cast<size_t>(b.n_experts) +
                 static_cast<size_t>(all.experts[i])] = all.weights[i];
        m->values.compare(check, b.prefix + "probs", probabilities, row->name());
    });
}

void run_sum(Modules *m, Check *check, const Block &b)
{
    const Floats outputs = all_outputs(m, b);
    Choice choice; /* of the last row of the table, the reference */
    each_row(WEIR_OP_EXPERT_ROUTE, [&](Row *row) {
        Choice one;
        if (choose(row, b.route(b.k, true), &one)) choice = one;
    });
    Integers rows;
    for (int64_t t = 0; t < b.n; t++) {
        for (int64_t j = 0; j < b.k; j++)
            rows.push_back(
                static_cast<int32_t>(choice.experts[static_cast<size_t>(t * b.k + j)] * b.n + t)
            );
        rows.push_back(static_cast<int32_t>(b.n_experts * b.n + t));
    }
    each_row(WEIR_OP_EXPERT_SUM, [&](Row *row) {
        Floats y(static_cast<size_t>(b.n * b.width));
        const weir_expert_sum_args args = {
            y.data(), outputs.data(), choice.with_shared.data(), rows.data(), b.n, b.k + 1, b.width
        };
        if (row->run(&args)) m->values.compare(check, b.prefix + "y", y, row->name());
    });
}

} // namespace

void run_router(Modules *m, const std::string &group)
{
    const std::string prefix = group + ".logits.";
    for (const std::string &name : m->values.tensors.names(prefix)) {
        const std::string number = name.substr(prefix.size());
        m->run(group + "." + number, [&](Check *check) {
            run_router_case(m, check, group, number);
        });
    }
}

void run_experts(Modules *m, const std::string &group)
{
    m->run(group + ".moe", [&](Check *check) {
        const Block b(m, group);
        run_choice(m, check, b);
        run_sum(m, check, b);
    });
}

} // namespace golden
