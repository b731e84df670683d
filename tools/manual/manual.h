/* tools/manual/manual.h - manual pages and completions of shells, from the tables of commands,
 * options and keys. Same tables, same bytes: there is no date in them. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/cli/options.h"

typedef struct weir_manual {
    const weir_command *commands; /* [n] */
    size_t n;
    const char *version;
} weir_manual;

/* Calls `visit` for each option of a command: its own, then those of every command. */
typedef weir_status weir_visit_option(weir_buffer *out, const weir_option *option);
WEIR_MUST_CHECK weir_status
weir_each_option(weir_buffer *out, const weir_command *command, weir_visit_option *visit);

/* What an option's value may be, from its table. */
typedef enum weir_value_kind {
    WEIR_VALUE_NONE, /* it takes none */
    WEIR_VALUE_TEXT,
    WEIR_VALUE_FILE,
    WEIR_VALUE_WORDS, /* of weir_value_words */
    WEIR_VALUE_KEYS /* KEY=VALUE of the configuration */
} weir_value_kind;
weir_value_kind weir_value_kind_of(const weir_option *option);
/* "auto|off|strict"; only for WEIR_VALUE_WORDS. */
const char *weir_value_words(const weir_option *option);
/* The help text of an option, its key's if it has none of its own. */
const char *weir_option_help_text(const weir_option *option);

/* pages.c: weir(1), weir-COMMAND(1), weir.toml(5) */
WEIR_MUST_CHECK weir_status weir_page_of_program(weir_buffer *out, const weir_manual *manual);
WEIR_MUST_CHECK weir_status
weir_page_of_command(weir_buffer *out, const weir_manual *manual, const weir_command *command);
WEIR_MUST_CHECK weir_status weir_page_of_keys(weir_buffer *out, const weir_manual *manual);

/* completions.c */
WEIR_MUST_CHECK weir_status weir_complete_bash(weir_buffer *out, const weir_manual *manual);
WEIR_MUST_CHECK weir_status weir_complete_zsh(weir_buffer *out, const weir_manual *manual);
WEIR_MUST_CHECK weir_status weir_complete_fish(weir_buffer *out, const weir_manual *manual);
