#include "tests/unit/schedule/simulator/audit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/kv/tiers/residency.h"
#include "engine/schedule/job.h"
#include "tests/unit/schedule/simulator/machine.h"

static char wrong[512];

#define WRONG(...) ((void)snprintf(wrong, sizeof wrong, __VA_ARGS__), (const char *)wrong)

/* ---- choices --------------------------------------------------------------------------------- */
static int by_order(const void *a, const void *b)
{
    const choice *const *const x = a, *const *const y = b;
    return weir_choice_is_before(*x, *y) ? -1 : 1;
}

static bool is_last_cold(const weir_kv_store *store, const weir_kv_table *table)
{
    const int64_t last = table->n_rows / WEIR_PAGE_TOKENS;
    return table->n_heads > 0 && last < table->n_pages &&
           (weir_kv_is_cold(store, table->pages[last]) ||
            weir_kv_is_moving(store, table->pages[last]));
}

static bool needs_page(const weir_kv_store *store, const weir_kv_sequence *s, int32_t n_rows)
{
    static const weir_kv_pages none = { 0 };
    return s->table.n_rows < weir_kv_store_spec(store)->max_rows &&
           !weir_kv_pages_fit(weir_kv_reserve_pages(&s->table, store, n_rows), none);
}

/* True if the last plan left its request alone, because a step that waits has an item of it. */
static bool is_of_other(const weir_service *service, const choice *c)
{
    for (int32_t i = 0; service->is_nested && i < service->other.n_running; i++)
        if (service->other.choices[i]->job == c->job) return true;
    return false;
}

/* Each iteration plans a step anew. */
static int32_t step_rows(const weir_service *service, const choice *c)
{
    if (is_of_other(service, c)) return 0;
    for (int32_t i = 0; c->is_planned && i < service->facts->n_slots; i++)
        if (service->step.choices[i] == c) return service->step.items[i].n_rows;
    return 0;
}

/* Its rows of the step that runs are not in its table yet, and their pages are. */
static bool begins_block(const weir_service *service, const choice *c)
{
    const int64_t n_rows = c->sequence->table.n_rows, n_new = step_rows(service, c),
                  n_before = (n_rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
    return n_new > 0 && !service->step.items[c->item].failed &&
           n_rows + n_new > n_before * WEIR_PAGE_TOKENS;
}

/* With a policy all choices of a request wait until the last one has forked. */
static bool is_held(const choice *c)
{
    const bool waits_for_others = c->job->policy_run != NULL && c->job->n_unforked > 0;
    return weir_choice_is_held(c) || (waits_for_others && !c->is_waiting);
}

bool sim_moves(const weir_service *service)
{
    return weir_kv_moves_begun(service->store) > 0 || weir_prefix_moves(service->prefix) > 0 ||
           weir_pruner_is_busy(service->pruner) || service->pace.is_preempting ||
           service->pace.preempts <= 0;
}

bool sim_prunes(const weir_service *service) { return weir_pruner_is_busy(service->pruner); }

int32_t sim_choices(const weir_service *service, sim_choice *out)
{
    const choice *all[64];
    int32_t n = 0;
    for (int32_t i = 0; i < service->facts->n_slots && n < 64; i++)
        if (service->slots[i].owner != NULL) all[n++] = service->slots[i].owner;
    qsort(all, (size_t)n, sizeof(const choice *), by_order);
    for (int32_t i = 0; i < n; i++) {
        const choice *const c = all[i];
        out[i] = (sim_choice
        ){ .user = c->job->request.user,
           .serial = c->job->serial,
           .index = c->index,
           .priority = c->job->request.priority,
           .n_tokens = c->sequence->n_tokens,
           .n_computed = c->sequence->n_computed,
           .n_answer = c->n_answer,
           .n_pages = c->sequence->table.n_pages,
           .is_waiting = c->is_waiting,
           .is_unforked = c->is_unforked,
           .is_held = is_held(c),
           .is_stalled = c->is_stalled,
           .is_reading = c->is_reading,
           .is_again = c->is_again,
           .is_decoding = c->n_answer > 0 && !c->is_waiting && !c->is_stalled && !c->is_reading &&
                          !is_held(c) &&
                          c->sequence->n_tokens - c->sequence->n_computed == 1 + c->n_redo,
           .is_pruning = weir_job_is_pruning(c->job),
           .lacks_rows = c->n_pruning_blocks > 0,
           .is_last_cold = is_last_cold(service->store, &c->sequence->table),
           .is_returning = c->is_returning,
           .needs_page = needs_page(service->store, c->sequence, 1 + c->n_redo),
           .asks_memory = c->claim != CLAIM_NONE && !is_of_other(service, c),
           .lacks_memory = c->claim == CLAIM_WAITS && !is_of_other(service, c),
           .is_cold = weir_kv_table_cold_blocks(&c->sequence->table, service->store) > 0,
           .is_in_step = c->job->is_in_step,
           .step_rows = step_rows(service, c),
           .begins_block = begins_block(service, c),
           .is_piece = step_rows(service, c) > 0 && c->share_rows > 0,
           .goes_first = c->goes_first,
           .leader = -1 };
        for (int32_t k = 0; k < n; k++)
            if (c->leader == all[k]) out[i].leader = k;
    }
    return n;
}

bool sim_has_tokens(
    const weir_service *service, const sim_choice *c, const int32_t *tokens, int32_t n_tokens
)
{
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const own = service->slots[i].owner;
        if (own == NULL || own->job->request.user != c->user || own->index != c->index) continue;
        return own->sequence->n_tokens == n_tokens &&
               memcmp(own->sequence->tokens, tokens, (size_t)n_tokens * sizeof *tokens) == 0;
    }
    return false;
}

