/* engine/config/models.c - [[models]]: the models of a router, which are tables in an array and so
 * have no keys in keys.inc. */
#include <stdlib.h>
#include <string.h>

#include "engine/config/keys.h"

/* Its text fields. */
typedef struct field {
    const char *key, *help;
    size_t offset, size;
} field;

#define FIELD(member, text)                                                                        \
    { .key = #member,                                                                              \
      .help = (text),                                                                              \
      .offset = offsetof(weir_config_model, member),                                               \
      .size = sizeof((weir_config_model *)0)->member }
static const field fields[] = {
    FIELD(name, "Name in the API; requests choose a model by it."),
    FIELD(config, "Configuration file of this model, as for --config."),
    FIELD(path, "Or its path, as model.path; the other sections of this file then apply to it."),
    FIELD(api_key_file, "File with the only keys that may use it. Absent: all keys of the server."),
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static weir_status read_text(
    char *out, size_t size, const char *key, const weir_toml_node *node, weir_error *error
)
{
    size_t length = 0;
    const char *const text = weir_toml_string(node, &length);
    if (text == NULL)
        return weir_error_set(error, WEIR_ECONFIG, "models: %s must be a string", key);
    if (length == 0 || length >= size)
        return weir_error_set(
            error, WEIR_ECONFIG, "models: %s must have 1 to %zu bytes", key, size - 1
        );
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return weir_error_set(error, WEIR_ECONFIG, "models: %s holds a control character", key);
    memcpy(out, text, length);
    out[length] = '\0';
    return WEIR_OK;
}

/* The router sets these itself. */
static bool is_reserved(const char *assignment)
{
    static const char *const keys[] = { "model.name",          "memory.host",         "server.host",
                                        "server.aliases",      "server.api_key",      "server.port",
                                        "model.path",          "server.api_key_file", "log.level",
                                        "server.drain_timeout" };
    const size_t n = strcspn(assignment, " \t=");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strlen(keys[i]) == n && strncmp(keys[i], assignment, n) == 0) return true;
    return false;
}

/* Assignments are checked here, so that a wrong key is an error of the file and not of the first
 * request. */
static weir_status read_set(weir_config_model *model, const weir_toml_node *list, weir_error *error)
{
    char text[sizeof model->set];
    size_t used = 0;
    if (weir_toml_type_of(list) != WEIR_TOML_ARRAY)
        return weir_error_set(
            error, WEIR_ECONFIG, "models: set must be a list such as [\"kv.format=q8_0\"]"
        );
    weir_config *const scratch = malloc(sizeof *scratch);
    if (scratch == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for [[models]]");
    weir_config_default(scratch);
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < weir_toml_size(list) && status == WEIR_OK; i++) {
        status = read_text(
            text, sizeof text, "set", weir_toml_at(list, i, &(const char *){ NULL }), error
        );
        const char *const assignment = text + strspn(text, " \t");
        if (status == WEIR_OK) status = weir_config_assign(scratch, assignment, error);
        if (status == WEIR_OK && is_reserved(assignment))
            status = weir_error_set(
                error, WEIR_ECONFIG, "models: set = \"%.100s\": the router sets this key", text
            );
        const size_t n = status == WEIR_OK ? strlen(text) : 0;
        if (used + n + 2 > sizeof model->set)
            status = weir_error_set(
                error, WEIR_ECONFIG, "models: set has more than %zu bytes", sizeof model->set - 2
            );
        if (status != WEIR_OK) break;
        memcpy(model->set + used, text, n);
        memcpy(model->set + used + n, "\n", 2);
        used += n + 1;
    }
    free(scratch);
    return status;
}

static weir_status read_key(
    weir_config_model *model, const char *key, const weir_toml_node *node, weir_error *error
)
{
    const char *problem = "";
    size_t length;
    for (size_t i = 0; i < N_FIELDS; i++)
        if (strcmp(key, fields[i].key) == 0)
            return read_text((char *)model + fields[i].offset, fields[i].size, key, node, error);
    if (strcmp(key, "set") == 0) return read_set(model, node, error);
    if (strcmp(key, "memory") != 0)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "unknown key \"models.%.100s\"; there are name, config, path, memory, api_key_file and "
            "set",
            key
        );
    const char *const text = weir_toml_string(node, &length);
    if (text == NULL || !weir_parse_size(text, &model->memory, &problem) || model->memory == 0)
        return weir_error_set(
            error, WEIR_ECONFIG, "models: memory must be a size such as \"6GiB\"%s%s",
            *problem != '\0' ? ": it " : "", problem
        );
    return WEIR_OK;
}

static bool is_name(const char *name)
{
    for (const char *c = name; *c != '\0'; c++)
        if (*c <= 0x20 || *c >= 0x7f || *c == '"' || *c == '\\') return false;
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && *name != '/' && *name != '\0';
}

/* '/' is '-' in the name of a folder: engine/cli/router_servers.c. */
static bool is_same_folder(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++)
        if ((*a == '/' ? '-' : *a) != (*b == '/' ? '-' : *b)) return false;
    return *a == *b;
}

