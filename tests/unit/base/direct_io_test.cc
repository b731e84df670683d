// Writes past the page cache: only what is aligned, and never twice what the file system refuses.
#include "engine/base/direct_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <string>

namespace {

enum { ALIGNMENT = 4096 };

/* The file system of the test: takes or refuses the flag, and transfers with it. */
bool takes_flag = true, takes_transfer = true;
int n_direct = 0, n_cached = 0; /* transfers that were asked for */
bool is_direct = false;

} // namespace

extern "C" int fcntl(int fd, int command, ...)
{
    va_list more;
    va_start(more, command);
    const int flags = va_arg(more, int);
    va_end(more);
    if (command == F_GETFL) return O_RDWR | (is_direct ? O_DIRECT : 0);
    if (command != F_SETFL) return static_cast<int>(syscall(SYS_fcntl, fd, command, flags));
    if ((flags & O_DIRECT) != 0 && !takes_flag) {
        errno = EINVAL;
        return -1;
    }
    is_direct = (flags & O_DIRECT) != 0;
    return 0;
}

extern "C" ssize_t pwritev(int fd, const struct iovec *pieces, int n, off_t at)
{
    (is_direct ? n_direct : n_cached)++;
    if (is_direct && !takes_transfer) {
        errno = EINVAL;
        return -1;
    }
    if (is_direct) {
        EXPECT_EQ(at % ALIGNMENT, 0);
        for (int i = 0; i < n; i++) {
            EXPECT_EQ(reinterpret_cast<uintptr_t>(pieces[i].iov_base) % ALIGNMENT, 0u);
            EXPECT_EQ(pieces[i].iov_len % ALIGNMENT, 0u);
        }
    }
    return syscall(SYS_pwritev, fd, pieces, n, at, 0);
}

namespace {

class DirectIo : public ::testing::Test {
  protected:
    DirectIo()
    {
        takes_flag = takes_transfer = true;
        n_direct = n_cached = 0;
        is_direct = false;
        path_ = ::testing::TempDir() + "/direct_io";
        fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        EXPECT_GE(fd_, 0);
        weir_direct_io_open(&io_, fd_);
        io_.memory_alignment = io_.offset_alignment = ALIGNMENT;
        memory_ = static_cast<char *>(aligned_alloc(ALIGNMENT, 4 * ALIGNMENT));
        for (int i = 0; i < 4 * ALIGNMENT; i++) memory_[i] = static_cast<char>(i * 31 + i / 251);
    }
    ~DirectIo() override
    {
        close(fd_);
        free(memory_);
    }
    /* Writes memory [from, from + n) and, if `more`, [2 * ALIGNMENT, + more), at `at`. */
    void write(off_t at, size_t from, size_t n, size_t more = 0)
    {
        const struct iovec pieces[] = { { memory_ + from, n }, { memory_ + 2 * ALIGNMENT, more } };
        EXPECT_EQ(
            weir_direct_io_write(&io_, pieces, more > 0 ? 2 : 1, at), static_cast<ssize_t>(n + more)
        );
        std::string bytes(n + more, 0);
        EXPECT_EQ(pread(fd_, bytes.data(), bytes.size(), at), static_cast<ssize_t>(bytes.size()));
        EXPECT_EQ(bytes.substr(0, n), std::string(memory_ + from, n));
        EXPECT_EQ(bytes.substr(n), std::string(memory_ + 2 * ALIGNMENT, more));
    }
    std::string path_;
    int fd_ = -1;
    weir_direct_io io_ = {};
    char *memory_ = nullptr;
};

TEST_F(DirectIo, AlignmentsAreThoseOfTheFileSystem)
{
    struct statx about = {};
    ASSERT_EQ(statx(fd_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &about), 0);
    const bool is_told = (about.stx_mask & STATX_DIOALIGN) != 0;
    weir_direct_io io;
    weir_direct_io_open(&io, fd_);
    EXPECT_EQ(io.memory_alignment, is_told ? about.stx_dio_mem_align : ALIGNMENT);
    EXPECT_EQ(io.offset_alignment, is_told ? about.stx_dio_offset_align : ALIGNMENT);
    EXPECT_FALSE(io.is_direct);
}

TEST_F(DirectIo, WhatIsAlignedIsWrittenDirectly)
{
    write(0, 0, ALIGNMENT);
    write(ALIGNMENT, ALIGNMENT, ALIGNMENT, 2 * ALIGNMENT);
    EXPECT_EQ(n_direct, 2);
    EXPECT_EQ(n_cached, 0);
}

TEST_F(DirectIo, WhatIsNotIsCopiedAndBothAlternate)
{
    write(0, 64, ALIGNMENT);                      /* memory */
    write(0, 0, ALIGNMENT - 64);                  /* length */
    write(512, 0, ALIGNMENT);                     /* offset */
    write(0, 0, ALIGNMENT, 100);                  /* a later piece */
    EXPECT_EQ(n_direct, 0);
    EXPECT_EQ(n_cached, 4);
    write(2 * ALIGNMENT, 0, ALIGNMENT);
    EXPECT_EQ(n_direct, 1);
    write(2 * ALIGNMENT, 0, 10);
    EXPECT_EQ(n_cached, 5);
    EXPECT_FALSE(is_direct);
}

TEST_F(DirectIo, AFlagThatIsRefusedIsNotAskedForAgain)
{
    takes_flag = false;
    write(0, 0, ALIGNMENT);
    takes_flag = true;
    write(0, 0, ALIGNMENT);
    EXPECT_EQ(n_direct, 0);
    EXPECT_EQ(n_cached, 2);
}

TEST_F(DirectIo, ATransferThatIsRefusedIsDoneThroughThePageCache)
{
    takes_transfer = false;
    write(0, 0, ALIGNMENT);
    EXPECT_EQ(n_direct, 1);
    EXPECT_EQ(n_cached, 1);
    write(0, 0, ALIGNMENT);
    EXPECT_EQ(n_direct, 1) << "it was tried again";
}

TEST_F(DirectIo, WithoutAlignmentsEverythingIsCopied)
{
    io_.memory_alignment = io_.offset_alignment = 0;
    write(0, 0, ALIGNMENT);
    EXPECT_EQ(n_direct, 0);
}

} // namespace
