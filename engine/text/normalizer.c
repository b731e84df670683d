/* engine/text/normalizer.c - the steps of a normalizer, one after the other. */
#include "engine/text/normalizer.h"

#include <string.h>
#include <utf8proc.h>

#include "engine/base/utf8.h"
#include "engine/text/white_space.h"

void weir_normalizer_free(weir_normalizer *normalizer)
{
    weir_charsmap_free(&normalizer->charsmap);
}

bool weir_normalizer_add(weir_normalizer *normalizer, const weir_normalizer_step *step)
{
    if (normalizer->n_steps == WEIR_NORMALIZER_STEPS) return false;
    normalizer->steps[normalizer->n_steps++] = *step;
    return true;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static bool begins_with(const char *text, size_t n, const char *with, size_t n_with)
{
    return n >= n_with && memcmp(text, with, n_with) == 0;
}

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
        WEIR_TRY(weir_normal_add(out, text + plain, i - plain));
        WEIR_TRY(weir_normal_add(out, step->to, step->n_to));
        plain = i += step->n_from;
    }
    return weir_normal_add(out, text + plain, n - plain);
}

static weir_status squeeze(
    const weir_normalizer_step *step, weir_buffer *out, const char *text, size_t n
)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && text[end] == ' ') end++;
        if (end < i + 2) end = i + 1;
        WEIR_TRY(
            end > i + 1 ? weir_normal_add(out, step->to, step->n_to)
                        : weir_normal_add(out, text + i, 1)
        );
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
    return weir_normal_add(out, text + left, n - left - right);
}

/* ---- characters ------------------------------------------------------------------------------ */

/* What a step makes of one character: *to [*n_to], empty if it is dropped; false: it stays. */
typedef bool character_map(int32_t code, char to[8], size_t *n_to);

static weir_status map_characters(character_map *map, weir_buffer *out, const char *text, size_t n)
{
    size_t plain = 0;
    for (size_t i = 0, length; i < n; i += length) {
        char to[8];
        size_t n_to = 0;
        if (!map(weir_utf8_decode(text + i, &length), to, &n_to)) continue;
        WEIR_TRY(weir_normal_add(out, text + plain, i - plain));
        WEIR_TRY(weir_normal_add(out, to, n_to));
        plain = i + length;
    }
    return weir_normal_add(out, text + plain, n - plain);
}

static bool nmt(int32_t code, char to[8], size_t *n_to)
{
    if ((code >= 0x01 && code <= 0x08) || code == 0x0B || (code >= 0x0E && code <= 0x1F) ||
        code == 0x7F || code == 0x8F || code == 0x9F)
        return true;
    to[0] = ' ';
    *n_to = 1;
    return code == '\t' || code == '\n' || code == '\f' || code == '\r' || code == 0x1680 ||
           (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
           code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
}

/* U+0130 is the one character whose lower case has two. */
static bool lowercase(int32_t code, char to[8], size_t *n_to)
{
    static const char dotted[] = "i\xCC\x87";
    if (code == 0x130) {
        memcpy(to, dotted, sizeof dotted);
        *n_to = sizeof dotted - 1;
        return true;
    }
    const int32_t lower = utf8proc_tolower(code);
    if (lower == code) return false;
    *n_to = (size_t)utf8proc_encode_char(lower, (utf8proc_uint8_t *)to);
    return true;
}

static bool strip_accents(int32_t code, char to[8], size_t *n_to)
{
    (void)to, (void)n_to;
    if (code < 0x300) return false;
    const utf8proc_category_t category = utf8proc_category(code);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
           category == UTF8PROC_CATEGORY_ME;
}

/* ---- grapheme clusters ----------------------------------------------------------------------- */

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
            WEIR_TRY(weir_normal_add(out, to, n_to));
            continue;
        }
        for (size_t at = i, step; at < i + length; at += step) {
            (void)weir_utf8_decode(text + at, &step);
            if (weir_charsmap_match(map, WEIR_CHARSMAP_SHORTEST, text + at, step, &to, &n_to) == 0)
                to = text + at, n_to = step;
            WEIR_TRY(weir_normal_add(out, to, n_to));
        }
    }
    return WEIR_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static weir_status run(
    const weir_normalizer *normalizer, const weir_normalizer_step *step, weir_buffer *out,
    const char *text, size_t n
)
{
    switch (step->kind) {
    case WEIR_NORMALIZER_PREPEND:
        if (n > 0) WEIR_TRY(weir_normal_add(out, step->to, step->n_to));
        return weir_normal_add(out, text, n);
    case WEIR_NORMALIZER_REPLACE: return replace(step, out, text, n);
    case WEIR_NORMALIZER_SQUEEZE: return squeeze(step, out, text, n);
    case WEIR_NORMALIZER_STRIP: return strip(step, out, text, n);
    case WEIR_NORMALIZER_FORM: return weir_normalize(out, step->form, text, n);
    case WEIR_NORMALIZER_NMT: return map_characters(nmt, out, text, n);
    case WEIR_NORMALIZER_LOWERCASE: return map_characters(lowercase, out, text, n);
    case WEIR_NORMALIZER_STRIP_ACCENTS: return map_characters(strip_accents, out, text, n);
    case WEIR_NORMALIZER_CHARSMAP: return map_clusters(&normalizer->charsmap, out, text, n);
    }
    return WEIR_OK;
}

weir_status weir_normalizer_run(
    const weir_normalizer *normalizer, weir_buffer buffers[2], const char **text, size_t *n
)
{
    int next = 0;
    for (int i = 0; i < normalizer->n_steps; i++) {
        const weir_normalizer_step *const step = &normalizer->steps[i];
        if (step->kind == WEIR_NORMALIZER_FORM && weir_is_normal(step->form, *text, *n)) continue;
        weir_buffer *const out = &buffers[next];
        next = 1 - next;
        weir_buffer_clear(out);
        WEIR_TRY(weir_buffer_reserve(out, *n + WEIR_NORMALIZER_TEXT));
        WEIR_TRY(run(normalizer, step, out, *text, *n));
        *text = out->data;
        *n = out->size;
    }
    return WEIR_OK;
}
