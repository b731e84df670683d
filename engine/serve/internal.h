/* engine/serve/internal.h - structures shared by the files of this folder only.
 *
 * Threads: one HTTP thread (loop.c) owns all sockets and connections; workers parse, render,
 * tokenise and submit; the engine thread delivers tokens. An exchange is one request and its
 * answer. The HTTP thread opens it and detaches it when the connection is done with it; it is then
 * destroyed by that thread, or by a worker if one is processing it or must release its jobs. Lock
 * order: exchange, then the loop's wake list and the workers' queue. */
#pragma once
#include <jansson.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "engine/base/heap.h"
#include "engine/base/line_writer.h"
#include "engine/serve/access.h"
#include "engine/serve/call_memory.h"
#include "engine/serve/errors.h"
#include "engine/serve/grammars.h"
#include "engine/serve/http_chunks.h"
#include "engine/serve/http_head.h"
#include "engine/serve/json_out.h"
#include "engine/serve/listen.h"
#include "engine/serve/metrics.h"
#include "engine/serve/openai_request.h"
#include "engine/serve/server.h"
#include "engine/session/state_service.h"
#include "engine/toolcalls/format.h"
#include "offload/ledger.h"

typedef struct weir_connection weir_connection;
typedef struct weir_exchange weir_exchange;
typedef struct weir_generation weir_generation;
typedef struct weir_session_call weir_session_call; /* defined in sessions_api.c */
typedef struct weir_states_call weir_states_call; /* defined in states_api.h */
struct weir_llama_slots; /* defined in llama_slots.c */

/* ---- connections (connection.c, respond.c; HTTP thread only) --------------------------------- */

typedef enum weir_phase {
    WEIR_PHASE_IDLE, /* no byte of a request yet */
    WEIR_PHASE_HEADER,
    WEIR_PHASE_BODY,
    WEIR_PHASE_ANSWER, /* the request is complete or refused; its answer is made and sent */
    /* Everything is sent; remaining input is read and dropped, so that no reset destroys the
     * answer. */
    WEIR_PHASE_LINGER,
    WEIR_PHASE_CLOSED, /* freed at the end of the loop's turn */
} weir_phase;

enum { WEIR_OUT_PIECES = 3 };

struct weir_connection {
    weir_connection *next, *previous; /* list of the loop */
    weir_server *server;
    weir_exchange *exchange; /* NULL between requests */
    int fd;
    uint32_t events; /* as registered with epoll */
    struct in6_addr address; /* of the peer; IPv4 is mapped */
    weir_phase phase;
    bool is_spare; /* beyond max_connections: serves /health only */
    bool peer_closed; /* the peer will not send more */
    bool again; /* has work for the loop's next turn */
    bool close_after, http_1_0, head_only;
    bool begun, streaming, ending; /* state of the answer being sent */
    int64_t since_ns; /* start of the phase */
    int64_t moved_ns; /* when a byte was last sent or received */
    int64_t n_requests;
    weir_http_head head;
    weir_http_chunks chunks;
    bool chunked;
    int64_t body_left, body_bytes; /* with Content-Length; received so far */
    struct iovec out[WEIR_OUT_PIECES]; /* being sent: pieces out_at to n_out */
    int out_at, n_out;
    char chunk_head[24], out_head[WEIR_REPLY_HEADER_BYTES];
    size_t in_used, in_capacity; /* bytes in `in`: the request and what follows it */
    char in[];
};

/* Takes a connected socket. Returns NULL if there is no memory; the caller then still owns the
 * socket. */
weir_connection *weir_connection_open(
    weir_server *server, int fd, const struct in6_addr *address, bool is_spare
);
void weir_connection_free(weir_connection *connection); /* requires phase CLOSED */
/* Continues the connection: after events of its socket, when its exchange woke it, or when it has
 * work left. */
void weir_connection_run(weir_connection *connection, uint32_t events);
void weir_connection_tick(weir_connection *connection, int64_t now_ns); /* checks timeouts */
/* Closes at once and abandons its request. */
void weir_connection_close(weir_connection *connection);
/* How much closing it would lose, to make room for another: 0: idle, 1: reading a header, 2:
 * waiting for a body; -1: busy. */
int weir_connection_worth(const weir_connection *connection, int64_t now_ns);

/* ---- sending (respond.c) --------------------------------------------------------------------- */
typedef enum weir_sent { WEIR_SENT_PART, WEIR_SENT_ALL, WEIR_SENT_FAILED } weir_sent;
/* Sends what the exchange has ready. PART: wait for the socket or the exchange. */
weir_sent weir_respond(weir_connection *connection);

