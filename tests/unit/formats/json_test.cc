#include "engine/base/file.h"
#include "engine/base/memory.h"
#include "engine/formats/json.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cfloat>
#include <cstring>
#include <random>
#include <string>
#include <tuple>

namespace {

/* Parses; returns "" or the error text. */
std::string problem(const std::string &text, size_t max_depth = WEIR_JSON_DEPTH)
{
    weir_error error = {};
    json_t *value = nullptr;
    const weir_status status =
        weir_json_parse(&value, text.data(), text.size(), "t.json", max_depth, &error);
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
    json_t *value = nullptr;
    const char text[] = "{\"a\": [1, 2.5, \"x\\u0000y\"], \"b\": {\"c\": true}}";
    ASSERT_EQ(weir_json_parse(&value, text, sizeof text - 1, "t.json", 2, &error), WEIR_OK)
        << error.text;
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
        "Infinity",
        "[-Infinity]",
        "-",
    };
    for (const std::string &text : bad) EXPECT_NE(problem(text), "") << text;
}

TEST(Json, ConfigsMayHaveInfinity)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/config.json";
    const char text[] = "{\"limits\": [0.0, Infinity, -Infinity, -1]}";
    weir_error error = {};
    json_t *value = nullptr;
    ASSERT_EQ(weir_file_write_atomic(path.c_str(), text, sizeof text - 1, &error), WEIR_OK);
    ASSERT_EQ(weir_json_read_config(&value, path.c_str(), 100, &error), WEIR_OK) << error.text;
    const json_t *const limits = json_object_get(value, "limits");
    EXPECT_EQ(json_real_value(json_array_get(limits, 1)), DBL_MAX);
    EXPECT_EQ(json_real_value(json_array_get(limits, 2)), -DBL_MAX);
    EXPECT_EQ(json_integer_value(json_array_get(limits, 3)), -1);
    json_decref(value);
    value = nullptr;
    for (const char *bad : { "[Infinit", "[NaN]", "[+Infinity]", "[Infinityx]", "[-Inf]" }) {
        ASSERT_EQ(weir_file_write_atomic(path.c_str(), bad, strlen(bad), &error), WEIR_OK);
        EXPECT_EQ(weir_json_read_config(&value, path.c_str(), 100, &error), WEIR_EFORMAT) << bad;
    }
}

TEST(Json, ErrorTextIsPrintable)
{
    for (const char byte : problem("\"\xc3\x28 \x01\x7f\""))
        EXPECT_TRUE(byte >= 0x20 && byte < 0x7f);
}

TEST(Json, FilesHaveLimits)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/f.json", absent = path + "x";
    weir_error error = {};
    json_t *value = nullptr;
    ASSERT_EQ(weir_file_write_atomic(path.c_str(), "{\"a\":", 5, &error), WEIR_OK);
    EXPECT_EQ(weir_json_read_file(&value, path.c_str(), 100, &error), WEIR_EFORMAT);
    EXPECT_EQ(std::string(error.text).rfind(path + ":1:", 0), 0u) << error.text;
    EXPECT_EQ(weir_json_read_file(&value, path.c_str(), 4, &error), WEIR_EFORMAT);
    EXPECT_EQ(weir_json_read_file(&value, absent.c_str(), 4, &error), WEIR_ENOTFOUND);
    ASSERT_EQ(weir_file_write_atomic(path.c_str(), "", 0, &error), WEIR_OK);
    EXPECT_EQ(weir_json_read_file(&value, path.c_str(), 100, &error), WEIR_EFORMAT);
}

/* What a client can send to have much built of little. */
std::string repeat(const std::string &part, int n, const char *open, const char *close)
{
    std::string text = open;
    for (int i = 0; i < n; i++) text += (i > 0 ? "," : "") + part;
    return text + close;
}

