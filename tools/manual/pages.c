/* tools/manual/pages.c - manual pages in roff, with the macros of man(7). */
#include <ctype.h>
#include <string.h>

#include "engine/cli/options_internal.h"
#include "engine/config/keys.h"
#include "tools/manual/manual.h"

/* Text that roff prints as it is: no escapes, no requests, dashes that can be copied. */
static weir_status plain_part(weir_buffer *out, const char *text, size_t n)
{
    bool at_start = true;
    for (const char *const end = text + n; text < end; text++) {
        if (at_start && (*text == '.' || *text == '\'')) WEIR_TRY(weir_buffer_text(out, "\\&"));
        at_start = *text == '\n';
        switch (*text) {
        case '\\': WEIR_TRY(weir_buffer_text(out, "\\e")); break;
        case '-': WEIR_TRY(weir_buffer_text(out, "\\-")); break;
        case '~': WEIR_TRY(weir_buffer_text(out, "\\(ti")); break;
        case '^': WEIR_TRY(weir_buffer_text(out, "\\(ha")); break;
        case '`': WEIR_TRY(weir_buffer_text(out, "\\(ga")); break;
        case '\'': WEIR_TRY(weir_buffer_text(out, "\\(aq")); break;
        default: WEIR_TRY(weir_buffer_add(out, text, 1)); break;
        }
    }
    return WEIR_OK;
}

static weir_status plain(weir_buffer *out, const char *text)
{
    return plain_part(out, text, strlen(text));
}

static weir_status in_font(weir_buffer *out, char font, const char *text)
{
    WEIR_TRY(weir_buffer_format(out, "\\f%c", font));
    WEIR_TRY(plain(out, text));
    return weir_buffer_text(out, "\\fR");
}

static weir_status paragraph(weir_buffer *out, const char *text)
{
    WEIR_TRY(plain(out, text));
    return weir_buffer_text(out, "\n");
}

/* "eval retrieval" is weir-eval-retrieval(1); the title of a page is in capitals. */
static weir_status page_name(weir_buffer *out, const char *command, bool capitals)
{
    WEIR_TRY(weir_buffer_text(out, capitals ? "WEIR\\-" : "weir\\-"));
    for (const char *c = command; *c != '\0'; c++) {
        const char letter = capitals ? (char)toupper((unsigned char)*c) : *c;
        WEIR_TRY(
            *c == ' ' || *c == '-' ? weir_buffer_text(out, "\\-") : weir_buffer_add(out, &letter, 1)
        );
    }
    return WEIR_OK;
}

static weir_status end_of_title(weir_buffer *out, int section, const weir_manual *manual)
{
    return weir_buffer_format(
        out, " %d \"\" \"Weir %s\" \"Weir\"\n.SH NAME\n", section, manual->version
    );
}

/* One sentence without its stop, as apropos(1) lists it. */
static weir_status in_short(weir_buffer *out, const char *summary)
{
    const char *const stop = strstr(summary, ". ");
    size_t n = stop != NULL ? (size_t)(stop - summary) : strlen(summary);
    if (n > 0 && summary[n - 1] == '.') n--;
    WEIR_TRY(plain_part(out, summary, n));
    return weir_buffer_text(out, "\n");
}

/* ---- options --------------------------------------------------------------------------------- */

static weir_status key_facts(weir_buffer *out, const weir_option *option)
{
    const char *member;
    const weir_key *const key = weir_key_find(option->key, &member);
    if (key->type == WEIR_KEY_CHOICE) {
        WEIR_TRY(weir_buffer_text(out, "One of "));
        WEIR_TRY(plain(out, key->allowed));
        WEIR_TRY(weir_buffer_text(out, ".\n"));
    }
    if (option->type == WEIR_OPTION_KEY && key->initial[0] != '\0') {
        WEIR_TRY(weir_buffer_text(out, "Default: "));
        WEIR_TRY(plain(out, key->initial));
        WEIR_TRY(weir_buffer_text(out, ".\n"));
    }
    WEIR_TRY(weir_buffer_text(out, "Key: "));
    WEIR_TRY(in_font(out, 'B', option->key));
    return weir_buffer_text(out, ".\n");
}

