/* engine/cli/options_internal.h - what parsing and help share. */
#pragma once
#include "engine/cli/options.h"

/* --config, --set, --help ...: belong to every command, have no place in values[] */
extern const weir_option_group weir_common_options;

/* The `index`-th option of the command's own groups, NULL past the end. */
const weir_option *weir_option_at(const weir_command *command, size_t index);
