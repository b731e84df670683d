#include "engine/model/block_option.h"

#include <string.h>

static void put(void *options, const weir_block_option *option, double value)
{
    char *const at = (char *)options + option->offset;
    switch (option->type) {
    case WEIR_BLOCK_OPTION_INT: *(int64_t *)(void *)at = (int64_t)value; break;
    case WEIR_BLOCK_OPTION_REAL: *(double *)(void *)at = value; break;
    case WEIR_BLOCK_OPTION_FLAG: *(bool *)(void *)at = value != 0; break;
    case WEIR_BLOCK_OPTION_WORD: *(int32_t *)(void *)at = (int32_t)value; break;
    }
}

double weir_block_option_value(const void *options, const weir_block_option *option)
{
    const char *const at = (const char *)options + option->offset;
    switch (option->type) {
    case WEIR_BLOCK_OPTION_INT: return (double)*(const int64_t *)(const void *)at;
    case WEIR_BLOCK_OPTION_REAL: return *(const double *)(const void *)at;
    case WEIR_BLOCK_OPTION_FLAG: return *(const bool *)(const void *)at;
    case WEIR_BLOCK_OPTION_WORD: return *(const int32_t *)(const void *)at;
    }
    return 0;
}

void weir_block_options_default(void *options, const weir_block_option *table)
{
    for (; table != NULL && table->name != NULL; table++) put(options, table, table->value);
}

const weir_block_option *weir_block_option_find(const weir_block_option *table, const char *name)
{
    for (; table != NULL && table->name != NULL; table++) {
        if (strcmp(table->name, name) == 0) return table;
    }
    return NULL;
}

/* Index of a word in a list; -1: not found. */
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

/* Converts the value to the number that the options store. */
static weir_status read_value(
    double *out, const weir_block_option *option, const weir_toml_node *value, weir_error *error
)
{
    int64_t integer = 0;
    bool flag = false;
    switch (option->type) {
    case WEIR_BLOCK_OPTION_INT:
        if (!weir_toml_int(value, &integer) || integer < (int64_t)option->least ||
            integer > (int64_t)option->most)
            return weir_error_set(
                error, WEIR_ECONFIG, "%s: must be an integer from %.0f to %.0f", option->name,
                option->least, option->most
            );
        *out = (double)integer;
        break;
    case WEIR_BLOCK_OPTION_REAL:
        if (!weir_toml_float(value, out) || !(*out >= option->least && *out <= option->most))
            return weir_error_set(
                error, WEIR_ECONFIG, "%s: must be a number from %g to %g", option->name,
                option->least, option->most
            );
        break;
    case WEIR_BLOCK_OPTION_FLAG:
        if (!weir_toml_bool(value, &flag))
            return weir_error_set(error, WEIR_ECONFIG, "%s: must be true or false", option->name);
        *out = flag;
        break;
    case WEIR_BLOCK_OPTION_WORD: {
        const char *const text = weir_toml_string(value, NULL);
        const int32_t word = text != NULL ? find_word(option->words, text) : -1;
        if (word < 0)
            return weir_error_set(
                error, WEIR_ECONFIG, "%s: must be one of: %s", option->name, option->words
            );
        *out = word;
        break;
    }
    }
    return WEIR_OK;
}

weir_status weir_block_option_set(
    void *options, const weir_block_option *option, const weir_toml_node *value, weir_error *error
)
{
    double number = 0.0;
    WEIR_TRY(read_value(&number, option, value, error));
    if (options != NULL) put(options, option, number);
    return WEIR_OK;
}
