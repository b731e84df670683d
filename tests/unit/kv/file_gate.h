/* A gate in front of libc's preadv and pwritev: large pieces of session files wait in it until a
 * test opens it, as on a disk that hangs. Included by one file of a test. */
#pragma once
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "tests/unit/kv/read_gate.h"

namespace file_gate {

enum { LARGE = 16 << 10 };

inline std::atomic<support::Gate *> reads{ nullptr }, writes{ nullptr };
/* Of what is smaller: the header and the tokens; without the header, if the offset is not 0. */
inline std::atomic<support::Gate *> small_reads{ nullptr };
inline std::atomic<off_t> small_from{ 0 };
inline std::atomic<int64_t> bytes_read{ 0 };

inline bool is_session(int fd)
{
    char path[4096] = "";
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    return readlink(link.c_str(), path, sizeof path - 1) > 0 &&
           std::string(path).find(".session") != std::string::npos;
}

inline bool is_large(int fd, const struct iovec *pieces, int n)
{
    size_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += pieces[i].iov_len;
    return bytes >= LARGE && is_session(fd);
}

} // namespace file_gate

extern "C" ssize_t preadv(int fd, const struct iovec *pieces, int n, off_t at)
{
    const bool is_large = file_gate::is_large(fd, pieces, n);
    support::Gate *const gate = is_large ? file_gate::reads : file_gate::small_reads;
    if (gate != nullptr && (is_large || (at >= file_gate::small_from && file_gate::is_session(fd))))
        gate->pass();
    const ssize_t got = syscall(SYS_preadv, fd, pieces, n, at, 0);
    if (is_large && got > 0) file_gate::bytes_read += got;
    return got;
}

extern "C" ssize_t pwritev(int fd, const struct iovec *pieces, int n, off_t at)
{
    support::Gate *const gate = file_gate::writes;
    if (gate != nullptr && file_gate::is_large(fd, pieces, n)) gate->pass();
    return syscall(SYS_pwritev, fd, pieces, n, at, 0);
}
