/* tools/manual/completions.c - what bash, zsh and fish offer after `weir`: commands, the options of
 * each, words and files as values, keys after --set. */
#include <string.h>

#include "engine/config/keys.h"
#include "tools/manual/manual.h"

/* In single quotes: bash and zsh end them for a quote, fish escapes it; `also` lists characters
 * that get a backslash, too. */
static weir_status quoted(weir_buffer *out, const char *text, const char *also, const char *quote)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            WEIR_TRY(weir_buffer_text(out, quote));
            continue;
        }
        if (strchr(also, *text) != NULL) WEIR_TRY(weir_buffer_text(out, "\\"));
        WEIR_TRY(weir_buffer_add(out, *text == '\n' ? " " : text, 1));
    }
    return WEIR_OK;
}
static const char posix_quote[] = "'\\''";

/* The first sentence of a text, without its stop. */
static weir_status sentence(weir_buffer *out, const char *text, const char *also, const char *quote)
{
    char first[160];
    const char *const stop = strstr(text, ". ");
    size_t n = stop != NULL ? (size_t)(stop - text) : strlen(text);
    if (n > 0 && text[n - 1] == '.') n--;
    if (n >= sizeof first) n = sizeof first - 1;
    memcpy(first, text, n);
    first[n] = '\0';
    return quoted(out, first, also, quote);
}

/* "a|b" as "a b". */
static weir_status words(weir_buffer *out, const char *list)
{
    for (; *list != '\0'; list++) WEIR_TRY(weir_buffer_add(out, *list == '|' ? " " : list, 1));
    return WEIR_OK;
}

static size_t first_word(const char *name) { return strcspn(name, " "); }

/* Whether this is the first command whose name begins with its first word. */
static bool is_new_word(const weir_manual *manual, size_t i)
{
    const char *const name = manual->commands[i].name;
    const size_t n = first_word(name);
    for (size_t j = 0; j < i; j++)
        if (first_word(manual->commands[j].name) == n &&
            strncmp(manual->commands[j].name, name, n) == 0)
            return false;
    return true;
}

static weir_status key_names(weir_buffer *out, const char *before)
{
    size_t n;
    const weir_key *const keys = weir_keys(&n);
    for (size_t i = 0; i < n; i++)
        if (keys[i].type != WEIR_KEY_SECTION)
            WEIR_TRY(weir_buffer_format(
                out, "%s%s%s", before, keys[i].path, keys[i].type == WEIR_KEY_PINS ? "." : "="
            ));
    return WEIR_OK;
}

/* ---- bash ------------------------------------------------------------------------------------ */

static weir_status bash_option(weir_buffer *out, const weir_option *option)
{
    return weir_buffer_format(out, " --%s", option->name);
}

/* A branch of `case "$option" in` for words; files are offered for those of `files`. */
static weir_status bash_value(weir_buffer *out, const weir_option *option)
{
    switch (weir_value_kind_of(option)) {
    case WEIR_VALUE_FILE:
        return weir_buffer_format(out, "        --%s) kind=file ;;\n", option->name);
    case WEIR_VALUE_TEXT:
        return weir_buffer_format(out, "        --%s) kind=text ;;\n", option->name);
    case WEIR_VALUE_KEYS:
        return weir_buffer_format(out, "        --%s) kind=keys ;;\n", option->name);
    case WEIR_VALUE_WORDS:
        WEIR_TRY(weir_buffer_format(out, "        --%s) kind=words words='", option->name));
        WEIR_TRY(words(out, weir_value_words(option)));
        return weir_buffer_text(out, "' ;;\n");
    case WEIR_VALUE_NONE: break;
    }
    return WEIR_OK;
}

static const char bash_start[] =
    "# bash completion of weir\n\n"
    "_weir()\n{\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local command=${COMP_WORDS[1]} kind= words= options=\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" -gt 2 ]; then\n"
    "        case \"$command ${COMP_WORDS[2]}\" in\n";

static const char bash_middle[] =
    "    # `--name=value` is three words.\n"
    "    if [ \"$option\" = '=' ]; then option=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
    "    if [ \"$current\" = '=' ]; then current=; fi\n"
    "    case $command in\n";

