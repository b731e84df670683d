/* engine/kv/policy/options.c - methods by name, and parsing of their options. */
#include "engine/kv/policy/policy_options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/distance.h"
#include "engine/kv/policy/policy_ops.h"

typedef enum kind { KIND_INT, KIND_REAL, KIND_BOOL, KIND_WORD, KIND_TEXT } kind;

typedef struct parameter {
    const char *name;
    kind kind;
    size_t offset;
    double least, most; /* below 2^53: a double is exact */
    const char *words, *help;
} parameter;

static const parameter parameters[] = {
#define INT(field, low, high, text)                                                                \
    { #field, KIND_INT, offsetof(weir_policy_options, field), low, high, NULL, text },
#define REAL(field, low, high, text)                                                               \
    { #field, KIND_REAL, offsetof(weir_policy_options, field), low, high, NULL, text },
#define BOOL(field, text)                                                                          \
    { #field, KIND_BOOL, offsetof(weir_policy_options, field), 0, 1, NULL, text },
#define WORD(field, list, text)                                                                    \
    { #field, KIND_WORD, offsetof(weir_policy_options, field), 0, 0, list, text },
#define TEXT(field, text)                                                                          \
    { #field, KIND_TEXT, offsetof(weir_policy_options, field), 0, 0, NULL, text },
#include "engine/kv/policy/policy_options.inc"
#undef INT
#undef REAL
#undef BOOL
#undef WORD
#undef TEXT
};
enum { N_PARAMETERS = sizeof parameters / sizeof parameters[0] };

static const weir_policy_ops *const methods[] = {
#define WEIR_POLICY(name) &policy_##name,
#include "engine/kv/policy/list.inc"
};
enum { N_METHODS = sizeof methods / sizeof methods[0] };

/* Options of every method that evicts, after its own. */
static const policy_default common[] = {
    { "sinks", "0" },       { "recent", "0" },        { "every", "128" },
    { "trigger", "slack" }, { "in_prompt", "false" }, { "pin_prompt", "false" },
    { "split", "uniform" }, { "floor", "0.2" },       { "beta", "20" },
    { "heads", "" },        { NULL, NULL },
};

/* ---- which method has what ------------------------------------------------------------------- */

static const parameter *find_parameter(const char *name, size_t length)
{
    for (size_t i = 0; i < N_PARAMETERS; i++)
        if (strlen(parameters[i].name) == length && memcmp(parameters[i].name, name, length) == 0)
            return &parameters[i];
    return NULL;
}

static const policy_default *find_default(const policy_default *list, const char *name)
{
    while (list->name != NULL && strcmp(list->name, name) != 0) list++;
    return list->name != NULL ? list : NULL;
}

/* Returns NULL if the method does not have the option. */
static const char *default_of(const weir_policy_ops *ops, const char *name)
{
    const policy_default *one = find_default(ops->defaults, name);
    if (one == NULL && (ops->score != NULL || ops->plan != NULL)) one = find_default(common, name);
    return one != NULL ? one->value : NULL;
}

static const char *nearest_option(const weir_policy_ops *ops, const char *name)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < N_PARAMETERS; i++) {
        const size_t distance = weir_edit_distance(name, parameters[i].name);
        if (default_of(ops, parameters[i].name) == NULL || distance >= least) continue;
        least = distance;
        best = parameters[i].name;
    }
    return best;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Index of the word in a list separated by blanks; -1: not found. */
static int64_t word_number(const char *words, const char *word)
{
    const size_t length = strlen(word);
    int64_t number = 0;
    for (const char *at = words; length > 0 && *at != '\0'; number++) {
        const size_t n = strcspn(at, " ");
        if (n == length && memcmp(at, word, n) == 0) return number;
        at += n + (at[n] == ' ');
    }
    return -1;
}

static void word_at(char *out, size_t size, const char *words, int64_t number)
{
    while (number-- > 0) words += strcspn(words, " ") + 1;
    (void)snprintf(out, size, "%.*s", (int)strcspn(words, " "), words);
}

static weir_status bad_value(const parameter *p, const char *value, weir_error *error)
{
    switch (p->kind) {
    case KIND_INT:
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: \"%s\" is not a whole number from %.0f to %.0f", p->name,
            value, p->least, p->most
        );
    case KIND_REAL:
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: \"%s\" is not a number from %g to %g", p->name, value,
            p->least, p->most
        );
    case KIND_BOOL:
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: \"%s\" is neither true nor false", p->name, value
        );
    case KIND_WORD:
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: \"%s\" is not one of: %s", p->name, value, p->words
        );
    case KIND_TEXT: break;
    }
    return weir_error_set(
        error, WEIR_ECONFIG, "%s: a text of %zu bytes, at most %d fit", p->name, strlen(value),
        WEIR_POLICY_TEXT - 1
    );
}

static weir_status set_number(
    weir_policy_options *options, const parameter *p, const char *value, weir_error *error
)
{
    char *end = NULL;
    errno = 0;
    const double number = strtod(value, &end);
    if (end == value || *end != '\0' || errno != 0 || !(number >= p->least && number <= p->most))
        return bad_value(p, value, error);
    if (p->kind == KIND_INT && number != floor(number)) return bad_value(p, value, error);
    void *const field = (char *)options + p->offset;
    if (p->kind == KIND_INT)
        *(int64_t *)field = (int64_t)number;
    else
        *(double *)field = number;
    return WEIR_OK;
}

