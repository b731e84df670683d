/* engine/serve/think.c - a four-state scanner over pieces of text; a tag may be split anywhere. */
#include "engine/serve/think.h"

#include <string.h>

static const char open_tag[] = "<think>", close_tag[] = "</think>";
enum { OPEN_LENGTH = sizeof open_tag - 1, CLOSE_LENGTH = sizeof close_tag - 1 };

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static void drop(weir_buffer *held, size_t n)
{
    memmove(held->data, held->data + n, held->size - n);
    held->size -= n;
}

/* Moves the held text to `out`, except the last `keep` bytes. */
static weir_status release(weir_buffer *held, weir_buffer *out, size_t keep)
{
    WEIR_TRY(weir_buffer_add(out, held->data, held->size - keep));
    drop(held, held->size - keep);
    return WEIR_OK;
}

static size_t tag_prefix_at_end(const char *text, size_t n, const char *tag, size_t tag_length)
{
    for (size_t length = n < tag_length - 1 ? n : tag_length - 1; length > 0; length--)
        if (memcmp(text + n - length, tag, length) == 0) return length;
    return 0;
}

/* A step either changes the state (true: run again) or waits for more text (false). */
static weir_status step_maybe(weir_think_splitter *splitter, bool *again)
{
    weir_buffer *const held = &splitter->held;
    size_t blank = 0;
    while (blank < held->size && is_space(held->data[blank])) blank++;
    const size_t n = held->size - blank < OPEN_LENGTH ? held->size - blank : OPEN_LENGTH;
    *again = n > 0;
    if (n == 0) return WEIR_OK;
    if (memcmp(held->data + blank, open_tag, n) != 0) {
        splitter->state = WEIR_THINK_CONTENT;
    } else if (n == OPEN_LENGTH) {
        drop(held, blank + OPEN_LENGTH);
        splitter->state = WEIR_THINK_INSIDE;
    } else {
        *again = false;
    }
    return WEIR_OK;
}

static weir_status step_inside(weir_think_splitter *splitter, weir_buffer *reasoning, bool *again)
{
    weir_buffer *const held = &splitter->held;
    const char *const at = memmem(held->data, held->size, close_tag, CLOSE_LENGTH);
    *again = at != NULL;
    if (at == NULL)
        return release(
            held, reasoning, tag_prefix_at_end(held->data, held->size, close_tag, CLOSE_LENGTH)
        );
    WEIR_TRY(release(held, reasoning, held->size - (size_t)(at - held->data)));
    drop(held, CLOSE_LENGTH);
    splitter->state = WEIR_THINK_AFTER;
    return WEIR_OK;
}

static void step_after(weir_think_splitter *splitter, bool *again)
{
    weir_buffer *const held = &splitter->held;
    size_t blank = 0;
    while (blank < held->size && is_space(held->data[blank])) blank++;
    drop(held, blank);
    *again = held->size > 0;
    if (*again) splitter->state = WEIR_THINK_CONTENT;
}

weir_status weir_think_push(
    weir_think_splitter *splitter, weir_buffer *content, weir_buffer *reasoning, const char *text,
    size_t n
)
{
    if (splitter->state == WEIR_THINK_CONTENT && splitter->held.size == 0)
        return weir_buffer_add(content, text, n);
    WEIR_TRY(weir_buffer_add(&splitter->held, text, n));
    bool again = splitter->held.size > 0;
    while (again) {
        switch (splitter->state) {
        case WEIR_THINK_MAYBE: WEIR_TRY(step_maybe(splitter, &again)); break;
        case WEIR_THINK_INSIDE: WEIR_TRY(step_inside(splitter, reasoning, &again)); break;
        case WEIR_THINK_AFTER: step_after(splitter, &again); break;
        case WEIR_THINK_CONTENT:
            WEIR_TRY(release(&splitter->held, content, 0));
            again = false;
            break;
        }
        again = again && splitter->held.size > 0;
    }
    return WEIR_OK;
}

weir_status weir_think_finish(
    weir_think_splitter *splitter, weir_buffer *content, weir_buffer *reasoning
)
{
    if (splitter->held.size == 0) return WEIR_OK;
    return release(&splitter->held, splitter->state == WEIR_THINK_INSIDE ? reasoning : content, 0);
}

weir_think_state weir_think_start(const char *prompt, size_t n, bool model_thinks)
{
    while (n > 0 && is_space(prompt[n - 1])) n--;
    if (n >= CLOSE_LENGTH && memcmp(prompt + n - CLOSE_LENGTH, close_tag, CLOSE_LENGTH) == 0)
        return WEIR_THINK_CONTENT;
    if (n >= OPEN_LENGTH && memcmp(prompt + n - OPEN_LENGTH, open_tag, OPEN_LENGTH) == 0)
        return WEIR_THINK_INSIDE;
    return model_thinks ? WEIR_THINK_MAYBE : WEIR_THINK_CONTENT;
}