struct Tracker {
    weir_memory_tracker tracker = { charge, refund, nullptr };
    size_t used = 0, most = 0, limit = SIZE_MAX;
    static bool charge(weir_memory_tracker *tracker, size_t bytes)
    {
        Tracker *const self = reinterpret_cast<Tracker *>(tracker);
        if (bytes > self->limit - self->used) return false;
        self->used += bytes;
        self->most = std::max(self->most, self->used);
        return true;
    }
    static void refund(weir_memory_tracker *tracker, size_t bytes)
    {
        reinterpret_cast<Tracker *>(tracker)->used -= bytes;
    }
};

/* From here on jansson asks the tracker, as in programs. */
class PaidJson : public testing::Test {
  protected:
    static void SetUpTestSuite() { weir_json_use_memory(); }
    void SetUp() override { (void)weir_memory_tracker_set(&tracker_.tracker); }
    void TearDown() override
    {
        (void)weir_memory_tracker_set(nullptr);
        EXPECT_EQ(tracker_.used, 0u);
    }
    Tracker tracker_;
};

TEST_F(PaidJson, ATreeIsChargedWhileItLives)
{
    const std::string text = repeat("{}", 100000, "[", "]");
    weir_error error = {};
    json_t *root = nullptr;
    ASSERT_EQ(weir_json_parse(&root, text.data(), text.size(), "t", 64, &error), WEIR_OK);
    EXPECT_GT(tracker_.used, 100000u * 100);
    json_decref(root);
    EXPECT_EQ(tracker_.used, 0u) << "all of it is given back at once";
}

/* Wherever memory ends, it is said so, and it never passes the limit. */
TEST_F(PaidJson, AShortTrackerIsNoMemoryAndNoSyntaxError)
{
    const std::string texts[] = { repeat("{}", 20000, "[", "]"), repeat("[]", 20000, "[", "]"),
                                  repeat("{\"a\":[\"b\"]}", 9000, "{\"x\":[", "]}"),
                                  repeat("1.5", 100000, "[", "]"),
                                  "\"" + std::string(600000, 'x') + "\"" };
    for (const std::string &text : texts)
        for (size_t limit = 1000; limit < 1200000; limit += 60000) {
            weir_error error = {};
            json_t *root = nullptr;
            tracker_.limit = limit;
            const weir_status status =
                weir_json_parse(&root, text.data(), text.size(), "t", 64, &error);
            EXPECT_LE(tracker_.most, limit);
            tracker_.most = 0;
            json_decref(root);
            if (status == WEIR_OK) continue;
            ASSERT_EQ(status, WEIR_ENOMEM) << error.text;
            EXPECT_STREQ(error.text, "t: no memory for its JSON values");
        }
}

TEST_F(PaidJson, WritesAndSaysWhenThereIsNoRoom)
{
    json_t *const root = json_pack("{s:[i,b,n,f]}", "a", 1, 1, 2.5);
    char *text = weir_json_text(root, JSON_COMPACT);
    EXPECT_STREQ(text, "{\"a\":[1,true,null,2.5]}");
    weir_memory_give(text);
    json_t *const large = json_array();
    for (int i = 0; i < 5000; i++) json_array_append_new(large, json_integer(i));
    weir_buffer buffer = {};
    ASSERT_EQ(weir_buffer_text(&buffer, "before "), WEIR_OK);
    tracker_.limit = tracker_.used + 9000;
    EXPECT_EQ(weir_json_write(&buffer, large, 0), WEIR_ENOMEM);
    EXPECT_STREQ(buffer.data, "before ");
    EXPECT_EQ(weir_json_write(&buffer, root, JSON_COMPACT), WEIR_OK);
    EXPECT_STREQ(buffer.data, "before {\"a\":[1,true,null,2.5]}");
    EXPECT_EQ(weir_json_text(nullptr, 0), nullptr);
    weir_buffer_free(&buffer);
    json_decref(large);
    json_decref(root);
}

