// What benchmark programs send with their defaults (clients/), and whether their ways of reading
// the replies find every figure.
#include <jansson.h>

#include <functional>
#include <numeric>
#include <vector>

#include "tests/unit/serve/server_fixture.h"

namespace {

std::string recorded(const std::string &name)
{
    weir_buffer text = {};
    weir_error error = {};
    const std::string path = "tests/unit/serve/clients/" + name + ".json";
    EXPECT_EQ(WEIR_OK, weir_file_read(&text, path.c_str(), 1 << 20, &error)) << error.text;
    const std::string body = text.size > 0 ? std::string(text.data, text.size) : "";
    weir_buffer_free(&text);
    return body;
}

struct Object {
    json_t *root = nullptr;
    explicit Object(const std::string &text)
    {
        weir_error error = {};
        EXPECT_EQ(WEIR_OK, weir_json_parse(&root, text.data(), text.size(), "reply", 32, &error))
            << error.text << text;
    }
    Object(const Object &) = delete;
    Object &operator=(const Object &) = delete;
    ~Object() { json_decref(root); }
    const json_t *at(const std::vector<const char *> &path) const
    {
        const json_t *value = root;
        for (const char *const key : path)
            value = key[0] == '0' ? json_array_get(value, 0) : json_object_get(value, key);
        return value;
    }
    int64_t number(const std::vector<const char *> &path) const
    {
        return json_is_integer(at(path)) ? json_integer_value(at(path)) : -1;
    }
};

/* The pieces of a chunked body. */
std::vector<std::string> chunks_of(const std::string &reply)
{
    std::vector<std::string> pieces;
    size_t at = reply.find("\r\n\r\n") + 4;
    for (;;) {
        const size_t end = reply.find("\r\n", at);
        const size_t n =
            end != std::string::npos ? std::stoul(reply.substr(at, end - at), nullptr, 16) : 0;
        if (n == 0) return pieces;
        pieces.push_back(reply.substr(end + 2, n));
        at = end + 2 + n + 2;
    }
}

std::string body_of(const std::string &reply)
{
    if (reply.find("Transfer-Encoding: chunked") == std::string::npos)
        return reply.substr(reply.find("\r\n\r\n") + 4);
    std::string body;
    for (const std::string &piece : chunks_of(reply)) body += piece;
    return body;
}

class BenchClients : public Server {
  protected:
    void open_named(int64_t step_us = 0)
    {
        weir_server_options options = default_options();
        options.model_name = "m";
        open({ 4, 4096, step_us, 0 }, options);
    }
    /* With the headers of aiohttp. */
    std::string send(const std::string &path, const std::string &name) const
    {
        const std::string body = recorded(name);
        return request(
            "POST", path,
            "Accept: */*\r\nAccept-Encoding: gzip, deflate\r\nUser-Agent: Python/3.12 "
            "aiohttp/3.11.16\r\nAuthorization: Bearer EMPTY\r\nx-request-id: bench-1f2e3d4c-0\r\n"
            "Content-Length: " +
                std::to_string(body.size()) + "\r\n",
            body
        );
    }
};

/* As StreamedResponseHandler and async_request_openai_* of vLLM read a stream. */
struct VllmReads {
    int n_chunks = 0; /* with choices: the first is the TTFT, each further one an ITL */
    int n_texts = 0; /* with text or reasoning */
    bool is_done = false;
    int64_t prompt_tokens = -1, output_tokens = -1;
    VllmReads(const std::string &body, bool is_chat)
    {
        for (size_t at = 0, end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
            const std::string message = body.substr(at, end - at);
            if (message[0] == ':') continue;
            EXPECT_EQ(0u, message.find("data: ")) << message;
            if (message == "data: [DONE]") {
                is_done = true;
                continue;
            }
            const Object chunk(message.substr(6));
            if (json_array_size(chunk.at({ "choices" })) > 0) {
                n_chunks++;
                const json_t *const text = is_chat
                                               ? chunk.at({ "choices", "0", "delta", "content" })
                                               : chunk.at({ "choices", "0", "text" });
                if (is_chat) EXPECT_NE(nullptr, chunk.at({ "choices", "0", "delta" })) << message;
                const json_t *const thought =
                    chunk.at({ "choices", "0", "delta", "reasoning_content" });
                n_texts += json_string_length(text) > 0 || json_string_length(thought) > 0;
            } else if (json_is_object(chunk.at({ "usage" }))) {
                prompt_tokens = chunk.number({ "usage", "prompt_tokens" });
                output_tokens = chunk.number({ "usage", "completion_tokens" });
            }
        }
    }
};

TEST_F(BenchClients, VllmBenchServe)
{
    open_named();
    for (const auto &[name, is_chat] :
         { std::pair("vllm_completions", false), std::pair("vllm_completions_greedy", false),
           std::pair("vllm_chat", true) }) {
        const std::string reply = send(is_chat ? "/v1/chat/completions" : "/v1/completions", name);
        ASSERT_EQ(0u, reply.find("HTTP/1.1 200 ")) << name << reply;
        EXPECT_EQ(std::string::npos, reply.find("x-weir-warning")) << name << reply;
        const VllmReads read(body_of(reply), is_chat);
        EXPECT_TRUE(read.is_done) << name;
        EXPECT_EQ(16, read.output_tokens) << name;
        EXPECT_GT(read.prompt_tokens, 0) << name;
        EXPECT_GT(read.n_texts, 0) << name;
        EXPECT_LE(read.n_chunks, 16 + 3)
            << name << ": a role, the tokens, text that was held back, and the end";
    }
}

TEST_F(BenchClients, WhatVllmAsksBeforeARun)
{
    open_named();
    const Object models(body_of(get("/v1/models")));
    for (const char *const key : { "id", "root" })
        EXPECT_STREQ("m", json_string_value(models.at({ "data", "0", key }))) << key;
    const std::string reply = send("/tokenize", "vllm_tokenize");
    ASSERT_EQ(0u, reply.find("HTTP/1.1 200 ")) << reply;
    EXPECT_GT(json_array_size(Object(body_of(reply)).at({ "tokens" })), 0u);
    const std::string text = send("/detokenize", "vllm_detokenize");
    ASSERT_EQ(0u, text.find("HTTP/1.1 200 ")) << text;
    const Object back(body_of(text));
    EXPECT_GT(json_string_length(back.at({ "prompt" })), 0u) << text;
    EXPECT_STREQ(
        json_string_value(back.at({ "prompt" })), json_string_value(back.at({ "content" }))
    );
    EXPECT_EQ(0u, get("/metrics").find("HTTP/1.1 200 "));
}

/* As run_generation of llama-benchy reads a stream. */
struct BenchyReads {
    bool has_response = false;
    int n_contents = 0;
    int64_t prompt_tokens = -1, completion_tokens = -1;
    explicit BenchyReads(const std::string &body)
    {
        for (size_t at = 0, end; (end = body.find('\n', at)) != std::string::npos; at = end + 1) {
            const std::string line = body.substr(at, end - at);
            if (line.rfind("data:", 0) != 0 || line == "data: [DONE]") continue;
            const Object chunk(line.substr(5));
            if (json_is_object(chunk.at({ "usage" }))) {
                prompt_tokens = chunk.number({ "usage", "prompt_tokens" });
                completion_tokens = chunk.number({ "usage", "completion_tokens" });
            }
            if (json_array_size(chunk.at({ "choices" })) == 0) continue;
            has_response = true;
            for (const char *const key : { "content", "reasoning_content", "reasoning" })
                n_contents += json_string_length(chunk.at({ "choices", "0", "delta", key })) > 0;
        }
    }
};

TEST_F(BenchClients, LlamaBenchy)
{
    open_named();
    for (const char *const name : { "benchy_warmup", "benchy_context_probe", "benchy_coherence" }) {
        const std::string reply = send("/v1/chat/completions", name);
        ASSERT_EQ(0u, reply.find("HTTP/1.1 200 ")) << name << reply;
        const Object answer(body_of(reply));
        EXPECT_GT(answer.number({ "usage", "prompt_tokens" }), 0) << name;
        EXPECT_TRUE(json_is_object(answer.at({ "choices", "0", "message" }))) << name;
    }
    EXPECT_EQ(0u, send("/v1/chat/completions", "benchy_latency").find("HTTP/1.1 200 "));
    for (const char *const name : { "benchy_generation", "benchy_depth" }) {
        const std::string reply = send("/v1/chat/completions", name);
        ASSERT_EQ(0u, reply.find("HTTP/1.1 200 ")) << name << reply;
        const BenchyReads read(body_of(reply));
        EXPECT_TRUE(read.has_response) << name;
        EXPECT_GT(read.n_contents, 0) << name << reply;
        EXPECT_GT(read.prompt_tokens, 0) << name;
        if (std::string(name) == "benchy_depth") EXPECT_EQ(16, read.completion_tokens);
    }
}

/* Both take the first chunk with a choice for the end of the prompt: it does not come before the
 * first token. */
TEST_F(BenchClients, TheFirstChunkOfAChatComesWithTheFirstToken)
{
    open_named(400000);
    const int fd = post("/v1/chat/completions", recorded("vllm_chat"));
    const std::string begun = read_text(fd, "\"role\":\"assistant\"");
    weir_service_stats stats = {};
    weir_service_stats_of(service_, &stats);
    EXPECT_GE(stats.answer_tokens, 1) << begun;
    close(fd);
    EXPECT_TRUE(wait_for(0, 0));
}

/* Clients that leave the first piece out lose no token with it. */
TEST_F(BenchClients, TheFirstChunkOfAChatIsAPieceOfItsOwn)
{
    open_named();
    for (const char *const name : { "vllm_chat", "benchy_depth" }) {
        const std::vector<std::string> pieces = chunks_of(send("/v1/chat/completions", name));
        ASSERT_GT(pieces.size(), 1u) << name;
        EXPECT_NE(std::string::npos, pieces[0].find("\"role\":\"assistant\"")) << pieces[0];
        EXPECT_EQ(1, VllmReads(pieces[0], true).n_chunks) << name << ": " << pieces[0];
        const VllmReads all(
            body_of("\r\n\r\n" + std::accumulate(pieces.begin(), pieces.end(), std::string())), true
        );
        EXPECT_EQ(16, all.output_tokens) << name;
        EXPECT_TRUE(all.is_done) << name;
    }
}

} // namespace
