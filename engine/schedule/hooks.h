/* engine/schedule/hooks.h - callbacks from the scheduler to a layer above it: engine/session saves
 * cached sequences before they are dropped. Engine thread, between steps. */
#pragma once
#include "engine/kv/pool/store.h"
#include "engine/schedule/service.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sequences of the layer above that may hold pages. */
enum { WEIR_SERVICE_SESSIONS = 9 };

typedef struct weir_service_hooks {
    void (*after_step)(void *user);
    /* Memory is short: releases the pages and states that the layer holds. False if it held
     * none. */
    bool (*release)(void *user);
    weir_kv_pages (*held)(const void *user); /* what release would free */
    /* fills in its fields of the statistics */
    void (*count)(const void *user, weir_service_stats *stats);
    void *user;
} weir_service_hooks;

#ifdef __cplusplus
}
#endif
