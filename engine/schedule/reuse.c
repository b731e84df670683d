/* engine/schedule/reuse.c - what choices take from the prefix cache and insert into it. States are
 * saved where a later prompt is likely to branch off (docs/decisions/0045-states.md), for paged
 * sequences (engine/kv/pool/store.h 5) rounded down to a multiple of 64 tokens. */
#include <string.h>

#include "engine/base/log.h"
#include "engine/kv/prefix/pruned_cache.h"
#include "engine/schedule/job.h"
#include "kernels/abi/minmax.h"

enum { TAIL_ROWS = 32, TAIL_FACTOR = 4 };

bool weir_choice_may_keep(const choice *c)
{
    return c->job->service->prefix != NULL && c->job->request.cache_prompt && c->sequence != NULL;
}

/* A sequence that lost rows cannot be matched in the index. */
static bool may_reuse(const choice *c)
{
    return weir_choice_may_keep(c) && !c->sequence->table.is_pruned;
}

/* While it runs. */
static bool may_share(const choice *c)
{
    const weir_request *const request = &c->job->request;
    return may_reuse(c) && !request->want_prompt_logprobs && !request->want_embedding;
}

bool weir_choice_can_follow(const choice *c)
{
    if (!may_share(c)) return false;
    return c->sequence->policy_run == NULL
               ? weir_prefix_can_match(c->job->service->prefix)
               : c->sequence->n_computed == 0 && !c->is_again && c->index == 0;
}

/* True if the whole pages that it computes go to the prefix tree. */
static bool leaves_rows(const choice *c)
{
    const weir_policy_sequence *const policy_run = c->sequence->policy_run;
    return may_share(c) && weir_prefix_can_match(c->job->service->prefix) &&
           (policy_run == NULL || !weir_policy_run_observes_all(policy_run));
}

int32_t weir_choice_rows_from(const choice *leader, const choice *c, int32_t n)
{
    const weir_policy_sequence *const policy_run = c->sequence->policy_run;
    if (policy_run != NULL && weir_policy_run_observes_all(policy_run))
        return weir_policy_run_is_alike(policy_run, leader->sequence->policy_run)
                   ? weir_choice_next_checkpoint(leader, n)
                   : 0;
    if (policy_run != NULL) n = weir_min_i32(n, weir_policy_run_unobserved(policy_run));
    return leaves_rows(leader) ? weir_choice_cut_page(c, n) : 0;
}

static int64_t n_inserted(const weir_service *service)
{
    return weir_prefix_stats_of(service->prefix).n_inserted;
}

bool weir_choice_waits_to_look(const choice *c)
{
    const weir_service *const service = c->job->service;
    const choice *const leader = c->leader;
    const bool is_new = leader == NULL && c->sequence->n_computed == 0,
               has_rows = leader != NULL && leader->sequence->n_computed >= c->n_followed;
    return service->pace.follows <= 0 && (is_new || has_rows) && weir_choice_can_follow(c) &&
           c->n_inserted != n_inserted(service);
}

void weir_choice_look_again(choice *c)
{
    weir_job *const job = c->job;
    if (!weir_choice_can_follow(c) || c->n_inserted == n_inserted(job->service)) return;
    c->n_inserted = n_inserted(job->service);
    const int32_t before = c->sequence->n_computed;
    const weir_prefix_hit hit =
        c->sequence->policy_run != NULL
            ? weir_choice_reuse_policy(c)
            : weir_prefix_extend(
                  job->service->prefix, c->sequence, job->request.cache_salt,
                  c->sequence->n_tokens - 1, WEIR_PAGE_TOKENS
              );
    if (hit.n_rows > before) job->service->pace.follows -= weir_choice_work(c);
    if (c->is_again || c->index > 0) return; /* a preempted choice continues its own sequence */
    job->usage.n_cached += hit.n_rows - before;
    if (hit.n_matched <= job->usage.n_matched) return;
    job->usage.n_matched = hit.n_matched;
    job->usage.reuse = hit.reason;
}

