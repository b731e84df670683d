/* engine/cli/open.h - opening the engine for a command, with a progress bar where somebody
 * looks. */
#pragma once
#include "engine/cli/command.h"
#include "engine/cli/progress.h"
#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_use {
    WEIR_USE_RUNNER,
    WEIR_USE_SERVICE,
    WEIR_USE_SERVER
} weir_use; /* each plans for what the one before does, and more */

/* The exit code; *out is set when it is 0. */
int weir_open(weir_engine **out, const weir_config *config, weir_use use);

/* Prints the plan of a server with this configuration: the exit code. */
int weir_print_plan(const weir_config *config, bool json);

/* weir plan --report: the exit code. */
int weir_run_report(const weir_arguments *arguments);

/* The end of a command: the exit code, with the error on stderr. */
int weir_end(weir_status status, const weir_error *error);

/* "http://127.0.0.1:8080", "http://[::1]:8080". */
enum { WEIR_URL = WEIR_CONFIG_TEXT + 24 };
void weir_url(char out[WEIR_URL], const char *host, int port);

/* The configuration's [sampling] for one request; seed -1 draws a new one. */
weir_sampling weir_sampling_of(const weir_config *config);

#ifdef __cplusplus
}
#endif
