/* engine/cli/run_get.c - weir get. */
#include "engine/cli/get.h"
#include "engine/cli/open.h"

int weir_run_get(const weir_arguments *arguments)
{
    static weir_hub_result result;
    weir_error error = { 0 };
    weir_buffer text = { 0 };
    const weir_get get = { .name = weir_argument(arguments, "name"),
                           .revision = weir_argument(arguments, "revision"),
                           .file = weir_argument(arguments, "file"),
                           .endpoint = weir_argument(arguments, "endpoint") };
    weir_status status = weir_get_model(&result, &get, &error);
    if (status == WEIR_OK) status = weir_buffer_format(&text, "%s\n", result.path);
    int code = weir_end(status, &error);
    if (code == WEIR_EXIT_OK) code = weir_print(&text);
    weir_buffer_free(&text);
    return code;
}
