// API keys from a file, the environment and the configuration.
#include "engine/cli/keys.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

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
        EXPECT_EQ(WEIR_OK, weir_file_write_private(path.c_str(), text.data(), text.size(), &error_)) << error_.text;
        snprintf(config_->server.api_key_file, sizeof config_->server.api_key_file, "%s", path.c_str());
        weir_keys_free(&keys_);
        return weir_keys_read(&keys_, config_.get(), &error_);
    }
    std::vector<std::string> list() const { return { keys_.list, keys_.list + keys_.n }; }

    std::unique_ptr<weir_config> config_ = std::make_unique<weir_config>();
    weir_keys                    keys_ = {};
    weir_error                   error_ = {};
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
    snprintf(config_->server.api_key_file, sizeof config_->server.api_key_file, "%s/none", getenv("TEST_TMPDIR"));
    EXPECT_EQ(WEIR_ENOTFOUND, weir_keys_read(&keys_, config_.get(), &error_));
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
    char  program[] = "serve", option[] = "--api-key", key[] = "sk-1", set[] = "--set", pair[] = "server.api_key=sk-1", other[] = "task-1";
    char *argv[] = { program, option, key, set, pair, other, nullptr };
    weir_process_begin(6, argv);
    EXPECT_TRUE(weir_process_wipe("sk-1"));
    EXPECT_STREQ("xxxx", key);
    EXPECT_STREQ("server.api_key=xxxx", pair);
    EXPECT_STREQ("task-1", other);
    EXPECT_FALSE(weir_process_wipe("sk-1"));
    EXPECT_FALSE(weir_process_wipe(""));
}

TEST_F(Keys, AProcessWithKeysDumpsNoCore)
{
    struct rlimit limit = {};
    ASSERT_EQ(WEIR_OK, read_file("one\n"));
    ASSERT_EQ(0, getrlimit(RLIMIT_CORE, &limit));
    EXPECT_EQ(0u, limit.rlim_cur);
    EXPECT_EQ(0u, limit.rlim_max);
}

TEST(Files, ArePrivate)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/private";
    weir_error        error = {};
    struct stat       file = {};
    const mode_t      before = umask(0);
    EXPECT_EQ(WEIR_OK, weir_file_write_private(path.c_str(), "x", 1, &error)) << error.text;
    (void)umask(before);
    ASSERT_EQ(0, stat(path.c_str(), &file));
    EXPECT_EQ(0600u, file.st_mode & 0777u);
}

} // namespace
