/* tests/unit/schedule/simulator/machine.h - the machine of a simulation: threads that run only when
 * they are told to, a disk in memory, and a clock.
 *
 * Threads: the program's weir_worker_* go before those of the library. Only one thread runs at a
 * time: that of a worker runs while the engine waits for it, or as far as sim_workers_run lets it.
 * It stops where it waits, and before each read and write. So what the engine finds done between
 * two steps depends on the calls here only. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/worker.h"
#include "engine/kv/tiers/lower_tier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- threads ---- */
/* Lets each worker run until it waits, or for at most n reads and writes. */
void sim_workers_run(int n);
/* Lets the worker that reads what a step attends to run, every other time. */
void sim_reader_run(void);
/* Called when the engine waits for that one; NULL: nothing is. */
void sim_when_step_waits(void (*function)(void *user), void *user);
/* True if some worker has something to do. */
bool sim_workers_are_busy(void);
bool sim_policies_are_busy(void); /* the worker that applies policies has */

/* How often the engine waited for a thread, or read or wrote itself, since the last call. Not
 * counted: the rows on disk that a step attends to, which a thread reads ahead (prefetch.h). */
int64_t sim_engine_waits(void);

/* ---- the disk ---- */
typedef struct sim_disk {
    /* Of 256 calls, as many fail, write or read only some bytes, or (reads) return others. */
    int write_fails, read_fails, is_short, garbles;
    uint32_t seed;
} sim_disk;
/* The disk is empty, and healthy. */
void sim_disk_reset(void);
void sim_disk_set(const sim_disk *disk);
extern const weir_lower_tier_io sim_disk_io;
int64_t sim_disk_faults(void); /* since sim_disk_reset */
int64_t sim_disk_holes(void); /* the same: parts of files that were given back */
size_t sim_disk_bytes(void); /* that the files hold */

/* ---- the clock, which weir_clock_ns reads ---- */
void sim_clock_add(int64_t ns);
int64_t sim_clock_ns(void);

#ifdef __cplusplus
}
#endif
