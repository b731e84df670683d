/* tests/golden/coda_golden.cc - CoDA-GQA-L (coda_*.safetensors): bounded layers after prefill and
 * steps, in both modes, with all switches, complete states included; differential attention without
 * banks; doubled queries alone. Gradients are of training, which nothing here does. */
#include <cmath>

#include "tests/golden/coda_layer.h"
#include "tests/golden/kv_golden.h"

namespace golden {
namespace {

/* What the cases of one configuration ("A", "B") share. */
struct Family {
    KvFile *file;
    std::string name;
    CodaConfig config;
    CodaWeights weights;
    Floats x;
    const json_t *entry(const std::string &label) const
    {
        return json_object_get(json_object_get(file->entry, "cases"), label.c_str());
    }
};

CodaWeights weights_of(const Tensors &tensors, const std::string &prefix)
{
    CodaWeights out;
    for (const std::string &name : tensors.names(prefix))
        out[name.substr(prefix.size())] = tensors.need_floats(name);
    return out;
}

Floats rows_of(const Family &f, int64_t first, int64_t n)
{
    const int64_t width = f.config.model;
    if (first < 0 || n < 0 || (first + n) * width > static_cast<int64_t>(f.x.size()))
        throw Broken("x has too few tokens");
    return { f.x.begin() + first * width, f.x.begin() + (first + n) * width };
}

void compare(
    Check *check, const KvFile *file, const std::string &name, const Floats &got,
    const std::string &kernel
)
{
    if (!file->tensors.has(name)) return;
    check->close(name + " by " + kernel, got, file->tensors.floats(name), file->tolerance(name));
}

/* The state, and what it has counted. */
void compare_state(
    Check *check, const Family &f, const std::string &key, CodaState *state,
    const CodaConfig &config, const std::string &kernel
)
{
    const Tensors &t = f.file->tensors;
    const weir_coda_state view = state->view();
    const weir_coda_head &head = *view.head;
    const auto integers = [&](const std::string &name, const std::vector<int32_t> &got) {
        if (t.has(key + name) && !got.empty())
            check->equal(key + name + " by " + kernel, got, t.need_integers(key + name));
    };
    compare(check, f.file, key + ".k", state->slots(WEIR_KV_K), kernel);
    compare(check, f.file, key + ".v", state->slots(WEIR_KV_V), kernel);
    compare(
        check, f.file, key + ".g_recent", { view.gates, view.gates + config.bank.window }, kernel
    );
    if (t.has(key + ".allowed")) {
        const std::vector<int32_t> used = state->used();
        check->close(
            key + ".allowed by " + kernel, { used.begin(), used.end() }, t.floats(key + ".allowed"),
            {}
        );
    }
    integers(".last", { view.used_at, view.used_at + config.bank.n_exact });
    integers(
        ".ints", { head.first_recent, head.n_recent, static_cast<int32_t>(head.position),
                   head.n_open_exact, head.n_open_summary }
    );
    const json_t *const metrics = json_object_get(f.entry(key), "metrics");
    if (!json_is_object(metrics)) return;
    const struct {
        const char *name;
        weir_coda_count count;
    } counts[] = { { "total_evictions", WEIR_CODA_EVICTIONS },
                   { "tokens_gated_out", WEIR_CODA_GATED_OUT },
                   { "exact_hits", WEIR_CODA_HITS },
                   { "exact_inserts", WEIR_CODA_INSERTS },
                   { "exact_overwrites", WEIR_CODA_OVERWRITES },
                   { "summary_updates", WEIR_CODA_UPDATES },
                   { "summary_inserts", WEIR_CODA_FOUNDED },
                   { "exact_frustrated", WEIR_CODA_EXACT_FRUSTRATED },
                   { "summary_frustrated", WEIR_CODA_SUMMARY_FRUSTRATED },
                   { "expansions_exact", WEIR_CODA_EXACT_OPENED },
                   { "expansions_summary", WEIR_CODA_SUMMARY_OPENED } };
    for (const auto &one : counts)
        check->equal(
            key + " " + one.name + " by " + kernel,
            { static_cast<int32_t>(head.counts[one.count]) },
            { static_cast<int32_t>(number_at(metrics, one.name, -1)) }
        );
}

/* `n` single tokens from token `first` on. */
bool run_steps(
    CodaLayer *layer, const Family &f, CodaState *state, int64_t first, int64_t n, Floats *y
)
{
    y->clear();
    for (int64_t t = first; t < first + n; t++) {
        Floats one;
        if (!layer->step(state, rows_of(f, t, 1), &one)) return false;
        y->insert(y->end(), one.begin(), one.end());
    }
    return true;
}

CodaState start(const Family &f, const CodaConfig &config)
{
    CodaState state(config);
    if (f.file->tensors.has(f.name + ".init.k") &&
        weir_coda_slots(&config.bank) == weir_coda_slots(&f.config.bank))
        state.fill(
            f.file->tensors.need_floats(f.name + ".init.k"),
            f.file->tensors.need_floats(f.name + ".init.v")
        );
    return state;
}

/* A prefill, and the steps after it (the case `key`.then); the state goes through a copy of its
 * bytes between the two. */
void run_prefill(
    const Family &f, const std::string &key, CodaConfig config, int64_t tokens, int64_t block
)
{
    config.bank.is_compat = key.size() > 7 && key.compare(key.size() - 7, 7, ".compat") == 0;
    f.file->counts->run(f.file->label(key), [&](Check *check) {
        if (block < 1) throw Broken("a block of no tokens");
        each_row(WEIR_OP_CODA_WRITE, [&](Row *row) {
            CodaLayer layer(config, f.weights, row);
            CodaState state = start(f, config);
            Floats y;
            if (!layer.prefill(&state, rows_of(f, 0, tokens), block, &y)) return;
            compare(check, f.file, key + ".y", y, row->name());
            compare_state(check, f, key, &state, layer.config(), row->name());
            const json_t *const then = f.entry(key + ".then");
            if (then == nullptr) return;
            CodaState copy(state);
            if (!run_steps(
                    &layer, f, &copy, tokens, static_cast<int64_t>(number_at(then, "steps", 0)), &y
                ))
                return;
            compare(check, f.file, key + ".then.y", y, row->name());
            compare_state(check, f, key + ".then", &copy, layer.config(), row->name());
        });
    });
}

/* A.T20.b7.compat, A.opt.refresh.fixed, A.needle.compat: whatever says how many tokens in which
 * blocks. */
void run_prefills(const Family &f)
{
    const char *label;
    const json_t *entry;
    json_object_foreach(json_object_get(const_cast<json_t *>(f.file->entry), "cases"), label, entry)
    {
        const std::string key = label, option = f.name + ".opt.";
        const int64_t tokens = static_cast<int64_t>(number_at(entry, "tokens", 0)),
                      block = static_cast<int64_t>(number_at(entry, "block", 0));
        const bool is_mode = key.size() > 7 && (key.rfind(".compat") == key.size() - 7 ||
                                                key.rfind(".fixed") == key.size() - 6);
        if (key.compare(0, f.name.size() + 1, f.name + ".") != 0 || !is_mode || tokens < 1 ||
            json_object_get(entry, "config") != nullptr)
            continue;
        if (!f.file->counts->wants(f.file->label(key))) continue;
        Family own = f;
        if (key.compare(0, option.size(), option) == 0)
            own.config.change(
                json_object_get(f.entry(key.substr(0, key.rfind('.')) + ".config"), "changed")
            );
        const std::string needle = f.name + ".needle.";
        if (key.compare(0, needle.size(), needle) == 0) {
            own.x = f.file->tensors.need_floats(needle + "x");
            own.weights["write_proj.weight"] =
                f.file->tensors.need_floats(needle + "write_proj.weight");
            own.weights["write_proj.bias"] = { 0.0f };
        }
        run_prefill(own, key, own.config, tokens, block);
    }
}

void run_steps_alone(const Family &f)
{
    const std::string key = f.name + ".steps";
    const json_t *const entry = f.entry(key);
    if (entry == nullptr || !f.file->counts->wants(f.file->label(key))) return;
    f.file->counts->run(f.file->label(key), [&](Check *check) {
        each_row(WEIR_OP_CODA_WRITE, [&](Row *row) {
            CodaLayer layer(f.config, f.weights, row);
            CodaState state = start(f, f.config);
            Floats y;
            if (!run_steps(
                    &layer, f, &state, static_cast<int64_t>(number_at(entry, "first", 0)),
                    static_cast<int64_t>(number_at(entry, "steps", 0)), &y
                ))
                return;
            compare(check, f.file, key + ".y", y, row->name());
            compare_state(check, f, key, &state, layer.config(), row->name());
        });
    });
}

/* Steps and blocks that do not write, or attend before they write. */
void run_variants(const Family &f)
{
    const std::string key = f.name + ".variant", label = f.file->label(key);
    if (f.entry(key) == nullptr || !f.file->counts->wants(label)) return;
    f.file->counts->run(label, [&](Check *check) {
        each_row(WEIR_OP_CODA_WRITE, [&](Row *row) {
            CodaConfig config = f.config;
            config.bank.is_compat = true;
            CodaLayer layer(config, f.weights, row);
            CodaState before = start(f, config);
            const int64_t window = config.bank.window, at = window + 3;
            Floats y;
            if (!layer.prefill(&before, rows_of(f, 0, at), window, &y)) return;
            compare_state(check, f, key + ".before", &before, config, row->name());
            CodaState same(before), first(before);
            (void)layer.step(&same, rows_of(f, at, 1), &y, false, false);
            compare(check, f.file, key + ".no_write.y", y, row->name());
            (void)layer.step(&first, rows_of(f, at, 1), &y, true, false);
            compare(check, f.file, key + ".attend_first.y", y, row->name());
            compare_state(check, f, key + ".attend_first", &first, config, row->name());
            (void)layer.prefill(&same, rows_of(f, at, window), window, &y, false);
            compare(check, f.file, key + ".block_no_write.y", y, row->name());
            compare_state(check, f, key + ".before", &same, config, row->name());
        });
    });
}

/* Two sequences in one call are in the file as the rows of a batch. */
void run_batch(const Family &f)
{
    const std::string key = f.name + ".batch", label = f.file->label(key);
    if (!f.file->tensors.has(key + ".y") || !f.file->counts->wants(label)) return;
    f.file->counts->run(label, [&](Check *check) {
        each_row(WEIR_OP_CODA_WRITE, [&](Row *row) {
            CodaConfig config = f.config;
            config.bank.is_compat = true;
            CodaLayer layer(config, f.weights, row);
            const int64_t window = config.bank.window;
            Floats all;
            for (int64_t i = 0; i < 2; i++) {
                CodaState state = start(f, config);
                Floats y;
                if (!layer.prefill(&state, rows_of(f, i * window, 3 * window), window, &y)) return;
                all.insert(all.end(), y.begin(), y.end());
                compare_state(
                    check, f, key + ".row" + std::to_string(i), &state, config, row->name()
                );
            }
            compare(check, f.file, key + ".y", all, row->name());
        });
    });
}

/* Bytes of a state in the published package: keys, values, unit vectors for routing, gates, flags
 * and times, at n_bytes per element. */
int64_t package_bytes(const weir_coda_layer &layer, int64_t n_bytes)
{
    const int64_t slots = weir_coda_slots(&layer), low = layer.head_dim - layer.head_dim / 2;
    return n_bytes * layer.n_kv_heads *
               (2 * slots * layer.head_dim + layer.n_exact * layer.head_dim + layer.n_summary * low
               ) +
           4 * static_cast<int64_t>(layer.window) + slots + 8 * static_cast<int64_t>(layer.n_exact);
}

void run_bytes(const Family &f)
{
    const std::string key = f.name + ".cache_bytes", label = f.file->label(key);
    if (f.entry(key) == nullptr || !f.file->counts->wants(label)) return;
    f.file->counts->run(label, [&](Check *check) {
        check->equal(
            "bytes in f32", { static_cast<int32_t>(package_bytes(f.config.bank, 4)) },
            { static_cast<int32_t>(number_at(f.entry(key), "float32_b1", 0)) }
        );
        check->equal(
            "bytes in f16", { static_cast<int32_t>(package_bytes(f.config.bank, 2)) },
            { static_cast<int32_t>(number_at(f.entry(key), "float16_b1", 0)) }
        );
    });
}

/* Layers with a configuration of their own: head_dim, norms of queries and keys, low band. */
void run_extended(const Family &f)
{
    const std::string prefix = f.name + ".ext.";
    const char *label;
    const json_t *entry;
    json_object_foreach(json_object_get(const_cast<json_t *>(f.file->entry), "cases"), label, entry)
    {
        const std::string key = label;
        if (key.compare(0, prefix.size(), prefix) != 0 ||
            !f.file->counts->wants(f.file->label(key)))
            continue;
        f.file->counts->run(f.file->label(key), [&](Check *check) {
            Family own = f;
            own.config = CodaConfig::parse(json_object_get(entry, "config"));
            own.weights = weights_of(f.file->tensors, prefix + "w.");
            const int64_t tokens = static_cast<int64_t>(number_at(entry, "tokens", 0));
            each_row(WEIR_OP_CODA_WRITE, [&](Row *row) {
                CodaLayer layer(own.config, own.weights, row);
                CodaState state(own.config);
                Floats y;
                if (!layer.prefill(
                        &state, rows_of(own, 0, tokens),
                        static_cast<int64_t>(number_at(entry, "block", 1)), &y
                    ))
                    return;
                compare(check, f.file, key + ".y", y, row->name());
                if (!run_steps(
                        &layer, own, &state, tokens,
                        static_cast<int64_t>(number_at(entry, "steps", 0)), &y
                    ))
                    return;
                compare(check, f.file, key + ".then.y", y, row->name());
                compare_state(check, own, key, &state, own.config, row->name());
            });
        });
    }
}

/* ---- without banks --------------------------------------------------------------------------- */
/* [T, heads, dim] to [heads, T, dim]. */
Floats heads_first(const Floats &x, int64_t n_heads, int64_t dim)
{
    const int64_t n = static_cast<int64_t>(x.size()) / n_heads / dim;
    Floats out;
    for (int64_t h = 0; h < n_heads; h++)
        for (int64_t t = 0; t < n; t++)
            out.insert(
                out.end(), x.begin() + (t * n_heads + h) * dim,
                x.begin() + (t * n_heads + h + 1) * dim
            );
    return out;
}

/* The noise half of doubled queries, [heads, T, dim]. */
Floats noise_of(const Floats &doubled, int64_t n_heads, int64_t n_kv_heads, int64_t dim)
{
    const int64_t group = n_heads / n_kv_heads,
                  n = static_cast<int64_t>(doubled.size()) / (2 * n_heads * dim);
    Floats out;
    for (int64_t h = 0; h < n_heads; h++)
        for (int64_t t = 0; t < n; t++) {
            const auto from = doubled.begin() +
                              ((t * n_kv_heads + h / group) * 2 * group + group + h % group) * dim;
            out.insert(out.end(), from, from + dim);
        }
    return out;
}

CodaConfig unbounded_config(const json_t *entry, const CodaWeights &weights, int64_t model)
{
    const Floats &theta = weights.at("theta"), &bias = weights.at("lambda_proj.bias"),
                 &k = weights.at("k_proj.weight");
    CodaConfig c;
    c.model = model;
    c.n_heads = static_cast<int64_t>(bias.size());
    c.base = number_at(entry, "base", 10000);
    c.interleaved = json_is_true(json_object_get(entry, "interleaved"));
    c.norm = string_at(entry, "norm") == "full";
    c.bank.head_dim = 2 * static_cast<int64_t>(theta.size()) / c.n_heads;
    c.bank.n_kv_heads = static_cast<int64_t>(k.size()) / model / c.bank.head_dim;
    c.bank.window = 1;
    c.bank.format = WEIR_KV_F32;
    return c;
}

void run_unbounded(KvFile *file)
{
    const char *label;
    const json_t *entry;
    json_object_foreach(json_object_get(const_cast<json_t *>(file->entry), "cases"), label, entry)
    {
        const std::string key = label;
        if (!file->tensors.has("x") || !file->tensors.has(key + ".y") ||
            !file->counts->wants(file->label(key)))
            continue;
        file->counts->run(file->label(key), [&](Check *check) {
            const Floats x = file->tensors.need_floats("x");
            const CodaWeights weights = weights_of(file->tensors, "w.w.");
            const CodaConfig config =
                unbounded_config(entry, weights, file->tensors.need_shape("x", 2)[1]);
            CodaLayer layer(config, weights, nullptr);
            const auto rows = layer.project(x, 0);
            compare(check, file, key + ".y", layer.causal(x), "dispatch");
            compare(
                check, file, key + ".q", heads_first(rows.q, config.n_heads, config.bank.head_dim),
                "dispatch"
            );
            compare(
                check, file, key + ".k",
                heads_first(rows.k, config.bank.n_kv_heads, config.bank.head_dim), "dispatch"
            );
            compare(
                check, file, key + ".v",
                heads_first(rows.v, config.bank.n_kv_heads, config.bank.head_dim), "dispatch"
            );
            compare(
                check, file, key + ".q_noise",
                noise_of(
                    layer.doubled(rows.q), config.n_heads, config.bank.n_kv_heads,
                    config.bank.head_dim
                ),
                "dispatch"
            );
        });
    }
}

/* The rotation alone: heads of their own, one KV head for each. */
void run_rotation(KvFile *file)
{
    if (!file->tensors.has("rot.out") || !file->counts->wants(file->label("rot"))) return;
    file->counts->run(file->label("rot"), [&](Check *check) {
        const std::vector<int64_t> shape =
            file->tensors.need_shape("rot.q", 3); /* heads, rows, dim */
        const Floats q = file->tensors.need_floats("rot.q"),
                     theta = file->tensors.need_floats("rot.theta");
        each_row(WEIR_OP_CODA_QUERIES, [&](Row *row) {
            Floats rows(q.size()), out(2 * q.size(), NAN);
            for (int64_t h = 0; h < shape[0]; h++)
                for (int64_t t = 0; t < shape[1]; t++)
                    std::copy_n(
                        q.begin() + (h * shape[1] + t) * shape[2], shape[2],
                        rows.begin() + (t * shape[0] + h) * shape[2]
                    );
            weir_coda_queries_args args = {};
            args.dst = out.data();
            args.q = rows.data();
            args.theta = theta.data();
            args.n_rows = shape[1];
            args.n_heads = args.n_kv_heads = shape[0];
            args.head_dim = shape[2];
            args.q_stride = shape[0] * shape[2];
            if (row->run(&args))
                compare(
                    check, file, "rot.out", noise_of(out, shape[0], shape[0], shape[2]), row->name()
                );
        });
    });
}

void run_bounded(KvFile *file, const std::string &name, const json_t *config)
{
    Family f = { file, name, {}, {}, {} };
    try {
        f.config = CodaConfig::parse(config);
        f.weights = weights_of(file->tensors, name + ".w.");
        f.x = file->tensors.need_floats(name + ".x");
    } catch (const std::exception &error) {
        return file->counts->fail(file->label(name), error.what());
    }
    run_prefills(f);
    run_steps_alone(f);
    run_variants(f);
    run_batch(f);
    run_bytes(f);
    run_extended(f);
}

} // namespace

void run_coda(KvFile *file)
{
    if (file->name.size() >= 5 && file->name.compare(file->name.size() - 5, 5, "_grad") == 0) {
        const std::string gradients = file->label("gradients");
        if (file->counts->wants(gradients))
            file->counts->skip(gradients, "training is not part of the engine");
        return;
    }
    const char *label;
    const json_t *entry;
    json_object_foreach(json_object_get(const_cast<json_t *>(file->entry), "cases"), label, entry)
    {
        const std::string key = label, end = ".config";
        if (key.size() > end.size() && key.compare(key.size() - end.size(), end.size(), end) == 0 &&
            json_object_get(entry, "D") != nullptr)
            run_bounded(file, key.substr(0, key.size() - end.size()), entry);
    }
    run_unbounded(file);
    run_rotation(file);
}

} // namespace golden
