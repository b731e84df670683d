/* tests/fault/events.h - what happens to files, told by calls.c to a recording (power_loss.h). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All after the call; nothing is kept unless a recording runs. */
void events_open(int fd, const char *path, bool truncates);
void events_close(int fd);
void events_write(int fd, const void *bytes, size_t n, off_t at);
void events_truncate(int fd, off_t n);
void events_sync(int fd);
void events_rename(const char *from, const char *to);
void events_link(const char *from, const char *to);
void events_unlink(const char *path);

#ifdef __cplusplus
}
#endif
