/* tools/measure/run_eval_structured.c - weir eval structured: runs cases of constrained
 * decoding. */
#include <stdio.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/cli/command.h"
#include "engine/formats/json.h"
#include "tools/eval/structured.h"

enum { MOST_BYTES = 1 << 30 };

static bool holds(const char *line, size_t n, const char *text)
{
    const size_t length = strlen(text);
    for (size_t i = 0; i + length <= n; i++) {
        if (memcmp(line + i, text, length) == 0) return true;
    }
    return false;
}

/* Turns an answer into a line for people. */
static weir_status as_text(weir_buffer *out, const weir_buffer *answer, weir_error *error)
{
    json_t *value = NULL;
    WEIR_TRY(weir_json_parse(&value, answer->data, answer->size, "answer", 8, error));
    const json_t *const texts = json_object_get(value, "texts"), *text;
    const char *const message = json_string_value(json_object_get(value, "message"));
    weir_status status = weir_buffer_format(
        out, "%-40s %-8s %9.3f ms %10lld bytes", json_string_value(json_object_get(value, "id")),
        json_string_value(json_object_get(value, "status")),
        json_number_value(json_object_get(value, "compile_ms")),
        (long long)json_integer_value(json_object_get(value, "peak_bytes"))
    );
    size_t i;
    json_array_foreach(texts, i, text)
    {
        if (status != WEIR_OK) break;
        const json_t *const at = json_object_get(text, "at");
        status = at == NULL ? weir_buffer_text(out, " ok")
                            : weir_buffer_format(out, " %lld", (long long)json_integer_value(at));
    }
    if (status == WEIR_OK && message != NULL) status = weir_buffer_format(out, " %s", message);
    if (status == WEIR_OK) status = weir_buffer_text(out, "\n");
    json_decref(value);
    return status;
}

static weir_status run_line(const char *line, size_t n, size_t number, bool json, weir_error *error)
{
    weir_buffer answer = { 0 }, text = { 0 };
    weir_status status = weir_structured_run(&answer, line, n, number, error);
    if (status == WEIR_OK && !json) status = as_text(&text, &answer, error);
    if (status == WEIR_OK && weir_print(json ? &answer : &text) != WEIR_EXIT_OK) {
        status = weir_error_set(error, WEIR_EIO, "the answers cannot be written");
    }
    weir_buffer_free(&answer);
    weir_buffer_free(&text);
    return status;
}

int weir_run_eval_structured(const weir_arguments *arguments)
{
    weir_buffer cases = { 0 };
    weir_error error = { 0 };
    const char *const filter = weir_argument(arguments, "filter");
    weir_status status =
        weir_file_read_input(&cases, weir_argument(arguments, "cases"), MOST_BYTES, &error);
    size_t number = 0;
    for (size_t at = 0; at < cases.size && status == WEIR_OK;) {
        const char *const line = cases.data + at;
        const char *const end = memchr(line, '\n', cases.size - at);
        const size_t n = end == NULL ? cases.size - at : (size_t)(end - line);
        at += n + 1;
        number++;
        if (n == 0 || (filter != NULL && !holds(line, n, filter))) continue;
        status = run_line(line, n, number, weir_argument_given(arguments, "json"), &error);
    }
    weir_buffer_free(&cases);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, &error);
}
