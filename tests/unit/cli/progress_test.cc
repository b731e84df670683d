/* Progress on a pseudo-terminal and on a pipe, with a clock of the test's own. */
#include "engine/cli/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <string>

namespace {

constexpr int64_t second = 1000000000;

/* What was written since the last time. */
std::string taken(int fd)
{
    std::string out;
    char bytes[512];
    for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) > 0;)
        out.append(bytes, static_cast<size_t>(n));
    return out;
}

class Terminal : public testing::Test {
  protected:
    void SetUp() override
    {
        master_ = posix_openpt(O_RDWR | O_NOCTTY);
        ASSERT_GE(master_, 0);
        ASSERT_EQ(grantpt(master_), 0);
        ASSERT_EQ(unlockpt(master_), 0);
        slave_ = open(ptsname(master_), O_RDWR | O_NOCTTY);
        ASSERT_GE(slave_, 0);
        termios raw;
        ASSERT_EQ(tcgetattr(slave_, &raw), 0);
        cfmakeraw(&raw);
        ASSERT_EQ(tcsetattr(slave_, TCSANOW, &raw), 0);
        ASSERT_EQ(fcntl(master_, F_SETFL, O_NONBLOCK), 0);
        p_.fd = slave_;
    }
    void TearDown() override
    {
        close(slave_);
        close(master_);
    }
    int master_ = -1, slave_ = -1;
    weir_progress_line p_ = {};
};

TEST_F(Terminal, OneLineIsRewrittenInPlaceAndErased)
{
    weir_progress_start(&p_, "scoring", "windows", 200, 0);
    weir_progress_show(&p_, 1, second / 10);
    EXPECT_EQ(taken(master_), "") << "short work shows nothing";
    weir_progress_show(&p_, 20, second);
    EXPECT_EQ(taken(master_), "\rscoring: 20 of 200 windows, 20.0 windows/s, 0:09 left\033[K");
    weir_progress_show(&p_, 21, second + second / 10);
    EXPECT_EQ(taken(master_), "") << "at most five times a second";
    weir_progress_show(&p_, 100, 3 * second);
    EXPECT_EQ(taken(master_), "\rscoring: 100 of 200 windows, 33.3 windows/s, 0:03 left\033[K");
    weir_progress_hide(&p_);
    EXPECT_EQ(taken(master_), "\r\033[K");
    weir_progress_hide(&p_);
    EXPECT_EQ(taken(master_), "") << "erased once";
}

TEST_F(Terminal, WithoutATotalTheTimeIsShown)
{
    weir_progress_start(&p_, "reading the prompt", "", 0, 0);
    weir_progress_show(&p_, 0, 3723 * second);
    EXPECT_EQ(taken(master_), "\rreading the prompt, 1:02:03\033[K");
}

TEST_F(Terminal, NothingIsDoneYet)
{
    weir_progress_start(&p_, "scoring", "windows", 3, 0);
    weir_progress_show(&p_, 0, second);
    EXPECT_EQ(taken(master_), "\rscoring: 0 of 3 windows\033[K");
    weir_progress_show(&p_, 9, 2 * second);
    EXPECT_EQ(taken(master_), "\rscoring: 3 of 3 windows, 1.5 windows/s, 0:00 left\033[K")
        << "never past the total";
}

TEST_F(Terminal, QuietIsQuiet)
{
    p_.is_quiet = true;
    weir_progress_start(&p_, "scoring", "windows", 3, 0);
    weir_progress_show(&p_, 1, 60 * second);
    weir_progress_hide(&p_);
    EXPECT_EQ(taken(master_), "");
}

TEST(Pipe, GetsALineEveryTenSeconds)
{
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
    weir_progress_line p = {};
    p.fd = ends[1];
    weir_progress_start(&p, "scoring", "windows", 200, 0);
    for (int64_t t = 1; t < 10; t++) weir_progress_show(&p, t, t * second);
    EXPECT_EQ(taken(ends[0]), "");
    weir_progress_show(&p, 100, 10 * second);
    weir_progress_show(&p, 101, 11 * second);
    EXPECT_EQ(taken(ends[0]), "scoring: 100 of 200 windows, 10.0 windows/s, 0:10 left\n");
    weir_progress_hide(&p);
    EXPECT_EQ(taken(ends[0]), "");
    close(ends[0]);
    close(ends[1]);
}

TEST(Interrupt, SaysWhatWasDone)
{
    weir_error error = {};
    weir_progress_begin("answering", "items", 200);
    EXPECT_EQ(weir_progress_step(11, &error), WEIR_OK);
    weir_interrupted = 1;
    EXPECT_EQ(weir_progress_step(12, &error), WEIR_ECANCELED);
    EXPECT_STREQ(error.text, "interrupted after 12 of 200 items");
    EXPECT_EQ(weir_progress_step(200, &error), WEIR_OK) << "all is done";
    weir_interrupted = 0;
    weir_progress_end();
}

} // namespace
