/* tests/golden/attention_golden.cc - attention over pages (attn.safetensors): every case that is a
 * softmax over some rows of a sequence. Windows come from the kernel; sinks and kept sets are rows
 * gathered side by side, as a policy leaves them. */
#include <cmath>
#include <map>
#include <numeric>

#include "kernels/abi/attention_partials.h"
#include "tests/golden/kernel_rows.h"
#include "tests/golden/kv_golden.h"

namespace golden {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

/* What all rows of a call share. */
struct Heads {
    int64_t n_heads, n_kv_heads, key_dim, value_dim;
    float scale;
    int32_t window = 0;
};

/* Rows of keys and values: `at(g, row)` is where one KV head's row begins. */
struct Source {
    const float *data;
    int64_t head_stride, row_stride;
    const float *at(int64_t head, int64_t row) const
    {
        return data + head * head_stride + row * row_stride;
    }
};

/* The pages of one sequence, written by the kernel under test's own kv_write. */
class Sequence {
  public:
    Sequence(const Heads &h, const Source &k, const Source &v, const Ints &rows)
        : n_rows_(static_cast<int32_t>(rows.size()))
    {
        pages_per_head_ = (n_rows_ + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
        const size_t page =
            (size_t)weir_kv_bytes(WEIR_KV_F32, WEIR_KV_F32, h.key_dim, h.value_dim) / sizeof(float);
        storage_.assign(static_cast<size_t>(h.n_kv_heads * pages_per_head_), Floats(page, 0.0f));
        for (Floats &one : storage_) table_.push_back(one.data());
        Floats keys, values;
        for (const int64_t row : rows)
            for (int64_t g = 0; g < h.n_kv_heads; g++) {
                keys.insert(keys.end(), k.at(g, row), k.at(g, row) + h.key_dim);
                values.insert(values.end(), v.at(g, row), v.at(g, row) + h.value_dim);
            }
        const weir_kv_segment all = segment(0, n_rows_, 0);
        const weir_kv_write_args args = { keys.data(),
                                          values.data(),
                                          &all,
                                          1,
                                          h.n_kv_heads,
                                          h.key_dim,
                                          h.value_dim,
                                          h.n_kv_heads * h.key_dim,
                                          h.n_kv_heads * h.value_dim,
                                          WEIR_KV_F32,
                                          WEIR_KV_F32,
                                          {} };
        if (weir_kv_write(stream(), &args) != WEIR_OK) throw Broken("keys and values were refused");
    }
    weir_kv_segment segment(int32_t first_row, int32_t n_rows, int32_t n_past) const
    {
        weir_kv_segment segment = {};
        segment.pages = table_.data(), segment.page_stride = pages_per_head_,
        segment.first_row = first_row, segment.n_rows = n_rows, segment.n_past = n_past;
        return segment;
    }
    int32_t n_rows() const { return n_rows_; }

  private:
    int32_t n_rows_;
    int64_t pages_per_head_;
    std::vector<Floats> storage_;
    std::vector<void *> table_;
};

/* The queries of a call and where each lies: [T, H, key_dim] with strides. */
struct Queries {
    const float *data;
    int64_t row_stride, head_stride, n_rows;
};

using Call = std::vector<weir_kv_segment>;

/* The calls one after the other on every kernel; the results are [T, H, value_dim], and the
 * partials [T, H, 2 + value_dim] of another run. */
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

/* [T, H, d] to [H, T, d]. */
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

/* Scores of a kernel are f32, and steep ones are in the hundreds: allows two units in the last
 * place in addition to the file's tolerance. */
Tolerance of_scores(const KvFile &file, const std::string &tensor)
{
    Tolerance tolerance = file.tolerance(tensor);
    tolerance.rtol = std::max(tolerance.rtol, 0x1p-22);
    return tolerance;
}

/* Of partials [T, H, 2 + value_dim]: [T, H]. */
Floats sums_of(const Floats &partials, int64_t value_dim)
{
    Floats sums;
    for (size_t at = 0; at < partials.size();
         at += static_cast<size_t>(weir_attention_partials_floats(value_dim)))
        sums.push_back(static_cast<float>(weir_attention_partials_lse(&partials[at])));
    return sums;
}

void check_heads(const Heads &h)
{
    if (h.n_heads % h.n_kv_heads != 0) throw Broken("query heads are not a multiple of KV heads");
    if (!(h.scale > 0)) throw Broken("the scale is not positive");
}

/* ---- one sequence: q (H,n,d), k (Hk,m,d), v (Hk,m,dv) ---------------------------------------- */
struct One {
    KvFile *file;
    std::string name;
    Heads heads;
    int64_t n, m;
    Floats q, k, v;

