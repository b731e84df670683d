/* tools/openapi/openapi.c - writes what a server answers to GET /openapi.json to its output. */
#include <stdbool.h>
#include <stdio.h>

#include "engine/base/error.h"
#include "engine/serve/openapi.h"

int main(void)
{
    weir_buffer text = { 0 };
    const weir_status status = weir_openapi_write(&text, "0", false);
    if (status != WEIR_OK) {
        (void)fprintf(stderr, "openapi: %s\n", weir_status_text(status));
        return 1;
    }
    const bool is_written = fwrite(text.data, 1, text.size, stdout) == text.size;
    weir_buffer_free(&text);
    return is_written && fflush(stdout) == 0 ? 0 : 1;
}
