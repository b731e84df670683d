/* tools/load/workload.h - what a load sends and when: drawn in advance from a seed, so that two
 * runs send the same requests at the same times whatever the server does. Pure. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_LOAD_REQUESTS = 1 << 20, /* the most of a run */
    WEIR_LOAD_TOKENS = 1 << 20, /* the most of a prompt or an answer */
    WEIR_LOAD_STREAMS = 4096 /* the most at a time */
};

typedef enum weir_length_kind {
    WEIR_LENGTH_FIXED, /* "512" */
    WEIR_LENGTH_UNIFORM, /* "256-1024" */
    WEIR_LENGTH_NORMAL, /* "normal:512,128": mean and standard deviation */
    WEIR_LENGTH_EXPONENTIAL /* "exponential:512": mean */
} weir_length_kind;

typedef struct weir_length {
    weir_length_kind kind;
    double a, b;
} weir_length;

/* `what` names the value in messages. Returns EINVAL. */
WEIR_MUST_CHECK weir_status
weir_length_parse(weir_length *out, const char *text, const char *what, weir_error *error);
/* Draws number `draw` of `stream`: 1 .. WEIR_LOAD_TOKENS. */
int32_t weir_length_draw(const weir_length *length, uint64_t seed, uint32_t stream, uint64_t draw);

typedef struct weir_workload_options {
    double rate; /* conversations per second, as a Poisson process; 0: closed loop */
    double seconds; /* none begins later; 0: no limit */
    int64_t n_requests; /* 0: as many as `seconds` takes */
    uint64_t seed;
    weir_length prompt, answer;
    int32_t prefix, n_groups; /* tokens that the conversations of a group share */
    int32_t n_turns; /* of a conversation */
    double think; /* mean seconds between an answer and the next turn, exponential */
} weir_workload_options;

/* One turn of a conversation. */
typedef struct weir_turn {
    int32_t prompt, answer; /* tokens */
    int64_t think_ns; /* after the answer before it; 0 for the first turn */
} weir_turn;

typedef struct weir_conversation {
    int64_t arrival_ns; /* from the start of the run; 0 in a closed loop */
    int32_t group, first, n_turns; /* first: its first turn in weir_workload.turns */
} weir_conversation;

typedef struct weir_workload {
    weir_conversation *conversations; /* owned; [n_conversations], by arrival */
    weir_turn *turns; /* owned; [n_turns] */
    int32_t n_conversations, n_turns;
} weir_workload;

/* Returns EINVAL for options that make no load, ENOMEM. */
WEIR_MUST_CHECK weir_status
weir_workload_make(weir_workload *out, const weir_workload_options *options, weir_error *error);
void weir_workload_free(weir_workload *workload); /* idempotent */

/* Appends n_words words. The same text for the same seed, stream and number. */
WEIR_MUST_CHECK weir_status
weir_load_words(weir_buffer *out, uint64_t seed, uint32_t stream, uint32_t number, int32_t n_words);

/* Streams of random numbers, one for each purpose. */
enum {
    WEIR_DRAW_ARRIVAL = 1,
    WEIR_DRAW_PROMPT,
    WEIR_DRAW_ANSWER,
    WEIR_DRAW_THINK,
    WEIR_DRAW_GROUP,
    WEIR_DRAW_PREFIX_TEXT,
    WEIR_DRAW_TURN_TEXT,
    WEIR_DRAW_PROBE_TEXT
};

#ifdef __cplusplus
}
#endif
