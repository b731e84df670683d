/* tests/unit/schedule/simulator/schedule.h - one random schedule: what comes, when, and what goes
 * wrong with the machine, all from a seed; and what must hold after every iteration of the engine.
 *
 * Answers    each token is the one that its sequence has, whatever else ran
 * Order      admission: the best priority, then the client with the fewest jobs, then its oldest
 *            job; preemption: from the last in order; the first one keeps its rows
 * Shares     of clients with prompts none gets some pieces ahead of another
 * Gaps       every iteration computes a row of every decoding sequence, unless it is preempted or
 *            stalls, and then at most mixed_chunk rows of prompts; a sequence stalls only if it
 *            needs a page or a block on disk, or its policy is applied, and only while something
 *            moves
 * Memory     what is free for a step goes to the first in order, then to those that decode, then
 *            to prompts;
 *            none behind a choice whose policy waits for memory begins a block; none is preempted
 *            while a thread drops rows
 * Waits      the engine waits for no disk, except for rows that a step attends to, and then only if
 *            no sequence without blocks on disk could go on
 * Pace       where little may begin in an iteration, one sequence that was preempted or read, one
 *            that is preempted, and one choice that forks a prompt; and of these one in any case
 * Progress   a sequence gets further, or one before it in order does, or the one that it follows,
 *            within `patience` iterations; recomputing is no progress
 * Ends       a cancelled or late job ends in two iterations, and has sent its last event before a
 *            step waits again; all jobs end for the right reason; in each iteration one that has
 *            ended and has a slot yet is released
 * Bytes      sim_audit */
#pragma once
#include <map>
#include <memory>

#include "tests/unit/schedule/simulator/world.h"

namespace sim {

/* What may happen. A failure without some of it is easier to read. */
enum Feature : unsigned {
    DISK = 1,
    FAULTS = 2, /* of the disk */
    STALLS = 4, /* of reads and writes */
    CANCELS = 8,
    TIMEOUTS = 16,
    PRIORITIES = 32,
    CHOICES = 64, /* n > 1 */
    SHARING = 128, /* sequences that begin alike */
    FAILURES = 256, /* of the forward pass */
    POLICIES = 512, /* that drop rows */
    LEAVES = 1024, /* clients of a step that waits do */
    ALL = 2047
};
constexpr size_t kFeatures = 11;
extern const char *const feature_names[kFeatures];

struct Limits {
    unsigned features = ALL;
    int n_jobs = 1000; /* at most */
    bool prunes = false; /* what policies drop is on disk more often */
    bool prints = false; /* the log, line by line, for a seed that ends the program */
};

/* How often what a schedule is about happened. */
struct Counts {
    int64_t iterations, tokens, jobs, refused, cancelled, late, failed, preemptions, cached_tokens,
        followed, gaps, faults, demoted_bytes, promoted_bytes, cold_bytes_read, states_out,
        states_back, evicted_tokens, stalled, pruning, holes, lack_rows, step_waits, nested,
        drafted, accepted, left, turns, kept_slots, unforked;
    void add(const Counts &other);
};

struct Result {
    std::string problem; /* "": none */
    std::string log; /* if it was asked for: what happened, a line for each iteration */
    Counts counts = {};
};

Result run_schedule(const World &world, uint64_t seed, const Limits &limits, bool with_log);
/* The fewest jobs and features with which the seed still fails. */
Limits shrink(const World &world, uint64_t seed, bool prunes);
std::string print_features(unsigned features);

} // namespace sim
