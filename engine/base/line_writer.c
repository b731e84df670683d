/* engine/base/line_writer.c - a ring buffer between the threads that log and the thread that
 * writes. */
#include "engine/base/line_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"

/* A write of PIECE bytes does not block on a pipe that poll reports as writable (Linux
 * PIPE_BUF). */
enum { QUEUE_BYTES = 256 << 10, PIECE = 4096, LOOK_MS = 100, GRACE_MS = 100 };

struct weir_line_writer {
    int fd;
    const char *before, *after;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t some;
    size_t first, used; /* positions in the ring */
    uint64_t queued, taken; /* total bytes since the start */
    uint64_t dropped, said; /* lines dropped, and dropped lines already reported */
    uint64_t say_after; /* report when `taken` reaches this; 0: nothing to report */
    bool is_closing;
    bool is_inside; /* writer thread only: the last byte written does not end a line */
    bool is_cut; /* writer thread only: the rest of that line was refused */
    int64_t deadline_ns; /* set when the writer closes */
    char ring[QUEUE_BYTES];
};

/* `push` and `take` require the lock. */
static bool push(weir_line_writer *w, const char *bytes, size_t n)
{
    if (n > QUEUE_BYTES - w->used) return false;
    const size_t at = (w->first + w->used) % QUEUE_BYTES, end = QUEUE_BYTES - at,
                 head = n < end ? n : end;
    memcpy(w->ring + at, bytes, head);
    memcpy(w->ring, bytes + head, n - head);
    w->used += n;
    w->queued += n;
    return true;
}

/* Takes whole lines, because others may write to the same file. A line longer than PIECE is
 * split. */
static size_t take(weir_line_writer *w, char *piece)
{
    const size_t end = QUEUE_BYTES - w->first, most = w->used < PIECE ? w->used : PIECE;
    const size_t head = most < end ? most : end;
    memcpy(piece, w->ring + w->first, head);
    memcpy(piece + head, w->ring, most - head);
    size_t n = most;
    while (n > 0 && piece[n - 1] != '\n') n--;
    if (n == 0) n = most;
    w->first = (w->first + n) % QUEUE_BYTES;
    w->used -= n;
    w->taken += n;
    return n;
}

void weir_line_writer_put(weir_line_writer *w, const char *line, size_t n)
{
    (void)pthread_mutex_lock(&w->lock);
    if (!push(w, line, n))
        w->dropped++;
    else if (w->dropped > w->said && w->say_after == 0)
        w->say_after = w->queued;
    (void)pthread_cond_signal(&w->some);
    (void)pthread_mutex_unlock(&w->lock);
}

