// Structured outputs of the whole server over the demo model: answers match what the request asks
// for, alone and together with others, drafted, streamed and after thoughts.
#include <jansson.h>

#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/serve/engine_fixture.h"

namespace {

using engine_fixture::EngineServer;

const char plan[] =
    R"({"type":"object","properties":{"kind":{"enum":["mill","boat"]},"n":{"type":"integer",)"
    R"("minimum":3,"maximum":40},"done":{"type":"boolean"}},"required":["kind","n","done"],)"
    R"("additionalProperties":false})";

std::string response_format(const std::string &schema)
{
    return R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":)" +
           schema + "}}";
}

class Structured : public EngineServer {
  protected:
    static std::string body(const std::string &more)
    {
        return R"({"messages":[{"role":"user","content":"Plan the harbour."}],)"
               R"("chat_template_kwargs":{"enable_thinking":false},"max_tokens":400,)" +
               more + "}";
    }
    json_t *choices(const std::string &more) const
    {
        json_t *const root = ask_json("POST", "/v1/chat/completions", body(more));
        json_t *const list = json_incref(json_object_get(root, "choices"));
        json_decref(root);
        return list;
    }
    static std::string text_of(const json_t *choice, const char *key = "content")
    {
        const char *const text =
            json_string_value(json_object_get(json_object_get(choice, "message"), key));
        return text != nullptr ? text : "";
    }
    std::string content(const std::string &more) const
    {
        json_t *const list = choices(more);
        const std::string text = text_of(json_array_get(list, 0));
        json_decref(list);
        return text;
    }
    static void expect_plan(const std::string &text)
    {
        json_t *const value = json_loads(text.c_str(), 0, nullptr);
        ASSERT_NE(value, nullptr) << text;
        const char *const kind = json_string_value(json_object_get(value, "kind"));
        const json_int_t n = json_integer_value(json_object_get(value, "n"));
        EXPECT_TRUE(kind != nullptr && (!strcmp(kind, "mill") || !strcmp(kind, "boat"))) << text;
        EXPECT_TRUE(n >= 3 && n <= 40) << text;
        EXPECT_TRUE(json_is_boolean(json_object_get(value, "done"))) << text;
        EXPECT_EQ(json_object_size(value), 3u) << text;
        json_decref(value);
    }
};

TEST_F(Structured, EveryFieldIsObeyed)
{
    open({ "model.context=512" });
    const struct {
        const char *field, *pattern;
    } cases[] = {
        { R"("guided_regex":"[ab]{3}-[0-9]")", "[ab]{3}-[0-9]" },
        { R"("guided_choice":["north","south"])", "north|south" },
        { R"("guided_grammar":"root ::= \"yes\" | \"no\"")", "yes|no" },
        { R"("grammar":"root ::= [c-e]{2} num\nnum ::= [0-9] [0-9]")", "[c-e]{2}[0-9]{2}" },
        { R"("structured_outputs":{"regex":"x{2,4}"})", "x{2,4}" },
        { R"("structured_outputs":{"choice":["a b","c"]})", "a b|c" },
        { R"("structured_outputs":{"grammar":"root ::= \"z\""})", "z" },
        { R"("structured_outputs":{"json":{"const":7},"regex":null})", "7" },
        { R"("guided_json":{"const":7})", "7" },
        { R"("guided_json":"{\"const\":7}")", "7" },
        { R"("json_schema":{"enum":["u"]})", "\"u\"" },
        { R"("response_format":{"type":"json_object","schema":{"const":[]}})", "\\[\\s*\\]" },
    };
    for (const auto &c : cases) {
        json_t *const list = choices(c.field);
        const json_t *const choice = json_array_get(list, 0);
        EXPECT_TRUE(std::regex_match(text_of(choice), std::regex(c.pattern)))
            << c.field << ": " << text_of(choice);
        EXPECT_STREQ(json_string_value(json_object_get(choice, "finish_reason")), "stop");
        json_decref(list);
    }
    EXPECT_EQ(content(R"("response_format":{"type":"text"})"), content(R"("user":"a")"));
}

TEST_F(Structured, SampledAnswersMatchASchema)
{
    open({ "model.context=512" });
    for (int seed = 0; seed < 20; seed++) {
        json_t *const list = choices(
            response_format(plan) + R"(,"temperature":2,"n":2,"seed":)" + std::to_string(seed)
        );
        ASSERT_EQ(json_array_size(list), 2u);
        for (size_t i = 0; i < 2; i++) expect_plan(text_of(json_array_get(list, i)));
        json_decref(list);
    }
}

/* Masks come from each answer's own state only. */
TEST_F(Structured, CompanyAndDraftsChangeNothing)
{
    const std::vector<std::string> forms = {
        response_format(plan),
        R"("guided_regex":"(ab|cd){20}")",
        R"("user":"free")",
        response_format(R"({"type":"array","items":{"enum":["x","yy"]},"minItems":9,"maxItems":9})"
        ),
    };
    std::vector<std::string> alone;
    open({ "model.context=512", "speculation.method=off" });
    for (const std::string &form : forms) alone.push_back(content(form));
    expect_plan(alone[0]);
    stop();
    open({ "model.context=512", "speculation.method=ngram", "speculation.match=1" });
    for (int round = 0; round < 3; round++) {
        std::vector<std::string> got(forms.size());
        std::vector<std::thread> clients;
        for (size_t i = 0; i < forms.size(); i++)
            clients.emplace_back([&, i] { got[i] = content(forms[i]); });
        for (std::thread &client : clients) client.join();
        EXPECT_EQ(got, alone);
    }
}

TEST_F(Structured, StreamsAndLogprobsAreOfTheSameAnswer)
{
    open({ "model.context=512" });
    json_t *const list = choices(response_format(plan) + R"(,"logprobs":true)");
    const json_t *const choice = json_array_get(list, 0);
    std::string joined;
    size_t i;
    json_t *token;
    json_array_foreach(json_object_get(json_object_get(choice, "logprobs"), "content"), i, token)
    {
        joined += json_string_value(json_object_get(token, "token"));
        EXPECT_LE(json_number_value(json_object_get(token, "logprob")), 0);
    }
    EXPECT_EQ(joined, text_of(choice));
    const std::string stream =
        request("POST", "/v1/chat/completions", body(response_format(plan) + R"(,"stream":true)"));
    std::string streamed;
    for (size_t at = 0; (at = stream.find("data: {", at)) != std::string::npos; at += 6) {
        json_t *const event = json_loads(stream.c_str() + at + 6, JSON_DISABLE_EOF_CHECK, nullptr);
        const json_t *const delta =
            json_object_get(json_array_get(json_object_get(event, "choices"), 0), "delta");
        const char *const text = json_string_value(json_object_get(delta, "content"));
        if (text != nullptr) streamed += text;
        json_decref(event);
    }
    EXPECT_EQ(streamed, text_of(choice));
    json_decref(list);
}

/* What bans the end of an answer does not make it longer than the grammar. */
TEST_F(Structured, AnAnswerThatNothingFollowsEnds)
{
    open({ "model.context=512" });
    EXPECT_EQ(content(R"("guided_choice":["ok"],"ignore_eos":true)"), "ok");
    EXPECT_EQ(content(R"("guided_choice":["ok"],"min_tokens":50)"), "ok");
    EXPECT_EQ(
        content(R"("guided_regex":"k+","ignore_eos":true)").find_first_not_of('k'),
        std::string::npos
    );
}

/* Thoughts are free, and end before the content begins. */
TEST_F(Structured, ThoughtsComeBefore)
{
    open({ "model.context=512" });
    const std::string asked =
        R"({"messages":[{"role":"user","content":"Plan."}],"max_tokens":400,)"
        R"("chat_template_kwargs":{"enable_thinking":true},"guided_choice":["left","right"]})";
    json_t *const root = ask_json("POST", "/v1/chat/completions", asked);
    const json_t *const choice = json_array_get(json_object_get(root, "choices"), 0);
    const std::string finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (finish == "stop")
        EXPECT_TRUE(text_of(choice) == "left" || text_of(choice) == "right") << text_of(choice);
    else
        EXPECT_EQ(text_of(choice), "") << "cut in its thoughts";
    json_decref(root);
}

/* The limit ends the thought, whatever the model goes on to think. */
TEST_F(Structured, ABudgetEndsThoughts)
{
    open({ "model.context=512" });
    for (const char *field : { "thinking_token_budget", "max_thinking_tokens" }) {
        for (const int budget : { 0, 5 }) {
            const std::string asked =
                R"({"messages":[{"role":"user","content":"Plan."}],"max_tokens":60,"seed":4,)"
                R"("temperature":1,"chat_template_kwargs":{"enable_thinking":true},)"
                R"("guided_choice":["left","right"],")" +
                std::string(field) + "\":" + std::to_string(budget) + "}";
            json_t *const root = ask_json("POST", "/v1/chat/completions", asked);
            const json_t *const choice = json_array_get(json_object_get(root, "choices"), 0);
            EXPECT_STREQ(json_string_value(json_object_get(choice, "finish_reason")), "stop");
            EXPECT_TRUE(text_of(choice) == "left" || text_of(choice) == "right") << text_of(choice);
            const json_t *const details =
                json_object_get(json_object_get(root, "usage"), "completion_tokens_details");
            EXPECT_LE(json_integer_value(json_object_get(details, "reasoning_tokens")), budget);
            json_decref(root);
        }
    }
}

