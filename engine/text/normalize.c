/* engine/text/normalize.c - NFC with utf8proc's tables and composition, but with its own ordering
 * of marks. Text below U+0300 is copied: nothing in it composes with what precedes. */
#include "engine/text/normalize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"
#include "engine/text/utf8.h"

enum { FIRST_MARK_LEAD = 0xCC }; /* U+0300 is CC 80 */

bool weir_nfc_is_trivial(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] >= FIRST_MARK_LEAD) return false;
    return true;
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

static weir_status decompose(code_points *codes, const char *text, size_t n)
{
    enum { LONGEST = 32 }; /* the longest canonical decomposition has 4 code points */
    for (size_t i = 0, length; i < n; i += length) {
        WEIR_TRY(reserve(codes, LONGEST));
        const utf8proc_int32_t code = weir_utf8_decode(text + i, &length);
        int boundary = 0;
        const utf8proc_ssize_t made = utf8proc_decompose_char(
            code, codes->data + codes->count, LONGEST, UTF8PROC_STABLE | UTF8PROC_COMPOSE, &boundary
        );
        if (made < 0 || made > LONGEST) return WEIR_EFORMAT;
        codes->count += (size_t)made;
    }
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

/* A stable counting sort of each run of marks. utf8proc_decompose swaps neighbours, which is
 * quadratic in the run: a megabyte of marks would block a server for minutes. */
static void order(code_points *codes)
{
    for (size_t i = 0; i < codes->count;) {
        size_t end = i;
        while (end < codes->count && combining_class(codes->data[end]) != 0) end++;
        if (!ordered(codes->data + i, end - i)) sort_marks(codes->data + i, codes->spare, end - i);
        i = end + 1;
    }
}

static weir_status compose(weir_buffer *out, code_points *codes)
{
    const utf8proc_ssize_t n = utf8proc_normalize_utf32(
        codes->data, (utf8proc_ssize_t)codes->count, UTF8PROC_STABLE | UTF8PROC_COMPOSE
    );
    if (n < 0) return WEIR_EFORMAT;
    WEIR_TRY(weir_buffer_reserve(out, 4 * (size_t)n));
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        utf8proc_uint8_t bytes[4];
        WEIR_TRY(weir_buffer_add(out, bytes, (size_t)utf8proc_encode_char(codes->data[i], bytes)));
    }
    return WEIR_OK;
}

/* Number of bytes that can be copied: up to the last code point before a lead byte at or past
 * U+0300, which may compose with it. */
static size_t copyable(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && (unsigned char)text[i] < FIRST_MARK_LEAD) i++;
    if (i == n || i == 0) return i;
    for (i--; i > 0 && ((unsigned char)text[i] & 0xC0) == 0x80;) i--;
    return i;
}

/* End of the range to normalise: the second of two neighbours below U+0300 never composes with what
 * precedes. */
static size_t stretch(const char *text, size_t n)
{
    bool low_before = false;
    size_t i = 0;
    for (size_t length = 0; i < n; i += length) {
        length = (size_t)weir_utf8_length((unsigned char)text[i]);
        const bool low = (unsigned char)text[i] < FIRST_MARK_LEAD;
        if (low && low_before) break;
        low_before = low;
    }
    return i;
}

weir_status weir_nfc(weir_buffer *out, const char *text, size_t n)
{
    code_points codes = { 0 };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < n && status == WEIR_OK;) {
        const size_t plain = copyable(text + i, n - i);
        status = weir_buffer_add(out, text + i, plain);
        i += plain;
        const size_t part = stretch(text + i, n - i);
        codes.count = 0;
        if (status == WEIR_OK && part > 0) status = decompose(&codes, text + i, part);
        if (status == WEIR_OK && part > 0) {
            order(&codes);
            status = compose(out, &codes);
        }
        i += part;
    }
    weir_memory_give(codes.data);
    weir_memory_give(codes.spare);
    return status;
}
