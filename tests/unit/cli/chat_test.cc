/* weir chat as a user has it: lines and answers over pipes, and Ctrl-C in an answer and at the
 * prompt. */
#include <algorithm>

#include "tests/unit/cli/chat_program.h"

namespace {

using program::Chat;
using program::chat_words;
using program::demo;
using program::Outcome;
using program::run;

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

/* The other lines are not answered. */
TEST_F(Chats, EndsWhenItsOutputIsLost)
{
    program::Redirect in(STDIN_FILENO, true);
    const std::string lines = "Hi.\nGo on.\n";
    ASSERT_EQ(write(in.other(), lines.data(), lines.size()), (ssize_t)lines.size());
    in.end();
    clearerr(stdin);
    const Outcome o = program::run_full(chat_words({ "--temperature", "0", "-n", "4" }));
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "weir: cannot write to stdout: No space left on device\n");
    EXPECT_EQ(o.err.find("cannot write"), o.err.rfind("cannot write")) << o.err;
}

} // namespace
