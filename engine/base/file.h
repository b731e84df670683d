/* engine/base/file.h - reading by mapping, writing atomically. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A read-only view of a whole file. */
typedef struct weir_map {
    const unsigned char *data;
    size_t size;
} weir_map;

WEIR_MUST_CHECK weir_status weir_map_open(weir_map *map, const char *path, weir_error *error);
/* The pages wholly inside [offset, offset + n) are given back to the kernel; they come again from
 * the file if touched. */
void weir_map_release(const weir_map *map, size_t offset, size_t n);
void weir_map_close(weir_map *map); /* NULL-safe, idempotent */

/* Anything at this path. True also where that cannot be told (no permission, a failing disk): who
 * opens it then is told why. */
bool weir_file_exists(const char *path);
bool weir_file_is_directory(const char *path);
/* Appends a whole regular file of at most `limit` bytes (EFORMAT past it, ENOTFOUND when
 * absent). */
WEIR_MUST_CHECK weir_status
weir_file_read(weir_buffer *out, const char *path, size_t limit, weir_error *error);
/* The same of what a user names on a command line: also a pipe or a device, read to its end; "-"
 * and /dev/stdin are standard input. */
WEIR_MUST_CHECK weir_status
weir_file_read_input(weir_buffer *out, const char *path, size_t limit, weir_error *error);
/* Writes `path`.tmp.PID, fsync, rename, fsync of the folder: readers see the old file or the whole
 * new one. A device or a pipe is written to as it is. */
WEIR_MUST_CHECK weir_status
weir_file_write_atomic(const char *path, const void *bytes, size_t n, weir_error *error);

/* The same, for what others may not read: mode 0600, whatever the umask. */
WEIR_MUST_CHECK weir_status
weir_file_write_private(const char *path, const void *bytes, size_t n, weir_error *error);

/* A private file in pieces, for those too large to be built in memory: write to `fd`, then keep or
 * drop. */
typedef struct weir_new_file {
    char *path, *temporary; /* owned */
    int fd;
} weir_new_file;
/* `size` bytes are reserved on the disk where the file system can, so that a full one is found out
 * first. */
WEIR_MUST_CHECK weir_status
weir_new_file_open(weir_new_file *file, const char *path, size_t size, weir_error *error);
/* fsync, rename, fsync of the folder; on failure nothing is left but the old file. Ends `file`
 * either way. */
WEIR_MUST_CHECK weir_status weir_new_file_keep(weir_new_file *file, weir_error *error);
void weir_new_file_drop(weir_new_file *file); /* idempotent */

#ifdef __cplusplus
}
#endif
