/* Broken and malicious files: every one opens cleanly or fails with a text; none crashes. The
 * sanitizer builds see reads out of bounds, because each input lies in memory of exactly its
 * size. */
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/formats/gguf.h"
#include "engine/formats/safetensors.h"
#include "tests/fuzz/probe.h"

namespace {

using std::string;

template <typename T> string little(T value)
{
    string out;
    for (size_t i = 0; i < sizeof value; i++) out += (char)((uint64_t)value >> (8 * i));
    return out;
}
string u32(uint32_t value) { return little(value); }
string u64(uint64_t value) { return little(value); }
string text(const string &value) { return u64(value.size()) + value; }

struct Closer {
    void operator()(weir_tensor_directory *directory) const
    {
        weir_tensor_directory_close(directory);
    }
};
using Directory = std::unique_ptr<weir_tensor_directory, Closer>;

/* Parses a copy of exactly this size; returns "" or the error text. */
string problem(weir_container container, const string &bytes)
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

string gguf_problem(const string &bytes) { return problem(WEIR_CONTAINER_GGUF, bytes); }
string safetensors_problem(const string &bytes)
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

string key(const string &name, uint32_t type, const string &value)
{
    return text(name) + u32(type) + value;
}

string entry(const string &name, const std::vector<uint64_t> &ne, uint32_t type, uint64_t offset)
{
    string out = text(name) + u32((uint32_t)ne.size());
    for (uint64_t extent : ne) out += u64(extent);
    return out + u32(type) + u64(offset);
}

string gguf(
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

string one_key(uint32_t type, const string &value)
{
    return gguf({ key("k", type, value) }, {}, 0);
}

TEST(HostileGguf, StartOfTheFile)
{
    EXPECT_EQ(gguf_problem(gguf({}, {}, 0)), "");
    EXPECT_SAYS(gguf_problem(""), "byte 0: the magic needs 4 bytes");
    EXPECT_SAYS(gguf_problem("GGML" + u32(3) + u64(0) + u64(0)), "not a GGUF file");
    EXPECT_SAYS(gguf_problem("GGUF" + u32(1) + u32(0) + u32(0)), "version 1");
    EXPECT_SAYS(gguf_problem("GGUF" + u32(4) + u64(0) + u64(0)), "version 4");
    EXPECT_SAYS(gguf_problem(string("GGUF\0\0\0\3", 8) + u64(0) + u64(0)), "big-endian");
    EXPECT_EQ(gguf_problem("GGUF" + u32(2) + u64(0) + u64(0)), "");
    EXPECT_SAYS(gguf_problem("GGUF" + u32(3) + u64(65537) + u64(0)), "65537 tensors");
    EXPECT_SAYS(gguf_problem("GGUF" + u32(3) + u64(0) + u64(UINT64_MAX)), "metadata keys");
    EXPECT_SAYS(
        gguf_problem("GGUF" + u32(3) + u64(65536) + u64(65536)), "needs 8 bytes and 0 are left"
    );
}

TEST(HostileGguf, Strings)
{
    for (uint64_t length :
         { (uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 32, (uint64_t)1000 }) {
        EXPECT_SAYS(
            gguf_problem("GGUF" + u32(3) + u64(0) + u64(1) + u64(length) + "abc"),
            "are left of the file"
        );
        EXPECT_SAYS(gguf_problem(one_key(STRING, u64(length))), "are left of the file");
        EXPECT_SAYS(
            gguf_problem(one_key(ARRAY, u32(STRING) + u64(length))), "does not fit in the file"
        );
        EXPECT_SAYS(gguf_problem(one_key(ARRAY, u32(I64) + u64(length))), "are left of the file");
    }
    for (const string &name : { string(""), string("a\0b", 3), string("\xc3"),
                                string("\xed\xa0\x80"), string("\xc0\x80"), string(1025, 'x') }) {
        EXPECT_SAYS(gguf_problem(gguf({ key(name, U8, "\1") }, {}, 0)), "a metadata key is empty");
        EXPECT_SAYS(
            gguf_problem(gguf({}, { entry(name, { 8 }, 0, 0) }, 32)), "a tensor's name is empty"
        );
    }
    EXPECT_EQ(
        gguf_problem(gguf({ key("k\xc3\xa9", STRING, text(string("\xff\0z", 3))) }, {}, 0)), ""
    );
}

TEST(HostileGguf, Values)
{
    EXPECT_SAYS(gguf_problem(one_key(13, "")), "unknown value type 13");
    EXPECT_SAYS(gguf_problem(one_key(U64, u64(INT64_MAX + 1ull))), "an integer past");
    EXPECT_EQ(gguf_problem(one_key(U64, u64(INT64_MAX))), "");
    EXPECT_SAYS(gguf_problem(one_key(BOOL, "\2")), "neither 0 nor 1");
    EXPECT_SAYS(gguf_problem(one_key(ARRAY, u32(BOOL) + u64(3) + "\1\1\3")), "neither 0 nor 1");
    EXPECT_SAYS(
        gguf_problem(one_key(ARRAY, u32(U64) + u64(2) + u64(1) + u64(UINT64_MAX))),
        "an integer past"
    );
    EXPECT_SAYS(
        gguf_problem(gguf({ key("k", U8, "\1"), key("k", U8, "\1") }, {}, 0)), "key k appears twice"
    );
}

string nested(int depth)
{
    string value;
    for (int i = 1; i < depth; i++) value += u32(ARRAY) + u64(1);
    return value + u32(U8) + u64(1) + "\5";
}

TEST(HostileGguf, NestedArrays)
{
    EXPECT_EQ(gguf_problem(one_key(ARRAY, nested(4))), "");
    EXPECT_SAYS(gguf_problem(one_key(ARRAY, nested(5))), "deeper than 4");
    EXPECT_SAYS(gguf_problem(one_key(ARRAY, nested(100000))), "deeper than 4");
    EXPECT_SAYS(gguf_problem(one_key(ARRAY, u32(ARRAY) + u64(65537))), "more than 65536 arrays");
    string many = u32(ARRAY) + u64(40000);
    for (int i = 0; i < 40000; i++) many += u32(U8) + u64(0);
    EXPECT_EQ(gguf_problem(one_key(ARRAY, many)), "");
    EXPECT_SAYS(
        gguf_problem(gguf({ key("a", ARRAY, many), key("b", ARRAY, many) }, {}, 0)),
        "more than 65536 arrays"
    );
}

TEST(HostileGguf, Alignment)
{
    for (uint32_t alignment : { 0u, 3u, 33u, 1u << 21, 0xFFFFFFFFu })
        EXPECT_SAYS(
            gguf_problem(gguf({ key("general.alignment", U32, u32(alignment)) }, {}, 0)),
            "general.alignment"
        );
    EXPECT_SAYS(
        gguf_problem(gguf({ key("general.alignment", STRING, text("32")) }, {}, 0)),
        "not an integer"
    );
    EXPECT_SAYS(
        gguf_problem(gguf({ key("general.alignment", I32, u32(0xFFFFFFF0)) }, {}, 0)),
        "not an integer from"
    );
    const string aligned = key("general.alignment", U32, u32(128));
    EXPECT_EQ(gguf_problem(gguf({ aligned }, { entry("a", { 8 }, 0, 128) }, 160, 128)), "");
    EXPECT_SAYS(
        gguf_problem(gguf({ aligned }, { entry("a", { 8 }, 0, 64) }, 160, 128)),
        "not a multiple of 128"
    );
}

TEST(HostileGguf, Shapes)
{
    EXPECT_SAYS(gguf_problem(gguf({}, { entry("a", {}, 0, 0) }, 32)), "0 dimensions");
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { 1, 1, 1, 1, 1 }, 0, 0) }, 32)), "5 dimensions"
    );
    EXPECT_SAYS(gguf_problem(gguf({}, { entry("a", { 8, 0 }, 0, 0) }, 32)), "dimension 1 is 0");
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { (uint64_t)1 << 63 }, 0, 0) }, 32)), "dimension 0 is"
    );
    const uint64_t big = (uint64_t)1 << 32;
    EXPECT_SAYS(gguf_problem(gguf({}, { entry("a", { big, big }, 0, 0) }, 32)), "does not fit");
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { big, big / 4, 1, 4 }, 0, 0) }, 32)), "does not fit"
    );
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { (uint64_t)INT64_MAX }, 28, 0) }, 32)), "tensor a"
    );
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { 33 }, 8, 0) }, 64)), "not whole blocks of 32 (q8_0)"
    );
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { 128, 2 }, 12, 0) }, 512)),
        "not whole blocks of 256 (q4_k)"
    );
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("blk.0.x", { 256 }, 16, 0) }, 512)),
        "tensor blk.0.x has type 16 (IQ2_XXS)"
    );
    EXPECT_SAYS(gguf_problem(gguf({}, { entry("a", { 256 }, 4, 0) }, 512)), "type 4 (unknown)");
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { 256 }, UINT32_MAX, 0) }, 512)),
        "type 4294967295 (unknown)"
    );
}

