/* engine/kv/policy/policy_options.h - the methods by name, and their parameters: one table
 * (policy_options.inc) gives name, range and help. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_policy_ops weir_policy_ops; /* engine/kv/policy/policy_ops.h */

enum { WEIR_POLICY_TEXT = 1024 };

/* In the order of the words in policy_options.inc. */
typedef enum weir_policy_trigger {
    WEIR_TRIGGER_SLACK,
    WEIR_TRIGGER_STRICT,
    WEIR_TRIGGER_DELAYED,
    WEIR_TRIGGER_FORWARDS
} weir_policy_trigger;
typedef enum weir_policy_split {
    WEIR_SPLIT_UNIFORM,
    WEIR_SPLIT_PYRAMID,
    WEIR_SPLIT_ADAPTIVE,
    WEIR_SPLIT_HEADS
} weir_policy_split;
typedef enum weir_policy_positions {
    WEIR_POSITIONS_ABSOLUTE,
    WEIR_POSITIONS_CACHE
} weir_policy_positions;
typedef enum weir_policy_scope { WEIR_SCOPE_KV_HEAD, WEIR_SCOPE_LAYER } weir_policy_scope;
typedef enum weir_policy_variant {
    WEIR_SNAPKV_KVPRESS,
    WEIR_SNAPKV_ORIGINAL,
    WEIR_SNAPKV_DECODE
} weir_policy_variant;
typedef enum weir_policy_vote {
    WEIR_VOTE_PER_HEAD,
    WEIR_VOTE_PER_LAYER_HEAD,
    WEIR_VOTE_UNION
} weir_policy_vote;
typedef enum weir_policy_gate { WEIR_GATE_CONSTANT, WEIR_GATE_NORM } weir_policy_gate;
typedef enum weir_policy_aggregate {
    WEIR_AGGREGATE_MEAN,
    WEIR_AGGREGATE_MAX
} weir_policy_aggregate;

/* One field per line of the table; INT and WORD are int64_t, REAL double, BOOL bool, TEXT
 * char[]. */
typedef struct weir_policy_options {
    const weir_policy_ops *ops;
#define INT(name, least, most, help) int64_t name;
#define REAL(name, least, most, help) double name;
#define BOOL(name, help) bool name;
#define WORD(name, words, help) int64_t name;
#define TEXT(name, help) char name[WEIR_POLICY_TEXT];
#include "engine/kv/policy/policy_options.inc"
#undef INT
#undef REAL
#undef BOOL
#undef WORD
#undef TEXT
} weir_policy_options;

/* The method's defaults. Returns ECONFIG, naming the nearest method, if there is none of this
 * name. */
WEIR_MUST_CHECK weir_status
weir_policy_options_default(weir_policy_options *options, const char *name, weir_error *error);
/* Sets options from "sinks=4,recent=8". Returns ECONFIG for a name that the method does not have
 * (names the nearest), a bad value, or one out of range; `options` is then unchanged. Text values
 * contain no comma: use ';' inside them. */
WEIR_MUST_CHECK weir_status
weir_policy_options_set(weir_policy_options *options, const char *list, weir_error *error);
/* Prints "h2o sinks=4,budget..": the name and every option, which identifies the policy. Returns
 * ENOMEM. */
WEIR_MUST_CHECK weir_status
weir_policy_options_print(weir_buffer *out, const weir_policy_options *options);

const char *weir_policy_name(const weir_policy_options *options);
/* True if every row stays. */
bool weir_policy_is_full(const weir_policy_options *options);
/* Returns the name of method `index` and one line about it, in the order of the documentation; NULL
 * past the last. */
const char *weir_policy_at(size_t index, const char **summary);
/* The options with which weir eval matrix runs method `index`; NULL: it leaves the method out, as
 * it does those with the option `calibration` if there are no statistics. */
const char *weir_policy_matrix_options(size_t index, bool has_calibration);
/* Returns name, default and help of an option of a method; false past the last. `value` is cut to
 * its size. */
bool weir_policy_option_at(
    const weir_policy_options *defaults, size_t index, const char **name, char *value,
    size_t value_size, const char **help
);

#ifdef __cplusplus
}
#endif
