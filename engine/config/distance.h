/* engine/config/distance.h - edit distance of two names, for "unknown X; the nearest is Y". */
#pragma once
#include <stddef.h>
#include <string.h>

enum { WEIR_DISTANCE_BYTES = 64 }; /* longer names are compared by their first bytes */

/* Levenshtein distance over bytes. */
static inline size_t weir_edit_distance(const char *a, const char *b)
{
    const size_t n_a = strnlen(a, WEIR_DISTANCE_BYTES), n_b = strnlen(b, WEIR_DISTANCE_BYTES);
    size_t row[WEIR_DISTANCE_BYTES + 1];
    for (size_t j = 0; j <= n_b; j++) row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            const size_t shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[n_b];
}
