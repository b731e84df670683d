/* engine/config/values.c - a single value: reading from TOML or text, checking against its key,
 * printing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/utf8.h"
#include "engine/config/keys.h"

typedef struct unit {
    const char *name;
    int64_t factor;
} unit;

static const unit size_units[] = {
    { "B", 1 },
    { "KiB", 1 << 10 },
    { "MiB", 1 << 20 },
    { "GiB", 1 << 30 },
    { "TiB", (int64_t)1 << 40 },
    { "kB", 1000 },
    { "MB", 1000000 },
    { "GB", 1000000000 },
    { "TB", 1000000000000 },
    /* Suffixes as in llama.cpp and docker. */
    { "k", 1 << 10 },
    { "m", 1 << 20 },
    { "g", 1 << 30 },
    { "t", (int64_t)1 << 40 },
    { "K", 1 << 10 },
    { "M", 1 << 20 },
    { "G", 1 << 30 },
    { "T", (int64_t)1 << 40 },
};
static const unit duration_units[] = {
    { "ms", 1 }, { "s", 1000 }, { "min", 60000 }, { "h", 3600000 }
};
enum {
    N_SIZE_UNITS = sizeof size_units / sizeof size_units[0],
    N_DURATION_UNITS = sizeof duration_units / sizeof duration_units[0]
};

static bool parse_quantity(
    const char *text, const unit *units, size_t n_units, const char *unknown_unit, int64_t *out,
    const char **problem
)
{
    if (*text == '-') return *problem = "must not be negative", false;
    int64_t number = 0;
    size_t n_digits = strspn(text, "0123456789");
    if (n_digits == 0) return *problem = "must be a whole number and a unit", false;
    for (size_t i = 0; i < n_digits; i++)
        if (!weir_mul_i64(&number, number, 10) || !weir_add_i64(&number, number, text[i] - '0'))
            return *problem = "is too large", false;
    const char *name = text + n_digits;
    if (*name == '.') return *problem = "must be a whole number and a unit", false;
    while (*name == ' ') name++;
    for (size_t i = 0; i < n_units; i++) {
        if (strcmp(name, units[i].name) != 0) continue;
        if (!weir_mul_i64(out, number, units[i].factor)) return *problem = "is too large", false;
        return true;
    }
    return *problem = unknown_unit, false;
}

bool weir_parse_size(const char *text, int64_t *bytes, const char **problem)
{
    return parse_quantity(
        text, size_units, N_SIZE_UNITS,
        "needs a unit: B, KiB, MiB, GiB, TiB (short: K, M, G, T), kB, MB, GB or TB", bytes, problem
    );
}

bool weir_parse_duration(const char *text, int64_t *milliseconds, const char **problem)
{
    return parse_quantity(
        text, duration_units, N_DURATION_UNITS, "needs a unit: ms, s, min or h", milliseconds,
        problem
    );
}

static void *field_of(const weir_key *key, weir_config *config)
{
    return (char *)config + key->offset;
}
static const void *field_in(const weir_key *key, const weir_config *config)
{
    return (const char *)config + key->offset;
}

/* Uses the largest unit that divides the number. */
static void format_quantity(
    char *out, size_t size, int64_t value, const unit *units, size_t n_units
)
{
    size_t best = 0;
    for (size_t i = 1; i < n_units; i++)
        if (value != 0 && value % units[i].factor == 0 && units[i].factor > units[best].factor)
            best = i;
    (void)snprintf(out, size, "%" PRId64 "%s", value / units[best].factor, units[best].name);
}

/* The shortest decimal that reads back as the same double, with a point or an exponent, because
 * TOML needs one to read a float. */
static void format_float(char *out, size_t size, double value)
{
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(out, size, "%.*g", digits, value);
        if (strtod(out, NULL) == value) break;
    }
    if (strpbrk(out, ".en") == NULL) (void)strncat(out, ".0", size - strlen(out) - 1);
}

void weir_key_limit(char out[WEIR_KEY_LIMIT], const weir_key *key, double limit)
{
    const size_t size = WEIR_KEY_LIMIT;
    if (key->type == WEIR_KEY_SIZE)
        format_quantity(out, size, (int64_t)limit, size_units, 5);
    else if (key->type == WEIR_KEY_DURATION)
        format_quantity(out, size, (int64_t)limit, duration_units, N_DURATION_UNITS);
    else if (key->type == WEIR_KEY_INT)
        (void)snprintf(out, size, "%" PRId64, (int64_t)limit);
    else
        (void)snprintf(out, size, "%.15g", limit);
}

