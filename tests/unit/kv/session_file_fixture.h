// A folder for session files, and a disk that fails when told to (session_disk_test.cc).
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/unit/kv/session_content.h"

namespace session_content {

/* How the disk fails, if it does: after `good_bytes` more bytes, with this error. short_calls: the
 * most bytes that a call moves. */
struct Disk {
    int64_t good_bytes = INT64_MAX;
    int error = 0;
    size_t short_calls = 0;
    bool sync_fails = false;
};
extern Disk disk;

class SessionFile : public ::testing::Test {
  protected:
    void SetUp() override
    {
        folder_ = std::string(getenv("TEST_TMPDIR")) + "/files";
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directory(folder_);
        path_ = folder_ + "/a.session";
        disk = Disk();
    }
    void TearDown() override { disk = Disk(); }
    size_t n_files() const
    {
        size_t n = 0;
        for (const auto &entry : std::filesystem::directory_iterator(folder_)) n += entry.exists();
        return n;
    }
    std::string folder_, path_;
    weir_error error_ = {};
};

} // namespace session_content
