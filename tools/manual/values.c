/* tools/manual/values.c - what the tables say of an option and of its value. */
#include <string.h>

#include "engine/cli/options_internal.h"
#include "engine/config/keys.h"
#include "tools/manual/manual.h"

static const weir_key *key_of(const weir_option *option)
{
    const char *member;
    return option->key != NULL ? weir_key_find(option->key, &member) : NULL;
}

weir_status weir_each_option(
    weir_buffer *out, const weir_command *command, weir_visit_option *visit
)
{
    const weir_option *option;
    for (size_t i = 0; (option = weir_option_at(command, i)) != NULL; i++)
        WEIR_TRY(visit(out, option));
    for (size_t i = 0; i < weir_common_options.n; i++)
        WEIR_TRY(visit(out, &weir_common_options.options[i]));
    return WEIR_OK;
}

weir_value_kind weir_value_kind_of(const weir_option *option)
{
    static const char *const files[] = { "FILE", "DIR", "PATH" };
    const weir_key *const key = key_of(option);
    if (option->value == NULL) return WEIR_VALUE_NONE;
    if (strcmp(option->value, "KEY=VALUE") == 0) return WEIR_VALUE_KEYS;
    if (strcmp(option->name, "config") == 0) return WEIR_VALUE_FILE;
    if (key != NULL && key->type == WEIR_KEY_PATH) return WEIR_VALUE_FILE;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(option->value, files[i]) == 0) return WEIR_VALUE_FILE;
    const bool has_words = key != NULL && key->allowed[0] != '\0' &&
                           (key->type == WEIR_KEY_CHOICE || key->type == WEIR_KEY_PAIR);
    return has_words ? WEIR_VALUE_WORDS : WEIR_VALUE_TEXT;
}

const char *weir_value_words(const weir_option *option) { return key_of(option)->allowed; }

const char *weir_option_help_text(const weir_option *option)
{
    return option->help != NULL ? option->help : key_of(option)->help;
}
