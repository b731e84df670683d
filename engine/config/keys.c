/* engine/config/keys.c - the table of keys and lookups in it. */
#include "engine/config/keys.h"

#include <string.h>

#include "engine/config/distance.h"
#include "kernels/abi/isa.h"
#include "kernels/abi/kv_format_text.h"

#define FIELD_INT(field) field
#define FIELD_FLOAT(field) field
#define FIELD_BOOL(field) field
#define FIELD_TEXT(field) field
#define FIELD_PATH(field) field
#define FIELD_SECRET(field) field
#define FIELD_SIZE(field) field
#define FIELD_DURATION(field) field##_ms
#define FIELD_CHOICE(field) field
#define FIELD_PAIR(field) field
#define FIELD_PINS(field) field

static const weir_key keys[] = {
#define SECTION(name, text) { .type = WEIR_KEY_SECTION, .path = #name, .help = (text) },
#define KEY(kind, field, value, low, high, words, text)                                            \
    { .type = WEIR_KEY_##kind,                                                                     \
      .path = #field,                                                                              \
      .initial = (value),                                                                          \
      .offset = offsetof(weir_config, FIELD_##kind(field)),                                        \
      .min = (low),                                                                                \
      .max = (high),                                                                               \
      .allowed = (words),                                                                          \
      .help = (text) },
#include "engine/config/keys.inc"
#undef SECTION
#undef KEY
};

#define POINTER_INT int64_t *
#define POINTER_FLOAT double *
#define POINTER_BOOL bool *
#define POINTER_TEXT weir_config_text *
#define POINTER_PATH weir_config_text *
#define POINTER_SECRET weir_config_text *
#define POINTER_SIZE int64_t *
#define POINTER_DURATION int64_t *
#define POINTER_CHOICE weir_config_text *
#define POINTER_PAIR weir_config_text *
#define POINTER_PINS weir_config_pin(*)[WEIR_CONFIG_PINS]
#define SECTION(name, text)
#define KEY(kind, field, value, low, high, words, text)                                            \
    _Static_assert(                                                                                \
        _Generic(&((weir_config *)0)->FIELD_##kind(field), POINTER_##kind: 1, default: 0),         \
        "the type of " #field                                                                      \
    );
#include "engine/config/keys.inc"
#undef SECTION
#undef KEY

enum { N_KEYS = sizeof keys / sizeof keys[0] };

const weir_key *weir_keys(size_t *count)
{
    *count = N_KEYS;
    return keys;
}

const weir_key *weir_key_find(const char *path, const char **member)
{
    *member = NULL;
    for (size_t i = 0; i < N_KEYS; i++) {
        if (keys[i].type == WEIR_KEY_SECTION) continue;
        const size_t length = strlen(keys[i].path);
        if (strncmp(keys[i].path, path, length) != 0) continue;
        if (path[length] == '\0') return &keys[i];
        if (keys[i].type != WEIR_KEY_PINS || path[length] != '.') continue;
        *member = path + length + 1;
        return &keys[i];
    }
    return NULL;
}

bool weir_key_is_section(const char *path)
{
    const size_t length = strlen(path);
    for (size_t i = 0; i < N_KEYS; i++)
        if (keys[i].type == WEIR_KEY_SECTION && strncmp(keys[i].path, path, length) == 0 &&
            (keys[i].path[length] == '\0' || keys[i].path[length] == '.'))
            return true;
    return false;
}

/* A path without a dot is also compared with the last part of each key: "port" finds
 * "server.port". */
const char *weir_key_nearest(const char *path)
{
    const char *nearest = keys[0].path;
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < N_KEYS; i++) {
        if (keys[i].type == WEIR_KEY_SECTION) continue;
        size_t distance = 2 * weir_edit_distance(path, keys[i].path);
        const char *const last = strrchr(keys[i].path, '.') + 1;
        if (strchr(path, '.') == NULL) {
            const size_t by_last =
                /* On a tie, a match of the whole path wins. */
                2 * weir_edit_distance(path, last) + 1;
            if (by_last < distance) distance = by_last;
        }
        if (distance >= best) continue;
        best = distance;
        nearest = keys[i].path;
    }
    return nearest;
}

const char *weir_key_type_text(weir_key_type type)
{
    switch (type) {
    case WEIR_KEY_INT: return "an integer";
    case WEIR_KEY_FLOAT: return "a number";
    case WEIR_KEY_BOOL: return "true or false";
    case WEIR_KEY_TEXT:
    case WEIR_KEY_SECRET: return "a text";
    case WEIR_KEY_PATH: return "a path";
    case WEIR_KEY_SIZE: return "a size such as \"512MiB\" or \"6G\"";
    case WEIR_KEY_DURATION: return "a duration such as \"500ms\" or \"30s\"";
    case WEIR_KEY_CHOICE: return "one of";
    case WEIR_KEY_PAIR: return "one or two (K/V) of";
    case WEIR_KEY_PINS: return "a table of op = \"kernel\"";
    case WEIR_KEY_SECTION: break;
    }
    return "a table of keys";
}
