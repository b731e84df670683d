/* engine/kv/prefix/tiers_internal.h - window blocks of the prefix tree, and what of it is on disk:
 * states and window blocks. */
#pragma once
#include "engine/kv/prefix/prefix_internal.h"

/* ---- windows.c ------------------------------------------------------------------------------- */
void prefix_open_windows(weir_prefix *p);
void prefix_close_windows(weir_prefix *p);
/* Shares the window block between the node, whose first n tokens are those of this run, and the
 * sequence. */
void prefix_keep_window(
    weir_prefix *p, int32_t index, weir_kv_sequence *sequence, int32_t run, int32_t n
);
void prefix_drop_window(weir_prefix *p, int32_t index);
/* The window blocks that row `at`, the one after those of the path to this node, reads are the last
 * used ones; is_end: they are of an end. */
void prefix_use_windows(weir_prefix *p, int32_t index, int32_t at, bool is_end);
/* A sequence ends there: blocks above that neither it nor a place where others branch off reads are
 * of no end any more. */
void prefix_end_windows(weir_prefix *p, int32_t index, int32_t at);
/* True if the rows that row `at` reads are there, in memory or on disk; the one before it is the
 * node's. */
bool prefix_has_window(const weir_prefix *p, int32_t index, int32_t at);
/* Moves the place up to the last one before which they are; `node` NONE: there is none. */
void prefix_find_window(const weir_prefix *p, place *best);
/* The empty table of the sequence shares these rows, which are in memory. */
void prefix_share_windows(weir_prefix *p, weir_kv_sequence *sequence, const place *end);
/* Puts the node's block in the list where it belongs; is_use: as the last used one. */
void prefix_list_window(weir_prefix *p, int32_t index, bool is_use);
/* The first block of a list, from this one on, that no sequence holds, or NONE. */
int32_t prefix_idle_window(const weir_prefix *p, int32_t from);
bool prefix_windows_are_sound(weir_prefix *p);

/* ---- state_tier.c ---------------------------------------------------------------------------- */
size_t prefix_disk_stride(size_t bytes); /* what `bytes` take on disk */
size_t prefix_state_stride(const weir_prefix_limits *limits); /* bytes of a state on disk */
size_t prefix_transfer_bytes(const weir_prefix_limits *limits);
size_t prefix_tier_metadata_bytes(const weir_prefix_limits *limits);
WEIR_MUST_CHECK weir_status prefix_open_tier(weir_prefix *p, weir_error *error);
/* Opens a tier of blocks of this many bytes. */
WEIR_MUST_CHECK weir_status prefix_open_tier_of(
    weir_prefix *p, weir_lower_tier **tier, int64_t n_blocks, size_t stride, const char *what,
    weir_error *error
);
/* Bytes of the disk that are free when n_blocks more blocks of KV are taken; negative if too many
 * are. Only if the store has blocks there. */
int64_t prefix_free_disk(const weir_prefix *p, int64_t n_blocks);
/* States that fit on disk in addition, at most as many as fit in memory. */
int32_t prefix_free_cold_states(const weir_prefix *p);
/* Begins to write a state to disk, for which a write may begin. False: there is no room. */
bool prefix_demote_state(weir_prefix *p, int32_t index);
/* The state, as a use of it, until moves are ended. NULL: it is being read from disk, or cannot be
 * yet. */
const float *prefix_read_state(weir_prefix *p, int32_t index);

/* ---- window_tier.c --------------------------------------------------------------------------- */
size_t prefix_window_stride(const weir_prefix_limits *limits); /* bytes of a block on disk */
WEIR_MUST_CHECK weir_status prefix_open_window_tier(weir_prefix *p, weir_error *error);
prefix_move *prefix_window_move(weir_prefix *p, int32_t index); /* NULL: it does not move */
/* The block on disk is free. */
void prefix_free_window_copy(weir_prefix *p, int32_t index);
/* True if the rows before the place are in memory. */
bool prefix_has_windows_here(const weir_prefix *p, const place *end);
/* The same; begins to read those on disk, as a use of them. */
bool prefix_read_windows(weir_prefix *p, const place *end);
/* True if a sequence that starts would take the memory of ends that are being written. */
bool prefix_waits_for_windows(weir_prefix *p);
/* Between steps: ends what is written or read. True if there was anything. */
bool prefix_end_window_moves(weir_prefix *p);
/* Blocks that fit on disk in addition. */
int64_t prefix_free_cold_windows(const weir_prefix *p);
/* Frees the disk of a block, if one may be: one in memory before those that are not. */
bool prefix_drop_cold_window(weir_prefix *p);

/* ---- moves.c --------------------------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status prefix_open_moves(weir_prefix *p, weir_error *error);
void prefix_close_moves(weir_prefix *p); /* also if they were not opened */
void prefix_free_block(weir_prefix *p, weir_lower_tier *tier, int32_t block); /* of the file */
/* Begins to write or read: `with` has all of it but the number. Fewer than `most` move. */
void prefix_begin_move(weir_prefix *p, prefix_moves *of, const prefix_move *with);
/* Which of them the thread has done. */
void prefix_moves_done(weir_prefix *p, const prefix_moves *of, bool is_done[MOST_MOVES]);

/* ---- state_moves.c --------------------------------------------------------------------------- */
/* The move of an entry; NULL: it does not move. */
prefix_move *prefix_move_of(weir_prefix *p, int32_t entry);
/* True if a read, or a write, may begin; a write of what is no end of a turn. */
bool prefix_may_move(const weir_prefix *p, bool is_read);
bool prefix_may_demote(const weir_prefix *p);
/* Between steps: ends what is written or read. True if there was anything. */
bool prefix_end_state_moves(weir_prefix *p);
/* Begins to write the entry's state, or to read it to this memory. */
void prefix_move_entry(weir_prefix *p, int32_t index, int32_t memory, bool is_read);
