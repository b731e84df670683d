/* What a process in the sandbox can no longer do. Each case runs in a child of its own and tells
 * by its exit status. */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "engine/cli/sandbox.h"

namespace {

enum { UNSUPPORTED = 77, FAILED_TO_ENTER = 78 };

std::string make_folder(const char *name)
{
    std::string path = testing::TempDir() + "/weir_sandbox_" + name + "_XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    return path;
}

void enter(const std::string &folder, bool strict)
{
    const char *folders[] = { folder.c_str() };
    weir_sandbox_options options = {};
    weir_sandbox_state state;
    weir_error error = {};
    options.folders = folders;
    options.n_folders = 1;
    options.strict = strict;
    const weir_status status = weir_sandbox_enter(&state, &options, &error);
    if (status == WEIR_EUNSUPPORTED || (status == WEIR_OK && state.landlock == 0))
        _exit(UNSUPPORTED);
    if (status != WEIR_OK) _exit(FAILED_TO_ENTER);
}

/* The child's status as wait gives it. */
int run(const std::function<int()> &body)
{
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(body());
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
}

const char no_landlock[] = "this kernel has no Landlock";

bool skipped(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == UNSUPPORTED; }

int errno_of(long result) { return result >= 0 ? 0 : errno; }

const std::string own_folder = make_folder("own");

void *own_page()
{
    const int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    return mmap(nullptr, 4096, rights, flags, -1, 0);
}

struct Call {
    const char *name;
    std::function<int()> attempt; /* 0, or errno */
    int with_auto; /* errno */
    int with_strict; /* errno, or -signal */
};

const Call calls[] = {
    { "ReadAnotherFile", [] { return errno_of(open("/etc/passwd", O_RDONLY)); }, EACCES, EACCES },
    { "ListAnotherFolder", [] { return errno_of(open("/", O_RDONLY | O_DIRECTORY)); }, EACCES,
      EACCES },
    { "MakeAFileElsewhere",
      [] {
          return errno_of(
              open((testing::TempDir() + "/weir_sandbox_made").c_str(), O_WRONLY | O_CREAT, 0600)
          );
      },
      EACCES, EACCES },
    { "ReadTheKernelsView", [] { return errno_of(open("/proc/self/maps", O_RDONLY)); }, EACCES,
      EACCES },
    { "StartAProgram",
      [] {
          char name[] = "/bin/true";
          char *const argv[] = { name, nullptr };
          return errno_of(execve(name, argv, argv + 1));
      },
      EACCES, -SIGSYS },
    { "Connect",
      [] {
          sockaddr_in address = {};
          address.sin_family = AF_INET;
          address.sin_port = htons(9);
          address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
          const int fd = socket(AF_INET, SOCK_STREAM, 0);
          return errno_of(connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address));
      },
      EACCES, -SIGSYS },
    { "Listen",
      [] {
          sockaddr_in address = {};
          address.sin_family = AF_INET;
          address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
          const int fd = socket(AF_INET, SOCK_STREAM, 0);
          return errno_of(bind(fd, reinterpret_cast<sockaddr *>(&address), sizeof address));
      },
      EACCES, -SIGSYS },
    { "MakeASocket", [] { return errno_of(socket(AF_INET, SOCK_DGRAM, 0)); }, 0, -SIGSYS },
    { "Trace", [] { return errno_of(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }, 0, -SIGSYS },
    { "LoadBpf", [] { return errno_of(syscall(SYS_bpf, 999, nullptr, 0)); }, EINVAL, -SIGSYS },
    { "UseKeys", [] { return errno_of(syscall(SYS_keyctl, 9999, 0, 0, 0, 0)); }, EOPNOTSUPP,
      -SIGSYS },
    { "Fork",
      [] {
          const long child = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
          if (child == 0) _exit(0);
          return errno_of(child);
      },
      0, EPERM },
    { "MapCode",
      [] {
          return mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                         MAP_FAILED
                     ? errno
                     : 0;
      },
      0, EPERM },
    { "MakeMemoryWritableAndExecutable",
      [] {
          const int rights = PROT_READ | PROT_WRITE;
          return errno_of(mprotect(own_page(), 4096, rights | PROT_EXEC));
      },
      0, EPERM },
    { "MakeMemoryExecutable",
      [] {
          const int rights = PROT_READ | PROT_EXEC;
          return errno_of(mprotect(own_page(), 4096, rights));
      },
      0, 0 },
    { "SignalAnotherProcess", [] { return errno_of(kill(getppid(), 0)); }, EPERM, EPERM },
    { "SignalAThreadOfAnotherProcess",
      [] {
          const pid_t parent = getppid();
          return errno_of(syscall(SYS_tgkill, parent, parent, 0));
      },
      EPERM, EPERM },
    { "SignalItself", [] { return errno_of(syscall(SYS_tgkill, getpid(), gettid(), 0)); }, 0, 0 },
    { "LimitAnotherProcess",
      [] {
          rlimit limit = {};
          return errno_of(prlimit(getppid(), RLIMIT_NOFILE, nullptr, &limit));
      },
      0, EPERM },
    { "ChangeAMode", [] { return errno_of(chmod(own_folder.c_str(), 0755)); }, 0, EPERM },
};

class Sandbox : public testing::TestWithParam<Call> {};

/* Outside, each of them works, so that a refusal is the sandbox's. */
TEST_P(Sandbox, Auto)
{
    const std::string folder = make_folder("auto");
    const int status = run([&] {
        enter(folder, false);
        return GetParam().attempt();
    });
    if (skipped(status)) GTEST_SKIP() << no_landlock;
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), GetParam().with_auto) << strerror(WEXITSTATUS(status));
}

