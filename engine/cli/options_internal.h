/* engine/cli/options_internal.h - shared by parsing, help and the manual (tools/manual). */
#pragma once
#include "engine/cli/options.h"

/* --config, --set, --help ...: options of every command, not stored in values[]. */
extern const weir_option_group weir_common_options;

/* The command's own option number `index`, or NULL past the end. */
const weir_option *weir_option_at(const weir_command *command, size_t index);
