/* engine/schedule/plan.c - which rows a step computes: one of every decoding sequence, then pieces
 * of prompts (docs/decisions/0039-token-budget.md). Where pieces end changes no result, except with
 * policies that drop rows within the prompt. */
#include "engine/schedule/job.h"
#include "kernels/abi/minmax.h"

enum { LONG_SHARE = 4, TILE_ROWS = 32 };

typedef struct step_plan {
    weir_service *service;
    int32_t n_items, rows; /* rows: left for prompts */
    int64_t got[PROMPT_SHARES]; /* prompt_shares.rows, with those of the plan */
    bool others_decode, has_prompt, has_scores;
} step_plan;

static bool can_run(const choice *c)
{
    return c != NULL && !c->is_waiting && !c->is_stalled && !c->is_reading &&
           !weir_choice_is_held(c) && !c->job->is_in_step;
}

/* True if the block that its next rows begin in must be read first. An unreadable one fails in the
 * step. */
static bool waits_for_block(weir_service *service, choice *c)
{
    const void *const cold = weir_kv_cold_end(&c->sequence->table, service->store);
    if (cold == NULL || weir_kv_is_unreadable(service->store, cold)) return false;
    c->is_returning = !weir_kv_is_moving(service->store, cold);
    service->n_returning += c->is_returning;
    return true;
}

/* Where the prompt ends and a recomputed answer begins, if the two are computed differently. */
static int32_t prompt_end(const weir_service *service, const choice *c)
{
    const weir_kv_sequence *const sequence = c->sequence;
    if (sequence->policy_run != NULL)
        return weir_policy_run_prompt_end(sequence->policy_run, sequence->n_computed);
    return service->block_rows > 1 ? c->job->request.n_prompt : sequence->n_tokens;
}

static void add_item(step_plan *plan, choice *c, int32_t n_rows)
{
    weir_service *const service = plan->service;
    const weir_kv_sequence *const sequence = c->sequence;
    const bool is_end = sequence->n_computed + n_rows == sequence->n_tokens;
    const bool scores = c->job->request.want_prompt_logprobs && c->index == 0 &&
                        sequence->n_computed < c->job->request.n_prompt;
    c->is_planned = true;
    c->item = plan->n_items;
    service->step.choices[plan->n_items] = c;
    service->step.items[plan->n_items++] =
        (weir_batch_item){ .sequence = c->sequence,
                           .n_rows = n_rows,
                           .is_prompt = sequence->n_computed < prompt_end(service, c),
                           .wanted = scores   ? WEIR_LOGITS_ALL
                                     : is_end ? WEIR_LOGITS_LAST
                                              : WEIR_LOGITS_NONE };
}

/* ---- pieces ---------------------------------------------------------------------------------- */
/* `end`, or a little less where the kernels like it better, as long as that is past `begin`; a
 * multiple of the block. */
static int32_t align_end(const weir_service *service, int32_t begin, int32_t end)
{
    const int32_t block = service->block_rows, many = (TILE_ROWS + block - 1) / block * block;
    const int32_t aligned = end / many * many;
    return aligned > begin ? aligned : end / block * block;
}

/* With a policy pieces end at multiples of the chunk, so that what it drops does not depend on
 * other requests. A whole one fits in any step that has no other prompt. */
static int32_t policy_piece(
    const step_plan *plan, const choice *c, int32_t prompt, int32_t most, int32_t rows
)
{
    const weir_service *const service = plan->service;
    const bool sees_all = weir_policy_run_observes_all(c->sequence->policy_run);
    const int32_t n_computed = c->sequence->n_computed, block = service->block_rows;
    int32_t chunk =
        plan->others_decode || sees_all ? service->policy_busy_chunk : service->policy_chunk;
    if (chunk > most) chunk = most / block * block;
    const int32_t end = weir_min_i32((n_computed / chunk + 1) * chunk, prompt);
    const bool may_be_long = !plan->has_prompt && !service->is_nested;
    return end - n_computed <= rows || may_be_long ? end - n_computed : 0;
}

/* ---- rows that cost more --------------------------------------------------------------------- */
/* What a row after `past` others costs is num / den rows at the beginning of a prompt: there
 * attention costs past / even_depth of what all else does. While none decodes, a row costs twice
 * as much in any case, and the budget is twice as large: a piece is whole up to even_depth. */
