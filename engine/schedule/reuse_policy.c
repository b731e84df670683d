/* engine/schedule/reuse_policy.c - reuse with a policy: rows of the prefix cache where these are
 * all that the policy needs, else entries of the pruned cache, which have what it observed
 * (docs/decisions/0046-pruned-caches-and-thoughts.md). */
#include "engine/base/log.h"
#include "engine/kv/prefix/pruned_cache.h"
#include "engine/schedule/job.h"

/* ---- taking ---------------------------------------------------------------------------------- */
/* Takes an entry of the same policy, or rows of the index where the policy does not need to see
 * them. The longer of the two gives the reason why it is not longer. */
weir_prefix_hit weir_choice_reuse_policy(choice *c)
{
    weir_prefix *const prefix = c->job->service->prefix;
    const char *const salt = c->job->request.cache_salt;
    const weir_prefix_hit hit = weir_pruned_match(prefix, c->sequence, salt, c->is_again);
    if (hit.n_rows > 0) {
        c->n_evicted_before =
            weir_policy_run_count_of(c->sequence->policy_run, &c->sequence->table, hit.n_rows)
                .evicted;
        return hit;
    }
    const int32_t unseen = weir_policy_run_unobserved(c->sequence->policy_run),
                  most = c->sequence->n_tokens - 1;
    if (unseen == 0) return hit;
    weir_prefix_hit other =
        weir_prefix_match(prefix, c->sequence, salt, unseen < most ? unseen : most);
    if (!other.waits && other.n_rows == 0 && other.n_matched <= hit.n_matched) return hit;
    other.is_left = other.is_left || (hit.is_left && hit.n_matched >= other.n_matched);
    return other;
}

/* ---- keeping --------------------------------------------------------------------------------- */
/* Without this the rows and states after the last whole page are gone with the first eviction. */
void weir_choice_keep_prompt(choice *c)
{
    const weir_kv_sequence *const sequence = c->sequence;
    if (c->n_marks == 0 || sequence->table.is_pruned ||
        sequence->n_computed != c->job->request.n_prompt ||
        weir_policy_run_observes_all(sequence->policy_run))
        return;
    (void)weir_prefix_insert(
        c->job->service->prefix, c->sequence, c->job->request.cache_salt, c->marks, c->n_marks,
        false
    );
    c->n_marks = 0;
}

/* Where a later prompt may branch off, as starts of chunks; 0: nowhere. The answer is first. */
typedef struct checkpoints {
    int32_t at[3];
} checkpoints;
enum { CHECKPOINTS = sizeof(checkpoints) / sizeof(int32_t) };

static checkpoints points_of(const choice *c)
{
    const int32_t chunk = c->job->service->policy_busy_chunk;
    checkpoints all = { { weir_choice_answer_start(c), c->job->request.turn_starts[1],
                          c->job->usage.n_matched } };
    for (int i = 0; i < CHECKPOINTS; i++) all.at[i] = all.at[i] / chunk * chunk;
    return all;
}

static bool leaves_checkpoints(const choice *c)
{
    const weir_request *const request = &c->job->request;
    return weir_choice_may_keep(c) && !request->want_prompt_logprobs && !request->want_embedding &&
           weir_policy_run_observes_all(c->sequence->policy_run);
}

int32_t weir_choice_next_checkpoint(const choice *c, int32_t n)
{
    const checkpoints all = points_of(c);
    const int32_t before = weir_policy_run_turn_end(c->sequence->policy_run);
    int32_t checkpoint = 0;
    if (!leaves_checkpoints(c) || !weir_pruned_has_places(c->job->service->prefix)) return 0;
    for (int i = 0; i < CHECKPOINTS; i++)
        if (all.at[i] > before && all.at[i] > checkpoint && all.at[i] <= n) checkpoint = all.at[i];
    return checkpoint;
}

void weir_choice_keep_checkpoint(choice *c)
{
    const weir_request *const request = &c->job->request;
    const weir_kv_sequence *const sequence = c->sequence;
    const int32_t n = sequence->n_computed;
    if (n == c->n_checkpoint || n >= request->n_prompt || !leaves_checkpoints(c) ||
        n <= weir_policy_run_turn_end(sequence->policy_run))
        return;
    const checkpoints all = points_of(c);
    const bool is_answer = n == all.at[0];
    if (!is_answer && n != all.at[1] && n != all.at[2]) return;
    c->n_checkpoint = n;
    (void)weir_pruned_insert(
        c->job->service->prefix, sequence, request->cache_salt, NULL,
        !is_answer || !weir_choice_is_rewritten(c)
    );
}

/* Inserts the end of a turn where the index is not enough: rows are gone, or the policy must see
 * every row. The policy has not been applied after the last step. Clients that rewrite answers
 * never come back to it. */
void weir_choice_keep_policy(choice *c)
{
    weir_kv_sequence *const sequence = c->sequence;
    const int32_t n = sequence->n_computed;
    const char *why = NULL;
    if (n < c->job->request.n_prompt) return;
    const bool is_applied = weir_choice_apply_policy(c, &why);
    if (is_applied && !sequence->table.is_pruned &&
        !weir_policy_run_needs_turns(sequence->policy_run))
        return;
    if (is_applied)
        why = weir_policy_run_turn(sequence->policy_run, n, n)
                  ? weir_pruned_insert(
                        c->job->service->prefix, sequence, c->job->request.cache_salt,
                        c->index == 0 ? c->job->request.session : NULL, weir_choice_is_rewritten(c)
                    )
                  : "it had more turns than a policy records";
    if (why != NULL && !weir_choice_is_rewritten(c))
        weir_log(
            WEIR_LOG_INFO,
            "a sequence of %d tokens under the KV policy %s is not cached, so what continues it is "
            "computed: %s",
            (int)n, c->job->usage.kv_policy, why
        );
}
