/* engine/cli/print.h - results on stdout. */
#pragma once
#include <jansson.h>

#include "engine/cli/command.h"

/* Indented, with a newline; takes `out`, NULL when there was no memory for it. The exit code. */
int weir_print_json(json_t *out);
