/* Block types, 16-bit and 8-bit floats against the reference values of tests/golden/models (G25,
 * G26, G27) and tests/golden/families. */
#include "kernels/ref/dequantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/formats/tensor_directory.h"
#include "kernels/abi/convert.h"
#include "kernels/ref/grids.h"
#include "kernels/ref/levels.h"

namespace {

struct Closer {
    void operator()(weir_tensor_directory *directory) const
    {
        weir_tensor_directory_close(directory);
    }
};
using Directory = std::unique_ptr<weir_tensor_directory, Closer>;

Directory open(const char *name)
{
    weir_tensor_directory *directory = nullptr;
    weir_error error = {};
    const std::string path = std::string("tests/golden/models/") + name;
    EXPECT_EQ(weir_tensor_directory_open(&directory, path.c_str(), &error), WEIR_OK) << error.text;
    return Directory(directory);
}

template <typename T> std::vector<T> read(const Directory &directory, const std::string &name)
{
    const weir_tensor *tensor = weir_tensor_directory_find(directory.get(), name.c_str());
    if (tensor == nullptr) {
        ADD_FAILURE() << name;
        return {};
    }
    std::vector<T> values(tensor->bytes / sizeof(T));
    memcpy(values.data(), tensor->data, tensor->bytes);
    return values;
}

uint32_t canonical(float value) { return std::isnan(value) ? 0x7FC00000u : weir_f32_bits(value); }

uint32_t crc32(const std::vector<uint32_t> &words)
{
    uint32_t crc = ~0u;
    for (uint32_t word : words)
        for (int byte = 0; byte < 4; byte++) {
            crc ^= word >> (8 * byte) & 0xFF;
            for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        }
    return ~crc;
}

struct Block {
    const char *name;
    weir_dtype dtype;
};

TEST(Dequantise, EveryBlockTypeIsBitExact)
{
    const Directory models = open("quant_blocks.safetensors"),
                    families = open("../families/quant_blocks.safetensors");
    int n_types = 0;
    for (const Block &block : { Block{ "Q4_0", WEIR_Q4_0 },       Block{ "Q4_1", WEIR_Q4_1 },
                                Block{ "Q5_0", WEIR_Q5_0 },       Block{ "Q5_1", WEIR_Q5_1 },
                                Block{ "Q8_0", WEIR_Q8_0 },       Block{ "Q2_K", WEIR_Q2_K },
                                Block{ "Q3_K", WEIR_Q3_K },       Block{ "Q4_K", WEIR_Q4_K },
                                Block{ "Q5_K", WEIR_Q5_K },       Block{ "Q6_K", WEIR_Q6_K },
                                Block{ "IQ4_NL", WEIR_IQ4_NL },   Block{ "IQ4_XS", WEIR_IQ4_XS },
                                Block{ "MXFP4", WEIR_MXFP4 },     Block{ "NVFP4", WEIR_NVFP4 },
                                Block{ "IQ1_S", WEIR_IQ1_S },     Block{ "IQ1_M", WEIR_IQ1_M },
                                Block{ "IQ2_XXS", WEIR_IQ2_XXS }, Block{ "IQ2_XS", WEIR_IQ2_XS },
                                Block{ "IQ2_S", WEIR_IQ2_S },     Block{ "IQ3_XXS", WEIR_IQ3_XXS },
                                Block{ "IQ3_S", WEIR_IQ3_S },     Block{ "TQ1_0", WEIR_TQ1_0 },
                                Block{ "TQ2_0", WEIR_TQ2_0 },     Block{ "Q1_0", WEIR_Q1_0 },
                                Block{ "Q2_0", WEIR_Q2_0 } }) {
        const std::string raw_name = std::string(block.name) + ".raw";
        const Directory &golden =
            weir_tensor_directory_find(models.get(), raw_name.c_str()) ? models : families;
        const auto raw = read<uint8_t>(golden, raw_name);
        const auto wanted = read<float>(golden, std::string(block.name) + ".f32");
        ASSERT_EQ(weir_row_bytes(block.dtype, (int64_t)wanted.size()), raw.size()) << block.name;
        /* From an odd address: file bytes are aligned to nothing. */
        std::vector<uint8_t> shifted(raw.size() + 1);
        memcpy(shifted.data() + 1, raw.data(), raw.size());
        std::vector<float> values(wanted.size() + 1, 42.0f);
        ASSERT_EQ(
            weir_k_ref_dequantise(
                values.data(), shifted.data() + 1, block.dtype, (int64_t)wanted.size()
            ),
            WEIR_OK
        );
        for (size_t i = 0; i < wanted.size(); i++)
            ASSERT_EQ(canonical(values[i]), canonical(wanted[i]))
                << block.name << " element " << i << ": " << values[i];
        EXPECT_EQ(values.back(), 42.0f) << "written past the end";
        n_types++;
    }
    int n_quantised = 0;
    for (int i = 0; i < WEIR_DTYPE_COUNT; i++)
        n_quantised += weir_dtype_of((weir_dtype)i).quantised;
    EXPECT_EQ(n_types, n_quantised);
}

/* The blocks of the reference values hold few of the rows of a grid. The sums were taken from
 * ggml's tables. */
TEST(Dequantise, GridsAreThoseOfGgml)
{
    const auto sum = [](const uint16_t *grid, size_t n) {
        std::vector<uint32_t> words(n / 2);
        for (size_t i = 0; i < n; i += 2)
            words[i / 2] = (uint32_t)grid[i] | (uint32_t)grid[i + 1] << 16;
        return crc32(words);
    };
    EXPECT_EQ(sum(weir_grid_iq1, 2048), 0xA0911588u);
    EXPECT_EQ(sum(weir_grid_iq2_xxs, 256), 0xD01C53F2u);
    EXPECT_EQ(sum(weir_grid_iq2_xs, 512), 0x622E679Au);
    EXPECT_EQ(sum(weir_grid_iq2_s, 1024), 0xF8AD4E5Eu);
    EXPECT_EQ(sum(weir_grid_iq3_xxs, 256), 0x35D54A4Au);
    EXPECT_EQ(sum(weir_grid_iq3_s, 512), 0x23206141u);
}

/* All bytes, also those that no quantiser writes: no index is beyond the levels of its type. */
TEST(Dequantise, AnyBytesHaveLevels)
{
    std::vector<uint8_t> bytes(1 << 14);
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = (uint8_t)(i * i * 7 + i / 256 * 31 + i);
    int n_types = 0;
    for (int t = 0; t < WEIR_DTYPE_COUNT; t++) {
        const auto dtype = (weir_dtype)t;
        const int8_t *const levels = weir_levels_of(dtype);
        if (!levels) continue;
        n_types++;
        const weir_dtype_info info = weir_dtype_of(dtype);
        for (size_t at = 0; at + (size_t)info.block_bytes <= bytes.size(); at += 13) {
            weir_level_block block;
            weir_levels_decode(&block, &bytes[at], dtype);
            for (int i = 0; i < info.block_elements; i++) {
                const int index = block.indices[i];
                ASSERT_LT(index, WEIR_LEVELS) << info.name;
                /* Zero is a level of FP4 and of two bits only; others have it where no index is. */
                if (dtype >= WEIR_IQ1_S && dtype <= WEIR_IQ3_S) ASSERT_NE(levels[index], 0);
            }
        }
    }
    EXPECT_EQ(n_types, 12);
}

/* CRC-32 over all 65536 patterns, from quant_blocks.json. */
TEST(Dequantise, AllHalfPatterns)
{
    std::vector<uint16_t> bits(65536);
    for (size_t i = 0; i < bits.size(); i++) bits[i] = (uint16_t)i;
    std::vector<float> values(bits.size());
    std::vector<uint32_t> words(bits.size());
    ASSERT_EQ(weir_k_ref_dequantise(values.data(), bits.data(), WEIR_F16, 65536), WEIR_OK);
    for (size_t i = 0; i < bits.size(); i++) words[i] = canonical(values[i]);
    EXPECT_EQ(crc32(words), 807454631u);
    ASSERT_EQ(weir_k_ref_dequantise(values.data(), bits.data(), WEIR_BF16, 65536), WEIR_OK);
    for (size_t i = 0; i < bits.size(); i++) words[i] = canonical(values[i]);
    EXPECT_EQ(crc32(words), 684059956u);
    for (uint32_t i = 0; i < 65536; i++) {
        const float half = weir_f16_to_f32((uint16_t)i), brain = weir_bf16_to_f32((uint16_t)i);
        if (!std::isnan(half))
            ASSERT_EQ(weir_f16_from_f32(half), i);
        else
            ASSERT_TRUE(std::isnan(weir_f16_to_f32(weir_f16_from_f32(half))));
        if (!std::isnan(brain))
            ASSERT_EQ(weir_bf16_from_f32(brain), i);
        else
            ASSERT_TRUE(std::isnan(weir_bf16_to_f32(weir_bf16_from_f32(brain))));
    }
}

TEST(Dequantise, SpecialPatternsAndRounding)
{
    const Directory golden = open("quant_blocks.safetensors");
    for (const char *type : { "f16", "bf16" }) {
        const bool half = std::string(type) == "f16";
        const auto bits = read<uint16_t>(golden, std::string(type) + ".special_bits");
        const auto wanted = read<uint32_t>(golden, std::string(type) + ".special_f32_bits");
        ASSERT_EQ(bits.size(), wanted.size());
        for (size_t i = 0; i < bits.size(); i++)
            EXPECT_EQ(
                canonical(half ? weir_f16_to_f32(bits[i]) : weir_bf16_to_f32(bits[i])), wanted[i]
            ) << type
              << " " << bits[i];
    }
    const auto from = read<uint32_t>(golden, "round.f32_bits");
    const auto f16 = read<uint16_t>(golden, "round.f16_bits"),
               bf16 = read<uint16_t>(golden, "round.bf16_bits");
    ASSERT_TRUE(from.size() == f16.size() && from.size() == bf16.size() && from.size() > 100);
    for (size_t i = 0; i < from.size(); i++) {
        const float value = weir_f32_from_bits(from[i]);
        EXPECT_EQ(weir_f16_from_f32(value), f16[i]) << std::hex << from[i];
        EXPECT_EQ(weir_bf16_from_f32(value), bf16[i]) << std::hex << from[i];
    }
}

TEST(Dequantise, EightBitFloats)
{
    const auto wanted = read<float>(open("modules.safetensors"), "G25.table");
    std::vector<uint8_t> bits(256);
    for (size_t i = 0; i < bits.size(); i++) bits[i] = (uint8_t)i;
    std::vector<float> values(bits.size());
    ASSERT_EQ(weir_k_ref_dequantise(values.data(), bits.data(), WEIR_F8_E4M3, 256), WEIR_OK);
    for (size_t i = 0; i < bits.size(); i++)
        EXPECT_EQ(canonical(values[i]), canonical(wanted[i])) << i;
    ASSERT_EQ(weir_k_ref_dequantise(values.data(), bits.data(), WEIR_F8_E5M2, 256), WEIR_OK);
    EXPECT_EQ(values[0x3C], 1.0f);
    EXPECT_EQ(values[0xC1], -2.5f);
    EXPECT_EQ(values[0x01], 0x1p-16f);
    EXPECT_TRUE(std::isinf(values[0x7C]) && std::isnan(values[0x7D]));
}

TEST(Dequantise, RefusesWhatItCannotDo)
{
    float value[32];
    const uint8_t bytes[34] = {};
    EXPECT_EQ(weir_k_ref_dequantise(value, bytes, WEIR_Q8_0, 31), WEIR_EINVAL);
    EXPECT_EQ(weir_k_ref_dequantise(value, bytes, WEIR_Q8_0, -32), WEIR_EINVAL);
    EXPECT_EQ(weir_k_ref_dequantise(value, bytes, WEIR_I32, 1), WEIR_EUNSUPPORTED);
    EXPECT_EQ(weir_k_ref_dequantise(value, bytes, WEIR_Q8_0, 0), WEIR_OK);
    const double wide = 1.5;
    EXPECT_EQ(weir_k_ref_dequantise(value, &wide, WEIR_F64, 1), WEIR_OK);
    EXPECT_EQ(value[0], 1.5f);
}

} // namespace
