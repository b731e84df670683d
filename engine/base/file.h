/* engine/base/file.h - reading files by mapping, writing them atomically. */
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
/* Tells the kernel that the pages inside [offset, offset + n) are no longer needed. They are read
 * from the file again when touched. */
void weir_map_release(const weir_map *map, size_t offset, size_t n);
void weir_map_close(weir_map *map); /* NULL-safe, idempotent */

/* True if anything exists at this path, or if that cannot be determined (no permission, I/O error):
 * opening the path then reports the reason. */
bool weir_file_exists(const char *path);
bool weir_file_is_directory(const char *path);
/* Appends a regular file of at most `limit` bytes. EFORMAT: it is larger. ENOTFOUND: no such
 * file. */
WEIR_MUST_CHECK weir_status
weir_file_read(weir_buffer *out, const char *path, size_t limit, weir_error *error);
/* Like weir_file_read, for a path given on a command line: may also be a pipe or a device, which is
 * read to its end. "-" and /dev/stdin mean standard input. */
WEIR_MUST_CHECK weir_status
weir_file_read_input(weir_buffer *out, const char *path, size_t limit, weir_error *error);
/* Writes a temporary file, then fsync, rename, fsync of the folder: readers see the old file or the
 * complete new one. A device or a pipe is written in place. */
WEIR_MUST_CHECK weir_status
weir_file_write_atomic(const char *path, const void *bytes, size_t n, weir_error *error);

/* Like weir_file_write_atomic, with mode 0600 whatever the umask. */
WEIR_MUST_CHECK weir_status
weir_file_write_private(const char *path, const void *bytes, size_t n, weir_error *error);

/* fsync of the folder of a path, after a rename in it. True where file systems or permissions have
 * no sync for folders; else false with errno. */
bool weir_file_sync_folder(const char *path);

/* A temporary file is `path`, this, and random digits. Its writer has locked it (flock) until it is
 * renamed or deleted. */
#define WEIR_TEMPORARY_MARK ".tmp."
/* Deletes a temporary file unless a process is writing it: a writer that was killed left it.
 * Returns false if it is still there. */
bool weir_file_drop_torn(const char *path);

/* A private file written in pieces, for content too large for a buffer: write to `fd`, then keep or
 * drop it. */
typedef struct weir_new_file {
    char *path, *temporary; /* owned */
    int fd;
} weir_new_file;
/* Opens a temporary file. Reserves `size` bytes where the file system can, so that a full disk is
 * detected early. */
WEIR_MUST_CHECK weir_status
weir_new_file_open(weir_new_file *file, const char *path, size_t size, weir_error *error);
/* The same for a file that is not private: its mode is 0666 less the umask. */
WEIR_MUST_CHECK weir_status
weir_new_file_open_public(weir_new_file *file, const char *path, size_t size, weir_error *error);
/* fsync, rename, fsync of the folder. On failure the old file is unchanged and the new one is
 * removed; only if the folder cannot be synced, which the error says, the new file is in place.
 * Ends `file` in any case. */
WEIR_MUST_CHECK weir_status weir_new_file_keep(weir_new_file *file, weir_error *error);
void weir_new_file_drop(weir_new_file *file); /* idempotent */

#ifdef __cplusplus
}
#endif
