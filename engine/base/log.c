#include "engine/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic int current_level = WEIR_LOG_INFO;

void weir_log_set_level(weir_log_level level) { atomic_store(&current_level, (int)level); }

void weir_log(weir_log_level level, const char *format, ...)
{
    static const char *const names[] = { "error", "warning", "info", "debug" };
    if ((int)level > atomic_load(&current_level)) return;
    char    line[4096];
    int     n = snprintf(line, sizeof line, "weir: %s: ", names[level]);
    va_list list;
    va_start(list, format);
    const int text = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, list);
    va_end(list);
    if (text > 0) n += text;
    if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
    line[n++] = '\n';
    const ssize_t written = write(STDERR_FILENO, line, (size_t)n);
    (void)written; /* nothing can be done about a broken stderr */
}
