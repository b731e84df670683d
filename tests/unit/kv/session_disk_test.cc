// Session files on a full or failing disk, and those of a writer that is killed.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>

#include "engine/session/file/session_file.h"
#include "tests/unit/kv/session_file_fixture.h"

using namespace session_content;

Disk session_content::disk;

namespace {

ssize_t limited(
    const struct iovec *pieces, int n, ssize_t (*real)(int, const struct iovec *, int, off_t),
    int fd, off_t at
)
{
    if (disk.error != 0 && disk.good_bytes <= 0) {
        errno = disk.error;
        return -1;
    }
    struct iovec first = pieces[0];
    if (disk.short_calls > 0 && first.iov_len > disk.short_calls) first.iov_len = disk.short_calls;
    const bool is_short = disk.short_calls > 0 || disk.error != 0;
    const ssize_t moved = is_short ? real(fd, &first, 1, at) : real(fd, pieces, n, at);
    if (moved > 0) disk.good_bytes -= moved;
    return moved;
}

} // namespace

/* The process's calls come here first. */
extern "C" ssize_t preadv(int fd, const struct iovec *pieces, int n, off_t at)
{
    static const auto real = reinterpret_cast<ssize_t (*)(int, const struct iovec *, int, off_t)>(
        dlsym(RTLD_NEXT, "preadv")
    );
    return limited(pieces, n, real, fd, at);
}
extern "C" ssize_t pwritev(int fd, const struct iovec *pieces, int n, off_t at)
{
    static const auto real = reinterpret_cast<ssize_t (*)(int, const struct iovec *, int, off_t)>(
        dlsym(RTLD_NEXT, "pwritev")
    );
    return limited(pieces, n, real, fd, at);
}
extern "C" int fsync(int fd)
{
    static const auto real = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"));
    if (disk.sync_fails) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

namespace {

// Wherever a disk begins to fail, the old file stays and nothing else.
TEST_F(SessionFile, AFailingDiskLeavesTheOldFile)
{
    const Content old(130, 2, 1), fresh(130, 2, 2);
    ASSERT_EQ(old.write(path_, &error_), WEIR_OK);
    const size_t size = std::filesystem::file_size(path_);
    for (const int reason : { ENOSPC, EIO, EDQUOT }) {
        for (size_t at = 0; at < size; at += 1001) {
            disk = { (int64_t)at, reason, 500, false };
            ASSERT_EQ(fresh.write(path_, &error_), WEIR_EIO) << at;
            ASSERT_NE(strstr(error_.text, strerror(reason)), nullptr) << error_.text;
        }
    }
    disk = Disk();
    disk.sync_fails = true;
    EXPECT_EQ(fresh.write(path_, &error_), WEIR_EIO);
    disk = Disk();
    EXPECT_EQ(read_all(path_, &error_, &old), WEIR_OK) << error_.text;
    EXPECT_EQ(n_files(), 1u);
}

TEST_F(SessionFile, AFullDiskIsFoundBeforeAnythingIsWritten)
{
    const Content content(130, 2, 1);
    const pid_t child = fork();
    if (child == 0) { /* a file may have 20000 bytes: the kernel says so when they are reserved */
        const struct rlimit limit = { 20000, 20000 };
        (void)signal(SIGXFSZ, SIG_IGN);
        weir_error error = {};
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
        _exit(
            content.write(path_, &error) == WEIR_EIO && strstr(error.text, "reserve") != nullptr ? 0
                                                                                                 : 1
        );
    }
    int how = 0;
    ASSERT_EQ(waitpid(child, &how, 0), child);
    EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0) << how;
    EXPECT_EQ(n_files(), 0u);
}

TEST_F(SessionFile, ReadErrorsAreSaid)
{
    const Content content(130, 2, 1);
    ASSERT_EQ(content.write(path_, &error_), WEIR_OK);
    const size_t size = std::filesystem::file_size(path_);
    for (size_t at = 0; at < size; at += 1001) {
        disk = { (int64_t)at, EIO, 500, false };
        ASSERT_EQ(read_all(path_, &error_), WEIR_EIO) << at;
        ASSERT_NE(strstr(error_.text, strerror(EIO)), nullptr) << error_.text;
    }
}

TEST_F(SessionFile, UnwritableFoldersAreNamed)
{
    const Content content(70, 0, 1);
    EXPECT_EQ(content.write(folder_ + "/none/a.session", &error_), WEIR_EIO);
    EXPECT_NE(strstr(error_.text, "none/a.session"), nullptr) << error_.text;
    std::filesystem::create_directory(path_);
    EXPECT_EQ(content.write(path_, &error_), WEIR_EIO);
    EXPECT_EQ(read_all(path_, &error_), WEIR_EIO);
    EXPECT_EQ(read_all(folder_ + "/none.session", &error_), WEIR_ENOTFOUND);
}

/* Writes the second and the first sequence in turns, n times, and waits to be killed. Says each
 * one. */
[[noreturn]] void write_in_turns(
    const Content contents[2], const std::string &path, int n, int said
)
{
    weir_error error = {};
    for (int i = 0; i < n; i++)
        if (contents[(i + 1) % 2].write(path, &error) != WEIR_OK || write(said, "w", 1) != 1)
            _exit(1);
    for (;;) pause();
}

// kill -9 at any moment of a writer that alternates between two sequences, or after one or two
// files: the file is always one of them.
TEST_F(SessionFile, AKilledWriterLeavesTheOldOrTheNewFile)
{
    const Content contents[2] = { Content(3000, 4, 1), Content(2000, 4, 2) };
    std::mt19937 random(5);
    ASSERT_EQ(contents[0].write(path_, &error_), WEIR_OK);
    bool saw[2] = { false, false };
    for (int round = 0; round < 60; round++) {
        const bool is_waited = round % 4 == 0;
        const int n = is_waited ? 1 + round / 4 % 2 : 1 << 20;
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        const pid_t child = fork();
        if (child == 0) write_in_turns(contents, path_, n, ends[1]);
        char said = 0;
        for (int i = 0; is_waited && i < n; i++) ASSERT_EQ(read(ends[0], &said, 1), 1);
        if (!is_waited) usleep(random() % 20000);
        ASSERT_EQ(kill(child, SIGKILL), 0);
        int how = 0;
        ASSERT_EQ(waitpid(child, &how, 0), child);
        ASSERT_TRUE(WIFSIGNALED(how)) << "the writer failed";
        for (const int fd : ends) close(fd);
        weir_session_reader *reader = nullptr;
        ASSERT_EQ(weir_session_open(&reader, path_.c_str(), &error_), WEIR_OK) << error_.text;
        const bool is_second = weir_session_header_of(reader)->n_tokens == 2000;
        weir_session_close(reader);
        ASSERT_EQ(read_all(path_, &error_, &contents[is_second]), WEIR_OK) << error_.text;
        if (is_waited) EXPECT_EQ(is_second, n % 2 == 1) << "after " << n << " files";
        saw[is_second] = true;
    }
    EXPECT_TRUE(saw[0] && saw[1]);
}

} // namespace