TEST(HostileGguf, Places)
{
    EXPECT_EQ(
        gguf_problem(gguf({}, { entry("a", { 8 }, 0, 0), entry("b", { 8 }, 0, 32) }, 64)), ""
    );
    EXPECT_EQ(
        gguf_problem(gguf({}, { entry("a", { 8 }, 0, 32), entry("b", { 8 }, 0, 0) }, 64)), ""
    );
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { 8 }, 0, 0), entry("b", { 8 }, 0, 32) }, 63)),
        "tensor b takes bytes 32 to 64 of a data section of 63"
    );
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { 9 }, 0, 0), entry("b", { 8 }, 0, 32) }, 64)),
        "tensor b begins 4 bytes before the end of tensor a"
    );
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { 8 }, 0, 0), entry("b", { 8 }, 0, 0) }, 64)),
        "before the end of tensor"
    );
    EXPECT_SAYS(gguf_problem(gguf({}, { entry("a", { 8 }, 0, 16) }, 64)), "not a multiple of 32");
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { 8 }, 0, (uint64_t)1 << 40) }, 64)),
        "tensor a takes bytes"
    );
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { 8 }, 0, UINT64_MAX - 31) }, 64)),
        "offset 18446744073709551584 does not fit"
    );
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { 8 }, 0, 0), entry("a", { 8 }, 0, 32) }, 64)),
        "tensor a appears twice"
    );
}

