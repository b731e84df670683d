/* engine/cli/main.c - the program `weir`, or with WEIR_FIXED_COMMAND the program of one command. */
#include <stdlib.h>

#include "engine/cli/command.h"
#include "engine/cli/process.h"
#include "engine/engine.h"
#include "engine/formats/json.h"

#ifndef WEIR_FIXED_COMMAND
#define WEIR_FIXED_COMMAND NULL
#endif

int main(int argc, char **argv)
{
    const char *const fixed = WEIR_FIXED_COMMAND;
    weir_process_begin(argc, argv);
    weir_json_use_memory(); /* before jansson is used */
    weir_program program = {
        .name = fixed != NULL ? fixed : "weir",
        .version = WEIR_VERSION,
        .fixed = fixed,
        /* `bazel run` changes the folder and sets this to the user's. */
        .caller = getenv("BUILD_WORKING_DIRECTORY"),
    };
    program.commands = weir_commands(&program.n_commands);
    return weir_main(&program, argc, (const char *const *)argv);
}
