/* engine/cli/api_keys.h - the API keys of a server: from server.api_key_file, the environment
 * variable WEIR_API_KEY, or server.api_key. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/config/config.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_KEYS = 64 };

/* Zero-initialise; free with weir_keys_free. */
typedef struct weir_keys {
    weir_buffer text; /* contents of the file */
    const char *list[WEIR_KEYS]; /* point into the text, the configuration or the environment */
    size_t n;
} weir_keys;

/* Loads the keys. Warns of a file that others may read, and of a key among the arguments, which it
 * overwrites there. If there are keys, the process is hidden (weir_process_hide).
 * errors : ENOTFOUND, EIO; ECONFIG: no key in the file, or too many */
WEIR_MUST_CHECK weir_status
weir_keys_read(weir_keys *keys, const weir_config *config, weir_error *error);
/* The keys of a file alone, which must have one. It is read by that one call for `keys`. */
WEIR_MUST_CHECK weir_status
weir_keys_read_file(weir_keys *keys, const char *path, weir_error *error);
/* Parses keys->text, one key per line; empty lines and lines that begin with # are skipped. Returns
 * ECONFIG if there are too many; `name` begins the message. */
WEIR_MUST_CHECK weir_status weir_keys_parse(weir_keys *keys, const char *name, weir_error *error);
void weir_keys_free(weir_keys *keys); /* overwrites the keys first */

#ifdef __cplusplus
}
#endif
