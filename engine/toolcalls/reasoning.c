/* engine/toolcalls/reasoning.c - a four-state scanner over pieces of text; a tag may be split
 * anywhere. */
#include "engine/toolcalls/reasoning.h"

#include <string.h>

enum { SPACE_BYTES = 256 }; /* of white space that are held back */

static const struct {
    const char *open, *close;
} tags[] = {
    { "<think>", "</think>" },
    { "[THINK]", "[/THINK]" },
    { "<seed:think>", "</seed:think>" },
    { "<|channel>thought\n", "<channel|>" },
};
enum { PAIRS = sizeof tags / sizeof tags[0] };

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static void drop(weir_buffer *held, size_t n)
{
    memmove(held->data, held->data + n, held->size - n);
    held->size -= n;
}

static size_t blank_prefix(const weir_buffer *held)
{
    size_t n = 0;
    while (n < held->size && is_space(held->data[n])) n++;
    return n;
}

/* Moves the first n bytes of the held text to `out`. */
static weir_status release(weir_buffer *held, weir_buffer *out, size_t n)
{
    WEIR_TRY(weir_buffer_add(out, held->data, n));
    drop(held, n);
    return WEIR_OK;
}

static size_t tag_prefix_at_end(const weir_buffer *held, const char *tag)
{
    const size_t longest = strlen(tag) - 1;
    for (size_t n = held->size < longest ? held->size : longest; n > 0; n--)
        if (memcmp(held->data + held->size - n, tag, n) == 0) return n;
    return 0;
}

/* A step either changes the state (true: run again) or waits for more text (false). */
static void step_maybe(weir_reasoning_splitter *splitter, bool *again)
{
    weir_buffer *const held = &splitter->held;
    const size_t blank = blank_prefix(held), left = held->size - blank;
    *again = left > 0;
    if (left == 0) return;
    bool may_follow = false;
    for (int i = 0; i < PAIRS; i++) {
        const size_t length = strlen(tags[i].open), n = left < length ? left : length;
        if (memcmp(held->data + blank, tags[i].open, n) != 0) continue;
        may_follow = true;
        if (n < length) continue;
        drop(held, blank + length);
        splitter->at = (weir_reasoning_start){ WEIR_THINK_INSIDE, i };
        return;
    }
    *again = !may_follow;
    if (!may_follow) splitter->at.state = WEIR_THINK_CONTENT;
}

/* Passes reasoning on, without white space at its beginning and before the last `keep` bytes. */
static weir_status pass_reasoning(
    weir_reasoning_splitter *splitter, weir_buffer *reasoning, size_t keep
)
{
    weir_buffer *const held = &splitter->held;
    if (!splitter->has_text) {
        size_t blank = blank_prefix(held);
        if (blank > held->size - keep) blank = held->size - keep;
        drop(held, blank);
    }
    size_t end = held->size - keep;
    while (end > 0 && is_space(held->data[end - 1])) end--;
    if (held->size - keep - end > SPACE_BYTES) end = held->size - keep;
    if (end > 0) splitter->has_text = true;
    return release(held, reasoning, end);
}

static weir_status step_inside(
    weir_reasoning_splitter *splitter, weir_buffer *reasoning, bool *again
)
{
    weir_buffer *const held = &splitter->held;
    const char *const tag = tags[splitter->at.tags].close;
    const char *const at = memmem(held->data, held->size, tag, strlen(tag));
    *again = at != NULL;
    if (at == NULL) return pass_reasoning(splitter, reasoning, tag_prefix_at_end(held, tag));
    WEIR_TRY(pass_reasoning(splitter, reasoning, held->size - (size_t)(at - held->data)));
    drop(held, blank_prefix(held) + strlen(tag));
    splitter->at.state = WEIR_THINK_AFTER;
    return WEIR_OK;
}

static void step_after(weir_reasoning_splitter *splitter, bool *again)
{
    weir_buffer *const held = &splitter->held;
    drop(held, blank_prefix(held));
    *again = held->size > 0;
    if (*again) splitter->at.state = WEIR_THINK_CONTENT;
}

weir_status weir_reasoning_push(
    weir_reasoning_splitter *splitter, weir_buffer *content, weir_buffer *reasoning,
    const char *text, size_t n
)
{
    weir_buffer *const held = &splitter->held;
    if (splitter->at.state == WEIR_THINK_CONTENT && held->size == 0)
        return weir_buffer_add(content, text, n);
    WEIR_TRY(weir_buffer_add(held, text, n));
    bool again = held->size > 0;
    while (again) {
        switch (splitter->at.state) {
        case WEIR_THINK_MAYBE: step_maybe(splitter, &again); break;
        case WEIR_THINK_INSIDE: WEIR_TRY(step_inside(splitter, reasoning, &again)); break;
        case WEIR_THINK_AFTER: step_after(splitter, &again); break;
        case WEIR_THINK_CONTENT:
            WEIR_TRY(release(held, content, held->size));
            again = false;
            break;
        }
        again = again && held->size > 0;
    }
    return WEIR_OK;
}

weir_status weir_reasoning_finish(
    weir_reasoning_splitter *splitter, weir_buffer *content, weir_buffer *reasoning
)
{
    weir_buffer *const held = &splitter->held;
    if (held->size == 0 || splitter->at.state == WEIR_THINK_AFTER) return WEIR_OK;
    const bool inside = splitter->at.state == WEIR_THINK_INSIDE;
    return release(held, inside ? reasoning : content, held->size);
}

static size_t trimmed(const char *text, size_t n)
{
    while (n > 0 && is_space(text[n - 1])) n--;
    return n;
}

weir_reasoning_start weir_reasoning_after(const char *prompt, size_t n, bool model_reasons)
{
    n = trimmed(prompt, n);
    for (int i = 0; i < PAIRS; i++) {
        const size_t open = trimmed(tags[i].open, strlen(tags[i].open)),
                     close = strlen(tags[i].close);
        if (n >= close && memcmp(prompt + n - close, tags[i].close, close) == 0)
            return (weir_reasoning_start){ WEIR_THINK_CONTENT, i };
        if (n >= open && memcmp(prompt + n - open, tags[i].open, open) == 0)
            return (weir_reasoning_start){ WEIR_THINK_INSIDE, i };
    }
    return (weir_reasoning_start){ model_reasons ? WEIR_THINK_MAYBE : WEIR_THINK_CONTENT, 0 };
}

const char *weir_reasoning_tag(int i) { return i < PAIRS ? tags[i].open : NULL; }

const char *weir_reasoning_end_tag(int i) { return tags[i].close; }

bool weir_reasoning_has(const char *text, size_t n)
{
    for (int i = 0; i < PAIRS && n > 0; i++)
        if (memmem(tags[i].open, strlen(tags[i].open), text, n) != NULL ||
            memmem(tags[i].close, strlen(tags[i].close), text, n) != NULL)
            return true;
    return false;
}
