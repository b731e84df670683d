/* engine/router/internal.h - structures shared by the files of this folder only.
 *
 * A connection carries one request: its head is read and checked, its body as far as needed to find
 * the model; it waits for the model; then bytes are passed on both ways until the model's server
 * closes, and the connection is closed. Buffers are bounded: what one side does not take is not
 * read from the other. */
#pragma once
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/types.h>

#include "engine/base/buffer.h"
#include "engine/router/body_model.h"
#include "engine/router/models.h"
#include "engine/router/router.h"
#include "engine/router/server_head.h"
#include "engine/serve/access.h"
#include "engine/serve/errors.h"
#include "engine/serve/http_chunks.h"
#include "engine/serve/http_head.h"
#include "engine/serve/listen.h"

enum {
    WEIR_ROUTE_SPARE = 8, /* connections beyond max_connections, for /health and refusals */
    WEIR_ROUTE_HEAD_LINE = WEIR_HTTP_TARGET_BYTES + 128,
    WEIR_ROUTE_PIECE = 32 << 10, /* bytes of an answer on their way */
};

typedef enum weir_route_phase {
    WEIR_ROUTE_HEAD,
    WEIR_ROUTE_BODY, /* until the model is known */
    WEIR_ROUTE_WAIT, /* for the model */
    WEIR_ROUTE_PASS, /* bytes on, both ways */
    WEIR_ROUTE_ANSWER, /* the router's own */
    WEIR_ROUTE_LINGER, /* reads what the peer still sends, so that it gets the answer */
    WEIR_ROUTE_CLOSED
} weir_route_phase;

typedef struct weir_route_bytes {
    char *data;
    size_t size, at, capacity; /* at: sent */
} weir_route_bytes;

/* What epoll says something about. */
typedef enum weir_route_kind {
    WEIR_ROUTE_LISTENER,
    WEIR_ROUTE_STOP,
    WEIR_ROUTE_CHILD,
    WEIR_ROUTE_CLIENT,
    WEIR_ROUTE_SERVER
} weir_route_kind;
typedef struct weir_route_source {
    weir_route_kind kind;
    int fd; /* -1: none */
    uint32_t events; /* watched for */
    void *owner;
} weir_route_source;

typedef struct weir_child {
    weir_route_source source; /* its pidfd */
    pid_t pid; /* 0: none */
    char socket[108];
    int64_t kill_ns; /* 0: it was not told to end */
} weir_child;

typedef struct weir_route {
    struct weir_router *router;
    struct weir_route *next, *previous;
    weir_route_source client, server;
    struct in6_addr address;
    bool is_spare;
    weir_route_phase phase;
    int64_t since_ns, moved_ns; /* in this phase; when the client last took or sent bytes */
    weir_http_head head;
    /* The request. */
    char path[200]; /* cut */
    char cors[WEIR_ACCESS_ORIGIN]; /* "": none */
    char query[WEIR_QUERY_MODEL]; /* the model that the query names; "": none */
    bool is_get, head_only, is_public, chunked, body_done, has_key_of_all;
    uint32_t own_keys; /* bits of models whose own keys have the request's */
    int64_t body_left, body_bytes;
    weir_http_chunks chunks;
    weir_body_model field;
    int model; /* -1: none yet */
    bool is_counted; /* among the running or waiting of its model */
    bool peer_closed, server_closed, began; /* began: bytes of an answer may be sent */
    weir_route_bytes up, down; /* to the server, to the client */
    size_t in_used, in_capacity;
    char in[]; /* received and not looked at */
} weir_route;

struct weir_router {
    weir_router_options options;
    weir_access access; /* the router's keys */
    weir_access own[WEIR_ROUTER_MODELS]; /* models' own keys */
    weir_listener listener;
    weir_route_source listening, stopping;
    int epoll;
    char folder[64]; /* of sockets; "": none */
    weir_loads loads;
    weir_child children[WEIR_ROUTER_MODELS];
    weir_route *routes;
    int64_t n_routes, n_spare, n_waiting;
    int64_t body_bytes, body_limit; /* of all requests on their way */
    bool drains, listens;
    int64_t start_unix;
    uint64_t n_refused;
};

