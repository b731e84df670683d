/* engine/base/log.h - log lines on stderr. Library code returns errors; it logs only failures that
 * no caller waits for. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/line_writer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_log_level {
    WEIR_LOG_ERROR,
    WEIR_LOG_WARNING,
    WEIR_LOG_INFO,
    WEIR_LOG_DEBUG
} weir_log_level;

void weir_log_set_level(weir_log_level level); /* default: info */
bool weir_log_set_level_name(const char *name); /* "error", "warning", ...; false: unknown name */
/* Sends lines to this writer; NULL: directly to stderr, which may block. Must not run while other
 * threads log. */
void weir_log_set_writer(weir_line_writer *writer);
/* Sends lines to this function instead, without a newline, on the logging thread; NULL: back to
 * stderr or the writer. Thread-safe, but the old function may still receive a line in progress. */
typedef void (*weir_log_function)(void *user, const char *level, const char *text);
void weir_log_set_function(weir_log_function function, void *user);
uint64_t weir_log_dropped(void); /* lines that the current writer dropped */
/* Writes one line with one write(2). Text longer than 4 KiB is truncated. Thread-safe. */
void weir_log(weir_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Causes already logged, for an operation that may fail repeatedly. Zero-initialise; reset to zero
 * when the operation succeeds. Not thread-safe. */
enum { WEIR_LOG_CAUSES = 8 };
typedef struct weir_log_causes {
    uint64_t said[WEIR_LOG_CAUSES];
    int32_t n;
} weir_log_causes;
/* Records the cause in `text`: the part after its last colon, up to the first digit, because paths
 * and numbers vary. Returns false if that cause was recorded before. */
bool weir_log_is_new(weir_log_causes *causes, const char *text);

#ifdef __cplusplus
}
#endif
