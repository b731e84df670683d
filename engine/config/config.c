/* engine/config/config.c - fills a weir_config from defaults, files and assignments. */
#include "engine/config/config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/config/keys.h"

enum { PATH_BYTES = 256 }; /* a key's path; the longest has 27 bytes */

void weir_config_default(weir_config *config)
{
    memset(config, 0, sizeof *config);
    size_t n_keys;
    const weir_key *const keys = weir_keys(&n_keys);
    for (size_t i = 0; i < n_keys; i++) weir_key_assign_default(&keys[i], config);
}

static weir_status unknown_key(const char *path, weir_error *error)
{
    return weir_error_set(
        error, WEIR_ECONFIG, "unknown key \"%.100s\"; the nearest is \"%s\"", path,
        weir_key_nearest(path)
    );
}

weir_status weir_config_at(const weir_toml_node *node, const char *name, weir_error *error)
{
    uint32_t line, column;
    weir_toml_position(node, &line, &column);
    return weir_error_prefix(error, WEIR_ECONFIG, "%.300s:%u:%u", name, line, column);
}

static weir_status read_table(
    weir_config *config, const weir_toml_node *table, const char *prefix, const char *name,
    weir_error *error
);

static weir_status read_member(
    weir_config *config, const weir_toml_node *node, const char *prefix, const char *key_text,
    const char *name, weir_error *error
)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s%s%.200s", prefix, *prefix != '\0' ? "." : "", key_text);
    const char *member;
    const weir_key *const key = weir_key_find(path, &member);
    const bool is_table = weir_toml_type_of(node) == WEIR_TOML_TABLE;
    weir_status status;
    if (*prefix == '\0' && strcmp(key_text, "models") == 0)
        return weir_config_read_models(config, node, name, error);
    if (strchr(key_text, '.') != NULL) /* "server.port" in quotes is one name, not a path */
        status = unknown_key(key_text, error);
    else if (key != NULL && !(is_table && key->type == WEIR_KEY_PINS && member == NULL))
        status = weir_key_assign_node(key, member, config, node, error);
    /* An unknown table is reported at its first key. */
    else if (is_table && (key != NULL || weir_key_is_section(path) || weir_toml_size(node) > 0))
        return read_table(config, node, path, name, error);
    else if (weir_key_is_section(path))
        status = weir_error_set(
            error, WEIR_ECONFIG, "%s must be a table of keys, not %s", path,
            weir_toml_type_name(weir_toml_type_of(node))
        );
    else
        status = unknown_key(path, error);
    return status == WEIR_OK ? WEIR_OK : weir_config_at(node, name, error);
}

/* The depth of the document bounds the recursion. A path that is too long is truncated and then
 * unknown. */
static weir_status read_table(
    weir_config *config, const weir_toml_node *table, const char *prefix, const char *name,
    weir_error *error
)
{
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        const char *key;
        const weir_toml_node *const node = weir_toml_at(table, i, &key);
        WEIR_TRY(read_member(config, node, prefix, key, name, error));
    }
    return WEIR_OK;
}

weir_status weir_config_parse(
    weir_config *config, const char *text, size_t length, const char *name, weir_error *error
)
{
    weir_error own; /* the prefix is added to the callee's message */
    if (error == NULL) error = &own;
    weir_toml *toml = NULL;
    WEIR_TRY(weir_toml_parse(&toml, text, length, name, error));
    weir_status status = WEIR_ENOMEM;
    weir_config *const changed = malloc(sizeof *changed);
    if (changed == NULL) {
        status = weir_error_set(error, WEIR_ENOMEM, "%s: no memory", name);
        goto done;
    }
    *changed = *config;
    status = read_table(changed, weir_toml_root(toml), "", name, error);
    if (status == WEIR_OK) *config = *changed;
done:
    free(changed);
    weir_toml_close(toml);
    return status;
}

/* Looks for folder/name, then folder/name.toml, as a regular file. */
static bool find_in(char path[PATH_MAX], const char *folder, const char *name)
{
    static const char *const suffixes[] = { "", ".toml" };
    for (size_t i = 0; i < 2; i++) {
        const bool whole = folder == NULL || name[0] == '/';
        const int n = snprintf(
            path, PATH_MAX, "%s%s%s%s", whole ? "" : folder, whole ? "" : "/", name, suffixes[i]
        );
        if (n < PATH_MAX && weir_file_exists(path) && !weir_file_is_directory(path)) return true;
    }
    return false;
}

