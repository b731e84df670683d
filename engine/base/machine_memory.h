/* engine/base/machine_memory.h - how much memory this process may use: what the machine has
 * available and what its control groups allow. */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that this process may still allocate: the minimum of MemAvailable and, for its control
 * group and each ancestor, the limit minus the usage without reclaimable page cache. Reads cgroup
 * v2 (memory.max, memory.high) and the memory controller of v1, whose values for "no limit" are
 * ignored. `root` is put before /proc and /sys: "" normally, a folder in tests. */
size_t weir_machine_memory(const char *root);
/* The most this process could ever use: the minimum of MemTotal and the limits of its control group
 * and the ancestors. SIZE_MAX: unknown. */
size_t weir_machine_memory_total(const char *root);

#ifdef __cplusplus
}
#endif
