// Requests to /v1/responses: the chats that they stand for, and what is refused under which name.
#include <gtest/gtest.h>
#include <jansson.h>

#include <cstdlib>
#include <string>

#include "engine/serve/responses_request.h"
#include "tests/unit/serve/request.h"

namespace {

/* One request, read. */
class Reading {
  public:
    explicit Reading(const std::string &fields, bool with_input = true)
    {
        const weir_request_limits limits = request::limits();
        const std::string body =
            (with_input ? R"({"input":"a")" + (fields.empty() ? "" : "," + fields) : "{" + fields) +
            "}";
        status_ =
            weir_responses_read(&request_, &more_, body.c_str(), body.size(), &limits, &error_);
        if (status_ != WEIR_OK) EXPECT_NE('\0', error_.message[0]) << body;
    }
    Reading(const Reading &) = delete;
    Reading &operator=(const Reading &) = delete;
    ~Reading()
    {
        weir_openai_request_free(&request_);
        weir_buffer_free(&more_.echo);
    }
    bool is_read() const { return status_ == WEIR_OK; }
    std::string error() const { return error_.message; }
    /* "param", or "status param" if it is not 400. */
    std::string refusal() const
    {
        if (is_read()) return "";
        const std::string param = error_.param;
        return error_.status == 400 ? param : std::to_string(error_.status) + " " + param;
    }
    static std::string text(const json_t *value)
    {
        char *const dump = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
        const std::string copy = dump != nullptr ? dump : "";
        free(dump);
        return copy;
    }
    std::string messages() const { return text(request_.messages); }
    std::string tools() const { return text(request_.tools); }
    std::string variables() const { return text(request_.variables); }
    /* A member of the Response that repeats the request. */
    std::string echo(const char *key) const
    {
        const std::string whole = "{" + std::string(more_.echo.data, more_.echo.size) + "}";
        json_t *const object = json_loads(whole.c_str(), JSON_REJECT_DUPLICATES, nullptr);
        EXPECT_NE(nullptr, object) << whole;
        const std::string member = text(json_object_get(object, key));
        json_decref(object);
        return member;
    }
    const weir_openai_request &chat() const { return request_; }
    const weir_responses &more() const { return more_; }

  private:
    weir_status status_;
    weir_openai_request request_ = {};
    weir_responses more_ = {};
    weir_api_error error_ = {};
};

const char *const user = R"({"content":"a","role":"user"})";

TEST(ResponsesRequest, ItemsBecomeMessages)
{
    const struct {
        const char *fields, *messages;
    } rows[] = {
        { R"("input":"a")", R"([{"content":"a","role":"user"}])" },
        { R"("input":"a","instructions":null)", R"([{"content":"a","role":"user"}])" },
        { R"("input":"a","instructions":"b")",
          R"([{"content":"b","role":"system"},{"content":"a","role":"user"}])" },
        { R"("input":[{"role":"user","content":[{"type":"input_text","text":"a"},)"
          R"({"type":"input_text","text":"b\u0000"}]}])",
          R"([{"content":"ab\u0000","role":"user"}])" },
        /* Leading system messages are one; a later one stays where it is. */
        { R"("instructions":"a","input":[{"type":"message","role":"developer","content":"b"},)"
          R"({"role":"system","content":[]},{"role":"user","content":"c"},)"
          R"({"role":"developer","content":"d"}])",
          R"([{"content":"a\n\nb\n\n","role":"system"},{"content":"c","role":"user"},)"
          R"({"content":"d","role":"system"}])" },
        { R"("instructions":"a","input":[{"role":"developer","content":"b"}])",
          R"([{"content":"a\n\nb","role":"system"}])" },
        /* Reasoning, text and calls are one message. */
        { R"("input":[{"type":"reasoning","id":"rs_1","summary":[],)"
          R"("content":[{"type":"reasoning_text","text":"r"}],"status":null},)"
          R"({"type":"message","role":"assistant","content":[{"type":"output_text","text":"t",)"
          R"("annotations":[]},{"type":"refusal","refusal":"!"}]},)"
          R"({"type":"function_call","call_id":"c","name":"f","arguments":"{\"n\":1}"},)"
          R"({"type":"function_call","call_id":"d","name":"g","arguments":"no"},)"
          R"({"type":"message","role":"assistant","content":"u"},)"
          R"({"type":"function_call_output","call_id":"c","output":"1"},)"
          R"({"type":"function_call_output","call_id":"d","output":[{"type":"input_text",)"
          R"("text":"2"}]}])",
          R"([{"content":"t!u","reasoning_content":"r","role":"assistant","tool_calls":[)"
          R"({"function":{"arguments":{"n":1},"name":"f"},"id":"c","type":"function"},)"
          R"({"function":{"arguments":"no","name":"g"},"id":"d","type":"function"}]},)"
          R"({"content":"1","role":"tool","tool_call_id":"c"},)"
          R"({"content":"2","role":"tool","tool_call_id":"d"}])" },
        /* Two texts are two messages, and so is what follows reasoning after a text. */
        { R"("input":[{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},)"
          R"({"type":"reasoning","summary":[{"text":"r"},{"text":"s"}]},)"
          R"({"role":"assistant","content":"c"}])",
          R"([{"content":"a","role":"assistant"},{"content":"b","role":"assistant"},)"
          R"({"content":"c","reasoning_content":"r\n\ns","role":"assistant"}])" },
        /* Reasoning that this server returned as encrypted; that of another is unreadable. */
        { R"("input":[{"type":"reasoning","summary":[],"encrypted_content":"weir:r"},)"
          R"({"role":"user","content":"a"},)"
          R"({"type":"reasoning","summary":[{"text":"s"}],"encrypted_content":"gAAAA"}])",
          R"([{"content":"","reasoning_content":"r","role":"assistant"},)"
          R"({"content":"a","role":"user"},)"
          R"({"content":"","reasoning_content":"s","role":"assistant"}])" },
    };
    for (const auto &row : rows) {
        const Reading read(row.fields, false);
        EXPECT_TRUE(read.is_read()) << row.fields << ": " << read.error();
        EXPECT_EQ(row.messages, read.messages()) << row.fields;
    }
}

