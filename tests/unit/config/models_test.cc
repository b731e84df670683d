// [[models]]: the models of a router.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "engine/config/config.h"

namespace {

class Models : public testing::Test {
  protected:
    Models() { weir_config_default(config_.get()); }
    /* The message; "": none. */
    std::string parse(const std::string &text)
    {
        weir_error error = {};
        weir_status status =
            weir_config_parse(config_.get(), text.data(), text.size(), "f", &error);
        if (status == WEIR_OK) status = weir_config_check(config_.get(), &error);
        return status == WEIR_OK ? "" : error.text;
    }
    std::unique_ptr<weir_config> config_ = std::make_unique<weir_config>();
};

const std::string two =
    "[[models]]\nname = \"a\"\npath = \"~x/a\"\nmemory = \"1GiB\"\n"
    "[[models]]\nname = \"b/1\"\nconfig = \"b.toml\"\nmemory = \"2GiB\"\n"
    "api_key_file = \"keys\"\nset = [\"batch.chunk=64\", \"kv.format='q8_0'\"]\n";

TEST_F(Models, AreReadAndPrinted)
{
    EXPECT_EQ("", parse(two));
    ASSERT_EQ(2u, config_->n_models);
    EXPECT_STREQ("b/1", config_->models[1].name);
    EXPECT_STREQ("b.toml", config_->models[1].config);
    EXPECT_STREQ("keys", config_->models[1].api_key_file);
    EXPECT_EQ(int64_t(2) << 30, config_->models[1].memory);
    EXPECT_STREQ("batch.chunk=64\nkv.format='q8_0'\n", config_->models[1].set);
    weir_buffer text = {};
    ASSERT_EQ(WEIR_OK, weir_config_print(config_.get(), &text));
    const auto before = std::make_unique<weir_config>(*config_);
    EXPECT_EQ("", parse(std::string(text.data, text.size)));
    EXPECT_EQ(0, memcmp(before->models, config_->models, sizeof before->models));
    EXPECT_EQ(2u, config_->n_models);
    weir_buffer_free(&text);
}

TEST_F(Models, WrongOnesAreNamed)
{
    const std::string good = "name = \"a\"\npath = \"a\"\nmemory = \"1GiB\"\n",
                      one = "[[models]]\n";
    const struct {
        std::string text, message;
    } cases[] = {
        { "models = 3\n", "f:1:1: models must be tables" },
        { "models = [3]\n", "models must be tables" },
        { one + "path = \"a\"\nmemory = \"1GiB\"\n", "needs a name" },
        { one + "name = \"a b\"\npath = \"a\"\nmemory = \"1GiB\"\n", "needs a name" },
        { one + "name = \"a\"\nmemory = \"1GiB\"\n", "either config or path" },
        { one + good + "config = \"c\"\n", "either config or path" },
        { one + "name = \"a\"\npath = \"a\"\n", "\"a\" needs memory" },
        { one + "name = \"a\"\npath = \"a\"\nmemory = 5\n",
          "f:4:1: models: memory must be a size" },
        { one + good + one + good, "two are named \"a\"" },
        { one + good + "paths = \"b\"\n", "f:5:1: unknown key \"models.paths\"" },
        { one + good + "set = \"x\"\n", "set must be a list" },
        { one + good + "set = [\"batch.chnk=1\"]\n", "the nearest is \"batch.chunk\"" },
        { one + good + "set = [\"server.host=::\"]\n", "the router sets this key" },
        { one + good + "set = [\"log.level=debug\\nx\"]\n", "control character" },
        { one + good + "[model]\npath = \"x\"\n", "model.path is of a server with one model" },
        { one + good + "[server]\naliases = \"x\"\n", "server.aliases is of a server" },
        { one + "name = \"" + std::string(200, 'x') + "\"\n", "1 to 127 bytes" },
    };
    for (const auto &each : cases) {
        weir_config_default(config_.get());
        EXPECT_NE(std::string::npos, parse(each.text).find(each.message))
            << each.text << parse(each.text);
    }
    std::string many;
    for (int i = 0; i < 17; i++)
        many += one + "name = \"" + std::to_string(i) + "\"\npath = \"a\"\nmemory = \"1GiB\"\n";
    EXPECT_NE(std::string::npos, parse(many).find("there may be 16"));
}

/* A router starts servers with what its configuration sets. */
TEST_F(Models, ChangedKeysAreVisited)
{
    std::string seen;
    EXPECT_EQ(
        "", parse("[batch]\nchunk = 128\n[kernels.pin]\nmatmul = \"ref\"\n"
                  "[server]\napi_key = \"secret\"\n")
    );
    const auto visit = [](void *user, const char *path, const char *value) {
        *static_cast<std::string *>(user) += std::string(path) + "=" + value + ";";
        return WEIR_OK;
    };
    ASSERT_EQ(WEIR_OK, weir_config_changed(config_.get(), visit, &seen));
    EXPECT_EQ("batch.chunk=128;kernels.pin.matmul=ref;", seen);
}

} // namespace
