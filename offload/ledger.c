/* offload/ledger.c - counters under one mutex, and aligned blocks that are charged to them. */
#include "offload/ledger.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/base/checked.h"

enum { BLOCK_ALIGNMENT = 64 };
#define HUGE_PAGE ((size_t)2 << 20)
#define PAGE ((size_t)4 << 10)

struct weir_ledger {
    pthread_mutex_t lock;
    weir_ledger_state state;
    weir_device *device; /* NULL: kernels run on the host */
};

static const char *const account_names[WEIR_ACCOUNT_COUNT] = {
#define X(name, text) [WEIR_ACCOUNT_##name] = text,
    WEIR_ACCOUNT_MAP(X)
#undef X
};
static const char *const tier_names[WEIR_TIER_COUNT] = { "host", "device", "disk" };

const char *weir_account_name(weir_account account)
{
    return account >= 0 && account < WEIR_ACCOUNT_COUNT ? account_names[account] : "unknown";
}

const char *weir_tier_name(weir_tier tier)
{
    return tier >= 0 && tier < WEIR_TIER_COUNT ? tier_names[tier] : "unknown";
}

weir_status weir_ledger_open(weir_ledger **out, const size_t *caps)
{
    *out = NULL;
    weir_ledger *ledger = calloc(1, sizeof *ledger);
    if (!ledger) return WEIR_ENOMEM;
    if (pthread_mutex_init(&ledger->lock, NULL) != 0) {
        free(ledger);
        return WEIR_ENOMEM;
    }
    memcpy(ledger->state.cap, caps, sizeof ledger->state.cap);
    *out = ledger;
    return WEIR_OK;
}

void weir_ledger_close(weir_ledger *ledger)
{
    if (!ledger) return;
    pthread_mutex_destroy(&ledger->lock);
    free(ledger);
}

weir_status weir_ledger_reserve(
    weir_ledger *ledger, weir_tier tier, weir_account account, size_t bytes, weir_error *error
)
{
    pthread_mutex_lock(&ledger->lock);
    weir_ledger_state *const state = &ledger->state;
    const size_t cap = state->cap[tier], used = state->total[tier],
                 left = (cap ? cap : SIZE_MAX) - used;
    if (bytes <= left) {
        state->used[tier][account] += bytes;
        state->total[tier] += bytes;
        if (state->total[tier] > state->peak[tier]) state->peak[tier] = state->total[tier];
    }
    pthread_mutex_unlock(&ledger->lock);
    if (bytes <= left) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EFULL, "%s: %zu bytes asked, %zu of %zu left; raise memory.%s",
        account_names[account], bytes, left, cap, tier_names[tier]
    );
}

void weir_ledger_return(weir_ledger *ledger, weir_tier tier, weir_account account, size_t bytes)
{
    pthread_mutex_lock(&ledger->lock);
    WEIR_ASSERT(bytes <= ledger->state.used[tier][account]); /* more returned than was reserved */
    ledger->state.used[tier][account] -= bytes;
    ledger->state.total[tier] -= bytes;
    pthread_mutex_unlock(&ledger->lock);
}

void weir_ledger_read(const weir_ledger *ledger, weir_ledger_state *out)
{
    pthread_mutex_t *const lock =
        (pthread_mutex_t *)&ledger->lock; /* the lock is not part of the const state */
    pthread_mutex_lock(lock);
    *out = ledger->state;
    pthread_mutex_unlock(lock);
}

size_t weir_ledger_used(const weir_ledger *ledger, weir_tier tier, weir_account account)
{
    weir_ledger_state state;
    weir_ledger_read(ledger, &state);
    return state.used[tier][account];
}

size_t weir_ledger_total(const weir_ledger *ledger, weir_tier tier)
{
    weir_ledger_state state;
    weir_ledger_read(ledger, &state);
    return state.total[tier];
}

size_t weir_ledger_peak(const weir_ledger *ledger, weir_tier tier)
{
    weir_ledger_state state;
    weir_ledger_read(ledger, &state);
    return state.peak[tier];
}

size_t weir_ledger_cap(const weir_ledger *ledger, weir_tier tier)
{
    return ledger->state.cap[tier];
}

