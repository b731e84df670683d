// Chats with a server over the demo model whose folder is fresh, and what the replies say.
#pragma once
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/serve/engine_fixture.h"

namespace talk_fixture {

struct Reply {
    std::string content;
    int64_t n_prompt, n_cached;
};

inline Reply reply_of(const std::string &text)
{
    const size_t at = text.find("\r\n\r\n");
    EXPECT_EQ(0u, text.find("HTTP/1.1 200")) << text.substr(0, 400);
    json_t *const root =
        at != std::string::npos ? json_loads(text.c_str() + at, 0, nullptr) : nullptr;
    json_t *const usage = json_object_get(root, "usage");
    const char *const said = json_string_value(json_object_get(
        json_object_get(json_array_get(json_object_get(root, "choices"), 0), "message"), "content"
    ));
    const Reply reply = { said != nullptr ? said : "",
                          json_integer_value(json_object_get(usage, "prompt_tokens")),
                          json_integer_value(json_object_get(
                              json_object_get(usage, "prompt_tokens_details"), "cached_tokens"
                          )) };
    json_decref(root);
    return reply;
}

/* A request for a chat about a topic, of about ten tokens for each sentence. `more`: its other
 * fields, with a comma before each. */
inline std::string body_of(int topic, int n_sentences, int max_tokens, const std::string &more)
{
    std::string content;
    for (int i = 0; i < n_sentences; i++)
        content += "Item " + std::to_string(topic) + " number " + std::to_string(i) + " is " +
                   std::to_string((topic * 7919 + i * 104729) % 997) + ". ";
    return R"({"messages":[{"role":"user","content":")" + content + R"("}],"max_tokens":)" +
           std::to_string(max_tokens) + R"(,"temperature":0,"ignore_eos":true)" + more + "}";
}

class Talks : public engine_fixture::EngineServer {
  protected:
    /* Makes the folder empty. Returns it as the value of a key. */
    const char *empty_folder(const std::string &key)
    {
        folder_ = std::string(getenv("TEST_TMPDIR")) + "/talks";
        std::filesystem::remove_all(folder_);
        folder_setting_ = key + "=" + folder_;
        return folder_setting_.c_str();
    }
    int begin(const std::string &path, const std::string &body) const
    {
        return http::post(weir_server_port(server_), path, body);
    }
    static std::string end(int fd)
    {
        const std::string text = http::read_text(fd);
        close(fd);
        return text;
    }
    /* Needs a worker, but no step. */
    void expect_worker() const
    {
        EXPECT_EQ(0u, request("POST", "/tokenize", R"({"content":"a"})").find("HTTP/1.1 200"));
    }
    /* Resets the connection. On return a server with one worker, which works on none of its
     * requests, has dealt with that: the HTTP thread gives the worker what follows from the reset,
     * then closes its socket, and the request after that is behind it. */
    void leave(int fd) const
    {
        const struct linger reset = { 1, 0 };
        struct sockaddr_in own = {};
        socklen_t n = sizeof own;
        ASSERT_EQ(getsockname(fd, (struct sockaddr *)&own, &n), 0);
        const int served = fd_of_peer(own.sin_port);
        struct stat before = {}, after = {};
        ASSERT_EQ(fstat(served, &before), 0) << "the server has no such connection";
        ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
        close(fd);
        const auto is_open = [&] {
            return fstat(served, &after) == 0 && after.st_dev == before.st_dev &&
                   after.st_ino == before.st_ino;
        };
        for (int i = 0; i < 2000 && is_open(); i++) (void)poll(nullptr, 0, 5);
        ASSERT_FALSE(is_open()) << "the server did not see the reset";
        expect_worker();
    }
    /* The socket of this process, which is the server's too, that is connected to the port; -1:
     * none. */
    static int fd_of_peer(in_port_t port)
    {
        for (int fd = 0; fd < 1024; fd++) {
            struct sockaddr_in peer = {};
            socklen_t n = sizeof peer;
            if (getpeername(fd, (struct sockaddr *)&peer, &n) == 0 && peer.sin_family == AF_INET &&
                peer.sin_port == port)
                return fd;
        }
        return -1;
    }
    double metric(const std::string &name) const
    {
        const std::string text = request("GET", "/metrics", ""), line = "\nweir:" + name + "{";
        const size_t at = text.find(line);
        EXPECT_NE(at, std::string::npos) << name;
        return at == std::string::npos ? -1 : atof(text.c_str() + text.find("} ", at) + 2);
    }
    bool wait_for(const std::string &name, double value) const
    {
        for (int i = 0; i < 2000; i++) {
            if (metric(name) == value) return true;
            (void)poll(nullptr, 0, 5);
        }
        return false;
    }
    std::string folder_, folder_setting_;
};

} // namespace talk_fixture
