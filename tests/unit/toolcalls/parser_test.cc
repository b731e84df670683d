// What the acceptance cases do not have: order, types, damage, limits.
#include <random>

#include "tests/unit/toolcalls/parse.h"

namespace {

using weir_test::parse;
using weir_test::Parsed;

class Parser : public testing::Test {
  protected:
    void SetUp() override
    {
        tools_ = json_loads(
            R"([{"type":"function","function":{"name":"f","parameters":{"properties":{
                "text":{"type":"string"},"n":{"type":"integer"},"any":{},"flag":{"type":"boolean"},
                "maybe":{"anyOf":[{"type":"string"},{"type":"null"}]},
                "both":{"type":["string","integer"]},"kind":{"enum":["1","2"]},
                "place":{"$ref":"#/$defs/place"}},
                "$defs":{"place":{"type":"object"}}}}}])",
            0, nullptr
        );
        ASSERT_NE(nullptr, tools_);
    }
    void TearDown() override { json_decref(tools_); }

    weir_chat_parser_options options(const char *format) const
    {
        weir_chat_parser_options o = {};
        o.format = weir_chat_format_find(format);
        o.tools = tools_;
        o.start.state = WEIR_THINK_CONTENT;
        EXPECT_NE(nullptr, o.format);
        return o;
    }
    /* The same however it is cut. */
    Parsed run(const char *format, const std::string &text) const
    {
        const Parsed whole = parse(options(format), text, text.size() + 1);
        for (size_t n = 1; n <= 9; n++) EXPECT_EQ(whole, parse(options(format), text, n)) << text;
        return whole;
    }

    json_t *tools_ = nullptr;
};

TEST_F(Parser, TextAroundCallsIsKeptWithoutTheSpaceNextToThem)
{
    const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    const Parsed p = run("hermes", " a b\n\n" + call + "\n" + call + "\n c \n" + call + "\n");
    EXPECT_EQ(" a bc", p.content);
    EXPECT_EQ(3u, p.calls.size());
    EXPECT_EQ(" a \n\n b \n", run("hermes", " a \n\n b \n").content) << "no call: all is kept";
}

TEST_F(Parser, JsonArgumentsAreAsTheModelWroteThem)
{
    const Parsed p =
        run("hermes",
            "<tool_call>{\"arguments\": {\"b\":  12345678901234567890, \"a\": \"\\u00e9\"}, "
            "\"why\": [1], \"name\": \"\\u0066\"}</tool_call>");
    ASSERT_EQ(1u, p.calls.size());
    EXPECT_EQ("f", p.calls[0].name);
    EXPECT_EQ("{\"b\":  12345678901234567890, \"a\": \"\\u00e9\"}", p.calls[0].arguments);
}

TEST_F(Parser, ArgumentsInAStringOrAbsent)
{
    const std::string open = "<tool_call>{\"name\": \"f\"", close = "}</tool_call>";
    const struct {
        const char *member, *arguments;
    } cases[] = { { ", \"arguments\": \"{\\\"a\\\": 1}\"", "{\"a\": 1}" },
                  { ", \"parameters\": {\"a\": 1}", "{\"a\": 1}" },
                  { ", \"arguments\": null", "{}" },
                  { ", \"arguments\": \"\"", "{}" },
                  { "", "{}" } };
    for (const auto &c : cases) {
        const Parsed p = run("hermes", open + c.member + close);
        ASSERT_EQ(1u, p.calls.size()) << c.member;
        EXPECT_EQ(c.arguments, p.calls[0].arguments);
    }
}

TEST_F(Parser, ValuesHaveTheDeclaredTypes)
{
    const struct {
        const char *key, *text, *json;
    } cases[] = {
        { "text", "42", "\"42\"" },
        { "text", "null", "\"null\"" },
        { "n", " 42 ", "42" },
        { "n", "many", "\"many\"" },
        { "n", "12345678901234567890", "12345678901234567890" },
        { "any", "[1]", "[1]" },
        { "any", "\"q\"", "\"\\\"q\\\"\"" },
        { "other", "1.5", "1.5" },
        { "flag", "True", "true" },
        { "text", "True", "\"True\"" },
        { "maybe", "null", "null" },
        { "maybe", "None", "null" },
        { "maybe", "5", "\"5\"" },
        { "both", "5", "5" },
        { "both", "\"5\"", "\"\\\"5\\\"\"" },
        { "kind", "1", "\"1\"" },
        { "place", "{\"x\": 1}", "{\"x\": 1}" },
        { "text", "a\n\"b\"\\", "\"a\\n\\\"b\\\"\\\\\"" },
    };
    for (const auto &c : cases) {
        const std::string key = c.key;
        const Parsed p =
            run("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=" + key + ">\n" + c.text +
                                   "\n</parameter>\n</function>\n</tool_call>");
        ASSERT_EQ(1u, p.calls.size()) << key;
        EXPECT_EQ("{\"" + key + "\": " + c.json + "}", p.calls[0].arguments);
    }
}

