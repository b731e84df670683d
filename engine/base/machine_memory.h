/* engine/base/machine_memory.h - how much more memory this process may take: what the machine has
 * available, and what its control groups leave. */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes. `root` stands before /proc and /sys: "" on a machine, a folder with such a tree in a test.
 * The smallest of MemAvailable and, for the process's own control group and each of its ancestors,
 * limit less what it uses without the page cache that it can drop: version 2 (memory.max,
 * memory.high) and the memory controller of version 1. Numbers of version 1 that mean "no limit"
 * are none. */
size_t weir_machine_memory(const char *root);
/* All that this process could ever have: the smallest of MemTotal and the limits of its control
 * group and the group's ancestors. SIZE_MAX: unknown. */
size_t weir_machine_memory_total(const char *root);

#ifdef __cplusplus
}
#endif
