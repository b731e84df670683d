/* engine/cli/options.c - parses argv to a checked configuration and a command's own values. */
#include "engine/cli/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/cli/options_internal.h"
#include "engine/config/distance.h"

static const weir_option common[] = {
    { .name = "config",
      .value = "NAME",
      .type = WEIR_OPTION_TEXT,
      .help = "Configuration file: a path, or the name of one in configs/, with or without "
              "\".toml\"." },
    { .name = "set",
      .value = "KEY=VALUE",
      .type = WEIR_OPTION_TEXT,
      .help = "Sets any key of the configuration; may be repeated. WEIR_SERVER_PORT=8081 in the "
              "environment does the same for server.port, and so for each key." },
    { .name = "quiet", .type = WEIR_OPTION_FLAG, .help = "Shows no progress on stderr." },
    { .name = "help-config",
      .type = WEIR_OPTION_FLAG,
      .help = "Lists every key with its meaning and default, and exits." },
    { .name = "print-config",
      .type = WEIR_OPTION_FLAG,
      .help = "Prints the configuration that results, and exits." },
    { .name = "version", .type = WEIR_OPTION_FLAG, .help = "Prints the version and exits." },
    { .name = "help",
      .letter = 'h',
      .type = WEIR_OPTION_FLAG,
      .help = "Prints this text and exits." },
};
const weir_option_group weir_common_options = { "General", common,
                                                sizeof common / sizeof common[0] };

const weir_option *weir_option_at(const weir_command *command, size_t index)
{
    for (size_t g = 0; g < WEIR_OPTION_GROUPS && command->groups[g] != NULL; g++) {
        if (index < command->groups[g]->n) return &command->groups[g]->options[index];
        index -= command->groups[g]->n;
    }
    return NULL;
}

/* ---- one argument ---------------------------------------------------------------------------- */

/* "--name", "--name=value" or "-x", split. */
typedef struct argument {
    const weir_option *option;
    size_t index; /* in the command's own options; WEIR_OPTIONS for common ones */
    const char *value; /* NULL: none yet */
} argument;

static bool is_called(const weir_option *option, const char *text, size_t length)
{
    if (text[1] != '-') return length == 2 && option->letter != 0 && text[1] == option->letter;
    return strlen(option->name) == length - 2 && strncmp(option->name, text + 2, length - 2) == 0;
}

static const char *nearest_option(const weir_command *command, const char *name)
{
    const char *nearest = common[0].name;
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < weir_common_options.n; i++) {
        const size_t distance = weir_edit_distance(name, common[i].name);
        if (distance < best) best = distance, nearest = common[i].name;
    }
    const weir_option *option;
    for (size_t i = 0; (option = weir_option_at(command, i)) != NULL; i++) {
        const size_t distance = weir_edit_distance(name, option->name);
        if (distance < best) best = distance, nearest = option->name;
    }
    return nearest;
}

static weir_status find_option(
    argument *out, const weir_command *command, const char *text, weir_error *error
)
{
    const char *const equals = strchr(text, '=');
    const size_t length = equals != NULL ? (size_t)(equals - text) : strlen(text);
    *out = (argument){ .index = WEIR_OPTIONS, .value = equals != NULL ? equals + 1 : NULL };
    for (size_t i = 0; i < weir_common_options.n; i++)
        if (is_called(&common[i], text, length)) out->option = &common[i];
    const weir_option *option;
    for (size_t i = 0; out->option == NULL && (option = weir_option_at(command, i)) != NULL; i++)
        if (is_called(option, text, length)) *out = (argument){ option, i, out->value };
    if (out->option != NULL) return WEIR_OK;
    const size_t dashes = text[1] == '-' ? 2 : 1;
    char name[80];
    const size_t n = length - dashes < sizeof name ? length - dashes : sizeof name - 1;
    memcpy(name, text + dashes, n);
    name[n] = '\0';
    return weir_error_set(
        error, WEIR_ECONFIG, "unknown option \"%.*s%s\"; the nearest is \"--%s\"", (int)dashes,
        text, name, nearest_option(command, name)
    );
}

/* Uses the next argument as the value where one is needed. A value that begins with "--" must be
 * written --name=VALUE. */
static weir_status complete(
    argument *a, int argc, const char *const *argv, int *at, weir_error *error
)
{
    if (a->option->value == NULL) {
        if (a->value != NULL)
            return weir_error_set(error, WEIR_ECONFIG, "--%s takes no value", a->option->name);
        a->value = "";
        return WEIR_OK;
    }
    if (a->value != NULL) return WEIR_OK;
    if (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0)
        return weir_error_set(
            error, WEIR_ECONFIG, "--%s needs a value: --%s %s", a->option->name, a->option->name,
            a->option->value
        );
    a->value = argv[++*at];
    return WEIR_OK;
}

