/* engine/schedule/origins.h - cached sequences that come from files of other numerics; an origin is
 * one set of these. They are cached under salts of their own, so that rows computed here never mix
 * with theirs (docs/decisions/0043-numerics.md). */
#pragma once
#include <stdatomic.h>

#include "engine/kv/prefix/prefix.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_ORIGINS = 8,
    WEIR_ORIGIN_TEXT = 512,
    WEIR_ORIGIN_MARK = 2 /* bytes that precede the request's salt in that of an origin */
};

/* Added by the engine thread, never changed or removed; read by any thread. */
typedef struct weir_origins {
    _Atomic int32_t n;
    char texts[WEIR_ORIGINS][WEIR_ORIGIN_TEXT]; /* their numerics, for users */
} weir_origins;

/* Engine thread. Returns its number, or -1 if there are too many. */
int32_t weir_origin_add(weir_origins *origins, const char *text);
/* The salt of the origin's sequences for requests with this one (NULL: none). Returns false if it
 * would be too long. */
bool weir_origin_salt(char out[WEIR_PREFIX_SALT + 1], int32_t origin, const char *salt);
/* The origin that a salt belongs to, -1: none; and the salt without its mark. */
int32_t weir_origin_of(const weir_origins *origins, const char *salt);
const char *weir_origin_plain_salt(const char *salt);
/* The numerics of its origin; NULL: none. */
const char *weir_origin_text(const weir_origins *origins, const char *salt);
/* Engine thread. The origin whose cached sequences hold more of these tokens than those that were
 * computed here, the most of all; -1: none. */
int32_t weir_origin_best(
    const weir_origins *origins, const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens,
    const char *salt
);

#ifdef __cplusplus
}
#endif