/* ---- the loop (loop.c) ----------------------------------------------------------------------- */

enum { WEIR_SPARE_PLACES = 16 }; /* connections beyond max_connections; also spare exchanges */
enum { WEIR_LOOP_STOP = 1, WEIR_LOOP_LEAVE = 2, WEIR_LOOP_QUIT = 4 };

typedef struct weir_loop {
    pthread_t thread;
    bool running;
    int epoll, wake, listener; /* descriptors; -1: none */
    int n_connections, n_spare;
    atomic_int n_spare_exchanges;
    bool is_full; /* out of descriptors: accepting waits for the next tick */
    weir_connection *connections;
    pthread_mutex_t lock;
    weir_exchange *first_awake; /* requires the lock */
    unsigned commands; /* requires the lock */
} weir_loop;

/* Commands. STOP: running answers end with a message to their clients. LEAVE: running answers are
 * cancelled. QUIT: closes all connections and ends the thread. */
WEIR_MUST_CHECK weir_status weir_loop_open(weir_server *server, weir_error *error);
WEIR_MUST_CHECK weir_status weir_loop_start(weir_server *server, weir_error *error);
void weir_loop_command(weir_loop *loop, unsigned command); /* thread-safe */
void weir_loop_close(weir_loop *loop); /* sends QUIT if it runs; idempotent */
/* No effect after the exchange was forgotten. Best without its lock, which the HTTP thread takes
 * next. */
void weir_loop_wake(weir_loop *loop, weir_exchange *exchange);
void weir_loop_forget(weir_loop *loop, weir_exchange *exchange);
/* Registers the events that a connection waits for. */
void weir_loop_watch(weir_loop *loop, weir_connection *connection, uint32_t events);

/* ---- workers (workers.c) --------------------------------------------------------------------- */

enum { WEIR_WORK_START = 1, WEIR_WORK_ADVANCE = 2, WEIR_WORK_DESTROY = 4, WEIR_WORK_ABANDON = 8 };

typedef struct weir_workers {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    weir_exchange *first, *last;
    pthread_t *threads; /* [n_threads] */
    int n_threads;
    int n_held; /* over all exchanges */
    weir_memory_tracker *tracker; /* of the threads' allocations */
    bool stop;
} weir_workers;
WEIR_MUST_CHECK weir_status weir_workers_start(
    weir_workers *workers, int n_threads, weir_memory_tracker *tracker, weir_error *error
);
void weir_workers_stop(weir_workers *workers); /* after all work is done */
/* Queues work. One thread at a time processes an exchange; bits that arrive meanwhile are done
 * next. DESTROY is the last. */
void weir_workers_add(weir_workers *workers, weir_exchange *exchange, unsigned work);
/* The exchange waits for a thread of another layer: it is not destroyed before it is released,
 * which queues ADVANCE. No worker waits meanwhile. */
void weir_workers_hold(weir_workers *workers, weir_exchange *exchange);
void weir_workers_release(weir_workers *workers, weir_exchange *exchange); /* any thread */
/* Returns true if the caller must destroy it, false if a worker will. */
bool weir_workers_drop(weir_workers *workers, weir_exchange *exchange);

/* ---- routes (routes.c) ----------------------------------------------------------------------- */

typedef struct weir_route {
    const char *method, *path; /* a path that ends with '/' matches any rest without '/' */
    bool is_public, by_worker;
    void (*run)(weir_exchange *exchange); /* ends with weir_reply_* or a running generation */
    /* For /openapi.json; NULL: none. The schema of the body (openapi.c), names of parameters of the
     * query, and the types of the reply, if it is not JSON, and of a stream. */
    const char *summary, *request, *query, *produces, *streams;
} weir_route;
const weir_route *weir_routes(size_t *count);
/* Finds a route. Returns NULL if the path is unknown, or if the method does not fit; then *allow
 * lists the methods of the path. */
const weir_route *weir_route_find(const char *method, const char *path, const char **allow);

/* ---- exchange (exchange.c) ------------------------------------------------------------------- */

typedef enum weir_ready { WEIR_NOT_READY, WEIR_READY_REPLY, WEIR_READY_STREAM } weir_ready;

enum { WEIR_REQUEST_ID = 128, WEIR_PATH_BYTES = 512, WEIR_QUERY_BYTES = 128 };

struct weir_exchange {
    weir_server *server;
    weir_connection *connection; /* HTTP thread only */
    const weir_route *route;
    char id[WEIR_REQUEST_ID + 1], path[WEIR_PATH_BYTES], method[16];
    char query[WEIR_QUERY_BYTES]; /* after '?'; "" if it is too long */
    int64_t start_ns;
    int key; /* index of the API key; -1: none */
    weir_buffer body;
    char cors[WEIR_ACCESS_ORIGIN]; /* the caller's origin if it is listed; "": none */

