/* engine/cli/sandbox.h - restricts a running server: it can no longer open files, start programs or
 * make connections.
 *
 * Entered once everything is open, before the first request. It cannot be left; existing threads
 * are restricted too, and those that they start inherit it. docs/security.md says what remains
 * allowed. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_sandbox_options {
    /* [n_folders] in which files are still read, written, created and removed; all exist. */
    const char *const *folders;
    size_t n_folders;
    /* Fails if the kernel has no Landlock; also filters system calls. */
    bool strict;
} weir_sandbox_options;

typedef struct weir_sandbox_state {
    int landlock; /* Landlock ABI of the kernel; 0: none, files are not restricted */
    bool tcp; /* the kernel also refuses TCP connections and binds */
    bool filter; /* system calls are filtered */
} weir_sandbox_state;

/* errors : EUNSUPPORTED (strict: no Landlock or no filter), EIO (a folder cannot be opened, a
 * thread cannot be restricted) */
WEIR_MUST_CHECK weir_status weir_sandbox_enter(
    weir_sandbox_state *state, const weir_sandbox_options *options, weir_error *error
);

/* sandbox_landlock.c: *rules is a descriptor, or -1 without Landlock. */
WEIR_MUST_CHECK weir_status
weir_landlock_open(int *rules, int *abi, const weir_sandbox_options *options, weir_error *error);
/* Restricts the calling thread. No allocation, safe in a signal handler. Returns 0 or an errno. */
int weir_landlock_restrict(int rules);
/* sandbox_threads.c: runs `action` in every thread of the process; it returns 0 or an errno. */
WEIR_MUST_CHECK weir_status
weir_each_thread(int (*action)(int argument), int argument, weir_error *error);
/* sandbox_filter.c: for all threads. */
WEIR_MUST_CHECK weir_status weir_filter_enter(weir_error *error);

#ifdef __cplusplus
}
#endif
