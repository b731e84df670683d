// A router with servers of fake_server.c, in a thread.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <list>
#include <string>
#include <thread>
#include <vector>

#include "engine/router/router.h"
#include "tests/unit/serve/http.h"

class Router : public testing::Test {
  protected:
    static constexpr int64_t mib = 1 << 20;

    Router()
    {
        options_.host = "127.0.0.1";
        options_.body_limit = 64 << 10;
        options_.header_limit = 8 << 10;
        options_.max_connections = 16;
        options_.header_timeout_ms = options_.read_timeout_ms = options_.write_timeout_ms = 60000;
        options_.wait_ms = 60000;
        options_.queue = 8;
        options_.stop_ms = 60000;
        options_.backoff_ms = 1;
        options_.program = "tests/unit/router/fake_server";
        options_.environment = environ;
    }
    void TearDown() override { stop(); }

    void add(
        const std::string &name, int64_t bytes, const std::string &what = "serve",
        const std::vector<const char *> &keys = {}
    )
    {
        Kept &kept = kept_.emplace_back();
        kept.texts = { "fake_server", name, what };
        for (const std::string &text : kept.texts) kept.arguments.push_back(text.c_str());
        kept.arguments.push_back(nullptr);
        kept.keys = keys;
        models_.push_back({ kept.texts[1].c_str(), bytes, kept.arguments.data(), kept.keys.data(),
                            kept.keys.size(), -1 });
    }
    /* `memory`: of the models; the router's own is added. */
    weir_status open(int64_t memory, weir_error *error)
    {
        options_.models = models_.data();
        options_.n_models = models_.size();
        options_.memory = weir_router_bytes(&options_) + memory;
        return weir_router_open(&router_, &options_, error);
    }
    void start(int64_t memory)
    {
        weir_error error = {};
        ASSERT_EQ(0, pipe(stop_));
        ASSERT_EQ(WEIR_OK, open(memory, &error)) << error.text;
        port_ = weir_router_port(router_);
        thread_ = std::thread([this] {
            weir_error why = {};
            EXPECT_EQ(WEIR_OK, weir_router_run(router_, stop_[0], &why)) << why.text;
        });
    }
    void stop()
    {
        if (thread_.joinable()) {
            EXPECT_EQ(1, write(stop_[1], "x", 1));
            thread_.join();
            close(stop_[0]);
            close(stop_[1]);
        }
        weir_router_close(router_);
        router_ = nullptr;
    }
    std::string get(const std::string &path, const std::string &more = "")
    {
        return http::request(port_, "GET", path, more, "");
    }
    std::string post(const std::string &path, const std::string &body)
    {
        return http::ask(port_, path, body);
    }
    static std::string body_of(const std::string &reply)
    {
        const size_t at = reply.find("\r\n\r\n");
        return at == std::string::npos ? "" : reply.substr(at + 4);
    }
    static int status_of(const std::string &reply)
    {
        return reply.size() > 12 ? std::atoi(reply.c_str() + 9) : 0;
    }
    /* The server that answered. */
    std::string asked(const std::string &model)
    {
        const std::string reply = post("/x", "{\"model\":\"" + model + "\"}");
        return body_of(reply).substr(0, body_of(reply).find('\n'));
    }
    /* Of /v1/models. */
    std::string state(const std::string &model)
    {
        const std::string one = body_of(get("/v1/models/" + model, key_));
        const size_t at = one.find("\"status\":");
        return at == std::string::npos ? one : one.substr(at + 9, one.find('}') - at - 8);
    }
    std::string metric(const std::string &name, const std::string &model)
    {
        const std::string line = "weir:router_" + name + "{model=\"" + model + "\"} ",
                          text = body_of(get("/metrics", key_));
        const size_t at = text.find(line);
        return at == std::string::npos
                   ? "none"
                   : text.substr(at + line.size(), text.find('\n', at) - at - line.size());
    }
    void wait_until(const std::string &name, const std::string &model, const std::string &value)
    {
        for (int i = 0; i < 6000 && metric(name, model) != value; i++) (void)usleep(10000);
        ASSERT_EQ(value, metric(name, model)) << name << " of " << model;
    }

    /* A request that runs until its client goes. */
    int hold(const std::string &model)
    {
        const int fd = http::begin(port_, "GET", "/hold?model=" + model, key_, "");
        wait_until("requests_running", model, "1");
        return fd;
    }
    /* A request that waits for its model. */
    int line_up(const std::string &model)
    {
        const int fd = http::begin(port_, "GET", "/x?model=" + model, key_, "");
        wait_until("requests_waiting", model, "1");
        return fd;
    }

    struct Kept {
        std::vector<std::string> texts;
        std::vector<const char *> arguments, keys;
    };
    std::list<Kept> kept_;
    std::vector<weir_router_model> models_;
    weir_router_options options_ = {};
    weir_router *router_ = nullptr;
    std::thread thread_;
    int stop_[2] = { -1, -1 }, port_ = 0;
    std::string key_; /* a line of the head of what asks for states and metrics */
};
