// Anthropic's API over the fake service: whole answers, the order of events, errors, counts.
#include <jansson.h>

#include "tests/unit/serve/server_fixture.h"

namespace {

const char *const tool =
    R"(,"tools":[{"name":"get_weather","input_schema":{"type":"object","properties":)"
    R"({"city":{"type":"string"}}}}])";

class Messages : public Server {
  protected:
    /* A server whose model says this text. */
    void open_saying(const std::string &text)
    {
        open({ 2, 4096, 100, 0 });
        say(text);
    }
    static std::string body(const std::string &more)
    {
        return R"({"max_tokens":400,"temperature":0,"messages":[{"role":"user","content":"a"}])" +
               more + "}";
    }
    /* Returns the object of a reply; its status must be this. */
    json_t *object(
        const std::string &more, int status = 200, const std::string &path = "/v1/messages"
    ) const
    {
        const std::string text = ask(path, body(more));
        EXPECT_EQ(0u, text.find("HTTP/1.1 " + std::to_string(status))) << text;
        json_t *const root =
            json_loads(text.c_str() + text.find("\r\n\r\n"), JSON_ALLOW_NUL, nullptr);
        EXPECT_NE(nullptr, root) << text;
        return root;
    }
    /* The data of the events of a stream, whose names must be their types. */
    std::vector<json_t *> events(const std::string &more) const
    {
        const std::string text = ask("/v1/messages", body(R"(,"stream":true)" + more));
        EXPECT_NE(std::string::npos, text.find("text/event-stream")) << text;
        std::vector<json_t *> all;
        for (size_t at = text.find("event: "); at != std::string::npos;
             at = text.find("event: ", at + 1)) {
            const size_t end = text.find('\n', at), data = end + sizeof "\ndata: " - 1;
            EXPECT_EQ("\ndata: ", text.substr(end, data - end));
            all.push_back(json_loads(
                text.substr(data, text.find("\n\n", data) - data).c_str(), JSON_ALLOW_NUL, nullptr
            ));
            EXPECT_EQ(text.substr(at + 7, end - at - 7), string_at(all.back(), { "type" }));
        }
        return all;
    }
    static json_t *at(json_t *value, const std::vector<const char *> &path)
    {
        for (const char *const key : path) value = json_object_get(value, key);
        return value;
    }
    static std::string string_at(json_t *value, const std::vector<const char *> &path)
    {
        const char *const text = json_string_value(at(value, path));
        return text != nullptr ? text : "";
    }
    static json_int_t number_at(json_t *value, const std::vector<const char *> &path)
    {
        EXPECT_TRUE(json_is_integer(at(value, path))) << path.back();
        return json_integer_value(at(value, path));
    }
    static std::string dump(json_t *value)
    {
        const size_t flags = JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY;
        /* The server's allocator is in use: no text that free() would take. */
        std::string out(json_dumpb(value, nullptr, 0, flags), '\0');
        (void)json_dumpb(value, out.data(), out.size(), flags);
        return out;
    }
    /* A stream's message put together as clients do; ends all events. */
    static json_t *put_together(std::vector<json_t *> all)
    {
        json_t *const message = json_incref(at(all.front(), { "message" }));
        json_t *const content = json_object_get(message, "content");
        std::string input;
        for (json_t *const event : all) {
            const std::string type = string_at(event, { "type" });
            const std::string kind = string_at(event, { "delta", "type" });
            json_t *const block = json_array_get(content, json_array_size(content) - 1);
            if (type == "content_block_start") {
                EXPECT_EQ(
                    number_at(event, { "index" }), static_cast<json_int_t>(json_array_size(content))
                );
                json_array_append(content, json_object_get(event, "content_block"));
                input.clear();
            } else if (type == "content_block_delta" || type == "content_block_stop") {
                EXPECT_EQ(
                    number_at(event, { "index" }) + 1,
                    static_cast<json_int_t>(json_array_size(content))
                );
            }
            for (const auto &[delta, key] : { std::pair("text_delta", "text"),
                                              { "thinking_delta", "thinking" },
                                              { "signature_delta", "signature" } })
                if (kind == delta)
                    json_object_set_new(
                        block, key,
                        json_string(
                            (string_at(block, { key }) + string_at(event, { "delta", key })).c_str()
                        )
                    );
            if (kind == "input_json_delta") input += string_at(event, { "delta", "partial_json" });
            if (type == "content_block_stop" && !input.empty())
                json_object_set_new(block, "input", json_loads(input.c_str(), 0, nullptr));
            if (type == "message_delta") {
                json_object_update(message, json_object_get(event, "delta"));
                json_object_set(message, "usage", json_object_get(event, "usage"));
            }
        }
        EXPECT_EQ("message_start", string_at(all.front(), { "type" }));
        EXPECT_EQ("message_stop", string_at(all.back(), { "type" }));
        for (json_t *const event : all) json_decref(event);
        return message;
    }
    /* The same without what differs from answer to answer. */
    static std::string without_ids(json_t *message)
    {
        std::string text = dump(message);
        const std::string id = string_at(message, { "id" }).substr(4);
        for (size_t i = text.find(id); i != std::string::npos; i = text.find(id))
            text.replace(i, id.size(), "ID");
        return text;
    }
};

TEST_F(Messages, AWholeAnswer)
{
    open_saying("Good day.");
    json_t *const reply = object("");
    EXPECT_EQ(0u, string_at(reply, { "id" }).find("msg_"));
    EXPECT_EQ("message", string_at(reply, { "type" }));
    EXPECT_EQ("assistant", string_at(reply, { "role" }));
    EXPECT_EQ("fake", string_at(reply, { "model" }));
    EXPECT_EQ(R"([{"text":"Good day.","type":"text"}])", dump(at(reply, { "content" })));
    EXPECT_EQ("end_turn", string_at(reply, { "stop_reason" }));
    EXPECT_TRUE(json_is_null(at(reply, { "stop_sequence" })));
    EXPECT_EQ(static_cast<json_int_t>(n_said_), number_at(reply, { "usage", "output_tokens" }));
    json_decref(reply);
}

TEST_F(Messages, WhatEndsAnAnswerIsNamed)
{
    open_saying("one two three four");
    json_t *reply = object(R"(,"stop_sequences":["seven"," three"])");
    EXPECT_EQ("stop_sequence", string_at(reply, { "stop_reason" }));
    EXPECT_EQ(" three", string_at(reply, { "stop_sequence" }));
    EXPECT_EQ(R"([{"text":"one two","type":"text"}])", dump(at(reply, { "content" })));
    json_decref(reply);
    const std::string cut =
        ask("/v1/messages", R"({"max_tokens":2,"messages":[{"role":"user","content":"a"}]})");
    EXPECT_NE(std::string::npos, cut.find(R"("stop_reason":"max_tokens")")) << cut;
}

TEST_F(Messages, TheEndOfTheWindowIsNotThatOfMaxTokens)
{
    open({ 2, 64, 100, 0 });
    json_t *const reply = object(R"(,"ignore_eos":true)");
    EXPECT_EQ("model_context_window_exceeded", string_at(reply, { "stop_reason" }));
    json_decref(reply);
}

TEST_F(Messages, AnEmptyAnswerHasAnEmptyText)
{
    open_saying("a");
    const int32_t none = 0;
    ASSERT_EQ(WEIR_OK, weir_fake_service_say(service_, &none, 0));
    json_t *const whole = object("");
    EXPECT_EQ(R"([{"text":"","type":"text"}])", dump(at(whole, { "content" })));
    json_t *const stream = put_together(events(""));
    EXPECT_EQ(R"([{"text":"","type":"text"}])", dump(at(stream, { "content" })));
    json_decref(whole);
    json_decref(stream);
}

const char *const thought_and_called =
    "Hm.\n</think>\n\nLet me see.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n"
    "</parameter>\n</function>\n</tool_call>";

TEST_F(Messages, ThinkingAndCallsAreBlocks)
{
    open_saying(thought_and_called);
    const std::string more = std::string(R"(,"thinking":{"type":"adaptive"})") + tool;
    json_t *const whole = object(more);
    EXPECT_EQ("tool_use", string_at(whole, { "stop_reason" }));
    const std::string id = string_at(whole, { "id" });
    EXPECT_EQ(
        R"([{"signature":")" + id +
            R"(","thinking":"Hm.","type":"thinking"},)"
            R"({"text":"Let me see.","type":"text"},)"
            R"({"id":"toolu_)" +
            id.substr(4) +
            R"(_0_0","input":{"city":"Oslo"},"name":"get_weather",)"
            R"("type":"tool_use"}])",
        dump(at(whole, { "content" }))
    );
    EXPECT_GT(number_at(whole, { "usage", "output_tokens_details", "thinking_tokens" }), 0);
    json_t *const stream = put_together(events(more));
    /* The second request found the prompt of the first in the cache. */
    json_object_del(whole, "usage");
    json_object_del(stream, "usage");
    EXPECT_EQ(without_ids(whole), without_ids(stream));
    json_decref(whole);
    json_decref(stream);
}

