#include "engine/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

weir_status weir_error_set(weir_error *error, weir_status code, const char *format, ...)
{
    if (error == NULL) return code;
    error->code = code;
    va_list list;
    va_start(list, format);
    (void)vsnprintf(error->text, sizeof error->text, format, list);
    va_end(list);
    return code;
}

weir_status weir_error_prefix(weir_error *error, weir_status code, const char *format, ...)
{
    if (error == NULL) return code;
    char prefix[sizeof error->text];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(prefix, sizeof prefix, format, list);
    va_end(list);
    char old[sizeof error->text];
    memcpy(old, error->text, sizeof old);
    error->code = code;
    (void)snprintf(error->text, sizeof error->text, "%.400s: %.590s", prefix, old);
    return code;
}

const char *weir_status_text(weir_status status)
{
    switch (status) {
#define X(name, code, text)                                                                        \
    case WEIR_##name: return text;
        WEIR_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

void weir_assert_failed(const char *condition, const char *file, int line)
{
    (void)fprintf(stderr, "weir: internal error: %s:%d: %s\n", file, line, condition);
    abort();
}