    One(KvFile *f, const std::string &case_name, const json_t *fields) : file(f), name(case_name)
    {
        const std::string uses = string_at(fields, "uses"), from = uses.empty() ? name : uses;
        const Tensors &t = f->tensors;
        const Ints qs = t.need_shape(from + ".q", 3), ks = t.need_shape(from + ".k", 3),
                   vs = t.need_shape(from + ".v", 3);
        q = t.need_floats(from + ".q");
        k = t.need_floats(from + ".k", { ks[0], ks[1], qs[2] });
        v = t.need_floats(from + ".v", { ks[0], ks[1], vs[2] });
        n = qs[1];
        m = ks[1];
        const double window = number_at(fields, "W", 0);
        heads = { qs[0],
                  ks[0],
                  qs[2],
                  vs[2],
                  static_cast<float>(number_at(fields, "scale", 0)),
                  window > 0 && window < INT32_MAX ? static_cast<int32_t>(window) : 0 };
        check_heads(heads);
    }
    Source keys() const { return { k.data(), m * heads.key_dim, heads.key_dim }; }
    Source values() const { return { v.data(), m * heads.value_dim, heads.value_dim }; }
    Queries queries() const { return { q.data(), heads.key_dim, n * heads.key_dim, n }; }
    void compare(Check *check, const std::string &how, const Floats &out, const Floats &partials)
        const
    {
        if (file->tensors.has(name + ".lse"))
            check->close(
                how + " " + name + ".lse",
                heads_first(sums_of(partials, heads.value_dim), n, heads.n_heads, 1),
                file->tensors.need_floats(name + ".lse"), of_scores(*file, name + ".lse")
            );
        check->close(
            how + " " + name + ".out", heads_first(out, n, heads.n_heads, heads.value_dim),
            file->tensors.need_floats(name + ".out"), file->tolerance(name + ".out")
        );
    }
};

Ints every_row(int64_t n)
{
    Ints rows(static_cast<size_t>(n));
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
}

/* Every query sees every key: each is the last token of the same sequence. */
void run_full(const One &one, Check *check)
{
    const Sequence sequence(one.heads, one.keys(), one.values(), every_row(one.m));
    Call all;
    for (int32_t t = 0; t < one.n; t++)
        all.push_back(sequence.segment(t, 1, sequence.n_rows() - 1));
    attend(
        one.heads, one.queries(), { all },
        [&](const std::string &how, const Floats &out, const Floats &partials) {
            one.compare(check, how, out, partials);
        }
    );
}

/* A prompt in pieces, with the window of the heads: query t is the token at position t. */
void run_causal(const One &one, int64_t piece, Check *check)
{
    if (one.n != one.m || piece <= 0)
        throw Broken(
            one.name + ": a causal case has one query for every key, and pieces of some rows"
        );
    const Sequence sequence(one.heads, one.keys(), one.values(), every_row(one.m));
    std::vector<Call> calls;
    for (int64_t at = 0; at < one.n; at += piece)
        calls.push_back({ sequence.segment(
            static_cast<int32_t>(at), static_cast<int32_t>(std::min(piece, one.n - at)),
            static_cast<int32_t>(at)
        ) });
    attend(
        one.heads, one.queries(), calls,
        [&](const std::string &how, const Floats &out, const Floats &partials) {
            one.compare(check, how, out, partials);
        }
    );
}

/* Each query has a sequence of its own, of the rows that it sees. */
void run_gathered(
    One one, const std::function<bool(int64_t query, int64_t key)> &sees, Check *check
)
{
    if (one.n != one.m) throw Broken(one.name + ": a causal case has one query for every key");
    std::vector<Sequence> sequences;
    Call all;
    one.heads.window = 0;
    sequences.reserve(static_cast<size_t>(one.n)); /* segments point into them */
    for (int64_t t = 0; t < one.n; t++) {
        Ints rows;
        for (int64_t key = 0; key <= t; key++)
            if (key == t || sees(t, key)) rows.push_back(key);
        sequences.emplace_back(one.heads, one.keys(), one.values(), rows);
        all.push_back(
            sequences.back().segment(static_cast<int32_t>(t), 1, sequences.back().n_rows() - 1)
        );
    }
    attend(
        one.heads, one.queries(), { all },
        [&](const std::string &how, const Floats &out, const Floats &partials) {
            one.compare(check, how, out, partials);
        }
    );
}

void run_one(KvFile *file, const std::string &name, const json_t *fields, Check *check)
{
    const One one(file, name, fields);
    const json_t *const kept = json_object_get(fields, "kept");
    const double first = number_at(fields, "S", 0);
    const int64_t window = one.heads.window;
    if (json_is_array(kept)) {
        std::set<int64_t> keys;
        for (size_t i = 0; i < json_array_size(kept); i++)
            keys.insert(json_integer_value(json_array_get(kept, i)));
        return run_gathered(one, [&](int64_t, int64_t key) { return keys.count(key) > 0; }, check);
    }
    if (first > 0)
        return run_gathered(
            one,
            [&](int64_t t, int64_t key) {
                return static_cast<double>(key) < first || window == 0 || key > t - window;
            },
            check
        );
    const bool causal =
        string_at(file->fields(name + ".out"), "what").find("causal") != std::string::npos;
    return causal || window > 0 ? run_causal(one, one.n, check) : run_full(one, check);
}

/* The causal case again in pieces of C, 1, 7 and all rows. */
void run_chunked(KvFile *file, const json_t *fields, Check *check)
{
    const One one(file, "causal", json_object_get(json_object_get(file->entry, "cases"), "causal"));
    const int64_t chunk = static_cast<int64_t>(
        std::min(std::max(number_at(fields, "C", 1), 1.0), static_cast<double>(one.n))
    );
    for (const int64_t piece : { chunk, int64_t{ 1 }, int64_t{ 7 }, one.n })
        run_causal(one, piece, check);
}

/* ---- several sequences ----------------------------------------------------------------------- */

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
    attend(
        heads, { q.data(), heads.n_heads * heads.key_dim, heads.key_dim, n }, { all },
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
    attend(
        heads, { q.data(), heads.n_heads * heads.key_dim, heads.key_dim, q_shape[0] }, { all },
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
                    if (rows.empty()) weir_attention_partials_clear(partial, one.heads.value_dim);
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
                        weir_attention_partials_join(
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
        weir_attention_partials_clear(total, 1);
        for (size_t i = 0; i < n; i++) {
            const json_t *const one = json_array_get(partials, descends ? n - 1 - i : i);
            const auto at = [&](size_t k) {
                return static_cast<float>(json_number_value(json_array_get(one, k)));
            };
            const float partial[3] = { at(0) * 1.44269504f, at(1), at(2) };
            weir_attention_partials_join(total, partial, 1);
        }
        check->close(
            "joined", { total[2] / total[1] },
            { static_cast<float>(number_at(fields, "result", 0)) }, { 1e-6, 0, 0 }
        );
    }
}

} // namespace

void run_attention(KvFile *file)
{
    const char *key;
    const json_t *fields;
    json_object_foreach(json_object_get(const_cast<json_t *>(file->entry), "cases"), key, fields)
    {
        const std::string name = key, label = file->label(name);
        const Tensors &t = file->tensors;
        if (name == "chunked")
            file->counts->run(label, [&](Check *check) { run_chunked(file, fields, check); });
        else if (t.has(name + ".pool_k"))
            file->counts->run(label, [&](Check *check) { run_paged(file, name, check); });
        else if (t.has(name + ".cu_q"))
            file->counts->run(label, [&](Check *check) { run_mixed(file, name, check); });
        else if (t.has(name + ".out"))
            file->counts->run(label, [&](Check *check) {
                run_one(file, name, fields, check);
                if (t.has(name + ".cuts")) run_tiles(file, name, fields, check);
            });
        else
            file->counts->run(label, [&](Check *check) { run_example(fields, check); });
    }
}

} // namespace golden
