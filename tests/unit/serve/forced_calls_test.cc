// Forced calls of the whole server over the demo model, which knows no tools: calls of the tools'
// schemas whatever is sampled, the same alone and together, whole and as a stream.
#include <jansson.h>

#include <string>
#include <thread>
#include <vector>

#include "engine/text/chat.h"
#include "tests/unit/serve/engine_fixture.h"

namespace {

using engine_fixture::EngineServer;

std::string tool(const std::string &name, const std::string &parameters, bool strict = false)
{
    return R"({"type":"function","function":{"name":")" + name + R"(","parameters":)" + parameters +
           (strict ? R"(,"strict":true}})" : "}}");
}

const std::string weather = tool(
    "get_weather",
    R"({"type":"object","properties":{"city":{"enum":["Rome","Oslo","Quito"]},"days":{"enum":[1,2,)"
    R"(3]}},"required":["city","days"],"additionalProperties":false})"
);
const std::string lamp = tool(
    "set_lamp", R"({"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"],)"
                R"("additionalProperties":false})"
);
const std::string both = R"("tools":[)" + weather + "," + lamp + "]";

class ForcedCalls : public EngineServer {
  protected:
    static std::string body(const std::string &more)
    {
        return R"({"messages":[{"role":"user","content":"How is the weather in Oslo?"}],)"
               R"("chat_template_kwargs":{"enable_thinking":false},"max_tokens":200,)" +
               more + "}";
    }
    json_t *choices(const std::string &more) const
    {
        json_t *const root = ask_json("POST", "/v1/chat/completions", body(more));
        json_t *const list = json_incref(json_object_get(root, "choices"));
        json_decref(root);
        return list;
    }
    /* Names and arguments, one call a line. */
    static std::string calls_of(const json_t *message)
    {
        std::string out;
        size_t i;
        json_t *call;
        json_array_foreach(json_object_get(message, "tool_calls"), i, call)
        {
            const json_t *const function = json_object_get(call, "function");
            out += std::string(json_string_value(json_object_get(function, "name"))) + " " +
                   json_string_value(json_object_get(function, "arguments")) + "\n";
        }
        return out;
    }
    static std::string first_calls(const json_t *list)
    {
        return calls_of(json_object_get(json_array_get(list, 0), "message"));
    }
    std::string calls(const std::string &more) const
    {
        json_t *const list = choices(more);
        const std::string text = first_calls(list);
        json_decref(list);
        return text;
    }
    /* That the first call is of its tool's schema. */
    static void expect_call(const json_t *message)
    {
        const json_t *const function =
            json_object_get(json_array_get(json_object_get(message, "tool_calls"), 0), "function");
        const char *const name = json_string_value(json_object_get(function, "name"));
        ASSERT_NE(name, nullptr);
        json_t *const arguments =
            json_loads(json_string_value(json_object_get(function, "arguments")), 0, nullptr);
        ASSERT_NE(arguments, nullptr);
        if (std::string(name) == "get_weather") {
            const json_int_t days = json_integer_value(json_object_get(arguments, "days"));
            EXPECT_TRUE(json_is_string(json_object_get(arguments, "city")));
            EXPECT_TRUE(days >= 1 && days <= 3);
            EXPECT_EQ(json_object_size(arguments), 2u);
        } else {
            EXPECT_STREQ(name, "set_lamp");
            EXPECT_TRUE(json_is_boolean(json_object_get(arguments, "on")));
        }
        json_decref(arguments);
    }
};

TEST_F(ForcedCalls, SampledOnesAreOfTheSchemas)
{
    open({ "model.context=1024" });
    for (int seed = 0; seed < 12; seed++) {
        json_t *const list = choices(
            both +
            R"(,"tool_choice":"required","parallel_tool_calls":false,"temperature":2,"n":2,)"
            R"("seed":)" +
            std::to_string(seed)
        );
        ASSERT_EQ(json_array_size(list), 2u);
        for (size_t i = 0; i < 2; i++) {
            const json_t *const choice = json_array_get(list, i), *const message = json_object_get(
                                                                      choice, "message"
                                                                  );
            expect_call(message);
            EXPECT_EQ(json_array_size(json_object_get(message, "tool_calls")), 1u);
            EXPECT_TRUE(json_is_null(json_object_get(message, "content")));
            EXPECT_STREQ(json_string_value(json_object_get(choice, "finish_reason")), "tool_calls");
        }
        json_decref(list);
    }
}

TEST_F(ForcedCalls, OnlyToolsThatMayBeCalledAre)
{
    open({ "model.context=1024" });
    const std::string named = R"("tool_choice":{"type":"function","function":{"name":")",
                      allowed = R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":)"
                                R"("required","tools":[{"type":"function","function":{"name":")";
    for (const char *name : { "get_weather", "set_lamp" }) {
        EXPECT_EQ(calls(both + "," + named + name + "\"}}").find(name), 0u);
        EXPECT_EQ(calls(both + "," + allowed + name + "\"}}]}}").find(name), 0u);
    }
    EXPECT_EQ(calls(R"("tools":[)" + tool("ping", "{}") + R"(],"tool_choice":"none")"), "");
    const std::string ping = calls(
        R"("tools":[{"type":"function","function":{"name":"ping"}}],"tool_choice":"required",)"
        R"("parallel_tool_calls":false)"
    );
    EXPECT_EQ(ping.find("ping {"), 0u) << ping;
    EXPECT_EQ(ping.find('"'), std::string::npos) << "it has no parameters";
}

