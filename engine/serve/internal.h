/* engine/serve/internal.h - the structures shared by the files of this folder. Not for others.
 *
 * Threads: one MHD thread runs all HTTP callbacks; workers parse, render, tokenise and submit; the engine thread delivers tokens; the
 * watcher enforces times. An exchange is one request and its answer. MHD does not end the request of a suspended connection, so a worker
 * may use the exchange whose request waits for it. Lock order: registry, then exchange, then what MHD and the workers lock inside. */
#pragma once
#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "engine/base/heap.h"
#include "engine/schedule/documents.h"
#include "engine/serve/access.h"
#include "engine/serve/errors.h"
#include "engine/serve/json_out.h"
#include "engine/serve/metrics.h"
#include "engine/serve/openai_request.h"
#include "engine/serve/server.h"
#include "offload/ledger.h"

typedef struct weir_exchange   weir_exchange;
typedef struct weir_generation weir_generation;

/* ---- connections (watch.c) ----------------------------------------------------------------------------------- */

typedef enum weir_phase { WEIR_PHASE_IDLE, WEIR_PHASE_HEADER, WEIR_PHASE_BODY, WEIR_PHASE_ANSWER } weir_phase;

/* All fields under the server's registry lock. */
typedef struct weir_connection {
    struct weir_connection *next, *previous;
    weir_exchange          *exchange;   /* NULL between requests */
    int                     fd;
    weir_phase              phase;
    int64_t                 since_ns;   /* begin of the phase */
    int64_t                 writing_ns; /* a piece of a stream was given to MHD and is not written yet; 0: none */
    uint64_t                received;   /* bytes the socket had received when the last request ended */
    size_t                  body_bytes;
    bool                    chunked;
} weir_connection;

void weir_watch_opened(weir_server *server, weir_connection *connection);
void weir_watch_closed(weir_server *server, weir_connection *connection);
/* Enters a phase; `exchange` is remembered. */
void  weir_watch_phase(weir_server *server, weir_connection *connection, weir_phase phase, weir_exchange *exchange);
void  weir_watch_body(weir_server *server, weir_connection *connection, size_t n);
void  weir_watch_writing(weir_server *server, weir_connection *connection, bool writing);
void *weir_watch_run(void *server); /* thread */
/* A whole error answer straight to the socket, for states in which MHD takes no reply; then the socket's end. */
void weir_watch_answer_and_end(int fd, const weir_api_error *error);

/* ---- work for the worker threads (workers.c) ------------------------------------------------------------------ */

enum { WEIR_WORK_START = 1, WEIR_WORK_ADVANCE = 2, WEIR_WORK_DESTROY = 4 };

typedef struct weir_workers {
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    weir_exchange  *first, *last;
    pthread_t       thread[16];
    int             n_threads;
    weir_payer     *payer; /* of what the threads allocate */
    bool            stop;
} weir_workers;
WEIR_MUST_CHECK weir_status weir_workers_start(weir_workers *workers, int n_threads, weir_payer *payer, weir_error *error);
void                        weir_workers_stop(weir_workers *workers); /* after all work was done */
/* One exchange is worked on by one thread at a time; bits that arrive meanwhile are done next. DESTROY is the last. */
void weir_workers_add(weir_workers *workers, weir_exchange *exchange, unsigned work);

/* ---- routes (routes.c) ----------------------------------------------------------------------------------------- */

typedef struct weir_route {
    const char *method, *path; /* a path that ends with '/' takes any rest without '/' */
    bool        is_public, by_worker;
    void (*run)(weir_exchange *exchange); /* ends with weir_reply_* or a running generation */
} weir_route;
/* NULL: no such path. *allow: the methods of the path. Any method of a known path gives a route if the method fits, else NULL with *allow set. */
const weir_route *weir_route_find(const char *method, const char *path, const char **allow);

/* ---- exchange (exchange.c) ------------------------------------------------------------------------------------- */

typedef enum weir_ready { WEIR_NOT_READY, WEIR_READY_REPLY, WEIR_READY_STREAM } weir_ready;

enum { WEIR_REQUEST_ID = 128, WEIR_PATH_BYTES = 512, WEIR_QUERY_BYTES = 128 };

