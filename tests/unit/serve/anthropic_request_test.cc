// Requests of Anthropic's API: what is refused and under which name, and the chat that the others
// are read as.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "engine/serve/anthropic_convert.h"
#include "engine/serve/anthropic_error.h"
#include "engine/serve/anthropic_request.h"
#include "tests/unit/serve/request.h"

namespace {

using request::Row;

/* A request that was read; `status` 0 and the rest empty if it was refused. */
class Read {
  public:
    explicit Read(const std::string &body, weir_anthropic_use use = WEIR_ANTHROPIC_MESSAGE)
    {
        const weir_request_limits limits = request::limits();
        is_ok = weir_anthropic_request_read(
                    &chat, use, body.c_str(), body.size(), &limits, &omits_thinking, warning, &error
                ) == WEIR_OK;
    }
    ~Read() { weir_openai_request_free(&chat); }
    Read(const Read &) = delete;
    Read &operator=(const Read &) = delete;
    static std::string text(const json_t *value)
    {
        char *const dump = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
        const std::string out = dump != nullptr ? dump : "";
        free(dump);
        return out;
    }
    std::string messages() const { return text(chat.messages); }
    bool is_ok = false, omits_thinking = false;
    weir_openai_request chat = {};
    weir_api_error error = {};
    char warning[WEIR_WARNING_BYTES] = "";
};

const std::string user = R"({"role":"user","content":"a"})";

std::string with(const std::string &fields, const std::string &messages = user)
{
    return R"({"max_tokens":9,"messages":[)" + messages + "]" + fields + "}";
}

const Row rows[] = {
    { "", 200, nullptr },
    { R"(,"model":"x")", 404, "model" },
    { R"(,"max_tokens":null)", 400, "max_tokens" },
    { R"(,"max_tokens":0)", 400, "max_tokens" },
    { R"(,"max_tokens":"5")", 400, "max_tokens" },
    { R"(,"temperature":-1)", 400, "temperature" },
    { R"(,"top_k":5,"top_p":0.9,"temperature":0)", 200, nullptr },
    { R"(,"stream":"yes")", 400, "stream" },
    { R"(,"stop_sequences":[])", 200, nullptr },
    { R"(,"stop_sequences":"a")", 400, "stop_sequences" },
    { R"(,"stop_sequences":[""])", 400, "stop_sequences" },
    { R"(,"stop_sequences":[5])", 400, "stop_sequences" },
    { R"(,"stop_sequences":["1","2","3","4","5","6","7","8","9","0","1","2","3","4","5","6","7"])",
      400, "stop_sequences" },
    { R"(,"system":"")", 200, nullptr },
    { R"(,"system":[])", 200, nullptr },
    { R"(,"system":5)", 400, "system" },
    { R"(,"system":[{"type":"text"}])", 400, "system" },
    { R"(,"system":[{"type":"image"}])", 400, "system" },
    { R"(,"cache_control":{"type":"ephemeral","ttl":"1h"})", 200, nullptr },
    { R"(,"cache_control":{"type":"eternal"})", 400, "cache_control" },
    { R"(,"cache_control":{"type":"ephemeral","ttl":"2h"})", 400, "cache_control" },
    { R"(,"cache_control":"ephemeral")", 400, "cache_control" },
    { R"(,"metadata":{"user_id":"u"},"service_tier":"auto","inference_geo":"eu","speed":"fast")",
      200, nullptr },
    { R"(,"user_profile_id":"u","diagnostics":{})", 200, nullptr },
    { R"(,"metadata":"u")", 400, "metadata" },
    { R"(,"container":null)", 200, nullptr },
    { R"(,"container":"c")", 400, "container" },
    { R"(,"mcp_servers":[{}])", 400, "mcp_servers" },
    { R"(,"compaction":{})", 400, "compaction" },
    { R"(,"thread":{})", 400, "thread" },
    { R"(,"state":"s")", 400, "state" },
    { R"(,"timeout":1)", 400, "timeout" },
    { R"(,"kv_polcy":"h2o")", 400, "kv_polcy" },
    { R"(,"some_future_key":{})", 200, nullptr },
    { R"(,"context_management":{"edits":[]})", 200, nullptr },
    { R"(,"context_management":{})", 200, nullptr },
    { R"(,"context_management":[])", 400, "context_management" },
    { R"(,"context_management":{"edits":{}})", 400, "context_management" },
    { R"(,"context_management":{"edits":[{}]})", 400, "context_management" },
    { R"(,"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]})", 400,
      "context_management" },
    { R"(,"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"some"}]})", 400,
      "context_management" },
    { R"(,"context_management":{"edits":[{"type":"clear_thinking_20251015",)"
      R"("keep":{"type":"thinking_turns","value":0}}]})",
      400, "context_management" },
    { R"(,"context_management":{"edits":[{"type":"clear_thinking_20251015",)"
      R"("keep":{"type":"thinking_turns"}}]})",
      400, "context_management" },
    { R"(,"thinking":{"type":"adaptive","display":"omitted"})", 200, nullptr },
    { R"(,"thinking":{"type":"adaptive","display":"all"})", 400, "thinking" },
    { R"(,"thinking":{"type":"maybe"})", 400, "thinking" },
    { R"(,"thinking":true)", 400, "thinking" },
    { R"(,"thinking":{"type":"enabled"})", 400, "thinking" },
    { R"(,"thinking":{"type":"enabled","budget_tokens":1023})", 400, "thinking" },
    { R"(,"thinking":{"type":"enabled","budget_tokens":"1024"})", 400, "thinking" },
    { R"(,"thinking":{"type":"enabled","budget_tokens":1024})", 400, "thinking" }, /* not below */
    { R"(,"output_config":{"effort":"medium"})", 200, nullptr },
    { R"(,"output_config":{"effort":"huge"})", 400, "output_config" },
    { R"(,"output_config":5)", 400, "output_config" },
    { R"(,"output_config":{"format":{"type":"json_schema","schema":{}}})", 200, nullptr },
    { R"(,"output_config":{"format":{"type":"json_schema"}})", 400, "output_config" },
    { R"(,"output_config":{"format":{"type":"poem","schema":{}}})", 400, "output_config" },
    { R"(,"output_format":{"type":"json_schema","schema":5})", 400, "output_format" },
    { R"(,"output_config":{"format":{"type":"json_schema","schema":{}}},)"
      R"("output_format":{"type":"json_schema","schema":{}})",
      400, "output_format" },
    { R"(,"tools":[])", 200, nullptr },
    { R"(,"tools":{})", 400, "tools" },
    { R"(,"tools":[5])", 400, "tools" },
    { R"(,"tools":[{"name":"f"}])", 400, "tools" },
    { R"(,"tools":[{"input_schema":{}}])", 400, "tools" },
    { R"(,"tools":[{"name":"a b","input_schema":{}}])", 400, "tools" },
    { R"(,"tools":[{"name":"f","input_schema":{"type":"poem"}}])", 400, "tools" },
    { R"(,"tools":[{"name":"f","input_schema":{},"cache_control":{"type":"x"}}])", 400, "tools" },
    { R"(,"tools":[{"name":"f","input_schema":{}},{"name":"f","input_schema":{}}])", 400, "tools" },
    { R"(,"tools":[{"type":"bash_20250124","name":"bash"}])", 400, "tools" },
    { R"(,"tools":[{"type":5,"name":"f","input_schema":{}}])", 400, "tools" },
    { R"(,"tools":[{"type":"custom","name":"f","input_schema":{},"defer_loading":true,)"
      R"("eager_input_streaming":true,"strict":true,"description":"d"}])",
      200, nullptr },
    { R"(,"tool_choice":"auto")", 400, "tool_choice" },
    { R"(,"tool_choice":{"type":"maybe"})", 400, "tool_choice" },
    { R"(,"tool_choice":{"type":"any"})", 400, "tool_choice" },
    { R"(,"tool_choice":{"type":"none"})", 200, nullptr },
    { R"(,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool"})", 400,
      "tool_choice" },
    { R"(,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"g"})", 400,
      "tool_choice" },
    { R"(,"tools":[{"name":"f","input_schema":{}}],)"
      R"("tool_choice":{"type":"auto","disable_parallel_tool_use":"yes"})",
      400, "tool_choice" },
};