/* ---- trackers -------------------------------------------------------------------------------- */
static bool charge(weir_memory_tracker *tracker, size_t bytes)
{
    weir_ledger_tracker *const self = (weir_ledger_tracker *)tracker;
    if (self->ledger != NULL &&
        weir_ledger_reserve(self->ledger, WEIR_TIER_HOST, self->account, bytes, self->refused) !=
            WEIR_OK)
        return false;
    (void)__atomic_fetch_add(&self->held, bytes, __ATOMIC_RELAXED);
    return true;
}

/* `held` is updated last: a caller that reads 0 may destroy the tracker. */
static void refund(weir_memory_tracker *tracker, size_t bytes)
{
    weir_ledger_tracker *const self = (weir_ledger_tracker *)tracker;
    if (self->ledger != NULL)
        weir_ledger_return(self->ledger, WEIR_TIER_HOST, self->account, bytes);
    (void)__atomic_fetch_sub(&self->held, bytes, __ATOMIC_RELEASE);
}

void weir_ledger_tracker_init(
    weir_ledger_tracker *tracker, weir_ledger *ledger, weir_account account, weir_error *refused
)
{
    *tracker = (weir_ledger_tracker){ .tracker = { .charge = charge, .refund = refund },
                                      .ledger = ledger,
                                      .account = account,
                                      .refused = refused };
}

size_t weir_ledger_tracker_held(const weir_ledger_tracker *tracker)
{
    return __atomic_load_n(&tracker->held, __ATOMIC_ACQUIRE);
}

/* ---- blocks ---------------------------------------------------------------------------------- */
/* Blocks of at least a huge page are mapped: aligned to one, zeroed, backed when touched. Only
 * whole huge pages are advised: the last one would use up to 2 MiB that no account is charged for.
 * The advice may fail. */