struct weir_exchange {
    weir_server      *server;
    weir_connection  *connection;
    const weir_route *route;
    char              id[WEIR_REQUEST_ID + 1], path[WEIR_PATH_BYTES], method[16];
    size_t            target_length; /* of the whole request target */
    char              query[WEIR_QUERY_BYTES]; /* what stands behind '?'; "" when it is longer */
    int64_t           start_ns;
    int               key; /* index of the API key, -1: none */
    weir_buffer       body;
    size_t            length; /* Content-Length, 0: none or not known before */
    bool              checked, dispatched, chunked; /* MHD thread only */

    pthread_mutex_t        lock;
    weir_heap             *heap; /* NULL: nothing was taken yet, or there was no room for one */
    struct MHD_Connection *mhd; /* NULL once the request is over */
    bool                   suspended, gone; /* gone: the client left or must be left */
    weir_ready             ready;
    int                    status; /* HTTP */
    weir_api_error         error; /* status 0: none */
    const char            *content_type;
    weir_buffer            reply;
    weir_generation       *generation; /* set by a worker before anything else knows it */

    weir_exchange *next_work; /* under the workers' lock */
    unsigned       work;
    bool           queued, worked_on;
};

weir_exchange *weir_exchange_open(weir_server *server, const char *target);
void           weir_exchange_destroy(weir_exchange *exchange); /* worker: releases jobs, writes the log line, frees */
void           weir_exchange_wake(weir_exchange *exchange); /* lock held: the MHD thread shall look again */
void           weir_exchange_leave(weir_exchange *exchange); /* any thread, lock not held: the client is gone, cancel everything */
void           weir_exchange_stop(weir_exchange *exchange); /* any thread, lock not held: cancel its answer and say why */
bool           weir_exchange_charge(weir_exchange *exchange, size_t n); /* n more bytes of body; false: the server's bound is reached */
/* For weir_payer_set: its heap. All that the request causes is taken there, on whatever thread. */
weir_payer    *weir_exchange_payer(weir_exchange *exchange); /* lock not held */
void           weir_exchange_run(weir_exchange *exchange); /* the route, with that payer */
void           weir_exchange_drop_body(weir_exchange *exchange); /* it was read */
/* What one key's requests call something, apart from what others call so: the same after a restart, in whatever order the keys are. */
typedef struct weir_own_name {
    char salt[WEIR_SALT_BYTES + 24], name[WEIR_SESSION_NAME + 1]; /* salt "": none */
} weir_own_name;
enum { WEIR_OWNER_BYTES = 18 }; /* what stands before a client's name, "kDIGEST-", when it has a key */
weir_own_name weir_exchange_own(const weir_exchange *exchange, const char *cache_salt, const char *session);
/* End a request that has no stream yet. Lock not held. */
void weir_reply_json(weir_exchange *exchange, int status, weir_buffer *text); /* takes the buffer's memory */
void weir_reply_text(weir_exchange *exchange, const char *content_type, const void *text, size_t n);
void weir_reply_error(weir_exchange *exchange); /* exchange->error */
void weir_reply_status(weir_exchange *exchange, weir_status status); /* a failure of this server itself */
void weir_reply_result(weir_exchange *exchange, weir_buffer *text,
                       weir_status status); /* OK: the text; else exchange->error, made of the status if it is not filled */

/* ---- generation (generate.c, generation.c, stream.c, reply.c) ---------------------------------------------------------------- */

void weir_generate_chat(weir_exchange *exchange); /* route */
void weir_generate_completion(weir_exchange *exchange); /* route */
void weir_generation_advance(weir_exchange *exchange); /* worker: submit more prompts, or make the reply */
void weir_generation_cancel(weir_generation *generation); /* exchange's lock held */
void weir_generation_stop(
    weir_generation *generation); /* exchange's lock held: the client gets an error, as a reply or as the end of its stream */
void    weir_generation_release(weir_generation *generation); /* gives its jobs back: no callback comes after this */
void    weir_generation_free(weir_generation *generation);
void    weir_generation_log(const weir_generation *generation, weir_buffer *line);
ssize_t weir_stream_read(void *exchange, uint64_t position, char *out, size_t max); /* MHD content reader */
void    weir_stream_tick(weir_exchange *exchange, int64_t now_ns); /* watcher: pings, late headers, prompts that wait for the queue */

