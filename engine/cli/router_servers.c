#include "engine/cli/router_servers.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static weir_status add(weir_server_arguments *to, weir_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static weir_status add(weir_server_arguments *to, weir_error *error, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    if (to->n + 1 >= to->capacity) {
        const size_t capacity = to->capacity > 0 ? 2 * to->capacity : 64;
        char **const list = realloc(to->list, capacity * sizeof *list);
        if (list == NULL)
            return weir_error_set(error, WEIR_ENOMEM, "no memory for the arguments of a server");
        to->list = list;
        to->capacity = capacity;
    }
    va_start(arguments, format);
    const int n = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (n < 0) return weir_error_set(error, WEIR_ENOMEM, "no memory for the arguments of a server");
    to->list[to->n++] = text;
    to->list[to->n] = NULL;
    return WEIR_OK;
}

static weir_status set(
    weir_server_arguments *to, weir_error *error, const char *key, const char *value
)
{
    WEIR_TRY(add(to, error, "--set"));
    return add(to, error, "%s=%s", key, value);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* A file in memory that only this user reads, and that a started program inherits. */
static weir_status keys_file(int *out, const weir_keys *keys, weir_error *error)
{
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < keys->n && status == WEIR_OK; i++)
        status = weir_buffer_format(&text, "%s\n", keys->list[i]);
    if (status != WEIR_OK) status = weir_error_set(error, status, "no memory for API keys");
    const int fd = status == WEIR_OK ? memfd_create("keys", MFD_CLOEXEC) : -1;
    if (status == WEIR_OK && (fd < 0 || fchmod(fd, S_IRUSR) != 0 ||
                              write(fd, text.data, text.size) != (ssize_t)text.size))
        status = weir_error_set(
            error, WEIR_EIO, "cannot keep API keys for servers: %s", strerror(errno)
        );
    if (text.data != NULL) explicit_bzero(text.data, text.capacity);
    weir_buffer_free(&text);
    if (status != WEIR_OK && fd >= 0) (void)close(fd);
    if (status == WEIR_OK) *out = fd;
    return status;
}

static weir_status give_keys(
    weir_router_servers *s, size_t i, const weir_keys *keys, const char *file, weir_error *error
)
{
    weir_router_model *const model = &s->models[i];
    if (*file != '\0') {
        WEIR_TRY(weir_keys_read_file(&s->own[i], file, error));
        keys = &s->own[i];
        model->keys = keys->list;
        model->n_keys = keys->n;
    }
    WEIR_TRY(set(&s->arguments[i], error, "server.api_key", ""));
    if (keys->n == 0) return set(&s->arguments[i], error, "server.api_key_file", "");
    WEIR_TRY(keys_file(&model->keys_fd, keys, error));
    WEIR_TRY(add(&s->arguments[i], error, "--set"));
    return add(&s->arguments[i], error, "server.api_key_file=/proc/self/fd/%d", model->keys_fd);
}

/* ---- settings -------------------------------------------------------------------------------- */

/* Those of the router alone, and those that a server gets otherwise. */
static bool is_routers(const char *path)
{
    static const char *const keys[] = {
        "server.host",          "server.port",     "server.api_key_file",
        "server.allowed_hosts", "server.insecure", "server.allowed_origins",
        "server.aliases",       "memory.host",     "model.path",
        "model.name",           "router.wait",     "router.queue",
        "sessions.dir",         "states.dir",      "server.drain_timeout",
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(path, keys[i]) == 0) return true;
    return false;
}

/* A folder for each model, because the files of one are of no use to another. */
static weir_status set_folder(
    weir_server_arguments *to, const char *key, const char *folder, const char *model,
    weir_error *error
)
{
    char name[WEIR_CONFIG_MODEL_NAME];
    if (folder[0] == '\0') return WEIR_OK;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return weir_error_set(
            error, WEIR_EIO, "%s: %.300s: cannot make it: %s", key, folder, strerror(errno)
        );
    (void)snprintf(name, sizeof name, "%s", model);
    for (char *c = name; *c != '\0'; c++)
        if (*c == '/') *c = '-';
    WEIR_TRY(add(to, error, "--set"));
    return add(to, error, "%s=%s/%s", key, folder, name);
}

typedef struct taker {
    weir_server_arguments *to;
    weir_error *error;
} taker;

static weir_status take(void *user, const char *path, const char *value)
{
    const taker *const t = user;
    return is_routers(path) ? WEIR_OK : set(t->to, t->error, path, value);
}