    pthread_mutex_t lock;
    weir_heap *heap; /* NULL: nothing allocated yet, or no memory for a heap */
    bool attached; /* a connection waits for it */
    bool is_spare; /* not charged: answers /health, and 503 to everything else */
    bool gone; /* the client has left or must be disconnected */
    weir_ready ready;
    int status; /* HTTP status */
    weir_api_error error; /* status 0: none */
    const char *content_type;
    weir_buffer reply;
    weir_buffer unknown; /* JSON array of unknown fields for the log; may be empty */
    char warning[WEIR_WARNING_BYTES]; /* x-weir-warning, set before `ready`; "": none */
    weir_generation *generation; /* set by a worker before others can see it */
    weir_session_call *call; /* workers only: an operation of /v1/sessions; NULL: none */
    weir_states_call *states; /* workers only: an operation of /v1/states that waits; NULL: none */

    atomic_bool awake; /* the HTTP thread will look at it */
    weir_exchange *next_awake, *previous_awake; /* requires the loop's lock, like the next two */
    bool is_listed, is_forgotten;

    weir_exchange *next_work; /* requires the workers' lock */
    unsigned work;
    int n_held;
    bool queued, worked_on;
};

/* Opens the exchange of a request; `target` may be "". It is spare on a spare connection and when
 * memory runs out. Returns NULL if all spare exchanges are in use. HTTP thread. */
weir_exchange *weir_exchange_open(
    weir_connection *connection, const char *method, const char *target
);
/* Detaches the connection. `complete`: the answer was sent. The exchange is destroyed at once
 * unless a worker is processing it or must release its jobs. */
void weir_exchange_detach(weir_exchange *exchange, bool complete);
void weir_exchange_destroy(weir_exchange *exchange); /* releases jobs, writes the log line, frees */
/* The HTTP thread looks at it again, unless it was detached. The caller keeps it from being
 * destroyed; its lock may be held, but need not be. */
void weir_exchange_wake(weir_exchange *exchange);
/* The client is gone: cancels everything. Any thread, lock not held. */
void weir_exchange_leave(weir_exchange *exchange);
/* Cancels the answer and tells the client why. Any thread, lock not held. */
void weir_exchange_stop(weir_exchange *exchange);
/* Charges n more bytes of body. Returns false at the server's limit. */
bool weir_exchange_charge(weir_exchange *exchange, size_t n);
void weir_exchange_drop_body(weir_exchange *exchange); /* after it was read */
/* Sets the warning header and the log field; once per request. */
void weir_exchange_warn(weir_exchange *exchange, const weir_unknown_fields *unknown);
/* Checks the fields of a body that is not read as a weir_openai_request. */
WEIR_MUST_CHECK weir_status
weir_exchange_check_fields(weir_exchange *exchange, const json_t *root, weir_body body);
/* The tracker for weir_memory_tracker_set: the exchange's heap, which holds all memory that the
 * request causes, on any thread. Lock not held. */
weir_memory_tracker *weir_exchange_tracker(weir_exchange *exchange);
void weir_exchange_run(weir_exchange *exchange); /* runs the route with that tracker */
void weir_exchange_advance(weir_exchange *exchange); /* continues what it waited for */
/* Its client is gone, or the server ends: cancels what it waits for. Worker. */
void weir_exchange_abandon(weir_exchange *exchange);
/* A client's name for something, kept separate for each key; independent of restarts and of the
 * order of keys. */
typedef struct weir_own_name {
    char salt[WEIR_SALT_BYTES + 24], name[WEIR_SESSION_NAME + 1]; /* salt "": none */
} weir_own_name;
enum { WEIR_OWNER_BYTES = 18 }; /* prefix of the client's names, "kDIGEST-", if it has a key */
weir_own_name weir_exchange_own(
    const weir_exchange *exchange, const char *cache_salt, const char *session
);
/* Finish a request that has no stream yet. Lock not held. Takes over the buffer's memory. */
void weir_reply_json(weir_exchange *exchange, int status, weir_buffer *text);
void weir_reply_text(weir_exchange *exchange, const char *content_type, const void *text, size_t n);
void weir_reply_error(weir_exchange *exchange); /* sends exchange->error */
/* Reports a failure of the server itself. */
void weir_reply_status(weir_exchange *exchange, weir_status status);
/* Sends the text if OK; else exchange->error, which is filled from the status if empty. */
void weir_reply_result(weir_exchange *exchange, weir_buffer *text, weir_status status);

