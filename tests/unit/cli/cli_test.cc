#include "tests/unit/cli/line.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace {

int note_run(const weir_arguments *arguments)
{
    ran = arguments->command->name;
    model_paths.push_back(arguments->config.model.path);
    return code_of_run;
}

} // namespace

extern "C" {
int weir_run_serve(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_plan(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_generate(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_chat(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_run(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_get(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_models(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_models_rm(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_session_list(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_session_save(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_session_restore(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_session_delete(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_db_create(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_db_ingest(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_db_list(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_db_query(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_db_merge(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_db_delete(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_logits(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_tokenize(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_render(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_bench(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_load(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_calibrate(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_verify(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_imatrix(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_convert(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_experts(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_experts_trace(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_eval_constructed(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_eval_generate(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_eval_matrix(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_eval_structured(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_eval_policies(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_eval_retrieval(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_eval_perplexity(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_eval_kv_quality(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_eval_state_quality(const weir_arguments *arguments) { return note_run(arguments); }
int weir_run_eval_toolcalls(const weir_arguments *arguments) { return note_run(arguments); }
}

TEST(Options, SetKeysInTheOrderGiven)
{
    Line line(
        "serve", { "--port", "1", "--set", "server.port=2", "--port=3", "--insecure", "-m",
                   "a.gguf", "--temperature", "0" }
    );
    ASSERT_EQ(line.status, WEIR_OK) << line.error.text;
    EXPECT_EQ(line.config().server.port, 3);
    EXPECT_TRUE(line.config().server.insecure);
    EXPECT_STREQ(line.config().model.path, "a.gguf");
    EXPECT_EQ(line.config().sampling.temperature, 0);
    Line other("serve", { "--port", "3", "--set=server.port=2" });
    ASSERT_EQ(other.status, WEIR_OK) << other.error.text;
    EXPECT_EQ(other.config().server.port, 2);
}

TEST(Options, FileComesBeforeOptionsWhereverItStands)
{
    const std::string path = testing::TempDir() + "weir_cli_test.toml";
    std::ofstream(path) << "[server]\nport = 7\nhost = 'localhost'\n";
    Line line("serve", { "--port", "8", "--config", path.c_str() });
    ASSERT_EQ(line.status, WEIR_OK) << line.error.text;
    EXPECT_EQ(line.config().server.port, 8);
    EXPECT_STREQ(line.config().server.host, "localhost");
    std::ofstream(path) << "[server]\nprot = 7\n";
    Line wrong("serve", { "--config", path.c_str() });
    EXPECT_EQ(wrong.status, WEIR_ECONFIG);
    EXPECT_TRUE(holds(wrong.error.text, path + ":2:1: unknown key \"server.prot\""))
        << wrong.error.text;
    std::filesystem::remove(path);
    EXPECT_EQ(Line("serve", { "--config", "qwen35.toml" }).status, WEIR_OK);
    EXPECT_EQ(Line("serve", { "--config", "qwen35" }).status, WEIR_OK);
    EXPECT_EQ(Line("serve", { "--config", "absent" }).status, WEIR_ECONFIG);
}

TEST(Options, TheEnvironmentComesBetweenFileAndOptions)
{
    const std::string path = testing::TempDir() + "weir_environment_test.toml";
    std::ofstream(path) << "[server]\nport = 7\nhost = 'localhost'\n";
    setenv("WEIR_SERVER_PORT", "8", 1);
    EXPECT_EQ(Line("serve", { "--config", path.c_str() }).config().server.port, 8);
    EXPECT_STREQ(Line("serve", { "--config", path.c_str() }).config().server.host, "localhost");
    EXPECT_EQ(Line("serve", { "--port", "9" }).config().server.port, 9);
    EXPECT_EQ(Line("serve", { "--set", "server.port=9" }).config().server.port, 9);
    setenv("WEIR_SERVER_PORT", "many", 1);
    const Outcome wrong = run_main({ "serve", "--port", "9" });
    EXPECT_EQ(wrong.code, 2);
    EXPECT_TRUE(holds(
        wrong.err, "weir: WEIR_SERVER_PORT: server.port = many: must be an integer\n"
                   "`weir serve --help-config` lists every key"
    )) << wrong.err;
    EXPECT_EQ(run_main({ "serve", "--help" }).code, 0);
    EXPECT_TRUE(holds(run_main({ "serve", "--help-config" }).out, "WEIR_SERVER_PORT=8081"));
    unsetenv("WEIR_SERVER_PORT");
    std::filesystem::remove(path);
}

TEST(Options, OwnValues)
{
    Line line("bench", { "--prompt", "128", "--depth", "0,512,8192", "--json", "-n", "9" });
    ASSERT_EQ(line.status, WEIR_OK) << line.error.text;
    EXPECT_EQ(weir_argument_int(line.arguments.get(), "prompt", 512), 128);
    EXPECT_EQ(weir_argument_int(line.arguments.get(), "gen", 64), 9);
    EXPECT_EQ(weir_argument_int(line.arguments.get(), "repeat", 5), 5);
    EXPECT_TRUE(weir_argument_given(line.arguments.get(), "json"));
    EXPECT_FALSE(weir_argument_given(line.arguments.get(), "explain"));
    int64_t depths[WEIR_OPTION_NUMBERS];
    ASSERT_EQ(weir_argument_numbers(line.arguments.get(), "depth", depths), 3u);
    EXPECT_EQ(depths[2], 8192);
    Line text("generate", { "--prompt", "-5 = x", "--max-tokens", "4" });
    ASSERT_EQ(text.status, WEIR_OK) << text.error.text;
    EXPECT_STREQ(text.text("prompt"), "-5 = x");
    EXPECT_STREQ(Line("generate", { "--prompt=--a=b" }).text("prompt"), "--a=b");
    EXPECT_STREQ(Line("generate", { "--prompt", "" }).text("prompt"), "");
    EXPECT_EQ(Line("generate", { "--prompt", "x", "--" }).status, WEIR_OK);
}

TEST(Options, AWordIsThePromptWhereTheCommandTakesOne)
{
    EXPECT_STREQ(Line("generate", { "hi" }).text("prompt"), "hi");
    EXPECT_STREQ(
        Line("generate", { "-n", "4", "two words", "--json" }).text("prompt"), "two words"
    );
    EXPECT_STREQ(Line("generate", { "--", "--prompt" }).text("prompt"), "--prompt");
    const Line twice("generate", { "one", "two" });
    EXPECT_EQ(twice.status, WEIR_ECONFIG);
    EXPECT_TRUE(holds(twice.error.text, "\"two\": the prompt is already given"))
        << twice.error.text;
    EXPECT_EQ(Line("generate", { "one", "--prompt", "two" }).status, WEIR_ECONFIG);
}

TEST(Options, TildeIsTheHomeFolderInFilesAndFolders)
{
    const std::string before = getenv("HOME") != nullptr ? getenv("HOME") : "";
    setenv("HOME", "/home/u", 1);
    const Line line(
        "eval matrix", { "--out", "~/out", "--items=~/items", "--text", "t", "--model", "~/m",
                         "--policies", "~/x" }
    );
    ASSERT_EQ(line.status, WEIR_OK) << line.error.text;
    EXPECT_STREQ(line.text("out"), "/home/u/out");
    EXPECT_STREQ(line.text("items"), "/home/u/items");
    EXPECT_STREQ(line.text("text"), "t");
    EXPECT_STREQ(line.text("policies"), "~/x") << "no path";
    EXPECT_STREQ(line.config().model.path, "/home/u/m");
    const Line prompt("generate", { "~/is home", "--file", "-" });
    EXPECT_STREQ(prompt.text("prompt"), "~/is home");
    EXPECT_STREQ(prompt.text("file"), "-");
    const std::string name = "~/" + std::string(5000, 'x');
    const Line large("eval matrix", { "--out", name.c_str(), "--items", name.c_str() });
    EXPECT_EQ(large.status, WEIR_ECONFIG);
    EXPECT_TRUE(holds(large.error.text, "--items")) << large.error.text;
    unsetenv("HOME");
    EXPECT_EQ(Line("eval matrix", { "--out", "~/out" }).status, WEIR_ECONFIG);
    setenv("HOME", before.c_str(), 1);
}

TEST(Options, MistakesAreNamed)
{
    const struct {
        const char *command;
        Words words;
        const char *part;
    } cases[] = {
        { "serve", { "--prot", "1" }, "unknown option \"--prot\"; the nearest is \"--port\"" },
        { "serve", { "--prot=1" }, "unknown option \"--prot\"; the nearest is \"--port\"" },
        { "serve", { "-model", "x" }, "unknown option \"-model\"; the nearest is \"--model\"" },
        { "serve", { "-x" }, "unknown option \"-x\"" },
        { "serve", { "--confg", "x" }, "\"--config\"" },
        { "serve", { "--", "x" }, "unexpected argument \"x\"" },
        { "serve", { "x" }, "unexpected argument \"x\"" },
        { "serve", { "-" }, "unexpected argument \"-\"" },
        { "serve", { "" }, "unexpected argument \"\"" },
        { "db delete",
          { "paper" },
          "unexpected argument \"paper\"; usage: db delete --dir DIR --name NAME" },
        { "serve", { "--port" }, "--port needs a value: --port N" },
        { "serve", { "--port", "--host", "x" }, "--port needs a value" },
        { "serve", { "--port", "x" }, "--port: server.port = x: must be an integer" },
        { "serve", { "--port=" }, "--port: server.port" },
        { "serve", { "--insecure=1" }, "--insecure takes no value" },
        { "serve", { "--plan=yes" }, "--plan takes no value" },
        { "serve", { "--plan", "--plan" }, "--plan is given twice" },
        { "serve", { "--config", "qwen35", "--config", "qwen35" }, "--config is given twice" },
        { "serve", { "--set", "server.prot=1" }, "--set: unknown key \"server.prot\"" },
        { "serve", { "--set", "server" }, "must be KEY=VALUE" },
        { "serve", { "--budget", "many" }, "--budget: kv.policy.budget" },
        { "serve", { "--chunk", "100" }, "multiple of 64" },
        { "serve", { "--prompt", "x" }, "unknown option \"--prompt\"" },
        { "logits", { "--tokens", "1" }, "--out FILE is needed" },
        { "logits",
          { "--tokens", "1", "--out", "x", "--decode-from", "-1" },
          "must be an integer between 0 and 2147483647" },
        { "bench", { "--prompt", "1.5" }, "--prompt 1.5: must be an integer" },
        { "bench", { "--prompt", " 1" }, "must be an integer" },
        { "bench", { "--prompt", "1," }, "must be an integer" },
        { "bench", { "--gen", "99999999999999999999" }, "must be an integer" },
        { "bench", { "--depth", "1,,2" }, "separated by commas" },
        { "bench", { "--depth", "1,2," }, "separated by commas" },
        { "bench", { "--depth", "" }, "separated by commas" },
        { "bench", { "--depth", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17" }, "1 to 16 integers" },
    };
    for (const auto &test : cases) {
        Line line(test.command, test.words);
        EXPECT_EQ(line.status, WEIR_ECONFIG) << test.part;
        EXPECT_TRUE(holds(line.error.text, test.part)) << test.part << " <- " << line.error.text;
    }
    const std::string longest(100000, 'x');
    EXPECT_EQ(Line("serve", { ("--" + longest).c_str() }).status, WEIR_ECONFIG);
    EXPECT_EQ(Line("serve", { "--set", longest.c_str() }).status, WEIR_ECONFIG);
    EXPECT_EQ(Line("serve", { "--model", longest.c_str() }).status, WEIR_ECONFIG);
    EXPECT_EQ(Line("serve", { "--config", longest.c_str() }).status, WEIR_ECONFIG);
}

TEST(Options, HelpWinsOverMissingValues)
{
    Line line("logits", { "--help" });
    EXPECT_EQ(line.status, WEIR_OK);
    EXPECT_EQ(line.arguments->action, WEIR_ACTION_HELP);
    EXPECT_EQ(Line("logits", { "--version", "-h" }).arguments->action, WEIR_ACTION_HELP);
    EXPECT_EQ(Line("serve", { "--print-config", "--port", "99" }).config().server.port, 99);
}

TEST(Commands, TablesAreWellFormed)
{
    size_t n = 0;
    const weir_command *const commands = weir_commands(&n);
    for (size_t c = 0; c < n; c++) {
        std::vector<std::string> names;
        std::string letters = "h";
        for (size_t g = 0; g < WEIR_OPTION_GROUPS && commands[c].groups[g] != nullptr; g++) {
            for (size_t i = 0; i < commands[c].groups[g]->n; i++) {
                const weir_option &option = commands[c].groups[g]->options[i];
                EXPECT_EQ(std::count(names.begin(), names.end(), option.name), 0)
                    << commands[c].name << " --" << option.name;
                names.push_back(option.name);
                if (option.letter != 0) {
                    EXPECT_EQ(letters.find(option.letter), std::string::npos)
                        << commands[c].name << " -" << option.letter;
                    letters += option.letter;
                }
                const bool is_key =
                    option.type == WEIR_OPTION_KEY || option.type == WEIR_OPTION_KEY_TRUE;
                EXPECT_EQ(is_key, option.key != nullptr) << option.name;
                EXPECT_EQ(
                    option.value == nullptr,
                    option.type == WEIR_OPTION_FLAG || option.type == WEIR_OPTION_KEY_TRUE
                ) << option.name;
                EXPECT_TRUE(is_key || option.help != nullptr) << option.name;
            }
        }
        EXPECT_LE(names.size(), size_t(WEIR_OPTIONS));
    }
}

TEST(Commands, HelpNamesEveryOptionWithinTheColumns)
{
    size_t n = 0;
    const weir_command *const commands = weir_commands(&n);
    for (size_t c = 0; c < n; c++) {
        weir_buffer text = {};
        ASSERT_EQ(weir_command_help(&text, "weir", &commands[c]), WEIR_OK);
        for (size_t g = 0; g < WEIR_OPTION_GROUPS && commands[c].groups[g] != nullptr; g++)
            for (size_t i = 0; i < commands[c].groups[g]->n; i++)
                EXPECT_TRUE(
                    holds(text.data, std::string("--") + commands[c].groups[g]->options[i].name)
                );
        EXPECT_TRUE(holds(text.data, std::string("Usage: weir ") + commands[c].name));
        EXPECT_TRUE(holds(text.data, "--config NAME"));
        std::string line;
        for (const char *at = text.data; *at != '\0'; at++) {
            if (*at != '\n') {
                line += *at;
                continue;
            }
            EXPECT_LE(line.size(), 100u) << line;
            EXPECT_TRUE(line.empty() || line.back() != ' ') << "[" << line << "]";
            line.clear();
        }
        weir_buffer_free(&text);
    }
}

TEST(Main, ExitCodesAndStreams)
{
    Outcome o = run_main({});
    EXPECT_EQ(o.code, 2);
    EXPECT_TRUE(o.out.empty() && holds(o.err, "Commands:"));
    o = run_main({ "--help" });
    EXPECT_EQ(o.code, 0);
    EXPECT_TRUE(o.err.empty() && holds(o.out, "eval perplexity"));
    o = run_main({ "--version" });
    EXPECT_EQ(o.code, 0);
    EXPECT_EQ(o.out, "weir 1.2.3\n");
    EXPECT_EQ(run_main({ "serve", "--version" }).out, "weir 1.2.3\n");
    o = run_main({ "generat" });
    EXPECT_EQ(o.code, 2);
    EXPECT_TRUE(holds(o.err, "unknown command \"generat\"; the nearest is \"generate\"")) << o.err;
    EXPECT_TRUE(holds(run_main({ "eval", "perplexty" }).err, "the nearest is \"eval perplexity\""));
    o = run_main({ "eval" });
    EXPECT_EQ(o.code, 2);
    EXPECT_TRUE(o.out.empty() && holds(o.err, "eval perplexity") && !holds(o.err, "session"))
        << o.err;
    o = run_main({ "serve", "--prot" });
    EXPECT_EQ(o.code, 2);
    EXPECT_TRUE(holds(o.err, "`weir serve --help` lists the options")) << o.err;
    EXPECT_TRUE(holds(run_main({ "--prot" }, "serve").err, "`serve --help` lists the options"));
    EXPECT_TRUE(holds(
        run_main({ "--set", "server.prot=1" }, "serve").err, "`serve --help-config` lists every key"
    ));
    o = run_main({ "serve", "--help-config" });
    EXPECT_EQ(o.code, 0);
    EXPECT_TRUE(holds(o.out, "[kv.policy]"));
    o = run_main({ "serve", "--port", "99", "--print-config" });
    EXPECT_TRUE(holds(o.out, "port = 99\n"));
    EXPECT_EQ(ran, nullptr);
}

TEST(Main, EveryCommandAndFamilyHasHelp)
{
    size_t n = 0;
    const weir_command *const commands = weir_commands(&n);
    for (size_t i = 0; i < n; i++) {
        const std::string name = commands[i].name, usage = "Usage: weir " + name + " ";
        const size_t space = name.find(' ');
        const std::string first = name.substr(0, space),
                          second = space == std::string::npos ? "" : name.substr(space + 1);
        Words words = { first.c_str() };
        if (!second.empty()) words.push_back(second.c_str());
        for (const char *const help : { "--help", "-h" }) {
            Words asked = words;
            asked.push_back(help);
            const Outcome o = run_main(asked);
            EXPECT_EQ(o.code, 0) << name;
            EXPECT_EQ(o.out.find(usage), 0u) << o.out;
        }
        words.insert(words.begin(), "help");
        const Outcome o = run_main(words);
        EXPECT_EQ(o.code, 0) << name;
        EXPECT_EQ(o.out.find(usage), 0u) << o.out;
        const bool is_command = std::any_of(commands, commands + n, [&](const weir_command &c) {
            return c.name == first;
        });
        if (second.empty() || is_command) continue; /* "models" is one, and begins "models rm" */
        for (const Words &asked : { Words{ first.c_str(), "--help" }, Words{ first.c_str(), "-h" },
                                    Words{ "help", first.c_str() } }) {
            const Outcome family = run_main(asked);
            EXPECT_EQ(family.code, 0) << first;
            EXPECT_EQ(family.out.find("Usage: weir " + first + " COMMAND"), 0u) << family.out;
            EXPECT_TRUE(holds(family.out, "\n  " + name + " ")) << family.out;
            EXPECT_FALSE(holds(family.out, "\n  serve ")) << family.out;
            EXPECT_TRUE(holds(family.out, "`weir " + first + " COMMAND --help`")) << family.out;
        }
    }
    EXPECT_EQ(run_main({ "help" }).out, run_main({ "--help" }).out);
    EXPECT_EQ(run_main({ "help", "--help" }).out, run_main({ "--help" }).out);
    for (const Words &wrong : { Words{ "help", "sesion" }, Words{ "help", "serve", "now" },
                                Words{ "help", "session", "lst" }, Words{ "session", "--dir" },
                                Words{ "sess", "--help" } }) {
        const Outcome o = run_main(wrong);
        EXPECT_EQ(o.code, 2);
        EXPECT_TRUE(o.out.empty() && holds(o.err, "unknown command")) << o.err;
    }
    EXPECT_TRUE(holds(run_main({ "help", "session", "lst" }).err, "\"session list\""));
    EXPECT_EQ(ran, nullptr);
}

TEST(Main, RunsTheCommandWithItsModel)
{
    EXPECT_EQ(run_main({ "serve", "--model", "m.gguf" }).code, 0);
    EXPECT_STREQ(ran, "serve");
    EXPECT_EQ(run_main({ "eval", "retrieval", "--items", "f", "--model", "m.gguf" }).code, 0);
    EXPECT_STREQ(ran, "eval retrieval");
    EXPECT_EQ(
        run_main({ "plan", "--memory", "64MiB", "--max-sequences", "2", "--json", "--model",
                   "m.gguf" })
            .code,
        0
    );
    EXPECT_STREQ(ran, "plan");
    EXPECT_TRUE(holds(run_main({ "plan", "--help" }).out, "exit code 3 if the plan does not fit"));
    EXPECT_EQ(run_main({ "--model", "x.gguf" }, "serve").code, 0);
    EXPECT_STREQ(ran, "serve");
    EXPECT_EQ(model_paths.back(), "x.gguf");
    code_of_run = 3;
    EXPECT_EQ(run_main({ "serve", "--model", "m.gguf" }).code, 3);
    code_of_run = 0;

    /* The demo and the configurations are found below the folder the program starts in */
    namespace fs = std::filesystem;
    const fs::path old = fs::current_path(), folder = testing::TempDir() + "weir_cli_root";
    fs::create_directories(folder / "configs");
    std::ofstream(folder / "configs/mine.toml") << "[server]\nport = 7\n";
    fs::current_path(folder);
    Outcome o = run_main({ "serve" });
    EXPECT_EQ(o.code, 1);
    EXPECT_TRUE(holds(o.err, "--model PATH")) << o.err;
    fs::create_directories(folder / "models/weir-demo");
    o = run_main({ "serve", "--config", "mine" });
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(holds(model_paths.back(), "/models/weir-demo"));
    fs::current_path(old);
    fs::remove_all(folder);
}

TEST(Main, TwoWordsGoBeforeOne)
{
    EXPECT_EQ(run_main({ "models" }).code, 0);
    EXPECT_STREQ(ran, "models");
    EXPECT_EQ(run_main({ "models", "rm", "o/n" }).code, 0);
    EXPECT_STREQ(ran, "models rm");
    EXPECT_EQ(run_main({ "models", "--json" }).code, 0);
    EXPECT_STREQ(ran, "models");
    EXPECT_TRUE(holds(run_main({ "models", "--help" }).out, "models rm"));
    EXPECT_TRUE(holds(run_main({ "models", "rn" }).err, "unexpected argument \"rn\""));
}

TEST(Main, FailuresHaveTheirExitCodes)
{
    weir_error error = {};
    testing::internal::CaptureStderr();
    EXPECT_EQ(weir_fail(weir_error_set(&error, WEIR_ECONFIG, "a"), &error), 2);
    EXPECT_EQ(weir_fail(weir_error_set(&error, WEIR_EINVAL, "b"), &error), 2);
    EXPECT_EQ(weir_fail(weir_error_set(&error, WEIR_EFULL, "c"), &error), 3);
    EXPECT_EQ(weir_fail(weir_error_set(&error, WEIR_EFORMAT, "d"), &error), 1);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "weir: a\nweir: b\nweir: c\nweir: d\n");
}