static void *map_block(size_t bytes)
{
    size_t rounded, reach;
    if (!weir_align_size(&rounded, bytes, PAGE) || !weir_add_size(&reach, rounded, HUGE_PAGE))
        return NULL;
    char *const base = mmap(
        NULL, reach, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0
    );
    if (base == MAP_FAILED) return NULL;
    const size_t before = (HUGE_PAGE - (uintptr_t)base % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0) (void)munmap(base, before);
    if (HUGE_PAGE - before > 0) (void)munmap(base + before + rounded, HUGE_PAGE - before);
    (void)madvise(base + before, rounded / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return base + before;
}

static void *aligned_block(size_t bytes)
{
    size_t rounded;
    if (bytes >= HUGE_PAGE) return map_block(bytes);
    if (!weir_align_size(&rounded, bytes, BLOCK_ALIGNMENT)) return NULL;
    void *const memory = aligned_alloc(BLOCK_ALIGNMENT, rounded);
    if (memory) memset(memory, 0, rounded);
    return memory;
}

static void free_block(void *memory, size_t bytes)
{
    size_t rounded;
    if (bytes < HUGE_PAGE)
        free(memory);
    else if (weir_align_size(&rounded, bytes, PAGE))
        (void)munmap(memory, rounded);
}

weir_status weir_ledger_alloc(
    weir_ledger *ledger, void **out, weir_account account, size_t bytes, weir_error *error
)
{
    *out = NULL;
    if (bytes == 0) return WEIR_OK;
    WEIR_TRY(weir_ledger_reserve(ledger, WEIR_TIER_HOST, account, bytes, error));
    *out = aligned_block(bytes);
    if (*out) return WEIR_OK;
    weir_ledger_return(ledger, WEIR_TIER_HOST, account, bytes);
    return weir_error_set(
        error, WEIR_ENOMEM, "%s: the system has no %zu bytes; lower memory.host",
        account_names[account], bytes
    );
}

void weir_ledger_free(weir_ledger *ledger, void *memory, weir_account account, size_t bytes)
{
    if (!memory) return;
    free_block(memory, bytes);
    weir_ledger_return(ledger, WEIR_TIER_HOST, account, bytes);
}

weir_status weir_ledger_map(
    weir_ledger *ledger, void **out, weir_account account, size_t bytes, size_t reach,
    weir_error *error
)
{
    *out = NULL;
    WEIR_TRY(weir_ledger_reserve(ledger, WEIR_TIER_HOST, account, bytes, error));
    void *const memory = mmap(
        NULL, reach, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0
    );
    if (memory != MAP_FAILED) {
        (void)madvise(memory, reach, MADV_NOHUGEPAGE);
        *out = memory;
        return WEIR_OK;
    }
    weir_ledger_return(ledger, WEIR_TIER_HOST, account, bytes);
    return weir_error_set(
        error, WEIR_ENOMEM, "%s: the system has no %zu bytes of address space; lower memory.disk",
        account_names[account], reach
    );
}

void weir_ledger_unmap(
    weir_ledger *ledger, void *memory, weir_account account, size_t bytes, size_t reach
)
{
    if (!memory) return;
    (void)munmap(memory, reach);
    weir_ledger_return(ledger, WEIR_TIER_HOST, account, bytes);
}

/* ---- device memory --------------------------------------------------------------------------- */
void weir_ledger_use_device(weir_ledger *ledger, weir_device *device) { ledger->device = device; }
weir_device *weir_ledger_device(const weir_ledger *ledger) { return ledger->device; }

weir_tier weir_ledger_device_tier(const weir_ledger *ledger)
{
    return ledger->device != NULL ? WEIR_TIER_DEVICE : WEIR_TIER_HOST;
}

weir_status weir_ledger_alloc_device(
    weir_ledger *ledger, void **out, weir_account account, size_t bytes, weir_error *error
)
{
    if (ledger->device == NULL) return weir_ledger_alloc(ledger, out, account, bytes, error);
    *out = NULL;
    if (bytes == 0) return WEIR_OK;
    WEIR_TRY(weir_ledger_reserve(ledger, WEIR_TIER_DEVICE, account, bytes, error));
    *out = weir_device_alloc(ledger->device, bytes);
    if (*out != NULL) return WEIR_OK;
    weir_ledger_return(ledger, WEIR_TIER_DEVICE, account, bytes);
    const char *const failure = weir_device_failure(ledger->device);
    if (failure != NULL)
        return weir_error_set(
            error, WEIR_EDEVICE, "%s: %zu bytes: %s", account_names[account], bytes, failure
        );
    return weir_error_set(
        error, WEIR_ENOMEM, "%s: %s has no %zu bytes left; lower memory.device",
        account_names[account], weir_device_name(ledger->device), bytes
    );
}

void weir_ledger_free_device(weir_ledger *ledger, void *memory, weir_account account, size_t bytes)
{
    if (ledger->device == NULL) {
        weir_ledger_free(ledger, memory, account, bytes);
        return;
    }
    if (memory == NULL) return;
    weir_device_free(ledger->device, memory, bytes);
    weir_ledger_return(ledger, WEIR_TIER_DEVICE, account, bytes);
}

weir_status weir_ledger_alloc_pinned(
    weir_ledger *ledger, void **out, weir_account account, size_t bytes, weir_error *error
)
{
    if (ledger->device == NULL) return weir_ledger_alloc(ledger, out, account, bytes, error);
    *out = NULL;
    if (bytes == 0) return WEIR_OK;
    WEIR_TRY(weir_ledger_reserve(ledger, WEIR_TIER_HOST, account, bytes, error));
    *out = weir_device_alloc_unified(ledger->device, bytes);
    if (*out != NULL) return WEIR_OK;
    weir_ledger_return(ledger, WEIR_TIER_HOST, account, bytes);
    return weir_error_set(
        error, WEIR_ENOMEM,
        "%s: the system has no %zu bytes that %s can access; lower memory.host or kv.tiers.host",
        account_names[account], bytes, weir_device_name(ledger->device)
    );
}

void weir_ledger_free_pinned(weir_ledger *ledger, void *memory, weir_account account, size_t bytes)
{
    if (ledger->device == NULL) {
        weir_ledger_free(ledger, memory, account, bytes);
        return;
    }
    if (memory == NULL) return;
    weir_device_free_unified(ledger->device, memory, bytes);
    weir_ledger_return(ledger, WEIR_TIER_HOST, account, bytes);
}

void weir_ledger_copy(const weir_ledger *ledger, void *dst, const void *src, size_t bytes)
{
    if (ledger->device != NULL)
        weir_device_copy(ledger->device, dst, src, bytes);
    else
        memcpy(dst, src, bytes);
}

void weir_ledger_clear(const weir_ledger *ledger, void *memory, size_t bytes)
{
    if (ledger->device != NULL)
        weir_device_clear(ledger->device, memory, bytes);
    else
        memset(memory, 0, bytes);
}

weir_status weir_ledger_check(const weir_ledger *ledger, weir_error *error)
{
    const char *const failure = ledger->device != NULL ? weir_device_failure(ledger->device) : NULL;
    return failure == NULL ? WEIR_OK : weir_error_set(error, WEIR_EDEVICE, "%s", failure);
}
