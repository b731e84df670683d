// Lines through a thread of their own: in order, never waiting, counted when they are lost.
#include "engine/base/line_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "engine/base/clock.h"

namespace {

std::string read_all(int fd)
{
    std::string text;
    char        bytes[4096];
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

TEST(LineWriter, ANeverReadPipeHoldsNobodyUp)
{
    int ends[2];
    ASSERT_EQ(0, pipe(ends));
    weir_line_writer *const w = weir_line_writer_open(ends[1], "<", ">");
    ASSERT_NE(nullptr, w);
    const std::string line(999, 'a');
    for (int i = 0; i < 2000; i++)
        weir_line_writer_put(w, (line + "\n").data(),
                             line.size() + 1); /* 2 MB: the pipe and the queue hold a sixth */
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
    std::string    text;
    char           bytes[4096];
    const size_t   whole = (2000 - dropped) * line.size();
    while (text.size() < whole)
        text.append(bytes, static_cast<size_t>(read(ends[0], bytes, sizeof bytes)));
    weir_line_writer_put(w, "last\n", 5);
    weir_line_writer_close(w, 5000);
    close(ends[1]);
    EXPECT_EQ("last\nlost " + std::to_string(dropped) + " lines\n",
              text.substr(whole) + read_all(ends[0]));
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

} // namespace
