// The disk of tests of experts.
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "tests/unit/schedule/experts_support.h"

using support::disk;
support::Disk support::disk;

/* In front of libc's: threads read experts with it. */
extern "C" ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    const int64_t number = ++disk.n_reads;
    const bool is_bad = at < disk.bad_end && at + static_cast<off_t>(n) > disk.bad_begin;
    if (n > 0 &&
        (disk.fails || is_bad || (disk.fails_every > 0 && number % disk.fails_every == 0))) {
        errno = EIO;
        return -1;
    }
    if (disk.refuses_direct && (fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
        errno = EINVAL;
        return -1;
    }
    if (at < disk.hung_end && at + static_cast<off_t>(n) > disk.hung_begin) {
        std::unique_lock<std::mutex> guard(disk.lock);
        disk.answers.wait(guard, [] { return disk.hung_end == 0; });
    }
    disk.n_unaligned +=
        reinterpret_cast<uintptr_t>(bytes) % 4096 != 0 || n % 4096 != 0 || at % 4096 != 0;
    if (disk.is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return syscall(SYS_pread64, fd, bytes, disk.is_short && n > 7 ? n / 2 : n, at);
}
