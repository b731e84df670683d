/* engine/base/processors.h - how many threads of this process can compute at once. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The cores that the process may run on (sched_setaffinity; processors of one core count once), at
 * most what the CPU quotas of its control groups allow (cpu.max, rounded down: a team of threads
 * that exceeds its quota is stopped as a whole until the period ends). At least 1. `root`: as for
 * weir_machine_memory. */
int weir_processors(const char *root);
/* The same with these processors instead of those that the process may run on. */
int weir_processors_among(const char *root, const int *processors, size_t n);
/* Threads of a server for requests: `wanted`, or if that is 0 one per core, 4 to 1024. */
int weir_request_threads(int64_t wanted);

#ifdef __cplusplus
}
#endif
