/* engine/cli/process.h - process setup at the start of main, and hiding of keys from other
 * processes. */
#pragma once
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Call first in main. Opens descriptors 0 to 2 if closed, so that no other file gets their numbers
 * and then lines of the log (or ends the process with 1); makes sure that programs run from here
 * gain no privileges. Keeps argv for weir_process_wipe. */
void weir_process_begin(int argc, char **argv);
/* Overwrites the values of an option ("--api-key") and of a configuration key ("server.api_key") in
 * the arguments, which `ps` shows. Returns true if there was one. */
bool weir_process_wipe(const char *option, const char *key);
/* Disables core dumps, and reading of this process's memory by others of the same user: it holds
 * keys. */
void weir_process_hide(void);

#ifdef __cplusplus
}
#endif
