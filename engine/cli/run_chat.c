/* engine/cli/run_chat.c - weir chat: a conversation in the terminal. */
#include "engine/cli/chat.h"
#include "engine/cli/command.h"

int weir_run_chat(const weir_arguments *arguments)
{
    const weir_chat_start start = { .system = weir_argument(arguments, "system"),
                                    .messages = weir_argument(arguments, "messages") };
    return weir_chat_run(&arguments->config, &start);
}
