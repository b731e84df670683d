// The whole server in this process, over the fake service: the fixture of its tests.
#pragma once
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/formats/json.h"
#include "engine/serve/server.h"
#include "offload/ledger.h"
#include "tests/unit/serve/http.h"
#include "tests/wire/fake_service.h"

namespace {

using http::read_text;

weir_server_options default_options()
{
    weir_server_options o = {};
    o.log_fd = -1;
    o.sampling.temperature = 1;
    o.sampling.top_p = 1;
    o.sampling.repetition_penalty = 1;
    return o;
}

class Server : public testing::Test {
  protected:
    static void SetUpTestSuite() { weir_json_use_memory(); } /* as in the program */

    void open(const weir_fake_options &fake, weir_server_options options = default_options())
    {
        weir_error error = {};
        weir_buffer text = {};
        ASSERT_EQ(WEIR_OK, weir_tokenizer_open_json(&tokenizer_, tokenizer_path_.c_str(), &error))
            << error.text;
        ASSERT_EQ(WEIR_OK, weir_fake_service_open(&service_, tokenizer_, &fake));
        ASSERT_EQ(WEIR_OK, weir_file_read(&text, template_.c_str(), 1 << 20, &error)) << error.text;
        ASSERT_EQ(WEIR_OK, weir_chat_template_open(&chat_, text.data, text.size, &error))
            << error.text;
        weir_buffer_free(&text);
        options.service = service_;
        options.tokenizer = tokenizer_;
        options.chat = options.chat_problem == nullptr ? chat_ : nullptr;
        options_ = options;
        ASSERT_EQ(WEIR_OK, weir_server_open(&server_, &options, &error)) << error.text;
        ASSERT_EQ(WEIR_OK, weir_server_start(server_, &error)) << error.text;
    }

    void TearDown() override
    {
        weir_server_close(server_);
        weir_fake_service_close(service_);
        weir_fake_sessions_close(sessions_);
        weir_chat_template_close(chat_);
        weir_tokenizer_close(tokenizer_);
        if (ledger_ != nullptr)
            EXPECT_EQ(0u, http_bytes()) << "whatever a request took was given back";
        weir_ledger_close(ledger_);
    }

    /* With a cap for all that requests take. */
    void open_within(size_t cap, int64_t step_us = 0)
    {
        const size_t caps[WEIR_TIER_COUNT] = { cap };
        weir_server_options options = default_options();
        ASSERT_EQ(WEIR_OK, weir_ledger_open(&ledger_, caps));
        options.ledger = ledger_;
        open({ 2, 4096, step_us, 0 }, options);
    }

    size_t http_bytes() const
    {
        return weir_ledger_used(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_HTTP);
    }

    /* Answers are this text from now on, control tokens included. */
    void say(const std::string &text)
    {
        weir_ids ids = {};
        weir_error error = {};
        weir_encode_options options = {};
        options.parse_special = true;
        ASSERT_EQ(
            WEIR_OK,
            weir_tokenizer_encode(tokenizer_, &ids, text.data(), text.size(), &options, &error)
        ) << error.text;
        ASSERT_EQ(WEIR_OK, weir_fake_service_say(service_, ids.data, ids.count));
        n_said_ = ids.count;
        weir_ids_free(&ids);
    }

    int connect_to() const { return http::connect_to(weir_server_port(server_)); }
    int post(const std::string &path, const std::string &body) const
    {
        return http::post(weir_server_port(server_), path, body);
    }
    std::string ask(const std::string &path, const std::string &body) const
    {
        return http::ask(weir_server_port(server_), path, body);
    }
    std::string get(const std::string &path) const { return request("GET", path); }
    std::string request(
        const std::string &method, const std::string &path, const std::string &more = "",
        const std::string &body = ""
    ) const
    {
        return http::request(weir_server_port(server_), method, path, more, body);
    }

    bool wait_for(int32_t running, int32_t waiting) const
    {
        for (int i = 0; i < 1000; i++) {
            weir_service_stats stats = {};
            weir_service_stats_of(service_, &stats);
            if (stats.running == running && stats.waiting == waiting) return true;
            (void)poll(nullptr, 0, 10);
        }
        return false;
    }

    std::string tokenizer_path_ = "tests/golden/text/tok/qwen35.tokenizer.json";
    std::string template_ = "tests/golden/text/templates/Qwen3.5-4B.jinja";
    weir_server_options options_ = {};
    weir_server *server_ = nullptr;
    weir_service *service_ = nullptr;
    size_t n_said_ = 0; /* tokens of say() */
    weir_tokenizer *tokenizer_ = nullptr;
    weir_chat_template *chat_ = nullptr;
    weir_ledger *ledger_ = nullptr;
    weir_sessions *sessions_ = nullptr;
};

const char *const long_stream =
    R"({"messages":[{"role":"user","content":"a"}],"max_tokens":3000,"ignore_eos":true,)"
    R"("stream":true})";
const char *const long_plain =
    R"({"messages":[{"role":"user","content":"a"}],"max_tokens":3000,"ignore_eos":true})";
const char *const short_plain =
    R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,"ignore_eos":true})";

inline int count(const std::string &text, const std::string &what)
{
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + what.size()))
        n++;
    return n;
}

} // namespace
