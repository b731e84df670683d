/* engine/serve/stop.h - stop strings in a stream of text: text that may still become part of a
 * match is held back, however the stream is divided. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_STOP_STRINGS = 16, WEIR_STOP_BYTES = 1024 };

typedef struct weir_stop_list {
    char *text[WEIR_STOP_STRINGS]; /* owned; may contain NUL */
    size_t length[WEIR_STOP_STRINGS];
    size_t count;
} weir_stop_list;
void weir_stop_list_free(weir_stop_list *list);

/* One per choice. The match that ends first wins (among those, the one that begins first), so the
 * result does not depend on how the text is divided. */
typedef struct weir_stop_matcher {
    const weir_stop_list *list;
    weir_buffer held; /* a suffix of the text that is a proper prefix of some stop string */
    bool matched;
    size_t which; /* the string of the list, if matched */
} weir_stop_matcher;

/* Adds text [n] and appends what may be sent to `out`. When a stop string is complete, sets
 * `matched`; `out` then ends before it. */
WEIR_MUST_CHECK weir_status
weir_stop_push(weir_stop_matcher *matcher, weir_buffer *out, const char *text, size_t n);
/* Appends the held text at the end of an answer without a match. */
WEIR_MUST_CHECK weir_status weir_stop_finish(weir_stop_matcher *matcher, weir_buffer *out);

#ifdef __cplusplus
}
#endif