/* ---- children.c ------------------------------------------------------------------------------ */
WEIR_MUST_CHECK weir_status weir_child_start(weir_router *router, size_t i, weir_error *error);
/* Returns a descriptor that is connected or connecting; -1 with errno. */
int weir_child_connect(const weir_router *router, size_t i);
void weir_child_stop(weir_router *router, size_t i, int64_t now_ns);
/* After its end: returns its exit code. */
int weir_child_end(weir_router *router, size_t i);
void weir_child_tick(weir_router *router, size_t i, int64_t now_ns);

/* ---- supply.c: what requests wait for -------------------------------------------------------- */
/* The index of the model for a name, n bytes; -1: none. */
int weir_supply_find(const weir_router *router, const char *name, size_t n);
/* A request has its model: it begins, waits or is refused. */
void weir_supply_ask(weir_route *route);
/* It has ended, or no longer waits. */
void weir_supply_leave(weir_route *route);
void weir_supply_ended(weir_router *router, size_t i, int64_t now_ns);
/* Starts and stops servers, and lets requests go on whose model is there. */
void weir_supply_run(weir_router *router, int64_t now_ns);

/* ---- request.c: heads ------------------------------------------------------------------------ */
/* Checks a complete head, and writes the one for the server to route->up. Returns false if the
 * request was answered here. */
bool weir_request_begin(weir_route *route);
bool weir_request_may_use(const weir_route *route, size_t model);
/* A key of the server shows the metrics of all models, also of those that it may not use. */
bool weir_request_may_watch(const weir_route *route, size_t model);

/* ---- answers.c: what the router answers itself ----------------------------------------------- */
/* True if it did. */
bool weir_answer_own(weir_route *route);
/* The name is of no model that this request may use. */
void weir_answer_unknown(weir_route *route, const char *name);
/* `retry_after`: seconds; 0: none. */
void weir_answer_error(weir_route *route, const weir_api_error *error, int retry_after);
void weir_answer_refuse(
    weir_route *route, int status, const char *code, int retry_after, const char *format, ...
) __attribute__((format(printf, 5, 6)));
void weir_answer_options(weir_route *route);
/* Puts lines that allow the page to read the answer into the server's head. Returns false while its
 * first line has not arrived. */
bool weir_answer_allow(weir_route *route);

/* ---- route.c --------------------------------------------------------------------------------- */
weir_route *weir_route_open(
    weir_router *router, int fd, const struct in6_addr *address, bool is_spare
);
void weir_route_free(weir_route *route);
void weir_route_close(weir_route *route);
void weir_route_enter(weir_route *route, weir_route_phase phase);
/* Sets what epoll says of it. */
void weir_route_watch(weir_route *route);
/* Makes room for `n` bytes in `up`. False: too many for all requests. */
bool weir_route_reserve(weir_route *route, size_t n);
void weir_route_release(weir_route *route); /* frees `up` */
/* Begins to send `text`, which it takes, in place of an answer of the server. */
void weir_route_answer(weir_route *route, weir_buffer *text);
/* The whole answer was sent: closes when the peer has, or soon. */
void weir_route_linger(weir_route *route);
bool weir_route_receive_in(weir_route *route); /* true: something arrived */
/* Moves the body that has arrived to `up`, as it is framed. Returns false if it was refused. */
bool weir_route_take_body(weir_route *route);
bool weir_route_send_down(weir_route *route); /* true: all was sent */
void weir_route_run(weir_route *route, const weir_route_source *source, uint32_t events);
void weir_route_tick(weir_route *route, int64_t now_ns);

/* ---- pass.c ---------------------------------------------------------------------------------- */
typedef enum weir_sent { WEIR_SENT_ALL, WEIR_SENT_PART, WEIR_SENT_FAILED } weir_sent;
static inline bool weir_route_has(const weir_route_bytes *bytes) { return bytes->at < bytes->size; }
weir_sent weir_route_send(int fd, weir_route_bytes *bytes);
void weir_route_pass(weir_route *route); /* its model's server listens */
bool weir_route_passes(weir_route *route); /* a step; true: the phase changed */