void weir_choice_reuse(choice *c)
{
    weir_job *const job = c->job;
    c->is_reading = false;
    c->is_lost = job->request.n_kept > 0; /* until it is found */
    if (!may_reuse(c) || job->request.want_prompt_logprobs || job->request.want_embedding) {
        job->usage.reuse = job->request.want_prompt_logprobs ? "every prompt token is scored"
                           : job->request.want_embedding ? "an embedding needs every prompt token"
                                                         : "not asked for";
        return;
    }
    c->n_inserted = n_inserted(job->service);
    const bool is_watched = c->sequence->policy_run != NULL;
    weir_choice_choose_origin(c);
    const weir_prefix_hit hit = is_watched ? weir_choice_reuse_policy(c)
                                           : weir_prefix_match(
                                                 job->service->prefix, c->sequence,
                                                 job->request.cache_salt, c->sequence->n_tokens - 1
                                             );
    c->is_reading = hit.waits;
    c->is_lost = !c->is_reading && hit.n_rows < job->request.n_kept;
    if (c->is_reading && !c->is_again) job->usage.reuse = hit.reason;
    if (c->is_reading) return;
    /* Also if the state where the answer begins was not kept: before the last message. */
    if (!c->is_again)
        c->is_rewritten =
            hit.is_rewritten || (hit.is_left && hit.n_matched < job->request.turn_starts[1]);
    if (c->n_answer > 0 || c->index > 0) return; /* a preempted choice continues its own sequence */
    job->usage.n_cached = hit.n_rows;
    job->usage.n_matched = hit.n_matched;
    job->usage.reuse = hit.reason;
    if (hit.n_rows == 0 && !is_watched &&
        weir_pruned_contains(
            job->service->prefix, job->request.prompt, job->request.n_prompt,
            job->request.cache_salt
        ))
        job->usage.reuse =
            "this sequence is cached under a KV policy, which the request does not ask for";
    if (job->request.unused != NULL) job->usage.reuse = job->request.unused;
}

/* ---- states ---------------------------------------------------------------------------------- */
static bool is_marked(const choice *c, int32_t at)
{
    for (int32_t i = 0; i < c->n_marks; i++)
        if (c->marks[i].at == at) return true;
    return false;
}

static bool is_paged(const choice *c)
{
    return weir_kv_is_paged(weir_kv_store_spec(c->job->service->store));
}

/* True if answer rows differ from prompt rows and prompts are cut by blocks: then only whole blocks
 * of prompt rows equal what a prompt that begins like this would compute. */
static bool has_blocks(const choice *c) { return c->job->service->block_rows > 1; }

/* The position at or before `at` where a sequence can be continued: `at` itself, or the start of
 * its page and of its block. */
static int32_t cut(const choice *c, int32_t at)
{
    const int32_t block = c->job->service->block_rows;
    int32_t each = is_paged(c) ? WEIR_PAGE_TOKENS : 1;
    while (each % block != 0) each += is_paged(c) ? WEIR_PAGE_TOKENS : 1;
    return at / each * each;
}

int32_t weir_choice_cut_page(const choice *c, int32_t at)
{
    int32_t each = WEIR_PAGE_TOKENS;
    while (each % c->job->service->block_rows != 0) each += WEIR_PAGE_TOKENS;
    return at / each * each;
}

int32_t weir_choice_answer_start(const choice *c)
{
    const int32_t start = c->job->request.turn_starts[0], last = c->job->request.n_prompt - 1;
    return start > 0 && start < last ? start : last;
}

/* A number for the states of a turn from the beginning of the answer on. */
static int64_t turn_of(const choice *c, int32_t at)
{
    return at >= cut(c, weir_choice_answer_start(c)) ? c->job->serial + 1 : 0;
}

/* Adds the state after `at` tokens of the sequence to the item, in order. NULL: it is not in this
 * step, or there is no memory. */
static float *want_state(choice *c, weir_batch_item *item, int32_t at, weir_state_rank rank)
{
    const int32_t after = at - c->sequence->n_computed;
    if (after < 1 || after > item->n_rows - item->n_drafts ||
        item->n_snapshots == WEIR_BATCH_SNAPSHOTS || is_marked(c, at))
        return NULL;
    int32_t place = item->n_snapshots;
    for (int32_t i = 0; i < item->n_snapshots; i++) {
        if (item->snapshots[i].after == after) return item->snapshots[i].dst;
        if (item->snapshots[i].after > after && place == item->n_snapshots) place = i;
    }
    float *const state =
        c->n_marks + item->n_snapshots < CHOICE_MARKS
            ? weir_prefix_acquire_snapshot(c->job->service->prefix, rank, turn_of(c, at))
            : NULL;
    if (state == NULL) return NULL;
    memmove(
        item->snapshots + place + 1, item->snapshots + place,
        (size_t)(item->n_snapshots - place) * sizeof *item->snapshots
    );
    item->snapshots[place] = (weir_batch_snapshot){ .after = after, .dst = state };
    item->n_snapshots++;
    return state;
}

