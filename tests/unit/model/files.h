/* tests/unit/model/files.h - files that tests read and write: text with one change, and tensors. */
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace support {

inline std::string read_file(const std::string &path)
{
    std::ifstream in(path, std::ios::binary);
    std::stringstream all;
    EXPECT_TRUE(in.good()) << path;
    all << in.rdbuf();
    return all.str();
}

/* A new file: ext4 waits for the disk when one with bytes is truncated and written again. */
inline void write_file(const std::string &path, const std::string &bytes)
{
    (void)std::remove(path.c_str());
    std::ofstream out(path, std::ios::binary);
    out << bytes;
    ASSERT_TRUE(out.good()) << path;
}

/* The text with one place changed. */
inline std::string with(std::string text, const std::string &from, const std::string &to)
{
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

struct Array {
    std::vector<int64_t> shape;
    std::vector<float> values;
};
using Arrays = std::map<std::string, Array>;

/* Values within `scale`, others for each seed. */
inline Array noise(std::vector<int64_t> shape, float scale, int seed)
{
    size_t n = 1;
    for (const int64_t d : shape) n *= static_cast<size_t>(d);
    Array out = { std::move(shape), {} };
    for (size_t i = 0; i < n; i++)
        out.values.push_back(
            scale * std::sin(
                        static_cast<float>(seed) + 0.7f * static_cast<float>(i) +
                        0.01f * static_cast<float>(i * i % 97)
                    )
        );
    return out;
}

/* A safetensors file of f32. */
inline void write_safetensors(const std::string &path, const Arrays &arrays)
{
    std::string header = "{", data;
    for (const auto &[name, array] : arrays) {
        const size_t begin = data.size();
        data.append(
            reinterpret_cast<const char *>(array.values.data()), array.values.size() * sizeof(float)
        );
        std::string shape;
        for (const int64_t n : array.shape) shape += (shape.empty() ? "" : ",") + std::to_string(n);
        header += (header.size() > 1 ? ",\"" : "\"") + name + R"(":{"dtype":"F32","shape":[)" +
                  shape + "],\"data_offsets\":[" + std::to_string(begin) + "," +
                  std::to_string(data.size()) + "]}";
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    write_file(
        path, std::string(reinterpret_cast<const char *>(&length), sizeof length) + header + data
    );
}

} // namespace support
