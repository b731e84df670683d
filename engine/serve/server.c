/* engine/serve/server.c - options; opens, drains and closes the server. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/processors.h"
#include "engine/serve/internal.h"
#include "engine/serve/llama_api.h"
#include "engine/toolcalls/detect.h"
#include "engine/toolcalls/reasoning.h"

static void fill_defaults(weir_server_options *o)
{
    if (o->host == NULL || o->host[0] == 0) o->host = "127.0.0.1";
    if (o->body_limit <= 0) o->body_limit = 16 << 20;
    if (o->header_limit <= 0) o->header_limit = 32 << 10;
    if (o->body_memory_limit <= 0) o->body_memory_limit = 16 * o->body_limit;
    if (o->max_connections <= 0) o->max_connections = 1024;
    if (o->connections_per_address <= 0) o->connections_per_address = (o->max_connections + 1) / 2;
    if (o->read_timeout_ms <= 0) o->read_timeout_ms = 30000;
    if (o->header_timeout_ms <= 0) o->header_timeout_ms = 10000;
    if (o->header_timeout_ms > o->read_timeout_ms) o->header_timeout_ms = o->read_timeout_ms;
    if (o->write_timeout_ms <= 0) o->write_timeout_ms = 30000;
    if (o->ping_ms <= 0) o->ping_ms = 15000;
    o->n_workers = weir_request_threads(o->n_workers);
    if (o->model_name == NULL || o->model_name[0] == 0)
        o->model_name = weir_service_facts_of(o->service)->model;
    if (o->fingerprint == NULL) o->fingerprint = "weir";
    if (o->version == NULL) o->version = "0";
}

static bool has_reasoning_tag(const weir_tokenizer *tokenizer)
{
    for (int i = 0; weir_reasoning_tag(i) != NULL; i++) {
        const char *const tag = weir_reasoning_tag(i);
        if (weir_tokenizer_find(tokenizer, tag, strcspn(tag, ">]") + 1) >= 0) return true;
    }
    return false;
}

/* Templates without tools get them as text, which asks for calls in the form of Hermes. */
static weir_status examine_chat(weir_server *server, weir_error *error)
{
    const weir_server_options *const options = &server->options;
    const weir_ranking *const ranking = &weir_service_facts_of(options->service)->ranking;
    weir_status status = WEIR_OK;
    if (options->chat != NULL)
        status = weir_chat_format_detect(
            &server->format, options->chat, weir_tokenizer_bos_text(options->tokenizer),
            weir_tokenizer_eos_text(options->tokenizer)
        );
    if (options->chat != NULL && ranking->is_used && status == WEIR_OK)
        status = weir_chat_check_pairs(&server->loses_pairs, server, ranking->prompt);
    if (server->format == NULL) server->format = weir_chat_format_find("hermes");
    return status == WEIR_OK ? WEIR_OK
                             : weir_error_set(error, status, "no memory for the chat template");
}

