/* engine/hub/curl.h - libcurl's functions, found at run time. */
#pragma once
#define CURL_DISABLE_TYPECHECK /* its macros stand for functions that are called by pointer here */
#include <curl/curl.h>

#include <stdbool.h>

#include "engine/base/error.h"

#define WEIR_CURL_FUNCTIONS(X)                                                                     \
    X(curl_global_init)                                                                            \
    X(curl_easy_init)                                                                              \
    X(curl_easy_setopt)                                                                            \
    X(curl_easy_perform)                                                                           \
    X(curl_easy_getinfo)                                                                           \
    X(curl_easy_reset)                                                                             \
    X(curl_easy_strerror)                                                                          \
    X(curl_easy_cleanup)                                                                           \
    X(curl_slist_append)                                                                           \
    X(curl_slist_free_all)

typedef struct weir_curl {
#define X(name) __typeof__(&(name)) name;
    WEIR_CURL_FUNCTIONS(X)
#undef X
} weir_curl;

/* Loads libcurl once. Not thread-safe.
 * errors : EUNSUPPORTED */
WEIR_MUST_CHECK weir_status weir_curl_load(const weir_curl **out, weir_error *error);
