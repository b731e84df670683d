/* engine/base/direct_io.c - writes past the page cache. */
#include "engine/base/direct_io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { USUAL_ALIGNMENT = 4096 }; /* before Linux 6.1, which tells it */

void weir_direct_io_open(weir_direct_io *io, int fd)
{
    struct statx about = { 0 };
    *io = (weir_direct_io
    ){ .fd = fd, .memory_alignment = USUAL_ALIGNMENT, .offset_alignment = USUAL_ALIGNMENT };
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) != 0) return;
    if ((about.stx_mask & STATX_DIOALIGN) == 0) return;
    io->memory_alignment = about.stx_dio_mem_align; /* both 0: not supported */
    io->offset_alignment = about.stx_dio_offset_align;
}

static bool fits(const weir_direct_io *io, const struct iovec *pieces, int n, off_t at)
{
    if (io->memory_alignment == 0 || io->offset_alignment == 0) return false;
    if ((uint64_t)at % io->offset_alignment != 0) return false;
    for (int i = 0; i < n; i++)
        if ((uintptr_t)pieces[i].iov_base % io->memory_alignment != 0 ||
            pieces[i].iov_len % io->offset_alignment != 0)
            return false;
    return true;
}

/* Returns whether the descriptor writes directly now. */
static bool set_direct(weir_direct_io *io, bool direct)
{
    if (io->is_direct == direct) return direct;
    const int flags = fcntl(io->fd, F_GETFL);
    const int wanted = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
    if (flags >= 0 && fcntl(io->fd, F_SETFL, wanted) == 0)
        io->is_direct = direct;
    else if (direct)
        io->offset_alignment = 0; /* not on this file system */
    return io->is_direct;
}

ssize_t weir_direct_io_write(weir_direct_io *io, const struct iovec *pieces, int n, off_t at)
{
    const bool direct = set_direct(io, fits(io, pieces, n, at));
    const ssize_t written = pwritev(io->fd, pieces, n, at);
    if (written >= 0 || !direct || errno != EINVAL) return written;
    /* The flag was accepted and the transfer is not. */
    io->offset_alignment = 0;
    (void)set_direct(io, false);
    return pwritev(io->fd, pieces, n, at);
}
