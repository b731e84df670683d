// Forced calls of Anthropic's API over the demo model: whole, streamed while they are written, and
// cut anywhere.
#include "tests/unit/serve/engine_fixture.h"

namespace {

class ForcedMessages : public engine_fixture::EngineServer {
  protected:
    void SetUp() override { open({ "model.context=1024", "batch.max_sequences=2" }); }
    static std::string body(int max_tokens, const std::string &more = "")
    {
        return R"({"messages":[{"role":"user","content":"Tell me about the river."}],)"
               R"("temperature":0,"tools":[{"name":"get_weather","input_schema":{"type":"object",)"
               R"("properties":{"city":{"enum":["Rome","Oslo"]},"days":{"enum":[1,2]}},)"
               R"("required":["city","days"],"additionalProperties":false}}],)"
               R"("tool_choice":{"type":"any"},"max_tokens":)" +
               std::to_string(max_tokens) + more + "}";
    }
    static std::string text_of(const json_t *value)
    {
        const size_t flags = JSON_COMPACT | JSON_SORT_KEYS;
        std::string out(json_dumpb(value, nullptr, 0, flags), '\0');
        (void)json_dumpb(value, out.data(), out.size(), flags);
        return out;
    }
};

TEST_F(ForcedMessages, AreStreamedAsTheyAreWritten)
{
    json_t *const whole = ask_json("POST", "/v1/messages", body(300));
    const json_t *const call = json_array_get(json_object_get(whole, "content"), 0);
    EXPECT_STREQ("tool_use", json_string_value(json_object_get(whole, "stop_reason")));
    EXPECT_STREQ("get_weather", json_string_value(json_object_get(call, "name")));
    const std::string input = text_of(json_object_get(call, "input"));
    EXPECT_NE(std::string::npos, input.find("\"city\":")) << input;
    const std::string stream = request("POST", "/v1/messages", body(300, R"(,"stream":true)"));
    std::string arguments;
    int n = 0;
    const std::string key = "data: {\"type\":\"content_block_delta\"";
    for (size_t at = stream.find(key); at != std::string::npos; at = stream.find(key, at + 1)) {
        json_t *const event =
            json_loads(stream.substr(at + 6, stream.find('\n', at) - at - 6).c_str(), 0, nullptr);
        arguments +=
            json_string_value(json_object_get(json_object_get(event, "delta"), "partial_json"));
        json_decref(event);
        n++;
    }
    EXPECT_GT(n, 2) << "pieces of the arguments";
    json_t *const streamed = json_loads(arguments.c_str(), 0, nullptr);
    EXPECT_EQ(input, text_of(streamed)) << arguments;
    json_decref(streamed);
    json_decref(whole);
}

TEST_F(ForcedMessages, ThatAreCutAreStillValidJson)
{
    int n_cut = 0;
    for (int n = 1; n < 60; n += 3) {
        json_t *const reply = ask_json("POST", "/v1/messages", body(n));
        const json_t *const call = json_array_get(json_object_get(reply, "content"), 0);
        const json_t *const input = json_object_get(call, "input");
        const bool is_cut = json_object_get(input, "arguments") != nullptr;
        if (is_cut)
            EXPECT_STREQ("max_tokens", json_string_value(json_object_get(reply, "stop_reason")));
        n_cut += is_cut;
        EXPECT_TRUE(input == nullptr || json_is_object(input)) << n;
        json_decref(reply);
    }
    EXPECT_GT(n_cut, 2);
}

} // namespace