TEST_F(ForcedCalls, CompanyAndDraftsChangeNothing)
{
    const std::vector<std::string> forms = {
        both + R"(,"tool_choice":"required","parallel_tool_calls":true)",
        R"("tools":[)" + lamp + R"(],"tool_choice":"required","temperature":1.5,"seed":3)",
        R"("user":"free")",
        both + R"(,"tool_choice":{"type":"function","function":{"name":"get_weather"}})",
    };
    std::vector<std::string> alone;
    open({ "model.context=1024", "speculation.method=off" });
    for (const std::string &form : forms) alone.push_back(calls(form));
    EXPECT_NE(alone[0], "");
    stop();
    open({ "model.context=1024", "speculation.method=ngram", "speculation.match=1" });
    for (int round = 0; round < 3; round++) {
        std::vector<std::string> got(forms.size());
        std::vector<std::thread> clients;
        for (size_t i = 0; i < forms.size(); i++)
            clients.emplace_back([&, i] { got[i] = calls(forms[i]); });
        for (std::thread &client : clients) client.join();
        EXPECT_EQ(got, alone);
    }
}

/* Id and name first, then pieces of the arguments, which joined are those of the whole reply; also
 * where the answer is cut. */
TEST_F(ForcedCalls, StreamsAreOfTheSameCalls)
{
    open({ "model.context=1024" });
    for (const char *length : { "200", "9", "17", "21", "25" }) {
        std::string text = body(both + R"(,"tool_choice":"required","parallel_tool_calls":true)");
        text.replace(text.find(":200,"), 5, ":" + std::string(length) + ",");
        json_t *const root = ask_json("POST", "/v1/chat/completions", text);
        const std::string whole = first_calls(json_object_get(root, "choices"));
        text.insert(1, R"("stream":true,)");
        const std::string stream = request("POST", "/v1/chat/completions", text);
        std::string streamed, content;
        size_t n_pieces = 0, n_calls = 0;
        for (size_t at = 0; (at = stream.find("data: {", at)) != std::string::npos; at += 6) {
            json_t *const event =
                json_loads(stream.c_str() + at + 6, JSON_DISABLE_EOF_CHECK, nullptr);
            const json_t *const delta =
                json_object_get(json_array_get(json_object_get(event, "choices"), 0), "delta");
            const json_t *const call = json_array_get(json_object_get(delta, "tool_calls"), 0),
                                *const function = json_object_get(call, "function");
            const char *const name = json_string_value(json_object_get(function, "name"));
            const char *const piece = json_string_value(json_object_get(function, "arguments"));
            const char *const said = json_string_value(json_object_get(delta, "content"));
            if (said != nullptr) content += said;
            if (name != nullptr) {
                streamed += std::string(n_calls++ > 0 ? "\n" : "") + name + " ";
                EXPECT_NE(json_object_get(call, "id"), nullptr);
                EXPECT_STREQ(piece, "");
            } else if (piece != nullptr) {
                n_pieces++;
                streamed += piece;
                EXPECT_EQ(json_object_get(call, "id"), nullptr);
            }
            json_decref(event);
        }
        EXPECT_EQ(n_calls > 0 ? streamed + "\n" : "", whole) << length;
        EXPECT_EQ(content, "") << length;
        if (strcmp(length, "200") == 0) EXPECT_GE(n_pieces, 3u);
        json_decref(root);
    }
}

/* The demo model writes no calls of its own: held to calls only where it writes one, it says the
 * same. */
TEST_F(ForcedCalls, StrictToolsLeaveTextFree)
{
    open({ "model.context=1024" });
    std::string text[2];
    for (int i = 0; i < 2; i++) {
        const std::string choice =
            i == 0 ? "\"auto\""
                   : R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[)"
                     R"({"type":"function","function":{"name":"f"}}]}})";
        json_t *const list = choices(
            R"("tools":[)" + tool("f", R"({"type":"object"})") + R"(],"tool_choice":)" + choice
        );
        const json_t *const message = json_object_get(json_array_get(list, 0), "message");
        const char *const content = json_string_value(json_object_get(message, "content"));
        if (content != nullptr) text[i] = content;
        EXPECT_EQ(json_object_get(message, "tool_calls"), nullptr);
        json_decref(list);
    }
    EXPECT_NE(text[0], "");
    EXPECT_EQ(text[0], text[1]);
}

