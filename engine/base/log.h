/* engine/base/log.h - lines on stderr. Library code returns errors; it logs only what nobody waits
 * for. */
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
bool weir_log_set_level_name(const char *name); /* "error", "warning", ...; false: none of them */
/* Lines go through this writer from now on; NULL: straight to stderr, which may block. Not while
 * others log. */
void weir_log_set_writer(weir_line_writer *writer);
/* Lines go to this function instead, on the thread that logs, without a newline; NULL: as before.
 * Safe while others log, but a line that is on its way may still come to the old one. */
typedef void (*weir_log_function)(void *user, const char *level, const char *text);
void weir_log_set_function(weir_log_function function, void *user);
uint64_t weir_log_dropped(void); /* lines that the present writer dropped */
/* Writes one line with one write(2); text longer than 4 KiB is cut. Thread-safe. */
void weir_log(weir_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Causes that were said, for what may fail again and again. Zero: none; set it to zero when the
 * thing works again. One thread at a time. */
enum { WEIR_LOG_CAUSES = 8 };
typedef struct weir_log_causes {
    uint64_t said[WEIR_LOG_CAUSES];
    int32_t n;
} weir_log_causes;
/* Notes the cause that a text names: what stands behind its last colon, up to the first digit, as
 * paths and numbers differ from time to time. false: it was noted before. */
bool weir_log_is_new(weir_log_causes *causes, const char *text);

#ifdef __cplusplus
}
#endif
