// Grammars of forced calls: whatever they allow is read as calls whose arguments are of the tools'
// schemas, in every format, with control tokens or without, at once and in pieces.
#include <algorithm>
#include <cstring>
#include <random>

#include "engine/toolcalls/force.h"
#include "tests/unit/constrain/support.h"
#include "tests/unit/toolcalls/parse.h"

namespace {

using weir_test::Call;

const char weather[] =
    R"({"type":"object","properties":{"city":{"type":"string","minLength":1,"maxLength":5},)"
    R"("kind":{"enum":["a","bc",7]},"days":{"type":"integer","enum":[1,22]},)"
    R"("flag":{"type":"boolean"},"at":{"$ref":"#/$defs/place"},"note":{"anyOf":[{"type":"null"},)"
    R"({"type":"integer","minimum":3,"maximum":12}]},"tags":{"type":"array","items":{"enum":["x",)"
    R"("y"]},"maxItems":2},"code":{"type":"string","pattern":"^[A-C]{2,3}$"}},)"
    R"("required":["city","at","code"],"additionalProperties":false,)"
    R"("$defs":{"place":{"type":"object","properties":{"x":{"type":"boolean"}},)"
    R"("required":["x"],"additionalProperties":false}}})";
const char lamp[] = R"({"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"],)"
                    R"("additionalProperties":false})";
const char nothing[] = R"({"type":"object","additionalProperties":false})";

const char *schema_of(const std::string &name)
{
    return name == "get_weather" ? weather : name == "set_lamp" ? lamp : nothing;
}

/* Texts between brackets stand for control tokens. */
weir_token_kind tags_are_control(const void *, const char *text, size_t n)
{
    const std::string token(text, n);
    const bool tag = n > 2 && (token[0] == '<' || token[0] == '[') &&
                     token.find_first_of(" =\n\",{") == std::string::npos &&
                     token.find_first_of("<[", 1) == std::string::npos;
    return tag && token.find_first_of(">]") == n - 1 ? WEIR_TOKEN_CONTROL : WEIR_TOKEN_NONE;
}

weir_token_kind no_tokens(const void *, const char *, size_t) { return WEIR_TOKEN_NONE; }

/* All bytes, and the end. */
const trie_ptr &bytes()
{
    static const trie_ptr trie = [] {
        std::vector<std::string> tokens;
        for (int i = 0; i < 256; i++) tokens.emplace_back(1, (char)i);
        tokens.emplace_back("");
        return make_trie(tokens, { 256 });
    }();
    return trie;
}

/* A random answer: ends where it may end, half of the time. "": it became too long. */
std::string answer_of(weir_grammar *grammar, std::mt19937 &random)
{
    const state_ptr state = begin(grammar);
    std::string text;
    for (int step = 0; step < 4000; step++) {
        const std::vector<bool> allowed = mask(state.get(), bytes().get());
        std::vector<int32_t> ids;
        for (int32_t i = 0; i < 256; i++)
            if (allowed[(size_t)i]) ids.push_back(i);
        if (allowed[256] && (ids.empty() || random() % 2 == 0)) return text;
        if (ids.empty()) {
            ADD_FAILURE() << "a dead end: " << text;
            return "";
        }
        text += (char)ids[random() % ids.size()];
        EXPECT_EQ(accept(state.get(), text.substr(text.size() - 1)), 1U);
    }
    return "";
}

std::string without_marks(const std::string &text)
{
    std::string out;
    for (const char c : text)
        if (c != '\xFF') out += c;
    return out;
}

/* The calls, with those that are being written joined from their pieces. */
std::vector<Call> stream(const weir_chat_parser_options &options, const std::string &text)
{
    weir_chat_parser *parser = nullptr;
    weir_buffer content = {}, reasoning = {};
    EXPECT_EQ(WEIR_OK, weir_chat_parser_open(&parser, &options));
    std::vector<Call> calls;
    const auto look = [&] {
        size_t n;
        const weir_tool_call *const whole = weir_chat_parser_calls(parser, &n);
        weir_partial_call partial;
        const bool has_partial = weir_chat_parser_partial(parser, &partial);
        calls.resize(std::max(calls.size(), n + (has_partial ? 1 : 0)));
        for (size_t i = 0; i < n; i++) {
            EXPECT_EQ(std::string(whole[i].arguments).find(calls[i].arguments), 0u);
            calls[i] = { whole[i].name, whole[i].arguments, whole[i].id ? whole[i].id : "" };
        }
        if (!has_partial) return;
        const std::string arguments(partial.arguments, partial.n);
        EXPECT_EQ(arguments.find(calls[n].arguments), 0u) << "sent: " << calls[n].arguments;
        calls[n] = { partial.name, arguments, partial.id ? partial.id : "" };
    };
    for (const char c : text) {
        EXPECT_EQ(WEIR_OK, weir_chat_parser_push(parser, &content, &reasoning, &c, 1));
        look();
    }
    EXPECT_EQ(WEIR_OK, weir_chat_parser_finish(parser, &content, &reasoning));
    look();
    weir_chat_parser_close(parser);
    weir_buffer_free(&content);
    weir_buffer_free(&reasoning);
    return calls;
}

class Force : public testing::Test {
  protected:
    void SetUp() override
    {
        tools_ = json_pack(
            "[{s:{s:s,s:o,s:b}},{s:{s:s,s:o}},{s:{s:s}}]", "function", "name", "get_weather",
            "parameters", json_loads(weather, 0, nullptr), "strict", 1, "function", "name",
            "set_lamp", "parameters", json_loads(lamp, 0, nullptr), "function", "name", "ping"
        );
        ASSERT_NE(nullptr, tools_);
    }
    void TearDown() override { json_decref(tools_); }
    weir_call_force force(const weir_chat_format *format) const
    {
        weir_call_force f = {};
        f.format = format;
        f.tools = tools_;
        f.is_required = true;
        f.start.state = WEIR_THINK_CONTENT;
        f.token = no_tokens;
        return f;
    }
    static grammar_ptr grammar_of(const weir_call_force &f, std::string *problem = nullptr)
    {
        weir_buffer text = {};
        EXPECT_EQ(WEIR_OK, weir_call_force_write(&text, &f));
        std::string why;
        grammar_ptr grammar =
            compile(WEIR_GRAMMAR_CALLS, std::string(text.data, text.size), &why, bytes().get());
        if (problem == nullptr) EXPECT_EQ(why, "") << f.format->name << " " << text.data;
        if (problem != nullptr) *problem = why;
        weir_buffer_free(&text);
        return grammar;
    }
    weir_chat_parser_options options(const weir_call_force &f) const
    {
        weir_chat_parser_options o = {};
        o.format = f.format;
        o.tools = tools_;
        o.one_call = f.one_call;
        o.is_sure = true;
        o.only_calls = f.is_required;
        o.start = f.start;
        return o;
    }
    static std::vector<const weir_chat_format *> formats()
    {
        size_t n;
        const weir_chat_format *const all = weir_chat_formats(&n);
        std::vector<const weir_chat_format *> out;
        for (size_t i = 0; i < n; i++)
            if (weir_call_force_problem(&all[i]) == nullptr) out.push_back(&all[i]);
        return out;
    }
    json_t *tools_ = nullptr;
};

TEST_F(Force, WhatAGrammarAllowsIsReadAsCallsOfTheTools)
{
    std::mt19937 random(11);
    ASSERT_GE(formats().size(), 18u);
    for (const weir_chat_format *format : formats()) {
        int n_answers = 0, n_weather = 0;
        for (int round = 0; round < 16; round++) {
            weir_call_force f = force(format);
            f.token = round % 2 == 0 ? no_tokens : tags_are_control;
            f.one_call = round % 4 < 2;
            const grammar_ptr grammar = grammar_of(f);
            ASSERT_NE(grammar, nullptr);
            const std::string text = without_marks(answer_of(grammar.get(), random));
            if (text.empty()) continue;
            n_answers++;
            const weir_test::Parsed whole = weir_test::parse(options(f), text, 1 << 20);
            EXPECT_EQ(whole.content, "") << format->name << ": " << text;
            ASSERT_GE(whole.calls.size(), 1u) << format->name << ": " << text;
            if (f.one_call) EXPECT_EQ(whole.calls.size(), 1u) << format->name << ": " << text;
            for (const Call &call : whole.calls) {
                const grammar_ptr schema = compile(WEIR_GRAMMAR_SCHEMA, schema_of(call.name));
                EXPECT_TRUE(matches(schema.get(), call.arguments))
                    << format->name << ": " << call.arguments << " in " << text;
                n_weather += call.name == "get_weather";
            }
            EXPECT_EQ(whole.calls, stream(options(f), text)) << format->name << ": " << text;
        }
        EXPECT_GE(n_answers, format->is_harmony ? 3 : 12) << format->name; /* a thought is long */
        EXPECT_GE(n_weather, 2) << format->name;
    }
}

/* A stream has sent what is there when an answer is cut, so the whole reply has it too. */
TEST_F(Force, ACutCallIsTheSameInPieces)
{
    std::mt19937 random(5);
    for (const weir_chat_format *format : formats()) {
        weir_call_force f = force(format);
        f.one_call = true;
        const grammar_ptr grammar = grammar_of(f);
        std::string text;
        while (text.size() < 60) text = answer_of(grammar.get(), random);
        size_t n_cut = 0;
        for (size_t n = 0; n < text.size(); n++) {
            const std::string part = text.substr(0, n);
            const weir_test::Parsed whole = weir_test::parse(options(f), part, 1 << 20);
            EXPECT_EQ(whole.content, "") << format->name << ": " << part;
            EXPECT_EQ(whole.calls, stream(options(f), part)) << format->name << ": " << part;
            n_cut += whole.calls.size();
        }
        EXPECT_GT(n_cut, 0u) << format->name;
    }
}

/* Where text may stand, too. */
TEST_F(Force, MarkupOfACutCallIsNoText)
{
    weir_chat_parser_options o = options(force(weir_chat_format_find("hermes")));
    o.only_calls = false;
    const std::string call = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";
    for (size_t n = strlen("<tool_call>"); n <= call.size(); n++)
        EXPECT_EQ(weir_test::parse(o, call.substr(0, n), 1 << 20).content, "") << n;
}

/* A call without a tag that names no tool is text, as if nothing were sure. */
TEST_F(Force, BareObjectsOfOtherNamesAreText)
{
    weir_chat_parser_options o = options(force(weir_chat_format_find("llama3_json")));
    o.only_calls = false;
    const std::string text = R"({"name": "Bob", "parameters": {"a": 1}})";
    const weir_test::Parsed whole = weir_test::parse(o, text, 1 << 20);
    EXPECT_EQ(whole.content, text);
    EXPECT_TRUE(whole.calls.empty());
    EXPECT_TRUE(stream(o, text).empty());
}

/* What is dropped still says whether a bare call begins a line. */
TEST_F(Force, DroppedTextKeepsItsLines)
{
    weir_call_force f = force(weir_chat_format_find("pythonic"));
    for (const size_t n : { (size_t)1, (size_t)100 })
        EXPECT_EQ(weir_test::parse(options(f), "a [ping()]", n).calls.size(), 0u) << n;
}

/* Raw text cannot be escaped: a value ends at the first end tag. */
TEST_F(Force, AValueNeverHoldsItsEndTag)
{
    json_t *const tools = json_pack(
        "[{s:{s:s,s:{s:s,s:{s:{s:s,s:i}}}}}]", "function", "name", "f", "parameters", "type",
        "object", "properties", "text", "type", "string", "minLength", 1
    );
    weir_call_force f = force(weir_chat_format_find("qwen3_coder"));
    f.tools = tools;
    const grammar_ptr grammar = grammar_of(f);
    const std::string before = "<tool_call>\n<function=f>\n<parameter=text>\n",
                      after = "\n</parameter>\n</function>\n</tool_call>";
    EXPECT_TRUE(matches(grammar.get(), before + "a </parameter" + after));
    EXPECT_FALSE(matches(grammar.get(), before + "a </parameter> b" + after));
    json_decref(tools);
}

TEST_F(Force, TextIsFreeUpToACall)
{
    weir_call_force f = force(weir_chat_format_find("hermes"));
    f.is_required = false;
    f.token = tags_are_control;
    const grammar_ptr grammar = grammar_of(f);
    const std::string call = "\xFF<tool_call>\n{\"name\": \"set_lamp\", \"arguments\": "
                             "{\"on\": true}}\n\xFF</tool_call>";
    for (const std::string &text :
         { std::string(), std::string("Hello, <b>you</b>"), call, "Yes. " + call + "\n" + call,
           call + " done", std::string("<tool_cal") })
        EXPECT_TRUE(matches(grammar.get(), text)) << text;
    const struct {
        std::string text;
        size_t n;
    } wrong[] = {
        { "a \xFF<tool_call>\n{\"name\": \"other\"", 25 + 0 },
        { "a \xFF<tool_call> x", 14 },
        { "a <tool_call>", 12 }, /* spelled out it is read as a call, too */
        { "a <function=f>", 11 },
    };
    for (const auto &w : wrong)
        EXPECT_EQ(accept(begin(grammar.get()).get(), w.text), w.n) << w.text;
}

TEST_F(Force, ReasoningComesFirst)
{
    weir_call_force f = force(weir_chat_format_find("hermes"));
    const std::string call = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";
    f.start = { WEIR_THINK_INSIDE, 0 };
    grammar_ptr grammar = grammar_of(f);
    EXPECT_TRUE(matches(grammar.get(), "a <tool_call> b</think>\n\n" + call));
    EXPECT_TRUE(matches(grammar.get(), "</think>" + call));
    EXPECT_FALSE(matches(grammar.get(), call)) << "the thought is not closed";
    EXPECT_FALSE(matches(grammar.get(), "a</think>b"));
    f.start = { WEIR_THINK_MAYBE, 0 };
    f.token = [](const void *, const char *text, size_t n) {
        return std::string(text, n) == "<think>" ? WEIR_TOKEN_PLAIN : WEIR_TOKEN_NONE;
    };
    grammar = grammar_of(f);
    EXPECT_TRUE(matches(grammar.get(), "<think>\na\n</think>\n\n" + call));
    EXPECT_TRUE(matches(grammar.get(), call));
    EXPECT_FALSE(matches(grammar.get(), "[THINK]a[/THINK]" + call)) << "not in the vocabulary";
    f.format = weir_chat_format_find("harmony");
    f.token = tags_are_control;
    grammar = grammar_of(f);
    EXPECT_TRUE(matches(
        grammar.get(),
        "\xFF<|channel|>analysis\xFF<|message|>Hm <b>.\xFF<|end|>\xFF<|start|>assistant"
        "\xFF<|channel|>commentary to=functions.ping "
        "\xFF<|constrain|>json\xFF<|message|>{}"
    ));
}

TEST_F(Force, SchemasThatCannotBeCompiledAreNamedIfStrict)
{
    std::string problem;
    for (const char *name : { "hermes", "qwen3_coder", "pythonic" }) {
        for (const int strict : { 0, 1 }) {
            json_t *const tools = json_pack(
                "[{s:{s:s,s:{s:s,s:{s:{s:{s:s}}}},s:b}},{s:{s:s}}]", "function", "name", "f",
                "parameters", "type", "object", "properties", "a", "not", "type", "string",
                "strict", strict, "function", "name", "ping"
            );
            weir_call_force f = force(weir_chat_format_find(name));
            f.tools = tools;
            const grammar_ptr grammar = grammar_of(f, &problem);
            if (strict) {
                EXPECT_EQ(grammar, nullptr);
                EXPECT_NE(problem.find("f: schema: the keyword \"not\""), std::string::npos)
                    << problem;
            } else {
                EXPECT_EQ(problem, "");
                const std::string any[] = {
                    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1], \"b\": 2}}\n"
                    "</tool_call>",
                    "<tool_call>\n<function=f>\n<parameter=a>\n[1]\n</parameter>\n<parameter=b>\n"
                    "x\n</parameter>\n</function>\n</tool_call>",
                    "[f(a=[1], b=\"x\"), ping()]",
                };
                const size_t i = name[0] == 'h' ? 0 : name[0] == 'q' ? 1 : 2;
                EXPECT_TRUE(matches(grammar.get(), any[i])) << any[i];
            }
            json_decref(tools);
        }
    }
}

