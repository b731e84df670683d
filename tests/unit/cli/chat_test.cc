/* weir chat as a user has it: lines and answers over pipes, and Ctrl-C in an answer and at the
 * prompt. */
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/unit/cli/program.h"

namespace {

using program::Outcome;
using program::run;
using Words = std::vector<std::string>;

const std::string demo = "models/weir-demo";

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
    Redirect in_, out_;
    std::thread thread_;
    int code_ = -1;
};

Words chat_words(const Words &more)
{
    Words words = { "chat", "--model", demo, "--context", "8192" };
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

std::string message(const std::string &role, const std::string &content)
{
    return R"({"role": ")" + role + R"(", "content": ")" + content + R"("})";
}

class Chats : public program::Folder {};

TEST_F(Chats, AnswersAreThoseOfTheWholeConversation)
{
    const std::string first = "Tell me of the harbour.", second = "And the boats?";
    const auto generate = [this](const std::string &messages) {
        const Outcome o =
            run({ "generate", "--model", demo, "--context", "8192", "--temperature", "0",
                  "--max-tokens", "60", "--messages", put("m.json", "[" + messages + "]") });
        EXPECT_EQ(o.code, 0) << o.err;
        return o.out;
    };
    const std::string one = generate(message("user", first)), /* with its newline */
        two = generate(
            message("user", first) + "," + message("assistant", one.substr(0, one.size() - 1)) +
            "," + message("user", second)
        );
    Chat chat(chat_words({ "--temperature", "0", "--max-tokens", "60" }));
    chat.say(first + "\n\n"); /* an empty line is no turn */
    EXPECT_EQ(chat.hear("\n"), one);
    chat.say(second + "\n");
    EXPECT_EQ(chat.hear("\n"), two);
    EXPECT_NE(two, one);
    EXPECT_EQ(chat.end(), 0);
}

TEST_F(Chats, CtrlCStopsTheAnswerAndTheConversationGoesOn)
{
    /* Words that it said become likelier, so it repeats one, with its space, to the end of 6000
     * tokens. */
    Chat chat(chat_words({ "--temperature", "0", "--frequency-penalty=-2", "-n", "6000" }));
    chat.say("Go on.\n");
    ASSERT_NE(chat.hear(" "), "") << "no answer";
    chat.interrupt();
    const std::string rest = chat.hear(" [stopped]\n");
    EXPECT_SAYS(rest, " [stopped]\n");
    EXPECT_LT(std::count(rest.begin(), rest.end(), ' '), 5990) << "it was not stopped";
    chat.interrupt_until("(Ctrl-D ends the conversation)\n"); /* at the prompt it drops the line */
    chat.say("More.\n");
    chat.interrupt_until(" [stopped]\n");
    EXPECT_EQ(chat.end(), 0);
}

} // namespace
