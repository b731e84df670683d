// /v1/responses over the demo model: a turn continues the rows of the one before, as that of a chat
// does; structured answers; timeouts.
#include <string>

#include "tests/unit/serve/engine_fixture.h"

namespace {

using engine_fixture::EngineServer;

class ResponsesEngine : public EngineServer {
  protected:
    static std::string dump(const json_t *value)
    {
        char *const text = json_dumps(value, JSON_COMPACT);
        const std::string copy = text;
        free(text);
        return copy;
    }
    json_t *respond(const std::string &input, const std::string &more) const
    {
        return ask_json(
            "POST", "/v1/responses",
            R"({"temperature":0,"max_output_tokens":24,"input":)" + input + more + "}"
        );
    }
    static json_int_t used(const json_t *response, const char *key, const char *detail = nullptr)
    {
        const json_t *const value = json_object_get(json_object_get(response, "usage"), key);
        return json_integer_value(detail != nullptr ? json_object_get(value, detail) : value);
    }
    static const json_t *choice_of(const json_t *chat)
    {
        return json_array_get(json_object_get(chat, "choices"), 0);
    }
};

const char question[] = R"({"role":"user","content":"What is the price of the museum?"})";

TEST_F(ResponsesEngine, TheSamePromptAndReuseAsAChat)
{
    open({ "model.context=1024" });
    const std::string off = R"(,"reasoning":{"effort":"none"},"cache_salt":"r")";
    json_t *const first = respond("[" + std::string(question) + "]", off);
    std::string items = "[" + std::string(question);
    const json_t *const output = json_object_get(first, "output");
    for (size_t i = 0; i < json_array_size(output); i++)
        items += "," + dump(json_array_get(output, i));
    json_t *const second = respond(items + "," + question + "]", off);

    const std::string chat_fields =
        R"("temperature":0,"max_tokens":24,"reasoning_effort":"none","cache_salt":"c"})";
    const std::string chat = "/v1/chat/completions",
                      begin = R"({"messages":[)" + std::string(question);
    json_t *const first_chat = ask_json("POST", chat, begin + "]," + chat_fields);
    const std::string message = dump(json_object_get(choice_of(first_chat), "message"));
    json_t *const second_chat =
        ask_json("POST", chat, begin + "," + message + "," + question + "]," + chat_fields);

    for (const auto &[response, reply] :
         { std::pair(first, first_chat), std::pair(second, second_chat) }) {
        EXPECT_EQ(used(response, "input_tokens"), used(reply, "prompt_tokens"));
        EXPECT_EQ(used(response, "output_tokens"), used(reply, "completion_tokens"));
        EXPECT_EQ(
            used(response, "input_tokens_details", "cached_tokens"),
            used(reply, "prompt_tokens_details", "cached_tokens")
        );
        const json_t *const item = json_array_get(json_object_get(response, "output"), 0);
        EXPECT_STREQ(
            json_string_value(
                json_object_get(json_array_get(json_object_get(item, "content"), 0), "text")
            ),
            json_string_value(
                json_object_get(json_object_get(choice_of(reply), "message"), "content")
            )
        );
    }
    EXPECT_GT(used(second, "input_tokens_details", "cached_tokens"), 0);
    for (json_t *const value : { first, second, first_chat, second_chat }) json_decref(value);
}

TEST_F(ResponsesEngine, TextHasTheFormatThatWasAskedFor)
{
    open({ "model.context=512" });
    json_t *const reply = respond(
        R"("Plan the harbour.")",
        R"(,"reasoning":{"effort":"none"},"text":{"format":{"type":"json_schema","name":"a",)"
        R"("schema":{"enum":["mill","boat"]}}})"
    );
    const json_t *const item = json_array_get(json_object_get(reply, "output"), 0);
    const std::string text = json_string_value(
        json_object_get(json_array_get(json_object_get(item, "content"), 0), "text")
    );
    EXPECT_TRUE(text == "\"mill\"" || text == "\"boat\"") << text;
    EXPECT_STREQ("completed", json_string_value(json_object_get(reply, "status")));
    json_decref(reply);
}

TEST_F(ResponsesEngine, ATimeoutTellsWhatThereIs)
{
    open({ "model.context=4096" });
    const std::string body = R"({"input":"Tell me of the harbour.","ignore_eos":true,)"
                             R"("temperature":0,"timeout":0.05)";
    const std::string plain = request("POST", "/v1/responses", body + "}");
    ASSERT_EQ(0u, plain.find("HTTP/1.1 408")) << plain;
    json_t *const root = json_loads(plain.c_str() + plain.find("\r\n\r\n"), 0, nullptr);
    EXPECT_STREQ(
        "timeout", json_string_value(json_object_get(json_object_get(root, "error"), "code"))
    );
    EXPECT_STREQ("incomplete", json_string_value(json_object_get(root, "status")));
    EXPECT_STREQ(
        "timeout",
        json_string_value(json_object_get(json_object_get(root, "incomplete_details"), "reason"))
    );
    json_decref(root);
    const std::string stream = request("POST", "/v1/responses", body + R"(,"stream":true})");
    const bool has_begun = stream.find("HTTP/1.1 200") == 0;
    ASSERT_TRUE(has_begun || stream.find("HTTP/1.1 408") == 0) << stream;
    if (has_begun)
        EXPECT_NE(std::string::npos, stream.find("event: response.incomplete\n")) << stream;
    EXPECT_NE(std::string::npos, stream.find(R"("incomplete_details":{"reason":"timeout"})"));
}

/* The pieces of a stream, put together, are the arguments of the reply. */
TEST_F(ResponsesEngine, ArgumentsAreSentAsTheyAreWritten)
{
    open({ "model.context=1024" });
    const std::string forced =
        R"(,"reasoning":{"effort":"none"},"tool_choice":"required","tools":[{"type":"function",)"
        R"("name":"f","parameters":{"type":"object","properties":{"city":{"enum":["Quito in the )"
        R"(mountains"]},"days":{"enum":[1]}},"required":["city","days"]}}])";
    const std::string fields = R"({"temperature":0,"max_output_tokens":)",
                      input = R"(,"input":"a")";
    std::string limit = "200";
    for (const bool is_cut : { false, true }) {
        json_t *const plain =
            ask_json("POST", "/v1/responses", fields + limit + input + forced + "}");
        const json_t *const item = json_array_get(json_object_get(plain, "output"), 0);
        ASSERT_STREQ("function_call", json_string_value(json_object_get(item, "type")))
            << dump(plain);
        const std::string arguments = json_string_value(json_object_get(item, "arguments")),
                          status = json_string_value(json_object_get(item, "status"));
        EXPECT_EQ(is_cut ? "incomplete" : "completed", status) << arguments;
        const std::string stream = request(
            "POST", "/v1/responses", fields + limit + input + forced + R"(,"stream":true})"
        );
        const std::string name = "event: response.function_call_arguments.delta\ndata: ";
        std::string pieces;
        int n = 0;
        for (size_t at = stream.find(name); at != std::string::npos;
             at = stream.find(name, at + 1), n++) {
            const size_t data = at + name.size();
            json_t *const event =
                json_loads(stream.substr(data, stream.find('\n', data) - data).c_str(), 0, nullptr);
            pieces += json_string_value(json_object_get(event, "delta"));
            json_decref(event);
        }
        EXPECT_EQ(arguments, pieces);
        EXPECT_GT(n, 1);
        limit = std::to_string(used(plain, "output_tokens") - 14);
        json_decref(plain);
    }
}

} // namespace
