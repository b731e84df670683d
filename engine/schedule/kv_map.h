/* engine/schedule/kv_map.h - which rows and pages each layer and KV head of the running sequences
 * holds, and where they are. Layers are those that keep rows of the whole sequence. */
#pragma once
#include "engine/kv/pool/pool_pages.h"
#include "engine/schedule/service.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_kv_map_sequence {
    int64_t job, kv_bytes;
    int32_t choice, tokens;
    const char *kv_policy; /* NULL: keeps every row */
} weir_kv_map_sequence;

/* Memory of the caller for `most` sequences. */
typedef struct weir_kv_map {
    int32_t most, n;
    bool is_cut; /* there are more sequences, or more pages than are looked at */
    weir_kv_map_sequence *sequences; /* [most] */
    int32_t *rows; /* [most, weir_service_kv_heads]: those that attention reads */
    weir_kv_page_counts *pages; /* [most, weir_service_kv_heads] */
} weir_kv_map;

/* KV heads of all layers. */
int64_t weir_service_kv_heads(const weir_service *service);
/* The layer of one of them. */
int64_t weir_service_kv_layer(const weir_service *service, int64_t head);
/* Fills in n, is_cut and the arrays. The engine thread does it between two steps, and looks at
 * 65536 pages at most; waits for that. Any other thread, while the service runs. */
void weir_service_kv_map(weir_service *service, weir_kv_map *map);

#ifdef __cplusplus
}
#endif
