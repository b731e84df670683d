/* Commands as a user runs them, on the demo model and copies of it: where input comes from, and
 * what a bad chat template may stop. */
#include <gtest/gtest.h>
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
#include "tests/unit/cli/program.h"

namespace {

using program::Outcome;
using program::run;

const std::string demo = "models/weir-demo", messages = R"([{"role": "user", "content": "Hello"}])";

/* The first number behind this name. */
double number(const std::string &json, const std::string &name)
{
    const size_t at = json.find("\"" + name + "\": ");
    return at == std::string::npos ? -1.0 : atof(json.c_str() + at + name.size() + 4);
}

/* Standard input is a pipe that holds `text`, written while it is read. */
class Piped {
  public:
    explicit Piped(const std::string &text) : before_(dup(STDIN_FILENO))
    {
        int ends[2];
        EXPECT_EQ(pipe(ends), 0);
        EXPECT_EQ(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
        close(ends[0]);
        writer_ = std::thread([text, fd = ends[1]] {
            for (size_t at = 0; at < text.size();) {
                const ssize_t n =
                    write(fd, text.data() + at, std::min<size_t>(text.size() - at, 5000));
                if (n <= 0) break;
                at += static_cast<size_t>(n);
            }
            close(fd);
        });
    }
    Piped(const Piped &) = delete;
    Piped &operator=(const Piped &) = delete;
    ~Piped()
    {
        writer_.join();
        dup2(before_, STDIN_FILENO);
        close(before_);
    }

  private:
    int before_;
    std::thread writer_;
};

class Commands : public program::Folder {
  protected:
    /* The demo model with another chat template. */
    std::string with_template(const std::string &text) const
    {
        const std::string copy = folder_ + "/model";
        std::filesystem::create_directories(copy);
        for (const auto &entry : std::filesystem::directory_iterator(demo))
            std::filesystem::copy_file(entry.path(), copy + "/" + entry.path().filename().string());
        std::filesystem::permissions(copy, std::filesystem::perms::owner_all);
        std::filesystem::remove(copy + "/chat_template.jinja");
        std::ofstream(copy + "/chat_template.jinja") << text;
        return copy;
    }
};

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
          "0 of 12 turns",
          3000 /* the bandwidth is measured first */ },
        { { "db", "ingest", "--context", "65536", "--dir", path("db"), "--documents", documents },
          "0 of 1 documents" },
        { { "logits", "--tokens", ids, "--decode-from", "1", "--out", path("logits") },
          "[0-9]+ of 4001 tokens" },
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

TEST(Url, PutsBracketsAroundIPv6)
{
    char url[WEIR_URL];
    weir_url(url, "127.0.0.1", 8080);
    EXPECT_STREQ(url, "http://127.0.0.1:8080");
    weir_url(url, "::1", 80);
    EXPECT_STREQ(url, "http://[::1]:80");
    weir_url(url, "[fe80::1]", 80);
    EXPECT_STREQ(url, "http://[fe80::1]:80");
    weir_url(url, "localhost", 1);
    EXPECT_STREQ(url, "http://localhost:1");
}

TEST_F(Commands, KvQualityIsMeasuredAgainstF32)
{
    std::string text;
    for (int i = 0; i < 200; i++) text += "One two three " + std::to_string(i) + ". ";
    const std::string file = put("t", text);
    const auto measure = [&](const char *formats) {
        return run({ "eval", "kv-quality", "--model", demo, "--text", file, "--window", "128",
                     "--limit", "2", "--json", "--formats", formats });
    };
    const Outcome o = measure("f32,f16,int8/kivi4,turbo2");
    ASSERT_EQ(o.code, 0) << o.err;
    for (const char *part : { "\"scored\": 254", "\"kl_mean\": 0.0", "\"format\": \"int8/kivi4\"",
                              "\"bytes_per_token\": 1024", "\"v_format\": \"turbo2\"" })
        EXPECT_SAYS(o.out, part);
    EXPECT_EQ(measure("q8").code, 2);
    EXPECT_EQ(measure("q8_0,").code, 2);
    EXPECT_EQ(measure("").code, 2);
}

// The rows of the depth are noise that went the way of computed ones: coded, counted, some of them
// on the disk, and attention reads them.
TEST_F(Commands, BenchDecodesAtADepthThatNobodyComputed)
{
    const auto bench = [&](const char *format, const char *depth, const char *memory,
                           std::vector<std::string> more) {
        std::vector<std::string> words = { "bench", "--model",       demo, "--depth",
                                           depth,   "--gen",         "4",  "--repeat",
                                           "1",     "--synthetic-kv" };
        words.insert(
            words.end(),
            { "--set", "kernels.threads=1", "--set", std::string("kv.format=") + format }
        );
        if (memory != nullptr)
            words.insert(
                words.end(), { "--set", "memory.disk=64MiB", "--set", "memory.disk_dir=" + folder_,
                               "--set", memory }
            );
        words.insert(words.end(), more.begin(), more.end());
        return run(words);
    };
    const Outcome whole = bench("f16", "2000", nullptr, { "--json" });
    ASSERT_EQ(whole.code, 0) << whole.err;
    EXPECT_SAYS(whole.out, "\"synthetic_kv\": true");
    EXPECT_EQ(whole.out.find("disk"), std::string::npos) << whole.out;
    EXPECT_EQ(whole.out.find("prefill_tokens"), std::string::npos) << whole.out;
    for (const char *const format : { "f16", "int8/kivi4" }) {
        /* How much the rest takes differs with the instruction set: what is left for KV pages shall
         * be half of them. */
        const Outcome roomy = bench(format, "16000", "memory.host=96MiB", { "--json" });
        ASSERT_EQ(roomy.code, 0) << roomy.err;
        const double rest =
            number(roomy.out, "memory_peak_bytes") - number(roomy.out, "kv_pool_bytes");
        const auto host = std::to_string((int64_t)(rest + number(roomy.out, "kv_bytes") / 2));
        const Outcome tiered =
            bench(format, "16000", ("memory.host=" + host + "B").c_str(), { "--json" });
        ASSERT_EQ(tiered.code, 0) << tiered.err;
        EXPECT_GT(number(tiered.out, "disk_bytes_per_decoded_token"), 1e6) << tiered.out;
        EXPECT_LT(
            number(tiered.out, "disk_bytes_per_decoded_token"), number(tiered.out, "kv_bytes") * 1.2
        ) << tiered.out;
        EXPECT_GT(number(tiered.out, "disk_gb_per_second"), 0) << tiered.out;
        EXPECT_GT(number(tiered.out, "disk_share"), 0) << tiered.out;
        EXPECT_GT(number(tiered.out, "memory_peak_bytes"), 0);
        EXPECT_LE(number(tiered.out, "memory_peak_bytes"), number(tiered.out, "memory_cap_bytes"));
    }
    const Outcome text = bench("f16", "500", "memory.host=64MiB", {});
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_SAYS(text.out, "there is no prefill rate");
    EXPECT_SAYS(text.out, "disk GB/s");
}

TEST_F(Commands, KvQualityCountsAnswersToo)
{
    std::string text, items;
    for (int i = 0; i < 100; i++) text += "One two three " + std::to_string(i) + ". ";
    for (const char *const what : { "red house", "old bridge", "black boat", "last harbour" }) {
        const std::string fact = std::string("The number of the ") + what + " is 48" +
                                 std::to_string(items.size() % 90 + 10) + ".";
        items += R"({"context": "It was late when they came home. )" + fact +
                 R"( Nobody spoke.", "questions": [["What is the number of the )" + what +
                 R"(?", ")" + (items.empty() ? "Nobody knows." : fact) + "\"]]}\n";
    }
    const std::string file = put("t", text), facts = put("facts.jsonl", items),
                      more_facts = put("more.facts.jsonl", items);
    const auto measure = [&](const std::string &list, std::vector<std::string> more) {
        std::vector<std::string> words = { "eval", "kv-quality", "--model", demo,      "--text",
                                           file,   "--window",   "64",      "--limit", "1" };
        words.insert(
            words.end(), { "--formats", "f16,turbo2", "--item-limit", "3", "--items", list }
        );
        words.insert(words.end(), more.begin(), more.end());
        return run(words);
    };
    const Outcome o = measure(facts + "," + more_facts, { "--json" });
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_SAYS(o.out, "\"file\": \"more.facts.jsonl\"");
    for (const char *format : { "f16", "turbo2" }) {
        const Outcome alone =
            run({ "eval", "retrieval", "--model", demo, "--items", facts, "--limit", "3", "--json",
                  "--set", std::string("kv.format=") + format });
        ASSERT_EQ(alone.code, 0) << alone.err;
        const std::string row = o.out.substr(o.out.find(std::string("\"format\": \"") + format));
        EXPECT_EQ(number(row, "items"), 3) << row;
        EXPECT_EQ(number(row, "right"), number(alone.out, "right")) << format << ": " << o.out;
        if (strcmp(format, "f16") == 0)
            EXPECT_EQ(number(row, "right"), 2) << "all but the one that nobody knows";
    }
    const Outcome table = measure(facts, {});
    ASSERT_EQ(table.code, 0) << table.err;
    EXPECT_SAYS(table.out, "facts\n");
    EXPECT_SAYS(table.out, "2/3\n");
    EXPECT_EQ(measure(folder_ + "/none.jsonl", {}).code, 1);
    EXPECT_EQ(measure(facts + ",", {}).code, 2);
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

TEST(Prompt, ATextFromAFileIsTheSameAsOneGivenByHand)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/prompt.txt",
                      text = "The harbour\n\"quoted\" \xc3\xa9t\xc3\xa9";
    std::ofstream(path) << text;
    const auto answer = [](const std::string &option, const std::string &value) {
        return run({ "generate", "--model", demo, "--context", "256", option, value, "--json",
                     "--temperature", "0", "--max-tokens", "8" });
    };
    const auto tokens_of = [](const Outcome &o) { return o.out.substr(0, o.out.find(']')); };
    const Outcome given = answer("--prompt", text), file = answer("--file", path),
                  absent = answer("--file", path + ".none");
    ASSERT_EQ(given.code, 0) << given.err;
    EXPECT_EQ(tokens_of(file), tokens_of(given)) << file.err;
    {
        const Piped in(text);
        EXPECT_EQ(tokens_of(answer("-f", "-")), tokens_of(given));
    }
    EXPECT_EQ(absent.code, 1);
    EXPECT_SAYS(absent.err, path + ".none");
}

TEST(Session, ATextIsSavedContinuedListedAndDeleted)
{
    const std::string folder = std::string(getenv("TEST_TMPDIR")) + "/sessions";
    std::string list = "1";
    for (int i = 2; i <= 100; i++) list += "," + std::to_string(i);
    std::filesystem::remove_all(folder);
    const std::vector<std::string> common = { "--model", demo, "--context", "512" };
    const auto with = [&](std::vector<std::string> words) {
        words.insert(words.end(), common.begin(), common.end());
        return run(words);
    };
    const Outcome saved =
        with({ "session", "save", "--dir", folder, "--name", "talk", "--tokens", list });
    EXPECT_EQ(saved.code, 0) << saved.err;
    EXPECT_SAYS(saved.out, "saved talk: 100 tokens");
    EXPECT_SAYS(
        with({ "session", "restore", "--dir", folder, "--name", "talk" }).out,
        "restored talk: 100 tokens"
    );
    EXPECT_EQ(with({ "session", "restore", "--dir", folder, "--name", "none" }).code, 1);
    const std::vector<std::string> generate = {
        "generate", "--tokens", list + ",5", "--json", "--temperature", "0", "--max-tokens", "8"
    };
    const Outcome cold = with(generate);
    auto warm_words = generate;
    warm_words.insert(warm_words.end(), { "--session", "talk", "--set", "sessions.dir=" + folder });
    const Outcome warm = with(warm_words);
    EXPECT_EQ(warm.code, 0) << warm.err;
    EXPECT_SAYS(cold.out, "\"cached_tokens\":0");
    EXPECT_SAYS(warm.out, "\"cached_tokens\":100");
    EXPECT_EQ(warm.out.substr(0, warm.out.find(']')), cold.out.substr(0, cold.out.find(']')));
    EXPECT_SAYS(run({ "session", "list", "--dir", folder }).out, "talk");
    EXPECT_SAYS(
        run({ "session", "list", "--dir", folder, "--json" }).out,
        "{\"name\": \"talk\", \"tokens\": 108,"
    );
    EXPECT_EQ(run({ "session", "delete", "--dir", folder, "--name", "talk" }).code, 0);
    EXPECT_EQ(run({ "session", "delete", "--dir", folder, "--name", "talk" }).code, 1);
    EXPECT_EQ(run({ "session", "delete", "--dir", folder, "--name", "../x" }).code, 2);
    const Outcome none = run({ "session", "list", "--dir", folder });
    EXPECT_EQ(none.code, 0);
    EXPECT_EQ(none.out, "");
    EXPECT_SAYS(none.err, folder + ": no sessions here");
    EXPECT_EQ(run({ "session", "list" }).code, 2);
}

TEST(Limits, AFileThatMayNotGrowIsAnError)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/large.safetensors";
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small = { 8192, before.rlim_max };
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const Outcome outcome = run({ "logits", "--model", demo, "--tokens", "1,2,3", "--out", path });
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_SAYS(outcome.err, "File too large");
    EXPECT_FALSE(std::filesystem::exists(path));
}

} // namespace
