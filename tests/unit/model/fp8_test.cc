/* Checkpoints in FP8: scales of blocks, one scale of a matrix, and what is said about others. */
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/abi/convert.h"
#include "offload/weights.h"
#include "tests/unit/model/arch_files.h"

namespace {

using arch_files::copy_checkpoint;
using arch_files::last_logits;
using support::Engine;
using support::Folder;
using support::golden;
using support::Settings;
using support::write_file;

const Settings exact = { "kernels.activations=f32", "kv.format=f32" };
const char *const checkpoint = "../families/deepseek3";

std::vector<float> logits_of(const std::string &path)
{
    Engine engine;
    EXPECT_EQ(engine.open(path, exact), WEIR_OK) << engine.text();
    return last_logits(&engine);
}

struct Bytes {
    std::string dtype; /* of safetensors */
    std::vector<int64_t> shape;
    std::string bytes;
};
using Tensors = std::map<std::string, Bytes>;

void write_tensors(const std::string &path, const Tensors &tensors)
{
    std::string header = "{", data;
    for (const auto &[name, t] : tensors) {
        std::string shape;
        for (const int64_t n : t.shape) shape += (shape.empty() ? "" : ",") + std::to_string(n);
        header += (header.size() > 1 ? ",\"" : "\"") + name + R"(":{"dtype":")" + t.dtype +
                  R"(","shape":[)" + shape + "],\"data_offsets\":[" + std::to_string(data.size()) +
                  "," + std::to_string(data.size() + t.bytes.size()) + "]}";
        data += t.bytes;
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    write_file(
        path, std::string(reinterpret_cast<const char *>(&length), sizeof length) + header + data
    );
}

std::string bytes_of(const std::vector<float> &x)
{
    return std::string(reinterpret_cast<const char *>(x.data()), x.size() * sizeof(float));
}

bool is_projection(const std::string &name) { return name.find("_proj") != name.npos; }

/* The golden checkpoint with its projections in FP8, with scales of blocks, or their values. */
Tensors eight_bit(bool as_values)
{
    weir_tensor_directory *directory = nullptr;
    weir_error error = {};
    Tensors out;
    EXPECT_EQ(weir_tensor_directory_open(&directory, golden(checkpoint).c_str(), &error), WEIR_OK)
        << error.text;
    for (size_t i = 0; i < weir_tensor_directory_count(directory); i++) {
        const weir_tensor *const t = weir_tensor_directory_at(directory, i);
        const std::vector<int64_t> shape(t->shape, t->shape + t->n_dims);
        int64_t n = 1;
        for (const int64_t d : shape) n *= d;
        std::vector<float> x((size_t)n);
        EXPECT_EQ(weir_dequantise(x.data(), t->data, t->dtype, n), WEIR_OK);
        if (!is_projection(t->name)) {
            out[t->name] = { "F32", shape, bytes_of(x) };
            continue;
        }
        const int64_t across = (shape[1] + 127) / 128, down = (shape[0] + 127) / 128;
        std::vector<float> scales((size_t)(across * down));
        std::string codes;
        const auto block = [&](int64_t at) {
            return (size_t)(at / shape[1] / 128 * across + at % shape[1] / 128);
        };
        for (int64_t at = 0; at < n; at++)
            scales[block(at)] = std::fmax(scales[block(at)], std::fabs(x[(size_t)at]) / 448);
        for (int64_t at = 0; at < n; at++) {
            float &value = x[(size_t)at];
            codes += static_cast<char>(weir_f8_e4m3_from_f32(value / scales[block(at)]));
            value = weir_f8_e4m3_to_f32(static_cast<uint8_t>(codes.back())) * scales[block(at)];
        }
        out[t->name] =
            as_values ? Bytes{ "F32", shape, bytes_of(x) } : Bytes{ "F8_E4M3", shape, codes };
        if (!as_values)
            out[std::string(t->name) + "_scale_inv"] = { "F32",
                                                         { down, across },
                                                         bytes_of(scales) };
    }
    weir_tensor_directory_close(directory);
    return out;
}

class EightBit : public ::testing::Test {
  protected:
    /* What is said about a checkpoint of these tensors; "": it can be opened. */
    std::string says(const Tensors &tensors)
    {
        copy_checkpoint(folder_, checkpoint);
        write_tensors(folder_ / "model.safetensors", tensors);
        Engine engine;
        return engine.plan(folder_.path(), exact) == WEIR_OK ? "" : engine.text();
    }
    const Folder folder_;
    /* Its 160 rows are in two blocks, within a head. */
    const std::string both_ = "model.layers.1.self_attn.kv_b_proj.weight";
};

TEST_F(EightBit, BlocksHaveScales)
{
    ASSERT_EQ(says(eight_bit(true)), "");
    const std::vector<float> want = logits_of(folder_.path());
    ASSERT_EQ(says(eight_bit(false)), "");
    EXPECT_EQ(logits_of(folder_.path()), want);
    EXPECT_NE(logits_of(golden(checkpoint)), want);
    Engine engine;
    ASSERT_EQ(engine.open(folder_.path(), { "kernels.activations=fast" }), WEIR_OK)
        << engine.text();
    const std::vector<float> fast = last_logits(&engine); /* rounded to bf16 */
    for (size_t i = 0; i < fast.size(); i++) EXPECT_NEAR(fast[i], want[i], 0.2f) << i;
}

TEST_F(EightBit, ScalesMustFit)
{
    Tensors all = eight_bit(false);
    all[both_ + "_scale_inv"].shape = { 1, 2 };
    EXPECT_SAYS(says(all), both_ + "_scale_inv are not FP8 codes of \"attn.k_b\"");
    all[both_ + "_scale_inv"] = { "F16", { 2, 1 }, std::string(4, '\0') };
    EXPECT_SAYS(says(all), "the scales of their blocks of 128 x 128, or one");
}

/* As Devstral 2 has it: one number for a matrix, and one for what it multiplies, which is not
 * read. */
TEST_F(EightBit, AMatrixMayHaveOneScale)
{
    Tensors values = eight_bit(true), codes = eight_bit(false);
    for (auto &[name, tensor] : values) {
        if (codes.count(name + "_scale_inv") == 0) continue;
        const std::string &bytes = codes[name].bytes;
        std::vector<float> x;
        x.reserve(bytes.size());
        for (const char code : bytes)
            x.push_back(weir_f8_e4m3_to_f32(static_cast<uint8_t>(code)) * 0.0078125f);
        tensor.bytes = bytes_of(x);
        codes[name + "_scale_inv"] = { "BF16", {}, std::string("\x00\x3c", 2) }; /* 2^-7 */
        codes[name.substr(0, name.rfind('.')) + ".activation_scale"] = {
            "BF16", {}, std::string("\x00\x40", 2)
        };
    }
    ASSERT_EQ(says(values), "");
    const std::vector<float> want = logits_of(folder_.path());
    ASSERT_EQ(says(codes), "");
    EXPECT_EQ(logits_of(folder_.path()), want);
    codes[both_ + "_scale_inv"] = { "F32", { 3 }, std::string(12, '\0') };
    EXPECT_SAYS(says(codes), "or one for all of them, f32 or bf16");
}

/* A cache reads and packs all experts of a parameter alike. */
TEST_F(EightBit, ExpertsHaveTheSameKindOfScales)
{
    Tensors all = eight_bit(false);
    all.erase("model.layers.1.mlp.experts.2.up_proj.weight_scale_inv");
    EXPECT_SAYS(says(all), "model.layers.1.mlp.experts.2.up_proj.weight is not stored as");
}

TEST_F(EightBit, OtherScalesAreRefused)
{
    Tensors all = eight_bit(false);
    all.erase(both_ + "_scale_inv");
    all[both_ + "_scale"] = { "F32", { 1 }, std::string(4, '\0') };
    EXPECT_SAYS(says(all), "is FP8 with scales " + both_ + "_scale; only " + both_ + "_scale_inv");
}

} // namespace
