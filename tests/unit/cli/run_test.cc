/* Commands as a user runs them: where input comes from, what bounds it, what a bad chat template
 * may stop, and Ctrl-C. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/file.h"
#include "engine/cli/open.h"
#include "tests/unit/cli/commands.h"

namespace program {
namespace {

TEST_F(Commands, MessagesComeFromFilesAndPipes)
{
    const Outcome file = run({ "render", "--model", demo, "--messages", put("m.json", messages) });
    ASSERT_EQ(file.code, 0) << file.err;
    EXPECT_SAYS(file.out, "Hello");
    for (const char *name : { "-", "/dev/stdin" }) {
        const Piped input(messages);
        const Outcome piped = run({ "render", "--model", demo, "--messages", name });
        EXPECT_EQ(piped.code, 0) << piped.err;
        EXPECT_EQ(piped.out, file.out);
    }
    const std::string fifo = folder_ + "/fifo";
    ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    std::thread writer([&] { std::ofstream(fifo) << messages; });
    const Outcome named = run({ "render", "--model", demo, "--messages", fifo });
    writer.join();
    EXPECT_EQ(named.out, file.out) << named.err;
}

TEST_F(Commands, GenerateReadsStandardInput)
{
    const Outcome file = run({ "generate", "--model", demo, "--messages", put("m.json", messages),
                               "--max-tokens", "4", "--temperature", "0" });
    ASSERT_EQ(file.code, 0) << file.err;
    const Piped input(messages);
    const Outcome piped = run({ "generate", "--model", demo, "--messages", "-", "--max-tokens", "4",
                                "--temperature", "0" });
    EXPECT_EQ(piped.code, 0) << piped.err;
    EXPECT_EQ(piped.out, file.out);
}

TEST_F(Commands, AnOutputThatIsLostIsAnError)
{
    const std::string file = put("m.json", messages);
    for (const auto &words : { std::vector<std::string>{ "--version" },
                               { "eval", "policies" }, /* prints as it goes */
                               { "eval", "policies", "--help" },
                               { "render", "--model", demo, "--messages", file },
                               { "generate", "--model", demo, "--messages", file, "-n", "2" },
                               { "generate", "--model", demo, "--json", "-n", "2", "Hi" } }) {
        const Outcome o = run_full(words);
        EXPECT_EQ(o.code, 1) << words[0];
        EXPECT_SAYS(o.err, "weir: cannot write to stdout");
        EXPECT_EQ(o.err.find("cannot write"), o.err.rfind("cannot write")) << "said twice";
    }
    EXPECT_SAYS(run_full({ "--version" }).err, "to stdout: No space left on device\n");
}

TEST_F(Commands, AModelThatIsNeitherHereNorANameIsSaid)
{
    const Outcome bare = run({ "run", "llama3", "Hi" });
    EXPECT_EQ(bare.code, 2);
    EXPECT_SAYS(
        bare.err, "llama3: there is no such file or folder, and a model to download is "
                  "named OWNER/NAME"
    );
    const Outcome path = run({ "run", folder_ + "/llama3", "Hi" });
    EXPECT_EQ(path.code, 1);
    EXPECT_SAYS(path.err, "/llama3: no such file or folder\n");
    const Outcome none = run({ "run" });
    EXPECT_EQ(none.code, 2);
    EXPECT_SAYS(none.err, "MODEL is missing; usage: run MODEL [TEXT] [options]");
}

TEST_F(Commands, AFolderOfSessionsIsNotMadeToListIt)
{
    const std::string dir = folder_ + "/typo";
    for (const auto &words : { std::vector<std::string>{ "session", "list", "--dir", dir },
                               { "session", "delete", "--dir", dir, "--name", "a" } }) {
        const Outcome o = run(words);
        EXPECT_EQ(o.code, 1);
        EXPECT_SAYS(o.err, dir + ": there is no such folder");
    }
    EXPECT_FALSE(std::filesystem::exists(dir));
}

