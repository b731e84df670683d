/* engine/base/log.h - lines on stderr. Library code returns errors; it logs only what nobody waits for. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_log_level { WEIR_LOG_ERROR, WEIR_LOG_WARNING, WEIR_LOG_INFO, WEIR_LOG_DEBUG } weir_log_level;

void weir_log_set_level(weir_log_level level); /* default: info */
/* Writes one line with one write(2); text longer than 4 KiB is cut. Thread-safe. */
void weir_log(weir_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
