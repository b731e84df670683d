/* tests/golden/policy_golden.cc - run_policy: each case is a text under the policy of engine/kv, as
 * the engine would run it; scores, rows that are held, and attention over them are compared. */
#include "tests/golden/policy_golden.h"

#include <strings.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/kv/policy/turn.h"

namespace golden {
namespace {

constexpr int64_t MOST = 1 << 16; /* of any size in a case */

size_t at(int64_t i) { return static_cast<size_t>(i); }

bool begins(const std::string &text, const char *prefix) { return text.rfind(prefix, 0) == 0; }

} // namespace

/* ---- the file -------------------------------------------------------------------------------- */

Policies::Policies(KvFile *f) : file(f)
{
    const Tensors &t = f->tensors;
    const Shape q = t.need_shape("q", 4), k = t.need_shape("k", 4), v = t.need_shape("v", 4);
    if (q[1] % k[1] != 0 || q[3] % 2 != 0)
        throw Broken("query heads are not a multiple of KV heads, or the width is odd");
    data.layers = q[0], data.heads = q[1], data.kv_heads = k[1], data.tokens = q[2],
    data.key_dim = q[3], data.value_dim = v[3];
    data.plain = t.need_floats("q_pre", q);
    data.q = t.need_floats("q");
    data.k = t.need_floats("k", { q[0], k[1], q[2], q[3] });
    data.v = t.need_floats("v", { q[0], k[1], q[2], v[3] });
    const std::string rope = string_at(fields("shape"), "rope");
    if (!begins(rope, "half-split") || !number_after(rope, "base ", &data.base) || !(data.base > 0))
        throw Broken("the case \"shape\" has no half-split RoPE with a base");
}

const json_t *Policies::fields(const std::string &name) const
{
    const json_t *const out = json_object_get(json_object_get(file->entry, "cases"), name.c_str());
    if (!json_is_object(out)) throw Broken("index.json has no case " + name);
    return out;
}

double Policies::real(const std::string &name, const char *key, double least, double most) const
{
    const double value = number_at(fields(name), key, NAN);
    if (!(value >= least && value <= most))
        throw Broken(format("%s: \"%s\" is absent or out of range", name.c_str(), key));
    return value;
}

int64_t Policies::number(const std::string &name, const char *key, int64_t least, int64_t most)
    const
{
    const double value = real(name, key, static_cast<double>(least), static_cast<double>(most));
    if (value != std::floor(value))
        throw Broken(format("%s: \"%s\" is no whole number", name.c_str(), key));
    return static_cast<int64_t>(value);
}

/* What stays of n rows when the part `ratio` of them goes. */
static int64_t kept_rows(int64_t n, double ratio)
{
    const auto kept = static_cast<int64_t>(static_cast<double>(n) * (1 - ratio));
    return kept > 1 ? kept : 1;
}

/* The slot of a position in a ring of `sinks` fixed rows and a window behind them. */
static int64_t ring_slot(int64_t position, int64_t sinks, int64_t window)
{
    return position < sinks + window ? position : sinks + (position - sinks) % window;
}

int64_t Policies::kept_of_ratio(const std::string &name) const
{
    return kept_rows(n(), real(name, "ratio", 0, 1));
}

void Policies::compare(
    Check *check, const std::string &tensor, const Shape &shape, const Floats &got
)
{
    compared_.insert(tensor);
    check->close(tensor, got, file->tensors.need_floats(tensor, shape), file->tolerance(tensor));
}

void Policies::compare(Check *check, const std::string &tensor, const Shape &shape, const Ints &got)
{
    compared_.insert(tensor);
    if (file->tensors.shape(tensor) != shape)
        throw Broken(tensor + " has another shape than its case");
    check->equal(tensor, got, file->tensors.need_integers(tensor));
}

void Policies::run(
    const std::string &name, const Names &tensors, const std::function<void(Check *)> &body
)
{
    file->counts->run(file->label(name), [&](Check *check) {
        body(check);
        for (const std::string &tensor : tensors)
            if (compared_.count(tensor) == 0) check->fail(tensor + " was compared with nothing");
    });
}

void Policies::skip(const std::string &name, const std::string &why)
{
    if (file->counts->wants(file->label(name))) file->counts->skip(file->label(name), why);
}

/* ---- what is compared ------------------------------------------------------------------------ */

Floats attend(
    const policy_test::Data &data, int64_t layer, int64_t head, const Ints &positions, double *mass
)
{
    const int64_t kv_head = head / (data.heads / data.kv_heads), t = data.tokens - 1;
    Ints all(at(data.tokens));
    for (size_t i = 0; i < all.size(); i++) all[i] = static_cast<int32_t>(i);
    const std::vector<double> p = policy_test::probabilities(data, layer, head, t, all);
    std::vector<double> sum(at(data.value_dim));
    *mass = 0;
    for (const int32_t j : positions) {
        *mass += p.at(at(j));
        for (int64_t i = 0; i < data.value_dim; i++)
            sum[at(i)] += p[at(j)] * static_cast<double>(data.value(layer, kv_head, j)[i]);
    }
    Floats out;
    for (const double x : sum) out.push_back(static_cast<float>(x / *mass));
    return out;
}

void Policies::check_held(Check *check, const std::string &name, const Text &text)
{
    Ints kept;
    Floats out, masses;
    for (int64_t layer = 0; layer < data.layers; layer++) {
        for (int64_t g = 0; g < data.kv_heads; g++) {
            const Ints &held = text.held(layer, g);
            const std::string own = format(
                "%s.kept.l%lld.h%lld", name.c_str(), static_cast<long long>(layer),
                static_cast<long long>(g)
            );
            if (is_listed(own)) compare(check, own, { static_cast<int64_t>(held.size()) }, held);
            kept.insert(kept.end(), held.begin(), held.end());
        }
        for (int64_t h = 0; h < data.heads; h++) {
            double mass;
            const Floats one =
                attend(data, layer, h, text.held(layer, h / (data.heads / data.kv_heads)), &mass);
            out.insert(out.end(), one.begin(), one.end());
            masses.push_back(static_cast<float>(mass));
        }
    }
    if (is_listed(name + ".kept"))
        compare(
            check, name + ".kept",
            { data.layers, data.kv_heads, static_cast<int64_t>(text.held(0, 0).size()) }, kept
        );
    compare(check, name + ".out", { data.layers, data.heads, data.value_dim }, out);
    compare(check, name + ".mass", { data.layers, data.heads }, masses);
}

void Policies::check_scores(Check *check, const std::string &name, Text *text, int64_t budget)
{
    const Shape shape = file->tensors.need_shape(name + ".score", 3);
    const int64_t n_heads = text->data.kv_heads;
    Floats all;
    for (int64_t layer = 0; layer < text->data.layers; layer++) {
        std::vector<Floats> heads;
        float greatest = -INFINITY;
        for (int64_t g = 0; g < n_heads; g++) {
            heads.push_back(text->scores(layer, g, budget));
            for (const float x : heads.back())
                greatest = std::isfinite(x) ? std::max(greatest, x) : greatest;
        }
        for (Floats &one : heads) {
            for (size_t j = at(shape[2]); j < one.size(); j++)
                if (one[j] != INFINITY)
                    check->fail(name + ".score leaves out a row that is not protected");
            one.resize(at(shape[2]));
            for (const float x : one) all.push_back(x == INFINITY ? greatest + 1 : x);
        }
    }
    compare(check, name + ".score", { text->data.layers, n_heads, shape[2] }, all);
}

namespace {

/* ---- scorers over a whole prompt ------------------------------------------------------------- */

/* The policy and its options for a case; "" when it is none of these. */
std::string scorer_of(const Policies &p, const std::string &name, std::string *options)
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

void check_rerotated(Policies *p, Check *check, const Text &text)
{
    const int64_t n = static_cast<int64_t>(text.held(0, 0).size()), dim = p->data.key_dim;
    const auto frequencies = p->data.frequencies();
    const weir_policy_shape shape = policy_test::shape_of(p->data, frequencies, 0);
    Floats all;
    for (int64_t layer = 0; layer < p->data.layers; layer++)
        for (int64_t g = 0; g < p->data.kv_heads; g++) {
            Floats rows;
            std::vector<int64_t> distances;
            for (const int32_t j : text.held(layer, g)) {
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
        Text text(p->data, policy, options);
        text.forward(p->n());
        p->check_scores(check, name, &text, budget);
        text.plan({ budget });
        p->check_held(check, name, text);
        if (p->is_listed(name + ".rerotated")) check_rerotated(p, check, text);
    });
    return true;
}

/* ---- budgets --------------------------------------------------------------------------------- */

Ints integers_of(const json_t *array)
{
    Ints out;
    for (size_t i = 0; i < json_array_size(array); i++)
        out.push_back(static_cast<int32_t>(json_integer_value(json_array_get(array, i))));
    return out;
}

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

std::string window_options(const Policies &p, const std::string &name)
{
    return format(
        "window=%lld,kernel=%lld", static_cast<long long>(p.number(name, "window", 1, MOST)),
        static_cast<long long>(p.number(name, "kernel", 1, 255))
    );
}

void run_adakv(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        Text text(p->data, "snapkv", window_options(*p, name) + ",split=adaptive");
        text.forward(p->n());
        text.plan({ p->kept_of_ratio(name) }, true, p->real(name, "alpha", 0, 1));
        p->check_held(check, name, text);
        const json_t *const counts = json_object_get(p->fields(name), "kept_per_head");
        for (int64_t layer = 0; layer < p->data.layers; layer++) {
            Ints got;
            for (int64_t g = 0; g < p->data.kv_heads; g++)
                got.push_back(static_cast<int32_t>(text.held(layer, g).size()));
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
        Text text(p->data, "snapkv", window_options(*p, name) + ",split=pyramid");
        text.forward(p->n());
        text.plan(rows);
        p->check_held(check, name, text);
    });
}

/* ---- block by block, sinks and window -------------------------------------------------------- */

void run_keydiff_blocks(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        Text text(
            p->data, "keydiff",
            format("block=%lld", static_cast<long long>(p->number(name, "block", 1, MOST)))
        );
        text.forward(p->n());
        text.plan({ p->kept_of_ratio(name) });
        p->check_held(check, name, text);
    });
}