static void want(choice *c, weir_batch_item *item, int32_t at)
{
    (void)want_state(c, item, at, WEIR_STATE_CHECKPOINT);
}

bool weir_choice_is_rewritten(const choice *c) { return c->job->choices[0].is_rewritten; }

/* The rank of the state after the answer, and of the one where it begins. */
static weir_state_rank rank_of_end(const choice *c)
{
    return weir_choice_is_rewritten(c) ? WEIR_STATE_SPARE : WEIR_STATE_LAST;
}

/* One token before the end of the prompt saves little if the answer's beginning is near. */
static weir_state_rank rank_of_last(const choice *c)
{
    const int32_t last = c->job->request.n_prompt - 1, n = last - weir_choice_answer_start(c);
    return n > 0 && n < TAIL_ROWS && !weir_prefix_has_free_states(c->job->service->prefix, 1)
               ? WEIR_STATE_SPARE
               : WEIR_STATE_CHECKPOINT;
}

static weir_state_rank rank_of_start(const choice *c)
{
    return weir_choice_is_rewritten(c) ? WEIR_STATE_LAST : WEIR_STATE_CHECKPOINT;
}

/* Where a turn ends is not known in advance, so the state at the last page boundary is saved again
 * at every page. */
static void want_last_page(choice *c, weir_batch_item *item)
{
    const int32_t at = cut(c, c->sequence->n_computed + item->n_rows - item->n_drafts);
    if (at <= c->sequence->n_computed) return;
    weir_prefix_snapshot *const last = c->n_marks > 0 ? &c->marks[c->n_marks - 1] : NULL;
    if (last != NULL && last->at > c->job->request.n_prompt) {
        weir_prefix_release_snapshot(c->job->service->prefix, last->state);
        c->n_marks--;
    }
    (void)want_state(c, item, at, rank_of_end(c));
}

/* A later prompt may have another question after the same document: with these states it loses at
 * most a few times as many tokens as the question has, however long the document is. */
static void want_tail(choice *c, weir_batch_item *item)
{
    for (int64_t n = TAIL_ROWS; n < c->job->request.n_prompt; n *= TAIL_FACTOR)
        (void)want_state(
            c, item, weir_choice_cut_page(c, c->job->request.n_prompt - (int32_t)n),
            WEIR_STATE_SPARE
        );
}

static void want_for_followers(choice *c, weir_batch_item *item)
{
    const weir_service *const service = c->job->service;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const other = service->slots[i].owner;
        if (other != NULL && other->leader == c) want(c, item, other->n_followed);
    }
}

void weir_choice_want_states(choice *c, weir_batch_item *item)
{
    const weir_request *const request = &c->job->request;
    if (!may_reuse(c) || c->sequence->recurrent_bytes == 0) return;
    if (c->sequence->n_computed >= request->n_prompt) {
        if (is_paged(c) && !has_blocks(c)) want_last_page(c, item);
        return;
    }
    want_for_followers(c, item);
    (void)want_state(c, item, cut(c, weir_choice_answer_start(c)), rank_of_start(c));
    float *const last = want_state(c, item, cut(c, request->n_prompt - 1), rank_of_last(c));
    if (last != NULL && !weir_choice_is_rewritten(c))
        weir_prefix_demote_snapshot(c->job->service->prefix, last);
    /* A later prompt may branch off where this one did. */
    if (c->index == 0) want(c, item, cut(c, c->job->usage.n_matched));
    for (int i = 0; i < WEIR_TURN_STARTS; i++) want(c, item, cut(c, request->turn_starts[i]));
    want_tail(c, item);
}

/* Inserts the mark in order of `at`. */
static void put_mark(choice *c, weir_prefix_snapshot mark)
{
    int32_t place = c->n_marks++;
    for (; place > 0 && c->marks[place - 1].at > mark.at; place--)
        c->marks[place] = c->marks[place - 1];
    c->marks[place] = mark;
}

