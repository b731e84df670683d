// A root folder with what the kernel shows of a machine.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace machine_root {

class MachineRoot : public testing::Test {
  protected:
    void SetUp() override
    {
        root_ = testing::TempDir() + "/machine." +
                testing::UnitTest::GetInstance()->current_test_info()->name();
        std::filesystem::remove_all(root_);
    }
    void TearDown() override { std::filesystem::remove_all(root_); }
    void write(const std::string &path, const std::string &text) const
    {
        std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
        std::ofstream(root_ + path) << text;
    }
    std::string root_;
};

} // namespace machine_root
