/* engine/text/pair_map.c - growth of the table; lookups are in the header. */
#include "engine/text/pair_map.h"

#include "engine/base/checked.h"
#include "engine/base/memory.h"

static weir_pair_slot *place_of(weir_pair_slot *slots, size_t mask, uint64_t key)
{
    size_t i = weir_pair_hash(key) & mask;
    while (slots[i].key != key && slots[i].key != UINT64_MAX) i = (i + 1) & mask;
    return &slots[i];
}

weir_status weir_pair_reserve(weir_pair_map *map, size_t count)
{
    size_t n_slots = 16, bytes;
    while (n_slots / 2 < count)
        if (!weir_mul_size(&n_slots, n_slots, 2)) return WEIR_ENOMEM;
    if (map->slots != NULL && n_slots <= map->mask + 1) return WEIR_OK;
    weir_pair_slot *const slots =
        weir_mul_size(&bytes, n_slots, sizeof *slots) ? weir_memory_take(bytes) : NULL;
    if (slots == NULL) return WEIR_ENOMEM;
    for (size_t i = 0; i < n_slots; i++) slots[i] = (weir_pair_slot){ .key = UINT64_MAX };
    for (size_t i = 0; map->slots != NULL && i <= map->mask; i++)
        if (map->slots[i].key != UINT64_MAX)
            *place_of(slots, n_slots - 1, map->slots[i].key) = map->slots[i];
    weir_memory_give(map->slots);
    map->slots = slots;
    map->mask = n_slots - 1;
    return WEIR_OK;
}

weir_pair_slot *weir_pair_put(weir_pair_map *map, uint64_t key)
{
    if (weir_pair_reserve(map, map->count + 1) != WEIR_OK) return NULL;
    weir_pair_slot *const slot = place_of(map->slots, map->mask, key);
    if (slot->key == UINT64_MAX) {
        *slot = (weir_pair_slot){ .key = key, .id = -1 };
        map->count++;
    }
    return slot;
}

void weir_pair_free(weir_pair_map *map)
{
    weir_memory_give(map->slots);
    *map = (weir_pair_map){ 0 };
}
