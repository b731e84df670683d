#include "engine/cli/answer.h"

#include "engine/base/clock.h"
#include "engine/cli/progress.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Mutex and condition of all jobs of a call. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t n_open;
} gate;

typedef struct pending {
    gate *gate;
    weir_cli_answer *answer;
    weir_cli_answer_token on_token;
    void *user;
    weir_job *job;
    weir_status status;
    bool shows; /* progress, until the first token */
    bool is_admitted, has_begun;
    int32_t n_cached; /* of the prompt, once it is admitted */
    char message[512];
} pending;

static bool on_event(void *user, const weir_event *event)
{
    pending *const p = user;
    bool go_on = true;
    pthread_mutex_lock(&p->gate->lock);
    switch (event->type) {
    case WEIR_EVENT_TOKEN:
        if (p->shows) weir_progress_end();
        if (weir_ids_add(&p->answer->tokens, event->token) != WEIR_OK) go_on = false;
        if (go_on && p->on_token != NULL) go_on = p->on_token(p->user, event->token);
        break;
    case WEIR_EVENT_CHOICE:
        p->answer->finish = event->finish;
        p->answer->stop_token = event->token;
        break;
    case WEIR_EVENT_DONE:
        p->status = event->status;
        p->answer->usage = event->usage;
        (void)snprintf(
            p->message, sizeof p->message, "%s", event->message != NULL ? event->message : ""
        );
        p->gate->n_open--;
        pthread_cond_broadcast(&p->gate->changed);
        break;
    case WEIR_EVENT_ADMITTED:
        p->is_admitted = true;
        p->n_cached = event->usage.n_cached;
        break;
    case WEIR_EVENT_PROMPT:
    case WEIR_EVENT_LOGITS: break;
    }
    pthread_mutex_unlock(&p->gate->lock);
    return go_on;
}

/* Waits at most a tenth of a second, so that an interrupt is noticed. */
static void wait_a_little(gate *g)
{
    const struct timespec until = weir_clock_after(CLOCK_REALTIME, 100000000);
    (void)pthread_cond_timedwait(&g->changed, &g->lock, &until);
}

/* Shows how much of the prompt of the only job is computed. Called with the lock, which it gives up
 * for a moment. seen: [the service's slots]; NULL: there is no memory for them. */
static void show_prompt(pending *p, weir_service *service, weir_service_sequence *seen, int32_t n)
{
    int32_t most = 0;
    if (!p->is_admitted || seen == NULL || p->answer->tokens.count > 0) return;
    const int32_t n_cached = p->n_cached;
    pthread_mutex_unlock(&p->gate->lock);
    const int32_t n_seen = weir_service_sequences_of(service, seen);
    for (int32_t i = 0; i < n_seen; i++)
        if (seen[i].tokens > most) most = seen[i].tokens;
    pthread_mutex_lock(&p->gate->lock);
    if (p->answer->tokens.count > 0) return; /* the line is gone, and stays away */
    if (!p->has_begun) weir_progress_begin("computing the prompt", "tokens", n - n_cached);
    p->has_begun = true;
    weir_progress_tick(most > n_cached ? most - n_cached : 0);
}

weir_status weir_cli_answer_wait(
    weir_cli_answer *answer, weir_service *service, const weir_request *request,
    weir_cli_answer_token on_token, void *user, const volatile int *interrupted, weir_error *error
)
{
    gate g = { .lock = PTHREAD_MUTEX_INITIALIZER,
               .changed = PTHREAD_COND_INITIALIZER,
               .n_open = 1 };
    pending p = { .gate = &g, .answer = answer, .on_token = on_token, .user = user, .shows = true };
    weir_request mine = *request;
    *answer = (weir_cli_answer){ .stop_token = -1 };
    mine.callback = on_event;
    mine.user = &p;
    WEIR_TRY(weir_service_submit(service, &p.job, &mine, error));
    weir_service_sequence *const seen =
        calloc((size_t)weir_service_facts_of(service)->n_slots, sizeof *seen);
    pthread_mutex_lock(&g.lock);
    while (g.n_open > 0) {
        if (interrupted != NULL && *interrupted) weir_job_cancel(p.job);
        wait_a_little(&g);
        show_prompt(&p, service, seen, request->n_prompt);
    }
    weir_progress_end();
    pthread_mutex_unlock(&g.lock);
    free(seen);
    weir_job_release(p.job);
    if (p.status == WEIR_OK || (p.status == WEIR_ECANCELED && interrupted != NULL && *interrupted))
        return WEIR_OK;
    return weir_error_set(error, p.status, "%s", p.message);
}