TEST_P(Sandbox, Strict)
{
    const std::string folder = make_folder("strict");
    const int status = run([&] {
        enter(folder, true);
        return GetParam().attempt();
    });
    if (skipped(status)) GTEST_SKIP() << no_landlock;
    if (GetParam().with_strict < 0) {
        ASSERT_TRUE(WIFSIGNALED(status)) << status;
        EXPECT_EQ(WTERMSIG(status), -GetParam().with_strict);
    } else {
        ASSERT_TRUE(WIFEXITED(status)) << status;
        EXPECT_EQ(WEXITSTATUS(status), GetParam().with_strict) << strerror(WEXITSTATUS(status));
    }
}

INSTANTIATE_TEST_SUITE_P(Calls, Sandbox, testing::ValuesIn(calls), [](const auto &info) {
    return std::string(info.param.name);
});

TEST(SandboxFolders, FilesInThemCanBeWrittenReadReplacedAndRemoved)
{
    const std::string folder = make_folder("folder"), one = folder + "/one", two = folder + "/two";
    const int status = run([&] {
        enter(folder, true);
        char text[4] = "";
        const int fd = open(one.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (write(fd, "abc", 3) != 3 || fsync(fd) != 0 || close(fd) != 0) return 1;
        if (rename(one.c_str(), two.c_str()) != 0) return 2;
        const int back = open(two.c_str(), O_RDONLY);
        if (pread(back, text, 3, 0) != 3 || std::string(text) != "abc") return 3;
        DIR *const list = opendir(folder.c_str());
        if (list == nullptr || readdir(list) == nullptr) return 4;
        return unlink(two.c_str()) == 0 ? 0 : 5;
    });
    if (skipped(status)) GTEST_SKIP() << no_landlock;
    EXPECT_EQ(status, 0);
    EXPECT_EQ(rmdir(folder.c_str()), 0);
}

TEST(SandboxFolders, LinksOutOfThemLeadNowhere)
{
    const std::string folder = make_folder("link"), link = folder + "/link";
    ASSERT_EQ(symlink("/etc/passwd", link.c_str()), 0);
    const int status = run([&] {
        enter(folder, false);
        return errno_of(open(link.c_str(), O_RDONLY));
    });
    if (skipped(status)) GTEST_SKIP() << no_landlock;
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), EACCES);
}

TEST(SandboxThreads, ThoseThatAreThereAndThoseThatComeAreTakenIn)
{
    const std::string folder = make_folder("threads");
    const int status = run([&] {
        std::atomic<bool> entered{ false };
        std::atomic<int> refused{ 0 };
        const auto attempt = [&] {
            while (!entered) std::this_thread::yield();
            if (errno_of(open("/etc/passwd", O_RDONLY)) == EACCES) ++refused;
            std::thread([&] { refused += errno_of(open("/etc/passwd", O_RDONLY)) == EACCES; }
            ).join();
        };
        std::thread a(attempt), b(attempt), c(attempt);
        enter(folder, true);
        entered = true;
        a.join(), b.join(), c.join();
        return refused == 6 ? 0 : 1;
    });
    if (skipped(status)) GTEST_SKIP() << no_landlock;
    EXPECT_EQ(status, 0);
}

TEST(SandboxOutside, TheSameCallsWork)
{
    EXPECT_EQ(calls[0].attempt(), 0);
    EXPECT_EQ(calls[1].attempt(), 0);
    EXPECT_EQ(calls[2].attempt(), 0);
    EXPECT_EQ(calls[3].attempt(), 0);
    EXPECT_EQ(WEXITSTATUS(run([] { return calls[4].attempt(); })), 0);
    EXPECT_EQ(calls[5].attempt(), ECONNREFUSED);
    EXPECT_EQ(calls[6].attempt(), 0);
}

TEST(SandboxOpen, AFolderThatIsNotThereIsNamed)
{
    const char *folders[] = { "/var/tmp/weir_sandbox_none/x" };
    weir_sandbox_options options = {};
    weir_error error = {};
    int rules = -1, abi = 0;
    options.folders = folders;
    options.n_folders = 1;
    const weir_status status = weir_landlock_open(&rules, &abi, &options, &error);
    if (status == WEIR_OK && abi == 0) GTEST_SKIP() << no_landlock;
    EXPECT_EQ(status, WEIR_EIO);
    EXPECT_NE(std::string(error.text).find("/var/tmp/weir_sandbox_none/x"), std::string::npos)
        << error.text;
}

} // namespace