/* ---- safetensors by hand --------------------------------------------------------------------- */

string safetensors(const string &header, size_t data_bytes)
{
    return u64(header.size()) + header + string(data_bytes, '\7');
}

string tensor(const string &name, const string &dtype, const string &shape, const string &offsets)
{
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
           "],\"data_offsets\":[" + offsets + "]}";
}

string one(const string &dtype, const string &shape, const string &offsets, size_t data_bytes)
{
    return safetensors("{" + tensor("a", dtype, shape, offsets) + "}", data_bytes);
}

TEST(HostileSafetensors, StartOfTheFile)
{
    EXPECT_EQ(safetensors_problem(safetensors("{}", 0)), "");
    EXPECT_SAYS(safetensors_problem(""), "0 bytes has no safetensors header");
    EXPECT_SAYS(safetensors_problem("1234567"), "7 bytes has no safetensors header");
    for (uint64_t length : { (uint64_t)3, (uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 8 })
        EXPECT_SAYS(
            safetensors_problem(u64(length) + "{}"),
            "a header of " + std::to_string(length) + " bytes"
        );
    EXPECT_SAYS(
        safetensors_problem(u64(100000001) + string(100000001, ' ')), "100000000 are allowed"
    );
    EXPECT_SAYS(safetensors_problem(u64(0)), "does not begin with {");
    EXPECT_SAYS(safetensors_problem(u64(0) + "{}"), "does not begin with {");
    EXPECT_SAYS(safetensors_problem(safetensors(" {}", 0)), "does not begin with {");
    EXPECT_SAYS(safetensors_problem(safetensors("{", 0)), "header:1:2");
    EXPECT_EQ(safetensors_problem(safetensors("{}   ", 0)), "");
    EXPECT_SAYS(
        safetensors_problem(safetensors("{\"a\":" + string(100000, '['), 0)), "nested deeper than 8"
    );
    EXPECT_SAYS(
        safetensors_problem(safetensors("{\"__metadata__\":{\"a\":1}}", 0)),
        "a value is not a string"
    );
    EXPECT_SAYS(
        safetensors_problem(safetensors("{\"__metadata__\":[]}", 0)), "it is not an object"
    );
    EXPECT_SAYS(
        safetensors_problem(safetensors("{}", 1)),
        "the last tensor ends at 0 of a data section of 1 bytes"
    );
}

TEST(HostileSafetensors, Entries)
{
    EXPECT_EQ(safetensors_problem(one("F32", "2", "0,8", 8)), "");
    EXPECT_EQ(safetensors_problem(one("F32", "", "0,4", 4)), "");
    EXPECT_SAYS(
        safetensors_problem(safetensors("{\"a\":1}", 0)), "tensor a: its entry is not an object"
    );
    EXPECT_SAYS(safetensors_problem(safetensors("{\"a\":{}}", 0)), "dtype is not a string");
    EXPECT_SAYS(safetensors_problem(safetensors("{\"\":{}}", 0)), "its name is empty");
    EXPECT_SAYS(
        safetensors_problem(safetensors("{\"" + string(1025, 'n') + "\":{}}", 0)),
        "longer than 1024"
    );
    EXPECT_SAYS(safetensors_problem(one("F12", "2", "0,8", 8)), "unknown dtype F12");
    EXPECT_SAYS(safetensors_problem(one("F32\\u0000", "2", "0,8", 8)), "unknown dtype F32?");
    EXPECT_EQ(safetensors_problem(one("F32", "3,0", "0,0", 0)), "");
    EXPECT_SAYS(
        safetensors_problem(one("F32", "3,0", "0,4", 4)), "span 4 bytes, its shape takes 0"
    );
    EXPECT_SAYS(
        safetensors_problem(one("F32", "4294967296,4294967296,0", "0,0", 0)), "does not fit"
    );
    for (const char *shape : { "2.0", "\"2\"", "true", "null", "[2]" })
        EXPECT_SAYS(
            safetensors_problem(one("F32", shape, "0,8", 8)), "a dimension is not an integer"
        );
    for (const char *shape : { "-2", "-1,-2" })
        EXPECT_SAYS(safetensors_problem(one("F32", shape, "0,8", 8)), "a dimension is negative");
    EXPECT_SAYS(safetensors_problem(one("F32", "1,1,1,1,1,1,2", "0,8", 8)), "7 dimensions");
    EXPECT_SAYS(
        safetensors_problem(one("F32", "4294967296,4294967296", "0,8", 8)),
        "the product of its dimensions does not fit"
    );
    EXPECT_SAYS(
        safetensors_problem(one("F64", "9223372036854775807", "0,8", 8)),
        "the product of its dimensions does not fit"
    );
    EXPECT_SAYS(safetensors_problem(one("F32", "99999999999999999999", "0,8", 8)), "header:1:");
    for (const char *offsets : { "", "0", "0,8,9", "0,8.0", "\"0\",8", "null,8" })
        EXPECT_SAYS(
            safetensors_problem(one("F32", "2", offsets, 8)), "not an array of two integers"
        );
    for (const char *offsets : { "0,9", "-8,0", "8,0", "0,9223372036854775807", "9,9" })
        EXPECT_SAYS(safetensors_problem(one("F32", "2", offsets, 8)), "of a data section of 8");
    EXPECT_SAYS(safetensors_problem(one("F32", "2", "0,7", 8)), "span 7 bytes, its shape takes 8");
    const string twice =
        "{" + tensor("a", "U8", "1", "0,1") + "," + tensor("a", "U8", "1", "1,2") + "}";
    EXPECT_SAYS(safetensors_problem(safetensors(twice, 2)), "duplicate");
}

TEST(HostileSafetensors, Places)
{
    const auto two = [](const char *a, const char *b, size_t bytes) {
        return safetensors_problem(safetensors(
            "{" + tensor("a", "U8", "4", a) + "," + tensor("b", "U8", "4", b) + "}", bytes
        ));
    };
    EXPECT_EQ(two("0,4", "4,8", 8), "");
    EXPECT_EQ(two("4,8", "0,4", 8), "");
    EXPECT_SAYS(
        two("0,4", "3,7", 7),
        "overlap in the data section: one tensor ends at 4, the next begins at 3"
    );
    EXPECT_SAYS(two("0,4", "0,4", 4), "overlap");
    EXPECT_SAYS(
        two("0,4", "5,9", 9), "gap in the data section: one tensor ends at 4, the next begins at 5"
    );
    EXPECT_SAYS(two("1,5", "5,9", 9), "gap");
    EXPECT_SAYS(two("0,4", "4,8", 9), "the last tensor ends at 8 of a data section of 9");
}

TEST(HostileSafetensors, TooManyTensors)
{
    std::ostringstream header;
    header << "{";
    for (int i = 0; i < 100000; i++) {
        const string begin = std::to_string(i), end = std::to_string(i + 1);
        header << (i > 0 ? "," : "") << tensor("t" + begin, "U8", "1", begin + "," + end);
    }
    header << "}";
    EXPECT_SAYS(
        safetensors_problem(safetensors(header.str(), 100000)),
        "100000 tensors, at most 65536 are read"
    );
}

/* ---- damage of good files -------------------------------------------------------------------- */

std::vector<string> corpus(const char *folder)
{
    std::vector<string> files;
    for (const auto &item :
         std::filesystem::directory_iterator(string("tests/fuzz/corpus/") + folder)) {
        std::ifstream stream(item.path(), std::ios::binary);
        files.emplace_back(
            std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()
        );
    }
    EXPECT_GE(files.size(), 4u) << folder;
    return files;
}

void damage(const char *folder, const std::function<string(const string &)> &read)
{
    for (const string &good : corpus(folder)) {
        EXPECT_EQ(read(good), "") << folder;
        for (size_t n = 0; n < good.size(); n++) (void)read(good.substr(0, n));
        for (size_t at = 0; at < good.size(); at++)
            for (int bit = 0; bit < 8; bit++) {
                string bad = good;
                bad[at] = (char)(bad[at] ^ 1 << bit);
                (void)read(bad);
            }
        for (size_t at = 0; at < good.size(); at++)
            for (const char byte : { '\0', '\xff', '\x7f', '\x80', '"', '{', '9' }) {
                string bad = good;
                bad[at] = byte;
                (void)read(bad);
            }
    }
}

TEST(Hostile, DamagedGguf) { damage("gguf", gguf_problem); }
TEST(Hostile, DamagedSafetensors) { damage("safetensors", safetensors_problem); }

TEST(Hostile, EveryTruncationIsAnError)
{
    const string a = gguf(
        { key("general.architecture", STRING, text("x")) },
        { entry("a", { 8 }, 0, 0), entry("b", { 32 }, 8, 32) }, 66
    );
    const string b = safetensors("{" + tensor("a", "F32", "2", "0,8") + "}", 8);
    ASSERT_EQ(gguf_problem(a), "");
    ASSERT_EQ(safetensors_problem(b), "");
    for (size_t n = 0; n < a.size(); n++) EXPECT_NE(gguf_problem(a.substr(0, n)), "") << n;
    for (size_t n = 0; n < b.size(); n++) EXPECT_NE(safetensors_problem(b.substr(0, n)), "") << n;
}

/* ---- sets of files --------------------------------------------------------------------------- */

class Sets : public ::testing::Test {
  protected:
    void SetUp() override
    {
        folder = string(getenv("TEST_TMPDIR")) + "/set";
        std::filesystem::remove_all(folder);
        std::filesystem::create_directories(folder);
    }

    void write(const string &name, const string &bytes)
    {
        std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
    }

    string open(const string &name)
    {
        weir_tensor_directory *directory = nullptr;
        weir_error error = {};
        const string path = name.empty() ? folder : folder + "/" + name;
        const weir_status status = weir_tensor_directory_open(&directory, path.c_str(), &error);
        probe_status(status, &error);
        opened.reset(directory);
        return status == WEIR_OK ? "" : error.text;
    }

    string folder;
    Directory opened;
};

string split(int number, int count, int tensors, const std::vector<string> &names)
{
    std::vector<string> entries;
    for (size_t i = 0; i < names.size(); i++) entries.push_back(entry(names[i], { 8 }, 0, 32 * i));
    return gguf(
        { key("split.no", U16, little((uint16_t)number)),
          key("split.count", U16, little((uint16_t)count)),
          key("split.tensors.count", I32, u32((uint32_t)tensors)),
          key("file", I32, u32((uint32_t)number)) },
        entries, 32 * names.size()
    );
}

TEST_F(Sets, SplitGguf)
{
    write("m-00001-of-00003.gguf", split(0, 3, 3, {}));
    write("m-00002-of-00003.gguf", split(1, 3, 3, { "a", "b" }));
    EXPECT_SAYS(open(""), "m-00003-of-00003.gguf: cannot open");
    write("m-00003-of-00003.gguf", split(2, 3, 3, { "c" }));
    for (const char *path : { "", "m-00001-of-00003.gguf" }) {
        EXPECT_EQ(open(path), "");
        ASSERT_EQ(weir_tensor_directory_count(opened.get()), 3u);
        EXPECT_EQ(weir_tensor_directory_find(opened.get(), "c")->file, 2);
        weir_meta meta;
        ASSERT_TRUE(weir_tensor_directory_meta(opened.get(), "file", &meta));
        EXPECT_EQ(meta.integer, 0);
    }
    EXPECT_SAYS(open("m-00002-of-00003.gguf"), "it is file 2 of 3: give the first file");
    write("m-00003-of-00003.gguf", split(1, 3, 3, { "c" }));
    EXPECT_SAYS(open(""), "it is file 2 of 3 by its keys, not 3 of 3");
    write("m-00003-of-00003.gguf", split(2, 4, 3, { "c" }));
    EXPECT_SAYS(open(""), "it is file 3 of 4 by its keys, not 3 of 3");
    write("m-00003-of-00003.gguf", split(2, 3, 3, { "c", "d" }));
    EXPECT_SAYS(open(""), "the set holds 4 tensors, split.tensors.count says 3");
    write("m-00003-of-00003.gguf", split(2, 3, 3, { "a" }));
    EXPECT_SAYS(open(""), "tensor a appears twice");
    write("m-00003-of-00003.gguf", "GGUF");
    EXPECT_SAYS(open(""), "m-00003-of-00003.gguf: byte 4");
    write("n.gguf", split(0, 3, 3, {}));
    EXPECT_SAYS(open("n.gguf"), "must be named NAME-00001-of-00003.gguf");
    EXPECT_SAYS(open(""), "more than one .gguf");
    write("o-00001-of-00009.gguf", split(0, 3, 3, {}));
    EXPECT_SAYS(open("o-00001-of-00009.gguf"), "must be named NAME-00001-of-00003.gguf");
    write("p.gguf", gguf({ key("split.count", U16, little((uint16_t)5000)) }, {}, 0));
    EXPECT_SAYS(open("p.gguf"), "split.count is not an integer from 0 to 4096");
}

string index_of(const string &map) { return "{\"metadata\":{},\"weight_map\":" + map + "}"; }

TEST_F(Sets, Index)
{
    const char *const index = "model.safetensors.index.json";
    write(
        "one.safetensors",
        safetensors(
            "{" + tensor("a", "U8", "1", "0,1") + "," + tensor("extra", "U8", "1", "1,2") + "}", 2
        )
    );
    write(
        "two.safetensors",
        safetensors(
            "{" + tensor("b", "U8", "1", "0,1") + "," + tensor("a", "U8", "1", "1,2") + "}", 2
        )
    );
    write(index, index_of("{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}"));
    EXPECT_EQ(open(""), "");
    EXPECT_EQ(weir_tensor_directory_count(opened.get()), 2u);
    EXPECT_EQ(weir_tensor_directory_find(opened.get(), "a")->file, 0);
    EXPECT_EQ(weir_tensor_directory_find(opened.get(), "extra"), nullptr);
    for (const char *file : { "../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "",
                              "config.json", "x\\u0000.safetensors" }) {
        write(index, index_of("{\"a\":\"" + string(file) + "\"}"));
        EXPECT_SAYS(open(""), "is not the name of a .safetensors file in the same folder");
    }
    const std::vector<std::pair<string, string>> bad = {
        { index_of("{\"a\":1}"), "tensor a: its file is not a string" },
        { index_of("{}"), "0 tensors" },
        { index_of("[]"), "no object \"weight_map\"" },
        { "{}", "no object \"weight_map\"" },
        { "[]", "no object \"weight_map\"" },
        { "{", "index.json:1:" },
        { index_of("{\"a\":\"one.safetensors\",\"zz\":\"two.safetensors\"}"),
          "tensor zz is not in two.safetensors" },
        { index_of("{\"b\":\"one.safetensors\"}"), "tensor b is not in one.safetensors" },
        { index_of("{\"a\":\"none.safetensors\"}"), "none.safetensors: cannot open" },
    };
    for (const auto &[content, says] : bad) {
        write(index, content);
        EXPECT_SAYS(open(""), says);
    }
}

TEST_F(Sets, Config)
{
    write("model.safetensors", one("U8", "1", "0,1", 1));
    EXPECT_EQ(open(""), "");
    weir_meta meta, item;
    EXPECT_FALSE(weir_tensor_directory_meta(opened.get(), "a", &meta));
    write("config.json", R"({"a": 1, "n": 5, "z": null, "b": {"c": [1, 2.5, null, {}]},
                            "text_config": {"a": 2, "n": null, "deep": {"x": "y"}}})");
    EXPECT_EQ(open("model.safetensors"), "");
    ASSERT_TRUE(weir_tensor_directory_meta(opened.get(), "a", &meta));
    EXPECT_EQ(meta.integer, 2);
    ASSERT_TRUE(weir_tensor_directory_meta(opened.get(), "n", &meta));
    EXPECT_EQ(meta.integer, 5);
    EXPECT_FALSE(weir_tensor_directory_meta(opened.get(), "z", &meta));
    ASSERT_TRUE(weir_tensor_directory_meta(opened.get(), "deep.x", &meta));
    EXPECT_STREQ(meta.string, "y");
    ASSERT_TRUE(weir_tensor_directory_meta(opened.get(), "b.c", &meta));
    EXPECT_EQ(meta.element_type, WEIR_META_FLOAT);
    ASSERT_EQ(meta.length, 4u);
    ASSERT_TRUE(weir_meta_at(&meta, 0, &item));
    EXPECT_TRUE(item.type == WEIR_META_FLOAT && item.number == 1.0);
    EXPECT_FALSE(weir_meta_at(&meta, 2, &item));
    EXPECT_FALSE(weir_meta_at(&meta, 3, &item));
    write("config.json", "[1]");
    EXPECT_SAYS(open(""), "config.json: not a JSON object");
    write("config.json", "{\"a\": 1,}");
    EXPECT_SAYS(open(""), "config.json:1:");
    write("config.json", "{\"" + string(600, 'k') + "\": {\"" + string(600, 'k') + "\": 1}}");
    EXPECT_SAYS(open(""), "longer than 1024");
    string many = "{";
    for (int i = 0; i < 70000; i++) many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
    write("config.json", many + "}");
    EXPECT_SAYS(open(""), "more than 65536 keys");
}

