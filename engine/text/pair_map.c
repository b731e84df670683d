/* engine/text/pair_map.c - growth of the table; lookups are in the header. */
#include "engine/text/pair_map.h"

#include "engine/base/checked.h"
#include "engine/base/memory.h"

static weir_pair_entry *place_of(weir_pair_entry *entries, size_t mask, uint64_t key)
{
    size_t i = weir_pair_hash(key) & mask;
    while (entries[i].key != key && entries[i].key != UINT64_MAX) i = (i + 1) & mask;
    return &entries[i];
}

weir_status weir_pair_reserve(weir_pair_map *map, size_t count)
{
    size_t n_entries = 16, bytes;
    while (n_entries / 2 < count)
        if (!weir_mul_size(&n_entries, n_entries, 2)) return WEIR_ENOMEM;
    if (map->entries != NULL && n_entries <= map->mask + 1) return WEIR_OK;
    weir_pair_entry *const entries =
        weir_mul_size(&bytes, n_entries, sizeof *entries) ? weir_memory_take(bytes) : NULL;
    if (entries == NULL) return WEIR_ENOMEM;
    for (size_t i = 0; i < n_entries; i++) entries[i] = (weir_pair_entry){ .key = UINT64_MAX };
    for (size_t i = 0; map->entries != NULL && i <= map->mask; i++)
        if (map->entries[i].key != UINT64_MAX)
            *place_of(entries, n_entries - 1, map->entries[i].key) = map->entries[i];
    weir_memory_give(map->entries);
    map->entries = entries;
    map->mask = n_entries - 1;
    return WEIR_OK;
}

weir_pair_entry *weir_pair_put(weir_pair_map *map, uint64_t key)
{
    if (weir_pair_reserve(map, map->count + 1) != WEIR_OK) return NULL;
    weir_pair_entry *const entry = place_of(map->entries, map->mask, key);
    if (entry->key == UINT64_MAX) {
        *entry = (weir_pair_entry){ .key = key, .id = -1 };
        map->count++;
    }
    return entry;
}

void weir_pair_free(weir_pair_map *map)
{
    weir_memory_give(map->entries);
    *map = (weir_pair_map){ 0 };
}
