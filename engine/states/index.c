/* engine/states/index.c - the index in memory: entries and their vectors, in blocks that never
 * move. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/states/states_internal.h"

/* Partial sums of a product: as many as the compiler keeps in registers. */
enum { LANES = 32 };

/* ---- memory ---------------------------------------------------------------------------------- */
static size_t padded(int32_t dim) { return ((size_t)dim + LANES - 1) / LANES * LANES; }

weir_status state_index_reserve(state_index *index)
{
    if (index->n_entries < index->n_blocks * STATE_BLOCK) return WEIR_OK;
    weir_memory_tracker *const before = weir_memory_tracker_set(index->tracker);
    state_entry **const longer =
        weir_memory_resize(index->blocks, (index->n_blocks + 1) * sizeof *index->blocks);
    if (longer != NULL) index->blocks = longer;
    state_entry *const block =
        longer != NULL
            ? weir_memory_take(STATE_BLOCK * (sizeof *block + padded(index->dim) * sizeof(float)))
            : NULL;
    (void)weir_memory_tracker_set(before);
    if (block == NULL) return WEIR_ENOMEM;
    index->blocks[index->n_blocks++] = block;
    return WEIR_OK;
}

void state_index_clear(state_index *index)
{
    for (size_t i = 0; i < index->n_blocks; i++) weir_memory_give(index->blocks[i]);
    weir_memory_give(index->blocks);
    *index = (state_index){ .dim = index->dim, .tracker = index->tracker };
}

state_entry *state_index_at(const state_index *index, size_t i)
{
    return &index->blocks[i / STATE_BLOCK][i % STATE_BLOCK];
}

float *state_index_vector(const state_index *index, size_t i)
{
    return (float *)(index->blocks[i / STATE_BLOCK] + STATE_BLOCK) +
           i % STATE_BLOCK * padded(index->dim);
}

weir_status state_index_add(
    state_index *index, const state_record *record, int64_t number, const unsigned char *vector
)
{
    WEIR_TRY(state_index_reserve(index));
    const size_t i = index->n_entries++;
    *state_index_at(index, i) =
        (state_entry){ .info = record->info,
                       .record = number,
                       .scale = record->info.has_vector ? (float)(1 / record->length) : 0,
                       .is_live = true };
    float *const own = state_index_vector(index, i);
    memset(own, 0, padded(index->dim) * sizeof *own);
    for (int32_t d = 0; record->info.has_vector && d < index->dim; d++) {
        const unsigned char *const at = vector + 4 * (size_t)d;
        const uint32_t bits =
            at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        memcpy(own + d, &bits, sizeof bits);
    }
    index->n_live++;
    return WEIR_OK;
}

void state_index_remove(state_index *index, state_entry *entry)
{
    entry->is_live = false;
    index->n_live--;
}

/* ---- finding --------------------------------------------------------------------------------- */
state_entry *state_index_serial(const state_index *index, int64_t serial)
{
    size_t first = 0, end = index->n_entries;
    while (first < end) {
        const size_t middle = first + (end - first) / 2;
        if (state_index_at(index, middle)->info.serial < serial)
            first = middle + 1;
        else
            end = middle;
    }
    state_entry *const entry = first < index->n_entries ? state_index_at(index, first) : NULL;
    return entry != NULL && entry->is_live && entry->info.serial == serial ? entry : NULL;
}

state_entry *state_index_name(const state_index *index, const char *name)
{
    for (size_t i = 0; i < index->n_entries; i++) {
        state_entry *const entry = state_index_at(index, i);
        if (entry->is_live && strcmp(entry->info.name, name) == 0) return entry;
    }
    return NULL;
}

int64_t state_index_bytes(const state_index *index)
{
    int64_t n = 0;
    for (size_t i = 0; i < index->n_entries; i++) {
        const state_entry *const entry = state_index_at(index, i);
        if (entry->is_live && entry->info.n_bytes <= INT64_MAX - n) n += entry->info.n_bytes;
    }
    return n;
}

