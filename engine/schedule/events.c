/* engine/schedule/events.c - events that jobs report, and how jobs end. */
#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/schedule/job.h"

/* A thread that releases the job sets is_released, then looks at in_callback: one of the two sees
 * the other, so a token takes no lock. */
static void end_callback(weir_job *job)
{
    weir_service *const service = job->service;
    atomic_store(&job->in_callback, false);
    if (!atomic_load(&job->is_released)) return;
    pthread_mutex_lock(&service->lock);
    pthread_cond_broadcast(&service->idle);
    pthread_mutex_unlock(&service->lock);
}

bool weir_job_emit(weir_job *job, const weir_event *event)
{
    if (job->is_reported) return false;
    atomic_store(&job->in_callback, true);
    const bool go_on =
        !atomic_load(&job->is_released) && job->request.callback(job->request.user, event);
    end_callback(job);
    return go_on;
}

void weir_choice_end(choice *c, weir_finish finish, int32_t stop_token)
{
    if (c->is_ended) return;
    c->is_ended = true;
    c->job->n_ended++;
    weir_choice_leave_fork(c);
    weir_choice_count(c);
    weir_choice_end_sequence(c);
    (void)weir_job_emit(
        c->job,
        &(weir_event
        ){ .type = WEIR_EVENT_CHOICE, .choice = c->index, .finish = finish, .token = stop_token }
    );
}

static void unlink_running(weir_service *service, const weir_job *job)
{
    for (weir_job **at = &service->running; *at != NULL; at = &(*at)->next) {
        if (*at != job) continue;
        *at = job->next;
        return;
    }
}

/* The last event. */
static void emit_done(weir_job *job, weir_status status, const char *message)
{
    if (job->prefilled_ns != 0) job->usage.decode_ns = weir_clock_ns() - job->prefilled_ns;
    (void)weir_job_emit(
        job, &(weir_event){ .type = WEIR_EVENT_DONE,
                            .status = status,
                            .message = message,
                            .embedding = status == WEIR_OK ? weir_job_embedding(job) : NULL,
                            .usage = job->usage }
    );
}

void weir_job_finish(weir_job *job, weir_status status, const char *message)
{
    weir_service *const service = job->service;
    const weir_finish finish = status == WEIR_OK          ? WEIR_FINISH_STOP
                               : status == WEIR_ECANCELED ? WEIR_FINISH_CANCELED
                                                          : WEIR_FINISH_ERROR;
    const bool was_admitted = job->admitted_ns != 0;
    weir_job_forget_forks(job);
    for (int32_t i = 0; was_admitted && i < job->request.n_choices; i++)
        weir_choice_end(&job->choices[i], finish, -1);
    service->has_news = true;
    if (job->n_unreleased == 0) unlink_running(service, job);
    if (!job->is_reported) emit_done(job, status, message);
    job->is_reported = true;
    if (job->n_unreleased > 0) return;
    pthread_mutex_lock(&service->lock);
    if (was_admitted) {
        service->n_running--;
        service->stats.prompt_tokens += job->usage.n_prompt;
        service->stats.cached_tokens += job->usage.n_cached;
        service->stats.answer_tokens += job->usage.n_answer;
        service->stats.drafted_tokens += job->usage.n_drafted;
        service->stats.accepted_tokens += job->usage.n_accepted;
    }
    job->state = JOB_FINISHED;
    const bool owner_left = atomic_load(&job->is_released) && !job->is_awaited;
    pthread_cond_broadcast(&service->idle);
    pthread_mutex_unlock(&service->lock);
    if (owner_left) weir_job_free(job);
}

void weir_job_time_out(weir_job *job)
{
    weir_job_forget_forks(job);
    for (int32_t i = 0; i < job->request.n_choices; i++) {
        const weir_event event = {
            .type = WEIR_EVENT_CHOICE, .choice = i, .finish = WEIR_FINISH_TIMEOUT, .token = -1
        };
        if (job->admitted_ns != 0)
            weir_choice_end(&job->choices[i], WEIR_FINISH_TIMEOUT, -1);
        else
            (void)weir_job_emit(job, &event);
    }
    weir_job_finish(job, WEIR_OK, NULL);
}

void weir_job_report_end(weir_job *job, weir_finish finish, weir_status status, const char *message)
{
    if (job->is_reported) return;
    for (int32_t i = 0; i < job->request.n_choices; i++) {
        choice *const c = &job->choices[i];
        if (c->is_ended) continue;
        weir_choice_count(c);
        weir_choice_release_followers(c);
        (void)weir_job_emit(
            job,
            &(weir_event){ .type = WEIR_EVENT_CHOICE, .choice = i, .finish = finish, .token = -1 }
        );
    }
    emit_done(job, status, message);
    job->is_reported = true;
}

void weir_job_free(weir_job *job)
{
    if (job == NULL) return;
    for (int32_t i = 0; job->choices != NULL && i < job->request.n_choices; i++) {
        weir_memory_give(job->choices[i].history.prompt);
        weir_memory_give(job->choices[i].history.answer);
        weir_grammar_state_close(job->choices[i].grammar);
    }
    weir_grammar_release(job->request.grammar);
    weir_memory_give(job->choices);
    weir_policy_run_close(job->policy_run);
    weir_job_close_embedding(job);
    weir_memory_give((void *)job->request.policy);
    weir_memory_give((void *)job->request.prompt);
    weir_memory_give((void *)job->request.sampling.bias);
    weir_memory_give((void *)job->request.cache_salt);
    weir_memory_give((void *)job->request.session);
    weir_memory_give(job);
}