static weir_status check_range(const weir_key *key, double value, weir_error *error)
{
    if (value >= key->min && value <= key->max) return WEIR_OK;
    char low[WEIR_KEY_LIMIT], high[WEIR_KEY_LIMIT];
    weir_key_limit(low, key, key->min);
    weir_key_limit(high, key, key->max);
    return weir_error_set(
        error, WEIR_ECONFIG, "%s must lie between %s and %s", key->path, low, high
    );
}

static weir_status set_int(
    const weir_key *key, weir_config *config, int64_t value, weir_error *error
)
{
    WEIR_TRY(check_range(key, (double)value, error));
    *(int64_t *)field_of(key, config) = value;
    return WEIR_OK;
}

static weir_status set_float(
    const weir_key *key, weir_config *config, double value, weir_error *error
)
{
    if (!isfinite(value))
        return weir_error_set(error, WEIR_ECONFIG, "%s must be a finite number", key->path);
    WEIR_TRY(check_range(key, value, error));
    *(double *)field_of(key, config) = value;
    return WEIR_OK;
}

static bool is_word_of(const char *words, const char *word)
{
    const size_t length = strlen(word);
    if (strchr(word, '|') != NULL) return false;
    for (const char *at = words; length > 0 && (at = strstr(at, word)) != NULL; at++)
        if ((at == words || at[-1] == '|') && (at[length] == '\0' || at[length] == '|'))
            return true;
    return false;
}

/* True for one allowed word, or two separated by a slash. */
static bool is_pair_of(const char *words, const char *text)
{
    const char *const slash = strchr(text, '/');
    char first[32];
    if (slash == NULL) return is_word_of(words, text);
    if ((size_t)(slash - text) >= sizeof first) return false;
    memcpy(first, text, (size_t)(slash - text));
    first[slash - text] = '\0';
    return is_word_of(words, first) && is_word_of(words, slash + 1);
}

/* Formats "a|b|c" as "a, b, c". */
static void list_words(char *out, size_t size, const char *words)
{
    size_t n = 0;
    for (; *words != '\0' && n + 3 < size; words++) {
        out[n++] = *words == '|' ? ',' : *words;
        if (*words == '|') out[n++] = ' ';
    }
    out[n] = '\0';
}

static weir_status refuse_word(const weir_key *key, const char *value, weir_error *error)
{
    char words[200];
    list_words(words, sizeof words, key->allowed);
    return weir_error_set(
        error, WEIR_ECONFIG, "%s = \"%.60s\": must be %s %s", key->path, value,
        weir_key_type_text(key->type), words
    );
}

static weir_status check_characters(
    const char *path, const char *value, size_t length, size_t capacity, weir_error *error
)
{
    if (length >= capacity)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: %zu bytes; the limit is %zu", path, length, capacity - 1
        );
    const unsigned char *const bytes = (const unsigned char *)value;
    for (size_t i = 0, n; i < length; i += n) {
        if (bytes[i] < 0x20 || bytes[i] == 0x7F)
            return weir_error_set(
                error, WEIR_ECONFIG, "%s: control character 0x%02X in the text", path, bytes[i]
            );
        n = weir_utf8_sequence(value + i, length - i);
        if (n == 0)
            return weir_error_set(
                error, WEIR_ECONFIG, "%s: byte %zu of the text is not UTF-8", path, i
            );
    }
    return WEIR_OK;
}

static weir_status set_pin(
    const weir_key *key, const char *op, weir_config *config, const char *kernel, weir_error *error
)
{
    weir_config_pin *const pins = field_of(key, config);
    const size_t length = strlen(op);
    if (length == 0 || length >= sizeof pins->op ||
        strspn(op, "abcdefghijklmnopqrstuvwxyz0123456789_") != length)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "%s.%.60s: not the name of an op; `weir bench --explain` lists them", key->path, op
        );
    const size_t kernel_length = strlen(kernel);
    if (kernel_length == 0 || kernel_length >= sizeof pins->kernel ||
        strspn(kernel, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") !=
            kernel_length)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "%s.%s: not the name of a kernel; `weir bench --explain` lists them", key->path, op
        );
    for (size_t i = 0; i < WEIR_CONFIG_PINS; i++) {
        if (pins[i].op[0] != '\0' && strcmp(pins[i].op, op) != 0) continue;
        memcpy(pins[i].op, op, length + 1);
        memcpy(pins[i].kernel, kernel, kernel_length + 1);
        return WEIR_OK;
    }
    return weir_error_set(
        error, WEIR_ECONFIG, "%s: more than %d pins", key->path, WEIR_CONFIG_PINS
    );
}