/* Clients send calls back with other spaces and another order of keys. */
TEST_F(ForcedCalls, ARewrittenCallContinuesTheCachedPrompt)
{
    /* The demo's template drops the beginning of answers; this one prints them as they were. */
    static const char text[] =
        R"({%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content }})"
        R"({%- for call in m.tool_calls %}{{- '<tool_call>\n{"name": "' + call.function.name + )"
        R"('", "arguments": ' }}{{- call.function.arguments | tojson }})"
        R"({{- '}\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\n' }}{%- endfor %})"
        R"({%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %})";
    weir_error error = {};
    weir_chat_template *chat = nullptr;
    ASSERT_EQ(WEIR_OK, weir_chat_template_open(&chat, text, sizeof text - 1, &error)) << error.text;
    chat_ = chat;
    open({ "model.context=1024" });
    const std::string one =
        both + R"(,"tool_choice":{"type":"function","function":{"name":"get_weather"}})";
    json_t *const root = ask_json("POST", "/v1/chat/completions", body(one));
    const json_t *const message =
        json_object_get(json_array_get(json_object_get(root, "choices"), 0), "message");
    const json_t *const call = json_array_get(json_object_get(message, "tool_calls"), 0);
    const std::string id = json_string_value(json_object_get(call, "id"));
    json_t *const arguments = json_loads(
        json_string_value(json_object_get(json_object_get(call, "function"), "arguments")), 0,
        nullptr
    );
    const std::string sampled =
        json_string_value(json_object_get(json_object_get(call, "function"), "arguments"));
    const std::string city = json_string_value(json_object_get(arguments, "city")),
                      days = std::to_string(json_integer_value(json_object_get(arguments, "days")));
    json_int_t all = 0;
    const auto cached = [&](const std::string &call_id, const std::string &sent) {
        json_t *const string = json_string(sent.c_str());
        char *const quoted = json_dumps(string, JSON_ENCODE_ANY);
        const std::string next_turn =
            R"({"messages":[{"role":"user","content":"How is the weather in Oslo?"},)"
            R"({"role":"assistant","content":null,"tool_calls":[{"id":")" +
            call_id + R"(","type":"function","function":{"name":"get_weather","arguments":)" +
            quoted + R"(}}]},{"role":"user","content":"And now?"}],)" + both +
            R"(,"chat_template_kwargs":{"enable_thinking":false},"max_tokens":2})";
        free(quoted);
        json_decref(string);
        json_t *const next = ask_json("POST", "/v1/chat/completions", next_turn);
        const json_t *const usage = json_object_get(next, "usage");
        all = json_integer_value(json_object_get(usage, "prompt_tokens"));
        const json_int_t n = json_integer_value(
            json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens")
        );
        json_decref(next);
        return n;
    };
    const std::string other = "{\"days\" : " + days + " , \"city\":\"" + city + "\"  }";
    (void)cached(id, sampled);
    const json_int_t whole = all;
    EXPECT_GE(cached(id, other), whole - 2);
    EXPECT_EQ(all, whole) << "the same prompt";
    EXPECT_LT(cached("call_of_someone_else", other), whole - 2);
    EXPECT_LT(cached(id, "{\"days\":7,\"city\":\"" + city + "\"}"), whole - 2)
        << "it is another call";
    json_decref(arguments);
    json_decref(root);
    stop();
    weir_chat_template_close(chat);
}

TEST_F(ForcedCalls, WhatCannotBeServedIsNamed)
{
    open({ "model.context=1024" });
    const std::string bad = R"({"type":"object","properties":{"a":{"not":{}}}})";
    const struct {
        std::string more;
        const char *param, *said;
    } cases[] = {
        { R"("tools":[)" + tool("f", bad, true) + "]", "tools", "f: schema: the keyword \\\"not" },
        { R"("tools":[)" + tool("f", bad, true) + R"(],"tool_choice":"required")", "tools", "not" },
    };
    for (const auto &c : cases) {
        const std::string reply = request("POST", "/v1/chat/completions", body(c.more));
        EXPECT_EQ(0u, reply.find("HTTP/1.1 400")) << c.more << reply;
        EXPECT_NE(reply.find("\"param\":\"" + std::string(c.param)), std::string::npos) << reply;
        EXPECT_NE(reply.find(c.said), std::string::npos) << reply;
    }
    /* A tool that is not strict takes any arguments then. */
    const std::string any = calls(
        R"("tools":[)" + tool("f", bad) +
        R"(],"tool_choice":"required","parallel_tool_calls":false)"
    );
    EXPECT_EQ(any.find("f {"), 0u) << any;
}

} // namespace