TEST_F(Commands, ASessionOfOtherNumericsIsRefusedOrSaid)
{
    const std::string dir = "sessions.dir=" + (folder_ + "/sessions");
    const auto go_on = [&](std::vector<std::string> more) {
        std::vector<std::string> all = {
            "generate", "--model",       demo, "--prompt",     "Hello there", "--session",
            "talk",     "--temperature", "0",  "--max-tokens", "4",           "--set",
            dir
        };
        all.insert(all.end(), more.begin(), more.end());
        return run(all);
    };
    Outcome o = go_on({ "--set", "kernels.pin.add=ref.add" });
    ASSERT_EQ(o.code, 0) << o.err;
    o = go_on({});
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "computed with kernel pins add=ref.add (here none)");
    EXPECT_SAYS(o.err, "sessions.numerics=any");
    o = run({ "session", "restore", "--model", demo, "--name", "talk", "--set", dir, "--set",
              "sessions.numerics=any" });
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_SAYS(o.out, "computed with other numerics: instruction set ");
    o = go_on({ "--json", "--set", "sessions.numerics=any" });
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_SAYS(o.out, "kernel pins add=ref.add");
    o = go_on({ "--set", "sessions.numerics=any" });
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_SAYS(o.err, "computed with other numerics (instruction set ");
}

TEST_F(Commands, GenerateTakesAWordOrAPipe)
{
    const auto with = [](std::vector<std::string> more) {
        std::vector<std::string> words = { "generate", "--model",       demo, "-n",
                                           "4",        "--temperature", "0",  "--json" };
        words.insert(words.end(), more.begin(), more.end());
        const Outcome o = run(words);
        const std::string tokens = o.out.substr(0, o.out.find(']'));
        EXPECT_EQ(o.code == 0, tokens.rfind("{\"tokens\":[", 0) == 0) << o.out;
        return std::pair<std::string, std::string>(tokens, o.err);
    };
    const std::string option = with({ "--prompt", "The river" }).first;
    EXPECT_EQ(with({ "The river" }).first, option);
    {
        const Piped input("The river\n");
        EXPECT_EQ(with({}).first, option) << "less the newline of echo";
    }
    {
        const Piped input("The river\n\n");
        EXPECT_NE(with({}).first, option) << "one newline, no more";
    }
    {
        const Piped input("\n");
        EXPECT_SAYS(with({}).second, "standard input is empty; give one of --prompt");
    }
    EXPECT_SAYS(with({ "The river", "--tokens", "1" }).second, "give one of --prompt");
}

/* Ctrl-C comes while the command opens its input, so before the first piece of work. */
TEST_F(Commands, AnInterruptedEvaluationSaysWhatItDid)
{
    const std::string item =
        R"({"context": "The code is 7.", "questions": [["What is the code?", "7"]]})";
    std::string text;
    for (int i = 0; i < 200; i++) text += "One two three " + std::to_string(i) + ". ";
    const struct {
        std::vector<std::string> words;
        const char *option;
        std::string input, says;
    } cases[] = {
        { { "eval", "perplexity", "--window", "64" },
          "--text",
          text,
          "interrupted after 0 of 26 windows" },
        { { "eval", "retrieval" },
          "--items",
          item + "\n" + item + "\n",
          "interrupted after 0 of 2 items" },
        { { "calibrate", "--out", path("c"), "--window", "64" },
          "--text",
          text,
          "interrupted after 0 of 26 windows" },
        { { "eval", "kv-quality", "--formats", "q8_0", "--window", "64" },
          "--text",
          text,
          "interrupted after 0 of 26 windows" },
    };
    for (const auto &c : cases) {
        const std::string fifo = path("fifo");
        ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
        std::thread writer([&] {
            std::ofstream out(fifo); /* waits for the reader */
            kill(getpid(), SIGINT);
            out << c.input;
        });
        std::vector<std::string> words = c.words;
        words.insert(words.end(), { "--model", demo, c.option, fifo });
        const Outcome o = run(words);
        writer.join();
        std::filesystem::remove(fifo);
        EXPECT_EQ(o.code, 130) << c.words[1];
        EXPECT_SAYS(o.err, c.says);
    }
    const Outcome after = run({ "eval", "perplexity", "--window", "64", "--model", demo, "--text",
                                put("t", text), "--quiet" });
    EXPECT_EQ(after.code, 0) << after.err;
}

