// tests/unit/kernels/kv_golden_test.cc - the codecs of KV rows against tests/golden/kv/codec.safetensors: bytes, decoded rows, effect on attention.
//
// Pages are taken apart here by the layout that kernels/abi/kv_format.h describes, not by the codec's own functions.
#include <algorithm>
#include <functional>

#include "engine/formats/tensor_directory.h"
#include "kernels/ref/kv_codec.h"
#include "tests/unit/kernels/support.h"

namespace weir_test {
namespace {

using Bytes = std::vector<uint8_t>;
using Halves = std::vector<uint16_t>;

template <class T> std::vector<T> tensor(const std::string &name)
{
    static weir_tensor_directory *const directory = [] {
        weir_tensor_directory *opened = nullptr;
        weir_error             error = {};
        EXPECT_EQ(weir_tensor_directory_open(&opened, "tests/golden/kv/codec.safetensors", &error), WEIR_OK) << error.text;
        return opened;
    }();
    const weir_tensor *const found = directory ? weir_tensor_directory_find(directory, name.c_str()) : nullptr;
    EXPECT_NE(found, nullptr) << name;
    if (!found) return {};
    EXPECT_EQ(weir_dtype_of(found->dtype).block_bytes, (int32_t)sizeof(T)) << name;
    std::vector<T> values(found->bytes / sizeof(T));
    std::memcpy(values.data(), found->data, found->bytes);
    return values;
}

// The tolerance that index.json calls rel_to_max.
void expect_near_max(const Floats &x, const Floats &want, double relative, const std::string &what)
{
    double most = 0;
    for (const float w : want) most = std::max(most, std::fabs((double)w));
    expect_close(x, want, relative * most, 0, what);
}

// ---- a page part, taken apart -------------------------------------------------------------------------------------------
struct Part {
    weir_kv_format    format;
    weir_kv_side      side;
    int64_t           dim;
    weir_kv_layout    layout;
    std::vector<char> coded, open;

