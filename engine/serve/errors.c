/* engine/serve/errors.c - HTTP status, type and code of errors. */
#include "engine/serve/errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/serve/json_out.h"

static const char *type_of(int status)
{
    switch (status) {
    case 403: return "permission_error";
    case 405: return "method_not_allowed";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 500: return "server_error";
    case 501: return "not_supported";
    case 503: return "service_unavailable";
    default: return "invalid_request_error";
    }
}

static void fill(
    weir_api_error *error, int status, const char *code, const char *param, const char *format,
    va_list arguments
)
{
    *error = (weir_api_error){ .status = status, .type = type_of(status), .code = code };
    if (param != NULL) (void)snprintf(error->param, sizeof error->param, "%s", param);
    (void)vsnprintf(error->message, sizeof error->message, format, arguments);
    if (status == 429 || status == 503) error->retry_after = status == 429 ? 1 : 5;
}

weir_status weir_api_fail(
    weir_api_error *error, int status, const char *code, const char *param, const char *format, ...
)
{
    va_list arguments;
    va_start(arguments, format);
    fill(error, status, code, param, format, arguments);
    va_end(arguments);
    return WEIR_EINVAL;
}

weir_status weir_api_bad(weir_api_error *error, const char *param, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fill(error, 400, NULL, param, format, arguments);
    va_end(arguments);
    return WEIR_EINVAL;
}

weir_status weir_api_too_long(
    weir_api_error *error, const char *param, int64_t n_prompt_tokens, int64_t n_ctx
)
{
    const weir_status status = weir_api_fail(
        error, 400, "context_length_exceeded", param,
        "context_length_exceeded: the prompt of %lld tokens exceeds the available "
        "context size of %lld tokens; shorten it.",
        (long long)n_prompt_tokens, (long long)n_ctx
    );
    error->n_prompt_tokens = n_prompt_tokens;
    error->n_ctx = n_ctx;
    return status;
}

weir_status weir_api_over_budget(
    weir_api_error *error, const char *param, const char *text, int64_t n_prompt_tokens,
    int64_t n_ctx
)
{
    const weir_status status = weir_api_fail(error, 400, "kv_budget_exceeded", param, "%s", text);
    error->n_prompt_tokens = n_prompt_tokens;
    error->n_ctx = n_ctx;
    return status;
}

/* Finds the end of a path in a message: at its closing quote, before ": " if it begins the message,
 * else at the end of the word. */
static const char *end_of_path(const char *text, const char *path)
{
    const char *const quote =
        path > text && (path[-1] == '\'' || path[-1] == '"') ? strchr(path, path[-1]) : NULL;
    const char *const colon = path == text ? strstr(path, ": ") : NULL;
    if (quote != NULL || colon != NULL) return quote != NULL ? quote : colon;
    return path + strcspn(path, " \t'\"():,;");
}

/* Shortens paths in messages to file names for clients. The log has the full paths. */
static const char *without_folders(char *out, size_t size, const char *text)
{
    size_t n = 0;
    for (const char *at = text; *at != 0 && n + 1 < size;) {
        const bool begins = *at == '/' && (at == text || strchr(" \t'\"(=", at[-1]) != NULL);
        if (begins) {
            const char *const end = end_of_path(text, at);
            for (const char *c = at; c < end; c++)
                if (*c == '/') at = c + 1;
        }
        if (*at != 0) out[n++] = *at++;
    }
    out[n] = 0;
    if (strcmp(out, text) != 0) weir_log(WEIR_LOG_WARNING, "a request failed: %s", text);
    return out;
}

void weir_api_from_status(weir_api_error *error, weir_status status, const char *text)
{
    char told[sizeof error->message];
    const bool full = status == WEIR_EFULL || status == WEIR_ENOMEM ||
                      status == WEIR_EUNSUPPORTED || status == WEIR_ECANCELED;
    const char *const plain = status == WEIR_ENOMEM
                                  ? "no memory for this request within memory.host now; try again"
                                  : weir_status_text(status);
    const bool has_text = text != NULL && text[0] != 0;
    (void)weir_api_fail(
        error, full ? 503 : 500, NULL, NULL, "%s",
        has_text ? without_folders(told, sizeof told, text) : plain
    );
}

