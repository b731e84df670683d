/* engine/hub/http.h - GET requests by libcurl, which is loaded for the first one: linked to the
 * program it would add 4 ms to the start of every command.
 *
 * Redirects are followed here: at most 8, never from https to http, and the token goes only to the
 * scheme, host and port that the first request names. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/hub/listing.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_http weir_http;

/* The headers of the last reply; text is printable, "" where there is none. */
typedef struct weir_http_head {
    int status;
    int64_t length; /* Content-Length; -1: none */
    int64_t retry_after_s; /* 0: none */
    char link[2 * WEIR_HUB_QUERY], range[80], code[64], message[200]; /* X-Error-Code, -Message */
    char commit[WEIR_HUB_COMMIT + 1]; /* X-Repo-Commit of any reply on the way; "": none */
    char host[160]; /* that sent it */
} weir_http_head;

typedef enum weir_http_end {
    WEIR_HTTP_DONE, /* a whole reply of any status */
    WEIR_HTTP_CUT, /* the network failed or the reply ended early: worth another try */
    WEIR_HTTP_REFUSED, /* by a rule above, or TLS failed: not worth it */
    WEIR_HTTP_STOPPED, /* a callback said so */
} weir_http_end;

typedef struct weir_http_request {
    const char *url, *token; /* NULL: none; never part of a message */
    int64_t from; /* first byte that is wanted */
    /* Called once, before the body of a reply with status 200 or 206; false stops. NULL: none. */
    bool (*begin)(void *user, const weir_http_head *head);
    /* A piece of that body; false stops. Bodies of other replies are dropped. */
    bool (*body)(void *user, const void *bytes, size_t n);
    bool (*is_cancelled)(void *user); /* asked a few times a second; true stops; NULL: never */
    void *user;
} weir_http_request;

/* `agent` names the program, "weir/1.0"; borrowed.
 * errors : EUNSUPPORTED: libcurl cannot be loaded, which the message says how to mend; ENOMEM */
WEIR_MUST_CHECK weir_status weir_http_open(weir_http **out, const char *agent, weir_error *error);
/* Makes a request; `problem` says why it was cut or refused (a host, never a whole URL). */
weir_http_end weir_http_get(
    weir_http *http, const weir_http_request *request, weir_http_head *head, weir_error *problem
);
void weir_http_close(weir_http *http); /* NULL-safe */

/* Reads one header line into the head; a status line begins a new one. */
void weir_http_read_header(weir_http_head *head, const char *line, size_t n);
/* True for http://HOST or https://HOST with a port or a path, and no user, query or control
 * characters. */
bool weir_http_endpoint_is_good(const char *endpoint);
/* Same scheme, host and port, by their text. */
bool weir_http_same_origin(const char *a, const char *b);

#ifdef __cplusplus
}
#endif
