/* engine/api/config.c - configuration, version and log: functions that need no engine. */
#include <stdlib.h>
#include <string.h>

#include "engine/api/api_internal.h"
#include "engine/api/places.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"

const char *weir_version(void) { return WEIR_VERSION; }

void weir_free(void *memory) { weir_memory_give(memory); }

void weir_log_to(void (*write)(void *user, const char *level, const char *text), void *user)
{
    weir_log_set_function(write, user);
}

/* A library logs less than a program. */
weir_config *weir_config_new(void)
{
    weir_config *const config = calloc(1, sizeof *config);
    if (config == NULL) return NULL;
    weir_config_default(config);
    if (weir_config_set(config, "log.level", "warning", NULL) == WEIR_OK) return config;
    free(config);
    return NULL;
}

void weir_config_free(weir_config *config) { free(config); }

weir_status weir_config_read(weir_config *config, const char *path, weir_error *error)
{
    static const char configs[] = "/configs";
    weir_places places;
    const char *folders[WEIR_PLACES];
    weir_config_search search = { .folders = folders };
    weir_places_find(&places);
    for (size_t i = 0; i < places.n; i++) {
        if (strlen(places.folders[i]) + sizeof configs > sizeof places.folders[i]) continue;
        folders[search.n_folders++] = strcat(places.folders[i], configs);
    }
    return weir_config_load(config, path, &search, error);
}
