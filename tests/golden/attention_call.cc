#include "tests/golden/attention_call.h"

#include <cmath>
#include <numeric>

#include "tests/kernel/attention_partials.h"

namespace golden::attention {

void attend(
    const Heads &h, const Queries &q, const std::vector<Call> &calls,
    const std::function<void(const std::string &, const Floats &out, const Floats &partials)> &then
)
{
    each_row(WEIR_OP_ATTENTION, [&](Row *row) {
        Floats out(static_cast<size_t>(q.n_rows * h.n_heads * h.value_dim), NAN);
        weir_attention_args args = {};
        args.out = out.data();
        args.q = q.data;
        args.n_heads = h.n_heads;
        args.n_kv_heads = h.n_kv_heads;
        args.key_dim = h.key_dim;
        args.value_dim = h.value_dim;
        args.q_stride = q.row_stride;
        args.q_head_stride = q.head_stride;
        args.out_stride = h.n_heads * h.value_dim;
        args.window = h.window;
        args.scale = h.scale;
        args.k_format = WEIR_KV_F32;
        args.v_format = WEIR_KV_F32;
        for (const Call &call : calls) {
            args.segments = call.data();
            args.n_segments = static_cast<int64_t>(call.size());
            if (!row->run(&args)) return;
        }
        Floats partials(
            static_cast<size_t>(q.n_rows * h.n_heads * weir_attention_partials_floats(h.value_dim)),
            NAN
        );
        args.partials = partials.data();
        args.end_split = INT32_MAX;
        for (const Call &call : calls) {
            args.segments = call.data();
            args.n_segments = static_cast<int64_t>(call.size());
            if (!row->run(&args)) return;
        }
        then(row->name(), out, partials);
    });
}

Floats heads_first(const Floats &x, int64_t n_rows, int64_t n_heads, int64_t dim)
{
    Floats out;
    for (int64_t h = 0; h < n_heads; h++)
        for (int64_t t = 0; t < n_rows; t++) {
            const auto from = x.begin() + (t * n_heads + h) * dim;
            out.insert(out.end(), from, from + dim);
        }
    return out;
}

Tolerance of_scores(const KvFile &file, const std::string &tensor)
{
    Tolerance tolerance = file.tolerance(tensor);
    tolerance.rtol = std::max(tolerance.rtol, 0x1p-22);
    return tolerance;
}

Floats sums_of(const Floats &partials, int64_t value_dim)
{
    Floats sums;
    for (size_t at = 0; at < partials.size();
         at += static_cast<size_t>(weir_attention_partials_floats(value_dim)))
        sums.push_back(static_cast<float>(attention_partials::lse(&partials[at])));
    return sums;
}

void check_heads(const Heads &h)
{
    if (h.n_heads % h.n_kv_heads != 0) throw Broken("query heads are not a multiple of KV heads");
    if (!(h.scale > 0)) throw Broken("the scale is not positive");
}

Ints every_row(int64_t n)
{
    Ints rows(static_cast<size_t>(n));
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
}

} // namespace golden::attention
