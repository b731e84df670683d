/* engine/serve/http.c - libmicrohttpd's callbacks: from bytes of a connection to an exchange, and from a ready exchange to a reply.
 * All of them run on the MHD thread and never wait. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/base/memory.h"
#include "engine/serve/generation.h"
#include "engine/serve/internal.h"
#include "engine/serve/page.h"

void *weir_http_target(void *server, const char *target, struct MHD_Connection *mhd)
{
    (void)mhd;
    return weir_exchange_open(server, target);
}

static bool pay_connection(weir_server *server)
{
    return server->payer.payer.charge(&server->payer.payer, weir_connection_bytes((size_t)server->options.header_limit));
}

static void refuse_connection(int fd)
{
    weir_api_error error;
    (void)!weir_api_fail(&error, 503, NULL, NULL, "no memory for another connection within memory.host now; try again");
    weir_watch_answer_and_end(fd, &error);
}

void weir_http_connection(void *argument, struct MHD_Connection *mhd, void **context, enum MHD_ConnectionNotificationCode what)
{
    weir_server *const server = argument;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *const info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        weir_connection *const                connection = calloc(1, sizeof *connection);
        if (connection == NULL || info == NULL || !pay_connection(server)) { /* without a record every request of it is refused */
            free(connection);
            if (info != NULL) refuse_connection(info->connect_fd);
            return;
        }
        *context = connection;
        connection->fd = info->connect_fd;
        weir_watch_opened(server, connection);
    } else if (*context != NULL) {
        weir_watch_closed(server, *context);
        server->payer.payer.refund(&server->payer.payer, weir_connection_bytes((size_t)server->options.header_limit));
        free(*context);
        *context = NULL;
    }
}

void weir_http_completed(void *argument, struct MHD_Connection *mhd, void **exchange, enum MHD_RequestTerminationCode why)
{
    weir_server *const   server = argument;
    weir_exchange *const x = *exchange;
    (void)mhd;
    if (x == NULL) return;
    *exchange = NULL;
    if (x->connection != NULL) weir_watch_phase(server, x->connection, WEIR_PHASE_IDLE, NULL);
    (void)pthread_mutex_lock(&x->lock);
    x->mhd = NULL;
    x->suspended = false;
    if (why != MHD_REQUEST_TERMINATED_COMPLETED_OK) x->gone = true;
    if (x->generation != NULL && x->gone) weir_generation_cancel(x->generation);
    (void)pthread_mutex_unlock(&x->lock);
    weir_workers_add(&server->workers, x, WEIR_WORK_DESTROY);
}

/* ---- replies --------------------------------------------------------------------------------------------------- */

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    (void)!MHD_add_response_header(response, name, value);
}

static void add_error_headers(struct MHD_Response *response, const weir_api_error *error)
{
    char seconds[16];
    (void)snprintf(seconds, sizeof seconds, "%d", error->retry_after);
    if (error->retry_after > 0) add_header(response, "Retry-After", seconds);
    if (error->status == 500 || error->status == 501) add_header(response, "x-should-retry", "false");
    if (error->status == 401) add_header(response, "WWW-Authenticate", "Bearer");
}

/* With every answer that was made over rows that lost something, or without some of them; streams too. */
static void add_kv_headers(struct MHD_Response *response, const weir_exchange *x, int status)
{
    const weir_service_info *const info = weir_service_info_of(x->server->options.service);
    const weir_banks *const        banks = &info->banks;
    char                           budget[24];
    if (x->generation == NULL || status != 200) return;
    if (info->kv_is_lossy) add_header(response, "x-weir-kv-format", info->kv_format);
    if (banks->n_layers > 0) {
        (void)snprintf(budget, sizeof budget, "%lld", (long long)((banks->ring.slots + banks->exact.slots) / banks->n_layers));
        add_header(response, "x-weir-kv-banks", budget);
    }
    const weir_usage usage = weir_generation_usage(x->generation);
    if (usage.kv_policy == NULL) return;
    (void)snprintf(budget, sizeof budget, "%lld", (long long)usage.kv_budget);
    add_header(response, "x-weir-kv-policy", usage.kv_policy);
    add_header(response, "x-weir-kv-budget", budget);
}

