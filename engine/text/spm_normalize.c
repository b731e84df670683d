/* engine/text/spm_normalize.c - sentencepiece's normalizer. */
#include "engine/text/spm_normalize.h"

#include <string.h>

#include "engine/base/utf8.h"

/* The normal form *to [*n_to] of what `text` begins with. Returns the length of that. */
static size_t normal_prefix(
    const weir_normalizer *normalizer, const weir_trie *kept, const char *text, size_t n,
    const char **to, size_t *n_to
)
{
    size_t length = 0;
    if (kept->first[(unsigned char)text[0]] && weir_trie_match(kept, text, n, &length) >= 0) {
        *to = text;
        return *n_to = length;
    }
    length = weir_charsmap_match(&normalizer->charsmap, WEIR_CHARSMAP_LONGEST, text, n, to, n_to);
    if (length > 0) return length;
    bool valid;
    *to = text;
    return *n_to = weir_utf8_step(text, n, &valid);
}

static weir_status add_escaped(weir_buffer *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        const char *const space = memchr(text + i, ' ', n - i);
        const size_t end = space == NULL ? n : (size_t)(space - text);
        if (end > i) WEIR_TRY(weir_normal_add(out, text + i, end - i));
        if (space != NULL) WEIR_TRY(weir_normal_add(out, WEIR_SPACE_SYMBOL, 3));
        i = end + (space != NULL);
    }
    return WEIR_OK;
}

static weir_status begin(const weir_normalizer *normalizer, weir_sp_text *state, weir_buffer *out)
{
    state->has_begun = true;
    state->after_space = normalizer->removes_spaces;
    return normalizer->adds_prefix ? weir_normal_add(out, WEIR_SPACE_SYMBOL, 3) : WEIR_OK;
}

weir_status weir_sp_normalize(
    const weir_normalizer *normalizer, const weir_trie *kept, weir_sp_text *state, weir_buffer *out,
    const char *text, size_t n
)
{
    if (n == 0) return WEIR_OK;
    if (normalizer->charsmap.n_units == 0 && !normalizer->removes_spaces) {
        if (!state->has_begun) WEIR_TRY(begin(normalizer, state, out));
        return add_escaped(out, text, n);
    }
    for (size_t i = 0, length; i < n; i += length) {
        const char *to;
        size_t n_to;
        length = normal_prefix(normalizer, kept, text + i, n - i, &to, &n_to);
        const bool is_space = n_to == 1 && to[0] == ' ';
        if (!state->has_begun) {
            if (is_space && normalizer->removes_spaces) continue;
            WEIR_TRY(begin(normalizer, state, out));
        }
        while (state->after_space && n_to > 0 && to[0] == ' ') to++, n_to--;
        if (n_to == 0) continue;
        WEIR_TRY(add_escaped(out, to, n_to));
        state->after_space = normalizer->removes_spaces && to[n_to - 1] == ' ';
    }
    return WEIR_OK;
}

void weir_sp_normalize_end(const weir_normalizer *normalizer, weir_buffer *out, size_t begin)
{
    while (normalizer->removes_spaces && out->size >= begin + 3 &&
           memcmp(out->data + out->size - 3, WEIR_SPACE_SYMBOL, 3) == 0)
        out->size -= 3;
}
