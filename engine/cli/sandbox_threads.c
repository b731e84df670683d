/* engine/cli/sandbox_threads.c - runs an action in every thread, by a signal to one after the
 * other: Landlock restricts the calling thread only, and compute threads start before all files are
 * open. Ends when a pass over /proc/self/task finds no new thread. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/cli/sandbox.h"

enum { MOST_THREADS = 1 << 16, PASSES = 64 };
static const int64_t patience_ns =
    INT64_C(10000000000); /* per thread; a stopped one never answers */

static int (*running_action)(int argument);
static int running_argument;
static atomic_int done, problem; /* problem: the first errno */

static void act(int number)
{
    const int before = errno;
    const int why = running_action(running_argument);
    int none = 0;
    (void)number;
    if (why != 0) (void)atomic_compare_exchange_strong(&problem, &none, why);
    (void)atomic_fetch_add(&done, 1);
    errno = before;
}

typedef struct threads {
    pid_t *ids; /* [n] handled */
    int n;
} threads;

static bool is_new(threads *seen, pid_t id)
{
    for (int i = 0; i < seen->n; i++)
        if (seen->ids[i] == id) return false;
    if (seen->n < MOST_THREADS) seen->ids[seen->n++] = id;
    return true;
}

static weir_status act_in(pid_t id, int number, weir_error *error)
{
    const int before = atomic_load(&done);
    const pid_t process = getpid();
    const int64_t deadline = weir_clock_ns() + patience_ns;
    if (syscall(SYS_tgkill, process, id, number) != 0)
        return errno == ESRCH ? WEIR_OK
                              : weir_error_set(
                                    error, WEIR_EIO, "thread %d cannot enter the sandbox: %s",
                                    (int)id, strerror(errno)
                                );
    while (atomic_load(&done) == before) {
        if (syscall(SYS_tgkill, process, id, 0) != 0) return WEIR_OK; /* it has ended */
        if (weir_clock_ns() > deadline)
            return weir_error_set(
                error, WEIR_EIO, "thread %d did not enter the sandbox within 10 s", (int)id
            );
        (void)nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    }
    return WEIR_OK;
}

/* *found: number of threads that were not handled before. A thread that one of them starts
 * meanwhile is found by the next pass, or inherits its parent's restrictions. */
static weir_status pass(threads *seen, int number, int *found, weir_error *error)
{
    DIR *const tasks = opendir("/proc/self/task");
    if (tasks == NULL)
        return weir_error_set(error, WEIR_EIO, "/proc/self/task: %s", strerror(errno));
    weir_status status = WEIR_OK;
    *found = 0;
    for (const struct dirent *entry; status == WEIR_OK && (entry = readdir(tasks)) != NULL;) {
        const pid_t id = (pid_t)strtol(entry->d_name, NULL, 10);
        if (id <= 0 || !is_new(seen, id)) continue;
        ++*found;
        status = act_in(id, number, error);
    }
    (void)closedir(tasks);
    return status;
}

/* The calling thread comes last: its Landlock rules hide /proc. */
static weir_status act_in_all(threads *seen, int number, weir_error *error)
{
    int found = 1;
    seen->ids[seen->n++] = (pid_t)syscall(SYS_gettid);
    for (int i = 0; found > 0; i++) {
        if (i == PASSES || seen->n == MOST_THREADS)
            return weir_error_set(
                error, WEIR_EIO, "threads start faster than they can enter the sandbox"
            );
        WEIR_TRY(pass(seen, number, &found, error));
    }
    act(number);
    return WEIR_OK;
}

weir_status weir_each_thread(int (*action)(int argument), int argument, weir_error *error)
{
    const int number = SIGRTMIN + 5;
    const struct sigaction mine = { .sa_handler = act, .sa_flags = SA_RESTART };
    struct sigaction before;
    threads seen = { .ids = malloc(MOST_THREADS * sizeof *seen.ids) };
    if (seen.ids == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory to enter the sandbox");
    running_action = action;
    running_argument = argument;
    atomic_store(&problem, 0);
    if (sigaction(number, &mine, &before) != 0) {
        free(seen.ids);
        return weir_error_set(
            error, WEIR_EIO, "cannot catch signal %d: %s", number, strerror(errno)
        );
    }
    weir_status status = act_in_all(&seen, number, error);
    (void)sigaction(number, &before, NULL);
    free(seen.ids);
    const int why = atomic_load(&problem);
    if (status == WEIR_OK && why != 0)
        status =
            weir_error_set(error, WEIR_EIO, "a thread cannot enter the sandbox: %s", strerror(why));
    return status;
}
