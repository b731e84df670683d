/* engine/schedule/shares.c - prompt rows of steps by client: of those with prompts the one that got
 * the fewest is next, as in deficit round robin with pieces for a quantum (Shreedhar and Varghese,
 * 1995). Short and long prompts have counters of their own, as they have shares of their own, and
 * so have priorities (docs/decisions/0039-token-budget.md). A client that had no prompts begins
 * with as many rows as the one that got the fewest, so it has no claim to what it did not ask for;
 * what it was ahead counts up to a chunk. */
#include "engine/kv/tiers/residency.h"
#include "engine/schedule/job.h"
#include "kernels/abi/minmax.h"

bool weir_choice_is_long(const choice *c)
{
    return c->sequence->n_tokens - c->sequence->n_computed > c->job->service->long_prompt;
}

int32_t weir_choice_share_of(const choice *c)
{
    const weir_request *const request = &c->job->request;
    const uint32_t client = (uint32_t)request->client % CLIENT_ENTRIES,
                   priority = (uint32_t)request->priority % SHARE_PRIORITIES;
    return (int32_t)(client + CLIENT_ENTRIES * (2 * priority + weir_choice_is_long(c)));
}

/* It is, or follows one, in a step that waits, or has blocks on disk meanwhile: nested steps leave
 * it alone. */
static bool is_left_alone(const choice *c)
{
    bool is_left = false;
    for (; c != NULL && !is_left; c = c->leader)
        is_left = c->job->is_in_step || weir_choice_is_for_later(c);
    return is_left;
}

/* It has a prompt, and could compute it: what it does not get meanwhile it has no claim to. */
static bool can_pay(const weir_service *service, const choice *c)
{
    return c != NULL && !c->is_waiting && !c->is_stalled && !c->is_reading && !is_left_alone(c) &&
           !weir_choice_is_decoding(c) && c->claim != CLAIM_WAITS && !weir_job_is_pruning(c->job) &&
           weir_kv_cold_end(&c->sequence->table, service->store) == NULL;
}

/* The fewest rows of those of its priority and kind that were open before, without `except`. -1:
 * there is none. */
static int64_t fewest(const weir_service *service, const choice *c, const bool *except)
{
    const prompt_shares *const shares = &service->shares;
    int64_t least = -1;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const other = service->slots[i].owner;
        if (!can_pay(service, other) || other->job->request.priority != c->job->request.priority ||
            weir_choice_is_long(other) != weir_choice_is_long(c))
            continue;
        const int32_t share = weir_choice_share_of(other);
        if (shares->is_open[share] && !except[share] && (least < 0 || shares->rows[share] < least))
            least = shares->rows[share];
    }
    return least;
}

/* It has no claim to what others got, and is ahead by a chunk at most. */
static void level(weir_service *service, int32_t share, int64_t least)
{
    int64_t *const rows = &service->shares.rows[share];
    *rows = weir_max(weir_min(*rows, least + service->chunk), least);
}

/* Those whose prompts were in a step that waited: what was computed within it counts for none of
 * them, and among each other they are as they were. */
static void open_again(weir_service *service)
{
    prompt_shares *const shares = &service->shares;
    bool waited[PROMPT_SHARES];
    memcpy(waited, shares->waits, sizeof waited);
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (!can_pay(service, c)) continue;
        const int32_t share = weir_choice_share_of(c);
        const int64_t least = shares->waits[share] ? fewest(service, c, waited) : -1;
        if (least >= 0) level(service, share, least);
        shares->waits[share] = false;
    }
}

void weir_service_open_shares(weir_service *service)
{
    static const bool none[PROMPT_SHARES];
    bool opens[PROMPT_SHARES] = { false };
    prompt_shares *const shares = &service->shares;
    open_again(service);
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (!can_pay(service, c)) continue;
        const int32_t share = weir_choice_share_of(c);
        if (!shares->is_open[share] && !opens[share]) {
            const int64_t least = fewest(service, c, none);
            if (least < 0) shares->rows[share] = 0;
            if (least >= 0) level(service, share, least);
        }
        opens[share] = true;
    }
    memset(shares->waits, 0, sizeof shares->waits);
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (c == NULL || !is_left_alone(c) || weir_choice_is_decoding(c)) continue;
        const int32_t share = weir_choice_share_of(c);
        shares->waits[share] = shares->is_open[share] && !opens[share];
    }
    for (int32_t i = 0; i < PROMPT_SHARES; i++) shares->is_open[i] = opens[i] || shares->waits[i];
}

void weir_service_count_shares(weir_service *service, int32_t n_items)
{
    for (int32_t i = 0; i < n_items; i++) {
        const choice *const c = service->step.choices[i];
        service->shares.rows[c->share] += c->share_rows;
    }
}
