/* engine/schedule/kv_map.c - see kv_map.h. */
#include "engine/schedule/kv_map.h"

#include "engine/kv/tiers/residency.h"
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

static weir_kv_map_head look_at(
    const weir_kv_store *store, const weir_kv_table *table, int64_t head
)
{
    const int64_t rows = weir_kv_rows_at(table, head);
    weir_kv_map_head seen = { .rows = (int32_t)rows };
    void *const *const pages = table->pages + head * table->capacity;
    for (int64_t i = 0; i < table->n_pages; i++) {
        if (pages[i] == NULL) break; /* past the pages of a head with fewer rows */
        const bool is_cold = weir_kv_is_cold(store, pages[i]);
        seen.pages++;
        seen.cold += is_cold;
        seen.shared += !is_cold && weir_kv_page_users(store, pages[i]) > 1;
    }
    return seen;
}

/* The blocks of a whole table move as one, and are shared as one unless a pruned table shares
 * single pages of them: the first head stands for all, so that long sequences stay within
 * MOST_PAGES. */
static int64_t heads_to_look_at(const weir_kv_table *table)
{
    return table->is_pruned || table->n_heads == 0 ? table->n_heads : 1;
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
        const int64_t n_looks = heads_to_look_at(table);
        left -= n_looks * table->n_pages;
        map->is_cut = map->n == map->most || left < 0;
        if (map->is_cut) return;
        weir_kv_map_head *const heads = map->heads + map->n * n_heads;
        for (int64_t h = 0; h < n_heads; h++)
            heads[h] = h < n_looks ? look_at(service->store, table, h) : heads[0];
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
