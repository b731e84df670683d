/* engine/cli/router_servers.h - how the server of each of [[models]] is started: its arguments, its
 * keys and its environment. */
#pragma once
#include "engine/cli/api_keys.h"
#include "engine/config/config.h"
#include "engine/router/router.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_SERVER_ARGUMENTS = 400 }; /* at most; an environment has no limit */

typedef struct weir_server_arguments {
    char **list; /* [n], then NULL; owned; NULL: none were added */
    size_t n, capacity;
} weir_server_arguments;

/* Zero-initialise; free with weir_router_servers_free. */
typedef struct weir_router_servers {
    weir_router_model models[WEIR_ROUTER_MODELS];
    weir_server_arguments arguments[WEIR_ROUTER_MODELS], environment;
    weir_keys own[WEIR_ROUTER_MODELS];
} weir_router_servers;

/* Reads the keys of models. A server gets its keys through a file in memory, which it inherits.
 * command: the program's word for `serve`; NULL: it has no other command. environment: ended by
 * NULL.
 * errors : ECONFIG, ENOTFOUND, EIO, ENOMEM */
WEIR_MUST_CHECK weir_status weir_router_servers_fill(
    weir_router_servers *servers, const weir_config *config, const weir_keys *keys,
    const char *command, const char *const *environment, weir_error *error
);
void weir_router_servers_free(weir_router_servers *servers);

#ifdef __cplusplus
}
#endif
