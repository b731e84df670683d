/* tools/load/exchange.h - one request of a load: reads the bytes of its reply, each with the time
 * at which it arrived, and fills in the record. Pure: no socket and no clock, so that tests set
 * both.
 *
 * Times are those of events with text. A latency begins when the request was due, not when it was
 * sent: a server that is late cannot make the measurement late with it. */
#pragma once
#include "tools/load/event.h"
#include "tools/load/http_reply.h"
#include "tools/load/samples.h"
#include "tools/load/sse.h"

#ifdef __cplusplus
extern "C" {
#endif

// clang-format off
#define WEIR_LOAD_OUTCOME_MAP(X) \
    X(OPEN, "not_finished") /* still running */ \
    X(OK, "ok") \
    X(STATUS, "http_status") /* a status other than 200 */ \
    X(ERROR, "error_in_stream") \
    X(CONNECT, "cannot_connect") \
    X(CLOSED, "closed_early") /* the connection ended before the answer */ \
    X(MALFORMED, "malformed_reply") \
    X(NO_STREAM, "not_a_stream") \
    X(EMPTY, "no_answer") /* a stream without any choice */ \
    X(TOO_LONG, "too_long") /* more events or bytes than the request can cause */ \
    X(TIMEOUT, "timeout")
// clang-format on
typedef enum weir_load_outcome {
#define X(name, text) WEIR_LOAD_##name,
    WEIR_LOAD_OUTCOME_MAP(X)
#undef X
        WEIR_LOAD_OUTCOMES
} weir_load_outcome;
const char *weir_load_outcome_text(weir_load_outcome outcome);

/* Times in ns of one clock; 0: has not happened. */
typedef struct weir_load_record {
    int32_t conversation, turn, group;
    int32_t asked; /* answer tokens that the request allows */
    int64_t due_ns, sent_ns, first_ns, last_ns, end_ns; /* first, last: events with text */
    weir_load_outcome outcome;
    int32_t status; /* of HTTP; 0: none */
    int32_t n_events; /* with text */
    int64_t prompt_tokens, answer_tokens, cached_tokens; /* as the server says; -1: it does not */
} weir_load_record;

/* Zero-initialise; weir_load_exchange_free releases it. */
typedef struct weir_load_exchange {
    weir_load_record *record; /* borrowed */
    weir_samples *gaps; /* ms between events with text; borrowed */
    weir_http_reply reply;
    weir_sse_reader events;
    weir_buffer answer; /* the text, if it is wanted */
    weir_buffer body; /* of a reply that is no stream: its begin */
    weir_buffer problem; /* what the server says of an error */
    bool wants_answer;
    bool is_over, is_done; /* is_done: [DONE] came */
    bool has_finish; /* a finish_reason came */
    size_t n_read, limit; /* bytes of the reply, and the most it may have */
    int64_t now_ns;
} weir_load_exchange;

/* Starts over with this record; due_ns and sent_ns are set by the caller. */
void weir_load_exchange_begin(
    weir_load_exchange *exchange, weir_load_record *record, weir_samples *gaps, bool wants_answer
);
/* Bytes [n] arrived at now_ns. The record is complete when exchange->is_over. Returns ENOMEM. */
WEIR_MUST_CHECK weir_status
weir_load_exchange_read(weir_load_exchange *exchange, const char *bytes, size_t n, int64_t now_ns);
/* The server closed the connection. */
void weir_load_exchange_closed(weir_load_exchange *exchange, int64_t now_ns);
/* Ends it with this outcome. */
void weir_load_exchange_fail(
    weir_load_exchange *exchange, weir_load_outcome outcome, int64_t now_ns
);
/* What is known of a failure, for people; "" if nothing is. */
const char *weir_load_exchange_problem(const weir_load_exchange *exchange);
void weir_load_exchange_free(weir_load_exchange *exchange); /* idempotent */

#ifdef __cplusplus
}
#endif
