/* engine/config/environment.c - keys from environment variables. */
#include <stdio.h>
#include <string.h>

#include "engine/config/keys.h"

static const char prefix[] = "WEIR_";
enum { PREFIX = sizeof prefix - 1, NAME = 128 }; /* NAME: of what follows the prefix */

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

void weir_key_variable(char out[WEIR_KEY_VARIABLE], const char *path)
{
    const int n = snprintf(out, WEIR_KEY_VARIABLE, "%s%s", prefix, path);
    WEIR_ASSERT(n < WEIR_KEY_VARIABLE);
    for (char *c = out; *c != '\0'; c++)
        *c = *c == '.' ? '_' : *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
}

/* True if `rest`, in lower case, begins with this path, in which dots are underscores. */
static bool begins_with(const char *rest, const char *path)
{
    for (; *path != '\0'; path++, rest++)
        if (*rest != (*path == '.' ? '_' : *path)) return false;
    return *rest == '\0' || *rest == '_';
}

/* The key of a variable without its prefix, in lower case; NULL: there is none. */
static const weir_key *find(const char *rest, const char **member)
{
    size_t n;
    const weir_key *const keys = weir_keys(&n);
    for (size_t i = 0; i < n; i++) {
        const size_t length = strlen(keys[i].path);
        if (keys[i].type == WEIR_KEY_SECTION || !begins_with(rest, keys[i].path)) continue;
        *member = keys[i].type == WEIR_KEY_PINS && rest[length] == '_' ? rest + length + 1 : NULL;
        if (rest[length] == '\0' || *member != NULL) return &keys[i];
    }
    return NULL;
}

/* The length of the section that it begins with; 0: it has nothing to do with the configuration. */
static size_t section_of(const char *rest)
{
    size_t n;
    const weir_key *const keys = weir_keys(&n);
    for (size_t i = 0; i < n; i++) {
        const size_t length = strlen(keys[i].path);
        if (keys[i].type == WEIR_KEY_SECTION && strchr(keys[i].path, '.') == NULL &&
            begins_with(rest, keys[i].path) && rest[length] == '_')
            return length;
    }
    return 0;
}

static weir_status unknown(const char *name, char *rest, size_t section, weir_error *error)
{
    char nearest[WEIR_KEY_VARIABLE];
    rest[section] = '.';
    weir_key_variable(nearest, weir_key_nearest(rest));
    return weir_error_set(
        error, WEIR_ECONFIG, "%s: no key has this variable; the nearest is %s", name, nearest
    );
}

typedef char variable[PREFIX + NAME];

/* Copies the name of "NAME=value", if it begins with the prefix. Returns its value; NULL: another
 * variable. */
static const char *split(variable name, const char *text)
{
    const char *const equals = strchr(text, '=');
    if (equals == NULL || strncmp(text, prefix, PREFIX) != 0) return NULL;
    size_t length = (size_t)(equals - text);
    if (length >= sizeof(variable)) length = sizeof(variable) - 1; /* longer than any */
    memcpy(name, text, length);
    name[length] = '\0';
    return equals + 1;
}

static void lower_rest(char rest[NAME], const variable name)
{
    size_t i = 0;
    for (; name[PREFIX + i] != '\0'; i++) rest[i] = lower(name[PREFIX + i]);
    rest[i] = '\0';
}

static weir_status apply(
    weir_config *config, const variable name, const char *value, weir_error *error
)
{
    char rest[NAME];
    const char *member = NULL;
    lower_rest(rest, name);
    const size_t section = section_of(rest);
    const weir_key *const key = find(rest, &member);
    if (key == NULL && section == 0) return WEIR_OK;
    if (key == NULL) return unknown(name, rest, section, error);
    if (value[0] == '\0') return WEIR_OK;
    const weir_status status = weir_key_assign_text(key, member, config, value, error);
    return status == WEIR_OK ? WEIR_OK : weir_error_prefix(error, status, "%s", name);
}

weir_status weir_config_environment(
    weir_config *config, const char *const *variables, weir_error *error
)
{
    weir_error own; /* the prefix is added to the callee's message */
    if (error == NULL) error = &own;
    for (; *variables != NULL; variables++) {
        variable name;
        const char *const value = split(name, *variables);
        if (value != NULL) WEIR_TRY(apply(config, name, value, error));
    }
    return WEIR_OK;
}

bool weir_config_has_variable(const char *text)
{
    variable name;
    char rest[NAME];
    const char *member = NULL;
    if (split(name, text) == NULL) return false;
    lower_rest(rest, name);
    return find(rest, &member) != NULL;
}
