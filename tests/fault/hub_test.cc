// The folder of models: manifests, names, parts of files and removal, with calls that fail.
#include <gtest/gtest.h>

#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "engine/base/memory.h"
#include "engine/hub/models.h"
#include "engine/hub/part.h"
#include "tests/fault/drive.h"
#include "tests/fault/power_loss.h"

namespace {

class Hub : public testing::Test {
  protected:
    void SetUp() override
    {
        root_ = std::string(getenv("TEST_TMPDIR")) + "/" +
                testing::UnitTest::GetInstance()->current_test_info()->name();
        models_ = root_ + "/weir/models";
        folder_ = models_ + "/o/n";
        std::filesystem::create_directories(folder_);
        (void)setenv("XDG_DATA_HOME", root_.c_str(), 1);
    }
    void put(const std::string &name, const std::string &text) const
    {
        std::filesystem::create_directories(folder_);
        std::ofstream(folder_ + "/" + name) << text;
    }
    std::string text(const std::string &name) const
    {
        std::ostringstream out;
        out << std::ifstream(folder_ + "/" + name).rdbuf();
        return out.str();
    }
    void put_model() const
    {
        put("m-Q8_0.gguf", "12345");
        put(".weir.json", R"({"version": 1, "models": [{"kind": "gguf", "revision": "main", "files":
            [{"name": "m-Q8_0.gguf", "bytes": 5, "sha256": null}]}]})");
    }
    static void drive(const fault::Operation &operation)
    {
        fault::every_allocation(operation);
        fault::every_file_call(operation);
    }
    std::string root_, models_, folder_;
};

TEST_F(Hub, NamesAndLists)
{
    put_model();
    char path[PATH_MAX] = "";
    size_t n = 0;
    fault::Operation operation;
    operation.run = [&](weir_error *error) {
        char name[PATH_MAX] = "o/n";
        weir_model_entry *entries = nullptr;
        weir_status status = weir_models_resolve(name, sizeof name, error);
        if (status == WEIR_OK) status = weir_models_list(&entries, &n, models_.c_str(), error);
        memcpy(path, name, sizeof path);
        weir_memory_give(entries);
        return status;
    };
    operation.check = [&](weir_status status) {
        if (status == WEIR_OK) EXPECT_TRUE(folder_ + "/m-Q8_0.gguf" == path);
    };
    fault::every_allocation(operation);
}

TEST_F(Hub, ManifestsAreTheOldOnesOrTheNew)
{
    fault::Operation operation;
    std::string old;
    operation.prepare = [&] {
        put_model();
        old = text(".weir.json");
    };
    operation.run = [&](weir_error *error) {
        weir_hub_manifest manifest;
        weir_hub_name name;
        EXPECT_TRUE(weir_hub_name_parse(&name, "o/n"));
        weir_status status = weir_hub_manifest_read(&manifest, folder_.c_str(), error);
        if (status == WEIR_OK && manifest.n > 0) {
            (void)snprintf(manifest.models[0].date, sizeof manifest.models[0].date, "new");
            status = weir_hub_manifest_write(&manifest, folder_.c_str(), &name, error);
        }
        weir_hub_manifest_free(&manifest);
        return status;
    };
    operation.check = [&](weir_status status) {
        const std::string now = text(".weir.json");
        EXPECT_TRUE(now == old || now.find("\"new\"") != std::string::npos) << now;
        if (status == WEIR_OK) EXPECT_NE(now.find("\"new\""), std::string::npos) << now;
    };
    drive(operation);
}

TEST_F(Hub, PartsBecomeFilesWhenTheyAreWhole)
{
    fault::Operation operation;
    operation.prepare = [&] {
        std::filesystem::remove_all(folder_);
        put("m.gguf.part", "12345");
    };
    operation.run = [&](weir_error *error) {
        weir_part part;
        weir_sha256 sum = {};
        weir_status status = weir_part_open(&part, folder_.c_str(), "m.gguf", error);
        if (status == WEIR_OK) status = weir_part_resume(&part, 10, nullptr, nullptr, error);
        if (status == WEIR_OK) status = weir_part_write(&part, "67890", 5, error);
        if (status == WEIR_OK) sum = weir_sha256_end(&part.sum);
        if (status == WEIR_OK) status = weir_part_keep(&part, error);
        weir_part_close(&part);
        if (status != WEIR_OK) return status;
        const weir_sha256 want = weir_sha256_of("1234567890", 10);
        EXPECT_EQ(memcmp(&sum, &want, sizeof sum), 0);
        return WEIR_OK;
    };
    operation.check = [&](weir_status status) {
        const std::string now = text("m.gguf");
        EXPECT_TRUE(now.empty() || now == "1234567890") << now;
        if (status == WEIR_OK) EXPECT_EQ(now, "1234567890");
    };
    drive(operation);
}

/* The name appears with all bytes, and stays when it was reported. */
TEST_F(Hub, APowerLossLeavesNoTornFile)
{
    const std::string rest(9000, 'n');
    fault::make_folder(folder_, { { "m.gguf.part", "12345" } });
    const size_t n = fault::every_power_loss(
        folder_,
        [&] {
            weir_part part;
            weir_error error = {};
            ASSERT_EQ(weir_part_open(&part, folder_.c_str(), "m.gguf", &error), WEIR_OK);
            ASSERT_EQ(weir_part_resume(&part, 9005, nullptr, nullptr, &error), WEIR_OK);
            ASSERT_EQ(weir_part_write(&part, rest.data(), rest.size(), &error), WEIR_OK);
            ASSERT_EQ(weir_part_keep(&part, &error), WEIR_OK) << error.text;
        },
        [&](const fault::Files &files, bool is_over) {
            const auto file = files.find("m.gguf");
            if (file != files.end()) EXPECT_EQ(file->second, "12345" + rest);
            if (is_over) EXPECT_NE(file, files.end());
        }
    );
    EXPECT_GT(n, 3u) << "calls were not recorded";
}

TEST_F(Hub, RemovalGoesOnWhereItFailed)
{
    fault::Operation operation;
    operation.prepare = [&] { put_model(); };
    operation.run = [&](weir_error *error) {
        weir_hub_name name;
        EXPECT_TRUE(weir_hub_name_parse(&name, "o/n"));
        return weir_models_remove(models_.c_str(), &name, nullptr, nullptr, error);
    };
    operation.check = [&](weir_status status) {
        if (status == WEIR_OK) EXPECT_FALSE(std::filesystem::exists(folder_ + "/m-Q8_0.gguf"));
        /* A model whose files are gone is still named until all of it is gone. */
        if (status != WEIR_OK && std::filesystem::exists(folder_ + "/m-Q8_0.gguf"))
            EXPECT_TRUE(std::filesystem::exists(folder_ + "/.weir.json"));
    };
    drive(operation);
}

} // namespace
