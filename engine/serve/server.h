/* engine/serve/server.h - the HTTP server: OpenAI's API over an engine service. Opened, drained and
 * closed by `serve`.
 *
 * HTTP runs on its own threads; the engine thread only copies tokens into mailboxes. The server
 * owns no model, no KV and no sequence. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/schedule/service.h"
#include "engine/session/sessions.h"
#include "engine/states/states.h"
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_server weir_server;

typedef enum weir_reasoning_field {
    WEIR_REASONING_CONTENT,
    WEIR_REASONING,
    WEIR_REASONING_BOTH
} weir_reasoning_field;

/* A field that is zero gets the default in its comment. Borrowed until weir_server_close. */
typedef struct weir_server_options {
    const char *host; /* NULL: 127.0.0.1 */
    int port; /* 0: any free port, see weir_server_port */
    bool insecure; /* allow addresses other than loopback without a key */
    const char *const *keys; /* [n_keys] API keys; stored as digests */
    size_t n_keys;
    /* bytes: 16 MiB, 32 KiB, 16 x body_limit (all bodies together) */
    int64_t body_limit, header_limit, body_memory_limit;
    /* comma-separated lists; NULL: none (engine/serve/access.h) */
    const char *allowed_hosts, *allowed_origins;
    int64_t max_connections; /* 1024 */
    int64_t connections_per_address; /* half of max_connections; loopback is exempt */
    int64_t header_timeout_ms; /* 10 s, at most read_timeout_ms */
    int64_t read_timeout_ms, write_timeout_ms, ping_ms; /* 30 s, 30 s, 15 s */
    /* Threads that parse, render and tokenise; default: weir_processors, at least 4. */
    int n_workers;
    const char *model_name; /* NULL: the service's */
    const char *aliases; /* comma-separated further names; "*": any; NULL: none */
    const char *fingerprint; /* system_fingerprint, e.g. version-model-policy; NULL: "weir" */
    const char *version; /* NULL: "0" */
    bool metrics_vllm; /* repeat known metrics with the prefix vllm: */
    weir_reasoning_field reasoning_field;
    bool truncate_middle; /* of prompts that are too long, unless the request says otherwise */
    weir_sampling sampling; /* defaults for requests */
    bool has_seed; /* use `sampling.seed` too; false: a new seed for each request */
    int64_t max_tokens; /* default for chats; 0: to the end of the window */
    int log_fd; /* one JSON line per request; -1: none */
    /* Charged for connections, bodies and answers (account http); NULL: nothing is charged. */
    struct weir_ledger *ledger;
    weir_service *service;
    weir_sessions *sessions; /* NULL: /v1/sessions answers 501 */
    weir_states *states; /* NULL: /v1/states answers 501 */
    weir_sessions *state_sessions; /* the sessions of states; may be `sessions` */
    const weir_tokenizer *tokenizer;
    const weir_chat_template *chat; /* NULL: /v1/chat/completions answers 400 */
    const char *chat_problem; /* why there is none; NULL: the model has no template */
} weir_server_options;

/* Checks the options and binds the socket. ECONFIG: a bad option, or an address other than loopback
 * without key and without `insecure`. EIO: the address cannot be bound (the message says whether
 * the port is in use). */
WEIR_MUST_CHECK weir_status
weir_server_open(weir_server **out, const weir_server_options *options, weir_error *error);
/* Starts serving. */
WEIR_MUST_CHECK weir_status weir_server_start(weir_server *server, weir_error *error);
int weir_server_port(const weir_server *server);

/* Answers new model requests (and /v1/models) with 503. Returns when the running requests have
 * ended, at latest a second after the deadline (CLOCK_MONOTONIC), when the rest has been cancelled
 * and its clients told. Does not drain the service; the caller does that next. */
void weir_server_drain(weir_server *server, int64_t deadline_ns);
/* Cancels running requests, closes every connection, joins all threads. NULL-safe. */
void weir_server_close(weir_server *server);

#ifdef __cplusplus
}
#endif
