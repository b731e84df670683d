/* tests/golden/codec_golden.h - the codecs of KV rows (codec.safetensors): pages taken apart, every
 * kernel that writes, reads or attends to them, and the parts of run_codec. */
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "kernels/abi/ops.h"
#include "tests/golden/kv_golden.h"

namespace golden {

using Floats =
    std::vector<float>; /* codes, bytes and bits of f16 too: all are whole numbers below 2^24 */
using Shape = std::vector<int64_t>;
using Names = std::vector<std::string>;

struct Rows {
    Floats values; /* [n, dim] */
    int64_t n, dim;
};

/* ---- pages ----------------------------------------------------------------------------------- */

/* `n_bits` bits from bit `shift` on of the n_bytes wide number at `at`. */
struct Place {
    char *at;
    int n_bytes, shift, n_bits;
    uint32_t get() const;
    void put(uint32_t bits) const;
};

/* A side of a page, taken apart by the layout that kernels/abi/kv_format.h describes and not by the
 * codec's own functions. */
class Part {
  public:
    Part(weir_kv_format format, weir_kv_side side, int64_t dim, char *at)
        : format_(format), side_(side), dim_(dim), at_(at),
          layout_(weir_kv_layout_of(format, side, dim))
    {
    }
    uint32_t code(int64_t token, int64_t d) const;
    void put_code(int64_t token, int64_t d, uint32_t code) const;
    Place scale(int64_t token, int64_t d) const; /* f16; fp8: f32 */
    Place min(int64_t token, int64_t d) const; /* f16 */

  private:
    Place code_place(int64_t token, int64_t d, bool third_bit) const;
    int64_t scale_index(int64_t token, int64_t d) const;
    weir_kv_format format_;
    weir_kv_side side_;
    int64_t dim_;
    char *at_;
    weir_kv_layout layout_;
};

/* The zeroed pages of one sequence, each with its unsealed rows if the formats need them. Throws
 * Broken for widths that they do not take. */
class CodedPages {
  public:
    CodedPages(
        weir_kv_pair formats, int64_t n_heads, int64_t key_dim, int64_t value_dim,
        int64_t n_positions
    );
    weir_kv_segment segment(int64_t n_rows, int64_t n_past) const;
    Part coded(weir_kv_side side, int64_t head, int64_t position);
    /* The same rows while they are wide, as f16 */
    Part open(weir_kv_side side, int64_t head, int64_t position);

    const weir_kv_pair formats;
    const int64_t n_heads, key_dim, value_dim;

  private:
    size_t page_of(int64_t head, int64_t position) const;
    int64_t pages_per_head_;
    std::vector<std::vector<char>> storage_, unsealed_storage_;
    std::vector<void *> table_, unsealed_table_;
};

/* One head's rows from position 0 on in fresh pages, by every kernel of kv_write. */
void each_written(
    weir_kv_pair formats, const Rows &k, const Rows &v,
    const std::function<void(const std::string &how, CodedPages &)> &then
);
/* The same after eviction: each row comes after one that is dropped, by every kernel of
 * kv_compact. */
void each_compacted(
    weir_kv_pair formats, const Rows &k, const Rows &v,
    const std::function<void(const std::string &how, CodedPages &)> &then
);
/* Rows [0, n) of head 0 as coded, by every kernel of kv_read. */
void each_read(
    const CodedPages &pages, int64_t n,
    const std::function<void(const std::string &how, const Floats &k, const Floats &v)> &then
);
/* Queries [H, key_dim] at `position`, by every kernel of attention: [H, value_dim]. window: 0, or
 * how many positions they see. */
void each_attended(
    const CodedPages &pages, const Floats &q, int64_t position, int64_t window,
    const std::function<void(const std::string &how, const Floats &out)> &then
);

/* ---- cases ----------------------------------------------------------------------------------- */

/* The file while its cases run. */
class Codec {
  public:
    explicit Codec(KvFile *f) : file(f) {}
    const json_t *fields(const std::string &name) const; /* of a case; NULL if there is none */
    bool is_listed(const std::string &tensor) const { return file->fields(tensor) != nullptr; }
    /* The shape that index.json states; empty when it lists no such tensor. */
    Shape shape(const std::string &tensor) const;
    /* The tensor, which must have this shape in both files. */
    Floats values(const std::string &tensor, const Shape &shape) const;
    Rows rows(const std::string &tensor) const;
    /* "", or why pages of the format do not take rows as wide as the tensor's, and `more` dims.
     * Shapes that are wrong are for the case to tell. */
    std::string refused(const std::string &tensor, weir_kv_format format, int64_t more = 0) const;
    void compare(
        Check *check, const std::string &how, const std::string &tensor, const Shape &shape,
        const Floats &got
    );
    /* Runs a case; it fails unless it has compared all of these tensors. */
    void run(
        const std::string &name, const Names &tensors, const std::function<void(Check *)> &body
    );
    void skip(const std::string &name, const std::string &why);

    KvFile *const file;

  private:
    std::set<std::string> compared_;
};

/* One query for each head over one KV head: att.*. */
struct Attended {
    explicit Attended(const Codec &codec);
    Rows q, k, v;
};
/* What a codec does to attention and rows, against NAME.att_out and the case NAME.effect. Rows: of
 * decoded att.k and att.v. */
void check_effect(
    Codec *codec, Check *check, const std::string &how, const std::string &name,
    const Attended &att, const Floats &out
);
void check_decoded(
    Codec *codec, Check *check, const std::string &how, const std::string &name,
    const Attended &att, const Floats &k, const Floats &v
);

/* Codes as a little-endian bit stream of bytes. */
Floats bit_stream(const Floats &codes, int bits);

/* `what`: a part of tensor names, "q8_0.d64" or "kivi2.k" or "fp8_e4m3.row.d64"; tensors: those of
 * them that have a tolerance. */
void run_stored_rows(
    Codec *codec, const std::string &what, weir_kv_format format, const Names &tensors
);
void run_row_effect(
    Codec *codec, const std::string &name, weir_kv_format format, const Names &tensors
);
void run_sine_block(Codec *codec);
void run_float8_rows(
    Codec *codec, const std::string &what, weir_kv_format format, const Names &tensors
);
void run_float8_codes(
    Codec *codec, const std::string &what, weir_kv_format format, const Names &tensors
);
void run_float8_table(
    Codec *codec, const std::string &what, weir_kv_format format, const Names &tensors
);
void run_float8_special(Codec *codec, const std::string &name, weir_kv_format format);
void run_groups(Codec *codec, const std::string &what, weir_kv_format format, const Names &tensors);
void run_group_effect(
    Codec *codec, const std::string &name, weir_kv_format format, const Names &tensors
);
void run_residual(Codec *codec, const Names &tensors);
void run_turbo(Codec *codec, const std::string &what, weir_kv_format format, const Names &tensors);
void run_turbo_rotation(Codec *codec, const std::string &what, const Names &tensors);
void run_turbo_effect(
    Codec *codec, const std::string &name, weir_kv_format format, const Names &tensors
);
void run_metadata(Codec *codec);

} // namespace golden
