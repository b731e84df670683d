/* engine/schedule/step_memory.c - memory for a step. The engine thread waits for no block that is
 * written or read: if memory is short, blocks begin to leave, and sequences that lack memory stall.
 * One that needs none is in every step (docs/decisions/0049). */
#include "engine/kv/tiers/residency.h"
#include "engine/schedule/job.h"
#include "kernels/abi/minmax.h"

/* ---- what is needed -------------------------------------------------------------------------- */
/* New pages, and copies of shared ones that it writes to. */
static weir_kv_pages pages_of(const weir_service *service, int32_t item)
{
    const weir_batch_item *const i = &service->step.items[item];
    return weir_kv_reserve_pages(&i->sequence->table, service->store, i->n_rows);
}

static weir_kv_pages pages_of_all(const weir_service *service, int32_t n_items)
{
    weir_kv_pages n = { 0 };
    for (int32_t i = 0; i < n_items; i++) n = weir_kv_pages_plus(n, pages_of(service, i));
    return n;
}

/* Blocks near the kernels, of which there may be fewer than pages only with a lower tier. */
static int64_t blocks_of(const weir_service *service, weir_kv_pages pages)
{
    const weir_kv_spec *const spec = weir_kv_store_spec(service->store);
    return weir_kv_cold_pages(spec) > 0 ? weir_kv_pages_blocks(spec, pages) : 0;
}

static weir_reclaim_request request_of(
    const weir_service *service, int32_t n_items, weir_reclaim_caller caller,
    weir_reclaim_need *need
)
{
    return (weir_reclaim_request){ .caller = caller,
                                   .store = service->store,
                                   .items = service->step.items,
                                   .n_items = n_items,
                                   .pages = pages_of_all(service, n_items),
                                   .hot = weir_runner_limits_of(service->runner)->hot,
                                   .need = need };
}

/* ---- who gets it ----------------------------------------------------------------------------- */
typedef struct claims {
    weir_service *service;
    const choice *first; /* in order */
    const choice *pruned; /* the first whose policy waits for memory; NULL: none does */
    weir_kv_pages free, pages; /* pages: of those that are met */
    int64_t n_free, n_returning; /* blocks */
    bool is_over; /* one waits */
} claims;

/* A sequence whose last block is in the lower tier (is_returning) needs one block to read it to, as
 * one row does. */
static bool is_small(const claims *all, const choice *c)
{
    return c->is_returning || all->service->step.items[c->item].n_rows == 1 ||
           weir_choice_is_decoding(c);
}

static bool goes_before(const claims *all, const choice *a, const choice *b)
{
    if (a == all->first || b == all->first) return a == all->first;
    if (is_small(all, a) != is_small(all, b)) return is_small(all, a);
    return weir_choice_is_before(a, b);
}

static choice *next_open(const claims *all)
{
    choice *next = NULL;
    for (int32_t i = 0; i < all->service->facts->n_slots; i++) {
        choice *const c = all->service->slots[i].owner;
        if (c != NULL && c->claim == CLAIM_OPEN && (next == NULL || goes_before(all, c, next)))
            next = c;
    }
    return next;
}

static bool is_met(claims *all, const choice *c)
{
    static const weir_kv_pages none = { 0 };
    const weir_kv_pages own = c->is_planned ? pages_of(all->service, c->item) : none,
                        pages = weir_kv_pages_plus(all->pages, own);
    const int64_t n_returning = all->n_returning + c->is_returning;
    if (!c->is_returning && weir_kv_pages_fit(own, none)) return true;
    if (all->is_over || (all->pruned != NULL && weir_choice_is_before(all->pruned, c)) ||
        !weir_kv_pages_fit(pages, all->free) ||
        blocks_of(all->service, pages) + n_returning > all->n_free)
        return false;
    all->pages = pages;
    all->n_returning = n_returning;
    return true;
}

static claims open_claims(weir_service *service)
{
    claims all = { .service = service,
                   .free = weir_kv_store_free(service->store),
                   .n_free = weir_kv_free_blocks(service->store) };
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        choice *const c = service->slots[i].owner;
        if (c == NULL) continue;
        const bool asks = !c->job->is_in_step && (c->is_planned || c->is_returning);
        c->claim = asks ? CLAIM_OPEN : CLAIM_NONE;
        if (c->claim == CLAIM_OPEN && (all.first == NULL || weir_choice_is_before(c, all.first)))
            all.first = c;
    }
    return all;
}

