/* tests/golden/module_recurrent.cc - the recurrent mixer: convolution (G5), gates (G6), unit length
 * (G7), the gated delta rule over few (G8) and many tokens (G9), and the order of V heads in GGUF
 * (G16). */
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tests/golden/kernel_rows.h"
#include "tests/golden/module_golden.h"

namespace golden {
namespace {

using Floats = std::vector<float>;

Floats first_rows(const Floats &x, int64_t n, int64_t width)
{
    if (n < 0 || width <= 0 || static_cast<size_t>(n * width) > x.size())
        throw Broken("fewer rows than a name asks for");
    return Floats(x.begin(), x.begin() + static_cast<ptrdiff_t>(n * width));
}

/* ---- convolution ----------------------------------------------------------------------------- */
struct Convolution {
    Reference *values;
    std::string group;
    int64_t n_rows, channels, taps;
    Floats u, w;

    Convolution(Reference *v, const std::string &g) : values(v), group(g)
    {
        const std::vector<int64_t> rows = v->tensors.need_shape(g + ".u", 2),
                                   shape = v->tensors.need_shape(g + ".w", 2);
        n_rows = rows[0];
        channels = rows[1];
        taps = shape[1];
        u = v->tensors.need_floats(g + ".u");
        w = v->tensors.need_floats(g + ".w", { channels, taps });
    }
    size_t history() const { return static_cast<size_t>((taps - 1) * channels); }

    /* The first n rows in pieces of `piece`; y is compared with `name`, the history afterwards with
     * `after` where that is there. */
    void compare(
        Check *check, const Floats &start, int64_t n, int64_t piece, const std::string &name,
        const std::string &after
    ) const
    {
        const Floats in = first_rows(u, n, channels);
        if (start.size() != history()) throw Broken(group + ".history has another size");
        each_row(WEIR_OP_CONV1D, [&](Row *row) {
            Floats past = start, y(in.size(), NAN);
            for (int64_t at = 0; at < n; at += piece) {
                const weir_recurrent_segment segment = {
                    past.data(), nullptr, static_cast<int32_t>(at),
                    static_cast<int32_t>(std::min(piece, n - at))
                };
                const weir_conv1d_args args = { y.data(), in.data(), w.data(), &segment, 1,
                                                channels, taps,      false,    nullptr };
                if (!row->run(&args)) return;
            }
            values->compare(check, name, y, row->name());
            if (!after.empty()) values->compare(check, after, past, row->name());
        });
    }
};

/* ---- gated delta rule ------------------------------------------------------------------------ */
struct Delta {
    int64_t k_heads, v_heads, key_dim, value_dim;
    bool tiled = false;

    int64_t tiles() const { return (value_dim + WEIR_DELTA_LANES - 1) / WEIR_DELTA_LANES; }
    int64_t stride() const { return 2 * k_heads * key_dim + v_heads * value_dim; }
    size_t place(int64_t h, int64_t i, int64_t j) const
    {
        return static_cast<size_t>(
            ((h * tiles() + j / WEIR_DELTA_LANES) * key_dim + i) * WEIR_DELTA_LANES +
            j % WEIR_DELTA_LANES
        );
    }
    Floats to_state(const Floats &plain) const /* from [Hv, dk, dv] */
    {
        Floats state(static_cast<size_t>(v_heads * tiles() * key_dim * WEIR_DELTA_LANES), 0);
        if (plain.empty()) return state;
        for (int64_t h = 0; h < v_heads; h++)
            for (int64_t i = 0; i < key_dim; i++)
                for (int64_t j = 0; j < value_dim; j++)
                    state[place(h, i, j)] =
                        plain[static_cast<size_t>((h * key_dim + i) * value_dim + j)];
        return state;
    }
    Floats from_state(const Floats &state) const
    {
        Floats plain;
        for (int64_t h = 0; h < v_heads; h++)
            for (int64_t i = 0; i < key_dim; i++)
                for (int64_t j = 0; j < value_dim; j++) plain.push_back(state[place(h, i, j)]);
        return plain;
    }
};

/* What a call reads: rows of q, k, v side by side, rows of a and b side by side. */
struct DeltaInput {
    Delta shape;
    Floats qkv, ab, a_neg, dt_bias;

