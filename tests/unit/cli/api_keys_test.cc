// API keys from a file, the environment and the configuration.
#include "engine/cli/api_keys.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/cli/process.h"

namespace {

class Keys : public testing::Test {
  protected:
    void SetUp() override
    {
        (void)unsetenv("WEIR_API_KEY");
        weir_config_default(config_.get());
    }
    void TearDown() override { weir_keys_free(&keys_); }

    weir_status read_file(const std::string &text)
    {
        const std::string path = std::string(getenv("TEST_TMPDIR")) + "/keys";
        EXPECT_EQ(WEIR_OK, weir_file_write_private(path.c_str(), text.data(), text.size(), &error_))
            << error_.text;
        snprintf(
            config_->server.api_key_file, sizeof config_->server.api_key_file, "%s", path.c_str()
        );
        weir_keys_free(&keys_);
        return weir_keys_read(&keys_, config_.get(), &error_);
    }
    std::vector<std::string> list() const { return { keys_.list, keys_.list + keys_.n }; }

    std::unique_ptr<weir_config> config_ = std::make_unique<weir_config>();
    weir_keys keys_ = {};
    weir_error error_ = {};
};

TEST_F(Keys, OneALineOfAFile)
{
    ASSERT_EQ(WEIR_OK, read_file("# comment\r\none\r\n\n\ntwo\n#three\nfour")) << error_.text;
    EXPECT_EQ((std::vector<std::string>{ "one", "two", "four" }), list());
}

TEST_F(Keys, AFileWithoutAKeyOrWithTooManyIsRefused)
{
    EXPECT_EQ(WEIR_ECONFIG, read_file("# only a comment\n\n"));
    EXPECT_NE(nullptr, strstr(error_.text, "no key in it")) << error_.text;
    EXPECT_EQ(WEIR_ECONFIG, read_file(""));
    std::string many;
    for (int i = 0; i < 64; i++) many += "k" + std::to_string(i) + "\n";
    EXPECT_EQ(WEIR_OK, read_file(many)) << error_.text;
    EXPECT_EQ(WEIR_ECONFIG, read_file(many + "one more\n"));
    EXPECT_NE(nullptr, strstr(error_.text, "more than 64 keys")) << error_.text;
    snprintf(
        config_->server.api_key_file, sizeof config_->server.api_key_file, "%s/none",
        getenv("TEST_TMPDIR")
    );
    EXPECT_EQ(WEIR_ENOTFOUND, weir_keys_read(&keys_, config_.get(), &error_));
}

TEST_F(Keys, WarnOfAFileThatOthersMayRead)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/keys";
    const struct {
        mode_t mode;
        bool is_warned;
    } cases[] = { { 0600, false }, { 0400, false }, { 0640, true }, { 0604, true } };
    ASSERT_EQ(WEIR_OK, read_file("sk-unsaid\n")) << error_.text;
    for (const auto &c : cases) {
        ASSERT_EQ(0, chmod(path.c_str(), c.mode));
        weir_keys_free(&keys_);
        testing::internal::CaptureStderr();
        const weir_status status = weir_keys_read(&keys_, config_.get(), &error_);
        const std::string said = testing::internal::GetCapturedStderr();
        EXPECT_EQ(WEIR_OK, status) << error_.text;
        const bool is_warned = said.find(path + " can be read by other users") != said.npos;
        EXPECT_EQ(c.is_warned, is_warned) << std::oct << c.mode << ": " << said;
        EXPECT_EQ(said.npos, said.find("sk-unsaid")) << "a key in the log: " << said;
    }
}

TEST_F(Keys, TheEnvironmentAndTheConfigurationCountToo)
{
    ASSERT_EQ(0, setenv("WEIR_API_KEY", "from-environment", 1));
    snprintf(config_->server.api_key, sizeof config_->server.api_key, "configured");
    ASSERT_EQ(WEIR_OK, read_file("filed\n"));
    EXPECT_EQ((std::vector<std::string>{ "configured", "from-environment", "filed" }), list());
    ASSERT_EQ(0, setenv("WEIR_API_KEY", "", 1));
    ASSERT_EQ(WEIR_OK, read_file("filed\n"));
    EXPECT_EQ(2u, keys_.n) << "an empty variable is no key";
}

TEST_F(Keys, ThoseOnTheCommandLineAreOverwritten)
{
    const struct {
        const char *written, *left;
    } arguments[] = {
        { "serve", "serve" },
        { "--api-key", "--api-key" },
        { "sk-1", "xxxx" },
        { "--api-key=sk-2", "--api-key=xxxx" },
        { "--set", "--set" },
        { "server.api_key=\"sk-3\"", "server.api_key=xxxxxx" },
        { "--set", "--set" },
        { "server.api_key = 'sk-4'", "server.api_key =xxxxxxx" },
        { "--set=server.api_key=sk-5", "--set=server.api_key=xxxx" },
        { "--api-key-file", "--api-key-file" },
        { "sk-1", "sk-1" },
        { "server.api_key_file=sk-1", "server.api_key_file=sk-1" },
        { "--api-key", "--api-key" },
    };
    std::vector<std::string> texts;
    std::vector<char *> argv;
    for (const auto &argument : arguments) texts.emplace_back(argument.written);
    for (std::string &text : texts) argv.push_back(text.data());
    weir_process_begin(static_cast<int>(argv.size()), argv.data());
    EXPECT_TRUE(weir_process_wipe("--api-key", "server.api_key"));
    for (size_t i = 0; i < texts.size(); i++) EXPECT_EQ(arguments[i].left, texts[i]);
    EXPECT_FALSE(weir_process_wipe("--model", "model.path"));
    weir_process_begin(0, nullptr); /* which are gone */
}

TEST_F(Keys, AProcessWithKeysDumpsNoCore)
{
    struct rlimit limit = {};
    ASSERT_EQ(WEIR_OK, read_file("one\n"));
    ASSERT_EQ(0, getrlimit(RLIMIT_CORE, &limit));
    EXPECT_EQ(0u, limit.rlim_cur);
    EXPECT_EQ(0u, limit.rlim_max);
    EXPECT_EQ(0, prctl(PR_GET_DUMPABLE)) << "a pipe of core_pattern ignores the limit";
}

/* In a child, which ends without a word where it would go on with an open gap. */
int begin_without(int closed, rlim_t n_files)
{
    const pid_t child = fork();
    if (child == 0) {
        char name[] = "serve", *argv[] = { name };
        const struct rlimit limit = { n_files, n_files };
        (void)close(closed);
        if (n_files > 0 && setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(9);
        weir_process_begin(1, argv);
        _exit(fcntl(closed, F_GETFD) >= 0 ? 0 : 8);
    }
    int status = -1;
    EXPECT_EQ(child, waitpid(child, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Process, GoesOnWithDescriptors0To2OnlyOrEnds)
{
    EXPECT_EQ(0, begin_without(0, 0));
    EXPECT_EQ(0, begin_without(1, 0));
    EXPECT_EQ(0, begin_without(2, 0));
    EXPECT_EQ(1, begin_without(2, 2)) << "/dev/null cannot be opened";
}

TEST(Files, ArePrivate)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/private";
    weir_error error = {};
    struct stat file = {};
    const mode_t before = umask(0);
    EXPECT_EQ(WEIR_OK, weir_file_write_private(path.c_str(), "x", 1, &error)) << error.text;
    (void)umask(before);
    ASSERT_EQ(0, stat(path.c_str(), &file));
    EXPECT_EQ(0600u, file.st_mode & 0777u);
}

} // namespace