typedef struct price {
    int64_t num, den;
} price;

static price price_of(const step_plan *plan, const choice *c)
{
    const int64_t even = plan->service->even_depth, past = c->sequence->table.n_rows,
                  least = plan->others_decode || plan->service->is_nested ? even : 2 * even;
    if (even <= 0 || c->sequence->policy_run != NULL) return (price){ 1, 1 };
    return (price){ weir_max(even + past, least), least };
}

/* Rows of the choice that cost as much as `rows` at the beginning of a prompt, but some in any
 * case. */
static int32_t rows_for(const step_plan *plan, const choice *c, int32_t rows)
{
    const price price = price_of(plan, c);
    const int64_t least = weir_max(TILE_ROWS, plan->service->block_rows);
    return (int32_t)weir_min(rows, weir_max(rows * price.den / price.num, least));
}

/* The reverse. */
static int64_t cost_of(const step_plan *plan, const choice *c, int32_t rows)
{
    const price price = price_of(plan, c);
    return rows * price.num / price.den;
}

/* The rows of the choice in this step, at most `rows` unless it is the first; 0: none fit. */
static int32_t piece_rows(const step_plan *plan, const choice *c, int32_t rows)
{
    const weir_service *const service = plan->service;
    const weir_kv_sequence *const sequence = c->sequence;
    const int32_t prompt = weir_min_i32(prompt_end(service, c), sequence->n_tokens),
                  begin = sequence->n_computed;
    const weir_runner_limits *const limits = weir_runner_limits_of(service->runner);
    const int32_t most = c->job->request.want_prompt_logprobs
                             ? limits->logits - service->facts->n_slots
                             : limits->rows;
    if (begin >= prompt) return 1; /* a recomputed answer, row by row as before */
    if (sequence->policy_run != NULL) return policy_piece(plan, c, prompt, most, rows);
    rows = weir_min_i32(rows_for(plan, c, rows), most);
    if (prompt - begin <= rows) return prompt - begin;
    const int32_t end = align_end(service, begin, begin + rows);
    return end > begin ? end - begin : 0;
}

/* ---- prompts --------------------------------------------------------------------------------- */
typedef enum prompt_kind { PROMPT_ANY, PROMPT_SHORT, PROMPT_LONG } prompt_kind;

static bool is_kind(const choice *c, prompt_kind kind)
{
    return kind == PROMPT_ANY || weir_choice_is_long(c) == (kind == PROMPT_LONG);
}

/* By priority, short before long, by what their clients got, then by submission. */
static bool goes_before(const step_plan *plan, const choice *a, const choice *b)
{
    const int32_t p = a->job->request.priority, q = b->job->request.priority;
    const bool is_long = weir_choice_is_long(a);
    const int64_t n = plan->got[weir_choice_share_of(a)], m = plan->got[weir_choice_share_of(b)];
    if (p != q) return p < q;
    if (is_long != weir_choice_is_long(b)) return !is_long;
    return n != m ? n < m : weir_choice_is_before(a, b);
}

/* The first of this kind and priority (NULL: of any) that is not in the plan and was not skipped
 * over. */
static choice *next_prompt(const step_plan *plan, prompt_kind kind, const int32_t *priority)
{
    choice *first = NULL;
    for (int32_t i = 0; i < plan->service->facts->n_slots; i++) {
        choice *const c = plan->service->slots[i].owner;
        if (can_run(c) && !c->is_planned && !c->is_skipped && !weir_choice_is_decoding(c) &&
            (priority == NULL || c->job->request.priority == *priority) && is_kind(c, kind) &&
            (first == NULL || goes_before(plan, c, first)))
            first = c;
    }
    return first;
}