/* ---- pages ----------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b)
{
    const char *const x = *(const char *const *)a, *const y = *(const char *const *)b;
    return (x > y) - (x < y);
}

/* NULL: no memory. */
static const void **pages_of_tables(const weir_service *service, int64_t *n)
{
    const int32_t n_slots = service->facts->n_slots;
    int64_t most = 1;
    for (int32_t i = 0; i < n_slots; i++) {
        const weir_kv_table *const table = &service->slots[i].sequence.table;
        most += table->n_heads * table->n_pages;
    }
    const void **const all = malloc((size_t)most * sizeof *all);
    *n = 0;
    for (int32_t i = 0; all != NULL && i < n_slots; i++) {
        const weir_kv_table *const table = &service->slots[i].sequence.table;
        for (int64_t h = 0; h < table->n_heads; h++)
            for (int64_t block = 0; block < table->n_pages; block++)
                if (table->pages[h * table->capacity + block] != NULL)
                    all[(*n)++] = table->pages[h * table->capacity + block];
    }
    if (all != NULL) qsort(all, (size_t)*n, sizeof *all, by_address);
    return all;
}

/* Holders of the pages of tables; counts those that the prefix cache does not have. */
static const char *check_holders(
    const weir_service *service, const void *const *all, int64_t n, int64_t *n_own
)
{
    const weir_kv_store *const store = service->store;
    const int32_t most = (weir_kv_moves_begun(store) > 0) + weir_pruner_is_busy(service->pruner);
    *n_own = 0;
    for (int64_t i = 0, run; i < n; i += run) {
        for (run = 1; i + run < n && all[i + run] == all[i];) run++;
        const bool is_cached = weir_kv_page_owner(store, all[i]) != 0;
        *n_own += !is_cached;
        if (weir_kv_page_users(store, all[i]) != run + is_cached)
            return WRONG(
                "a page is in %d tables and %sin the cache, and has %d holders", (int)run,
                is_cached ? "" : "not ", (int)weir_kv_page_users(store, all[i])
            );
        const int32_t n_moves =
            weir_kv_page_refs(store, all[i]) - weir_kv_page_users(store, all[i]);
        if (n_moves > most) return WRONG("%d moves hold a page", (int)n_moves);
    }
    return NULL;
}

static const char *check_pages(const weir_service *service)
{
    const weir_kv_store *const store = service->store;
    const weir_kv_spec *const spec = weir_kv_store_spec(store);
    int64_t n, n_own;
    const void **const all = pages_of_tables(service, &n);
    if (all == NULL) return "no memory for the audit";
    const char *const why = check_holders(service, all, n, &n_own);
    free(all);
    if (why != NULL) return why;
    const int64_t cached = service->prefix != NULL ? weir_prefix_stats_of(service->prefix).n_nodes *
                                                         weir_kv_n_heads(spec)
                                                   : 0,
                  moving = weir_kv_pages_others(weir_kv_store_kept(store)),
                  fresh = weir_pruner_new_pages(service->pruner),
                  free_pages = weir_kv_store_free_pages(store);
    const bool prunes = weir_pruner_is_busy(service->pruner);
    if (!prunes && fresh > 0) return WRONG("%" PRId64 " new pages are not used", fresh);
    if (!prunes && moving > weir_kv_moves_begun(store) * weir_kv_n_heads(spec))
        return WRONG("%" PRId64 " pages are held by moves that have ended", moving);
    if (n_own + cached + moving + fresh + free_pages == spec->pages.n) return NULL;
    return WRONG(
        "%" PRId64 " pages of sequences, %" PRId64 " cached, %" PRId64 " that only move, %" PRId64
        " new, %" PRId64 " free, of %" PRId64,
        n_own, cached, moving, fresh, free_pages, spec->pages.n
    );
}

