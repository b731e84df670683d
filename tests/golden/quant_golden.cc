/* tests/golden/quant_golden.cc - block formats and small floats (quant_blocks.*): NAME.raw to
 * NAME.f32, special patterns, rounding, and the checksum of all 65536 values. */
#include <strings.h>

#include <cstring>
#include <filesystem>

#include "kernels/abi/convert.h"
#include "offload/weights.h"
#include "tests/golden/golden.h"

namespace golden {
namespace {

bool dtype_named(const std::string &name, weir_dtype *out)
{
    for (int i = 0; i < WEIR_DTYPE_COUNT; i++) {
        if (strcasecmp(weir_dtype_of(static_cast<weir_dtype>(i)).name, name.c_str()) != 0) continue;
        *out = static_cast<weir_dtype>(i);
        return true;
    }
    return false;
}

/* Distance in representable values; +0 and -0 are 0 apart. */
int64_t ulps(float a, float b)
{
    const auto order = [](float value) {
        const auto bits = static_cast<int32_t>(weir_f32_bits(value));
        return bits < 0 ? static_cast<int64_t>(INT32_MIN) - bits : static_cast<int64_t>(bits);
    };
    const int64_t distance = order(a) - order(b);
    return distance < 0 ? -distance : distance;
}

template <typename T> std::vector<T> bits_of(const weir_tensor &tensor)
{
    std::vector<T> out(tensor.bytes / sizeof(T));
    memcpy(out.data(), tensor.data, out.size() * sizeof(T));
    return out;
}

/* Every NaN is one. */
int32_t canonical(float value)
{
    return static_cast<int32_t>(value != value ? 0x7FC00000u : weir_f32_bits(value));
}

void compare_blocks(Check *check, const Tensors &file, const std::string &name, weir_dtype dtype)
{
    const weir_tensor &raw = file.need(name + ".raw", WEIR_U8),
                      &values = file.need(name + ".f32", WEIR_F32);
    const auto want = bits_of<float>(values);
    std::vector<float> got(want.size());
    std::vector<int32_t> off, none(want.size(), 0);
    if (want.empty() ||
        want.size() % static_cast<size_t>(weir_dtype_of(dtype).block_elements) != 0 ||
        raw.bytes != weir_row_bytes(dtype, static_cast<int64_t>(want.size())))
        throw Broken(name + ": the sizes of blocks and values do not fit");
    if (weir_dequantise(got.data(), raw.data, dtype, static_cast<int64_t>(want.size())) != WEIR_OK)
        throw Broken(name + " is refused");
    /* One unit in the last place where a block multiplies scale and sub-scale or adds a minimum,
     * none elsewhere. */
    const int allowed =
        weir_dtype_of(dtype).block_elements > 32 || dtype == WEIR_Q4_1 || dtype == WEIR_Q5_1 ? 1
                                                                                             : 0;
    for (size_t i = 0; i < want.size(); i++)
        off.push_back(
            canonical(got[i]) != canonical(want[i]) && !(ulps(got[i], want[i]) <= allowed)
        );
    check->equal(name + " (1: differs)", off, none);
}

float widen(const std::string &type, uint16_t bits)
{
    return type == "f16" ? weir_f16_to_f32(bits) : weir_bf16_to_f32(bits);
}

void compare_special(Check *check, const Tensors &file, const std::string &type)
{
    const auto bits = bits_of<uint16_t>(file.need(type + ".special_bits", WEIR_I16));
    std::vector<int32_t> got;
    for (const uint16_t pattern : bits) got.push_back(canonical(widen(type, pattern)));
    check->equal(type + ".special_f32_bits", got, file.need_integers(type + ".special_f32_bits"));
}

void compare_rounding(Check *check, const Tensors &file, const std::string &type)
{
    const auto want = bits_of<uint16_t>(file.need("round." + type + "_bits", WEIR_I16));
    std::vector<int32_t> got;
    for (const int32_t bits : file.need_integers("round.f32_bits")) {
        const float value = weir_f32_from_bits(static_cast<uint32_t>(bits));
        got.push_back(type == "f16" ? weir_f16_from_f32(value) : weir_bf16_from_f32(value));
    }
    check->equal("round." + type + "_bits", got, std::vector<int32_t>(want.begin(), want.end()));
}

/* CRC-32 as in zlib, over the f32 bits of all patterns. */
void compare_all(Check *check, const std::string &type, const json_t *want)
{
    uint32_t crc = ~0u;
    for (uint32_t pattern = 0; pattern < 65536; pattern++) {
        const auto word =
            static_cast<uint32_t>(canonical(widen(type, static_cast<uint16_t>(pattern))));
        for (int byte = 0; byte < 4; byte++) {
            crc ^= word >> (8 * byte) & 0xFF;
            for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        }
    }
    check->equal(
        type + " checksum", { static_cast<int32_t>(~crc) },
        { static_cast<int32_t>(static_cast<uint32_t>(json_integer_value(want))) }
    );
}

void run_file(const std::string &path, Counts *counts)
{
    const std::string index = std::filesystem::path(path).replace_extension(".json").string();
    Tensors file;
    std::string why;
    if (!file.open(path, &why)) throw Broken(why);
    for (const std::string &tensor : file.names()) {
        if (tensor.size() < 5 || tensor.compare(tensor.size() - 4, 4, ".raw") != 0) continue;
        const std::string name = tensor.substr(0, tensor.size() - 4),
                          label = "quant_blocks/" + name;
        weir_dtype dtype;
        if (dtype_named(name, &dtype))
            counts->run(label, [&](Check *check) { compare_blocks(check, file, name, dtype); });
        else if (counts->wants(label))
            counts->skip(label, "no such block format");
    }
    for (const std::string type : { "f16", "bf16" }) {
        if (file.has(type + ".special_bits"))
            counts->run("quant_blocks/" + type + ".special", [&](Check *check) {
                compare_special(check, file, type);
            });
        if (file.has("round." + type + "_bits"))
            counts->run("quant_blocks/" + type + ".rounding", [&](Check *check) {
                compare_rounding(check, file, type);
            });
    }
    if (!std::filesystem::exists(index)) return;
    const Document document(index);
    for (const std::string type : { "f16", "bf16" })
        if (const json_t *const crc = document[(type + "_to_f32_crc32").c_str()])
            counts->run("quant_blocks/" + type + ".all", [&](Check *check) {
                compare_all(check, type, crc);
            });
}

} // namespace

void run_quant_blocks(const std::string &folder, Counts *counts)
{
    for (const std::string &path : find_files(folder, "quant_blocks.safetensors")) {
        counts->known.insert(path);
        counts->known.insert(std::filesystem::path(path).replace_extension(".json").string());
        try {
            run_file(path, counts);
        } catch (const std::exception &error) {
            counts->fail("quant_blocks", error.what());
        }
    }
}

} // namespace golden
