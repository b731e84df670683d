/* engine/kv/tiers/release.c - returns the memory of pages to the system, in ranges: one call for
 * pages that are next to each other, whatever the order in which they were dropped. */
#include <sys/mman.h>

#include "engine/kv/pool/store_internal.h"

/* Returns the end of the page before number `end` of the pool. */
static char *address_of_end(const weir_kv_store *store, int32_t end)
{
    const kv_size_class *size_class = store->size_classes;
    while (end > size_class->first + size_class->n) size_class++;
    return size_class->memory + (size_t)(end - size_class->first) * size_class->bytes;
}

/* Pages [first, end); those of one size class follow those of another, so a range may have both. */
static void return_range(const weir_kv_store *store, int32_t first, int32_t end)
{
    if (first == end) return;
    char *const from = first == 0 ? store->memory : address_of_end(store, first);
    const size_t bytes = (size_t)(address_of_end(store, end) - from);
    WEIR_ASSERT(madvise(from, bytes, MADV_DONTNEED) == 0);
}

/* Number of ones at the low end. */
static int ones_at(uint64_t bits) { return ~bits != 0 ? __builtin_ctzll(~bits) : 64; }

/* Clears the word and continues the range [*first, *end) with its pages. A range that ends is
 * returned. */
static void return_word(const weir_kv_store *store, int32_t word, int32_t *first, int32_t *end)
{
    uint64_t *const pages = &store->released.pages[word];
    while (*pages != 0) {
        const int at = __builtin_ctzll(*pages), n = ones_at(*pages >> at);
        const int32_t number = word * 64 + at;
        if (number != *end) {
            return_range(store, *first, *end);
            *first = number;
        }
        *end = number + n;
        *pages &= at + n < 64 ? UINT64_MAX << (at + n) : 0;
    }
}

void kv_release_now(weir_kv_store *store)
{
    kv_released *const released = &store->released;
    int32_t first = 0, end = 0;
    if (released->n == 0) return;
    for (int32_t group = released->first / 4096; group <= released->last / 4096; group++) {
        for (uint64_t words = released->words[group]; words != 0; words &= words - 1)
            return_word(store, group * 64 + __builtin_ctzll(words), &first, &end);
        released->words[group] = 0;
    }
    return_range(store, first, end);
    released->n = 0;
}

void kv_release(weir_kv_store *store, const void *page)
{
    kv_released *const released = &store->released;
    const int32_t number = kv_page_number(store, page);
    released->pages[number / 64] |= UINT64_C(1) << (number % 64);
    released->words[number / 4096] |= UINT64_C(1) << (number / 64 % 64);
    if (released->n == 0 || number < released->first) released->first = number;
    if (released->n == 0 || number > released->last) released->last = number;
    released->n++;
    if (released->depth == 0) kv_release_now(store);
}

void weir_kv_release_begin(weir_kv_store *store) { store->released.depth++; }

void weir_kv_release_end(weir_kv_store *store)
{
    WEIR_ASSERT(store->released.depth > 0);
    if (--store->released.depth == 0) kv_release_now(store);
}
