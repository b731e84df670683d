/* engine/text/spm_normalize.c - sentencepiece's normalizer, and tokenizers' steps one after the
 * other. */
#include "engine/text/spm_normalize.h"

#include <string.h>
#include <utf8proc.h>

#include "engine/text/normalize.h"
#include "engine/text/utf8.h"

enum { NORMALIZED_BYTES = 1 << 30 };

void weir_normalizer_free(weir_normalizer *normalizer)
{
    weir_charsmap_free(&normalizer->charsmap);
}

/* Replacements of a hostile map may be a thousand times the text. */
static weir_status add(weir_buffer *out, const char *text, size_t n)
{
    if (n > NORMALIZED_BYTES - out->size) return WEIR_EFULL;
    return weir_buffer_add(out, text, n);
}

static bool begins_with(const char *text, size_t n, const char *with, size_t n_with)
{
    return n >= n_with && memcmp(text, with, n_with) == 0;
}

/* ---- sentencepiece --------------------------------------------------------------------------- */

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
        if (end > i) WEIR_TRY(add(out, text + i, end - i));
        if (space != NULL) WEIR_TRY(add(out, WEIR_SPACE_SYMBOL, 3));
        i = end + (space != NULL);
    }
    return WEIR_OK;
}

static weir_status begin(const weir_normalizer *normalizer, weir_sp_text *state, weir_buffer *out)
{
    state->has_begun = true;
    state->after_space = normalizer->removes_spaces;
    return normalizer->adds_prefix ? add(out, WEIR_SPACE_SYMBOL, 3) : WEIR_OK;
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

/* ---- steps ----------------------------------------------------------------------------------- */

static weir_status replace(
    const weir_normalizer_step *step, weir_buffer *out, const char *text, size_t n
)
{
    size_t plain = 0;
    for (size_t i = 0; i + step->n_from <= n;) {
        const char *const found = memchr(text + i, step->from[0], n - i);
        if (found == NULL) break;
        i = (size_t)(found - text);
        if (!begins_with(found, n - i, step->from, step->n_from)) {
            i++;
            continue;
        }
        WEIR_TRY(add(out, text + plain, i - plain));
        WEIR_TRY(add(out, step->to, step->n_to));
        plain = i += step->n_from;
    }
    return add(out, text + plain, n - plain);
}

static weir_status squeeze(
    const weir_normalizer_step *step, weir_buffer *out, const char *text, size_t n
)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && text[end] == ' ') end++;
        if (end < i + 2) end = i + 1;
        WEIR_TRY(end > i + 1 ? add(out, step->to, step->n_to) : add(out, text + i, 1));
        i = end;
    }
    return WEIR_OK;
}

static weir_status strip(
    const weir_normalizer_step *step, weir_buffer *out, const char *text, size_t n
)
{
    const size_t left = step->strip_left ? weir_utf8_spaces_before(text, n) : 0;
    const size_t right = step->strip_right ? weir_utf8_spaces_behind(text + left, n - left) : 0;
    return add(out, text + left, n - left - right);
}

/* Length of the extended grapheme cluster at `text` [n > 0]. */
static size_t cluster(const char *text, size_t n)
{
    utf8proc_int32_t state = 0;
    size_t length, end;
    int32_t before = weir_utf8_decode(text, &end);
    for (; end < n; end += length) {
        const int32_t code = weir_utf8_decode(text + end, &length);
        if (utf8proc_grapheme_break_stateful(before, code, &state)) break;
        before = code;
    }
    return end;
}

/* tokenizers replaces a short cluster by the value of the shortest key that it begins with, or else
 * each of its characters so. */
static weir_status map_clusters(
    const weir_charsmap *map, weir_buffer *out, const char *text, size_t n
)
{
    enum { SHORT_CLUSTER = 6 };
    for (size_t i = 0, length; i < n; i += length) {
        const char *to;
        size_t n_to;
        length = cluster(text + i, n - i);
        if (length < SHORT_CLUSTER &&
            weir_charsmap_match(map, WEIR_CHARSMAP_SHORTEST, text + i, length, &to, &n_to) > 0) {
            WEIR_TRY(add(out, to, n_to));
            continue;
        }
        for (size_t at = i, step; at < i + length; at += step) {
            (void)weir_utf8_decode(text + at, &step);
            if (weir_charsmap_match(map, WEIR_CHARSMAP_SHORTEST, text + at, step, &to, &n_to) == 0)
                to = text + at, n_to = step;
            WEIR_TRY(add(out, to, n_to));
        }
    }
    return WEIR_OK;
}

static weir_status run(
    const weir_normalizer *normalizer, const weir_normalizer_step *step, weir_buffer *out,
    const char *text, size_t n
)
{
    switch (step->kind) {
    case WEIR_NORMALIZER_PREPEND:
        if (n > 0) WEIR_TRY(add(out, step->to, step->n_to));
        return add(out, text, n);
    case WEIR_NORMALIZER_REPLACE: return replace(step, out, text, n);
    case WEIR_NORMALIZER_SQUEEZE: return squeeze(step, out, text, n);
    case WEIR_NORMALIZER_STRIP: return strip(step, out, text, n);
    case WEIR_NORMALIZER_NFC: return weir_nfc(out, text, n);
    case WEIR_NORMALIZER_CHARSMAP: return map_clusters(&normalizer->charsmap, out, text, n);
    }
    return WEIR_OK;
}

weir_status weir_normalizer_run(
    const weir_normalizer *normalizer, weir_buffer buffers[2], const char **text, size_t *n
)
{
    for (int i = 0; i < normalizer->n_steps; i++) {
        weir_buffer *const out = &buffers[i % 2];
        weir_buffer_clear(out);
        WEIR_TRY(weir_buffer_reserve(out, *n + WEIR_NORMALIZER_TEXT));
        WEIR_TRY(run(normalizer, &normalizer->steps[i], out, *text, *n));
        *text = out->data;
        *n = out->size;
    }
    return WEIR_OK;
}