/* ---- the request log (request_log.c) --------------------------------------------------------- */

/* Opens the log on options.log_fd, if set. */
WEIR_MUST_CHECK weir_status weir_request_log_open(weir_server *server, weir_error *error);
void weir_request_log(weir_exchange *exchange); /* called when the request has ended */

/* ---- generation (generation_open.c, generation.c, stream.c, reply.c) ------------------------- */

void weir_generate_chat(weir_exchange *exchange); /* route */
void weir_generate_completion(weir_exchange *exchange); /* route */
void weir_generate_response(weir_exchange *exchange); /* route, responses_reply.c */
void weir_generate_message(weir_exchange *exchange); /* route; anthropic_api.c */
/* Submits more prompts, or makes the reply. Worker. */
void weir_generation_advance(weir_exchange *exchange);
void weir_generation_abandon(weir_generation *generation); /* cancels its session job. Worker. */
void weir_generation_cancel(weir_generation *generation); /* requires the exchange's lock */
/* Sends the client an error, as the reply or as the end of its stream. Requires the exchange's
 * lock. */
void weir_generation_stop(weir_generation *generation);
/* Releases its jobs. No callback follows. */
void weir_generation_release(weir_generation *generation);
void weir_generation_free(weir_generation *generation);
void weir_generation_log(const weir_generation *generation, weir_buffer *line);
typedef enum weir_piece {
    WEIR_PIECE_NONE,
    WEIR_PIECE_TEXT,
    WEIR_PIECE_END,
    WEIR_PIECE_BROKEN
} weir_piece;
/* Returns the next piece of a stream after the previous one was sent. TEXT is borrowed until the
 * next call. NONE: the exchange wakes its connection when there is more. BROKEN: the stream must
 * end without its final chunk, because the answer is incomplete. */
weir_piece weir_stream_next(weir_exchange *exchange, const char **text, size_t *n);
/* Called periodically on the HTTP thread: pings, late headers, prompts that wait for the queue or
 * for a file. */
void weir_stream_tick(weir_exchange *exchange, int64_t now_ns);

/* ---- other endpoints ------------------------------------------------------------------------- */

void weir_anthropic_count_tokens(weir_exchange *exchange);
void weir_tokens_encode(weir_exchange *exchange);
void weir_tokens_decode(weir_exchange *exchange);
void weir_responses_tokens(weir_exchange *exchange);
void weir_memory_get(weir_exchange *exchange);
void weir_memory_plan_get(weir_exchange *exchange);
void weir_memory_map_get(weir_exchange *exchange);
void weir_page_get(weir_exchange *exchange);
/* Writes the members "format", "k_format", ... into the open object. */
void weir_kv_formats_write(weir_json_out *json, const weir_engine_facts *facts);
void weir_sessions_get(weir_exchange *exchange);
void weir_sessions_post_save(weir_exchange *exchange);
void weir_sessions_post_restore(weir_exchange *exchange);
void weir_sessions_remove(weir_exchange *exchange);
WEIR_MUST_CHECK weir_status weir_sessions_need(weir_exchange *exchange); /* 501 if they are off */
/* Saves `ids`, which it takes over, to a file, or restores one; the reply is that of a slot. */
void weir_sessions_post_slot(
    weir_exchange *exchange, weir_session_work work, const char *name, int32_t slot, weir_ids *ids
);
void weir_session_call_advance(weir_session_call *call); /* replies if its job is done. Worker. */
void weir_session_call_abandon(weir_session_call *call);
void weir_session_call_free(weir_session_call *call); /* NULL-safe */
void weir_llama_completion(weir_exchange *exchange);
void weir_llama_infill(weir_exchange *exchange);
void weir_llama_template(weir_exchange *exchange);
void weir_llama_props(weir_exchange *exchange);
void weir_llama_slots_get(weir_exchange *exchange);
void weir_llama_slots_post(weir_exchange *exchange);
void weir_embeddings(weir_exchange *exchange);
void weir_rerank(weir_exchange *exchange);
void weir_ollama_embed(weir_exchange *exchange);
void weir_ollama_embeddings(weir_exchange *exchange);
void weir_ollama_chat(weir_exchange *exchange);
void weir_ollama_generate(weir_exchange *exchange);
void weir_ollama_tags(weir_exchange *exchange);
void weir_ollama_ps(weir_exchange *exchange);
void weir_ollama_show(weir_exchange *exchange);
void weir_ollama_version(weir_exchange *exchange);
void weir_ollama_refuse(weir_exchange *exchange);
void weir_states_api_get(weir_exchange *exchange);
void weir_states_api_get_one(weir_exchange *exchange);
void weir_states_api_post(weir_exchange *exchange);
void weir_states_api_query(weir_exchange *exchange);
void weir_states_api_merge(weir_exchange *exchange);
void weir_states_api_remove(weir_exchange *exchange);
void weir_states_call_advance(weir_states_call *call); /* if what it waits for is over. Worker. */
void weir_states_call_abandon(weir_states_call *call);
void weir_states_call_free(weir_states_call *call); /* NULL-safe */
/* Finds a state by the client's name: its own first, then one without an owner. Any thread. */
WEIR_MUST_CHECK weir_status weir_states_find_own(
    weir_state_info *info, const weir_exchange *exchange, const char *name, weir_error *error
);
/* Fills the error for a failed search. Returns the status. */
weir_status weir_states_name_failed(
    weir_api_error *error, const char *name, const char *param, weir_status status,
    const weir_error *why
);
/* What jobs that read the state's files have for themselves (weir_session_job.path). */
void weir_states_key(char out[WEIR_STATE_NAME + 16], const char *name);
/* Fills the error for a failed operation on states. Returns the status. */
weir_status weir_states_fail(weir_api_error *error, weir_status status, const weir_error *why);
weir_state_service weir_states_documents(weir_exchange *exchange);
/* Writes whether the state equals what its tokens give, as members of the open object. */
void weir_states_write_form(weir_json_out *json, const weir_state_info *info);
/* Reads the ids of `tokens`, `prompt` or `messages`. */
WEIR_MUST_CHECK weir_status weir_text_ids(
    weir_ids *ids, bool *given, const weir_server *server, const json_t *root, weir_api_error *error
);
/* Reads the ids of `prompt` or `messages`; *given: one of them is present. Fills the error on
 * failure. */