/* Only where the template prints a line end is it markup. */
TEST_F(Parser, LineEndsOfValues)
{
    const Parsed p =
        run("minimax_m2", "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"text\">\na\n"
                          "</parameter>\n</invoke>\n</minimax:tool_call>");
    ASSERT_EQ(1u, p.calls.size());
    EXPECT_EQ("{\"text\": \"\\na\\n\"}", p.calls[0].arguments);
}

TEST_F(Parser, WhatIsNoCallStaysText)
{
    const std::pair<const char *, const char *> cases[] = {
        { "hermes", "a <tool_cal b" },
        { "hermes", "<tool_call>nonsense</tool_call>" },
        { "hermes", "<tool_call>{\"name\":5}</tool_call>" },
        { "hermes", "<tool_call>{\"arguments\":{}}</tool_call>" },
        { "hermes", "<tool_call>{\"name\":\"f\",\"arguments\":[]}</tool_call>" },
        { "hermes", "<tool_call><function=></function></tool_call>" },
        { "hermes", "x <tool_call>{\"name\":\"f\"" },
        { "hermes", "<tool_call></tool_call>" },
        { "hermes", "< > <tool_call" },
        { "hermes", "<tool_call>{\"name\":\"a\\u0000b\"}</tool_call>" },
        { "qwen3_coder", "<tool_call><function=f><parameter=a>1</parameter><parameter=a>2"
                         "</parameter></function></tool_call>" },
        { "qwen3_coder", "<tool_call><function=f><parameter=a>never" },
        { "deepseek_v32", "<\uFF5CDSML\uFF5Cfunction_calls></\uFF5CDSML\uFF5Cfunction_calls>" },
        { "mistral", "[TOOL_CALLS]" },
        { "mistral", "[TOOL_CALLS][]" },
        { "llama3_json", "{\"a\": 1}" },
        { "llama3_json", "{\"name\": \"other\", \"parameters\": {}}" },
        { "llama3_json", "say {\"name\": \"f\", \"parameters\": {}}" },
        { "pythonic", "[link](https://a.b)" },
        { "pythonic", "[g(a=1)]" },
        { "gemma4", "<|tool_call>call:f{a:1" },
        { "harmony", "plain text, <|messages" },
        { "granite", "<|tool_call|>[{\"name\": \"f\"} {\"name\": \"f\"}]" },
    };
    for (const auto &c : cases) {
        const Parsed p = run(c.first, c.second);
        EXPECT_EQ(c.second, p.content) << c.first;
        EXPECT_TRUE(p.calls.empty()) << c.second;
    }
}

/* What follows the value that makes a block bad does not depend on what came with it. */
TEST_F(Parser, ABlockFailsAtTheSamePlaceHoweverItIsCut)
{
    const std::string twice = "<function=f><parameter=n>1</parameter><parameter=n>1</parameter>";
    const Parsed p = run("qwen3_coder", twice + " <function=f></function> x");
    EXPECT_EQ(twice + "x", p.content);
    EXPECT_EQ(1u, p.calls.size());
}

TEST_F(Parser, GoodCallsAfterBadOnes)
{
    const std::string good = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    for (const std::string bad :
         { "<tool_call>", "<tool_call>{\"name\":", "<tool_call>{\"name\": \"f\"}x", "<tool_ca",
           "<tool_call><function=f>" }) {
        const Parsed p = run("hermes", bad + good);
        EXPECT_EQ(bad, p.content);
        EXPECT_EQ(1u, p.calls.size()) << bad;
    }
}

TEST_F(Parser, CallsCutByTheEndAreCallsIfNothingIsMissing)
{
    EXPECT_EQ(1u, run("hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}}").calls.size());
    EXPECT_EQ(1u, run("hermes", "<tool_call>{\"name\":\"f\"}\n</tool_c").calls.size());
    EXPECT_EQ(1u, run("granite", "<|tool_call|>[{\"name\":\"f\"}").calls.size());
    EXPECT_EQ(1u, run("pythonic", "[f(a=1)").calls.size());
    EXPECT_EQ(0u, run("hermes", "<tool_call>{\"name\":\"f\"}\n</tool_d").calls.size());
}

