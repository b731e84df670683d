#include "engine/model/coda_options.h"

#include <inttypes.h>
#include <string.h>

#define NUMBER(name, least, most, value)                                                           \
    { #name,           NULL,           WEIR_CODA_INT,   offsetof(weir_coda_options, name),         \
      (double)(least), (double)(most), (double)(value), OF_MEMORY },
#define REAL(name, least, most, value)                                                             \
    { #name,   NULL,   WEIR_CODA_REAL, offsetof(weir_coda_options, name),                          \
      (least), (most), (value),        OF_MEMORY },
#define FLAG(name, value)                                                                          \
    { #name, NULL, WEIR_CODA_FLAG, offsetof(weir_coda_options, name), 0, 1, (value), OF_MEMORY },
#define WORD(name, words, value)                                                                   \
    { #name, words, WEIR_CODA_WORD, offsetof(weir_coda_options, name), 0, 0, (value), OF_MEMORY },
const weir_coda_option weir_coda_option_table[] = {
#define OF_MEMORY false
    WEIR_DIFFERENTIAL_OPTIONS(NUMBER, REAL, FLAG, WORD)
#undef OF_MEMORY
#define OF_MEMORY true
        WEIR_MEMORY_OPTIONS(NUMBER, REAL, FLAG, WORD)
#undef OF_MEMORY
            { 0 }
};
#undef NUMBER
#undef REAL
#undef FLAG
#undef WORD

static void put(weir_coda_options *options, const weir_coda_option *option, double value)
{
    char *const at = (char *)options + option->offset;
    switch (option->kind) {
    case WEIR_CODA_INT: *(int64_t *)(void *)at = (int64_t)value; break;
    case WEIR_CODA_REAL: *(double *)(void *)at = value; break;
    case WEIR_CODA_FLAG: *(bool *)(void *)at = value != 0; break;
    case WEIR_CODA_WORD: *(int32_t *)(void *)at = (int32_t)value; break;
    }
}

double weir_coda_option_value(const weir_coda_options *options, const weir_coda_option *option)
{
    const char *const at = (const char *)options + option->offset;
    switch (option->kind) {
    case WEIR_CODA_INT: return (double)*(const int64_t *)(const void *)at;
    case WEIR_CODA_REAL: return *(const double *)(const void *)at;
    case WEIR_CODA_FLAG: return *(const bool *)(const void *)at;
    case WEIR_CODA_WORD: return *(const int32_t *)(const void *)at;
    }
    return 0;
}

weir_coda_options weir_coda_options_default(void)
{
    weir_coda_options options;
    memset(&options, 0, sizeof options);
    for (const weir_coda_option *option = weir_coda_option_table; option->name != NULL; option++)
        put(&options, option, option->value);
    return options;
}

const weir_coda_option *weir_coda_option_find(const char *name, bool has_memory)
{
    for (const weir_coda_option *option = weir_coda_option_table; option->name != NULL; option++) {
        if (strcmp(option->name, name) == 0 && (has_memory || !option->is_of_memory)) return option;
    }
    return NULL;
}

/* Index of a word in a list; -1: it is none of them. */
static int32_t find_word(const char *words, const char *word)
{
    const size_t length = strlen(word);
    for (int32_t i = 0; *words != '\0'; i++) {
        const size_t n = strcspn(words, " ");
        if (n == length && memcmp(words, word, n) == 0) return i;
        words += n + (words[n] == ' ');
    }
    return -1;
}

weir_status weir_coda_option_set(weir_coda_options *options, const weir_coda_option *option,
                                 const weir_toml_node *value, weir_error *error)
{
    int64_t integer = 0;
    double  number = 0.0;
    bool    flag = false;
    switch (option->kind) {
    case WEIR_CODA_INT:
        if (!weir_toml_int(value, &integer) || integer < (int64_t)option->least ||
            integer > (int64_t)option->most)
            return weir_error_set(error, WEIR_ECONFIG, "%s: must be an integer from %.0f to %.0f",
                                  option->name, option->least, option->most);
        number = (double)integer;
        break;
    case WEIR_CODA_REAL:
        if (!weir_toml_float(value, &number) ||
            !(number >= option->least && number <= option->most))
            return weir_error_set(error, WEIR_ECONFIG, "%s: must be a number from %g to %g",
                                  option->name, option->least, option->most);
        break;
    case WEIR_CODA_FLAG:
        if (!weir_toml_bool(value, &flag))
            return weir_error_set(error, WEIR_ECONFIG, "%s: must be true or false", option->name);
        number = flag;
        break;
    case WEIR_CODA_WORD: {
        const char *const text = weir_toml_string(value, NULL);
        const int32_t     word = text != NULL ? find_word(option->words, text) : -1;
        if (word < 0)
            return weir_error_set(error, WEIR_ECONFIG, "%s: must be one of: %s", option->name,
                                  option->words);
        number = word;
        break;
    }
    }
    put(options, option, number);
    return WEIR_OK;
}

static weir_status check_least(int64_t least, int64_t all, const char *name, weir_error *error)
{
    if (least <= all) return WEIR_OK;
    return weir_error_set(error, WEIR_ECONFIG,
                          "least_%s = %" PRId64 ": there are only landmarks_%s = %" PRId64, name,
                          least, name, all);
}

weir_status weir_coda_options_check(const weir_coda_options *options, weir_error *error)
{
    const char *const missing = options->window == 0             ? "window"
                                : options->landmarks_exact < 0   ? "landmarks_exact"
                                : options->landmarks_summary < 0 ? "landmarks_summary"
                                                                 : NULL;
    if (missing != NULL)
        return weir_error_set(error, WEIR_ECONFIG,
                              "%s is missing: how much each layer remembers has no default",
                              missing);
    WEIR_TRY(check_least(options->least_exact, options->landmarks_exact, "exact", error));
    return check_least(options->least_summary, options->landmarks_summary, "summary", error);
}
