/* tests/golden/codec_channels.cc - formats that code values against their neighbours: int8 per
 * channel, and KIVI with its tail. Pages code the f16 rows that they kept while open, in groups of
 * 32 or 64 tokens; the reference codes f32 rows, int8 over all tokens (tests/golden/README.md). */
#include <algorithm>
#include <cmath>

#include "kernels/abi/convert.h"
#include "kernels/ref/kv_codec.h"
#include "tests/golden/codec_golden.h"

namespace golden {
namespace {

float through_f16(float x) { return weir_f16_to_f32(weir_f16_from_f32(x)); }

/* Rows in groups of `group` tokens of a channel or dims of a token. */
struct Grouped {
    int64_t group;
    bool along_tokens;
    Rows codes;
    Floats scale, min,
        decoded; /* scale and min: a value per group, tokens before dims; bits of f16 */

    size_t group_of(int64_t t, int64_t d) const
    {
        return static_cast<size_t>(
            along_tokens ? t / group * codes.dim + d : t * (codes.dim / group) + d / group
        );
    }
};

Grouped grouped(weir_kv_format format, const Rows &x, int64_t group, bool along_tokens)
{
    const int64_t length = along_tokens ? x.n : x.dim, step = along_tokens ? x.dim : 1;
    if (group < 1 || length % group != 0)
        throw Broken(
            "rows of " + std::string(weir_kv_format_name(format)) + " do not divide into groups"
        );
    Grouped out = { group, along_tokens, { Floats(x.values.size()), x.n, x.dim },
                    {},    {},           Floats(x.values.size()) };
    for (int64_t t = 0; t < x.n; t += along_tokens ? group : 1)
        for (int64_t d = 0; d < x.dim; d += along_tokens ? 1 : group) {
            Floats values;
            std::vector<uint8_t> codes(static_cast<size_t>(group));
            uint16_t scale, min;
            for (int64_t i = 0; i < group; i++)
                values.push_back(x.values[static_cast<size_t>(t * x.dim + d + i * step)]);
            weir_kv_affine_encode(
                weir_kv_bits(format), codes.data(), &scale, &min, values.data(), group
            );
            out.scale.push_back(scale);
            out.min.push_back(min);
            for (int64_t i = 0; i < group; i++) {
                const auto at = static_cast<size_t>(t * x.dim + d + i * step);
                const uint8_t code = codes[static_cast<size_t>(i)];
                out.codes.values[at] = code;
                out.decoded[at] =
                    weir_kv_value(format, code, weir_f16_to_f32(scale), weir_f16_to_f32(min));
            }
        }
    return out;
}

/* As the reference groups a side: int8 over all tokens. */
Grouped grouped_side(weir_kv_format format, const Rows &x, weir_kv_side side)
{
    if (weir_kv_scheme_of(format) == WEIR_KV_CHANNEL) return grouped(format, x, x.n, true);
    return grouped(format, x, WEIR_KV_GROUP, side == WEIR_KV_K);
}

/* Full pages as the kernels close them are the groups of their f16 rows. */
void check_closed(
    Check *check, const std::string &what, weir_kv_format format, weir_kv_side side, const Rows &x,
    const Tolerance &tolerance
)
{
    const bool channel = weir_kv_scheme_of(format) == WEIR_KV_CHANNEL;
    const int64_t n = x.n / WEIR_PAGE_TOKENS * WEIR_PAGE_TOKENS;
    if (n == 0) return;
    Rows halves = { Floats(x.values.begin(), x.values.begin() + n * x.dim), n, x.dim };
    for (float &value : halves.values) value = through_f16(value);
    const Grouped want = grouped(
        format, halves, channel ? WEIR_PAGE_TOKENS : WEIR_KV_GROUP, channel || side == WEIR_KV_K
    );
    const bool key = side == WEIR_KV_K;
    const Rows none = { Floats(static_cast<size_t>(x.n)), x.n, 1 };
    const weir_kv_pair formats = { key ? format : WEIR_KV_F32, key ? WEIR_KV_F32 : format };
    each_written(
        formats, key ? x : none, key ? none : x,
        [&](const std::string &how, CodedPages &pages) {
            Floats codes, scale, min, want_scale, want_min;
            for (int64_t t = 0; t < n; t++)
                for (int64_t d = 0; d < x.dim; d++) {
                    const Part part = pages.coded(side, 0, t);
                    const int64_t token = t % WEIR_PAGE_TOKENS;
                    codes.push_back(static_cast<float>(part.code(token, d)));
                    scale.push_back(static_cast<float>(part.scale(token, d).get()));
                    min.push_back(static_cast<float>(part.min(token, d).get()));
                    want_scale.push_back(want.scale[want.group_of(t, d)]);
                    want_min.push_back(want.min[want.group_of(t, d)]);
                }
            check->close(how + " " + what + " codes of f16 rows", codes, want.codes.values, {});
            check->close(how + " " + what + " scales of f16 rows", scale, want_scale, {});
            check->close(how + " " + what + " minima of f16 rows", min, want_min, {});
            each_read(pages, n, [&](const std::string &read, const Floats &k, const Floats &v) {
                check->close(
                    read + " " + what + " closed rows", key ? k : v, want.decoded, tolerance
                );
            });
        }
    );
}

/* ---- pages laid by hand ---------------------------------------------------------------------- */

/* One side of what attention reads: coded rows, then rows that each head has of its own. f32: the
 * coded rows as decoded. */
struct Side {
    weir_kv_format format;
    const Grouped *coded;
    Floats wide; /* [heads, n_wide, dim] */
};

struct Laid {
    Side k, v;
    int64_t n_heads, first, n; /* rows lie at positions first .. first + n - 1 */
};

void lay(CodedPages *pages, weir_kv_side which, const Side &side, const Laid &laid)
{
    const int64_t dim = side.coded->codes.dim, n_coded = side.coded->codes.n,
                  n_wide = laid.n - n_coded;
    const bool plain = side.format == WEIR_KV_F32;
    for (int64_t head = 0; head < laid.n_heads; head++)
        for (int64_t t = 0; t < laid.n; t++) {
            const int64_t position = laid.first + t, token = position % WEIR_PAGE_TOKENS;
            const bool coded = t < n_coded;
            const Part part = coded || plain ? pages->coded(which, head, position)
                                             : pages->open(which, head, position);
            for (int64_t d = 0; d < dim; d++) {
                const auto at = static_cast<size_t>(
                    coded ? t * dim + d : (head * n_wide + t - n_coded) * dim + d
                );
                if (plain) {
                    part.put_code(
                        token, d, weir_f32_bits(coded ? side.coded->decoded[at] : side.wide[at])
                    );
                } else if (coded) {
                    const size_t group = side.coded->group_of(t, d);
                    part.put_code(token, d, static_cast<uint32_t>(side.coded->codes.values[at]));
                    part.scale(token, d).put(static_cast<uint32_t>(side.coded->scale[group]));
                    part.min(token, d).put(static_cast<uint32_t>(side.coded->min[group]));
                } else {
                    part.put_code(token, d, weir_f16_from_f32(side.wide[at]));
                }
            }
        }
}

/* The queries are at the last position; what lies before the first row is outside the window. */
void attend(
    const Laid &laid, const Floats &q,
    const std::function<void(const std::string &how, const Floats &out)> &then
)
{
    const int64_t end = laid.first + laid.n;
    CodedPages pages(
        { laid.k.format, laid.v.format }, laid.n_heads, laid.k.coded->codes.dim,
        laid.v.coded->codes.dim, end
    );
    lay(&pages, WEIR_KV_K, laid.k, laid);
    lay(&pages, WEIR_KV_V, laid.v, laid);
    each_attended(pages, q, end - 1, laid.first > 0 ? laid.n : 0, then);
}

/* Where rows begin if `n` of them end with a page. */
int64_t first_before_page(int64_t n)
{
    return (WEIR_PAGE_TOKENS - n % WEIR_PAGE_TOKENS) % WEIR_PAGE_TOKENS;
}

/* Coded rows alone. A query reads its own page wide, so it stands in one more page, on a row that
 * counts for nothing: the key is the negated query, as large as f16 allows, and each head
 * has its own. */
void attend_coded(
    weir_kv_format format, const Rows &q, const Grouped &k, const Grouped &v,
    const std::function<void(const std::string &how, const Floats &out)> &then
)
{
    Floats negated = q.values;
    for (int64_t head = 0; head < q.n; head++) {
        const auto from = negated.begin() + head * q.dim;
        float largest = 0;
        std::for_each(from, from + q.dim, [&](float value) {
            largest = std::max(largest, std::fabs(value));
        });
        if (!(largest > 0))
            throw Broken("a query of zeros reads coded rows alone in no engine that keeps its own "
                         "page wide");
        std::for_each(from, from + q.dim, [&](float &value) { value *= -60000.0f / largest; });
    }
    const int64_t n = k.codes.n;
    attend(
        { { format, &k, negated },
          { format, &v, Floats(static_cast<size_t>(q.n * v.codes.dim)) },
          q.n,
          first_before_page(n),
          n + 1 },
        q.values, then
    );
}

} // namespace

/* int8 or kiviB.k, kiviB.v: .codes, .scale, .min, .rows and .packed, of int8.x, att.k or att.v. */
void run_groups(Codec *codec, const std::string &what, weir_kv_format format, const Names &tensors)
{
    const bool channel = weir_kv_scheme_of(format) == WEIR_KV_CHANNEL;
    const std::string input = channel ? what + ".x" : "att" + what.substr(what.rfind('.'));
    const weir_kv_side side = !channel && what.back() == 'v' ? WEIR_KV_V : WEIR_KV_K;
    if (const std::string why = codec->refused(input, format); !why.empty())
        return codec->skip(what, why);
    codec->run(what, tensors, [&](Check *check) {
        const Rows x = codec->rows(input);
        const Grouped got = grouped_side(format, x, side);
        const int64_t n_groups = x.n * x.dim / got.group;
        const Shape groups = channel            ? Shape{ x.dim }
                             : got.along_tokens ? Shape{ x.n / got.group, x.dim }
                                                : Shape{ x.n, x.dim / got.group };
        codec->compare(check, "codec", what + ".codes", { x.n, x.dim }, got.codes.values);
        codec->compare(check, "codec", what + ".scale", groups, got.scale);
        codec->compare(check, "codec", what + ".min", groups, got.min);
        codec->compare(check, "codec", what + ".rows", { x.n, x.dim }, got.decoded);
        if (codec->is_listed(what + ".packed")) {
            std::vector<Floats> by_group(static_cast<size_t>(n_groups));
            Floats in_order;
            for (int64_t t = 0; t < x.n; t++)
                for (int64_t d = 0; d < x.dim; d++)
                    by_group[got.group_of(t, d)].push_back(
                        got.codes.values[static_cast<size_t>(t * x.dim + d)]
                    );
            for (const Floats &group : by_group)
                in_order.insert(in_order.end(), group.begin(), group.end());
            codec->compare(
                check, "codec", what + ".packed",
                { n_groups, got.group * weir_kv_bits(format) / 8 },
                bit_stream(in_order, weir_kv_bits(format))
            );
        }
        const Tolerance tolerance = codec->file->tolerance(what + ".rows");
        check_closed(check, what, format, side, x, tolerance);
        if (channel) check_closed(check, what, format, WEIR_KV_V, x, tolerance);
    });
}

void run_group_effect(
    Codec *codec, const std::string &name, weir_kv_format format, const Names &tensors
)
{
    if (const std::string why = codec->refused("att.k", format); !why.empty())
        return codec->skip(name + ".effect", why);
    codec->run(name + ".effect", tensors, [&](Check *check) {
        const Attended att(*codec);
        const Grouped k = grouped_side(format, att.k, WEIR_KV_K),
                      v = grouped_side(format, att.v, WEIR_KV_V);
        check_decoded(codec, check, "codec", name, att, k.decoded, v.decoded);
        attend_coded(format, att.q, k, v, [&](const std::string &how, const Floats &out) {
            check_effect(codec, check, how, name, att, out);
        });
    });
}

/* ---- KIVI's tail ----------------------------------------------------------------------------- */
namespace {

/* How many rows of K and V are coded when n are there: the case's own table, else the rule for R
 * wide rows. */
struct Cut {
    int64_t k, v;
};

Cut cut_of(const json_t *fields, int64_t n)
{
    const json_t *const table = json_object_get(fields, "rows");
    const auto whole = [](double x, const char *what) {
        if (!(x >= 0 && x < static_cast<double>(INT32_MAX)))
            throw Broken(std::string("residual: ") + what + " is no number of rows");
        return static_cast<int64_t>(x);
    };
    for (size_t i = 0; i < json_array_size(table); i++) {
        const json_t *const row = json_array_get(table, i);
        const auto column = [row](size_t c) { return json_number_value(json_array_get(row, c)); };
        if (json_array_size(row) == 5 && column(0) == static_cast<double>(n))
            return { whole(column(1), "K quantised"), whole(column(3), "V quantised") };
    }
    const int64_t wide = whole(number_at(fields, "R", NAN), "R");
    if (wide == 0) throw Broken("residual: R is 0");
    return { n / wide * wide, std::max<int64_t>(0, n - wide) };
}

/* The first n_coded rows as the reference groups them, and the rest. */
struct Tailed {
    Grouped coded;
    Floats wide;
};

Tailed tailed(weir_kv_format format, const Rows &x, int64_t n_coded, weir_kv_side side)
{
    if (n_coded > x.n) throw Broken("residual: more rows are coded than there are");
    const auto end = x.values.begin() + n_coded * x.dim;
    Tailed out = { grouped_side(format, { Floats(x.values.begin(), end), n_coded, x.dim }, side),
                   Floats(end, x.values.end()) };
    for (float &value : out.wide) value = through_f16(value);
    return out;
}

/* Both sides as f32; then each in pages of its format, where one page holds all that is wide. The
 * other side stays f32: the reference cuts K and V at different rows, pages cut both at the
 * same. */
void check_tail(
    Codec *codec, Check *check, const std::string &tensor, weir_kv_format format, const Rows &q,
    const Tailed &k, const Tailed &v
)
{
    const int64_t n = k.coded.codes.n + static_cast<int64_t>(k.wide.size()) / k.coded.codes.dim;
    const auto compare = [&](const std::string &which, weir_kv_format k_format,
                             weir_kv_format v_format, int64_t first) {
        attend(
            { { k_format, &k.coded, k.wide }, { v_format, &v.coded, v.wide }, 1, first, n },
            q.values,
            [&](const std::string &how, const Floats &out) {
                codec->compare(check, how + " " + which, tensor, { q.n, v.coded.codes.dim }, out);
            }
        );
    };
    const auto one_page = [n](const Tailed &side) {
        return n - side.coded.codes.n >= 1 && n - side.coded.codes.n <= WEIR_PAGE_TOKENS;
    };
    compare("f32", WEIR_KV_F32, WEIR_KV_F32, 0);
    if (one_page(k)) compare("K", format, WEIR_KV_F32, first_before_page(k.coded.codes.n));
    if (one_page(v)) compare("V", WEIR_KV_F32, format, first_before_page(v.coded.codes.n));
}

} // namespace

/* residual.FORMAT.out: att.q over residual.k and residual.v, a part coded and the rest as f16. */
void run_residual(Codec *codec, const Names &tensors)
{
    const json_t *const fields = codec->fields("residual");
    if (const std::string why = codec->refused("residual.k", WEIR_KV_KIVI4); !why.empty())
        return codec->skip("residual", why);
    codec->run("residual", tensors, [&](Check *check) {
        const Rows q = codec->rows("att.q"), k = codec->rows("residual.k"),
                   v = codec->rows("residual.v");
        if (k.dim != q.dim || v.n != k.n)
            throw Broken("att.q, residual.k and residual.v do not fit");
        if (number_at(fields, "G", WEIR_KV_GROUP) != WEIR_KV_GROUP)
            throw Broken("residual: the engine has groups of 32 only");
        const Cut cut = cut_of(fields, k.n);
        for (const std::string &tensor : tensors) {
            const size_t from = std::string("residual.").size(), end = tensor.rfind('.');
            const std::string name =
                end != std::string::npos && end > from ? tensor.substr(from, end - from) : "";
            const weir_kv_format format = weir_kv_format_named(name.c_str());
            if (format == WEIR_KV_FORMAT_COUNT || weir_kv_scheme_of(format) != WEIR_KV_KIVI)
                throw Broken(tensor + " is of no KIVI format");
            check_tail(
                codec, check, tensor, format, q, tailed(format, k, cut.k, WEIR_KV_K),
                tailed(format, v, cut.v, WEIR_KV_V)
            );
        }
    });
    if (json_is_array(json_object_get(fields, "rows")))
        codec->skip(
            "residual.rows", "how many rows are coded when: the engine seals pages of 64 "
                             "rows instead (docs/decisions/0008)"
        );
}

} // namespace golden
