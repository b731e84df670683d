/* engine/cli/run_router.c - weir serve with [[models]]. */
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/base/machine_memory.h"
#include "engine/cli/process.h"
#include "engine/cli/router.h"
#include "engine/cli/router_servers.h"

/* A server that was told to end saves sessions after its running answers. */
enum { SAVE_MS = 120000, BACKOFF_MS = 1000 };

static weir_router_options router_options(
    const weir_config *config, const weir_keys *keys, const weir_router_servers *servers
)
{
    return (weir_router_options
    ){ .host = config->server.host,
       .port = (int)config->server.port,
       .insecure = config->server.insecure,
       .keys = keys->list,
       .n_keys = keys->n,
       .allowed_hosts = config->server.allowed_hosts,
       .allowed_origins = config->server.allowed_origins,
       .body_limit = config->server.body_limit,
       .header_limit = config->server.header_limit,
       .max_connections = config->server.max_connections,
       .connections_per_address = config->server.connections_per_address,
       .header_timeout_ms = config->server.header_timeout_ms,
       .read_timeout_ms = config->server.read_timeout_ms,
       .write_timeout_ms = config->server.write_timeout_ms,
       .wait_ms = config->router.wait_ms,
       .queue = config->router.queue,
       .stop_ms = config->server.drain_timeout_ms + SAVE_MS,
       .backoff_ms = BACKOFF_MS,
       .memory = config->memory.host > 0 ? config->memory.host : (int64_t)weir_machine_memory(""),
       .program = "/proc/self/exe",
       .environment = (const char *const *)servers->environment.list,
       .models = servers->models,
       .n_models = config->n_models };
}

int weir_serve_models(
    const weir_arguments *arguments, const weir_keys *keys, int stop_fd,
    void (*ready)(const weir_config *config, int port)
)
{
    static weir_router_servers servers; /* large; a process serves once */
    const weir_config *const config = &arguments->config;
    weir_router *router = NULL;
    weir_error error = { 0 };
    weir_status status = weir_router_servers_fill(
        &servers, config, keys, arguments->is_only_command ? NULL : arguments->command->name,
        (const char *const *)environ, &error
    );
    for (size_t i = 0; i < config->n_models; i++)
        if (servers.models[i].n_keys > 0) weir_process_hide(); /* as with keys of the router */
    const weir_router_options options = router_options(config, keys, &servers);
    if (status == WEIR_OK) status = weir_router_open(&router, &options, &error);
    if (status == WEIR_OK) {
        ready(config, weir_router_port(router));
        status = weir_router_run(router, stop_fd, &error);
    }
    weir_router_close(router);
    weir_router_servers_free(&servers);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, &error);
}