/* One that spells the tag with other tokens has ended its thought: none is drawn at the limit. The
 * biases and the penalty make it write <, /, th, ink and >, each once. */
TEST_F(Structured, ABudgetOfThoughtsThatHaveEnded)
{
    open({ "model.context=512" });
    json_t *const root = ask_json(
        "POST", "/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"Plan."}],"max_tokens":30,"temperature":0,)"
        R"("min_tokens":30,"chat_template_kwargs":{"enable_thinking":true},)"
        R"("thinking_token_budget":10,"repetition_penalty":10,)"
        R"("logit_bias":{"27":100,"14":95,"448":90,"745":85,"29":80}})"
    );
    const json_t *const choice = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *const details =
        json_object_get(json_object_get(root, "usage"), "completion_tokens_details");
    EXPECT_EQ(json_integer_value(json_object_get(details, "reasoning_tokens")), 4);
    EXPECT_NE(text_of(choice), "");
    EXPECT_EQ(text_of(choice).find("</think>"), std::string::npos) << text_of(choice);
    json_decref(root);
}

TEST_F(Structured, WhatCannotBeServedIsNamed)
{
    open({ "model.context=512" });
    const struct {
        std::string more;
        const char *param, *said;
    } cases[] = {
        { response_format(R"({"not":{}})"), "response_format", "not" },
        { response_format(R"({"type":"poem"})"), "response_format", "type" },
        { response_format(R"({"type":"string","minLength":3,"maxLength":2})"), "response_format",
          "" },
        { response_format(R"({"properties":{"a":{"$ref":"#/$defs/b"}}})"), "response_format",
          "#/$defs/b" },
        { R"("guided_regex":"(a")", "guided_regex", "" },
        { R"("guided_choice":[])", "guided_choice", "" },
        { R"("guided_choice":[1])", "guided_choice", "" },
        { R"("grammar":"root ::= other")", "grammar", "other" },
        { R"("guided_json":"{")", "guided_json", "" },
        { R"("guided_regex":"a","grammar":"root ::= \"a\"")", "grammar", "guided_regex" },
        { R"("guided_regex":"a","tools":[{"type":"function","function":{"name":"f"}}])",
          "guided_regex", "tools" },
    };
    for (const auto &c : cases) {
        const std::string reply = request("POST", "/v1/chat/completions", body(c.more));
        EXPECT_EQ(0u, reply.find("HTTP/1.1 400")) << c.more << reply;
        EXPECT_NE(reply.find("\"param\":\"" + std::string(c.param)), std::string::npos) << reply;
        EXPECT_NE(reply.find(c.said), std::string::npos) << reply;
    }
    EXPECT_EQ(content(R"("guided_choice":["ok"])"), "ok") << "the server goes on";
}

} // namespace
