/* tests/golden/module_rowwise.cc - operations on rows: norms (G1, G2), the feed-forward block
 * (G12), 8-bit floats (G25). */
#include <cstring>

#include "kernels/abi/convert.h"
#include "tests/golden/kernel_rows.h"
#include "tests/golden/module_golden.h"

namespace golden {

/* G1.y_KIND_epsE: the norm of G1.x with G1.w_KIND; the zero-centred weight counts from one, as the
 * binding of such a checkpoint adds it. */
static void norm(
    Reference *values, const std::string &group, const std::string &name, const std::string &kind,
    float eps, Check *check
)
{
    const std::vector<int64_t> shape = values->tensors.need_shape(group + ".x", 2);
    std::vector<float> weight = values->tensors.need_floats(group + ".w_" + kind, { shape[1] });
    if (kind == "zero_centred")
        for (float &w : weight) w += 1.0f;
    each_row(WEIR_OP_RMSNORM, [&](Row *row) {
        std::vector<float> x = values->tensors.need_floats(group + ".x"), y(x.size());
        weir_rmsnorm_args args = {};
        args.dst = y.data();
        args.src = x.data();
        args.weight = weight.data();
        args.n_rows = shape[0];
        args.n_groups = 1;
        args.dim = args.dst_stride = args.src_stride = shape[1];
        args.eps = eps;
        if (row->run(&args)) values->compare(check, name, y, row->name());
    });
}

void run_norm(Modules *m, const std::string &group)
{
    const std::string first = group + ".y_";
    for (const std::string &name : m->values.tensors.names(first)) {
        const size_t at = name.rfind("_eps");
        const std::string kind =
            at == std::string::npos ? "" : name.substr(first.size(), at - first.size());
        double eps = 0;
        if (kind != "zero_centred" && kind != "plain") {
            m->skip(name, "no norm of this kind is known");
            continue;
        }
        number_after(name, "eps", &eps);
        m->run(name, [&](Check *check) {
            norm(&m->values, group, name, kind, static_cast<float>(eps), check);
        });
    }
    if (!m->values.tensors.names(group + ".bf16_").empty())
        m->skip(group + ".bf16_", "activations are f32: there is no norm in bf16");
}

void run_gated_norm(Modules *m, const std::string &group)
{
    m->run(group, [&](Check *check) {
        const Tensors &t = m->values.tensors;
        const std::vector<int64_t> shape = t.need_shape(group + ".o", 3);
        const std::vector<float> o = t.need_floats(group + ".o"),
                                 z = t.need_floats(group + ".z", shape),
                                 w = t.need_floats(group + ".w", { shape[2] });
        double eps = number_at(m->dims, "eps", 1e-6);
        number_after(m->values.meaning(group + ".y"), "eps ", &eps);
        each_row(WEIR_OP_GATED_RMSNORM, [&](Row *row) {
            std::vector<float> y(o.size());
            const weir_gated_rmsnorm_args args = { y.data(),
                                                   o.data(),
                                                   z.data(),
                                                   w.data(),
                                                   shape[0] * shape[1],
                                                   shape[2],
                                                   1,
                                                   static_cast<float>(eps),
                                                   false };
            if (row->run(&args)) m->values.compare(check, group + ".y", y, row->name());
        });
    });
}

void run_feed_forward(Modules *m, const std::string &group)
{
    if (m->values.tensors.has(group + ".mlp_y"))
        m->run(group + ".mlp", [&](Check *check) {
            const Tensors &t = m->values.tensors;
            const std::vector<int64_t> x = t.need_shape(group + ".x", 2),
                                       wide = t.need_shape(group + ".mlp_gate", 2);
            const int64_t n_rows = x[0], narrow = x[1], dim = wide[0];
            const Weight gate(t.need_floats(group + ".mlp_gate", { dim, narrow }), dim, narrow),
                up(t.need_floats(group + ".mlp_up", { dim, narrow }), dim, narrow),
                down(t.need_floats(group + ".mlp_down", { narrow, dim }), narrow, dim);
            const std::vector<float> in = t.need_floats(group + ".x"), a = multiply(in, gate),
                                     b = multiply(in, up);
            each_row(WEIR_OP_GLU, [&](Row *row) {
                std::vector<float> inner(a.size());
                const weir_glu_args args = { inner.data(), a.data(), b.data(), n_rows,          dim,
                                             dim,          dim,      dim,      WEIR_GLU_SWIGLU, 0 };
                if (row->run(&args))
                    m->values.compare(check, group + ".mlp_y", multiply(inner, down), row->name());
            });
        });
    if (!m->values.tensors.names(group + ".moe_").empty()) run_experts(m, group);
}

void run_eight_bit(Modules *m, const std::string &group)
{
    const std::string table = group + ".table";
    if (m->values.tensors.has(table))
        m->run(table, [&](Check *check) {
            const std::vector<float> want = m->values.tensors.need_floats(table, { 256 });
            std::vector<uint8_t> bytes(256);
            std::vector<float> got(256);
            std::vector<int32_t> got_bits, want_bits;
            for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<uint8_t>(i);
            if (weir_dequantise(got.data(), bytes.data(), WEIR_F8_E4M3, 256) != WEIR_OK)
                throw Broken("f8_e4m3 is refused");
            for (size_t i = 0; i < bytes.size(); i++) { /* every NaN is one */
                got_bits.push_back(
                    got[i] != got[i] ? -1 : static_cast<int32_t>(weir_f32_bits(got[i]))
                );
                want_bits.push_back(
                    want[i] != want[i] ? -1 : static_cast<int32_t>(weir_f32_bits(want[i]))
                );
            }
            m->values.mark(table);
            check->equal(table + " (bits)", got_bits, want_bits);
        });
    run_scaled_blocks(m, group);
}

} // namespace golden
