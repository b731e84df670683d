/* tests/golden/codec_turbo.cc - Turbo: rows rotated by H D and coded by a codebook. The reference
 * draws D, pages have their own (weir_kv_sign): rows multiplied by both have the same H D x, and
 * what is read, multiplied by both again, is the reference's row. Signs are exact. */
#include <cmath>

#include "kernels/abi/convert.h"
#include "kernels/ref/kv_codec.h"
#include "tests/golden/codec_golden.h"

namespace golden {
namespace {

const weir_kv_side sides[] = { WEIR_KV_K, WEIR_KV_V };

Floats signs(const Codec &codec, const std::string &tensor, int64_t dim)
{
    const Floats sign = codec.values(tensor, { dim });
    for (const float one : sign)
        if (one != 1 && one != -1) throw Broken(tensor + " has a value that is no sign");
    return sign;
}

/* Rows under the reference's signs to rows under those of pages, and back. */
Floats exchanged(Floats x, const Floats &sign, weir_kv_side side)
{
    for (size_t i = 0; i < x.size(); i++)
        x[i] *= sign[i % sign.size()] * weir_kv_sign(side, static_cast<int64_t>(i % sign.size()));
    return x;
}

/* H D x of each row. */
Floats rotated(Floats x, const Floats &sign)
{
    for (size_t at = 0; at < x.size(); at += sign.size()) {
        for (size_t i = 0; i < sign.size(); i++) x[at + i] *= sign[i];
        weir_kv_hadamard(x.data() + at, static_cast<int64_t>(sign.size()));
    }
    return x;
}

/* The same of one row, from the definition of H, for sums that cancel. */
std::vector<double> rotated_exactly(const Floats &x, const Floats &sign)
{
    std::vector<double> out(x.size());
    for (size_t i = 0; i < x.size(); i++) {
        for (size_t j = 0; j < x.size(); j++)
            out[i] += static_cast<double>(x[j] * sign[j]) *
                      (__builtin_popcountll(i & j) % 2 == 1 ? -1 : 1);
        out[i] /= std::sqrt(static_cast<double>(x.size()));
    }
    return out;
}

/* What a page holds of a side; dot: q . row in the rotated domain, q as rotated. */
struct Stored {
    Floats codes, scale, dot;
};

Stored stored(CodedPages *pages, weir_kv_side side, const Rows &x, const std::vector<double> &q)
{
    Stored out;
    const weir_kv_format format = pages->formats.k;
    for (int64_t t = 0; t < x.n; t++) {
        const Part part = pages->coded(side, 0, t);
        const int64_t token = t % WEIR_PAGE_TOKENS;
        const auto scale = static_cast<uint16_t>(part.scale(token, 0).get());
        double dot = 0;
        for (int64_t d = 0; d < x.dim; d++) {
            const uint32_t code = part.code(token, d);
            out.codes.push_back(static_cast<float>(code));
            dot +=
                q[static_cast<size_t>(d)] * static_cast<double>(weir_kv_value(format, code, 1, 0));
        }
        out.scale.push_back(scale);
        out.dot.push_back(static_cast<float>(dot * static_cast<double>(weir_f16_to_f32(scale))));
    }
    return out;
}

} // namespace

/* turboB.dN: .codes, .scale, .rows and .dot, of turbo.dN.x, .sign and .q. */
void run_turbo(Codec *codec, const std::string &what, weir_kv_format format, const Names &tensors)
{
    const std::string input = "turbo" + what.substr(what.rfind('.'));
    if (const std::string why = codec->refused(input + ".x", format); !why.empty())
        return codec->skip(what, why);
    codec->run(what, tensors, [&](Check *check) {
        const Rows x = codec->rows(input + ".x");
        const Floats sign = signs(*codec, input + ".sign", x.dim);
        const Rows k = { exchanged(x.values, sign, WEIR_KV_K), x.n, x.dim },
                   v = { exchanged(x.values, sign, WEIR_KV_V), x.n, x.dim };
        const int bits = weir_kv_bits(format);
        const std::vector<double> q = rotated_exactly(codec->values(input + ".q", { x.dim }), sign);
        each_written({ format, format }, k, v, [&](const std::string &how, CodedPages &pages) {
            for (const weir_kv_side side : sides) {
                const Stored got = stored(&pages, side, x, q);
                const std::string at = how + (side == WEIR_KV_K ? " K" : " V");
                codec->compare(
                    check, at, what + ".codes", { x.n, x.dim * bits / 8 },
                    bit_stream(got.codes, bits)
                );
                codec->compare(check, at, what + ".scale", { x.n }, got.scale);
                codec->compare(check, at, what + ".dot", { x.n }, got.dot);
            }
            each_read(
                pages, x.n,
                [&](const std::string &read, const Floats &read_k, const Floats &read_v) {
                    codec->compare(
                        check, read + " K", what + ".rows", { x.n, x.dim },
                        exchanged(read_k, sign, WEIR_KV_K)
                    );
                    codec->compare(
                        check, read + " V", what + ".rows", { x.n, x.dim },
                        exchanged(read_v, sign, WEIR_KV_V)
                    );
                }
            );
        });
    });
}

/* turbo.dN.rotated: H D x. The codebooks do not matter. */
void run_turbo_rotation(Codec *codec, const std::string &what, const Names &tensors)
{
    if (const std::string why = codec->refused(what + ".x", WEIR_KV_TURBO4); !why.empty())
        return codec->skip(what, why);
    codec->run(what, tensors, [&](Check *check) {
        const Rows x = codec->rows(what + ".x");
        codec->compare(
            check, "codec", what + ".rotated", { x.n, x.dim },
            rotated(x.values, signs(*codec, what + ".sign", x.dim))
        );
    });
}

void run_turbo_effect(
    Codec *codec, const std::string &name, weir_kv_format format, const Names &tensors
)
{
    if (const std::string why = codec->refused("att.k", format); !why.empty())
        return codec->skip(name + ".effect", why);
    codec->run(name + ".effect", tensors, [&](Check *check) {
        const Attended att(*codec);
        const Floats sign_k = signs(*codec, "turbo.att.sign_k", att.k.dim),
                     sign_v = signs(*codec, "turbo.att.sign_v", att.v.dim);
        const Rows k = { exchanged(att.k.values, sign_k, WEIR_KV_K), att.k.n, att.k.dim },
                   v = { exchanged(att.v.values, sign_v, WEIR_KV_V), att.v.n, att.v.dim };
        each_written({ format, format }, k, v, [&](const std::string &, CodedPages &pages) {
            each_attended(
                pages, exchanged(att.q.values, sign_k, WEIR_KV_K), k.n - 1, 0,
                [&](const std::string &how, const Floats &out) {
                    check_effect(codec, check, how, name, att, exchanged(out, sign_v, WEIR_KV_V));
                }
            );
            each_read(
                pages, k.n,
                [&](const std::string &how, const Floats &read_k, const Floats &read_v) {
                    check_decoded(
                        codec, check, how, name, att, exchanged(read_k, sign_k, WEIR_KV_K),
                        exchanged(read_v, sign_v, WEIR_KV_V)
                    );
                }
            );
        });
    });
}

/* { mse: { bits: error of the book on a standard normal } }, given with 6 decimals. */
void run_metadata(Codec *codec)
{
    const json_t *const errors = json_object_get(codec->fields("lloyd_max"), "mse");
    const char *bits;
    const json_t *want;
    if (json_object_size(errors) == 0)
        return codec->run("lloyd_max", {}, [](Check *check) {
            check->fail("the case has no errors of books (\"mse\")");
        });
    json_object_foreach(const_cast<json_t *>(errors), bits, want)
    {
        const weir_kv_format format = weir_kv_format_named((std::string("turbo") + bits).c_str());
        const std::string label = std::string("lloyd_max.") + bits;
        if (format == WEIR_KV_FORMAT_COUNT || weir_kv_scheme_of(format) != WEIR_KV_TURBO) {
            codec->skip(label, "the engine has no codebook of that many bits");
            continue;
        }
        codec->run(label, {}, [&](Check *check) {
            const double steps_per_unit = 20000, ends = 9;
            double sum = 0;
            for (double z = -ends; z <= ends; z += 1 / steps_per_unit) {
                double least = INFINITY;
                for (uint32_t code = 0; code < 1u << weir_kv_bits(format); code++)
                    least = std::min(
                        least, std::fabs(z - static_cast<double>(weir_kv_value(format, code, 1, 0)))
                    );
                sum += least * least * std::exp(-z * z / 2);
            }
            const double error = sum / steps_per_unit / std::sqrt(2 * M_PI);
            check->close(
                "mse", { static_cast<float>(error) },
                { static_cast<float>(json_number_value(want)) }, { 0, 6e-7, 0 }
            );
        });
    }
}

} // namespace golden
