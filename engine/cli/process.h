/* engine/cli/process.h - what every program does with its process before anything else, and how a
 * server keeps its keys from others. */
#pragma once
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* First thing in main: descriptors 0 to 2 are open, so that no file of ours gets their numbers and
 * then lines of the log, or the process ends with 1; no program that is run from here gains
 * privileges. argv is kept for weir_process_wipe. */
void weir_process_begin(int argc, char **argv);
/* Overwrites the values of an option ("--api-key") and of a configuration key ("server.api_key")
 * among the arguments, which `ps` shows. true: there was one. */
bool weir_process_wipe(const char *option, const char *key);
/* No core dump, and no other process of this user reads this one's memory: it holds keys. */
void weir_process_hide(void);

#ifdef __cplusplus
}
#endif
