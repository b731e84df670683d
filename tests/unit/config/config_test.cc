#include "tests/unit/config/values.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/abi/kv_format.h"

TEST(Config, DefaultsAreThoseOfTheTable)
{
    Config c;
    EXPECT_STREQ(c->server.host, "127.0.0.1");
    EXPECT_EQ(c->server.port, 8080);
    EXPECT_EQ(c->server.body_limit, 16 << 20);
    EXPECT_EQ(c->server.header_limit, 32 << 10);
    EXPECT_EQ(c->server.read_timeout_ms, 30000);
    EXPECT_EQ(c->batch.max_sequences, 4);
    EXPECT_EQ(c->sampling.seed, -1);
    EXPECT_EQ(c->sampling.temperature, 1.0);
    EXPECT_STREQ(c->kv.policy.name, "full");
    EXPECT_STREQ(c->kv.format, "f16");
    EXPECT_EQ(weir_config_check(c.value.get(), &c.error), WEIR_OK);
}

TEST(Config, FileSetsEveryType)
{
    Config c;
    ASSERT_EQ(
        c.parse("[model]\npath = 'm.gguf'\n[memory]\nhost = \"6GiB\"\n[sampling]\ntemperature = "
                "0\ntop_p = 0.9\n"
                "[server]\nport = 9000\ninsecure = true\nping = '500ms'\nmetrics_compat = 'vllm'\n"
                "[kernels.pin]\nmatmul = 'onednn.matmul'\nattention = "
                "'ref.attention'\n[kv]\npolicy.name = 'full'\n"),
        WEIR_OK
    ) << c.error.text;
    EXPECT_STREQ(c->model.path, "m.gguf");
    EXPECT_EQ(c->memory.host, int64_t(6) << 30);
    EXPECT_EQ(c->sampling.temperature, 0);
    EXPECT_EQ(c->sampling.top_p, 0.9);
    EXPECT_EQ(c->server.port, 9000);
    EXPECT_TRUE(c->server.insecure);
    EXPECT_EQ(c->server.ping_ms, 500);
    EXPECT_STREQ(c->server.metrics_compat, "vllm");
    EXPECT_STREQ(c->kernels.pin[0].op, "matmul");
    EXPECT_STREQ(c->kernels.pin[1].kernel, "ref.attention");
    EXPECT_STREQ(c->kernels.pin[2].op, "");
}

TEST(Config, SizesTakeOneLetterAsPowersOf1024)
{
    const struct {
        const char *text;
        int64_t bytes;
    } cases[] = { { "64k", 64 << 10 },          { "64K", 64 << 10 },
                  { "512m", 512 << 20 },        { "512M", 512 << 20 },
                  { "4g", int64_t(4) << 30 },   { "4G", int64_t(4) << 30 },
                  { "1t", int64_t(1) << 40 },   { "1T", int64_t(1) << 40 },
                  { "4GiB", int64_t(4) << 30 }, { "4GB", 4000000000 } };
    for (const auto &c : cases) {
        Config config;
        EXPECT_EQ(config.set(std::string("memory.host=") + c.text), WEIR_OK) << config.error.text;
        EXPECT_EQ(config->memory.host, c.bytes) << c.text;
    }
    for (const char *text : { "4", "4x", "4Gi", "4GG", "G", "9999999999T" }) {
        Config config;
        EXPECT_EQ(config.set(std::string("memory.host=") + text), WEIR_ECONFIG) << text;
        EXPECT_EQ(config->memory.host, 0) << text;
    }
}

