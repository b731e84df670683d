/* engine/router/answers.c - what the router answers itself: errors, the list of models, its health
 * and metrics. Such a connection is closed after the answer. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/router/internal.h"
#include "engine/serve/anthropic_error.h"
#include "engine/serve/http_reply.h"
#include "engine/serve/json_out.h"

/* Sends a head and `body`, which it frees. Without memory the connection is closed. */
static void send_answer(
    weir_route *r, int status, const char *type, int retry_after, weir_buffer *body
)
{
    weir_buffer text = { 0 };
    char date[WEIR_HTTP_DATE];
    weir_http_date(date);
    weir_status good = weir_buffer_format(
        &text, "HTTP/1.1 %d %s\r\n%sConnection: close\r\n" WEIR_HTTP_GUARD, status,
        weir_http_reason(status), date
    );
    if (good == WEIR_OK && r->cors[0] != '\0')
        good = weir_buffer_format(&text, WEIR_CORS_ORIGIN, r->cors);
    if (good == WEIR_OK && status == 204) good = weir_buffer_text(&text, WEIR_CORS_PREFLIGHT);
    if (good == WEIR_OK && status == 401)
        good = weir_buffer_text(&text, "WWW-Authenticate: Bearer\r\n");
    if (good == WEIR_OK && retry_after > 0)
        good = weir_buffer_format(&text, "Retry-After: %d\r\n", retry_after);
    if (good == WEIR_OK && status != 204)
        good = weir_buffer_format(
            &text, "Content-Type: %s\r\nContent-Length: %zu\r\n", type, body->size
        );
    if (good == WEIR_OK) good = weir_buffer_text(&text, "\r\n");
    if (good == WEIR_OK && !r->head_only && body->size > 0)
        good = weir_buffer_add(&text, body->data, body->size);
    weir_buffer_free(body);
    if (good != WEIR_OK) {
        weir_buffer_free(&text);
        weir_route_close(r);
        return;
    }
    weir_route_answer(r, &text);
}

/* ---- errors ---------------------------------------------------------------------------------- */

void weir_answer_error(weir_route *r, const weir_api_error *error, int retry_after)
{
    weir_buffer body = { 0 };
    const weir_status good = weir_anthropic_has_path(r->path)
                                 ? weir_anthropic_error_write(&body, error, NULL)
                                 : weir_api_error_write(&body, error);
    if (good != WEIR_OK) {
        weir_buffer_free(&body);
        weir_route_close(r);
        return;
    }
    r->router->n_refused++;
    send_answer(r, error->status, "application/json", retry_after, &body);
}

void weir_answer_refuse(
    weir_route *r, int status, const char *code, int retry_after, const char *format, ...
)
{
    weir_api_error error = { 0 };
    char message[sizeof error.message];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    (void)!weir_api_fail(&error, status, code, status == 404 ? "model" : NULL, "%s", message);
    weir_answer_error(r, &error, retry_after);
}

void weir_answer_options(weir_route *r) { send_answer(r, 204, "", 0, &(weir_buffer){ 0 }); }

void weir_answer_unknown(weir_route *r, const char *name)
{
    char list[600] = "";
    size_t n = 0;
    for (size_t i = 0; i < r->router->loads.n; i++) {
        const char *const each = r->router->loads.of[i].name;
        if (!weir_request_may_use(r, i) || n + strlen(each) + 3 > sizeof list) continue;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n > 0 ? ", " : "", each);
    }
    weir_answer_refuse(
        r, 404, "model_not_found", 0, "the model %s is not served here; there are: %s",
        weir_quote(name).text, list
    );
}

/* ---- own paths ------------------------------------------------------------------------------- */

static void write_model(weir_json_out *json, const weir_router *router, const weir_load *load)
{
    weir_json_open(json, '{');
    weir_json_put_string(json, "id", load->name);
    weir_json_put_string(json, "object", "model");
    weir_json_put_integer(json, "created", router->start_unix);
    weir_json_put_string(json, "owned_by", "weir");
    weir_json_key(json, "status");
    weir_json_open(json, '{');
    weir_json_put_string(json, "value", weir_load_name(load));
    if (load->failed && load->state == WEIR_LOAD_NONE) {
        weir_json_put_bool(json, "failed", true);
        weir_json_put_integer(json, "exit_code", load->exit_code);
    }
    weir_json_close(json, '}');
    weir_json_key(json, "meta");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "memory", load->bytes);
    weir_json_put_integer(json, "requests_running", load->n_running);
    weir_json_put_integer(json, "requests_waiting", load->n_waiting);
    weir_json_close(json, '}');
    weir_json_close(json, '}');
}

static void answer_json(weir_route *r, weir_json_out *json)
{
    if (json->status == WEIR_OK) {
        send_answer(r, 200, "application/json", 0, json->buffer);
        return;
    }
    weir_buffer_free(json->buffer);
    weir_route_close(r);
}

static void answer_models(weir_route *r)
{
    weir_buffer text = { 0 };
    weir_json_out json = { .buffer = &text };
    if (r->router->drains) { /* as servers do, for load balancers */
        weir_answer_refuse(r, 503, NULL, 0, "this server is shutting down");
        return;
    }
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "object", "list");
    weir_json_key(&json, "data");
    weir_json_open(&json, '[');
    for (size_t i = 0; i < r->router->loads.n; i++)
        if (weir_request_may_use(r, i)) write_model(&json, r->router, &r->router->loads.of[i]);
    weir_json_close(&json, ']');
    weir_json_key(&json, "models"); /* Codex requires its own list here */
    weir_json_open(&json, '[');
    weir_json_close(&json, ']');
    weir_json_close(&json, '}');
    answer_json(r, &json);
}

