/* engine/hub/curl.c - loads libcurl. */
#include "engine/hub/curl.h"

#include <dlfcn.h>

static weir_status find_functions(weir_curl *out, void *library, weir_error *error)
{
#define X(name)                                                                                    \
    out->name = (__typeof__(out->name))dlsym(library, #name);                                      \
    if (out->name == NULL)                                                                         \
        return weir_error_set(error, WEIR_EUNSUPPORTED, "libcurl has no function " #name);
    WEIR_CURL_FUNCTIONS(X)
#undef X
    if (out->curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) return WEIR_OK;
    return weir_error_set(error, WEIR_EUNSUPPORTED, "libcurl cannot be initialised");
}

weir_status weir_curl_load(const weir_curl **out, weir_error *error)
{
    static weir_curl curl;
    static bool is_loaded;
    if (!is_loaded) {
        /* Never unloaded: TLS libraries register functions that run when the process ends. */
        void *const library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            return weir_error_set(
                error, WEIR_EUNSUPPORTED,
                "models are downloaded with libcurl, which is not here (%s); install it: apt-get "
                "install libcurl4",
                dlerror()
            );
        WEIR_TRY(find_functions(&curl, library, error));
        is_loaded = true;
    }
    *out = &curl;
    return WEIR_OK;
}
