// A server over the demo model, and requests to it.
#pragma once
#include <jansson.h>

#include <vector>

#include "engine/engine.h"
#include "engine/serve/server.h"
#include "tests/unit/serve/http.h"

namespace engine_fixture {

inline const char *const keys[] = { "sk-one", "sk-two" };

/* The whole server over the demo model. */
class EngineServer : public testing::Test {
  protected:
    void open(const std::vector<const char *> &settings)
    {
        static weir_config config;
        weir_error error = {};
        weir_config_default(&config);
        snprintf(config.model.path, sizeof config.model.path, "%s", model_.c_str());
        for (const char *const setting : settings)
            ASSERT_EQ(weir_config_assign(&config, setting, &error), WEIR_OK) << error.text;
        const weir_engine_options options = { &config, true, true, nullptr, nullptr, nullptr };
        ASSERT_EQ(weir_engine_open_with(&engine_, &options, &error), WEIR_OK) << error.text;
        weir_server_options server = {};
        server.log_fd = log_fd_;
        server.sampling = weir_sampling_default();
        server.keys = keys;
        server.n_keys = with_keys_ ? 2 : 0;
        server.ledger = weir_engine_ledger(engine_);
        server.service = weir_engine_service(engine_);
        server.sessions = weir_engine_sessions(engine_);
        server.states = weir_engine_states(engine_);
        server.state_sessions = weir_engine_state_sessions(engine_);
        server.tokenizer = weir_engine_tokenizer(engine_);
        server.chat = chat_ != nullptr ? chat_ : weir_engine_chat(engine_);
        server.n_workers = n_workers_;
        ASSERT_EQ(weir_server_open(&server_, &server, &error), WEIR_OK) << error.text;
        ASSERT_EQ(weir_server_start(server_, &error), WEIR_OK) << error.text;
    }
    void stop()
    {
        weir_server_close(server_);
        weir_engine_close(engine_);
        server_ = nullptr;
        engine_ = nullptr;
    }
    void TearDown() override { stop(); }
    std::string request(
        const std::string &method, const std::string &path, const std::string &body, int key = 0
    ) const
    {
        std::string more = "Content-Length: " + std::to_string(body.size()) + "\r\n";
        if (with_keys_) more += "Authorization: Bearer " + std::string(keys[key]) + "\r\n";
        return http::request(weir_server_port(server_), method, path, more, body);
    }
    json_t *ask_json(
        const std::string &method, const std::string &path, const std::string &body, int key = 0
    ) const
    {
        const std::string text = request(method, path, body, key);
        const size_t begin = text.find("\r\n\r\n");
        EXPECT_EQ(0u, text.find("HTTP/1.1 200")) << text;
        json_t *const root =
            begin != std::string::npos ? json_loads(text.c_str() + begin, 0, nullptr) : nullptr;
        EXPECT_NE(root, nullptr) << text;
        return root;
    }
    bool with_keys_ = false;
    int log_fd_ = -1, n_workers_ = 0;
    std::string model_ = "models/weir-demo";
    const weir_chat_template *chat_ = nullptr; /* instead of the model's */
    weir_engine *engine_ = nullptr;
    weir_server *server_ = nullptr;
};

} // namespace engine_fixture
