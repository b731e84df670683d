/* engine/schedule/eviction.c - policies of requests: opened with the job, attached to its
 * sequences; pruning.c applies them. */
#include <inttypes.h>

#include "engine/schedule/job.h"

/* ---- a request's policy ---------------------------------------------------------------------- */
static const weir_policy_options *options_of(const weir_job *job)
{
    const weir_service_policy *const policy = job->service->policy;
    if (job->request.policy != NULL) return job->request.policy;
    return policy != NULL ? &policy->options : NULL;
}

/* Refuses a budget that alone takes more than a client or a request may hold. */
static weir_status check_bytes(
    const weir_engine_facts *facts, int64_t budget, int32_t n_choices, weir_error *error
)
{
    const int64_t bytes = n_choices * weir_service_kv_bytes(facts, budget);
    const int64_t caps[] = { facts->kv_per_request, facts->kv_per_key };
    const char *const keys[] = { "one request (server.kv_per_request)",
                                 "one key (server.kv_per_key)" };
    for (int i = 0; i < 2; i++)
        if (caps[i] > 0 && bytes > caps[i])
            return weir_error_set(
                error, WEIR_EINVAL,
                "kv_budget_exceeded: kv_budget = %" PRId64 " rows take %" PRId64
                " bytes of KV for %d choices, and %s may "
                "hold %" PRId64 "; ask for fewer rows",
                budget, bytes, (int)n_choices, keys[i], caps[i]
            );
    return WEIR_OK;
}

static weir_status check(const weir_job *job, int64_t budget, weir_error *error)
{
    const weir_engine_facts *const facts = job->service->facts;
    if (budget < 1)
        return weir_error_set(
            error, WEIR_EINVAL,
            "kv_policy \"%s\" needs kv_budget, the number of rows that each KV head keeps",
            weir_policy_name(options_of(job))
        );
    if (budget > facts->window)
        return weir_error_set(
            error, WEIR_EINVAL,
            "kv_budget is %" PRId64 " rows, more than the window of %d; ask for fewer", budget,
            (int)facts->window
        );
    return check_bytes(facts, budget, job->request.n_choices, error);
}

weir_status weir_job_open_policy_run(weir_job *job, weir_error *error)
{
    const weir_request *const request = &job->request;
    const weir_service_policy *const own = job->service->policy;
    const weir_policy_options *const options = options_of(job);
    const int64_t budget = request->kv_budget > 0 || own == NULL ? request->kv_budget : own->budget;
    const int64_t rows = request->n_prompt + (int64_t)request->max_tokens;
    if (options == NULL || weir_policy_is_full(options)) {
        if (request->kv_budget <= 0) return WEIR_OK;
        return weir_error_set(
            error, WEIR_EINVAL,
            "kv_budget is given, but no policy says which rows stay: set kv_policy"
        );
    }
    if (own == NULL)
        return weir_error_set(
            error, WEIR_EINVAL,
            "kv_policy \"%s\": this model has no KV rows that a policy could drop",
            weir_policy_name(options)
        );
    /* The service's own budget may exceed the length of any sequence. */
    if (request->kv_budget > 0 || budget < 1) WEIR_TRY(check(job, budget, error));
    weir_policy_run_options run = { .policy = options,
                                    .budget = budget,
                                    .shape = own->shape,
                                    .layers = own->layers,
                                    .calibration = own->calibration,
                                    .n_sequences = request->n_choices,
                                    .n_new = job->service->chunk,
                                    .n_prompt = request->n_prompt,
                                    .n_pinned = request->n_pinned };
    run.shape.max_rows = rows < job->row_limit ? rows : job->row_limit;
    const weir_status status =
        weir_policy_run_open(&job->policy_run, &run, job->service->ledger, error);
    if (status == WEIR_ECONFIG || status == WEIR_EUNSUPPORTED || status == WEIR_EMISMATCH)
        return WEIR_EINVAL; /* the request is at fault */
    if (status != WEIR_OK) return status;
    /* Layers with a sliding window keep every row. */
    if (own->shape.n_layers == weir_kv_store_spec(job->service->store)->n_layers)
        job->row_peak = (int32_t)weir_policy_run_peak(job->policy_run);
    job->usage.kv_policy = weir_policy_name(options);
    job->usage.kv_budget = budget;
    return WEIR_OK;
}

/* ---- its sequences --------------------------------------------------------------------------- */
void weir_choice_watch(choice *c)
{
    const weir_request *const request = &c->job->request;
    if (c->job->policy_run != NULL)
        c->sequence->policy_run = weir_policy_run_begin(
            c->job->policy_run, c->index, request->n_prompt, request->n_pinned
        );
}

void weir_choice_count_before(choice *c)
{
    c->banks_before = weir_runner_bank_stats(c->job->service->runner, c->sequence);
}

void weir_choice_count(choice *c)
{
    weir_service *const service = c->job->service;
    const weir_kv_sequence *const sequence = c->sequence;
    if (c->is_counted) return;
    c->is_counted = true;
    const weir_policy_run_count n = weir_runner_count(service->runner, sequence);
    const weir_bank_stats banks =
        weir_runner_bank_stats(service->runner, c->is_torn ? NULL : sequence);
    const int64_t dropped = sequence->policy_run != NULL ? n.evicted : 0;
    c->job->usage.n_rows += n.live;
    c->job->usage.n_evicted += n.evicted;
    c->job->usage.kv_bytes += (int64_t)weir_kv_sequence_kv_bytes(sequence);
    weir_bank_stats_add(&c->job->usage.banks, &banks);
    pthread_mutex_lock(&service->lock);
    service->stats.evicted_tokens +=
        dropped - (dropped > c->n_evicted_before ? c->n_evicted_before : dropped);
    weir_bank_stats_add_counts_since(&service->stats.banks, &banks, &c->banks_before);
    pthread_mutex_unlock(&service->lock);
}
