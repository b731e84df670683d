// Whole files: read, mapped, written in place of others.
#include "engine/base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "tests/fault/drive.h"
#include "tests/fault/power_loss.h"

namespace {

using fault::Files;
using fault::files_of;
using fault::make_folder;
using fault::Operation;

const std::string old_bytes(5000, 'o'), new_bytes(9000, 'n');

class WholeFiles : public ::testing::Test {
  protected:
    WholeFiles() : folder_(std::string(getenv("TEST_TMPDIR")) + "/whole"), path_(folder_ + "/f") {}
    void SetUp() override { make_folder(folder_, { { "f", old_bytes } }); }

    /* The old file or the whole new one, and no other file. */
    Operation writing(std::function<weir_status(weir_error *)> run)
    {
        Operation out;
        out.run = run;
        out.prepare = [this] { make_folder(folder_, { { "f", old_bytes } }); };
        out.check = [this](weir_status status) {
            const Files files = files_of(folder_);
            ASSERT_EQ(files.count("f"), 1u);
            EXPECT_TRUE(
                files.at("f") == new_bytes || (status != WEIR_OK && files.at("f") == old_bytes)
            ) << files.at("f").size()
              << " bytes";
            if (status == WEIR_OK) EXPECT_EQ(files.size(), 1u);
        };
        return out;
    }

    std::string folder_, path_;
};

TEST_F(WholeFiles, WritingAtOnce)
{
    const Operation operation = writing([this](weir_error *error) {
        return weir_file_write_atomic(path_.c_str(), new_bytes.data(), new_bytes.size(), error);
    });
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

weir_status write_in_pieces(const std::string &path, weir_error *error)
{
    weir_new_file file;
    WEIR_TRY(weir_new_file_open(&file, path.c_str(), new_bytes.size(), error));
    for (size_t at = 0; at < new_bytes.size();) {
        const ssize_t n = write(file.fd, new_bytes.data() + at, new_bytes.size() - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            weir_new_file_drop(&file);
            return weir_error_set(error, WEIR_EIO, "%s: cannot write", path.c_str());
        }
        at += static_cast<size_t>(n);
    }
    return weir_new_file_keep(&file, error);
}

TEST_F(WholeFiles, WritingInPieces)
{
    const Operation operation =
        writing([this](weir_error *error) { return write_in_pieces(path_, error); });
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

/* The new name may not be on the disk yet: the caller is told, and the file is there. */
TEST_F(WholeFiles, AFolderThatIsNotSyncedIsNoSuccess)
{
    int n_syncs = 0;
    for (int64_t nth = 0;; nth++) {
        make_folder(folder_, { { "f", old_bytes } });
        weir_error error = {};
        const fault_plan plan = { FAULT_FILES, FAULT_ONCE, nth };
        fault_start(&plan);
        const weir_status status = write_in_pieces(path_, &error);
        const fault_report report = fault_stop();
        if (!report.was_hit) break;
        if (strcmp(report.call, "fsync") != 0) continue;
        EXPECT_EQ(status, WEIR_EIO);
        const bool is_folder = n_syncs++ > 0;
        EXPECT_EQ(strstr(error.text, "its folder cannot be synced") != nullptr, is_folder)
            << error.text;
        EXPECT_EQ(files_of(folder_).at("f") == new_bytes, is_folder);
    }
    EXPECT_EQ(n_syncs, 2) << "the file's and the folder's";
}

TEST_F(WholeFiles, APowerLossLeavesTheOldOrTheNew)
{
    for (const bool at_once : { true, false }) {
        make_folder(folder_, { { "f", old_bytes } });
        weir_error error = {};
        const size_t n = fault::every_power_loss(
            folder_,
            [&] {
                ASSERT_EQ(
                    at_once ? weir_file_write_private(
                                  path_.c_str(), new_bytes.data(), new_bytes.size(), &error
                              )
                            : write_in_pieces(path_, &error),
                    WEIR_OK
                ) << error.text;
            },
            [](const Files &files, bool is_over) {
                ASSERT_EQ(files.count("f"), 1u);
                EXPECT_TRUE(files.at("f") == new_bytes || files.at("f") == old_bytes);
                if (is_over) EXPECT_EQ(files.at("f"), new_bytes);
            }
        );
        EXPECT_GT(n, 5u) << "calls were not recorded";
    }
}

TEST_F(WholeFiles, Reading)
{
    std::string read;
    for (const auto function : { weir_file_read, weir_file_read_input }) {
        Operation operation;
        read.reserve(old_bytes.size());
        operation.run = [&](weir_error *error) {
            weir_buffer buffer = {};
            const weir_status status = function(&buffer, path_.c_str(), 1 << 20, error);
            if (status == WEIR_OK) read.assign(buffer.data, buffer.size);
            weir_buffer_free(&buffer);
            return status;
        };
        operation.prepare = [&] { read.clear(); };
        operation.check = [&](weir_status status) {
            if (status == WEIR_OK) EXPECT_EQ(read, old_bytes);
        };
        fault::every_allocation(operation);
        fault::every_file_call(operation);
    }
}

TEST_F(WholeFiles, Mapping)
{
    Operation operation;
    operation.run = [&](weir_error *error) {
        weir_map map = {};
        WEIR_TRY(weir_map_open(&map, path_.c_str(), error));
        const bool is_right = map.size == old_bytes.size() &&
                              memcmp(map.data, old_bytes.data(), old_bytes.size()) == 0;
        weir_map_close(&map);
        return is_right ? WEIR_OK : weir_error_set(error, WEIR_EFORMAT, "other bytes");
    };
    fault::every_file_call(operation);
}

} // namespace
