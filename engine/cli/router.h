/* engine/cli/router.h - serve with [[models]]: from the configuration to the router. */
#pragma once
#include "engine/cli/api_keys.h"
#include "engine/cli/command.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Serves until stop_fd is readable. `keys` are those of the router. Returns the exit code.
 * ready: called when it listens, with its port. */
int weir_serve_models(
    const weir_arguments *arguments, const weir_keys *keys, int stop_fd,
    void (*ready)(const weir_config *config, int port)
);

#ifdef __cplusplus
}
#endif