/* The first in order whose policy waits for memory: what becomes free adds up for it, too. */
static const choice *first_pruned(const weir_service *service)
{
    const choice *first = NULL;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (c != NULL && c->n_pruning_blocks > 0 &&
            (first == NULL || weir_choice_is_before(c, first)))
            first = c;
    }
    return first;
}

/* Keeps the items whose claim is met. */
static int32_t keep_met(weir_service *service, int32_t n_items)
{
    int32_t n = 0;
    for (int32_t i = 0; i < n_items; i++) {
        choice *const c = service->step.choices[i];
        c->is_planned = c->claim == CLAIM_MET;
        if (!c->is_planned) continue;
        service->step.items[n] = service->step.items[i];
        service->step.choices[n++] = c;
    }
    return n;
}

/* Shares out what is free: to the first in order, then to those that compute one row, then to
 * prompts. Those behind one that waits, or whose policy waits for memory (pruning.c), get nothing,
 * so what becomes free adds up for it. Returns the number of items that are left. */
static int32_t share_out(weir_service *service, int32_t n_items, int64_t n_blocks)
{
    claims all = open_claims(service);
    all.pruned = first_pruned(service);
    for (choice *c; (c = next_open(&all)) != NULL;) {
        c->claim = is_met(&all, c) ? CLAIM_MET : CLAIM_WAITS;
        all.is_over = all.is_over || c->claim == CLAIM_WAITS;
    }
    service->n_short = weir_max(n_blocks - blocks_of(service, all.pages) - all.n_returning, 0);
    return keep_met(service, n_items);
}

/* If as many blocks move as may, in a later step. Choices may share a block. */
static void read_ends(weir_service *service, bool all)
{
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (c == NULL || c->job->is_in_step || !c->is_returning || (!all && c->claim != CLAIM_MET))
            continue;
        const weir_kv_table *const table = &c->sequence->table;
        const int64_t last = table->n_rows / WEIR_PAGE_TOKENS;
        if (!weir_kv_is_moving(service->store, table->pages[last]))
            (void)weir_kv_promote_begin(
                service->store, (void *const *)table->pages + last, table->capacity, last, NULL
            );
    }
}

/* ---- a step ---------------------------------------------------------------------------------- */
weir_status weir_service_find_memory(weir_service *service, int32_t *n_items, weir_error *error)
{
    weir_reclaim_need for_pages = { 0 };
    weir_reclaim_request request = request_of(service, *n_items, WEIR_RECLAIM_FOR_STEP, &for_pages);
    service->n_short = 0;
    /* If it fails, reserving rows does, and says why. */
    (void)weir_reclaim(&service->holders, &request, NULL);
    request.caller = WEIR_RECLAIM_FOR_MEMORY;
    request.need = &service->need;
    request.blocks = blocks_of(service, request.pages) + service->n_returning;
    const weir_status status = weir_reclaim(&service->holders, &request, error);
    if (status != WEIR_OK && !service->need.waits && !service->pace.is_preempting) return status;
    const choice *const pruned = first_pruned(service);
    const bool waits =
        service->need.waits || for_pages.waits || pruned != NULL || service->pace.is_preempting;
    if (waits) *n_items = share_out(service, *n_items, request.blocks);
    if (pruned != NULL) service->n_short += pruned->n_pruning_blocks;
    if (service->n_returning > 0) read_ends(service, !waits);
    return WEIR_OK;
}

weir_status weir_service_free_memory(weir_service *service, int32_t n_items, bool *waits)
{
    weir_reclaim_need need = { 0 };
    const weir_reclaim_request request =
        request_of(service, n_items, WEIR_RECLAIM_FOR_STEP_FULL, &need);
    const weir_status status = weir_reclaim(&service->holders, &request, NULL);
    *waits = need.waits || (status != WEIR_OK && weir_service_will_preempt(service));
    return status;
}
