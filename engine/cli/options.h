/* engine/cli/options.h - command lines from tables: a command lists its options, parsing fills the
 * configuration and the command's own values, and the help text is made from the same rows.
 *
 * An option is another spelling of a configuration key, or a value of the command itself.
 * Precedence of keys: defaults, then --config, then the environment, then --set and options in the
 * order given. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/config/config.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_OPTIONS = 64, WEIR_OPTION_NUMBERS = 16, WEIR_OPTION_GROUPS = 8 };

typedef enum weir_option_type {
    WEIR_OPTION_FLAG, /* no value */
    WEIR_OPTION_TEXT,
    WEIR_OPTION_INT, /* min .. max */
    WEIR_OPTION_LIST, /* "0,512,8192": at most WEIR_OPTION_NUMBERS integers, min .. max */
    /* Sets `key`; may be repeated, the last one counts. */
    WEIR_OPTION_KEY,
    WEIR_OPTION_KEY_TRUE /* sets `key` to true; no value */
} weir_option_type;

typedef struct weir_option {
    const char *name, *value; /* "max-tokens", "N"; value NULL: takes none */
    weir_option_type type;
    const char *help; /* NULL: the key's */
    const char *key;
    int64_t min, max;
    bool required;
    char letter; /* 0: none */
} weir_option;

typedef struct weir_option_group {
    const char *title;
    const weir_option *options; /* [n] */
    size_t n;
} weir_option_group;

typedef struct weir_arguments weir_arguments;

typedef struct weir_command {
    const char *name, *summary; /* "eval retrieval", one sentence */
    const char *usage; /* how its own options combine: "--prompt TEXT [options]" */
    /* Options that bare words set, the first that is not given; NULL: none. */
    const char *words[2];
    const char *details; /* NULL, or paragraphs below the summary in --help */
    /* Terminated by NULL; --config, --set and --help belong to every command. */
    const weir_option_group *groups[WEIR_OPTION_GROUPS];
    int (*run)(const weir_arguments *arguments); /* returns the exit code */
} weir_command;

typedef enum weir_action {
    WEIR_ACTION_RUN,
    WEIR_ACTION_HELP,
    WEIR_ACTION_HELP_CONFIG,
    WEIR_ACTION_PRINT_CONFIG,
    WEIR_ACTION_VERSION
} weir_action;

struct weir_arguments {
    const weir_command *command;
    /* What to do; values are complete only with WEIR_ACTION_RUN. */
    weir_action action;
    bool is_quiet; /* shows no progress */
    bool is_only_command; /* of its program, which takes no word for it */
    weir_config config; /* effective and checked */
    /* Own options in table order, borrowed from argv or `paths`; "" for a flag, NULL: absent. */
    const char *values[WEIR_OPTIONS];
    char paths[2 * WEIR_CONFIG_TEXT]; /* those that began with "~", one after another */
    size_t n_paths;
};

/* argv [argc] follows the command's name. Returns ECONFIG with a message for the user: unknown
 * option (names the nearest), missing or bad value, option given twice, stray argument. */
WEIR_MUST_CHECK weir_status weir_arguments_parse(
    weir_arguments *out, const weir_command *command, const weir_config_search *search, int argc,
    const char *const *argv, weir_error *error
);

/* An own option by name, which the command must list. */
const char *weir_argument(const weir_arguments *arguments, const char *name); /* NULL: not given */
bool weir_argument_given(const weir_arguments *arguments, const char *name);
int64_t weir_argument_int(const weir_arguments *arguments, const char *name, int64_t otherwise);
/* Returns 0 if not given. */
size_t weir_argument_numbers(
    const weir_arguments *arguments, const char *name, int64_t out[WEIR_OPTION_NUMBERS]
);

/* The help of one command, at most 100 columns wide; the list of commands, or of those that begin
 * with `family` (NULL: all). */
WEIR_MUST_CHECK weir_status
weir_command_help(weir_buffer *out, const char *program, const weir_command *command);
WEIR_MUST_CHECK weir_status weir_commands_help(
    weir_buffer *out, const char *program, const char *family, const weir_command *commands,
    size_t n
);

#ifdef __cplusplus
}
#endif
