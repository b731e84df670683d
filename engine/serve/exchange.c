/* engine/serve/exchange.c - the life of one request: opened at its first line, processed by any
 * thread, ended after its answer was sent (weir_exchange_detach). */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "engine/base/clock.h"
#include "engine/serve/anthropic_error.h"
#include "engine/serve/internal.h"
#include "engine/serve/json_out.h"
#include "engine/serve/ollama_request.h"

static void make_id(char *id, size_t size)
{
    uint64_t random[2] = { 0, 0 };
    (void)getrandom(random, sizeof random, 0);
    (void)snprintf(
        id, size, "req_%016llx%08llx", (unsigned long long)random[0],
        (unsigned long long)(random[1] & 0xffffffff)
    );
}

/* Charged to the process, so that a server that is out of memory still answers. */
static weir_exchange *take_spare(weir_server *server)
{
    atomic_int *const n = &server->loop.n_spare_exchanges;
    if (atomic_load(n) >= WEIR_SPARE_PLACES) return NULL;
    weir_memory_tracker *const before = weir_memory_tracker_set(NULL);
    weir_exchange *const x = weir_memory_take_zero(1, sizeof *x);
    (void)weir_memory_tracker_set(before);
    if (x != NULL) atomic_fetch_add(n, 1);
    return x;
}

weir_exchange *weir_exchange_open(
    weir_connection *connection, const char *method, const char *target
)
{
    weir_server *const server = connection->server;
    weir_exchange *x = connection->is_spare ? NULL : weir_memory_take_zero(1, sizeof *x);
    const bool is_spare = x == NULL;
    if (is_spare) x = take_spare(server);
    if (x == NULL) return NULL;
    x->is_spare = is_spare;
    x->server = server;
    x->connection = connection;
    x->attached = true;
    x->start_ns = weir_clock_ns();
    x->key = -1;
    const size_t length = strcspn(target, "?");
    if (length < sizeof x->path)
        memcpy(x->path, target, length); /* a longer path matches no route and stays empty */
    if (target[length] == '?' && strlen(target + length) <= sizeof x->query)
        (void)snprintf(x->query, sizeof x->query, "%s", target + length + 1);
    (void)snprintf(x->method, sizeof x->method, "%.*s", (int)sizeof x->method - 1, method);
    make_id(x->id, sizeof x->id);
    (void)pthread_mutex_init(&x->lock, NULL);
    atomic_fetch_add(&server->n_exchanges, 1);
    return x;
}

void weir_exchange_detach(weir_exchange *x, bool complete)
{
    weir_server *const server = x->server;
    (void)pthread_mutex_lock(&x->lock);
    x->attached = false;
    if (!complete) x->gone = true;
    if (x->generation != NULL && x->gone) weir_generation_cancel(x->generation);
    (void)pthread_mutex_unlock(&x->lock);
    weir_loop_forget(&server->loop, x);
    if (weir_workers_drop(&server->workers, x)) weir_exchange_destroy(x);
}

static void count(weir_exchange *x)
{
    weir_metrics *const metrics = &x->server->metrics;
    if (x->gone)
        weir_metrics_add(&metrics->cancelled, 1);
    else if (x->status >= 500)
        weir_metrics_add(&metrics->failed, 1);
    else if (x->status >= 400)
        weir_metrics_add(&metrics->refused, 1);
}

void weir_exchange_warn(weir_exchange *x, const weir_unknown_fields *unknown)
{
    weir_json_out json = { .buffer = &x->unknown };
    weir_warning_unknown(x->warning, unknown);
    if (unknown->count > 0) weir_unknown_write(&json, unknown);
    if (json.status != WEIR_OK) weir_buffer_free(&x->unknown); /* the header still names them */
}

weir_status weir_exchange_check_fields(weir_exchange *x, const json_t *root, weir_body body)
{
    weir_unknown_fields unknown = { 0 };
    WEIR_TRY(weir_fields_check(root, body, &unknown, &x->error));
    weir_exchange_warn(x, &unknown);
    return WEIR_OK;
}

void weir_exchange_drop_body(weir_exchange *x)
{
    atomic_fetch_sub(&x->server->body_bytes, x->body.capacity);
    weir_buffer_free(&x->body);
}

/* Opened on first use: most requests that are refused by their head allocate nothing. */
weir_memory_tracker *weir_exchange_tracker(weir_exchange *x)
{
    weir_memory_tracker *const tracker = &x->server->tracker.tracker;
    if (x->is_spare) return NULL;
    (void)pthread_mutex_lock(&x->lock);
    if (x->heap == NULL) x->heap = weir_heap_open(tracker);
    weir_heap *const heap = x->heap;
    (void)pthread_mutex_unlock(&x->lock);
    return heap != NULL ? weir_heap_tracker(heap) : tracker;
}

void weir_exchange_run(weir_exchange *x)
{
    weir_memory_tracker *const before = weir_memory_tracker_set(weir_exchange_tracker(x));
    x->route->run(x);
    (void)weir_memory_tracker_set(before);
}

void weir_exchange_advance(weir_exchange *x)
{
    if (x->generation != NULL) weir_generation_advance(x);
    if (x->call != NULL) weir_session_call_advance(x->call);
    if (x->states != NULL) weir_states_call_advance(x->states);
}

void weir_exchange_abandon(weir_exchange *x)
{
    if (x->generation != NULL) weir_generation_abandon(x->generation);
    if (x->call != NULL) weir_session_call_abandon(x->call);
    if (x->states != NULL) weir_states_call_abandon(x->states);
}

