/* engine/config/print.c - the configuration as TOML: the commented reference and the effective
 * values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/keys.h"

enum { COLUMNS = 100 };

/* Writes "# text", wrapped at spaces. */
static weir_status comment(weir_buffer *out, const char *text)
{
    while (*text != '\0') {
        size_t length = strlen(text);
        if (length > COLUMNS - 2) {
            length = COLUMNS - 2;
            while (length > 0 && text[length] != ' ') length--;
            if (length == 0) length = strcspn(text, " ");
        }
        WEIR_TRY(weir_buffer_format(out, "# %.*s\n", (int)length, text));
        text += length + (text[length] == ' ');
    }
    return WEIR_OK;
}

/* Writes "# text a, b, c" for words "a|b|c", wrapped at spaces. */
static weir_status comment_words(weir_buffer *out, const char *text, const char *words)
{
    weir_buffer line = { 0 };
    weir_status status = weir_buffer_text(&line, text);
    while (status == WEIR_OK && *words != '\0') {
        const size_t length = strcspn(words, "|");
        status = weir_buffer_format(
            &line, " %.*s%s", (int)length, words, words[length] != '\0' ? "," : ""
        );
        words += length + (words[length] != '\0');
    }
    if (status == WEIR_OK) status = comment(out, line.data);
    weir_buffer_free(&line);
    return status;
}

static const char *last_part(const char *path)
{
    const char *const dot = strrchr(path, '.');
    return dot == NULL ? path : dot + 1;
}

static bool limits_matter(const weir_key *key)
{
    return key->type == WEIR_KEY_INT || key->type == WEIR_KEY_FLOAT;
}

static weir_status describe_limits(const weir_key *key, weir_buffer *out)
{
    char low[WEIR_KEY_LIMIT], high[WEIR_KEY_LIMIT];
    weir_key_limit(low, key, key->min);
    weir_key_limit(high, key, key->max);
    return weir_buffer_format(
        out, "# %s, %s to %s\n", key->type == WEIR_KEY_INT ? "Integer" : "Number", low, high
    );
}

static weir_status describe_key(const weir_key *key, const weir_config *defaults, weir_buffer *out)
{
    WEIR_TRY(comment(out, key->help));
    if (key->type == WEIR_KEY_PINS)
        return weir_buffer_format(out, "# %s.OP: a text\n\n", key->path);
    if (key->type == WEIR_KEY_CHOICE)
        WEIR_TRY(weir_buffer_format(out, "# One of: %s\n", key->allowed));
    else if (key->type == WEIR_KEY_PAIR)
        WEIR_TRY(comment_words(out, "One or two (K/V) of:", key->allowed));
    else if (limits_matter(key))
        WEIR_TRY(describe_limits(key, out));
    WEIR_TRY(weir_buffer_format(out, "%s = ", last_part(key->path)));
    WEIR_TRY(weir_key_value(key, defaults, out));
    return weir_buffer_text(out, "\n\n");
}

weir_status weir_config_describe(weir_buffer *out)
{
    weir_config *const defaults = malloc(sizeof *defaults);
    if (defaults == NULL) return WEIR_ENOMEM;
    weir_config_default(defaults);
    size_t n_keys;
    const weir_key *const keys = weir_keys(&n_keys);
    weir_status status = weir_buffer_text(
        out,
        "# Every key and its default. Sizes are strings with a unit (\"512MiB\"), durations too "
        "(\"30s\").\n"
        "# K, M, G and T are short for KiB, MiB, GiB and TiB: \"4G\" is 4 x 1024 x 1024 x "
        "1024 bytes.\n"
        "# \"~/\" at the start of a path is the home folder.\n"
        "# Any key can be given on the command line: --set server.port=8081\n"
        "# and in the environment: WEIR_SERVER_PORT=8081, which a file does not override.\n\n"
    );
    for (size_t i = 0; i < n_keys && status == WEIR_OK; i++) {
        if (keys[i].type != WEIR_KEY_SECTION) {
            status = describe_key(&keys[i], defaults, out);
            continue;
        }
        status = comment(out, keys[i].help);
        if (status == WEIR_OK) status = weir_buffer_format(out, "[%s]\n\n", keys[i].path);
    }
    if (status == WEIR_OK) status = weir_config_describe_models(out);
    free(defaults);
    return status;
}

static weir_status print_pins(const weir_config *config, weir_buffer *out)
{
    for (size_t i = 0; i < WEIR_CONFIG_PINS && config->kernels.pin[i].op[0] != '\0'; i++)
        WEIR_TRY(weir_buffer_format(
            out, "pin.%s = \"%s\"\n", config->kernels.pin[i].op, config->kernels.pin[i].kernel
        ));
    return WEIR_OK;
}

weir_status weir_config_print(const weir_config *config, weir_buffer *out)
{
    size_t n_keys;
    const weir_key *const keys = weir_keys(&n_keys);
    for (size_t i = 0; i < n_keys; i++) {
        if (keys[i].type == WEIR_KEY_SECTION) {
            WEIR_TRY(weir_buffer_format(out, "%s[%s]\n", i > 0 ? "\n" : "", keys[i].path));
        } else if (keys[i].type == WEIR_KEY_PINS) {
            WEIR_TRY(print_pins(config, out));
        } else {
            WEIR_TRY(weir_buffer_format(out, "%s = ", last_part(keys[i].path)));
            WEIR_TRY(weir_key_value(&keys[i], config, out));
            WEIR_TRY(weir_buffer_text(out, "\n"));
        }
    }
    return weir_config_print_models(config, out);
}

/* ---- what is not the default ----------------------------------------------------------------- */

static weir_status visit_pins(
    const weir_config *config,
    weir_status (*visit)(void *user, const char *path, const char *value), void *user
)
{
    char path[64];
    for (size_t i = 0; i < WEIR_CONFIG_PINS && config->kernels.pin[i].op[0] != '\0'; i++) {
        (void)snprintf(path, sizeof path, "kernels.pin.%s", config->kernels.pin[i].op);
        WEIR_TRY(visit(user, path, config->kernels.pin[i].kernel));
    }
    return WEIR_OK;
}

weir_status weir_config_changed(
    const weir_config *config,
    weir_status (*visit)(void *user, const char *path, const char *value), void *user
)
{
    weir_buffer now = { 0 }, before = { 0 };
    size_t n;
    const weir_key *const keys = weir_keys(&n);
    weir_config *const defaults = malloc(sizeof *defaults);
    if (defaults == NULL) return WEIR_ENOMEM;
    weir_config_default(defaults);
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < n && status == WEIR_OK; i++) {
        const weir_key_type type = keys[i].type;
        if (type == WEIR_KEY_SECTION || type == WEIR_KEY_PINS || type == WEIR_KEY_SECRET) continue;
        weir_buffer_clear(&now);
        weir_buffer_clear(&before);
        status = weir_key_value(&keys[i], config, &now);
        if (status == WEIR_OK) status = weir_key_value(&keys[i], defaults, &before);
        if (status == WEIR_OK && strcmp(now.data, before.data) != 0)
            status = visit(user, keys[i].path, now.data);
    }
    weir_buffer_free(&now);
    weir_buffer_free(&before);
    free(defaults);
    return status == WEIR_OK ? visit_pins(config, visit, user) : status;
}
