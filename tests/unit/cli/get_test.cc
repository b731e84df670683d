/* weir get, models, models rm as a user runs them, against a hub on this machine: a model by its
 * name, from the download to the answer. */
#include <csignal>

#include "engine/cli/progress.h"
#include "tests/unit/cli/chat_program.h"
#include "tests/unit/cli/commands.h"
#include "tests/unit/cli/json.h"
#include "tests/unit/hub/fake_hub.h"

namespace program {
namespace {

class GetCommand : public Folder {
  protected:
    void SetUp() override
    {
        Folder::SetUp();
        (void)setenv("XDG_DATA_HOME", folder_.c_str(), 1);
        (void)setenv("HF_ENDPOINT", hub_.url().c_str(), 1);
        models_ = folder_ + "/weir/models";
        for (const char *name : { "config.json", "generation_config.json", "model.safetensors",
                                  "tokenizer.json", "tokenizer_config.json" })
            hub_.files[name] = read("models/weir-demo/" + std::string(name));
        hub_.files["MODEL.md"] = "x";
        hub_.small = { "config.json", "generation_config.json", "tokenizer_config.json" };
    }
    void TearDown() override
    {
        for (const char *name : { "XDG_DATA_HOME", "XDG_STATE_HOME", "HF_ENDPOINT", "HF_TOKEN" })
            (void)unsetenv(name);
        weir_interrupted = 0;
        Folder::TearDown();
    }
    static std::string read(const std::string &path)
    {
        std::ostringstream out;
        out << std::ifstream(path, std::ios::binary).rdbuf();
        return out.str();
    }
    /* The answer of a model. */
    static std::string answer(const std::vector<std::string> &model)
    {
        std::vector<std::string> words = { "generate", "--prompt", "The price of",  "--quiet",
                                           "-n",       "4",        "--temperature", "0" };
        words.insert(words.end(), model.begin(), model.end());
        const Outcome o = run(words);
        EXPECT_EQ(o.code, 0) << o.err;
        return o.out;
    }
    hub::FakeHub hub_;
    std::string models_;
};

TEST_F(GetCommand, FromTheDownloadToTheAnswer)
{
    const Outcome got = run({ "get", "weir/demo" });
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_EQ(got.out, models_ + "/weir/demo\n");
    EXPECT_SAYS(got.err, "5 files");
    EXPECT_FALSE(std::filesystem::exists(models_ + "/weir/demo/MODEL.md"));
    const std::string want = answer({ "--model", "models/weir-demo" });
    EXPECT_EQ(answer({ "--model", "weir/demo" }), want);
    EXPECT_EQ(answer({ "--config", put("run.toml", "[model]\npath = \"weir/demo\"\n") }), want);

    const Outcome listed = run({ "models" });
    EXPECT_SAYS(listed.out, "weir/demo ");
    EXPECT_SAYS(listed.out, "complete  " + models_ + "/weir/demo\n");
    const Json json(run({ "models", "--json" }).out);
    const json_t *const model = json_array_get(json.at("models"), 0);
    EXPECT_STREQ(json_string_value(json_object_get(model, "name")), "weir/demo");
    EXPECT_TRUE(json_is_true(json_object_get(model, "complete")));
    EXPECT_TRUE(json_is_null(json_object_get(model, "quantisation")));
    EXPECT_EQ(hub_.commit, json_string_value(json_object_get(model, "commit")));

    const Outcome removed = run({ "models", "rm", "weir/demo" });
    EXPECT_EQ(removed.code, 0) << removed.err;
    EXPECT_SAYS(removed.out, "removed " + models_ + "/weir/demo/model.safetensors\n");
    EXPECT_FALSE(std::filesystem::exists(models_ + "/weir"));
    EXPECT_SAYS(run({ "models" }).err, "no models here");
    EXPECT_EQ(run({ "models", "--set", "model.path=weir/demo" }).code, 0) << "it runs no model";
    const Outcome gone = run({ "generate", "--model", "weir/demo", "--prompt", "a" });
    EXPECT_EQ(gone.code, 1);
    EXPECT_SAYS(gone.err, "`weir get weir/demo`");
}

/* weir run: the model is downloaded if someone agrees. */
TEST_F(GetCommand, RunDownloadsWhatItNeeds)
{
    const std::vector<std::string> run_it = { "run", "weir/demo", "Hello",         "--quiet",
                                              "-n",  "4",         "--temperature", "0" };
    const Outcome refused = run(run_it);
    EXPECT_EQ(refused.code, 1);
    EXPECT_SAYS(refused.err, "`weir get weir/demo` downloads it");
    EXPECT_TRUE(hub_.requests().empty());
    std::vector<std::string> agreed = run_it;
    agreed.push_back("--yes");
    const Outcome got = run(agreed);
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_SAYS(got.err, "5 files");
    const std::string message = put("m", R"([{"role": "user", "content": "Hello"}])");
    const Outcome want = run({ "generate", "--messages", message, "--model", "models/weir-demo",
                               "--quiet", "-n", "4", "--temperature", "0" });
    EXPECT_EQ(got.out, want.out);
    EXPECT_EQ(run(run_it).out, want.out) << "it is here now";
    {
        const Piped input("Hello\n");
        const Outcome piped =
            run({ "run", models_ + "/weir/demo", "--quiet", "-n", "4", "--temperature", "0" });
        EXPECT_EQ(piped.out, want.out) << piped.err;
    }
    const Piped nothing("");
    EXPECT_EQ(run({ "run", "models/weir-demo" }).code, 2);
    EXPECT_EQ(run({ "run" }).code, 2);
    EXPECT_EQ(run({ "run", "a", "b", "c" }).code, 2);
    EXPECT_EQ(run({ "run", folder_ + "/none.gguf", "Hello" }).code, 1);
}

/* The download catches it; what follows does not look at that before it answers. */
TEST_F(GetCommand, CtrlCEndsWhatFollowsADownload)
{
    (void)signal(SIGINT, SIG_DFL);
    const Piped nothing("");
    EXPECT_EQ(run({ "run", "weir/demo", "--yes", "--quiet" }).code, 2);
    EXPECT_FALSE(hub_.requests().empty());
    struct sigaction now = {};
    ASSERT_EQ(sigaction(SIGINT, nullptr, &now), 0);
    EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST_F(GetCommand, RunAsksOnATerminal)
{
    (void)setenv("TERM", "dumb", 1);
    (void)setenv("XDG_STATE_HOME", folder_.c_str(), 1);
    for (const char *answer : { "n\n", "\n", "y\n" }) {
        const Terminal terminal;
        const Redirect err(STDERR_FILENO, terminal);
        Chat chat({ "run", "weir/demo", "-n", "2" }, terminal);
        EXPECT_SAYS(chat.hear("[y/N] "), "weir/demo is not complete on this machine. Download it?");
        chat.say(answer);
        const bool agrees = answer[0] == 'y';
        if (agrees) {
            EXPECT_SAYS(chat.hear("> "), "5 files");
            chat.say("/exit\n");
        } else {
            EXPECT_SAYS(chat.hear("downloads it"), "`weir get weir/demo`");
        }
        EXPECT_EQ(chat.end(), agrees ? 0 : 1);
        EXPECT_EQ(hub_.requests().empty(), !agrees);
    }
}

TEST_F(GetCommand, OptionsSayWhatAndWhere)
{
    hub::FakeHub other;
    other.files = { { "a.txt", "text" } };
    (void)setenv("HF_TOKEN", "hf_secret", 1);
    const Outcome got =
        run({ "get", "o/n", "--file", "a.txt", "--endpoint", other.url(), "--revision", "v1" });
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_EQ(got.out, models_ + "/o/n/a.txt\n");
    EXPECT_EQ(read(models_ + "/o/n/a.txt"), "text");
    EXPECT_EQ(other.count("/revision/v1"), 1u);
    EXPECT_EQ(other.count("Bearer hf_secret"), other.requests().size());
    EXPECT_TRUE(hub_.requests().empty()) << "--endpoint goes before HF_ENDPOINT";
    EXPECT_EQ(got.err.find("hf_secret"), std::string::npos);
}

TEST_F(GetCommand, FailuresHaveCodesAndMessages)
{
    Outcome o = run({ "get", "demo" });
    EXPECT_EQ(o.code, 2);
    EXPECT_SAYS(o.err, "demo: not the name of a model; it is OWNER/NAME");
    EXPECT_EQ(run({ "get" }).code, 2);
    EXPECT_EQ(run({ "models", "rm", "demo" }).code, 2);
    EXPECT_EQ(run({ "get", "o/n:Q8_0", "--file", "x" }).code, 2);
    o = run({ "get", "o/n:Q8_0" });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "no GGUF file with \"Q8_0\"");
    o = run({ "models", "rm", "o/n" });
    EXPECT_EQ(o.code, 1);
    EXPECT_SAYS(o.err, "no such model on this machine");
    EXPECT_EQ(run({ "get", "o/n", "--endpoint", "nowhere" }).code, 2);
}

TEST_F(GetCommand, CtrlCKeepsThePart)
{
    hub_.hook = [](const std::string &path, const std::string &, hub::Reply *) {
        if (path.find("model.safetensors") != std::string::npos) (void)raise(SIGINT);
    };
    const Outcome o = run({ "get", "weir/demo" });
    EXPECT_EQ(o.code, 130) << o.err;
    EXPECT_SAYS(o.err, "interrupted after");
    EXPECT_TRUE(std::filesystem::exists(models_ + "/weir/demo/model.safetensors.part"));
    EXPECT_SAYS(run({ "models" }).out, "partial, ");
    const Outcome partial = run({ "render", "--model", "weir/demo", "--messages", "-" });
    EXPECT_EQ(partial.code, 1);
    EXPECT_SAYS(partial.err, "`weir get weir/demo` goes on with it");
    weir_interrupted = 0;
    hub_.hook = nullptr;
    EXPECT_EQ(run({ "get", "weir/demo" }).code, 0);
}

/* What the help says of names, options and variables; each word here is promised. */
TEST_F(GetCommand, HelpNamesEveryOption)
{
    const std::string help = run({ "get", "--help" }).out;
    for (const char *part :
         { "Usage: weir get OWNER/NAME[:QUANT] [options]\n", "Download:\n", "--revision NAME",
           "--file NAME", "--endpoint URL", "HF_ENDPOINT", "HF_TOKEN", "XDG_DATA_HOME",
           "https://huggingface.co", "Q4_K_M", "SHA-256" })
        EXPECT_SAYS(help, part);
    EXPECT_SAYS(
        run({ "models", "rm", "--help" }).out, "Usage: weir models rm OWNER/NAME[:QUANT]\n"
    );
}

} // namespace
} // namespace program
