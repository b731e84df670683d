/* engine/text/repair.c - repairs ill-formed text and moves its spans. */
#include "engine/text/repair.h"

#include "engine/base/utf8.h"

/* Both ends of every span, in ascending order. */
typedef struct edges {
    weir_span *spans;
    size_t n, next;
} edges;

static size_t *edge(edges *at)
{
    return at->next % 2 == 0 ? &at->spans[at->next / 2].begin : &at->spans[at->next / 2].end;
}

/* Source bytes [from, to) were replaced by `length` bytes at `target`: moves the edges inside
 * them. */
static void move_edges(edges *at, size_t from, size_t to, size_t target, size_t length)
{
    for (; at->next < 2 * at->n && *edge(at) < to; at->next++) {
        const bool is_end = at->next % 2 == 1;
        *edge(at) = target + (is_end && *edge(at) > from ? length : 0);
    }
}

weir_status weir_utf8_repair(
    weir_buffer *out, const char *text, size_t n, weir_span *spans, size_t n_spans
)
{
    edges at = { .spans = spans, .n = n_spans };
    const size_t start = out->size;
    for (size_t i = 0; i < n;) {
        bool valid;
        const size_t length = weir_utf8_step(text + i, n - i, &valid);
        const size_t before = out->size - start;
        WEIR_TRY(
            valid ? weir_buffer_add(out, text + i, length)
                  : weir_buffer_text(out, WEIR_UTF8_REPLACEMENT)
        );
        move_edges(&at, i, i + length, before, out->size - start - before);
        i += length;
    }
    move_edges(&at, n, SIZE_MAX, out->size - start, 0);
    return WEIR_OK;
}
