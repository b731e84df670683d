// Lines through a thread of their own: in order, never waiting, counted when they are lost.
#include "engine/base/line_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "engine/base/clock.h"

namespace {

std::string read_all(int fd)
{
    std::string text;
    char bytes[4096];
    for (ssize_t n = read(fd, bytes, sizeof bytes); n > 0; n = read(fd, bytes, sizeof bytes))
        text.append(bytes, static_cast<size_t>(n));
    return text;
}

TEST(LineWriter, WritesInOrder)
{
    int ends[2];
    ASSERT_EQ(0, pipe(ends));
    weir_line_writer *const w = weir_line_writer_open(ends[1], "<", ">");
    ASSERT_NE(nullptr, w);
    std::string want;
    for (int i = 0; i < 1000; i++) {
        const std::string line = "line " + std::to_string(i) + "\n";
        weir_line_writer_put(w, line.data(), line.size());
        want += line;
    }
    weir_line_writer_close(w, 5000);
    close(ends[1]);
    EXPECT_EQ(want, read_all(ends[0]));
    close(ends[0]);
}

TEST(LineWriter, APipeThatIsNotReadBlocksNoWriter)
{
    int ends[2];
    ASSERT_EQ(0, pipe(ends));
    weir_line_writer *const w = weir_line_writer_open(ends[1], "<", ">");
    ASSERT_NE(nullptr, w);
    const std::string line = std::string(999, 'a') + "\n";
    /* 2 MB: the pipe and the queue hold a sixth */
    for (int i = 0; i < 2000; i++) weir_line_writer_put(w, line.data(), line.size());
    EXPECT_GT(weir_line_writer_dropped(w), 1000u);
    weir_line_writer_close(w, 0);
    close(ends[1]);
    close(ends[0]);
}

TEST(LineWriter, SaysHowManyWereDropped)
{
    int ends[2];
    ASSERT_EQ(0, pipe(ends));
    weir_line_writer *const w = weir_line_writer_open(ends[1], "lost ", " lines");
    ASSERT_NE(nullptr, w);
    const std::string line = std::string(999, 'a') + "\n";
    for (int i = 0; i < 2000; i++) weir_line_writer_put(w, line.data(), line.size());
    const uint64_t dropped = weir_line_writer_dropped(w);
    std::string text;
    char bytes[4096];
    const size_t whole = (2000 - dropped) * line.size();
    while (text.size() < whole)
        text.append(bytes, static_cast<size_t>(read(ends[0], bytes, sizeof bytes)));
    weir_line_writer_put(w, "last\n", 5);
    weir_line_writer_close(w, 5000);
    close(ends[1]);
    EXPECT_EQ(
        "last\nlost " + std::to_string(dropped) + " lines\n", text.substr(whole) + read_all(ends[0])
    );
    close(ends[0]);
}

TEST(LineWriter, AReaderThatLeftIsCounted)
{
    (void)signal(SIGPIPE, SIG_IGN);
    int ends[2];
    ASSERT_EQ(0, pipe(ends));
    weir_line_writer *const w = weir_line_writer_open(ends[1], "<", ">");
    ASSERT_NE(nullptr, w);
    close(ends[0]);
    weir_line_writer_put(w, "a\nb\n", 4);
    for (int i = 0; i < 1000 && weir_line_writer_dropped(w) < 2; i++) (void)poll(nullptr, 0, 5);
    EXPECT_EQ(2u, weir_line_writer_dropped(w));
    weir_line_writer_close(w, 1000);
    close(ends[1]);
}

TEST(LineWriter, AFullDiskIsCounted)
{
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ASSERT_GE(full, 0);
    weir_line_writer *const w = weir_line_writer_open(full, "<", ">");
    ASSERT_NE(nullptr, w);
    weir_line_writer_put(w, "a\n", 2);
    for (int i = 0; i < 1000 && weir_line_writer_dropped(w) < 1; i++) (void)poll(nullptr, 0, 5);
    EXPECT_GE(weir_line_writer_dropped(w), 1u);
    weir_line_writer_close(w, 1000);
    close(full);
}

/* A regular file that takes `bytes` more, as a disk that fills up would. */
class SmallFile {
  public:
    explicit SmallFile(rlim_t bytes)
    {
        (void)signal(SIGXFSZ, SIG_IGN);
        EXPECT_EQ(0, getrlimit(RLIMIT_FSIZE, &before_));
        EXPECT_GE(fd_, 0);
        (void)unlink(path_.c_str());
        limit(bytes);
    }
    ~SmallFile()
    {
        limit(before_.rlim_cur);
        (void)close(fd_);
    }
    void limit(rlim_t bytes) const
    {
        const struct rlimit now = { bytes, before_.rlim_max };
        EXPECT_EQ(0, setrlimit(RLIMIT_FSIZE, &now));
    }
    void free_the_disk() const { limit(before_.rlim_cur); }
    int fd() const { return fd_; }
    std::string text() const
    {
        EXPECT_EQ(0, lseek(fd_, 0, SEEK_SET));
        return read_all(fd_);
    }

