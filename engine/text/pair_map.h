/* engine/text/pair_map.h - a flat hash table from a 64-bit key to two numbers: merges by pair of
 * ids, edges of a trie by node and byte.
 *
 * Open addressing with linear probing, at most half full, 16 bytes per entry: a lookup that misses
 * the cache costs one line. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "kernels/abi/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_pair_entry {
    uint64_t key;
    uint32_t number;
    int32_t id;
} weir_pair_entry;

/* Zero-initialise. The key UINT64_MAX marks an empty entry and must not be used. */
typedef struct weir_pair_map {
    weir_pair_entry *entries;
    size_t mask, count;
} weir_pair_map;

static inline uint64_t weir_pair_key(uint32_t high, uint32_t low)
{
    return (uint64_t)high << 32 | low;
}

/* The finaliser of MurmurHash3 (Appleby): every bit of the key affects every bit of the index. */
static inline size_t weir_pair_hash(uint64_t key)
{
    key = (key ^ key >> 33) * 0xFF51AFD7ED558CCDULL;
    key = (key ^ key >> 33) * 0xC4CEB9FE1A85EC53ULL;
    return (size_t)(key ^ key >> 33);
}

static inline const weir_pair_entry *weir_pair_find(const weir_pair_map *map, uint64_t key)
{
    if (map->entries == NULL) return NULL;
    for (size_t i = weir_pair_hash(key) & map->mask;; i = (i + 1) & map->mask) {
        if (map->entries[i].key == key) return &map->entries[i];
        if (map->entries[i].key == UINT64_MAX) return NULL;
    }
}

/* Reserves space for `count` keys in total. */
WEIR_MUST_CHECK weir_status weir_pair_reserve(weir_pair_map *map, size_t count);
/* Returns the entry of `key`; a new one has number 0 and id -1. NULL when memory runs out. The next
 * put may move it. */
weir_pair_entry *weir_pair_put(weir_pair_map *map, uint64_t key);
void weir_pair_free(weir_pair_map *map);

#ifdef __cplusplus
}
#endif
