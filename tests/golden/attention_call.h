/* tests/golden/attention_call.h - attention over the pages of sequences, on every kernel. */
#pragma once
#include "tests/golden/kernel_rows.h"
#include "tests/golden/kv_golden.h"

namespace golden::attention {

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
);

/* [T, H, d] to [H, T, d]. */
Floats heads_first(const Floats &x, int64_t n_rows, int64_t n_heads, int64_t dim);
/* Scores of a kernel are f32, and steep ones are in the hundreds: allows two units in the last
 * place in addition to the file's tolerance. */
Tolerance of_scores(const KvFile &file, const std::string &tensor);
/* Of partials [T, H, 2 + value_dim]: [T, H]. */
Floats sums_of(const Floats &partials, int64_t value_dim);
/* Throws Broken if no kernel takes them. */
void check_heads(const Heads &h);

/* A case of one sequence: q (H,n,d), k (Hk,m,d), v (Hk,m,dv). */
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

/* 0 .. n - 1. */
Ints every_row(int64_t n);

/* attention_several.cc */
void run_paged(KvFile *file, const std::string &name, Check *check);
void run_mixed(KvFile *file, const std::string &name, Check *check);
void run_tiles(KvFile *file, const std::string &name, const json_t *fields, Check *check);
void run_example(const json_t *fields, Check *check);

} // namespace golden::attention