TEST(AnthropicRequest, Rows)
{
    for (const Row &row : rows) {
        const bool has_max = strstr(row.fields, "\"max_tokens\"") != nullptr;
        const std::string body =
            (has_max ? R"({"messages":[)" : R"({"max_tokens":9,"messages":[)") + user + "]" +
            row.fields + "}";
        const Read read(body);
        ASSERT_EQ(row.status == 200, read.is_ok) << body << read.error.message;
        EXPECT_EQ(row.status == 200 ? 0 : row.status, read.error.status) << body;
        if (read.is_ok) EXPECT_EQ(request::has_unknown(row), read.chat.unknown.count > 0) << body;
        if (row.param == nullptr) continue;
        const std::string param = read.error.param;
        EXPECT_EQ(row.param, param.substr(0, param.find_first_of("[."))) << body;
        EXPECT_NE(std::string::npos, std::string(read.error.message).find(row.param)) << body;
    }
    EXPECT_FALSE(Read(R"({"messages":[{"role":"user","content":"a"}]})").is_ok) << "max_tokens";
    EXPECT_TRUE(Read(R"({"messages":[{"role":"user","content":"a"}]})", WEIR_ANTHROPIC_COUNT).is_ok
    );
}

TEST(AnthropicRequest, MessagesThatAreRefused)
{
    const struct {
        const char *messages, *said;
    } refused[] = {
        { "", "at least one" },
        { "5", "messages[0] must be an object" },
        { R"({"content":"a"})", "no role" },
        { R"({"role":"wizard","content":"a"})", "unknown role wizard" },
        { R"({"role":"tool","content":"a"})", "unknown role tool" },
        { R"({"role":"user"})", "messages[0].content must be" },
        { R"({"role":"user","content":["a"]})", "messages[0].content[0]: each block" },
        { R"({"role":"user","content":[{"type":"banana"}]})", "type banana are not supported" },
        { R"({"role":"user","content":[{"type":"image","source":{}}]})",
          "images are not supported" },
        { R"({"role":"user","content":[{"type":"text","text":5}]})", "needs the string `text`" },
        { R"({"role":"user","content":[{"type":"text","text":"a","cache_control":5}]})",
          "cache_control" },
        { R"({"role":"user","content":[{"type":"thinking","thinking":"a"}]})", "type thinking" },
        { R"({"role":"user","content":[{"type":"tool_result"}]})", "`tool_use_id`" },
        { R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"c","is_error":1}]})",
          "is_error" },
        { R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":5}]})",
          "content must be" },
        { R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"c",)"
          R"("content":[{"type":"image"}]}]})",
          "images are not supported" },
        { R"({"role":"assistant","content":[{"type":"tool_result","tool_use_id":"c"}]})",
          "type tool_result" },
        { R"({"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}}]})", "`id`" },
        { R"({"role":"assistant","content":[{"type":"tool_use","id":"c","input":{}}]})", "`name`" },
        { R"({"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f"}]})", "input" },
        { R"({"role":"user","content":"a"},{"role":"assistant","content":)"
          R"([{"type":"tool_use","id":"c","name":"f","input":{}}]})",
          "tool_result blocks must follow" },
    };
    for (const auto &row : refused) {
        const Read read(with("", row.messages));
        EXPECT_FALSE(read.is_ok) << row.messages;
        EXPECT_EQ(400, read.error.status) << row.messages;
        EXPECT_EQ(0u, std::string(read.error.param).find("messages")) << row.messages;
        EXPECT_NE(std::string::npos, std::string(read.error.message).find(row.said))
            << row.messages << ": " << read.error.message;
    }
}