TEST(ResponsesRequest, FieldsOfTheChat)
{
    const Reading plain("");
    ASSERT_TRUE(plain.is_read());
    EXPECT_EQ(-1, plain.chat().max_tokens);
    EXPECT_EQ(nullptr, plain.chat().tools);
    EXPECT_FALSE(plain.chat().truncate_middle || plain.chat().one_call || plain.chat().stream);
    EXPECT_EQ(nullptr, plain.chat().structured.field);

    const Reading full(
        R"("max_output_tokens":7,"truncation":"auto","parallel_tool_calls":false,"stream":true,)"
        R"("temperature":0.5,"top_p":0.25,"seed":3,"stop":["x"],"cache_salt":"s","priority":4,)"
        R"("reasoning":{"effort":"low","summary":"auto"},"include":["reasoning.encrypted_content",)"
        R"("web_search_call.results"],"text":{"format":{"type":"json_schema","name":"n",)"
        R"("schema":{"type":"object"}},"verbosity":"low"})"
    );
    ASSERT_TRUE(full.is_read()) << full.error();
    const weir_openai_request &chat = full.chat();
    EXPECT_EQ(7, chat.max_tokens);
    EXPECT_TRUE(chat.truncate_middle && chat.one_call && chat.stream && chat.chat);
    EXPECT_FLOAT_EQ(0.5f, chat.sampling.temperature);
    EXPECT_FLOAT_EQ(0.25f, chat.sampling.top_p);
    EXPECT_EQ(3u, chat.sampling.seed);
    EXPECT_EQ(1u, chat.stop.count);
    EXPECT_STREQ("s", chat.cache_salt);
    EXPECT_EQ(4, chat.priority);
    EXPECT_EQ(R"({"enable_thinking":true,"reasoning_effort":"low"})", full.variables());
    EXPECT_STREQ("text", chat.structured.field);
    EXPECT_EQ(
        R"({"type":"object"})", std::string(chat.structured.text.data, chat.structured.text.size)
    );
    EXPECT_TRUE(full.more().has_summary && full.more().has_encrypted);
    EXPECT_EQ(0u, chat.unknown.count);
    EXPECT_EQ(
        R"({"enable_thinking":false})", Reading(R"("reasoning":{"effort":"none"})").variables()
    );
    EXPECT_FALSE(Reading(R"("truncation":"disabled")").chat().truncate_middle);
}

TEST(ResponsesRequest, ToolsOfOtherTypesAreLeftOut)
{
    const Reading read(
        R"("tools":[{"type":"web_search"},{"type":"function","name":"f","description":"d",)"
        R"("parameters":{"type":"object"},"strict":null},{"type":"custom","name":"p"}],)"
        R"("tool_choice":"auto")"
    );
    ASSERT_TRUE(read.is_read()) << read.error();
    EXPECT_EQ(
        R"([{"function":{"description":"d","name":"f","parameters":{"type":"object"}},)"
        R"("type":"function"}])",
        read.tools()
    );
    ASSERT_EQ(2u, read.chat().unknown.count);
    EXPECT_STREQ("tools.web_search", read.chat().unknown.name[0].text);
    EXPECT_STREQ("tools.custom", read.chat().unknown.name[1].text);
    EXPECT_EQ(
        R"([{"description":"d","name":"f","parameters":{"type":"object"},"strict":null,)"
        R"("type":"function"}])",
        read.echo("tools")
    );
}