weir_status weir_config_path(char *out, size_t capacity, const char *path, weir_error *error)
{
    const bool is_home = path[0] == '~' && (path[1] == '\0' || path[1] == '/');
    const char *const home = is_home ? getenv("HOME") : "";
    if (home == NULL || (is_home && home[0] == '\0'))
        return weir_error_set(
            error, WEIR_ECONFIG, "\"%.300s\": HOME is not set; write the whole path", path
        );
    const int n = snprintf(out, capacity, "%s%s", home, is_home ? path + 1 : path);
    if (n >= 0 && (size_t)n < capacity) return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG, "\"%.300s\": the path is longer than %zu bytes", path, capacity - 1
    );
}

static weir_status set_path(
    const weir_key *key, weir_config *config, const char *value, weir_error *error
)
{
    char path[WEIR_CONFIG_TEXT];
    WEIR_TRY(check_characters(key->path, value, strlen(value), sizeof path, error));
    const weir_status status = weir_config_path(path, sizeof path, value, error);
    if (status != WEIR_OK)
        return error != NULL ? weir_error_prefix(error, status, "%s", key->path) : status;
    /* HOME may contain anything. */
    WEIR_TRY(check_characters(key->path, path, strlen(path), sizeof path, error));
    memcpy(field_of(key, config), path, strlen(path) + 1);
    return WEIR_OK;
}

/* Sets a key whose value is a string in TOML. */
static weir_status set_text(
    const weir_key *key, const char *member, weir_config *config, const char *value, size_t length,
    weir_error *error
)
{
    WEIR_TRY(check_characters(key->path, value, length, WEIR_CONFIG_TEXT, error));
    const char *problem = NULL;
    int64_t number = 0;
    switch (key->type) {
    case WEIR_KEY_SIZE:
    case WEIR_KEY_DURATION:
        if (!(key->type == WEIR_KEY_SIZE ? weir_parse_size
                                         : weir_parse_duration)(value, &number, &problem))
            return weir_error_set(
                error, WEIR_ECONFIG, "%s = \"%.60s\": %s", key->path, value, problem
            );
        return set_int(key, config, number, error);
    case WEIR_KEY_PINS: return set_pin(key, member, config, value, error);
    case WEIR_KEY_PATH: return set_path(key, config, value, error);
    case WEIR_KEY_CHOICE:
        if (!is_word_of(key->allowed, value)) return refuse_word(key, value, error);
        break;
    case WEIR_KEY_PAIR:
        if (!is_pair_of(key->allowed, value)) return refuse_word(key, value, error);
        break;
    case WEIR_KEY_TEXT:
    case WEIR_KEY_SECRET: break;
    case WEIR_KEY_INT:
    case WEIR_KEY_FLOAT:
    case WEIR_KEY_BOOL:
    case WEIR_KEY_SECTION:
        return weir_error_set(
            error, WEIR_ECONFIG, "%s must be %s, not a string", key->path,
            weir_key_type_text(key->type)
        );
    }
    memcpy(field_of(key, config), value, length + 1);
    return WEIR_OK;
}

static weir_status refuse_type(const weir_key *key, const weir_toml_node *node, weir_error *error)
{
    int64_t number = 0;
    if (key->type == WEIR_KEY_SIZE && weir_toml_int(node, &number))
        return weir_error_set(
            error, WEIR_ECONFIG, "%s = %" PRId64 ": %s", key->path, number,
            number < 0 ? "must not be negative" : "needs a unit, in quotes: \"512MiB\", \"6GiB\""
        );
    if (key->type == WEIR_KEY_DURATION && weir_toml_int(node, &number))
        return weir_error_set(
            error, WEIR_ECONFIG, "%s = %" PRId64 ": %s", key->path, number,
            number < 0 ? "must not be negative" : "needs a unit, in quotes: \"500ms\", \"30s\""
        );
    char words[200];
    list_words(words, sizeof words, key->allowed);
    return weir_error_set(
        error, WEIR_ECONFIG, "%s must be %s%s%s, not %s", key->path, weir_key_type_text(key->type),
        *words != '\0' ? " " : "", words, weir_toml_type_name(weir_toml_type_of(node))
    );
}

weir_status weir_key_assign_node(
    const weir_key *key, const char *member, weir_config *config, const weir_toml_node *node,
    weir_error *error
)
{
    int64_t number = 0;
    double real = 0;
    bool truth = false;
    size_t length = 0;
    if (key->type == WEIR_KEY_PINS && member == NULL)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s must be %s", key->path, weir_key_type_text(key->type)
        );
    const char *const text = weir_toml_string(node, &length);
    if (text != NULL) return set_text(key, member, config, text, length, error);
    if (key->type == WEIR_KEY_INT && weir_toml_int(node, &number))
        return set_int(key, config, number, error);
    if (key->type == WEIR_KEY_FLOAT && weir_toml_float(node, &real))
        return set_float(key, config, real, error);
    if (key->type == WEIR_KEY_BOOL && weir_toml_bool(node, &truth)) {
        *(bool *)field_of(key, config) = truth;
        return WEIR_OK;
    }
    return refuse_type(key, node, error);
}

