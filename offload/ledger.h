/* offload/ledger.h - charges every byte to an account. Caps are hard: a reservation that does not
 * fit fails before the allocation.
 *
 * Thread-safe (HTTP threads reserve request memory). There are caps for the host, a device and the
 * disk. */
#pragma once
#include <stddef.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "offload/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* page_tables: tables of sequences, and the pool's metadata. tokens: ids of sequences and of one
 * step. tokenizer: includes the chat template. packs: the index of a state database. http:
 * requests, that is connections, bodies, prompts, queued jobs, answers. process: memory that no
 * account is charged for, estimated and reserved by a server. other: names and tables of the model
 * file. */
// clang-format off
#define WEIR_ACCOUNT_MAP(X) \
    X(WEIGHTS, "weights") \
    X(ACTIVATIONS, "activations") \
    X(KV, "kv") \
    X(RECURRENT, "recurrent_state") \
    X(SNAPSHOTS, "snapshots") \
    X(PACKS, "packs") \
    X(PAGE_TABLES, "page_tables") \
    X(TOKENS, "tokens") \
    X(SAMPLER, "sampler") \
    X(TOKENIZER, "tokenizer") \
    X(HTTP, "http") \
    X(PROCESS, "process") \
    X(OTHER, "other")
// clang-format on
typedef enum weir_account {
#define X(name, text) WEIR_ACCOUNT_##name,
    WEIR_ACCOUNT_MAP(X)
#undef X
        WEIR_ACCOUNT_COUNT
} weir_account;
typedef enum weir_tier {
    WEIR_TIER_HOST,
    WEIR_TIER_DEVICE,
    WEIR_TIER_DISK,
    WEIR_TIER_COUNT
} weir_tier;

typedef struct weir_ledger weir_ledger;

/* caps [WEIR_TIER_COUNT] in bytes, 0: no cap. */
WEIR_MUST_CHECK weir_status weir_ledger_open(weir_ledger **out, const size_t *caps);
void weir_ledger_close(weir_ledger *ledger);
/* Returns EFULL, with a message that names the account, the size, what is left and the key that
 * raises the cap; then nothing is reserved. */
WEIR_MUST_CHECK weir_status weir_ledger_reserve(
    weir_ledger *ledger, weir_tier tier, weir_account account, size_t bytes, weir_error *error
);
void weir_ledger_return(weir_ledger *ledger, weir_tier tier, weir_account account, size_t bytes);
size_t weir_ledger_used(const weir_ledger *ledger, weir_tier tier, weir_account account);
size_t weir_ledger_total(const weir_ledger *ledger, weir_tier tier);
size_t weir_ledger_peak(const weir_ledger *ledger, weir_tier tier);
size_t weir_ledger_cap(const weir_ledger *ledger, weir_tier tier);
const char *weir_account_name(weir_account account);
const char *weir_tier_name(weir_tier tier);

/* All counters at one moment. */
typedef struct weir_ledger_state {
    size_t cap[WEIR_TIER_COUNT], total[WEIR_TIER_COUNT], peak[WEIR_TIER_COUNT];
    size_t used[WEIR_TIER_COUNT][WEIR_ACCOUNT_COUNT];
} weir_ledger_state;
void weir_ledger_read(const weir_ledger *ledger, weir_ledger_state *out);

/* An account of the host as a tracker (engine/base/memory.h). `tracker` must not move; `refused`
 * (may be NULL) keeps the message of the last refusal, for a tracker used by one thread. ledger
 * NULL: nothing is counted. */
typedef struct weir_ledger_tracker {
    weir_memory_tracker tracker;
    weir_ledger *ledger;
    weir_account account;
    weir_error *refused;
    size_t held; /* bytes charged and not refunded; atomic */
} weir_ledger_tracker;
void weir_ledger_tracker_init(
    weir_ledger_tracker *tracker, weir_ledger *ledger, weir_account account, weir_error *refused
);
/* Returns 0 if every block charged to it was freed; then it may be destroyed. */
size_t weir_ledger_tracker_held(const weir_ledger_tracker *tracker);

/* Allocates zeroed, 64-byte aligned memory charged to an account; large blocks are mapped lazily
 * and use huge pages. Free is NULL-safe and needs the same size. */
WEIR_MUST_CHECK weir_status weir_ledger_alloc(
    weir_ledger *ledger, void **out, weir_account account, size_t bytes, weir_error *error
);
void weir_ledger_free(weir_ledger *ledger, void *memory, weir_account account, size_t bytes);
/* Maps zeroed host address space of which only `bytes` are charged: the caller limits what is
 * backed (madvise). No huge pages, which would back more than was touched.
 * Unmap is NULL-safe and needs the same numbers. */
WEIR_MUST_CHECK weir_status weir_ledger_map(
    weir_ledger *ledger, void **out, weir_account account, size_t bytes, size_t reach,
    weir_error *error
);
void weir_ledger_unmap(
    weir_ledger *ledger, void *memory, weir_account account, size_t bytes, size_t reach
);

/* ---- device memory --------------------------------------------------------------------------- */
/* With a device: its memory, charged to memory.device; the host accesses it through
 * weir_ledger_copy and weir_ledger_clear. Without one: weir_ledger_alloc, memcpy and memset. Either
 * side of a copy may be host memory. `device` is borrowed and must outlive the ledger. */
void weir_ledger_use_device(weir_ledger *ledger, weir_device *device);
weir_device *weir_ledger_device(const weir_ledger *ledger); /* NULL: the CPU */
WEIR_MUST_CHECK weir_status weir_ledger_alloc_device(
    weir_ledger *ledger, void **out, weir_account account, size_t bytes, weir_error *error
);
void weir_ledger_free_device(weir_ledger *ledger, void *memory, weir_account account, size_t bytes);
/* Allocates page-locked host memory, charged to the host: copies to and from the device run at full
 * speed. Not zeroed. Without a device: weir_ledger_alloc. */
WEIR_MUST_CHECK weir_status weir_ledger_alloc_pinned(
    weir_ledger *ledger, void **out, weir_account account, size_t bytes, weir_error *error
);
void weir_ledger_free_pinned(weir_ledger *ledger, void *memory, weir_account account, size_t bytes);
/* The tier that alloc_device charges. */
weir_tier weir_ledger_device_tier(const weir_ledger *ledger);
void weir_ledger_copy(const weir_ledger *ledger, void *dst, const void *src, size_t bytes);
void weir_ledger_clear(const weir_ledger *ledger, void *memory, size_t bytes);
/* Returns EDEVICE with a message if the device failed; copies after the failure were not made. Call
 * it after copies, before using the bytes. */
WEIR_MUST_CHECK weir_status weir_ledger_check(const weir_ledger *ledger, weir_error *error);

#ifdef __cplusplus
}
#endif