TEST_F(Sets, Paths)
{
    EXPECT_SAYS(open(""), "no model.safetensors, no model.safetensors.index.json, no .gguf file");
    EXPECT_SAYS(open("none"), "no such file or folder");
    EXPECT_SAYS(open(""), "a model is a GGUF file, a safetensors file or a checkpoint folder");
    write("half.gguf", string("GGU\0", 4));
    EXPECT_SAYS(open("half.gguf"), "byte 0: not a GGUF file");
    write("half.safetensors", string(4, '\0'));
    EXPECT_SAYS(open("half.safetensors"), "4 bytes has no safetensors header");
    write("model.bin", string(64, '\1'));
    EXPECT_SAYS(
        open("model.bin"), "model.bin: not a model: it begins neither as GGUF nor as "
                           "safetensors; a model is a GGUF file"
    );
    std::filesystem::create_directory(folder + "/model.safetensors");
    EXPECT_SAYS(open(""), "not a regular file");
    weir_tensor_directory_close(nullptr);
}

/* What people give by mistake is named, whatever its file is called. */
TEST_F(Sets, ForeignFiles)
{
    const std::pair<string, const char *> foreign[] = {
        { "", "an empty file" },
        { "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull" },
        { "\n<!DOCTYPE html><html>", "an HTML or XML page" },
        { "{\"model_type\": \"qwen3\"}", "JSON text" },
        { "# Caf\xc3\xa9\nA model card.\n", "a text file" },
        { string(511, 'a') + "\xc3\xa9", "a text file" },
        { string("PK\3\4\0\0", 6), "a ZIP archive" },
        { string("\x80\2}q\0", 5), "a Python pickle" },
        { string("tjgg\3\0\0\0", 8), "before GGUF" },
        { string("\x1f\x8b\x08\0", 4), "compressed by gzip" },
        { string(
              "\x7f"
              "ELF\2\1\1\0",
              8
          ),
          "a program" },
    };
    for (const auto &[bytes, says] : foreign) {
        for (const char *name : { "m", "m.gguf", "m.safetensors" }) {
            write(name, bytes);
            EXPECT_SAYS(open(name), says);
            EXPECT_SAYS(open(name), "not a model but ");
            EXPECT_SAYS(
                open(name), "; a model is a GGUF file, a safetensors file or a checkpoint folder"
            );
        }
        write("model.safetensors", bytes);
        EXPECT_SAYS(open(""), says);
        std::filesystem::remove(folder + "/model.safetensors");
    }
}

/* The content decides, not the name. */
TEST_F(Sets, NamesSayNothing)
{
    const string tensors = one("U8", "1", "0,1", 1);
    for (const char *name : { "a", "a.gguf", "a.bin" }) {
        write(name, tensors);
        EXPECT_EQ(open(name), "");
        EXPECT_EQ(weir_tensor_directory_container(opened.get()), WEIR_CONTAINER_SAFETENSORS);
    }
    write("b.safetensors", "GGUF" + u32(3) + u64(0) + u64(0));
    EXPECT_EQ(open("b.safetensors"), "");
    EXPECT_EQ(weir_tensor_directory_container(opened.get()), WEIR_CONTAINER_GGUF);
}

} // namespace
