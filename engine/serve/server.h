/* engine/serve/server.h - the HTTP server: OpenAI's API over an engine service. What `serve` opens,
 * drains and closes.
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

/* Zero means the default named beside a field. Borrowed until weir_server_close. */
typedef struct weir_server_options {
    const char *host; /* NULL: 127.0.0.1 */
    int port; /* 0: any free one, see weir_server_port */
    bool insecure; /* allow other addresses than loopback without a key */
    const char *const *keys; /* [n_keys] API keys; copied as digests */
    size_t n_keys;
    int64_t body_limit, header_limit,
        body_memory_limit; /* bytes: 16 MiB, 32 KiB, 16 x body_limit (all bodies together) */
    const char *allowed_hosts,
        *allowed_origins; /* lists with commas, NULL: none (engine/serve/access.h) */
    int64_t max_connections; /* 1024 */
    int64_t connections_per_address; /* half of max_connections; not of loopback addresses */
    int64_t header_timeout_ms; /* 10 s, at most read_timeout_ms */
    int64_t read_timeout_ms, write_timeout_ms, ping_ms; /* 30 s, 30 s, 15 s */
    int n_workers; /* threads that parse, render and tokenise, 2 or more: 2, with states 4 */
    const char *model_name; /* NULL: the service's */
    const char *fingerprint; /* system_fingerprint, e.g. version-model-policy; NULL: "weir" */
    const char *version; /* NULL: "0" */
    bool metrics_vllm; /* repeat the known names with the prefix vllm: */
    weir_reasoning_field reasoning_field;
    bool truncate_middle; /* of prompts that are too long, unless the request says otherwise */
    weir_sampling sampling; /* what a request that says nothing gets */
    bool has_seed; /* `sampling.seed` too; false: another one each time */
    int64_t max_tokens; /* of chats that say nothing; 0: to the window's end */
    int log_fd; /* one JSON line per request; -1: none */
    /* the model */
    /* Pays for connections, bodies and answers (account http); NULL: nothing is counted */
    struct weir_ledger *ledger;
    weir_service *service;
    weir_sessions *sessions; /* NULL: /v1/sessions answers 501 */
    weir_states *states; /* NULL: /v1/states answers 501 */
    weir_sessions *carrier; /* of states; may be `sessions` */
    const weir_tokenizer *tokenizer;
    const weir_chat_template *chat; /* NULL: /v1/chat/completions answers 400 */
    const char
        *chat_problem; /* why there is none, for that answer; NULL: the model has no template */
} weir_server_options;

/* Checks the options and binds the socket. ECONFIG: a bad option, or an address other than loopback
 * without key and without `insecure`; EIO: the address cannot be had (the text says whether the
 * port is in use). */
WEIR_MUST_CHECK weir_status
weir_server_open(weir_server **out, const weir_server_options *options, weir_error *error);
/* Begins to answer. */
WEIR_MUST_CHECK weir_status weir_server_start(weir_server *server, weir_error *error);
int weir_server_port(const weir_server *server);

/* New model requests get 503, /v1/models too; returns when the running ones have ended, or within a
 * second of the deadline (CLOCK_MONOTONIC), having cancelled the rest, whose clients are told so.
 * The service is not drained: that is the caller's next step. */
void weir_server_drain(weir_server *server, int64_t deadline_ns);
/* Cancels what runs, closes every connection, joins all threads. NULL-safe. */
void weir_server_close(weir_server *server);

#ifdef __cplusplus
}
#endif
