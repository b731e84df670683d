/* weir chat in a thread, with pipes or a pseudo-terminal in the place of its input and output. */
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/unit/cli/program.h"

namespace program {

using Words = std::vector<std::string>;

/* A pseudo-terminal. */
struct Terminal {
    int master = posix_openpt(O_RDWR | O_NOCTTY), slave = -1;
    Terminal()
    {
        EXPECT_EQ(grantpt(master), 0);
        EXPECT_EQ(unlockpt(master), 0);
        slave = open(ptsname(master), O_RDWR | O_NOCTTY);
        EXPECT_GE(slave, 0);
    }
    Terminal(const Terminal &) = delete;
    Terminal &operator=(const Terminal &) = delete;
    ~Terminal()
    {
        close(slave);
        close(master);
    }
};

/* Puts a pipe in the place of a descriptor of this process. */
class Redirect {
  public:
    Redirect(int fd, bool reads) : fd_(fd), before_(dup(fd))
    {
        int ends[2];
        EXPECT_EQ(pipe(ends), 0);
        EXPECT_EQ(dup2(ends[reads ? 0 : 1], fd), fd);
        close(ends[reads ? 0 : 1]);
        other_ = ends[reads ? 1 : 0];
    }
    /* The other end is the terminal's master. */
    Redirect(int fd, const Terminal &terminal) : fd_(fd), before_(dup(fd))
    {
        EXPECT_EQ(dup2(terminal.slave, fd), fd);
        other_ = dup(terminal.master);
    }
    Redirect(const Redirect &) = delete;
    Redirect &operator=(const Redirect &) = delete;
    ~Redirect()
    {
        end();
        dup2(before_, fd_);
        close(before_);
    }
    void end() /* of what is written to it */
    {
        if (other_ >= 0) close(other_);
        other_ = -1;
    }
    int other() const { return other_; }

  private:
    int fd_, before_, other_ = -1;
};

/* The program in a thread of its own. */
class Chat {
  public:
    explicit Chat(const Words &words) : in_(STDIN_FILENO, true), out_(STDOUT_FILENO, false)
    {
        start(words);
    }
    /* Both are this terminal. */
    Chat(const Words &words, const Terminal &terminal)
        : in_(STDIN_FILENO, terminal), out_(STDOUT_FILENO, terminal)
    {
        start(words);
    }
    void say(const std::string &line) const
    {
        EXPECT_EQ(write(in_.other(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
    }
    /* What it prints up to `until`, or in this time. */
    std::string hear(const std::string &until, int milliseconds = 30000) const
    {
        std::string text;
        char byte = 0;
        struct pollfd ready = { out_.other(), POLLIN, 0 };
        while (text.size() < until.size() ||
               text.compare(text.size() - until.size(), until.size(), until) != 0) {
            if (poll(&ready, 1, milliseconds) != 1 || read(out_.other(), &byte, 1) != 1) break;
            text += byte;
        }
        return text;
    }
    void interrupt() { pthread_kill(thread_.native_handle(), SIGINT); }
    /* A signal before the chat waits for a line or for its answer has no effect: it is sent again,
     * after each word and each tenth of a second, until the text is printed. */
    void interrupt_until(const std::string &text)
    {
        const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        std::string said;
        while (said.find(text) == std::string::npos && std::chrono::steady_clock::now() < end) {
            interrupt();
            said += hear(" ", 100);
        }
        EXPECT_SAYS(said, text);
    }
    int end()
    {
        in_.end();
        thread_.join();
        return code_;
    }

  private:
    void start(const Words &words)
    {
        clearerr(stdin);
        thread_ = std::thread([this, words] {
            weir_program program = {};
            std::vector<const char *> argv = { "weir" };
            program.name = "weir";
            program.commands = weir_commands(&program.n_commands);
            for (const std::string &word : words) argv.push_back(word.c_str());
            code_ = weir_main(&program, static_cast<int>(argv.size()), argv.data());
            fflush(stdout);
        });
    }

    Redirect in_, out_;
    std::thread thread_;
    int code_ = -1;
};

inline Words chat_words(const Words &more)
{
    Words words = { "chat", "--model", demo, "--context", "8192" };
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

} // namespace program
