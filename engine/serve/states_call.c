/* engine/serve/states_call.c - what operations of /v1/states wait for: a vector from the engine, or
 * a thread of the sessions that reads or writes the database. No worker waits meanwhile. */
#include <stdio.h>

#include "engine/base/memory.h"
#include "engine/serve/states_api.h"

/* The exchange owns it. Returns NULL if there is no memory. */
static weir_states_call *open_call(weir_exchange *x)
{
    weir_states_call *const call = weir_memory_take_zero(1, sizeof *call);
    if (call == NULL) return NULL;
    call->exchange = x;
    call->owner = states_owner_of(x);
    call->own = weir_exchange_own(x, NULL, "");
    x->states = call;
    return call;
}

void weir_states_call_free(weir_states_call *call)
{
    if (call == NULL) return;
    weir_embedding_close(&call->embedding);
    weir_ids_free(&call->ids);
    weir_memory_give(call->label);
    weir_memory_give(call->metadata);
    weir_buffer_free(&call->described);
    weir_memory_give(call);
}

weir_document states_document(const weir_states_call *call)
{
    return (weir_document){ .tokens = call->ids.data,
                            .n_tokens = (int32_t)call->ids.count,
                            .label = call->label,
                            .metadata = call->metadata,
                            .owner = call->owner.name[0] != '\0' ? call->owner.name : NULL,
                            .salt = call->own.salt[0] != '\0' ? call->own.salt : NULL,
                            .client = call->exchange->key };
}

/* ---- waiting --------------------------------------------------------------------------------- */
/* On the engine thread, or a thread of the sessions. */
static void end_wait(weir_states_call *call)
{
    weir_exchange *const x = call->exchange;
    __atomic_store_n(&call->is_over, true, __ATOMIC_RELEASE);
    weir_workers_release(&x->server->workers, x);
}

static void on_vector(void *user) { end_wait(user); }

static void on_done(weir_session_job *job) { end_wait(job->user); }

static void begin_wait(weir_states_call *call, states_next *next)
{
    call->next = next;
    call->is_over = false;
    call->is_waiting = true;
    weir_workers_hold(&call->exchange->server->workers, call->exchange);
}

static weir_status fail_submit(weir_exchange *x, weir_status status, const weir_error *why)
{
    if (status != WEIR_EFULL) return weir_states_fail(&x->error, status, why);
    return weir_api_fail(
        &x->error, 429, "queue_full", NULL, "the queue of %d requests is full; try again",
        weir_service_facts_of(x->server->options.service)->queue_limit
    );
}

weir_status states_call_embed(weir_states_call *call, bool keeps, states_next *next)
{
    weir_exchange *const x = call->exchange;
    const weir_state_service documents = weir_states_documents(x);
    const weir_document document = states_document(call);
    weir_error why = { 0 };
    call->embedding.done = on_vector;
    call->embedding.user = call;
    begin_wait(call, next);
    const weir_status status =
        weir_embedding_begin(&call->embedding, &documents, &document, keeps, &why);
    if (status == WEIR_OK) return WEIR_OK;
    call->is_waiting = false;
    weir_workers_release(&x->server->workers, x);
    return fail_submit(x, status, &why);
}

static weir_status do_task(void *user, weir_error *error)
{
    weir_states_call *const call = user;
    return call->task(call, error);
}

static const char log_file[] = "/states.log";

/* `file`: tasks that have the same one occupy a thread one at a time. */
static void wait_for(
    weir_states_call *call, const char *file, bool reads, states_task *task, states_next *next
)
{
    weir_exchange *const x = call->exchange;
    call->task = task;
    call->job = (weir_session_job){ .work = WEIR_SESSION_TASK,
                                    .path = file,
                                    .task = do_task,
                                    .reads = reads,
                                    .tracker = weir_exchange_tracker(x),
                                    .done = on_done,
                                    .user = call };
    begin_wait(call, next);
    weir_sessions_post(x->server->options.state_sessions, &call->job);
}

/* The database lets one write. */
void states_call_do(weir_states_call *call, states_task *task, states_next *next)
{
    wait_for(call, "/states", false, task, next);
}

weir_status states_describe(weir_states_call *call, weir_error *error)
{
    return weir_states_metadata(
        call->exchange->server->options.states, &call->info, &call->described, error
    );
}

void states_call_describe(weir_states_call *call, states_next *next)
{
    wait_for(call, log_file, true, states_describe, next);
}

static weir_status refresh(weir_states_call *call, weir_error *error)
{
    return weir_states_refresh(call->exchange->server->options.states, error);
}

/* How that ended which it waited for. */
static weir_status result_of(weir_states_call *call)
{
    weir_exchange *const x = call->exchange;
    weir_error why = { 0 };
    const bool has_vector = call->embedding.job != NULL;
    const weir_status status =
        has_vector ? weir_embedding_end(&call->embedding, &why) : call->job.status;
    if (status == WEIR_OK) return WEIR_OK;
    if (status == WEIR_ECANCELED && atomic_load(&x->server->draining))
        return weir_api_fail(
            &x->error, 503, NULL, NULL, "this server shuts down; send the request again"
        );
    return weir_states_fail(&x->error, status, has_vector ? &why : &call->job.error);
}

static void reply(weir_states_call *call, weir_status status, weir_buffer *text)
{
    if (status != WEIR_OK || !call->is_waiting) weir_reply_result(call->exchange, text, status);
}

void weir_states_call_advance(weir_states_call *call)
{
    weir_buffer text = { 0 };
    if (!call->is_waiting || !__atomic_load_n(&call->is_over, __ATOMIC_ACQUIRE)) return;
    call->is_waiting = false;
    weir_status status = result_of(call);
    if (status == WEIR_OK) status = call->next(call, &text);
    reply(call, status, &text);
}

void states_call_begin(weir_exchange *x, states_next *next)
{
    weir_buffer text = { 0 };
    weir_states *const states = x->server->options.states;
    weir_states_call *const call = states != NULL ? open_call(x) : NULL;
    if (call == NULL) {
        const weir_status status = states != NULL ? WEIR_ENOMEM : states_need(x);
        weir_reply_result(x, &text, status);
    } else if (weir_states_is_current(states)) {
        reply(call, next(call, &text), &text);
    } else {
        wait_for(call, log_file, true, refresh, next);
    }
}

void weir_states_call_abandon(weir_states_call *call)
{
    if (!call->is_waiting || __atomic_load_n(&call->is_over, __ATOMIC_ACQUIRE)) return;
    if (call->embedding.job != NULL)
        weir_job_cancel(call->embedding.job);
    else
        weir_sessions_cancel(call->exchange->server->options.state_sessions, &call->job);
}
