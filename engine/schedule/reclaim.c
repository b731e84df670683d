/* engine/schedule/reclaim.c - the steps that free KV memory, their order, and which caller may use
 * which. */
#include "engine/schedule/reclaim.h"

#include <inttypes.h>

#include "engine/base/log.h"
#include "engine/kv/prefix/pruned_cache.h"
#include "engine/kv/tiers/residency.h"
#include "engine/schedule/runner.h"
#include "engine/schedule/tiers.h"

typedef struct reclaim {
    const weir_kv_holders *holders;
    const weir_reclaim_request *request;
    weir_status demoted; /* of the last demotion: how it began, or EIO if it could not be written */
    weir_error why; /* why it failed */
} reclaim;

/* ---- the steps ------------------------------------------------------------------------------- */
static bool has_pages(const weir_reclaim_request *request)
{
    weir_kv_pages pages = request->pages;
    pages.tables = 0;
    return weir_kv_pages_fit(pages, weir_kv_store_free(request->store));
}

/* True if dropping pages would not help. */
static bool lacks_tables_only(const weir_reclaim_request *request)
{
    return has_pages(request) && request->pages.tables > weir_kv_store_free(request->store).tables;
}

/* Each of these returns true if it freed something and may be called again. Demotions free nothing
 * before they have ended. */
static bool demote_cached(reclaim *r)
{
    const weir_reclaim_request *const request = r->request;
    if (r->demoted == WEIR_OK)
        r->demoted = weir_tiers_demote_cached(request->store, r->holders, request->blocks, &r->why);
    return false;
}

static bool drop_cached(reclaim *r)
{
    const weir_reclaim_request *const request = r->request;
    return r->holders->prefix != NULL && !has_pages(request) &&
           weir_prefix_reclaim(r->holders->prefix, request->pages);
}

static bool release_saved(reclaim *r)
{
    const weir_kv_holders *const holders = r->holders;
    if (holders->release == NULL || !holders->release(holders->user)) return false;
    (void)drop_cached(r);
    return true;
}

static bool drop_pruned(reclaim *r)
{
    return r->holders->prefix != NULL && !lacks_tables_only(r->request) &&
           weir_pruned_drop_oldest(r->holders->prefix);
}

static bool demote_running(reclaim *r)
{
    const weir_reclaim_request *const request = r->request;
    if (r->demoted == WEIR_OK)
        r->demoted = weir_tiers_demote_running(
            request->store, r->holders, request->items, request->n_items, request->hot,
            request->blocks, &r->why
        );
    return false;
}

/* Not while blocks leave, which may be those that it would drop. */
static bool drop_cached_in_memory(reclaim *r)
{
    if (r->holders->prefix != NULL && weir_kv_blocks_leaving(r->request->store) == 0)
        weir_prefix_reclaim_memory(r->holders->prefix, r->request->blocks);
    return false;
}

static bool drop_shared(reclaim *r)
{
    return r->holders->prefix != NULL &&
           weir_prefix_release_shared(r->holders->prefix, r->request->sequence);
}

static bool preempt(reclaim *r)
{
    const weir_kv_holders *const holders = r->holders;
    return holders->preempt != NULL && holders->preempt(holders->user, r->request->sequence);
}

static bool drop_tails(reclaim *r)
{
    bool any = false;
    if (lacks_tables_only(r->request)) return false;
    for (int32_t i = 0; r->holders->prefix != NULL && i < r->request->n_items; i++) {
        const weir_kv_sequence *const sequence = r->request->items[i].sequence;
        any = weir_prefix_release_extensions(r->holders->prefix, sequence) || any;
        any = weir_prefix_release_tail(r->holders->prefix, sequence) || any;
    }
    return any;
}

static const struct {
    /* cost: what the next use of what it freed takes. */
    const char *name, *cost;
    bool (*run)(reclaim *r);
} steps[WEIR_RECLAIM_STEPS] = {
    [WEIR_RECLAIM_DEMOTE_CACHED] = { "demote cached prefixes", "a read from the lower tier",
                                     demote_cached },
    [WEIR_RECLAIM_CACHED] = { "drop cached prefixes", "prefill, or a read of their session file",
                              drop_cached },
    [WEIR_RECLAIM_SAVED] = { "stop saving a sequence", "prefill: it is not saved to a session file",
                             release_saved },
    [WEIR_RECLAIM_PRUNED] = { "drop a pruned cache", "prefill with its policy", drop_pruned },
    [WEIR_RECLAIM_DEMOTE_RUNNING] = { "demote running sequences",
                                      "a read from the lower tier in each step", demote_running },
    [WEIR_RECLAIM_CACHED_IN_MEMORY] = { "drop cached prefixes in memory", "prefill",
                                        drop_cached_in_memory },
    [WEIR_RECLAIM_SHARED] = { "drop the cached copy of a pruned sequence",
                              "prefill, if another request has this prefix", drop_shared },
    [WEIR_RECLAIM_PREEMPT] = { "preempt the youngest sequence", "all of it is computed again",
                               preempt },
    [WEIR_RECLAIM_TAIL] = { "drop the cached last page", "prefill of at most a page", drop_tails },
};

