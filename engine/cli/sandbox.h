/* engine/cli/sandbox.h - what a running server can no longer do: open files, start programs, make
 * connections.
 *
 * Entered once everything is open, before the first request. There is no way out; threads that
 * exist are taken in, and those that they start inherit it. docs/security.md says what is left. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_sandbox_options {
    /* [n_folders] where files are still read, written, made and removed; all are there */
    const char *const *folders;
    size_t n_folders;
    bool strict; /* fail where the kernel has no Landlock; filter system calls too */
} weir_sandbox_options;

typedef struct weir_sandbox_state {
    int landlock; /* ABI of the kernel, 0: none, so files are not restricted */
    bool tcp; /* the kernel also refuses TCP connections and new ports */
    bool filter; /* system calls are filtered */
} weir_sandbox_state;

/* errors : EUNSUPPORTED (strict: no Landlock or no filter), EIO (a folder cannot be opened, a
 * thread cannot be taken in) */
WEIR_MUST_CHECK weir_status weir_sandbox_enter(
    weir_sandbox_state *state, const weir_sandbox_options *options, weir_error *error
);

/* sandbox_landlock.c: *rules is a descriptor, -1 without Landlock. */
WEIR_MUST_CHECK weir_status
weir_landlock_open(int *rules, int *abi, const weir_sandbox_options *options, weir_error *error);
/* For the calling thread; no allocation, safe in a signal handler. 0, or an errno. */
int weir_landlock_restrict(int rules);
/* sandbox_threads.c: runs `action` in every thread of the process; it returns 0 or an errno. */
WEIR_MUST_CHECK weir_status
weir_each_thread(int (*action)(int argument), int argument, weir_error *error);
/* sandbox_filter.c: for all threads. */
WEIR_MUST_CHECK weir_status weir_filter_enter(weir_error *error);

#ifdef __cplusplus
}
#endif
