// Values in the dialects of models, written as JSON.
#include <gtest/gtest.h>
#include <jansson.h>

#include <algorithm>
#include <string>

#include "engine/toolcalls/value.h"

namespace {

struct Value {
    std::string json;
    weir_value_end end;
    size_t used;
};

Value scan(weir_value_dialect dialect, const std::string &text, size_t n)
{
    weir_value_scanner scanner = {};
    weir_buffer out = {};
    Value value = { "", WEIR_VALUE_MORE, 0 };
    scanner.dialect = dialect;
    while (value.used < text.size() && value.end == WEIR_VALUE_MORE) {
        size_t used;
        const size_t length = std::min(n, text.size() - value.used);
        EXPECT_EQ(
            WEIR_OK,
            weir_value_scan(&scanner, &out, text.data() + value.used, length, &used, &value.end)
        );
        value.used += used;
        if (value.end == WEIR_VALUE_MORE) EXPECT_EQ(length, used);
    }
    if (out.size > 0) value.json.assign(out.data, out.size);
    weir_buffer_free(&out);
    return value;
}

/* The text is a value, whose JSON is `json`, and ends before " ]". */
void expect_value(weir_value_dialect dialect, const std::string &text, const std::string &json)
{
    for (size_t n = 1; n <= text.size(); n++) {
        const Value value = scan(dialect, text + " ]", n);
        EXPECT_EQ(WEIR_VALUE_DONE, value.end) << text;
        EXPECT_EQ(json, value.json);
        EXPECT_EQ(text.size(), value.used) << text;
        json_t *const valid =
            json_loads(value.json.c_str(), JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, nullptr);
        EXPECT_NE(nullptr, valid) << value.json;
        json_decref(valid);
    }
}

void expect_bad(weir_value_dialect dialect, const std::string &text)
{
    for (size_t n = 1; n <= text.size(); n++)
        EXPECT_EQ(WEIR_VALUE_BAD, scan(dialect, text + " ", n).end) << text;
}

TEST(Value, JsonIsCopied)
{
    for (const char *text :
         { "{}", "[]", "{\"a\": [1, 2.5e-3, {\"b\": null}], \"c\":\"\\u00e9\\\"]}\"}", "-0.5",
           "[true,false , null]", "\"x\"", "[[[]]]", "12345678901234567890", "0" })
        expect_value(WEIR_VALUE_JSON, text, text);
}

TEST(Value, WhatIsNotJson)
{
    for (const char *text : { "{\"a\": \"b\"c}",
                              "{,}",
                              "[1,]",
                              "{\"a\":1,}",
                              "{a:1}",
                              "{'a':1}",
                              "[01]",
                              "1.",
                              "-",
                              "+1",
                              ".5",
                              "1e",
                              "tru ",
                              "True",
                              "[1 2]",
                              "{\"a\" 1}",
                              "\"\n\"",
                              "\"\\x\"",
                              "\"\\u12g4\"",
                              "]",
                              "{\"a\":}",
                              "(a=1)",
                              "[1}",
                              "truefalsetrue" })
        expect_bad(WEIR_VALUE_JSON, text);
}

TEST(Value, PythonsLiterals)
{
    const struct {
        const char *text, *json;
    } cases[] = {
        { "()", "{}" },
        { "(a=1, b='x')", "{\"a\":1,\"b\":\"x\"}" },
        { "(a = [1, 2,], b = {'k': True, \"l\": None,},)",
          "{\"a\":[1,2],\"b\":{\"k\":true,\"l\":null}}" },
        { "'it\\'s \"q\"'", "\"it's \\\"q\\\"\"" },
        { "'\\x41\\n\\d\\U0001F600'", "\"\\u0041\\n\\\\d\\ud83d\\ude00\"" },
        { "'a\nb'", "\"a\\nb\"" },
        { "(x=false)", "{\"x\":false}" },
        { "-1.5e3", "-1.5e3" },
    };
    for (const auto &c : cases) expect_value(WEIR_VALUE_PYTHON, c.text, c.json);
    for (const char *text : { "(a=\"b\"c)", "(*=2)", "(a)", "(,)", "f(x)", "(a=(b=1))", "{a: 1}",
                              "(a=x)", "'\\U00110000'", "(\"a\"=1)" })
        expect_bad(WEIR_VALUE_PYTHON, text);
}

TEST(Value, Gemma)
{
    const struct {
        const char *text, *json;
    } cases[] = {
        { "{}", "{}" },
        { "{a:<|\"|>x \"y\" \\ <|<|\"|>,b:-1.5}", "{\"a\":\"x \\\"y\\\" \\\\ <|\",\"b\":-1.5}" },
        { "{list:[1,<|\"|><|\"|>,true],o:{k:null}}",
          "{\"list\":[1,\"\",true],\"o\":{\"k\":null}}" },
        { "{<|\"|>k 1<|\"|>:1}", "{\"k 1\":1}" },
        { "{a:<|\"|>\n<<|\"|>}", "{\"a\":\"\\n<\"}" },
    };
    for (const auto &c : cases) expect_value(WEIR_VALUE_GEMMA, c.text, c.json);
    for (const char *text : { "{a:\"x\"}", "{a:<|x", "{:1}", "{a:1,}", "[1,]", "{a}" })
        expect_bad(WEIR_VALUE_GEMMA, text);
}

TEST(Value, DepthIsBounded)
{
    const std::string most(WEIR_VALUE_DEPTH, '['), ends(WEIR_VALUE_DEPTH, ']');
    EXPECT_EQ(WEIR_VALUE_DONE, scan(WEIR_VALUE_JSON, most + ends, 9).end);
    EXPECT_EQ(WEIR_VALUE_BAD, scan(WEIR_VALUE_JSON, most + "[]" + ends, 9).end);
}

TEST(Value, IsJson)
{
    const struct {
        const char *text;
        bool is_json;
        char first;
    } cases[] = {
        { " 7 ", true, '7' },  { "", false, 0 },       { "  ", false, 0 },
        { "x", false, 'x' },   { "1 2", false, '1' },  { "\n[1]\n", true, '[' },
        { "true", true, 't' }, { "trux", false, 't' }, { "{\"a\":1} x", false, '{' },
    };
    for (const auto &c : cases) {
        bool is_json;
        char first;
        ASSERT_EQ(
            WEIR_OK, weir_value_is_json(&is_json, &first, c.text, std::string(c.text).size())
        );
        EXPECT_EQ(c.is_json, is_json) << c.text;
        EXPECT_EQ(c.first, first) << c.text;
    }
}

} // namespace