/* Schemas without a type allow other values, which are no arguments. */
TEST_F(Force, ArgumentsAreObjects)
{
    json_t *const tools = json_pack(
        "[{s:{s:s,s:{s:{s:{s:s}}}}},{s:{s:s,s:{}}}]", "function", "name", "f", "parameters",
        "properties", "a", "type", "integer", "function", "name", "g", "parameters"
    );
    weir_call_force f = force(weir_chat_format_find("hermes"));
    f.tools = tools;
    const grammar_ptr grammar = grammar_of(f);
    for (const char *name : { "f", "g" })
        for (const char *arguments : { "{\"a\": 1}", "{}", "5", "null", "[1]", "\"a\"" }) {
            const std::string call = "<tool_call>\n{\"name\": \"" + std::string(name) +
                                     "\", \"arguments\": " + arguments + "}\n</tool_call>";
            EXPECT_EQ(matches(grammar.get(), call), arguments[0] == '{') << call;
        }
    json_decref(tools);
}

TEST_F(Force, OthersSayWhyTheyCannotBeForced)
{
    EXPECT_NE(nullptr, weir_call_force_problem(weir_chat_format_find("gemma4")));
    EXPECT_EQ(nullptr, weir_call_force_problem(weir_chat_format_find("hermes")));
}