    Part(weir_kv_format f, weir_kv_side s, int64_t d)
        : format(f), side(s), dim(d), layout(weir_kv_layout_of(f, s, d)), coded((size_t)layout.bytes, 0),
          open(weir_kv_needs_open(f) ? (size_t)weir_kv_part_bytes(WEIR_KV_F16, s, d) : 0, 0)
    {
    }
    weir_kv_part part() { return { format, side, dim, coded.data(), open.data() }; }
    void         encode(const float *rows, int64_t n)
    {
        const weir_kv_part to = part();
        weir_kv_encode_rows(&to, 0, n, rows, dim);
    }
    Floats decode(int64_t n, bool rotated = false)
    {
        Floats             rows((size_t)(n * dim));
        const weir_kv_part from = part();
        weir_kv_decode_rows(&from, 0, n, rows.data(), dim, rotated);
        return rows;
    }
    template <class T> T at(int64_t offset) const
    {
        T value;
        std::memcpy(&value, coded.data() + offset, sizeof value);
        return value;
    }
    uint32_t code(int64_t token, int64_t d) const
    {
        const int bits = weir_kv_bits(format);
        if (side == WEIR_KV_V) {
            const int64_t row = layout.codes + token * layout.codes_step, block = row + d / 32 * 4 * bits, i = d % 32;
            if (bits == 8) return at<uint8_t>(row + d);
            if (bits == 4) return at<uint8_t>(block + i % 16) >> (i / 16 * 4) & 15;
            const uint32_t low = at<uint32_t>(block + i / 16 * 4) >> (2 * (i % 16)) & 3;
            return bits == 2 ? low : low | (at<uint32_t>(block + 8) >> i & 1) << 2;
        }
        const int64_t tile = layout.codes + token / 32 * layout.codes_step + token % 32 * 4;
        const auto    word = [&](int64_t w) { return at<uint32_t>(tile + w * 128); };
        if (bits == 8) return word(d / 4) >> (8 * (d % 4)) & 255;
        if (bits == 4) return word(d / 8) >> (4 * (d % 8)) & 15;
        const uint32_t low = word(d / 16) >> (2 * (d % 16)) & 3;
        return bits == 2 ? low : low | (word((dim + 15) / 16 + d / 32) >> (d % 32) & 1) << 2;
    }
    // q8_0 and q4_0: of the block; fp8 and turbo: of the row.
    template <class T> T row_scale(int64_t token, int64_t block) const
    {
        const int64_t unit = side == WEIR_KV_K ? token / 32 : token;
        const int64_t index = side == WEIR_KV_K ? block * 32 + token % 32 : block;
        return at<T>(layout.scales + unit * layout.scales_step + index * (int64_t)sizeof(T));
    }
};

const weir_kv_side sides[] = { WEIR_KV_K, WEIR_KV_V };

std::string text_of(weir_kv_format format, weir_kv_side side, int64_t dim)
{
    return std::string(weir_kv_format_name(format)) + (side == WEIR_KV_K ? " K " : " V ") + std::to_string(dim);
}

// ---- attention over decoded rows --------------------------------------------------------------------------------------------
struct Heads { // att.*: 4 queries over one KV head of width 64
    Floats  q = tensor<float>("att.q"), k = tensor<float>("att.k"), v = tensor<float>("att.v");
    int64_t dim = (int64_t)q.size() / 4, n = (int64_t)k.size() / dim;
};

Floats attend(const Floats &q, const Floats &k, const Floats &v, int64_t dim)
{
    const size_t n = k.size() / (size_t)dim, d = (size_t)dim;
    Floats       out(q.size());
    for (size_t h = 0; h < q.size() / d; h++) {
        std::vector<double> weight(n);
        double              most = -INFINITY, sum = 0;
        for (size_t t = 0; t < n; t++) {
            for (size_t i = 0; i < d; i++) weight[t] += (double)q[h * d + i] * (double)k[t * d + i];
            weight[t] /= std::sqrt((double)dim);
            most = std::max(most, weight[t]);
        }
        for (double &w : weight) sum += w = std::exp(w - most);
        for (size_t i = 0; i < d; i++) {
            double value = 0;
            for (size_t t = 0; t < n; t++) value += weight[t] / sum * (double)v[t * d + i];
            out[h * d + i] = (float)value;
        }
    }
    return out;
}

// Rows through pages, 64 at a time.
Floats through_pages(weir_kv_format format, weir_kv_side side, int64_t dim, const Floats &rows)
{
    Floats decoded;
    for (size_t at = 0; at < rows.size(); at += (size_t)(64 * dim)) {
        const int64_t n = std::min<int64_t>(64, (int64_t)(rows.size() - at) / dim);
        Part          page(format, side, dim);
        page.encode(rows.data() + at, n);
        const Floats out = page.decode(n);
        decoded.insert(decoded.end(), out.begin(), out.end());
    }
    return decoded;
}

// The four queries at the last position on every kernel, through pages.
void expect_kernels_attend(weir_kv_format format, const Heads &heads, const Floats &want)
{
    const auto            n = (int32_t)heads.n;
    const Pages           pages(format, 1, heads.dim, heads.dim, n);
    const weir_kv_segment all = pages.segment(0, n, 0), last = pages.segment(0, 1, n - 1);
    weir_kv_write_args write = { heads.k.data(), heads.v.data(), &all, 1, 1, heads.dim, heads.dim, heads.dim, heads.dim, format, format };
    ASSERT_EQ(run(weir_kernel_ref_kv_write, &write), WEIR_OK);
    std::vector<const weir_kernel *> kernels = omp_rows(WEIR_OP_ATTENTION);
    kernels.push_back(&weir_kernel_ref_attention);
    for (const weir_kernel *kernel : kernels) {
        Floats              out(heads.q.size(), NAN);
        weir_attention_args args = {};
        args.out = out.data(), args.q = heads.q.data(), args.segments = &last, args.n_segments = 1;
        args.n_heads = 4, args.n_kv_heads = 1, args.key_dim = args.value_dim = heads.dim;
        args.q_stride = args.out_stride = 4 * heads.dim, args.q_head_stride = heads.dim;
        args.scale = 1 / std::sqrt((float)heads.dim), args.k_format = args.v_format = format;
        ASSERT_EQ(run(*kernel, &args), WEIR_OK);
        expect_close(out, want, 2e-5, 0, std::string(kernel->name) + " " + weir_kv_format_name(format));
    }
}

// ---- row formats ------------------------------------------------------------------------------------------------------------
// One row as the golden keeps it: plain values, or blocks of a scale and their codes.
Bytes golden_bytes(const Part &page, int64_t n)
{
    Bytes      bytes;
    const auto half = [&](uint16_t x) { bytes.push_back((uint8_t)x), bytes.push_back((uint8_t)(x >> 8)); };
    for (int64_t t = 0; t < n; t++) {
        for (int64_t d = 0; d < page.dim; d++) {
            if (page.format == WEIR_KV_F16 || page.format == WEIR_KV_BF16) {
                const int64_t index = page.side == WEIR_KV_K ? weir_page_k(t, d, page.dim) : t * page.dim + d;
                half(page.at<uint16_t>(page.layout.codes + index * 2));
                continue;
            }
            if (d % 32 == 0) half(page.row_scale<uint16_t>(t, d / 32));
            if (page.format == WEIR_KV_Q8_0) bytes.push_back((uint8_t)page.code(t, d));
            if (page.format == WEIR_KV_Q4_0 && d % 32 < 16) bytes.push_back((uint8_t)(page.code(t, d) | page.code(t, d + 16) << 4));
        }
    }
    return bytes;
}

TEST(KvGolden, RowFormats)
{
    const Heads heads;
    for (const weir_kv_format format : { WEIR_KV_F16, WEIR_KV_BF16, WEIR_KV_Q8_0, WEIR_KV_Q4_0 }) {
        const std::string name = weir_kv_format_name(format);
        for (const int64_t dim : { 64, 128 }) {
            const std::string d = std::to_string(dim), key = name + ".d" + d;
            const Floats      x = tensor<float>("rows" + d), rows = tensor<float>(key + ".rows");
            const int64_t     n = (int64_t)x.size() / dim;
            for (const weir_kv_side side : sides) {
                Part page(format, side, dim);
                page.encode(x.data(), n);
                EXPECT_EQ(golden_bytes(page, n), tensor<uint8_t>(key + ".bytes")) << text_of(format, side, dim);
                expect_close(page.decode(n), rows, 0, 0, text_of(format, side, dim));
            }
        }
        const Floats out = attend(heads.q, through_pages(format, WEIR_KV_K, heads.dim, heads.k),
                                  through_pages(format, WEIR_KV_V, heads.dim, heads.v), heads.dim);
        expect_close(out, tensor<float>(name + ".att_out"), 2e-5, 0, name);
        expect_kernels_attend(format, heads, tensor<float>(name + ".att_out"));
    }
}

// spec/kv.md 9.1: x_i = sin(i).
TEST(KvGolden, TheSineBlock)
{
    Floats x(32);
    for (size_t i = 0; i < 32; i++) x[i] = (float)std::sin((double)i);
    Part q8(WEIR_KV_Q8_0, WEIR_KV_K, 32), q4(WEIR_KV_Q4_0, WEIR_KV_V, 32);
    q8.encode(x.data(), 1);
    q4.encode(x.data(), 1);
    const Bytes a = golden_bytes(q8, 1), b = golden_bytes(q4, 1);
    EXPECT_EQ(Bytes(a.begin(), a.begin() + 10), (Bytes{ 8, 32, 0, 107, 115, 18, 160, 134, 221, 83 }));
    EXPECT_EQ(Bytes(b.begin(), b.begin() + 6), (Bytes{ 0, 48, 104, 15, 47, 153 }));
}

// ---- fp8 ----------------------------------------------------------------------------------------------------------------------
const weir_kv_format float8_formats[] = { WEIR_KV_FP8_E4M3, WEIR_KV_FP8_E5M2 };

TEST(KvGolden, Float8RowsHaveTheirOwnScale)
{
    const Heads heads;
    for (const weir_kv_format format : float8_formats) {
        const std::string name = weir_kv_format_name(format);
        for (const int64_t dim : { 64, 128 }) {
            const std::string key = name + ".row.d" + std::to_string(dim);
            const Floats      x = tensor<float>("rows" + std::to_string(dim));
            const int64_t     n = (int64_t)x.size() / dim;
            for (const weir_kv_side side : sides) {
                Part page(format, side, dim);
                page.encode(x.data(), n);
                Bytes  codes;
                Floats scales;
                for (int64_t t = 0; t < n; t++) {
                    scales.push_back(page.row_scale<float>(t, 0));
                    for (int64_t d = 0; d < dim; d++) codes.push_back((uint8_t)page.code(t, d));
                }
                EXPECT_EQ(codes, tensor<uint8_t>(key + ".bytes")) << text_of(format, side, dim);
                expect_close(scales, tensor<float>(key + ".scale"), 0, 1e-7, key);
                expect_close(page.decode(n), tensor<float>(key + ".rows"), 0, 2e-7, text_of(format, side, dim));
            }
        }
        const Floats out = attend(heads.q, through_pages(format, WEIR_KV_K, heads.dim, heads.k),
                                  through_pages(format, WEIR_KV_V, heads.dim, heads.v), heads.dim);
        expect_close(out, tensor<float>(name + ".att_out"), 2e-5, 0, name);
        expect_kernels_attend(format, heads, tensor<float>(name + ".att_out"));
    }
}

TEST(KvGolden, Float8OfATensorsScale)
{
    for (const weir_kv_format format : float8_formats) {
        for (const std::string d : { "64", "128" }) {
            const std::string key = std::string(weir_kv_format_name(format)) + ".tensor.d" + d;
            const Floats      x = tensor<float>("rows" + d), want = tensor<float>(key + ".scale");
            const float       scale = weir_kv_float8_scale(format, x.data(), (int64_t)x.size());
            expect_close({ scale }, want, 0, 1e-7, key);
            Bytes codes(x.size());
            weir_kv_float8_encode(format, codes.data(), scale, x.data(), (int64_t)x.size());
            EXPECT_EQ(codes, tensor<uint8_t>(key + ".bytes")) << key;
            Floats rows;
            for (const uint8_t code : codes) rows.push_back(weir_kv_value(format, code, scale, 0));
            expect_close(rows, tensor<float>(key + ".rows"), 0, 2e-7, key);
        }
    }
}

TEST(KvGolden, Float8CodesAndTheirTable)
{
    for (const weir_kv_format format : float8_formats) {
        const std::string name = weir_kv_format_name(format);
        const Floats      x = tensor<float>(name + ".cases.x"), table = tensor<float>(name + ".table");
        Bytes             codes(x.size());
        weir_kv_float8_encode(format, codes.data(), 1, x.data(), (int64_t)x.size());
        EXPECT_EQ(codes, tensor<uint8_t>(name + ".cases.bytes")) << name;
        int finite = 0;
        for (uint32_t code = 0; code < 256; code++) {
            const float value = weir_kv_value(format, code, 1, 0);
            if (!std::isfinite(value)) continue;
            finite++;
            EXPECT_EQ(value, table[code]) << name << " " << code;
            uint8_t back;
            weir_kv_float8_encode(format, &back, 1, &value, 1);
            EXPECT_EQ(back, code) << name;
        }
        EXPECT_EQ(finite, format == WEIR_KV_FP8_E4M3 ? 254 : 248);
    }
}

// ---- scale and minimum -----------------------------------------------------------------------------------------------------------
struct Affine {
    Bytes  codes; // [T, d]
    Halves scale, min;
    Floats rows;
};

// Groups of n values along tokens (K, int8) or along dims (kivi's V), from f32 rows as the golden has them.
Affine affine_of(weir_kv_format format, const Floats &x, int64_t dim, int64_t n, bool along_tokens)
{
    const size_t d = (size_t)dim, tokens = x.size() / d, step = along_tokens ? d : 1, count = (size_t)n;
    Affine       out = { Bytes(x.size()), {}, {}, Floats(x.size()) };
    for (size_t t = 0; t < tokens; t += along_tokens ? count : 1)
        for (size_t i = 0; i < d; i += along_tokens ? 1 : count) {
            Floats   group(count);
            Bytes    codes(count);
            uint16_t scale, min;
            for (size_t j = 0; j < count; j++) group[j] = x[t * d + i + j * step];
            weir_kv_affine_encode(weir_kv_bits(format), codes.data(), &scale, &min, group.data(), n);
            out.scale.push_back(scale);
            out.min.push_back(min);
            for (size_t j = 0; j < count; j++) {
                const size_t at = t * d + i + j * step;
                out.codes[at] = codes[j];
                out.rows[at] =
                    weir_kv_value(format, codes[j], (float)reinterpret_cast<_Float16 &>(scale), (float)reinterpret_cast<_Float16 &>(min));
            }
        }
    return out;
}

void expect_affine(const Affine &got, const std::string &key)
{
    EXPECT_EQ(got.codes, tensor<uint8_t>(key + ".codes")) << key;
    EXPECT_EQ(got.scale, tensor<uint16_t>(key + ".scale")) << key;
    EXPECT_EQ(got.min, tensor<uint16_t>(key + ".min")) << key;
    expect_close(got.rows, tensor<float>(key + ".rows"), 1e-6, 2e-7, key);
}

TEST(KvGolden, Int8PerChannel)
{
    const Heads  heads;
    const Floats x = tensor<float>("int8.x");
    expect_affine(affine_of(WEIR_KV_INT8, x, heads.dim, (int64_t)x.size() / heads.dim, true), "int8");
    const Floats out = attend(heads.q, affine_of(WEIR_KV_INT8, heads.k, heads.dim, heads.n, true).rows,
                              affine_of(WEIR_KV_INT8, heads.v, heads.dim, heads.n, true).rows, heads.dim);
    expect_close(out, tensor<float>("int8.att_out"), 2e-5, 0, "int8");
}

TEST(KvGolden, Kivi)
{
    const Heads heads;
    for (const weir_kv_format format : { WEIR_KV_KIVI2, WEIR_KV_KIVI4, WEIR_KV_KIVI8 }) {
        const std::string name = weir_kv_format_name(format);
        const Affine      k = affine_of(format, heads.k, heads.dim, 32, true), v = affine_of(format, heads.v, heads.dim, 32, false);
        expect_affine(k, name + ".k");
        expect_affine(v, name + ".v");
        expect_close(attend(heads.q, k.rows, v.rows, heads.dim), tensor<float>(name + ".att_out"), 2e-5, 0, name);
    }
}

// A closed page of int8 or kivi holds the codes of its f16 rows.
TEST(KvGolden, ClosedPagesAreGroupsOfHalves)
{
    const Heads heads;
    Floats      rows(heads.k.begin(), heads.k.begin() + 64 * heads.dim);
    for (const weir_kv_format format : { WEIR_KV_INT8, WEIR_KV_KIVI2, WEIR_KV_KIVI4, WEIR_KV_KIVI8 }) {
        for (const weir_kv_side side : sides) {
            Part page(format, side, heads.dim);
            page.encode(rows.data(), 64);
            Floats halves;
            for (const float x : rows) halves.push_back((float)(_Float16)x);
            const bool   along_tokens = format == WEIR_KV_INT8 || side == WEIR_KV_K;
            const Affine want = affine_of(format, halves, heads.dim, format == WEIR_KV_INT8 ? 64 : 32, along_tokens);
            Bytes        codes;
            for (int64_t t = 0; t < 64; t++)
                for (int64_t d = 0; d < heads.dim; d++) codes.push_back((uint8_t)page.code(t, d));
            EXPECT_EQ(codes, want.codes) << text_of(format, side, heads.dim);
            expect_close(page.decode(64), want.rows, 0, 0, text_of(format, side, heads.dim));
        }
    }
}

// 150 tokens, of K the first 128 and of V the first 86 coded, the rest as f16.
TEST(KvGolden, KiviWithItsTail)
{
    const Heads  heads;
    const Floats k = tensor<float>("residual.k"), v = tensor<float>("residual.v");
    for (const weir_kv_format format : { WEIR_KV_KIVI2, WEIR_KV_KIVI4 }) {
        const auto mixed = [&](const Floats &x, int64_t n, bool along_tokens) {
            Floats rows = affine_of(format, Floats(x.begin(), x.begin() + n * heads.dim), heads.dim, 32, along_tokens).rows;
            for (size_t i = (size_t)(n * heads.dim); i < x.size(); i++) rows.push_back((float)(_Float16)x[i]);
            return rows;
        };
        const std::string name = weir_kv_format_name(format);
        expect_close(attend(heads.q, mixed(k, 128, true), mixed(v, 86, false), heads.dim), tensor<float>("residual." + name + ".out"), 2e-5,
                     0, name);
    }
}

// ---- turbo ------------------------------------------------------------------------------------------------------------------------
struct Turbo {
    Bytes  packed; // a bit stream per row, lowest bit first
    Halves scale;
    Floats rows, rotated; // decoded; before the turn back
};

Turbo turbo_of(weir_kv_format format, const Floats &x, const Floats &sign)
{
    const int    bits = weir_kv_bits(format);
    const size_t dim = sign.size();
    Turbo        out;
    for (size_t at = 0; at < x.size(); at += dim) {
        Bytes    codes(dim), stream(dim * (size_t)bits / 8, 0);
        uint16_t scale;
        weir_kv_turbo_encode(bits, codes.data(), &scale, x.data() + at, sign.data(), (int64_t)dim);
        Floats row;
        for (size_t i = 0; i < dim; i++) {
            row.push_back(weir_kv_value(format, codes[i], (float)reinterpret_cast<_Float16 &>(scale), 0));
            for (size_t b = 0; b < (size_t)bits; b++)
                stream[(i * (size_t)bits + b) / 8] |= (uint8_t)((codes[i] >> b & 1) << ((i * (size_t)bits + b) % 8));
        }
        out.rotated.insert(out.rotated.end(), row.begin(), row.end());
        weir_kv_hadamard(row.data(), (int64_t)dim);
        for (size_t i = 0; i < dim; i++) out.rows.push_back(sign[i] * row[i]);
        out.packed.insert(out.packed.end(), stream.begin(), stream.end());
        out.scale.push_back(scale);
    }
    return out;
}

Floats sign_of(const std::string &name)
{
    Floats sign;
    for (const int8_t s : tensor<int8_t>(name)) sign.push_back(s);
    return sign;
}

Floats turned(Floats x, const Floats &sign)
{
    for (size_t at = 0; at < x.size(); at += sign.size()) {
        for (size_t i = 0; i < sign.size(); i++) x[at + i] *= sign[i];
        weir_kv_hadamard(x.data() + at, (int64_t)sign.size());
    }
    return x;
}

const weir_kv_format turbo_formats[] = { WEIR_KV_TURBO2, WEIR_KV_TURBO3, WEIR_KV_TURBO4 };

TEST(KvGolden, Turbo)
{
    const Heads heads;
    for (const std::string d : { "d64", "d128" }) {
        const Floats x = tensor<float>("turbo." + d + ".x"), sign = sign_of("turbo." + d + ".sign"), q = tensor<float>("turbo." + d + ".q");
        expect_near_max(turned(x, sign), tensor<float>("turbo." + d + ".rotated"), 1e-6, d);
        const Floats turned_q = turned(q, sign);
        for (const weir_kv_format format : turbo_formats) {
            const std::string key = std::string(weir_kv_format_name(format)) + "." + d;
            const Turbo       got = turbo_of(format, x, sign);
            EXPECT_EQ(got.packed, tensor<uint8_t>(key + ".codes")) << key;
            EXPECT_EQ(got.scale, tensor<uint16_t>(key + ".scale")) << key;
            expect_near_max(got.rows, tensor<float>(key + ".rows"), 2e-6, key);
            Floats dot;
            for (size_t at = 0; at < x.size(); at += q.size()) {
                double sum = 0;
                for (size_t i = 0; i < q.size(); i++) sum += (double)turned_q[i] * (double)got.rotated[at + i];
                dot.push_back((float)sum);
            }
            expect_near_max(dot, tensor<float>(key + ".dot"), 2e-6, key);
        }
    }
    for (const weir_kv_format format : turbo_formats) {
        const std::string name = weir_kv_format_name(format);
        const Floats      out = attend(heads.q, turbo_of(format, heads.k, sign_of("turbo.att.sign_k")).rows,
                                       turbo_of(format, heads.v, sign_of("turbo.att.sign_v")).rows, heads.dim);
        expect_close(out, tensor<float>(name + ".att_out"), 2e-5, 0, name);
    }
}

// Pages hold the same codes, under the signs of the format.
TEST(KvGolden, TurboPages)
{
    for (const weir_kv_format format : turbo_formats) {
        for (const weir_kv_side side : sides) {
            const Floats x = tensor<float>("turbo.d128.x");
            Floats       sign;
            for (int64_t i = 0; i < 128; i++) sign.push_back(weir_kv_sign(side, i));
            const Turbo   want = turbo_of(format, x, sign);
            const int64_t n = (int64_t)x.size() / 128;
            Part          page(format, side, 128);
            page.encode(x.data(), n);
            expect_close(page.decode(n), want.rows, 0, 0, text_of(format, side, 128));
            expect_close(page.decode(n, true), want.rotated, 0, 0, text_of(format, side, 128));
            for (int64_t t = 0; t < n; t++) ASSERT_EQ(page.row_scale<uint16_t>(t, 0), want.scale[(size_t)t]);
        }
    }
}

} // namespace
} // namespace weir_test