    explicit DeltaInput(const Delta &d)
        : shape(d), a_neg(static_cast<size_t>(d.v_heads), -1),
          dt_bias(static_cast<size_t>(d.v_heads), 0)
    {
    }
    int64_t rows() const { return static_cast<int64_t>(qkv.size()) / shape.stride(); }
    /* Computes the rows in pieces on one kernel; false when it does not take them. */
    bool run(Row *row, Floats *out, Floats *state, int64_t piece) const
    {
        const Delta &d = shape;
        const float *const k = qkv.data() + d.k_heads * d.key_dim, *const v =
                                                                       k + d.k_heads * d.key_dim;
        out->assign(static_cast<size_t>(rows() * d.v_heads * d.value_dim), NAN);
        for (int64_t at = 0; at < rows(); at += piece) {
            const weir_recurrent_segment segment = {
                nullptr, state->data(), static_cast<int32_t>(at),
                static_cast<int32_t>(std::min(piece, rows() - at))
            };
            const weir_gated_delta_rule_args args = { out->data(),
                                                      qkv.data(),
                                                      k,
                                                      v,
                                                      ab.data(),
                                                      ab.data() + d.v_heads,
                                                      a_neg.data(),
                                                      dt_bias.data(),
                                                      &segment,
                                                      1,
                                                      d.k_heads,
                                                      d.v_heads,
                                                      d.key_dim,
                                                      d.value_dim,
                                                      d.stride(),
                                                      2 * d.v_heads,
                                                      d.tiled,
                                                      false };
            if (!row->run(&args)) return false;
        }
        return true;
    }
};

/* The tensors GROUP.q, k, v, g, beta; the first `limit` rows. Goldens give decay and write
 * strength: a and b are such that the kernel computes them (a_neg -1, softplus(a) = -g, sigmoid(b)
 * = beta). */
DeltaInput delta_input(const Tensors &t, const std::string &group, int64_t limit)
{
    const std::vector<int64_t> qs = t.need_shape(group + ".q", 3),
                               vs = t.need_shape(group + ".v", 3);
    const Floats q = t.need_floats(group + ".q"), k = t.need_floats(group + ".k", qs),
                 v = t.need_floats(group + ".v", { qs[0], vs[1], vs[2] }),
                 g = t.need_floats(group + ".g", { qs[0], vs[1] }),
                 beta = t.need_floats(group + ".beta", { qs[0], vs[1] });
    if (vs[1] % qs[1] != 0) throw Broken(group + ": V heads are not a multiple of K heads");
    DeltaInput in({ qs[1], vs[1], qs[2], vs[2] });
    const int64_t qk = qs[1] * qs[2], vv = vs[1] * vs[2], n = limit > 0 ? limit : qs[0];
    if (n > qs[0]) throw Broken(group + ": a name asks for more tokens than there are");
    for (int64_t t_row = 0; t_row < n; t_row++) {
        in.qkv.insert(in.qkv.end(), q.begin() + t_row * qk, q.begin() + (t_row + 1) * qk);
        in.qkv.insert(in.qkv.end(), k.begin() + t_row * qk, k.begin() + (t_row + 1) * qk);
        in.qkv.insert(in.qkv.end(), v.begin() + t_row * vv, v.begin() + (t_row + 1) * vv);
        for (int64_t h = 0; h < vs[1]; h++)
            in.ab.push_back(static_cast<float>(std::log(
                std::expm1(-static_cast<double>(g[static_cast<size_t>(t_row * vs[1] + h)]))
            )));
        for (int64_t h = 0; h < vs[1]; h++) {
            const double b = static_cast<double>(beta[static_cast<size_t>(t_row * vs[1] + h)]);
            in.ab.push_back(static_cast<float>(std::log(b / (1.0 - b))));
        }
    }
    return in;
}

} // namespace

void run_convolution(Modules *m, const std::string &group)
{
    Tensors *const t = &m->values.tensors;
    for (const std::string &name : t->names(group + ".y_")) {
        const std::string rest = name.substr(group.size() + 3); /* "T4" or "history_T5" */
        const bool given = rest.compare(0, 9, "history_T") == 0;
        if (!given && rest.compare(0, 1, "T") != 0) {
            m->skip(name, "no convolution of this name is known");
            continue;
        }
        m->run(name, [&](Check *check) {
            const Convolution c(&m->values, group);
            const int64_t n = strtol(rest.c_str() + (given ? 9 : 1), nullptr, 10);
            const Floats start =
                given ? t->need_floats(group + ".history", { c.taps - 1, c.channels })
                      : Floats(c.history(), 0.0f);
            for (const int64_t piece : { n, int64_t{ 1 }, int64_t{ 2 } })
                c.compare(
                    check, start, n, std::max<int64_t>(piece, 1), name,
                    given ? "" : group + ".history_" + rest
                );
        });
    }
}

/* Decay and write strength of the kernel, seen through a state of one row each: q along dimension
 * 0, k along 1, v = 1, S[0][0] = 1. A decay is compared as the kernel applies it, exp(g): the
 * tolerance of g is relative, that of exp(g) is g times it, and one rounding. */
void run_gates(Modules *m, const std::string &group)
{
    m->run(group, [&](Check *check) {
        Reference *const values = &m->values;
        const Tensors &t = values->tensors;
        const std::vector<int64_t> shape = t.need_shape(group + ".a", 2);
        const int64_t n = shape[0], heads = shape[1];
        const Floats a = t.need_floats(group + ".a"), b = t.need_floats(group + ".b", shape),
                     g = t.need_floats(group + ".g", shape),
                     beta = t.need_floats(group + ".beta", shape),
                     a_log = t.need_floats(group + ".A_log", { heads });
        values->mark(group + ".g");
        for (int64_t row_index = 0; row_index < n; row_index++) {
            DeltaInput in({ heads, heads, 2, 1 });
            in.dt_bias = t.need_floats(group + ".dt_bias", { heads });
            in.qkv.assign(static_cast<size_t>(in.shape.stride()), 0.0f);
            Floats start(static_cast<size_t>(heads) * 2, 0.0f), want_beta;
            for (int64_t h = 0; h < heads; h++) {
                in.a_neg[static_cast<size_t>(h)] = -std::exp(a_log[static_cast<size_t>(h)]);
                in.qkv[static_cast<size_t>(2 * h)] =
                    1e4f; /* so long that the norm's epsilon is nothing */
                in.qkv[static_cast<size_t>(2 * heads + 2 * h + 1)] = 1e4f;
                in.qkv[static_cast<size_t>(4 * heads + h)] = 1;
                start[static_cast<size_t>(2 * h)] = 1;
            }
            const auto from = static_cast<ptrdiff_t>(row_index * heads), to = from + heads;
            in.ab.assign(a.begin() + from, a.begin() + to);
            in.ab.insert(in.ab.end(), b.begin() + from, b.begin() + to);
            each_row(WEIR_OP_GATED_DELTA_RULE, [&](Row *row) {
                Floats out, state = in.shape.to_state(start), written;
                if (!in.run(row, &out, &state, 1)) return;
                const Floats plain = in.shape.from_state(state);
                for (int64_t h = 0; h < heads; h++) {
                    const double log_decay = static_cast<double>(g[static_cast<size_t>(from + h)]);
                    const Tolerance gate = {
                        values->tolerance(group + ".g").rtol * std::fabs(log_decay) + 2.4e-7, 1e-37,
                        0
                    };
                    check->close(
                        format(
                            "%s exp(%s.g) of row %d", row->name().c_str(), group.c_str(),
                            static_cast<int>(row_index)
                        ),
                        { plain[static_cast<size_t>(2 * h)] },
                        { static_cast<float>(std::exp(log_decay)) }, gate
                    );
                    written.push_back(plain[static_cast<size_t>(2 * h + 1)]);
                }
                values->mark(group + ".beta");
                check->close(
                    row->name() + " " + group + ".beta", written,
                    Floats(beta.begin() + from, beta.begin() + to),
                    values->tolerance(group + ".beta")
                );
            });
        }
    });
}

/* Seen through the state: from zero, with full write strength and v = 1, the key itself is what is
 * written. */
void run_unit_length(Modules *m, const std::string &group)
{
    m->run(group, [&](Check *check) {
        const std::vector<int64_t> shape = m->values.tensors.need_shape(group + ".x", 2);
        const Floats x = m->values.tensors.need_floats(group + ".x");
        each_row(WEIR_OP_GATED_DELTA_RULE, [&](Row *row) {
            Floats y;
            for (int64_t r = 0; r < shape[0]; r++) {
                DeltaInput in({ 1, 1, shape[1], 1 });
                in.qkv.assign(static_cast<size_t>(shape[1]), 0.0f);
                in.qkv.insert(
                    in.qkv.end(), x.begin() + r * shape[1], x.begin() + (r + 1) * shape[1]
                );
                in.qkv.push_back(1);
                in.ab = { 0, 40 };
                Floats out, state = in.shape.to_state({});
                if (!in.run(row, &out, &state, 1)) return;
                const Floats key = in.shape.from_state(state);
                y.insert(y.end(), key.begin(), key.end());
            }
            m->values.compare(check, group + ".y", y, row->name());
        });
    });
}

void run_recurrence(Modules *m, const std::string &group)
{
    m->run(group, [&](Check *check) {
        const DeltaInput in = delta_input(m->values.tensors, group, 0);
        const Delta &d = in.shape;
        const Floats start =
            m->values.tensors.need_floats(group + ".S0", { d.v_heads, d.key_dim, d.value_dim });
        each_row(WEIR_OP_GATED_DELTA_RULE, [&](Row *row) {
            for (const int64_t piece : { in.rows(), int64_t{ 1 } }) {
                Floats out, state = d.to_state(start);
                if (!in.run(row, &out, &state, piece)) return;
                m->values.compare(check, group + ".o", out, row->name());
                m->values.compare(check, group + ".S", d.from_state(state), row->name());
            }
        });
    });
}

/* S_zero_T65: the state after 65 tokens from nothing; S_S0_T65: from S0. o_zero, o_S0: outputs of
 * all tokens. */
void run_long_recurrence(Modules *m, const std::string &group)
{
    Reference *const values = &m->values;
    for (const std::string &name : values->tensors.names(group + ".S_")) {
        const std::string rest = name.substr(group.size() + 3),
                          from = rest.substr(0, rest.find("_T")), outputs = group + ".o_" + from;
        const size_t at = rest.find("_T");
        if (at == std::string::npos ||
            (from != "zero" && !values->tensors.has(group + "." + from))) {
            m->skip(name, "neither the start nor the length is in the name");
            continue;
        }
        m->run(name, [&](Check *check) {
            const DeltaInput in = delta_input(
                values->tensors, group, std::max(strtol(rest.c_str() + at + 2, nullptr, 10), 1L)
            );
            const Delta &d = in.shape;
            const Floats start = from == "zero"
                                     ? Floats()
                                     : values->tensors.need_floats(
                                           group + "." + from, { d.v_heads, d.key_dim, d.value_dim }
                                       );
            const Floats want = values->tensors.floats(outputs);
            each_row(WEIR_OP_GATED_DELTA_RULE, [&](Row *row) {
                Floats out, state = d.to_state(start);
                if (!in.run(row, &out, &state, in.rows())) return;
                values->compare(check, name, d.from_state(state), row->name());
                if (want.empty()) return;
                values->mark(outputs);
                check->close(
                    row->name() + " " + outputs, out,
                    first_rows(want, in.rows(), d.v_heads * d.value_dim), values->tolerance(outputs)
                );
            });
        });
    }
}

/* hf_of_tiled_4x3: which V head of the checkpoint stands at each place of a GGUF with 4 K heads and
 * 3 V heads for each. Heads moved so and computed in tiled order give what the checkpoint's order
 * gives. */
void run_head_order(Modules *m, const std::string &group)
{
    for (const std::string &name : m->values.tensors.names(group + ".hf_of_tiled_"))
        m->run(name, [&](Check *check) {
            const std::vector<int32_t> order = m->values.tensors.need_integers(name);
            const int64_t k_heads = strtol(name.c_str() + name.rfind('_') + 1, nullptr, 10),
                          v_heads = static_cast<int64_t>(order.size());
            const Delta d = { k_heads, v_heads, 4, 4 };
            if (k_heads <= 0 || v_heads % k_heads != 0)
                throw Broken(name + ": the numbers of heads do not fit");
            DeltaInput grouped(d), tiled({ k_heads, v_heads, 4, 4, true });
            uint32_t seed = 1;
            const auto draw = [&seed] {
                return static_cast<float>((seed = seed * 1664525u + 1013904223u) >> 8) /
                           8388608.0f -
                       1.0f;
            };
            for (int64_t i = 0; i < d.stride(); i++) grouped.qkv.push_back(draw());
            for (int64_t i = 0; i < 2 * v_heads; i++) grouped.ab.push_back(draw());
            tiled.qkv = grouped.qkv;
            tiled.ab = grouped.ab;
            for (int64_t h = 0; h < v_heads; h++) {
                const int64_t from = order[static_cast<size_t>(h)];
                if (from < 0 || from >= v_heads)
                    throw Broken(name + " holds a head that is not there");
                for (int64_t j = 0; j < 4; j++)
                    tiled.qkv[static_cast<size_t>(8 * k_heads + 4 * h + j)] =
                        grouped.qkv[static_cast<size_t>(8 * k_heads + 4 * from + j)];
                tiled.ab[static_cast<size_t>(h)] = grouped.ab[static_cast<size_t>(from)];
                tiled.ab[static_cast<size_t>(v_heads + h)] =
                    grouped.ab[static_cast<size_t>(v_heads + from)];
            }
            m->values.mark(name);
            each_row(WEIR_OP_GATED_DELTA_RULE, [&](Row *row) {
                Floats want, got, moved, state = d.to_state({}), tiled_state = state;
                if (!grouped.run(row, &want, &state, 1) || !tiled.run(row, &got, &tiled_state, 1))
                    return;
                for (const int32_t from : order)
                    moved.insert(moved.end(), want.begin() + 4 * from, want.begin() + 4 * from + 4);
                check->close(row->name() + " " + name, got, moved, {});
            });
        });
}

} // namespace golden
