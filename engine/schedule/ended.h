/* engine/schedule/ended.h - the ends of sequences: what they hold goes to the prefix cache, and
 * their slots become free, over several iterations if it is much. Engine thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/schedule/service.h"

#ifdef __cplusplus
extern "C" {
#endif

struct choice;

/* What sequences that begin, those that go on after they were preempted or their state was read,
 * those that fork a prompt (fork.c), those that take over what others computed (follow.c), those
 * that are preempted, and those that end may move in an iteration: bytes of tables, pages and
 * recurrent states, and what takes as long. The last of each as many as it must. */
typedef struct service_pace {
    int64_t least; /* of each, in any iteration */
    int64_t pass_ns; /* and one more for so much time of the last pass */
    /* Left of each in this iteration. */
    int64_t begins, resumes, forks, follows, preempts, ends;
    int64_t all_ns; /* of all passes, when it began */
    /* What lacks memory waits for the next iteration, in which others are preempted. */
    bool is_preempting;
} service_pace;

/* What is moved for a choice before its first step: entries of the pages that it takes over from
 * the prefix cache or forks, a copy of the block that its own rows begin in, and of the
 * states of recurrent layers and of its policy. */
int64_t weir_choice_work(const struct choice *c);
/* What takes its rows to the prefix cache and drops its pages. */
int64_t weir_choice_end_work(const struct choice *c);
/* reuse.c: true if it may find much when it looks again, and others have taken over as much as may
 * be in this iteration. */
bool weir_choice_waits_to_look(const struct choice *c);
/* An iteration begins: sets what it may move. */
void weir_service_set_pace(weir_service *service);
/* Something lacks memory: true if as much was preempted as may be in this iteration. */
bool weir_service_will_preempt(weir_service *service);
/* The choice has ended: releases its sequence, or leaves that for later. */
void weir_choice_end_sequence(struct choice *c);
/* Releases those that are left, as many as may, or all. Returns true if there was one. */
bool weir_service_release_ended(weir_service *service, bool all);
/* Releases one. Returns false if there is none. */
bool weir_service_release_one(weir_service *service);
/* Releases those whose rows the prompt goes on with, so that it finds them. */
void weir_service_release_before(weir_service *service, const weir_job *job);
/* Ends the jobs whose choices have all ended and are released. */
void weir_service_finish_ended(weir_service *service);

#ifdef __cplusplus
}
#endif
