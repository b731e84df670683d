/* engine/serve/stop.c - search for stop strings. Held text is shorter than the longest stop string,
 * so a push costs O((held + n) * total stop length); lists are short and pushes are single
 * tokens. */
#include "engine/serve/stop.h"

#include <string.h>

#include "engine/base/memory.h"

void weir_stop_list_free(weir_stop_list *list)
{
    for (size_t i = 0; i < list->count; i++) weir_memory_give(list->text[i]);
    list->count = 0;
}

/* Start of the match that ends first, and its string; SIZE_MAX: none. */
static size_t first_match(const weir_stop_list *list, const char *text, size_t n, size_t *which)
{
    size_t best_begin = (size_t)-1, best_end = (size_t)-1;
    for (size_t i = 0; i < list->count; i++) {
        const char *const at = memmem(text, n, list->text[i], list->length[i]);
        if (at == NULL) continue;
        const size_t begin = (size_t)(at - text), end = begin + list->length[i];
        if (end < best_end || (end == best_end && begin < best_begin))
            best_begin = begin, best_end = end, *which = i;
    }
    return best_begin;
}

/* Length of the longest suffix of text [n] that is a proper prefix of a stop string. */
static size_t open_tail(const weir_stop_list *list, const char *text, size_t n)
{
    size_t longest = 0;
    for (size_t i = 0; i < list->count; i++) {
        size_t length = list->length[i] - 1 < n ? list->length[i] - 1 : n;
        while (length > longest && memcmp(text + n - length, list->text[i], length) != 0) length--;
        if (length > longest) longest = length;
    }
    return longest;
}

weir_status weir_stop_push(weir_stop_matcher *matcher, weir_buffer *out, const char *text, size_t n)
{
    if (matcher->matched) return WEIR_OK;
    if (matcher->list->count == 0) return weir_buffer_add(out, text, n);
    WEIR_TRY(weir_buffer_add(&matcher->held, text, n));
    const char *const held = matcher->held.data;
    const size_t size = matcher->held.size;
    if (size == 0) return WEIR_OK;
    const size_t begin = first_match(matcher->list, held, size, &matcher->which);
    matcher->matched = begin != (size_t)-1;
    const size_t keep = matcher->matched ? size - begin : open_tail(matcher->list, held, size);
    WEIR_TRY(weir_buffer_add(out, held, size - keep));
    memmove(matcher->held.data, held + size - keep, keep);
    matcher->held.size = matcher->matched ? 0 : keep;
    return WEIR_OK;
}

weir_status weir_stop_finish(weir_stop_matcher *matcher, weir_buffer *out)
{
    if (matcher->matched || matcher->held.size == 0) return WEIR_OK;
    const weir_status status = weir_buffer_add(out, matcher->held.data, matcher->held.size);
    weir_buffer_clear(&matcher->held);
    return status;
}
