// The JSON writer, SSE frames, error objects, the strict reader.
#include <gtest/gtest.h>
#include <jansson.h>

#include <cmath>
#include <string>

#include "engine/serve/errors.h"
#include "engine/serve/json_in.h"
#include "engine/serve/json_out.h"
#include "engine/serve/sse.h"

namespace {

std::string take(weir_buffer *buffer)
{
    const std::string text(buffer->data != nullptr ? buffer->data : "", buffer->size);
    weir_buffer_free(buffer);
    return text;
}

std::string quoted(const std::string &bytes)
{
    weir_buffer buffer = {};
    weir_json_out out = {};
    out.buffer = &buffer;
    weir_json_bytes(&out, bytes.data(), bytes.size());
    EXPECT_EQ(WEIR_OK, out.status);
    return take(&buffer);
}

TEST(JsonOut, PlacesCommas)
{
    weir_buffer buffer = {};
    weir_json_out out = {};
    out.buffer = &buffer;
    weir_json_open(&out, '{');
    weir_json_key(&out, "a");
    weir_json_open(&out, '[');
    weir_json_integer(&out, -1);
    weir_json_integer(&out, INT64_MAX);
    weir_json_open(&out, '[');
    weir_json_close(&out, ']');
    weir_json_null(&out);
    weir_json_close(&out, ']');
    weir_json_key(&out, "b");
    weir_json_bool(&out, true);
    weir_json_key(&out, "c");
    weir_json_raw(&out, "{}", 2);
    weir_json_key(&out, "d");
    weir_json_number(&out, 0.25);
    weir_json_close(&out, '}');
    EXPECT_EQ(WEIR_OK, out.status);
    EXPECT_EQ(R"({"a":[-1,9223372036854775807,[],null],"b":true,"c":{},"d":0.25})", take(&buffer));
}

TEST(JsonOut, EscapesAndReplaces)
{
    EXPECT_EQ(
        "\"a\\\"\\\\\\n\\r\\t\\u0000\\u001f/\x7f\"",
        quoted(std::string("a\"\\\n\r\t\0\x1f/\x7f", 10))
    );
    EXPECT_EQ("\"caf\xc3\xa9 \xf0\x9f\x98\x80\"", quoted("caf\xc3\xa9 \xf0\x9f\x98\x80"));
    EXPECT_EQ("\"\xef\xbf\xbd\"", quoted("\xff"));
    EXPECT_EQ("\"a\xef\xbf\xbd\"", quoted("a\xc3")) << "cut at the end";
    EXPECT_EQ("\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"", quoted("\xed\xa0\x80")) << "a surrogate";
    EXPECT_EQ("\"\xef\xbf\xbd\xef\xbf\xbd\"", quoted("\xc0\xaf")) << "overlong";
}

TEST(JsonOut, NumbersThatJsonCannotSay)
{
    for (const double x : { static_cast<double>(INFINITY), -static_cast<double>(INFINITY),
                            static_cast<double>(NAN) }) {
        weir_buffer buffer = {};
        weir_json_out out = {};
        out.buffer = &buffer;
        weir_json_number(&out, x);
        EXPECT_EQ("-9999", take(&buffer));
    }
}

TEST(Sse, Frames)
{
    weir_buffer buffer = {};
    ASSERT_EQ(WEIR_OK, weir_sse_begin(&buffer));
    ASSERT_EQ(WEIR_OK, weir_buffer_text(&buffer, "{}"));
    ASSERT_EQ(WEIR_OK, weir_sse_end(&buffer));
    ASSERT_EQ(WEIR_OK, weir_sse_ping(&buffer));
    ASSERT_EQ(WEIR_OK, weir_sse_done(&buffer));
    EXPECT_EQ("data: {}\n\n: ping\n\ndata: [DONE]\n\n", take(&buffer));
}

TEST(Errors, Object)
{
    weir_api_error error;
    weir_buffer buffer = {};
    EXPECT_EQ(WEIR_EINVAL, weir_api_bad(&error, "n", "n is %d", 0));
    ASSERT_EQ(WEIR_OK, weir_api_error_write(&buffer, &error));
    EXPECT_EQ(
        R"({"error":{"message":"n is 0","type":"invalid_request_error","param":"n","code":null}})",
        take(&buffer)
    );

    EXPECT_EQ(WEIR_EINVAL, weir_api_too_long(&error, "prompt", 5000, 4096));
    ASSERT_EQ(WEIR_OK, weir_api_error_write(&buffer, &error));
    const std::string text = take(&buffer);
    EXPECT_NE(std::string::npos, text.find("exceeds the available context size"));
    EXPECT_NE(
        std::string::npos,
        text.find("\"code\":\"context_length_exceeded\",\"n_prompt_tokens\":5000,\"n_ctx\":4096")
    );

    EXPECT_EQ(WEIR_EINVAL, weir_api_fail(&error, 429, "queue_full", nullptr, "full"));
    EXPECT_GT(error.retry_after, 0);
    EXPECT_STREQ("rate_limit_error", error.type);
}

TEST(Errors, QuoteIsShortAndPrintable)
{
    EXPECT_STREQ("a??b", weir_quote("a\x07\nb").text);
    EXPECT_EQ(std::string(60, 'x') + "...", weir_quote(std::string(500, 'x').c_str()).text);
}

bool reads(const std::string &text, std::string *param = nullptr)
{
    weir_api_error error = {};
    json_t *root = nullptr;
    const weir_status status = weir_json_read(&root, text.c_str(), text.size(), &error);
    EXPECT_EQ(status == WEIR_OK, root != nullptr);
    if (status != WEIR_OK) {
        EXPECT_EQ(400, error.status) << text.substr(0, 80);
    }
    if (param != nullptr) *param = error.param;
    json_decref(root);
    return status == WEIR_OK;
}

TEST(JsonIn, AcceptsObjects)
{
    EXPECT_TRUE(reads("{}"));
    EXPECT_TRUE(reads(" {\"a\":[1,-0,2.5e3,true,null,\"\\u0000\\ud83d\\ude00\"]} "));
    EXPECT_TRUE(reads("{\"a\":" + std::string(63, '[') + std::string(63, ']') + "}"));
    EXPECT_TRUE(reads("{\"a\":\"" + std::string(5000, '[') + "\"}"))
        << "brackets in a string are no depth";
    EXPECT_TRUE(reads("{\"a\":\"\\\"" + std::string(5000, '[') + "\"}"))
        << "an escaped quote ends no string";
}

TEST(JsonIn, Refuses)
{
    const std::string bad[] = {
        "",
        "null",
        "[]",
        "\"x\"",
        "{",
        "{\"a\":1",
        "{\"a\":1} x",
        "{\"a\":1,}",
        "{\"a\":1,\"a\":2}",
        "{\"a\":\"\xff\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"x\ny\"}",
        "{\"a\":\"\\x41\"}",
        "{\"a\":NaN}",
        "{\"a\":-Infinity}",
        "{\"a\":+1}",
        "{\"a\":.5}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":1e999}",
        "\xef\xbb\xbf{}",
        std::string("{}\0", 3),
        "{'a':1}",
        "{\"a\":1/**/}",
        "{\"a\":\"",
        "{\"a\":\"\\",
        "{\"a\":" + std::string(64, '[') + std::string(64, ']') + "}",
        std::string(200000, '['),
        std::string(100000, ']'),
    };
    for (const std::string &text : bad) EXPECT_FALSE(reads(text)) << text.substr(0, 80);
}

TEST(JsonIn, NamesTheKeyOfANumberThatIsTooLarge)
{
    std::string param;
    EXPECT_FALSE(reads("{\"x\":\"a\",\"n\":9223372036854775808}", &param));
    EXPECT_EQ("n", param);
    EXPECT_FALSE(reads("{\"logit_bias\":{\"5\":1e400}}", &param));
    EXPECT_EQ("logit_bias", param);
    EXPECT_TRUE(reads("{\"n\":9223372036854775807}"));
}

TEST(JsonIn, BoundsCounts)
{
    std::string many = "{\"prompt\":[0";
    for (int i = 0; i < WEIR_JSON_VALUES + 1; i++) many += ",0";
    EXPECT_FALSE(reads(many + "]}"));
    std::string keys = "{\"k\":0";
    for (int i = 0; i < WEIR_JSON_KEYS + 1; i++) keys += ",\"" + std::to_string(i) + "\":0";
    EXPECT_FALSE(reads(keys + "}"));
}

} // namespace
