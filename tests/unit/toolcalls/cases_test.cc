// The acceptance cases: at once, byte by byte, and cut at random.
#include <algorithm>
#include <fstream>
#include <random>

#include "tests/unit/toolcalls/parse.h"
#include "tools/eval/toolcalls.h"

namespace {

using weir_test::Call;
using weir_test::parse;
using weir_test::parse_cut;
using weir_test::Parsed;

const char folder[] = "tests/structured/toolcalls/";

std::string text_of(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    return json_is_string(value) ? std::string(json_string_value(value), json_string_length(value))
                                 : "";
}

std::string trim(const std::string &text)
{
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos) return "";
    return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

bool same_calls(const json_t *want, const std::vector<Call> &have)
{
    if (json_array_size(want) != have.size()) return false;
    for (size_t i = 0; i < have.size(); i++) {
        const json_t *const call = json_array_get(want, i);
        json_t *const arguments = json_loads(have[i].arguments.c_str(), 0, nullptr);
        const bool same =
            have[i].name == text_of(call, "name") &&
            json_equal(arguments, json_object_get(call, "arguments")) == 1 &&
            (json_object_get(call, "id") == nullptr || have[i].id == text_of(call, "id"));
        json_decref(arguments);
        if (!same) return false;
    }
    return true;
}

bool is_expected(const json_t *want, const Parsed &have)
{
    return trim(text_of(want, "content")) == trim(have.content) &&
           trim(text_of(want, "reasoning_content")) == trim(have.reasoning) &&
           same_calls(json_object_get(want, "tool_calls"), have.calls);
}

/* The format that `weir eval toolcalls` takes for the case. */
const weir_chat_format *format_of(const json_t *item, const json_t *tools)
{
    weir_buffer line = {};
    weir_error error = {};
    EXPECT_EQ(WEIR_OK, weir_eval_toolcalls_case(&line, item, tools, nullptr, true, &error));
    json_t *const object = json_loadb(line.data, line.size, 0, nullptr);
    const weir_chat_format *const format = weir_chat_format_find(text_of(object, "format").c_str());
    json_decref(object);
    weir_buffer_free(&line);
    return format;
}

class Cases : public testing::TestWithParam<const char *> {
  protected:
    void SetUp() override
    {
        tools_ = json_load_file((std::string(folder) + "tools.json").c_str(), 0, nullptr);
        ASSERT_NE(nullptr, tools_);
        std::ifstream file(std::string(folder) + GetParam());
        for (std::string line; std::getline(file, line);)
            items_.push_back(json_loads(line.c_str(), 0, nullptr));
        ASSERT_GT(items_.size(), 50u);
    }
    void TearDown() override
    {
        json_decref(tools_);
        for (json_t *item : items_) json_decref(item);
    }
    weir_chat_parser_options options_of(const json_t *item) const
    {
        const std::string prompt = text_of(item, "prompt_end");
        weir_chat_parser_options options = {};
        options.format = format_of(item, tools_);
        options.tools = tools_;
        options.start = weir_reasoning_after(prompt.data(), prompt.size(), true);
        EXPECT_NE(nullptr, options.format) << text_of(item, "id");
        return options;
    }

    json_t *tools_ = nullptr;
    std::vector<json_t *> items_;
};

TEST_P(Cases, MeanWhatIsExpected)
{
    for (const json_t *item : items_) {
        const Parsed have = parse(options_of(item), text_of(item, "text"), 1 << 20);
        const json_t *const also = json_object_get(item, "also");
        bool right = is_expected(json_object_get(item, "expect"), have);
        for (size_t i = 0; i < json_array_size(also); i++)
            right = right || is_expected(json_array_get(also, i), have);
        EXPECT_TRUE(right) << text_of(item, "id") << ": " << have.content << "|" << have.reasoning
                           << "|" << have.calls.size();
    }
}

TEST_P(Cases, DoNotDependOnCuts)
{
    std::mt19937 random(7);
    for (const json_t *item : items_) {
        const weir_chat_parser_options options = options_of(item);
        const std::string text = text_of(item, "text");
        const Parsed whole = parse(options, text, 1 << 20);
        EXPECT_EQ(whole, parse(options, text, 1)) << text_of(item, "id");
        EXPECT_EQ(whole, parse(options, text, 3)) << text_of(item, "id");
        for (int round = 0; round < 20; round++) {
            std::vector<size_t> cuts(1 + random() % 8);
            for (size_t &cut : cuts) cut = random() % (text.size() + 1);
            std::sort(cuts.begin(), cuts.end());
            EXPECT_EQ(whole, parse_cut(options, text, cuts)) << text_of(item, "id");
        }
    }
}

TEST_P(Cases, DeltasAreWholeCharacters)
{
    for (const json_t *item : items_)
        for (const std::string &delta : parse(options_of(item), text_of(item, "text"), 1).deltas) {
            json_t *const valid = json_stringn(delta.data(), delta.size()); /* only UTF-8 */
            EXPECT_NE(nullptr, valid) << text_of(item, "id");
            json_decref(valid);
        }
}

INSTANTIATE_TEST_SUITE_P(Files, Cases, testing::Values("plain.jsonl", "hard.jsonl"));

} // namespace
