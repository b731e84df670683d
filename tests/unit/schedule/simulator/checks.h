/* tests/unit/schedule/simulator/checks.h - what must hold between the choices of two iterations,
 * and of a job that is admitted. */
#pragma once
#include "tests/unit/schedule/simulator/request.h"

namespace sim {

/* Choices in order, as they are between two iterations. */
using View = std::vector<sim_choice>;

inline Request *request_of(const sim_choice &c) { return static_cast<Request *>(c.user); }
inline Answer &answer_of(const sim_choice &c)
{
    return request_of(c)->answers[static_cast<size_t>(c.index)];
}
/* The same choice in another view; nullptr: it is not there. */
const sim_choice *find(const View &view, const sim_choice &c);

/* All return what is wrong, or "". before, after: an iteration. */

/* A job that was queued and is admitted while `view` has slots. window: rows of a sequence at
 * most. */
std::string check_admission(
    const std::vector<std::unique_ptr<Request>> &all, const Request &admitted, const View &view,
    int64_t window
);
/* A choice that lost rows comes after all that kept theirs, and is not the first. has_come: a job
 * was admitted in the iteration, which may have been before it and be gone. n_preempted: some of
 * these may have found all their rows in the cache, and have them again. */
std::string check_victims(
    const View &before, const View &after, bool has_come, int64_t n_preempted
);
/* Each decoding sequence got a token, except one that was preempted, or that stalls: the block
 * that its next row goes to is on disk, the row needs a page, or its policy is being applied, and
 * blocks, states or the rows that a policy keeps move. Counts both. */
std::string check_gaps(
    const View &before, const View &after, int64_t iteration, bool has_moves, int64_t *n_gaps,
    int64_t *n_out
);
/* While one that decodes, or the first in order, stalls for memory, none behind it took some:
 * after the first go those with one row, then prompts. If the first is a prompt, those of other
 * clients have their turns. is_alone: no job came, none that ran has a policy, and no step waited:
 * what came may have filled the step, also before it ended, and a prompt may not have fit in the
 * step that waited. is_one_step: the iteration had one; of several each has a first one. */
std::string check_memory(
    const View &before, const View &after, int64_t iteration, bool has_moves, bool is_alone,
    bool is_one_step
);
/* While the rows that the policy of a choice keeps wait for memory, no choice behind it begins a
 * block. Counts iterations in which two wait. */
std::string check_pruned(const View &before, const View &after, int64_t *n_two);
enum { LEAST_PIECE = 32 }; /* rows of a prompt that go on in any case */

/* After an iteration with one step: what the rows of a choice cost, in rows at the beginning of a
 * prompt; prompt rows cost no more than a chunk, whatever their depth. */
int64_t cost_of(const View &after, const Setup &setup, const sim_choice &c);
std::string check_cost(const View &after, const Setup &setup);
/* Those that go on with cached rows, those that fork a prompt, and those that are preempted: at
 * least one of the second, and if iterations may move little, one of each. */
std::string check_pace(
    const View &before, const View &after, bool is_slow, bool is_one_step, int64_t n_preempted
);
/* Each sequence gets further. Counts iterations in which nothing was withheld. */
std::string check_progress(
    const View &before, const View &after, int64_t iteration, bool is_withheld
);

/* While a step runs that was left without some for lack of memory: what it begins goes to those
 * that are before them; the first in order, those with one row, then prompts. */
std::string check_step_memory(const View &now);
/* Of those that go on while a step waits for a block: none could. Not of prompts with a policy,
 * whose pieces may be too long for that, nor if one lacks memory: it may have the others' rows. */
std::string check_step_wait(const View &now);

/* A line of a log: what each has. */
std::string print_view(const View &view);

/* The choices that have ended and are not released, by slot; NULL: none. */
std::vector<const void *> slots_of_ended(const weir_service *service);

} // namespace sim
