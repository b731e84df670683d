/* engine/text/charsmap.c - darts-clone units (Yata 2011). Bits 0 to 7: label, 8: has a leaf, 9:
 * shift of the offset by 8, 10 to 30: offset. A leaf: bits 0 to 30 value, bit 31 set. A child is at
 * its parent's place XOR offset XOR label, its leaf at its place XOR its offset. */
#include "engine/text/charsmap.h"

#include <stdbool.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/base/utf8.h"

static uint32_t read_u32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static weir_status check(const unsigned char *bytes, size_t n, size_t *n_array, weir_error *error)
{
    if (n > WEIR_CHARSMAP_BYTES)
        return weir_error_set(
            error, WEIR_EFORMAT, "the map has %zu bytes, at most %d are read", n,
            WEIR_CHARSMAP_BYTES
        );
    *n_array = n < 4 ? 0 : read_u32(bytes);
    if (n < 4 || *n_array < 4 || *n_array % 4 != 0 || *n_array > n - 4)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "the map is cut off: it has %zu bytes, its double array should have %zu", n, *n_array
        );
    size_t length = 0;
    for (size_t i = 4 + *n_array; i < n && length <= WEIR_REPLACEMENT_BYTES; i++)
        length = bytes[i] == '\0' ? 0 : length + 1;
    if (length > 0 || *n_array == n - 4)
        return weir_error_set(
            error, WEIR_EFORMAT, "a replacement of the map has no end or more than %d bytes",
            WEIR_REPLACEMENT_BYTES
        );
    return WEIR_OK;
}

weir_status weir_charsmap_open(weir_charsmap *map, const void *bytes, size_t n, weir_error *error)
{
    const unsigned char *const from = bytes;
    size_t n_array;
    WEIR_TRY(check(from, n, &n_array, error));
    const size_t n_units = n_array / 4, n_texts = n - 4 - n_array;
    uint32_t *const units = weir_memory_take(n_units * sizeof *units);
    char *const texts = weir_memory_take(n_texts);
    if (units == NULL || texts == NULL) {
        weir_memory_give(units);
        weir_memory_give(texts);
        return weir_error_set(error, WEIR_ENOMEM, "no memory for a map of %zu bytes", n);
    }
    for (size_t i = 0; i < n_units; i++) units[i] = read_u32(from + 4 + 4 * i);
    memcpy(texts, from + 4 + n_array, n_texts);
    weir_charsmap_free(map);
    *map =
        (weir_charsmap){ .units = units, .n_units = n_units, .texts = texts, .n_texts = n_texts };
    return WEIR_OK;
}

void weir_charsmap_free(weir_charsmap *map)
{
    weir_memory_give(map->units);
    weir_memory_give(map->texts);
    *map = (weir_charsmap){ 0 };
}

static weir_status write_u32(weir_buffer *out, uint32_t value)
{
    const char bytes[4] = { (char)value, (char)(value >> 8), (char)(value >> 16),
                            (char)(value >> 24) };
    return weir_buffer_add(out, bytes, sizeof bytes);
}

weir_status weir_charsmap_write(const weir_charsmap *map, weir_buffer *out)
{
    if (map->n_units == 0) return WEIR_OK;
    WEIR_TRY(write_u32(out, (uint32_t)(4 * map->n_units)));
    for (size_t i = 0; i < map->n_units; i++) WEIR_TRY(write_u32(out, map->units[i]));
    return weir_buffer_add(out, map->texts, map->n_texts);
}

static size_t offset_of(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & 1U << 9) >> 6); }

static bool has_label(uint32_t unit, unsigned char label)
{
    return (unit & (1U << 31 | 0xFF)) == label;
}

/* True if `leaf` is one, whose value is a well-formed replacement. */
static bool replacement(const weir_charsmap *map, size_t leaf, const char **to, size_t *n_to)
{
    const size_t offset = leaf < map->n_units ? map->units[leaf] & 0x7FFFFFFF : map->n_texts;
    if (offset >= map->n_texts) return false;
    *to = map->texts + offset;
    *n_to = strlen(*to);
    return weir_utf8_valid(*to, *n_to);
}

size_t weir_charsmap_match(
    const weir_charsmap *map, weir_charsmap_rule rule, const char *text, size_t n, const char **to,
    size_t *n_to
)
{
    size_t found = 0;
    if (map->n_units == 0) return 0;
    size_t place = offset_of(map->units[0]);
    for (size_t i = 0; i < n && i < WEIR_CHARSMAP_KEY_BYTES; i++) {
        place ^= (unsigned char)text[i];
        if (place >= map->n_units || !has_label(map->units[place], (unsigned char)text[i])) break;
        const uint32_t unit = map->units[place];
        place ^= offset_of(unit);
        const char *text_of_key;
        size_t length;
        if ((unit & 1U << 8) == 0 || !replacement(map, place, &text_of_key, &length)) continue;
        *to = text_of_key;
        *n_to = length;
        found = i + 1;
        if (rule == WEIR_CHARSMAP_SHORTEST) break;
    }
    return found;
}
