/* engine/cli/print.h - prints results to stdout. */
#pragma once
#include <jansson.h>

#include "engine/cli/command.h"

/* Prints indented JSON and a newline. Takes ownership of `out`, which may be NULL if memory ran
 * out. Returns the exit code. */
int weir_print_json(json_t *out);
