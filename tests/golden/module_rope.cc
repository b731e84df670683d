/* tests/golden/module_rope.cc - rotary positions: rotation (G3), equal positions of text (G4),
 * frequencies after scaling (G3, G19, G21). */
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "engine/model/arch.h"
#include "engine/model/rope.h"
#include "tests/golden/kernel_rows.h"
#include "tests/golden/module_golden.h"

namespace golden {
namespace {

using Json = std::unique_ptr<json_t, decltype(&json_decref)>;

/* A checkpoint that is nothing but RoPE parameters: the engine reads scaling from files only. */
class RopeCheckpoint {
  public:
    explicit RopeCheckpoint(const json_t *parameters)
    {
        path_ = (std::filesystem::temp_directory_path() / "weir-golden-XXXXXX").string();
        if (mkdtemp(&path_[0]) == nullptr) throw Broken("cannot make " + path_);
        const Json config(
            json_pack(
                "{s:s, s:O}", "model_type", "llama", "rope_parameters",
                const_cast<json_t *>(parameters)
            ),
            json_decref
        );
        if (json_dump_file(config.get(), (path_ + "/config.json").c_str(), 0) != 0)
            throw Broken("cannot write " + path_ + "/config.json");
        const std::string header =
            "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
        const uint64_t length = header.size();
        std::ofstream out(path_ + "/model.safetensors", std::ios::binary);
        out.write(reinterpret_cast<const char *>(&length), sizeof length);
        out << header << std::string(4, '\0');
    }
    ~RopeCheckpoint()
    {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    RopeCheckpoint(const RopeCheckpoint &) = delete;
    RopeCheckpoint &operator=(const RopeCheckpoint &) = delete;
    const std::string &path() const { return path_; }

  private:
    std::string path_;
};

} // namespace

Frequencies resolve_rope(const json_t *parameters, int64_t rotary_dim, double theta)
{
    if (rotary_dim < 2 || rotary_dim > 4096 || rotary_dim % 2 != 0 || !(theta > 0))
        throw Broken("RoPE width or base is out of range");
    const RopeCheckpoint checkpoint(parameters);
    weir_tensor_directory *directory = nullptr;
    weir_arch_set *set = nullptr;
    const weir_arch *arch = nullptr;
    weir_error error = {};
    weir_shape shape = {};
    Frequencies out;
    shape.rotary_dim = shape.head_dim = rotary_dim;
    shape.rope_theta = theta;
    shape.context =
        static_cast<int64_t>(number_at(parameters, "original_max_position_embeddings", 4096));
    out.values.resize(static_cast<size_t>(rotary_dim / 2));
    weir_status status = weir_arch_set_open(&set, nullptr, nullptr, &error);
    if (status == WEIR_OK)
        status = weir_tensor_directory_open(&directory, checkpoint.path().c_str(), &error);
    if (status == WEIR_OK) status = weir_arch_match(&arch, set, directory, &error);
    if (status == WEIR_OK)
        status = weir_rope_resolve(
            out.values.data(), &out.magnitude, &shape, arch, directory, nullptr, &error
        );
    weir_tensor_directory_close(directory);
    weir_arch_set_close(set);
    if (status != WEIR_OK) throw Broken(error.text);
    return out;
}

namespace {

Frequencies plain(int64_t rotary_dim, double theta)
{
    const Json none(json_pack("{s:s}", "rope_type", "default"), json_decref);
    return resolve_rope(none.get(), rotary_dim, theta);
}

/* x [T, heads, width] rotated by the positions, first 2 * |frequencies| values of each head. */
void rotate(
    Row *row, std::vector<float> *x, const std::vector<int64_t> &shape,
    const std::vector<int32_t> &positions, const std::vector<float> &frequencies,
    const std::function<void()> &then
)
{
    const weir_rope_args args = { x->data(),
                                  positions.data(),
                                  frequencies.data(),
                                  shape[0],
                                  shape[1],
                                  2 * static_cast<int64_t>(frequencies.size()),
                                  shape[1] * shape[2],
                                  shape[2],
                                  1.0f,
                                  WEIR_ROPE_HALF_SPLIT,
                                  0.0f,
                                  0 };
    if (row->run(&args)) then();
}

/* cos and sin of every position, as the kernel makes of the pair (1, 0): [T, 2, n]. */
std::vector<float> unit_pairs(size_t n_rows, size_t n)
{
    std::vector<float> x(n_rows * 2 * n, 0.0f);
    for (size_t t = 0; t < n_rows; t++)
        for (size_t i = 0; i < n; i++) x[t * 2 * n + i] = 1;
    return x;
}

std::vector<float> half_of(const std::vector<float> &pairs, size_t n, size_t which)
{
    std::vector<float> out;
    for (size_t t = 0; t * 2 * n < pairs.size(); t++)
        out.insert(
            out.end(), pairs.begin() + static_cast<ptrdiff_t>((2 * t + which) * n),
            pairs.begin() + static_cast<ptrdiff_t>((2 * t + which + 1) * n)
        );
    return out;
}

/* "rtol R atol A for positions <= P, atol B for Q": rows past P have the wider tolerance. */
void compare_rows(
    Reference *values, Check *check, const std::string &name, const std::vector<float> &got,
    const std::vector<int32_t> &positions, const std::string &how
)
{
    const std::string text = values->tolerance_text(name);
    const size_t comma = text.find(',');
    double limit = INT32_MAX;
    const Tolerance near = Tolerance::parse(text.substr(0, comma));
    Tolerance far = comma == std::string::npos ? near : Tolerance::parse(text.substr(comma));
    number_after(text, "positions <= ", &limit);
    far.rtol = near.rtol;
    const std::vector<float> want = values->tensors.need_floats(name);
    values->mark(name);
    if (got.size() != want.size()) return check->fail(name + " has another size");
    const size_t width = want.size() / positions.size();
    for (size_t t = 0; t < positions.size(); t++) {
        const auto from = static_cast<ptrdiff_t>(t * width),
                   to = static_cast<ptrdiff_t>((t + 1) * width);
        check->close(
            format("%s %s at position %d", how.c_str(), name.c_str(), positions[t]),
            { got.begin() + from, got.begin() + to }, { want.begin() + from, want.begin() + to },
            positions[t] <= limit ? near : far
        );
    }
}

} // namespace

void run_rotation(Modules *m, const std::string &group)
{
    Reference *const values = &m->values;
    const std::string name = group + ".inv_freq";
    if (values->tensors.has(name))
        m->run(name, [&](Check *check) {
            const int64_t half = values->tensors.need_shape(name, 1)[0];
            double theta = number_at(m->dims, "theta", 0);
            number_after(values->meaning(name), "theta ", &theta);
            values->compare(check, name, plain(2 * half, theta).values);
        });
    for (const char *which : { ".q", ".k" })
        if (values->tensors.has(group + which + "_rot"))
            m->run(group + which, [&](Check *check) {
                const std::vector<int64_t> shape = values->tensors.need_shape(group + which, 3);
                const std::vector<int32_t> positions =
                    values->tensors.need_integers(group + ".pos");
                const std::vector<float> frequencies = values->tensors.need_floats(name);
                if (static_cast<int64_t>(positions.size()) != shape[0] ||
                    2 * static_cast<int64_t>(frequencies.size()) > shape[2])
                    throw Broken(group + which + ": positions, frequencies and rows do not fit");
                each_row(WEIR_OP_ROPE, [&](Row *row) {
                    std::vector<float> x = values->tensors.need_floats(group + which);
                    rotate(row, &x, shape, positions, frequencies, [&] {
                        compare_rows(
                            values, check, group + which + "_rot", x, positions, row->name()
                        );
                    });
                });
            });
    m->run(group + ".cos_sin", [&](Check *check) {
        const std::vector<int32_t> positions = values->tensors.need_integers(group + ".pos");
        const std::vector<float> frequencies = values->tensors.need_floats(name);
        const size_t n = frequencies.size();
        each_row(WEIR_OP_ROPE, [&](Row *row) {
            std::vector<float> x = unit_pairs(positions.size(), n);
            rotate(
                row, &x, { static_cast<int64_t>(positions.size()), 1, 2 * static_cast<int64_t>(n) },
                positions, frequencies,
                [&] {
                    compare_rows(
                        values, check, group + ".cos", half_of(x, n, 0), positions, row->name()
                    );
                    compare_rows(
                        values, check, group + ".sin", half_of(x, n, 1), positions, row->name()
                    );
                }
            );
        });
    });
}

/* The kernel takes one position a token: the tokens of text, whose three positions are equal, are
 * compared, the others are not. */
void run_three_positions(Modules *m, const std::string &group)
{
    Reference *const values = &m->values;
    for (const std::string &cosine : values->tensors.names(group + ".")) {
        const size_t at = cosine.rfind("cos");
        if (at == std::string::npos || at + 3 != cosine.size()) continue;
        const std::string sine = cosine.substr(0, at) + "sin", stem = cosine.substr(0, at);
        m->run(stem + "equal_positions", [&](Check *check) {
            const std::vector<int64_t> shape = values->tensors.need_shape(group + ".positions", 2);
            const std::vector<int32_t> all = values->tensors.need_integers(group + ".positions");
            const std::vector<int64_t> want_shape = values->tensors.need_shape(cosine, 2);
            const std::vector<float> want_cos = values->tensors.need_floats(
                                         cosine, { shape[1], want_shape[1] }
                                     ),
                                     want_sin = values->tensors.need_floats(
                                         sine, { shape[1], want_shape[1] }
                                     );
            const size_t n = static_cast<size_t>(want_shape[1]),
                         n_tokens = static_cast<size_t>(shape[1]);
            std::vector<int32_t> positions;
            std::vector<float> cos, sin;
            for (size_t t = 0; t < n_tokens; t++) {
                bool equal = true;
                for (size_t axis = 1; axis < static_cast<size_t>(shape[0]); axis++)
                    equal = equal && all[axis * n_tokens + t] == all[t];
                if (!equal) continue;
                positions.push_back(all[t]);
                cos.insert(
                    cos.end(), want_cos.begin() + static_cast<ptrdiff_t>(t * n),
                    want_cos.begin() + static_cast<ptrdiff_t>((t + 1) * n)
                );
                sin.insert(
                    sin.end(), want_sin.begin() + static_cast<ptrdiff_t>(t * n),
                    want_sin.begin() + static_cast<ptrdiff_t>((t + 1) * n)
                );
            }
            double theta = number_at(m->dims, "theta", 0);
            number_after(values->meaning(cosine), "theta ", &theta);
            const std::vector<float> frequencies = plain(2 * static_cast<int64_t>(n), theta).values;
            values->mark(cosine);
            values->mark(sine);
            if (positions.empty()) throw Broken("no token has equal positions");
            each_row(WEIR_OP_ROPE, [&](Row *row) {
                std::vector<float> x = unit_pairs(positions.size(), n);
                rotate(
                    row, &x,
                    { static_cast<int64_t>(positions.size()), 1, 2 * static_cast<int64_t>(n) },
                    positions, frequencies,
                    [&] {
                        check->close(
                            row->name() + " " + cosine, half_of(x, n, 0), cos,
                            values->tolerance(cosine)
                        );
                        check->close(
                            row->name() + " " + sine, half_of(x, n, 1), sin, values->tolerance(sine)
                        );
                    }
                );
            });
        });
    }
    if (m->counts->wants("modules/" + group + ".image_positions"))
        m->counts->skip(
            "modules/" + group + ".image_positions",
            "tokens with three unequal positions: RoPE takes one position a token"
        );
}

void run_llama3_scaling(Modules *m, const std::string &group)
{
    for (const std::string &name : m->values.tensors.names(group + "."))
        m->run(name, [&](Check *check) {
            const std::string text = m->values.meaning(name);
            double width, theta, factor, low, high, original;
            if (!number_after(text, "hd ", &width) || !number_after(text, "theta ", &theta) ||
                !number_after(text, "factor ", &factor) || !number_after(text, "low ", &low) ||
                !number_after(text, "high ", &high) || !number_after(text, "original ", &original))
                throw Broken("the meaning names no hd, theta, factor, low, high and original");
            const Json parameters(
                json_pack(
                    "{s:s, s:f, s:f, s:f, s:f}", "rope_type", "llama3", "factor", factor,
                    "low_freq_factor", low, "high_freq_factor", high,
                    "original_max_position_embeddings", original
                ),
                json_decref
            );
            m->values.compare(
                check, name,
                resolve_rope(parameters.get(), static_cast<int64_t>(width), theta).values
            );
        });
}

/* The meaning of each tensor is the JSON of its parameters. The factor on cos and sin is derived,
 * as where a checkpoint does not give it. */
void run_yarn(Modules *m, const std::string &group)
{
    const std::string first = group + ".inv_freq.", factors = group + ".attention_factor";
    for (const std::string &name : m->values.tensors.names(first))
        m->run(name, [&](Check *check) {
            const Json parameters(
                json_loads(m->values.meaning(name).c_str(), 0, nullptr), json_decref
            );
            if (!json_is_object(parameters.get()))
                throw Broken("the meaning of " + name + " is not an object of parameters");
            const auto width = static_cast<int64_t>(number_at(parameters.get(), "dim", 0));
            const double theta = number_at(parameters.get(), "rope_theta", 0);
            json_object_del(parameters.get(), "attention_factor");
            json_object_del(parameters.get(), "dim");
            const Frequencies got = resolve_rope(parameters.get(), width, theta);
            const std::vector<float> want = m->values.tensors.floats(factors);
            const size_t index = strtoul(name.c_str() + first.size(), nullptr, 10);
            m->values.compare(check, name, got.values);
            m->values.mark(factors);
            if (index < want.size())
                check->close(
                    factors, { got.magnitude }, { want[index] }, m->values.tolerance(factors)
                );
            else
                check->fail("there is no factor on cos and sin");
        });
}

} // namespace golden
