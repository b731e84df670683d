/* engine/serve/internal.h - the structures shared by the files of this folder. Not for others.
 *
 * Threads: one HTTP thread (loop.c) owns all sockets and connections; workers parse, render,
 * tokenise and submit; the engine thread delivers tokens. An exchange is one request and its
 * answer: opened by the HTTP thread, destroyed once the HTTP thread let go of it, by that
 * thread, or by a worker that has it or has to release its jobs. Lock order: exchange, then the
 * loop's wake list and the workers' queue. */
#pragma once
#include <jansson.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "engine/base/heap.h"
#include "engine/base/line_writer.h"
#include "engine/serve/access.h"
#include "engine/serve/errors.h"
#include "engine/serve/http_chunks.h"
#include "engine/serve/http_head.h"
#include "engine/serve/json_out.h"
#include "engine/serve/metrics.h"
#include "engine/serve/openai_request.h"
#include "engine/serve/server.h"
#include "engine/session/state_service.h"
#include "offload/ledger.h"

typedef struct weir_connection weir_connection;
typedef struct weir_exchange weir_exchange;
typedef struct weir_generation weir_generation;

/* ---- connections (connection.c, respond.c; HTTP thread only) --------------------------------- */

typedef enum weir_phase {
    WEIR_PHASE_IDLE, /* no byte of a request yet */
    WEIR_PHASE_HEADER,
    WEIR_PHASE_BODY,
    WEIR_PHASE_ANSWER, /* the request is complete, or refused; its answer is made and sent */
    /* All is sent; what still comes is read away, so that no reset destroys it */
    WEIR_PHASE_LINGER,
    WEIR_PHASE_CLOSED, /* freed at the end of the loop's turn */
} weir_phase;

enum { WEIR_OUT_PIECES = 3 };

struct weir_connection {
    weir_connection *next, *previous; /* of the loop's list */
    weir_server *server;
    weir_exchange *exchange; /* NULL between requests */
    int fd;
    uint32_t events; /* epoll's, as registered */
    struct in6_addr address; /* of the peer; IPv4 mapped */
    weir_phase phase;
    bool is_spare; /* one of the places beyond max_connections: health only */
    bool peer_closed; /* the peer sends nothing more */
    bool again; /* it has work left for the loop's next turn */
    bool close_after, http_1_0, head_only;
    bool begun, streaming, ending; /* of the answer that is being sent */
    int64_t since_ns; /* begin of the phase */
    int64_t moved_ns; /* last byte that came or went */
    int64_t n_requests;
    weir_http_head head;
    weir_http_chunks chunks;
    bool chunked;
    int64_t body_left, body_bytes; /* with Content-Length; received so far */
    struct iovec out[WEIR_OUT_PIECES]; /* what is being sent: pieces out_at to n_out */
    int out_at, n_out;
    char chunk_head[24], out_head[WEIR_REPLY_HEADER_BYTES];
    size_t in_used, in_capacity; /* bytes of `in`: of the request and behind it */
    char in[];
};

/* Takes a connected socket. NULL: no memory; the socket is still the caller's. */
weir_connection *weir_connection_open(
    weir_server *server, int fd, const struct in6_addr *address, bool is_spare
);
void weir_connection_free(weir_connection *connection); /* after it is CLOSED */
/* Does what can be done now: after events of its socket, when its exchange woke it, when it had
 * work left. */
void weir_connection_run(weir_connection *connection, uint32_t events);
void weir_connection_tick(weir_connection *connection, int64_t now_ns); /* times */
void weir_connection_close(weir_connection *connection); /* at once; its request is left */
/* How much is lost by closing it to make room for another: 0 idle, 1 in a header, 2 in a body that
 * does not come; -1: it is busy. */
int weir_connection_worth(const weir_connection *connection, int64_t now_ns);

/* respond.c */
typedef enum weir_sent { WEIR_SENT_PART, WEIR_SENT_ALL, WEIR_SENT_FAILED } weir_sent;
/* Begins or goes on to send what the exchange has ready. PART: the socket or the exchange has to
 * come first. */
weir_sent weir_respond(weir_connection *connection);

/* ---- the loop (loop.c) ----------------------------------------------------------------------- */