static const char bash_end[] =
    "    esac\n"
    "    case $kind in\n"
    "    file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "
    "\"$current\") ;;\n"
    "    keys) compopt -o nospace 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$(_weir_keys)\" -- \"$current\") ;;\n"
    "    words) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\") ;;\n"
    "    text) ;;\n"
    "    *) mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\") ;;\n"
    "    esac\n"
    "}\n"
    "complete -o default -F _weir weir\n";

weir_status weir_complete_bash(weir_buffer *out, const weir_manual *manual)
{
    const weir_command *const commands = manual->commands;
    WEIR_TRY(weir_buffer_text(out, bash_start));
    for (size_t i = 0; i < manual->n; i++)
        if (strchr(commands[i].name, ' ') != NULL)
            WEIR_TRY(weir_buffer_format(
                out, "        '%s') command='%s' ;;\n", commands[i].name, commands[i].name
            ));
    WEIR_TRY(weir_buffer_text(
        out, "        esac\n    fi\n    if [ \"$COMP_CWORD\" = 1 ]; then\n"
             "        command= options='--help --version"
    ));
    for (size_t i = 0; i < manual->n; i++)
        if (is_new_word(manual, i))
            WEIR_TRY(weir_buffer_format(
                out, " %.*s", (int)first_word(commands[i].name), commands[i].name
            ));
    WEIR_TRY(weir_buffer_text(
        out, "'\n    elif [ \"$COMP_CWORD\" = 2 ]; then\n"
             "        case $command in\n"
    ));
    for (size_t i = 0; i < manual->n; i++)
        if (commands[i].name[first_word(commands[i].name)] == ' ')
            WEIR_TRY(weir_buffer_format(
                out, "        %.*s) options+=' %s' ;;&\n", (int)first_word(commands[i].name),
                commands[i].name, commands[i].name + first_word(commands[i].name) + 1
            ));
    WEIR_TRY(weir_buffer_text(out, "        esac\n    fi\n"));
    WEIR_TRY(weir_buffer_text(out, bash_middle));
    for (size_t i = 0; i < manual->n; i++) {
        WEIR_TRY(weir_buffer_format(out, "    '%s')\n        options+=\"", commands[i].name));
        WEIR_TRY(weir_each_option(out, &commands[i], bash_option));
        WEIR_TRY(weir_buffer_text(out, "\"\n        case $option in\n"));
        WEIR_TRY(weir_each_option(out, &commands[i], bash_value));
        WEIR_TRY(weir_buffer_text(out, "        esac ;;\n"));
    }
    WEIR_TRY(weir_buffer_text(out, bash_end));
    WEIR_TRY(weir_buffer_text(out, "_weir_keys()\n{\n    printf '%s\\n'"));
    WEIR_TRY(key_names(out, " "));
    return weir_buffer_text(out, "\n}\n");
}

/* ---- zsh ------------------------------------------------------------------------------------- */

static weir_status zsh_option(weir_buffer *out, const weir_option *option)
{
    WEIR_TRY(weir_buffer_format(
        out, " \\\n            '%s--%s%s[", strcmp(option->name, "set") == 0 ? "*" : "",
        option->name, option->value != NULL ? "=" : ""
    ));
    WEIR_TRY(sentence(out, weir_option_help_text(option), "[]:\\", posix_quote));
    WEIR_TRY(weir_buffer_text(out, "]"));
    if (option->value != NULL) {
        WEIR_TRY(weir_buffer_text(out, ":"));
        WEIR_TRY(quoted(out, option->value, "[]:\\", posix_quote));
    }
    switch (weir_value_kind_of(option)) {
    case WEIR_VALUE_FILE: WEIR_TRY(weir_buffer_text(out, ":_files")); break;
    case WEIR_VALUE_KEYS: WEIR_TRY(weir_buffer_text(out, ":_weir_keys")); break;
    case WEIR_VALUE_TEXT: WEIR_TRY(weir_buffer_text(out, ": ")); break;
    case WEIR_VALUE_WORDS:
        WEIR_TRY(weir_buffer_text(out, ":("));
        WEIR_TRY(words(out, weir_value_words(option)));
        WEIR_TRY(weir_buffer_text(out, ")"));
        break;
    case WEIR_VALUE_NONE: break;
    }
    return weir_buffer_text(out, "'");
}