/* ---- who may take which ---------------------------------------------------------------------- */
typedef enum goal {
    GOAL_PAGES, /* pages of the pool are free */
    GOAL_BLOCKS, /* blocks of memory are free */
    GOAL_ANY /* anything freed: the caller retries after each step */
} goal;

#define STEP(name) (1u << WEIR_RECLAIM_##name)

/* STEP_FULL continues where STEP ended: the step was tried in between and may have failed for lack
 * of blocks near the kernels. A policy does not stop a save, since the sequence can wait for it. A
 * session never preempts; weir_service_claim has already stopped a save that is in its way. */
static const struct {
    goal goal;
    uint32_t steps;
} callers[WEIR_RECLAIM_CALLERS] = {
    [WEIR_RECLAIM_FOR_STEP] = { GOAL_PAGES, STEP(CACHED) | STEP(SAVED) },
    [WEIR_RECLAIM_FOR_STEP_FULL] = { GOAL_ANY,
                                     STEP(SAVED) | STEP(PRUNED) | STEP(PREEMPT) | STEP(TAIL) },
    [WEIR_RECLAIM_FOR_MEMORY] = { GOAL_BLOCKS, STEP(DEMOTE_CACHED) | STEP(PRUNED) |
                                                   STEP(DEMOTE_RUNNING) | STEP(CACHED_IN_MEMORY) },
    [WEIR_RECLAIM_FOR_POLICY] = { GOAL_ANY, STEP(CACHED) | STEP(PRUNED) | STEP(SHARED) },
    [WEIR_RECLAIM_FOR_POLICY_FULL] = { GOAL_ANY, STEP(PREEMPT) },
    [WEIR_RECLAIM_FOR_SESSION] = { GOAL_PAGES, STEP(CACHED) },
    [WEIR_RECLAIM_FOR_SESSION_FULL] = { GOAL_ANY, STEP(PRUNED) },
};

#undef STEP

static bool is_met(const weir_reclaim_request *request)
{
    switch (callers[request->caller].goal) {
    case GOAL_PAGES: return weir_kv_pages_fit(request->pages, weir_kv_store_free(request->store));
    case GOAL_BLOCKS: return weir_kv_free_blocks(request->store) >= request->blocks;
    case GOAL_ANY: return false;
    }
    return false;
}

/* True if no other step is needed once the blocks that leave have left, or if more can be demoted
 * when some moves have ended. */
static bool is_on_its_way(const weir_reclaim_request *request)
{
    const weir_kv_store *const store = request->store;
    if (callers[request->caller].goal != GOAL_BLOCKS || weir_kv_moves_begun(store) == 0)
        return false;
    return weir_kv_moves_left(store) == 0 ||
           weir_kv_free_blocks(store) + weir_kv_blocks_leaving(store) >= request->blocks;
}

/* Free pages of the size classes that the caller needs. */
static int64_t free_pages(const weir_reclaim_request *request)
{
    if (callers[request->caller].goal != GOAL_BLOCKS)
        return weir_kv_store_free_pages(request->store);
    return weir_kv_free_blocks(request->store) *
           weir_kv_pages_for(weir_kv_store_spec(request->store), 1);
}

/* Runs a step once; counts it if it freed something. */
static bool run(reclaim *r, weir_reclaim_step step)
{
    const int64_t before = free_pages(r->request);
    const bool again = steps[step].run(r);
    const int64_t freed = free_pages(r->request) - before;
    if (!again && freed <= 0) return false;
    weir_log(
        WEIR_LOG_DEBUG, "KV memory is short: %s, %" PRId64 " pages (costs %s)", steps[step].name,
        freed, steps[step].cost
    );
    const bool is_counted =
        step == WEIR_RECLAIM_DEMOTE_CACHED || step == WEIR_RECLAIM_DEMOTE_RUNNING;
    if (r->holders->counts != NULL && !is_counted) { /* tiers.c counts what it moves */
        r->holders->counts[step].n++;
        r->holders->counts[step].pages += freed > 0 ? freed : 0;
    }
    return again;
}

