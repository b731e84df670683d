/* tests/golden/codec_golden.cc - run_codec: which case each tensor of index.json belongs to, and
 * what all cases share. */
#include "tests/golden/codec_golden.h"

#include <strings.h>

#include <cmath>

namespace golden {

/* ---- the file -------------------------------------------------------------------------------- */

const json_t *Codec::fields(const std::string &name) const
{
    return json_object_get(json_object_get(file->entry, "cases"), name.c_str());
}

Shape Codec::shape(const std::string &tensor) const
{
    const json_t *const dims = json_object_get(file->fields(tensor), "shape");
    Shape out;
    for (size_t i = 0; i < json_array_size(dims); i++)
        out.push_back(json_integer_value(json_array_get(dims, i)));
    return out;
}

Floats Codec::values(const std::string &tensor, const Shape &want) const
{
    const Floats out = file->tensors.need_floats(tensor, want);
    if (!is_listed(tensor)) throw Broken("index.json does not list " + tensor);
    const std::string dtype = string_at(file->fields(tensor), "dtype"),
                      got = file->tensors.dtype_name(tensor);
    if (strcasecmp(dtype.c_str(), got.c_str()) != 0 || shape(tensor) != want)
        throw Broken("index.json states another type or shape of " + tensor + " than its file");
    return out;
}

Rows Codec::rows(const std::string &tensor) const
{
    const Shape shape = file->tensors.need_shape(tensor, 2);
    return { values(tensor, shape), shape[0], shape[1] };
}

std::string Codec::refused(const std::string &tensor, weir_kv_format format, int64_t more) const
{
    const Shape stated = shape(tensor);
    if (stated.size() != 2 || stated != file->tensors.shape(tensor) || stated[1] < 1) return "";
    const char *const k = weir_kv_format_reject(format, WEIR_KV_K, stated[1] + more),
                      *const v = weir_kv_format_reject(format, WEIR_KV_V, stated[1] + more);
    if (k == nullptr && v == nullptr) return "";
    return golden::format(
        "%s %s, not %lld", weir_kv_format_name(format), k != nullptr ? k : v,
        static_cast<long long>(stated[1] + more)
    );
}

void Codec::compare(
    Check *check, const std::string &how, const std::string &tensor, const Shape &want,
    const Floats &got
)
{
    compared_.insert(tensor);
    check->close(how + " " + tensor, got, values(tensor, want), file->tolerance(tensor));
}

void Codec::run(
    const std::string &name, const Names &tensors, const std::function<void(Check *)> &body
)
{
    file->counts->run(file->label(name), [&](Check *check) {
        body(check);
        for (const std::string &tensor : tensors)
            if (compared_.count(tensor) == 0) check->fail(tensor + " was compared with nothing");
    });
}

void Codec::skip(const std::string &name, const std::string &why)
{
    if (file->counts->wants(file->label(name))) file->counts->skip(file->label(name), why);
}

/* ---- effect on attention --------------------------------------------------------------------- */

Attended::Attended(const Codec &codec)
    : q(codec.rows("att.q")), k(codec.rows("att.k")), v(codec.rows("att.v"))
{
    if (q.dim != k.dim || k.n != v.n) throw Broken("att.q, att.k and att.v do not fit");
}

static double norm_of(const Floats &x, const Floats &minus)
{
    double squares = 0;
    for (size_t i = 0; i < x.size(); i++)
        squares += std::pow(static_cast<double>(x[i]) - static_cast<double>(minus[i]), 2);
    return std::sqrt(squares);
}

/* The cases give results with 4 digits. NAN: it does not give this one. */
static const double four_digits = 6e-4;

static double result_of(const Codec &codec, const std::string &name, const char *key)
{
    const json_t *const fields = codec.fields(name + ".effect"), *const result =
                                                                     json_object_get(fields, key);
    if (fields != nullptr && !json_is_object(fields)) throw Broken("the case is no object");
    if (result != nullptr && !json_is_number(result))
        throw Broken(std::string(key) + " of the case is no number");
    return number_at(fields, key, NAN);
}

void check_effect(
    Codec *codec, Check *check, const std::string &how, const std::string &name,
    const Attended &att, const Floats &out
)
{
    const Shape shape = { att.q.n, att.v.dim };
    const std::string tensor = name + ".att_out";
    codec->compare(check, how, tensor, shape, out);
    const double want = result_of(*codec, name, "relative_output_error");
    if (std::isnan(want) || check->failed()) return;
    const Floats full = codec->values("att.out", shape);
    const double norm = norm_of(full, Floats(full.size())),
                 slack = codec->file->tolerance(tensor).atol *
                         std::sqrt(static_cast<double>(out.size()));
    check->close(
        how + " relative_output_error", { static_cast<float>(norm_of(out, full) / norm) },
        { static_cast<float>(want) }, { four_digits, slack / norm, 0 }
    );
}

void check_decoded(
    Codec *codec, Check *check, const std::string &how, const std::string &name,
    const Attended &att, const Floats &k, const Floats &v
)
{
    const auto close = [&](const char *key, const Floats &got, const Floats &from) {
        const double want = result_of(*codec, name, key);
        const double mean = std::pow(norm_of(got, from), 2) / static_cast<double>(from.size());
        if (!std::isnan(want))
            check->close(
                how + " " + key, { static_cast<float>(mean) }, { static_cast<float>(want) },
                { four_digits, 0, 0 }
            );
    };
    close("key_mse", k, att.k.values);
    close("value_mse", v, att.v.values);
}

Floats bit_stream(const Floats &codes, int bits)
{
    std::vector<uint8_t> bytes((codes.size() * static_cast<size_t>(bits) + 7) / 8);
    for (size_t i = 0; i < codes.size(); i++)
        for (size_t b = 0; b < static_cast<size_t>(bits); b++) {
            const size_t at = i * static_cast<size_t>(bits) + b;
            bytes[at / 8] = static_cast<uint8_t>(
                bytes[at / 8] | (static_cast<uint32_t>(codes[i]) >> b & 1) << (at % 8)
            );
        }
    return Floats(bytes.begin(), bytes.end());
}

/* ---- which case is what ---------------------------------------------------------------------- */

namespace {

Names split(const std::string &name)
{
    Names parts;
    size_t at = 0;
    for (size_t dot; (dot = name.find('.', at)) != std::string::npos; at = dot + 1)
        parts.push_back(name.substr(at, dot - at));
    parts.push_back(name.substr(at));
    return parts;
}

/* "turbo3.d64.codes" belongs to turbo3.d64, "f16.att_out" to f16.effect, all of residual.* and
 * qjl.* together. */
std::string case_of(const std::string &tensor)
{
    const Names parts = split(tensor);
    const std::string first = parts.front(), last = parts.back();
    if (first == "residual" || first == "qjl") return first;
    if (parts.size() == 2 && last == "att_out") return first + ".effect";
    if (parts.size() == 2 && last == "table") return tensor;
    return parts.size() == 1 ? tensor : tensor.substr(0, tensor.size() - last.size() - 1);
}

void run_effect(Codec *codec, const std::string &name, weir_kv_format format, const Names &tensors)
{
    switch (weir_kv_scheme_of(format)) {
    case WEIR_KV_PLAIN:
    case WEIR_KV_BLOCK:
    case WEIR_KV_FLOAT8: return run_row_effect(codec, name, format, tensors);
    case WEIR_KV_CHANNEL:
    case WEIR_KV_KIVI: return run_group_effect(codec, name, format, tensors);
    case WEIR_KV_TURBO: return run_turbo_effect(codec, name, format, tensors);
    }
}

/* False when the format has no such case. */
bool run_format(
    Codec *codec, const std::string &name, const Names &parts, weir_kv_format format,
    const Names &tensors
)
{
    const weir_kv_scheme scheme = weir_kv_scheme_of(format);
    const std::string last = parts.back();
    const size_t n = parts.size();
    if (n == 2 && last == "effect") {
        run_effect(codec, parts.front(), format, tensors);
    } else if (scheme == WEIR_KV_PLAIN || scheme == WEIR_KV_BLOCK) {
        if (n != 2) return false;
        run_stored_rows(codec, name, format, tensors);
    } else if (scheme == WEIR_KV_FLOAT8) {
        if (n == 3 && (parts[1] == "row" || parts[1] == "tensor"))
            run_float8_rows(codec, name, format, tensors);
        else if (n == 2 && last == "cases")
            run_float8_codes(codec, name, format, tensors);
        else if (n == 2 && last == "table")
            run_float8_table(codec, name, format, tensors);
        else if (n == 2 && last == "special")
            run_float8_special(codec, name, format);
        else
            return false;
    } else if (scheme == WEIR_KV_TURBO) {
        if (n != 2) return false;
        run_turbo(codec, name, format, tensors);
    } else {
        if (scheme == WEIR_KV_CHANNEL ? n != 1 : n != 2 || (last != "k" && last != "v"))
            return false;
        run_groups(codec, name, format, tensors);
    }
    return true;
}

/* Nothing quantised. */
void run_plain_attention(Codec *codec, const Names &tensors)
{
    if (const std::string why = codec->refused("att.k", WEIR_KV_F32); !why.empty())
        return codec->skip("att", why);
    codec->run("att", tensors, [&](Check *check) {
        const Attended att(*codec);
        each_written(
            { WEIR_KV_F32, WEIR_KV_F32 }, att.k, att.v,
            [&](const std::string &, CodedPages &pages) {
                each_attended(
                    pages, att.q.values, att.k.n - 1, 0,
                    [&](const std::string &how, const Floats &out) {
                        codec->compare(check, how, "att.out", { att.q.n, att.v.dim }, out);
                    }
                );
            }
        );
    });
}

void run_case(Codec *codec, const std::string &name, const Names &tensors)
{
    const Names parts = split(name);
    const std::string first = parts.front();
    const weir_kv_format format = weir_kv_format_named(first.c_str());
    if (name == "att") return run_plain_attention(codec, tensors);
    if (name == "residual") return run_residual(codec, tensors);
    if (name == "sine_block") return run_sine_block(codec);
    if (name == "lloyd_max") return run_metadata(codec);
    if (first == "qjl")
        return codec->skip(name, "the engine keeps no sketch of what a book leaves (QJL)");
    if (first == "turbo" && parts.size() == 2) return run_turbo_rotation(codec, name, tensors);
    if (format == WEIR_KV_FORMAT_COUNT)
        return codec->skip(name, "the engine has no KV format of this name");
    if (!run_format(codec, name, parts, format, tensors))
        codec->skip(name, "a kind of values that is not known");
}

} // namespace

void run_codec(KvFile *file)
{
    Codec codec(file);
    Names order;
    std::map<std::string, Names> cases; /* and the tensors that each has to compare */
    const auto add = [&](const std::string &name) {
        if (cases.count(name) == 0) order.push_back(name);
        return &cases[name];
    };
    const char *key;
    const json_t *fields;
    json_object_foreach(json_object_get(const_cast<json_t *>(file->entry), "tensors"), key, fields)
    {
        if (string_at(fields, "tol") != "input") add(case_of(key))->push_back(key);
    }
    json_object_foreach(json_object_get(const_cast<json_t *>(file->entry), "cases"), key, fields)
        add(key);
    for (const std::string &name : order) run_case(&codec, name, cases[name]);
}

} // namespace golden
