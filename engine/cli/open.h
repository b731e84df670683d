/* engine/cli/open.h - opens the engine for a command, with a progress bar on a terminal. */
#pragma once
#include "engine/cli/command.h"
#include "engine/cli/progress.h"
#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_use {
    /* Each plans for all that the previous one does, and more. */
    WEIR_USE_RUNNER,
    WEIR_USE_SERVICE,
    WEIR_USE_SERVER
} weir_use;

/* Returns the exit code; *out is set if it is 0. */
int weir_open(weir_engine **out, const weir_config *config, weir_use use);

/* Prints the plan of a server with this configuration. Returns the exit code. */
int weir_print_plan(const weir_config *config, bool json);

/* weir plan --report. Returns the exit code. */
int weir_run_report(const weir_arguments *arguments);

/* Prints the error of a command, if any, on stderr. Returns the exit code. */
int weir_end(weir_status status, const weir_error *error);

/* "http://127.0.0.1:8080", "http://[::1]:8080". */
enum { WEIR_URL = WEIR_CONFIG_TEXT + 24 };
void weir_url(char out[WEIR_URL], const char *host, int port);

/* The configuration's [sampling] for one request; for seed -1, a random seed. */
weir_sampling weir_sampling_of(const weir_config *config);

#ifdef __cplusplus
}
#endif