static weir_status set_value(
    weir_policy_options *options, const parameter *p, const char *value, weir_error *error
)
{
    void *const field = (char *)options + p->offset;
    switch (p->kind) {
    case KIND_INT:
    case KIND_REAL: return set_number(options, p, value, error);
    case KIND_BOOL:
        if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
            return bad_value(p, value, error);
        *(bool *)field = value[0] == 't';
        return WEIR_OK;
    case KIND_WORD: {
        const int64_t number = word_number(p->words, value);
        if (number < 0) return bad_value(p, value, error);
        *(int64_t *)field = number;
        return WEIR_OK;
    }
    case KIND_TEXT: break;
    }
    if (strlen(value) >= WEIR_POLICY_TEXT) return bad_value(p, value, error);
    memset(field, 0, WEIR_POLICY_TEXT);
    memcpy(field, value, strlen(value));
    return WEIR_OK;
}

static void print_value(
    char *out, size_t size, const weir_policy_options *options, const parameter *p
)
{
    const void *const field = (const char *)options + p->offset;
    switch (p->kind) {
    case KIND_INT: (void)snprintf(out, size, "%" PRId64, *(const int64_t *)field); break;
    case KIND_REAL: (void)snprintf(out, size, "%.17g", *(const double *)field); break;
    case KIND_BOOL: (void)snprintf(out, size, "%s", *(const bool *)field ? "true" : "false"); break;
    case KIND_WORD: word_at(out, size, p->words, *(const int64_t *)field); break;
    case KIND_TEXT: (void)snprintf(out, size, "%s", (const char *)field); break;
    }
}

/* ---- public ---------------------------------------------------------------------------------- */

weir_status weir_policy_options_default(
    weir_policy_options *options, const char *name, weir_error *error
)
{
    const weir_policy_ops *best = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < N_METHODS; i++) {
        const size_t distance = weir_edit_distance(name, methods[i]->name);
        if (distance >= least) continue;
        least = distance;
        best = methods[i];
    }
    if (strcmp(name, best->name) != 0)
        return weir_error_set(
            error, WEIR_ECONFIG, "there is no KV policy \"%s\"; the nearest is %s", name, best->name
        );
    memset(options, 0, sizeof *options);
    options->ops = best;
    for (size_t i = 0; i < N_PARAMETERS; i++) {
        const char *const value = default_of(best, parameters[i].name);
        if (value != NULL) WEIR_ASSERT(set_value(options, &parameters[i], value, error) == WEIR_OK);
    }
    return WEIR_OK;
}

static weir_status set_one(
    weir_policy_options *options, const char *text, size_t length, weir_error *error
)
{
    char item[2 * WEIR_POLICY_TEXT];
    const char *const equals = memchr(text, '=', length);
    if (equals == NULL || length >= sizeof item)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s: \"%.*s\" is not NAME=VALUE", weir_policy_name(options),
            (int)(length < 80 ? length : 80), text
        );
    memcpy(item, text, length);
    item[length] = '\0';
    item[equals - text] = '\0';
    const parameter *const p = find_parameter(item, strlen(item));
    if (p == NULL || default_of(options->ops, p->name) == NULL) {
        const char *const nearest = nearest_option(options->ops, item);
        return weir_error_set(
            error, WEIR_ECONFIG, "%s has no option \"%s\"%s%s", weir_policy_name(options), item,
            nearest != NULL ? "; the nearest is " : "", nearest != NULL ? nearest : ""
        );
    }
    return set_value(options, p, item + (equals - text) + 1, error);
}

weir_status weir_policy_options_set(
    weir_policy_options *options, const char *list, weir_error *error
)
{
    weir_policy_options changed = *options;
    for (const char *at = list; *at != '\0';) {
        const size_t length = strcspn(at, ",");
        if (length > 0) WEIR_TRY(set_one(&changed, at, length, error));
        at += length + (at[length] == ',');
    }
    *options = changed;
    return WEIR_OK;
}

weir_status weir_policy_options_print(weir_buffer *out, const weir_policy_options *options)
{
    const char *separator = " ";
    WEIR_TRY(weir_buffer_text(out, options->ops->name));
    for (size_t i = 0; i < N_PARAMETERS; i++) {
        char value[WEIR_POLICY_TEXT];
        if (default_of(options->ops, parameters[i].name) == NULL) continue;
        print_value(value, sizeof value, options, &parameters[i]);
        WEIR_TRY(weir_buffer_format(out, "%s%s=%s", separator, parameters[i].name, value));
        separator = ",";
    }
    return WEIR_OK;
}

bool weir_policy_is_full(const weir_policy_options *options)
{
    return options->ops->score == NULL && options->ops->plan == NULL;
}

const char *weir_policy_name(const weir_policy_options *options) { return options->ops->name; }

const char *weir_policy_at(size_t index, const char **summary)
{
    if (index >= N_METHODS) return NULL;
    *summary = methods[index]->summary;
    return methods[index]->name;
}

const char *weir_policy_matrix_options(size_t index, bool has_calibration)
{
    const weir_policy_ops *const ops = methods[index];
    return has_calibration || default_of(ops, "calibration") == NULL ? ops->matrix_options : NULL;
}

bool weir_policy_option_at(
    const weir_policy_options *defaults, size_t index, const char **name, char *value,
    size_t value_size, const char **help
)
{
    for (size_t i = 0; i < N_PARAMETERS; i++) {
        if (default_of(defaults->ops, parameters[i].name) == NULL || index-- > 0) continue;
        *name = parameters[i].name;
        *help = parameters[i].help;
        print_value(value, value_size, defaults, &parameters[i]);
        return true;
    }
    return false;
}