TEST(AnthropicRequest, BlocksBecomeMessagesOfAChat)
{
    const Read read(with(
        R"(,"system":[{"type":"text","text":"s"},{"type":"text","text":"t"}])",
        user +
            R"(,{"role":"assistant","content":[{"type":"thinking","thinking":"h","signature":"x"},)"
            R"({"type":"redacted_thinking","data":"y"},{"type":"text","text":"b"},)"
            R"({"type":"text","text":"c"},{"type":"tool_use","id":"i","name":"f","input":{"k":1}},)"
            R"({"type":"tool_use","id":"j","name":"g","input":{}}]},)"
            R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":"r"},)"
            R"({"type":"tool_result","tool_use_id":"j","is_error":true,)"
            R"("content":[{"type":"text","text":"p"},{"type":"text","text":"q"}]},)"
            R"({"type":"text","text":"go"},{"type":"text","text":" on"}]})"
    ));
    ASSERT_TRUE(read.is_ok) << read.error.message;
    EXPECT_EQ(
        R"([{"content":"st","role":"system"},{"content":"a","role":"user"},)"
        R"({"content":"bc","reasoning_content":"h","role":"assistant","tool_calls":[)"
        R"({"function":{"arguments":{"k":1},"name":"f"},"id":"i","type":"function"},)"
        R"({"function":{"arguments":{},"name":"g"},"id":"j","type":"function"}]},)"
        R"({"content":"r","role":"tool","tool_call_id":"i"},)"
        R"({"content":"Error: pq","role":"tool","tool_call_id":"j"},)"
        R"({"content":"go on","role":"user"}])",
        read.messages()
    );
    EXPECT_NE(nullptr, strstr(read.warning, "redacted_thinking was left out"));
}