/* Sinks moved towards the window: then all distances are those inside the cache. */
Floats attend_in_cache(
    const Policies &p, const Text &text, int64_t layer, int64_t head, int64_t sinks
)
{
    const Ints &held = text.held(layer, head / (p.data.heads / p.data.kv_heads));
    const auto frequencies = p.data.frequencies();
    const weir_policy_shape shape = policy_test::shape_of(p.data, frequencies, 0);
    const int64_t n = static_cast<int64_t>(held.size()), dim = p.data.key_dim,
                  kv_head = head / (p.data.heads / p.data.kv_heads);
    policy_test::Data turned = p.data;
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
            turned.k.begin() + ((layer * p.data.kv_heads + kv_head) * p.n() + held[at(i)]) * dim
        );
    double mass;
    return attend(turned, layer, head, held, &mass);
}

void run_streaming(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        const int64_t sinks = p->number("streaming", "sinks", 0, MOST),
                      window = p->number("streaming", "window", 1, MOST);
        Text text(p->data, "sinks", format("sinks=%lld,every=1", static_cast<long long>(sinks)));
        Ints sets, slots;
        for (int64_t t = 0; t < p->n(); t++) {
            text.step(1, sinks + window, WEIR_POLICY_DECODE);
            Ints row = text.held(0, 0);
            row.resize(at(sinks + window), -1);
            sets.insert(sets.end(), row.begin(), row.end());
            slots.push_back(static_cast<int32_t>(ring_slot(t, sinks, window)));
        }
        if (name == "streaming.absolute") return p->check_held(check, name, text);
        p->compare(check, "streaming.sets", { p->n(), sinks + window }, sets);
        p->compare(check, "streaming.slot", { p->n() }, slots);
        Floats out;
        for (int64_t layer = 0; layer < p->data.layers; layer++)
            for (int64_t h = 0; h < p->data.heads; h++) {
                const Floats one = attend_in_cache(*p, text, layer, h, sinks);
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
void check_log(Policies *p, Check *check, const std::string &name, const Text &text)
{
    for (int64_t layer = 0; layer < p->data.layers; layer++) {
        const json_t *const log = json_object_get(
            json_object_get(p->fields(name), "held"),
            format("layer%lld", static_cast<long long>(layer)).c_str()
        );
        for (size_t i = 0; i < json_array_size(log); i++) {
            const json_t *const entry = json_array_get(log, i), *const sets =
                                                                    json_array_get(entry, 1);
            if (json_integer_value(json_array_get(entry, 0)) != text.position()) continue;
            for (size_t g = 0; g < json_array_size(sets); g++)
                check->equal(
                    format("held after %lld tokens", static_cast<long long>(text.position())),
                    text.held(layer, static_cast<int64_t>(g)), integers_of(json_array_get(sets, g))
                );
        }
    }
}

void check_sums(Policies *p, Check *check, const std::string &name, Text *text)
{
    const int64_t n_sets = policy_n_sets(text->policy());
    for (int64_t layer = 0; layer < p->data.layers; layer++) {
        Floats sums;
        for (int64_t set = 0; set < n_sets; set++) {
            const float *const values = policy_values(text->policy(), text->state(), layer, set, 0);
            sums.insert(
                sums.end(), values,
                values + policy_n_values(text->policy(), text->state(), layer, set)
            );
        }
        p->compare(
            check, format("%s.final.l%lld", name.c_str(), static_cast<long long>(layer)),
            { n_sets, static_cast<int64_t>(text->held(layer, 0).size()) }, sums
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
        Text text(
            p->data, "h2o",
            format(
                "sinks=%lld,recent=%lld,every=%lld,scope=%s", static_cast<long long>(sinks),
                static_cast<long long>(recent),
                static_cast<long long>(p->number(name, "evict_every", 1, MOST)), scope.c_str()
            )
        );
        Ints during, after;
        while (text.position() < p->n()) {
            const int64_t n = text.position() == 0 ? first : 1, budget = sinks + middle + recent;
            text.forward(n);
            during.push_back(static_cast<int32_t>(text.held(0, 0).size()));
            if (text.is_due({ budget }, n > 1 ? WEIR_POLICY_PROMPT_END : WEIR_POLICY_DECODE))
                text.plan({ budget });
            after.push_back(static_cast<int32_t>(text.held(0, 0).size()));
            check_log(p, check, name, text);
        }
        check->equal(
            "length_during", during, integers_of(json_object_get(p->fields(name), "length_during"))
        );
        check->equal(
            "length_after", after, integers_of(json_object_get(p->fields(name), "length_after"))
        );
        check_sums(p, check, name, &text);
        p->check_held(check, name, text);
    });
}

/* ---- the window's methods -------------------------------------------------------------------- */

/* Every query head with keys of its own, as the first code of SnapKV repeats them. */
policy_test::Data repeated(const policy_test::Data &data)
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
        Text text(heads, "snapkv_original", window_options(*p, name));
        Ints kept;
        text.forward(p->n());
        p->check_scores(check, name, &text, capacity);
        text.plan({ capacity });
        for (int64_t layer = 0; layer < heads.layers; layer++)
            for (int64_t h = 0; h < heads.heads; h++)
                kept.insert(kept.end(), text.held(layer, h).begin(), text.held(layer, h).end());
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
        Text text(p->data, name, options);
        text.forward(p->n());
        p->check_scores(check, name, &text, budget);
        Floats red;
        for (int64_t layer = 0; layer < p->data.layers && name == "rkv"; layer++)
            for (int64_t g = 0; g < p->data.kv_heads; g++)
                text.within(layer, g, budget, [&](policy_call *call, const policy_head *where) {
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
        text.plan({ budget });
        p->check_held(check, name, text);
    });
}

/* ---- which case is what ---------------------------------------------------------------------- */

void run_shape(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        const char *const keys[] = { "layers", "heads", "kv_heads", "head_dim", "tokens" };
        const int64_t own[] = { p->data.layers, p->data.heads, p->data.kv_heads, p->data.key_dim,
                                p->data.tokens };
        for (int i = 0; i < 5; i++)
            check->equal(
                keys[i], { static_cast<int32_t>(own[i]) },
                { static_cast<int32_t>(p->number(name, keys[i], 1, MOST)) }
            );
    });
}

