/* engine/base/line_writer.h - writes lines to a descriptor from a thread of its own, so that a
 * thread that logs never waits for a stalled pipe or a full disk.
 *
 * Lines wait in a bounded queue. A line that does not fit, or that the descriptor refuses, is
 * dropped and counted; after the next successful line the writer reports the count. Each write
 * holds whole lines, so two logs may share a file; a line of more than 4096 bytes takes several
 * writes. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_line_writer weir_line_writer;

/* `fd` is borrowed. The report of dropped lines is `before`, the count, `after` (static strings).
 * Returns NULL if there is no memory or no thread. */
weir_line_writer *weir_line_writer_open(int fd, const char *before, const char *after);
/* Queues a line, which ends with a newline. Thread-safe; never waits for the descriptor. */
void weir_line_writer_put(weir_line_writer *writer, const char *line, size_t n);
/* Lines dropped so far; 0 for NULL. */
uint64_t weir_line_writer_dropped(const weir_line_writer *writer);
/* Writes what is queued for at most `wait_ms`, then frees the writer. No put may follow.
 * NULL-safe. */
void weir_line_writer_close(weir_line_writer *writer, int64_t wait_ms);

#ifdef __cplusplus
}
#endif