static void answer_model(weir_route *r, const char *name)
{
    weir_buffer text = { 0 };
    weir_json_out json = { .buffer = &text };
    const int i = weir_supply_find(r->router, name, strlen(name));
    if (i < 0 || !weir_request_may_use(r, (size_t)i)) {
        weir_answer_unknown(r, name);
        return;
    }
    write_model(&json, r->router, &r->router->loads.of[i]);
    answer_json(r, &json);
}

static weir_status write_metrics(weir_buffer *out, const weir_route *r)
{
    static const struct {
        const char *name, *type, *help;
        size_t offset;
    } rows[] = {
        { "weir:router_loads_total", "counter", "Loads of a model.", offsetof(weir_load, n_loads) },
        { "weir:router_unloads_total", "counter", "Times that a model made room for another.",
          offsetof(weir_load, n_unloads) },
        { "weir:router_failures_total", "counter",
          "Ends of a model's server that were not asked for.", offsetof(weir_load, n_crashes) },
        { "weir:router_requests_total", "counter", "Requests passed on.",
          offsetof(weir_load, n_requests) },
        { "weir:router_requests_running", "gauge", "Requests that a model answers.",
          offsetof(weir_load, n_running) },
        { "weir:router_requests_waiting", "gauge", "Requests that wait for a model.",
          offsetof(weir_load, n_waiting) },
    };
    const weir_router *const router = r->router;
    WEIR_TRY(weir_buffer_format(
        out,
        "# HELP weir:router_memory_bytes Memory of models that are loaded, and of all.\n"
        "# TYPE weir:router_memory_bytes gauge\n"
        "weir:router_memory_bytes{kind=\"used\"} %lld\nweir:router_memory_bytes{kind=\"limit\"} "
        "%lld\n"
        "# HELP weir:router_body_bytes Memory of request bodies on their way.\n"
        "# TYPE weir:router_body_bytes gauge\nweir:router_body_bytes %lld\n"
        "# HELP weir:router_refused_total Requests that the router refused.\n"
        "# TYPE weir:router_refused_total counter\nweir:router_refused_total %llu\n"
        "# HELP weir:router_loaded Whether a model is loaded.\n"
        "# TYPE weir:router_loaded gauge\n",
        (long long)weir_loads_used(&router->loads), (long long)router->loads.bytes,
        (long long)router->body_bytes, (unsigned long long)router->n_refused
    ));
    for (size_t i = 0; i < router->loads.n; i++)
        if (weir_request_may_watch(r, i))
            WEIR_TRY(weir_buffer_format(
                out, "weir:router_loaded{model=\"%s\"} %d\n", router->loads.of[i].name,
                router->loads.of[i].state == WEIR_LOAD_DONE
            ));
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        WEIR_TRY(weir_buffer_format(
            out, "# HELP %s %s\n# TYPE %s %s\n", rows[row].name, rows[row].help, rows[row].name,
            rows[row].type
        ));
        for (size_t i = 0; i < router->loads.n; i++) {
            int64_t value;
            if (!weir_request_may_watch(r, i)) continue;
            memcpy(&value, (const char *)&router->loads.of[i] + rows[row].offset, sizeof value);
            WEIR_TRY(weir_buffer_format(
                out, "%s{model=\"%s\"} %lld\n", rows[row].name, router->loads.of[i].name,
                (long long)value
            ));
        }
    }
    return WEIR_OK;
}

static void answer_metrics(weir_route *r)
{
    weir_buffer text = { 0 };
    if (write_metrics(&text, r) == WEIR_OK) {
        send_answer(r, 200, "text/plain; version=0.0.4; charset=utf-8", 0, &text);
        return;
    }
    weir_buffer_free(&text);
    weir_route_close(r);
}

bool weir_answer_own(weir_route *r)
{
    static const char one[] = "/v1/models/", ok[] = "{\"status\":\"ok\"}";
    const char *const path = r->path;
    if (!r->is_get) return false;
    if (strcmp(path, "/health") == 0 || strcmp(path, "/v1/health") == 0) {
        weir_buffer text = { 0 };
        (void)!weir_buffer_text(&text, ok); /* or an empty body: the status says it */
        send_answer(r, 200, "application/json", 0, &text);
    } else if (strcmp(path, "/v1/models") == 0 || strcmp(path, "/models") == 0) {
        answer_models(r);
    } else if (strncmp(path, one, sizeof one - 1) == 0) {
        answer_model(r, path + sizeof one - 1);
    } else if (strcmp(path, "/metrics") == 0 && r->query[0] == '\0') {
        answer_metrics(r);
    } else {
        return false;
    }
    return true;
}

/* ---- heads of servers ------------------------------------------------------------------------ */

bool weir_answer_allow(weir_route *r)
{
    char line[sizeof r->cors + sizeof WEIR_CORS_ORIGIN + sizeof WEIR_CORS_EXPOSE];
    weir_route_bytes *const down = &r->down;
    const char *const end = memchr(down->data, '\n', down->size);
    if (end == NULL || r->cors[0] == '\0') return end != NULL;
    const int n = snprintf(line, sizeof line, WEIR_CORS_ORIGIN WEIR_CORS_EXPOSE, r->cors);
    const size_t at = (size_t)(end - down->data) + 1;
    if (down->size + (size_t)n > down->capacity) return true; /* the page does not get the answer */
    memmove(down->data + at + n, down->data + at, down->size - at);
    memcpy(down->data + at, line, (size_t)n);
    down->size += (size_t)n;
    return true;
}
