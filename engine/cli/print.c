#include "engine/cli/print.h"

#include <stdio.h>

#include "engine/base/memory.h"
#include "engine/formats/json.h"

int weir_print_json(json_t *out)
{
    char *const text =
        out != NULL ? weir_json_text(out, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(out);
    const bool written = text != NULL && puts(text) >= 0 && fflush(stdout) == 0;
    weir_memory_give(text);
    if (!written) (void)fputs("weir: cannot write the result\n", stderr);
    return written ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}