TEST_F(Messages, ThinkingIsOmittedWhereThatIsAskedFor)
{
    open_saying(thought_and_called);
    const std::string more = R"(,"thinking":{"type":"adaptive","display":"omitted"})";
    json_t *const whole = object(more), *const stream = put_together(events(more));
    for (json_t *const message : { whole, stream }) {
        json_t *const block = json_array_get(at(message, { "content" }), 0);
        EXPECT_EQ("thinking", string_at(block, { "type" }));
        EXPECT_EQ("", string_at(block, { "thinking" }));
        EXPECT_EQ(string_at(message, { "id" }), string_at(block, { "signature" }));
        json_decref(message);
    }
}

TEST_F(Messages, EventsComeInOrder)
{
    open_saying(thought_and_called);
    std::string order, before;
    for (json_t *const event : events(std::string(R"(,"thinking":{"type":"adaptive"})") + tool)) {
        const std::string type = string_at(event, { "type" });
        std::string word = string_at(event, { "delta", "type" });
        if (type == "message_start")
            EXPECT_GT(number_at(event, { "message", "usage", "input_tokens" }), 0);
        if (type == "content_block_start")
            word = string_at(event, { "content_block", "type" }) + "{";
        else if (type == "content_block_stop")
            word = "}";
        else if (word.empty())
            word = type;
        if (word != before) order += word + " ";
        before = word;
        json_decref(event);
    }
    EXPECT_EQ(
        "message_start thinking{ thinking_delta signature_delta } text{ text_delta } "
        "tool_use{ input_json_delta } message_delta message_stop ",
        order
    );
}

