// How servers of [[models]] are started: arguments, keys, environment.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/cli/router_servers.h"

namespace {

class Servers : public testing::Test {
  protected:
    void SetUp() override
    {
        char folder[] = "/tmp/weir.XXXXXX";
        ASSERT_NE(nullptr, mkdtemp(folder));
        folder_ = folder;
        weir_config_default(config_.get());
    }
    void TearDown() override
    {
        weir_router_servers_free(servers_.get());
        std::filesystem::remove_all(folder_);
    }
    weir_status fill(const std::string &text, const weir_keys &keys, const char *command = "serve")
    {
        weir_error error = {};
        EXPECT_EQ(WEIR_OK, weir_config_parse(config_.get(), text.data(), text.size(), "f", &error))
            << error.text;
        const char *const environment[] = { "PATH=/bin",
                                            "WEIR_API_KEY=secret",
                                            "NOTIFY_SOCKET=/run",
                                            "WEIR_SERVER_API_KEY=secret",
                                            "WEIR_MODEL_PATH=/m",
                                            "WEIR_KERNELS_PIN_MATMUL=x",
                                            "WEIR_BATCH_CHUNK=64",
                                            "WEIR_SERVICE=1",
                                            nullptr };
        const weir_status status = weir_router_servers_fill(
            servers_.get(), config_.get(), &keys, command, environment, &error
        );
        problem_ = error.text;
        return status;
    }
    static std::string join(const weir_server_arguments &list)
    {
        std::string text;
        for (size_t i = 0; i < list.n; i++)
            if (std::string(list.list[i]) != "--set") text += std::string(list.list[i]) + " ";
        return text;
    }
    static std::string keys_of(const weir_router_model &model)
    {
        std::ifstream file("/proc/self/fd/" + std::to_string(model.keys_fd));
        return std::string(std::istreambuf_iterator<char>(file), {});
    }

    std::string folder_, problem_;
    std::unique_ptr<weir_config> config_ = std::make_unique<weir_config>();
    std::unique_ptr<weir_router_servers> servers_ = std::make_unique<weir_router_servers>();
};

TEST_F(Servers, GetTheSettingsOfTheFileOrTheirOwn)
{
    ASSERT_EQ(
        WEIR_OK, fill(
                     "[memory]\nhost = \"4GiB\"\n[server]\nport = 81\ninsecure = "
                     "true\n[batch]\nchunk = 128\n"
                     "[sessions]\ndir = \"" +
                         folder_ +
                         "/s\"\n"
                         "[[models]]\nname = \"o/a\"\npath = \"/m\"\nmemory = \"1GiB\"\nset = "
                         "[\"kv.format=q8_0\"]\n"
                         "[[models]]\nname = \"b\"\nconfig = \"b.toml\"\nmemory = \"2GiB\"\n",
                     {}
                 )
    ) << problem_;
    const std::string rest =
        "server.allowed_hosts= server.allowed_origins= server.drain_timeout=30000ms ";
    EXPECT_EQ(
        "weir serve --quiet batch.chunk=128 sessions.dir=" + folder_ +
            "/s/o-a model.path=/m kv.format=q8_0 model.name=o/a server.aliases=* " + rest +
            "memory.host=1073741824B server.api_key= server.api_key_file= ",
        join(servers_->arguments[0])
    );
    EXPECT_EQ(
        "weir serve --quiet --config=b.toml model.name=b server.aliases=* " + rest +
            "memory.host=2147483648B server.api_key= server.api_key_file= ",
        join(servers_->arguments[1])
    );
    EXPECT_EQ("PATH=/bin WEIR_SERVICE=1 ", join(servers_->environment))
        << "what keys have comes as settings, or from a model's own file";
    EXPECT_TRUE(std::filesystem::is_directory(folder_ + "/s"));
    EXPECT_EQ(-1, servers_->models[0].keys_fd);
}

TEST_F(Servers, GetKeysThroughADescriptor)
{
    weir_keys keys = {};
    keys.list[0] = "first priority=2";
    keys.list[1] = "second";
    keys.n = 2;
    std::ofstream(folder_ + "/keys") << "# of b\nown\n";
    ASSERT_EQ(
        WEIR_OK, fill(
                     "[[models]]\nname = \"a\"\npath = \"/m\"\nmemory = \"1GiB\"\n"
                     "[[models]]\nname = \"b\"\npath = \"/m\"\nmemory = \"1GiB\"\n"
                     "api_key_file = \"" +
                         folder_ + "/keys\"\n",
                     keys, nullptr
                 )
    ) << problem_;
    EXPECT_EQ("first priority=2\nsecond\n", keys_of(servers_->models[0]));
    EXPECT_EQ("own\n", keys_of(servers_->models[1]));
    EXPECT_EQ(0u, servers_->models[0].n_keys) << "those of the router";
    ASSERT_EQ(1u, servers_->models[1].n_keys);
    EXPECT_STREQ("own", servers_->models[1].keys[0]);
    const std::string line = join(servers_->arguments[1]);
    EXPECT_EQ(0u, line.find("weir --quiet ")) << "a program of one command";
    EXPECT_EQ(std::string::npos, line.find("own"));
    EXPECT_NE(
        std::string::npos,
        line.find(
            "server.api_key_file=/proc/self/fd/" + std::to_string(servers_->models[1].keys_fd) + " "
        )
    );
}

/* Kubernetes sets some for each service of a namespace. */
TEST_F(Servers, AnEnvironmentOfAnySize)
{
    std::vector<std::string> texts;
    std::vector<const char *> list;
    for (int i = 0; i < 3000; i++) texts.push_back("V" + std::to_string(i) + "=1");
    for (const std::string &text : texts) list.push_back(text.c_str());
    list.push_back(nullptr);
    weir_error error = {};
    const weir_keys keys = {};
    ASSERT_EQ(
        WEIR_OK,
        weir_router_servers_fill(servers_.get(), config_.get(), &keys, nullptr, list.data(), &error)
    ) << error.text;
    ASSERT_EQ(3000u, servers_->environment.n);
    EXPECT_STREQ("V2999=1", servers_->environment.list[2999]);
    EXPECT_EQ(nullptr, servers_->environment.list[3000]);
}

TEST_F(Servers, AKeyFileThatIsNotThere)
{
    EXPECT_NE(
        WEIR_OK, fill(
                     "[[models]]\nname = \"a\"\npath = \"/m\"\nmemory = \"1GiB\"\n"
                     "api_key_file = \"/nonexistent\"\n",
                     {}
                 )
    );
    EXPECT_NE(std::string::npos, problem_.find("/nonexistent"));
}

} // namespace
