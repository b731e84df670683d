// Models on this machine: names instead of paths, lists, removal.
#include "engine/base/memory.h"
#include "tests/unit/hub/get.h"

namespace hub {
namespace {

class Models : public Get {
  protected:
    void SetUp() override
    {
        Get::SetUp();
        (void)setenv("XDG_DATA_HOME", folder_.c_str(), 1);
        models_ = folder_ + "/weir/models";
        options_.models = models_.c_str();
        hub_.files = { { "m-Q4_K_M.gguf", bytes_of(100) },
                       { "m-Q8_0.gguf", bytes_of(200) },
                       { "m-Q2_K.gguf", bytes_of(50) },
                       { "x/s-Q6_K-00001-of-00002.gguf", "a" },
                       { "x/s-Q6_K-00002-of-00002.gguf", "b" } };
    }
    void TearDown() override
    {
        (void)unsetenv("XDG_DATA_HOME");
        Get::TearDown();
    }
    std::string here(const std::string &file) const { return models_ + "/o/n/" + file; }
    /* The path, or "" with the message in error_. */
    std::string resolve(const std::string &name)
    {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s", name.c_str());
        error_ = {};
        status_ = weir_models_resolve(path, sizeof path, &error_);
        return status_ == WEIR_OK ? path : "";
    }
    std::vector<weir_model_entry> list()
    {
        weir_model_entry *entries = nullptr;
        size_t n = 0;
        EXPECT_EQ(weir_models_list(&entries, &n, models_.c_str(), &error_), WEIR_OK) << error_.text;
        std::vector<weir_model_entry> out(entries, entries + n);
        weir_memory_give(entries);
        return out;
    }
    weir_status remove(const std::string &text)
    {
        weir_hub_name name;
        EXPECT_TRUE(weir_hub_name_parse(&name, text.c_str()));
        removed_.clear();
        return weir_models_remove(
            models_.c_str(), &name,
            [](void *user, const char *path) {
                static_cast<Models *>(user)->removed_.push_back(path);
            },
            this, &error_
        );
    }
    std::string models_;
    std::vector<std::string> removed_;
    weir_status status_ = WEIR_OK;
};

TEST_F(Models, NamesBecomePaths)
{
    ASSERT_EQ(get("o/n:Q2_K"), WEIR_OK) << error_.text;
    EXPECT_EQ(resolve("o/n"), here("m-Q2_K.gguf"));
    ASSERT_EQ(get("o/n:Q8_0"), WEIR_OK) << error_.text;
    EXPECT_EQ(resolve("o/n"), here("m-Q8_0.gguf"));
    EXPECT_EQ(resolve("o/n:q2_k"), here("m-Q2_K.gguf"));
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(resolve("o/n"), here("m-Q4_K_M.gguf"));
    EXPECT_EQ(resolve("o/n:m-q8_0.gguf"), here("m-Q8_0.gguf"));
    ASSERT_EQ(get("o/n:Q6_K"), WEIR_OK) << error_.text;
    EXPECT_EQ(resolve("o/n:Q6_K"), here("x/s-Q6_K-00001-of-00002.gguf"));
}

TEST_F(Models, PathsStayAsTheyAre)
{
    EXPECT_EQ(resolve("/no/such/file.gguf"), "/no/such/file.gguf");
    EXPECT_EQ(resolve("file.gguf"), "file.gguf");
    EXPECT_EQ(resolve("a/b/c.gguf"), "a/b/c.gguf");
    EXPECT_EQ(resolve("tests/unit"), "tests/unit") << "something is there";
}

TEST_F(Models, ANameThatIsNotHereSaysHowToGetIt)
{
    EXPECT_EQ(resolve("o/n:Q8_0"), "");
    EXPECT_EQ(status_, WEIR_ENOTFOUND);
    EXPECT_SAYS(error_.text, "`weir get o/n:Q8_0`");
    ASSERT_EQ(get("o/n:Q8_0"), WEIR_OK) << error_.text;
    EXPECT_EQ(resolve("o/n:Q5_K"), "");
    EXPECT_SAYS(error_.text, "`weir get o/n:Q5_K`");
    std::filesystem::resize_file(here("m-Q8_0.gguf"), 10);
    EXPECT_EQ(resolve("o/n"), "");
    EXPECT_SAYS(error_.text, "not complete; `weir get o/n` goes on");
}

TEST_F(Models, WithoutAFolderItSaysSo)
{
    const std::string home = getenv("HOME") != nullptr ? getenv("HOME") : "";
    (void)unsetenv("XDG_DATA_HOME");
    (void)unsetenv("HOME");
    EXPECT_EQ(resolve("o/n"), "");
    EXPECT_EQ(status_, WEIR_ENOTFOUND) << "a path that does not exist, first of all";
    EXPECT_SAYS(error_.text, "o/n: there is no such file");
    char models[PATH_MAX];
    EXPECT_EQ(weir_models_folder(models, &error_), WEIR_ECONFIG);
    EXPECT_SAYS(error_.text, "XDG_DATA_HOME");
    (void)setenv("HOME", folder_.c_str(), 1);
    (void)setenv("XDG_DATA_HOME", "relative", 1);
    ASSERT_EQ(weir_models_folder(models, &error_), WEIR_OK);
    EXPECT_EQ(std::string(models), folder_ + "/.local/share/weir/models");
    (void)setenv("HOME", home.c_str(), 1);
}

TEST_F(Models, ListsSayWhatIsHere)
{
    EXPECT_TRUE(list().empty());
    ASSERT_EQ(get("o/n:Q8_0"), WEIR_OK) << error_.text;
    ASSERT_EQ(get("a/c:Q6_K"), WEIR_OK) << error_.text;
    cancel_after_ = 0;
    hub_.files["m-Q2_K.gguf"] = bytes_of(2000000);
    ASSERT_EQ(get("o/n:Q2_K"), WEIR_ECANCELED);
    std::filesystem::create_directories(models_ + "/o/other/.weir.json");
    std::filesystem::create_directories(models_ + "/.hidden/x");
    const std::vector<weir_model_entry> models = list();
    ASSERT_EQ(models.size(), 3u);
    EXPECT_STREQ(models[0].name, "a/c:Q6_K");
    EXPECT_EQ(models[0].bytes, 2);
    EXPECT_TRUE(models[0].is_complete);
    EXPECT_STREQ(models[1].name, "o/n:Q2_K");
    EXPECT_FALSE(models[1].is_complete);
    EXPECT_EQ(models[1].bytes, 2000000);
    EXPECT_GT(models[1].here, 0);
    EXPECT_LT(models[1].here, 2000000);
    EXPECT_STREQ(models[2].name, "o/n:Q8_0");
    EXPECT_EQ(std::string(models[2].path), here("m-Q8_0.gguf"));
    EXPECT_EQ(std::string(models[2].commit), hub_.commit);
    EXPECT_EQ(strlen(models[2].date), 20u);
    for (const weir_model_entry &model : models)
        if (model.is_complete) EXPECT_EQ(resolve(model.name), model.path);
}

TEST_F(Models, FilesOfTheSameQuantisationAreNamedByFile)
{
    hub_.files = { { "a-Q8_0.gguf", "1" }, { "b-Q8_0.gguf", "2" }, { "c.gguf", "3" } };
    options_.file = "b-Q8_0.gguf";
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    options_.file = nullptr;
    ASSERT_EQ(get("o/n:Q8_0"), WEIR_OK) << error_.text;
    ASSERT_EQ(get("o/n:c.gguf"), WEIR_OK) << error_.text;
    std::string names;
    for (const weir_model_entry &model : list()) {
        names += std::string(model.name) + " ";
        EXPECT_EQ(resolve(model.name), model.path);
    }
    EXPECT_EQ(names, "o/n:a-Q8_0.gguf o/n:b-Q8_0.gguf o/n:c.gguf ");
}

TEST_F(Models, RemovalSaysWhichFilesGo)
{
    ASSERT_EQ(get("o/n:Q8_0"), WEIR_OK) << error_.text;
    ASSERT_EQ(get("o/n:Q6_K"), WEIR_OK) << error_.text;
    std::ofstream(here("mine.txt")) << "x";
    std::ofstream(here("m-Q8_0.gguf.part")) << "x";
    EXPECT_EQ(remove("o/n:Q2_K"), WEIR_ENOTFOUND);
    EXPECT_SAYS(error_.text, "o/n:Q2_K: no such model");
    ASSERT_EQ(remove("o/n:q8_0"), WEIR_OK) << error_.text;
    EXPECT_EQ(
        removed_, (std::vector<std::string>{ here("m-Q8_0.gguf"), here("m-Q8_0.gguf.part") })
    );
    EXPECT_EQ(list().size(), 1u);
    ASSERT_EQ(remove("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(removed_.size(), 2u);
    EXPECT_FALSE(std::filesystem::exists(here("x"))) << "the empty folder of the set";
    EXPECT_FALSE(std::filesystem::exists(here(".weir.json")));
    EXPECT_TRUE(std::filesystem::exists(here("mine.txt"))) << "not ours";
    EXPECT_EQ(remove("o/n"), WEIR_ENOTFOUND);
    EXPECT_EQ(remove("no/such"), WEIR_ENOTFOUND);
    EXPECT_FALSE(std::filesystem::exists(models_ + "/no")) << "asking makes no folder";
}

TEST_F(Models, RemovalKeepsFilesOfOtherModels)
{
    hub_.files = { { "config.json", "{}" }, { "model.safetensors", "12345678" } };
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    options_.file = "config.json";
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(resolve("o/n"), models_ + "/o/n") << "a checkpoint is a folder";
    EXPECT_EQ(resolve("o/n:config.json"), "") << "no model";
    ASSERT_EQ(remove("o/n:config.json"), WEIR_OK) << error_.text;
    EXPECT_TRUE(removed_.empty());
    EXPECT_TRUE(std::filesystem::exists(here("config.json")));
    ASSERT_EQ(remove("o/n"), WEIR_OK) << error_.text;
    EXPECT_FALSE(std::filesystem::exists(models_ + "/o"));
}

TEST_F(Models, ManifestsAreChecked)
{
    const std::string name = R"("version":1,"models":[{"kind":"gguf","files":[{"name":")";
    for (const std::string &bad :
         { std::string("{}"), std::string(R"({"version":2,"models":[]})"),
           std::string(R"({"version":1,"models":[{}]})"),
           std::string(R"({"version":1,"models":[{"kind":"gguf","files":[]}]})"),
           "{" + name + R"(../x","bytes":1}]}]})", "{" + name + R"(a","bytes":-1}]}]})",
           "{" + name + R"(a","bytes":1,"sha256":"zz"}]}]})", "{" + name + R"(a"}]}]})" }) {
        weir_hub_manifest manifest;
        EXPECT_EQ(
            weir_hub_manifest_parse(&manifest, bad.data(), bad.size(), "m", &error_), WEIR_EFORMAT
        ) << bad;
    }
    weir_hub_manifest manifest;
    const std::string good = "{" + name + R"(a-Q8_0.gguf","bytes":1}],"date":"x"}]})";
    ASSERT_EQ(weir_hub_manifest_parse(&manifest, good.data(), good.size(), "m", &error_), WEIR_OK)
        << error_.text;
    EXPECT_STREQ(manifest.models[0].quant, "Q8_0");
    weir_hub_manifest_free(&manifest);
}

} // namespace
} // namespace hub