WEIR_MUST_CHECK weir_status weir_prompt_encode(
    weir_ids *ids, const weir_server *server, const json_t *root, bool *given, weir_api_error *error
);
WEIR_MUST_CHECK weir_status weir_text_encode(
    weir_ids *ids, const weir_server *server, const char *text, size_t n,
    const weir_encode_options *options, const char *param, weir_api_error *error
);
/* True if the chat template depends on the reasoning effort. */
bool weir_chat_reads_effort(const weir_server *server);
/* True if the chat template takes a message of this role after one of the user. */
bool weir_chat_takes_after_user(const weir_server *server, const char *role);
/* Messages of the roles that sentence-transformers gives a query and a document; prompt: a system
 * message before them, "": none. NULL: no memory. The caller owns it. */
json_t *weir_chat_pair(const char *prompt, const json_t *query, const json_t *document);
/* *are_lost: the chat template leaves these messages out, as most do with roles that they do not
 * know: all documents would have the same score. Not for one that refuses them, which a request
 * reports. errors : ENOMEM */
WEIR_MUST_CHECK weir_status
weir_chat_check_pairs(bool *are_lost, const weir_server *server, const char *prompt);
/* Makes ids and text of a chat prompt. Fills the error on failure. */
WEIR_MUST_CHECK weir_status weir_chat_prompt(
    weir_ids *ids, const weir_server *server, const weir_openai_request *request, weir_buffer *text,
    weir_api_error *error
);

/* ---- the server ------------------------------------------------------------------------------ */

struct weir_server {
    weir_server_options options; /* with defaults filled in */
    weir_request_limits limits;
    weir_access access;
    weir_ledger_tracker tracker; /* of all memory of requests */
    weir_metrics metrics;
    weir_loop loop;
    weir_line_writer *log; /* NULL: no log */
    weir_listener socket;
    int64_t start_unix;
    atomic_bool draining;
    atomic_size_t body_bytes, n_exchanges;
    weir_workers workers;
    const weir_chat_format *format; /* of tool calls, as the chat template prints them */
    bool reasons; /* the vocabulary contains a tag of reasoning */
    bool loses_pairs; /* of a model that ranks: weir_chat_check_pairs */
    weir_ledger_tracker grammars_tracker; /* of `grammars`, and of those that jobs hold */
    weir_grammars *grammars;
    struct weir_llama_slots *slots; /* the last texts of requests with id_slot */
    weir_call_memory *calls; /* as the model wrote them; charged like the grammars */
};

/* Checks a complete head: Host, origin, key, route, length. Fills the error. *must_close: the body,
 * if any, will not be read. */
WEIR_MUST_CHECK weir_status weir_check_head(
    weir_exchange *exchange, const weir_http_head *head, const char *bytes, bool *must_close
);