weir_status weir_config_load(
    weir_config *config, const char *name, const weir_config_search *search, weir_error *error
)
{
    char path[PATH_MAX];
    if (*name == '\0')
        return weir_error_set(error, WEIR_ECONFIG, "the name of the configuration is empty");
    bool found = find_in(path, search->folder, name);
    for (size_t i = 0; i < search->n_folders && !found && name[0] != '/'; i++)
        found = find_in(path, search->folders[i], name);
    if (!found)
        return weir_error_set(
            error, WEIR_ENOTFOUND,
            "no configuration \"%.200s\" in %.300s%s%.300s, with or without \".toml\"", name,
            search->folder != NULL ? search->folder : "the working directory",
            search->n_folders > 0 ? " or in " : "", search->n_folders > 0 ? search->folders[0] : ""
        );
    weir_buffer text = { 0 };
    weir_status status = weir_file_read(&text, path, WEIR_TOML_BYTES, error);
    if (status == WEIR_EFORMAT)
        status = weir_error_set(error, WEIR_ECONFIG, "%.300s:1:1: longer than 1 MiB", path);
    if (status == WEIR_OK)
        status =
            weir_config_parse(config, text.data != NULL ? text.data : "", text.size, path, error);
    weir_buffer_free(&text);
    return status;
}

weir_status weir_config_set(
    weir_config *config, const char *path, const char *value, weir_error *error
)
{
    const char *member;
    const weir_key *const key = weir_key_find(path, &member);
    if (key == NULL) return unknown_key(path, error);
    return weir_key_assign_text(key, member, config, value, error);
}

static const char *skip_spaces(const char *text) { return text + strspn(text, " \t"); }

weir_status weir_config_assign(weir_config *config, const char *assignment, weir_error *error)
{
    const char *const start = skip_spaces(assignment);
    const char *const equals = strchr(start, '=');
    if (equals == NULL)
        return weir_error_set(error, WEIR_ECONFIG, "\"%.100s\": must be KEY=VALUE", assignment);
    size_t length = (size_t)(equals - start);
    while (length > 0 && (start[length - 1] == ' ' || start[length - 1] == '\t')) length--;
    char path[PATH_BYTES];
    if (length >= sizeof path)
        return weir_error_set(error, WEIR_ECONFIG, "\"%.60s...\": longer than any key", start);
    (void)snprintf(path, sizeof path, "%.*s", (int)length, start);
    return weir_config_set(config, path, skip_spaces(equals + 1), error);
}

weir_status weir_config_check(const weir_config *config, weir_error *error)
{
    if (config->batch.chunk % 64 != 0)
        return weir_error_set(
            error, WEIR_ECONFIG, "batch.chunk = %lld: must be a multiple of 64",
            (long long)config->batch.chunk
        );
    if (config->batch.tokens > 0 && config->batch.tokens < config->batch.max_sequences + 64)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "batch.tokens = %lld: must be 0, or at least batch.max_sequences + 64 = %lld, so that "
            "prompts go on while all sequences decode",
            (long long)config->batch.tokens, (long long)config->batch.max_sequences + 64
        );
    WEIR_TRY(weir_config_check_models(config, error));
    if (config->server.api_key[0] != '\0' && config->server.api_key_file[0] != '\0')
        return weir_error_set(
            error, WEIR_ECONFIG, "server.api_key and server.api_key_file exclude each other"
        );
    if (config->sessions.dir[0] != '\0' && strcmp(config->kv.reuse, "on") != 0)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "sessions.dir needs kv.reuse = \"on\": without it nothing is cached that could be saved"
        );
    if (config->states.dir[0] != '\0' && strcmp(config->kv.reuse, "on") != 0)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "states.dir needs kv.reuse = \"on\": without it no state can be continued"
        );
    if (config->states.dir[0] != '\0' && strcmp(config->states.dir, config->sessions.dir) == 0)
        return weir_error_set(
            error, WEIR_ECONFIG, "states.dir and sessions.dir must be different folders"
        );
    return WEIR_OK;
}
