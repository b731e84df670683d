#include "engine/api/places.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "engine/api/api_internal.h"
#include "engine/base/file.h"
#include "engine/hub/models.h"

/* The folder of the file that contains this code: the library, or a program that links it. */
static bool own_folder(char out[PATH_MAX])
{
    Dl_info info;
    if (dladdr((void *)(uintptr_t)weir_version, &info) == 0 || info.dli_fname == NULL) return false;
    const char *const slash = strrchr(info.dli_fname, '/');
    if (slash == NULL) return false;
    const size_t n = (size_t)(slash - info.dli_fname);
    if (n >= PATH_MAX) return false;
    memcpy(out, info.dli_fname, n);
    out[n] = '\0';
    return true;
}

/* share/ is next to lib/ or lib/TRIPLET/. */
void weir_places_find(weir_places *out)
{
    static const char *const ways[WEIR_PLACES] = { "../share/weir", "../../share/weir" };
    char folder[PATH_MAX];
    out->n = 0;
    if (!own_folder(folder)) return;
    for (size_t i = 0; i < WEIR_PLACES; i++) {
        char *const place = out->folders[out->n];
        if (snprintf(place, PATH_MAX, "%s/%s", folder, ways[i]) < PATH_MAX &&
            weir_file_is_directory(place))
            out->n++;
    }
}

weir_status weir_api_fill_model(weir_config *config, weir_error *error)
{
    weir_places places;
    if (config->model.path[0] != '\0')
        return weir_models_resolve(config->model.path, sizeof config->model.path, error);
    weir_places_find(&places);
    for (size_t i = 0; i < places.n; i++) {
        const int n = snprintf(
            config->model.path, sizeof config->model.path, "%s/models/weir-demo", places.folders[i]
        );
        if (n > 0 && (size_t)n < sizeof config->model.path &&
            weir_file_is_directory(config->model.path))
            return WEIR_OK;
    }
    config->model.path[0] = '\0';
    return weir_error_set(
        error, WEIR_ENOTFOUND,
        "model.path is not set, and the demo model is not installed with the "
        "library (share/weir/models/weir-demo)"
    );
}
