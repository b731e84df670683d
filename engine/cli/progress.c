#include "engine/cli/progress.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "engine/base/clock.h"

enum { LINE = 160 };
static const int64_t second = 1000000000, first_after = 500000000, every = 200000000;

static int64_t period(const weir_progress_line *p) { return p->is_terminal ? every : 10 * second; }

void weir_progress_start(
    weir_progress_line *p, const char *what, const char *unit, int64_t total, int64_t now_ns
)
{
    p->what = what;
    p->unit = unit;
    p->total = total;
    p->is_terminal = isatty(p->fd) != 0;
    p->start_ns = now_ns;
    p->next_ns = now_ns + (p->is_terminal ? first_after : period(p));
    p->is_drawn = false;
}

/* An error is ignored: the terminal is gone. */
static void put(const weir_progress_line *p, const char *text, int n)
{
    const ssize_t written = write(p->fd, text, n < LINE ? (size_t)n : LINE - 1);
    (void)written;
}

/* "1:23", "2:01:23". */
static void duration(char out[24], int64_t seconds)
{
    const int64_t hours = seconds / 3600, minutes = seconds / 60 % 60;
    if (hours > 0)
        (void)snprintf(
            out, 24, "%" PRId64 ":%02d:%02d", hours % 10000, (int)minutes, (int)(seconds % 60)
        );
    else
        (void)snprintf(out, 24, "%d:%02d", (int)minutes, (int)(seconds % 60));
}

static int describe(char out[LINE], const weir_progress_line *p, int64_t done, int64_t now_ns)
{
    char time[24];
    const int64_t passed = now_ns - p->start_ns;
    if (p->total <= 0) {
        duration(time, passed / second);
        return snprintf(out, LINE, "%.60s, %s", p->what, time);
    }
    const int64_t at = done < p->total ? done : p->total;
    const int n = snprintf(
        out, LINE, "%.40s: %" PRId64 " of %" PRId64 " %.20s", p->what, at, p->total, p->unit
    );
    if (at <= 0 || passed <= 0 || n < 0 || n >= LINE) return n;
    const int m = snprintf(
        out + n, (size_t)(LINE - n), ", %.1f %.20s/s", (double)at * 1e9 / (double)passed, p->unit
    );
    if (m < 0 || m >= LINE - n) return n;
    duration(time, (int64_t)((double)passed * (double)(p->total - at) / (double)at) / second);
    return n + m + snprintf(out + n + m, (size_t)(LINE - n - m), ", %s left", time);
}

void weir_progress_show(weir_progress_line *p, int64_t done, int64_t now_ns)
{
    char line[LINE], text[LINE];
    if (p->is_quiet || p->what == NULL || now_ns < p->next_ns) return;
    p->next_ns = now_ns + period(p);
    (void)describe(line, p, done, now_ns);
    put(p, text, snprintf(text, sizeof text, p->is_terminal ? "\r%s\033[K" : "%s\n", line));
    p->is_drawn = p->is_terminal;
}

void weir_progress_hide(weir_progress_line *p)
{
    static const char erase[] = "\r\033[K";
    if (!p->is_drawn) return;
    put(p, erase, sizeof erase - 1);
    p->is_drawn = false;
}

/* ---- the one of the process ------------------------------------------------------------------ */

static weir_progress_line own = { .fd = STDERR_FILENO };

void weir_progress_be_quiet(void) { own.is_quiet = true; }

void weir_progress_begin(const char *what, const char *unit, int64_t total)
{
    weir_progress_hide(&own);
    weir_progress_start(&own, what, unit, total, weir_clock_ns());
}

void weir_progress_tick(int64_t done) { weir_progress_show(&own, done, weir_clock_ns()); }

weir_status weir_progress_interrupted(int64_t done, weir_error *error)
{
    weir_progress_hide(&own);
    return weir_error_set(
        error, WEIR_ECANCELED, "interrupted after %" PRId64 " of %" PRId64 " %s", done, own.total,
        own.unit
    );
}

weir_status weir_progress_after(weir_status status, int64_t done, weir_error *error)
{
    return status == WEIR_ECANCELED ? weir_progress_interrupted(done, error) : status;
}

weir_status weir_progress_step(int64_t done, weir_error *error)
{
    if (weir_interrupted && done < own.total) return weir_progress_interrupted(done, error);
    weir_progress_tick(done);
    return WEIR_OK;
}

void weir_progress_pause(void) { weir_progress_hide(&own); }

void weir_progress_end(void)
{
    weir_progress_hide(&own);
    own.what = NULL;
}

/* ---- Ctrl-C ---------------------------------------------------------------------------------- */

volatile int weir_interrupted = 0;

static void on_interrupt(int number)
{
    (void)number;
    weir_interrupted = 1;
}

static void catch_with(int flags)
{
    const struct sigaction action = { .sa_handler = on_interrupt, .sa_flags = flags };
    (void)sigaction(SIGINT, &action, NULL);
}

void weir_catch_interrupts(void) { catch_with(0); }

void weir_stop_on_interrupt(void)
{
    weir_interrupted = 0;
    catch_with((int)SA_RESETHAND);
}