TEST(ResponsesRequest, RepeatsTheRequest)
{
    const Reading plain("");
    EXPECT_EQ("null", plain.echo("instructions"));
    EXPECT_EQ("true", plain.echo("parallel_tool_calls"));
    EXPECT_EQ("\"auto\"", plain.echo("tool_choice"));
    EXPECT_EQ("[]", plain.echo("tools"));
    EXPECT_EQ("{}", plain.echo("metadata"));
    EXPECT_EQ("\"disabled\"", plain.echo("truncation"));
    EXPECT_EQ("false", plain.echo("store"));
    EXPECT_EQ(R"({"effort":null,"summary":null})", plain.echo("reasoning"));
    EXPECT_EQ(R"({"format":{"type":"text"},"verbosity":null})", plain.echo("text"));
    const Reading full(
        R"("instructions":"\"b\"","metadata":{"k":"v"},"store":true,"max_output_tokens":9,)"
        R"("reasoning":{"effort":"high","summary":"detailed"},"tool_choice":"none","user":"u",)"
        R"("parallel_tool_calls":false,"truncation":"auto",)"
        R"("text":{"format":{"type":"json_object"}})"
    );
    ASSERT_TRUE(full.is_read()) << full.error();
    EXPECT_EQ(R"("\"b\"")", full.echo("instructions"));
    EXPECT_EQ(R"({"k":"v"})", full.echo("metadata"));
    EXPECT_EQ("false", full.echo("store")) << "nothing is stored";
    EXPECT_EQ("9", full.echo("max_output_tokens"));
    EXPECT_EQ(R"({"effort":"high","summary":"detailed"})", full.echo("reasoning"));
    EXPECT_EQ("\"none\"", full.echo("tool_choice"));
    EXPECT_EQ("false", full.echo("parallel_tool_calls"));
    EXPECT_EQ("\"u\"", full.echo("user"));
    EXPECT_EQ("\"auto\"", full.echo("truncation"));
    EXPECT_EQ(R"({"format":{"type":"json_object"},"verbosity":null})", full.echo("text"));
}

TEST(ResponsesRequest, MembersThatAreUnknownAreTold)
{
    const Reading read(
        R"("reasoning":{"mode":"pro","context":null},"text":{"colour":1},"some_future_key":1)"
    );
    ASSERT_TRUE(read.is_read()) << read.error();
    ASSERT_EQ(3u, read.chat().unknown.count);
    EXPECT_STREQ("some_future_key", read.chat().unknown.name[0].text);
    EXPECT_STREQ("text.colour", read.chat().unknown.name[1].text);
    EXPECT_STREQ("reasoning.mode", read.chat().unknown.name[2].text);
}

/* Names of chats mean nothing here. */
TEST(ResponsesRequest, FieldsOfOtherBodiesAreUnknown)
{
    const Reading read(
        R"("messages":[],"max_tokens":0,"response_format":5,"reasoning_effort":5,"n":9,)"
        R"("on_overflow":"x","logprobs":5)"
    );
    ASSERT_TRUE(read.is_read()) << read.error();
    EXPECT_EQ(7u, read.chat().unknown.count);
    EXPECT_EQ("[" + std::string(user) + "]", read.messages());
}

