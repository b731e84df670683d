/* tests/golden/codec_pages.cc - pages in any format: taken apart, and run through every kernel. */
#include <cmath>
#include <cstring>

#include "tests/golden/codec_golden.h"
#include "tests/golden/kernel_rows.h"

namespace golden {

/* ---- a part ---------------------------------------------------------------------------------- */

static uint32_t mask_of(int n_bits) { return n_bits == 32 ? ~0u : (1u << n_bits) - 1u; }

uint32_t Place::get() const
{
    uint32_t number = 0;
    memcpy(&number, at, static_cast<size_t>(n_bytes));
    return number >> shift & mask_of(n_bits);
}

void Place::put(uint32_t bits) const
{
    uint32_t number = 0;
    const uint32_t mask = mask_of(n_bits) << shift;
    memcpy(&number, at, static_cast<size_t>(n_bytes));
    number = (number & ~mask) | (bits << shift & mask);
    memcpy(at, &number, static_cast<size_t>(n_bytes));
}

Place Part::code_place(int64_t token, int64_t d, bool third_bit) const
{
    const int bits = weir_kv_bits(format_), low = bits == 3 ? 2 : bits;
    const auto at = [](char *from, int64_t offset, int n_bytes, int64_t shift, int n_bits) {
        return Place{ from + offset, n_bytes, static_cast<int>(shift), n_bits };
    };
    if (side_ == WEIR_KV_K) { /* tiles of 32 tokens; words of 32 bits, the token innermost */
        char *const tile = at_ + layout_.codes + token / 32 * layout_.codes_step;
        const int64_t lane = token % 32;
        if (weir_kv_scheme_of(format_) == WEIR_KV_PLAIN)
            return at(tile, (d * 32 + lane) * bits / 8, bits / 8, 0, bits);
        if (third_bit) return at(tile, (((dim_ + 15) / 16 + d / 32) * 32 + lane) * 4, 4, d % 32, 1);
        return at(tile, (d * low / 32 * 32 + lane) * 4, 4, d * low % 32, low);
    }
    char *const row = at_ + layout_.codes + token * layout_.codes_step, *const block =
                                                                            row + d / 32 * 4 * bits;
    const int64_t i = d % 32;
    if (bits >= 8) return at(row, d * bits / 8, bits / 8, 0, bits);
    if (bits == 4) return at(block, i % 16, 1, i / 16 * 4, 4);
    if (third_bit) return at(block, 8, 4, i, 1);
    return at(block, i / 16 * 4, 4, 2 * (i % 16), 2);
}

uint32_t Part::code(int64_t token, int64_t d) const
{
    const uint32_t low = code_place(token, d, false).get();
    return weir_kv_bits(format_) == 3 ? low | code_place(token, d, true).get() << 2 : low;
}

void Part::put_code(int64_t token, int64_t d, uint32_t code) const
{
    code_place(token, d, false).put(code);
    if (weir_kv_bits(format_) == 3) code_place(token, d, true).put(code >> 2);
}

/* In the array of the tile (K) or of the token (V). */
int64_t Part::scale_index(int64_t token, int64_t d) const
{
    const bool key = side_ == WEIR_KV_K;
    switch (weir_kv_scheme_of(format_)) {
    case WEIR_KV_BLOCK: return key ? d / 32 * 32 + token % 32 : d / 32;
    case WEIR_KV_FLOAT8:
    case WEIR_KV_TURBO: return key ? token % 32 : 0;
    case WEIR_KV_KIVI: return key ? d : d / 32;
    case WEIR_KV_CHANNEL: return d;
    case WEIR_KV_PLAIN: break;
    }
    throw Broken("plain values have no scale");
}

Place Part::scale(int64_t token, int64_t d) const
{
    const int bytes = weir_kv_scheme_of(format_) == WEIR_KV_FLOAT8 ? 4 : 2;
    const int64_t unit = side_ == WEIR_KV_K ? token / 32 : token;
    return { at_ + layout_.scales + unit * layout_.scales_step + scale_index(token, d) * bytes,
             bytes, 0, 8 * bytes };
}

Place Part::min(int64_t token, int64_t d) const
{
    const int64_t unit = side_ == WEIR_KV_K ? token / 32 : token;
    return { at_ + layout_.mins + unit * layout_.mins_step + scale_index(token, d) * 2, 2, 0, 16 };
}

/* ---- the pages of a sequence ----------------------------------------------------------------- */

/* Page bytes, once the widths are known to fit. */
static size_t checked_bytes(
    weir_kv_pair formats, int64_t n_heads, int64_t key_dim, int64_t value_dim, int64_t n_positions
)
{
    const char *const k = weir_kv_format_reject(formats.k, WEIR_KV_K, key_dim),
                      *const v = weir_kv_format_reject(formats.v, WEIR_KV_V, value_dim);
    if (k != nullptr || v != nullptr)
        throw Broken(
            std::string(weir_kv_format_name(k != nullptr ? formats.k : formats.v)) + " " +
            (k != nullptr ? k : v)
        );
    const int64_t bytes = weir_kv_bytes(formats.k, formats.v, key_dim, value_dim),
                  most = int64_t{ 1 } << 30;
    if (n_heads < 1 || n_positions < 1 || n_heads > most / bytes ||
        n_positions / WEIR_PAGE_TOKENS + 1 > most / bytes / n_heads)
        throw Broken(format(
            "%lld rows of %lld heads are more than 1 GiB of pages",
            static_cast<long long>(n_positions), static_cast<long long>(n_heads)
        ));
    return static_cast<size_t>(bytes);
}

CodedPages::CodedPages(
    weir_kv_pair f, int64_t heads, int64_t k_dim, int64_t v_dim, int64_t n_positions
)
    : formats(f), n_heads(heads), key_dim(k_dim), value_dim(v_dim),
      pages_per_head_((n_positions + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS)
{
    const size_t bytes = checked_bytes(f, heads, k_dim, v_dim, n_positions),
                 n_pages = static_cast<size_t>(heads * pages_per_head_);
    const auto unsealed_bytes = static_cast<size_t>(weir_kv_unsealed_bytes(f.k, f.v, k_dim, v_dim));
    storage_.assign(n_pages, std::vector<char>(bytes));
    unsealed_storage_.assign(n_pages, std::vector<char>(unsealed_bytes));
    for (std::vector<char> &page : storage_) table_.push_back(page.data());
    for (std::vector<char> &page : unsealed_storage_)
        unsealed_table_.push_back(unsealed_bytes > 0 ? page.data() : nullptr);
}

weir_kv_segment CodedPages::segment(int64_t n_rows, int64_t n_past) const
{
    weir_kv_segment segment = {};
    segment.pages = table_.data(),
    segment.unsealed_pages = unsealed_table_.data() + n_past / WEIR_PAGE_TOKENS;
    segment.page_stride = segment.unsealed_stride = pages_per_head_;
    segment.n_rows = static_cast<int32_t>(n_rows), segment.n_past = static_cast<int32_t>(n_past);
    return segment;
}

size_t CodedPages::page_of(int64_t head, int64_t position) const
{
    return static_cast<size_t>(head * pages_per_head_ + position / WEIR_PAGE_TOKENS);
}

Part CodedPages::coded(weir_kv_side side, int64_t head, int64_t position)
{
    char *const page = storage_[page_of(head, position)].data();
    return side == WEIR_KV_K
               ? Part(formats.k, side, key_dim, page)
               : Part(formats.v, side, value_dim, page + weir_kv_v_part(formats.k, key_dim));
}

Part CodedPages::open(weir_kv_side side, int64_t head, int64_t position)
{
    char *const page = unsealed_storage_[page_of(head, position)].data();
    return side == WEIR_KV_K ? Part(WEIR_KV_F16, side, key_dim, page)
                             : Part(
                                   WEIR_KV_F16, side, value_dim,
                                   page + weir_kv_unsealed_v_part(formats.k, key_dim)
                               );
}

/* ---- kernels --------------------------------------------------------------------------------- */

void each_written(
    weir_kv_pair formats, const Rows &k, const Rows &v,
    const std::function<void(const std::string &how, CodedPages &)> &then
)
{
    if (k.n != v.n) throw Broken("keys and values have different numbers of rows");
    each_row(WEIR_OP_KV_WRITE, [&](Row *row) {
        CodedPages pages(formats, 1, k.dim, v.dim, k.n);
        const weir_kv_segment all = pages.segment(k.n, 0);
        const weir_kv_write_args args = {
            k.values.data(), v.values.data(), &all,  1,         1,         k.dim,
            v.dim,           k.dim,           v.dim, formats.k, formats.v, {}
        };
        if (row->run(&args)) then(row->name(), pages);
    });
}

static Rows behind_dropped(const Rows &rows)
{
    Rows spread = { {}, 2 * rows.n, rows.dim };
    for (int64_t i = 0; i < rows.n; i++) {
        const auto row = rows.values.begin() + i * rows.dim;
        for (int64_t d = 0; d < rows.dim; d++) spread.values.push_back(3.0f - row[d]);
        spread.values.insert(spread.values.end(), row, row + rows.dim);
    }
    return spread;
}

void each_compacted(
    weir_kv_pair formats, const Rows &k, const Rows &v,
    const std::function<void(const std::string &how, CodedPages &)> &then
)
{
    const Rows all_k = behind_dropped(k), all_v = behind_dropped(v);
    const auto n_keep = static_cast<int32_t>(k.n);
    std::vector<int32_t> keep;
    for (int32_t i = 0; i < n_keep; i++) keep.push_back(2 * i + 1);
    each_row(WEIR_OP_KV_COMPACT, [&](Row *row) {
        bool is_done = false; /* once: the rows move in place, and all kernels write the same */
        each_written(formats, all_k, all_v, [&](const std::string &, CodedPages &pages) {
            const weir_kv_compact_segment segment = {
                pages.segment(1, 0).pages, 0, 0, keep.data(), &n_keep, nullptr
            };
            const weir_kv_compact_args args = { &segment, 1,         1,         k.dim,
                                                v.dim,    formats.k, formats.v, {} };
            if (!is_done && row->run(&args)) then(row->name(), pages);
            is_done = true;
        });
    });
}

void each_read(
    const CodedPages &pages, int64_t n,
    const std::function<void(const std::string &how, const Floats &k, const Floats &v)> &then
)
{
    each_row(WEIR_OP_KV_READ, [&](Row *row) {
        Floats k(static_cast<size_t>(n * pages.key_dim), NAN),
            v(static_cast<size_t>(n * pages.value_dim), NAN);
        weir_kv_segment all = pages.segment(n, 0);
        all.unsealed_pages = nullptr;
        const weir_kv_read_args args = { k.data(),
                                         v.data(),
                                         &all,
                                         1,
                                         1,
                                         pages.key_dim,
                                         pages.value_dim,
                                         pages.key_dim,
                                         pages.value_dim,
                                         pages.formats.k,
                                         pages.formats.v,
                                         {} };
        if (row->run(&args)) then(row->name(), k, v);
    });
}

void each_attended(
    const CodedPages &pages, const Floats &q, int64_t position, int64_t window,
    const std::function<void(const std::string &how, const Floats &out)> &then
)
{
    const int64_t n_heads = static_cast<int64_t>(q.size()) / pages.key_dim;
    if (n_heads % pages.n_heads != 0) throw Broken("query heads are not a multiple of KV heads");
    const weir_kv_segment last = pages.segment(1, position);
    each_row(WEIR_OP_ATTENTION, [&](Row *row) {
        Floats out(static_cast<size_t>(n_heads * pages.value_dim), NAN);
        weir_attention_args args = {};
        args.out = out.data(), args.q = q.data(), args.segments = &last, args.n_segments = 1;
        args.n_heads = n_heads, args.n_kv_heads = pages.n_heads, args.key_dim = pages.key_dim,
        args.value_dim = pages.value_dim;
        args.q_stride = n_heads * pages.key_dim, args.q_head_stride = pages.key_dim,
        args.out_stride = n_heads * pages.value_dim;
        args.window = static_cast<int32_t>(window),
        args.scale = 1.0f / std::sqrt(static_cast<float>(pages.key_dim));
        args.k_format = pages.formats.k, args.v_format = pages.formats.v;
        if (row->run(&args)) then(row->name(), out);
    });
}

} // namespace golden
