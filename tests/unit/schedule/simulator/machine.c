#include "tests/unit/schedule/simulator/machine.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- threads --------------------------------------------------------------------------------- */
enum { THREADS = 8 };

typedef struct sim_thread {
    weir_worker *worker; /* NULL: free */
    void *(*run)(void *user);
    void *user;
    sem_t go, back; /* it may run; the engine may */
    bool is_woken, is_over;
    bool is_of_step, is_of_policies; /* it reads what a step attends to; it drops rows */
} sim_thread;

static sim_thread threads[THREADS];
static _Thread_local sim_thread *self; /* NULL: the engine's */
static int64_t n_waits; /* of the engine */
static void (*when_step_waits)(void *user);
static void *when_user;
static int64_t n_passes; /* while another waits */

static sim_thread *thread_of(const weir_worker *worker)
{
    for (int i = 0; i < THREADS; i++)
        if (threads[i].worker == worker) return &threads[i];
    return NULL;
}

static void wait_for(sem_t *what)
{
    while (sem_wait(what) != 0) {
    }
}

/* Called by the engine: the thread runs until it stops. */
static void run(sim_thread *t)
{
    (void)sem_post(&t->go);
    wait_for(&t->back);
}

/* Called by a worker. */
static void stop(void)
{
    (void)sem_post(&self->back);
    wait_for(&self->go);
}

static void *begin(void *user)
{
    self = user;
    wait_for(&self->go);
    (void)self->run(self->user);
    self->is_over = true;
    (void)sem_post(&self->back);
    return NULL;
}

weir_status weir_worker_open(
    weir_worker *worker, void *(*function)(void *user), void *user, const char *purpose,
    weir_error *error
)
{
    sim_thread *const t = thread_of(NULL);
    if (t == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "the simulator has no thread that %s", purpose);
    *t = (sim_thread){ .worker = worker,
                       .run = function,
                       .user = user,
                       .is_woken = true,
                       .is_of_step = strcmp(purpose, "reads KV pages") == 0,
                       .is_of_policies = strcmp(purpose, "applies KV policies") == 0 };
    (void)sem_init(&t->go, 0, 0);
    (void)sem_init(&t->back, 0, 0);
    worker->is_closing = false;
    worker->has_thread = pthread_create(&worker->thread, NULL, begin, t) == 0;
    if (worker->has_thread) return WEIR_OK;
    t->worker = NULL;
    return weir_error_set(error, WEIR_ENOMEM, "the thread that %s cannot be started", purpose);
}

void weir_worker_close(weir_worker *worker)
{
    if (!worker->has_thread) return;
    sim_thread *const t = thread_of(worker);
    worker->is_closing = true;
    while (!t->is_over) run(t);
    (void)pthread_join(worker->thread, NULL);
    (void)sem_destroy(&t->go);
    (void)sem_destroy(&t->back);
    t->worker = NULL;
    worker->has_thread = false;
}

/* Nothing runs at the same time. */
void weir_worker_lock(weir_worker *worker) { (void)worker; }
void weir_worker_unlock(weir_worker *worker) { (void)worker; }

void weir_worker_wait(weir_worker *worker)
{
    if (self != NULL) {
        self->is_woken = false;
        stop();
        return;
    }
    sim_thread *const t = thread_of(worker);
    if (!t->is_woken || t->is_over) {
        (void)fprintf(stderr, "the engine waits for a thread that has nothing to do\n");
        abort();
    }
    n_waits += !t->is_of_step;
    if (t->is_of_step && when_step_waits != NULL) when_step_waits(when_user);
    run(t);
}

/* Of the engine. Time passes if the thread has nothing to do. */
void weir_worker_wait_for(weir_worker *worker, int64_t ns)
{
    sim_thread *const t = thread_of(worker);
    const bool runs = t->is_woken && !t->is_over;
    if (runs) run(t);
    sim_clock_add(runs ? ns / 4 + 1 : ns);
}

void weir_worker_wake(weir_worker *worker)
{
    if (self == NULL) thread_of(worker)->is_woken = true;
}

void weir_worker_listen(weir_worker *worker, void (*listener)(void *user), void *user)
{
    worker->listener = listener;
    worker->listener_user = user;
}

void weir_worker_report(weir_worker *worker)
{
    if (worker->listener != NULL) worker->listener(worker->listener_user);
}

void sim_workers_run(int n)
{
    for (sim_thread *t = threads; t < threads + THREADS; t++)
        for (int i = 0; i <= n && t->worker != NULL && t->is_woken; i++) run(t);
}

void sim_reader_run(void)
{
    if (n_passes++ % 2 > 0) return;
    for (sim_thread *t = threads; t < threads + THREADS; t++)
        if (t->worker != NULL && t->is_of_step && t->is_woken) run(t);
}

void sim_when_step_waits(void (*function)(void *user), void *user)
{
    when_step_waits = function;
    when_user = user;
}

int64_t sim_engine_waits(void)
{
    const int64_t n = n_waits;
    n_waits = 0;
    return n;
}

bool sim_workers_are_busy(void)
{
    for (const sim_thread *t = threads; t < threads + THREADS; t++)
        if (t->worker != NULL && t->is_woken) return true;
    return false;
}

bool sim_policies_are_busy(void)
{
    for (const sim_thread *t = threads; t < threads + THREADS; t++)
        if (t->worker != NULL && t->is_woken && t->is_of_policies) return true;
    return false;
}

/* ---- the disk -------------------------------------------------------------------------------- */
enum { FILES = 4, PAGE = WEIR_LOWER_TIER_ALIGNMENT };

