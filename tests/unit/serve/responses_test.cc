// POST /v1/responses of the whole server over the fake service: replies, and events in their order.
#include <jansson.h>

#include <functional>
#include <map>

#include "tests/unit/serve/server_fixture.h"

namespace {

const char tools[] =
    R"("tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":)"
    R"({"n":{"type":"integer"}}}}])";
const char call[] =
    "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>";

struct Event {
    std::string name;
    json_t *data;
};

/* What a stream says of one item. */
struct Item {
    std::string id, text;
    bool is_done = false;
};

class Responses : public Server {
  protected:
    void TearDown() override
    {
        for (json_t *const value : values_) json_decref(value);
        Server::TearDown();
    }

    std::string body(const std::string &more) const { return R"({"input":"a")" + more + "}"; }
    json_t *parse(const std::string &text)
    {
        json_t *const value =
            json_loads(text.c_str(), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, nullptr);
        EXPECT_NE(nullptr, value) << text;
        values_.push_back(value);
        return value;
    }
    json_t *reply(const std::string &more, int status = 200)
    {
        const std::string text = ask("/v1/responses", body(more));
        EXPECT_EQ(0u, text.find("HTTP/1.1 " + std::to_string(status))) << text;
        return parse(text.substr(text.find("\r\n\r\n") + 4));
    }
    /* The events of a stream, which must be complete: its last chunk has come. */
    std::vector<Event> events(const std::string &more)
    {
        const std::string text = ask("/v1/responses", body(more + R"(,"stream":true)"));
        std::string plain;
        size_t at = text.find("\r\n\r\n") + 4;
        EXPECT_EQ(0u, text.find("HTTP/1.1 200")) << text;
        for (size_t n = 1; n > 0;) {
            n = strtoul(text.c_str() + at, nullptr, 16);
            at = text.find("\r\n", at) + 2;
            plain += text.substr(at, n);
            at += n + 2;
        }
        EXPECT_EQ("0\r\n\r\n", text.substr(text.size() - 5));
        return split(plain);
    }
    std::vector<Event> split(const std::string &text)
    {
        std::vector<Event> found;
        for (size_t at = 0, end; (end = text.find("\n\n", at)) != std::string::npos; at = end + 2) {
            const std::string frame = text.substr(at, end - at);
            const size_t line = frame.find('\n');
            EXPECT_EQ(0u, frame.find("event: ")) << frame;
            EXPECT_EQ(0u, frame.substr(line + 1).find("data: ")) << frame;
            found.push_back({ frame.substr(7, line - 7), parse(frame.substr(line + 7)) });
        }
        for (size_t i = 0; i < found.size(); i++) {
            EXPECT_EQ(found[i].name, string(found[i].data, "type"));
            EXPECT_EQ(
                static_cast<json_int_t>(i),
                json_integer_value(json_object_get(found[i].data, "sequence_number"))
            );
        }
        return found;
    }
    static std::string string(const json_t *object, const char *key)
    {
        const char *const text = json_string_value(json_object_get(object, key));
        return text != nullptr ? text : "";
    }
    static const json_t *first(const json_t *object, const char *key)
    {
        return json_array_get(json_object_get(object, key), 0);
    }
    static std::string text_of(const json_t *item)
    {
        const json_t *part = first(item, "content");
        if (part == nullptr) part = first(item, "summary");
        return part != nullptr ? string(part, "text") : string(item, "arguments");
    }
    /* "type:text|" of each item. */
    static std::string shape(const json_t *response)
    {
        const json_t *const output = json_object_get(response, "output");
        std::string shape;
        for (size_t i = 0; i < json_array_size(output); i++) {
            const json_t *const item = json_array_get(output, i);
            shape += string(item, "type") + ":" + text_of(item) + "|";
        }
        return shape;
    }
    static std::string names(const std::vector<Event> &list)
    {
        std::string names;
        for (const Event &event : list) /* pieces of one text count once */
            if (names.size() < event.name.size() + 1 ||
                names.substr(names.size() - event.name.size() - 1) != event.name + "\n")
                names += event.name + "\n";
        return names;
    }
    /* Each item is added, sent in pieces and done, in this order; returns the last Response. */
    static const json_t *check(const std::vector<Event> &list)
    {
        std::vector<Item> items;
        for (const Event &event : list) {
            const json_t *const index = json_object_get(event.data, "output_index");
            if (index == nullptr) continue;
            const size_t at = static_cast<size_t>(json_integer_value(index));
            const json_t *const item = json_object_get(event.data, "item");
            if (event.name == "response.output_item.added") {
                EXPECT_EQ(items.size(), at);
                EXPECT_TRUE(items.empty() || items.back().is_done) << "one item after the other";
                EXPECT_EQ("in_progress", string(item, "status"));
                items.push_back({ string(item, "id"), "" });
                continue;
            }
            EXPECT_EQ(items.size(), at + 1);
            EXPECT_FALSE(items[at].is_done);
            if (item == nullptr) EXPECT_EQ(items[at].id, string(event.data, "item_id"));
            if (json_object_get(event.data, "delta") != nullptr)
                items[at].text += string(event.data, "delta");
            if (event.name == "response.output_item.done") {
                items[at].is_done = true;
                EXPECT_EQ(items[at].id, string(item, "id"));
                EXPECT_EQ(items[at].text, text_of(item));
            }
        }
        const json_t *const last = json_object_get(list.back().data, "response");
        const json_t *const output = json_object_get(last, "output");
        EXPECT_EQ(items.size(), json_array_size(output));
        for (size_t i = 0; i < items.size(); i++)
            EXPECT_EQ(items[i].text, text_of(json_array_get(output, i)));
        return last;
    }

