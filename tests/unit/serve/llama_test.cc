// llama-server's endpoints over the fake service: names and values of replies, streams, slots.
#include <jansson.h>

#include <algorithm>

#include "engine/base/memory.h"
#include "tests/unit/serve/server_fixture.h"

namespace {

class Llama : public Server {
  protected:
    void TearDown() override
    {
        for (json_t *const root : roots_) json_decref(root);
        Server::TearDown();
    }
    /* Borrowed. */
    json_t *body_of(const std::string &reply, const char *status = "HTTP/1.1 200")
    {
        const size_t at = reply.find("\r\n\r\n");
        EXPECT_EQ(reply.find(status), 0u) << reply;
        json_t *const root =
            at == std::string::npos
                ? nullptr
                : json_loads(reply.c_str() + at + 4, JSON_DECODE_ANY | JSON_ALLOW_NUL, nullptr);
        EXPECT_NE(root, nullptr) << reply;
        roots_.push_back(root);
        return root;
    }
    json_t *complete(const std::string &fields)
    {
        return body_of(
            ask("/completion", R"({"prompt":"The river","ignore_eos":true)" + fields + "}")
        );
    }
    static std::string text(const json_t *object, const char *key)
    {
        const char *const value = json_string_value(json_object_get(object, key));
        return value != nullptr ? value : "(none)";
    }
    static long long number(const json_t *object, const char *key)
    {
        return json_integer_value(json_object_get(object, key));
    }
    std::vector<json_t *> roots_;
};

TEST_F(Llama, ACompletionHasTheFieldsOfLlamaServer)
{
    open({ 2, 4096, 0, 0 });
    const json_t *const r = complete(R"(,"n_predict":8,"seed":3,"return_tokens":true,"n_probs":3)");
    EXPECT_EQ(number(r, "tokens_predicted"), 8);
    EXPECT_GT(number(r, "tokens_evaluated"), 0);
    EXPECT_EQ(text(r, "stop_type"), "limit");
    EXPECT_EQ(text(r, "stopping_word"), "");
    EXPECT_EQ(text(r, "prompt"), "The river");
    EXPECT_TRUE(json_is_true(json_object_get(r, "stop")));
    EXPECT_EQ(json_array_size(json_object_get(r, "tokens")), 8u);
    const json_t *const probs = json_object_get(r, "completion_probabilities");
    ASSERT_EQ(json_array_size(probs), 8u);
    EXPECT_EQ(json_array_size(json_object_get(json_array_get(probs, 0), "top_logprobs")), 3u);
    EXPECT_EQ(
        number(json_array_get(probs, 0), "id"),
        json_integer_value(json_array_get(json_object_get(r, "tokens"), 0))
    );
    const json_t *const settings = json_object_get(r, "generation_settings");
    EXPECT_EQ(number(settings, "n_predict"), 8);
    EXPECT_EQ(number(settings, "seed"), 3);
    EXPECT_TRUE(json_is_integer(json_object_get(json_object_get(r, "timings"), "cache_n")));
}

TEST_F(Llama, AStopWordIsNamed)
{
    open({ 2, 4096, 0, 0 });
    const std::string whole = text(complete(R"(,"n_predict":40,"seed":3)"), "content"),
                      word = whole.substr(6, 2);
    const json_t *const r = complete(R"(,"n_predict":40,"seed":3,"stop":["never in it","$"])");
    EXPECT_EQ(text(r, "stop_type"), "limit");
    json_t *const body = json_pack(
        "{s:s, s:b, s:i, s:i, s:[s, s]}", "prompt", "The river", "ignore_eos", 1, "n_predict", 40,
        "seed", 3, "stop", "never in it", word.c_str()
    );
    char *const sent = json_dumps(body, 0);
    const json_t *const cut = body_of(ask("/completion", sent));
    weir_memory_give(sent);
    json_decref(body);
    EXPECT_EQ(text(cut, "stop_type"), "word");
    EXPECT_EQ(text(cut, "stopping_word"), word);
    EXPECT_EQ(text(cut, "content"), whole.substr(0, whole.find(word)));
}

TEST_F(Llama, AStreamEndsWithoutDone)
{
    open({ 2, 4096, 0, 0 });
    const std::string plain = text(complete(R"(,"n_predict":8,"seed":3)"), "content"),
                      reply =
                          ask("/completion",
                              R"({"prompt":"The river","ignore_eos":true,"n_predict":8,)"
                              R"("seed":3,"stream":true,"timings_per_token":true})");
    EXPECT_EQ(reply.find("[DONE]"), std::string::npos);
    EXPECT_NE(reply.find("Content-Type: text/event-stream"), std::string::npos);
    EXPECT_EQ(count(reply, "\"stop\":true"), 1);
    EXPECT_GE(count(reply, "\"stop\":false"), 1);
    EXPECT_EQ(count(reply, "\"timings\""), count(reply, "\"index\""));
    std::string joined;
    for (size_t at = reply.find("data: "); at != std::string::npos;
         at = reply.find("data: ", at + 1)) {
        const std::string line = reply.substr(at + 6, reply.find("\n", at) - at - 6);
        json_t *const piece = json_loads(line.c_str(), JSON_ALLOW_NUL, nullptr);
        ASSERT_NE(piece, nullptr) << line;
        roots_.push_back(piece);
        joined += text(piece, "content");
    }
    EXPECT_EQ(joined, plain);
}

TEST_F(Llama, OnlyThePromptIsComputedForZeroTokens)
{
    open({ 2, 4096, 0, 0 });
    const json_t *const r = complete(R"(,"n_predict":0)");
    EXPECT_EQ(text(r, "content"), "");
    EXPECT_EQ(number(r, "tokens_predicted"), 0);
    const json_t *const list =
        body_of(ask("/completion", R"({"prompt":["a","b"],"n_predict":2,"ignore_eos":true})"));
    ASSERT_EQ(json_array_size(list), 2u);
    EXPECT_EQ(number(json_array_get(list, 1), "index"), 1);
    EXPECT_EQ(text(json_array_get(list, 1), "prompt"), "b");
}

TEST_F(Llama, ThePromptOfIdsIsTheirText)
{
    open({ 2, 4096, 0, 0 });
    const std::string wanted = "a \U000103A0 b"; /* of several tokens, none of which is UTF-8 */
    const json_t *const t = body_of(ask("/tokenize", "{\"content\":\"" + wanted + "\"}"));
    char *const ids = json_dumps(json_object_get(t, "tokens"), 0);
    const json_t *const r =
        body_of(ask("/completion", std::string(R"({"n_predict":1,"prompt":)") + ids + "}"));
    weir_memory_give(ids);
    EXPECT_EQ(text(r, "prompt"), wanted);
}

TEST_F(Llama, PropsTellDefaultsAndLimits)
{
    open({ 3, 4096, 0, 0 });
    const json_t *const r = body_of(get("/props"));
    const json_t *const d = json_object_get(r, "default_generation_settings");
    EXPECT_EQ(number(r, "total_slots"), 3);
    EXPECT_EQ(number(d, "n_ctx"), 4096);
    EXPECT_EQ(json_number_value(json_object_get(json_object_get(d, "params"), "temperature")), 1);
    EXPECT_TRUE(json_is_string(json_object_get(r, "chat_template")));
    EXPECT_TRUE(json_is_false(json_object_get(json_object_get(r, "modalities"), "vision")));
    EXPECT_NE(get("/v1/health").find("\"ok\""), std::string::npos);
}

TEST_F(Llama, SlotsAreListedWithoutTexts)
{
    open({ 3, 4096, 1000, 0 });
    const int fd =
        post("/completion", R"({"prompt":"zyzzyva","n_predict":3000,"ignore_eos":true})");
    ASSERT_TRUE(wait_for(1, 0));
    const std::string reply = get("/slots");
    const json_t *const list = body_of(reply);
    ASSERT_EQ(json_array_size(list), 3u);
    EXPECT_TRUE(json_is_true(json_object_get(json_array_get(list, 0), "is_processing")));
    EXPECT_TRUE(json_is_false(json_object_get(json_array_get(list, 1), "is_processing")));
    EXPECT_EQ(reply.find("zyzzyva"), std::string::npos);
    EXPECT_EQ(get("/slots?fail_on_no_slot=1").find("HTTP/1.1 200"), 0u);
    close(fd);
}

TEST_F(Llama, NoFreeSlotIsAnErrorWhereAsked)
{
    open({ 1, 4096, 1000, 0 });
    const int fd = post("/completion", R"({"prompt":"a","n_predict":3000,"ignore_eos":true})");
    ASSERT_TRUE(wait_for(1, 0));
    EXPECT_EQ(get("/slots?fail_on_no_slot=1").find("HTTP/1.1 503"), 0u);
    EXPECT_EQ(get("/slots").find("HTTP/1.1 200"), 0u);
    close(fd);
}

TEST_F(Llama, AnErasedSlotIsEmpty)
{
    weir_server_options options = default_options();
    options.sessions = sessions_ = weir_fake_sessions_open();
    open({ 2, 4096, 0, 0 }, options);
    const std::string save = "/slots/1?action=save", erase = "/slots/1?action=erase";
    EXPECT_EQ(ask(save, R"({"filename":"a"})").find("HTTP/1.1 409"), 0u) << "nothing in it";
    const json_t *const r = complete(R"(,"n_predict":2,"id_slot":1)");
    EXPECT_EQ(number(r, "id_slot"), 1);
    EXPECT_EQ(number(body_of(ask(erase, "{}")), "n_erased"), number(r, "tokens_evaluated") + 2)
        << "prompt and answer";
    EXPECT_EQ(number(body_of(ask(erase, "{}")), "n_erased"), 0);
    EXPECT_EQ(ask(save, R"({"filename":"a"})").find("HTTP/1.1 409"), 0u);
    for (const char *const path : { "/slots/1", "/slots/1?action=dance" })
        EXPECT_EQ(ask(path, "{}").find("HTTP/1.1 400"), 0u) << path;
    for (const char *const path : { "/slots/2?action=erase", "/slots/x?action=erase" })
        EXPECT_EQ(ask(path, "{}").find("HTTP/1.1 404"), 0u) << path;
    EXPECT_EQ(ask(save, R"({"filename":"../a"})").find("HTTP/1.1 400"), 0u);
}

TEST_F(Llama, ASlotIsThatOfItsKey)
{
    weir_server_options options = default_options();
    const char *const keys[] = { "one", "two" };
    options.keys = keys;
    options.n_keys = 2;
    options.sessions = sessions_ = weir_fake_sessions_open();
    open({ 2, 4096, 0, 0 }, options);
    const auto as = [&](const char *key, const std::string &path, const std::string &body) {
        return request(
            "POST", path,
            "Content-Length: " + std::to_string(body.size()) + "\r\nAuthorization: Bearer " + key +
                "\r\n",
            body
        );
    };
    (void)body_of(as("one", "/completion", R"({"prompt":"a b c","n_predict":1,"id_slot":0})"));
    const std::string file = R"({"filename":"a"})";
    EXPECT_EQ(as("two", "/slots/0?action=save", file).find("HTTP/1.1 409"), 0u);
    EXPECT_EQ(as("one", "/slots/0?action=save", file).find("HTTP/1.1 200"), 0u);
    EXPECT_EQ(as("two", "/slots/0?action=restore", file).find("HTTP/1.1 404"), 0u);
    EXPECT_EQ(as("one", "/slots/0?action=restore", file).find("HTTP/1.1 200"), 0u);
    EXPECT_EQ(number(body_of(as("two", "/slots/0?action=erase", "{}")), "n_erased"), 0);
    EXPECT_GT(number(body_of(as("one", "/slots/0?action=erase", "{}")), "n_erased"), 0);
}

TEST_F(Llama, TheTemplateIsRendered)
{
    open({ 2, 4096, 0, 0 });
    const json_t *const r = body_of(ask(
        "/apply-template",
        R"({"messages":[{"role":"system","content":"You mill."},{"role":"user","content":"Hi"}]})"
    ));
    EXPECT_NE(text(r, "prompt").find("You mill."), std::string::npos);
    EXPECT_EQ(ask("/apply-template", R"({"messages":5})").find("HTTP/1.1 400"), 0u);
}

TEST_F(Llama, AModelWithoutTokensForItHasNoInfill)
{
    open({ 2, 4096, 0, 0 });
    const std::string reply = ask("/infill", R"({"input_prefix":"a","input_suffix":"b"})");
    EXPECT_EQ(reply.find("HTTP/1.1 501"), 0u) << reply;
    EXPECT_NE(reply.find("not_supported"), std::string::npos);
}

/* The tokenizer with tokens that `names` adds. */
std::string with_tokens(const std::string &path, const std::vector<const char *> &names)
{
    json_t *const root = json_load_file(path.c_str(), 0, nullptr);
    json_t *const added = json_object_get(root, "added_tokens");
    json_int_t id = 0;
    for (size_t i = 0; i < json_array_size(added); i++)
        id = std::max(id, json_integer_value(json_object_get(json_array_get(added, i), "id")));
    for (const char *const name : names)
        json_array_append_new(
            added, json_pack(
                       "{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", ++id, "content", name,
                       "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1
                   )
        );
    const std::string out = testing::TempDir() + "/infill.tokenizer.json";
    EXPECT_EQ(json_dump_file(root, out.c_str(), 0), 0);
    json_decref(root);
    return out;
}

TEST_F(Llama, InfillPutsTheTextsAfterTheirTokens)
{
    tokenizer_path_ =
        with_tokens(tokenizer_path_, { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>" });
    open({ 2, 4096, 0, 0 });
    const auto fill = [&](const std::string &more) {
        return body_of(
            ask("/infill", R"({"input_prefix":"def f(","input_suffix":"<|fim_middle|>",)"
                           R"("n_predict":4,"ignore_eos":true)" +
                               more + "}")
        );
    };
    const json_t *const r = fill("");
    const std::string prompt = text(r, "prompt"),
                      wanted = "<|fim_prefix|>def f(<|fim_suffix|><|fim_middle|><|fim_middle|>";
    EXPECT_EQ(prompt, wanted);
    EXPECT_EQ(number(r, "tokens_predicted"), 4);
    const json_t *const plain =
        body_of(ask("/tokenize", R"({"content":"<|fim_middle|>","parse_special":false})"));
    const json_t *const prefix =
        body_of(ask("/tokenize", R"({"content":"def f(","parse_special":false})"));
    EXPECT_EQ(number(r, "tokens_evaluated"), 3 + number(plain, "count") + number(prefix, "count"))
        << "a token's name in the text is text";
    EXPECT_EQ(
        text(
            fill(R"(,"input_extra":[{"filename":"a.py","text":"x = 1\n"}],"prompt":"    ret")"),
            "prompt"
        ),
        "\n\n--- a.py\nx = 1\n" + wanted + "    ret"
    );
    for (const char *const body : { R"({"input_prefix":"a"})", R"({"input_suffix":"a"})",
                                    R"({"input_prefix":"a",)"
                                    R"("input_suffix":"b","input_extra":[5]})" })
        EXPECT_EQ(ask("/infill", body).find("HTTP/1.1 400"), 0u) << body;
}

} // namespace