static bool parse_int(const char *text, char stop, int64_t *out, const char **end)
{
    char *after;
    errno = 0;
    if ((*text < '0' || *text > '9') && *text != '-') return false;
    const long long number = strtoll(text, &after, 10);
    if (after == text || errno != 0 || (*after != '\0' && *after != stop)) return false;
    *out = number;
    *end = after;
    return true;
}

/* Parses at most `capacity` integers separated by commas. Returns 0 on any error. */
static size_t parse_numbers(
    const weir_option *option, const char *text, int64_t *out, size_t capacity
)
{
    for (size_t n = 0; n < capacity; text++) {
        if (!parse_int(text, capacity == 1 ? '\0' : ',', &out[n], &text) || out[n] < option->min ||
            out[n] > option->max)
            return 0;
        n++;
        if (*text == '\0') return n;
    }
    return 0;
}

static weir_status check_value(const weir_option *option, const char *value, weir_error *error)
{
    int64_t numbers[WEIR_OPTION_NUMBERS];
    if (option->type == WEIR_OPTION_INT && parse_numbers(option, value, numbers, 1) == 0)
        return weir_error_set(
            error, WEIR_ECONFIG, "--%s %.60s: must be an integer between %" PRId64 " and %" PRId64,
            option->name, value, option->min, option->max
        );
    if (option->type == WEIR_OPTION_LIST &&
        parse_numbers(option, value, numbers, WEIR_OPTION_NUMBERS) == 0)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "--%s %.60s: must be 1 to %d integers between %" PRId64 " and %" PRId64
            ", separated by commas",
            option->name, value, WEIR_OPTION_NUMBERS, option->min, option->max
        );
    return WEIR_OK;
}

/* ---- the whole line, in two passes: --config and what is asked for first, then keys in order - */

static weir_status set_key(weir_config *config, const argument *a, weir_error *error)
{
    weir_status status = WEIR_OK;
    if (a->option->type == WEIR_OPTION_KEY)
        status = weir_config_set(config, a->option->key, a->value, error);
    else if (a->option->type == WEIR_OPTION_KEY_TRUE)
        status = weir_config_set(config, a->option->key, "true", error);
    else if (a->index == WEIR_OPTIONS && strcmp(a->option->name, "set") == 0)
        status = weir_config_assign(config, a->value, error);
    return status == WEIR_OK ? WEIR_OK : weir_error_prefix(error, status, "--%s", a->option->name);
}

/* Paths of files and folders may begin with "~", as those of the configuration may. */
static weir_status expand(
    weir_arguments *out, const weir_option *option, const char **value, weir_error *error
)
{
    char *const start = out->paths + out->n_paths;
    const size_t capacity = sizeof out->paths - out->n_paths;
    const bool is_path = option->type == WEIR_OPTION_TEXT &&
                         (strcmp(option->value, "FILE") == 0 || strcmp(option->value, "DIR") == 0 ||
                          strcmp(option->name, "config") == 0);
    if (!is_path || (*value)[0] != '~') return WEIR_OK;
    const weir_status status = weir_config_path(start, capacity, *value, error);
    if (status != WEIR_OK) return weir_error_prefix(error, status, "--%s", option->name);
    *value = start;
    out->n_paths += strlen(start) + 1;
    return WEIR_OK;
}

static weir_status note(
    weir_arguments *out, const char **config_name, const argument *a, weir_error *error
)
{
    const char *const name = a->option->name;
    if (a->option->type == WEIR_OPTION_KEY || a->option->type == WEIR_OPTION_KEY_TRUE)
        return WEIR_OK;
    if (a->index < WEIR_OPTIONS || strcmp(name, "config") == 0) {
        const char **const place = a->index < WEIR_OPTIONS ? &out->values[a->index] : config_name;
        if (*place != NULL) return weir_error_set(error, WEIR_ECONFIG, "--%s is given twice", name);
        *place = a->value;
        WEIR_TRY(expand(out, a->option, place, error));
        return check_value(a->option, a->value, error);
    }
    if (strcmp(name, "quiet") == 0)
        out->is_quiet = true;
    else if (strcmp(name, "help") == 0)
        out->action = WEIR_ACTION_HELP;
    else if (out->action == WEIR_ACTION_HELP || strcmp(name, "set") == 0)
        return WEIR_OK;
    else if (strcmp(name, "version") == 0)
        out->action = WEIR_ACTION_VERSION;
    else if (strcmp(name, "help-config") == 0)
        out->action = WEIR_ACTION_HELP_CONFIG;
    else
        out->action = WEIR_ACTION_PRINT_CONFIG;
    return WEIR_OK;
}

/* The message names the option that the value may belong to. */
static weir_status stray(const weir_command *command, const char *text, weir_error *error)
{
    return weir_error_set(
        error, WEIR_ECONFIG, "unexpected argument \"%.100s\"; usage: %s %s", text, command->name,
        command->usage
    );
}