/* ---- other endpoints -------------------------------------------------------------------------------------------- */

void weir_tokens_encode(weir_exchange *exchange);
void weir_tokens_decode(weir_exchange *exchange);
void weir_memory_get(weir_exchange *exchange);
/* The members "format", "k_format", ... of the object that is open. */
void weir_kv_formats_write(weir_json_out *json, const weir_service_info *info);
void weir_sessions_get(weir_exchange *exchange);
void weir_sessions_post_save(weir_exchange *exchange);
void weir_sessions_post_restore(weir_exchange *exchange);
void weir_sessions_remove(weir_exchange *exchange);
void weir_states_api_get(weir_exchange *exchange);
void weir_states_api_get_one(weir_exchange *exchange);
void weir_states_api_post(weir_exchange *exchange);
void weir_states_api_query(weir_exchange *exchange);
void weir_states_api_merge(weir_exchange *exchange);
void weir_states_api_remove(weir_exchange *exchange);
/* The state that this client calls so: its own, else one that nobody owns. On failure the error is filled. */
WEIR_MUST_CHECK weir_status weir_states_of_name(weir_state_info *info, weir_exchange *exchange, const char *name, const char *param);
/* What the operations on states answer; returns the status. */
weir_status    weir_states_fail(weir_api_error *error, weir_status status, const weir_error *why);
weir_documents weir_states_documents(weir_exchange *exchange);
/* Whether it is as its text leaves it, as members of the object that is open. */
void weir_states_write_form(weir_json_out *json, const weir_state_info *info);
/* Ids of the field `tokens`, `prompt` or `messages`. */
WEIR_MUST_CHECK weir_status weir_text_ids(weir_ids *ids, bool *given, const weir_server *server, const json_t *root, weir_api_error *error);
/* Ids of the field `prompt` or `messages`; *given: there is one of them. On failure the error is filled. */
WEIR_MUST_CHECK weir_status weir_prompt_encode(weir_ids *ids, const weir_server *server, const json_t *root, bool *given,
                                               weir_api_error *error);
/* Ids of a chat prompt; on failure the error is filled. *think: how the answer begins; may be NULL. */
WEIR_MUST_CHECK weir_status weir_chat_prompt(weir_ids *ids, const weir_server *server, const weir_openai_request *request,
                                             weir_buffer *text, weir_api_error *error);

/* ---- the server -------------------------------------------------------------------------------------------------- */

struct weir_server {
    weir_server_options options; /* with defaults filled in */
    weir_request_limits limits;
    weir_access         access;
    weir_ledger_payer   payer; /* of all that belongs to requests */
    weir_metrics        metrics;
    struct MHD_Daemon  *daemon;
    int                 listen_fd, port;
    bool                loopback, watching;
    int64_t             start_unix;
    pthread_t           watcher;
    atomic_bool         stopping, draining;
    atomic_size_t       body_bytes, n_exchanges;
    atomic_int          n_state_waits; /* workers that wait for what /v1/states computes */
    weir_workers        workers;
    pthread_mutex_t     registry_lock;
    weir_connection    *connections;
    bool                thinks; /* the vocabulary has <think> */
};

enum MHD_Result weir_http_handle(void *server, struct MHD_Connection *mhd, const char *url, const char *method, const char *version,
                                 const char *upload, size_t *upload_size, void **exchange);
void           *weir_http_target(void *server, const char *target, struct MHD_Connection *mhd);
void            weir_http_completed(void *server, struct MHD_Connection *mhd, void **exchange, enum MHD_RequestTerminationCode why);
void            weir_http_connection(void *server, struct MHD_Connection *mhd, void **context, enum MHD_ConnectionNotificationCode what);
/* Checks of the header alone (check.c): framing, names, sizes, Host, key, route, length. Fills the error; *must_close: framing in doubt. */
WEIR_MUST_CHECK weir_status weir_check_header(weir_exchange *exchange, struct MHD_Connection *mhd, const char *version, bool *must_close);