TEST(Config, TildeIsTheHomeFolderInPathsOnly)
{
    const std::string before = getenv("HOME") != nullptr ? getenv("HOME") : "";
    setenv("HOME", "/home/u", 1);
    Config c;
    ASSERT_EQ(c.parse("[model]\npath = '~/m.gguf'\nname = '~/m'\n[sessions]\ndir = '~'\n"), WEIR_OK)
        << c.error.text;
    EXPECT_STREQ(c->model.path, "/home/u/m.gguf");
    EXPECT_STREQ(c->model.name, "~/m");
    EXPECT_STREQ(c->sessions.dir, "/home/u");
    for (const char *path : { "~u/m", "a/~/m", "/~", "" }) {
        ASSERT_EQ(c.set(std::string("model.path=") + path), WEIR_OK);
        EXPECT_STREQ(c->model.path, path);
    }
    EXPECT_EQ(c.set("model.path=~/" + std::string(4090, 'x')), WEIR_ECONFIG);
    setenv("HOME", "/a\nb", 1);
    EXPECT_EQ(c.set("model.path=~/m"), WEIR_ECONFIG) << "a control character";
    unsetenv("HOME");
    EXPECT_EQ(c.set("model.path=~/m"), WEIR_ECONFIG);
    EXPECT_TRUE(holds(c.error.text, "HOME is not set")) << c.error.text;
    setenv("HOME", before.c_str(), 1);
}

TEST(Config, HelpShowsWholeNumbers)
{
    weir_buffer text = {};
    ASSERT_EQ(weir_config_describe(&text), WEIR_OK);
    EXPECT_TRUE(holds(text.data, "# Integer, -1 to 9007199254740991\n"));
    EXPECT_FALSE(holds(text.data, "e+"));
    weir_buffer_free(&text);
    Config c;
    EXPECT_EQ(c.set("sampling.seed=-2"), WEIR_ECONFIG);
    EXPECT_TRUE(holds(c.error.text, "between -1 and 9007199254740991")) << c.error.text;
}