/* 'name:sentence' of commands: of one word, or the second words of a family. */
static weir_status zsh_names(weir_buffer *out, const weir_manual *manual, const char *family)
{
    const size_t n = family != NULL ? first_word(family) : 0;
    for (size_t i = 0; i < manual->n; i++) {
        const weir_command *const command = &manual->commands[i];
        const size_t own = first_word(command->name);
        const bool is_member = family != NULL && own == n && command->name[own] == ' ' &&
                               strncmp(command->name, family, n) == 0;
        if (family == NULL ? !is_new_word(manual, i) : !is_member) continue;
        WEIR_TRY(weir_buffer_text(out, "\n            '"));
        WEIR_TRY(
            family == NULL ? weir_buffer_add(out, command->name, own)
                           : weir_buffer_text(out, command->name + own + 1)
        );
        WEIR_TRY(weir_buffer_text(out, ":"));
        /* The commands of a family have nothing in common but its name. */
        if (family != NULL || command->name[own] == '\0')
            WEIR_TRY(sentence(out, command->summary, "", posix_quote));
        WEIR_TRY(weir_buffer_text(out, "'"));
    }
    return WEIR_OK;
}

static bool has_members(const weir_manual *manual, const char *name)
{
    const size_t n = first_word(name);
    for (size_t i = 0; i < manual->n; i++)
        if (first_word(manual->commands[i].name) == n && manual->commands[i].name[n] == ' ' &&
            strncmp(manual->commands[i].name, name, n) == 0)
            return true;
    return false;
}

weir_status weir_complete_zsh(weir_buffer *out, const weir_manual *manual)
{
    WEIR_TRY(weir_buffer_text(out, "#compdef weir\n\n_weir_keys() {\n    local -a keys=("));
    WEIR_TRY(key_names(out, " "));
    WEIR_TRY(weir_buffer_text(
        out, " )\n    compadd -S '' -- $keys\n}\n\n"
             "_weir() {\n    local -a names\n    local -i n=1\n"
             "    if (( CURRENT == 2 )); then\n        names=("
    ));
    WEIR_TRY(zsh_names(out, manual, NULL));
    WEIR_TRY(weir_buffer_text(
        out, " )\n        _describe command names\n        return\n    fi\n"
             "    if (( CURRENT == 3 )); then\n        case $words[2] in\n"
    ));
    for (size_t i = 0; i < manual->n; i++) {
        const char *const name = manual->commands[i].name;
        if (!is_new_word(manual, i) || !has_members(manual, name)) continue;
        WEIR_TRY(weir_buffer_format(out, "        %.*s) names=(", (int)first_word(name), name));
        WEIR_TRY(zsh_names(out, manual, name));
        WEIR_TRY(weir_buffer_text(out, " )\n            _describe command names ;;\n"));
    }
    WEIR_TRY(weir_buffer_text(out, "        esac\n    fi\n    case \"$words[2] $words[3]\" in\n"));
    for (size_t i = 0; i < manual->n; i++)
        if (strchr(manual->commands[i].name, ' ') != NULL)
            WEIR_TRY(weir_buffer_format(
                out, "    ('%s') (( CURRENT > 3 )) && n=2 ;;\n", manual->commands[i].name
            ));
    WEIR_TRY(weir_buffer_text(
        out, "    esac\n"
             "    local command=\"${words[2,n+1]}\"\n"
             "    shift n words\n    (( CURRENT -= n ))\n    case $command in\n"
    ));
    for (size_t i = 0; i < manual->n; i++) {
        WEIR_TRY(weir_buffer_format(out, "    ('%s')\n        _arguments", manual->commands[i].name)
        );
        WEIR_TRY(weir_each_option(out, &manual->commands[i], zsh_option));
        WEIR_TRY(weir_buffer_text(out, " \\\n            '*:file:_files' ;;\n"));
    }
    return weir_buffer_text(out, "    esac\n}\n\n_weir \"$@\"\n");
}

/* ---- fish ------------------------------------------------------------------------------------ */

