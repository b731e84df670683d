/* Broken and malicious files: every one opens cleanly or fails with a text; none crashes. */
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/unit/formats/hostile.h"

namespace hostile {
namespace {

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
        gguf_problem(gguf({}, { entry("a", { 128, 2 }, 16, 0) }, 512)),
        "not whole blocks of 256 (iq2_xxs)"
    );
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { 192 }, 41, 0) }, 512)),
        "not whole blocks of 128 (q1_0)"
    );
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("a", { 128 }, 40, 0) }, 71)), "tensor a takes bytes 0 to 72"
    );
    EXPECT_SAYS(
        gguf_problem(gguf({}, { entry("blk.0.x", { 256 }, 15, 0) }, 512)),
        "tensor blk.0.x has type 15 (Q8_K)"
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

} // namespace
} // namespace hostile
