#include "engine/cli/print.h"

#include "engine/base/memory.h"
#include "engine/cli/command.h"
#include "engine/formats/json.h"

int weir_print_json(json_t *out)
{
    char *const text =
        out != NULL ? weir_json_text(out, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(out);
    weir_error error = { 0 };
    weir_status status = WEIR_OK;
    if (text == NULL)
        status = weir_error_set(&error, WEIR_ENOMEM, "no memory for the result");
    else
        status = weir_print_line(text, &error);
    weir_memory_give(text);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, &error);
}
