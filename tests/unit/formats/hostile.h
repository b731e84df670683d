/* GGUF and safetensors files written by hand, and what the readers say of them. Each input lies in
 * memory of exactly its size, so that the sanitizers see reads out of bounds. */
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/formats/gguf.h"
#include "engine/formats/safetensors.h"
#include "tests/fuzz/probe.h"

namespace hostile {

using std::string;

template <typename T> string little(T value)
{
    string out;
    for (size_t i = 0; i < sizeof value; i++) out += (char)((uint64_t)value >> (8 * i));
    return out;
}
inline string u32(uint32_t value) { return little(value); }
inline string u64(uint64_t value) { return little(value); }
inline string text(const string &value) { return u64(value.size()) + value; }

struct Closer {
    void operator()(weir_tensor_directory *directory) const
    {
        weir_tensor_directory_close(directory);
    }
};
using Directory = std::unique_ptr<weir_tensor_directory, Closer>;

/* Parses a copy of exactly this size; returns "" or the error text. */
inline string problem(weir_container container, const string &bytes)
{
    std::unique_ptr<unsigned char[]> copy(new unsigned char[bytes.size()]);
    memcpy(copy.get(), bytes.data(), bytes.size());
    Directory directory(weir_directory_create(container, "f"));
    weir_error error = {};
    weir_status status;
    if (container == WEIR_CONTAINER_GGUF) {
        weir_gguf_header header;
        status =
            weir_gguf_parse(directory.get(), &header, 0, copy.get(), bytes.size(), "f", &error);
    } else {
        weir_safetensors_args args = {};
        args.bytes = copy.get();
        args.n = bytes.size();
        args.name = "f";
        status = weir_safetensors_parse(directory.get(), &args, &error);
    }
    if (status == WEIR_OK) status = weir_directory_finish(directory.get(), &error);
    probe_status(status, &error);
    if (status == WEIR_OK) {
        (void)probe_directory(directory.get(), copy.get(), bytes.size());
        return "";
    }
    EXPECT_EQ(status, WEIR_EFORMAT);
    EXPECT_EQ(string(error.text).rfind("f: ", 0), 0u) << error.text;
    return error.text;
}

inline string gguf_problem(const string &bytes) { return problem(WEIR_CONTAINER_GGUF, bytes); }
inline string safetensors_problem(const string &bytes)
{
    return problem(WEIR_CONTAINER_SAFETENSORS, bytes);
}

#define EXPECT_SAYS(actual, part)                                                                  \
    do {                                                                                           \
        const string said = (actual);                                                              \
        EXPECT_NE(said.find(part), string::npos) << "said: " << said;                              \
    } while (0)

/* ---- GGUF by hand ---------------------------------------------------------------------------- */

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 };

inline string key(const string &name, uint32_t type, const string &value)
{
    return text(name) + u32(type) + value;
}

inline string entry(
    const string &name, const std::vector<uint64_t> &ne, uint32_t type, uint64_t offset
)
{
    string out = text(name) + u32((uint32_t)ne.size());
    for (uint64_t extent : ne) out += u64(extent);
    return out + u32(type) + u64(offset);
}

inline string gguf(
    const std::vector<string> &keys, const std::vector<string> &entries, size_t data_bytes,
    size_t alignment = 32
)
{
    string out = "GGUF" + u32(3) + u64(entries.size()) + u64(keys.size());
    for (const string &one : keys) out += one;
    for (const string &one : entries) out += one;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + string(data_bytes, '\7');
}

inline string one_key(uint32_t type, const string &value)
{
    return gguf({ key("k", type, value) }, {}, 0);
}

/* ---- safetensors by hand --------------------------------------------------------------------- */

inline string safetensors(const string &header, size_t data_bytes)
{
    return u64(header.size()) + header + string(data_bytes, '\7');
}

inline string tensor(
    const string &name, const string &dtype, const string &shape, const string &offsets
)
{
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
           "],\"data_offsets\":[" + offsets + "]}";
}

inline string one(
    const string &dtype, const string &shape, const string &offsets, size_t data_bytes
)
{
    return safetensors("{" + tensor("a", dtype, shape, offsets) + "}", data_bytes);
}

} // namespace hostile
