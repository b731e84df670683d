/* A lower tier's file whose writes and reads wait at gates, and fail if a test wants. */
#pragma once
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/kv/tiers/lower_tier.h"
#include "tests/unit/kv/read_gate.h"

namespace support {

inline std::atomic<bool> writes_fail, reads_fail;

inline weir_lower_tier_io gated_io()
{
    return {
        [](int fd, const struct iovec *pieces, int n, off_t at) -> ssize_t {
            pass(write_gate);
            if (writes_fail) return errno = ENOSPC, -1;
            return pwritev(fd, pieces, n, at);
        },
        [](int fd, void *bytes, size_t n, off_t at) -> ssize_t {
            pass(all_reads_gate);
            if (reads_fail) return errno = EIO, -1;
            return pread(fd, bytes, n, at);
        },
        nullptr,
        nullptr,
    };
}

} // namespace support
