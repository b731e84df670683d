/* engine/schedule/hooks.h - what a layer above the scheduler does for it, without being known to
 * it: engine/session saves cached texts before they are dropped.
 *
 * All functions run on the engine thread, between steps. */
#pragma once
#include "engine/kv/pool/store.h"
#include "engine/schedule/service.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_service_hooks {
    void (*after_step)(void *user);
    /* Memory is short: lets go of the pages and states that it holds; false: it held none. */
    bool (*release)(void *user);
    weir_kv_pages (*held)(const void *user); /* that release would let go of */
    void (*count)(const void *user, weir_service_stats *stats); /* its fields of the statistics */
    void *user;
} weir_service_hooks;

#ifdef __cplusplus
}
#endif
