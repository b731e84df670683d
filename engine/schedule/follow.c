/* engine/schedule/follow.c - prompts that begin alike are computed once: a choice waits for a
 * running one, its leader, that is about to compute the same tokens, then takes its rows from the
 * prefix cache or a checkpoint from the pruned cache (docs/decisions/0046, "At the same time"). */
#include "engine/schedule/job.h"
#include "kernels/abi/minmax.h"

static bool is_ahead(const choice *a, const choice *b)
{
    const int32_t n = a->sequence->n_computed, m = b->sequence->n_computed;
    return n > m || (n == m && weir_choice_is_before(a, b));
}

static bool has_same_salt(const choice *a, const choice *b)
{
    return strcmp(a->job->request.cache_salt, b->job->request.cache_salt) == 0;
}

/* Tokens that both begin with, leaving one of the second to compute. */
static int32_t common_tokens(const choice *leader, const choice *c)
{
    const weir_kv_sequence *const a = leader->sequence, *const b = c->sequence;
    const int32_t most = weir_min_i32(a->n_tokens, b->n_tokens - 1);
    int32_t n = 0;
    while (n < most && a->tokens[n] == b->tokens[n]) n++;
    return n;
}

/* Needed for more than n common tokens; one look instead of a comparison from the beginning. */
static bool may_share(const choice *leader, const choice *c, int32_t n)
{
    const weir_kv_sequence *const a = leader->sequence, *const b = c->sequence;
    return n < weir_min_i32(a->n_tokens, b->n_tokens - 1) && a->tokens[n] == b->tokens[n];
}

/* Sets the leader that saves the most rows, if there is any. Leaders are ahead of their followers,
 * or as far and before them in order, so they never wait for each other. One whose rows others are
 * to fork is in no step, also not in the place of a follower (plan_prompt). */
static void find_leader(choice *c)
{
    const weir_service *const service = c->job->service;
    int32_t best = c->sequence->n_computed;
    if (!weir_choice_can_follow(c)) return;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        choice *const other = service->slots[i].owner;
        if (other == NULL || other == c || other->is_waiting || other->is_stalled ||
            other->is_reading || weir_choice_is_held(other) || other->job->is_reported ||
            !has_same_salt(c, other) || !is_ahead(other, c) ||
            !may_share(other, c, (int32_t)weir_max(best, other->sequence->n_computed)))
            continue;
        const int32_t rows = weir_choice_rows_from(other, c, common_tokens(other, c));
        if (rows <= best || rows <= other->sequence->n_computed) continue;
        c->leader = other;
        c->n_followed = best = rows;
    }
}

choice *weir_choice_leader(choice *c)
{
    while (!c->job->is_in_step) {
        if (c->leader != NULL && c->leader->sequence->n_computed >= c->n_followed) c->leader = NULL;
        if (c->leader == NULL) {
            weir_choice_look_again(c);
            find_leader(c);
        }
        if (c->leader == NULL) return c;
        c = c->leader;
    }
    return c;
}

/* The leader ends or is preempted: its followers go on with what it computed. */
void weir_choice_release_followers(const choice *leader)
{
    const weir_service *const service = leader->job->service;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        choice *const c = service->slots[i].owner;
        if (c != NULL && c->leader == leader) c->leader = NULL;
    }
}
