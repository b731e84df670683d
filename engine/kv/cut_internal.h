/* engine/kv/cut_internal.h - the inside of kept texts that a policy watched: the list (cut_texts.c)
 * as the tree sees it. */
#pragma once
#include "engine/kv/parcel.h"
#include "engine/kv/prefix_internal.h"

enum { WEIR_CUT_TEXTS = 1024 };

/* An entry, and where in the block its parts are, from `at` on: tokens, recurrent state, parcel,
 * text and state of the policy. */
struct cut_text {
    size_t            at, bytes; /* bytes 0: free */
    size_t            recurrent, parcel, policy, state, state_bytes; /* policy: its text */
    int32_t           n_tokens, n_holds;
    uint64_t          last_use;
    weir_keeping_past past;
    char              salt[WEIR_PREFIX_SALT + 1], name[WEIR_PREFIX_NAME + 1]; /* name "": none */
};

static inline const int32_t *cut_tokens(const weir_prefix *p, const cut_text *text)
{
    return (const int32_t *)(p->cut_memory + text->at);
}
static inline void *cut_parcel(const weir_prefix *p, const cut_text *text)
{
    return p->cut_memory + text->at + text->parcel;
}

size_t    cut_bytes(const weir_prefix_limits *limits); /* SIZE_MAX: absurd */
void      cut_open(weir_prefix *p); /* p->cut has its memory, zero */
void      cut_close(weir_prefix *p);
cut_text *cut_oldest(const weir_prefix *p);
void cut_count(const weir_prefix *p, weir_kv_pages *pages); /* adds pages that only entries hold */
bool cut_is_sound(const weir_prefix *p);
