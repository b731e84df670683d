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
    size_t               size;
} weir_map;

WEIR_MUST_CHECK weir_status weir_map_open(weir_map *map, const char *path, weir_error *error);
/* The pages wholly inside [offset, offset + n) are given back to the kernel; they come again from the file if touched. */
void weir_map_release(const weir_map *map, size_t offset, size_t n);
void weir_map_close(weir_map *map); /* NULL-safe, idempotent */

bool weir_file_exists(const char *path);      /* anything at this path */
bool weir_file_is_directory(const char *path);
/* Appends a whole regular file of at most `limit` bytes (EFORMAT past it, ENOTFOUND when absent). */
WEIR_MUST_CHECK weir_status weir_file_read(weir_buffer *out, const char *path, size_t limit, weir_error *error);
/* Writes `path`.tmp.PID, fsync, rename, fsync of the folder: readers see the old file or the whole new one. A device or a pipe is
 * written to as it is. */
WEIR_MUST_CHECK weir_status weir_file_write_atomic(const char *path, const void *bytes, size_t n, weir_error *error);

#ifdef __cplusplus
}
#endif