/* Sends Ctrl-C a little after the command begins to catch it. */
class Interrupt {
  public:
    explicit Interrupt(int milliseconds)
    {
        signal(SIGINT, SIG_DFL);
        sender_ = std::thread([milliseconds] {
            struct sigaction now = {};
            for (int i = 0; i < 60000 && now.sa_handler == SIG_DFL; i++) {
                usleep(1000);
                sigaction(SIGINT, nullptr, &now);
            }
            usleep(static_cast<useconds_t>(milliseconds) * 1000);
            if (now.sa_handler != SIG_DFL) kill(getpid(), SIGINT);
        });
    }
    Interrupt(const Interrupt &) = delete;
    Interrupt &operator=(const Interrupt &) = delete;
    ~Interrupt()
    {
        sender_.join();
        weir_interrupted = 0;
    }

  private:
    std::thread sender_;
};

/* One window, prompt or turn may take minutes: Ctrl-C is heeded within it, at the next step. */
TEST_F(Commands, CtrlCEndsOneLongPieceOfWork)
{
    std::string text, ids = "5";
    for (int i = 0; i < 4500; i++) text += "One two three " + std::to_string(i) + ". ";
    for (int i = 0; i < 4000; i++) ids += ",5";
    const std::string file = put("long", text);
    const std::string documents =
        put("documents", "{\"label\": \"Long\", \"text\": \"" + text + "\"}\n");
    ASSERT_EQ(run({ "db", "create", "--dir", path("db"), "--model", demo }).code, 0);
    const struct {
        std::vector<std::string> words;
        const char *says;
        int after = 200; /* milliseconds */
    } cases[] = {
        { { "eval", "perplexity", "--stream", "--context", "65536", "--text", file },
          "[0-9]+ of [0-9]+ tokens" },
        { { "eval", "perplexity", "--window", "32768", "--context", "65536", "--text", file },
          "0 of 1 windows" },
        { { "eval", "kv-quality", "--window", "32768", "--text", file }, "0 of 1 windows" },
        { { "eval", "states", "--set", "model.arch=qwen35-coda", "--window", "32768", "--text",
            file },
          "0 of 1 windows" },
        { { "calibrate", "--window", "32768", "--text", file, "--out", path("statistics") },
          "0 of 1 windows" },
        { { "bench", "--depth", "60000", "--context", "65536" }, "[0-9]+ of 60000 tokens" },
        { { "bench", "--prompt", "60000", "--gen", "0", "--context", "65536" },
          "0 of 12 runs",
          3000 /* the bandwidth is measured first */ },
        { { "db", "ingest", "--context", "65536", "--dir", path("db"), "--documents", documents },
          "0 of 1 documents" },
        { { "logits", "--tokens", ids, "--decode-from", "1", "--out", path("logits") },
          "[0-9]+ of 4001 tokens" },
        { { "generate", "--prompt", "Go on.", "-n", "6000", "--frequency-penalty=-2",
            "--temperature", "0", "--context", "8192" },
          "[0-9]+ tokens of the answer" },
    };
    for (const auto &c : cases) {
        std::vector<std::string> words = c.words;
        words.insert(words.end(), { "--model", demo });
        const std::string name = words[0] + " " + words[1] + " " + words[2];
        const Interrupt interrupt(c.after);
        const Outcome o = run(words);
        EXPECT_EQ(o.code, 130) << name << ": " << o.err << o.out;
        EXPECT_TRUE(std::regex_search(o.err, std::regex(std::string("interrupted after ") + c.says))
        ) << name
          << ": " << o.err;
    }
    EXPECT_FALSE(std::filesystem::exists(path("statistics"))) << "no file by halves";
    EXPECT_FALSE(std::filesystem::exists(path("logits")));
}

TEST_F(Commands, EvaluationsReadStandardInput)
{
    std::string text;
    for (int i = 0; i < 2000; i++) text += "One two three " + std::to_string(i) + ". ";
    {
        const Piped input(text);
        const Outcome piped = run({ "eval", "perplexity", "--model", demo, "--text", "/dev/stdin",
                                    "--window", "64" });
        EXPECT_EQ(piped.code, 0) << piped.err;
        EXPECT_EQ(
            piped.out, run({ "eval", "perplexity", "--model", demo, "--text", put("t", text),
                             "--window", "64" })
                           .out
        );
    }
    const Piped input("{\"none\": 1}\n");
    const Outcome items = run({ "eval", "retrieval", "--model", demo, "--items", "-" });
    EXPECT_NE(items.code, 0);
    EXPECT_SAYS(items.err, "line 1");
}

