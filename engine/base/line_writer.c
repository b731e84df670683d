/* engine/base/line_writer.c - a ring of bytes between those who have lines and the thread that writes. */
#include "engine/base/line_writer.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"

/* A write of PIECE bytes does not block on a pipe that poll calls writable (PIPE_BUF of Linux). */
enum { QUEUE_BYTES = 256 << 10, PIECE = 4096, LOOK_MS = 100, GRACE_MS = 100 };

struct weir_line_writer {
    int             fd;
    const char     *before, *after;
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  some;
    size_t          first, used; /* of the ring */
    uint64_t        dropped, said;
    bool            is_closing;
    int64_t         deadline_ns; /* once it is closing */
    char            ring[QUEUE_BYTES];
};

/* Lock held from here to `take`. */
static bool push(weir_line_writer *w, const char *bytes, size_t n)
{
    if (n > QUEUE_BYTES - w->used) return false;
    const size_t at = (w->first + w->used) % QUEUE_BYTES, end = QUEUE_BYTES - at,
                 head = n < end ? n : end;
    memcpy(w->ring + at, bytes, head);
    memcpy(w->ring, bytes + head, n - head);
    w->used += n;
    return true;
}

static void say_dropped(weir_line_writer *w)
{
    char      line[160];
    const int n = snprintf(line, sizeof line, "%s%llu%s\n", w->before,
                           (unsigned long long)(w->dropped - w->said), w->after);
    if (n > 0 && (size_t)n < sizeof line && push(w, line, (size_t)n)) w->said = w->dropped;
}

static size_t take(weir_line_writer *w, char *piece)
{
    const size_t end = QUEUE_BYTES - w->first, n = w->used < PIECE ? w->used : PIECE,
                 head = n < end ? n : end;
    memcpy(piece, w->ring + w->first, head);
    memcpy(piece + head, w->ring, n - head);
    w->first = (w->first + n) % QUEUE_BYTES;
    w->used -= n;
    return n;
}

void weir_line_writer_put(weir_line_writer *w, const char *line, size_t n)
{
    (void)pthread_mutex_lock(&w->lock);
    if (!push(w, line, n))
        w->dropped++;
    else if (w->dropped > w->said)
        say_dropped(w);
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

/* ---- the thread ------------------------------------------------------------------------------- */

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

/* false: time is up before they are written. */
static bool write_piece(weir_line_writer *w, const char *bytes, size_t n)
{
    while (n > 0) {
        struct pollfd ready = { .fd = w->fd, .events = POLLOUT };
        const int     found = poll(&ready, 1, LOOK_MS);
        if (is_late(w)) return false;
        if (found == 0 || (found < 0 && errno == EINTR)) continue;
        const ssize_t written = write(w->fd, bytes, n);
        if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (written <= 0) { /* the reader is gone or the disk is full */
            (void)pthread_mutex_lock(&w->lock);
            w->dropped += count_lines(bytes, n);
            (void)pthread_mutex_unlock(&w->lock);
            return true;
        }
        bytes += written;
        n -= (size_t)written;
    }
    return true;
}

static void *run(void *argument)
{
    weir_line_writer *const w = argument;
    char                    piece[PIECE];
    for (bool over = false; !over;) {
        (void)pthread_mutex_lock(&w->lock);
        while (w->used == 0 && !w->is_closing) (void)pthread_cond_wait(&w->some, &w->lock);
        const size_t n = take(w, piece);
        (void)pthread_mutex_unlock(&w->lock);
        over = n == 0 || !write_piece(w, piece, n);
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
        0) { /* another writer filled the pipe between poll and write */
        (void)pthread_detach(w->thread);
        return; /* its memory stays with the thread until the process ends */
    }
    (void)pthread_mutex_destroy(&w->lock);
    (void)pthread_cond_destroy(&w->some);
    free(w);
}
