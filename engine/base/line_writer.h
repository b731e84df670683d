/* engine/base/line_writer.h - lines to a descriptor, written by a thread of their own: whoever has
 * a line never waits for a pipe that nobody reads or a disk that is full.
 *
 * A bounded queue holds what is not written yet. A line that finds no room, or that the descriptor
 * refuses, is dropped and counted, and the next line that gets through is followed by one that says
 * how many there were. One write takes whole lines, so that two logs may share a file; a line
 * of more than 4096 bytes takes several. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_line_writer weir_line_writer;

/* `fd` is borrowed. The line that counts dropped ones is `before`, the number, `after`; both
 * static. NULL: no memory or no thread. */
weir_line_writer *weir_line_writer_open(int fd, const char *before, const char *after);
/* Any thread; never waits for the descriptor. `line` ends with a newline. */
void weir_line_writer_put(weir_line_writer *writer, const char *line, size_t n);
/* Lines dropped so far. NULL: 0. */
uint64_t weir_line_writer_dropped(const weir_line_writer *writer);
/* Writes what is queued for at most `wait_ms`, then ends. No put comes after it. NULL-safe. */
void weir_line_writer_close(weir_line_writer *writer, int64_t wait_ms);

#ifdef __cplusplus
}
#endif
