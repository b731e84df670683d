/* engine/api/places.h - finds the files that are installed with the library: configs/ and
 * models/weir-demo in share/weir. */
#pragma once
#include <limits.h>
#include <stddef.h>

enum { WEIR_PLACES = 2 };
typedef struct weir_places {
    char folders[WEIR_PLACES][PATH_MAX]; /* [n] existing folders, best first */
    size_t n;
} weir_places;
void weir_places_find(weir_places *out);
