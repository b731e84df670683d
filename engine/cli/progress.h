/* engine/cli/progress.h - how far long work is, on stderr, and Ctrl-C while it runs.
 *
 * On a terminal one line is rewritten in place and erased at the end; elsewhere a line is written
 * every ten seconds. Work that ends within half a second shows nothing. */
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

/* fd and is_quiet are set; the rest is filled. Times are those of one clock. */
void weir_progress_start(
    weir_progress_line *progress, const char *what, const char *unit, int64_t total, int64_t now_ns
);
/* Writes when it is time. */
void weir_progress_show(weir_progress_line *progress, int64_t done, int64_t now_ns);
/* Erases the line; a later show draws it again */
void weir_progress_hide(weir_progress_line *progress);

/* ---- the one of the process; not thread-safe ------------------------------------------------- */

void weir_progress_be_quiet(void); /* --quiet */
void weir_progress_begin(const char *what, const char *unit, int64_t total);
void weir_progress_tick(int64_t done);
/* A tick. ECANCELED after Ctrl-C: "interrupted after 12 of 200 windows". */
WEIR_MUST_CHECK weir_status weir_progress_step(int64_t done, weir_error *error);
/* ECANCELED with that text. */
weir_status weir_progress_interrupted(int64_t done, weir_error *error);
/* The status of a piece of work; ECANCELED gets that text. */
WEIR_MUST_CHECK weir_status
weir_progress_after(weir_status status, int64_t done, weir_error *error);
void weir_progress_pause(void); /* before something else is printed */
void weir_progress_end(void);

/* ---- Ctrl-C ---------------------------------------------------------------------------------- */

extern volatile int weir_interrupted;
void weir_catch_interrupts(void); /* each one sets weir_interrupted and nothing else */
void weir_stop_on_interrupt(void); /* the first one does, the second ends the process */

#ifdef __cplusplus
}
#endif