static weir_status refuse(reclaim *r, weir_error *error)
{
    if (callers[r->request->caller].goal != GOAL_BLOCKS) return WEIR_EFULL;
    if (r->why.text[0] == '\0')
        (void)weir_error_set(
            &r->why, WEIR_EFULL, "all that can be demoted is in the lower tier; raise %s",
            weir_kv_store_budget(r->request->store)
        );
    return weir_error_set(
        error, WEIR_EFULL, "no memory for %" PRId64 " more tokens of KV: %s",
        r->request->blocks * WEIR_PAGE_TOKENS, r->why.text
    );
}

/* Costs nothing: it would be released in one of the next iterations. */
static bool release_ended(const reclaim *r)
{
    const weir_kv_holders *const holders = r->holders;
    return holders->release_ended != NULL && holders->release_ended(holders->user);
}

static weir_status take_steps(reclaim *r, weir_error *error)
{
    const weir_reclaim_request *const request = r->request;
    bool any = !is_met(request) && release_ended(r) && callers[request->caller].goal == GOAL_ANY;
    for (int i = 0; i < WEIR_RECLAIM_STEPS; i++) {
        if ((callers[request->caller].steps & 1u << i) == 0) continue;
        while (!any && !is_met(request) && !is_on_its_way(request) && run(r, (weir_reclaim_step)i))
            any = callers[request->caller].goal == GOAL_ANY;
    }
    return any || is_met(request) ? WEIR_OK : refuse(r, error);
}

/* ---- moves ----------------------------------------------------------------------------------- */
/* A need is not met by trying a disk again and again: once a demotion has failed since it arose,
 * the steps that cost more are taken. */
static void look_at_failures(reclaim *r, weir_reclaim_need *need)
{
    const int64_t n_failed = weir_kv_demotions_failed(r->request->store, NULL);
    if (!need->waits) need->n_failed = n_failed;
    if (n_failed == need->n_failed) return;
    (void)weir_kv_demotions_failed(r->request->store, &r->why);
    r->demoted = WEIR_EIO;
}

/* A move holds the pages of its block, also if these were dropped meanwhile. A recurrent state that
 * moves holds its place on disk. For a caller that does not wait here, a thread that drops rows
 * counts as a move. */
static bool will_free_more(const reclaim *r)
{
    const weir_kv_store *const store = r->request->store;
    const weir_kv_pages kept = weir_kv_store_kept(store);
    const bool matters = callers[r->request->caller].goal == GOAL_BLOCKS ||
                         kept.sinks + weir_kv_pages_others(kept) > 0;
    return (matters && weir_kv_moves_begun(store) > 0) ||
           (r->demoted == WEIR_EFULL && weir_prefix_will_end_moves(r->holders->prefix)) ||
           (r->request->need != NULL && r->holders->prunes != NULL &&
            r->holders->prunes(r->holders->user));
}

static weir_status ask(
    const weir_kv_holders *holders, const weir_reclaim_request *request, weir_reclaim_need *need,
    weir_error *error
)
{
    reclaim r = { .holders = holders, .request = request };
    look_at_failures(&r, need);
    const weir_status status = take_steps(&r, error);
    need->waits = status != WEIR_OK && will_free_more(&r);
    return status;
}

static void wait_for_moves(const weir_kv_holders *holders, weir_kv_store *store)
{
    if (weir_kv_moves_begun(store) > 0) {
        (void)weir_tiers_settle(store, true);
        return;
    }
    weir_prefix_wait_for_moves(holders->prefix);
    weir_prefix_hold_read(holders->prefix, false); /* else these would be waited for for ever */
    (void)weir_prefix_end_moves(holders->prefix);
}

weir_status weir_reclaim(
    const weir_kv_holders *holders, const weir_reclaim_request *request, weir_error *error
)
{
    weir_reclaim_need need = { 0 };
    if (is_met(request) || request->need != NULL)
        return ask(holders, request, request->need != NULL ? request->need : &need, error);
    (void)weir_tiers_settle(request->store, false);
    for (;;) {
        const weir_status status = ask(holders, request, &need, error);
        if (status == WEIR_OK || !need.waits || weir_kv_is_attending(request->store)) return status;
        wait_for_moves(holders, request->store);
    }
}
