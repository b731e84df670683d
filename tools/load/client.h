/* tools/load/client.h - sends a workload to a server and records what comes back: one thread,
 * sockets that do not block.
 *
 * Open loop: a conversation begins when it is due, however many still run. With a limit of streams
 * it then waits here, and its latency counts from when it was due. Closed loop: `streams` clients
 * hold one conversation after another; a request is due when the answer before it has come and the
 * client has thought.
 *
 * All sockets that are ready are read, each with its time, before anything is parsed. */
#pragma once
#include "tools/load/exchange.h"
#include "tools/load/prompt.h"
#include "tools/load/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_load_options {
    const weir_load_target *target;
    const weir_load_form *form;
    const weir_workload *workload;
    int32_t prefix; /* tokens of the text that a group shares */
    bool is_open; /* open loop */
    int32_t n_streams; /* requests at a time, 1 .. WEIR_LOAD_STREAMS */
    double seconds; /* what is due later is not sent; 0: no limit */
    int64_t timeout_ms; /* of one request */
    const volatile int *stopped; /* true ends the run; may be NULL */
    void (*progress)(void *user, int64_t n_done); /* may be NULL */
    void *user;
} weir_load_options;

enum { WEIR_LOAD_PROBLEM = 200 };

typedef struct weir_load_result {
    weir_load_record *records; /* owned; [n], in the order in which they were sent */
    int32_t n;
    weir_samples gaps; /* ms between events with text, of requests that ended well */
    int64_t start_ns, end_ns;
    int32_t peak; /* the most requests at a time */
    int32_t n_unsent; /* turns after a failed one, or due after the end */
    bool is_stopped;
    /* The first message of each kind of failure, printable; "": none. */
    char problems[WEIR_LOAD_OUTCOMES][WEIR_LOAD_PROBLEM];
} weir_load_result;

/* Returns ENOMEM, EIO if the machine refuses sockets. Failed requests are results, not errors. */
WEIR_MUST_CHECK weir_status
weir_load_run(weir_load_result *out, const weir_load_options *options, weir_error *error);
void weir_load_result_free(weir_load_result *result); /* idempotent */

#ifdef __cplusplus
}
#endif