static enum MHD_Result queue(weir_exchange *x, struct MHD_Connection *mhd, struct MHD_Response *response, int status)
{
    if (response == NULL) return MHD_NO;
    add_header(response, "x-request-id", x->id);
    add_header(response, "X-Content-Type-Options", "nosniff");
    if (x->warning[0] != '\0') add_header(response, "x-weir-warning", x->warning);
    add_kv_headers(response, x, status);
    const enum MHD_Result result = MHD_queue_response(mhd, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

/* `close`: the connection cannot go on, because the end of this request is not known or its body will not be read. */
static enum MHD_Result queue_reply(weir_exchange *x, struct MHD_Connection *mhd, bool close)
{
    struct MHD_Response *const response =
        MHD_create_response_from_buffer_with_free_callback(x->reply.size, x->reply.data, weir_memory_give);
    if (response == NULL) return MHD_NO;
    x->reply = (weir_buffer){ 0 };
    if (x->content_type != NULL) add_header(response, "Content-Type", x->content_type);
    if (x->content_type != NULL && strncmp(x->content_type, "text/html", 9) == 0)
        add_header(response, "Content-Security-Policy", WEIR_PAGE_POLICY);
    if (x->error.status != 0) add_error_headers(response, &x->error);
    if (x->status == 405 || x->status == 204) {
        const char *allow = NULL;
        (void)weir_route_find(x->method, x->path, &allow);
        if (allow != NULL) add_header(response, "Allow", allow);
    }
    if (close) add_header(response, "Connection", "close");
    return queue(x, mhd, response, x->status);
}

static enum MHD_Result queue_stream(weir_exchange *x, struct MHD_Connection *mhd)
{
    struct MHD_Response *const response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, WEIR_STREAM_BLOCK_BYTES, weir_stream_read, x, NULL);
    if (response == NULL) return MHD_NO;
    add_header(response, "Content-Type", "text/event-stream");
    add_header(response, "Cache-Control", "no-cache");
    add_header(response, "X-Accel-Buffering", "no");
    x->status = 200;
    return queue(x, mhd, response, 200);
}

/* Either the exchange is ready, or its request sleeps until somebody wakes it. */
static enum MHD_Result reply_or_sleep(weir_exchange *x, struct MHD_Connection *mhd)
{
    (void)pthread_mutex_lock(&x->lock);
    const bool       gone = x->gone;
    const weir_ready ready = x->ready;
    if (!gone && ready == WEIR_NOT_READY) {
        x->suspended = true;
        MHD_suspend_connection(mhd);
    }
    (void)pthread_mutex_unlock(&x->lock);
    if (gone) return MHD_NO;
    switch (ready) {
    case WEIR_NOT_READY: return MHD_YES;
    case WEIR_READY_REPLY: return queue_reply(x, mhd, false);
    case WEIR_READY_STREAM: return queue_stream(x, mhd);
    }
    return MHD_NO;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* A caller's id is taken if it is short and printable, so that logs on both sides can be joined. */
static void take_request_id(weir_exchange *x, struct MHD_Connection *mhd)
{
    const char *const id = MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, "x-request-id");
    if (id == NULL) return;
    const size_t n = strlen(id);
    if (n == 0 || n > WEIR_REQUEST_ID) return;
    for (size_t i = 0; i < n; i++)
        if (id[i] <= 0x20 || id[i] >= 0x7f || id[i] == '"' || id[i] == '\\') return;
    memcpy(x->id, id, n + 1);
}

static enum MHD_Result first_call(weir_exchange *x, struct MHD_Connection *mhd, const char *method, const char *version)
{
    const union MHD_ConnectionInfo *const info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info == NULL || info->socket_context == NULL) return MHD_NO;
    x->checked = true;
    x->connection = info->socket_context;
    x->mhd = mhd;
    (void)snprintf(x->method, sizeof x->method, "%.*s", (int)sizeof x->method - 1, method);
    take_request_id(x, mhd);
    bool        must_close = false;
    weir_status status = weir_check_header(x, mhd, version, &must_close);
    if (status == WEIR_OK && strcmp(method, "POST") == 0 && !weir_exchange_charge(x, x->length)) {
        status = weir_api_fail(&x->error, 503, NULL, NULL, "no memory for a body of %zu bytes now; try again", x->length);
        must_close = true; /* the body will not be read */
    }
    if (status == WEIR_OK && strcmp(method, "OPTIONS") == 0) {
        x->status = 204;
    } else if (status == WEIR_OK) {
        weir_watch_phase(x->server, x->connection, WEIR_PHASE_BODY, x);
        return MHD_YES;
    } else {
        weir_reply_error(x);
    }
    weir_watch_phase(x->server, x->connection, WEIR_PHASE_ANSWER, x);
    return queue_reply(x, mhd, must_close);
}

/* A reply cannot be queued in the middle of an upload, so this one goes around MHD. */
static enum MHD_Result refuse_body(weir_exchange *x, int status, const char *message)
{
    (void)!weir_api_fail(&x->error, status, NULL, NULL, "%s", message);
    x->status = status;
    weir_watch_answer_and_end(x->connection->fd, &x->error);
    return MHD_NO;
}

static enum MHD_Result take_body(weir_exchange *x, const char *bytes, size_t *n)
{
    const size_t size = *n;
    *n = 0;
    weir_watch_body(x->server, x->connection, size);
    if (strcmp(x->method, "POST") != 0) return MHD_YES;
    if (size > (size_t)x->server->options.body_limit - x->body.size)
        return refuse_body(x, 413, "the body is larger than this server takes");
    if (!weir_exchange_charge(x, size)) return refuse_body(x, 503, "too many large requests at once; try again");
    return weir_buffer_add(&x->body, bytes, size) == WEIR_OK ? MHD_YES : MHD_NO;
}

enum MHD_Result weir_http_handle(void *argument, struct MHD_Connection *mhd, const char *url, const char *method, const char *version,
                                 const char *upload, size_t *upload_size, void **exchange)
{
    weir_server *const   server = argument;
    weir_exchange *const x = *exchange;
    (void)url; /* decoded; routes are compared with what was sent */
    (void)weir_payer_set(&server->payer.payer); /* this thread belongs to the server */
    if (x == NULL) return MHD_NO;
    if (!x->checked) return first_call(x, mhd, method, version);
    if (*upload_size > 0) return take_body(x, upload, upload_size);
    if (!x->dispatched) {
        x->dispatched = true;
        weir_watch_phase(server, x->connection, WEIR_PHASE_ANSWER, x);
        if (x->route->by_worker)
            weir_workers_add(&server->workers, x, WEIR_WORK_START);
        else
            x->route->run(x);
    }
    return reply_or_sleep(x, mhd);
}
