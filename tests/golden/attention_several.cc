/* tests/golden/attention_several.cc - attention of several sequences in one call, and partials of
 * tiles of keys that are joined. */
#include <cmath>
#include <map>

#include "tests/golden/attention_call.h"
#include "tests/kernel/attention_partials.h"

namespace golden::attention {
namespace {

/* All queries [T, H, key_dim] in one call. */
void compare(
    KvFile *file, const std::string &name, const Heads &heads, const Floats &q, const Call &all,
    Check *check
)
{
    const Tensors &t = file->tensors;
    const int64_t width = heads.n_heads * heads.key_dim, n = static_cast<int64_t>(q.size()) / width;
    attend(
        heads, { q.data(), width, heads.key_dim, n }, { all },
        [&](const std::string &how, const Floats &out, const Floats &partials) {
            check->close(
                how + " " + name + ".out", out, t.need_floats(name + ".out"),
                file->tolerance(name + ".out")
            );
            if (t.has(name + ".lse"))
                check->close(
                    how + " " + name + ".lse", sums_of(partials, heads.value_dim),
                    t.need_floats(name + ".lse"), of_scores(*file, name + ".lse")
                );
        }
    );
}

} // namespace

/* Decode over a pool of pages of another size: each sequence's rows are those that its table
 * names. */
void run_paged(KvFile *file, const std::string &name, Check *check)
{
    const Tensors &t = file->tensors;
    const Ints q_shape = t.need_shape(name + ".q", 3), pool = t.need_shape(name + ".pool_k", 4),
               pool_v = t.need_shape(name + ".pool_v", 4),
               table_shape = t.need_shape(name + ".table", 2);
    const std::vector<int32_t> table = t.need_integers(name + ".table"),
                               lens = t.need_integers(name + ".lens");
    const Floats q = t.need_floats(name + ".q"), k = t.need_floats(name + ".pool_k"),
                 v = t.need_floats(name + ".pool_v", { pool[0], pool[1], pool[2], pool_v[3] });
    const Heads heads = { q_shape[1], pool[1], q_shape[2], pool_v[3],
                          1.0f / std::sqrt(static_cast<float>(q_shape[2])) };
    const int64_t n = q_shape[0], page = pool[2];
    std::vector<Sequence> sequences;
    Call all;
    check_heads(heads);
    if (pool[3] != heads.key_dim || static_cast<int64_t>(lens.size()) != n || table_shape[0] != n)
        throw Broken(name + ": queries, pages and tables do not fit");
    sequences.reserve(static_cast<size_t>(n));
    for (int64_t s = 0; s < n; s++) {
        const int64_t length = lens[static_cast<size_t>(s)];
        Floats keys, values; /* [row, head, dim] of this sequence */
        if (length <= 0 || length > table_shape[1] * page)
            throw Broken(name + ": a sequence is longer than its table");
        for (int64_t row = 0; row < length; row++) {
            const int64_t at = table[static_cast<size_t>(s * table_shape[1] + row / page)];
            if (at < 0 || at >= pool[0])
                throw Broken(name + ": a table names a page that is not there");
            for (int64_t g = 0; g < heads.n_kv_heads; g++) {
                const int64_t place = (at * heads.n_kv_heads + g) * page + row % page;
                keys.insert(
                    keys.end(), k.begin() + place * heads.key_dim,
                    k.begin() + (place + 1) * heads.key_dim
                );
                values.insert(
                    values.end(), v.begin() + place * heads.value_dim,
                    v.begin() + (place + 1) * heads.value_dim
                );
            }
        }
        sequences.emplace_back(
            heads, Source{ keys.data(), heads.key_dim, heads.n_kv_heads * heads.key_dim },
            Source{ values.data(), heads.value_dim, heads.n_kv_heads * heads.value_dim },
            every_row(length)
        );
        all.push_back(
            sequences.back().segment(static_cast<int32_t>(s), 1, static_cast<int32_t>(length - 1))
        );
    }
    compare(file, name, heads, q, all, check);
}

/* Prefill chunks and decode rows of several sequences in one call: cu_q and cu_k say where each
 * begins. */
void run_mixed(KvFile *file, const std::string &name, Check *check)
{
    const Tensors &t = file->tensors;
    const Ints q_shape = t.need_shape(name + ".q", 3), k_shape = t.need_shape(name + ".k", 3),
               v_shape = t.need_shape(name + ".v", 3);
    const std::vector<int32_t> cu_q = t.need_integers(name + ".cu_q"),
                               cu_k = t.need_integers(name + ".cu_k");
    const Floats q = t.need_floats(name + ".q"), k = t.need_floats(name + ".k"),
                 v = t.need_floats(name + ".v", { k_shape[0], k_shape[1], v_shape[2] });
    const Heads heads = { q_shape[1], k_shape[1], q_shape[2], v_shape[2],
                          1.0f / std::sqrt(static_cast<float>(q_shape[2])) };
    const Source keys = { k.data(), heads.key_dim, heads.n_kv_heads * heads.key_dim },
                 values = { v.data(), heads.value_dim, heads.n_kv_heads * heads.value_dim };
    std::vector<Sequence> sequences;
    Call all;
    check_heads(heads);
    if (k_shape[2] != heads.key_dim || cu_q.size() != cu_k.size() || cu_q.front() != 0 ||
        cu_k.front() != 0 || cu_q.back() != q_shape[0] || cu_k.back() != k_shape[0])
        throw Broken(name + ": the starts of the sequences do not fit");
    sequences.reserve(cu_q.size());
    for (size_t s = 0; s + 1 < cu_q.size(); s++) {
        const int32_t n = cu_q[s + 1] - cu_q[s], length = cu_k[s + 1] - cu_k[s];
        if (n < 0 || length < n || length == 0)
            throw Broken(name + ": a chunk is longer than its sequence");
        Ints rows = every_row(length);
        for (int64_t &row : rows) row += cu_k[s];
        sequences.emplace_back(heads, keys, values, rows);
        all.push_back(sequences.back().segment(cu_q[s], n, length - n));
    }
    compare(file, name, heads, q, all, check);
}

/* Tiles of keys, each a text of its own whose last token every query is: (m, l, o) of each, and
 * what they join to from the last to the first. */
void run_tiles(KvFile *file, const std::string &name, const json_t *fields, Check *check)
{
    const One one(file, name, fields);
    const std::vector<int32_t> cuts = file->tensors.need_integers(name + ".cuts");
    const int64_t floats = weir_attention_partials_floats(one.heads.value_dim),
                  n_rows = one.n * one.heads.n_heads;
    std::map<std::string, Floats> m, l, o,
        joined; /* by kernel: [tile, H, n], [tile, H, n, value_dim]; partials [n, H] */
    for (size_t tile = cuts.size() - 1; tile-- > 0;) {
        if (cuts[tile] < 0 || cuts[tile + 1] < cuts[tile] || cuts[tile + 1] > one.m)
            throw Broken(name + ": tiles are not in order");
        Ints rows;
        for (int64_t row = cuts[tile]; row < cuts[tile + 1]; row++) rows.push_back(row);
        const Sequence sequence(
            one.heads, one.keys(), one.values(), rows.empty() ? Ints{ 0 } : rows
        );
        Call all;
        for (int32_t t = 0; t < one.n; t++)
            all.push_back(sequence.segment(t, 1, sequence.n_rows() - 1));
        attend(
            one.heads, one.queries(), { all },
            [&](const std::string &how, const Floats &, const Floats &full) {
                Floats partials = full, maxima, sums, values;
                for (int64_t row = 0; row < n_rows; row++) {
                    float *const partial = &partials[static_cast<size_t>(row * floats)];
                    if (rows.empty()) attention_partials::clear(partial, one.heads.value_dim);
                    maxima.push_back(rows.empty() ? -1e30f : partial[0] * 0.69314718f);
                    sums.push_back(partial[1]);
                    values.insert(values.end(), partial + 2, partial + floats);
                }
                const auto put_first = [&](Floats *to, const Floats &x, int64_t dim) {
                    const Floats ordered = heads_first(x, one.n, one.heads.n_heads, dim);
                    to->insert(to->begin(), ordered.begin(), ordered.end());
                };
                put_first(&m[how], maxima, 1);
                put_first(&l[how], sums, 1);
                put_first(&o[how], values, one.heads.value_dim);
                Floats &total = joined[how];
                if (total.empty())
                    total = partials;
                else
                    for (int64_t row = 0; row < n_rows; row++)
                        attention_partials::join(
                            &total[static_cast<size_t>(row * floats)],
                            &partials[static_cast<size_t>(row * floats)], one.heads.value_dim
                        );
            }
        );
    }
    for (const auto &[how, total] : joined) {
        Floats out;
        for (int64_t row = 0; row < n_rows; row++)
            for (int64_t d = 2; d < floats; d++)
                out.push_back(
                    total[static_cast<size_t>(row * floats + d)] /
                    total[static_cast<size_t>(row * floats + 1)]
                );
        one.compare(check, how + " joined", out, total);
        check->close(
            how + " " + name + ".m", m[how], file->tensors.need_floats(name + ".m"),
            of_scores(*file, name + ".m")
        );
        check->close(
            how + " " + name + ".l", l[how], file->tensors.need_floats(name + ".l"),
            file->tolerance(name + ".l")
        );
        check->close(
            how + " " + name + ".o", o[how], file->tensors.need_floats(name + ".o"),
            file->tolerance(name + ".o")
        );
    }
    if (joined.empty()) throw Broken(name + ": no tile");
}

/* The example worked by hand: scores and values of width 1, partials (m, l, o), natural; joined in
 * ascending and in descending order. */
void run_example(const json_t *fields, Check *check)
{
    const json_t *const partials = json_object_get(fields, "partials");
    const size_t n = json_array_size(partials);
    if (n == 0) throw Broken("the example has no partials");
    for (const bool descends : { false, true }) {
        float total[3];
        attention_partials::clear(total, 1);
        for (size_t i = 0; i < n; i++) {
            const json_t *const one = json_array_get(partials, descends ? n - 1 - i : i);
            const auto at = [&](size_t k) {
                return static_cast<float>(json_number_value(json_array_get(one, k)));
            };
            const float partial[3] = { at(0) * 1.44269504f, at(1), at(2) };
            attention_partials::join(total, partial, 1);
        }
        check->close(
            "joined", { total[2] / total[1] },
            { static_cast<float>(number_at(fields, "result", 0)) }, { 1e-6, 0, 0 }
        );
    }
}

} // namespace golden::attention