/* Each with line and column, and nothing of the file is taken. */
TEST(Config, HostileFilesNameLineColumnAndKey)
{
    const struct {
        const char *text, *position, *part;
    } cases[] = {
        { "[server]\nport = 1\nprot = 2\n",
          "c.toml:3:1: ", "unknown key \"server.prot\"; the nearest is \"server.port\"" },
        { "[sever]\nport = 1\n", "c.toml:2:1: ", "\"server.port\"" },
        { "max_sequences = 3\n", "c.toml:1:1: ", "\"batch.max_sequences\"" },
        { "[wrong]\n", "c.toml:1:", "unknown key \"wrong\"" },
        { "[server]\nport = '1'\n",
          "c.toml:2:1: ", "server.port must be an integer, not a string" },
        { "[server]\n  port = 1.5\n",
          "c.toml:2:3: ", "must be an integer, not a number with a fraction" },
        { "[server]\nport = true\n", "c.toml:2:1: ", "must be an integer, not a boolean" },
        { "[server]\nport = [1]\n", "c.toml:2:1: ", "not an array" },
        { "[server]\nport.x = 1\n", "c.toml:2:", "server.port must be an integer, not a table" },
        { "[server]\nport = {}\n", "c.toml:2:1: ", "must be an integer, not a table" },
        { "[server]\nport = 65536\n", "c.toml:2:1: ", "server.port must lie between 0 and 65535" },
        { "[server]\nport = -1\n", "c.toml:2:1: ", "between 0 and 65535" },
        { "[server]\ninsecure = 1\n", "c.toml:2:1: ", "must be true or false, not an integer" },
        { "server = 1\n", "c.toml:1:1: ", "server must be a table of keys, not an integer" },
        { "kv.policy = 'full'\n", "c.toml:1:", "kv.policy must be a table of keys, not a string" },
        { "\"server.port\" = 1\n", "c.toml:1:1: ", "unknown key \"server.port\"" },
        { "[memory]\nhost = -5\n", "c.toml:2:1: ", "must not be negative" },
        { "[memory]\nhost = '-5GiB'\n", "c.toml:2:1: ", "must not be negative" },
        { "[memory]\nhost = 1000\n", "c.toml:2:1: ", "needs a unit" },
        { "[memory]\nhost = '1000'\n", "c.toml:2:1: ", "needs a unit: B, KiB" },
        { "[memory]\nhost = '1e9'\n", "c.toml:2:1: ", "needs a unit" },
        { "[memory]\nhost = '1.5GiB'\n", "c.toml:2:1: ", "whole number" },
        { "[memory]\nhost = '6Gib'\n", "c.toml:2:1: ", "needs a unit" },
        { "[memory]\nhost = '99999999999999999999GiB'\n", "c.toml:2:1: ", "too large" },
        { "[memory]\nhost = '9999999999999TiB'\n", "c.toml:2:1: ", "too large" },
        { "[memory]\nhost = '2000TiB'\n", "c.toml:2:1: ", "between 0B and 1024TiB" },
        { "[server]\nping = 15\n", "c.toml:2:1: ", "needs a unit" },
        { "[server]\nbody_limit = '1B'\n", "c.toml:2:1: ", "between 1KiB and 4GiB" },
        { "[sampling]\ntemperature = nan\n", "c.toml:2:1: ", "finite" },
        { "[sampling]\ntemperature = inf\n", "c.toml:2:1: ", "finite" },
        { "[sampling]\ntop_p = 0\n", "c.toml:2:1: ", "between 1e-06 and 1" },
        { "[kv]\nformat = 'q8'\n", "c.toml:2:1: ",
          "must be one or two (K/V) of f32, f16, bf16, q8_0, q4_0, int8, fp8_e4m3, fp8_e5m2, "
          "kivi2, kivi4, kivi8, turbo2" },
        { "[kv]\nformat = 'f32|f16'\n", "c.toml:2:1: ", "must be one or two (K/V) of f32, f16" },
        { "[kv]\nformat = ''\n", "c.toml:2:1: ", "must be one or two (K/V) of f32, f16" },
        { "[kv]\nformat = 'q8_0/'\n", "c.toml:2:1: ", "must be one or two (K/V) of f32, f16" },
        { "[kv]\nformat = '/q8_0'\n", "c.toml:2:1: ", "must be one or two (K/V) of f32, f16" },
        { "[kv]\nformat = 'f16/f16/f16'\n",
          "c.toml:2:1: ", "must be one or two (K/V) of f32, f16" },
        { "[kv]\nformat = 'one-name-that-is-longer-than-any-there-is/f16'\n",
          "c.toml:2:1: ", "must be one or two (K/V) of f32, f16" },
        { "[kv]\nformat = 16\n", "c.toml:2:1: ", "kv.format must be one or two (K/V) of f32, f16" },
        { "[kv]\nwide_layers = -1\n", "c.toml:2:1: ", "between 0 and 4096" },
        { "[kv.policy]\nbudget = -64\n", "c.toml:2:1: ", "kv.policy.budget" },
        { "[sessions]\nlimit = 0\n", "c.toml:2:1: ", "between 1 and 65536" },
        { "[model]\npath = \"a\\u0000b\"\n", "c.toml:2:1: ", "control character 0x00" },
        { "[model]\npath = \"a\\nb\"\n", "c.toml:2:1: ", "control character 0x0A" },
        { "[kernels]\npin = 'x'\n", "c.toml:2:1: ", "kernels.pin must be a table" },
        { "[kernels.pin]\nmatmul = 1\n",
          "c.toml:2:1: ", "must be a table of op = \"kernel\", not an integer" },
        { "[kernels.pin]\nMatmul = 'x'\n", "c.toml:2:1: ", "not the name of an op" },
        { "[kernels.pin]\nmatmul = ''\n", "c.toml:2:1: ", "not the name of a kernel" },
        { "[server]\nport = 1\n[server]\nhost = 'x'\n", "c.toml:3:", "redefine existing table" },
        { "[server]\nport = 1\nport = 2\n", "c.toml:3:", "redefine" },
    };
    const std::string untouched = printed(*Config().value);
    for (const auto &test : cases) {
        Config c;
        EXPECT_EQ(c.parse(std::string("batch.queue = 5\n") + test.text), WEIR_ECONFIG) << test.text;
        EXPECT_EQ(printed(*c.value), untouched) << test.text;
        Config same;
        EXPECT_EQ(same.parse(test.text), WEIR_ECONFIG) << test.text;
        EXPECT_EQ(std::string(same.error.text).rfind(test.position, 0), 0u)
            << test.text << "-> " << same.error.text;
        EXPECT_TRUE(holds(same.error.text, test.part)) << test.text << "-> " << same.error.text;
    }
}