TEST_F(Messages, OnlyTheFirstCallIsTakenWhereThatIsAskedFor)
{
    const std::string call =
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n"
        "</tool_call>\n";
    open_saying(call + call);
    json_t *reply = object(tool);
    EXPECT_EQ(2u, json_array_size(at(reply, { "content" })));
    json_decref(reply);
    reply = object(
        tool + std::string(R"(,"tool_choice":{"type":"auto","disable_parallel_tool_use":true})")
    );
    EXPECT_EQ(1u, json_array_size(at(reply, { "content" })));
    EXPECT_EQ("tool_use", string_at(reply, { "stop_reason" }));
    json_decref(reply);
}

TEST_F(Messages, WhatWasCachedIsNotInput)
{
    open({ 2, 4096, 100, 0 });
    const std::string system = R"(,"system":"You are a miller who tells of the river, the stone, )"
                               R"(the lock, the heron, the boat, the wheel and the road.")";
    json_t *const first = object(system), *const second = object(system);
    const json_int_t n = number_at(first, { "usage", "input_tokens" }),
                     cached = number_at(second, { "usage", "cache_read_input_tokens" });
    EXPECT_EQ(0, number_at(first, { "usage", "cache_read_input_tokens" }));
    EXPECT_GT(cached, 0);
    EXPECT_EQ(n, cached + number_at(second, { "usage", "input_tokens" }));
    EXPECT_EQ(0, number_at(second, { "usage", "cache_creation_input_tokens" }));
    json_t *const count = object(system, 200, "/v1/messages/count_tokens");
    EXPECT_EQ("{\"input_tokens\":" + std::to_string(n) + "}", dump(count));
    json_decref(first);
    json_decref(second);
    json_decref(count);
}