TEST_F(Parser, ABareFunctionOfQwenCoder)
{
    const Parsed p =
        run("qwen3_coder", "Now:\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n"
                           "</tool_call>");
    EXPECT_EQ("Now:", p.content);
    ASSERT_EQ(1u, p.calls.size());
    EXPECT_EQ("{\"n\": 1}", p.calls[0].arguments);
}

TEST_F(Parser, SeveralBareCalls)
{
    const std::string call = "{\"name\": \"f\", \"parameters\": {\"n\": 1}}";
    EXPECT_EQ(2u, run("llama3_json", call + "; " + call).calls.size());
    EXPECT_EQ(2u, run("llama3_json", call + "\n" + call).calls.size());
    EXPECT_EQ(1u, run("llama3_json", "<|python_tag|>" + call).calls.size());
    EXPECT_EQ(2u, run("pythonic", "[f(n=1), f()]").calls.size());
}

TEST_F(Parser, Harmony)
{
    const std::string call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
                             "{\"n\": 1}<|call|>";
    const Parsed p =
        run("harmony", "<|channel|>analysis<|message|>Hm <b.<|end|><|start|>assistant<|channel|>"
                       "analysis<|message|>Yes.<|end|><|start|>assistant" +
                           call +
                           "<|start|>assistant<|channel|>final<|message|>Do<|end|>ne<|return|>");
    EXPECT_EQ("Hm <b.\nYes.", p.reasoning);
    EXPECT_EQ("Do\nne", p.content) << "text without a header";
    ASSERT_EQ(1u, p.calls.size());
    EXPECT_EQ("{\"n\": 1}", p.calls[0].arguments);
    /* The recipient may be part of the role. */
    EXPECT_EQ(
        1u, run("harmony", "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>"
                           "{}<|call|>")
                .calls.size()
    );
    const std::string bad = "<|channel|>commentary to=functions.f<|message|>{\"n\": x}";
    EXPECT_EQ(bad, run("harmony", bad).content);
    EXPECT_EQ(0u, run("harmony", "<|channel|>x to=functions.<|message|>{}<|call|>").calls.size());
    EXPECT_EQ("", run("harmony", "<|channel|>ana").content) << "markup is dropped";
    EXPECT_EQ("<|channel|>commentary to=f", run("harmony", "<|channel|>commentary to=f").content);
}

TEST_F(Parser, OneCallOnly)
{
    weir_chat_parser_options o = options("granite");
    o.one_call = true;
    EXPECT_EQ(1u, parse(o, "<|tool_call|>[{\"name\":\"f\"},{\"name\":\"f\"}]", 5).calls.size());
    o = options("harmony");
    o.one_call = true;
    const std::string call = "<|channel|>commentary to=f<|message|>{}<|call|>";
    EXPECT_EQ(1u, parse(o, call + call, 5).calls.size());
}

TEST_F(Parser, WithoutToolsCallsStayText)
{
    weir_chat_parser_options o = options("hermes");
    const std::string call = "<tool_call>{\"name\":\"f\"}</tool_call> ";
    o.tools = nullptr;
    EXPECT_EQ(call, parse(o, call, 3).content);
    o = options("harmony");
    o.tools = nullptr;
    const std::string recipient = "<|start|>assistant to=functions.f<|message|>";
    EXPECT_EQ(recipient + "{}", parse(o, recipient + "{}<|call|>", 3).content);
}

TEST_F(Parser, ControlTokensOfItsMarkup)
{
    weir_chat_parser_options o = options("kimi_k2");
    weir_chat_parser *parser = nullptr;
    const auto reads = [&](const std::string &text) {
        return weir_chat_parser_reads(parser, text.data(), text.size());
    };
    ASSERT_EQ(WEIR_OK, weir_chat_parser_open(&parser, &o));
    EXPECT_TRUE(reads("<|tool_call_begin|>"));
    EXPECT_TRUE(reads("<|tool_calls_section_end|>"));
    EXPECT_FALSE(reads("<|im_end|>"));
    EXPECT_FALSE(reads("<think>")) << "the content has begun";
    EXPECT_FALSE(reads(""));
    weir_chat_parser_start(parser, weir_reasoning_start{ WEIR_THINK_MAYBE, 0 });
    EXPECT_TRUE(reads("<think>"));
    weir_chat_parser_close(parser);
    o.tools = nullptr;
    ASSERT_EQ(WEIR_OK, weir_chat_parser_open(&parser, &o));
    EXPECT_FALSE(reads("<|tool_call_begin|>"));
    weir_chat_parser_close(parser);
}

