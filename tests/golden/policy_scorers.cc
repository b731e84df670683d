/* tests/golden/policy_scorers.cc - policies that score a whole prompt at once, and how budgets are
 * split over layers and heads. */
#include <algorithm>
#include <cmath>

#include "engine/kv/policy/rotate.h"
#include "tests/golden/policy_golden.h"

namespace golden {

/* ---- scorers over a whole prompt ------------------------------------------------------------- */

/* The policy and its options for a case; "" when it is none of these. */
static std::string scorer_of(const Policies &p, const std::string &name, std::string *options)
{
    const auto whole = [&](const char *key, int64_t least) {
        return static_cast<long long>(p.number(name, key, least, MOST));
    };
    if (begins(name, "snapkv_w")) {
        *options = format("window=%lld,kernel=%lld", whole("window", 1), whole("kernel", 1));
        return "snapkv";
    }
    if (begins(name, "expected")) {
        *options = format(
            "sinks=%lld,future=%lld,covariance=%s,epsilon=%.17g", whole("sinks", 0),
            whole("future", 1),
            json_is_true(json_object_get(p.fields(name), "covariance")) ? "true" : "false",
            p.real(name, "epsilon", 0, 1e6)
        );
        return "expected";
    }
    if (name == "lagkv")
        *options = format("sinks=%lld,lag=%lld", whole("sinks", 0), whole("lag", 2));
    if (name == "streaming_kvpress") {
        *options = format("sinks=%lld,every=1", whole("sinks", 0));
        return "sinks";
    }
    const char *const plain[] = { "observed", "tova", "keydiff", "knorm", "lagkv" };
    for (const char *one : plain)
        if (name == one) return name;
    return "";
}

static void check_rerotated(Policies *p, Check *check, const Sequence &seq)
{
    const int64_t n = static_cast<int64_t>(seq.held(0, 0).size()), dim = p->data.key_dim;
    const auto frequencies = p->data.frequencies();
    const weir_policy_shape shape = policy_test::shape_of(p->data, frequencies, 0);
    Floats all;
    for (int64_t layer = 0; layer < p->data.layers; layer++)
        for (int64_t g = 0; g < p->data.kv_heads; g++) {
            Floats rows;
            std::vector<int64_t> distances;
            for (const int32_t j : seq.held(layer, g)) {
                distances.push_back(static_cast<int64_t>(distances.size()) - j);
                rows.insert(rows.end(), p->data.key(layer, g, j), p->data.key(layer, g, j) + dim);
            }
            weir_rows_rotate(rows.data(), n, distances.data(), &shape);
            all.insert(all.end(), rows.begin(), rows.end());
        }
    p->compare(check, "knorm.rerotated", { p->data.layers, p->data.kv_heads, n, dim }, all);
}

bool run_scorer(Policies *p, const std::string &name, const Names &tensors)
{
    std::string options;
    if (scorer_of(*p, name, &options).empty()) return false;
    p->run(name, tensors, [&](Check *check) {
        const std::string policy = scorer_of(*p, name, &options);
        const int64_t budget = p->kept_of_ratio(name);
        check->equal(
            "n_kept", { static_cast<int32_t>(budget) },
            { static_cast<int32_t>(p->number(name, "n_kept", 0, MOST)) }
        );
        Sequence seq(p->data, policy, options);
        seq.forward(p->n());
        p->check_scores(check, name, &seq, budget);
        seq.plan({ budget });
        p->check_held(check, name, seq);
        if (p->is_listed(name + ".rerotated")) check_rerotated(p, check, seq);
    });
    return true;
}

/* ---- budgets --------------------------------------------------------------------------------- */

void run_pyramid_budgets(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        const json_t *const rows = json_object_get(p->fields(name), "rows");
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *const row = json_array_get(rows, i);
            const double layers = number_at(row, "layers", 0), n = number_at(row, "n", 0),
                         ratio = number_at(row, "ratio", 0);
            if (!(layers >= 1 && layers <= MOST)) throw Broken("a row has no layers");
            std::vector<int64_t> got(static_cast<size_t>(layers));
            weir_budget_pyramid(
                got.data(), static_cast<int64_t>(layers), static_cast<int64_t>(n), n * (1 - ratio),
                static_cast<int64_t>(number_at(row, "window", 0)), number_at(row, "beta", 0)
            );
            check->equal(
                format("row %zu", i), Ints(got.begin(), got.end()),
                integers_of(json_object_get(row, "kept"))
            );
        }
    });
}

void run_n_kept(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        const json_t *const rows = json_object_get(p->fields(name), "rows");
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *const row = json_array_get(rows, i);
            const int64_t n = json_integer_value(json_array_get(row, 0)),
                          want = json_integer_value(json_array_get(row, 2));
            const int64_t got = kept_rows(n, json_number_value(json_array_get(row, 1)));
            check->equal(
                format("row %zu", i), { static_cast<int32_t>(got) }, { static_cast<int32_t>(want) }
            );
        }
    });
}

void run_adakv(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        Sequence seq(p->data, "snapkv", window_options(*p, name) + ",split=adaptive");
        seq.forward(p->n());
        seq.plan({ p->kept_of_ratio(name) }, true, p->real(name, "alpha", 0, 1));
        p->check_held(check, name, seq);
        const json_t *const counts = json_object_get(p->fields(name), "kept_per_head");
        for (int64_t layer = 0; layer < p->data.layers; layer++) {
            Ints got;
            for (int64_t g = 0; g < p->data.kv_heads; g++)
                got.push_back(static_cast<int32_t>(seq.held(layer, g).size()));
            check->equal("kept_per_head", got, integers_of(json_array_get(counts, at(layer))));
        }
    });
}

void run_pyramidkv(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        std::vector<int64_t> layers(at(p->data.layers)), rows;
        weir_budget_pyramid(
            layers.data(), p->data.layers, p->n(),
            static_cast<double>(p->n()) * (1 - p->real(name, "ratio", 0, 1)),
            p->number(name, "window", 1, MOST), p->real(name, "beta", 1, 1e6)
        );
        for (const int64_t one : layers) rows.insert(rows.end(), at(p->data.kv_heads), one);
        Sequence seq(p->data, "snapkv", window_options(*p, name) + ",split=pyramid");
        seq.forward(p->n());
        seq.plan(rows);
        p->check_held(check, name, seq);
    });
}

} // namespace golden