void weir_choice_got_states(choice *c, weir_batch_item *item, int32_t n_before, bool is_done)
{
    for (int32_t i = 0; i < item->n_snapshots; i++) {
        const weir_batch_snapshot *const snapshot = &item->snapshots[i];
        if (snapshot->dst == c->draft_state) continue;
        if (is_done)
            put_mark(c, (weir_prefix_snapshot){ n_before + snapshot->after, snapshot->dst });
        else
            weir_prefix_release_snapshot(c->job->service->prefix, snapshot->dst);
    }
    const bool has_page = c->sequence->n_computed / WEIR_PAGE_TOKENS > n_before / WEIR_PAGE_TOKENS;
    /* Of an answer, too, what layers with a window will drop. */
    const bool drops =
        c->sequence->policy_run == NULL && weir_kv_store_windows(c->job->service->store) != NULL;
    const bool has_news = is_done && (item->n_snapshots > 0 || has_page) &&
                          (n_before < c->job->request.n_prompt || drops);
    item->n_snapshots = 0;
    if (has_news) weir_choice_share(c);
}

/* ---- keeping --------------------------------------------------------------------------------- */
void weir_choice_share(choice *c)
{
    if (!may_reuse(c) || c->sequence->n_computed < WEIR_PAGE_TOKENS) return;
    const bool has_seen_all = c->n_inserted == n_inserted(c->job->service);
    const int32_t left = weir_prefix_insert(
        c->job->service->prefix, c->sequence, c->job->request.cache_salt, c->marks, c->n_marks, true
    );
    memmove(c->marks, c->marks + c->n_marks - left, (size_t)left * sizeof *c->marks);
    c->n_marks = left;
    if (has_seen_all) c->n_inserted = n_inserted(c->job->service);
}

static void keep_rows(choice *c)
{
    weir_prefix *const prefix = c->job->service->prefix;
    weir_kv_sequence *const sequence = c->sequence;
    const int32_t end = sequence->n_computed;
    /* A choice that was preempted may have marks that it has not reached again. */
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_marks; i++) {
        if (c->marks[i].at <= end)
            c->marks[n++] = c->marks[i];
        else
            weir_prefix_release_snapshot(prefix, c->marks[i].state);
    }
    c->n_marks = 0;
    const bool is_read = !has_blocks(c) || end <= c->job->request.n_prompt;
    const bool is_checkpoint =
        sequence->recurrent_bytes > 0 && end > 0 && cut(c, end) == end && is_read;
    float *const state = is_checkpoint && n < CHOICE_MARKS
                             ? weir_prefix_acquire_snapshot(prefix, rank_of_end(c), turn_of(c, end))
                             : NULL;
    if (state != NULL) {
        weir_ledger_copy(sequence->ledger, state, sequence->recurrent, sequence->recurrent_bytes);
        c->marks[n++] = (weir_prefix_snapshot){ end, state };
    }
    (void)weir_prefix_insert(prefix, sequence, c->job->request.cache_salt, c->marks, n, false);
    /* For the same prompt again, and for clients that rewrite answers. */
    weir_prefix_mark_window(
        prefix, sequence, c->job->request.cache_salt, cut(c, weir_choice_answer_start(c))
    );
    if (sequence->recurrent_bytes > 0 && state == NULL && !weir_choice_is_rewritten(c))
        weir_prefix_end_turn(prefix, sequence, c->job->request.cache_salt);
}

void weir_choice_keep(choice *c)
{
    const weir_request *const request = &c->job->request;
    weir_prefix *const prefix = c->job->service->prefix;
    if (may_reuse(c)) {
        keep_rows(c);
        if (request->session != NULL && c->index == 0)
            weir_prefix_name(prefix, c->sequence, request->cache_salt, request->session);
    } else if (prefix != NULL) {
        weir_choice_forget(c);
    }
    if (weir_choice_may_keep(c) && c->sequence->policy_run != NULL) weir_choice_keep_policy(c);
}

void weir_choice_keep_preempted(choice *c)
{
    if (may_reuse(c) && c->sequence->policy_run == NULL && !c->is_torn) keep_rows(c);
}

void weir_choice_forget(choice *c)
{
    for (int32_t i = 0; i < c->n_marks; i++)
        weir_prefix_release_snapshot(c->job->service->prefix, c->marks[i].state);
    c->n_marks = 0;
}
