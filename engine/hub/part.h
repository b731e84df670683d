/* engine/hub/part.h - a file that is being downloaded: NAME.part, with the sum of what is there,
 * until it is complete and becomes NAME. */
#pragma once
#include <limits.h>

#include "engine/base/error.h"
#include "engine/base/sha256.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_part {
    char path[PATH_MAX], final[PATH_MAX];
    int fd;
    int64_t have; /* bytes, from the beginning */
    weir_sha256_stream sum; /* of them */
} weir_part;

/* Opens or makes folder/name.part and the folders between, empty for now: call weir_part_resume to
 * use what it holds, or weir_part_restart.
 * errors : EIO */
WEIR_MUST_CHECK weir_status
weir_part_open(weir_part *part, const char *folder, const char *name, weir_error *error);
/* Reads what is there, to go on behind it; `limit` is the size of the whole file: a longer part is
 * emptied. */
WEIR_MUST_CHECK weir_status weir_part_resume(
    weir_part *part, int64_t limit, bool (*is_cancelled)(void *user), void *user, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_part_restart(weir_part *part, weir_error *error);
/* errors : EIO: the disk is full, or fails */
WEIR_MUST_CHECK weir_status
weir_part_write(weir_part *part, const void *bytes, size_t n, weir_error *error);
/* fsync, rename, fsync of the folder; closes. */
WEIR_MUST_CHECK weir_status weir_part_keep(weir_part *part, weir_error *error);
void weir_part_drop(weir_part *part); /* removes it and closes */
void weir_part_close(weir_part *part); /* leaves it; idempotent */

/* Makes a folder and those above it.
 * errors : EIO */
WEIR_MUST_CHECK weir_status weir_make_folders(const char *path, weir_error *error);
/* The sum of a whole file.
 * errors : EIO, ECANCELED */
WEIR_MUST_CHECK weir_status weir_sum_file(
    weir_sha256 *out, const char *path, bool (*is_cancelled)(void *user), void *user,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
