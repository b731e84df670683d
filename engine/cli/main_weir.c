/* engine/cli/main_weir.c - the program `weir`. */
#include <stdlib.h>

#include "engine/cli/command.h"
#include "engine/weir.h"

int main(int argc, char **argv)
{
    size_t                    n;
    const weir_command *const commands = weir_commands(&n);
    const weir_program        program = { .commands = commands, .n_commands = n, .name = "weir", .version = WEIR_VERSION,
                                   .fixed = NULL, .caller = getenv("BUILD_WORKING_DIRECTORY") };
    return weir_main(&program, argc, (const char *const *)argv);
}
