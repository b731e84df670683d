/* Commands as a user runs them: the exit code and what was printed. */
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/cli/command.h"

#define EXPECT_SAYS(text, part)                                                                    \
    EXPECT_NE(std::string(text).find(part), std::string::npos) << "said: " << (text)

namespace program {

inline const std::string demo = "models/weir-demo";

struct Outcome {
    int code;
    std::string out, err;
};

/* A file in the place of stdout; what it did not take is dropped. */
class Output {
  public:
    explicit Output(const char *path) : before_(dup(STDOUT_FILENO))
    {
        const int fd = open(path, O_WRONLY | O_CLOEXEC);
        EXPECT_GE(fd, 0) << path;
        (void)fflush(stdout);
        EXPECT_EQ(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
        close(fd);
    }
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;
    ~Output()
    {
        __fpurge(stdout);
        clearerr(stdout);
        EXPECT_EQ(dup2(before_, STDOUT_FILENO), STDOUT_FILENO);
        close(before_);
    }

  private:
    int before_;
};

/* `fixed`: the program is this command alone. */
inline Outcome run(const std::vector<std::string> &words, const char *fixed = nullptr)
{
    weir_program program = {};
    std::vector<const char *> argv;
    program.name = fixed != nullptr ? fixed : "weir";
    program.version = "1.2.3";
    program.fixed = fixed;
    program.commands = weir_commands(&program.n_commands);
    argv.push_back(program.name);
    for (const std::string &word : words) argv.push_back(word.c_str());
    Outcome outcome;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    outcome.code = weir_main(&program, static_cast<int>(argv.size()), argv.data());
    outcome.out = testing::internal::GetCapturedStdout();
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
}

/* The same with a disk that is full under stdout; nothing is in `out`. */
inline Outcome run_full(const std::vector<std::string> &words)
{
    weir_program program = {};
    std::vector<const char *> argv = { "weir" };
    program.name = "weir";
    program.version = "1.2.3";
    program.commands = weir_commands(&program.n_commands);
    for (const std::string &word : words) argv.push_back(word.c_str());
    Outcome outcome;
    const Output full("/dev/full");
    testing::internal::CaptureStderr();
    outcome.code = weir_main(&program, static_cast<int>(argv.size()), argv.data());
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
}

/* A folder of the test's own, empty at first. */
class Folder : public testing::Test {
  protected:
    void SetUp() override
    {
        folder_ = testing::TempDir() + "/" +
                  testing::UnitTest::GetInstance()->current_test_info()->name();
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    std::string path(const std::string &name) const { return folder_ + "/" + name; }
    std::string put(const std::string &name, const std::string &text) const
    {
        std::ofstream(path(name), std::ios::binary) << text;
        return path(name);
    }
    std::string folder_;
};

} // namespace program