const struct {
    const char *fields, *refusal;
} refused[] = {
    { R"("model":"x")", "404 model" },
    { R"("max_output_tokens":0)", "max_output_tokens" },
    { R"("max_output_tokens":"5")", "max_output_tokens" },
    { R"("max_output_tokens":2,"min_tokens":3)", "min_tokens" },
    { R"("temperature":9)", "temperature" },
    { R"("stream":"yes")", "stream" },
    { R"("stream_options":{})", "stream_options" },
    { R"("instructions":5)", "instructions" },
    { R"("reasoning":5)", "reasoning" },
    { R"("reasoning":{"effort":"banana"})", "reasoning" },
    { R"("reasoning":{"effort":5})", "reasoning" },
    { R"("reasoning":{"summary":"none"})", "reasoning.summary" },
    { R"("reasoning":{"generate_summary":1})", "reasoning.generate_summary" },
    { R"("text":"json")", "text" },
    { R"("text":{"verbosity":"loud"})", "text.verbosity" },
    { R"("text":{"format":{}})", "text.format" },
    { R"("text":{"format":5})", "text.format" },
    { R"("text":{"format":{"type":"xml"}})", "text.format.type" },
    { R"("text":{"format":{"type":"json_schema","name":"n"}})", "text.format" },
    { R"("text":{"format":{"type":"json_schema","schema":true}})", "text.format" },
    { R"("text":{"format":{"type":"json_object"}},"guided_json":{})", "guided_json" },
    { R"("truncation":"middle")", "truncation" },
    { R"("truncation":1)", "truncation" },
    { R"("include":"reasoning.encrypted_content")", "include" },
    { R"("include":[1])", "include" },
    { R"("include":["message.output_text.logprobs"])", "include" },
    { R"("top_logprobs":2)", "top_logprobs" },
    { R"("top_logprobs":21)", "top_logprobs" },
    { R"("max_tool_calls":0)", "max_tool_calls" },
    { R"("previous_response_id":"resp_1")", "previous_response_id" },
    { R"("conversation":"conv_1")", "conversation" },
    { R"("prompt":{"id":"p"})", "prompt" },
    { R"("background":true)", "background" },
    { R"("context_management":[])", "context_management" },
    { R"("moderation":{})", "moderation" },
    { R"("client_metadata":"x")", "client_metadata" },
    { R"("metadata":[])", "metadata" },
    { R"("store":1)", "store" },
    { R"("kv_polcy":"h2o")", "kv_polcy" },
    { R"("tools":{})", "tools" },
    { R"("tools":[5])", "tools" },
    { R"("tools":[{"type":"function"}])", "tools" },
    { R"("tools":[{"type":"function","name":"a b"}])", "tools" },
    { R"("tools":[{"type":"function","name":"a"},{"type":"function","name":"a"}])", "tools" },
    { R"("tools":[{"type":"function","name":"a","parameters":5}])", "tools" },
    { R"("tool_choice":"maybe")", "tool_choice" },
    { R"("tool_choice":5)", "tool_choice" },
    { R"("tool_choice":{"type":"web_search"})", "tool_choice" },
    { R"("tool_choice":{"type":"function"})", "tool_choice" },
    { R"("tool_choice":{"type":"function","name":"no"})", "tool_choice" },
    { R"("tool_choice":{"type":"allowed_tools"})", "tool_choice" },
    { R"("tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp"}]})",
      "tool_choice" },
    { R"("tools":[{"type":"web_search"}],"tool_choice":"required")", "tool_choice" },
};

TEST(ResponsesRequest, IsRefusedByName)
{
    for (const auto &row : refused)
        EXPECT_EQ(row.refusal, Reading(row.fields).refusal()) << row.fields;
    const Reading tool(R"("tools":[{"type":"mcp"},{"type":"function","name":"a b"}])");
    EXPECT_NE(std::string::npos, tool.error().find("tools[1]")) << tool.error();
}

const struct {
    const char *input, *refusal;
} bad_inputs[] = {
    { "5", "input" },
    { "null", "input" },
    { "[]", "input" },
    { "{}", "input" },
    { R"([5])", "input[0]" },
    { R"([{}])", "input[0].role" },
    { R"([{"type":5}])", "input[0]" },
    { R"([{"type":"banana"}])", "input[0]" },
    { R"([{"type":"item_reference","id":"msg_1"}])", "input[0]" },
    { R"([{"role":"wizard","content":"a"}])", "input[0].role" },
    { R"([{"role":"tool","content":"a"}])", "input[0].role" },
    { R"([{"role":"user"}])", "input[0].content" },
    { R"([{"role":"user","content":5}])", "input[0].content" },
    { R"([{"role":"user","content":[5]}])", "input[0].content" },
    { R"([{"role":"user","content":[{"type":"input_text"}]}])", "input[0].content" },
    { R"([{"role":"user","content":"a"},{"role":"user","content":[{"type":"input_image"}]}])",
      "input[1].content" },
    { R"([{"type":"function_call","name":"f","arguments":"{}"}])", "input[0].call_id" },
    { R"([{"type":"function_call","call_id":"c","arguments":"{}"}])", "input[0].name" },
    { R"([{"type":"function_call","call_id":"c","name":"f\u0000","arguments":""}])",
      "input[0].name" },
    { R"([{"type":"function_call","call_id":"c","name":"f","arguments":{}}])",
      "input[0].arguments" },
    { R"([{"type":"function_call_output","output":"a"}])", "input[0].call_id" },
    { R"([{"type":"function_call_output","call_id":"c"}])", "input[0].output" },
    { R"([{"type":"function_call_output","call_id":"c","output":[{"type":"input_file"}]}])",
      "input[0].output" },
    { R"([{"type":"reasoning","content":[{"type":"reasoning_text"}]}])", "input[0].content" },
    { R"([{"type":"reasoning","summary":[5]}])", "input[0].summary" },
};

TEST(ResponsesRequest, ItemsAreRefusedByPlace)
{
    for (const auto &row : bad_inputs)
        EXPECT_EQ(row.refusal, Reading(R"("input":)" + std::string(row.input), false).refusal())
            << row.input;
    EXPECT_EQ("input", Reading("\"instructions\":\"a\"", false).refusal());
}

} // namespace
