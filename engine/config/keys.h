/* engine/config/keys.h - the table of keys as data, and conversion of values from and to text.
 * Private to engine/config and its tests. */
#pragma once
#include "engine/config/config.h"
#include "engine/config/toml.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Puts the line and column of `node` before a message. */
WEIR_MUST_CHECK weir_status
weir_config_at(const weir_toml_node *node, const char *name, weir_error *error);

typedef enum weir_key_type {
    WEIR_KEY_INT,
    WEIR_KEY_FLOAT,
    WEIR_KEY_BOOL,
    WEIR_KEY_TEXT,
    WEIR_KEY_PATH,
    WEIR_KEY_SECRET,
    WEIR_KEY_SIZE,
    WEIR_KEY_DURATION,
    WEIR_KEY_CHOICE,
    WEIR_KEY_PAIR,
    WEIR_KEY_PINS,
    WEIR_KEY_SECTION
} weir_key_type;

typedef struct weir_key {
    /* A PATH is a string in which a leading "~" means $HOME. A DURATION's field has the suffix
     * _ms. */
    weir_key_type type;
    const char *path, *initial; /* "server.port", "8080"; as for --set */
    size_t offset; /* of the field, in weir_config */
    double min, max; /* in the key's unit; exact for integers: all limits are below 2^53 */
    const char *allowed; /* CHOICE and PAIR: "a|b|c"; of a PAIR one word, or two with a slash */
    const char *help;
} weir_key;

const weir_key *weir_keys(size_t *count); /* sections and keys, in the order of keys.inc */
/* Returns NULL if the key is unknown. For a PINS key, *member is the rest of the path
 * ("kernels.pin.matmul" -> "matmul"), else NULL. */
const weir_key *weir_key_find(const char *path, const char **member);
bool weir_key_is_section(const char *path); /* also true for a prefix: "kv" of "kv.policy" */
const char *weir_key_nearest(const char *path); /* by edit distance; never NULL */
const char *weir_key_type_text(weir_key_type type);

/* The environment variable of a key: "WEIR_SERVER_PORT". */
enum { WEIR_KEY_VARIABLE = 64 };
void weir_key_variable(char out[WEIR_KEY_VARIABLE], const char *path);

/* Sets a value from a TOML node or from text (quotes optional). Error messages begin with the
 * key. */
WEIR_MUST_CHECK weir_status weir_key_assign_node(
    const weir_key *key, const char *member, weir_config *config, const weir_toml_node *node,
    weir_error *error
);
WEIR_MUST_CHECK weir_status weir_key_assign_text(
    const weir_key *key, const char *member, weir_config *config, const char *value,
    weir_error *error
);
/* Sets the key's default. Allocates nothing. */
void weir_key_assign_default(const weir_key *key, weir_config *config);
/* Formats the value as TOML: 8080, "6GiB", "f16". Not for sections and PINS. */
WEIR_MUST_CHECK weir_status
weir_key_value(const weir_key *key, const weir_config *config, weir_buffer *out);

/* Formats key->min or key->max with the key's unit. */
enum { WEIR_KEY_LIMIT = 40 };
void weir_key_limit(char out[WEIR_KEY_LIMIT], const weir_key *key, double limit);

/* [[models]]: reads the array, with positions in messages; checks the relations between its entries
 * and other keys; prints it; prints its keys as comments. */
WEIR_MUST_CHECK weir_status weir_config_read_models(
    weir_config *config, const weir_toml_node *list, const char *name, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_config_check_models(const weir_config *config, weir_error *error);
WEIR_MUST_CHECK weir_status weir_config_print_models(const weir_config *config, weir_buffer *out);
WEIR_MUST_CHECK weir_status weir_config_describe_models(weir_buffer *out);

/* "6GiB" or "6G" to bytes, "500ms" to milliseconds. On failure returns false; *problem says why. */
bool weir_parse_size(const char *text, int64_t *bytes, const char **problem);
bool weir_parse_duration(const char *text, int64_t *milliseconds, const char **problem);

#ifdef __cplusplus
}
#endif
