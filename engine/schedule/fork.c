/* engine/schedule/fork.c - the other choices of a request, which begin with the rows of its prompt.
 * All draw their first token from its logits. To share the rows takes time for each page, so of
 * many choices some begin in later iterations (docs/decisions/0085-begins-and-ends.md). What they
 * fork has to stay as it is: choice 0 waits until the last one has forked it, which then waits for
 * all others. With a policy all wait, as rows are dropped when all have them (pruning.c). */
#include <string.h>

#include "engine/schedule/job.h"

/* Shares the rows of the prompt. Returns false without memory for the table. If choice 0 has ended,
 * what makes room may release it: the last choice, which is this one, has forked it then, or
 * stalls (give_back). */
static bool share_rows(choice *c, const choice *from)
{
    weir_kv_sequence *const to = c->sequence;
    if (!weir_choice_may_fork(c, from->sequence->table.n_rows) || !c->is_unforked) return false;
    if (weir_kv_sequence_fork(to, from->sequence) == WEIR_OK) return true;
    return weir_service_release_ended(c->job->service, true) && c->is_unforked &&
           weir_kv_sequence_fork(to, from->sequence) == WEIR_OK;
}

static void leave(choice *c)
{
    c->is_unforked = false;
    c->job->n_unforked--;
}

/* It has the tokens of the prompt, and its own. */
static void take_tokens(choice *c, const choice *from)
{
    weir_kv_sequence *const to = c->sequence;
    const size_t n = (size_t)to->n_tokens - 1;
    memcpy(to->tokens, from->sequence->tokens, n * sizeof *to->tokens);
}

/* It computes the prompt again, like one that was preempted. */
static void stall(choice *c, const choice *from)
{
    take_tokens(c, from);
    c->is_waiting = false;
    c->is_stalled = c->is_again = true;
    leave(c);
}

static void fork_rows(choice *c)
{
    weir_job *const job = c->job;
    choice *const from = &job->choices[job->fork_source];
    weir_kv_sequence *const to = c->sequence;
    const int32_t n_tokens = to->n_tokens, token = to->tokens[n_tokens - 1];
    const bool has_rows = share_rows(c, from);
    if (!c->is_unforked) return;
    to->n_tokens = n_tokens;
    to->tokens[n_tokens - 1] = token;
    if (!has_rows) {
        stall(c, from);
        return;
    }
    c->is_waiting = false;
    leave(c);
    c->is_pruning = !weir_policy_is_applied(to); /* if it has a policy, that is next */
    job->service->pace.forks -= weir_choice_work(c);
    if (job->fork_source == 0) job->fork_source = c->index;
}

/* The last one first, so that choice 0 can go on; then in order. */
static choice *next_of(const weir_job *job)
{
    choice *next = NULL;
    for (int32_t i = 1; i < job->request.n_choices; i++) {
        choice *const c = &job->choices[i];
        if (c->is_unforked && (next == NULL || job->fork_source == 0)) next = c;
    }
    return next;
}

static weir_job *next_job(const weir_service *service)
{
    weir_job *next = NULL;
    for (weir_job *job = service->running; job != NULL; job = job->next) {
        if (job->n_unforked == 0 || job->is_in_step || job->is_reported) continue;
        if (next == NULL || weir_choice_is_before(&job->choices[0], &next->choices[0])) next = job;
    }
    return next;
}

void weir_service_fork(weir_service *service)
{
    weir_job *job;
    while (service->pace.forks > 0 && (job = next_job(service)) != NULL) fork_rows(next_of(job));
}

void weir_choice_hand_over(const choice *c)
{
    while (weir_choice_is_held(c)) fork_rows(next_of(c->job));
}

void weir_choice_stall_forks(const choice *c)
{
    weir_job *const job = c->job;
    while (weir_choice_is_held(c)) stall(next_of(job), c);
}

void weir_choice_leave_fork(choice *c)
{
    if (c->is_unforked) leave(c);
}

void weir_job_forget_forks(weir_job *job)
{
    for (int32_t i = 1; job->n_unforked > 0 && i < job->request.n_choices; i++)
        weir_choice_leave_fork(&job->choices[i]);
}

void weir_choice_wait_to_fork(choice *c)
{
    c->job->fork_source = 0;
    c->sequence->n_tokens = c->job->choices[0].sequence->n_tokens;
    c->is_unforked = true;
    c->job->n_unforked++;
}