weir_status weir_api_no_memory(weir_api_error *error)
{
    weir_api_from_status(error, WEIR_ENOMEM, NULL);
    return WEIR_ENOMEM;
}

weir_status weir_api_by_case(
    weir_api_error *error, const weir_api_case *cases, size_t n_cases, weir_status status,
    const char *text
)
{
    char told[sizeof error->message];
    for (const weir_api_case *c = cases; c < cases + n_cases; c++)
        if (c->status == status)
            return weir_api_fail(
                error, c->http, c->code, c->param, "%s", without_folders(told, sizeof told, text)
            );
    weir_api_from_status(error, status, text);
    return status;
}

static bool is_word(char c) { return c == '_' || (c >= 'a' && c <= 'z'); }

static const weir_api_name *find_name(
    const weir_api_name *names, size_t n_names, const char *word, size_t n
)
{
    for (const weir_api_name *name = names; name < names + n_names; name++)
        if (strlen(name->chat) == n && strncmp(name->chat, word, n) == 0) return name;
    return NULL;
}

static void rename_param(weir_api_error *error, const weir_api_name *names, size_t n_names)
{
    const size_t n = strcspn(error->param, ".[");
    const weir_api_name *const name = find_name(names, n_names, error->param, n);
    if (name != NULL) (void)snprintf(error->param, sizeof error->param, "%s", name->here);
}

/* The index in a path is that of a translated list, and goes with its name. */
static size_t name_length(const char *text, size_t n)
{
    if (text[n] != '[') return n;
    const size_t digits = strspn(text + n + 1, "0123456789");
    return text[n + 1 + digits] == ']' ? n + digits + 2 : n;
}

void weir_api_rename(weir_api_error *error, const weir_api_name *names, size_t n_names)
{
    char told[sizeof error->message];
    const char *at = error->message;
    size_t used = 0;
    rename_param(error, names, n_names);
    while (*at != 0 && used + 1 < sizeof told) {
        const bool begins = at == error->message || !is_word(at[-1]);
        size_t n = begins ? strspn(at, "abcdefghijklmnopqrstuvwxyz_") : 0;
        const weir_api_name *const name = n > 0 ? find_name(names, n_names, at, n) : NULL;
        const bool is_field = at == error->message || at[n] == '[' || at[n] == '.' ||
                              (name != NULL && strchr(name->chat, '_') != NULL);
        if (name == NULL || !is_field) {
            told[used++] = *at++;
            continue;
        }
        used += (size_t)snprintf(told + used, sizeof told - used, "%s", name->here);
        at += name_length(at, n);
    }
    told[used < sizeof told ? used : sizeof told - 1] = 0;
    memcpy(error->message, told, sizeof told);
}

void weir_api_error_member(weir_json_out *json, const weir_api_error *error)
{
    weir_json_key(json, "error");
    weir_json_open(json, '{');
    weir_json_put_string(json, "message", error->message);
    weir_json_put_string(json, "type", error->type);
    weir_json_key(json, "param");
    if (error->param[0] != 0)
        weir_json_string(json, error->param);
    else
        weir_json_null(json);
    weir_json_key(json, "code");
    if (error->code != NULL)
        weir_json_string(json, error->code);
    else
        weir_json_null(json);
    if (error->n_prompt_tokens > 0) {
        weir_json_put_integer(json, "n_prompt_tokens", error->n_prompt_tokens);
        weir_json_put_integer(json, "n_ctx", error->n_ctx);
    }
    weir_json_close(json, '}');
}

weir_status weir_api_error_write(weir_buffer *out, const weir_api_error *error)
{
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    weir_api_error_member(&json, error);
    weir_json_close(&json, '}');
    return json.status;
}

weir_quoted weir_quote(const char *text)
{
    weir_quoted quoted = { "" };
    size_t n = 0;
    for (; text[n] != 0 && n < 60; n++)
        quoted.text[n] = (char)(text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?');
    if (text[n] != 0) memcpy(quoted.text + n, "...", 4);
    return quoted;
}