TEST(Json, FaultsSayWhatIsTooMuchAndWhere)
{
    const weir_json_limits limits = { .depth = 3, .values = 8, .keys = 3, .reads_infinity = false };
    const auto built = [&](const std::string &text) {
        weir_json_place place = {};
        json_t *root = nullptr;
        const weir_json_fault fault =
            weir_json_build(&root, &place, text.data(), text.size(), &limits);
        EXPECT_EQ(fault == WEIR_JSON_FINE, root != nullptr);
        json_decref(root);
        return std::make_tuple(fault, place.offset, std::string(place.key));
    };
    const auto found = [](weir_json_fault fault, size_t offset, const char *key) {
        return std::make_tuple(fault, offset, std::string(key));
    };
    EXPECT_EQ(built("{\"a\":[[1]]}"), found(WEIR_JSON_FINE, 0, ""));
    EXPECT_EQ(built("{\"a\":[[[1]]]}"), found(WEIR_JSON_TOO_DEEP, 7, "a"));
    EXPECT_EQ(built("{\"a\":{\"b\":{\"c\":{}}}}"), found(WEIR_JSON_TOO_DEEP, 15, "a"));
    EXPECT_EQ(built("[1,2,3,4,5,6,7]"), found(WEIR_JSON_FINE, 0, ""));
    EXPECT_EQ(built("[1,2,3,4,5,6,7,8]"), found(WEIR_JSON_TOO_MANY_VALUES, 15, ""));
    EXPECT_EQ(built("{\"a\":1,\"b\":2,\"c\":3,\"d\":4}"), found(WEIR_JSON_TOO_MANY_KEYS, 19, "c"));
    EXPECT_EQ(built("{\"n\":9223372036854775808}"), found(WEIR_JSON_LARGE_INTEGER, 5, "n"));
    EXPECT_EQ(built("[-9223372036854775808]"), found(WEIR_JSON_FINE, 0, ""));
    EXPECT_EQ(built("[-9223372036854775809]"), found(WEIR_JSON_LARGE_INTEGER, 1, ""));
    EXPECT_EQ(built("{\"n\":1e400}"), found(WEIR_JSON_LARGE_NUMBER, 5, "n"));
    EXPECT_EQ(built("[\"1e400,[[[[\"]"), found(WEIR_JSON_FINE, 0, ""));
    EXPECT_EQ(built("[1,\"\\u0041"), found(WEIR_JSON_SYNTAX, 10, ""));
}

/* Both readers say the same of every text that a few changes make of these. Only NULs between
 * values, which jansson skips, are refused here. */
TEST(Json, ReadsAsJanssonDoes)
{
    const std::string texts[] = {
        R"({"a":[1,-0,2.5e3,true,null,"\u0000\ud83d\ude00x"],"b":{"c":"\"\\\/\b\f\n\r\t"}})",
        "[0.5,1E+2,-1e-2,12345678901234567,\"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"]",
        " { \"k\" : [ ] , \"l\" : { } }\n",
    };
    const std::string bytes("\"\\,:[]{}0e.-+u \n\x1f\x7f\x80\xc3\xed\xf4\xff"
                            "dD8nt");
    enum { FLAGS = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL };
    std::mt19937 random(7);
    int n_read = 0;
    for (int i = 0; i < 60000; i++) {
        std::string text = texts[i % 3];
        for (unsigned change = random() % 4; change > 0; change--) {
            const size_t at = random() % text.size();
            const char byte = bytes[random() % bytes.size()];
            if (random() % 3 == 0)
                text.erase(at, 1 + random() % 3);
            else if (random() % 2 == 0)
                text[at] = byte;
            else
                text.insert(at, 1, byte);
            if (text.empty()) text = " ";
        }
        json_error_t why;
        json_t *const theirs = json_loadb(text.data(), text.size(), FLAGS, &why);
        json_t *ours = nullptr;
        (void)weir_json_build(&ours, nullptr, text.data(), text.size(), &weir_json_request);
        ASSERT_EQ(ours != nullptr, theirs != nullptr) << text << ": " << why.text;
        if (ours != nullptr) ASSERT_TRUE(json_equal(ours, theirs)) << text;
        n_read += ours != nullptr;
        json_decref(ours);
        json_decref(theirs);
    }
    EXPECT_GT(n_read, 15000);
}

} // namespace
