/* engine/base/direct_io.h - writes past the page cache (O_DIRECT) where the pieces are aligned as
 * the file system asks: they are neither copied nor written back later. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `fd` is the caller's and stays open. Alignments are in bytes; 0: everything goes through the page
 * cache. */
typedef struct weir_direct_io {
    int fd;
    bool is_direct; /* O_DIRECT is set now */
    uint32_t memory_alignment, offset_alignment;
} weir_direct_io;

void weir_direct_io_open(weir_direct_io *io, int fd);
/* Like pwritev, with its result and errno. Pieces that are not aligned go through the page cache;
 * both kinds may alternate in a file. */
ssize_t weir_direct_io_write(weir_direct_io *io, const struct iovec *pieces, int n, off_t at);

#ifdef __cplusplus
}
#endif