void weir_cli_answer_free(weir_cli_answer *answer) { weir_ids_free(&answer->tokens); }

/* Shows how many are done. Ctrl-C cancels those that were started. */
static void watch_all(gate *g, pending *all, size_t started)
{
    const bool stops = weir_interrupted != 0;
    /* The callbacks take the lock. */
    if (stops) {
        pthread_mutex_unlock(&g->lock);
        for (size_t i = 0; i < started; i++) weir_job_cancel(all[i].job);
        pthread_mutex_lock(&g->lock);
    }
    if (!stops) weir_progress_tick((int64_t)(started - g->n_open));
    wait_a_little(g);
}

static int64_t count_done(const pending *all, size_t n)
{
    int64_t done = 0;
    for (size_t i = 0; i < n; i++) done += all[i].status == WEIR_OK;
    return done;
}

weir_status weir_cli_answer_all(
    weir_cli_answer *answers, weir_service *service, const weir_prompt *prompts, size_t n,
    weir_error *error
)
{
    gate g = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
    pending *const all = calloc(n > 0 ? n : 1, sizeof *all);
    const size_t slots = (size_t)weir_service_facts_of(service)->n_slots,
                 queue = (size_t)weir_service_facts_of(service)->queue_limit;
    const size_t most =
        queue < 2 * slots ? queue : 2 * slots; /* all of them may be queued at the same time */
    weir_status status = WEIR_OK;
    if (all == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for %zu answers", n);
    for (size_t i = 0; i < n; i++) answers[i] = (weir_cli_answer){ .stop_token = -1 };
    size_t started = 0;
    weir_progress_begin("answering", "items", (int64_t)n);
    for (; status == WEIR_OK && started < n && !weir_interrupted; started++) {
        pending *const p = &all[started];
        const weir_request request = { .prompt = prompts[started].ids.data,
                                       .n_prompt = (int32_t)prompts[started].ids.count,
                                       .max_tokens = prompts[started].max_tokens,
                                       .n_choices = 1,
                                       .kv_budget = prompts[started].kv_budget,
                                       .sampling = weir_sampling_default(),
                                       .callback = on_event,
                                       .user = p };
        *p = (pending){ .gate = &g, .answer = &answers[started] };
        pthread_mutex_lock(&g.lock);
        while (g.n_open >= most) watch_all(&g, all, started);
        g.n_open++;
        pthread_mutex_unlock(&g.lock);
        status = weir_service_submit(service, &p->job, &request, error);
        if (status != WEIR_OK) {
            pthread_mutex_lock(&g.lock);
            g.n_open--;
            pthread_mutex_unlock(&g.lock);
            break;
        }
    }
    pthread_mutex_lock(&g.lock);
    while (g.n_open > 0) watch_all(&g, all, started);
    pthread_mutex_unlock(&g.lock);
    const int64_t n_done = count_done(all, started);
    if (status == WEIR_OK && weir_interrupted && n_done < (int64_t)n)
        status = weir_progress_interrupted(n_done, error);
    weir_progress_end();
    for (size_t i = 0; i < started; i++) {
        weir_job_release(all[i].job);
        if (status == WEIR_OK && all[i].status != WEIR_OK)
            status = weir_error_set(error, all[i].status, "%s", all[i].message);
    }
    free(all);
    return status;
}
