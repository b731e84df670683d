/* engine/cli/help.c - help texts from the option tables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cli/options_internal.h"
#include "engine/config/keys.h"

enum { COLUMNS = 100, INDENT = 30 };

/* Wraps `text` to lines of COLUMNS; it starts at `column`, further lines at `indent`. Newlines
 * stay. */
static weir_status wrapped(weir_buffer *out, const char *text, size_t column, size_t indent)
{
    const size_t start = column;
    while (*text != '\0') {
        const size_t word = strcspn(text, " \n");
        if (column > start && column + 1 + word > COLUMNS) {
            WEIR_TRY(weir_buffer_format(out, "\n%*s", (int)indent, ""));
            column = indent;
        } else if (column > start && column > indent) {
            WEIR_TRY(weir_buffer_text(out, " "));
            column++;
        }
        WEIR_TRY(weir_buffer_add(out, text, word));
        column += word;
        text += word;
        if (*text == '\n') {
            WEIR_TRY(weir_buffer_format(out, "\n%*s", (int)indent, ""));
            column = indent;
        }
        text += *text != '\0';
    }
    return weir_buffer_text(out, "\n");
}

/* The key's help, its words and its default. */
static weir_status key_help(weir_buffer *out, const weir_option *option)
{
    const char *member;
    const weir_key *const key = weir_key_find(option->key, &member);
    WEIR_ASSERT(key != NULL);
    WEIR_TRY(weir_buffer_text(out, option->help != NULL ? option->help : key->help));
    if (key->type == WEIR_KEY_CHOICE)
        WEIR_TRY(weir_buffer_format(out, " One of %s.", key->allowed));
    if (option->type == WEIR_OPTION_KEY && key->initial[0] != '\0')
        WEIR_TRY(weir_buffer_format(out, " Default: %s.", key->initial));
    return weir_buffer_format(out, " [%s]", option->key);
}

static weir_status option_help(weir_buffer *out, const weir_option *option)
{
    char left[80], letter[8] = "    ";
    if (option->letter != 0) (void)snprintf(letter, sizeof letter, "-%c, ", option->letter);
    const int n = snprintf(
        left, sizeof left, "  %s--%s%s%s", letter, option->name, option->value != NULL ? " " : "",
        option->value != NULL ? option->value : ""
    );
    WEIR_TRY(weir_buffer_format(out, "%-*s", INDENT, left));
    if (n >= INDENT) WEIR_TRY(weir_buffer_format(out, "\n%*s", INDENT, ""));
    if (option->key == NULL) return wrapped(out, option->help, INDENT, INDENT);
    weir_buffer help = { 0 };
    weir_status status = key_help(&help, option);
    if (status == WEIR_OK) status = wrapped(out, help.data, INDENT, INDENT);
    weir_buffer_free(&help);
    return status;
}

static weir_status group_help(weir_buffer *out, const weir_option_group *group)
{
    WEIR_TRY(weir_buffer_format(out, "\n%s:\n", group->title));
    for (size_t i = 0; i < group->n; i++) WEIR_TRY(option_help(out, &group->options[i]));
    return WEIR_OK;
}

weir_status weir_command_help(weir_buffer *out, const char *program, const weir_command *command)
{
    const char *const name = strcmp(program, command->name) == 0
                                 ? ""
                                 : command->name; /* the program `serve` has only one command */
    WEIR_TRY(weir_buffer_format(
        out, "Usage: %s%s%s %s\n\n", program, *name != '\0' ? " " : "", name, command->usage
    ));
    WEIR_TRY(wrapped(out, command->summary, 0, 0));
    if (command->details != NULL) {
        WEIR_TRY(weir_buffer_text(out, "\n"));
        WEIR_TRY(wrapped(out, command->details, 0, 0));
    }
    for (size_t g = 0; g < WEIR_OPTION_GROUPS && command->groups[g] != NULL; g++)
        WEIR_TRY(group_help(out, command->groups[g]));
    return group_help(out, &weir_common_options);
}

weir_status weir_commands_help(
    weir_buffer *out, const char *program, const char *family, const weir_command *commands,
    size_t n
)
{
    const char *const word = family != NULL ? family : "", *const space = family != NULL ? " " : "";
    const size_t length = strlen(word);
    WEIR_TRY(weir_buffer_format(
        out, "Usage: %s %s%sCOMMAND [options]\n\n%sCommands:\n", program, word, space,
        family == NULL ? "Runs large language models within a memory budget.\n\n" : ""
    ));
    for (size_t i = 0; i < n; i++) {
        if (family != NULL &&
            (strncmp(commands[i].name, word, length) != 0 || commands[i].name[length] != ' '))
            continue;
        WEIR_TRY(weir_buffer_format(out, "  %-18s", commands[i].name));
        WEIR_TRY(wrapped(out, commands[i].summary, 20, 20));
    }
    return weir_buffer_format(
        out,
        "\n`%s %s%sCOMMAND --help` lists the options of a command,\n"
        "`%s COMMAND --help-config` every key of the configuration.\n"
        "Without --model, commands use the bundled demo model.\n",
        program, word, space, program
    );
}