TEST(Config, EveryKvFormatIsAWordOfTheKey)
{
    Config c;
    for (int k = 0; k < WEIR_KV_FORMAT_COUNT; k++) {
        const std::string name = weir_kv_format_name((weir_kv_format)k);
        EXPECT_EQ(weir_config_set(c.value.get(), "kv.format", name.c_str(), &c.error), WEIR_OK)
            << c.error.text;
        EXPECT_EQ(
            weir_config_set(c.value.get(), "kv.wide_format", (name + "/turbo3").c_str(), &c.error),
            WEIR_OK
        ) << c.error.text;
        EXPECT_EQ(c.value->kv.wide_format, name + "/turbo3");
    }
}

TEST(Config, LongTextsAreRefused)
{
    Config c;
    EXPECT_EQ(
        c.parse("[model]\npath = '" + std::string(WEIR_CONFIG_TEXT - 1, 'a') + "'\n"), WEIR_OK
    );
    EXPECT_EQ(
        c.parse("[model]\npath = '" + std::string(WEIR_CONFIG_TEXT, 'a') + "'\n"), WEIR_ECONFIG
    );
    EXPECT_EQ(c.parse(std::string(300, 'k') + " = 1\n"), WEIR_ECONFIG);
    EXPECT_EQ(c.parse("kernels.pin." + std::string(300, 'k') + " = 'a'\n"), WEIR_ECONFIG);
    EXPECT_EQ(c.set(std::string(5000, 'k') + "=1"), WEIR_ECONFIG);
    EXPECT_EQ(c.set("model.path=" + std::string(WEIR_CONFIG_TEXT, 'a')), WEIR_ECONFIG);
    std::string pins = "[kernels.pin]\n";
    for (int i = 0; i <= WEIR_CONFIG_PINS; i++) pins += "op" + std::to_string(i) + " = 'x'\n";
    EXPECT_EQ(c.parse(pins), WEIR_ECONFIG);
}

TEST(Config, SetTakesValuesWithAndWithoutQuotes)
{
    Config c;
    EXPECT_EQ(c.set("server.port=9001"), WEIR_OK);
    EXPECT_EQ(c->server.port, 9001);
    EXPECT_EQ(c.set(" server.port = 0x10 "), WEIR_OK) << c.error.text;
    EXPECT_EQ(c->server.port, 16);
    EXPECT_EQ(c.set("memory.host=512MB"), WEIR_OK);
    EXPECT_EQ(c->memory.host, 512000000);
    EXPECT_EQ(c.set("memory.host=\"512 MiB\""), WEIR_OK);
    EXPECT_EQ(c->memory.host, 512 << 20);
    EXPECT_EQ(c.set("server.insecure=true"), WEIR_OK);
    EXPECT_TRUE(c->server.insecure);
    EXPECT_EQ(c.set("sampling.temperature=0.5"), WEIR_OK);
    EXPECT_EQ(c->sampling.temperature, 0.5);
    EXPECT_EQ(c.set("model.path=/a=b c.gguf"), WEIR_OK);
    EXPECT_STREQ(c->model.path, "/a=b c.gguf");
    EXPECT_EQ(c.set("model.path='it\\s'"), WEIR_OK);
    EXPECT_STREQ(c->model.path, "it\\s");
    EXPECT_EQ(c.set("model.path=/\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80.gguf"), WEIR_OK)
        << c.error.text;
    EXPECT_EQ(c.set("model.path="), WEIR_OK);
    EXPECT_STREQ(c->model.path, "");
    EXPECT_EQ(c.set("kernels.pin.matmul=omp.matmul.v3"), WEIR_OK);
    EXPECT_EQ(c.set("kernels.pin.matmul=ref.matmul"), WEIR_OK);
    EXPECT_STREQ(c->kernels.pin[0].kernel, "ref.matmul");
    EXPECT_STREQ(c->kernels.pin[1].op, "");
    EXPECT_EQ(c.set("kv.policy.name=full"), WEIR_OK);
}