static struct {
    sim_disk now;
    int64_t n_calls, n_faults, n_holes;
    struct {
        int fd; /* 0: free */
        char *bytes;
        bool *held; /* [n / PAGE] parts that were written, and not given back since */
        size_t n;
    } files[FILES];
} disk;

void sim_disk_reset(void)
{
    for (int i = 0; i < FILES; i++) {
        free(disk.files[i].bytes);
        free(disk.files[i].held);
    }
    memset(&disk, 0, sizeof disk);
    n_passes = 0;
}
void sim_disk_set(const sim_disk *set) { disk.now = *set; }
int64_t sim_disk_faults(void) { return disk.n_faults; }
int64_t sim_disk_holes(void) { return disk.n_holes; }

size_t sim_disk_bytes(void)
{
    size_t n = 0;
    for (int i = 0; i < FILES; i++)
        for (size_t page = 0; page < disk.files[i].n / PAGE; page++) n += disk.files[i].held[page];
    return n * PAGE;
}

/* The number of a file that has memory up to `end`; -1: there is none. */
static int file_of(int fd, size_t end)
{
    int i = 0;
    while (i < FILES && disk.files[i].fd != fd && disk.files[i].fd != 0) i++;
    if (i == FILES) return -1;
    disk.files[i].fd = fd;
    const size_t before = disk.files[i].n, after = (2 * end + PAGE - 1) / PAGE * PAGE;
    if (end <= before) return i;
    char *const more = realloc(disk.files[i].bytes, after);
    if (more == NULL) return -1;
    disk.files[i].bytes = more;
    bool *const held = realloc(disk.files[i].held, after / PAGE * sizeof *held);
    if (held == NULL) return -1;
    memset(more + before, 0, after - before);
    memset(held + before / PAGE, 0, (after - before) / PAGE * sizeof *held);
    disk.files[i].held = held;
    disk.files[i].n = after;
    return i;
}

/* Marks parts that bytes [at, end) are in. */
static void hold(int file, size_t at, size_t end, bool is_held)
{
    for (size_t page = at / PAGE; page * PAGE < end; page++) disk.files[file].held[page] = is_held;
}

/* One of 256 chances of each kind, in order of the calls. */
static bool happens(int of_256, uint32_t kind)
{
    const uint32_t x = ((uint32_t)disk.n_calls * 4 + kind + disk.now.seed * UINT32_C(2654435761)) *
                       UINT32_C(2246822519);
    const bool yes = (int)((x ^ x >> 15) * UINT32_C(3266489917) >> 24) < of_256;
    disk.n_faults += yes;
    return yes;
}

static void begin_call(void)
{
    if (self != NULL)
        stop();
    else
        n_waits++;
    disk.n_calls++;
}

static ssize_t disk_write(int fd, const struct iovec *pieces, int n_pieces, off_t at)
{
    size_t end = (size_t)at, done = 0, left;
    begin_call();
    if (happens(disk.now.write_fails, 0)) {
        errno = ENOSPC;
        return -1;
    }
    for (int i = 0; i < n_pieces; i++) end += pieces[i].iov_len;
    const int file = file_of(fd, end);
    if (file < 0) {
        errno = EIO;
        return -1;
    }
    char *const bytes = disk.files[file].bytes;
    left = end - (size_t)at;
    if (happens(disk.now.is_short, 1)) left = (left + 1) / 2;
    for (int i = 0; i < n_pieces && left > 0; i++) {
        const size_t n = pieces[i].iov_len < left ? pieces[i].iov_len : left;
        memcpy(bytes + at + done, pieces[i].iov_base, n);
        done += n;
        left -= n;
    }
    hold(file, (size_t)at, (size_t)at + done, true);
    return (ssize_t)done;
}

static ssize_t disk_read(int fd, void *out, size_t n, off_t at)
{
    begin_call();
    const int file = file_of(fd, (size_t)at + n);
    if (file < 0 || happens(disk.now.read_fails, 0)) {
        errno = EIO;
        return -1;
    }
    if (happens(disk.now.is_short, 1)) n = (n + 1) / 2;
    memcpy(out, disk.files[file].bytes + at, n);
    if (happens(disk.now.garbles, 2)) ((char *)out)[n / 2] ^= 1;
    return (ssize_t)n;
}

/* These two do not stop: the caller of the first has a lock that other threads wait for. */
static int disk_hole(int fd, off_t at, off_t n)
{
    disk.n_calls++;
    const int file = happens(disk.now.write_fails, 0) ? -1 : file_of(fd, (size_t)(at + n));
    if (file < 0) {
        errno = EIO;
        return -1;
    }
    disk.n_holes++;
    memset(disk.files[file].bytes + at, 0, (size_t)n);
    hold(file, (size_t)at, (size_t)(at + n), false);
    return 0;
}

static int disk_truncate(int fd, off_t n)
{
    const int file = file_of(fd, (size_t)n);
    if (file < 0) {
        errno = EIO;
        return -1;
    }
    const size_t end = disk.files[file].n;
    if (end > (size_t)n) memset(disk.files[file].bytes + n, 0, end - (size_t)n);
    hold(file, (size_t)n, end, false);
    return 0;
}

const weir_lower_tier_io sim_disk_io = {
    .write = disk_write, .read = disk_read, .make_hole = disk_hole, .truncate = disk_truncate
};

/* ---- the clock ------------------------------------------------------------------------------- */
static int64_t now_ns = INT64_C(1000000000);

void sim_clock_add(int64_t ns) { now_ns += ns; }
int64_t sim_clock_ns(void) { return now_ns; }

/* For the program and its libraries; the other clocks are the system's. */
int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (clock != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, clock, out);
    *out = (struct timespec){ .tv_sec = now_ns / 1000000000, .tv_nsec = now_ns % 1000000000 };
    return 0;
}
