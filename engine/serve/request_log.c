/* engine/serve/request_log.c - writes one JSON line for each finished request. */
#include "engine/base/clock.h"
#include "engine/serve/internal.h"

weir_status weir_request_log_open(weir_server *server, weir_error *error)
{
    if (server->options.log_fd < 0) return WEIR_OK;
    server->log = weir_line_writer_open(server->options.log_fd, "{\"log_lines_dropped\":", "}");
    return server->log != NULL
               ? WEIR_OK
               : weir_error_set(error, WEIR_ENOMEM, "cannot start the request log's thread");
}

void weir_request_log(weir_exchange *x)
{
    if (x->server->log == NULL) return;
    weir_buffer line = { 0 };
    weir_json_out json = { .buffer = &line };
    weir_json_open(&json, '{');
    weir_json_put_integer(&json, "time", weir_clock_unix_seconds());
    weir_json_put_string(&json, "id", x->id);
    weir_json_put_string(&json, "method", x->method);
    weir_json_put_string(&json, "path", x->path);
    weir_json_put_integer(&json, "status", x->status);
    weir_json_put_number(&json, "ms", (double)(weir_clock_ns() - x->start_ns) * 1e-6);
    if (x->error.status != 0) weir_json_put_string(&json, "error", x->error.message);
    if (x->unknown.size > 0) {
        weir_json_key(&json, "unknown_fields");
        weir_json_raw(&json, x->unknown.data, x->unknown.size);
    }
    if (x->generation != NULL && json.status == WEIR_OK) weir_generation_log(x->generation, &line);
    weir_json_close(&json, '}');
    if (json.status == WEIR_OK && weir_buffer_text(&line, "\n") == WEIR_OK)
        weir_line_writer_put(x->server->log, line.data, line.size);
    weir_buffer_free(&line);
}
