/* tests/golden/policy_golden.cc - run_policy: each case is a text under the policy of engine/kv, as
 * the engine would run it; scores, rows that are held, and attention over them are compared. */
#include "tests/golden/policy_golden.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace golden {

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

void Policies::check_held(Check *check, const std::string &name, const Sequence &seq)
{
    Ints kept;
    Floats out, masses;
    for (int64_t layer = 0; layer < data.layers; layer++) {
        for (int64_t g = 0; g < data.kv_heads; g++) {
            const Ints &held = seq.held(layer, g);
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
                attend(data, layer, h, seq.held(layer, h / (data.heads / data.kv_heads)), &mass);
            out.insert(out.end(), one.begin(), one.end());
            masses.push_back(static_cast<float>(mass));
        }
    }
    if (is_listed(name + ".kept"))
        compare(
            check, name + ".kept",
            { data.layers, data.kv_heads, static_cast<int64_t>(seq.held(0, 0).size()) }, kept
        );
    compare(check, name + ".out", { data.layers, data.heads, data.value_dim }, out);
    compare(check, name + ".mass", { data.layers, data.heads }, masses);
}

void Policies::check_scores(Check *check, const std::string &name, Sequence *seq, int64_t budget)
{
    const Shape shape = file->tensors.need_shape(name + ".score", 3);
    const int64_t n_heads = seq->data.kv_heads;
    Floats all;
    for (int64_t layer = 0; layer < seq->data.layers; layer++) {
        std::vector<Floats> heads;
        float greatest = -INFINITY;
        for (int64_t g = 0; g < n_heads; g++) {
            heads.push_back(seq->scores(layer, g, budget));
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
    compare(check, name + ".score", { seq->data.layers, n_heads, shape[2] }, all);
}

int64_t kept_rows(int64_t n, double ratio)
{
    const auto kept = static_cast<int64_t>(static_cast<double>(n) * (1 - ratio));
    return kept > 1 ? kept : 1;
}

Ints integers_of(const json_t *array)
{
    Ints out;
    for (size_t i = 0; i < json_array_size(array); i++)
        out.push_back(static_cast<int32_t>(json_integer_value(json_array_get(array, i))));
    return out;
}

std::string window_options(const Policies &p, const std::string &name)
{
    return format(
        "window=%lld,kernel=%lld", static_cast<long long>(p.number(name, "window", 1, MOST)),
        static_cast<long long>(p.number(name, "kernel", 1, 255))
    );
}

namespace {

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
