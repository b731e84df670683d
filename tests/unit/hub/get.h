// Downloads from a fake hub to a folder of the test's own.
#pragma once
#include "engine/hub/hub.h"
#include "tests/unit/hub/fake_hub.h"

#define EXPECT_SAYS(text, part)                                                                    \
    EXPECT_NE(std::string(text).find(part), std::string::npos) << "said: " << (text)

namespace hub {

class Get : public testing::Test {
  protected:
    void SetUp() override
    {
        folder_ = testing::TempDir() + "/" +
                  testing::UnitTest::GetInstance()->current_test_info()->name();
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
        url_ = hub_.url();
        options_.models = folder_.c_str();
        options_.agent = "weir/test";
        options_.wait_ms = 1;
        options_.is_cancelled = [](void *user) {
            return static_cast<Get *>(user)->is_cancelled_.load();
        };
        options_.progress = [](void *user, int64_t done, int64_t total) {
            static_cast<Get *>(user)->note(done, total);
        };
        options_.warn = [](void *user, const char *text) {
            static_cast<Get *>(user)->warnings_.push_back(text);
        };
        options_.user = this;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    /* Gets a model; its name as on the command line. */
    weir_status get(const std::string &name)
    {
        if (options_.endpoint == nullptr) options_.endpoint = url_.c_str();
        EXPECT_TRUE(weir_hub_name_parse(&options_.name, name.c_str()));
        error_ = {};
        result_ = std::make_unique<weir_hub_result>();
        return weir_hub_get(&options_, result_.get(), &error_);
    }
    std::string at(const std::string &file) const { return folder_ + "/o/n/" + file; }
    bool is_there(const std::string &file) const { return std::filesystem::exists(at(file)); }
    std::string text(const std::string &file) const
    {
        std::ostringstream out;
        out << std::ifstream(at(file), std::ios::binary).rdbuf();
        return out.str();
    }
    void put(const std::string &file, const std::string &bytes) const
    {
        std::filesystem::create_directories(std::filesystem::path(at(file)).parent_path());
        std::ofstream(at(file), std::ios::binary) << bytes;
    }
    void note(int64_t done, int64_t total)
    {
        EXPECT_GE(done, 0);
        EXPECT_LE(done, total);
        done_ = done;
        if (cancel_after_ >= 0 && done >= cancel_after_) is_cancelled_ = true;
    }

    std::string folder_, url_;
    weir_hub_options options_ = {};
    std::unique_ptr<weir_hub_result> result_;
    weir_error error_ = {};
    std::vector<std::string> warnings_;
    int64_t done_ = 0, cancel_after_ = -1;
    std::atomic<bool> is_cancelled_{ false };
    FakeHub hub_;
};

} // namespace hub
