#include "engine/serve/anthropic_error.h"

#include <string.h>

static const char *type_of(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 408: return "timeout_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

bool weir_anthropic_has_path(const char *path)
{
    static const char messages[] = "/v1/messages";
    const size_t n = sizeof messages - 1;
    return strncmp(path, messages, n) == 0 && (path[n] == 0 || path[n] == '/');
}

static void write_message(weir_json_out *json, const weir_api_error *error)
{
    weir_buffer text = { 0 };
    weir_json_key(json, "message");
    if (error->n_prompt_tokens == 0) {
        weir_json_string(json, error->message);
        return;
    }
    /* Claude Code compacts a conversation when it reads this. */
    const weir_status status = weir_buffer_format(
        &text, "prompt is too long: %lld tokens > %lld maximum (%s)",
        (long long)error->n_prompt_tokens, (long long)error->n_ctx, error->message
    );
    if (status == WEIR_OK)
        weir_json_bytes(json, text.data, text.size);
    else if (json->status == WEIR_OK)
        json->status = status;
    weir_buffer_free(&text);
}

weir_status weir_anthropic_error_write(
    weir_buffer *out, const weir_api_error *error, const char *request_id
)
{
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "type", "error");
    weir_json_key(&json, "error");
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "type", type_of(error->status));
    write_message(&json, error);
    weir_json_close(&json, '}');
    if (request_id != NULL) weir_json_put_string(&json, "request_id", request_id);
    weir_json_close(&json, '}');
    return json.status;
}