    std::vector<json_t *> values_;
};

TEST_F(Responses, ItemsHaveTheOrderOfTheText)
{
    open({ 2, 4096, 2000, 0 }); /* slow: what grows is read while it does */
    say("Hm. Well, yes.\n</think>\n\nOne. " + std::string(call) + "\n" + call + "\nTwo.");
    const std::string more = std::string(",") + tools;
    const json_t *const plain = reply(more);
    EXPECT_EQ(
        "reasoning:Hm. Well, yes.|message:One.|function_call:{\"n\": 1}|function_call:{\"n\": "
        "1}|message:Two.|",
        shape(plain)
    );
    EXPECT_EQ("completed", string(plain, "status"));
    const json_t *const output = json_object_get(plain, "output");
    std::map<std::string, int> ids;
    for (size_t i = 0; i < json_array_size(output); i++) {
        ids[string(json_array_get(output, i), "id")]++;
        ids[string(json_array_get(output, i), "call_id")]++;
    }
    EXPECT_EQ(5u + 2u + 1u, ids.size()) << "ids differ";
    EXPECT_EQ("f", string(json_array_get(output, 2), "name"));

    const std::vector<Event> list = events(more);
    EXPECT_EQ(shape(plain), shape(check(list)));
    EXPECT_EQ(
        "response.created\nresponse.in_progress\n"
        "response.output_item.added\nresponse.content_part.added\n"
        "response.reasoning_text.delta\nresponse.reasoning_text.done\n"
        "response.content_part.done\nresponse.output_item.done\n"
        "response.output_item.added\nresponse.content_part.added\n"
        "response.output_text.delta\nresponse.output_text.done\n"
        "response.content_part.done\nresponse.output_item.done\n"
        "response.output_item.added\nresponse.function_call_arguments.delta\n"
        "response.function_call_arguments.done\nresponse.output_item.done\n"
        "response.output_item.added\nresponse.function_call_arguments.delta\n"
        "response.function_call_arguments.done\nresponse.output_item.done\n"
        "response.output_item.added\nresponse.content_part.added\n"
        "response.output_text.delta\nresponse.output_text.done\n"
        "response.content_part.done\nresponse.output_item.done\n"
        "response.completed\n",
        names(list)
    );
    EXPECT_EQ(
        0u,
        json_array_size(json_object_get(json_object_get(list.front().data, "response"), "output"))
    );
}

TEST_F(Responses, ReasoningInTheFormThatWasAskedFor)
{
    open({ 2, 4096, 0, 0 });
    say("Hm.\n</think>\n\nOne.");
    const json_t *item = first(reply(""), "output");
    EXPECT_EQ("reasoning_text", string(first(item, "content"), "type"));
    EXPECT_EQ(0u, json_array_size(json_object_get(item, "summary")));
    EXPECT_EQ(nullptr, json_object_get(item, "encrypted_content"));

    const std::string more =
        R"(,"reasoning":{"summary":"auto"},"include":["reasoning.encrypted_content"])";
    item = first(reply(more), "output");
    EXPECT_EQ("summary_text", string(first(item, "summary"), "type"));
    EXPECT_EQ("Hm.", string(first(item, "summary"), "text"));
    EXPECT_EQ(nullptr, json_object_get(item, "content"));
    EXPECT_EQ("weir:Hm.", string(item, "encrypted_content"));
    const std::vector<Event> list = events(more);
    (void)check(list);
    EXPECT_NE(
        std::string::npos, names(list).find("response.reasoning_summary_part.added\n"
                                            "response.reasoning_summary_text.delta\n"
                                            "response.reasoning_summary_text.done\n"
                                            "response.reasoning_summary_part.done\n")
    );
}

TEST_F(Responses, ACutAnswerIsIncomplete)
{
    open({ 2, 4096, 0, 0 });
    say("Hm.\n</think>\n\nOne two three four.");
    const std::string more = R"(,"max_output_tokens":8)";
    const json_t *const plain = reply(more);
    EXPECT_EQ("incomplete", string(plain, "status"));
    EXPECT_EQ("max_output_tokens", string(json_object_get(plain, "incomplete_details"), "reason"));
    const json_t *const output = json_object_get(plain, "output");
    ASSERT_EQ(2u, json_array_size(output));
    EXPECT_EQ("completed", string(json_array_get(output, 0), "status"));
    EXPECT_EQ("incomplete", string(json_array_get(output, 1), "status"));
    const json_t *const usage = json_object_get(plain, "usage");
    EXPECT_EQ(8, json_integer_value(json_object_get(usage, "output_tokens")));
    EXPECT_GT(
        json_integer_value(
            json_object_get(json_object_get(usage, "output_tokens_details"), "reasoning_tokens")
        ),
        0
    );
    const std::vector<Event> list = events(more);
    EXPECT_EQ("response.incomplete", list.back().name);
    EXPECT_EQ(shape(plain), shape(check(list)));
}

TEST_F(Responses, AnEmptyAnswerIsAnEmptyMessage)
{
    open({ 2, 4096, 0, 0 });
    say("</think>");
    EXPECT_EQ("message:|", shape(reply("")));
    EXPECT_EQ("message:|", shape(check(events(""))));
}

/* The stream itself is whole: a client reads its end, not a broken connection. */
TEST_F(Responses, AFailureIsTheLastEvent)
{
    open({ 1, 4096, 0, 3 });
    const std::vector<Event> list = events(R"(,"reasoning":{"effort":"none"})");
    ASSERT_FALSE(list.empty());
    EXPECT_EQ("response.created", list.front().name);
    EXPECT_EQ("response.failed", list.back().name);
    const json_t *const response = json_object_get(list.back().data, "response");
    EXPECT_EQ("failed", string(response, "status"));
    EXPECT_EQ("server_error", string(json_object_get(response, "error"), "code"));
    EXPECT_NE("", string(json_object_get(response, "error"), "message"));
}

TEST_F(Responses, ErrorsNameTheirField)
{
    open({ 1, 300, 0, 0 });
    const struct {
        std::string more;
        const char *param;
    } rows[] = {
        { R"(,"instructions":")" + std::string(3000, 'a') + R"(")", "input" },
        { R"(,"text":{"format":{"type":"json_schema","schema":{"type":"poem"}}})", "text" },
    };
    for (const auto &row : rows)
        for (const char *const stream : { "", R"(,"stream":true)" })
            EXPECT_EQ(
                row.param, string(json_object_get(reply(row.more + stream, 400), "error"), "param")
            ) << row.more.substr(0, 60);
}

TEST_F(Responses, TellsWhatWasLeftOut)
{
    open({ 1, 4096, 0, 0 });
    const std::string text =
        ask("/v1/responses", body(R"(,"tools":[{"type":"web_search"}],"max_output_tokens":1)"));
    EXPECT_NE(
        std::string::npos,
        text.find("x-weir-warning: unknown fields are ignored: tools.web_search\r\n")
    ) << text;
}

TEST_F(Responses, TokensAreCountedAsTheyAreAsked)
{
    open({ 1, 4096, 0, 0 });
    const std::string more = R"(,"instructions":"One two three.",)" + std::string(tools);
    const std::string text = ask("/v1/responses/input_tokens", body(more + R"(,"x":1)"));
    ASSERT_EQ(0u, text.find("HTTP/1.1 200")) << text;
    EXPECT_NE(std::string::npos, text.find("x-weir-warning: ")) << text;
    const json_t *const root = parse(text.substr(text.find("\r\n\r\n") + 4));
    EXPECT_EQ("response.input_tokens", string(root, "object"));
    const json_t *const usage = json_object_get(reply(more + R"(,"max_output_tokens":1)"), "usage");
    EXPECT_EQ(
        json_integer_value(json_object_get(usage, "input_tokens")),
        json_integer_value(json_object_get(root, "input_tokens"))
    );
    const struct {
        const char *body, *param;
    } rows[] = {
        { R"({"input":[]})", "input" },
        { R"({"input":[{"role":"user","content":"a"},{"role":"system","content":"b"}]})", "input" },
        { R"({"input":"a","state":"b"})", "state" },
    };
    for (const auto &row : rows) {
        const std::string refused = ask("/v1/responses/input_tokens", row.body);
        EXPECT_EQ(0u, refused.find("HTTP/1.1 400")) << refused;
        EXPECT_EQ(
            row.param,
            string(
                json_object_get(parse(refused.substr(refused.find("\r\n\r\n") + 4)), "error"),
                "param"
            )
        ) << row.body;
    }
}

/* The words of the failure need memory: what the request holds already, or those that need none. */
TEST_F(Responses, AFailureWithoutMemoryIsAnEventToo)
{
    const size_t caps[WEIR_TIER_COUNT] = { 8 << 20 };
    weir_server_options o = default_options();
    ASSERT_EQ(WEIR_OK, weir_ledger_open(&ledger_, caps));
    o.ledger = ledger_;
    open({ 1, 30000, 100, 20000 }, o);
    const int fd = post(
        "/v1/responses", body(R"(,"reasoning":{"effort":"none"},"ignore_eos":true,"stream":true)")
    );
    const std::string begun = read_text(fd, "event: response.output_text.delta\n");
    ASSERT_EQ(0u, begun.find("HTTP/1.1 200")) << begun;
    size_t taken = 0;
    std::string last;
    for (int i = 0; i < 400 && last.find("response.failed\n") == std::string::npos; i++) {
        const size_t rest = caps[WEIR_TIER_HOST] - weir_ledger_total(ledger_, WEIR_TIER_HOST);
        if (weir_ledger_reserve(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_OTHER, rest, nullptr) ==
            WEIR_OK)
            taken += rest;
        last += read_text(fd, "\n\n");
    }
    last += read_text(fd);
    weir_ledger_return(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_OTHER, taken);
    close(fd);
    const size_t at = last.find("event: response.failed\ndata: ");
    ASSERT_NE(std::string::npos, at) << last.substr(last.size() > 2000 ? last.size() - 2000 : 0);
    const size_t data = last.find("{", at);
    const json_t *const event = parse(last.substr(data, last.find("\n\n", data) - data));
    EXPECT_EQ("failed", string(json_object_get(event, "response"), "status"));
    EXPECT_NE("", string(json_object_get(json_object_get(event, "response"), "error"), "message"));
    EXPECT_EQ("0\r\n\r\n", last.substr(last.size() - 5));
}

/* Codex sends back no more of the reasoning than what is called encrypted, and the chat template
 * prints it while a turn calls tools. */
TEST_F(Responses, ReasoningComesBackToTheTurnOfItsCalls)
{
    open({ 1, 4096, 0, 0 });
    const auto n_input = [this](const std::string &item) {
        const std::string text =
            ask("/v1/responses",
                R"({"max_output_tokens":1,)" + std::string(tools) +
                    R"(,"input":[{"role":"user","content":"a"},)" + item +
                    R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"},)"
                    R"({"type":"function_call_output","call_id":"c","output":"b"}]})");
        EXPECT_EQ(0u, text.find("HTTP/1.1 200")) << text;
        const json_t *const root = parse(text.substr(text.find("\r\n\r\n") + 4));
        return json_integer_value(json_object_get(json_object_get(root, "usage"), "input_tokens"));
    };
    const json_int_t none = n_input("");
    const json_int_t whole = n_input(
        R"({"type":"reasoning","content":[{"type":"reasoning_text","text":"One two three."}]},)"
    );
    EXPECT_GT(whole, none);
    EXPECT_EQ(
        whole,
        n_input(R"({"type":"reasoning","summary":[],"encrypted_content":"weir:One two three."},)")
    );
    EXPECT_EQ(
        none, n_input(R"({"type":"reasoning","summary":[],"encrypted_content":"gAAAAABo"},)")
    );
}

TEST_F(Responses, ALateReplySaysWhereItsAnswerIs)
{
    open({ 1, 4096, 20000, 0 });
    const std::string late = R"(,"ignore_eos":true,"timeout":0.05)";
    const std::string response = ask("/v1/responses", body(late + R"(,"max_output_tokens":1000)"));
    EXPECT_EQ(0u, response.find("HTTP/1.1 408")) << response;
    EXPECT_NE(std::string::npos, response.find("`output` has what was computed")) << response;
    const std::string chat =
        ask("/v1/completions", R"({"prompt":"a","max_tokens":1000)" + late + "}");
    EXPECT_EQ(0u, chat.find("HTTP/1.1 408")) << chat;
    EXPECT_NE(std::string::npos, chat.find("`choices` has what was computed")) << chat;
}

} // namespace
