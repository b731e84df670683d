/* engine/cli/progress.h - progress of long work on stderr, and Ctrl-C.
 *
 * On a terminal one line is rewritten in place and erased at the end; elsewhere a line is written
 * every ten seconds. Work that takes less than half a second shows nothing. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_progress_line {
    const char *what, *unit; /* "scoring", "windows"; borrowed */
    int64_t total;       /* 0: unknown */
    int64_t start_ns, next_ns;
    int fd;
    bool is_terminal, is_quiet, is_drawn;
} weir_progress_line;

/* fd and is_quiet must be set; fills in the rest. All times are from the same clock. */
void weir_progress_start(
    weir_progress_line *progress, const char *what, const char *unit, int64_t total, int64_t now_ns
);
/* Writes the line if it is due. */
void weir_progress_show(weir_progress_line *progress, int64_t done, int64_t now_ns);
/* Erases the line; the next show draws it again. */
void weir_progress_hide(weir_progress_line *progress);

/* ---- the one of the process; not thread-safe ------------------------------------------------- */

void weir_progress_be_quiet(void); /* for --quiet */
void weir_progress_begin(const char *what, const char *unit, int64_t total);
void weir_progress_tick(int64_t done);
/* Counts progress. Returns ECANCELED after Ctrl-C: "interrupted after 12 of 200 windows". */
WEIR_MUST_CHECK weir_status weir_progress_step(int64_t done, weir_error *error);
/* Returns ECANCELED with that message. */
weir_status weir_progress_interrupted(int64_t done, weir_error *error);
/* Returns the status of some work; ECANCELED gets that message. */
WEIR_MUST_CHECK weir_status
weir_progress_after(weir_status status, int64_t done, weir_error *error);
void weir_progress_pause(void); /* call before printing something else */
void weir_progress_end(void);

/* ---- Ctrl-C ---------------------------------------------------------------------------------- */

extern volatile int weir_interrupted;
/* Each signal only sets weir_interrupted. */
void weir_catch_interrupts(void);
/* The first signal sets weir_interrupted, the second ends the process. */
void weir_stop_on_interrupt(void);

#ifdef __cplusplus
}
#endif
