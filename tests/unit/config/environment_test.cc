/* Keys from environment variables. */
#include <set>
#include <vector>

#include "tests/unit/config/values.h"

namespace {

weir_status set_variables(Config &c, std::vector<const char *> variables)
{
    variables.push_back(nullptr);
    c.error = {};
    return weir_config_environment(c.value.get(), variables.data(), &c.error);
}

TEST(Config, EveryKeyHasAVariableOfItsOwn)
{
    size_t n_keys = 0;
    const weir_key *const keys = weir_keys(&n_keys);
    std::set<std::string> names;
    for (size_t i = 0; i < n_keys; i++) {
        const weir_key &key = keys[i];
        if (key.type == WEIR_KEY_SECTION || key.type == WEIR_KEY_PINS) continue;
        char name[WEIR_KEY_VARIABLE];
        weir_key_variable(name, key.path);
        EXPECT_TRUE(names.insert(name).second) << name;
        Config c;
        const std::string value = "\"\x01", variable = name + ("=" + value);
        EXPECT_EQ(set_variables(c, { variable.c_str() }), WEIR_ECONFIG) << name;
        EXPECT_EQ(std::string(c.error.text).find(std::string(name) + ": " + key.path), 0u)
            << "it is another key: " << c.error.text;
    }
}

TEST(Config, VariablesSetKeysAsTheCommandLineDoes)
{
    Config c;
    ASSERT_EQ(
        set_variables(
            c, { "PATH=/bin", "WEIR_SERVER_PORT=81", "WEIR_MEMORY_HOST=4G", "WEIR_MODEL_ARCH=a",
                 "WEIR_MODEL_ARCH_DIR=/d", "WEIR_KV_POLICY_NAME='h2o'", "WEIR_SERVER_PING=5s",
                 "WEIR_KERNELS_PIN_KV_WRITE=kv_write_ref", "WEIR_SERVER_INSECURE=true" }
        ),
        WEIR_OK
    ) << c.error.text;
    EXPECT_EQ(c->server.port, 81);
    EXPECT_EQ(c->memory.host, int64_t(4) << 30);
    EXPECT_STREQ(c->model.arch, "a");
    EXPECT_STREQ(c->model.arch_dir, "/d");
    EXPECT_STREQ(c->kv.policy.name, "h2o");
    EXPECT_EQ(c->server.ping_ms, 5000);
    EXPECT_STREQ(c->kernels.pin[0].op, "kv_write");
    EXPECT_STREQ(c->kernels.pin[0].kernel, "kv_write_ref");
    EXPECT_TRUE(c->server.insecure);
    ASSERT_EQ(
        set_variables(
            c, { "WEIR_SERVER_PORT=", "WEIR_API_KEY=k", "WEIR_LIBRARY=x", "WEIR_MODEL=y", "WEIR_",
                 "WEIR_SERVERS=2", "weir_server_port=3", "" }
        ),
        WEIR_OK
    ) << c.error.text;
    EXPECT_EQ(c->server.port, 81) << "an empty variable is not set, and others are not keys";
}

TEST(Config, WrongVariablesAreNamed)
{
    const std::string endless = "WEIR_LOG_" + std::string(5000, 'X') + "=1";
    const struct {
        const char *variable, *text;
    } cases[] = {
        { "WEIR_SERVER_PRT=1",
          "WEIR_SERVER_PRT: no key has this variable; the nearest is WEIR_SERVER_PORT" },
        { "WEIR_KV_POLICY_NAMES=full", "the nearest is WEIR_KV_POLICY_NAME" },
        { "WEIR_SERVER_PORT_=1", "the nearest is WEIR_SERVER_PORT" },
        { "WEIR_SERVER_PORT=x", "WEIR_SERVER_PORT: server.port = x: must be an integer" },
        { "WEIR_SERVER_PORT=70000", "WEIR_SERVER_PORT: server.port must lie between 0 and 65535" },
        { "WEIR_KERNELS_PIN=x", "WEIR_KERNELS_PIN: kernels.pin: name the op" },
        { "WEIR_KERNELS_PIN_=x", "not the name of an op" },
        { endless.c_str(), "no key has this variable" },
    };
    for (const auto &k : cases) {
        Config c;
        EXPECT_EQ(set_variables(c, { k.variable }), WEIR_ECONFIG) << k.variable;
        EXPECT_TRUE(holds(c.error.text, k.text)) << c.error.text;
        EXPECT_EQ(printed(*c.value), printed(*Config().value));
    }
    Config c;
    EXPECT_EQ(set_variables(c, { "WEIR_SERVER_API_KEY=hunter\x01" }), WEIR_ECONFIG);
    EXPECT_FALSE(holds(c.error.text, "hunter")) << c.error.text;
}

} // namespace
