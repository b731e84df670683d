#include "engine/cli/api_keys.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/cli/process.h"

enum { MAX_KEY_FILE = 1 << 20 };

static weir_status add(weir_keys *keys, const char *key, const char *name, weir_error *error)
{
    if (keys->n == WEIR_KEYS)
        return weir_error_set(error, WEIR_ECONFIG, "%s: more than %d keys", name, (int)WEIR_KEYS);
    keys->list[keys->n++] = key;
    return WEIR_OK;
}

weir_status weir_keys_parse(weir_keys *keys, const char *name, weir_error *error)
{
    char *rest = NULL,
         *line = keys->text.data != NULL ? strtok_r(keys->text.data, "\r\n", &rest) : NULL;
    for (; line != NULL; line = strtok_r(NULL, "\r\n", &rest))
        if (line[0] != '#') WEIR_TRY(add(keys, line, name, error));
    return WEIR_OK;
}

static void warn_of_readers(const char *path)
{
    struct stat file;
    if (stat(path, &file) == 0 && S_ISREG(file.st_mode) &&
        (file.st_mode & (S_IRGRP | S_IROTH)) != 0)
        weir_log(WEIR_LOG_WARNING, "%s can be read by other users; chmod 600 it", path);
}

weir_status weir_keys_read_file(weir_keys *keys, const char *path, weir_error *error)
{
    const size_t before = keys->n;
    WEIR_TRY(weir_file_read(&keys->text, path, MAX_KEY_FILE, error));
    WEIR_TRY(weir_keys_parse(keys, path, error));
    warn_of_readers(path);
    return keys->n > before ? WEIR_OK
                            : weir_error_set(error, WEIR_ECONFIG, "%s: no key in it", path);
}

weir_status weir_keys_read(weir_keys *keys, const weir_config *config, weir_error *error)
{
    const char *const environment = getenv("WEIR_API_KEY"), *const path =
                                                                config->server.api_key_file;
    if (config->server.api_key[0] != '\0')
        WEIR_TRY(add(keys, config->server.api_key, "server.api_key", error));
    if (environment != NULL && environment[0] != '\0')
        WEIR_TRY(add(keys, environment, "WEIR_API_KEY", error));
    if (path[0] != '\0') WEIR_TRY(weir_keys_read_file(keys, path, error));
    if (weir_process_wipe("--api-key", "server.api_key"))
        weir_log(
            WEIR_LOG_WARNING, "an API key on the command line shows in the list of processes; use "
                              "server.api_key_file or WEIR_API_KEY"
        );
    if (keys->n > 0) weir_process_hide();
    return WEIR_OK;
}

void weir_keys_free(weir_keys *keys)
{
    if (keys->text.data != NULL) explicit_bzero(keys->text.data, keys->text.capacity);
    weir_buffer_free(&keys->text);
    *keys = (weir_keys){ 0 };
}