/* What this configuration sets, for a model that has none of its own. */
static weir_status set_changed(
    weir_server_arguments *to, const weir_config *config, weir_error *error
)
{
    taker t = { to, error };
    (void)!weir_error_set(error, WEIR_ENOMEM, "no memory for the settings of a server");
    return weir_config_changed(config, take, &t);
}

static weir_status fill_arguments(
    weir_server_arguments *to, const weir_config *config, const weir_config_model *model,
    const char *command, weir_error *error
)
{
    WEIR_TRY(add(to, error, "weir"));
    if (command != NULL) WEIR_TRY(add(to, error, "%s", command));
    WEIR_TRY(add(to, error, "--quiet"));
    if (model->config[0] != '\0') {
        WEIR_TRY(add(to, error, "--config=%s", model->config));
    } else {
        WEIR_TRY(set_changed(to, config, error));
        WEIR_TRY(set_folder(to, "sessions.dir", config->sessions.dir, model->name, error));
        WEIR_TRY(set_folder(to, "states.dir", config->states.dir, model->name, error));
        WEIR_TRY(set(to, error, "model.path", model->path));
    }
    for (const char *line = model->set; *line != '\0'; line += strcspn(line, "\n") + 1) {
        WEIR_TRY(add(to, error, "--set"));
        WEIR_TRY(add(to, error, "%.*s", (int)strcspn(line, "\n"), line));
    }
    WEIR_TRY(set(to, error, "model.name", model->name));
    WEIR_TRY(set(to, error, "server.aliases", "*"));
    WEIR_TRY(set(to, error, "server.allowed_hosts", ""));
    WEIR_TRY(set(to, error, "server.allowed_origins", ""));
    /* The router waits for its end as long as its own says. */
    WEIR_TRY(add(to, error, "--set"));
    WEIR_TRY(
        add(to, error, "server.drain_timeout=%lldms", (long long)config->server.drain_timeout_ms)
    );
    WEIR_TRY(add(to, error, "--set"));
    return add(to, error, "memory.host=%lldB", (long long)model->memory);
}

/* Servers tell nothing to the manager of the router's service, and get keys otherwise. Variables of
 * the configuration would override that of a model; to others they are given as settings. */
static weir_status fill_environment(
    weir_server_arguments *to, const char *const *environment, weir_error *error
)
{
    static const char *const left_out[] = { "WEIR_API_KEY=", "WEIR_SERVER_API_KEY",
                                            "NOTIFY_SOCKET=" };
    for (; *environment != NULL; environment++) {
        bool out = weir_config_has_variable(*environment);
        for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
            out = out || strncmp(*environment, left_out[i], strlen(left_out[i])) == 0;
        if (!out) WEIR_TRY(add(to, error, "%s", *environment));
    }
    return WEIR_OK;
}

weir_status weir_router_servers_fill(
    weir_router_servers *s, const weir_config *config, const weir_keys *keys, const char *command,
    const char *const *environment, weir_error *error
)
{
    weir_status status = fill_environment(&s->environment, environment, error);
    for (size_t i = 0; i < WEIR_ROUTER_MODELS; i++) s->models[i].keys_fd = -1;
    for (size_t i = 0; i < config->n_models && status == WEIR_OK; i++) {
        const weir_config_model *const model = &config->models[i];
        s->models[i].name = model->name;
        s->models[i].bytes = model->memory;
        status = fill_arguments(&s->arguments[i], config, model, command, error);
        if (status == WEIR_OK) status = give_keys(s, i, keys, model->api_key_file, error);
        if (status == WEIR_OK && s->arguments[i].n >= WEIR_SERVER_ARGUMENTS)
            status = weir_error_set(error, WEIR_ECONFIG, "too many settings for a server");
        s->models[i].arguments = (const char *const *)s->arguments[i].list;
    }
    return status;
}

static void free_list(weir_server_arguments *list)
{
    for (size_t i = 0; i < list->n; i++) free(list->list[i]);
    free(list->list);
    *list = (weir_server_arguments){ 0 };
}

void weir_router_servers_free(weir_router_servers *s)
{
    for (size_t i = 0; i < WEIR_ROUTER_MODELS; i++) {
        free_list(&s->arguments[i]);
        if (s->own[i].n > 0) weir_keys_free(&s->own[i]);
        if (s->models[i].arguments != NULL && s->models[i].keys_fd >= 0)
            (void)close(s->models[i].keys_fd);
        s->models[i] = (weir_router_model){ .keys_fd = -1 };
    }
    free_list(&s->environment);
}