/* Where a bare word sets it, the usage shows how. */
static weir_status missing(
    const weir_command *command, const weir_option *option, weir_error *error
)
{
    for (size_t n = 0; n < 2 && command->words[n] != NULL; n++)
        if (strcmp(command->words[n], option->name) == 0)
            return weir_error_set(
                error, WEIR_ECONFIG, "%s is missing; usage: %s %s", option->value, command->name,
                command->usage
            );
    return weir_error_set(error, WEIR_ECONFIG, "--%s %s is needed", option->name, option->value);
}

/* A word without an option is the value of the command's next `words` option. */
static weir_status take_word(weir_arguments *out, const char *word, weir_error *error)
{
    const char *const *const names = out->command->words;
    if (names[0] == NULL) return stray(out->command, word, error);
    for (size_t n = 0; n < 2 && names[n] != NULL; n++) {
        size_t i = 0;
        while (strcmp(weir_option_at(out->command, i)->name, names[n]) != 0) i++;
        if (out->values[i] != NULL) continue;
        out->values[i] = word;
        return WEIR_OK;
    }
    return weir_error_set(
        error, WEIR_ECONFIG,
        "unexpected argument \"%.100s\": the %s is already given; quote values with blanks", word,
        names[1] != NULL ? names[1] : names[0]
    );
}

/* Visits each argument in order: keys == false stores own values and actions, true sets keys. */
static weir_status walk(
    weir_arguments *out, const char **config_name, bool keys, int argc, const char *const *argv,
    weir_error *error
)
{
    bool only_words = false;
    for (int at = 0; at < argc; at++) {
        const bool is_end = !only_words && strcmp(argv[at], "--") == 0;
        only_words = only_words || is_end;
        if (is_end) continue;
        if (only_words || argv[at][0] != '-' || argv[at][1] == '\0') {
            if (!keys) WEIR_TRY(take_word(out, argv[at], error));
            continue;
        }
        argument a;
        WEIR_TRY(find_option(&a, out->command, argv[at], error));
        WEIR_TRY(complete(&a, argc, argv, &at, error));
        WEIR_TRY(keys ? set_key(&out->config, &a, error) : note(out, config_name, &a, error));
    }
    return WEIR_OK;
}

weir_status weir_arguments_parse(
    weir_arguments *out, const weir_command *command, const weir_config_search *search, int argc,
    const char *const *argv, weir_error *error
)
{
    weir_error own; /* the prefix is added to the callee's message */
    if (error == NULL) error = &own;
    WEIR_ASSERT(weir_option_at(command, WEIR_OPTIONS) == NULL);
    *out = (weir_arguments){ .command = command };
    weir_config_default(&out->config);
    const char *config_name = NULL;
    WEIR_TRY(walk(out, &config_name, false, argc, argv, error));
    if (out->action != WEIR_ACTION_RUN && out->action != WEIR_ACTION_PRINT_CONFIG) return WEIR_OK;
    if (config_name != NULL) {
        const weir_status status = weir_config_load(&out->config, config_name, search, error);
        if (status != WEIR_OK) return weir_error_prefix(error, WEIR_ECONFIG, "--config");
    }
    WEIR_TRY(weir_config_environment(&out->config, (const char *const *)environ, error));
    WEIR_TRY(walk(out, &config_name, true, argc, argv, error));
    WEIR_TRY(weir_config_check(&out->config, error));
    const weir_option *option;
    for (size_t i = 0;
         out->action == WEIR_ACTION_RUN && (option = weir_option_at(command, i)) != NULL; i++)
        if (option->required && out->values[i] == NULL) return missing(command, option, error);
    return WEIR_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

static size_t index_of(const weir_arguments *arguments, const char *name)
{
    size_t i = 0;
    const weir_option *option;
    while ((option = weir_option_at(arguments->command, i)) != NULL &&
           strcmp(option->name, name) != 0)
        i++;
    WEIR_ASSERT(option != NULL);
    return i;
}

const char *weir_argument(const weir_arguments *arguments, const char *name)
{
    return arguments->values[index_of(arguments, name)];
}

bool weir_argument_given(const weir_arguments *arguments, const char *name)
{
    return weir_argument(arguments, name) != NULL;
}

int64_t weir_argument_int(const weir_arguments *arguments, const char *name, int64_t otherwise)
{
    const size_t index = index_of(arguments, name);
    int64_t number;
    if (arguments->values[index] == NULL) return otherwise;
    return parse_numbers(
               weir_option_at(arguments->command, index), arguments->values[index], &number, 1
           ) == 1
               ? number
               : otherwise;
}

size_t weir_argument_numbers(
    const weir_arguments *arguments, const char *name, int64_t out[WEIR_OPTION_NUMBERS]
)
{
    const size_t index = index_of(arguments, name);
    if (arguments->values[index] == NULL) return 0;
    return parse_numbers(
        weir_option_at(arguments->command, index), arguments->values[index], out,
        WEIR_OPTION_NUMBERS
    );
}