TEST(Config, SetRefusesNonsense)
{
    Config c;
    const std::string untouched = printed(*c.value);
    const char *const cases[] = { "",
                                  "=",
                                  "server.port",
                                  "server.port=",
                                  "server.port=abc",
                                  "server.port=1 2",
                                  "server.port=1\nserver.host = 'x'",
                                  "server.port=1.0",
                                  "server.port='1'",
                                  "server=1",
                                  "server.=1",
                                  ".port=1",
                                  "kernels.pin=x",
                                  "kernels.pin.=x",
                                  "server.insecure=yes",
                                  "server.insecure=True",
                                  "memory.host=5",
                                  "memory.host=-1GiB",
                                  "kv.policy.budget=-1",
                                  "model.path=\"a",
                                  "model.path=\"a\" b",
                                  "sampling.temperature=1,5",
                                  "server.port={}",
                                  "sampling.top_k=1_",
                                  "model.path=\xff",
                                  "model.path=\xc0\x80",
                                  "model.path=\xed\xa0\x80",
                                  "model.path=a\xe2\x82",
                                  "model.path=\x1b[0m" };
    for (const char *text : cases) EXPECT_EQ(c.set(text), WEIR_ECONFIG) << text;
    EXPECT_EQ(printed(*c.value), untouched);
    EXPECT_EQ(c.set("kv.polcy.name=full"), WEIR_ECONFIG);
    EXPECT_TRUE(holds(c.error.text, "the nearest is \"kv.policy.name\"")) << c.error.text;
    EXPECT_EQ(c.set("threads=4"), WEIR_ECONFIG);
    EXPECT_TRUE(holds(c.error.text, "the nearest is \"kernels.threads\"")) << c.error.text;
}

TEST(Config, CheckSeesRelations)
{
    Config c;
    ASSERT_EQ(c.set("batch.chunk=100"), WEIR_OK);
    EXPECT_EQ(weir_config_check(c.value.get(), &c.error), WEIR_ECONFIG);
    ASSERT_EQ(c.set("batch.chunk=512"), WEIR_OK);
    EXPECT_EQ(weir_config_check(c.value.get(), &c.error), WEIR_OK);
    ASSERT_EQ(c.set("server.api_key=secret"), WEIR_OK);
    ASSERT_EQ(c.set("server.api_key_file=keys.txt"), WEIR_OK);
    EXPECT_EQ(weir_config_check(c.value.get(), &c.error), WEIR_ECONFIG);
}

TEST(Config, PrintedTextReadsBackAndHidesSecrets)
{
    Config c;
    for (const char *text :
         { "model.path=a \"b\" \\c", "memory.host=1536MiB", "server.ping=90s", "sampling.top_p=0.1",
           "kernels.pin.rope=ref.rope", "server.read_timeout=1h", "sampling.min_p=1e-5" })
        ASSERT_EQ(c.set(text), WEIR_OK) << c.error.text;
    const std::string text = printed(*c.value);
    Config again;
    ASSERT_EQ(again.parse(text), WEIR_OK) << again.error.text << "\n" << text;
    EXPECT_EQ(printed(*again.value), text);
    EXPECT_EQ(again->sampling.top_p, 0.1);
    EXPECT_STREQ(again->model.path, "a \"b\" \\c");
    ASSERT_EQ(c.set("server.api_key=hunter2"), WEIR_OK);
    EXPECT_EQ(printed(*c.value).find("hunter2"), std::string::npos);
}

TEST(Config, DescriptionIsAFileOfTheDefaults)
{
    weir_buffer text = {};
    ASSERT_EQ(weir_config_describe(&text), WEIR_OK);
    Config c;
    ASSERT_EQ(c.set("server.port=1"), WEIR_OK);
    ASSERT_EQ(c.parse(text.data), WEIR_OK) << c.error.text;
    EXPECT_EQ(printed(*c.value), printed(*Config().value));
    size_t n_keys = 0;
    const weir_key *const keys = weir_keys(&n_keys);
    for (size_t i = 0; i < n_keys; i++)
        EXPECT_TRUE(holds(text.data, keys[i].help) || std::string(keys[i].help).size() > 98)
            << keys[i].path;
    std::string line;
    for (const char *at = text.data; *at != '\0'; at++) {
        if (*at != '\n') {
            line += *at;
            continue;
        }
        EXPECT_LE(line.size(), 100u) << line;
        line.clear();
    }
    weir_buffer_free(&text);
}