/* The grammar is an internal form, but its compiler checks it as any other. */
TEST(CallsGrammar, MalformedOnesAreRefused)
{
    const char *const wrong[] = {
        "[]",
        "{}",
        R"({"tools":[]})",
        R"({"tools":[{"begin":""}]})",
        R"({"tools":[{"begin":7}]})",
        R"({"tools":[{"begin":"a","end":1}]})",
        R"({"tools":[{"begin":"a"}],"open":1})",
        R"({"tools":[{"begin":"a"}],"stops":[1]})",
        R"({"tools":[{"begin":"a"}],"tags":{"key":"k"}})",
        R"({"tools":[{"begin":"a"}],"reasoning":[{"open":"a"}]})",
        R"({"tools":[{"begin":"a","parameters":{"not":{}},"strict":true}]})",
        R"({"tools":[{"begin":"a","parameters":false,"strict":true}]})",
    };
    for (const char *text : wrong) {
        std::string problem;
        EXPECT_EQ(compile(WEIR_GRAMMAR_CALLS, text, &problem), nullptr) << text;
        EXPECT_NE(problem, "") << text;
    }
    EXPECT_TRUE(matches(compile(WEIR_GRAMMAR_CALLS, R"({"tools":[{"begin":"a"}]})").get(), "a{}"));
}

} // namespace
