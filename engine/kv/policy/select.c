/* engine/kv/policy/select.c - selects exactly the requested number of greatest scores: four passes
 * of a radix selection over 32-bit keys. Computes no order beyond the cut, and no sum that could
 * depend on one. Ties are broken by slot. */
#include <string.h>

#include "engine/kv/policy/policy_ops.h"

/* Negative floats reversed, positive ones above them; 0 is reserved for NaN. */
static uint32_t key_of(float score)
{
    const float without_sign = score + 0.0f; /* -0 and 0 are equal scores */
    uint32_t bits;
    memcpy(&bits, &without_sign, sizeof bits);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

void policy_sort_keys(uint32_t *keys, const float *scores, const policy_head *at, int64_t *n_nan)
{
    const int64_t end = at->n - at->n_last;
    for (int64_t i = 0; i < at->n; i++) {
        const bool is_protected = i < at->n_first || i >= end,
                   is_nan = !is_protected && scores[i] != scores[i];
        keys[i] = is_protected ? UINT32_MAX : is_nan ? 0 : key_of(scores[i]);
        *n_nan += is_nan;
    }
}

policy_cut policy_cut_keys(const uint32_t *keys, int64_t n, int64_t n_keep)
{
    if (n_keep >= n) return (policy_cut){ .key = 0, .n_equal = n };
    if (n_keep <= 0) return (policy_cut){ .key = UINT32_MAX, .n_equal = 0 };
    uint32_t prefix = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t counts[256] = { 0 };
        for (int64_t i = 0; i < n; i++)
            if ((keys[i] & mask) == prefix) counts[keys[i] >> shift & 255]++;
        uint32_t digit = 255;
        while (counts[digit] < n_keep) n_keep -= counts[digit--];
        prefix |= digit << shift;
        mask |= 255u << shift;
    }
    return (policy_cut){ .key = prefix, .n_equal = n_keep };
}

int64_t policy_take(int32_t *keep, const uint32_t *keys, int64_t n, policy_cut *cut)
{
    int64_t taken = 0;
    for (int64_t i = 0; i < n; i++) {
        const bool is_equal = keys[i] == cut->key && cut->n_equal > 0;
        if (keys[i] > cut->key || is_equal) keep[taken++] = (int32_t)i;
        cut->n_equal -= is_equal;
    }
    return taken;
}
