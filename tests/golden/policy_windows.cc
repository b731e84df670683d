/* tests/golden/policy_windows.cc - policies that drop rows as the text grows: block by block, sinks
 * and window, H2O, and those that score by the queries of a window. */
#include <strings.h>

#include <algorithm>
#include <cmath>

#include "engine/kv/policy/rotate.h"
#include "tests/golden/policy_golden.h"

namespace golden {

/* The slot of a position in a ring of `sinks` fixed rows and a window after them. */
static int64_t ring_slot(int64_t position, int64_t sinks, int64_t window)
{
    return position < sinks + window ? position : sinks + (position - sinks) % window;
}

/* Sinks moved towards the window: then all distances are those inside the cache. */
static Floats attend_in_cache(
    const Policies &p, const Sequence &seq, int64_t layer, int64_t head, int64_t sinks
)
{
    const Ints &held = seq.held(layer, head / (p.data.heads / p.data.kv_heads));
    const auto frequencies = p.data.frequencies();
    const weir_policy_shape shape = policy_test::shape_of(p.data, frequencies, 0);
    const int64_t n = static_cast<int64_t>(held.size()), dim = p.data.key_dim,
                  kv_head = head / (p.data.heads / p.data.kv_heads);
    policy_test::Data rotated = p.data;
    std::vector<int64_t> distances(at(n), 0);
    Floats rows;
    for (int64_t i = 0; i < n; i++) {
        if (i < sinks) distances[at(i)] = p.n() - n;
        rows.insert(
            rows.end(), p.data.key(layer, kv_head, held[at(i)]),
            p.data.key(layer, kv_head, held[at(i)]) + dim
        );
    }
    weir_rows_rotate(rows.data(), n, distances.data(), &shape);
    for (int64_t i = 0; i < n; i++)
        std::copy_n(
            rows.begin() + i * dim, dim,
            rotated.k.begin() + ((layer * p.data.kv_heads + kv_head) * p.n() + held[at(i)]) * dim
        );
    double mass;
    return attend(rotated, layer, head, held, &mass);
}

void run_streaming(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        const int64_t sinks = p->number("streaming", "sinks", 0, MOST),
                      window = p->number("streaming", "window", 1, MOST);
        Sequence seq(p->data, "sinks", format("sinks=%lld,every=1", static_cast<long long>(sinks)));
        Ints sets, slots;
        for (int64_t t = 0; t < p->n(); t++) {
            seq.step(1, sinks + window, WEIR_POLICY_DECODE);
            Ints row = seq.held(0, 0);
            row.resize(at(sinks + window), -1);
            sets.insert(sets.end(), row.begin(), row.end());
            slots.push_back(static_cast<int32_t>(ring_slot(t, sinks, window)));
        }
        if (name == "streaming.absolute") return p->check_held(check, name, seq);
        p->compare(check, "streaming.sets", { p->n(), sinks + window }, sets);
        p->compare(check, "streaming.slot", { p->n() }, slots);
        Floats out;
        for (int64_t layer = 0; layer < p->data.layers; layer++)
            for (int64_t h = 0; h < p->data.heads; h++) {
                const Floats one = attend_in_cache(*p, seq, layer, h, sinks);
                out.insert(out.end(), one.begin(), one.end());
            }
        p->compare(
            check, "streaming.incache.out", { p->data.layers, p->data.heads, p->data.value_dim },
            out
        );
    });
}

/* ---- H2O ------------------------------------------------------------------------------------- */

/* Checks the rows held after each number of tokens that the case lists, if any. */
static void check_log(Policies *p, Check *check, const std::string &name, const Sequence &seq)
{
    for (int64_t layer = 0; layer < p->data.layers; layer++) {
        const json_t *const log = json_object_get(
            json_object_get(p->fields(name), "held"),
            format("layer%lld", static_cast<long long>(layer)).c_str()
        );
        for (size_t i = 0; i < json_array_size(log); i++) {
            const json_t *const entry = json_array_get(log, i), *const sets =
                                                                    json_array_get(entry, 1);
            if (json_integer_value(json_array_get(entry, 0)) != seq.position()) continue;
            for (size_t g = 0; g < json_array_size(sets); g++)
                check->equal(
                    format("held after %lld tokens", static_cast<long long>(seq.position())),
                    seq.held(layer, static_cast<int64_t>(g)), integers_of(json_array_get(sets, g))
                );
        }
    }
}

static void check_sums(Policies *p, Check *check, const std::string &name, Sequence *seq)
{
    const int64_t n_sets = policy_n_sets(seq->policy());
    for (int64_t layer = 0; layer < p->data.layers; layer++) {
        Floats sums;
        for (int64_t set = 0; set < n_sets; set++) {
            const float *const values = policy_values(seq->policy(), seq->state(), layer, set, 0);
            sums.insert(
                sums.end(), values,
                values + policy_n_values(seq->policy(), seq->state(), layer, set)
            );
        }
        p->compare(
            check, format("%s.final.l%lld", name.c_str(), static_cast<long long>(layer)),
            { n_sets, static_cast<int64_t>(seq->held(layer, 0).size()) }, sums
        );
    }
}

