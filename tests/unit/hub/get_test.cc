// Downloads that end well: whole, in pieces, after cuts, from parts, by redirects and pages.
#include "tests/unit/hub/get.h"

namespace hub {
namespace {

TEST_F(Get, AFileArrivesWithItsSum)
{
    const std::string bytes = bytes_of(300000);
    hub_.files = { { "m-Q4_K_M.gguf", bytes_of(10) }, { "m-Q8_0.gguf", bytes } };
    ASSERT_EQ(get("o/n:q8_0"), WEIR_OK) << error_.text;
    EXPECT_EQ(std::string(result_->path), at("m-Q8_0.gguf"));
    EXPECT_EQ(text("m-Q8_0.gguf"), bytes);
    EXPECT_FALSE(is_there("m-Q8_0.gguf.part"));
    EXPECT_FALSE(is_there("m-Q4_K_M.gguf"));
    EXPECT_EQ(result_->n_downloaded, 1u);
    EXPECT_EQ(done_, 300000);
    const std::string manifest = text(".weir.json");
    for (const std::string &part : { sum_of(bytes), hub_.commit, std::string("\"o/n\""),
                                     std::string("\"Q8_0\""), std::string("\"main\"") })
        EXPECT_SAYS(manifest, part);
    EXPECT_EQ(hub_.count("/resolve/" + hub_.commit + "/"), 1u) << "files are those of one commit";
    EXPECT_EQ(hub_.count("User-Agent: weir/test"), hub_.requests().size());
}

TEST_F(Get, WhatIsHereIsNotDownloadedAgain)
{
    hub_.files = { { "config.json", "{}" }, { "model.safetensors", bytes_of(5000) } };
    hub_.small = { "config.json" };
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(result_->n_downloaded, 2u);
    EXPECT_EQ(std::string(result_->path), folder_ + "/o/n");
    hub_.forget();
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(result_->n_downloaded, 0u);
    EXPECT_EQ(result_->n_files, 2u);
    EXPECT_EQ(hub_.count("/resolve/"), 0u);
    hub_.commit =
        std::string(40, 'b'); /* a new commit: only large files are known to be the same */
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(result_->n_downloaded, 1u);
    EXPECT_SAYS(text(".weir.json"), hub_.commit);
}

TEST_F(Get, AFileThatNoManifestKnowsIsRead)
{
    const std::string bytes = bytes_of(1000);
    hub_.files = { { "a-Q8_0.gguf", bytes } };
    put("a-Q8_0.gguf", bytes);
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(result_->n_downloaded, 0u);
    std::filesystem::remove(at(".weir.json"));
    put("a-Q8_0.gguf", bytes_of(1000, 2)); /* of the right size, and another one */
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(result_->n_downloaded, 1u);
    EXPECT_EQ(text("a-Q8_0.gguf"), bytes);
}

TEST_F(Get, ANewVersionReplacesTheOld)
{
    hub_.files = { { "a-Q8_0.gguf", bytes_of(1000) } };
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    hub_.files["a-Q8_0.gguf"] = bytes_of(1000, 2);
    hub_.commit = std::string(40, 'b');
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(text("a-Q8_0.gguf"), bytes_of(1000, 2));
}

TEST_F(Get, ACutIsResumedByRange)
{
    const std::string bytes = bytes_of(200000);
    hub_.files = { { "m-Q8_0.gguf", bytes } };
    std::atomic<int> n{ 0 };
    hub_.hook = [&](const std::string &path, const std::string &, Reply *reply) {
        if (path.find("/resolve/") != std::string::npos && n++ < 2) reply->sent = 70000;
    };
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(text("m-Q8_0.gguf"), bytes);
    ASSERT_EQ(warnings_.size(), 2u);
    EXPECT_SAYS(warnings_[0], "the connection failed");
    EXPECT_SAYS(warnings_[0], "trying again in 0.001 s");
    EXPECT_EQ(hub_.count("Range: bytes=70000-"), 1u);
    EXPECT_EQ(hub_.count("Range: bytes=140000-"), 1u);
}

TEST_F(Get, AnInterruptedDownloadGoesOn)
{
    const std::string bytes = bytes_of(3000000);
    hub_.files = { { "m-Q8_0.gguf", bytes } };
    cancel_after_ = 1000000;
    ASSERT_EQ(get("o/n"), WEIR_ECANCELED);
    EXPECT_SAYS(error_.text, "the same command goes on");
    const auto had = std::filesystem::file_size(at("m-Q8_0.gguf.part"));
    EXPECT_GE(had, 1000000u);
    EXPECT_LT(had, bytes.size());
    EXPECT_FALSE(is_there("m-Q8_0.gguf"));
    cancel_after_ = -1;
    is_cancelled_ = false;
    hub_.forget();
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(text("m-Q8_0.gguf"), bytes);
    EXPECT_EQ(hub_.count("Range: bytes=" + std::to_string(had) + "-"), 1u);
}

TEST_F(Get, AHubThatSendsNoPartsIsReadFromTheStart)
{
    const std::string bytes = bytes_of(1000);
    hub_.files = { { "m-Q8_0.gguf", bytes } };
    hub_.has_parts = false;
    put("m-Q8_0.gguf.part", bytes.substr(0, 400));
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(text("m-Q8_0.gguf"), bytes);
}

TEST_F(Get, APartOfAnotherFileIsDownloadedAgain)
{
    const std::string bytes = bytes_of(1000);
    hub_.files = { { "m-Q8_0.gguf", bytes } };
    put("m-Q8_0.gguf.part", bytes_of(400, 9));
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(text("m-Q8_0.gguf"), bytes);
    EXPECT_EQ(hub_.count("/resolve/"), 2u);
    std::filesystem::remove(at("m-Q8_0.gguf"));
    put("m-Q8_0.gguf.part", bytes_of(1001)); /* longer than the file */
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(text("m-Q8_0.gguf"), bytes);
    std::filesystem::remove(at("m-Q8_0.gguf"));
    put("m-Q8_0.gguf.part", bytes); /* all of it: nothing is asked for */
    hub_.forget();
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(hub_.count("/resolve/"), 0u);
    EXPECT_EQ(text("m-Q8_0.gguf"), bytes);
}

TEST_F(Get, APartWithoutASumIsNotTrusted)
{
    hub_.files = { { "config.json", "{\"a\": 1}" }, { "model.safetensors", bytes_of(100) } };
    hub_.small = { "config.json" };
    put("config.json.part", "{\"b\"");
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(text("config.json"), "{\"a\": 1}");
    std::filesystem::remove(at("config.json"));
    put("config.json.part", "{\"b\": 2}"); /* as long as the file */
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(text("config.json"), "{\"a\": 1}");
    EXPECT_EQ(hub_.count("Range:"), 0u);
}

TEST_F(Get, ABusyHubIsAskedAgain)
{
    hub_.files = { { "m-Q8_0.gguf", bytes_of(1000) } };
    std::atomic<int> n{ 0 };
    hub_.hook = [&](const std::string &, const std::string &, Reply *reply) {
        const int statuses[] = { 503, 200, 429, 200, 500, 502, 200 };
        const int i = n++;
        if (i < 7 && statuses[i] != 200) *reply = { statuses[i], "", "busy", -1, -1 };
    };
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(n, 7);
    EXPECT_EQ(text("m-Q8_0.gguf"), bytes_of(1000));
}

TEST_F(Get, ListsHavePages)
{
    for (int i = 0; i < 25; i++) hub_.files["a" + std::to_string(100 + i) + ".bin"] = "x";
    hub_.files["z-Q8_0.gguf"] = bytes_of(50);
    hub_.page = 4;
    ASSERT_EQ(get("o/n:Q8_0"), WEIR_OK) << error_.text;
    EXPECT_EQ(hub_.count("/tree/"), 7u);
    EXPECT_EQ(hub_.count("elsewhere"), 0u) << "the host of a link is not followed";
}

TEST_F(Get, ATokenGoesToTheHubOnly)
{
    FakeHub store; /* another port: another origin */
    const std::string bytes = bytes_of(5000);
    hub_.files = store.files = { { "m-Q8_0.gguf", bytes } };
    hub_.redirect_to = store.url();
    options_.token = "hf_secret";
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(text("m-Q8_0.gguf"), bytes);
    EXPECT_EQ(hub_.count("Authorization: Bearer hf_secret"), hub_.requests().size());
    EXPECT_EQ(store.requests().size(), 1u);
    EXPECT_EQ(store.count("Authorization"), 0u);
    EXPECT_EQ(store.count("hf_secret"), 0u);
}

TEST_F(Get, ARedirectToTheHubItselfKeepsTheToken)
{
    hub_.files = { { "m-Q8_0.gguf", bytes_of(5000) } };
    hub_.hook = [&](const std::string &path, const std::string &, Reply *reply) {
        if (path.find("/resolve/") == std::string::npos || path.find("moved") != std::string::npos)
            return;
        *reply = { 307, "Location: /moved/resolve/x/m-Q8_0.gguf\r\n", "", -1, -1 };
    };
    options_.token = "hf_secret";
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(hub_.count("Authorization: Bearer hf_secret"), hub_.requests().size());
}

TEST_F(Get, AHubWithoutRevisionsSaysTheCommitWithTheFile)
{
    hub_.files = { { "m-Q8_0.gguf", bytes_of(100) } };
    hub_.hook = [](const std::string &path, const std::string &, Reply *reply) {
        if (path.find("/revision/") != std::string::npos) *reply = { 404, "", "", -1, -1 };
    };
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(hub_.count("/resolve/main/"), 1u);
    EXPECT_SAYS(text(".weir.json"), hub_.commit);
}

TEST_F(Get, RevisionsFilesAndFoldersAreAskedForAsTheyAre)
{
    hub_.files = { { "sub dir/m-Q8_0.gguf", bytes_of(100) } };
    hub_.commit = std::string(40, '0').replace(0, 1, "g"); /* none: the revision stays */
    options_.revision = "refs/pr/7";
    options_.file = "sub dir/m-Q8_0.gguf";
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(hub_.count("/o/n/resolve/refs%2Fpr%2F7/sub%20dir/m-Q8_0.gguf"), 1u);
    EXPECT_EQ(text("sub dir/m-Q8_0.gguf"), bytes_of(100));
}

TEST_F(Get, TheAddressOfAHubMayEndInASlash)
{
    const std::string url = hub_.url() + "//";
    hub_.files = { { "m-Q8_0.gguf", bytes_of(10) } };
    options_.endpoint = url.c_str();
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(hub_.count("GET /api/models/o/n/tree/"), 1u);
    EXPECT_EQ(hub_.count("GET /o/n/resolve/"), 1u);
}

TEST_F(Get, EmptyFilesAreFiles)
{
    hub_.files = { { "model.safetensors", "" }, { "config.json", "" } };
    hub_.small = { "config.json" };
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_TRUE(is_there("model.safetensors"));
    EXPECT_TRUE(is_there("config.json"));
}

} // namespace
} // namespace hub
