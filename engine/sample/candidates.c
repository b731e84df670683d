/* engine/sample/candidates.c - sort and selection by the bits of floats. */
#include "engine/sample/candidates.h"

#include <string.h>

/* Radix sort over the value's 32 bits, least significant first. */
void weir_candidates_sort(weir_candidate *list, weir_candidate *spare, size_t n)
{
    weir_candidate *from = list, *to = spare;
    for (int shift = 32; shift < 64; shift += 8) {
        size_t start[256] = { 0 };
        for (size_t i = 0; i < n; i++) start[from[i] >> shift & 255]++;
        if (n == 0 || start[from[0] >> shift & 255] == n) continue;
        for (size_t digit = 0, sum = 0; digit < 256; digit++) {
            const size_t count = start[digit];
            start[digit] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++) to[start[from[i] >> shift & 255]++] = from[i];
        weir_candidate *const swap = from;
        from = to;
        to = swap;
    }
    if (from != list) memcpy(list, from, n * sizeof *list);
}

/* Radix selection: keeps the candidates that share the digits known so far. */
weir_candidate weir_candidates_select(weir_candidate *list, size_t n, size_t k)
{
    for (int shift = 56; shift >= 32; shift -= 8) {
        size_t count[256] = { 0 }, digit = 0, kept = 0;
        for (size_t i = 0; i < n; i++) count[list[i] >> shift & 255]++;
        while (k > count[digit]) k -= count[digit++];
        for (size_t i = 0; i < n; i++)
            if ((list[i] >> shift & 255) == digit) list[kept++] = list[i];
        n = kept;
    }
    return list[0];
}
