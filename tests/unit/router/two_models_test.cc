// `weir serve` with two models that share memory for one: what was computed survives the change.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/unit/serve/http.h"

namespace {

class TwoModels : public testing::Test {
  protected:
    void SetUp() override
    {
        char folder[] = "/tmp/weir.XXXXXX";
        int from[2];
        ASSERT_NE(nullptr, mkdtemp(folder));
        folder_ = folder;
        std::ofstream(folder_ + "/two.toml")
            << "[memory]\nhost = \"160MiB\"\n[server]\nport = 0\nmax_connections = 8\n"
               "body_limit = \"64KiB\"\nheader_limit = \"8KiB\"\n"
               "[batch]\nmax_sequences = 1\n[model]\ncontext = 512\n"
               "[sessions]\ndir = \""
            << folder_ << "/sessions\"\n"
            << "[[models]]\nname = \"one\"\npath = \"models/weir-demo\"\nmemory = \"100MiB\"\n"
            << "[[models]]\nname = \"two\"\nconfig = \"" << folder_
            << "/own.toml\"\nmemory = \"100MiB\"\n";
        std::ofstream(folder_ + "/own.toml")
            << "[model]\npath = \"models/weir-demo\"\ncontext = 256\n[batch]\nmax_sequences = 1\n";
        const std::string config = folder_ + "/two.toml";
        ASSERT_EQ(0, pipe(from));
        pid_ = fork();
        ASSERT_LE(0, pid_);
        if (pid_ == 0) {
            (void)setenv("WEIR_API_KEY", "key", 1);
            (void)dup2(from[1], STDERR_FILENO);
            close(from[0]);
            (void)execl("engine/cli/weir", "weir", "serve", "--config", config.c_str(), nullptr);
            _exit(127);
        }
        close(from[1]);
        log_ = from[0];
        const std::string line = http::read_pipe(log_), mark = "http://127.0.0.1:";
        ASSERT_NE(std::string::npos, line.find(mark)) << line;
        port_ = std::atoi(line.c_str() + line.find(mark) + mark.size());
    }
    void TearDown() override
    {
        if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0) {
            kill(pid_, SIGKILL); /* its servers get SIGTERM */
            (void)waitpid(pid_, nullptr, 0);
        }
        close(log_);
        std::filesystem::remove_all(folder_);
    }
    std::string chat(const std::string &model, const std::string &key)
    {
        std::string words;
        for (int i = 0; i < 40; i++) words += "word" + std::to_string(i) + " ";
        const std::string body = "{\"messages\":[{\"role\":\"user\",\"content\":\"" + words +
                                 "\"}],\"max_tokens\":2,\"temperature\":0,\"model\":\"" + model +
                                 "\"}";
        const int fd = http::begin(
            port_, "POST", "/v1/chat/completions",
            "Authorization: Bearer " + key + "\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n",
            body
        );
        std::string text;
        /* Longer than one wait of read_text, on slow machines. */
        for (int i = 0; i < 6 && text.find("\r\n\r\n") == std::string::npos; i++)
            text += http::read_text(fd, "\r\n\r\n");
        text += http::read_text(fd);
        close(fd);
        return text;
    }
    static int cached(const std::string &reply)
    {
        const std::string key = "\"cached_tokens\":";
        const size_t at = reply.find(key);
        return at == std::string::npos ? -1 : std::atoi(reply.c_str() + at + key.size());
    }

    std::string folder_;
    pid_t pid_ = -1;
    int log_ = -1, port_ = 0;
};

TEST_F(TwoModels, WhatWasComputedSurvivesTheOther)
{
    const std::string first = chat("one", "key");
    EXPECT_EQ(0, cached(first)) << first;
    EXPECT_NE(std::string::npos, first.find("\"model\":\"one\""));
    const std::string other = chat("two", "key");
    EXPECT_EQ(0, cached(other)) << other;
    EXPECT_NE(std::string::npos, other.find("\"model\":\"two\""));
    const std::string again = chat("one", "key");
    EXPECT_LT(100, cached(again)) << again;
    EXPECT_EQ(0u, chat("one", "wrong").find("HTTP/1.1 401"));
    EXPECT_TRUE(std::filesystem::is_directory(folder_ + "/sessions/one"));
    ASSERT_EQ(0, kill(pid_, SIGTERM));
    int status = 0;
    ASSERT_EQ(pid_, waitpid(pid_, &status, 0));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

} // namespace
