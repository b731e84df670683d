/* engine/text/normalize.c - normal forms with utf8proc's tables and composition, but with its own
 * ordering of marks. Text below the first character that a form may change is copied: nothing in it
 * composes with what precedes. */
#include "engine/text/normalize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"
#include "engine/base/utf8.h"

/* NFC begins with the first mark, U+0300 (CC 80), NFD with U+00C0, the others with U+00A0. */
static const unsigned char first_lead[] = {
    [WEIR_NFC] = 0xCC, [WEIR_NFD] = 0xC3, [WEIR_NFKC] = 0xC2, [WEIR_NFKD] = 0xC2
};

static bool is_low(weir_normal_form form, char byte)
{
    return (unsigned char)byte < first_lead[form];
}

bool weir_is_normal(weir_normal_form form, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_low(form, text[i])) return false;
    return true;
}

weir_status weir_normal_add(weir_buffer *out, const char *text, size_t n)
{
    if (out->size > WEIR_NORMALIZED_BYTES || n > WEIR_NORMALIZED_BYTES - out->size)
        return WEIR_EFULL;
    return weir_buffer_add(out, text, n);
}

typedef struct code_points {
    utf8proc_int32_t *data, *spare;
    size_t count, capacity;
} code_points;

static weir_status reserve(code_points *codes, size_t extra)
{
    if (extra <= codes->capacity - codes->count) return WEIR_OK;
    size_t capacity, bytes;
    if (!weir_mul_size(&capacity, codes->count + extra, 2) ||
        !weir_mul_size(&bytes, capacity, sizeof *codes->data))
        return WEIR_ENOMEM;
    utf8proc_int32_t *const data = weir_memory_resize(codes->data, bytes);
    if (data == NULL) return WEIR_ENOMEM;
    codes->data = data;
    utf8proc_int32_t *const spare = weir_memory_resize(codes->spare, bytes);
    if (spare == NULL) return WEIR_ENOMEM;
    codes->spare = spare;
    codes->capacity = capacity;
    return WEIR_OK;
}

static weir_status decompose(code_points *codes, weir_normal_form form, utf8proc_int32_t code)
{
    enum { LONGEST = 32 }; /* the longest decomposition, of U+FDFA, has 18 code points */
    static const utf8proc_option_t options[] = {
        [WEIR_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [WEIR_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [WEIR_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [WEIR_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT
    };
    WEIR_TRY(reserve(codes, LONGEST));
    int boundary = 0;
    const utf8proc_ssize_t made = utf8proc_decompose_char(
        code, codes->data + codes->count, LONGEST, options[form], &boundary
    );
    if (made < 0 || made > LONGEST) return WEIR_EFORMAT;
    codes->count += (size_t)made;
    return WEIR_OK;
}

static size_t combining_class(utf8proc_int32_t code)
{
    return (size_t)(unsigned short)utf8proc_get_property(code)->combining_class & 0xFF;
}

static void sort_marks(utf8proc_int32_t *marks, utf8proc_int32_t *spare, size_t n)
{
    size_t start[257] = { 0 };
    for (size_t i = 0; i < n; i++) start[combining_class(marks[i]) + 1]++;
    for (size_t c = 0; c < 256; c++) start[c + 1] += start[c];
    for (size_t i = 0; i < n; i++) spare[start[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, spare, n * sizeof *marks);
}

static bool ordered(const utf8proc_int32_t *marks, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (combining_class(marks[i]) < combining_class(marks[i - 1])) return false;
    return true;
}

/* A stable counting sort of each run of marks among the first n. utf8proc_decompose swaps
 * neighbours, which is quadratic in the run: a megabyte of marks would block a server for
 * minutes. */
static void order(code_points *codes, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && combining_class(codes->data[end]) != 0) end++;
        if (!ordered(codes->data + i, end - i)) sort_marks(codes->data + i, codes->spare, end - i);
        i = end + 1;
    }
}

/* Appends the first n code points, ordered and composed, and drops them. */
static weir_status flush(weir_buffer *out, code_points *codes, weir_normal_form form, size_t n)
{
    utf8proc_ssize_t made = (utf8proc_ssize_t)n;
    order(codes, n);
    if (form == WEIR_NFC || form == WEIR_NFKC)
        made = utf8proc_normalize_utf32(codes->data, made, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (made < 0) return WEIR_EFORMAT;
    if (out->size > WEIR_NORMALIZED_BYTES || (size_t)made > (WEIR_NORMALIZED_BYTES - out->size) / 4)
        return WEIR_EFULL;
    WEIR_TRY(weir_buffer_reserve(out, 4 * (size_t)made));
    for (utf8proc_ssize_t i = 0; i < made; i++) {
        utf8proc_uint8_t bytes[4];
        WEIR_TRY(weir_buffer_add(out, bytes, (size_t)utf8proc_encode_char(codes->data[i], bytes)));
    }
    codes->count -= n;
    memmove(codes->data, codes->data + n, codes->count * sizeof *codes->data);
    return WEIR_OK;
}

/* True if nothing before the code point composes with it: it is no mark, and no vowel or final
 * consonant of Hangul. Past the BMP there are letters that compose, too. */
static bool begins_anew(utf8proc_int32_t code)
{
    const utf8proc_category_t category = utf8proc_category(code);
    return code < 0x10000 && !(code >= 0x1160 && code <= 0x11FF) && combining_class(code) == 0 &&
           category != UTF8PROC_CATEGORY_MN && category != UTF8PROC_CATEGORY_MC &&
           category != UTF8PROC_CATEGORY_ME;
}

/* In parts, so that a text of characters with long decompositions needs little memory. */
static weir_status normalize_part(
    weir_buffer *out, code_points *codes, weir_normal_form form, const char *text, size_t n
)
{
    enum { PART = 1024 };
    codes->count = 0;
    for (size_t i = 0, length; i < n; i += length) {
        const size_t before = codes->count;
        WEIR_TRY(decompose(codes, form, weir_utf8_decode(text + i, &length)));
        if (before >= PART && begins_anew(codes->data[before]))
            WEIR_TRY(flush(out, codes, form, before));
    }
    return flush(out, codes, form, codes->count);
}

/* Number of bytes that can be copied: up to the last code point before one that is not low, which
 * may compose with it. */
static size_t copyable(weir_normal_form form, const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && is_low(form, text[i])) i++;
    if (i == n || i == 0) return i;
    return weir_utf8_last(text, i);
}

/* End of the range to normalise: the second of two low neighbours never composes with what
 * precedes. */
static size_t stretch(weir_normal_form form, const char *text, size_t n)
{
    bool low_before = false;
    size_t i = 0;
    for (size_t length = 0; i < n; i += length) {
        length = (size_t)weir_utf8_length((unsigned char)text[i]);
        const bool low = is_low(form, text[i]);
        if (low && low_before) break;
        low_before = low;
    }
    return i;
}

weir_status weir_normalize(weir_buffer *out, weir_normal_form form, const char *text, size_t n)
{
    code_points codes = { 0 };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < n && status == WEIR_OK;) {
        const size_t plain = copyable(form, text + i, n - i);
        status = weir_normal_add(out, text + i, plain);
        i += plain;
        const size_t part = stretch(form, text + i, n - i);
        if (status == WEIR_OK && part > 0)
            status = normalize_part(out, &codes, form, text + i, part);
        i += part;
    }
    weir_memory_give(codes.data);
    weir_memory_give(codes.spare);
    return status;
}