enum { WEIR_SPARE_PLACES = 16 }; /* connections beyond max_connections; spare exchanges */
enum { WEIR_LOOP_STOP = 1, WEIR_LOOP_LEAVE = 2, WEIR_LOOP_QUIT = 4 };

typedef struct weir_loop {
    pthread_t thread;
    bool running;
    int epoll, wake, listener; /* descriptors, -1: none */
    int n_connections, n_spare;
    atomic_int n_spare_exchanges;
    bool is_full; /* no descriptor was left: accepting waits for the next tick */
    weir_connection *connections;
    pthread_mutex_t lock;
    weir_exchange *first_awake; /* under the lock */
    unsigned commands; /* under the lock */
} weir_loop;

/* STOP: answers that run end with a word to their clients. LEAVE: they end. QUIT: all connections
 * are closed, and the thread ends. */
WEIR_MUST_CHECK weir_status weir_loop_open(weir_server *server, weir_error *error);
WEIR_MUST_CHECK weir_status weir_loop_start(weir_server *server, weir_error *error);
void weir_loop_command(weir_loop *loop, unsigned command); /* any thread */
void weir_loop_close(weir_loop *loop); /* QUITs if it runs; idempotent */
/* The exchange's lock is held and it is attached. */
void weir_loop_wake(weir_loop *loop, weir_exchange *exchange);
/* It is not attached any more: no wake comes after this. */
void weir_loop_forget(weir_loop *loop, weir_exchange *exchange);
/* Registers the events that a connection waits for. */
void weir_loop_watch(weir_loop *loop, weir_connection *connection, uint32_t events);

/* ---- work for the worker threads (workers.c) ------------------------------------------------- */

enum { WEIR_WORK_START = 1, WEIR_WORK_ADVANCE = 2, WEIR_WORK_DESTROY = 4 };

typedef struct weir_workers {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    weir_exchange *first, *last;
    pthread_t thread[16];
    int n_threads;
    weir_payer *payer; /* of what the threads allocate */
    bool stop;
} weir_workers;
WEIR_MUST_CHECK weir_status
weir_workers_start(weir_workers *workers, int n_threads, weir_payer *payer, weir_error *error);
void weir_workers_stop(weir_workers *workers); /* after all work was done */
/* One exchange is worked on by one thread at a time; bits that arrive meanwhile are done next.
 * DESTROY is the last. */
void weir_workers_add(weir_workers *workers, weir_exchange *exchange, unsigned work);
/* true: the caller destroys it; false: a worker will. */
bool weir_workers_drop(weir_workers *workers, weir_exchange *exchange);

/* ---- routes (routes.c) ----------------------------------------------------------------------- */

typedef struct weir_route {
    const char *method, *path; /* a path that ends with '/' takes any rest without '/' */
    bool is_public, by_worker;
    void (*run)(weir_exchange *exchange); /* ends with weir_reply_* or a running generation */
} weir_route;
/* NULL: no such path. *allow: the methods of the path. Any method of a known path gives a route if
 * the method fits, else NULL with *allow set. */
const weir_route *weir_route_find(const char *method, const char *path, const char **allow);

/* ---- exchange (exchange.c) ------------------------------------------------------------------- */

typedef enum weir_ready { WEIR_NOT_READY, WEIR_READY_REPLY, WEIR_READY_STREAM } weir_ready;

enum { WEIR_REQUEST_ID = 128, WEIR_PATH_BYTES = 512, WEIR_QUERY_BYTES = 128 };

struct weir_exchange {
    weir_server *server;
    weir_connection *connection; /* HTTP thread only */
    const weir_route *route;
    char id[WEIR_REQUEST_ID + 1], path[WEIR_PATH_BYTES], method[16];
    char query[WEIR_QUERY_BYTES]; /* what stands behind '?'; "" when it is longer */
    int64_t start_ns;
    int key; /* index of the API key, -1: none */
    weir_buffer body;
    char cors[WEIR_ACCESS_ORIGIN]; /* the listed origin that asks; "": none */