static const char fish_quote[] = "\\'";

static weir_status fish_option(weir_buffer *out, const weir_option *option)
{
    WEIR_TRY(weir_buffer_format(out, "__weir_option -l %s", option->name));
    if (option->letter != 0) WEIR_TRY(weir_buffer_format(out, " -s %c", option->letter));
    switch (weir_value_kind_of(option)) {
    case WEIR_VALUE_FILE: WEIR_TRY(weir_buffer_text(out, " -r -F")); break;
    case WEIR_VALUE_KEYS: WEIR_TRY(weir_buffer_text(out, " -x -a '(__weir_keys)'")); break;
    case WEIR_VALUE_TEXT: WEIR_TRY(weir_buffer_text(out, " -x")); break;
    case WEIR_VALUE_WORDS:
        WEIR_TRY(weir_buffer_text(out, " -x -a '"));
        WEIR_TRY(words(out, weir_value_words(option)));
        WEIR_TRY(weir_buffer_text(out, "'"));
        break;
    case WEIR_VALUE_NONE: break;
    }
    WEIR_TRY(weir_buffer_text(out, " -d '"));
    WEIR_TRY(sentence(out, weir_option_help_text(option), "\\", fish_quote));
    return weir_buffer_text(out, "'\n");
}

static const char fish_start[] = "# fish completion of weir\n\n"
                                 "# The command of the line: one word or two.\n"
                                 "function __weir_command\n"
                                 "    set -l words (commandline -opc)\n"
                                 "    if contains -- \"$words[2] $words[3]\" $__weir_two_words\n"
                                 "        echo \"$words[2] $words[3]\"\n"
                                 "    else\n"
                                 "        echo \"$words[2]\"\n"
                                 "    end\n"
                                 "end\n\n"
                                 "function __weir_is\n"
                                 "    test (__weir_command) = \"$argv\"\n"
                                 "end\n\n"
                                 "function __weir_has_words\n"
                                 "    test (count (commandline -opc)) = $argv[1]\n"
                                 "end\n\n"
                                 "function __weir_option\n"
                                 "    complete -c weir -n \"__weir_is $__weir_current\" $argv\n"
                                 "end\n\n";

weir_status weir_complete_fish(weir_buffer *out, const weir_manual *manual)
{
    WEIR_TRY(weir_buffer_text(out, fish_start));
    WEIR_TRY(weir_buffer_text(out, "function __weir_keys\n    printf '%s\\n'"));
    WEIR_TRY(key_names(out, " "));
    WEIR_TRY(weir_buffer_text(out, "\nend\n\nset -g __weir_two_words"));
    for (size_t i = 0; i < manual->n; i++)
        if (strchr(manual->commands[i].name, ' ') != NULL)
            WEIR_TRY(weir_buffer_format(out, " '%s'", manual->commands[i].name));
    WEIR_TRY(weir_buffer_text(out, "\ncomplete -c weir -f\n"));
    for (size_t i = 0; i < manual->n; i++) {
        const weir_command *const command = &manual->commands[i];
        const size_t n = first_word(command->name);
        if (is_new_word(manual, i)) {
            WEIR_TRY(weir_buffer_format(
                out, "complete -c weir -n '__weir_has_words 1' -a %.*s -d '", (int)n, command->name
            ));
            if (command->name[n] == '\0')
                WEIR_TRY(sentence(out, command->summary, "\\", fish_quote));
            WEIR_TRY(weir_buffer_text(out, "'\n"));
        }
        if (command->name[n] == ' ') {
            WEIR_TRY(weir_buffer_format(
                out, "complete -c weir -n '__weir_has_words 2; and __weir_is %.*s' -a %s -d '",
                (int)n, command->name, command->name + n + 1
            ));
            WEIR_TRY(sentence(out, command->summary, "\\", fish_quote));
            WEIR_TRY(weir_buffer_text(out, "'\n"));
        }
        WEIR_TRY(weir_buffer_format(out, "set -g __weir_current '%s'\n", command->name));
        WEIR_TRY(weir_each_option(out, command, fish_option));
    }
    return weir_buffer_text(out, "set -e __weir_current\n");
}