static weir_status check_entry(
    const weir_config *config, const weir_config_model *model, weir_error *error
)
{
    if (!is_name(model->name))
        return weir_error_set(
            error, WEIR_ECONFIG,
            "models: a model needs a name: printable ASCII without blanks, quotes and backslashes"
        );
    for (size_t i = 0; i < config->n_models; i++)
        if (is_same_folder(config->models[i].name, model->name))
            return weir_error_set(
                error, WEIR_ECONFIG,
                strcmp(config->models[i].name, model->name) == 0
                    ? "models: two are named \"%s\""
                    : "models: \"%s\" would have the folder of another, since / is - there",
                model->name
            );
    if ((model->config[0] == '\0') == (model->path[0] == '\0'))
        return weir_error_set(
            error, WEIR_ECONFIG, "models: \"%s\" needs either config or path", model->name
        );
    if (model->memory == 0)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "models: \"%s\" needs memory, its share of memory.host; `weir plan` says what it takes",
            model->name
        );
    return WEIR_OK;
}

static weir_status read_entry(
    weir_config *config, const weir_toml_node *table, const char *name, weir_error *error
)
{
    weir_status status = WEIR_OK;
    if (config->n_models == WEIR_CONFIG_MODELS)
        status =
            weir_error_set(error, WEIR_ECONFIG, "models: there may be %d", (int)WEIR_CONFIG_MODELS);
    else if (weir_toml_type_of(table) != WEIR_TOML_TABLE)
        status = weir_error_set(error, WEIR_ECONFIG, "models must be tables: [[models]]");
    if (status != WEIR_OK) return weir_config_at(table, name, error);
    weir_config_model *const model = &config->models[config->n_models];
    *model = (weir_config_model){ 0 };
    for (size_t i = 0; status == WEIR_OK && i < weir_toml_size(table); i++) {
        const char *key;
        const weir_toml_node *const node = weir_toml_at(table, i, &key);
        if (read_key(model, key, node, error) != WEIR_OK) return weir_config_at(node, name, error);
    }
    if (status == WEIR_OK) status = check_entry(config, model, error);
    if (status != WEIR_OK) return weir_config_at(table, name, error);
    config->n_models++;
    return WEIR_OK;
}

weir_status weir_config_read_models(
    weir_config *config, const weir_toml_node *list, const char *name, weir_error *error
)
{
    config->n_models = 0;
    if (weir_toml_type_of(list) != WEIR_TOML_ARRAY) {
        (void)!weir_error_set(error, WEIR_ECONFIG, "models must be tables: [[models]]");
        return weir_config_at(list, name, error);
    }
    for (size_t i = 0; i < weir_toml_size(list); i++)
        WEIR_TRY(read_entry(config, weir_toml_at(list, i, &(const char *){ NULL }), name, error));
    return WEIR_OK;
}

weir_status weir_config_check_models(const weir_config *config, weir_error *error)
{
    const struct {
        const char *key, *value;
    } others[] = { { "model.path", config->model.path },
                   { "model.name", config->model.name },
                   { "model.adapter", config->model.adapter },
                   { "server.aliases", config->server.aliases } };
    for (size_t i = 0; config->n_models > 0 && i < sizeof others / sizeof others[0]; i++)
        if (others[i].value[0] != '\0')
            return weir_error_set(
                error, WEIR_ECONFIG, "%s is of a server with one model, and there are [[models]]",
                others[i].key
            );
    return WEIR_OK;
}

static weir_status print_text(weir_buffer *out, const char *key, const char *text, size_t n)
{
    WEIR_TRY(weir_buffer_format(out, "%s\"", key));
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"' || text[i] == '\\') WEIR_TRY(weir_buffer_text(out, "\\"));
        WEIR_TRY(weir_buffer_add(out, text + i, 1));
    }
    return weir_buffer_text(out, "\"");
}

weir_status weir_config_print_models(const weir_config *config, weir_buffer *out)
{
    for (size_t i = 0; i < config->n_models; i++) {
        const weir_config_model *const model = &config->models[i];
        WEIR_TRY(weir_buffer_text(out, "\n[[models]]\n"));
        for (size_t f = 0; f < N_FIELDS; f++) {
            const char *const text = (const char *)model + fields[f].offset;
            if (*text == '\0') continue;
            WEIR_TRY(weir_buffer_format(out, "%s = ", fields[f].key));
            WEIR_TRY(print_text(out, "", text, strlen(text)));
            WEIR_TRY(weir_buffer_text(out, "\n"));
        }
        WEIR_TRY(weir_buffer_format(out, "memory = \"%lldB\"\n", (long long)model->memory));
        if (model->set[0] == '\0') continue;
        WEIR_TRY(weir_buffer_text(out, "set = ["));
        for (const char *line = model->set; *line != '\0'; line += strcspn(line, "\n") + 1)
            WEIR_TRY(print_text(out, line == model->set ? "" : ", ", line, strcspn(line, "\n")));
        WEIR_TRY(weir_buffer_text(out, "]\n"));
    }
    return WEIR_OK;
}

weir_status weir_config_describe_models(weir_buffer *out)
{
    WEIR_TRY(weir_buffer_text(
        out, "# [[models]]: several models in memory.host, which `serve` loads when a request\n"
             "# names them. Keys of each table:\n"
    ));
    for (size_t i = 0; i < N_FIELDS; i++)
        WEIR_TRY(weir_buffer_format(out, "# %s: %s\n", fields[i].key, fields[i].help));
    return weir_buffer_text(
        out, "# memory: Bytes for it, its memory.host: \"6GiB\".\n"
             "# set: Further keys for it: [\"kv.format=q8_0\"].\n"
    );
}
