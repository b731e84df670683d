/* weir chat on a terminal: edited lines, the history and the commands. What the chat received is
 * read from what /save writes, since a terminal shows edits as they are made. */
#include <sys/stat.h>

#include <algorithm>
#include <sstream>

#include "tests/unit/cli/chat_program.h"

/* The terminal library under libedit keeps what it knows of a terminal. */
extern "C" const char *__lsan_default_suppressions() { return "leak:libtinfo"; }

namespace {

using program::Chat;
using program::chat_words;
using program::Words;

class TerminalChats : public program::Folder {
  protected:
    void SetUp() override
    {
        Folder::SetUp();
        (void)setenv("XDG_STATE_HOME", folder_.c_str(), 1);
        (void)setenv("TERM", "xterm", 1);
        (void)setenv("HOME", folder_.c_str(), 1);
    }
    static std::string read(const std::string &path)
    {
        std::ostringstream out;
        out << std::ifstream(path, std::ios::binary).rdbuf();
        return out.str();
    }
    static Words words(const Words &more)
    {
        Words all = { "-n", "3", "--temperature", "0" };
        all.insert(all.end(), more.begin(), more.end());
        return chat_words(all);
    }
    /* What is printed until the next prompt. */
    static std::string after(const Chat &chat, const std::string &keys)
    {
        chat.say(keys);
        (void)chat.hear("\n"); /* the line itself */
        return chat.hear("> ");
    }
    /* The contents of a role, of a file of /save. */
    std::string saved(const Chat &chat, const std::string &name, const std::string &role) const
    {
        EXPECT_SAYS(after(chat, "/save ~/" + name + "\n"), "(saved ");
        std::string found, line, content = "\"content\": ";
        std::istringstream text(read(path(name)));
        for (bool is_next = false; std::getline(text, line);) {
            if (line.find("\"role\": \"" + role + "\"") != std::string::npos) is_next = true;
            const size_t at = line.find(content);
            if (!is_next || at == std::string::npos) continue;
            found += line.substr(at + content.size()) + ";";
            is_next = false;
        }
        return found;
    }
    std::string history() const { return folder_ + "/weir/chat_history"; }
    program::Terminal terminal_;
};

TEST_F(TerminalChats, LinesAreEditedAndRemembered)
{
    const std::string umlauts = "Gr\u00FC\u00DFe";
    {
        Chat chat(words({}), terminal_);
        (void)chat.hear("> ");
        /* ^A and ^E, backspace; ^P; bytes that are not UTF-8. */
        after(chat, "Tell me.\x01Oh. \x05 " + umlauts + "x\x7F\n");
        after(chat, "\x10\n");
        after(chat, " se\xFF\xC3" + std::string("cret\n"));
        chat.say("junk"); /* goes with the line */
        EXPECT_SAYS(chat.hear("junk"), "junk");
        chat.interrupt();
        (void)chat.hear("(Ctrl-D ends the conversation)\r\n");
        (void)chat.hear("> ");
        EXPECT_EQ(
            saved(chat, "first.json", "user"),
            "\"Oh. Tell me. " + umlauts + "\";\"Oh. Tell me. " + umlauts + "\";\" secret\";"
        );
        chat.say("\x04");
        EXPECT_EQ(chat.end(), 0);
    }
    struct stat file = {};
    ASSERT_EQ(stat(history().c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777, 0600u);
    const std::string line = "Oh. Tell me. " + umlauts + "\n";
    EXPECT_EQ(read(history()), line + line + "/save ~/first.json\n");

    /* Another process goes on with both. */
    Chat chat(words({ "--messages", path("first.json") }), terminal_);
    (void)chat.hear("> ");
    after(chat, "\x10\x10\n"); /* the one before the last */
    EXPECT_EQ(saved(chat, "second.json", "user").find("\"Oh. Tell me."), 0u);
    const std::string all = saved(chat, "third.json", "user");
    EXPECT_EQ(std::count(all.begin(), all.end(), ';'), 4) << all;
    EXPECT_SAYS(after(chat, "/undo\n"), "(taken back: Oh. Tell me. Gr");
    chat.say("/exit\n");
    EXPECT_EQ(chat.end(), 0);
}

TEST_F(TerminalChats, CommandsChangeAndShowWhatIsThere)
{
    std::ofstream(path("taken")) << "x";
    Chat chat(words({ "--system", "One." }), terminal_);
    (void)chat.hear("> ");
    EXPECT_SAYS(after(chat, "/system\n"), "One.\r\n");
    after(chat, "/system Two words.\n");
    EXPECT_EQ(after(chat, "/system\n").find('?'), std::string::npos);
    after(chat, "//is a path\n");
    EXPECT_EQ(saved(chat, "a.json", "system"), "\"Two words.\";");
    EXPECT_EQ(saved(chat, "a.json", "user"), "\"/is a path\";") << "its own file is replaced";
    const std::string memory = after(chat, "/memory\n");
    for (const char *part : { "host\r\n", "  weights ", "  total ",
                              "conversation: ", " of 8192 tokens", "KV pages: room for " })
        EXPECT_SAYS(memory, part);
    EXPECT_SAYS(after(chat, "/policy\n"), "policy full: keeps every row\r\n");
    EXPECT_SAYS(
        after(chat, "/policy snapkv 300\n"), "policy snapkv: keeps 300 rows of each KV head\r\n"
    );
    after(chat, "More.\n");
    EXPECT_SAYS(after(chat, "/policy\n"), "the last answer: ");
    EXPECT_SAYS(after(chat, "/help\n"), "/undo ");
    testing::internal::CaptureStderr();
    for (const char *wrong :
         { "/policy snapkv\n", "/policy nosuch 3\n", "/policy snapkv 3x\n", "/policy full 3\n",
           "/sytem\n", "/\n", "/save\n", "/save ~/taken\n" })
        after(chat, wrong);
    after(chat, "/undo\n");
    after(chat, "/undo\n");
    after(chat, "/undo\n");
    const std::string said = testing::internal::GetCapturedStderr();
    for (const char *part :
         { "give the rows to keep: /policy snapkv ROWS", "nosuch", "3x: must be a number of rows",
           "full keeps every row", "\"/sytem\"; the nearest is \"/system\"", "name a file",
           "taken: is there already", "there is no message to take back" })
        EXPECT_SAYS(said, part);
    EXPECT_EQ(read(path("taken")), "x");
    after(chat, "/system -\n");
    EXPECT_EQ(saved(chat, "a.json", "system"), "");
    chat.say("\x04");
    EXPECT_EQ(chat.end(), 0);
}

TEST_F(TerminalChats, TheHistoryIsBoundedAndItsBytesAreChecked)
{
    std::string text;
    for (int i = 0; i < 1100; i++) text += "line " + std::to_string(i) + "\n";
    std::filesystem::create_directories(folder_ + "/weir");
    std::ofstream(history(), std::ios::binary) << text << "bad \xFF byte\n"
                                               << std::string(5000, 'y') << "\nunfinished";
    Chat chat(words({}), terminal_);
    (void)chat.hear("> ");
    const std::string kept = read(history());
    EXPECT_LE(std::count(kept.begin(), kept.end(), '\n'), 500);
    EXPECT_EQ(kept.find("line 602\n"), 0u) << kept.substr(0, 40);
    after(chat, "\x10\n");
    EXPECT_EQ(saved(chat, "a.json", "user"), "\"line 1099\";");
    chat.say("\x04");
    EXPECT_EQ(chat.end(), 0);
}

TEST_F(TerminalChats, ControlCharactersOfAFileDoNotReachTheTerminal)
{
    const std::string file =
        put("m.json",
            "[{\"role\": \"system\", \"content\": \"\\u001b]0;title\\u0007 \\u009b2J \\u00e9\"}]");
    Chat chat(words({ "--messages", file }), terminal_);
    (void)chat.hear("> ");
    EXPECT_SAYS(after(chat, "/system\n"), "?]0;title? ?2J \u00e9\r\n");
    chat.say("\x04");
    EXPECT_EQ(chat.end(), 0);
}

/* Without libedit's terminal the lines come as they are, and commands work. */
TEST_F(TerminalChats, ADumbTerminalHasPlainLines)
{
    (void)setenv("TERM", "dumb", 1);
    Chat chat(words({}), terminal_);
    (void)chat.hear("> ");
    EXPECT_SAYS(after(chat, "/policy\n"), "policy full");
    EXPECT_FALSE(std::filesystem::exists(history()));
    chat.say("/exit\n");
    EXPECT_EQ(chat.end(), 0);
}

TEST_F(TerminalChats, FilesThatHoldNoConversationAreRefused)
{
    for (const char *text : { "{}", "[1]", "[{\"role\": 3}]", "x" }) {
        const program::Outcome o = program::run(chat_words({ "--messages", put("m.json", text) }));
        EXPECT_NE(o.code, 0) << text;
        EXPECT_NE(o.err, "") << text;
    }
}

} // namespace