/* Every jump of the table lands on a step, and all but the last step have one after them. */
TEST(Formats, JumpsStayWithinTheirSteps)
{
    size_t n;
    const weir_chat_format *const formats = weir_chat_formats(&n);
    for (size_t i = 0; i < n; i++) {
        const weir_chat_format &format = formats[i];
        EXPECT_EQ(&format, weir_chat_format_find(format.name));
        EXPECT_NE(format.is_harmony, format.n_steps > 0) << format.name;
        const int size = static_cast<int>(format.n_steps);
        for (const weir_format_opener &opener : format.opener)
            if (opener.text != nullptr) EXPECT_LT(opener.step, size) << format.name;
        for (int k = 0; k < size; k++) {
            const weir_format_step &step = format.steps[k];
            const bool jumps = step.kind == WEIR_FORMAT_IF || step.kind == WEIR_FORMAT_PEEK ||
                               step.kind == WEIR_FORMAT_JUMP;
            EXPECT_TRUE(!jumps || (k + step.skip >= 0 && k + step.skip < size && step.skip != 0))
                << format.name << ", step " << k;
            if (k == size - 1) EXPECT_EQ(WEIR_FORMAT_END, step.kind) << format.name;
        }
    }
}

/* ---- limits ---------------------------------------------------------------------------------- */

TEST_F(Parser, CallsAreCounted)
{
    const std::string call = "<tool_call>{\"name\":\"f\"}</tool_call>";
    std::string text;
    for (int i = 0; i < WEIR_TOOL_CALLS + 2; i++) text += call;
    const Parsed p = parse(options("hermes"), text, 4096);
    EXPECT_EQ(static_cast<size_t>(WEIR_TOOL_CALLS), p.calls.size());
    EXPECT_EQ(call + call, p.content);
}

TEST_F(Parser, EndlessBlocksBecomeText)
{
    const std::string open = "<tool_call>{\"name\": \"f\", \"arguments\": {\"text\": \"",
                      text = open + std::string(2 * WEIR_CALL_BLOCK_BYTES, 'x');
    const Parsed p = parse(options("hermes"), text, 1000);
    EXPECT_EQ(text, p.content);
    EXPECT_LT(p.deltas[0].size(), WEIR_CALL_BLOCK_BYTES + 2000u) << "before the answer ends";
    const std::string nested = "<tool_call>{\"a\":" + std::string(100, '[');
    EXPECT_EQ(nested, run("hermes", nested).content);
}

/* A MiB each: in quadratic time they would take many minutes. */
TEST_F(Parser, HostileTextTakesLinearTime)
{
    const std::pair<const char *, const char *> cases[] = {
        { "hermes", "<tool_call>" },
        { "hermes", "<tool_call>{\"name\":\"" },
        { "hermes", "<tool_call>{\"a\":[" },
        { "hermes", "<tool_call" },
        { "hermes", " " },
        { "qwen3_coder", "<tool_call><function=f><parameter=a></parameter>" },
        { "qwen3_coder", "<function=" },
        { "glm", "<tool_call>f<arg_key>" },
        { "llama3_json", "\n{" },
        { "llama3_json", "\n{\"name\":" },
        { "pythonic", "\n[f(" },
        { "gemma4", "<|tool_call>call:f{a:<|\"|><|" },
        { "harmony", "<|channel|>" },
        { "harmony", "<|channel|>commentary to=f<|message|>{\"a\":" },
        { "harmony", "<|channel|>analysis<|message|>x<|end|>" },
        { "harmony", "<" },
        { "mistral", "[TOOL_CALLS]f[ARGS]{" },
    };
    for (const auto &c : cases) {
        std::string text;
        while (text.size() < 1u << 20) text += c.second;
        const Parsed whole = parse(options(c.first), text, text.size());
        EXPECT_LE(whole.content.size() + whole.reasoning.size(), text.size() + (1u << 20));
        EXPECT_EQ(whole, parse(options(c.first), text, 4093)) << c.first << c.second;
    }
}

TEST_F(Parser, BytesThatAreNoText)
{
    std::mt19937 random(3);
    for (int round = 0; round < 200; round++) {
        std::string text = "<tool_call>{\"name\":\"f\",\"arguments\":{\"text\":\"";
        for (int i = 0; i < 40; i++) text += static_cast<char>(random() % 256);
        const Parsed whole = parse(options("hermes"), text, text.size());
        EXPECT_EQ(whole, parse(options("hermes"), text, 1));
        EXPECT_EQ(text, whole.content);
    }
}

} // namespace