/* Plans the choice, or the one that it waits for, in its place. False: none of them gets rows. */
static bool plan_prompt(step_plan *plan, choice *c, int32_t rows)
{
    c->is_skipped = weir_choice_waits_to_look(c);
    if (c->is_skipped) return false;
    choice *const first = weir_choice_leader(c);
    const bool scores = first->job->request.want_prompt_logprobs;
    if (first != c) c->is_skipped = true;
    if (first->job->is_in_step) return false;
    if (first->is_planned || first->is_skipped) return first->is_planned;
    /* It may have other rows now. */
    first->is_skipped = waits_for_block(plan->service, first) || weir_choice_is_for_later(first);
    if (first->is_skipped) return false;
    const bool scores_fit = !plan->has_scores && !plan->service->is_nested;
    const int32_t piece = scores && !scores_fit ? 0 : piece_rows(plan, first, rows);
    first->is_skipped = true;
    if (piece == 0) return false;
    add_item(plan, first, piece);
    const int64_t cost = cost_of(plan, first, piece);
    first->share = weir_choice_share_of(c); /* its place is used */
    first->share_rows = (int32_t)weir_min(cost, INT32_MAX);
    plan->got[first->share] += cost;
    plan->rows -= (int32_t)weir_min(cost, plan->rows);
    plan->has_prompt = true;
    plan->has_scores = plan->has_scores || scores;
    return true;
}

/* All prompts of the priority of the first one. */
static void plan_priority(step_plan *plan)
{
    const choice *const first = next_prompt(plan, PROMPT_ANY, NULL);
    const int32_t priority = first->job->request.priority, block = plan->service->block_rows;
    choice *const first_long = next_prompt(plan, PROMPT_LONG, &priority);
    bool has_share = false; /* the first long one */
    if (first_long != NULL && first_long->n_overlooked == LONG_SHARE - 1)
        first_long->goes_first = has_share = plan_prompt(plan, first_long, plan->rows);
    const bool has_long = next_prompt(plan, PROMPT_LONG, &priority) != NULL;
    const int32_t reserved = has_long ? (plan->rows / LONG_SHARE + block - 1) / block * block : 0;
    for (choice *c;
         plan->rows > reserved && (c = next_prompt(plan, PROMPT_SHORT, &priority)) != NULL;)
        plan_prompt(plan, c, plan->rows - reserved);
    for (choice *c; plan->rows > 0 && (c = next_prompt(plan, PROMPT_LONG, &priority)) != NULL;) {
        const bool is_whole = plan->rows >= reserved;
        has_share = (plan_prompt(plan, c, plan->rows) && is_whole && c == first_long) || has_share;
    }
    for (choice *c; plan->rows > 0 && (c = next_prompt(plan, PROMPT_ANY, &priority)) != NULL;)
        plan_prompt(plan, c, plan->rows);
    if (first_long != NULL) first_long->is_overlooked = !has_share;
}

int32_t weir_service_plan(weir_service *service)
{
    step_plan plan = { .service = service };
    weir_service_open_shares(service);
    memcpy(plan.got, service->shares.rows, sizeof plan.got);
    service->n_returning = 0;
    int32_t n_rows = 0;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        choice *const c = service->slots[i].owner;
        if (c == NULL || c->job->is_in_step) continue;
        c->is_planned = c->is_overlooked = c->goes_first = c->is_returning = false;
        c->claim = CLAIM_NONE;
        c->share_rows = 0;
        c->is_skipped = weir_job_is_pruning(c->job) || (can_run(c) && waits_for_block(service, c));
        c->is_skipped = c->is_skipped || weir_choice_is_for_later(c);
        if (can_run(c) && !c->is_skipped && weir_choice_is_decoding(c)) {
            add_item(&plan, c, 1 + c->n_redo);
            n_rows += 1 + c->n_redo;
        }
    }
    plan.others_decode = plan.n_items > 0;
    plan.rows = weir_min_i32(
        plan.others_decode || service->is_nested ? service->busy_chunk : service->chunk,
        service->step_rows - n_rows
    );
    while (plan.rows > 0 && next_prompt(&plan, PROMPT_ANY, NULL) != NULL) plan_priority(&plan);
    weir_service_draft(service, plan.n_items);
    return plan.n_items;
}

/* It, or the one that computes its tokens for it, did not have to stall. */
static bool was_in_step(const choice *c)
{
    while (c->leader != NULL) c = c->leader;
    return c->is_planned;
}

void weir_service_count_overlooked(const weir_service *service)
{
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        choice *const c = service->slots[i].owner;
        if (c == NULL || c->job->is_in_step) continue;
        if (c->goes_first && was_in_step(c)) c->n_overlooked = 0;
        if (c->is_overlooked && c->n_overlooked < LONG_SHARE - 1) c->n_overlooked++;
    }
}
