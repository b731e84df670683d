/* engine/sample/candidates.h - a candidate as one number, which orders it: larger value first,
 * lower id on ties. Private to engine/sample. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t weir_candidate;

/* Positive floats order like their bits, negative ones in reverse; + 0 turns -0 into 0. Inverted,
 * so that the larger value comes first. Not for NaN. */
static inline weir_candidate weir_candidate_of(float value, size_t id)
{
    const float clean = value + 0.0f;
    uint32_t bits;
    memcpy(&bits, &clean, sizeof bits);
    const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)~ascending << 32 | (uint32_t)id;
}

static inline float weir_candidate_value(weir_candidate candidate)
{
    const uint32_t ascending = ~(uint32_t)(candidate >> 32);
    const uint32_t bits = ascending & 0x80000000u ? ascending & 0x7FFFFFFFu : ~ascending;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Sorts by values, ascending candidates. Stable, so ids in ascending order stay so on ties.
 * `spare`: [n], scratch. */
void weir_candidates_sort(weir_candidate *list, weir_candidate *spare, size_t n);
/* A candidate with the value of the k-th in ascending order, 1 <= k <= n. Overwrites the list. */
weir_candidate weir_candidates_select(weir_candidate *list, size_t n, size_t k);

#ifdef __cplusplus
}
#endif
