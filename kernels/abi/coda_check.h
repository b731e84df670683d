/* kernels/abi/coda_check.h - checks that bytes from a file are a valid state of kernels/abi/coda.h,
 * so that no index leads a kernel out of its arrays. */
#pragma once
#include <stdbool.h>

#include "kernels/abi/coda.h"

static inline bool weir_coda_is_zero(const void *memory, size_t n)
{
    const unsigned char *const bytes = (const unsigned char *)memory;
    return n == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0);
}

static inline const char *weir_coda_problem_of_counts(
    const weir_coda_layer *layer, const weir_coda_head *head
)
{
    const int64_t n_banks = (int64_t)layer->n_exact + layer->n_summary;
    if (head->position < 0 || head->position > INT32_MAX)
        return "its position is no number of tokens";
    if (head->n_recent != (head->position < layer->window ? head->position : layer->window))
        return "the ring holds other tokens than the sequence has";
    if (head->first_recent < 0 || head->first_recent >= layer->window ||
        (head->n_recent < layer->window && head->first_recent != 0))
        return "the ring begins outside of itself";
    if (head->n_open_exact < layer->least_exact || head->n_open_exact > layer->n_exact ||
        head->n_open_summary < layer->least_summary || head->n_open_summary > layer->n_summary)
        return "other slots are open than the layer has";
    if (head->n_rows < head->n_recent || head->n_rows > head->n_recent + n_banks)
        return "its rows in use do not fit";
    for (int i = 0; i < WEIR_CODA_COUNTS; i++)
        if (head->counts[i] < 0 || head->counts[i] > INT64_C(1) << 40)
            return "it counts what no sequence has";
    return NULL;
}

/* True if each of 0 .. n - 1 occurs once; checks 64 at a time, as there is no memory for n
 * marks. */
static inline bool weir_coda_is_permutation(const int32_t *rows, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (rows[i] < 0 || rows[i] >= n) return false;
    for (int64_t first = 0; first < n; first += 64) {
        uint64_t seen = 0;
        for (int64_t i = 0; i < n; i++)
            if (rows[i] >= first && rows[i] - first < 64) seen |= UINT64_C(1) << (rows[i] - first);
        if (seen != (n - first >= 64 ? UINT64_MAX : (UINT64_C(1) << (n - first)) - 1)) return false;
    }
    return true;
}

/* Returns NULL, or what is wrong with `memory` of weir_coda_view(layer, ..).bytes. Zeros are a
 * state without tokens. */
static inline const char *weir_coda_problem(const weir_coda_layer *layer, const void *memory)
{
    const weir_coda_state state =
        weir_coda_view(layer, (void *)(uintptr_t)memory); /* The sequence is only read. */
    if (weir_coda_is_zero(memory, state.bytes)) return NULL;
    const char *const problem = weir_coda_problem_of_counts(layer, state.head);
    if (problem != NULL) return problem;
    if (!weir_coda_is_permutation(state.rows, state.n_slots))
        return "its slots do not have a row each";
    for (int64_t slot = 0; slot < layer->window; slot++)
        if (weir_coda_is_used(&state, slot) != (slot < state.head->n_recent))
            return "other slots of the ring are in use than its head says";
    for (int32_t i = 0; i < layer->n_exact; i++)
        if (state.used_at[i] < 0 || state.used_at[i] > state.head->position)
            return "a slot was found by a token that is not there";
    for (int32_t i = 0; i < layer->window; i++)
        if (!(state.gates[i] >= 0 && state.gates[i] <= 1))
            return "a write gate is not between 0 and 1";
    return NULL;
}
