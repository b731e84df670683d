/* engine/kv/tiers/residency.h - where the blocks of a store with a lower tier are, and moving them.
 * Without one, all are in memory.
 *
 * A block is given by the page of its first layer and head, or as pages [layers * KV heads] at a
 * stride, as in a table. */
#pragma once
#include "engine/kv/pool/store.h"
#include "engine/kv/tiers/lower_tier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True if the page is in the lower tier; false for NULL. */
bool weir_kv_is_cold(const weir_kv_store *store, const void *page);
/* True if the page could not be read: it must not be used for new sequences. */
bool weir_kv_is_unreadable(const weir_kv_store *store, const void *page);
void weir_kv_mark_unreadable(weir_kv_store *store, const void *page); /* which is cold */
/* True if the block may be demoted: it is in memory, whole, not of sinks, and no page of it is a
 * pruned table's (store.h 8). */
bool weir_kv_may_leave(const weir_kv_store *store, void *const *pages, int64_t stride);
/* Blocks past the sinks that can be allocated or promoted before another one must be demoted. */
int64_t weir_kv_free_blocks(const weir_kv_store *store);
/* True if the last block that was to be demoted could not be written: what is in memory may have
 * to stay there. */
bool weir_kv_lower_tier_fails(const weir_kv_store *store);

/* ---- the blocks of a table ----
 * None of these looks at every block, unless the table was not used while over 256 blocks moved. */
/* Blocks in the lower tier, none if it is pruned. table->cold.end: all of them are before it. */
int64_t weir_kv_table_cold_blocks(weir_kv_table *table, const weir_kv_store *store);
/* The last one before `end`; -1: there is none. Looks at those in between. */
int64_t weir_kv_table_cold_before(weir_kv_table *table, const weir_kv_store *store, int64_t end);
/* From the first block that may be demoted on, the first one in memory; table->n_pages: there is
 * none. */
int64_t weir_kv_table_first_near(weir_kv_table *table, const weir_kv_store *store);
/* For tests: how often these and weir_kv_may_leave looked where a block is, since opening. */
int64_t weir_kv_lookups(const weir_kv_store *store);

/* ---- moving ----
 * Engine thread, between steps; other threads may read a block's bytes only through
 * weir_kv_page_copy. A thread of the store writes and reads. */
/* Begin to move a block, which is at index `block` of its sequences: one for which
 * weir_kv_may_leave, and a cold one that does not move. It is where it was until weir_kv_moves_end,
 * and stays there if that fails; its pages are held meanwhile. EFULL: there is no place for it, or
 * too many move. */
WEIR_MUST_CHECK weir_status weir_kv_demote_begin(
    weir_kv_store *store, void *const *pages, int64_t stride, int64_t block, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_kv_promote_begin(
    weir_kv_store *store, void *const *pages, int64_t stride, int64_t block, weir_error *error
);
/* Ends the moves whose bytes are there, up to the first of a block that a step attends to, and
 * returns how many; `wait`: waits for the oldest one.
 * status: why the last failed demotion of them failed, with the error. */
int64_t weir_kv_moves_end(weir_kv_store *store, bool wait, weir_status *status, weir_error *error);
/* True while a step that waits for a block attends to this one, which is at index `block`: no move
 * of it ends. */
bool weir_kv_is_attended(const weir_kv_store *store, const void *page, int64_t block);
/* True while a step waits so. */
bool weir_kv_is_attending(const weir_kv_store *store);
/* Moves that have not ended, and that may still begin; those that will free memory. */
int64_t weir_kv_moves_begun(const weir_kv_store *store);
int64_t weir_kv_moves_left(const weir_kv_store *store);
int64_t weir_kv_blocks_leaving(const weir_kv_store *store);
bool weir_kv_is_moving(const weir_kv_store *store, const void *page);
/* Demotions that failed since opening, and why the last one did (NULL: not asked for). */
int64_t weir_kv_demotions_failed(const weir_kv_store *store, weir_error *why);
/* Any thread: waits until one more move can be ended. Returns false if the thread has nothing to
 * do. */
bool weir_kv_wait_for_move(weir_kv_store *store);
/* Sets what the thread calls each time that a move can be ended (weir_worker_listen). */
void weir_kv_listen_to_moves(weir_kv_store *store, void (*listener)(void *user), void *user);
/* Moves a block and waits for it. On EFULL or EIO it stays where it was. */
WEIR_MUST_CHECK weir_status weir_kv_promote(
    weir_kv_store *store, void *const *pages, int64_t stride, int64_t block, weir_error *error
);
/* For tests: likewise. */
WEIR_MUST_CHECK weir_status weir_kv_demote(
    weir_kv_store *store, void *const *pages, int64_t stride, int64_t block, weir_error *error
);
/* Copies a page (weir_kv_page_stride bytes) of layer and head number `head`, wherever it is, to
 * memory of the host, aligned to 4096 bytes. Any thread that holds the page. Returns EIO; EDEVICE
 * if the device, and with it the contents, failed. */
WEIR_MUST_CHECK weir_status weir_kv_page_copy(
    weir_kv_store *store, void *bytes, const void *page, int64_t head, weir_error *error
);
/* The same in two parts. The page must be held while the first runs, which does no I/O; the second
 * must follow, and waits for the disk if the page is there. In between and meanwhile the page may
 * be dropped, moved and used again: the bytes are those of the first call. */
typedef struct weir_kv_page_read {
    void *bytes;
    int64_t head;
    int32_t block; /* of the lower tier */
} weir_kv_page_read;
void weir_kv_page_read_begin(
    weir_kv_store *store, weir_kv_page_read *read, void *bytes, const void *page, int64_t head
);
WEIR_MUST_CHECK weir_status
weir_kv_page_read_end(weir_kv_store *store, const weir_kv_page_read *read, weir_error *error);

/* For bulk reads while nothing moves: the lower tier, and the index in it of a cold page's
 * block. */
weir_lower_tier *weir_kv_store_lower_tier(const weir_kv_store *store);
int32_t weir_kv_place_of(const weir_kv_store *store, const void *page);

typedef struct weir_kv_residency {
    int64_t pages_in_memory, pages_cold; /* near the kernels; in the tier below */
    /* Of the cold ones; the others are on disk. */
    int64_t pages_on_host;
    /* Demoted, promoted, and read in place for attention or a file; since opening. */
    int64_t bytes_out, bytes_back, bytes_read;
    int64_t write_errors, read_errors;
} weir_kv_residency;
weir_kv_residency weir_kv_residency_of(const weir_kv_store *store);
/* For tests: check invariants 1 and 6 over all pages, 7 and 8 over those of a table, and what it
 * knows of its cold ones; false with a message. */
bool weir_kv_store_is_sound(const weir_kv_store *store, weir_error *error);
bool weir_kv_table_is_sound(
    const weir_kv_store *store, const weir_kv_table *table, weir_error *error
);

#ifdef __cplusplus
}
#endif