uint64_t weir_line_writer_dropped(const weir_line_writer *writer)
{
    if (writer == NULL) return 0;
    weir_line_writer *const w = (weir_line_writer *)(uintptr_t)writer;
    (void)pthread_mutex_lock(&w->lock);
    const uint64_t dropped = w->dropped;
    (void)pthread_mutex_unlock(&w->lock);
    return dropped;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static bool is_late(weir_line_writer *w)
{
    (void)pthread_mutex_lock(&w->lock);
    const bool late = w->is_closing && weir_clock_ns() >= w->deadline_ns;
    (void)pthread_mutex_unlock(&w->lock);
    return late;
}

static size_t count_lines(const char *bytes, size_t n)
{
    size_t lines = 0;
    for (size_t i = 0; i < n; i++) lines += bytes[i] == '\n';
    return lines;
}

typedef enum outcome { WRITTEN, REFUSED, LATE } outcome;

/* Sets *n_written on failure too, for example when a disk fills up. */
static outcome write_bytes(weir_line_writer *w, size_t *n_written, const char *bytes, size_t n)
{
    *n_written = 0;
    while (*n_written < n) {
        struct pollfd ready = { .fd = w->fd, .events = POLLOUT };
        const int found = poll(&ready, 1, LOOK_MS);
        if (is_late(w)) return LATE;
        if (found == 0 || (found < 0 && errno == EINTR)) continue;
        const ssize_t written = write(w->fd, bytes + *n_written, n - *n_written);
        if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (written <= 0) { /* the reader is gone or the disk is full */
            w->is_cut = w->is_inside;
            return REFUSED;
        }
        *n_written += (size_t)written;
        w->is_inside = bytes[*n_written - 1] != '\n';
    }
    return WRITTEN;
}

/* Counts the lines that the descriptor refuses. */
static outcome write_lines(weir_line_writer *w, const char *bytes, size_t n)
{
    size_t n_written = 0;
    if (w->is_cut) { /* an incomplete line is in the output */
        const outcome end = write_bytes(w, &n_written, "\n", 1);
        if (end == WRITTEN) w->is_cut = false;
        if (end == LATE) return LATE;
    }
    const outcome result = write_bytes(w, &n_written, bytes, n);
    if (result != REFUSED) return result;
    (void)pthread_mutex_lock(&w->lock);
    w->dropped += count_lines(bytes + n_written, n - n_written);
    (void)pthread_mutex_unlock(&w->lock);
    return REFUSED;
}

/* Marks them as reported only when the descriptor accepted the line. */
static outcome say_dropped(weir_line_writer *w, uint64_t dropped)
{
    char line[160];
    size_t n_written = 0;
    const size_t capacity = sizeof line;
    const uint64_t more = dropped - w->said;
    const int n = snprintf(line, capacity, "%s%" PRIu64 "%s\n", w->before, more, w->after);
    if (n < 0 || (size_t)n >= capacity) return WRITTEN;
    const outcome result = write_bytes(w, &n_written, line, (size_t)n);
    if (result != WRITTEN) return result;
    (void)pthread_mutex_lock(&w->lock);
    w->said = dropped;
    w->say_after = 0;
    (void)pthread_mutex_unlock(&w->lock);
    return WRITTEN;
}

static void *run(void *argument)
{
    weir_line_writer *const w = argument;
    char piece[PIECE];
    for (;;) {
        (void)pthread_mutex_lock(&w->lock);
        while (w->used == 0 && !w->is_closing) (void)pthread_cond_wait(&w->some, &w->lock);
        const size_t n = take(w, piece);
        const bool is_due = w->say_after > 0 && w->taken >= w->say_after;
        const uint64_t dropped = w->dropped;
        (void)pthread_mutex_unlock(&w->lock);
        if (n == 0) break;
        outcome result = write_lines(w, piece, n);
        if (result == WRITTEN && is_due) result = say_dropped(w, dropped);
        if (result == LATE) break;
    }
    return NULL;
}

weir_line_writer *weir_line_writer_open(int fd, const char *before, const char *after)
{
    weir_line_writer *const w = calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    w->fd = fd;
    w->before = before;
    w->after = after;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->some, NULL);
    if (pthread_create(&w->thread, NULL, run, w) == 0) return w;
    (void)pthread_mutex_destroy(&w->lock);
    (void)pthread_cond_destroy(&w->some);
    free(w);
    return NULL;
}

void weir_line_writer_close(weir_line_writer *w, int64_t wait_ms)
{
    struct timespec until;
    if (w == NULL) return;
    (void)pthread_mutex_lock(&w->lock);
    w->is_closing = true;
    w->deadline_ns = weir_clock_ns() + wait_ms * 1000000;
    (void)pthread_cond_signal(&w->some);
    (void)pthread_mutex_unlock(&w->lock);
    (void)clock_gettime(CLOCK_REALTIME, &until);
    const int64_t ms = wait_ms + LOOK_MS + GRACE_MS;
    until.tv_sec += (time_t)(ms / 1000) + 1;
    if (pthread_timedjoin_np(w->thread, NULL, &until) !=
        0) { /* another process filled the pipe between poll and write */
        (void)pthread_detach(w->thread);
        return; /* the thread may still use the memory: leave it until the process exits */
    }
    (void)pthread_mutex_destroy(&w->lock);
    (void)pthread_cond_destroy(&w->some);
    free(w);
}
