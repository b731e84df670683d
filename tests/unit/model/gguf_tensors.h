/* tests/unit/model/gguf_tensors.h - GGUF files of tensors, without keys. */
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/abi/dtype.h"
#include "tests/unit/model/files.h"

namespace support {

/* A tensor as in a file; shape slowest first. */
struct Stored {
    std::string name;
    std::vector<int64_t> shape;
    weir_dtype dtype; /* f32 or q8_0 */
    std::string bytes;
};

inline void write_gguf(const std::string &path, const std::vector<Stored> &tensors)
{
    std::string head = "GGUF", data;
    const auto number = [&head](uint64_t value, int n) {
        for (int i = 0; i < n; i++) head += static_cast<char>(value >> (8 * i));
    };
    number(3, 4), number(tensors.size(), 8), number(0, 8);
    for (const Stored &t : tensors) {
        data.resize((data.size() + 31) / 32 * 32);
        number(t.name.size(), 8);
        head += t.name;
        number(t.shape.size(), 4);
        for (size_t i = t.shape.size(); i-- > 0;) number(static_cast<uint64_t>(t.shape[i]), 8);
        number(t.dtype == WEIR_F32 ? 0 : 8, 4);
        number(data.size(), 8);
        data += t.bytes;
    }
    head.resize((head.size() + 31) / 32 * 32);
    data.resize((data.size() + 31) / 32 * 32);
    write_file(path, head + data);
}

/* Bytes of a tensor with finite values. */
inline std::string some_bytes(weir_dtype dtype, size_t n, int seed)
{
    const weir_dtype_info info = weir_dtype_of(dtype);
    std::string out;
    for (size_t block = 0; block < n / static_cast<size_t>(info.block_elements); block++) {
        if (dtype == WEIR_F32) {
            const float value = std::sin(static_cast<float>(seed) + static_cast<float>(block));
            out.append(reinterpret_cast<const char *>(&value), sizeof value);
            continue;
        }
        out += std::string("\x00\x2c", 2); /* a scale of 1 / 16 */
        for (int i = 0; i < info.block_elements; i++)
            out += static_cast<char>(static_cast<size_t>(seed) * 31 + block * 7 + (size_t)i * 5);
    }
    return out;
}

} // namespace support
