/* engine/serve/stop.h - stop strings over a stream of text: nothing that may still become a match
 * leaves, in whatever pieces it came. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_STOP_STRINGS = 16, WEIR_STOP_BYTES = 1024 };

typedef struct weir_stop_list {
    char *text[WEIR_STOP_STRINGS]; /* owned; may hold NULs */
    size_t length[WEIR_STOP_STRINGS];
    size_t count;
} weir_stop_list;
void weir_stop_list_free(weir_stop_list *list);

/* One per choice. The match that ends first wins (of those the one that begins first), so the
 * result does not depend on the pieces. */
typedef struct weir_stop_matcher {
    const weir_stop_list *list;
    weir_buffer held; /* a proper prefix of some stop string ends this text */
    bool matched;
} weir_stop_matcher;

/* Takes text [n], appends to `out` what is free to go. Sets `matched` when a stop string is
 * complete: `out` then ends before it. */
WEIR_MUST_CHECK weir_status
weir_stop_push(weir_stop_matcher *matcher, weir_buffer *out, const char *text, size_t n);
/* The answer ended without a match: the held text goes. */
WEIR_MUST_CHECK weir_status weir_stop_finish(weir_stop_matcher *matcher, weir_buffer *out);

#ifdef __cplusplus
}
#endif