/* A stream has no size to look at before it is read. */
TEST_F(Commands, InputIsBounded)
{
    weir_buffer text = {};
    weir_error error = {};
    {
        const Piped input(std::string(100000, 'x'));
        ASSERT_EQ(weir_file_read_input(&text, "-", 100000, &error), WEIR_OK) << error.text;
        EXPECT_EQ(text.size, 100000u);
    }
    weir_buffer_free(&text);
    EXPECT_EQ(weir_file_read_input(&text, "/dev/zero", 1 << 20, &error), WEIR_EFORMAT);
    EXPECT_SAYS(error.text, "/dev/zero: more than 1048576 bytes");
    weir_buffer_free(&text);
    EXPECT_EQ(weir_file_read_input(&text, folder_.c_str(), 1 << 20, &error), WEIR_EIO);
    EXPECT_EQ(
        weir_file_read_input(&text, (folder_ + "/none").c_str(), 1 << 20, &error), WEIR_ENOTFOUND
    );
    weir_buffer_free(&text);
    const Outcome endless = run({ "render", "--model", demo, "--messages", "/dev/zero" });
    EXPECT_EQ(endless.code, 1);
    EXPECT_SAYS(endless.err, "/dev/zero: more than");
}

TEST_F(Commands, ABadTemplateStopsOnlyChats)
{
    const std::string model = with_template("{% frobnicate messages %}");
    const Outcome generate = run({ "generate", "--model", model, "--prompt", "One", "--max-tokens",
                                   "2", "--temperature", "0" });
    EXPECT_EQ(generate.code, 0) << generate.err;
    EXPECT_SAYS(generate.err, "warning: ");
    EXPECT_SAYS(generate.err, "frobnicate");
    EXPECT_EQ(generate.err.find("frobnicate"), generate.err.rfind("frobnicate")) << generate.err;
    EXPECT_EQ(
        generate.out, run({ "generate", "--model", demo, "--prompt", "One", "--max-tokens", "2",
                            "--temperature", "0" })
                          .out
    );
    EXPECT_EQ(
        run({ "logits", "--model", model, "--tokens", "1,2", "--out", folder_ + "/l.safetensors" })
            .code,
        0
    );
    {
        const Piped input("One\n");
        const Outcome tokenize = run({ "tokenize", "--model", model });
        EXPECT_EQ(tokenize.code, 0) << tokenize.err;
        EXPECT_SAYS(tokenize.out, "\"One\"");
    }
    const std::string file = put("m.json", messages);
    for (const std::vector<std::string> &words :
         { std::vector<std::string>{ "render", "--model", model, "--messages", file },
           std::vector<std::string>{ "generate", "--model", model, "--messages", file },
           std::vector<std::string>{ "chat", "--model", model } }) {
        const Outcome refused = run(words);
        EXPECT_EQ(refused.code, 1) << words[0];
        EXPECT_EQ(refused.out, "") << words[0];
        EXPECT_SAYS(refused.err, "chat template");
        EXPECT_SAYS(refused.err, "frobnicate");
    }
}

TEST_F(Commands, PlanRefusesABadRopeScaling)
{
    const std::string model = with_template("x");
    std::stringstream config;
    config << std::ifstream(demo + "/config.json").rdbuf();
    std::string text = config.str();
    text.insert(
        text.find('{') + 1, "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 0},"
    );
    const size_t parameters = text.find("\"rope_parameters\"");
    if (parameters != std::string::npos)
        text.replace(parameters, strlen("\"rope_parameters\""), "\"rope_numbers\"");
    std::filesystem::remove(model + "/config.json");
    std::ofstream(model + "/config.json") << text;
    const Outcome plan = run({ "serve", "--plan", "--model", model });
    EXPECT_EQ(plan.code, 1);
    EXPECT_EQ(plan.out, "");
    EXPECT_SAYS(plan.err, "RoPE scaling factor 0");
}

} // namespace
} // namespace program