static weir_status option_entry(weir_buffer *out, const weir_option *option)
{
    WEIR_TRY(weir_buffer_text(out, ".TP\n"));
    if (option->letter != 0) WEIR_TRY(weir_buffer_format(out, "\\fB\\-%c\\fR, ", option->letter));
    WEIR_TRY(weir_buffer_text(out, "\\fB\\-\\-"));
    WEIR_TRY(plain(out, option->name));
    WEIR_TRY(weir_buffer_text(out, "\\fR"));
    if (option->value != NULL) {
        WEIR_TRY(weir_buffer_text(out, " "));
        WEIR_TRY(in_font(out, 'I', option->value));
    }
    WEIR_TRY(weir_buffer_text(out, "\n"));
    WEIR_TRY(paragraph(out, weir_option_help_text(option)));
    return option->key != NULL ? key_facts(out, option) : WEIR_OK;
}

static weir_status group_entries(weir_buffer *out, const weir_option_group *group)
{
    WEIR_TRY(weir_buffer_format(out, ".SS \"%s\"\n", group->title));
    for (size_t i = 0; i < group->n; i++) WEIR_TRY(option_entry(out, &group->options[i]));
    return WEIR_OK;
}

static const char exit_codes[] = ".SH \"EXIT STATUS\"\n"
                                 ".TP\n.B 0\nDone.\n"
                                 ".TP\n.B 1\nThe run or the model failed.\n"
                                 ".TP\n.B 2\nThe usage or the configuration is wrong.\n"
                                 ".TP\n.B 3\nThe memory plan does not fit the limit.\n"
                                 ".TP\n.B 130\nCtrl\\-C.\n";

weir_status weir_page_of_command(
    weir_buffer *out, const weir_manual *manual, const weir_command *command
)
{
    WEIR_TRY(weir_buffer_text(out, ".TH "));
    WEIR_TRY(page_name(out, command->name, true));
    WEIR_TRY(end_of_title(out, 1, manual));
    WEIR_TRY(page_name(out, command->name, false));
    WEIR_TRY(weir_buffer_text(out, " \\- "));
    WEIR_TRY(in_short(out, command->summary));
    WEIR_TRY(weir_buffer_format(out, ".SH SYNOPSIS\n\\fBweir %s\\fR ", command->name));
    WEIR_TRY(paragraph(out, command->usage));
    WEIR_TRY(weir_buffer_text(out, ".SH DESCRIPTION\n"));
    WEIR_TRY(paragraph(out, command->summary));
    if (command->details != NULL) {
        WEIR_TRY(weir_buffer_text(out, ".PP\n"));
        WEIR_TRY(paragraph(out, command->details));
    }
    WEIR_TRY(weir_buffer_text(out, ".SH OPTIONS\n"));
    for (size_t g = 0; g < WEIR_OPTION_GROUPS && command->groups[g] != NULL; g++)
        WEIR_TRY(group_entries(out, command->groups[g]));
    WEIR_TRY(group_entries(out, &weir_common_options));
    WEIR_TRY(weir_buffer_text(out, exit_codes));
    return weir_buffer_text(out, ".SH \"SEE ALSO\"\n.BR weir (1),\n.BR weir.toml (5)\n");
}

/* ---- the program, the configuration ---------------------------------------------------------- */