TEST(AnthropicRequest, ToolResultsMayHaveNoTextAndTextBeforeThem)
{
    const Read read(with(
        "", R"({"role":"user","content":[{"type":"text","text":"t"},)"
            R"({"type":"tool_result","tool_use_id":"i"},)"
            R"({"type":"tool_result","tool_use_id":"j","content":[]}]},)"
            R"({"role":"user","content":[]})"
    ));
    ASSERT_TRUE(read.is_ok) << read.error.message;
    EXPECT_EQ(
        R"([{"content":"t","role":"user"},{"content":"","role":"tool","tool_call_id":"i"},)"
        R"({"content":"","role":"tool","tool_call_id":"j"},{"content":"","role":"user"}])",
        read.messages()
    );
}

TEST(AnthropicRequest, TheBillingHeaderIsLeftOut)
{
    const std::string line = "x-anthropic-billing-header: cc_version=2; cch=1f;";
    const std::string expected =
        R"([{"content":"You are.","role":"system"},{"content":"a","role":"user"}])";
    for (const std::string &system :
         { R"(")" + line + R"(\nYou are.")",
           R"([{"type":"text","text":")" + line + R"("},{"type":"text","text":"You are."}])",
           R"([{"type":"text","text":")" + line + R"(\nYou are."}])" }) {
        const Read read(with(",\"system\":" + system));
        ASSERT_TRUE(read.is_ok) << read.error.message;
        EXPECT_EQ(expected, read.messages()) << system;
    }
    const Read alone(with(R"(,"system":")" + line + "\""));
    EXPECT_EQ("[" + std::string(R"({"content":"a","role":"user"})") + "]", alone.messages());
    const Read inside(with(R"(,"system":"See )" + line + "\""));
    EXPECT_NE(std::string::npos, inside.messages().find("cch=1f")) << "it does not begin with it";
}

TEST(AnthropicRequest, SystemMessagesStayInPlaceUntilTheyAreFolded)
{
    const std::string late = R"({"role":"system","content":"l"})",
                      assistant = R"({"role":"assistant","content":"b"})";
    const std::string begin =
        R"([{"content":"s\n\nl","role":"system"},{"content":"a","role":"user"},)"
        R"({"content":"b","role":"assistant"},{"content":"l","role":"user"},)";
    for (const bool joins : { false, true }) {
        Read read(with(
            R"(,"system":"s")",
            late + "," + user + "," + assistant + "," + late + "," + user + "," + late + "," + late
        ));
        ASSERT_TRUE(read.is_ok) << read.error.message;
        EXPECT_EQ(8u, json_array_size(read.chat.messages));
        EXPECT_TRUE(weir_anthropic_has_late_system(read.chat.messages));
        ASSERT_EQ(WEIR_OK, weir_anthropic_fold_system(read.chat.messages, joins));
        EXPECT_FALSE(weir_anthropic_has_late_system(read.chat.messages));
        EXPECT_EQ(
            begin + (joins
                         ? R"({"content":"a\n\nl\n\nl","role":"user"}])"
                         : R"({"content":"a","role":"user"},{"content":"l\n\nl","role":"user"}])"),
            read.messages()
        );
    }
}