    pthread_mutex_t lock;
    weir_heap *heap; /* NULL: nothing was taken yet, or there was no room for one */
    bool attached; /* a connection waits for it */
    bool is_spare; /* on no account: it answers /health, and 503 to the rest */
    bool gone; /* the client left or must be left */
    weir_ready ready;
    int status; /* HTTP */
    weir_api_error error; /* status 0: none */
    const char *content_type;
    weir_buffer reply;
    weir_buffer unknown; /* names of unknown fields, a JSON array for the log; or empty */
    char warning[WEIR_WARNING_BYTES]; /* x-weir-warning; filled before `ready`; "": none */
    weir_generation *generation; /* set by a worker before anything else knows it */

    weir_exchange *next_awake, *previous_awake; /* under the loop's lock */
    bool awake;

    weir_exchange *next_work; /* under the workers' lock */
    unsigned work;
    bool queued, worked_on;
};

/* For a request of a connection. It is spare at a spare place, and where there is no memory for
 * another; NULL: as many as there may be of those exist. `target` may be "". HTTP thread. */
weir_exchange *weir_exchange_open(
    weir_connection *connection, const char *method, const char *target
);
/* The connection lets go of it. `complete`: its answer was sent. It is destroyed at once unless a
 * worker has it or has to release its jobs. */
void weir_exchange_detach(weir_exchange *exchange, bool complete);
void weir_exchange_destroy(weir_exchange *exchange); /* releases jobs, writes the log line, frees */
void weir_exchange_wake(weir_exchange *exchange); /* lock held: the HTTP thread shall look again */
/* Any thread, lock not held: the client is gone, cancel everything */
void weir_exchange_leave(weir_exchange *exchange);
/* Any thread, lock not held: cancel its answer and say why */
void weir_exchange_stop(weir_exchange *exchange);
/* n more bytes of body; false: the server's bound is reached */
bool weir_exchange_charge(weir_exchange *exchange, size_t n);
void weir_exchange_drop_body(weir_exchange *exchange); /* it was read */
/* For the header and the log line; once a request. */
void weir_exchange_warn(weir_exchange *exchange, const weir_unknown_fields *unknown);
/* The fields of a body that no weir_openai_request is made of. */
WEIR_MUST_CHECK weir_status
weir_exchange_check_fields(weir_exchange *exchange, const json_t *root, weir_body body);
/* For weir_payer_set: its heap. All that the request causes is taken there, on whatever thread. */
weir_payer *weir_exchange_payer(weir_exchange *exchange); /* lock not held */
void weir_exchange_run(weir_exchange *exchange); /* the route, with that payer */
/* What one key's requests call something, apart from what others call so: the same after a restart,
 * in whatever order the keys are. */
typedef struct weir_own_name {
    char salt[WEIR_SALT_BYTES + 24], name[WEIR_SESSION_NAME + 1]; /* salt "": none */
} weir_own_name;
enum {
    WEIR_OWNER_BYTES = 18
}; /* what stands before a client's name, "kDIGEST-", when it has a key */
weir_own_name weir_exchange_own(
    const weir_exchange *exchange, const char *cache_salt, const char *session
);
/* End a request that has no stream yet. Lock not held. Takes the buffer's memory. */
void weir_reply_json(weir_exchange *exchange, int status, weir_buffer *text);
void weir_reply_text(weir_exchange *exchange, const char *content_type, const void *text, size_t n);
void weir_reply_error(weir_exchange *exchange); /* exchange->error */
/* a failure of this server itself */
void weir_reply_status(weir_exchange *exchange, weir_status status);
/* OK: the text; else exchange->error, made of the status if it is not filled */
void weir_reply_result(weir_exchange *exchange, weir_buffer *text, weir_status status);

/* ---- the request log (request_log.c) --------------------------------------------------------- */

/* Of options.log_fd, if there is one */
WEIR_MUST_CHECK weir_status weir_request_log_open(weir_server *server, weir_error *error);
void weir_request_log(weir_exchange *exchange); /* it is over */

/* ---- generation (generate.c, generation.c, stream.c, reply.c) -------------------------------- */

