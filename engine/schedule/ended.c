/* engine/schedule/ended.c - sequences that have ended. To insert one into the prefix cache and to
 * drop its pages takes time for each block, so of many that end at once some keep their slots for
 * further iterations (docs/decisions/0085-begins-and-ends.md). Nothing is lost by that: a prompt
 * that goes on with such a sequence, a call of another thread, and a lack of memory release it
 * first. */
#include <string.h>

#include "engine/schedule/job.h"
#include "kernels/abi/minmax.h"

/* ---- what it costs --------------------------------------------------------------------------- */
/* In bytes that take as long: of a block that the cache keeps its nodes and counts, of another one
 * its pages, and its tail in any case. */
int64_t weir_choice_end_work(const choice *c)
{
    enum { TAIL = 1 << 16, BLOCK = 2048, PAGE = 48 };
    const weir_kv_table *const table = &c->sequence->table;
    const int64_t block = weir_choice_may_keep(c) ? BLOCK : PAGE * table->n_heads;
    return TAIL + table->n_pages * block;
}

int64_t weir_choice_work(const choice *c)
{
    const weir_kv_table *const table = &c->sequence->table;
    const bool copies = table->n_heads > 0 && table->n_rows % WEIR_PAGE_TOKENS != 0;
    const weir_policy_run *const policy_run = c->job->policy_run;
    const size_t observed =
        policy_run != NULL ? weir_policy_state_bytes(weir_policy_run_policy(policy_run)) : 0;
    const bool has_state = c->sequence->n_computed > 0;
    return table->n_pages * table->n_heads * (int64_t)sizeof(void *) +
           (copies ? c->job->service->block_bytes : 0) +
           (has_state ? (int64_t)(c->sequence->recurrent_bytes + observed) : 0);
}

void weir_service_set_pace(weir_service *service)
{
    service_pace *const pace = &service->pace;
    const int64_t all_ns = service->times.ns[WEIR_STEP_FORWARD],
                  most = (all_ns - pace->all_ns) / pace->pass_ns;
    pace->all_ns = all_ns;
    pace->begins = pace->resumes = pace->forks = pace->follows = pace->preempts = pace->ends =
        weir_max(pace->least, most);
}

bool weir_service_will_preempt(weir_service *service)
{
    service_pace *const pace = &service->pace;
    pace->is_preempting = pace->is_preempting || pace->preempts <= 0;
    return pace->is_preempting;
}

/* ---- releasing ------------------------------------------------------------------------------- */
/* The rows after that are of blocks that no node has. */
static int32_t cached_tokens(const weir_service *service, const choice *c)
{
    const weir_kv_table *const table = &c->sequence->table;
    int64_t n = weir_min(table->n_rows / WEIR_PAGE_TOKENS, table->n_pages);
    if (!weir_choice_may_keep(c)) return INT32_MAX;
    while (n > 0 && weir_kv_page_owner(service->store, table->pages[n - 1]) == 0) n--;
    return (int32_t)(n * WEIR_PAGE_TOKENS);
}

/* The slot is still the choice's while a policy looks for memory. */
static void give_back(weir_service *service, choice *c)
{
    weir_choice_hand_over(c);
    service->pace.ends -= weir_choice_end_work(c);
    if (c->is_torn)
        weir_choice_forget(c);
    else
        weir_choice_keep(c);
    weir_kv_sequence_clear(c->sequence);
    c->sequence = NULL;
    service->has_news = true;
}

static void release(weir_service *service, slot *s)
{
    choice *const c = s->ended;
    s->ended = NULL;
    service->n_ended--;
    give_back(service, c);
    c->job->n_unreleased--;
}

static void leave_for_later(weir_service *service, slot *s)
{
    choice *const c = s->owner;
    c->n_cached_at_end = cached_tokens(service, c);
    c->job->n_unreleased++;
    service->n_ended++;
    s->ended = c;
    s->owner = NULL;
}

/* The others are few, or have what must not wait: a policy ends with its job, blocks on disk would
 * be read back, and window blocks are not for more sequences than there are slots. */
static bool may_wait(const weir_service *service, const choice *c)
{
    weir_kv_sequence *const sequence = c->sequence;
    return sequence->policy_run == NULL && !sequence->table.is_pruned && !c->is_torn &&
           sequence->table.n_heads > 0 && weir_kv_store_windows(service->store) == NULL &&
           weir_kv_table_cold_blocks(&sequence->table, service->store) == 0;
}

static slot *slot_of(const weir_service *service, const choice *c)
{
    for (int32_t i = 0; i < service->facts->n_slots; i++)
        if (service->slots[i].owner == c) return &service->slots[i];
    return NULL;
}

void weir_choice_end_sequence(choice *c)
{
    weir_service *const service = c->job->service;
    if (c->sequence != NULL) weir_choice_release_followers(c);
    weir_choice_stop_pruning(c);
    slot *const s = slot_of(service, c);
    if (s != NULL) {
        weir_choice_end_draft(c, false);
        const bool is_now = service->pace.ends > 0 && !weir_choice_is_held(c);
        if (is_now || !may_wait(service, c)) {
            give_back(service, c);
            s->owner = NULL;
        } else {
            leave_for_later(service, s);
        }
    }
    c->leader = NULL;
}

bool weir_service_release_one(weir_service *service)
{
    for (int32_t i = 0; service->n_ended > 0 && i < service->facts->n_slots; i++) {
        if (service->slots[i].ended == NULL) continue;
        release(service, &service->slots[i]);
        return true;
    }
    return false;
}

bool weir_service_release_ended(weir_service *service, bool all)
{
    bool any = false;
    for (int32_t i = 0; service->n_ended > 0 && i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].ended;
        const bool waits = c != NULL && (service->pace.ends <= 0 || weir_choice_is_held(c));
        if (c == NULL || (!all && waits)) continue;
        release(service, &service->slots[i]);
        any = true;
    }
    return any;
}

/* True if the prompt begins with the sequence as far as the cache has it, and at least a token
 * further. */
static bool goes_on(const weir_job *job, const choice *c)
{
    const weir_kv_sequence *const sequence = c->sequence;
    const int32_t *const prompt = job->request.prompt;
    const int32_t n = c->n_cached_at_end;
    return n < weir_min_i32(sequence->n_computed, job->request.n_prompt) &&
           prompt[n] == sequence->tokens[n] &&
           memcmp(prompt, sequence->tokens, (size_t)n * sizeof *prompt) == 0;
}

void weir_service_release_before(weir_service *service, const weir_job *job)
{
    for (int32_t i = 0; service->n_ended > 0 && i < service->facts->n_slots; i++) {
        slot *const s = &service->slots[i];
        if (s->ended != NULL && goes_on(job, s->ended)) release(service, s);
    }
}

void weir_service_finish_ended(weir_service *service)
{
    for (weir_job *job = service->running, *next; job != NULL; job = next) {
        next = job->next;
        const bool is_over = job->is_reported && !job->is_in_step;
        if (is_over || job->n_ended == job->request.n_choices) weir_job_finish(job, WEIR_OK, NULL);
    }
}