weir_status weir_key_assign_text(
    const weir_key *key, const char *member, weir_config *config, const char *value,
    weir_error *error
)
{
    const bool is_text =
        key->type != WEIR_KEY_INT && key->type != WEIR_KEY_FLOAT && key->type != WEIR_KEY_BOOL;
    if (key->type == WEIR_KEY_PINS && member == NULL)
        return weir_error_set(error, WEIR_ECONFIG, "%s: name the op: %s.OP", key->path, key->path);
    if (is_text && *value != '"' && *value != '\'')
        return set_text(key, member, config, value, strlen(value), error);

    WEIR_TRY(check_characters(key->path, value, strlen(value), WEIR_CONFIG_TEXT, error));
    char document[WEIR_CONFIG_TEXT + 8];
    const int n = snprintf(document, sizeof document, "v = %s", value);
    weir_toml *toml = NULL;
    weir_status status = weir_toml_parse(&toml, document, (size_t)n, "value", NULL);
    if (status == WEIR_ENOMEM)
        return weir_error_set(error, status, "%s: no memory to read its value", key->path);
    if (status != WEIR_OK)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s = %.60s: must be %s", key->path, value,
            weir_key_type_text(key->type)
        );
    status =
        weir_key_assign_node(key, member, config, weir_toml_get(weir_toml_root(toml), "v"), error);
    weir_toml_close(toml);
    return status;
}

void weir_key_assign_default(const weir_key *key, weir_config *config)
{
    weir_status status = WEIR_OK;
    switch (key->type) {
    case WEIR_KEY_INT: status = set_int(key, config, strtoll(key->initial, NULL, 10), NULL); break;
    case WEIR_KEY_FLOAT: status = set_float(key, config, strtod(key->initial, NULL), NULL); break;
    case WEIR_KEY_BOOL: *(bool *)field_of(key, config) = strcmp(key->initial, "true") == 0; break;
    case WEIR_KEY_SIZE:
    case WEIR_KEY_DURATION:
    case WEIR_KEY_TEXT:
    case WEIR_KEY_PATH:
    case WEIR_KEY_SECRET:
    case WEIR_KEY_CHOICE:
    case WEIR_KEY_PAIR:
        status = set_text(key, NULL, config, key->initial, strlen(key->initial), NULL);
        break;
    case WEIR_KEY_PINS:
    case WEIR_KEY_SECTION: break;
    }
    WEIR_ASSERT(status == WEIR_OK);
}

weir_status weir_key_value(const weir_key *key, const weir_config *config, weir_buffer *out)
{
    char number[64];
    const void *const field = field_in(key, config);
    switch (key->type) {
    case WEIR_KEY_INT: return weir_buffer_format(out, "%" PRId64, *(const int64_t *)field);
    case WEIR_KEY_FLOAT:
        format_float(number, sizeof number, *(const double *)field);
        return weir_buffer_text(out, number);
    case WEIR_KEY_BOOL: return weir_buffer_text(out, *(const bool *)field ? "true" : "false");
    case WEIR_KEY_SIZE:
        format_quantity(number, sizeof number, *(const int64_t *)field, size_units, 5);
        break;
    case WEIR_KEY_DURATION:
        format_quantity(
            number, sizeof number, *(const int64_t *)field, duration_units, N_DURATION_UNITS
        );
        break;
    case WEIR_KEY_SECRET:
        return weir_buffer_text(out, *(const char *)field == '\0' ? "\"\"" : "\"********\"");
    case WEIR_KEY_TEXT:
    case WEIR_KEY_PATH:
    case WEIR_KEY_CHOICE:
    case WEIR_KEY_PAIR:
        WEIR_TRY(weir_buffer_text(out, "\""));
        for (const char *at = field; *at != '\0'; at++) {
            if (*at == '"' || *at == '\\') WEIR_TRY(weir_buffer_text(out, "\\"));
            WEIR_TRY(weir_buffer_add(out, at, 1));
        }
        return weir_buffer_text(out, "\"");
    case WEIR_KEY_PINS:
    case WEIR_KEY_SECTION: return WEIR_EINVAL;
    }
    return weir_buffer_format(out, "\"%s\"", number);
}