void run_h2o(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        const int64_t first = p->number(name, "prefill", 1, p->n()),
                      sinks = p->number(name, "sinks", 0, MOST);
        const int64_t middle = p->number(name, "budget", 1, MOST),
                      recent = p->number(name, "recent", 0, MOST);
        const std::string scope = string_at(p->fields(name), "scope");
        Sequence seq(
            p->data, "h2o",
            format(
                "sinks=%lld,recent=%lld,every=%lld,scope=%s", static_cast<long long>(sinks),
                static_cast<long long>(recent),
                static_cast<long long>(p->number(name, "evict_every", 1, MOST)), scope.c_str()
            )
        );
        Ints during, after;
        while (seq.position() < p->n()) {
            const int64_t n = seq.position() == 0 ? first : 1, budget = sinks + middle + recent;
            seq.forward(n);
            during.push_back(static_cast<int32_t>(seq.held(0, 0).size()));
            if (seq.is_due({ budget }, n > 1 ? WEIR_POLICY_PROMPT_END : WEIR_POLICY_DECODE))
                seq.plan({ budget });
            after.push_back(static_cast<int32_t>(seq.held(0, 0).size()));
            check_log(p, check, name, seq);
        }
        check->equal(
            "length_during", during, integers_of(json_object_get(p->fields(name), "length_during"))
        );
        check->equal(
            "length_after", after, integers_of(json_object_get(p->fields(name), "length_after"))
        );
        check_sums(p, check, name, &seq);
        p->check_held(check, name, seq);
    });
}

/* ---- the window's methods -------------------------------------------------------------------- */

/* Every query head with keys of its own, as the first code of SnapKV repeats them. */
static policy_test::Data repeated(const policy_test::Data &data)
{
    policy_test::Data out = data;
    const int64_t group = data.heads / data.kv_heads;
    out.kv_heads = data.heads;
    out.k.clear();
    out.v.clear();
    for (int64_t layer = 0; layer < data.layers; layer++)
        for (int64_t h = 0; h < data.heads; h++) {
            out.k.insert(
                out.k.end(), data.key(layer, h / group, 0),
                data.key(layer, h / group, 0) + data.tokens * data.key_dim
            );
            out.v.insert(
                out.v.end(), data.value(layer, h / group, 0),
                data.value(layer, h / group, 0) + data.tokens * data.value_dim
            );
        }
    return out;
}

void run_snapkv_original(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        const policy_test::Data heads = repeated(p->data);
        const int64_t capacity = p->number(name, "capacity", 1, MOST);
        Sequence seq(heads, "snapkv_original", window_options(*p, name));
        Ints kept;
        seq.forward(p->n());
        p->check_scores(check, name, &seq, capacity);
        seq.plan({ capacity });
        for (int64_t layer = 0; layer < heads.layers; layer++)
            for (int64_t h = 0; h < heads.heads; h++)
                kept.insert(kept.end(), seq.held(layer, h).begin(), seq.held(layer, h).end());
        p->compare(check, name + ".kept", { heads.layers, heads.heads, capacity }, kept);
    });
}

void run_decode_method(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        const int64_t budget = p->number(name, "budget", 1, MOST),
                      window = p->number(name, "window", 1, MOST);
        std::string options = window_options(*p, name);
        if (name == "rkv")
            options += format(
                ",lambda=%.17g,threshold=%.17g", p->real(name, "lam", 0, 1),
                p->real(name, "tau", -1, 1)
            );
        Sequence seq(p->data, name, options);
        seq.forward(p->n());
        p->check_scores(check, name, &seq, budget);
        Floats red;
        for (int64_t layer = 0; layer < p->data.layers && name == "rkv"; layer++)
            for (int64_t g = 0; g < p->data.kv_heads; g++)
                seq.within(layer, g, budget, [&](policy_call *call, const policy_head *where) {
                    Floats importance(at(where->n)), one(at(where->n));
                    const weir_status status =
                        policy_rkv_parts(call, where, importance.data(), one.data());
                    red.insert(red.end(), one.begin(), one.end() - window);
                    return status;
                });
        if (name == "rkv")
            p->compare(
                check, "rkv.redundancy", { p->data.layers, p->data.kv_heads, p->n() - window }, red
            );
        seq.plan({ budget });
        p->check_held(check, name, seq);
    });
}

void run_keydiff_blocks(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        Sequence seq(
            p->data, "keydiff",
            format("block=%lld", static_cast<long long>(p->number(name, "block", 1, MOST)))
        );
        seq.forward(p->n());
        seq.plan({ p->kept_of_ratio(name) });
        p->check_held(check, name, seq);
    });
}

} // namespace golden
