/* engine/schedule/embedding.c - the embedding of a prompt: the mean of hidden states of its tokens,
 * or that of one token (weir_pooling). Rows are added in order of their positions, in double, each
 * once, also if the prompt was preempted. */
#include <string.h>

#include "engine/base/memory.h"
#include "engine/schedule/job.h"

struct job_embedding {
    int32_t n_rows, n_new; /* rows in `sum` and in `step`, which is added once the step succeeds */
    double *sum, *step; /* [d_model], in the same allocation as this struct */
    float *mean;
};

static size_t block_bytes(const weir_service *service)
{
    return sizeof(job_embedding) +
           (size_t)service->facts->d_model * (2 * sizeof(double) + sizeof(float));
}

weir_status weir_job_open_embedding(weir_job *job)
{
    const size_t d = (size_t)job->service->facts->d_model;
    if (!job->request.want_embedding) return WEIR_OK;
    job_embedding *const e = weir_memory_take_zero(1, block_bytes(job->service));
    if (e == NULL) return WEIR_ENOMEM;
    e->sum = (double *)(e + 1);
    e->step = e->sum + d;
    e->mean = (float *)(e->step + d);
    job->embedding = e;
    return WEIR_OK;
}

void weir_job_close_embedding(weir_job *job)
{
    weir_memory_give(job->embedding);
    job->embedding = NULL;
}

/* The embedding of a choice that computes prompt rows which are not in the sum yet; else NULL. */
static job_embedding *embedding_of(const choice *c)
{
    return c->index == 0 && c->sequence != NULL ? c->job->embedding : NULL;
}

static bool takes(const weir_request *request, int32_t position)
{
    switch (request->pooling) {
    case WEIR_POOLING_HIDDEN:
    case WEIR_POOLING_MEAN: return true;
    case WEIR_POOLING_LAST: return position == request->n_prompt - 1;
    case WEIR_POOLING_CLS: return position == 0;
    }
    return true;
}

/* How many rows are taken of a whole prompt. */
static int32_t n_taken(const weir_request *request)
{
    const bool is_mean =
        request->pooling == WEIR_POOLING_HIDDEN || request->pooling == WEIR_POOLING_MEAN;
    return is_mean ? request->n_prompt : 1;
}

static void add_rows(
    job_embedding *e, const weir_batch_item *item, const weir_request *request, int64_t d,
    const float *hidden
)
{
    for (int32_t r = 0; r < item->n_rows; r++) {
        const int32_t position = item->sequence->n_computed + r;
        if (position != e->n_rows + e->n_new || position >= request->n_prompt) continue;
        const float *const row = hidden + r * d;
        for (int64_t i = 0; i < d && takes(request, position); i++) e->step[i] += (double)row[i];
        e->n_new++;
    }
}

/* hidden: the rows of all works that did not fail, in order. Those after the last norm are shown as
 * of layer n_layers. */
static void on_hidden(void *user, int64_t layer, const float *hidden)
{
    weir_service *const service = user;
    const int64_t d = service->facts->d_model;
    if (layer < service->facts->n_layers - 1) return;
    for (int32_t i = 0; i < service->step.n_observed; i++) {
        const weir_batch_item *const item = &service->step.items[i];
        job_embedding *const e = embedding_of(service->step.choices[i]);
        if (item->failed) continue;
        const weir_request *const request = &service->step.choices[i]->job->request;
        const bool is_before = request->pooling == WEIR_POOLING_HIDDEN;
        if (e != NULL && is_before == (layer < service->facts->n_layers))
            add_rows(e, item, request, d, hidden);
        hidden += item->n_rows * d;
    }
}

void weir_service_begin_embedding(weir_service *service, int32_t n_items)
{
    bool is_wanted = false;
    for (int32_t i = 0; i < n_items; i++) {
        job_embedding *const e = embedding_of(service->step.choices[i]);
        if (e == NULL || e->n_rows >= service->step.choices[i]->job->request.n_prompt) continue;
        memset(e->step, 0, (size_t)service->facts->d_model * sizeof *e->step);
        e->n_new = 0;
        is_wanted = true;
    }
    service->step.n_observed = n_items;
    weir_runner_observe(service->step.runner, is_wanted ? on_hidden : NULL, service);
}

void weir_choice_end_embedding(choice *c, bool is_done)
{
    job_embedding *const e = embedding_of(c);
    if (e == NULL || e->n_new == 0) return;
    for (int32_t i = 0; is_done && i < c->job->service->facts->d_model; i++)
        e->sum[i] += e->step[i];
    if (is_done) e->n_rows += e->n_new;
    e->n_new = 0;
}

const float *weir_job_embedding(weir_job *job)
{
    job_embedding *const e = job->embedding;
    if (e == NULL || e->n_rows < job->request.n_prompt) return NULL;
    for (int32_t i = 0; i < job->service->facts->d_model; i++)
        e->mean[i] = (float)(e->sum[i] / n_taken(&job->request));
    return e->mean;
}