static const char *check_slots(const weir_service *service)
{
    weir_error error = { 0 };
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const slot *const s = &service->slots[i];
        const weir_kv_sequence *const q = &s->sequence;
        if (!weir_kv_table_is_sound(service->store, &q->table, &error))
            return WRONG("slot %d: %s", (int)i, error.text);
        if (q->n_computed > q->n_tokens || q->table.n_rows > q->n_computed)
            return WRONG(
                "slot %d: %d rows of %d computed tokens of %d", (int)i, (int)q->table.n_rows,
                (int)q->n_computed, (int)q->n_tokens
            );
        if (s->owner == NULL && s->ended == NULL && (q->n_tokens > 0 || q->table.n_pages > 0))
            return WRONG("slot %d is free and holds %d pages", (int)i, (int)q->table.n_pages);
        if (s->owner != NULL && s->owner->draft_state != NULL && !s->owner->job->is_in_step)
            return WRONG("slot %d holds a state between two steps", (int)i);
        if (s->owner != NULL && s->owner->is_stalled && q->table.n_pages > 0)
            return WRONG("slot %d is preempted and holds pages", (int)i);
    }
    return NULL;
}

/* ---- bytes ----------------------------------------------------------------------------------- */
size_t sim_host_bytes(const weir_service *service)
{
    return weir_ledger_total(service->ledger, WEIR_TIER_HOST) -
           weir_ledger_used(service->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_HTTP);
}

static size_t blocks_taken(const weir_lower_tier *tier, int64_t n_blocks)
{
    return tier != NULL ? (size_t)(n_blocks - weir_lower_tier_free_blocks(tier)) : 0;
}

static const char *check_bytes(const weir_service *service, const sim_fixed *fixed)
{
    const weir_kv_spec *const spec = weir_kv_store_spec(service->store);
    weir_ledger_state now;
    weir_ledger_read(service->ledger, &now);
    for (int tier = 0; tier < WEIR_TIER_COUNT; tier++) {
        size_t sum = 0;
        for (int i = 0; i < WEIR_ACCOUNT_COUNT; i++) sum += now.used[tier][i];
        if (sum != now.total[tier])
            return WRONG(
                "accounts of tier %d have %zu bytes, the total is %zu", tier, sum, now.total[tier]
            );
        if (now.cap[tier] > 0 && now.total[tier] > now.cap[tier])
            return WRONG("tier %d has %zu of %zu bytes", tier, now.total[tier], now.cap[tier]);
    }
    if (sim_host_bytes(service) != fixed->host_bytes)
        return WRONG(
            "%zu bytes are charged besides those of requests, %zu at the beginning",
            sim_host_bytes(service), fixed->host_bytes
        );
    const int64_t per_block = weir_kv_pages_for(spec, 1);
    const size_t blocks = blocks_taken(
                     weir_kv_store_lower_tier(service->store), weir_kv_cold_pages(spec) / per_block
                 ),
                 bytes = blocks * weir_kv_block_stride(spec);
    const weir_lower_tier *const states =
        service->prefix != NULL ? weir_prefix_lower_tier(service->prefix) : NULL;
    const size_t n_states = states != NULL ? blocks_taken(states, fixed->n_cold_states) : 0;
    const size_t most = (size_t)(spec->pages.n_disk / per_block) * weir_kv_block_stride(spec);
    if (sim_disk_bytes() > most)
        return WRONG("files hold %zu bytes of %zu on disk", sim_disk_bytes(), most);
    if (now.total[WEIR_TIER_DISK] == bytes + n_states * WEIR_LOWER_TIER_ALIGNMENT) return NULL;
    return WRONG(
        "%zu bytes of disk are charged for %zu blocks and %zu states", now.total[WEIR_TIER_DISK],
        blocks, n_states
    );
}

const char *sim_audit(const weir_service *service, const sim_fixed *fixed)
{
    weir_error error = { 0 };
    if (!weir_kv_store_is_sound(service->store, &error)) return WRONG("the store: %s", error.text);
    if (service->prefix != NULL && !weir_prefix_is_sound(service->prefix, &error))
        return WRONG("the prefix cache: %s", error.text);
    const char *why = check_slots(service);
    if (why == NULL) why = check_pages(service);
    return why != NULL ? why : check_bytes(service, fixed);
}