weir_status weir_page_of_program(weir_buffer *out, const weir_manual *manual)
{
    WEIR_TRY(weir_buffer_text(out, ".TH WEIR"));
    WEIR_TRY(end_of_title(out, 1, manual));
    WEIR_TRY(weir_buffer_text(
        out, "weir \\- Runs large language models within a memory budget\n"
             ".SH SYNOPSIS\n\\fBweir\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n"
             ".SH DESCRIPTION\n"
             "Each command has a page of its own, and \\fB\\-\\-help\\fR.\n"
             "Without \\fB\\-\\-model\\fR, commands use the bundled demo model.\n"
             "The program \\fBserve\\fR, where it is installed, is \\fBweir serve\\fR.\n"
             ".SH COMMANDS\n"
    ));
    for (size_t i = 0; i < manual->n; i++) {
        WEIR_TRY(weir_buffer_text(out, ".TP\n.BR "));
        WEIR_TRY(page_name(out, manual->commands[i].name, false));
        WEIR_TRY(weir_buffer_text(out, " (1)\n"));
        WEIR_TRY(paragraph(out, manual->commands[i].summary));
    }
    WEIR_TRY(weir_buffer_text(out, exit_codes));
    return weir_buffer_text(out, ".SH \"SEE ALSO\"\n.BR weir.toml (5)\n");
}

static weir_status key_entry(weir_buffer *out, const weir_key *key)
{
    WEIR_TRY(weir_buffer_text(out, ".TP\n"));
    WEIR_TRY(in_font(out, 'B', key->path));
    if (key->type == WEIR_KEY_PINS) WEIR_TRY(weir_buffer_text(out, ".\\fIOP\\fR"));
    WEIR_TRY(weir_buffer_text(out, "\n"));
    WEIR_TRY(paragraph(out, key->help));
    if (key->type == WEIR_KEY_CHOICE || key->type == WEIR_KEY_PAIR) {
        WEIR_TRY(weir_buffer_text(
            out, key->type == WEIR_KEY_PAIR ? "One, or two with a slash, of " : "One of "
        ));
        for (const char *word = key->allowed; *word != '\0';) {
            const size_t n = strcspn(word, "|");
            WEIR_TRY(plain_part(out, word, n));
            word += n + (word[n] != '\0');
            WEIR_TRY(weir_buffer_text(out, *word != '\0' ? ", " : ".\n"));
        }
    } else if (key->type == WEIR_KEY_INT || key->type == WEIR_KEY_FLOAT) {
        char low[WEIR_KEY_LIMIT], high[WEIR_KEY_LIMIT];
        weir_key_limit(low, key, key->min);
        weir_key_limit(high, key, key->max);
        WEIR_TRY(weir_buffer_text(out, key->type == WEIR_KEY_INT ? "Integer, " : "Number, "));
        WEIR_TRY(plain(out, low));
        WEIR_TRY(weir_buffer_text(out, " to "));
        WEIR_TRY(plain(out, high));
        WEIR_TRY(weir_buffer_text(out, ".\n"));
    }
    if (key->initial[0] == '\0') return WEIR_OK;
    WEIR_TRY(weir_buffer_text(out, "Default: "));
    WEIR_TRY(plain(out, key->initial));
    return weir_buffer_text(out, ".\n");
}

weir_status weir_page_of_keys(weir_buffer *out, const weir_manual *manual)
{
    size_t n;
    const weir_key *const keys = weir_keys(&n);
    WEIR_TRY(weir_buffer_text(out, ".TH WEIR.TOML"));
    WEIR_TRY(end_of_title(out, 5, manual));
    WEIR_TRY(weir_buffer_text(
        out, "weir.toml \\- Configuration of Weir\n"
             ".SH DESCRIPTION\n"
             "A file in TOML, named by \\fB\\-\\-config\\fR; any name will do.\n"
             "\\fBserver.port\\fR is \\fBport\\fR in the table \\fB[server]\\fR.\n"
             "Sizes are strings with a unit (\"512MiB\"), durations too (\"30s\").\n"
             "Any key can be given on the command line: \\fB\\-\\-set server.port=8081\\fR.\n"
             ".SH KEYS\n"
    ));
    for (size_t i = 0; i < n; i++) {
        if (keys[i].type != WEIR_KEY_SECTION) {
            WEIR_TRY(key_entry(out, &keys[i]));
            continue;
        }
        WEIR_TRY(weir_buffer_format(out, ".SS [%s]\n", keys[i].path));
        WEIR_TRY(paragraph(out, keys[i].help));
    }
    return weir_buffer_text(out, ".SH \"SEE ALSO\"\n.BR weir (1),\n.BR weir\\-serve (1)\n");
}