TEST(AnthropicRequest, ThinkingIsAVariableOfTheTemplate)
{
    const struct {
        const char *fields, *variables;
        bool thinks;
    } all[] = {
        { "", R"({"enable_thinking":false})", false },
        { R"(,"thinking":{"type":"disabled"})", R"({"enable_thinking":false})", false },
        { R"(,"thinking":{"type":"adaptive"})", R"({"enable_thinking":true})", true },
        { R"(,"thinking":{"type":"between_tools"})", R"({"enable_thinking":true})", true },
        { R"(,"thinking":{"type":"adaptive"},"output_config":{"effort":"low"})",
          R"({"enable_thinking":true,"reasoning_effort":"low"})", true },
        { R"(,"thinking":{"type":"adaptive"},"output_config":{"effort":"max"})",
          R"({"enable_thinking":true,"reasoning_effort":"xhigh"})", true },
        { R"(,"output_config":{"effort":"low"})", R"({"enable_thinking":false})", false },
    };
    for (const auto &row : all) {
        const Read read(with(row.fields));
        ASSERT_TRUE(read.is_ok) << row.fields << read.error.message;
        EXPECT_EQ(row.variables, Read::text(read.chat.variables)) << row.fields;
        EXPECT_EQ(row.thinks, read.chat.wants_thought) << row.fields;
        const bool is_idle = !row.thinks && strstr(row.fields, "effort") != nullptr;
        EXPECT_EQ(is_idle, strstr(read.warning, "effort has no effect") != nullptr) << row.fields;
    }
    const Read budget(R"({"max_tokens":2000,"messages":[{"role":"user","content":"a"}],)"
                      R"("thinking":{"type":"enabled","budget_tokens":1024,"display":"omitted"}})");
    ASSERT_TRUE(budget.is_ok) << budget.error.message;
    EXPECT_EQ(1024, budget.chat.thought_tokens);
    EXPECT_TRUE(budget.omits_thinking);
}

TEST(AnthropicRequest, OldThinkingIsClearedWhereThatIsAskedFor)
{
    const std::string thought =
        R"({"role":"assistant","content":[{"type":"thinking","thinking":"h"},)"
        R"({"type":"text","text":"b"}]})";
    const struct {
        const char *keep;
        int n_kept;
    } all[] = {
        { R"(,"keep":"all")", 3 },
        { R"(,"keep":{"type":"all"})", 3 },
        { "", 1 },
        { R"(,"keep":{"type":"thinking_turns","value":2})", 2 },
    };
    for (const auto &row : all) {
        const Read read(with(
            R"(,"context_management":{"edits":[{"type":"clear_thinking_20251015")" +
                std::string(row.keep) + "}]}",
            user + "," + thought + "," + user + "," + thought + "," + user + "," + thought + "," +
                user
        ));
        ASSERT_TRUE(read.is_ok) << row.keep << read.error.message;
        int n = 0, n_old = 0;
        for (size_t i = 0; i < json_array_size(read.chat.messages); i++)
            if (json_object_get(json_array_get(read.chat.messages, i), "reasoning_content") !=
                nullptr)
                n++, n_old += i < 2;
        EXPECT_EQ(row.n_kept, n) << row.keep;
        EXPECT_EQ(row.n_kept == 3, n_old == 1) << "the last ones are kept" << row.keep;
    }
}

TEST(AnthropicRequest, ToolsBecomeThoseOfAChat)
{
    const std::string tools =
        R"(,"tools":[{"name":"f","description":"d","input_schema":{"type":"object"},)"
        R"("input_examples":[{}],"cache_control":{"type":"ephemeral"}}])";
    const Read read(with(tools));
    ASSERT_TRUE(read.is_ok) << read.error.message;
    EXPECT_EQ(
        R"([{"function":{"description":"d","name":"f","parameters":{"type":"object"}},)"
        R"("type":"function"}])",
        Read::text(read.chat.tools)
    );
    EXPECT_FALSE(read.chat.one_call);
    ASSERT_EQ(1u, read.chat.unknown.count);
    EXPECT_STREQ("tools[0].input_examples", read.chat.unknown.name[0].text);
    const Read one(
        with(tools + R"(,"tool_choice":{"type":"auto","disable_parallel_tool_use":true})")
    );
    ASSERT_TRUE(one.is_ok) << one.error.message;
    EXPECT_TRUE(one.chat.one_call);
    const Read none(with(tools + R"(,"tool_choice":{"type":"none"})"));
    ASSERT_TRUE(none.is_ok) << none.error.message;
    EXPECT_EQ(nullptr, none.chat.tools);
}

