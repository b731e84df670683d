/* engine/text/added_tokens.c - matching as tokenizers does it, in linear time. */
#include "engine/text/added_tokens.h"

#include <utf8proc.h>

#include "engine/base/utf8.h"
#include "engine/text/white_space.h"

/* ---- words ----------------------------------------------------------------------------------- */

/* Letters of So that are Alphabetic: circled, squared and negative ones. */
static bool is_letter_symbol(int32_t code)
{
    return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
           (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
}

/* \w of UTS #18: Alphabetic, marks, decimal digits, connectors, and the joiners. */
static bool is_word(int32_t code)
{
    if (code < 0x80)
        return (code >= '0' && code <= '9') || code == '_' ||
               ((code | 0x20) >= 'a' && (code | 0x20) <= 'z');
    switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return code == 0x200C || code == 0x200D || is_letter_symbol(code);
    }
}

/* True if text [begin, end) has no word character directly before `at` and at `after`. */
static bool stands_alone(const char *text, size_t begin, size_t at, size_t after, size_t end)
{
    size_t length;
    if (after < end && is_word(weir_utf8_decode(text + after, &length))) return false;
    if (at == begin) return true;
    const size_t last = begin + weir_utf8_last(text + begin, at - begin);
    return !is_word(weir_utf8_decode(text + last, &length));
}

/* ---- matches --------------------------------------------------------------------------------- */

size_t weir_span_behind(const weir_span *spans, size_t n, size_t at)
{
    size_t low = 0;
    while (low < n) {
        const size_t middle = low + (n - low) / 2;
        if (spans[middle].end <= at)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

/* Number of bytes from `at` on in which a token may match: up to the next plain span. Moves *next
 * past the spans before `at`. */
static size_t matchable(const weir_added_search *search, size_t *next, size_t at, size_t end)
{
    const weir_span *const plain = search->plain;
    while (*next < search->n_plain && plain[*next].end <= at) (*next)++;
    if (*next == search->n_plain || plain[*next].begin >= end) return end - at;
    return plain[*next].begin > at ? plain[*next].begin - at : 0;
}

weir_status weir_added_split(
    const weir_added_search *search, const char *text, size_t begin, size_t end,
    weir_gap_sink *sink, void *context
)
{
    const weir_trie *const trie = search->trie;
    const size_t first = begin;
    size_t next = weir_span_behind(search->plain, search->n_plain, begin);
    size_t blank = begin; /* white space behind tokens was looked at up to here */
    for (size_t at = begin; at < end && trie->n_tokens > 0;) {
        size_t length = 0;
        const int32_t id =
            trie->first[(unsigned char)text[at]]
                ? weir_trie_match(trie, text + at, matchable(search, &next, at, end), &length)
                : -1;
        if (id < 0) {
            at++;
            continue;
        }
        const unsigned flags = search->vocabulary->tokens[id].flags;
        size_t from = at;
        at += length;
        if ((flags & WEIR_TOKEN_SINGLE_WORD) != 0 && !stands_alone(text, first, from, at, end))
            continue;
        if ((flags & WEIR_TOKEN_LSTRIP) != 0 && from > begin)
            from -= weir_utf8_spaces_behind(text + begin, from - begin);
        if (from > begin) WEIR_TRY(sink(context, text, begin, from));
        WEIR_TRY(weir_ids_add(search->out, id));
        begin = at;
        if ((flags & WEIR_TOKEN_RSTRIP) == 0) continue;
        /* A token that begins with white space may match in what this one takes. */
        if (blank < at) blank = at + weir_utf8_spaces_before(text + at, end - at);
        begin = blank;
    }
    return end > begin ? sink(context, text, begin, end) : WEIR_OK;
}
