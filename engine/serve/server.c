/* engine/serve/server.c - options and socket; opens, drains and closes the server. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
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

static bool address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
               127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static weir_status listen_on(weir_server *server, const struct addrinfo *address, weir_error *error)
{
    const weir_server_options *const o = &server->options;
    server->access.is_loopback = address_is_loopback(address->ai_addr);
    if (!server->access.is_loopback && server->access.n_keys == 0 && !o->insecure)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "server.host %s can be reached from other machines and no API key is "
            "set; give server.api_key_file or WEIR_API_KEY, or set "
            "server.insecure if that is meant",
            o->host
        );
    server->loop.listener =
        socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (server->loop.listener < 0)
        return weir_error_set(error, WEIR_EIO, "cannot make a socket: %s", strerror(errno));
    const int one = 1;
    (void)setsockopt(server->loop.listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(server->loop.listener, address->ai_addr, address->ai_addrlen) != 0 ||
        listen(server->loop.listener, 1024) != 0) {
        if (errno == EADDRINUSE)
            return weir_error_set(
                error, WEIR_EIO,
                "port %d of %s is in use by another program; choose another with server.port",
                o->port, o->host
            );
        return weir_error_set(
            error, WEIR_EIO, "cannot listen on %s port %d: %s", o->host, o->port, strerror(errno)
        );
    }
    return WEIR_OK;
}

/* The host name that clients may use: the configured one, or the machine's. */
static void find_own_host(weir_access *access, const char *host)
{
    struct in6_addr address;
    const bool is_address =
        inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
    if (!is_address)
        (void)snprintf(access->own_host, sizeof access->own_host, "%s", host);
    else if (gethostname(access->own_host, sizeof access->own_host - 1) != 0)
        access->own_host[0] = 0;
}

/* Without a key it is for one user, as a loopback address is for one machine. */
static weir_status open_local_socket(weir_server *server, weir_error *error)
{
    const char *const path = server->options.host;
    server->access.is_loopback = true;
    return weir_local_socket_open(
        &server->loop.listener, &server->local_socket, path,
        server->access.n_keys == 0 && !server->options.insecure, error
    );
}

static weir_status open_socket(weir_server *server, weir_error *error)
{
    const weir_server_options *const o = &server->options;
    if (weir_local_socket_is_named(o->host)) return open_local_socket(server, error);
    if (o->port < 0 || o->port > 65535)
        return weir_error_set(
            error, WEIR_ECONFIG, "server.port is %d; it must be 0 to 65535", o->port
        );
    char port[8];
    (void)snprintf(port, sizeof port, "%d", o->port);
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    struct addrinfo *found = NULL;
    const int why = getaddrinfo(o->host, port, &hints, &found);
    if (why != 0)
        return weir_error_set(
            error, WEIR_ECONFIG, "server.host %s is not an address of this machine: %s", o->host,
            gai_strerror(why)
        );
    const struct addrinfo *pick =
        found; /* "localhost" may resolve to ::1 first on a machine without IPv6 */
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next)
        if (a->ai_family == AF_INET && pick->ai_family != AF_INET) pick = a;
    const weir_status status = listen_on(server, pick, error);
    freeaddrinfo(found);
    if (status != WEIR_OK) return status;

    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    if (getsockname(server->loop.listener, (struct sockaddr *)&bound, &size) != 0)
        return weir_error_set(error, WEIR_EIO, "cannot read the bound port: %s", strerror(errno));
    server->port = ntohs(
        bound.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&bound)->sin_port
                                   : ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
    );
    return WEIR_OK;
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
static weir_status find_format(weir_server *server, weir_error *error)
{
    const weir_server_options *const options = &server->options;
    weir_status status = WEIR_OK;
    if (options->chat != NULL)
        status = weir_chat_format_detect(
            &server->format, options->chat, weir_tokenizer_bos_text(options->tokenizer),
            weir_tokenizer_eos_text(options->tokenizer)
        );
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
    weir_status status = find_format(server, error);
    for (size_t i = 0; i < options->n_keys && status == WEIR_OK; i++)
        status =
            weir_access_add(&server->access, options->keys[i], strlen(options->keys[i]), error);
    find_own_host(&server->access, server->options.host);
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
    if (status == WEIR_OK) status = open_socket(server, error);
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

int weir_server_port(const weir_server *server) { return server->port; }

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
    weir_local_socket_remove(&server->local_socket);
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
