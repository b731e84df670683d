/* tools/measure/run_eval_toolcalls.c - weir eval toolcalls: what the server makes of answers. */
#include <stdio.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/cli/open.h"
#include "engine/formats/json.h"
#include "tools/eval/toolcalls.h"

enum { MOST_BYTES = 1 << 28 };

static weir_status read_cases(
    weir_buffer *out, const weir_buffer *cases, const json_t *tools,
    const weir_arguments *arguments, weir_error *error
)
{
    const char *const name = weir_argument(arguments, "cases");
    size_t line = 1;
    for (size_t at = 0; at < cases->size; line++) {
        const char *const end = memchr(cases->data + at, '\n', cases->size - at);
        const size_t n = end != NULL ? (size_t)(end - cases->data) - at : cases->size - at;
        json_t *item = NULL;
        char place[64];
        (void)snprintf(place, sizeof place, "line %zu", line);
        weir_status status = WEIR_OK;
        if (n > 0) {
            status =
                weir_json_parse_within(&item, cases->data + at, n, place, &weir_json_file, error);
            if (status == WEIR_OK)
                status = weir_eval_toolcalls_case(
                    out, item, tools, weir_argument(arguments, "templates"),
                    weir_argument_given(arguments, "json"), error
                );
            json_decref(item);
        }
        if (status != WEIR_OK) return weir_error_prefix(error, status, "%s", name);
        at += n + 1;
    }
    return WEIR_OK;
}

int weir_run_eval_toolcalls(const weir_arguments *arguments)
{
    weir_error error = { 0 };
    weir_buffer cases = { 0 }, out = { 0 };
    json_t *tools = NULL;
    const char *const path = weir_argument(arguments, "tools");
    weir_status status = WEIR_OK;
    if (path != NULL)
        status = weir_json_read_input(&tools, path, MOST_BYTES, &error);
    else if ((tools = json_array()) == NULL)
        status = weir_error_set(&error, WEIR_ENOMEM, "no memory");
    if (status == WEIR_OK)
        status =
            weir_file_read_input(&cases, weir_argument(arguments, "cases"), MOST_BYTES, &error);
    if (status == WEIR_OK) status = read_cases(&out, &cases, tools, arguments, &error);
    const int code = status == WEIR_OK ? weir_print(&out) : weir_end(status, &error);
    json_decref(tools);
    weir_buffer_free(&cases);
    weir_buffer_free(&out);
    return code;
}