weir_status weir_server_open(
    weir_server **out, const weir_server_options *options, weir_error *error
)
{
    weir_server *const server = calloc(1, sizeof *server);
    if (server == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the server");
    server->options = *options;
    server->loop.listener = server->loop.epoll = server->loop.wake = -1;
    server->access.hosts = options->allowed_hosts;
    server->access.origins = options->allowed_origins;
    server->start_unix = weir_clock_unix_seconds();
    fill_defaults(&server->options);
    weir_ledger_tracker_init(&server->tracker, options->ledger, WEIR_ACCOUNT_HTTP, NULL);
    weir_ledger_tracker_init(
        &server->grammars_tracker, options->ledger, WEIR_ACCOUNT_TOKENIZER, NULL
    );
    (void)pthread_mutex_init(&server->loop.lock, NULL);
    (void)pthread_mutex_init(&server->workers.lock, NULL);
    (void)pthread_cond_init(&server->workers.wake, NULL);
    const weir_engine_facts *const facts = weir_service_facts_of(options->service);
    server->limits = (weir_request_limits){ .model_name = server->options.model_name,
                                            .aliases = options->aliases,
                                            .n_vocab = facts->n_valid_vocab,
                                            .n_slots = facts->n_slots,
                                            .window = facts->window,
                                            .has_keys = options->n_keys > 0,
                                            .sampling = options->sampling,
                                            .has_seed = options->has_seed,
                                            .max_tokens = options->max_tokens,
                                            .truncate_middle = options->truncate_middle };
    server->reasons = has_reasoning_tag(options->tokenizer);
    weir_status status = examine_chat(server, error);
    for (size_t i = 0; i < options->n_keys && status == WEIR_OK; i++)
        status =
            weir_access_add(&server->access, options->keys[i], strlen(options->keys[i]), error);
    weir_access_name(&server->access, server->options.host);
    if (status == WEIR_OK) status = weir_access_check_lists(&server->access, error);
    if (status == WEIR_OK)
        status = weir_grammars_open(
            &server->grammars, options->tokenizer, (size_t)facts->n_valid_vocab,
            &server->grammars_tracker.tracker, error
        );
    if (status == WEIR_OK) {
        server->slots = weir_llama_slots_open(facts->n_slots);
        if (server->slots == NULL)
            status = weir_error_set(error, WEIR_ENOMEM, "no memory for %d slots", facts->n_slots);
    }
    if (status == WEIR_OK)
        status = weir_call_memory_open(&server->calls, &server->grammars_tracker.tracker, error);
    if (status == WEIR_OK) {
        const weir_listen_options where = { server->options.host, server->options.port,
                                            server->options.insecure };
        status = weir_listen(&server->socket, &where, &server->access, error);
        server->loop.listener = server->socket.fd;
    }
    if (status == WEIR_OK) status = weir_loop_open(server, error);
    if (status == WEIR_OK)
        *out = server;
    else
        weir_server_close(server);
    return status;
}

weir_status weir_server_start(weir_server *server, weir_error *error)
{
    WEIR_TRY(weir_request_log_open(server, error));
    WEIR_TRY(weir_workers_start(
        &server->workers, server->options.n_workers, &server->tracker.tracker, error
    ));
    return weir_loop_start(server, error);
}

int weir_server_port(const weir_server *server) { return server->socket.port; }

static void wait_for_exchanges(weir_server *server, int64_t deadline_ns)
{
    while (atomic_load(&server->n_exchanges) > 0 && weir_clock_ns() < deadline_ns)
        (void)poll(NULL, 0, 10);
}

/* Time for clients to receive the reason why their answer ends. */
static const int64_t last_words_ns = 1000000000;
static const int64_t last_step_ns = 10000000000;
static const int64_t last_lines_ms = 1000;       /* for writing the last log lines */

void weir_server_drain(weir_server *server, int64_t deadline_ns)
{
    atomic_store(&server->draining, true);
    wait_for_exchanges(server, deadline_ns);
    if (atomic_load(&server->n_exchanges) == 0) return;
    weir_loop_command(&server->loop, WEIR_LOOP_STOP);
    wait_for_exchanges(server, weir_clock_ns() + last_words_ns);
    weir_loop_command(&server->loop, WEIR_LOOP_LEAVE);
}

static bool holds_memory(const weir_server *server)
{
    return weir_ledger_tracker_held(&server->tracker) > 0 ||
           weir_ledger_tracker_held(&server->grammars_tracker) > 0;
}

/* Memory of released jobs is freed at the engine's next step. */
static bool wait_for_memory(const weir_server *server)
{
    const int64_t deadline_ns = weir_clock_ns() + last_step_ns;
    while (holds_memory(server) && weir_clock_ns() < deadline_ns) (void)poll(NULL, 0, 1);
    return !holds_memory(server);
}

void weir_server_close(weir_server *server)
{
    if (server == NULL) return;
    atomic_store(&server->draining, true);
    /* In a sandbox it stays, and the next server replaces it. */
    weir_local_socket_remove(&server->socket.local);
    weir_loop_close(&server->loop);      /* detaches every exchange */
    weir_workers_stop(&server->workers); /* destroys them */
    weir_line_writer_close(server->log, last_lines_ms);
    weir_grammars_close(server->grammars);
    weir_llama_slots_close(server->slots);
    weir_call_memory_close(server->calls);
    (void)pthread_mutex_destroy(&server->loop.lock);
    (void)pthread_mutex_destroy(&server->workers.lock);
    (void)pthread_cond_destroy(&server->workers.wake);
    if (wait_for_memory(server))
        free(server);
    else /* the tracker must outlive what is charged to it */
        weir_log(WEIR_LOG_ERROR, "the engine still holds memory of requests, which is not freed");
}
