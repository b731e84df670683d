#include "engine/base/file.h"
#include "engine/formats/json.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <stdlib.h>

#include <algorithm>
#include <string>

namespace {

/* Parses; returns "" or the error text. */
std::string problem(const std::string &text, size_t max_depth = WEIR_JSON_DEPTH)
{
    weir_error        error = {};
    json_t           *value = nullptr;
    const weir_status status = weir_json_parse(&value, text.data(), text.size(), "t.json", max_depth, &error);
    json_decref(value);
    if (status == WEIR_OK) return "";
    EXPECT_EQ(status, WEIR_EFORMAT);
    EXPECT_EQ(value, nullptr);
    EXPECT_NE(error.text[0], '\0');
    return error.text;
}

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Json, ReadsValues)
{
    weir_error error = {};
    json_t    *value = nullptr;
    const char text[] = "{\"a\": [1, 2.5, \"x\\u0000y\"], \"b\": {\"c\": true}}";
    ASSERT_EQ(weir_json_parse(&value, text, sizeof text - 1, "t.json", 2, &error), WEIR_OK) << error.text;
    const json_t *a = json_object_get(value, "a");
    EXPECT_EQ(json_integer_value(json_array_get(a, 0)), 1);
    EXPECT_EQ(json_real_value(json_array_get(a, 1)), 2.5);
    EXPECT_EQ(json_string_length(json_array_get(a, 2)), 3u);
    EXPECT_TRUE(json_is_true(json_object_get(json_object_get(value, "b"), "c")));
    json_decref(value);
    EXPECT_EQ(problem("3"), "");
}

TEST(Json, DepthIsLimitedBeforeParsing)
{
    EXPECT_EQ(problem(nested(64)), "");
    EXPECT_EQ(problem(nested(65)), "t.json:1:65: nested deeper than 64 levels");
    EXPECT_EQ(problem("{\"[[[[\\\"[[\": [\"{{{{\"]}", 2), "");
    EXPECT_EQ(problem("\n\n {\"k\u00e9\": [[]]}", 2), "t.json:3:10: nested deeper than 2 levels");
    EXPECT_NE(problem(std::string(5000000, '[')).find("nested deeper"), std::string::npos);
}

TEST(Json, ValuesAreLimited)
{
    std::string many = "[0";
    for (int i = 0; i < 4200000; i++) many += ",0";
    EXPECT_NE(problem(many + "]").find("more than 4194304 values"), std::string::npos);
}

TEST(Json, RefusesWhatIsNotStrictJson)
{
    EXPECT_EQ(problem("{\"a\": 1,\n \"a\": 2}").rfind("t.json:2:", 0), 0u);
    const std::string bad[] = {
        "",
        " ",
        "{",
        "[1,]",
        "{\"a\"}",
        "nul",
        "[1] 2",
        "\"\xff\"",
        "\"\\ud800\"",
        "\"\n\"",
        "1e999",
        "123456789012345678901234567890",
        "{\"a\\u0000\": 1}",
        "'a'",
        "[01]",
        "{a: 1}",
        "\"a",
        "// x\n1",
        std::string("[1]\0", 4),
        "NaN",
        "-",
    };
    for (const std::string &text : bad) EXPECT_NE(problem(text), "") << text;
}

TEST(Json, ErrorTextIsPrintable)
{
    for (const char byte : problem("\"\xc3\x28 \x01\x7f\"")) EXPECT_TRUE(byte >= 0x20 && byte < 0x7f);
}

TEST(Json, FilesHaveLimits)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/f.json";
    weir_error        error = {};
    json_t           *value = nullptr;
    ASSERT_EQ(weir_file_write_atomic(path.c_str(), "{\"a\":", 5, &error), WEIR_OK);
    EXPECT_EQ(weir_json_read_file(&value, path.c_str(), 100, &error), WEIR_EFORMAT);
    EXPECT_EQ(std::string(error.text).rfind(path + ":1:", 0), 0u) << error.text;
    EXPECT_EQ(weir_json_read_file(&value, path.c_str(), 4, &error), WEIR_EFORMAT);
    EXPECT_EQ(weir_json_read_file(&value, "/nonexistent.json", 4, &error), WEIR_ENOTFOUND);
    ASSERT_EQ(weir_file_write_atomic(path.c_str(), "", 0, &error), WEIR_OK);
    EXPECT_EQ(weir_json_read_file(&value, path.c_str(), 100, &error), WEIR_EFORMAT);
}

/* Live and most bytes of jansson, as malloc takes them. */
namespace tree {
size_t live, most;
void  *take(size_t n)
{
    void *const memory = malloc(n);
    live += malloc_usable_size(memory) + 8;
    most = std::max(most, live);
    return memory;
}
void give(void *memory)
{
    if (memory != nullptr) live -= malloc_usable_size(memory) + 8;
    free(memory);
}
} // namespace tree

TEST(Json, TreesStayBelowTheirBound)
{
    const auto repeat = [](const std::string &part, int n, const char *open, const char *close) {
        std::string text = open;
        for (int i = 0; i < n; i++) text += (i > 0 ? "," : "") + part;
        return text + close;
    };
    std::string keys = "{";
    for (int i = 0; i < 3000; i++) keys += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":" + std::to_string(i);
    const std::string texts[] = { "1",
                                  "[]",
                                  "{}",
                                  repeat("[]", 5000, "[", "]"),
                                  repeat("{}", 5000, "[", "]"),
                                  repeat("1", 4097, "[", "]"),
                                  repeat("\"a\"", 5000, "[", "]"),
                                  repeat("{\"a\":[\"b\"]}", 3000, "[", "]"),
                                  keys + "}",
                                  "\"" + std::string(100000, 'x') + "\"",
                                  repeat("[\"ab\",\"c\"]", 3000, "[", "]"),
                                  repeat("\"" + std::string(200, 'y') + "\"", 300, "[", "]") };
    json_set_alloc_funcs(tree::take, tree::give);
    for (const std::string &text : texts) {
        tree::most = tree::live = 0;
        json_t    *root = nullptr;
        weir_error error = {};
        EXPECT_EQ(weir_json_parse(&root, text.data(), text.size(), "text", WEIR_JSON_DEPTH, &error), WEIR_OK) << error.text;
        EXPECT_LE(tree::most, weir_json_tree_bytes(text.data(), text.size())) << text.substr(0, 40);
        json_decref(root);
    }
    json_set_alloc_funcs(malloc, free);
}

} // namespace