TEST(AnthropicRequest, ValuesReachTheChat)
{
    const Read read(
        with(R"(,"stop_sequences":["x","yz"],"stream":true,"top_k":7,"temperature":0.5,"seed":-1,)"
             R"("cache_salt":"s","kv_budget":5,"session":"t","cache_prompt":false,"min_tokens":3,)"
             R"("ignore_eos":true,"logit_bias":{"3":1},"priority":2,"output_config":)"
             R"({"format":{"type":"json_schema","schema":{"type":"object"}},"task_budget":{}})")
    );
    ASSERT_TRUE(read.is_ok) << read.error.message;
    const weir_openai_request &r = read.chat;
    EXPECT_EQ(9, r.max_tokens);
    EXPECT_TRUE(r.chat && r.stream && r.ignore_eos && !r.cache_prompt && r.add_generation_prompt);
    EXPECT_EQ(2u, r.stop.count);
    EXPECT_EQ(7, r.sampling.top_k);
    EXPECT_EQ(UINT64_MAX, r.sampling.seed);
    EXPECT_EQ(1u, r.sampling.n_bias);
    EXPECT_EQ(3, r.min_tokens);
    EXPECT_EQ(5, r.kv_budget);
    EXPECT_EQ(2, r.priority);
    EXPECT_STREQ("s", r.cache_salt);
    EXPECT_STREQ("t", r.session);
    EXPECT_STREQ("output_config.format", r.structured.field);
    ASSERT_EQ(1u, r.unknown.count);
    EXPECT_STREQ("output_config.task_budget", r.unknown.name[0].text);
    const Read old(with(R"(,"output_format":{"type":"json_schema","schema":{}})"));
    ASSERT_TRUE(old.is_ok) << old.error.message;
    EXPECT_STREQ("output_format", old.chat.structured.field);
}

TEST(AnthropicRequest, ALastMessageOfTheAssistantIsContinued)
{
    const Read read(with("", user + R"(,{"role":"assistant","content":"The answer is ("})"));
    ASSERT_TRUE(read.is_ok) << read.error.message;
    EXPECT_TRUE(read.chat.continue_final_message);
    EXPECT_FALSE(read.chat.add_generation_prompt);
}

TEST(AnthropicError, HasTheTypeOfItsStatus)
{
    const struct {
        int status;
        const char *type;
    } all[] = {
        { 400, "invalid_request_error" },
        { 401, "authentication_error" },
        { 403, "permission_error" },
        { 404, "not_found_error" },
        { 405, "invalid_request_error" },
        { 408, "timeout_error" },
        { 413, "request_too_large" },
        { 429, "rate_limit_error" },
        { 500, "api_error" },
        { 501, "api_error" },
        { 503, "overloaded_error" },
    };
    for (const auto &row : all) {
        weir_api_error error = {};
        weir_buffer out = {};
        EXPECT_EQ(WEIR_EINVAL, weir_api_fail(&error, row.status, nullptr, nullptr, "why"));
        ASSERT_EQ(WEIR_OK, weir_anthropic_error_write(&out, &error, "r1"));
        EXPECT_EQ(
            R"({"type":"error","error":{"type":")" + std::string(row.type) +
                R"(","message":"why"},"request_id":"r1"})",
            std::string(out.data, out.size)
        );
        weir_buffer_free(&out);
    }
    weir_api_error error = {};
    weir_buffer out = {};
    EXPECT_EQ(WEIR_EINVAL, weir_api_too_long(&error, "messages", 5000, 4096));
    ASSERT_EQ(WEIR_OK, weir_anthropic_error_write(&out, &error, nullptr));
    EXPECT_NE(nullptr, strstr(out.data, "prompt is too long: 5000 tokens > 4096 maximum"));
    EXPECT_EQ(nullptr, strstr(out.data, "request_id"));
    weir_buffer_free(&out);
    EXPECT_TRUE(weir_anthropic_has_path("/v1/messages"));
    EXPECT_TRUE(weir_anthropic_has_path("/v1/messages/count_tokens"));
    EXPECT_FALSE(weir_anthropic_has_path("/v1/messages2"));
    EXPECT_FALSE(weir_anthropic_has_path("/v1/models"));
}

} // namespace