TEST(Config, TableIsWellFormed)
{
    size_t n_keys = 0;
    const weir_key *const keys = weir_keys(&n_keys);
    std::string section;
    for (size_t i = 0; i < n_keys; i++) {
        if (keys[i].type == WEIR_KEY_SECTION) {
            section = keys[i].path;
            continue;
        }
        EXPECT_EQ(std::string(keys[i].path).rfind('.'), section.size()) << keys[i].path;
        EXPECT_EQ(std::string(keys[i].path).rfind(section + ".", 0), 0u) << keys[i].path;
        EXPECT_EQ(
            keys[i].type == WEIR_KEY_CHOICE || keys[i].type == WEIR_KEY_PAIR,
            keys[i].allowed[0] != '\0'
        ) << keys[i].path;
        EXPECT_STREQ(weir_key_nearest(keys[i].path), keys[i].path);
        const char *member = nullptr;
        EXPECT_EQ(weir_key_find(keys[i].path, &member), &keys[i]);
    }
}

TEST(Config, LoadLooksInTheFolderThenInTheShippedOnes)
{
    namespace fs = std::filesystem;
    const fs::path root =
        fs::temp_directory_path() / ("weir_config_test." + std::to_string(getpid()));
    const std::string caller = root / "caller", shipped = root / "shipped";
    fs::create_directories(caller);
    fs::create_directories(shipped + "/folder.toml");
    std::ofstream(caller + "/a.toml") << "[server]\nport = 1\n";
    std::ofstream(shipped + "/a.toml") << "[server]\nport = 2\n";
    std::ofstream(shipped + "/b.toml") << "[server]\nport = 3\n";
    std::ofstream(shipped + "/bad.toml") << "[server]\nport = x\n";
    std::ofstream(shipped + "/big.toml") << std::string(2 << 20, '\n');
    const char *folders[] = { shipped.c_str() };
    const weir_config_search search = { caller.c_str(), folders, 1 };
    Config c;
    const auto load = [&](const std::string &name) {
        return weir_config_load(c.value.get(), name.c_str(), &search, &c.error);
    };
    EXPECT_EQ(load("a"), WEIR_OK) << c.error.text;
    EXPECT_EQ(c->server.port, 1);
    EXPECT_EQ(load("b.toml"), WEIR_OK) << c.error.text;
    EXPECT_EQ(c->server.port, 3);
    EXPECT_EQ(load(shipped + "/a"), WEIR_OK) << c.error.text;
    EXPECT_EQ(c->server.port, 2);
    EXPECT_EQ(load("absent"), WEIR_ENOTFOUND);
    EXPECT_TRUE(holds(c.error.text, caller) && holds(c.error.text, shipped)) << c.error.text;
    EXPECT_EQ(load("folder"), WEIR_ENOTFOUND);
    EXPECT_EQ(load(""), WEIR_ECONFIG);
    EXPECT_EQ(load("bad"), WEIR_ECONFIG);
    EXPECT_TRUE(holds(c.error.text, shipped + "/bad.toml:2:")) << c.error.text;
    EXPECT_EQ(load("big"), WEIR_ECONFIG);
    EXPECT_TRUE(holds(c.error.text, "1 MiB")) << c.error.text;
    fs::remove_all(root);
}

/* Every file that is shipped loads, alone and without a warning. */
TEST(Config, ShippedFilesLoad)
{
    size_t n = 0;
    const weir_config_search search = {};
    for (const auto &entry : std::filesystem::directory_iterator("configs")) {
        if (entry.path().extension() != ".toml") continue;
        Config c;
        EXPECT_EQ(weir_config_load(c.value.get(), entry.path().c_str(), &search, &c.error), WEIR_OK)
            << c.error.text;
        EXPECT_EQ(weir_config_check(c.value.get(), &c.error), WEIR_OK) << c.error.text;
        n++;
    }
    EXPECT_GT(n, 0u);
    Config c;
    ASSERT_EQ(weir_config_load(c.value.get(), "configs/qwen35", &search, &c.error), WEIR_OK)
        << c.error.text;
    /* The default run is the default configuration */
    EXPECT_EQ(printed(*c.value), printed(*Config().value));
}