void weir_exchange_destroy(weir_exchange *x)
{
    weir_server *const server = x->server;
    if (x->generation != NULL) weir_generation_release(x->generation);
    count(x);
    weir_request_log(x);
    if (x->generation != NULL) weir_generation_free(x->generation);
    weir_session_call_free(x->call);
    weir_states_call_free(x->states);
    weir_exchange_drop_body(x);
    weir_buffer_free(&x->reply);
    weir_buffer_free(&x->unknown);
    weir_heap_close(x->heap);
    (void)pthread_mutex_destroy(&x->lock);
    if (x->is_spare) atomic_fetch_sub(&server->loop.n_spare_exchanges, 1);
    weir_memory_give(x);
    atomic_fetch_sub(&server->n_exchanges, 1);
}

weir_own_name weir_exchange_own(const weir_exchange *x, const char *cache_salt, const char *session)
{
    weir_own_name own = { .salt = "" };
    char owner[17] = "";
    for (size_t i = 0; i < 8 && x->key >= 0; i++)
        (void)snprintf(owner + 2 * i, 3, "%02x", x->server->access.key[x->key].bytes[i]);
    if (x->key >= 0 || cache_salt != NULL)
        (void
        )snprintf(own.salt, sizeof own.salt, "%s:%s", owner, cache_salt != NULL ? cache_salt : "");
    (void)snprintf(own.name, sizeof own.name, x->key >= 0 ? "k%s-%s" : "%s%s", owner, session);
    return own;
}

void weir_exchange_wake(weir_exchange *x) { weir_loop_wake(&x->server->loop, x); }

void weir_exchange_leave(weir_exchange *x)
{
    (void)pthread_mutex_lock(&x->lock);
    if (!x->gone && x->attached) {
        x->gone = true;
        if (x->generation != NULL) weir_generation_cancel(x->generation);
        weir_exchange_wake(x);
    }
    (void)pthread_mutex_unlock(&x->lock);
    weir_workers_add(&x->server->workers, x, WEIR_WORK_ABANDON);
}

void weir_exchange_stop(weir_exchange *x)
{
    (void)pthread_mutex_lock(&x->lock);
    if (!x->gone && x->generation != NULL) weir_generation_stop(x->generation);
    (void)pthread_mutex_unlock(&x->lock);
    weir_workers_add(&x->server->workers, x, WEIR_WORK_ABANDON);
}

/* Charges the buffer's capacity, which is what the body really takes. */
bool weir_exchange_charge(weir_exchange *x, size_t n)
{
    weir_server *const server = x->server;
    const size_t before = x->body.capacity;
    if (x->body.size + n + 1 > before &&
        atomic_load(&server->body_bytes) + n > (size_t)server->options.body_memory_limit)
        return false;
    weir_memory_tracker *const tracker = weir_memory_tracker_set(weir_exchange_tracker(x));
    const weir_status status = weir_buffer_reserve(&x->body, n);
    (void)weir_memory_tracker_set(tracker);
    if (status != WEIR_OK) return false;
    atomic_fetch_add(&server->body_bytes, x->body.capacity - before);
    return true;
}

static void make_ready(weir_exchange *x, int status, const char *content_type)
{
    (void)pthread_mutex_lock(&x->lock);
    x->status = status;
    x->content_type = content_type;
    x->ready = WEIR_READY_REPLY;
    (void)pthread_mutex_unlock(&x->lock);
    weir_exchange_wake(x);
}

void weir_reply_json(weir_exchange *x, int status, weir_buffer *text)
{
    weir_buffer_free(&x->reply);
    x->reply = *text;
    *text = (weir_buffer){ 0 };
    make_ready(x, status, "application/json");
}

void weir_reply_text(weir_exchange *x, const char *content_type, const void *text, size_t n)
{
    weir_buffer copy = { 0 };
    const weir_status status = weir_buffer_add(&copy, text, n);
    if (status != WEIR_OK) {
        weir_reply_status(x, status);
        return;
    }
    weir_buffer_free(&x->reply);
    x->reply = copy;
    make_ready(x, 200, content_type);
}

/* In the form of the API that the path belongs to. */
static weir_status write_error(weir_buffer *out, const weir_exchange *x)
{
    if (weir_ollama_has_path(x->path)) return weir_ollama_error_write(out, &x->error);
    if (weir_anthropic_has_path(x->path)) return weir_anthropic_error_write(out, &x->error, x->id);
    return weir_api_error_write(out, &x->error);
}

void weir_reply_error(weir_exchange *x)
{
    weir_memory_tracker *const tracker = weir_memory_tracker_set(NULL
    ); /* at most a page, so that even an error about memory can be sent */
    weir_buffer text = { 0 };
    if (write_error(&text, x) != WEIR_OK)
        weir_buffer_free(&text); /* empty body: there is no memory for a better one */
    (void)weir_memory_tracker_set(tracker);
    weir_reply_json(x, x->error.status, &text);
}

void weir_reply_status(weir_exchange *x, weir_status status)
{
    weir_api_from_status(&x->error, status, NULL);
    weir_reply_error(x);
}

void weir_reply_result(weir_exchange *x, weir_buffer *text, weir_status status)
{
    if (status == WEIR_OK) {
        weir_reply_json(x, 200, text);
        return;
    }
    weir_buffer_free(text);
    if (x->error.status == 0) weir_api_from_status(&x->error, status, NULL);
    weir_reply_error(x);
}