void weir_generate_chat(weir_exchange *exchange); /* route */
void weir_generate_completion(weir_exchange *exchange); /* route */
/* Worker: submit more prompts, or make the reply */
void weir_generation_advance(weir_exchange *exchange);
void weir_generation_cancel(weir_generation *generation); /* exchange's lock held */
/* Exchange's lock held: the client gets an error, as a reply or as the end of its stream */
void weir_generation_stop(weir_generation *generation);
/* Gives its jobs back: no callback comes after this */
void weir_generation_release(weir_generation *generation);
void weir_generation_free(weir_generation *generation);
void weir_generation_log(const weir_generation *generation, weir_buffer *line);
typedef enum weir_piece {
    WEIR_PIECE_NONE,
    WEIR_PIECE_TEXT,
    WEIR_PIECE_END,
    WEIR_PIECE_BROKEN
} weir_piece;
/* The next piece of a stream, once the one before was sent. TEXT is borrowed until the next call.
 * NONE: the exchange wakes its connection when more has come. BROKEN: the stream ends without an
 * end, since its answer is not complete. */
weir_piece weir_stream_next(weir_exchange *exchange, const char **text, size_t *n);
/* HTTP thread, now and then: pings, late headers, prompts that wait for the queue. */
void weir_stream_tick(weir_exchange *exchange, int64_t now_ns);

/* ---- other endpoints ------------------------------------------------------------------------- */

void weir_tokens_encode(weir_exchange *exchange);
void weir_tokens_decode(weir_exchange *exchange);
void weir_memory_get(weir_exchange *exchange);
/* The members "format", "k_format", ... of the object that is open. */
void weir_kv_formats_write(weir_json_out *json, const weir_engine_facts *facts);
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
/* The state that this client calls so: its own, else one that nobody owns. On failure the error is
 * filled. */
WEIR_MUST_CHECK weir_status weir_states_of_name(
    weir_state_info *info, weir_exchange *exchange, const char *name, const char *param
);
/* What the operations on states answer; returns the status. */
weir_status weir_states_fail(weir_api_error *error, weir_status status, const weir_error *why);
weir_state_service weir_states_documents(weir_exchange *exchange);
/* Whether it is as its text leaves it, as members of the object that is open. */
void weir_states_write_form(weir_json_out *json, const weir_state_info *info);
/* Ids of the field `tokens`, `prompt` or `messages`. */
WEIR_MUST_CHECK weir_status weir_text_ids(
    weir_ids *ids, bool *given, const weir_server *server, const json_t *root, weir_api_error *error
);
/* Ids of the field `prompt` or `messages`; *given: there is one of them. On failure the error is
 * filled. */
WEIR_MUST_CHECK weir_status weir_prompt_encode(
    weir_ids *ids, const weir_server *server, const json_t *root, bool *given, weir_api_error *error
);
WEIR_MUST_CHECK weir_status weir_text_encode(
    weir_ids *ids, const weir_server *server, const char *text, size_t n,
    const weir_encode_options *options, const char *param, weir_api_error *error
);
/* Whether the chat template's text depends on how much is to be thought. */
bool weir_chat_reads_effort(const weir_server *server);
/* Ids and text of a chat prompt; on failure the error is filled. */
WEIR_MUST_CHECK weir_status weir_chat_prompt(
    weir_ids *ids, const weir_server *server, const weir_openai_request *request, weir_buffer *text,
    weir_api_error *error
);

/* ---- the server ------------------------------------------------------------------------------ */

struct weir_server {
    weir_server_options options; /* with defaults filled in */
    weir_request_limits limits;
    weir_access access;
    weir_ledger_payer payer; /* of all that belongs to requests */
    weir_metrics metrics;
    weir_loop loop;
    weir_line_writer *log; /* NULL: none is wanted */
    int port;
    int64_t start_unix;
    atomic_bool draining;
    atomic_size_t body_bytes, n_exchanges;
    atomic_int n_state_waits; /* workers that wait for what /v1/states computes */
    weir_workers workers;
    bool thinks; /* the vocabulary has <think> */
};

/* Checks of a whole head (check.c): Host, origin, key, route, length. Fills the error. *must_close:
 * the body, if there is one, will not be read. */
WEIR_MUST_CHECK weir_status weir_check_head(
    weir_exchange *exchange, const weir_http_head *head, const char *bytes, bool *must_close
);