/* The number that a name of this slug has: 1 for the slug itself, 0 for another name. */
static size_t number_of(const char *name, const char *slug)
{
    const size_t n = strlen(slug);
    if (strncmp(name, slug, n) != 0) return 0;
    if (name[n] == '\0') return 1;
    if (name[n] != '-' || name[n + 1] < '1' || name[n + 1] > '9') return 0;
    char *end;
    const unsigned long long number = strtoull(name + n + 1, &end, 10);
    return *end == '\0' && number >= 2 && number < SIZE_MAX ? (size_t)number : 0;
}

weir_status state_index_free_name(
    const state_index *index, const char *slug, char out[WEIR_STATE_NAME + 1]
)
{
    const size_t most = index->n_live + 2; /* one of this many numbers is free */
    bool *const taken = weir_memory_take_zero(most, sizeof *taken);
    if (taken == NULL) return WEIR_ENOMEM;
    for (size_t i = 0; i < index->n_entries; i++) {
        const state_entry *const entry = state_index_at(index, i);
        const size_t number = entry->is_live ? number_of(entry->info.name, slug) : 0;
        if (number > 0 && number < most) taken[number] = true;
    }
    size_t number = 1;
    while (taken[number]) number++;
    weir_memory_give(taken);
    if (number == 1)
        (void)snprintf(out, WEIR_STATE_NAME + 1, "%s", slug);
    else
        (void)snprintf(out, WEIR_STATE_NAME + 1, "%s-%zu", slug, number);
    return WEIR_OK;
}

/* ---- nearest --------------------------------------------------------------------------------- */
/* Reads 4 bytes per dimension and state: bound by memory. b [padded(dim)], with zeros after the
 * vector. */
static float product(const float *a, const float *b, int32_t dim)
{
    float sums[LANES] = { 0 };
    const size_t n = padded(dim);
    for (size_t i = 0; i < n; i += LANES)
        for (size_t l = 0; l < LANES; l++) sums[l] += a[i + l] * b[i + l];
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++) sums[l] += sums[l + half];
    return sums[0];
}

/* The best hits so far, by falling similarity; of equal ones the newer first. */
typedef struct best {
    const state_entry **entries; /* [most] */
    float *similarities;
    size_t n, most;
} best;

/* Entries are offered in order of their serials. */
static void offer(best *b, const state_entry *entry, float similarity)
{
    if (b->n == b->most && similarity < b->similarities[b->n - 1]) return;
    size_t at = b->n < b->most ? b->n++ : b->n - 1;
    for (; at > 0 && b->similarities[at - 1] <= similarity; at--) {
        b->entries[at] = b->entries[at - 1];
        b->similarities[at] = b->similarities[at - 1];
    }
    b->entries[at] = entry;
    b->similarities[at] = similarity;
}

weir_status state_index_route(
    const state_index *index, const weir_states_question *question, double length,
    weir_state_hit *hits, size_t *n
)
{
    const state_entry *entries[WEIR_STATE_HITS];
    float similarities[WEIR_STATE_HITS];
    best b = { .entries = entries, .similarities = similarities, .most = question->most };
    float *const wanted = weir_memory_take_zero(padded(index->dim), sizeof *wanted);
    if (wanted == NULL) return WEIR_ENOMEM;
    for (int32_t d = 0; d < index->dim; d++)
        wanted[d] = (float)((double)question->vector[d] / length);
    for (size_t i = 0; i < index->n_entries; i++) {
        const state_entry *const entry = state_index_at(index, i);
        if (!entry->is_live || !entry->info.has_vector) continue;
        if (question->accepts != NULL && !question->accepts(question->user, &entry->info)) continue;
        offer(&b, entry, product(state_index_vector(index, i), wanted, index->dim) * entry->scale);
    }
    weir_memory_give(wanted);
    for (size_t i = 0; i < b.n; i++)
        hits[i] = (weir_state_hit){ .info = entries[i]->info, .similarity = similarities[i] };
    *n = b.n;
    return WEIR_OK;
}
