/* tests/golden/codec_rows.cc - formats that code each row by itself: f16, bf16, q8_0, q4_0 and fp8.
 * What every kernel of kv_write stores, what every kernel of kv_read gives back, and what attention
 * makes of it. */
#include <cmath>

#include "kernels/abi/convert.h"
#include "kernels/ref/kv_codec.h"
#include "tests/golden/codec_golden.h"

namespace golden {
namespace {

const weir_kv_side sides[] = { WEIR_KV_K, WEIR_KV_V };

std::string side_of(weir_kv_side side) { return side == WEIR_KV_K ? " K" : " V"; }

/* "q8_0.d64" is of rows64. */
std::string input_of(const std::string &what)
{
    const size_t width = what.rfind('.') + 2;
    return "rows" + (width < what.size() ? what.substr(width) : "");
}

/* A row as the files keep it: plain values, or blocks of a scale and their codes. */
Floats stored_bytes(CodedPages *pages, weir_kv_side side, int64_t n, int64_t dim)
{
    Floats bytes;
    const weir_kv_format format = side == WEIR_KV_K ? pages->formats.k : pages->formats.v;
    const auto half = [&](uint32_t x) {
        bytes.push_back(static_cast<float>(x & 255));
        bytes.push_back(static_cast<float>(x >> 8));
    };
    for (int64_t t = 0; t < n; t++) {
        const Part part = pages->coded(side, 0, t);
        const int64_t token = t % WEIR_PAGE_TOKENS;
        for (int64_t d = 0; d < dim; d++) {
            if (weir_kv_scheme_of(format) == WEIR_KV_PLAIN) {
                half(part.code(token, d));
                continue;
            }
            if (d % 32 == 0) half(part.scale(token, d).get());
            if (format == WEIR_KV_Q8_0)
                bytes.push_back(static_cast<float>(part.code(token, d)));
            else if (d % 32 < 16)
                bytes.push_back(
                    static_cast<float>(part.code(token, d) | part.code(token, d + 16) << 4)
                );
        }
    }
    return bytes;
}

} // namespace

/* F.dN.bytes and F.dN.rows of rowsN. */
void run_stored_rows(
    Codec *codec, const std::string &what, weir_kv_format format, const Names &tensors
)
{
    if (const std::string why = codec->refused(input_of(what), format); !why.empty())
        return codec->skip(what, why);
    codec->run(what, tensors, [&](Check *check) {
        const Rows x = codec->rows(input_of(what));
        const int64_t row_bytes = weir_kv_scheme_of(format) == WEIR_KV_PLAIN
                                      ? 2 * x.dim
                                      : x.dim / 32 * (2 + 4 * weir_kv_bits(format));
        const auto compare_bytes = [&](const std::string &how, CodedPages &pages) {
            for (const weir_kv_side side : sides)
                codec->compare(
                    check, how + side_of(side), what + ".bytes", { x.n, row_bytes },
                    stored_bytes(&pages, side, x.n, x.dim)
                );
        };
        each_compacted({ format, format }, x, x, compare_bytes);
        each_written({ format, format }, x, x, [&](const std::string &how, CodedPages &pages) {
            compare_bytes(how, pages);
            each_read(pages, x.n, [&](const std::string &read, const Floats &k, const Floats &v) {
                codec->compare(check, read + " K", what + ".rows", { x.n, x.dim }, k);
                codec->compare(check, read + " V", what + ".rows", { x.n, x.dim }, v);
            });
        });
    });
}

void run_row_effect(
    Codec *codec, const std::string &name, weir_kv_format format, const Names &tensors
)
{
    if (const std::string why = codec->refused("att.k", format); !why.empty())
        return codec->skip(name + ".effect", why);
    codec->run(name + ".effect", tensors, [&](Check *check) {
        const Attended att(*codec);
        each_written({ format, format }, att.k, att.v, [&](const std::string &, CodedPages &pages) {
            each_attended(
                pages, att.q.values, att.k.n - 1, 0,
                [&](const std::string &how, const Floats &out) {
                    check_effect(codec, check, how, name, att, out);
                }
            );
            each_read(
                pages, att.k.n,
                [&](const std::string &how, const Floats &k, const Floats &v) {
                    check_decoded(codec, check, how, name, att, k, v);
                }
            );
        });
    });
}

/* { FORMAT: bytes }: of x_i = sin(i). */
void run_sine_block(Codec *codec)
{
    const json_t *const fields = codec->fields("sine_block");
    codec->run("sine_block", {}, [&](Check *check) {
        const char *key;
        const json_t *list;
        json_object_foreach(const_cast<json_t *>(fields), key, list)
        {
            const weir_kv_format format = weir_kv_format_named(key);
            if (!json_is_array(list) || format == WEIR_KV_FORMAT_COUNT ||
                weir_kv_scheme_of(format) != WEIR_KV_BLOCK)
                continue;
            Floats want;
            for (size_t i = 0; i < json_array_size(list); i++)
                want.push_back(static_cast<float>(json_number_value(json_array_get(list, i))));
            const int64_t block = 2 + 4 * weir_kv_bits(format);
            Rows x = { {}, 1, static_cast<int64_t>(want.size()) / block * 32 };
            for (int64_t i = 0; i < x.dim; i++)
                x.values.push_back(static_cast<float>(std::sin(static_cast<double>(i))));
            each_written({ format, format }, x, x, [&](const std::string &how, CodedPages &pages) {
                for (const weir_kv_side side : sides)
                    check->close(
                        how + side_of(side) + " " + key, stored_bytes(&pages, side, 1, x.dim), want,
                        {}
                    );
            });
        }
    });
}

/* ---- fp8 ------------------------------------------------------------------------------------- */
namespace {

float highest_of(weir_kv_format format)
{
    float highest = 0;
    for (uint32_t code = 0; code < 128; code++) {
        const float value = weir_kv_value(format, code, 1, 0);
        if (std::isfinite(value)) highest = std::max(highest, value);
    }
    return highest;
}

/* `first` in front of each row. */
Rows with_column(const Rows &x, float first)
{
    Rows out = { {}, x.n, x.dim + 1 };
    for (int64_t t = 0; t < x.n; t++) {
        out.values.push_back(first);
        out.values.insert(
            out.values.end(), x.values.begin() + t * x.dim, x.values.begin() + (t + 1) * x.dim
        );
    }
    return out;
}

Floats without_column(const Floats &x, int64_t dim)
{
    Floats out;
    for (size_t i = 0; i < x.size(); i++)
        if (i % static_cast<size_t>(dim) != 0) out.push_back(x[i]);
    return out;
}

} // namespace

/* F.row.dN and F.tensor.dN: .bytes, .scale and .rows of rowsN. Pages have a scale per row; a column
 * that holds the largest value of all makes it the tensor's. */
void run_float8_rows(
    Codec *codec, const std::string &what, weir_kv_format format, const Names &tensors
)
{
    const bool whole = what.find(".tensor.") != std::string::npos;
    if (const std::string why = codec->refused(input_of(what), format, whole); !why.empty())
        return codec->skip(what, why);
    codec->run(what, tensors, [&](Check *check) {
        const Rows x = codec->rows(input_of(what));
        float largest = 0;
        for (const float value : x.values) largest = std::max(largest, std::fabs(value));
        const Rows written = whole ? with_column(x, largest) : x;
        each_written(
            { format, format }, written, written,
            [&](const std::string &how, CodedPages &pages) {
                for (const weir_kv_side side : sides) {
                    Floats codes, scales;
                    for (int64_t t = 0; t < x.n; t++) {
                        const Part part = pages.coded(side, 0, t);
                        scales.push_back(
                            weir_f32_from_bits(part.scale(t % WEIR_PAGE_TOKENS, 0).get())
                        );
                        for (int64_t d = whole; d < written.dim; d++)
                            codes.push_back(static_cast<float>(part.code(t % WEIR_PAGE_TOKENS, d)));
                    }
                    codec->compare(
                        check, how + side_of(side), what + ".bytes", { x.n, x.dim }, codes
                    );
                    if (whole) {
                        check->close(how + " scales", scales, Floats(scales.size(), scales[0]), {});
                        scales.resize(1);
                    }
                    codec->compare(
                        check, how + side_of(side), what + ".scale",
                        { static_cast<int64_t>(scales.size()) }, scales
                    );
                }
                each_read(
                    pages, x.n,
                    [&](const std::string &read, const Floats &k, const Floats &v) {
                        for (const Floats *rows : { &k, &v })
                            codec->compare(
                                check, read + (rows == &k ? " K" : " V"), what + ".rows",
                                { x.n, x.dim }, whole ? without_column(*rows, written.dim) : *rows
                            );
                    }
                );
            }
        );
    });
}

/* F.cases.bytes: codes of F.cases.x under a scale of 1. Rows that begin with the highest value have
 * this scale: the kernels code what is not above it. */
void run_float8_codes(
    Codec *codec, const std::string &what, weir_kv_format format, const Names &tensors
)
{
    codec->run(what, tensors, [&](Check *check) {
        const Shape shape = codec->file->tensors.need_shape(what + ".x", 1);
        const Floats x = codec->values(what + ".x", shape),
                     want = codec->values(what + ".bytes", shape);
        std::vector<uint8_t> codes(x.size());
        weir_kv_float8_encode(format, codes.data(), 1, x.data(), shape[0]);
        codec->compare(check, "codec", what + ".bytes", shape, Floats(codes.begin(), codes.end()));
        const float highest = highest_of(format);
        Rows rows = { {}, 0, 32 };
        Floats wanted;
        for (size_t i = 0; i < x.size(); i++) {
            if (!(std::fabs(x[i]) <= highest)) continue;
            if (rows.values.size() % 32 == 0) rows.values.push_back(highest);
            rows.values.push_back(x[i]);
            wanted.push_back(want[i]);
        }
        rows.n = static_cast<int64_t>(rows.values.size() + 31) / 32;
        rows.values.resize(static_cast<size_t>(rows.n * 32));
        if (rows.n == 0) return;
        each_written(
            { format, format }, rows, rows,
            [&](const std::string &how, CodedPages &pages) {
                for (const weir_kv_side side : sides) {
                    Floats got;
                    for (int64_t i = 0; got.size() < wanted.size(); i++)
                        if (i % 32 != 0)
                            got.push_back(static_cast<float>(
                                pages.coded(side, 0, i / 32).code(i / 32 % WEIR_PAGE_TOKENS, i % 32)
                            ));
                    check->close(how + side_of(side) + " " + what + ".bytes", got, wanted, {});
                }
            }
        );
    });
}

/* F.table: the value of every code, 0 where it has none; read from a page that holds the codes, and
 * coded back. */
void run_float8_table(
    Codec *codec, const std::string &what, weir_kv_format format, const Names &tensors
)
{
    codec->run(what, tensors, [&](Check *check) {
        enum { CODES = 256 };
        const auto has_value = [format](uint32_t code) {
            return std::isfinite(weir_kv_value(format, code, 1, 0));
        };
        CodedPages pages({ format, format }, 1, CODES, CODES, 1);
        for (const weir_kv_side side : sides) {
            const Part part = pages.coded(side, 0, 0);
            part.scale(0, 0).put(weir_f32_bits(1));
            for (uint32_t code = 0; code < CODES; code++)
                part.put_code(0, code, has_value(code) ? code : 0);
        }
        each_read(pages, 1, [&](const std::string &how, const Floats &k, const Floats &v) {
            codec->compare(check, how + " K", what, { CODES }, k);
            codec->compare(check, how + " V", what, { CODES }, v);
        });
        const Floats table = codec->values(what, { CODES });
        for (uint32_t code = 0; code < CODES; code++) {
            uint8_t back = 0;
            weir_kv_float8_encode(format, &back, 1, &table[code], 1);
            if (has_value(code) && back != code)
                check->fail(golden::format("code %u comes back as %d", code, back));
        }
    });
}

/* F.special: the codes that are NaN or infinite, and the largest value. */
void run_float8_special(Codec *codec, const std::string &name, weir_kv_format format)
{
    const json_t *const fields = codec->fields(name);
    codec->run(name, {}, [&](Check *check) {
        const auto listed = [fields](const char *key) {
            const json_t *const list = json_object_get(fields, key);
            std::vector<int32_t> codes;
            if (!json_is_array(list))
                throw Broken(std::string("the case has no list \"") + key + "\"");
            for (size_t i = 0; i < json_array_size(list); i++)
                codes.push_back(static_cast<int32_t>(json_integer_value(json_array_get(list, i))));
            return codes;
        };
        std::vector<int32_t> nan, infinite;
        for (int32_t code = 0; code < 256; code++) {
            const float value = weir_kv_value(format, static_cast<uint32_t>(code), 1, 0);
            if (std::isnan(value)) nan.push_back(code);
            if (std::isinf(value)) infinite.push_back(code);
        }
        check->equal("nan", nan, listed("nan"));
        check->equal("inf", infinite, listed("inf"));
        check->close(
            "largest", { highest_of(format) },
            { static_cast<float>(number_at(fields, "largest", NAN)) }, {}
        );
    });
}

} // namespace golden