  private:
    std::string path_ = std::string(getenv("TEST_TMPDIR")) + "/small";
    const int flags_ = O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC;
    int fd_ = open(path_.c_str(), flags_, 0600);
    struct rlimit before_ = {};
};

void wait_for_dropped(const weir_line_writer *w, uint64_t n)
{
    for (int i = 0; i < 2000 && weir_line_writer_dropped(w) < n; i++) (void)poll(nullptr, 0, 5);
    ASSERT_EQ(n, weir_line_writer_dropped(w));
}

TEST(LineWriter, CountsLinesAndNotWhatItSaysOfThem)
{
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ASSERT_GE(full, 0);
    weir_line_writer *const w = weir_line_writer_open(full, "<", ">");
    ASSERT_NE(nullptr, w);
    for (uint64_t i = 1; i <= 10; i++) {
        weir_line_writer_put(w, "a\n", 2);
        wait_for_dropped(w, i);
    }
    weir_line_writer_close(w, 1000);
    close(full);
}

TEST(LineWriter, SaysHowManyAFullDiskRefused)
{
    const SmallFile file(0);
    weir_line_writer *const w = weir_line_writer_open(file.fd(), "lost ", " lines");
    ASSERT_NE(nullptr, w);
    for (uint64_t i = 1; i <= 3; i++) {
        weir_line_writer_put(w, "a\n", 2);
        wait_for_dropped(w, i);
    }
    file.free_the_disk();
    weir_line_writer_put(w, "b\n", 2);
    weir_line_writer_close(w, 5000);
    EXPECT_EQ("b\nlost 3 lines\n", file.text());
}

TEST(LineWriter, EndsALineThatWasCutOff)
{
    const SmallFile file(10);
    weir_line_writer *const w = weir_line_writer_open(file.fd(), "lost ", " lines");
    ASSERT_NE(nullptr, w);
    weir_line_writer_put(w, "12345\n1234567\n", 14);
    wait_for_dropped(w, 1);
    file.free_the_disk();
    weir_line_writer_put(w, "b\n", 2);
    weir_line_writer_close(w, 5000);
    EXPECT_EQ("12345\n1234\nb\nlost 1 lines\n", file.text());
}

/* Two logs may go to one file: one write(2) takes whole lines. The socket keeps writes apart. */
TEST(LineWriter, AWriteEndsWithALine)
{
    int ends[2];
    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
    weir_line_writer *const w = weir_line_writer_open(ends[1], "<", ">");
    ASSERT_NE(nullptr, w);
    const std::string line = std::string(999, 'a') + "\n";
    const std::string longest = std::string(9000, 'b') + "\n";
    std::string want, text;
    for (int i = 0; i < 200; i++) {
        weir_line_writer_put(w, line.data(), line.size());
        want += line;
    }
    weir_line_writer_put(w, longest.data(), longest.size());
    want += longest;
    char bytes[4096];
    while (text.size() < want.size()) {
        const ssize_t n = recv(ends[0], bytes, sizeof bytes, 0);
        ASSERT_GT(n, 0);
        text.append(bytes, static_cast<size_t>(n));
        if (text.back() != 'b') /* no write takes a line of 9000 bytes */
            EXPECT_EQ('\n', text.back()) << "a write of " << n << " bytes ends inside a line";
    }
    EXPECT_EQ(want, text);
    weir_line_writer_close(w, 5000);
    close(ends[1]);
    close(ends[0]);
}

} // namespace
