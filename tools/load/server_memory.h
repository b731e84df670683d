/* tools/load/server_memory.h - the memory of a Weir server after a load, from GET /v1/memory. */
#pragma once
#include "tools/load/target.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_server_memory {
    bool is_known; /* false: another server, or one that does not tell */
    int64_t peak, device_peak; /* bytes of all accounts since the server started */
    int64_t kv_pool, kv_bytes_per_token;
} weir_server_memory;

/* Leaves is_known false if there is no such answer. */
void weir_server_memory_read(
    weir_server_memory *out, const weir_load_target *target, int64_t timeout_ms
);

#ifdef __cplusplus
}
#endif