TEST_F(Messages, TokensAreCountedWithToolsAndWithoutMaxTokens)
{
    open({ 2, 4096, 100, 0 });
    const std::string plain = R"({"messages":[{"role":"user","content":"a"}])";
    const auto count = [this](const std::string &text) {
        const std::string reply = ask("/v1/messages/count_tokens", text);
        EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << reply;
        return atoi(reply.c_str() + reply.find("input_tokens\":") + sizeof "input_tokens\":" - 1);
    };
    EXPECT_GT(count(plain + tool + "}"), count(plain + "}"));
    const std::string refused = ask("/v1/messages/count_tokens", R"({"messages":[]})");
    EXPECT_EQ(0u, refused.find("HTTP/1.1 400")) << refused;
    EXPECT_NE(std::string::npos, refused.find(R"({"type":"error","error":{"type":"invalid_)"));
    const std::string unknown =
        ask("/v1/messages/count_tokens", plain + R"(,"some_future_key":1})");
    EXPECT_NE(std::string::npos, unknown.find("x-weir-warning: unknown fields")) << unknown;
}

TEST_F(Messages, ErrorsHaveAnthropicsForm)
{
    weir_server_options options = default_options();
    const char *const key = "one";
    options.keys = &key;
    options.n_keys = 1;
    open({ 2, 64, 100, 0 }, options);
    std::string words;
    for (int i = 0; i < 100; i++) words += "river ";
    const struct {
        const char *method, *path, *header;
        std::string body;
        const char *status, *type;
    } all[] = {
        { "POST", "/v1/messages", "", body(""), "401", "authentication_error" },
        { "POST", "/v1/messages", "x-api-key: two\r\n", body(""), "401", "authentication_error" },
        { "POST", "/v1/messages", "x-api-key: one\r\n", body(""), "200", "" },
        { "GET", "/v1/messages", "x-api-key: one\r\n", "", "405", "invalid_request_error" },
        { "POST", "/v1/messages/x", "x-api-key: one\r\n", "{}", "404", "not_found_error" },
        { "POST", "/v1/messages", "x-api-key: one\r\n", "{\"mod", "400", "invalid_request_error" },
        { "POST", "/v1/messages", "x-api-key: one\r\n", body(R"(,"model":"x")"), "404",
          "not_found_error" },
        { "POST", "/v1/messages", "x-api-key: one\r\n", body(",\"system\":\"" + words + "\""),
          "400", "invalid_request_error" },
    };
    for (const auto &row : all) {
        const std::string reply = request(
            row.method, row.path,
            std::string(row.header) + "Content-Length: " + std::to_string(row.body.size()) + "\r\n",
            row.body
        );
        EXPECT_EQ(0u, reply.find("HTTP/1.1 " + std::string(row.status))) << reply;
        EXPECT_NE(std::string::npos, reply.find("\r\nrequest-id: req_")) << reply;
        if (row.type[0] == 0) continue;
        const std::string begin =
            R"({"type":"error","error":{"type":")" + std::string(row.type) + R"(","message":")";
        EXPECT_NE(std::string::npos, reply.find(begin)) << reply;
        EXPECT_NE(std::string::npos, reply.find(R"("request_id":"req_)")) << reply;
        if (!words.empty() && row.body.find(words) != std::string::npos)
            EXPECT_NE(std::string::npos, reply.find("prompt is too long: ")) << reply;
    }
    EXPECT_EQ(
        std::string::npos,
        request("GET", "/v1/models", "x-api-key: one\r\n").find("\r\nrequest-id: ")
    );
}

TEST_F(Messages, AFailureInAStreamIsAnEvent)
{
    open({ 1, 4096, 100, 5 });
    const std::string stream = ask("/v1/messages", body(R"(,"stream":true,"ignore_eos":true)"));
    EXPECT_EQ(0u, stream.find("HTTP/1.1 200")) << stream;
    EXPECT_NE(
        std::string::npos,
        stream.find("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\","
                    "\"message\":\"device failed\"}")
    ) << stream;
    EXPECT_EQ(std::string::npos, stream.find("message_stop")) << stream;
}

TEST_F(Messages, PingsAreEvents)
{
    open({ 1, 4096, 2000, 0 });
    const int running = post("/v1/chat/completions", long_plain);
    ASSERT_TRUE(wait_for(1, 0));
    const int waiting = post("/v1/messages", body(R"(,"stream":true,"sse_ping_interval":0.1)"));
    const std::string ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
                      text = read_text(waiting, ping);
    EXPECT_NE(std::string::npos, text.find(ping)) << text;
    close(waiting);
    close(running);
    EXPECT_TRUE(wait_for(0, 0));
}

TEST_F(Messages, ALateSystemMessageSuitsEveryTemplate)
{
    const std::string begin = R"({"max_tokens":4,"messages":[{"role":"user","content":"a)",
                      late = begin + R"("},{"role":"system","content":"9000 left"}]})";
    const struct {
        const char *file;
        std::string same; /* the chat that it becomes */
    } templates[] = {
        { "Qwen-Qwen2.5-7B-Instruct", late },
        /* It has system messages only at the beginning. */
        { "Qwen3.5-4B", begin + R"("},{"role":"user","content":"9000 left"}],)"
                                R"("chat_template_kwargs":{"enable_thinking":false}})" },
        /* And the user's only in turn with others. */
        { "mistralai-Mistral-Nemo-Instruct-2407", begin + R"(\n\n9000 left"}]})" },
    };
    for (const auto &row : templates) {
        template_ = "tests/golden/text/templates/" + std::string(row.file) + ".jinja";
        open({ 2, 4096, 100, 0 });
        json_t *roots[2];
        const std::string asked[2][2] = { { "/v1/messages", late },
                                          { "/v1/chat/completions", row.same } };
        for (int i = 0; i < 2; i++) {
            const std::string reply = ask(asked[i][0], asked[i][1]);
            EXPECT_EQ(0u, reply.find("HTTP/1.1 200")) << row.file << reply;
            roots[i] = json_loads(reply.c_str() + reply.find("\r\n\r\n"), 0, nullptr);
        }
        EXPECT_EQ(
            number_at(roots[0], { "usage", "input_tokens" }) +
                number_at(roots[0], { "usage", "cache_read_input_tokens" }),
            number_at(roots[1], { "usage", "prompt_tokens" })
        ) << row.file;
        for (json_t *const root : roots) json_decref(root);
        TearDown();
        server_ = nullptr, service_ = nullptr, chat_ = nullptr, tokenizer_ = nullptr;
    }
}