void run_case(Policies *p, const std::string &name, const Names &tensors)
{
    if (name == "shape") return run_shape(p, name, tensors);
    if (name == "pyramid_budgets") return run_pyramid_budgets(p, name, tensors);
    if (name == "n_kept") return run_n_kept(p, name, tensors);
    if (name == "adakv") return run_adakv(p, name, tensors);
    if (name == "pyramidkv") return run_pyramidkv(p, name, tensors);
    if (name == "keydiff_blocks") return run_keydiff_blocks(p, name, tensors);
    if (name == "streaming" || name == "streaming.absolute") return run_streaming(p, name, tensors);
    if (name == "snapkv_original") return run_snapkv_original(p, name, tensors);
    if (name == "snapkv_decode" || name == "rkv") return run_decode_method(p, name, tensors);
    if (begins(name, "h2o_")) return run_h2o(p, name, tensors);
    if (run_tri(p, name, tensors) || run_scorer(p, name, tensors)) return;
    p->skip(name, "the engine has no policy of this name");
}

/* The longest name of a case that the tensor's begins with; else its first word. */
std::string case_of(const json_t *cases, const std::string &tensor)
{
    std::string name = tensor;
    for (size_t dot; (dot = name.rfind('.')) != std::string::npos;) {
        name.resize(dot);
        if (json_object_get(cases, name.c_str()) != nullptr) return name;
    }
    return name;
}

} // namespace

void run_policy(KvFile *file)
{
    const json_t *const cases = json_object_get(file->entry, "cases");
    Names order;
    std::map<std::string, Names> tensors_of; /* what each case has to compare */
    const auto add = [&](const std::string &name) {
        if (tensors_of.count(name) == 0) order.push_back(name);
        return &tensors_of[name];
    };
    const char *key;
    const json_t *fields;
    json_object_foreach(const_cast<json_t *>(cases), key, fields) add(key);
    json_object_foreach(json_object_get(const_cast<json_t *>(file->entry), "tensors"), key, fields)
    {
        if (string_at(fields, "tol") != "input") add(case_of(cases, key))->push_back(key);
    }
    const bool is_wanted = std::any_of(order.begin(), order.end(), [&](const std::string &name) {
        return file->counts->wants(file->label(name));
    });
    if (!is_wanted) return;
    Policies policies(file);
    for (const std::string &name : order)
        if (file->counts->wants(file->label(name))) run_case(&policies, name, tensors_of[name]);
}

} // namespace golden
