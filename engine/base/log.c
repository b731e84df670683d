#include "engine/base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Atomic int current_level = WEIR_LOG_INFO;
static _Atomic(weir_line_writer *) current_writer;

static const char *const names[] = { "error", "warning", "info", "debug" };

void weir_log_set_level(weir_log_level level) { atomic_store(&current_level, (int)level); }

bool weir_log_set_level_name(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        weir_log_set_level((weir_log_level)i);
        return true;
    }
    return false;
}

void weir_log_set_writer(weir_line_writer *writer) { atomic_store(&current_writer, writer); }

static pthread_mutex_t function_lock = PTHREAD_MUTEX_INITIALIZER;
static weir_log_function current_function;
static void *function_user;

void weir_log_set_function(weir_log_function function, void *user)
{
    (void)pthread_mutex_lock(&function_lock);
    current_function = function;
    function_user = user;
    (void)pthread_mutex_unlock(&function_lock);
}

/* Returns false if no function is set. */
static bool call_function(const char *level, const char *text)
{
    (void)pthread_mutex_lock(&function_lock);
    const weir_log_function function = current_function;
    void *const user = function_user;
    (void)pthread_mutex_unlock(&function_lock);
    if (function != NULL) function(user, level, text);
    return function != NULL;
}

uint64_t weir_log_dropped(void) { return weir_line_writer_dropped(atomic_load(&current_writer)); }

void weir_log(weir_log_level level, const char *format, ...)
{
    if ((int)level > atomic_load(&current_level)) return;
    char line[4096];
    int n = snprintf(line, sizeof line, "weir: %s: ", names[level]);
    const char *const message = line + n;
    va_list list;
    va_start(list, format);
    const int text = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, list);
    va_end(list);
    if (text > 0) n += text;
    if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
    if (call_function(names[level], message)) return;
    line[n++] = '\n';
    weir_line_writer *const writer = atomic_load(&current_writer);
    if (writer != NULL)
        weir_line_writer_put(writer, line, (size_t)n);
    else
        (void
        /* An error on stderr cannot be reported anywhere. */
        ) !write(STDERR_FILENO, line, (size_t)n);
}

bool weir_log_is_new(weir_log_causes *causes, const char *text)
{
    const char *const colon = strrchr(text, ':'), *const cause = colon != NULL ? colon : text;
    const size_t n = strcspn(cause, "0123456789");
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)cause[i]) * UINT64_C(0x100000001b3);
    for (int32_t i = 0; i < causes->n && i < WEIR_LOG_CAUSES; i++)
        if (causes->said[i] == hash) return false;
    causes->said[causes->n++ % WEIR_LOG_CAUSES] = hash;
    if (causes->n == 2 * WEIR_LOG_CAUSES) causes->n = WEIR_LOG_CAUSES;
    return true;
}