TEST_F(Messages, ThinkingThatTheTemplateDoesNotReadIsSaid)
{
    const std::string thinks = body(R"(,"thinking":{"type":"adaptive"})");
    open({ 2, 4096, 100, 0 });
    EXPECT_EQ(std::string::npos, ask("/v1/messages", thinks).find("x-weir-warning"));
    TearDown();
    server_ = nullptr, service_ = nullptr, chat_ = nullptr, tokenizer_ = nullptr;
    template_ = "tests/golden/text/templates/Qwen-Qwen2.5-7B-Instruct.jinja";
    open({ 2, 4096, 100, 0 });
    const std::string reply = ask("/v1/messages", thinks);
    EXPECT_NE(std::string::npos, reply.find("x-weir-warning: thinking has no effect")) << reply;
    EXPECT_EQ(std::string::npos, reply.find("reasoning_effort")) << reply;
}

TEST_F(Messages, ATruncatedPromptIsSaid)
{
    open({ 2, 64, 100, 0 });
    std::string words;
    for (int i = 0; i < 100; i++) words += "river ";
    const std::string more =
        ",\"system\":\"" + words + R"(","on_overflow":"truncate_middle","max_tokens":9)";
    const std::string text =
        ask("/v1/messages", R"({"messages":[{"role":"user","content":"a"}])" + more + "}");
    EXPECT_NE(std::string::npos, text.find("\"truncated_tokens\":")) << text;
}

} // namespace
