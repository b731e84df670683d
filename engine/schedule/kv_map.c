/* engine/schedule/kv_map.c - see kv_map.h. */
#include "engine/schedule/kv_map.h"

#include "engine/kv/tiers/page_counts.h"
#include "engine/schedule/job.h"

enum { MOST_PAGES = 65536 }; /* under a millisecond */

int64_t weir_service_kv_heads(const weir_service *service)
{
    return weir_kv_n_heads(weir_kv_store_spec(service->store));
}

int64_t weir_service_kv_layer(const weir_service *service, int64_t head)
{
    return weir_kv_layer_of(weir_kv_store_spec(service->store), head);
}

static void make_map(weir_service *service, void *user)
{
    weir_kv_map *const map = user;
    const int64_t n_heads = weir_service_kv_heads(service);
    int64_t left = MOST_PAGES;
    map->n = 0;
    map->is_cut = false;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (c == NULL) continue;
        const weir_kv_table *const table = &c->sequence->table;
        map->is_cut = map->n == map->most;
        if (map->is_cut) return;
        left -= weir_kv_count_pages(map->pages + map->n * n_heads, table, service->store, left);
        map->is_cut = left < 0;
        if (map->is_cut) return;
        for (int64_t h = 0; h < n_heads; h++)
            map->rows[map->n * n_heads + h] = (int32_t)weir_kv_rows_at(table, h);
        map->sequences[map->n++] = (weir_kv_map_sequence
        ){ .job = c->job->serial,
           .kv_bytes = (int64_t)weir_kv_sequence_kv_bytes(c->sequence),
           .choice = c->index,
           .tokens = c->sequence->n_computed,
           .kv_policy = c->sequence->policy_run != NULL ? c->job->usage.kv_policy : NULL };
    }
}

void weir_service_kv_map(weir_service *service, weir_kv_map *map)
{
    weir_service_call(service, make_map, map);
}
